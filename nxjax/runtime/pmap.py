"""`nx.pmap`: one copy of a function per device, over an axis of its arguments; a face over `shard_map` and `jit`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nxjax import runtime
from nxjax.errors import AxisSpecError, ShapeError, ShardingError
from nxjax.ops.shape import reshape
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.mesh import Mesh
from nxjax.trace.partition import PartitionSpec
from nxjax.transforms.jit import jit
from nxjax.transforms.shard_map import shard_map

__all__ = ["pmap"]


def _none(x: Any) -> bool:
    return x is None


def _axes(axes: Any, value: Any, where: str) -> list[int | None]:
    """The axis of each leaf, from a tree prefix in which None is a leaf."""
    try:
        found = tree.broadcast_leaves(axes, value, where, _none)
    except ValueError as error:
        raise AxisSpecError(f"{where} is not a prefix of what it describes", got=repr(axes)) from error
    for a in found:
        if a is not None and (isinstance(a, bool) or not isinstance(a, int)):
            raise AxisSpecError(f"{where} has an entry that is not an axis", got=repr(a), expected="int or None")
    return found


def pmap(
    fun: Callable[..., Any] | None = None,
    axis_name: Hashable | None = None,
    *,
    in_axes: PyTree = 0,
    out_axes: PyTree = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    global_arg_shapes: PyTree = None,
) -> Any:
    """``fun``, compiled, with element i of the mapped axis on device i.

    For JAX programs from before `shard_map`. Collectives over ``axis_name`` communicate between devices.

    Args:
        fun: function of pytrees. Left out, `pmap` is a decorator with options.
        axis_name: name of the mapped axis for collectives.
        in_axes: the mapped axis per positional argument, None for one that all devices share, or tree prefixes of
            these. Keyword arguments are mapped over axis 0.
        out_axes: the position of the axis in results; None: the result is the same on all devices, and one is returned.
        static_broadcasted_argnums: arguments that stay Python values during tracing; hashable.
        devices: by default the first ones of the default platform.
        axis_size: number of elements, needed when no argument is mapped.
        donate_argnums: arguments whose memory the call may reuse.

    Raises:
        ShardingError: there are fewer devices than elements.
        ShapeError: mapped axes differ in size.
        AxisSpecError: ``in_axes`` and the arguments differ in number.

    >>> nx.pmap(lambda x: x / nx.lax.psum(x, "i"), axis_name="i")(nx.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """
    if fun is None:
        return functools.partial(
            pmap,
            axis_name=axis_name,
            in_axes=in_axes,
            out_axes=out_axes,
            static_broadcasted_argnums=static_broadcasted_argnums,
            devices=devices,
            backend=backend,
            axis_size=axis_size,
            donate_argnums=donate_argnums,
            global_arg_shapes=global_arg_shapes,
        )
    name = "pmap" if axis_name is None else axis_name
    given = static_broadcasted_argnums
    statics = (given,) if isinstance(given, int) else tuple(given)

    @functools.wraps(fun)
    def whole(*args: Any, **kwargs: Any) -> Any:
        fixed = {i % len(args) for i in statics if args and -len(args) <= i < len(args)}
        dynamic = tuple(a for i, a in enumerate(args) if i not in fixed)
        axes_in = in_axes
        if isinstance(axes_in, (tuple, list)):
            if len(axes_in) != len(args):  # pyright: ignore[reportUnknownArgumentType]
                raise AxisSpecError("pmap: in_axes needs one entry per argument", got=axes_in, expected=len(args))
            axes_in = tuple(a for i, a in enumerate(axes_in) if i not in fixed)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        leaves, treedef = tree.flatten((dynamic, kwargs))
        xs = [as_value(x, "pmap") for x in leaves]
        dims = [*_axes(axes_in, dynamic, "pmap: in_axes"), *(0,) * len(tree.leaves(kwargs))]
        dims = [d if d is None else _checked(d, x.ndim, "in_axes") for d, x in zip(dims, xs, strict=True)]
        size = _size([x.shape[d] for x, d in zip(xs, dims, strict=True) if d is not None], axis_size)
        specs = tuple(_spec(d, name) for d in dims)
        out_specs: list[PartitionSpec] = []  # known when the function has been traced
        out_defs: list[tree.TreeDef] = []

        def one(*parts: Any) -> Any:
            own = [p if d is None else _without(p, d) for p, d in zip(parts, dims, strict=True)]
            a, k = tree.unflatten(treedef, own)
            rest = iter(a)
            y = fun(*[args[i] if i in fixed else next(rest) for i in range(len(args))], **k)
            ys, out_def = tree.flatten(y)
            out_defs.append(out_def)
            ys = [as_value(v, "pmap") for v in ys]
            at = _axes(out_axes, y, "pmap: out_axes")
            places = [a if a is None else _checked(a, v.ndim + 1, "out_axes") for a, v in zip(at, ys, strict=True)]
            out_specs[:] = [_spec(p, name) for p in places]
            return [v if p is None else _with(v, p) for v, p in zip(ys, places, strict=True)]

        mesh = Mesh(_devices(size, devices, backend), (name,))
        mapped = shard_map(one, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)
        ys = mapped(*xs)
        return tree.unflatten(out_defs[0], ys)

    return jit(whole, static_argnums=statics, donate_argnums=donate_argnums)


def _without(x: Array, axis: int) -> Array:
    return reshape(x, shape=(*x.shape[:axis], *x.shape[axis + 1 :]))


def _with(x: Array, axis: int) -> Array:
    return reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _checked(axis: int, ndim: int, where: str) -> int:
    if not -ndim <= axis < ndim:
        raise AxisSpecError(f"pmap: {where} is out of range", got=f"axis {axis} of rank {ndim}")
    return axis % ndim


def _spec(dim: int | None, name: Any) -> PartitionSpec:
    return PartitionSpec() if dim is None else PartitionSpec(*(None,) * dim, name)


def _size(sizes: list[int], given: int | None) -> int:
    found = {*sizes, *(() if given is None else (given,))}
    if not found:
        raise AxisSpecError("pmap: no argument is mapped", fix="give axis_size, or map an argument")
    if len(found) > 1:
        raise ShapeError("pmap: mapped axes differ in size", got=sorted(found), expected="one size")
    return found.pop()


def _devices(size: int, given: Sequence[Any] | None, backend: str | None) -> list[Any]:
    found = list(runtime.devices(backend) if given is None else given)
    if size > len(found):
        raise ShardingError(
            "pmap: the mapped axis is longer than there are devices",
            got=size,
            expected=f"at most {len(found)}",
            fix="nx.vmap maps on one device; NXJAX_NUM_CPU_DEVICES makes the CPU several devices",
        )
    return found[:size]
