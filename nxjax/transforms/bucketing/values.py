"""Values with padding, and the tools with which rules keep the padding out.

One invariant holds: along every axis, the true elements come first. Their number is the size of the axis, an int or a
`Size` of the true lengths. The elements after them are arbitrary, NaN included. This file masks, moves and measures;
the rules decide which op needs what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import LoweringError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import constant, like
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Op, Trace, current_trace
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType, Shape
from nxjax.transforms.bucketing.sizes import Extent, Number, Quotient, Size, Solver, simplify


@final
@dataclass(frozen=True)
class PaddedArray:
    """An array at the buckets' sizes, and how much of every axis counts."""

    array: Array
    sizes: tuple[Extent, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def varies(self, axis: int) -> bool:
        """True when the axis has padding."""
        return not isinstance(self.sizes[axis], int)

    def varying(self, axes: Sequence[int] | None = None) -> tuple[int, ...]:
        """The axes (of ``axes``) that have padding."""
        return tuple(a for a in (range(self.ndim) if axes is None else axes) if self.varies(a))


def unpadded(array: Array) -> PaddedArray:
    """A value without padding."""
    return PaddedArray(array, tuple(array.shape))


@final
@dataclass(frozen=True)
class MemberStep:
    """One equation of all members side by side; the first member's is the one at the buckets' sizes."""

    equations: tuple[Equation, ...]

    @property
    def op(self) -> Op:
        return self.equations[0].op

    @property
    def params(self) -> dict[str, Any]:
        return self.equations[0].params

    def each(self, name: str) -> list[Any]:
        """A parameter in every member."""
        return [e.params[name] for e in self.equations]

    def shapes(self, result: int = 0) -> list[tuple[int, ...]]:
        """The shape of a result in every member."""
        return [e.outputs[result].type.shape for e in self.equations]

    def differs(self, name: str) -> bool:
        first, *rest = self.each(name)
        return any(v != first for v in rest)

    def refuse(self, what: str, fix: str, got: object = None) -> LoweringError:
        """The error of a rule that cannot keep padding out."""
        return LoweringError(
            f"bucketed: {self.op.name}: {what}", got=got or self.described(), fix=fix, source=self.equations[0].source
        )

    def described(self) -> str:
        return f"{self.op.name} of {', '.join(repr(a.type) for a in self.equations[0].inputs)}"


@final
@dataclass
class Context:
    """The true lengths while a masked program is written, and what was made from them so far."""

    solver: Solver
    lengths: Mapping[str, Array]
    _made: dict[Any, Array] = field(default_factory=dict[Any, Array])

    def _once(self, key: Any, make: Any) -> Array:
        # Values made inside a loop's body belong to the body's trace.
        trace: Trace = current_trace()
        found = self._made.get((trace, key))
        if found is None:
            found = self._made[(trace, key)] = make()
        return found

    # --- numbers ---

    def value(self, size: Extent) -> Array:
        """``size`` as an int32 scalar."""
        if isinstance(size, int):
            return constant(size, dtypes.int32)
        return self._once(("size", size), lambda: self._value(size))

    def _value(self, size: Size) -> Array:
        found: Array | None = None
        for monomial, c in size.terms:
            part: Array | None = None
            for atom in monomial:
                factor = self._quotient(atom) if isinstance(atom, Quotient) else self.lengths[atom]
                part = factor if part is None else ops.mul(part, factor)
            term = constant(c, dtypes.int32) if part is None else part if c == 1 else ops.mul(part, like(part, c))
            found = term if found is None else ops.add(found, term)
        return constant(0, dtypes.int32) if found is None else found

    def _quotient(self, atom: Quotient) -> Array:
        low, _ = self.solver.bounds(atom.of)
        # Division truncates towards zero: shift to where that is the floor.
        shift = -(low // atom.by) * atom.by if low < 0 else 0
        shifted = self.value(atom.of + shift)
        found = ops.div(shifted, like(shifted, atom.by))
        return ops.sub(found, like(found, shift // atom.by)) if shift else found

    def number(self, number: Number, type: ArrayType) -> Array:
        """A float that depends on the lengths, of the type of the literal it replaces."""
        wide = dtypes.float64 if type.dtype == dtypes.float64 else dtypes.float32
        n = ops.convert_element_type(self.value(number.size), dtype=wide)
        if number.log:
            n = ops.log(n)
        if abs(number.power) == 0.5:
            n = ops.sqrt(n)
        if number.power < 0:
            n = ops.div(like(n, number.factor), n)
        elif number.factor != 1:
            n = ops.mul(n, like(n, number.factor))
        return ops.convert_element_type(n, dtype=type.dtype, weak=type.weak)

    # --- masks ---

    def valid(self, size: Extent, n: int) -> Array:
        """Which of ``n`` places count, [n]."""

        def make() -> Array:
            place = ops.iota(dtype=dtypes.int32, shape=(n,), dimension=0)
            return ops.lt(place, over(self.value(size), (n,)))

        return self._once(("valid", size, n), make)

    def counts(self, size: Extent, shape: Shape, axis: int) -> Array:
        """Which elements of ``shape`` count along ``axis``."""
        return ops.broadcast_in_dim(self.valid(size, shape[axis]), shape=shape, broadcast_dimensions=(axis,))

    def mask(self, x: PaddedArray, axes: Sequence[int], fill: Any) -> Array:
        """``x`` with ``fill``, a scalar or an array's scalar, where it does not count along ``axes``."""
        array = x.array
        for axis in x.varying(axes):
            other = over(fill, array.shape) if isinstance(fill, Array) else like(array, fill)
            array = ops.select_n(self.counts(x.sizes[axis], array.shape, axis), other, array)
        return array

    # --- moving along an axis ---

    def window(self, x: Array, axis: int, start: Extent, count: int) -> Array:
        """``count`` elements along ``axis`` from ``start`` on; behind the end of ``x`` anything."""
        _, last = self.solver.bounds(start)
        missing = last + count - x.shape[axis]
        if missing > 0:
            config = tuple((0, missing if a == axis else 0, 0) for a in range(x.ndim))
            x = ops.pad(x, zero(x), padding_config=config)
        sizes = tuple(count if a == axis else n for a, n in enumerate(x.shape))
        at = [self.value(start) if a == axis else constant(0, dtypes.int32) for a in range(x.ndim)]
        return ops.dynamic_slice(x, *at, slice_sizes=sizes)

    def placed(self, x: PaddedArray, axis: int, low: Extent, count: int, fill: Any, holes: int = 0) -> Array:
        """``count`` elements along ``axis``: ``low`` times ``fill``, ``x`` with ``holes`` between its elements, and
        ``fill`` again. A negative ``low`` cuts off."""
        array = self.mask(x, (axis,), fill)
        least, most = self.solver.bounds(low)
        n = x.shape[axis]
        length = n + max(0, n - 1) * holes
        # The window starts most - low after the first element of the padded array.
        behind = max(0, (most - least) + count - (most + length))
        config = tuple((most, behind, holes) if a == axis else (0, 0, 0) for a in range(x.ndim))
        value = fill if isinstance(fill, Array) else constant(fill, array.dtype)
        array = ops.pad(array, value, padding_config=config)
        if least == most:
            cut = tuple((0, count - array.shape[axis] if a == axis else 0, 0) for a in range(x.ndim))
            return ops.pad(array, value, padding_config=cut) if array.shape[axis] != count else array
        return self.window(array, axis, simplify(Size.of(most) - low), count)

    def taken(self, x: Array, axis: int, index: Array) -> Array:
        """``x`` at the places ``index`` [n] along ``axis``; places outside are moved inside."""
        others = tuple(a for a in range(x.ndim) if a != axis)
        numbers = GatherDimensionNumbers(offset_dims=others, collapsed_slice_dims=(axis,), start_index_map=(axis,))
        sizes = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
        index = ops.reshape(index, shape=(*index.shape, 1))
        return ops.gather(x, index, dimension_numbers=numbers, slice_sizes=sizes, mode=GatherScatterMode.CLIP)


def over(x: Array, shape: Sequence[int]) -> Array:
    """The scalar ``x`` over ``shape``."""
    return ops.broadcast_in_dim(x, shape=tuple(shape), broadcast_dimensions=())


def zero(x: Array) -> Array:
    """The scalar zero of the dtype."""
    return wrap(np.zeros((), x.dtype))
