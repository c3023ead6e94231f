"""Modules of PyTorch of many kinds, each with example arguments: name -> a function that makes both."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {}


def network(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    NETWORKS[make.__name__] = make
    return make


class Fn(nn.Module):
    """A function of tensors and of modules that it uses."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for k, v in parts.items():
            self.register_buffer(k, v) if isinstance(v, torch.Tensor) and not isinstance(v, nn.Parameter) else setattr(
                self, k, v
            )
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


@network
def mlp():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Softmax(-1)), (torch.randn(4, 5),)


@network
def cnn_with_batch_norm():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2, padding="valid"), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, 4),
    )  # fmt: skip
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net, (torch.randn(2, 3, 12, 10),)


class Residual(nn.Module):
    def __init__(self, c: int, d: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, d, 3, stride, 1, bias=False), nn.BatchNorm2d(d)
        self.conv2, self.bn2 = nn.Conv2d(d, d, 3, 1, 1, bias=False), nn.BatchNorm2d(d)
        self.down = nn.Sequential(nn.Conv2d(c, d, 1, stride, bias=False), nn.BatchNorm2d(d))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.down(x)
        return F.relu(y)


@network
def resnet_blocks():
    return nn.Sequential(Residual(3, 8, 2), Residual(8, 8, 1), nn.AvgPool2d(2)), (torch.randn(2, 3, 9, 9),)


@network
def depthwise():
    net = nn.Sequential(
        nn.Conv2d(4, 8, 1), nn.Hardswish(), nn.Conv2d(8, 8, 5, 2, 2, groups=8), nn.SiLU(), nn.Conv2d(8, 4, 1)
    )
    return net, (torch.randn(1, 4, 11, 11),)


@network
def squeeze_and_excite():
    def forward(self: Any, x: Any) -> Any:
        s = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.up(F.relu(self.down(s))))

    return Fn(forward, down=nn.Conv2d(6, 2, 1), up=nn.Conv2d(2, 6, 1)), (torch.randn(2, 6, 5, 4),)


class Block(nn.Module):
    def __init__(self, d: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))
        self.heads, self.causal = heads, causal

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.mlp(self.ln2(x))


@network
def vision_transformer():
    def forward(self: Any, x: Any) -> Any:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.place
        return self.head(self.norm(self.block(y))[:, 0])

    parts = {
        "patch": nn.Conv2d(3, 12, 4, 4), "token": nn.Parameter(torch.randn(1, 1, 12)),
        "place": nn.Parameter(torch.randn(1, 5, 12)), "block": Block(12, 3, False), "norm": nn.LayerNorm(12),
        "head": nn.Linear(12, 5),
    }  # fmt: skip
    return Fn(forward, **parts), (torch.randn(2, 3, 8, 8),)


@network
def gpt():
    def forward(self: Any, ids: Any) -> Any:
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(at)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)

    blocks = nn.ModuleList([Block(12, 2, True), Block(12, 2, True)])
    parts = {"tokens": nn.Embedding(11, 12), "places": nn.Embedding(8, 12), "blocks": blocks, "norm": nn.LayerNorm(12)}
    return Fn(forward, **parts), (torch.randint(0, 11, (2, 6)),)


@network
def llama_block():
    """RMS norm, rotary positions, grouped queries, a mask of bools, SwiGLU."""

    def rotated(x: Any, cos: Any, sin: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def forward(self: Any, x: Any) -> Any:
        b, t, _ = x.shape
        y = F.rms_norm(x, (16,), self.scale, 1e-6)
        q = self.q(y).view(b, t, 4, 4).transpose(1, 2)
        k, v = (m(y).view(b, t, 2, 4).transpose(1, 2) for m in (self.k, self.v))
        angle = torch.outer(torch.arange(t, dtype=torch.float32), self.frequencies)
        angle = torch.cat([angle, angle], -1)
        q, k = rotated(q, angle.cos(), angle.sin()), rotated(k, angle.cos(), angle.sin())
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, 16))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))

    parts: dict[str, Any] = {k: nn.Linear(16, n, bias=False) for k, n in {"q": 16, "k": 8, "v": 8, "o": 16}.items()}
    parts |= {"gate": nn.Linear(16, 24, bias=False), "up": nn.Linear(16, 24, bias=False), "down": nn.Linear(24, 16)}
    parts |= {"scale": nn.Parameter(torch.rand(16) + 0.5), "frequencies": 1.0 / 100.0 ** (torch.arange(2) / 2)}
    return Fn(forward, **parts), (torch.randn(2, 5, 16),)


@network
def encoder_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, activation="gelu", norm_first=True)
    return layer, (torch.randn(2, 5, 8),)


@network
def whole_transformer():
    net = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
    return net, (torch.randn(2, 4, 8), torch.randn(2, 3, 8))


@network
def multihead_attention():
    def forward(self: Any, q: Any, k: Any) -> Any:
        y, w = self.attend(q, k, k, need_weights=True)
        return {"y": y, "weights": w}

    return Fn(forward, attend=nn.MultiheadAttention(8, 2, batch_first=True)), (
        torch.randn(2, 3, 8),
        torch.randn(2, 4, 8),
    )


@network
def lstm():
    return nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True), (torch.randn(3, 6, 4),)


@network
def projected_lstm():
    return nn.LSTM(4, 6, proj_size=3), (torch.randn(5, 2, 4), (torch.randn(1, 2, 3), torch.randn(1, 2, 6)))


@network
def gru():
    return nn.GRU(4, 5, num_layers=2), (torch.randn(6, 3, 4), torch.randn(2, 3, 5))


@network
def rnn():
    return nn.RNN(3, 4, nonlinearity="relu", bias=False), (torch.randn(5, 2, 3),)


@network
def cells():
    def forward(self: Any, x: Any) -> Any:
        h = c = torch.zeros(x.shape[1], 4)
        g = h
        for row in x:
            h, c = self.lstm(row, (h, c))
            g = self.gru(h, g)
        return g, c

    return Fn(forward, lstm=nn.LSTMCell(3, 4), gru=nn.GRUCell(4, 4)), (torch.randn(3, 2, 3),)


@network
def unet():
    def forward(self: Any, x: Any) -> Any:
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        d = self.up(b)
        return self.out(torch.cat([a, c, d, F.interpolate(b, size=a.shape[2:], mode="nearest")], 1))

    parts = {
        "down1": nn.Conv2d(1, 4, 3, padding=1), "down2": nn.Conv2d(4, 6, 3, padding=1),
        "up": nn.ConvTranspose2d(6, 4, 2, stride=2), "out": nn.Conv2d(20, 2, 1),
    }  # fmt: skip
    return Fn(forward, **parts), (torch.randn(1, 1, 8, 10),)


@network
def autoencoder():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1, groups=2),
        nn.ELU(), nn.ConvTranspose2d(2, 1, 3, dilation=2), nn.Sigmoid(),
    )  # fmt: skip
    return net, (torch.randn(2, 1, 8, 8),)


@network
def norms():
    net = nn.Sequential(
        nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.PReLU(4), nn.LocalResponseNorm(3), nn.Softplus(2.0)
    )
    return net, (torch.randn(2, 4, 5, 5),)


@network
def one_dimension():
    net = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same", dilation=2, padding_mode="circular"), nn.BatchNorm1d(4), nn.GELU("tanh"),
        nn.AvgPool1d(2), nn.ConvTranspose1d(4, 3, 4, 2), nn.MaxPool1d(3, 2, ceil_mode=True),
    )  # fmt: skip
    return net, (torch.randn(2, 2, 13),)


@network
def three_dimensions():
    net = nn.Sequential(
        nn.ReplicationPad3d(1), nn.Conv3d(2, 3, 3), nn.Mish(), nn.AvgPool3d(2, ceil_mode=True, count_include_pad=False),
        nn.Upsample(scale_factor=2, mode="trilinear"),
    )  # fmt: skip
    return net, (torch.randn(1, 2, 5, 4, 6),)


@network
def embedding_bag():
    def forward(self: Any, ids: Any, starts: Any) -> Any:
        return self.mean(ids, starts), self.top(ids, starts)

    parts = {"mean": nn.EmbeddingBag(7, 3), "top": nn.EmbeddingBag(7, 3, mode="max")}
    return Fn(forward, **parts), (torch.tensor([1, 4, 2, 6, 0]), torch.tensor([0, 2, 4]))


@network
def embedding_with_padding():
    def forward(self: Any, ids: Any) -> Any:
        return self.embed(ids).sum(1) @ self.table.T

    return Fn(forward, embed=nn.Embedding(5, 3, padding_idx=0), table=nn.Parameter(torch.randn(4, 3))), (
        torch.tensor([[1, 0, 3], [0, 0, 4]]),
    )


@network
def einsums():
    def forward(self: Any, x: Any, y: Any) -> Any:
        return torch.einsum("bij,bkj->bik", x, y), torch.einsum("bij,jk->bik", x, self.w)

    return Fn(forward, w=nn.Parameter(torch.randn(4, 2))), (torch.randn(2, 3, 4), torch.randn(2, 5, 4))


@dataclass
class Output:
    logits: Any
    hidden: Any


Pair = namedtuple("Pair", "a b")
torch.export.register_dataclass(Output, serialized_type_name="tests.Output")


@network
def structures():
    def forward(self: Any, x: Any, more: Any, *, scale: Any) -> Any:
        y = self.linear(x["left"]) * scale + more[0]
        return {"out": Output(y, [y.sum(), x["right"]]), "pair": Pair(y + 1, (more[1], 3, None))}

    args = (OrderedDict(left=torch.randn(2, 3), right=torch.randn(4)), [torch.randn(2, 2), torch.randn(1)])
    return Fn(forward, linear=nn.Linear(3, 2)), (*args, {"scale": torch.tensor(2.0)})


@network
def indexing():
    def forward(self: Any, x: Any, i: Any) -> Any:
        y = x.clone()
        y[:, 1] = 0
        y[i] += 1
        y[..., ::2] *= 2
        z = x.index_select(1, i).gather(0, i[None].expand(1, -1)).masked_fill(x[:1, :2] > 0, -1.0)
        return y, z, x[i, i], x.new_zeros(3, 4).scatter_add(0, i[:, None], x[:2, :1]), torch.where(x > 0, x, -x)

    return Fn(forward), (torch.randn(3, 4), torch.tensor([2, 0]))


@network
def ordering():
    def forward(self: Any, x: Any) -> Any:
        top, at = x.topk(2, -1)
        ordered, places = x.sort(dim=0, descending=True)
        return top, at, ordered, places, x.cumsum(1), x.argmax(0), x.max(1).values, x.logsumexp(1), x.median(1).values

    return Fn(forward), (torch.randn(4, 5),)


@network
def statistics():
    def forward(self: Any, x: Any) -> Any:
        return (
            x.var(1),
            x.std(0, correction=0),
            x.mean(),
            x.norm(dim=1),
            x.amax((0, 1)),
            x.prod(0),
            torch.cdist(x, x + 1),
        )

    return Fn(forward), (torch.randn(4, 3),)


@network
def grid_samples():
    def forward(self: Any, x: Any, theta: Any) -> Any:
        grid = F.affine_grid(theta, [2, 3, 4, 5], align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False), F.grid_sample(
            x, grid * 1.5, mode="bicubic", padding_mode="reflection", align_corners=True
        )

    return Fn(forward), (torch.randn(2, 3, 6, 6), torch.randn(2, 2, 3))


@network
def images():
    def forward(self: Any, x: Any) -> Any:
        return (
            F.pixel_shuffle(x, 2), F.interpolate(x, (7, 5), mode="bicubic", align_corners=True),
            F.interpolate(x, (3, 3), mode="bilinear", antialias=True), F.unfold(x, 2, stride=2),
            F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1), F.adaptive_max_pool2d(x, (2, 3)),
            F.interpolate(x, scale_factor=1.7, mode="nearest-exact"), F.pad(x, (1, 2, 0, 1), mode="reflect"),
        )  # fmt: skip

    return Fn(forward), (torch.randn(1, 4, 6, 4),)


@network
def fourier():
    def forward(self: Any, x: Any) -> Any:
        y = torch.fft.rfft(x, norm="ortho")
        return torch.fft.irfft(y * self.w, n=x.shape[-1], norm="ortho"), torch.view_as_real(y), y.abs()

    return Fn(forward, w=nn.Parameter(torch.randn(5))), (torch.randn(2, 8),)


@network
def squeezeformer_like_gates():
    net = nn.Sequential(
        nn.Conv1d(4, 8, 1), nn.GLU(1), nn.Conv1d(4, 4, 3, groups=4, padding=1), nn.SELU(), nn.Tanhshrink()
    )
    return net, (torch.randn(2, 4, 7),)


@network
def tied_weights():
    shared = nn.Linear(4, 4)
    return nn.Sequential(shared, nn.ReLU(), shared), (torch.randn(3, 4),)


@network
def weight_norm():
    return nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), (torch.randn(2, 3),)


@network
def masks():
    def forward(self: Any, x: Any, lengths: Any) -> Any:
        inside = torch.arange(x.shape[1])[None] < lengths[:, None]
        scores = self.score(x).squeeze(-1).masked_fill(~inside, float("-inf"))
        return (scores.softmax(-1)[..., None] * x).sum(1)

    return Fn(forward, score=nn.Linear(4, 1)), (torch.randn(3, 5, 4), torch.tensor([5, 2, 1]))


@network
def mixture_of_experts():
    def forward(self: Any, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        every = torch.stack([e(x) for e in self.experts], 1)
        taken = every.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return (taken * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)

    experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    return Fn(forward, gate=nn.Linear(4, 3), experts=experts), (torch.randn(5, 4),)


def _positive(n: int) -> torch.Tensor:
    x = torch.randn(n, n)
    return x @ x.T + n * torch.eye(n)


@network
def linear_algebra():
    """Operators whose parts check for errors, which would be an effect of the graph."""
    linalg = torch.linalg

    def run(m: Any, a: Any, b: Any) -> Any:
        low = linalg.cholesky(a)
        return (
            linalg.inv(a), linalg.solve(a, b), linalg.solve(a, b.T, left=False), linalg.det(a), linalg.slogdet(a)[1],
            torch.logdet(a), low, torch.cholesky_solve(b, low), torch.cholesky_inverse(low), linalg.matrix_power(a, 3),
            linalg.matrix_exp(a / 10), linalg.eigvalsh(a), linalg.svdvals(b), linalg.tensorinv(a.reshape(4, 2, 2), 1),
        )  # fmt: skip

    return Fn(run), (_positive(4), torch.randn(4, 3))


@network
def factorizations():
    linalg = torch.linalg

    def run(m: Any, a: Any, b: Any) -> Any:
        return (
            linalg.lu(b),
            linalg.lu_factor(a)[0],
            torch.lu_unpack(*linalg.lu_factor(a)),
            linalg.eigvals(a).abs().sort()[0],
        )

    return Fn(run), (_positive(4), torch.randn(5, 3))


@network
def fake_quantization():
    def run(m: Any, x: Any) -> Any:
        y = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7)
        return y, torch.fake_quantize_per_channel_affine(x, m.scale, m.zero, 0, -128, 127)

    scale, zero = torch.tensor([0.1, 0.02, 0.3]), torch.tensor([0, 3, -5], dtype=torch.int32)
    return Fn(run, scale=scale, zero=zero), (torch.randn(3, 20),)


@network
def values_on_grids():
    import torch.ao.quantization.fx._decomposed  # registers the operators

    ops = torch.ops.quantized_decomposed

    def run(m: Any, x: Any) -> Any:
        tensor, rows = (0.1, 3, -128, 127, torch.int8), (m.scale, m.zero, 0, -128, 127, torch.int8)
        q, r = ops.quantize_per_tensor(x, *tensor), ops.quantize_per_channel(x, *rows)
        return q, r, ops.dequantize_per_tensor(q, *tensor), ops.dequantize_per_channel(r, *rows)

    return Fn(run, scale=torch.tensor([0.1, 0.02, 0.3]), zero=torch.tensor([0, 3, -5])), (torch.randn(3, 20),)


@network
def counts_and_orders():
    def run(m: Any, x: Any, n: Any) -> Any:
        gaps = torch.where(x > 1, float("nan"), x)
        return (
            n.mode(1), n.float().mode(0), gaps.nanmedian(), gaps.nanmedian(1), torch.histc(x, 5, -1, 1),
            torch.histc(x, 4), torch.sign(gaps), torch.sgn(gaps), torch.frexp(x), torch.ldexp(x, n),
            torch.unique(n, dim=0),
        )  # fmt: skip

    n = torch.tensor([[1, 2, 2, 0, 1], [3, 3, 0, 0, 0], [1, 2, 2, 0, 1], [0, 1, 2, 3, 4]])
    return Fn(run), (torch.randn(4, 5), n)


@network
def windows_of_samples():
    def run(m: Any, x: Any) -> Any:
        made = [
            f(8, p) for f in (torch.hamming_window, torch.bartlett_window, torch.blackman_window) for p in (True, False)
        ]
        made += [torch.kaiser_window(8), torch.kaiser_window(8, False, 5.0), torch.hamming_window(8, True, 0.6, 0.4)]
        return [x * w for w in made], torch.fft.fftfreq(7, 0.5), torch.fft.rfftfreq(6)

    return Fn(run), (torch.randn(8),)


@network
def multilabel_margins():
    losses = [nn.MultiLabelMarginLoss(reduction=r) for r in ("none", "mean", "sum")]
    target = torch.tensor([[0, 3, 1, 2], [1, -1, 0, 0], [-1, 1, 1, 1]])
    return Fn(lambda m, x, t: [f(x, t) for f in losses]), (torch.randn(3, 4), target)


@network
def older_operators():
    def run(m: Any, x: Any, a: Any, b: Any) -> Any:
        return torch.conv_tbc(x, m.w, m.b, 1), torch._int_mm(a, b), F.rrelu(x)

    a, b = (torch.randint(-9, 9, (32, 32), dtype=torch.int8) for _ in range(2))
    return Fn(run, w=torch.randn(3, 4, 2), b=torch.randn(2)), (torch.randn(7, 2, 4), a, b)
