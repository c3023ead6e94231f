"""How `gather` and `scatter` are described: which dimension is what, and what indices out of bounds mean.

Data alone. Slices, sorts and updates are written with these below the ops themselves.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from nxjax.ops.base import require
from nxjax.trace.core import Array, Linear
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType


@param_class
class GatherScatterMode(enum.Enum):
    """What indices out of bounds mean.

    CLIP: the window is moved inside. FILL_OR_DROP: a gather gives ``fill_value``, a scatter does nothing.
    PROMISE_IN_BOUNDS: there are none.

    >>> import nxjax.numpy as jnp
    >>> from nxjax import lax
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


@param_class
@dataclass(frozen=True)
class GatherDimensionNumbers:
    """Which dimension is what in `gather`.

    Attributes:
        offset_dims: result dimensions that run inside a slice.
        collapsed_slice_dims: operand dimensions of slice size 1 that the result lacks.
        start_index_map: the operand dimension of each component of the index vector.
        operand_batching_dims, start_indices_batching_dims: dimensions that operand and indices share.

    >>> import nxjax.numpy as jnp
    >>> from nxjax import lax
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


@param_class
@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """Which dimension is what in `scatter`.

    Attributes:
        update_window_dims: dimensions of the updates that run inside a window.
        inserted_window_dims: operand dimensions of window size 1 that the updates lack.
        scatter_dims_to_operand_dims: the operand dimension of each component of the index vector.
        operand_batching_dims, scatter_indices_batching_dims: dimensions that operand and indices share.

    >>> import nxjax.numpy as jnp
    >>> from nxjax import lax
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

    def sizes(self, x: ArrayType | Array | Linear, updates: ArrayType | Array | Linear) -> tuple[int, ...]:
        """Window size per operand dimension."""
        inner = iter(updates.shape[d] for d in self.update_window_dims)
        window = self.window(len(x.shape))
        return tuple(next(inner) if d in window else 1 for d in range(len(x.shape)))

    def as_gather(self) -> GatherDimensionNumbers:
        """What reads the windows that this writes."""
        return GatherDimensionNumbers(
            self.update_window_dims,
            self.inserted_window_dims,
            self.scatter_dims_to_operand_dims,
            self.operand_batching_dims,
            self.scatter_indices_batching_dims,
        )
