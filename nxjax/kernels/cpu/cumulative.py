"""Running sums, products, extrema and sums of exponentials along the middle of a dense [outer, size, inner] array.

With an inner dimension rows are combined one after the other, many columns at once, in NumPy's order. Without one, a
run of 64 bytes of the result is a vector: its prefixes are formed in log2(lanes) steps of shifting and combining
(Hillis and Steele, "Data parallel algorithms", 1986), and then combined with what came before. Vectors are as long on
every instruction set, so that results are equal on all of them.

A running sum is wanted to its last bits however long it is, and may not stand still where it is large: sums and
products of floats are accumulated in float64 and rounded once per result. Sums of float64 carry what each addition
rounded off (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Kernel, KernelCost, NDArray, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
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
        summed = op in ("add", "mul", "logaddexp") and dtype in dtypes.FLOAT
        self._wide = dtypes.float64 if summed else dtypes.float32 if dtype in convert.NARROW else self.dtype
        # Where no type is wider, the carry is in two parts.
        self._exact = op == "add" and dtype == dtypes.float64
        count = outer * size * inner
        self.nbytes = count * dtype.itemsize
        self._blocks = -(-inner // COLUMNS)
        self.items = 0 if not count else outer * self._blocks if inner > 1 else outer
        self.grain = max(1, (64 << 10) * self.items // max(self.nbytes, 1))
        self.scratch = COLUMNS * self._wide.itemsize * (1 + self._exact) if inner > 1 else 0

    @property
    def key(self) -> str:
        way = " reverse" if self.reverse else ""
        return f"cumulative_{self.op}({self.dtype.name} {self.outer}x{self.size}x{self.inner}{way})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """In NumPy's order; floats may be rounded in another."""
        x = xs[0].reshape(self.outer, self.size, self.inner)
        x = x.astype(self._wide)
        x = x[:, ::-1] if self.reverse else x
        y = _UFUNCS[self.op].accumulate(x, 1, dtype=x.dtype)
        return (np.ascontiguousarray(y[:, ::-1] if self.reverse else y).astype(xs[0].dtype),)

    def touches(self) -> Touches:
        return plain(dense(self.nbytes), dense(self.nbytes))

    def cost(self) -> KernelCost:
        return KernelCost(self.outer * self.size * self.inner, self.nbytes, self.nbytes)

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
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
        rest = f.at(scratch, COLUMNS, wide) if self._exact else scratch

        def row(at: Value, first: bool) -> None:
            def some(k: Value, n: int) -> None:
                type = convert.memory_type(self._wide, n)
                held = lambda base: convert.from_memory(f, isa, self._wide, f.load(type, f.at(base, k, wide)))
                keep = lambda v, base: f.store(convert.to_memory(f, isa, self._wide, v), f.at(base, k, wide))
                new = self._load(f, isa, f.at(x, at + k, size), n)
                lost = convert.constant(f, self._wide, -0.0, n) if self._exact else None
                if not first:
                    if self._exact:
                        new, more = _two_sum(f, held(scratch), new)
                        lost = held(rest) + more
                    else:
                        new = self._combine(f, isa, held(scratch), new)
                keep(new, scratch)
                if lost is not None:
                    keep(lost, rest)
                    new = new + lost
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
        start = convert.constant(f, self._wide, self._start())
        carries = [start, convert.constant(f, self._wide, -0.0)] if self._exact else [start]
        neutral = f.splat(start, lanes)
        # Where the order may not hang on what lies beside a row, it is that of columns.
        whole = 0 if isa.reproducible and self.dtype not in dtypes.BITS else self.size // lanes * lanes
        last = self.size - lanes
        with f.loop(0, whole, lanes, [f.splat(c, lanes) for c in carries]) as loop:
            at = last - loop.index if self.reverse else loop.index
            v = self._load(f, isa, f.at(x, at, size), lanes)
            step = 1
            while step < lanes:
                v = self._combine(f, isa, self._shifted(f, v, neutral, step, lanes), v)
                step *= 2
            total = f.shuffle(v, None, [0 if self.reverse else lanes - 1] * lanes)
            y_at, after = self._carried(f, isa, loop.carried, v, total)
            self._store(f, isa, y_at, f.at(y, at, size))
            loop.next(*after)
        with f.loop(whole, self.size, 1, [f.extract(c, 0) for c in loop.results]) as loop:
            at = (self.size - 1) - loop.index if self.reverse else loop.index
            v = self._load(f, isa, f.at(x, at, size))
            y_at, after = self._carried(f, isa, loop.carried, v, v)
            self._store(f, isa, y_at, f.at(y, at, size))
            loop.next(*after)

    def _carried(
        self, f: Function, isa: Isa, before: Sequence[Value], v: Value, total: Value
    ) -> tuple[Value, Sequence[Value]]:
        """What came before combined with ``v``, and with ``total`` for what comes after."""
        if not self._exact:
            return self._combine(f, isa, before[0], v), [self._combine(f, isa, before[0], total)]
        high, more = _two_sum(f, before[0], total)
        lost = before[1] + more
        return high + lost if isa.reproducible else before[0] + (before[1] + v), [high, lost]

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

    def _load(self, f: Function, isa: Isa, place: Value, lanes: int = 0) -> Value:
        x = convert.load(f, isa, self.dtype, place, lanes)
        return x if self._wide == self.dtype else convert.convert(f, isa, x, self.dtype, self._wide)

    def _store(self, f: Function, isa: Isa, x: Value, place: Value) -> None:
        x = x if self._wide == self.dtype else convert.convert(f, isa, x, self._wide, self.dtype)
        convert.store(f, isa, self.dtype, x, place)


def _two_sum(f: Function, x: Value, y: Value) -> tuple[Value, Value]:
    """The sum rounded, and what rounding took away (Knuth, "Seminumerical Algorithms", 4.2.2, theorem B).

    Nothing is -0.0, which changes no sum, not even of -0.0; so is what an infinite sum leaves, where NaN would be.
    """
    high = x + y
    part = high - x
    lost = (x - (high - part)) + (y - part)
    return high, f.select(lost.lt(0) | lost.gt(0), lost, -0.0)
