"""Rules of programs that say what each of several devices computes: `sdy.manual_computation` becomes `shard_map`.

Collectives name devices by number; which axes of the mesh they go along is found out from the groups. Outside of a
manual computation there is no mesh to find them in, and they are refused.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.stablehlo.regions import monoid
from nxjax.stablehlo.walk import Block, Operation, Scope, array_type, refused, rule
from nxjax.trace import dtypes
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.core import Array
from nxjax.trace.mesh import AbstractMesh
from nxjax.trace.partition import PartitionSpec
from nxjax.transforms import collectives
from nxjax.transforms.shard_map_op import manual_axes_context, shard_map_op

Pattern = frozenset[tuple[int, ...]]
Names = tuple[str, ...]
_WHY: Final = "it is a step of a program that runs on several devices at once"
_FIX: Final = "export the function as it runs on one device; nx.jit shards it again"


@rule("sdy.manual_computation")
def _manual(scope: Scope, op: Operation, *xs: Array) -> Any:
    manual = _quoted(op.attributes["manual_axes"])
    ins = _shardings(op, op.attributes["in_shardings"])
    outs = _shardings(op, op.attributes["out_shardings"])
    names = {name for name, _ in (*ins, *outs)}
    if len(names) > 1 or not (names or len(scope.importer.module.meshes) == 1):
        raise refused(op, "its shardings are not all of one mesh")
    mesh = scope.importer.mesh(names.pop() if names else next(iter(scope.importer.module.meshes)))
    axes = tuple(n for n in mesh.axis_names if n in manual)
    with scope.importer.spread(mesh), manual_axes_context(mesh, axes, False):
        program, consts = scope.staged(op.regions[0], "shard_map").hoist_consts()
    own = [[PartitionSpec(*(_entry(dim, axes) for dim in dims)) for _, dims in given] for given in (ins, outs)]
    return shard_map_op(
        *consts,
        *xs,
        program=program,
        mesh=mesh,
        in_specs=(*(PartitionSpec(),) * len(consts), *own[0]),
        out_specs=tuple(own[1]),
        manual_axes=axes,
        checked=False,
    )


def _entry(names: Names, axes: Names) -> Any:
    """A dimension's entry of a spec: the axes that the computation handles; the rest are the compiler's."""
    kept = tuple(n for n in names if n in axes)
    return None if not kept else kept[0] if len(kept) == 1 else kept


def _quoted(text: str) -> Names:
    return tuple(re.findall(r'"([^"]*)"', text))


def _shardings(op: Operation, text: str) -> list[tuple[str, list[Names]]]:
    """Per value, the mesh's name and the axes of each dimension."""
    if '":(' in text or "mesh<[" in text:
        raise refused(op, "its shardings cut one axis of a mesh in parts, or name no mesh")
    found = re.findall(r"<@([\w.$-]+), \[((?:\{[^}]*\}(?:p\d+)?(?:, )?)*)\]", text)
    return [(name, [_quoted(dim) for dim in re.findall(r"\{([^}]*)\}", dims)]) for name, dims in found]


# --- which axes a collective goes along ---


def _mesh(scope: Scope, op: Operation) -> AbstractMesh:
    mesh = scope.importer.around
    if mesh is None:
        raise refused(op, _WHY, _FIX)
    return mesh


def _patterns(mesh: AbstractMesh, rows: np.ndarray[Any, Any]) -> Iterator[tuple[Names, Pattern]]:
    """Sets of axes, small ones first, along which every line of devices has the same rows, and these as places."""
    sizes = mesh.axis_sizes
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    bound = {b[0] for b in axes_in_scope()}
    places = [i for i, n in enumerate(mesh.axis_names) if n in bound and sizes[i] > 1]
    for count in range(1, len(places) + 1):
        for chosen in itertools.permutations(places, count):
            rest = [i for i in range(len(sizes)) if i not in chosen]
            lines = grid.transpose(*rest, *chosen).reshape(-1, math.prod(sizes[i] for i in chosen))
            found = _common(lines, rows)
            if found is not None:
                yield tuple(mesh.axis_names[i] for i in chosen), found


def _common(lines: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> Pattern | None:
    line_of = {int(d): i for i, line in enumerate(lines) for d in line}
    place_of = {int(d): i for line in lines for i, d in enumerate(line)}
    per: list[set[tuple[int, ...]]] = [set() for _ in lines]
    for row in rows:
        members = [int(d) for d in row if d >= 0]
        if not members or any(line_of.get(d) != line_of[members[0]] for d in members if members[0] in line_of):
            return None
        per[line_of[members[0]]].add(tuple(place_of[d] for d in members))
    return frozenset(per[0]) if all(p == per[0] for p in per) else None


def _along(scope: Scope, op: Operation) -> tuple[Names, list[list[int]] | None]:
    """The axes of a collective's groups, and the groups along the one axis if there are several."""
    mesh = _mesh(scope, op)
    rows = np.atleast_2d(op.attributes["replica_groups"])
    if rows.shape[-1] == 1:
        return (), None
    partial: tuple[Names, list[list[int]]] | None = None
    for names, pattern in _patterns(mesh, rows):
        if pattern == frozenset([tuple(range(rows.shape[-1]))]):
            return names, None
        if len(names) == 1 and partial is None:
            partial = names, sorted(map(list, pattern))
    if partial is None:
        raise refused(op, f"its groups of devices do not lie along axes of {mesh}")
    return partial


# --- collectives ---

_REDUCTIONS: Final = {"add": collectives.psum, "maximum": collectives.pmax, "minimum": collectives.pmin}
_TRUTHS: Final = {"or": collectives.pmax, "and": collectives.pmin}


def _reduction(op: Operation, block: Block) -> Any:
    name = monoid(block) or ""
    found = _REDUCTIONS.get(name)
    if found is not None:
        return found
    if name in _TRUTHS and all(array_type(v).dtype == dtypes.bool_ for v in block.arguments):
        return lambda x, names, **groups: convert_element_type(
            _TRUTHS[name](convert_element_type(x, dtype=dtypes.int32), names, **groups), dtype=dtypes.bool_
        )
    raise refused(op, "only sums, maxima, minima, and or of truth values are taken over devices here")


@rule("stablehlo.all_reduce")
def _all_reduce(scope: Scope, op: Operation, *xs: Array) -> Any:
    names, groups = _along(scope, op)
    reduce = _reduction(op, op.regions[0])
    return tuple(reduce(x, names, axis_index_groups=groups) if names else x for x in xs)


@rule("stablehlo.all_gather")
def _all_gather(scope: Scope, op: Operation, *xs: Array) -> Any:
    names, groups = _along(scope, op)
    at = op.attributes["all_gather_dim"]
    return tuple(
        collectives.all_gather(x, names, axis=at, tiled=True, axis_index_groups=groups) if names else x for x in xs
    )


@rule("stablehlo.reduce_scatter")
def _reduce_scatter(scope: Scope, op: Operation, x: Array) -> Any:
    names, groups = _along(scope, op)
    if monoid(op.regions[0]) != "add":
        raise refused(op, "only sums are scattered here")
    at = op.attributes["scatter_dimension"]
    return (
        collectives.psum_scatter(x, names, scatter_dimension=at, tiled=True, axis_index_groups=groups) if names else x
    )


@rule("stablehlo.all_to_all")
def _all_to_all(scope: Scope, op: Operation, *xs: Array) -> Any:
    names, groups = _along(scope, op)
    cut, joined = op.attributes["split_dimension"], op.attributes["concat_dimension"]
    return tuple(
        collectives.all_to_all(x, names, cut, joined, tiled=True, axis_index_groups=groups) if names else x for x in xs
    )


@rule("stablehlo.collective_permute")
def _permute(scope: Scope, op: Operation, *xs: Array) -> Any:
    mesh = _mesh(scope, op)
    for names, pattern in _patterns(mesh, np.atleast_2d(op.attributes["source_target_pairs"])):
        if len(names) == 1:
            return tuple(collectives.ppermute(x, names[0], sorted((s, t) for s, t in pattern)) for x in xs)
    raise refused(op, f"its pairs of devices do not lie along an axis of {mesh}")


@rule("stablehlo.partition_id")
def _partition(scope: Scope, op: Operation) -> Any:
    mesh = _mesh(scope, op)
    bound = {b[0] for b in axes_in_scope()}
    left = [n for n, size in mesh.shape_tuple if size > 1 and n not in bound]
    if left:
        raise refused(op, f"the compiler handles the axes {left} here")
    names = tuple(n for n, size in mesh.shape_tuple if size > 1)
    return convert_element_type(collectives.axis_index(names), dtype=dtypes.uint32) if names else _zero()


@rule("stablehlo.replica_id")
def _replica(scope: Scope, op: Operation) -> Any:
    _mesh(scope, op)
    return _zero()


def _zero() -> Array:
    return constant(0, dtypes.uint32)
