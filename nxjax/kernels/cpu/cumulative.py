"""Running sums, products, extrema and sums of exponentials along the middle of a dense [outer, size, inner] array.

With an inner dimension rows are combined one after the other, many columns at once, in NumPy's order. Without one, a
run of 64 bytes of the result is a vector: its prefixes are formed in log2(lanes) steps of shifting and combining
(Hillis and Steele, "Data parallel algorithms", 1986), and then combined with what came before. That what-came-before is
carried by one operation per vector, so rounding errors grow with size / lanes, not with size. Vectors are as long on
every instruction set, so that results are equal on all of them. Floats narrower than float32 are accumulated in it and
rounded once per result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Cost, Kernel, NDArray, pointer
from nxjax.kernels.cpu.ir import Function, Module, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes

RUN: Final = 64  # bytes of a vector
COLUMNS: Final = 512  # of an item: its accumulators stay in the nearest cache
_UFUNCS: Final = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "logaddexp": np.logaddexp}


@final
class Cumulative(Kernel):
    """``op`` is one of add, mul, max, min, logaddexp; with ``reverse`` from the last element to the first."""

    def __init__(self, op: str, dtype: np.dtype[Any], outer: int, size: int, inner: int, reverse: bool) -> None:
        self.op = op
        # True and False are combined as 1 and 0.
        self.dtype = dtypes.uint8 if dtype == dtypes.bool_ else dtype
        self.outer = outer
        self.size = size
        self.inner = inner
        self.reverse = reverse
        self._narrow = dtype in convert.NARROW
        self._wide = dtypes.float32 if self._narrow else self.dtype
        count = outer * size * inner
        self.nbytes = count * dtype.itemsize
        self._blocks = -(-inner // COLUMNS)
        self.items = 0 if not count else outer * self._blocks if inner > 1 else outer
        self.grain = max(1, (64 << 10) * self.items // max(self.nbytes, 1))
        self.scratch = COLUMNS * self._wide.itemsize if inner > 1 else 0

    @property
    def key(self) -> str:
        way = " reverse" if self.reverse else ""
        return f"cumulative_{self.op}({self.dtype.name} {self.outer}x{self.size}x{self.inner}{way})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """In NumPy's order; floats may be rounded in another."""
        x = xs[0].reshape(self.outer, self.size, self.inner)
        x = x.astype(np.float32) if self._narrow else x
        x = x[:, ::-1] if self.reverse else x
        y = _UFUNCS[self.op].accumulate(x, 1, dtype=x.dtype)
        return (np.ascontiguousarray(y[:, ::-1] if self.reverse else y).astype(xs[0].dtype),)

    def cost(self) -> Cost:
        return Cost(self.outer * self.size * self.inner, self.nbytes, self.nbytes)

    # --- code ---

    def emit(self, module: Module, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        if self.items:
            with f.loop(lo, hi) as item:
                if self.inner > 1:
                    self._columns(f, isa, x, y, item.index, scratch)
                else:
                    at = item.index * self.size
                    size = self.dtype.itemsize
                    self._row(f, isa, f.at(x, at, size), f.at(y, at, size))
        f.ret()

    def _columns(self, f: Function, isa: Isa, x: Value, y: Value, item: Value, scratch: Value) -> None:
        """A block of columns of one outer index, all rows."""
        size, wide = self.dtype.itemsize, self._wide.itemsize
        lanes = isa.bits // 8 // max(size, wide)
        start = item.urem(self._blocks) * COLUMNS
        count = f.intrinsic("smin", "i64", self.inner - start, f.constant("i64", COLUMNS))
        whole = count & -lanes
        begin = item.udiv(self._blocks) * (self.size * self.inner) + start

        def row(at: Value, first: bool) -> None:
            def some(k: Value, n: int) -> None:
                acc = f.at(scratch, k, wide)
                new = convert.load(f, isa, self.dtype, f.at(x, at + k, size), n)
                if not first:
                    type = convert.memory_type(self._wide, n)
                    new = self._combine(f, isa, convert.from_memory(f, isa, self._wide, f.load(type, acc)), new)
                f.store(convert.to_memory(f, isa, self._wide, new), acc)
                self._store(f, isa, new, f.at(y, at + k, size))

            with f.loop(0, whole, lanes) as loop:
                some(loop.index, lanes)
            with f.loop(whole, count) as loop:
                some(loop.index, 0)

        row(begin + (self.size - 1) * self.inner if self.reverse else begin, True)
        with f.loop(1, self.size) as loop:
            turn = (self.size - 1) - loop.index if self.reverse else loop.index
            row(begin + turn * self.inner, False)

    def _row(self, f: Function, isa: Isa, x: Value, y: Value) -> None:
        """One contiguous row."""
        size = self.dtype.itemsize
        lanes = RUN // max(size, self._wide.itemsize)
        start = self._start()
        carry = f.splat(convert.constant(f, self._wide, start), lanes)
        whole = self.size // lanes * lanes
        last = self.size - lanes
        with f.loop(0, whole, lanes, [carry]) as loop:
            at = last - loop.index if self.reverse else loop.index
            v = convert.load(f, isa, self.dtype, f.at(x, at, size), lanes)
            step = 1
            while step < lanes:
                v = self._combine(f, isa, self._shifted(f, v, carry, step, lanes), v)
                step *= 2
            (before,) = loop.carried
            self._store(f, isa, self._combine(f, isa, before, v), f.at(y, at, size))
            total = f.shuffle(v, None, [0 if self.reverse else lanes - 1] * lanes)
            loop.next(self._combine(f, isa, before, total))
        (carry,) = loop.results
        with f.loop(whole, self.size, 1, [f.extract(carry, 0)]) as loop:
            at = (self.size - 1) - loop.index if self.reverse else loop.index
            v = convert.load(f, isa, self.dtype, f.at(x, at, size))
            v = self._combine(f, isa, loop.carried[0], v)
            self._store(f, isa, v, f.at(y, at, size))
            loop.next(v)

    def _shifted(self, f: Function, v: Value, neutral: Value, step: int, lanes: int) -> Value:
        """Lanes moved ``step`` places on, the neutral element behind them."""
        if self.reverse:
            return f.shuffle(v, neutral, [i + step for i in range(lanes)])
        return f.shuffle(v, neutral, [i - step if i >= step else lanes + i for i in range(lanes)])

    def _start(self) -> Any:
        """What changes nothing: -0.0 for sums, as 0.0 would turn -0.0 round."""
        d = self._wide
        if self.op in ("add", "mul"):
            return (-0.0 if d in dtypes.FLOAT else 0) if self.op == "add" else 1
        if d in dtypes.FLOAT:
            return -np.inf if self.op in ("max", "logaddexp") else np.inf
        info = dtypes.integer_info(d)
        return info.min if self.op == "max" else info.max

    def _combine(self, f: Function, isa: Isa, x: Value, y: Value) -> Value:
        d = self._wide
        if self.op != "logaddexp":
            return ops.emit(f, isa, self.op, {}, (d, d), d, (x, y))
        # log(e^x + e^y) = max(x, y) + log(1 + e^-|x - y|); equal infinities have no difference.
        apart = x - y
        smaller = f.select(apart.gt(0), -apart, apart)
        more = ops.emit(f, isa, "log1p", {}, (d,), d, (ops.emit(f, isa, "exp", {}, (d,), d, (smaller,)),))
        larger = f.select(apart.gt(0), x, y)
        return f.select(x.eq(y), x + math.log(2), f.select(apart.is_nan(), apart, larger + more))

    def _store(self, f: Function, isa: Isa, x: Value, place: Value) -> None:
        x = convert.round_float(f, isa, self.dtype, x) if self._narrow else x
        convert.store(f, isa, self.dtype, x, place)
