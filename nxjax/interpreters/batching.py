"""`jax.interpreters.batching`: how `vmap` handles primitives that a program defines itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.ops.base import move_batch
from nxjax.ops.shape import reshape
from nxjax.trace.core import Array
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.primitive import Primitive, fancy_primitive_batchers, primitive_batchers

__all__ = [
    "axis_primitive_batchers",
    "bdim_at_front",
    "broadcast",
    "defbroadcasting",
    "defreducer",
    "defvectorized",
    "fancy_primitive_batchers",
    "moveaxis",
    "not_mapped",
    "primitive_batchers",
    "register_vmappable",
]
__getattr__ = _refusing(__name__)


@final
class _AxisBatchers:
    """Rules ``rule(size, axis name, None, operands, dims, **params)``, kept as `fancy_primitive_batchers` has them."""

    def __setitem__(self, primitive: Any, rule: Callable[..., Any]) -> None:
        fancy_primitive_batchers[primitive] = lambda axis, args, dims, **params: rule(
            axis.size, axis.name, None, args, dims, **params
        )


axis_primitive_batchers: Final = _AxisBatchers()
not_mapped = None  # the dimension of an operand that all elements share


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Array:
    """``x`` repeated ``sz`` times along a new dimension ``axis``.

    >>> broadcast(nx.ones(2), 3, 0).shape
    (3, 2)
    """
    return move_batch(x, None, sz, axis)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Array:
    """``x`` with its batch at dimension 0, repeated there if it has none."""
    return move_batch(x, bdim, size)


def moveaxis(x: Any, src: int | None, dst: int) -> Any:
    """``x`` with its batch at dimension ``dst``; as it is if it has none."""
    return x if src is None else move_batch(x, src, x.shape[src], dst % x.ndim)


def defvectorized(prim: Primitive) -> None:
    """The primitive works element by element on one operand, or on several that are batched alike."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        return prim.bind(*args, **params), dims[0]

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """The primitive works element by element on operands of one rank, in which sizes of 1 are repeated."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        if len({(x.ndim, d) for x, d in zip(args, dims, strict=True) if x.ndim}) == 1:
            return prim.bind(*args, **params), next(d for d in dims if d is not None)
        moved = [moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)]
        rank = max(x.ndim + (d is None) for x, d in zip(moved, dims, strict=True))
        full = [
            reshape(x, shape=(1, *x.shape))
            if d is None
            else reshape(x, shape=(x.shape[0], *(1,) * (rank - x.ndim), *x.shape[1:]))
            for x, d in zip(moved, dims, strict=True)
        ]
        return prim.bind(*full, **params), 0

    primitive_batchers[prim] = rule


def defreducer(prim: Primitive, ident: Any = None) -> None:
    """The primitive reduces dimensions ``axes`` of its one operand."""

    def rule(args: Sequence[Any], dims: Sequence[int | None], *, axes: Sequence[int], **params: Any) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None
        inner = [i for i in range(x.ndim) if i != d]
        moved = tuple(inner[a] for a in axes)
        return prim.bind(x, axes=moved, **params), d - sum(a < d for a in moved)

    primitive_batchers[prim] = rule


def register_vmappable(
    data_type: type, spec_type: Any, axis_size_type: Any, to_elt: Any, from_elt: Any, make_iota: Any
) -> None:
    """A class whose values JAX's `vmap` takes as they are. Here they have to be trees: `vmap` takes their leaves."""
