"""Where rules write: values as views of buffers, fresh memory, kernel calls. Knows no op.

A rule is found by the name of its op, in a file that `registry` names::

    @rule("dot_general")
    def dot_general(b: Builder, e: Equation, x: Any, y: Any) -> Sequence[Any]: ...

It gets the equation's operands as the builder holds them (ask `view` or `dense` for memory) and gives one value per
result: a `View` of memory, a `Lazy` value that is computed when somebody wants its memory, or an array (a constant).
A rule that cannot do a case raises `NoKernel` with the reason before it has added a step; the op then runs by
its NumPy meaning, and the program's text says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from nxjax.config import config
from nxjax.kernels.cpu.base import Kernel
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.fuse import Apart, planned
from nxjax.lower.cpu.lazy import (
    Affine,
    Joined,
    Lazy,
    LazyIndex,
    LazyLeaf,
    LazyProduct,
    LazyReduce,
    Map,
    Scalar,
    Shaped,
    large_sources,
    moved,
    pending,
    permutation,
    reshaped_strides,
)
from nxjax.lower.cpu.nests import target, write
from nxjax.lower.cpu.registry import routine_of, rule
from nxjax.lower.cpu.tape import Buffer, CallStep, HostStep, Ref, TapeStep
from nxjax.lower.cpu.view import NoKernel, View, dense_strides, dense_view
from nxjax.lower.reproducible import check_host
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType, Shape

if TYPE_CHECKING:
    from nxjax.lower.cpu.lapack import Routine

__all__ = ["Builder", "NoKernel", "View", "dense_strides", "dense_view", "rule"]

NDArray = np.ndarray[Any, Any]
_GROUP = 16  # elementwise values of one kernel that share no more than memory


@final
class Builder:
    """Collects the steps of one program, or of one body of a loop."""

    def __init__(self) -> None:
        self.steps: list[TapeStep] = []
        self.consts: list[NDArray] = []
        self._const_views: dict[Any, View] = {}
        self.equation: Equation | None = None
        # How often the values of the program that is being lowered are read.
        self.reads: Counter[object] = Counter()
        # How many loops and branches are around what is written now.
        self.inside = 0
        # Memory that is the same in every call.
        self.held: set[Buffer] = set()

    # --- memory ---

    def new(self, type: ArrayType) -> View:
        """Fresh memory for a value of ``type``: dense, not initialized."""
        return dense_view(Buffer(type.size * type.dtype.itemsize, "temp"), type)

    def const(self, array: NDArray) -> View:
        """A constant's memory: one for an array, and for small arrays that are equal."""
        array = np.asarray(array, order="C")  # ascontiguousarray gives numbers a dimension
        key = (array.shape, array.dtype, array.tobytes() if array.nbytes <= 4096 else id(array))
        found = self._const_views.get(key)
        if found is None:
            self.consts.append(array)
            buffer = Buffer(array.nbytes, "const", len(self.consts) - 1)
            strides = dense_strides(array.shape, array.dtype)
            found = self._const_views[key] = View(Ref(buffer), array.shape, strides, array.dtype)
        return found

    def view(self, x: Any) -> View:
        """The memory of a value, with whatever strides it has; computes it if nobody has."""
        if isinstance(x, View):
            return x
        if isinstance(x, Lazy):
            return self._resolved(x) or self._computed(x)
        return self.const(np.asarray(x))

    def dense(self, x: Any) -> View:
        """As `view`, row-major without gaps; copies if need be."""
        if isinstance(x, Lazy):
            x.order = None
        v = self.view(x)
        if v.is_dense:
            return v
        out = dense_view(Buffer(v.size * v.dtype.itemsize, "temp"), ArrayType(v.shape, v.dtype))
        kernel = Move(v.shape, v.strides, out.strides, v.dtype.itemsize)
        self.call(kernel, [v], [out])
        return out

    def is_memory(self, x: Any) -> bool:
        """Whether `view` takes no step."""
        return not isinstance(x, Lazy) or self._resolved(x) is not None

    def is_held(self, v: View) -> bool:
        """Whether what is made of ``v`` alone is made once, before all calls."""
        return v.ref.buffer in self.held

    def write(self, x: Any, target: View, ready: bool = False) -> None:
        """The value ``x`` into the memory that ``target`` names (of its shape): computed there, or copied.

        ``ready``: as `Lazy.ready`.
        """
        if isinstance(x, Lazy):
            x.ready = ready
        self.write_all([x], [target])

    def write_all(self, xs: Sequence[Any], targets: Sequence[View]) -> None:
        """Each value into the memory of its target; see `write` and `together`."""
        for x, place in zip(xs, targets, strict=True):
            if isinstance(x, Lazy) and x.refs <= 1 and self._resolved(x) is None:
                x.home = place
        if len(xs) > 1:
            self.together([x for x in xs if isinstance(x, Lazy)])
        for x, place in zip(xs, targets, strict=True):
            v = self.view(x)
            if v is not place and place.size:
                self.call(Move(v.shape, v.strides, place.strides, v.dtype.itemsize), [v], [place])

    # --- values that are not computed yet ---

    @contextmanager
    def without(self, x: Any) -> Generator[None]:
        """Inside, what ``x`` is made of is not wanted for ``x``, if only the op that is lowered still reads it."""
        held = x.args if isinstance(x, Lazy) and x.refs == 1 and x.view is None else ()
        for a in held:
            a.refs -= 1
        yield
        for a in held:
            a.refs += 1

    def lazy(self, x: Any) -> Lazy:
        """A value as part of a graph; scalars that are known become part of the code."""
        if isinstance(x, Lazy):
            return x
        if isinstance(x, View):
            return LazyLeaf(x)
        array = np.asarray(x)
        return LazyLeaf(self.const(array)) if array.shape else Scalar(array.tobytes(), (), array.dtype)

    def claim(self, x: Any, times: int) -> None:
        """A value will be asked for so many times; see `drop`."""
        if isinstance(x, Lazy):
            x.refs += times

    def drop(self, x: Any) -> None:
        """A value that was claimed has been asked for once."""
        if isinstance(x, Lazy):
            x.dropped()

    def _resolved(self, x: Lazy) -> View | None:
        """The memory of a value, if it takes no step to have it."""
        if x.view is None and isinstance(x, LazyIndex | Shaped):
            inner = self._resolved(x.args[0])
            if inner is not None:
                if isinstance(x, LazyIndex):
                    x.settled(moved(inner, x.shape, x.places))
                else:
                    strides = reshaped_strides(inner, x.shape)
                    if strides is not None:
                        x.settled(View(inner.ref, x.shape, strides, x.dtype))
        return x.view

    def _computed(self, x: Lazy) -> View:
        """Add the kernels that compute ``x``, and what is made with it and needed later."""
        equation, self.equation = self.equation, x.equation or self.equation
        while self._resolved(x) is None:
            if not x.size:
                x.settled(self._room(x))
                break
            if isinstance(x, Joined):
                x.settled(self._together(x))
                break
            if isinstance(x, LazyIndex | Shaped) and isinstance(x.args[0], Joined):
                self.view(x.args[0])  # and a part of it is no copy
                continue
            if isinstance(x, LazyIndex) and isinstance(x.args[0], LazyProduct) and x.args[0].order is None:
                x.args[0].order = permutation(x)
            if isinstance(x, LazyIndex) and x.args[0].refs > 1 and permutation(x) is not None:
                self.view(x.args[0])  # it is wanted as well, and its memory serves both
                continue
            before = self._kernel([x])
            if before is x:
                assert isinstance(x, Shaped), x
                inner = self.dense(x.args[0])
                x.settled(View(inner.ref, x.shape, dense_strides(x.shape, x.dtype), x.dtype))
            elif before is not None:
                self.view(before)
        self.equation = equation
        assert x.view is not None
        return x.view

    def _together(self, x: Joined) -> View:
        """Memory with all pieces of ``x``."""
        out = x.home or self.new(ArrayType(x.shape, x.dtype))
        shifts = [_shift(piece.shape, x.axis, start) for start, piece in zip(x.starts, x.args, strict=True)]
        self.write_all(x.args, [moved(out, y.shape, shift) for y, shift in zip(x.args, shifts, strict=True)])
        return out

    def _kernel(self, xs: Sequence[Lazy]) -> Lazy | None:
        """Add the kernel that computes ``xs`` (of one shape); or give what must be memory before."""
        try:
            plans = planned(xs)
            extras = [x for plan in plans for x in plan.extras()]
            if extras and len(plans) > 1:
                return extras[0]
            home = lambda v: v.home if plans[0].product is None or v.ready else None
            outs = [(v, home(v) or self._room(v)) for v in (*xs, *extras)]
            for plan in plans:
                found = [*((plan.where, n) for n in plan.results), *(plan.made[v] for v in extras)]
                write(self, plan, [target(plan, n, at, room) for (at, n), (_, room) in zip(found, outs, strict=True)])
        except Apart as apart:
            return apart.value
        for v, room in outs:
            v.settled(room)
        return None

    def together(self, xs: Sequence[Any]) -> None:
        """Compute values now; by one kernel reductions of the same elements along the same axes, and elementwise
        values of one shape that are made of the same values which are not memory yet, or of the same memory in steps:
        what is gathered is gathered once."""
        groups: list[tuple[tuple[object, ...], set[Any], list[Lazy]]] = []
        for x in xs:
            y = x
            while isinstance(y, Shaped) and y.view is None:
                y = y.args[0]
            if y.view is not None or not y.size:
                continue
            if isinstance(y, LazyReduce):
                x, key, sources = y, (y.args[0].shape, y.axes), large_sources(y)
            elif isinstance(y, Map):
                key, sources = (x.shape, y.order), {*pending(y), *self._scattered(y)}
            else:
                continue
            for known, of, group in groups:
                shared = of & sources
                small = len(group) < _GROUP or any(isinstance(y, Lazy) for y in shared)
                if known == key and shared and small and x not in group:
                    of |= sources
                    group.append(x)
                    break
            else:
                groups.append((key, sources, [x]))
        for _, _, group in groups:
            before: Lazy | None = None
            while len(group) > 1 and all(self._resolved(x) is None for x in group):
                self.equation = group[0].equation
                before = self._kernel(group)
                if before is None or before in group:
                    break
                self.view(before)
        for x in xs:
            self.view(x)

    def _scattered(self, x: Lazy) -> set[Buffer]:
        """The memory that ``x`` is made of, where what it reads does not lie side by side."""
        found, seen, todo = set[Buffer](), {x}, [x]
        while todo:
            y = todo.pop()
            v = self._resolved(y)
            if v is None:
                todo += [a for a in y.args if a not in seen]
                seen.update(y.args)
            else:
                steps = [abs(s) for n, s in zip(v.shape, v.strides, strict=True) if n > 1 and s]
                if steps and min(steps) > v.dtype.itemsize:
                    found.add(v.ref.buffer)
        return found

    def product(self, x: LazyProduct) -> LazyProduct:
        """A value that a kernel of its own computes, after what is made of it has been seen (its epilogue)."""
        x.equation = self.equation
        return x

    def _room(self, x: Lazy) -> View:
        fresh = self.new(ArrayType(x.shape, x.dtype))
        if x.order is None:
            return fresh
        strides, step = [0] * len(x.shape), x.dtype.itemsize
        for d in reversed(x.order):
            strides[d] = step
            step *= x.shape[d]
        return View(fresh.ref, x.shape, tuple(strides), x.dtype)

    # --- steps ---

    def call(self, kernel: Kernel, ins: Sequence[View], outs: Sequence[View]) -> None:
        """Run ``kernel``. The shapes and strides of its operands are part of the kernel, only places are given here."""
        self.steps.append(
            CallStep(kernel, tuple(v.ref for v in ins), tuple(v.ref for v in outs), equation=self.equation)
        )
        if self.held and all(v.ref.buffer in self.held or v.ref.buffer.kind == "const" for v in ins):
            self.held.update(v.ref.buffer for v in outs)

    def routine(self, e: Equation) -> Routine | None:
        """What a library has for ``e``; it may leave out results that nobody reads."""
        return routine_of(e, [self.reads[v] > 0 for v in e.outputs])

    def host(self, e: Equation, xs: Sequence[Any], why: str) -> list[View]:
        """``e`` by its NumPy meaning, or a library's routine."""
        if config.reproducible:
            check_host(e, why)
        ins = [self.dense(x) for x in xs]
        outs = [self.new(v.type) for v in e.outputs]
        self.steps.append(
            HostStep(
                tuple(v.ref for v in ins),
                tuple(v.ref for v in outs),
                tuple(a.type for a in e.inputs),
                tuple(v.type for v in e.outputs),
                why,
                self.routine(e),
                equation=e,
            )
        )
        return outs

    def library(self, e: Equation, routine: Routine, ins: Sequence[View], outs: Sequence[View], why: str) -> None:
        """A library's routine for a part of ``e``."""
        types = lambda views: tuple(ArrayType(v.shape, v.dtype) for v in views)
        refs = lambda views: tuple(v.ref for v in views)
        self.steps.append(HostStep(refs(ins), refs(outs), types(ins), types(outs), why, routine, equation=e))


def _shift(shape: Shape, axis: int, start: int) -> tuple[Affine, ...]:
    """The places of a block of ``shape`` that begins at ``start`` along ``axis``."""
    return tuple([(start if d == axis else 0, ((d, 1),)) for d in range(len(shape))])
