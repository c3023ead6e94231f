"""Random graphs of one node, for holding constraint tables against what a compiler does. Not a test."""

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

INT8, INT16, INT32, FLOAT = (np.dtype(n) for n in ("int8", "int16", "int32", "float32"))
UNARY = (
    "logistic", "tanh", "relu", "relu6", "relu_n1_to_1", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt",
    "abs", "neg", "square", "sin", "cos", "floor", "ceil", "round", "sign", "leaky_relu", "gelu", "log_softmax",
    "softmax", "quantize", "dequantize", "cast",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow",
)  # fmt: skip
COMPARE = (
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
)  # fmt: skip
REDUCE = (
    "mean", "sum", "reduce_max", "reduce_min", "reduce_prod",
)  # fmt: skip
MOVES = (
    "reshape", "transpose", "concatenation", "split", "slice", "strided_slice", "pad", "broadcast_to", "tile",
    "reverse", "gather", "one_hot", "select", "cumsum", "resize_bilinear", "resize_nearest", "argmax", "argmin",
    "top_k",
)  # fmt: skip
PRODUCTS = (
    "conv_2d", "depthwise_conv_2d", "transpose_conv", "conv_3d", "transpose_conv_3d", "fully_connected", "batch_matmul",
    "max_pool_2d", "average_pool_2d", "prelu", "logical_and", "logical_or", "logical_not",
)  # fmt: skip
OPS = [*UNARY, *BINARY, *COMPARE, *REDUCE, *MOVES, *PRODUCTS, "table"]


# What TFLite's kernels have each operator in, besides int8 and float32.
WIDE = {
    "logistic tanh relu relu6 abs exp log rsqrt softmax leaky_relu quantize dequantize cast add sub mul maximum "
    "minimum squared_difference mean sum reduce_max reduce_min reshape transpose concatenation split slice "
    "strided_slice pad tile reverse gather select resize_bilinear resize_nearest conv_2d depthwise_conv_2d "
    "transpose_conv fully_connected batch_matmul max_pool_2d average_pool_2d prelu": INT16,
    "neg abs add sub mul maximum minimum sum reduce_max reduce_min reshape transpose concatenation split slice "
    "strided_slice pad tile gather select cumsum cast equal less greater_equal": INT32,
}  # fmt: skip


class Maker:
    def __init__(self, seed, op, dtype=None):
        self.rng = np.random.default_rng(seed)
        kinds = [INT8] * 4 + [FLOAT] + [kind for ops, kind in WIDE.items() if op in ops.split() for _ in "ab"]
        self.dtype = dtype or self.pick(kinds)

    def pick(self, of):
        return of[int(self.rng.integers(len(of)))]

    def int(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def grid(self, dtype):
        if dtype in (FLOAT, INT32, np.bool_):
            return None
        zero = self.int(-128, 127) if dtype == INT8 else 0
        return Grid(dtype, float(np.float32(self.rng.uniform(0.01, 0.1))), zero)

    def tensor(self, name, shape, dtype=None, grid=None, data=None):
        dtype = self.dtype if dtype is None else dtype
        grid = grid or (self.grid(dtype) if data is None else None)
        return Tensor(name, shape, dtype, grid, data)

    def shape(self, least=1, most=4, batch=True):
        rank = self.int(least, most)
        dims = [self.int(1, 12) for _ in range(rank)]
        if rank == 4 and not (batch and self.int(0, 3) == 0):
            dims[0] = 1
        return tuple(dims)

    def image(self, most=12):
        return (self.pick([1, 1, 1, 2]), self.int(1, most), self.int(1, most), self.int(1, 16))

    def weights(self, shape, axis):
        kind = FLOAT if self.dtype == FLOAT else INT8
        data = self.rng.integers(-127, 128, shape).astype(kind)
        if kind == FLOAT:
            return Tensor("w", shape, kind, None, data)
        scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.001, 0.01, shape[axis]))
        return Tensor("w", shape, kind, Grid(kind, scales, 0, axis), data)

    def bias(self, count):
        kind = {INT8: INT32, INT16: np.dtype("int64")}.get(self.dtype, self.dtype)
        if self.int(0, 2) == 0:
            return None
        return Tensor("b", (count,), kind, None, self.rng.integers(-1000, 1000, count).astype(kind))

    def padding(self, sizes, windows, strides):
        from nxjax.lower.npu.formats.tflite_build import same_padding

        if self.int(0, 1):
            return ((0, 0), (0, 0))
        return tuple(same_padding(n, k, s) for n, k, s in zip(sizes, windows, strides))

    def node(self, op):
        x = self.tensor("x", self.shape())
        done = getattr(self, "make_" + op, None)
        if done is not None:
            return done(x)
        if op in UNARY:
            kind = {"dequantize": FLOAT, "quantize": self.pick([INT8, INT16])}.get(op)
            if op == "quantize":
                x = self.tensor("x", x.shape, self.pick([INT8, INT16, FLOAT]))
            if op == "cast":
                return [x], Node(op, (x,), (self.tensor("y", x.shape, self.pick([INT8, INT32, FLOAT])),))
            if op == "dequantize" and x.grid is None:
                x = self.tensor("x", x.shape, INT8)
            grid = {"logistic": Grid(INT8, 1 / 256, -128), "softmax": Grid(INT8, 1 / 256, -128)}.get(op)
            if op == "tanh":
                grid = Grid(INT8, 1 / 128, 0)
            attrs = {"leaky_relu": {"alpha": 0.1}, "gelu": {"approximate": True}, "softmax": {"beta": 1.0}}.get(op, {})
            grid = grid if self.dtype == INT8 else None
            return [x], Node(op, (x,), (self.tensor("y", x.shape, kind, grid),), attrs)
        if op in BINARY or op in COMPARE:
            other = tuple(n if self.int(0, 3) else 1 for n in x.shape)[self.pick([0, 0, 0, len(x.shape) // 2]) :]
            y = self.tensor("y", other)
            if op in ("maximum", "minimum") and self.int(0, 1):
                y = self.tensor("y", other, grid=x.grid)
            shape = np.broadcast_shapes(x.shape, y.shape)
            if op in COMPARE:
                return [x, y], Node(op, (x, y), (Tensor("z", shape, np.dtype(bool)),))
            z = self.tensor("z", shape)
            if op in ("maximum", "minimum") and self.int(0, 2):
                z = self.tensor("z", shape, grid=x.grid)
            return [x, y], Node(op, (x, y), (z,), {"activation": None} if op in BINARY[:4] else {})
        if op in REDUCE:
            axes = tuple(i for i in range(len(x.shape)) if self.int(0, 1)) or (len(x.shape) - 1,)
            keep = bool(self.int(0, 1))
            shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
            grid = x.grid if op in ("reduce_max", "reduce_min") else None
            return [x], Node(op, (x,), (self.tensor("y", shape, grid=grid),), {"axes": axes, "keepdims": keep})
        raise AssertionError(op)

    def move(self, op, x, to, **attrs):
        return [x], Node(op, (x,), (self.tensor("y", to, grid=x.grid),), attrs)

    def make_reshape(self, x):
        shape = self.pick([x.shape[::-1], (x.size,), (1, x.size), (x.shape[0], x.size // x.shape[0])])
        return self.move("reshape", x, shape, shape=shape)

    def make_transpose(self, x):
        p = tuple(int(i) for i in self.rng.permutation(len(x.shape)))
        return self.move("transpose", x, tuple(x.shape[i] for i in p), permutation=p)

    def make_concatenation(self, x):
        axis = self.int(0, len(x.shape) - 1)
        other = tuple(self.int(1, 5) if i == axis else n for i, n in enumerate(x.shape))
        y = self.tensor("y", other, grid=x.grid)
        shape = tuple(n + m if i == axis else n for i, (n, m) in enumerate(zip(x.shape, other)))
        return [x, y], Node("concatenation", (x, y), (self.tensor("z", shape, grid=x.grid),), {"axis": axis})

    def make_split(self, x):
        axis = self.int(0, len(x.shape) - 1)
        sizes = self.pick([(2, 2), (1, 3)])
        x = self.tensor("x", tuple(4 if i == axis else n for i, n in enumerate(x.shape)))
        outs = tuple(
            self.tensor(f"y{j}", tuple(s if i == axis else n for i, n in enumerate(x.shape)), grid=x.grid)
            for j, s in enumerate(sizes)
        )
        return [x], Node("split", (x,), outs, {"axis": axis, "sizes": sizes})

    def make_slice(self, x):
        begin = tuple(self.int(0, n - 1) for n in x.shape)
        size = tuple(self.int(1, n - b) for n, b in zip(x.shape, begin))
        return self.move("slice", x, size, begin=begin, size=size)

    def make_strided_slice(self, x):
        strides = tuple(self.pick([1, 1, 2, 3]) for _ in x.shape)
        shape = tuple(-(-n // s) for n, s in zip(x.shape, strides))
        return self.move("strided_slice", x, shape, begin=(0,) * len(shape), end=x.shape, strides=strides)

    def make_pad(self, x):
        pads = tuple((self.int(0, 2), self.int(0, 2)) for _ in x.shape)
        value = self.pick([None, 0.25])
        return self.move("pad", x, tuple(n + a + b for n, (a, b) in zip(x.shape, pads)), padding=pads, value=value)

    def make_broadcast_to(self, x):
        x = self.tensor("x", (1, *x.shape[1:]))
        shape = (3, *x.shape[1:])
        return self.move("broadcast_to", x, shape, shape=shape)

    def make_tile(self, x):
        m = tuple(self.int(1, 2) for _ in x.shape)
        return self.move("tile", x, tuple(n * k for n, k in zip(x.shape, m)), multiples=m)

    def make_reverse(self, x):
        return self.move("reverse", x, x.shape, axes=(self.int(0, len(x.shape) - 1),))

    def make_gather(self, x):
        axis = self.int(0, len(x.shape) - 1)
        i = self.rng.integers(0, x.shape[axis], 3).astype(INT32)
        indices = Tensor("i", (3,), INT32, None, i if self.int(0, 1) else None)
        shape = (*x.shape[:axis], 3, *x.shape[axis + 1 :])
        inputs = [x] if indices.constant else [x, indices]
        return inputs, Node("gather", (x, indices), (self.tensor("y", shape, grid=x.grid),), {"axis": axis})

    def make_one_hot(self, x):
        i = Tensor("i", (4,), INT32)
        return [i], Node("one_hot", (i,), (self.tensor("y", (4, 5)),), {"depth": 5, "axis": -1})

    def make_select(self, x):
        c = Tensor("c", x.shape, np.dtype(bool))
        y, z = self.tensor("y", x.shape, grid=x.grid), self.tensor("z", x.shape, grid=x.grid)
        return [c, x, y], Node("select", (c, x, y), (z,))

    def make_cumsum(self, x):
        return self.move("cumsum", x, x.shape, axis=0, exclusive=False, reverse=False)

    def resize(self, op):
        x = self.tensor("x", self.image(8))
        scales = self.pick([(2, 2), (4, 4), (2, 1), (3, 3), (8, 8), (1, 1), (5, 2)])
        corners = bool(self.int(0, 1))
        size = tuple((n - 1) * s + 1 if corners else n * s for n, s in zip(x.shape[1:3], scales))
        half = not corners and bool(self.int(0, 1))
        shape = (x.shape[0], *size, x.shape[3])
        return self.move(op, x, shape, size=size, align_corners=corners, half_pixel_centers=half)

    def make_resize_bilinear(self, x):
        return self.resize("resize_bilinear")

    def make_resize_nearest(self, x):
        return self.resize("resize_nearest")

    def arg(self, op, x):
        axis = self.pick([len(x.shape) - 1, len(x.shape) - 1, 0])
        if self.int(0, 4) == 0:
            x = self.tensor("x", (2, 130))
            axis = 1
        shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
        return [x], Node(op, (x,), (Tensor("y", shape, INT32),), {"axis": axis})

    def make_argmax(self, x):
        return self.arg("argmax", x)

    def make_argmin(self, x):
        return self.arg("argmin", x)

    def make_top_k(self, x):
        k = self.int(1, x.shape[-1])
        shape, largest = (*x.shape[:-1], k), bool(self.int(0, 1))
        outs = (self.tensor("y", shape, grid=x.grid), Tensor("places", shape, INT32))
        return [x], Node("top_k", (x,), outs, {"k": k, "largest": largest})

    def make_conv_3d(self, x):
        x, o = self.tensor("x", (1, self.int(2, 5), *self.image(6)[1:])), self.int(1, 9)
        k, s = tuple(min(self.int(1, 3), n) for n in x.shape[1:4]), self.pick([(1, 1, 1), (2, 2, 2), (1, 2, 1)])
        spatial = tuple((n - a) // t + 1 for n, a, t in zip(x.shape[1:4], k, s))
        w, b = self.weights((o, *k, x.shape[4]), 0), self.bias(o)
        attrs = {"strides": s, "padding": ((0, 0),) * 3, "activation": self.pick([None, "relu6"])}
        return [x], Node("conv_3d", (x, w, b), (self.tensor("y", (1, *spatial, o)),), attrs)

    def make_transpose_conv_3d(self, x):
        x, o = self.tensor("x", (1, self.int(1, 3), *self.image(4)[1:])), self.int(1, 5)
        k, s = tuple(self.int(1, 3) for _ in range(3)), self.pick([(1, 1, 1), (2, 2, 2)])
        spatial = tuple((n - 1) * t + a for n, t, a in zip(x.shape[1:4], s, k))
        w, b = self.weights((o, *k, x.shape[4]), 0), self.bias(o)
        attrs = {"strides": s, "padding": ((0, 0),) * 3, "activation": None}
        return [x], Node("transpose_conv_3d", (x, w, b), (self.tensor("y", (1, *spatial, o)),), attrs)

    def window(self, op, weights=None):
        x = self.tensor("x", self.image(16))
        k = (self.int(1, 5), self.int(1, 5))
        s = self.pick([(1, 1), (2, 2), (1, 2), (3, 3), (4, 4), (2, 4)])
        k = tuple(min(a, n) for a, n in zip(k, x.shape[1:3]))
        d = self.pick([(1, 1), (1, 1), (2, 2)]) if s == (1, 1) and "pool" not in op else (1, 1)
        span = tuple((a - 1) * b + 1 for a, b in zip(k, d))
        if any(a > n for a, n in zip(span, x.shape[1:3])):
            d, span = (1, 1), k
        pads = self.padding(x.shape[1:3], span, s)
        spatial = tuple((n + a + b - w) // t + 1 for n, (a, b), w, t in zip(x.shape[1:3], pads, span, s))
        return x, k, s, d, pads, spatial

    def make_conv_2d(self, x):
        x, k, s, d, pads, spatial = self.window("conv_2d")
        o = self.int(1, 20)
        w, b = self.weights((o, *k, x.shape[3]), 0), self.bias(o)
        attrs = {"strides": s, "dilations": d, "padding": pads, "groups": 1, "activation": self.pick([None, "relu6"])}
        return [x], Node("conv_2d", (x, w, b), (self.tensor("y", (x.shape[0], *spatial, o)),), attrs)

    def make_depthwise_conv_2d(self, x):
        x, k, s, d, pads, spatial = self.window("depthwise_conv_2d")
        o = x.shape[3] * self.pick([1, 1, 2])
        w, b = self.weights((1, *k, o), 3), self.bias(o)
        attrs = {"strides": s, "dilations": d, "padding": pads, "activation": None}
        return [x], Node("depthwise_conv_2d", (x, w, b), (self.tensor("y", (x.shape[0], *spatial, o)),), attrs)

    def make_transpose_conv(self, x):
        x = self.tensor("x", self.image(8))
        k, s, o = (self.int(1, 4), self.int(1, 4)), self.pick([(1, 1), (2, 2), (2, 1), (3, 3)]), self.int(1, 9)
        spatial = tuple((n - 1) * t + a for n, t, a in zip(x.shape[1:3], s, k))
        w, b = self.weights((o, *k, x.shape[3]), 0), self.bias(o)
        attrs = {"strides": s, "padding": ((0, 0), (0, 0)), "activation": None}
        return [x], Node("transpose_conv", (x, w, b), (self.tensor("y", (x.shape[0], *spatial, o)),), attrs)

    def make_fully_connected(self, x):
        o = self.int(1, 20)
        w, b = self.weights((o, x.shape[-1]), 0), self.bias(o)
        y = self.tensor("y", (*x.shape[:-1], o))
        return [x], Node("fully_connected", (x, w, b), (y,), {"activation": self.pick([None, "relu"])})

    def make_batch_matmul(self, x):
        rank = self.int(2, 4)
        lead = tuple(self.int(1, 3) for _ in range(rank - 2))
        m, k, n = self.int(1, 9), self.int(1, 9), self.int(1, 9)
        a, b = self.tensor("a", (*lead, m, k)), self.tensor("b", (*lead, k, n))
        c = self.tensor("c", (*lead, m, n))
        return [a, b], Node("batch_matmul", (a, b), (c,), {"adj_x": False, "adj_y": False})

    def pool(self, op):
        x, k, s, _, pads, spatial = self.window(op)
        attrs = {"window": k, "strides": s, "padding": pads, "activation": self.pick([None, None, "relu"])}
        return [x], Node(op, (x,), (self.tensor("y", (x.shape[0], *spatial, x.shape[3]), grid=x.grid),), attrs)

    def make_max_pool_2d(self, x):
        return self.pool("max_pool_2d")

    def make_average_pool_2d(self, x):
        return self.pool("average_pool_2d")

    def make_prelu(self, x):
        x = self.tensor("x", self.image())
        kind = x.dtype
        data = self.rng.integers(-100, 100, (1, 1, x.shape[3])).astype(kind)
        alpha = Tensor("alpha", (1, 1, x.shape[3]), kind, x.grid and Grid(kind, 0.01, 0), data)
        return [x], Node("prelu", (x, alpha), (self.tensor("y", x.shape),))

    def logical(self, op, shape):
        a, b, c = (Tensor(n, shape, np.dtype(bool)) for n in "abc")
        inputs = (a,) if op == "logical_not" else (a, b)
        return list(inputs), Node(op, inputs, (c,))

    def make_logical_and(self, x):
        return self.logical("logical_and", x.shape)

    def make_logical_or(self, x):
        return self.logical("logical_or", x.shape)

    def make_logical_not(self, x):
        return self.logical("logical_not", x.shape)

    def make_table(self, x):
        x = self.tensor("x", x.shape, INT8)
        values = self.rng.integers(-128, 128, 256).astype(np.int8)
        function = self.pick(["tanh", "logistic", "mish"])
        y = self.tensor("y", x.shape, INT8)
        return [x], Node("table", (x,), (y,), {"function": function, "values": values})


def single(op, seed, dtype=None):
    """A graph of one node of ``op``, its shapes, grids and dtypes drawn from ``seed``."""
    inputs, node = Maker(seed, op, dtype).node(op)
    return NpuGraph(op, inputs, list(node.outputs), [node]).check()


assert dtypes.int8 == INT8
