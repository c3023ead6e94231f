"""The op of `shard_map`: a program that every device of a mesh runs on its own part of the operands.

The program maps shards to shards and holds collectives over the mesh's axes. Every transform of the call is the call of
the transformed program. Its meaning on one device (`expand`, and by that `eval`) is `vmap`'s: shards stacked along one
dimension per axis, collectives answered by the traces that bind the axes.

In a checked call the types inside say along which axes values vary, and those of results say what ``out_specs`` say, so
that a transposed program gives every device its cotangent with no knowledge of the mesh. In an unchecked one a result
that is said to be the same on all devices shares its cotangent out evenly among them, and the cotangents of an operand
that all devices hold are added up at the end: JAX's two rules, which both give the true gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, final

from nxjax.errors import ShardingError
from nxjax.ops.arithmetic import div
from nxjax.ops.base import NDArray, eval_by_expand, like, zeros
from nxjax.ops.collectives import psum
from nxjax.ops.shape import reshape
from nxjax.ops.shape import transpose as transpose_op
from nxjax.ops.sharding import insert_dim
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace.axes import binding_axis, spmd_axis
from nxjax.trace.core import Array, Arrays, Dims, Linear, Tangents
from nxjax.trace.mesh import AbstractMesh, AxisType, BaseMesh, current_mesh, use_mesh
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.program import Program, run
from nxjax.trace.sharding import NamedSharding, check_shape
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape
from nxjax.transforms.nested import (
    Mask,
    Nested,
    Thread,
    batch_to_front,
    expand_by_mask,
    jvp_program,
    merge_by_mask,
    not_none_mask,
    pvary_inputs,
    pvary_results,
    select_by_mask,
    split_by_mask,
)
from nxjax.transforms.partial_eval import PartialTrace, partial_eval
from nxjax.transforms.transpose import backward_pass
from nxjax.transforms.vmap import batch_program

Specs = tuple[PartitionSpec, ...]
Axes = tuple[Any, ...]


def shard_type(type: ArrayType, mesh: BaseMesh, spec: PartitionSpec, checked: bool, where: str) -> ArrayType:
    """The type of one device's part of a value."""
    check_shape(mesh, spec, type.shape, where)
    shape = tuple(n // _parts(mesh, spec, dim) for dim, n in enumerate(type.shape))
    return type.with_shape(shape).with_vma(type.vma | frozenset(spec.names) if checked else type.vma)


def global_type(type: ArrayType, mesh: BaseMesh, spec: PartitionSpec, axes: Axes) -> ArrayType:
    """The type of the value that parts of ``type`` make."""
    shape = tuple(n * _parts(mesh, spec, dim) for dim, n in enumerate(type.shape))
    return type.with_shape(shape).with_vma(type.vma - frozenset(axes))


def _parts(mesh: BaseMesh, spec: PartitionSpec, dim: int) -> int:
    return math.prod(mesh.shape[n] for n in spec.axes(dim))


def manual_axes_context(mesh: BaseMesh, axes: Axes, checked: bool) -> ExitStack:
    """The context of a body: its axes have names, and they are manual axes of the current mesh.

    Transforms of a body take place in it too, since rules of the user's own (`custom_vjp`) run then.
    """
    around = current_mesh()
    manual = frozenset(axes) | frozenset(() if around is None else around.manual_axes)
    kinds = tuple(AxisType.Manual if n in manual else t for n, t in zip(mesh.axis_names, mesh.axis_types, strict=True))
    stack = ExitStack()
    for n in axes:
        stack.enter_context(binding_axis(n, mesh.shape[n], mesh, checked))
    stack.enter_context(use_mesh(AbstractMesh(mesh.axis_sizes, mesh.axis_names, kinds)))
    return stack


@final
class ShardMap(Nested):
    """Call of ``program``, which has no consts, along the axes ``manual_axes`` of ``mesh``."""

    name = "shard_map"
    aliases = {"jaxpr": "program"}

    def infer(
        self,
        *types: ArrayType,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> tuple[ArrayType, ...]:
        for t, spec, inside in zip(types, in_specs, program.in_types, strict=True):
            if not shard_type(t, mesh, spec, checked, "shard_map").same(inside):
                raise ShardingError("shard_map: an operand does not fit the program", got=t, expected=inside)
        return tuple(global_type(t, mesh, s, manual_axes) for t, s in zip(program.out_types, out_specs, strict=True))

    def eval(self, *xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return eval_by_expand(self, xs, params)

    def expand(
        self,
        *xs: Array,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> tuple[Array, ...]:
        axes = [n for n in mesh.axis_names if n in manual_axes]
        mapped = program
        held: list[list[Any]] = [[] for _ in out_specs]  # axes that a result is stacked along, outermost first
        for name in reversed(axes):
            dims = tuple(name in s.names for s in in_specs)
            force = tuple(name in s.names for s in out_specs)
            mapped, stacked = batch_program(mapped, mesh.shape[name], dims, force, name)
            for names, is_stacked in zip(held, stacked, strict=True):
                if is_stacked:
                    names.insert(0, name)
        ys = run(mapped, [_stacked(x, mesh, s, axes) for x, s in zip(xs, in_specs, strict=True)])
        return tuple(_joined(y, mesh, s, names) for y, s, names in zip(ys, out_specs, held, strict=True))

    # --- forward mode ---

    def jvp(
        self,
        primals: Arrays,
        tangents: Tangents,
        *,
        program: Program,
        in_specs: Specs,
        out_specs: Specs,
        checked: bool,
        **place: Any,
    ) -> tuple[Any, Any]:
        mask = not_none_mask(tangents)
        with manual_axes_context(place["mesh"], place["manual_axes"], checked):
            pushed, varies = jvp_program(program, mask)
        outs = (*out_specs, *select_by_mask(out_specs, varies))
        if checked:
            pushed = pvary_results(
                pushed, [t.vma for t in (*program.out_types, *select_by_mask(program.out_types, varies))]
            )
        pushed, consts = pushed.close_over()
        found = self(
            *consts,
            *primals,
            *(t for t in tangents if t is not None),
            program=pushed,
            in_specs=(*(PartitionSpec(),) * len(consts), *in_specs, *select_by_mask(in_specs, mask)),
            out_specs=outs,
            checked=checked,
            **place,
        )
        n = len(out_specs)
        return found[:n], tuple(expand_by_mask(found[n:], varies))

    def partial_eval(
        self,
        trace: PartialTrace,
        args: Arrays,
        known: Mask,
        *,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> tuple[Array, ...]:
        place: dict[str, Any] = {"mesh": mesh, "manual_axes": manual_axes, "checked": checked}
        with manual_axes_context(mesh, manual_axes, checked):
            halves = partial_eval(program, known)
        (inputs, late), (specs, late_specs) = split_by_mask(args, known), split_by_mask(in_specs, known)
        ready_specs, late_out_specs = split_by_mask(out_specs, halves.known_out)
        n = sum(halves.known_out)
        value, kept_specs = _residuals_stacked(halves.known, n, mesh, manual_axes, checked)
        value, consts = value.close_over()
        out: Arrays = ()
        if value.outputs or value.effect:
            given = {"in_specs": (*(PartitionSpec(),) * len(consts), *specs), "out_specs": (*ready_specs, *kept_specs)}
            out = trace.outside(self, [*consts, *inputs], {"program": value, **given, **place})
        if not halves.is_cut:
            return tuple(out)
        residual_specs = halves.residuals(specs, [*ready_specs, *kept_specs])
        rest = _residuals_unstacked(halves.unknown, tuple(i is None for i in halves.sources))
        if checked:
            types = select_by_mask(program.out_types, [not k for k in halves.known_out])
            rest = pvary_results(rest, [t.vma for t in types])
        rest, consts = rest.close_over()
        params = {
            "program": rest,
            "in_specs": (*(PartitionSpec(),) * len(consts), *residual_specs, *late_specs),
            "out_specs": tuple(late_out_specs),
            **place,
        }
        found = trace.write(self, [*consts, *halves.residuals(inputs, out), *late], params)
        return tuple(merge_by_mask(out, found, halves.known_out))

    # --- backwards ---

    def transpose(
        self,
        cts: Tangents,
        *args: Any,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> Tangents:
        linear = tuple(isinstance(x, Linear) for x in args)
        nonzero = not_none_mask(cts)

        def unmentioned(spec: PartitionSpec) -> Axes:
            return tuple(n for n in mesh.axis_names if n in manual_axes and n not in spec.names)

        def flat(*xs: Array) -> Arrays:
            known, given = xs[: linear.count(False)], xs[linear.count(False) :]
            if not checked:
                shares = [math.prod(mesh.shape[a] for a in unmentioned(s)) for s in select_by_mask(out_specs, nonzero)]
                given = [ct if n == 1 else div(ct, like(ct, n)) for ct, n in zip(given, shares, strict=True)]
            found = backward_pass(
                program, expand_by_mask(known, [not l for l in linear]), expand_by_mask(given, nonzero)
            )
            totals: list[Array] = []
            for ct, t, spec, l in zip(found, program.in_types, in_specs, linear, strict=True):
                if l:
                    ct = zeros(t) if ct is None else ct
                    axes = unmentioned(spec)
                    totals.append(psum(ct, axis_names=axes) if axes and not checked else ct)
            return totals

        def make() -> Program:
            known_types = [t for t, l in zip(program.in_types, linear, strict=True) if not l]
            ct_types = [t.strong() for t in select_by_mask(program.out_types, nonzero)]
            with manual_axes_context(mesh, manual_axes, checked):
                back = stage(flat, [*known_types, *ct_types], f"transpose({program.name})")
            return pvary_results(back, [t.vma for t in select_by_mask(program.in_types, linear)]) if checked else back

        back = program.derive(("shard_map transpose", linear, nonzero, mesh, in_specs, out_specs), make)
        back, consts = back.close_over()
        known_specs = select_by_mask(in_specs, [not l for l in linear])
        found = self(
            *consts,
            *(x for x, l in zip(args, linear, strict=True) if not l),
            *(ct for ct in cts if ct is not None),
            program=back,
            mesh=mesh,
            in_specs=(*(PartitionSpec(),) * len(consts), *known_specs, *select_by_mask(out_specs, nonzero)),
            out_specs=tuple(select_by_mask(in_specs, linear)),
            manual_axes=manual_axes,
            checked=checked,
        )
        return expand_by_mask(found, linear)

    # --- batches ---

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> tuple[Any, Any]:
        mask = not_none_mask(dims)
        along = spmd_axis()
        names: Axes = () if along is None else along if isinstance(along, tuple) else (along,)
        own = tuple(n for n in names if n in manual_axes)
        used = sorted({str(n) for s in (*in_specs, *out_specs) for n in s.names if n in own})
        if used:
            raise ShardingError(
                "vmap: spmd_axis_name is an axis that a shard_map inside already uses",
                got=", ".join(used),
                expected="an axis of the mesh that its in_specs and out_specs do not name",
            )
        per_device = size // math.prod(mesh.shape[n] for n in own)
        if per_device * math.prod(mesh.shape[n] for n in own) != size:
            raise ShardingError("vmap: spmd_axis_name does not divide the mapped axis", got=size, expected=own)
        if own and checked:
            program = pvary_inputs(program, [frozenset(own) if m else frozenset() for m in mask])
        with manual_axes_context(mesh, manual_axes, checked):
            mapped, out = batch_program(program, per_device, mask, name=axis_name)
        entry = None if not own else own[0] if len(own) == 1 else own

        def cut(specs: Specs, which: Sequence[bool]) -> Specs:
            return tuple(
                insert_dim(NamedSharding(mesh, s), 0, entry).spec if w else s for s, w in zip(specs, which, strict=True)
            )

        outs = cut(out_specs, out)
        if checked:
            mapped = pvary_results(
                mapped, [t.vma | frozenset(s.names) for t, s in zip(mapped.out_types, outs, strict=True)]
            )
        mapped, consts = mapped.close_over()
        ys = self(
            *consts,
            *batch_to_front(args, dims, size),
            program=mapped,
            mesh=mesh,
            in_specs=(*(PartitionSpec(),) * len(consts), *cut(in_specs, mask)),
            out_specs=outs,
            manual_axes=manual_axes,
            checked=checked,
        )
        return ys, tuple(0 if b else None for b in out)

    # --- effects ---

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        changed, at_in, at_out = super().with_token(params, thread)
        whole = PartitionSpec()
        changed["in_specs"] = (whole, *params["in_specs"])
        changed["out_specs"] = (whole, *params["out_specs"])
        return changed, at_in, at_out

    # --- lowering ---

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        program: Program,
        mesh: BaseMesh,
        in_specs: Specs,
        out_specs: Specs,
        manual_axes: Axes,
        checked: bool,
    ) -> Any:
        place = {"mesh": mesh, "manual_axes": manual_axes, "checked": checked}
        if b.partitioning.size == 1:
            params = {"program": program, "in_specs": in_specs, "out_specs": out_specs, **place}
            return b.inline(self.expand, xs, params)
        types = program.in_types
        return b.manual_computation(
            mesh, manual_axes, xs, in_specs, out, out_specs, types, lambda b, *shards: b.program(program, shards)
        )


shard_map_op = ShardMap()


def _stacked(x: Array, mesh: BaseMesh, spec: PartitionSpec, axes: Sequence[Any]) -> Array:
    """The parts of ``x``, stacked along one leading dimension for each of ``axes`` that cuts it, in that order."""
    shape: list[int] = []
    names: list[Any] = []  # of each dimension of the finer shape: an axis, or None for what is left
    for dim, n in enumerate(x.shape):
        cut = spec.axes(dim)
        shape += [*(mesh.shape[a] for a in cut), n // _parts(mesh, spec, dim)]
        names += [*cut, None]
    if len(shape) == x.ndim:
        return x
    front = [names.index(a) for a in axes if a in names]
    order = (*front, *(i for i, a in enumerate(names) if a is None))
    return transpose_op(reshape(x, shape=tuple(shape)), permutation=order)


def _joined(y: Array, mesh: BaseMesh, spec: PartitionSpec, held: Sequence[Any]) -> Array:
    """The inverse of `_stacked`; of parts that are the same along an axis the first is taken."""
    kept = [a for a in held if a in spec.names]
    if len(kept) < len(held):
        limits = tuple(mesh.shape[a] if a in kept else 1 for a in held)
        y = slice_op(y, start_indices=(0,) * y.ndim, limit_indices=(*limits, *y.shape[len(held) :]), strides=None)
        y = reshape(y, shape=(*(mesh.shape[a] for a in kept), *y.shape[len(held) :]))
    if not kept:
        return y
    order: list[int] = []
    shape: list[int] = []
    for dim, n in enumerate(y.shape[len(kept) :]):
        order += [*(kept.index(a) for a in spec.axes(dim)), len(kept) + dim]
        shape.append(n * _parts(mesh, spec, dim))
    return reshape(transpose_op(y, permutation=tuple(order)), shape=tuple(shape))


def _residuals_stacked(value: Program, n: int, mesh: BaseMesh, axes: Axes, checked: bool) -> tuple[Program, Specs]:
    """``value`` with its results after the first ``n`` as parts of arrays, and the specs of those.

    A residual gets a leading dimension of size one, which is cut along the axes that it may vary along.
    """

    def flat(*xs: Array) -> Arrays:
        ys = run(value, xs)
        return [*ys[:n], *(reshape(y, shape=(1, *y.shape)) for y in ys[n:])]

    specs: list[PartitionSpec] = []
    for t in value.out_types[n:]:
        names = tuple(a for a in mesh.axis_names if a in axes and (a in t.vma or not checked))
        specs.append(PartitionSpec(names) if names else PartitionSpec())
    return value.derive(("stacked", n), lambda: stage(flat, value.in_types, value.name)), tuple(specs)


def _residuals_unstacked(tangent: Program, made: tuple[bool, ...]) -> Program:
    """``tangent`` for residuals that `_residuals_stacked` gave, where ``made`` says so."""
    if not any(made):
        return tangent

    def narrow(x: Array, is_made: bool) -> Array:
        return reshape(x, shape=x.shape[1:]) if is_made else x

    def flat(*xs: Array) -> Arrays:
        k = len(made)
        return run(tangent, [*map(narrow, xs[:k], made), *xs[k:]])

    def shape(t: ArrayType) -> Shape:
        return (1, *t.shape)

    types = [t.with_shape(shape(t)) if m else t for t, m in zip(tangent.in_types, made, strict=False)]
    types += tangent.in_types[len(made) :]
    return tangent.derive(("unstacked", made), lambda: stage(flat, types, tangent.name))
