"""`shard_map`: a function of the parts of arrays that one device has, run by every device of a mesh.

Traces the function once, on the types of parts, and binds the program as one op (`shard_map_op`). Says what does not
fit: a spec, a shape, a result that is said to be the same on all devices and is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from nxjax.errors import ParameterError, ShardingError
from nxjax.ops.collectives import as_varying
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays
from nxjax.trace.mesh import BaseMesh, current_mesh
from nxjax.trace.partition import UNCONSTRAINED, PartitionSpec
from nxjax.trace.sharding import check_spec
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import wraps
from nxjax.transforms.shard_map_op import manual_axes_context, shard_map_op, shard_type


@final
class _Unspecified:
    def __repr__(self) -> str:
        return "left out"


_UNSPECIFIED = _Unspecified()


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: PyTree,
    in_specs: PyTree = _UNSPECIFIED,
    mesh: BaseMesh | None = None,
    axis_names: Iterable[Any] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """``f`` on every device of a mesh, each with its own part of the arguments.

    Inside, arrays have the shapes of parts, and devices communicate only through collectives (`nx.lax.psum`,
    `all_gather`, `ppermute`, ...) over the mesh's axis names. It works eagerly, in `nx.jit` and under every transform.
    On one device the parts are a batch.

    Args:
        f: function of positional pytrees. Left out, `shard_map` is a decorator with options.
        mesh: `Mesh` or `AbstractMesh`; by default the current mesh (see `nx.sharding.set_mesh`).
        in_specs: a `PartitionSpec` per argument, or a tree prefix of them: which axis splits which dimension. Devices
            along other axes get the same part. None: the argument stays a Python value.
        out_specs: the same for results: parts are joined along the named axes. The result must be equal along all other
            axes.
        axis_names: the axes that ``f`` handles; by default all. The compiler handles the others.
        check_vma: check that results are equal where ``out_specs`` say so, and use that in derivatives: the gradient of
            a value that devices share is summed over them. If False, nothing is checked, and every device has its own
            gradient inside ``f``.

    Raises:
        ShardingError: a spec does not fit the mesh, an argument or a result; or a result varies along an axis where it
            must not.
        ParameterError: not a function.

    >>> from nxjax.sharding import AbstractMesh, PartitionSpec as P
    >>> mesh = AbstractMesh((2,), ("x",))
    >>> f = nx.shard_map(lambda a: nx.lax.psum(a.sum(), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    >>> float(f(nx.arange(4.0)))
    6.0
    """
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma
        )
    if not callable(f):
        raise ParameterError("shard_map: needs a function", got=type(f).__name__)
    name = getattr(f, "__name__", type(f).__name__)

    @api_boundary
    @wraps(f)
    def mapped(*args: Any) -> Any:
        place = _Place(mesh, axis_names, check_vma)
        if in_specs is _UNSPECIFIED:
            raise ShardingError(
                "shard_map: in_specs is missing",
                fix="give a PartitionSpec per argument: types of nxjax hold no sharding to take it from",
            )
        specs = tree.broadcast_leaves(in_specs, args, "shard_map: in_specs", _is_none)
        leaves, treedef = tree.flatten(args)
        labels = tree.path_names(args, "arguments")
        fixed = [s is None for s in specs]
        for s, label in zip(specs, labels, strict=True):
            if s is not None:
                place.check(s, f"shard_map: in_specs of {label}")
        xs = [as_value(x, "shard_map") for x, is_fixed in zip(leaves, fixed, strict=True) if not is_fixed]
        in_flat = tuple(s for s in specs if s is not None)
        labels = [n for n, k in zip(labels, fixed, strict=True) if not k]
        types = [
            shard_type(x.type, place.mesh, s, check_vma, f"shard_map: {label} of {name}")
            for x, s, label in zip(xs, in_flat, labels, strict=True)
        ]
        out_defs: list[tree.TreeDef] = []
        out_flat: list[PartitionSpec] = []

        def flat(*parts: Array) -> Sequence[Any]:
            given = iter(parts)
            y = f(*tree.unflatten(treedef, [x if k else next(given) for x, k in zip(leaves, fixed, strict=True)]))
            ys, out_def = tree.flatten(y)
            out_defs.append(out_def)
            out_flat[:] = tree.broadcast_leaves(out_specs, y, "shard_map: out_specs")
            return place.results(name, [as_value(v, "shard_map") for v in ys], out_flat, y)

        with manual_axes_context(place.mesh, place.axes, check_vma):
            program = stage(flat, types, name, labels)
        hoisted, consts = program.hoist_consts()
        out = shard_map_op(
            *consts,
            *xs,
            program=hoisted,
            mesh=place.mesh,
            in_specs=(*(PartitionSpec(),) * len(consts), *in_flat),
            out_specs=tuple(out_flat),
            manual_axes=place.axes,
            checked=check_vma,
        )
        return tree.unflatten(out_defs[0], out)

    return mapped


def _is_none(x: Any) -> bool:
    return x is None


@final
class _Place:
    """The mesh and the axes that one call is over."""

    def __init__(self, mesh: BaseMesh | None, axis_names: Iterable[Any], checked: bool) -> None:
        around = current_mesh()
        found = around if mesh is None else mesh
        if found is None or found.empty:
            raise ShardingError(
                "shard_map: there is no mesh", fix="give mesh=..., or call it inside with nx.sharding.set_mesh(mesh):"
            )
        if not isinstance(found, BaseMesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardingError("shard_map: mesh", got=type(found).__name__, expected="a Mesh or an AbstractMesh")
        manual = around.manual_axes if around is not None else ()
        if manual and around is not None and found.abstract_mesh.shape_tuple != around.shape_tuple:
            raise ShardingError(
                "shard_map: inside another shard_map the mesh is the same",
                got=found,
                expected=around,
                fix="leave mesh out",
            )
        if isinstance(axis_names, str):
            raise ParameterError(
                "shard_map: axis_names must be a set", got=repr(axis_names), expected=f"{{{axis_names!r}}}"
            )
        wanted = frozenset(axis_names) or frozenset(found.axis_names) - frozenset(manual)
        for n in wanted:
            found.need(n, "shard_map: axis_names")
            if n in manual:
                raise ShardingError(
                    f"shard_map: axis {n!r} is already handled by the shard_map around", expected="another axis"
                )
        self.mesh = found
        self.axes = tuple(n for n in found.axis_names if n in wanted)
        self.checked = checked

    def check(self, spec: Any, where: str) -> None:
        """Raise unless ``spec`` is one, of axes that this call handles."""
        if not isinstance(spec, PartitionSpec):
            raise ShardingError(f"{where} is not a PartitionSpec", got=repr(spec), fix="write P('x'), or P() for none")
        check_spec(self.mesh, spec, where)
        others = [n for n in spec.names if n not in self.axes]
        if others or UNCONSTRAINED in spec.partitions:
            raise ShardingError(
                f"{where} names what the function does not handle",
                got=spec,
                expected=f"axes among {self.axes}",
                fix="with axis_names, specs say how those axes cut; the others stay the compiler's",
            )

    def results(self, name: str, ys: Arrays, specs: Sequence[Any], y: Any) -> list[Array]:
        """The results with types that say what their specs say.

        Raises:
            ShardingError: a spec is too long, or a result varies along an axis that its spec does not name.
        """
        found: list[Array] = []
        for v, spec, label in zip(ys, specs, tree.path_names(y, "result"), strict=True):
            self.check(spec, f"shard_map: out_specs of {label}")
            if len(spec) > v.ndim:
                raise ShardingError(
                    f"shard_map: out_specs of {label} has more entries than the result of {name} has dimensions",
                    got=f"{spec} for {v.type}",
                    expected=f"at most {v.ndim} entries",
                    fix="a scalar takes P() after nx.lax.psum or pmean; give it a dimension to keep one per device"
                    if not v.ndim
                    else None,
                )
            if self.checked:
                self._check_same(name, label, v.type, spec)
                v = as_varying(v, spec.names)
            found.append(v)
        return found

    def _check_same(self, name: str, label: str, type: ArrayType, spec: PartitionSpec) -> None:
        extra = [n for n in self.axes if n in type.vma and n not in spec.names]
        if extra:
            axes = ", ".join(map(repr, extra))
            raise ShardingError(
                f"shard_map: {label} of {name} may differ between devices along {axes}, and its out_specs say that it "
                "is the same on all of them",
                got=f"{type} with {spec}",
                expected=f"a value that varies along {spec.names or 'no axis'} only",
                fix=f"take nx.lax.psum or pmean over {axes}, or name {axes} in out_specs to keep every device's part; "
                "check_vma=False leaves it unchecked",
            )


@api_boundary
def shard_map_with_rep(
    f: Callable[..., Any],
    mesh: BaseMesh,
    in_specs: Any,
    out_specs: Any,
    check_rep: bool = True,
    auto: Iterable[Any] = frozenset(),
) -> Any:
    """`shard_map` as ``jax.experimental.shard_map`` had it: ``check_rep`` for ``check_vma``, ``auto`` for the axes that
    ``f`` does not handle."""
    left = frozenset(mesh.axis_names) - frozenset(auto)
    return shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep, axis_names=left)
