"""One-node graphs for the ONNX tests, float and int8, with what they mean said in NumPy."""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import erf

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from tests.lower.npu.cases import correlation, spread

F32, I8, I16, I32, BOOL = (np.dtype(d) for d in ("float32", "int8", "int16", "int32", "bool"))
WEIGHTED = ("conv_2d", "depthwise_conv_2d", "transpose_conv", "conv_3d", "transpose_conv_3d", "fully_connected")
# Where TFLite keeps output channels in the weights.
CHANNEL = dict.fromkeys(WEIGHTED, 0) | {"depthwise_conv_2d": 3}
CLIP = {"relu": (0, np.inf), "relu6": (0, 6), "relu_n1_to_1": (-1, 1)}


@dataclass
class Case:
    """``means(*arrays)`` is the result on real values; operands numbered in ``constant`` are constants."""

    op: str
    arrays: list
    means: object
    attrs: dict = field(default_factory=dict)
    constant: tuple = ()
    moves: bool = False  # the result lies on the first operand's grid

    def __repr__(self):
        return f"{self.op}{[None if a is None else a.shape for a in self.arrays]} {self.attrs}"

    def expected(self, arrays=None):
        out = self.means(*(self.arrays if arrays is None else arrays))
        low, high = CLIP.get(self.attrs.get("activation"), (None, None))
        return out if low is None else np.clip(out, low, high)


def patches(x, window, strides, dilations, padding, fill):
    """x [n,h,w,c] -> [n,oh,ow,kh,kw,c]."""
    x = np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=fill)
    size = [(s - (k - 1) * d - 1) // t + 1 for s, k, d, t in zip(x.shape[1:3], window, dilations, strides)]
    rows = [np.arange(o)[:, None] * t + np.arange(k) * d for o, t, k, d in zip(size, strides, window, dilations)]
    return x[:, rows[0]][:, :, :, rows[1]].transpose(0, 1, 3, 2, 4, 5)


def conv_meaning(x, w, b, strides, dilations, padding, groups=1):
    p = patches(x.astype(np.float64), w.shape[1:3], strides, dilations, padding, 0.0)
    c, o = w.shape[3], w.shape[0] // groups
    parts = [
        np.einsum("nhwijc,oijc->nhwo", p[..., g * c : (g + 1) * c], w[g * o : (g + 1) * o].astype(np.float64))
        for g in range(groups)
    ]
    y = np.concatenate(parts, -1)
    return y if b is None else y + b


def depthwise_meaning(x, w, b, strides, dilations, padding):
    p = patches(x.astype(np.float64), w.shape[1:3], strides, dilations, padding, 0.0)
    m = w.shape[3] // x.shape[3]
    y = np.einsum("nhwijc,ijcm->nhwcm", p, w[0].reshape(*w.shape[1:3], x.shape[3], m).astype(np.float64))
    y = y.reshape(*y.shape[:3], -1)
    return y if b is None else y + b


def deconv(x, w, b, strides, padding):
    n, h, k = x.shape[:3]
    o, kh, kw = w.shape[:3]
    full = np.zeros((n, (h - 1) * strides[0] + kh, (k - 1) * strides[1] + kw, o))
    for i in range(h):
        for j in range(k):
            at = np.s_[:, i * strides[0] : i * strides[0] + kh, j * strides[1] : j * strides[1] + kw]
            full[at] += np.einsum("nc,oijc->nijo", x[:, i, j].astype(np.float64), w)
    (t, u), (s, v) = padding
    y = full[:, t : full.shape[1] - u, s : full.shape[2] - v]
    return y if b is None else y + b


def pooled(kind):
    def means(x, window, strides, padding):
        if kind == "max":
            return patches(x, window, strides, (1, 1), padding, -np.inf).max((3, 4))
        counts = patches(np.ones_like(x), window, strides, (1, 1), padding, 0).sum((3, 4))
        return patches(x.astype(np.float64), window, strides, (1, 1), padding, 0).sum((3, 4)) / counts

    return means


def resized(x, size, align, half, nearest):
    """TFLite's ResizeBilinear and ResizeNearestNeighbor."""
    axes = []
    for have, want in zip(x.shape[1:3], size):
        scale = (have - 1) / (want - 1) if align and want > 1 else have / want
        at = np.arange(want)
        if nearest:
            real = (at + 0.5) * scale if half else at * scale
            index = np.floor(real + 0.5) if align else np.floor(real)
            axes.append((np.clip(index, 0, have - 1).astype(int),) * 2 + (np.zeros(want),))
        else:
            real = np.maximum((at + 0.5) * scale - 0.5, 0) if half else at * scale
            low = np.minimum(np.floor(real).astype(int), have - 1)
            axes.append((low, np.minimum(low + 1, have - 1), real - low))
    (a, b, f), (c, d, g) = axes
    f, g = f[:, None, None], g[:, None]
    top = x[:, a][:, :, c] * (1 - g) + x[:, a][:, :, d] * g
    bottom = x[:, b][:, :, c] * (1 - g) + x[:, b][:, :, d] * g
    return top * (1 - f) + bottom * f


UNARY = {
    "logistic": lambda x: 1 / (1 + np.exp(-x.astype(np.float64))),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "exp": np.exp,
    "abs": np.abs,
    "neg": np.negative,
    "square": np.square,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sign": np.sign,
    "erf": erf,
}
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "squared_difference": lambda x, y: (x - y) ** 2,
}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
REDUCTIONS = {"mean": np.mean, "sum": np.sum, "reduce_max": np.max, "reduce_min": np.min}


def soft(x, beta=1.0):
    e = np.exp((x - x.max(-1, keepdims=True)).astype(np.float64) * beta)
    return e / e.sum(-1, keepdims=True)


def gelu(approximate):
    if approximate:
        return lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def cases(seed=0):
    """One small case or more of every operator that takes and gives real values."""
    rng = np.random.default_rng(seed)

    def normal(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    def positive(*shape):
        return rng.uniform(0.3, 4, shape).astype(np.float32)

    found = []

    def add(op, arrays, means, constant=(), moves=False, **attrs):
        found.append(Case(op, arrays, means, attrs, constant, moves))

    for act in (None, "relu", "relu6", "relu_n1_to_1"):
        a = {"strides": (2, 1), "dilations": (1, 1), "padding": ((1, 0), (1, 1)), "groups": 1}
        add("conv_2d", [normal(1, 7, 6, 3), normal(4, 3, 2, 3), normal(4)],
            lambda x, w, b, a=a: conv_meaning(x, w, b, **a), (1, 2), activation=act, **a)  # fmt: skip
    a = {"strides": (1, 1), "dilations": (2, 1), "padding": ((0, 2), (1, 0)), "groups": 2}
    add("conv_2d", [normal(2, 6, 5, 4), normal(6, 3, 3, 2), None],
        lambda x, w, b, a=a: conv_meaning(x, w, b, **a), (1, 2), activation=None, **a)  # fmt: skip
    for mult in (1, 2):
        a = {"strides": (1, 2), "dilations": (1, 1), "padding": ((1, 1), (0, 1))}
        add("depthwise_conv_2d", [normal(1, 6, 6, 4), normal(1, 3, 3, 4 * mult), normal(4 * mult)],
            lambda x, w, b, a=a: depthwise_meaning(x, w, b, **a), (1, 2), activation="relu6", **a)  # fmt: skip
    a = {"strides": (2, 3), "padding": ((1, 0), (0, 1))}
    add("transpose_conv", [normal(1, 4, 3, 2), normal(3, 3, 3, 2), normal(3)],
        lambda x, w, b, a=a: deconv(x, w, b, **a), (1, 2), activation=None, **a)  # fmt: skip
    for shape in ((3, 6), (2, 3, 6)):
        add("fully_connected", [normal(*shape), normal(5, 6), normal(5)],
            lambda x, w, b: x.astype(np.float64) @ w.T + b, (1, 2), activation="relu")  # fmt: skip
    add("batch_matmul", [normal(2, 3, 4), normal(2, 4, 5)], np.matmul, adj_x=False, adj_y=False)
    add("batch_matmul", [normal(2, 4, 3), normal(2, 5, 4)],
        lambda x, y: x.swapaxes(1, 2) @ y.swapaxes(1, 2), adj_x=True, adj_y=True)  # fmt: skip
    add("batch_matmul", [normal(2, 2, 2, 3, 4), normal(2, 2, 2, 4, 5)], np.matmul, adj_x=False, adj_y=False)
    for name, f in BINARY.items():
        same = name in ("maximum", "minimum")
        add(name, [normal(1, 3, 4, 5), normal(1, 3, 4, 5)], f, moves=same)
        add(name, [normal(2, 3, 4), normal(4)], f, (1,), moves=same)
    add("add", [normal(1, 3, 4, 5), normal(4, 5)], np.add, activation="relu")
    add("div", [normal(2, 6), positive(2, 6)], np.divide)
    add("pow", [positive(2, 6), np.full((2, 6), 2, np.float32)], np.power, (1,))
    for name, f in UNARY.items():
        add(name, [normal(1, 3, 4, 5, scale=3.0)], f)
    for name, f in POSITIVE.items():
        add(name, [positive(2, 7)], f)
    for flag in (True, False):
        add("gelu", [normal(2, 9, scale=2.0)], gelu(flag), approximate=flag)
    add("leaky_relu", [normal(2, 9)], lambda x: np.where(x > 0, x, 0.125 * x), alpha=0.125)
    add("prelu", [normal(1, 3, 4, 5), normal(1, 1, 5)], lambda x, a: np.where(x > 0, x, a * x), (1,))
    add("softmax", [normal(2, 3, 9, scale=2.0)], soft, beta=1.0)
    add("softmax", [normal(2, 9, scale=2.0)], lambda x: soft(x, 0.5), beta=0.5)
    add("log_softmax", [normal(2, 9)], lambda x: np.log(soft(x)))
    for op, kind in (("max_pool_2d", "max"), ("average_pool_2d", "average")):
        a = {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}
        add(op, [normal(1, 6, 5, 3)], lambda x, a=a, kind=kind: pooled(kind)(x, **a), moves=True, activation=None, **a)
    for name, f in REDUCTIONS.items():
        same = name in ("reduce_max", "reduce_min")
        add(name, [normal(2, 3, 4, 5)], lambda x, f=f: f(x, axis=(1, 2)), moves=same, axes=(1, 2), keepdims=False)
        add(
            name, [normal(2, 3, 4)], lambda x, f=f: f(x, axis=(2,), keepdims=True), moves=same, axes=(2,), keepdims=True
        )
    add("cumsum", [normal(2, 6)], lambda x: np.cumsum(x, 1), axis=1, exclusive=False, reverse=False)
    add("cumsum", [normal(2, 6)], lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1], axis=1, exclusive=False, reverse=True)
    add("reshape", [normal(2, 3, 4)], lambda x: x.reshape(6, 4), moves=True, shape=(6, 4))
    add("transpose", [normal(2, 3, 4)], lambda x: x.transpose(2, 0, 1), moves=True, permutation=(2, 0, 1))
    add("slice", [normal(2, 5, 4)], lambda x: x[:, 1:4, 2:], moves=True, begin=(0, 1, 2), size=(2, 3, 2))
    add("strided_slice", [normal(2, 7, 4)], lambda x: x[:, 1:6:2, ::3], moves=True,
        begin=(0, 1, 0), end=(2, 6, 4), strides=(1, 2, 3))  # fmt: skip
    add("pad", [normal(1, 3, 4, 2)], lambda x: np.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))), moves=True,
        padding=((0, 0), (1, 2), (0, 1), (0, 0)), value=None)  # fmt: skip
    add("broadcast_to", [normal(3, 1)], lambda x: np.broadcast_to(x, (2, 3, 4)), moves=True, shape=(2, 3, 4))
    add("tile", [normal(2, 3)], lambda x: np.tile(x, (2, 3)), moves=True, multiples=(2, 3))
    add("reverse", [normal(2, 3, 4)], lambda x: x[:, ::-1, ::-1], moves=True, axes=(1, 2))
    add("concatenation", [normal(1, 2, 3, 4), normal(1, 2, 5, 4)],
        lambda *xs: np.concatenate(xs, 2), moves=True, axis=2)  # fmt: skip
    for align, half in ((True, False), (False, True), (False, False)):
        for op in ("resize_bilinear", "resize_nearest"):
            a = {"size": (6, 9), "align_corners": align, "half_pixel_centers": half}
            add(op, [normal(1, 4, 5, 2)], lambda x, a=a, op=op: resized(x, *a.values(), "nearest" in op),
                moves=True, **a)  # fmt: skip
    a = {"strides": (2, 1, 1), "dilations": (1, 1, 2), "padding": ((1, 0), (0, 1), (1, 1))}
    add("conv_3d", [normal(1, 4, 5, 4, 3), normal(4, 2, 3, 2, 3), normal(4)],
        lambda x, w, b, a=a: correlation(x, w, **a) + b, (1, 2), activation=None, **a)  # fmt: skip
    a = {"strides": (2, 1, 3), "padding": ((1, 0), (0, 1), (0, 0))}
    add("transpose_conv_3d", [normal(1, 3, 4, 2, 2), normal(3, 2, 3, 3, 2), normal(3)],
        lambda x, w, b, a=a: spread(x, w, a["strides"], a["padding"]) + b, (1, 2), activation=None, **a)  # fmt: skip
    return found


def float_graph(case, extra=()):
    """The case as a graph of one node; ``extra`` are operands that are not real-valued."""
    y = np.asarray(case.expected())
    tensors = [
        None if a is None else Tensor(f"x{i}", a.shape, a.dtype, None, a if i in case.constant else None)
        for i, a in enumerate(case.arrays)
    ]
    out = Tensor("y", y.shape, F32 if y.dtype.kind == "f" else y.dtype)
    ins = [t for t in tensors if t is not None and not t.constant]
    return NpuGraph("float", ins, [out], [Node(case.op, tuple(tensors), (out,), dict(case.attrs), name="node")]).check()


# Where TFLite has one grid for the result.
RESULTS = {
    ("logistic", I8): Grid(I8, 1 / 256, -128),
    ("softmax", I8): Grid(I8, 1 / 256, -128),
    ("tanh", I8): Grid(I8, 1 / 128, 0),
    ("log_softmax", I8): Grid(I8, 16 / 256, 127),
    ("logistic", I16): Grid(I16, 1 / 32768, 0),
    ("softmax", I16): Grid(I16, 1 / 32768, 0),
    ("tanh", I16): Grid(I16, 1 / 32768, 0),
}


def grid_of(a, dtype=I8):
    if dtype == I16:
        return symmetric(float(np.abs(a).max()), I16)
    return asymmetric(float(a.min()), float(a.max()))


def int8_graph(case, dtype=I8, channels=True):
    """The case on integer grids: graph, stored inputs, and the real result for the values that are really stored."""
    tensors, real, feeds = [], [], []
    for i, a in enumerate(case.arrays):
        weight, shared = case.op in WEIGHTED and i > 0, case.moves and i > 0
        if a is None:
            tensors.append(None)
            real.append(None)
            continue
        if weight and i == 1:
            axis = CHANNEL[case.op]
            top = np.abs(a).max(tuple(j for j in range(a.ndim) if j != axis))
            grid = Grid(I8, tuple(float(s) for s in (top / np.float32(127)).astype(np.float32)), 0, axis)
            grid = grid if channels else symmetric(float(top.max()), I8)
        elif weight:
            scale = np.float64(tensors[0].grid.scale) * np.asarray(tensors[1].grid.scale)
            q = np.rint(a / scale).astype(np.int64 if dtype == I16 else np.int32)
            tensors.append(Tensor(f"x{i}", q.shape, q.dtype, None, q))
            real.append((q * scale).astype(np.float32))
            continue
        else:
            grid = tensors[0].grid if shared else grid_of(a, dtype)
        q = grid.quantize(a)
        t = Tensor(f"x{i}", q.shape, grid.dtype, grid, q if i in case.constant else None)
        tensors.append(t)
        real.append(grid.dequantize(q))
        if not t.constant:
            feeds.append(q)
    y = np.asarray(case.expected(real), np.float64)
    grid = tensors[0].grid if case.moves else RESULTS.get((case.op, dtype)) or grid_of(y, dtype)
    out = Tensor("y", y.shape, grid.dtype, grid)
    node = Node(case.op, tuple(tensors), (out,), dict(case.attrs), name="node")
    ins = [t for t in tensors if t is not None and not t.constant]
    return NpuGraph("int8", ins, [out], [node]).check(), feeds, y


def steps(got, y, grid):
    """How many steps of the grid lie between stored results and the nearest to real ones, at most."""
    return int(np.abs(got.astype(np.int64) - grid.quantize(y.astype(np.float32))).max(initial=0))


def _random(rng, shape, kind):
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "int":
        return rng.integers(0, 3, shape).astype(np.int32)
    return rng.standard_normal(shape).astype(np.float32)


def mixed(quantized, seed=0):
    """Graphs of operators with several results, or with operands or results that are not real.

    Rows are (graph, feeds, expected): stored values, exact in both kinds of file.
    """
    rng = np.random.default_rng(seed)
    g8 = Grid(I8, 0.03125, 7)
    made = []

    def operand(i, a):
        if a.dtype == F32 and quantized:
            q = g8.quantize(a)
            return Tensor(f"x{i}", q.shape, I8, g8), q
        return Tensor(f"x{i}", a.shape, a.dtype), a

    def add(op, shapes, means, constant=None, grid=None, **attrs):
        arrays = [_random(rng, s, k) for s, k in shapes]
        pairs = [operand(i, a) for i, a in enumerate(arrays)]
        real = [t.grid.dequantize(q) if t.grid else q for t, q in pairs]
        results = means(*real)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        outs, stored = [], []
        for i, r in enumerate(results):
            r = np.asarray(r)
            grid_out = (grid or g8) if quantized and r.dtype.kind == "f" else None
            value = grid_out.quantize(r.astype(np.float32)) if grid_out else r
            stored.append(value)
            outs.append(Tensor(f"y{i}", value.shape, value.dtype, grid_out))
        if constant is not None:
            pairs[constant][0].data = pairs[constant][1]
        node = Node(op, tuple(t for t, _ in pairs), tuple(outs), attrs, name="node")
        ins = [t for t, _ in pairs if not t.constant]
        made.append((NpuGraph("mixed", ins, outs, [node]).check(), [q for t, q in pairs if not t.constant], stored))

    for name, f in COMPARISONS.items():
        add(name, [((3, 4), "real"), ((3, 4), "real")], f)
        add(name, [((3, 4), "int"), ((4,), "int")], f)
    add("logical_and", [((3, 4), "bool"), ((3, 4), "bool")], np.logical_and)
    add("logical_or", [((3, 4), "bool"), ((3, 4), "bool")], np.logical_or)
    add("logical_not", [((3, 4), "bool")], np.logical_not)
    add("select", [((3, 4), "bool"), ((3, 4), "real"), ((3, 4), "real")], np.where)
    add("split", [((2, 5, 3), "real")], lambda x: np.split(x, [2, 3], 1), axis=1, sizes=(2, 1, 2))
    add("argmax", [((2, 5, 3), "real")], lambda x: x.argmax(1).astype(np.int32), axis=1)
    add("argmin", [((2, 5, 3), "real")], lambda x: x.argmin(2).astype(np.int32), axis=2)
    for largest in (True, False):

        def order(x, sign=-1 if largest else 1):
            places = (sign * x).argsort(-1, kind="stable")[..., :3]
            return np.take_along_axis(x, places, -1), places.astype(np.int32)

        add("top_k", [((2, 5, 6), "real")], order, k=3, largest=largest)
    add("gather", [((3, 4), "real"), ((2, 5), "int")], lambda x, i: x[i], axis=0)
    add("gather", [((2, 3, 4), "real"), ((5,), "int")], lambda x, i: x[:, i], axis=1)
    add("one_hot", [((2, 5), "int")], lambda i: np.eye(3, dtype=np.float32)[i], depth=3, axis=2)
    add("one_hot", [((4,), "int")], lambda i: np.eye(2, 3, dtype=np.float32)[:, i], depth=2, axis=0)
    add("add", [((3, 4), "int"), ((3, 4), "int")], np.add)
    if not quantized:
        add("cast", [((3, 4), "real")], lambda x: x.astype(np.int32))
        add("cast", [((3, 4), "bool")], lambda x: x.astype(np.float32))
    return made


def chain(seed):
    """A random int8 network of up to eight operators that keep or move values, on four dimensions."""
    rng = np.random.default_rng(seed)
    grid = Grid(I8, 0.0625, int(rng.integers(-20, 20)))
    x = Tensor("x0", (1, 4, 4, 4), I8, grid)
    nodes, at = [], x

    def step(op, inputs, result, **attrs):
        y = Tensor(f"x{len(nodes) + 1}", result, I8, grid)
        nodes.append(Node(op, tuple(inputs), (y,), attrs, name=f"{op}_{len(nodes)}"))
        return y

    for _ in range(int(rng.integers(2, 9))):
        kind, shape = rng.integers(9), at.shape
        if kind == 0:
            perm = tuple(int(p) for p in rng.permutation(4))
            at = step("transpose", [at], [shape[p] for p in perm], permutation=perm)
        elif kind == 1:
            sizes = [int(s) for s in rng.permutation([shape[0] * shape[1], 1, shape[2], shape[3]])]
            at = step("reshape", [at], sizes, shape=tuple(sizes))
        elif kind == 2:
            other = rng.integers(-128, 128, shape[-int(rng.integers(1, 5)) :]).astype(I8)
            at = step("maximum", [at, Tensor(f"c{len(nodes)}", other.shape, I8, grid, other)], shape)
        elif kind == 3:
            window = {"window": (2, 2), "strides": (1, 1), "padding": ((0, 1), (1, 0)), "activation": None}
            at = step("max_pool_2d", [at], shape, **window)
        elif kind == 4:
            axis = int(rng.integers(4))
            at = step("concatenation", [at, at], [s * (1 + (i == axis)) for i, s in enumerate(shape)], axis=axis)
        elif kind == 5:
            low = [int(rng.integers(0, s)) for s in shape]
            at = step("slice", [at], [s - b for s, b in zip(shape, low)], begin=tuple(low),
                      size=tuple(s - b for s, b in zip(shape, low)))  # fmt: skip
        elif kind == 6:
            pads = tuple((int(rng.integers(0, 2)), int(rng.integers(0, 2))) for _ in shape)
            at = step("pad", [at], [s + a + b for s, (a, b) in zip(shape, pads)], padding=pads, value=None)
        elif kind == 7:
            axis = int(rng.integers(4))
            kept = [1 if i == axis else s for i, s in enumerate(shape)]
            at = step("reduce_max", [at], kept, axes=(axis,), keepdims=True)
        else:
            at = step("add", [at, at], shape, activation="relu")
    return NpuGraph("chain", [x], [at], nodes).check(), [rng.integers(-128, 128, x.shape).astype(I8)]
