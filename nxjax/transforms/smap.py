"""`smap`: `shard_map` over one axis of the current mesh, said by positions of dimensions. Knows nothing of devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Final

from nxjax.errors import ParameterError, ShardingError
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.partition import PartitionSpec
from nxjax.transforms.shard_map import shard_map

_UNSAID: Final[Any] = type("Unsaid", (), {"__repr__": lambda self: "left out"})()


def smap(
    f: Callable[..., Any] | None = None, /, *, in_axes: PyTree = _UNSAID, out_axes: PyTree, axis_name: Hashable
) -> Any:
    """``f`` on every device along one axis of the current mesh, each with its own part of the arguments.

    It is `shard_map` with dimension numbers for partition specs; the compiler handles the other axes of the mesh.

    Args:
        f: function of positional pytrees. Left out, `smap` is a decorator with options.
        in_axes: the dimension to split, from 0: an int for all arguments, or a tuple with an entry or a tree prefix per
            argument; None: every device has the whole argument.
        out_axes: the dimension in which results are joined; None: they are the same on all devices.
        axis_name: of the mesh, see `nx.sharding.set_mesh`.

    Raises:
        ParameterError: ``in_axes`` or ``out_axes`` has other entries, or there are several ``axis_name``.
        ShardingError: no current mesh, no ``in_axes``, or a size that is not a multiple of the axis.

    >>> from nxjax.sharding import AbstractMesh
    >>> with nx.sharding.use_abstract_mesh(AbstractMesh((2,), ("x",))):
    ...     smap(lambda a: a - a.max(), in_axes=0, out_axes=0, axis_name="x")(nx.arange(4.0)).tolist()
    [-1.0, 0.0, -1.0, 0.0]
    """
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list)):
        raise ParameterError("smap: axis_name is one name", got=repr(axis_name), fix="nx.shard_map takes several axes")
    if in_axes is _UNSAID:
        raise ShardingError(
            "smap: in_axes is missing",
            fix="say which dimension is cut: types of nxjax hold no sharding to take it from",
        )
    return shard_map(
        f,
        in_specs=_specs(in_axes, axis_name, "in_axes"),
        out_specs=_specs(out_axes, axis_name, "out_axes"),
        axis_names={axis_name},
    )


def _specs(axes: Any, name: Any, where: str) -> Any:
    leaves, treedef = tree.flatten(axes, lambda x: x is None)
    for axis in leaves:
        if axis is not None and (type(axis) is not int or axis < 0):
            raise ParameterError(f"smap: {where}", got=repr(axis), expected="dimensions, counted from 0, or None")
    return tree.unflatten(
        treedef, [PartitionSpec() if a is None else PartitionSpec(*(None,) * a, name) for a in leaves]
    )
