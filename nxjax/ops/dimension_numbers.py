"""How gathers, scatters and convolutions are described: which dimension is what, and what indices out of bounds mean.

Data alone. Slices, sorts and updates are written with these below the ops themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError, ShapeError
from nxjax.ops.base import require
from nxjax.trace.core import Array, UndefinedPrimal
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType


@param_class
class GatherScatterMode(enum.Enum):
    """What indices out of bounds mean.

    CLIP: the window is moved inside. FILL_OR_DROP: a gather gives ``fill_value``, a scatter does nothing.
    PROMISE_IN_BOUNDS: there are none.

    >>> jnp.array([1, 2, 3]).at[jnp.array([1, 9])].get(mode=lax.GatherScatterMode.CLIP)
    Array([2, 3], dtype=int32)
    """

    CLIP = 0
    FILL_OR_DROP = 1
    PROMISE_IN_BOUNDS = 2
    ONE_HOT = 3

    @staticmethod
    def from_any(mode: Any) -> GatherScatterMode:
        """A mode from itself, its name, or None (the default)."""
        if isinstance(mode, GatherScatterMode):
            return mode
        names = {
            None: GatherScatterMode.FILL_OR_DROP,
            "clip": GatherScatterMode.CLIP,
            "fill": GatherScatterMode.FILL_OR_DROP,
            "drop": GatherScatterMode.FILL_OR_DROP,
            "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
        }
        require("gather", mode in names, "unknown mode", mode, ", ".join(map(repr, names)))
        return names[mode]


# What users give as ``mode=``.
ModeLike: TypeAlias = GatherScatterMode | str | None


def shift_dims(dims: Sequence[int]) -> tuple[int, ...]:
    """Dimensions after one was put in front."""
    return tuple(d + 1 for d in dims)


@param_class
@dataclass(frozen=True)
class GatherDimensionNumbers:
    """The roles of dimensions in `gather`.

    Attributes:
        offset_dims: result dimensions that run inside a slice.
        collapsed_slice_dims: operand dimensions of slice size 1 that the result lacks.
        start_index_map: the operand dimension of each component of the index vector.
        operand_batching_dims, start_indices_batching_dims: dimensions that operand and indices share.

    >>> pairs = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1))
    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> lax.gather(x, jnp.array([[0, 1], [1, 0]]), pairs, slice_sizes=(1, 1))
    Array([2, 3], dtype=int32)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, tuple(int(d) for d in value))

    def as_scatter(self) -> ScatterDimensionNumbers:
        """What writes the windows that this reads."""
        return ScatterDimensionNumbers(*vars(self).values())

    def batched(self, operand: bool, indices: bool) -> GatherDimensionNumbers:
        """The numbers after a batch was put in front of the operand, the indices or both, and of the result."""
        n = self
        if operand:
            n = replace(
                n,
                collapsed_slice_dims=shift_dims(n.collapsed_slice_dims),
                start_index_map=shift_dims(n.start_index_map),
                operand_batching_dims=(*(0,) * indices, *shift_dims(n.operand_batching_dims)),
            )
        if indices:
            theirs = (*(0,) * operand, *shift_dims(n.start_indices_batching_dims))
            n = replace(n, start_indices_batching_dims=theirs)
        return replace(n, offset_dims=(*(() if indices else (0,)), *shift_dims(n.offset_dims)))


@param_class
@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """The roles of dimensions in `scatter`.

    Attributes:
        update_window_dims: dimensions of the updates that run inside a window.
        inserted_window_dims: operand dimensions of window size 1 that the updates lack.
        scatter_dims_to_operand_dims: the operand dimension of each component of the index vector.
        operand_batching_dims, scatter_indices_batching_dims: dimensions that operand and indices share.

    >>> rows = lax.ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.scatter(jnp.zeros((2, 2)), jnp.array([[1]]), jnp.array([[5.0, 6.0]]), rows)
    Array([[0., 0.],
           [5., 6.]], dtype=float32)
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, tuple(int(d) for d in value))

    def window(self, ndim: int) -> list[int]:
        """Operand dimensions that a window runs along."""
        hidden = (*self.inserted_window_dims, *self.operand_batching_dims)
        return [d for d in range(ndim) if d not in hidden]

    def sizes(
        self, x: ArrayType | Array | UndefinedPrimal, updates: ArrayType | Array | UndefinedPrimal
    ) -> tuple[int, ...]:
        """Window size per operand dimension."""
        inner = iter(updates.shape[d] for d in self.update_window_dims)
        window = self.window(len(x.shape))
        return tuple(next(inner) if d in window else 1 for d in range(len(x.shape)))

    def as_gather(self) -> GatherDimensionNumbers:
        """What reads the windows that this writes."""
        return GatherDimensionNumbers(*vars(self).values())

    def batched(self, indices: bool) -> ScatterDimensionNumbers:
        """The numbers after a batch was put in front of operand and updates, and of the indices as well."""
        return self.as_gather().batched(True, indices).as_scatter()


Spec = tuple[int, ...]


@final
@param_class
@dataclass(frozen=True)
class ConvDimensionNumbers:
    """Where the dimensions are.

    Attributes:
        lhs_spec: (batch, feature, spatial...) dimensions of the input.
        rhs_spec: (output feature, input feature, spatial...) dimensions of the kernel.
        out_spec: (batch, feature, spatial...) dimensions of the result.

    Unpacks into its three parts.

    >>> numbers = lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC"))
    >>> numbers.lhs_spec, numbers.rhs_spec
    ((0, 3, 1, 2), (3, 2, 0, 1))
    """

    lhs_spec: Spec
    rhs_spec: Spec
    out_spec: Spec

    def __iter__(self) -> Iterator[Spec]:
        return iter((self.lhs_spec, self.rhs_spec, self.out_spec))

    def __getitem__(self, i: int) -> Spec:
        return (self.lhs_spec, self.rhs_spec, self.out_spec)[i]

    def __len__(self) -> int:
        return 3


# What users give as ``dimension_numbers=``: ``("NHWC", "HWIO", "NHWC")`` or dimensions.
ConvNumbersLike: TypeAlias = ConvDimensionNumbers | Sequence[str | Sequence[int]] | None


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: ConvNumbersLike
) -> ConvDimensionNumbers:
    """``dimension_numbers`` in the form that ops take.

    Args:
        lhs_shape, rhs_shape: shapes of input and kernel.
        dimension_numbers: None (batch, feature, spatial...; kernel output, input, spatial...), three strings such as
            ``("NHWC", "HWIO", "NHWC")``, or a `ConvDimensionNumbers`.

    Raises:
        ShapeError: the shapes differ in rank; ParameterError: a layout does not fit them.

    >>> conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    ndim = len(lhs_shape)
    if ndim != len(rhs_shape):
        raise ShapeError(
            "conv_dimension_numbers: input and kernel differ in rank",
            got=f"shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}",
            expected="the same number of dimensions",
        )
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if dimension_numbers is None:
        same = tuple(range(ndim))
        return ConvDimensionNumbers(same, same, same)
    if not isinstance(dimension_numbers, (tuple, list)) or len(dimension_numbers) != 3:
        raise ParameterError(
            "conv_dimension_numbers: not dimension numbers",
            got=repr(dimension_numbers),
            expected='three strings such as ("NHWC", "HWIO", "NHWC")',
        )
    specs: list[Any] = list(dimension_numbers)
    if not all(isinstance(spec, str) for spec in specs):
        try:
            return ConvDimensionNumbers(*(tuple(int(i) for i in spec) for spec in specs))
        except (TypeError, ValueError):
            raise ParameterError(
                "conv_dimension_numbers: not dimension numbers", got=repr(dimension_numbers), expected="strings or ints"
            ) from None
    named: list[dict[str, int]] = []
    for spec, (first, second), what in zip(specs, ("NC", "OI", "NC"), ("input", "kernel", "result"), strict=True):
        if len(spec) != ndim or len(set(spec)) != ndim or first not in spec or second not in spec:
            raise ParameterError(
                f"conv_dimension_numbers: the layout of the {what}",
                got=repr(spec),
                expected=f"{ndim} different letters, {first} and {second} among them",
            )
        named.append({letter: i for i, letter in enumerate(spec)})
    spatial = [letter for letter in specs[1] if letter not in "OI"]
    for spec, what in ((specs[0], "input"), (specs[2], "result")):
        if set(spec) - set("NC") != set(spatial):
            raise ParameterError(
                f"conv_dimension_numbers: {what} and kernel name different spatial dimensions",
                got=f"{spec!r} and {specs[1]!r}",
                expected=f"N, C and {', '.join(spatial)}",
            )
    lhs, rhs, out = named
    return ConvDimensionNumbers(
        (lhs["N"], lhs["C"], *(lhs[c] for c in spatial)),
        (rhs["O"], rhs["I"], *(rhs[c] for c in spatial)),
        (out["N"], out["C"], *(out[c] for c in spatial)),
    )
