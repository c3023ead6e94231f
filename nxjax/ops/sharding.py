"""The op that says how a value shall be laid out over devices. The value itself stays what it is."""

from __future__ import annotations

from typing import Any, final

from nxjax.ops.base import LinearOp
from nxjax.ops.identity import IdentityOp
from nxjax.trace.axes import spmd_axis
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.partition import UNCONSTRAINED
from nxjax.trace.sharding import NamedSharding
from nxjax.trace.types import ArrayType


def insert_dim(sharding: NamedSharding, dim: int, entry: Any) -> NamedSharding:
    """``sharding`` for a value with one more dimension, at ``dim``, that is cut as ``entry`` says."""
    spec = sharding.spec
    padded = (*spec.partitions, *(None,) * (dim - len(spec)))
    return sharding.update(spec=(*padded[:dim], entry, *padded[dim:]))


@final
class ShardingConstraint(LinearOp, IdentityOp):
    """``x``, laid out as ``sharding`` says. Cotangents are laid out as the values are."""

    name = "sharding_constraint"

    def infer(self, x: ArrayType, /, *, sharding: NamedSharding) -> ArrayType:
        sharding.check(x.shape, "with_sharding_constraint")
        return x

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, sharding: NamedSharding) -> Tangents:
        return (self(ct, sharding=sharding),)

    def batch(self, size: int, args: Arrays, dims: Dims, *, sharding: NamedSharding) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None
        named = spmd_axis()
        return self(x, sharding=insert_dim(sharding, d, UNCONSTRAINED if named is None else named)), d

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, sharding: NamedSharding) -> Any:
        return b.constrain(x, sharding)


sharding_constraint = ShardingConstraint()
