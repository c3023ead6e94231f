"""Graphs of one node for the TFLite tests: every op of the vocabulary, in every kind, with what it means in NumPy."""

import numpy as np

from nxjax.lower.npu.formats.tflite_build import same_padding
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from tests.lower.npu.cases import correlation, layer, spread

NAMES = {"f32": "float32", "f16": "float16", "q8": "int8", "qu8": "uint8", "q16": "int16"}
NAMES |= {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool"}
I8, I16, I32 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32")

# Output grids that TFLite fixes.
FIXED = {
    ("q8", "softmax"): Grid(I8, 1 / 256, -128),
    ("q8", "logistic"): Grid(I8, 1 / 256, -128),
    ("q8", "tanh"): Grid(I8, 1 / 128),
    ("q8", "log_softmax"): Grid(I8, 16 / 256, 127),
    ("qu8", "softmax"): Grid(np.dtype("uint8"), 1 / 256, 0),
    ("qu8", "tanh"): Grid(np.dtype("uint8"), 1 / 128, 128),
    ("q16", "softmax"): Grid(I16, 1 / 32768),
    ("q16", "logistic"): Grid(I16, 1 / 32768),
    ("q16", "tanh"): Grid(I16, 1 / 32768),
}
POSITIVE = ("log", "sqrt", "rsqrt", "pow")
# Ops whose operands and results lie on one grid.
ONE_GRID = {
    *("max_pool_2d", "average_pool_2d", "reduce_max", "reduce_min", "maximum", "minimum", "reshape", "transpose"),
    *("concatenation", "split", "slice", "strided_slice", "pad", "broadcast_to", "tile", "reverse", "gather", "select"),
    *("resize_bilinear", "resize_nearest", "top_k"),
}


def is_quantized(kind: str) -> bool:
    return kind.startswith("q")


class Maker:
    """Random tensors of one kind."""

    def __init__(self, kind: str, rng: np.random.Generator) -> None:
        self.kind, self.rng, self.count = kind, rng, 0

    def grid(self, low: float = -2.0, high: float = 2.0) -> Grid | None:
        if self.kind == "q16":
            return symmetric(max(abs(low), abs(high)))
        dtype = {"q8": I8, "qu8": np.dtype("uint8")}.get(self.kind)
        return None if dtype is None else asymmetric(low, high, dtype)

    def tensor(self, *shape: int, low: float = -2.0, high: float = 2.0, grid: Grid | None = None) -> Tensor:
        self.count += 1
        own = grid or self.grid(low, high)
        return Tensor(f"t{self.count}", shape, np.dtype(NAMES[self.kind]), own)

    def of(self, dtype: str, *shape: int) -> Tensor:
        self.count += 1
        return Tensor(f"t{self.count}", shape, np.dtype(dtype))

    def stored(self, t: Tensor, low: float = -2.0, high: float = 2.0) -> np.ndarray:
        """Values for ``t``: reals in [low, high] on its grid, or small integers."""
        if t.dtype == np.bool_:
            return self.rng.integers(0, 2, t.shape).astype(np.bool_)
        if t.grid is not None:
            return t.grid.quantize(self.rng.uniform(low, high, t.shape).astype(np.float32))
        if t.dtype.kind == "f":
            return self.rng.uniform(low, high, t.shape).astype(t.dtype)
        return self.rng.integers(1 if low > 0 else -9, 10, t.shape).astype(t.dtype)

    def weights(self, *shape: int, axis: int) -> Tensor:
        if not is_quantized(self.kind):
            return Tensor("w", shape, np.float32, None, self.rng.normal(size=shape).astype(np.float32))
        scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.002, 0.02, shape[axis]))
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return Tensor("w", shape, I8, Grid(I8, scales, 0, axis), data)

    def bias(self, n: int, x: Tensor, w: Tensor) -> Tensor | None:
        if self.rng.integers(3) == 0:
            return None
        if not is_quantized(self.kind):
            return Tensor("b", (n,), np.float32, None, self.rng.normal(size=n).astype(np.float32))
        dtype = np.dtype("int64") if self.kind == "q16" else I32
        scales = tuple(float(np.float32(x.grid.scale * s)) for s in w.grid.scale)
        data = np.rint(self.rng.normal(size=n) / scales).astype(dtype)
        return Tensor("b", (n,), dtype, Grid(dtype, scales, 0, 0), data)


def real(t: Tensor, stored: np.ndarray) -> np.ndarray:
    """What stored values mean: float64 for anything on a grid or floating."""
    if t.grid is not None:
        return t.grid.dequantize(stored).astype(np.float64)
    return stored.astype(np.float64) if stored.dtype.kind == "f" else stored


def act(x: np.ndarray, name: str | None) -> np.ndarray:
    limits = {None: (None, None), "relu": (0, None), "relu6": (0, 6), "relu_n1_to_1": (-1, 1)}[name]
    return x if name is None else np.clip(x, *limits)


def conv(x, w, b, attrs, groups):
    (sh, sw), (dh, dw) = attrs["strides"], attrs.get("dilations", (1, 1))
    x = np.pad(x, ((0, 0), *attrs["padding"], (0, 0)))
    o, kh, kw, c = w.shape
    h, v = (x.shape[1] - (kh - 1) * dh - 1) // sh + 1, (x.shape[2] - (kw - 1) * dw - 1) // sw + 1
    out = np.zeros((x.shape[0], h, v, o))
    per = o // groups
    for i in range(kh):
        for j in range(kw):
            part = x[:, i * dh : i * dh + (h - 1) * sh + 1 : sh, j * dw : j * dw + (v - 1) * sw + 1 : sw]
            for g in range(groups):
                sub = w[g * per : (g + 1) * per, i, j]
                out[..., g * per : (g + 1) * per] += part[..., g * c : (g + 1) * c] @ sub.T
    return out + (0 if b is None else b)


def transpose_conv(x, w, b, attrs):
    (sh, sw), (o, kh, kw, _) = attrs["strides"], w.shape
    n, h, v, _ = x.shape
    full = np.zeros((n, (h - 1) * sh + kh, (v - 1) * sw + kw, o))
    for i in range(kh):
        for j in range(kw):
            full[:, i : i + (h - 1) * sh + 1 : sh, j : j + (v - 1) * sw + 1 : sw] += x @ w[:, i, j].T
    for axis, (low, high) in enumerate(attrs["padding"], 1):
        keep = np.arange(low, full.shape[axis] - max(high, 0))
        full = full.take(keep, axis)
        if high < 0:
            full = np.pad(full, [(0, -high if a == axis else 0) for a in range(4)])
    return full + (0 if b is None else b)


def pool(x, attrs, reduce, empty):
    (kh, kw), (sh, sw) = attrs["window"], attrs["strides"]
    x = np.pad(x, ((0, 0), *attrs["padding"], (0, 0)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), (1, 2))[:, ::sh, ::sw]
    return reduce(windows, axis=(-2, -1))


UNARY = {
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "abs": np.abs,
    "neg": np.negative,
    "square": np.square,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "logical_not": np.logical_not,
    "erf": lambda x: erf(x),
}
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or")
BINARY = {name: getattr(np, name) for name in (*COMPARE, "maximum", "minimum")}
BINARY |= {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}
BINARY["squared_difference"] = lambda x, y: (x - y) ** 2
REDUCE = {"mean": np.mean, "sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod}


def softmax(x, beta=1.0):
    e = np.exp(beta * (x - x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    from scipy.special import erf as scipy_erf

    return scipy_erf(x)


def gelu(x, approximate):
    if approximate:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def resize(x, attrs, bilinear):
    grids = []
    for n, m in zip(x.shape[1:3], attrs["size"], strict=True):
        corners, half = attrs["align_corners"], attrs["half_pixel_centers"]
        scale = (n - 1) / (m - 1) if corners and m > 1 else n / m
        at = (np.arange(m) + 0.5) * scale - 0.5 if half and bilinear else np.arange(m) * scale
        if not bilinear:
            at = (np.arange(m) + 0.5) * scale if half else at
            near = np.floor(at + 0.5) if corners else np.floor(at)
            grids.append((np.clip(near, 0, n - 1).astype(int),) * 2 + (np.zeros(m),))
        else:
            low = np.clip(np.floor(at), 0, n - 1).astype(int)
            grids.append((low, np.minimum(low + 1, n - 1), np.clip(at, 0, n - 1) - low))
    (a, b, u), (c, d, v) = grids
    u, v = u[:, None, None], v[:, None]
    top = x[:, a][:, :, c] * (1 - v) + x[:, a][:, :, d] * v
    return top * (1 - u) + (x[:, b][:, :, c] * (1 - v) + x[:, b][:, :, d] * v) * u


def meaning(node: Node, xs: list) -> list[np.ndarray]:
    """Results of the node on real operands."""
    op, a, x = node.op, node.attrs, xs[0]
    if op == "conv_2d":
        y = act(conv(*xs, a, a["groups"]), a["activation"])
    elif op == "depthwise_conv_2d":
        y = act(
            conv(x, np.moveaxis(xs[1], 3, 0).reshape(-1, *xs[1].shape[1:3], 1), xs[2], a, x.shape[3]), a["activation"]
        )
    elif op == "transpose_conv":
        y = act(transpose_conv(*xs, a), a["activation"])
    elif op == "fully_connected":
        y = act(x @ xs[1].T + (0 if xs[2] is None else xs[2]), a["activation"])
    elif op == "batch_matmul":
        y = (x.swapaxes(-1, -2) if a["adj_x"] else x) @ (xs[1].swapaxes(-1, -2) if a["adj_y"] else xs[1])
    elif op in BINARY:
        y = act(BINARY[op](*xs), a.get("activation"))
    elif op in ("max_pool_2d", "average_pool_2d"):
        y = act(pool(x, a, np.nanmax if op[0] == "m" else np.nanmean, None), a["activation"])
    elif op in REDUCE:
        y = REDUCE[op](x, axis=a["axes"], keepdims=a["keepdims"])
        if op in ("sum", "reduce_prod") and x.dtype == np.bool_:
            y = y.astype(np.bool_)
    elif op in ("argmax", "argmin"):
        y = getattr(np, op)(x, axis=a["axis"]).astype(np.int32)
    elif op in ("conv_3d", "transpose_conv_3d"):
        moves = (a["strides"], a["dilations"]) if op == "conv_3d" else (a["strides"],)
        y = (correlation if op == "conv_3d" else spread)(x, xs[1], *moves, a["padding"])
        y = act(y + (0 if xs[2] is None else xs[2]), a["activation"])
    elif op in ("lstm", "rnn"):
        return layer(op, *xs, **a)
    elif op == "top_k":
        places = (-x if a["largest"] else x).argsort(-1, kind="stable")[..., : a["k"]]
        return [np.take_along_axis(x, places, -1), places.astype(np.int32)]
    elif op == "softmax":
        y = softmax(x, a["beta"])
    elif op == "log_softmax":
        y = np.log(softmax(x))
    elif op in UNARY:
        y = UNARY[op](x)
    elif op == "leaky_relu":
        y = np.where(x > 0, x, x * a["alpha"])
    elif op == "prelu":
        y = np.where(x > 0, x, x * xs[1])
    elif op == "gelu":
        y = gelu(x, a["approximate"])
    elif op == "reshape":
        y = x.reshape(a["shape"])
    elif op == "transpose":
        y = x.transpose(a["permutation"])
    elif op == "concatenation":
        y = np.concatenate(xs, a["axis"])
    elif op == "split":
        return np.split(x, np.cumsum(a["sizes"])[:-1], a["axis"])
    elif op == "slice":
        y = x[tuple(slice(b, b + n) for b, n in zip(a["begin"], a["size"], strict=True))]
    elif op == "strided_slice":
        y = x[tuple(map(slice, a["begin"], a["end"], a["strides"]))]
    elif op == "pad":
        y = np.pad(x, a["padding"], constant_values=0 if a["value"] is None else a["value"])
    elif op == "broadcast_to":
        y = np.broadcast_to(x, a["shape"])
    elif op == "tile":
        y = np.tile(x, a["multiples"])
    elif op == "reverse":
        y = np.flip(x, a["axes"])
    elif op == "gather":
        y = np.take(x, xs[1], a["axis"])
    elif op == "one_hot":
        y = np.moveaxis(np.eye(a["depth"], dtype=np.int64)[x], -1, a["axis"])
    elif op == "select":
        y = np.where(*xs)
    elif op == "cumsum":
        y = x[:, ::-1] if a["reverse"] else x
        y = np.cumsum(y, 1) - (y if a["exclusive"] else 0)
        y = y[:, ::-1] if a["reverse"] else y
    elif op in ("resize_bilinear", "resize_nearest"):
        y = resize(x, a, op == "resize_bilinear")
    else:
        assert op in ("quantize", "dequantize", "cast"), op
        y = x
    return [y]


def padding(rng, sizes, window, strides, dilations=(1, 1), uncounted=False):
    """None, what SAME says, or (for ops that count padding) anything."""
    rows = list(zip(sizes, window, strides, dilations, strict=True))
    choice = rng.integers(2 if uncounted else 3)
    if choice == 0:
        return ((0, 0), (0, 0))
    if choice == 1:
        return tuple(same_padding(*row) for row in rows)
    return tuple((int(rng.integers(0, k)), int(rng.integers(0, k))) for _, k, _, _ in rows)


def sizes_after(x, window, attrs):
    dilations = attrs.get("dilations", (1, 1))
    rows = zip(x.shape[1:-1], window, attrs["strides"], dilations, attrs["padding"], strict=True)
    return tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, d, (low, high) in rows)


def inputs_and_attrs(op: str, m: Maker) -> tuple[list, list, dict]:
    """Operands, shapes of the results, attributes."""
    rng = m.rng

    def n(low=1, high=6):
        return int(rng.integers(low, high))

    def shape(rank=None):
        return tuple(n() for _ in range(rank or n(1, 5)))

    activation = [None, "relu", "relu6", "relu_n1_to_1"][n(0, 4)]
    low = 0.25 if op in POSITIVE else -2.0
    if op in ("conv_2d", "depthwise_conv_2d"):
        groups, per = (n(1, 3), n(1, 4)) if op == "conv_2d" else (n(1, 4), 1)
        if m.kind == "q16":
            groups = 1 if op == "conv_2d" else groups
        x = m.tensor(n(1, 3), n(5, 9), n(5, 9), groups * per)
        attrs = {"strides": (n(1, 3), n(1, 3)), "dilations": [(1, 1), (2, 2)][n(0, 2)], "activation": activation}
        kh, kw = n(1, 4), n(1, 4)
        attrs["padding"] = padding(rng, x.shape[1:3], (kh, kw), attrs["strides"], attrs["dilations"])
        if op == "conv_2d":
            attrs["groups"], out = groups, groups * n(1, 4)
            w = m.weights(out, kh, kw, per, axis=0)
        else:
            out = groups * n(1, 3)
            w = m.weights(1, kh, kw, out, axis=3)
        return [x, w, m.bias(out, x, w)], [(x.shape[0], *sizes_after(x, (kh, kw), attrs), out)], attrs
    if op == "transpose_conv":
        x, out, k, strides = (
            m.tensor(n(1, 3), n(2, 5), n(2, 5), n(1, 4)),
            n(1, 4),
            (n(1, 4), n(1, 4)),
            (n(1, 3), n(1, 3)),
        )
        w = m.weights(out, *k, x.shape[3], axis=0)
        full = [(s - 1) * t + q for s, t, q in zip(x.shape[1:3], strides, k, strict=True)]
        if n(0, 3) == 0:
            cuts = tuple((n(0, min(2, f)), 0) for f in full)
        elif n(0, 2):
            cuts = tuple(
                (max(f - s * t, 0) // 2, f - s * t - max(f - s * t, 0) // 2)
                for f, s, t in zip(full, x.shape[1:3], strides, strict=True)
            )
        else:
            cuts = ((0, 0), (0, 0))
        sizes = tuple(f - a - b for f, (a, b) in zip(full, cuts, strict=True))
        attrs = {"strides": strides, "padding": cuts, "activation": activation}
        return [x, w, m.bias(out, x, w)], [(x.shape[0], *sizes, out)], attrs
    if op in ("conv_3d", "transpose_conv_3d"):
        x, out, k = m.tensor(n(1, 3), n(3, 5), n(3, 5), n(3, 5), n(1, 4)), n(1, 4), (n(1, 4), n(1, 4), n(1, 4))
        w, s = m.weights(out, *k, x.shape[4], axis=0), (n(1, 3), n(1, 3), n(1, 3))
        pads = [((0, 0),) * 3, tuple((n(0, q), n(0, q)) for q in k)][n(0, 2)]
        attrs = {"strides": s, "padding": pads, "activation": activation}
        if op == "conv_3d":
            attrs["dilations"] = (1, 1, 1)
            sizes = sizes_after(x, k, attrs)
        else:
            attrs["padding"] = pads = tuple((low, min(high, 1)) if q > 1 else (0, 0) for (low, high), q in zip(pads, k))
            sizes = tuple((v - 1) * t + q - sum(p) for v, t, q, p in zip(x.shape[1:4], s, k, pads))
        return [x, w, m.bias(out, x, w)], [(x.shape[0], *sizes, out)], attrs
    if op in ("lstm", "rnn"):
        (steps, batch, features), width, gates = shape(3), n(), 4 if op == "lstm" else 1
        w, r = (
            Tensor(k, s, np.float32, None, rng.normal(size=s).astype(np.float32))
            for k, s in (("w", (gates * width, features)), ("r", (gates * width, width)))
        )
        bias = Tensor("b", (gates * width,), np.float32, None, rng.normal(size=gates * width).astype(np.float32))
        states = [m.tensor(batch, width) for _ in range(2 if op == "lstm" else 1)]
        attrs = {"reverse": bool(n(0, 2))} | ({} if op == "lstm" else {"function": ("tanh", "relu")[n(0, 2)]})
        results = [(steps, batch, width), *[(batch, width)] * len(states)]
        return [m.tensor(steps, batch, features), w, r, bias, *states], results, attrs
    if op == "top_k":
        x = m.tensor(*shape())
        k = n(1, x.shape[-1] + 1)
        return [x], [(*x.shape[:-1], k)] * 2, {"k": k, "largest": bool(n(0, 2))}
    if op == "fully_connected":
        x, out = m.tensor(*shape()), n()
        w = m.weights(out, x.shape[-1], axis=0)
        return [x, w, m.bias(out, x, w)], [(*x.shape[:-1], out)], {"activation": activation}
    if op == "batch_matmul":
        batch, (r, k, c) = shape(n(1, 3)), (n(), n(), n())
        ax, ay = bool(n(0, 2)), bool(n(0, 2))
        x, y = m.tensor(*batch, *((k, r) if ax else (r, k))), m.tensor(*batch, *((c, k) if ay else (k, c)))
        return [x, y], [(*batch, r, c)], {"adj_x": ax, "adj_y": ay}
    if op in BINARY:
        full = shape()
        other = tuple(1 if n(0, 3) == 0 else s for s in full)
        attrs = {"activation": activation} if op in ("add", "sub", "mul", "div") and m.kind in ("f32", "q8") else {}
        first = m.tensor(*full, low=low)
        second = m.tensor(*other, low=0.5 if op == "div" else low, grid=first.grid if op in ONE_GRID else None)
        return [first, second], [full], attrs
    if op in ("max_pool_2d", "average_pool_2d"):
        x, window, strides = m.tensor(n(1, 3), n(4, 8), n(4, 8), n()), (n(1, 4), n(1, 4)), (n(1, 3), n(1, 3))
        attrs = {"window": window, "strides": strides, "activation": activation}
        attrs["padding"] = padding(rng, x.shape[1:3], window, strides, uncounted=op == "average_pool_2d")
        return [x], [(x.shape[0], *sizes_after(x, window, attrs), x.shape[3])], attrs
    if op in REDUCE:
        x = m.tensor(*shape(n(2, 5)))
        axes = tuple(sorted(rng.choice(len(x.shape), n(1, len(x.shape)), replace=False).tolist()))
        keep = bool(n(0, 2))
        out = tuple(1 if i in axes else s for i, s in enumerate(x.shape) if keep or i not in axes)
        return [x], [out], {"axes": axes, "keepdims": keep}
    if op in ("argmax", "argmin"):
        x = m.tensor(*shape(n(2, 4)))
        axis = n(0, len(x.shape))
        return [x], [x.shape[:axis] + x.shape[axis + 1 :]], {"axis": axis}
    if op in ("softmax", "log_softmax", *UNARY, "leaky_relu", "gelu", "quantize", "dequantize", "cast"):
        x = m.tensor(*shape(), low=low)
        attrs = {"softmax": {"beta": 1.0}, "leaky_relu": {"alpha": float(np.float32(0.1))}}.get(op, {})
        return [x], [x.shape], {"approximate": bool(n(0, 2))} if op == "gelu" else attrs
    if op == "prelu":
        x, alpha = m.tensor(*shape(4)), m.tensor(1, 1, n(), low=-1, high=1)
        alpha = m.tensor(1, 1, x.shape[3], low=-1, high=1)
        alpha.data = m.stored(alpha, -1, 1)
        return [x, alpha], [x.shape], {}
    if op == "reshape":
        x = m.tensor(*shape(3))
        return [x], [out := [(x.shape[2], x.shape[0] * x.shape[1]), (x.size,)][n(0, 2)]], {"shape": out}
    if op == "transpose":
        x = m.tensor(*shape())
        p = tuple(rng.permutation(len(x.shape)).tolist())
        return [x], [tuple(x.shape[i] for i in p)], {"permutation": p}
    if op == "concatenation":
        x = m.tensor(*shape())
        axis = n(0, len(x.shape))
        y = m.tensor(*(n() if i == axis else s for i, s in enumerate(x.shape)), grid=x.grid)
        return [x, y], [(*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :])], {"axis": axis}
    if op == "split":
        sizes = [(2, 2), (1, 3, 2)][n(0, 2)]
        x = m.tensor(n(), sum(sizes), n())
        return [x], [(x.shape[0], s, x.shape[2]) for s in sizes], {"axis": 1, "sizes": sizes}
    if op == "slice":
        x = m.tensor(*shape())
        begin = tuple(n(0, s) for s in x.shape)
        size = tuple(n(1, s - b + 1) for s, b in zip(x.shape, begin, strict=True))
        return [x], [size], {"begin": begin, "size": size}
    if op == "strided_slice":
        x = m.tensor(*shape())
        begin = tuple(n(0, s) for s in x.shape)
        end = tuple(n(b + 1, s + 1) for s, b in zip(x.shape, begin, strict=True))
        strides = tuple(n(1, 3) for _ in x.shape)
        rows = zip(begin, end, strides, strict=True)
        return [x], [tuple(-(-(e - b) // s) for b, e, s in rows)], {"begin": begin, "end": end, "strides": strides}
    if op == "pad":
        x = m.tensor(*shape())
        pads = tuple((n(0, 3), n(0, 3)) for _ in x.shape)
        value = None if m.kind == "bool" or n(0, 2) else (3 if m.kind[0] == "i" else 0.5)
        return (
            [x],
            [tuple(s + a + b for s, (a, b) in zip(x.shape, pads, strict=True))],
            {"padding": pads, "value": value},
        )
    if op == "broadcast_to":
        full = shape()
        return [m.tensor(*(1 if n(0, 2) else s for s in full))], [full], {"shape": full}
    if op == "tile":
        x = m.tensor(*shape())
        times = tuple(n(1, 3) for _ in x.shape)
        return [x], [tuple(a * b for a, b in zip(x.shape, times, strict=True))], {"multiples": times}
    if op == "reverse":
        x = m.tensor(*shape())
        axes = tuple(sorted(rng.choice(len(x.shape), n(1, len(x.shape) + 1), replace=False).tolist()))
        return [x], [x.shape], {"axes": axes}
    if op == "gather":
        x = m.tensor(*shape())
        axis, many = n(0, len(x.shape)), shape(n(1, 3))
        indices = m.of("int32", *many)
        indices.data = rng.integers(0, x.shape[axis], many).astype(np.int32)
        return [x, indices], [(*x.shape[:axis], *many, *x.shape[axis + 1 :])], {"axis": axis}
    if op == "one_hot":
        x, depth = m.of("int32", *shape(n(1, 3))), n(9, 12)
        axis = n(0, len(x.shape) + 1)
        return [x], [(*x.shape[:axis], depth, *x.shape[axis:])], {"depth": depth, "axis": axis}
    if op == "select":
        full = shape()
        x = m.tensor(*full)
        return [m.of("bool", *full), x, m.tensor(*full, grid=x.grid)], [full], {}
    if op == "cumsum":
        x = m.tensor(n(), n(2))
        return [x], [x.shape], {"axis": 1, "exclusive": bool(n(0, 2)), "reverse": bool(n(0, 2))}
    assert op in ("resize_bilinear", "resize_nearest"), op
    x, size = m.tensor(n(), n(2), n(2), n()), (n(1, 9), n(1, 9))
    flags = [(False, False), (True, False), (False, True)][n(0, 3)]
    attrs = {"size": size, "align_corners": flags[0], "half_pixel_centers": flags[1]}
    return [x], [(x.shape[0], *size, x.shape[3])], attrs


def sample(op: str, kind: str, seed: int) -> tuple[NpuGraph, list[np.ndarray], list[np.ndarray]]:
    """A graph of one ``op``, values for its inputs, and the real results."""
    rng = np.random.default_rng(seed)
    m = Maker("f32" if op == "quantize" else kind, rng)
    operands, shapes, attrs = inputs_and_attrs(op, m)
    low = 0.25 if op in POSITIVE else -2.0
    stored, reals = list[np.ndarray](), []
    for i, t in enumerate(operands):
        if t is None:
            reals.append(None)
            continue
        if t.data is None:
            stored.append(m.stored(t, 0.5 if op == "div" and i == 1 else low))
            if op == "one_hot":
                stored[-1] = np.abs(stored[-1]) % 9
        # A cast reads stored integers, whatever their grid.
        reals.append(stored[-1] if op == "cast" else real(t, t.data if t.data is not None else stored[-1]))
    nodes = Node(op, tuple(operands), (), attrs)
    results = meaning(nodes, reals)
    first = operands[1] if op == "select" else operands[0]
    outputs = [result_tensor(op, kind, first, y, s, i) for i, (y, s) in enumerate(zip(results, shapes, strict=True))]
    node = Node(op, tuple(operands), tuple(outputs), attrs, name="it")
    inputs = [t for t in operands if t is not None and not t.constant]
    return NpuGraph("one", inputs, outputs, [node]).check(), stored, results


def result_tensor(op, kind, first, y, shape, i) -> Tensor:
    name = f"out{i}"
    assert y.shape == tuple(shape), (op, y.shape, shape)
    if op in COMPARE:
        return Tensor(name, shape, np.bool_)
    if op in ("argmax", "argmin", "cast"):
        return Tensor(name, shape, np.int32) if op != "cast" else Tensor(name, shape, np.float32)
    if op == "dequantize":
        return Tensor(name, shape, np.float32)
    if op == "top_k" and i == 1:
        return Tensor(name, shape, np.int32)
    if not is_quantized(kind):
        return Tensor(name, shape, np.dtype(NAMES[kind]))
    if (kind, op) in FIXED:
        return Tensor(name, shape, FIXED[kind, op].dtype, FIXED[kind, op])
    if op in ONE_GRID or (op == "neg" and kind == "q16"):
        return Tensor(name, shape, first.dtype, first.grid)
    low, high = float(np.min(y)), float(np.max(y))
    m = Maker(kind, np.random.default_rng(0))
    grid = m.grid(low, high + 1e-3)
    return Tensor(name, shape, grid.dtype, grid)
