"""One elementwise op over flat arrays, by vectors and a scalar rest: what tests of emitters run."""

import math

import numpy as np

from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Kernel, KernelCost, dense, plain, pointer
from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.trace import core, dtypes
from tests.kernels.cpu.running import run


class OpKernel(Kernel):
    """``name`` on arrays of ``n`` elements; ``lanes`` at a time."""

    def __init__(self, name, ins, out, n, lanes=16, **params):
        self.op, self.ins, self.out, self.n, self.lanes, self.params = name, tuple(ins), out, n, lanes, params
        self.items, self.grain = n, 1

    @property
    def key(self):
        kinds = ",".join(d.name for d in (*self.ins, self.out))
        return f"test_op({self.op},{kinds},{sorted(self.params.items())},{self.lanes})"

    def meaning(self, *xs):
        return [np.asarray(core.get_op(self.op).eval(*xs, **self.params))]

    def touches(self):
        return plain(dense(*(self.n * d.itemsize for d in self.ins)), dense(self.n * self.out.itemsize))

    def cost(self):
        return KernelCost(self.n, 0, 0)

    def emit(self, module, isa):
        f, words, lo, hi, _ = self.function(module)
        places = [pointer(f, words, i) for i in range(len(self.ins) + 1)]
        step = max(self.lanes, 1)
        whole = lo + (hi - lo).udiv(step) * step
        for start, stop, lanes in ((lo, whole, self.lanes), (whole, hi, 0)):
            with f.loop(start, stop, max(lanes, 1)) as loop:
                at = [f.at(p, loop.index, d.itemsize) for p, d in zip(places, (*self.ins, self.out), strict=True)]
                xs = [convert.load(f, isa, d, p, lanes) for d, p in zip(self.ins, at, strict=False)]
                y = ops.emit(f, isa, self.op, self.params, self.ins, self.out, xs)
                assert y.type == convert.register_type(self.out, lanes), (self.op, y.type)
                convert.store(f, isa, self.out, y, at[-1])
        f.ret()


def specials(dtype):
    """Values at which ``dtype`` is hardest."""
    if dtype == dtypes.bool_:
        return np.array([False, True])
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        lo, hi = int(info.min), int(info.max)
        if info.bits == 4:
            return np.arange(lo, hi + 1).astype(np.int8).astype(dtype)
        values = {lo, lo + 1, lo // 2, 0, 1, 2, 3, 5, 7, 8, info.bits - 1, info.bits, info.bits + 1, 100, hi // 2, hi}
        values |= {hi - 1, hi // 3} | ({-1, -2, -3, -8, -100} if lo else set())
        return np.array(sorted(values), dtype)
    if dtype in dtypes.COMPLEX:
        part = specials(dtypes.real_part(dtype))[::3]
        out = np.empty((len(part), len(part)), dtype)
        out.real, out.imag = part[:, None], part
        return out.reshape(-1)
    if dtype.itemsize == 1:
        return np.arange(256).astype(np.uint8).view(dtype)
    info = dtypes.float_info(dtype)
    with np.errstate(all="ignore"):
        tiny, big = float(info.smallest_subnormal), float(info.max)
        values = [0.0, tiny, 3 * tiny, float(info.smallest_normal), 1e-5, 0.1, 0.3, 0.49999997, 0.5, 0.75, 1 - 2**-9, 1]
        values += [1 + float(info.eps), 1.5, 2, 2.5, 3, 3.7, 7.25, 10, 100.5, 127.5, 255, 300, 1000.3, 32767.5, 65504]
        values += [65519.9, 65520, 1e6 + 0.5, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**31 - 64, 2.0**31, 2.0**32, 2.0**52 - 0.5]
        values += [2.0**63, 2.0**64, 1e30, big / 2, big * 0.999, big, np.inf, np.nan]
        one = np.array(values)
        return np.concatenate([one, -one]).astype(dtype)


def grid(ins, cap=4096):
    """All combinations of special values, thinned out to ``cap``."""
    pools = [specials(d) for d in ins]
    sizes = [len(p) for p in pools]
    total = math.prod(sizes)
    flat = np.arange(total) if total <= cap else np.random.default_rng(0).integers(0, total, cap)
    index = np.unravel_index(flat, sizes)
    return [p[i] for p, i in zip(pools, index, strict=True)]


def same(x, y):
    """Whether two arrays are equal bit for bit, any NaN being as good as any other."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype in (dtypes.int4, dtypes.uint4):
        return bool((x.view(np.uint8) & 15 == y.view(np.uint8) & 15).all())
    if x.dtype in dtypes.COMPLEX:
        return same(np.ascontiguousarray(x.real), np.ascontiguousarray(y.real)) and same(
            np.ascontiguousarray(x.imag), np.ascontiguousarray(y.imag)
        )
    if x.dtype in dtypes.FLOAT:
        with np.errstate(all="ignore"):
            nan, other = np.isnan(x), np.isnan(y)
        words = f"u{x.dtype.itemsize}"
        return bool((nan == other).all() and (x.view(words) == y.view(words))[~nan].all())
    return x.tobytes() == y.tobytes()


def same_step(name, step, dtype, *xs, **params):
    """A step of a nest (`ops_quant`): its machine code against its NumPy, over a row."""
    xs = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*xs)]
    inputs = tuple(Input(x.dtype, (x.itemsize,)) for x in xs)
    node = ExpressionNode(step, tuple(sorted(params.items())), tuple(range(len(xs))), np.dtype(dtype))
    kernel = Nest((xs[0].size,), 1, False, inputs, (node,), (Output(len(xs), (np.dtype(dtype).itemsize,)),))
    with np.errstate(all="ignore"):
        wanted = step.eval(*xs, **params)
    (y,) = run(kernel, *xs, name=name)
    np.testing.assert_array_equal(y, wanted)
