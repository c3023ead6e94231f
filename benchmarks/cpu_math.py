"""The largest errors of the CPU compiler's float32 functions over all 2^32 floats, against its own in float64.

    python benchmarks/cpu_math.py [instruction set] [function ...]

Both run in machine code, and so does the comparison: about a quarter of a minute for a function. The functions in
float64 are within a few of their own last places (`tests/kernels/cpu/test_math.py`), a billionth of what is measured.
Functions that are computed in float64 and rounded are not listed: their error is half a unit.
"""

import ctypes
import sys
import time

import numpy as np

from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa, ops
from nxjax.kernels.cpu.base import Kernel, KernelCost, dense, plain, pointer
from nxjax.kernels.cpu.ir import vector

FUNCTIONS = ("exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tanh", "logistic", "erf", "erfc")
BLOCK = 1 << 16
F32, F64 = np.dtype("f4"), np.dtype("f8")


class LargestError(Kernel):
    """Per item, the largest error among its 65,536 floats in last places; infinite where the kind differs."""

    items, grain = 1 << 16, 1

    def __init__(self, name):
        self.name = name

    @property
    def key(self):
        return f"largest_error({self.name})"

    def meaning(self, *xs):
        raise NotImplementedError

    def touches(self):
        return plain((), dense(8 * self.items))

    def cost(self):
        return KernelCost(BLOCK * self.items, 0, 8 * self.items)

    def emit(self, module, isa):
        f, words, lo, hi, _ = self.function(module)
        out = pointer(f, words, 0)
        lanes = isa.lanes(4)
        double, i64 = vector("double", lanes), vector("i64", lanes)
        with f.loop(lo, hi) as item:
            first = f.splat((item.index * BLOCK).convert("i32"), lanes) + f.constants("i32", range(lanes))
            with f.loop(0, BLOCK, lanes, (f.constant(double, 0.0),)) as loop:
                x = (first + f.splat(loop.index.convert("i32"), lanes)).bitcast(vector("float", lanes))
                y = ops.emit(f, isa, self.name, {}, (F32,), F32, (x,)).convert(double)
                r = ops.emit(f, isa, self.name, {}, (F64,), F64, (x.convert(double),))
                exponent = r.bitcast(i64).lshr(52) & 2047
                exponent = f.intrinsic("umax", i64, exponent, f.constant(i64, 1023 - 126))
                scale = ((f.constant(i64, 2046 + 23) - exponent) << 52).bitcast(double)
                error = f.intrinsic("fabs", double, (y - r) * scale)
                # Both NaN, equal, or both beyond the largest float.
                large = f.intrinsic("fabs", double, r).gt(float(np.finfo(np.float32).max) * (1 + 2.0**-25))
                alike = (y.is_nan() & r.is_nan()) | y.eq(r) | (f.intrinsic("fabs", double, y).eq(np.inf) & large)
                error = f.select(alike, 0.0, f.select(error.is_nan(), np.inf, error))
                (most,) = loop.carried
                loop.next(f.select(error.gt(most), error, most))
            (most,) = loop.results
            y = f.intrinsic("vector.reduce.fmax", "double", most)
            f.store(y, f.at(out, item.index, 8))
        f.ret()


def main():
    names = sys.argv[2:] or FUNCTIONS
    chosen = isa.named(sys.argv[1]) if len(sys.argv) > 1 else isa.current()
    for name in names:
        kernel, start = LargestError(name), time.perf_counter()
        (address,) = engine(chosen).addresses([kernel])
        out = np.empty(kernel.items)
        words = np.array([out.ctypes.data], np.uint64)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
        run(words.ctypes.data, 0, kernel.items, None)
        worst = int(out.argmax())
        x = np.uint32(worst * BLOCK).view(np.float32)
        print(f"{name:10} {out.max():8.4f} ulp, near {x:.6g}; {time.perf_counter() - start:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
