"""What the rules share: their form, and the refusal of what does not fit. Must not know any op's own rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

Types = Sequence[ArrayType]
Params = Mapping[str, Any]
# Shape and dtype of each result, from the operands' types and the parameters; raises `Flaw`.
Results = Sequence[tuple[Shape, DType]]
Rule = Callable[[Types, Params], Results]

# The float that each part of a complex number is, and back.
PART: Final[Mapping[DType, DType]] = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
COMPLEX_OF: Final[Mapping[DType, DType]] = {**{part: whole for whole, part in PART.items()}, **{c: c for c in PART}}
ORDERED: Final = dtypes.NUMERIC - dtypes.COMPLEX


class Flaw(Exception):
    """An equation that no program has; says what is wrong."""


def need(fine: bool, what: str, got: object = None) -> None:
    if not fine:
        raise Flaw(what if got is None else f"{what}: {got}")


def operands(types: Types, count: int) -> Types:
    need(len(types) == count, f"{count} operands", len(types))
    return types


def of(allowed: Collection[DType], *types: ArrayType) -> None:
    for t in types:
        need(t.dtype in allowed, "operand of a dtype that the op has no meaning for", t)


def one_dtype(types: Types) -> DType:
    need(len({t.dtype for t in types}) == 1, "operands differ in dtype", types)
    return types[0].dtype


def one_shape(types: Types) -> Shape:
    need(len({t.shape for t in types}) == 1, "operands differ in shape", types)
    return types[0].shape


def distinct(dims: Sequence[int], ndim: int, what: str, *, ascending: bool = False) -> Sequence[int]:
    """Dimensions of a rank, counted from the front, none of them twice."""
    need(set(dims) <= set(range(ndim)), f"{what} outside of {ndim} dimensions", tuple(dims))
    need(len(set(dims)) == len(dims), f"{what} names a dimension twice", tuple(dims))
    need(not ascending or list(dims) == sorted(dims), f"{what} is not in ascending order", tuple(dims))
    return dims


def sizes(values: Sequence[int], count: int | None = None, least: int = 0, what: str = "sizes") -> Sequence[int]:
    need(count is None or len(values) == count, f"{what}: {count} of them", tuple(values))
    need(all(v >= least for v in values), f"{what} are at least {least}", tuple(values))
    return values


def without(shape: Shape, dims: Collection[int]) -> Shape:
    return tuple([n for d, n in enumerate(shape) if d not in dims])


def put(shape: Shape, dim: int, n: int) -> Shape:
    """``shape`` with ``n`` as the size of a dimension."""
    changed = list(shape)
    changed[dim] = n
    return tuple(changed)


def same(given: Types, wanted: Types, what: str) -> None:
    """Equal shapes and dtypes, one by one."""
    need([(t.shape, t.dtype) for t in given] == [(t.shape, t.dtype) for t in wanted], what, (given, wanted))


def results(types: Types) -> Results:
    return [(t.shape, t.dtype) for t in types]


def windows(n: int, low: int, high: int, dilation: int, window: int, spread: int, stride: int) -> int:
    """How many windows fit along a dimension: as many as there are places where one can begin."""
    padded = (n - 1) * dilation + 1 + low + high if n else low + high
    need(padded >= 0, "padding cuts off more than there is", (low, high))
    covered = (window - 1) * spread + 1 if window else 0
    return len(range(0, padded - covered + 1, stride))
