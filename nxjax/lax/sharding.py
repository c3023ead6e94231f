"""`with_sharding_constraint`: how a value inside a computation shall be laid out."""

from __future__ import annotations

from typing import Any

from nxjax.errors import ShardingError
from nxjax.ops.sharding import sharding_constraint
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import EVAL, Array, current_trace
from nxjax.trace.mesh import Mesh, current_mesh
from nxjax.trace.sharding import NamedSharding, Sharding, SingleDeviceSharding, as_sharding


def with_sharding_constraint(x: PyTree, shardings: PyTree) -> PyTree:
    """``x`` itself, which the compiler lays out over devices as ``shardings`` say.

    Inside `nx.jit` the compiler uses this layout, and values before and after follow unless they have their own.
    Outside it moves the array. Gradients are laid out as the values are; under `nx.vmap` the added dimension is the
    compiler's choice, or cut along ``spmd_axis_name``.

    Args:
        x: pytree of arrays.
        shardings: a sharding, or a `PartitionSpec` of the current mesh, or a tree prefix of these.
            `PartitionSpec.UNCONSTRAINED` leaves a dimension to the compiler.

    Raises:
        ShardingError: a spec does not fit the mesh or an array.

    >>> from nxjax.sharding import NamedSharding, PartitionSpec as P
    >>> rows = NamedSharding(nx.make_mesh((1,), ("x",)), P("x"))
    >>> nx.jit(lambda a: nx.lax.with_sharding_constraint(a * 2, rows))(nx.arange(3)).tolist()
    [0, 2, 4]
    """
    leaves, treedef = tree.flatten(x)
    names = tree.path_names(x, "x")
    found: list[Array] = []
    for leaf, given, name in zip(
        leaves, tree.broadcast_leaves(shardings, x, "with_sharding_constraint"), names, strict=True
    ):
        where = f"with_sharding_constraint: {name}"
        sharding = as_sharding(given, where)
        value = as_value(leaf, where)
        sharding.check(value.shape, where)
        _check_free(sharding, where)
        if isinstance(sharding, SingleDeviceSharding):
            found.append(value)
        elif current_trace() is EVAL and isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
            from nxjax.runtime import device_put

            found.append(device_put(value, sharding))
        else:
            found.append(sharding_constraint(value, sharding=sharding))
    return tree.unflatten(treedef, found)


def _check_free(sharding: Sharding, where: str) -> None:
    """Raise if a spec names an axis that the function around, in `shard_map`, handles itself."""
    around = current_mesh()
    taken = around.manual_axes if around is not None else ()
    if taken and isinstance(sharding, NamedSharding) and any(n in taken for n in sharding.spec.names):
        raise ShardingError(
            f"{where}: inside shard_map a part is on one device along the axes that the function handles",
            got=sharding.spec,
            expected=f"axes other than {taken}",
            fix="leave the axis out; with axis_names=... of shard_map some axes stay the compiler's",
        )


def with_out_sharding(x: Array, out_sharding: Any) -> Array:
    """``x`` as a parameter ``out_sharding`` says: the sharding that `typeof` gives outside of any mesh says nothing."""
    if out_sharding is None or getattr(getattr(out_sharding, "mesh", None), "empty", False):
        return x
    return with_sharding_constraint(x, out_sharding)
