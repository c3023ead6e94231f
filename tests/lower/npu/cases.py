"""One float node of every op of the vocabulary: operands, attributes, and what NumPy says the result is."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor

RNG = np.random.default_rng(7)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


@dataclass
class Case:
    op: str
    operands: list[np.ndarray | None]
    want: Any
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    note: str = ""

    @property
    def wanted(self) -> list[np.ndarray]:
        found = self.want if isinstance(self.want, list) else [self.want]
        return [np.asarray(w) for w in found]

    def graph(self) -> tuple[NpuGraph, list[np.ndarray]]:
        tensors = [
            None if x is None else Tensor(f"x{i}", x.shape, x.dtype, None, x if i in self.constants else None)
            for i, x in enumerate(self.operands)
        ]
        outs = tuple(Tensor(f"y{i}", y.shape, y.dtype) for i, y in enumerate(self.wanted))
        inputs = [t for t in tensors if t is not None and not t.constant]
        graph = NpuGraph(self.op, inputs, list(outs), [Node(self.op, tuple(tensors), outs, self.attrs)])
        return graph.check(), [x for i, x in enumerate(self.operands) if x is not None and i not in self.constants]

    def __str__(self) -> str:
        return self.op + ("-" + self.note if self.note else "")


RECURRENT: dict[str, dict[str, dict[str, Any]]] = {
    "lstm": {"": {}, "reverse": {"reverse": True}},
    "gru": {"": {}, "reset after": {"reset_after": True}, "reverse": {"reverse": True}},
    "rnn": {"": {}, "relu": {"function": "relu"}, "reverse": {"reverse": True}},
}


def layer(op: str, x, w, r, b, *states, reverse=False, reset_after=False, function="tanh") -> list[np.ndarray]:
    """The definition of a recurrent layer, gate by gate and step by step, in float64."""
    x, w, r, b, h = (v.astype(np.float64) for v in (x, w, r, b, states[0]))
    n = r.shape[1]
    part = lambda v, k: v[k * n : (k + 1) * n]
    gate = lambda row, k, h: row @ part(w, k).T + h @ part(r, k).T + part(b, k)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    c = states[-1].astype(np.float64)
    rows = np.zeros((*x.shape[:2], n))
    for t in range(len(x))[:: -1 if reverse else 1]:
        if op == "lstm":
            i, f, o = (sigmoid(gate(x[t], k, h)) for k in (0, 1, 3))
            c = f * c + i * np.tanh(gate(x[t], 2, h))
            h = o * np.tanh(c)
        elif op == "gru":
            z, reset = (sigmoid(gate(x[t], k, h)) for k in (0, 1))
            inner = reset * (h @ part(r, 2).T + part(b, 3)) if reset_after else (reset * h) @ part(r, 2).T + part(b, 3)
            new = np.tanh(x[t] @ part(w, 2).T + part(b, 2) + inner)
            h = (1 - z) * new + z * h
        else:
            new = gate(x[t], 0, h)
            h = np.tanh(new) if function == "tanh" else np.maximum(new, 0)
        rows[t] = h
    return [y.astype(np.float32) for y in ([rows, h, c] if op == "lstm" else [rows, h])]


def correlation(x: np.ndarray, w: np.ndarray, strides, dilations, padding, groups: int = 1) -> np.ndarray:
    """The definition, in loops over the result, of any number of spatial dimensions: w is [o, kh, kw, c / groups]."""
    x = np.pad(x, ((0, 0), *padding, (0, 0)))
    o, *kernel, c = w.shape
    rows = list(zip(strides, dilations, kernel, strict=True))
    sizes = [(n - (k - 1) * d - 1) // s + 1 for n, (s, d, k) in zip(x.shape[1:-1], rows, strict=True)]
    y = np.zeros((x.shape[0], *sizes, o))
    for at in np.ndindex(*sizes):
        window = (slice(i * s, i * s + (k - 1) * d + 1, d) for i, (s, d, k) in zip(at, rows, strict=True))
        part = x[(slice(None), *window)]
        for j in range(o):
            g = j // (o // groups)
            y[(slice(None), *at, j)] = (part[..., g * c : (g + 1) * c] * w[j]).sum(tuple(range(1, x.ndim)))
    return y.astype(np.float32)


def spread(x: np.ndarray, w: np.ndarray, strides, cuts) -> np.ndarray:
    """A transposed convolution by its definition: every element of x adds its window."""
    n, *space, _ = x.shape
    o, *kernel, _ = w.shape
    y = np.zeros((n, *((m - 1) * s + k for m, s, k in zip(space, strides, kernel, strict=True)), o))
    for at in np.ndindex(*space):
        window = (slice(i * s, i * s + k) for i, s, k in zip(at, strides, kernel, strict=True))
        y[(slice(None), *window)] += np.tensordot(x[(slice(None), *at)], np.moveaxis(w, 0, -1), (1, w.ndim - 2))
    return y[(slice(None), *(slice(a, m - b) for m, (a, b) in zip(y.shape[1:-1], cuts, strict=True)))].astype("f4")


def part(inputs: list[Tensor], *nodes: tuple[str, list[Tensor], Tensor, dict[str, Any]]) -> NpuGraph:
    """A graph that a node holds; its results are those that nothing reads."""
    made = [Node(op, tuple(ins), (out,), attrs) for op, ins, out, attrs in nodes]
    read = {t for _, ins, *_ in nodes for t in ins}
    return NpuGraph("part", inputs, [n.output for n in made if n.output not in read], made)


def real(*shape: int, data: Any = None) -> Tensor:
    return Tensor("t", shape, "float32", None, None if data is None else np.asarray(data, np.float32))


_X, _LIMIT, _COUNT, _Y = real(3, 5), real(), real(), real(3, 5)
THEN = part([_X], ("tanh", [_X], real(3, 5), {}))
OTHERWISE = part([_X], ("add", [_X, real(data=1)], real(3, 5), {}))
BELOW = part([_LIMIT, _COUNT, _Y], ("less", [_COUNT, _LIMIT], Tensor("more", (), "bool"), {}))
_TWO = real(data=2)
DOUBLED = part([_LIMIT, _COUNT, _Y], ("mul", [_COUNT, _TWO], real(), {}), ("mul", [_Y, _TWO], real(3, 5), {}))


def cases() -> list[Case]:
    rows: list[Case] = []

    def case(op: str, operands: list[Any], want: Any, note: str = "", constants: tuple[int, ...] = (), **attrs: Any):
        rows.append(Case(op, operands, want, attrs, constants, note))

    x, w, b = f32(2, 7, 6, 4), f32(6, 3, 2, 4), f32(6)
    conv = {"strides": (2, 1), "dilations": (1, 2), "padding": ((1, 0), (2, 1))}
    want = correlation(x, w, *conv.values()) + b
    case("conv_2d", [x, w, b], np.maximum(want, 0), groups=1, activation="relu", constants=(1, 2), **conv)
    want = correlation(x, w[..., :2], *conv.values(), 2)
    case("conv_2d", [x, w[..., :2], None], want, "groups", groups=2, constants=(1,), **conv)
    d = f32(1, 3, 2, 8)
    want = correlation(x, d.transpose(3, 1, 2, 0), *conv.values(), 4) + f32(8) * 0
    case("depthwise_conv_2d", [x, d, None], want, constants=(1,), activation=None, **conv)
    cuts = ((1, 0), (0, 2))
    want = spread(x, w, (2, 3), cuts) + b
    case("transpose_conv", [x, w, b], want, constants=(1, 2), strides=(2, 3), padding=cuts, activation=None)
    x3, w3 = f32(1, 4, 5, 3, 2), f32(3, 2, 3, 2, 2)
    conv3 = {"strides": (2, 1, 2), "dilations": (1, 2, 1), "padding": ((1, 0), (2, 1), (0, 1))}
    want = correlation(x3, w3, *conv3.values()) + b[:3]
    case("conv_3d", [x3, w3, b[:3]], np.maximum(want, 0), constants=(1, 2), activation="relu", **conv3)
    cuts = ((1, 0), (0, 2), (1, 1))
    want = spread(x3, w3, (2, 1, 3), cuts)
    case("transpose_conv_3d", [x3, w3, None], want, constants=(1,), strides=(2, 1, 3), padding=cuts, activation=None)
    m, n = f32(3, 5), f32(4, 5)
    case("fully_connected", [m, n, f32(4) * 0], m @ n.T, constants=(1, 2), activation=None)
    m3 = f32(2, 3, 5)
    want = np.clip(m3 @ n.T, -1, 1)
    case("fully_connected", [m3, n, None], want, "rank3", constants=(1,), activation="relu_n1_to_1")
    p, q = f32(2, 3, 5), f32(2, 4, 5)
    case("batch_matmul", [p, q], p @ q.swapaxes(1, 2), adj_x=False, adj_y=True)
    case("batch_matmul", [p.swapaxes(1, 2), q.swapaxes(1, 2)], p @ q.swapaxes(1, 2), "adj_x", adj_x=True, adj_y=False)

    a, c = f32(2, 3, 4), f32(3, 1)
    case("add", [a, c], np.clip(a + c, 0, 6), activation="relu6")
    case("sub", [a, c], a - c, activation=None)
    case("mul", [a, c], a * c, activation=None)
    case("div", [a, np.abs(c) + 1], a / (np.abs(c) + 1), activation=None)
    case("maximum", [a, c], np.maximum(a, c))
    case("minimum", [a, c], np.minimum(a, c))
    case("squared_difference", [a, c], (a - c) ** 2)
    case("pow", [np.abs(a), c], np.abs(a) ** c)
    e = np.float32([1, 2, 3, 2])
    for op, f in (("equal", np.equal), ("not_equal", np.not_equal), ("less", np.less), ("less_equal", np.less_equal)):
        case(op, [e, np.full(4, 2, np.float32)], f(e, 2))
    for op, f in (("greater", np.greater), ("greater_equal", np.greater_equal)):
        case(op, [e, np.full(4, 2, np.float32)], f(e, 2))
    t, u = np.array([True, True, False, False]), np.array([True, False, True, False])
    case("logical_and", [t, u], t & u)
    case("logical_or", [t, u], t | u)
    case("logical_not", [t], ~t)

    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))
    pool = {"window": (3, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "activation": None}
    case("max_pool_2d", [x], windows[:, ::2, ::2].max((-2, -1)), **pool)
    case("average_pool_2d", [x], windows[:, ::2, ::2].mean((-2, -1)), **pool)
    # SAME on 7 by 6: one row above and below, nothing beside. The border is not counted.
    edge = {**pool, "padding": ((1, 1), (0, 0))}
    border = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=np.nan)
    seen = np.lib.stride_tricks.sliding_window_view(border, (3, 2), (1, 2))[:, ::2, ::2]
    case("average_pool_2d", [x], np.nanmean(seen, (-2, -1)), "same", **edge)
    case("max_pool_2d", [-np.abs(x)], np.nanmax(-np.abs(seen), (-2, -1)), "same", **edge)
    for op, f in (("mean", np.mean), ("sum", np.sum), ("reduce_max", np.max), ("reduce_min", np.min)):
        case(op, [x], f(x, axis=(1, 2)), axes=(1, 2), keepdims=False)
        case(op, [x], f(x, axis=(3,), keepdims=True), "keepdims", axes=(-1,), keepdims=True)
    case("reduce_prod", [x], np.prod(x, axis=1), axes=(1,), keepdims=False)
    case("argmax", [x], np.argmax(x, 3).astype(np.int32), axis=3)
    case("argmin", [x], np.argmin(x, 1).astype(np.int32), axis=1)
    ties = np.float32([[3, 1, 3, 2], [0, 0, -1, 0]])
    spans = np.float32([[-1.28, 0.0349, 1.27], [0, 0, 0], [0, 2.55, 1.001]])
    case("quantize_rows", [spans], [np.float32([[-1.28, 0.03, 1.27], [0, 0, 0], [0, 2.55, 1.0]])], axes=(1,))
    case("top_k", [ties], [np.float32([[3, 3], [0, 0]]), np.int32([[0, 2], [0, 1]])], k=2)
    least = [np.float32([[1, 2, 3, 3], [-1, 0, 0, 0]]), np.int32([[1, 3, 0, 2], [2, 0, 1, 3]])]
    case("top_k", [ties], least, "least", k=4, largest=False)
    case("top_k", [ties], [v[:, :3] for v in least], "least three", k=3, largest=False)
    for chosen in (True, False):
        case("if", [np.array(chosen), m], np.tanh(m) if chosen else m + 1, str(chosen), then=THEN, otherwise=OTHERWISE)
    grown = m * np.float32(2) ** 7
    case(
        "while",
        [np.float32(100), np.float32(1), m],
        [np.float32(128), grown],
        condition=BELOW,
        body=DOUBLED,
        invariant=1,
    )
    s = np.exp(0.5 * a) / np.exp(0.5 * a).sum(-1, keepdims=True)
    case("softmax", [a], s, beta=0.5)
    case("log_softmax", [a], a - np.log(np.exp(a).sum(-1, keepdims=True)))

    v = f32(40, low=-4, high=4)
    erf = np.array([math.erf(z) for z in v], np.float32)
    half = np.array([math.erfc(-z / math.sqrt(2)) / 2 for z in v.astype(float)])
    tanh = v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
    functions = {
        "logistic": 1 / (1 + np.exp(-v)), "tanh": np.tanh(v), "relu": np.maximum(v, 0), "relu6": np.clip(v, 0, 6),
        "relu_n1_to_1": np.clip(v, -1, 1), "hard_swish": v * np.clip(v + 3, 0, 6) / 6, "exp": np.exp(v),
        "elu": np.where(v < 0, np.expm1(v), v), "abs": np.abs(v), "neg": -v, "square": v * v, "sin": np.sin(v),
        "cos": np.cos(v), "floor": np.floor(v), "ceil": np.ceil(v), "round": np.rint(v), "sign": np.sign(v),
        "erf": erf,
    }  # fmt: skip
    for op, want in functions.items():
        case(op, [v], want.astype(np.float32))
    positive = np.abs(v) + np.float32(0.1)
    for op, f in (("log", np.log), ("sqrt", np.sqrt), ("rsqrt", lambda z: 1 / np.sqrt(z))):
        case(op, [positive], f(positive))
    case("leaky_relu", [v], np.where(v > 0, v, np.float32(0.2) * v), alpha=0.2)
    slope = f32(4)
    case("prelu", [a, slope], np.where(a >= 0, a, a * slope), constants=(1,))
    case("gelu", [v], (v * half).astype(np.float32), approximate=False)
    case("gelu", [v], tanh.astype(np.float32), "tanh", approximate=True)
    stored = np.int8([-128, 0, 127])
    case(
        "table",
        [stored],
        np.float32([-128, 0, 127]) * 2,
        function="double",
        values=np.arange(-128, 128, dtype="f4") * 2,
    )

    case("reshape", [a], a.reshape(4, 6), shape=(4, 6))
    case("transpose", [a], a.transpose(2, 0, 1), permutation=(2, 0, 1))
    case("concatenation", [a, a[:, :1]], np.concatenate([a, a[:, :1]], 1), axis=1)
    case("split", [a], [a[..., :1], a[..., 1:]], axis=2, sizes=(1, 3))
    case("slice", [a], a[:, 1:3, 2:], begin=(0, 1, 2), size=(2, 2, 2))
    case("strided_slice", [a], a[:, 0:3:2, 1:4:3], begin=(0, 0, 1), end=(2, 3, 4), strides=(1, 2, 3))
    pads = ((0, 1), (2, 0), (1, 1))
    case("pad", [a], np.pad(a, pads, constant_values=1.5), padding=pads, value=1.5)
    case("pad", [a], np.pad(a, pads), "zero", padding=pads, value=None)
    case("broadcast_to", [c], np.broadcast_to(c, (2, 3, 4)), shape=(2, 3, 4))
    case("tile", [a], np.tile(a, (1, 2, 1)), multiples=(1, 2, 1))
    case("reverse", [a], a[::-1, :, ::-1], axes=(0, 2))
    indices = np.int32([[2, 0], [1, 1]])
    case("gather", [a, indices], np.take(a, indices, 1), axis=1)
    hot = np.eye(4, dtype=np.float32)[[2, 0]]
    case("one_hot", [np.int32([2, 0])], hot, depth=4, axis=1)
    case("one_hot", [np.int32([2, 0])], hot.T, "front", depth=4, axis=0)
    case("select", [a > 0, a, c], np.where(a > 0, a, c))
    case("cumsum", [a], np.cumsum(a, 1), axis=1, exclusive=False, reverse=False)
    back = np.cumsum(a[:, :, ::-1], 2)[:, :, ::-1] - a
    case("cumsum", [a], back, "exclusive", axis=2, exclusive=True, reverse=True)
    up = {"size": (14, 12), "align_corners": False, "half_pixel_centers": False}
    case("resize_nearest", [x], x.repeat(2, 1).repeat(2, 2), **up)
    ends = np.interp(np.linspace(0, 3, 7), np.arange(4), a[0, 0]).astype(np.float32).reshape(1, 1, 7, 1)
    corners = {"size": (1, 7), "align_corners": True, "half_pixel_centers": False}
    case("resize_bilinear", [a[0, 0].reshape(1, 1, 4, 1)], ends, **corners)
    case("cast", [v], v.astype(np.int32))
    case("cast", [np.int32([-3, 0, 5])], np.float32([-3, 0, 5]), "float")
    for op, gates, states in (("lstm", 4, 2), ("gru", 3, 1), ("rnn", 1, 1)):
        for note, attrs in RECURRENT[op].items():
            w, r, bias = f32(gates * 3, 2), f32(gates * 3, 3), f32((gates + (op == "gru")) * 3)
            operands = [f32(5, 2, 2), w, r, bias, *(f32(2, 3, low=-1, high=1) for _ in range(states))]
            case(op, operands, layer(op, *operands, **attrs), note, constants=(1, 2, 3), **attrs)
    return rows


CASES = cases()
