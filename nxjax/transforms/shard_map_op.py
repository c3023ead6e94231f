"""The op of `shard_map`: a program that every device of a mesh runs on its own part of the operands.

The program maps shards to shards and holds collectives over the mesh's axes. A transform of the call is a call of the
transformed program. On one device the meaning (`expand`, and so `eval`) is that of `vmap`: shards are stacked along one
dimension per axis, and the traces that bind the axes compute the collectives.

In a checked call, types say along which axes values vary, and the types of results agree with ``out_specs``. So a
transposed program gives every device its cotangent without knowing the mesh. In an unchecked call, a result that is the
same on all devices divides its cotangent evenly among them, and the cotangents of an operand that all devices hold are
summed at the end. These are JAX's two rules; both give the true gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, final

from nxjax.errors import ShardingError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import NDArray, eval_by_expand, like, zeros
from nxjax.ops.sharding import insert_dim
from nxjax.trace.axes import binding_axis, spmd_axis
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.mesh import AbstractMesh, AxisType, BaseMesh, current_mesh, use_mesh
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.program import Program, run
from nxjax.trace.sharding import NamedSharding, check_shape
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape
from nxjax.transforms.nested import Nested, Thread, batch_to_front, jvp_program, pvary_inputs, pvary_results
from nxjax.transforms.partial_eval import PartialTrace, partial_eval
from nxjax.transforms.subprograms import (
    Mask,
    expand_by_mask,
    merge_by_mask,
    not_none_mask,
    select_by_mask,
    split_by_mask,
)
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
class ShardMapParams(NamedTuple):
    """The parameters of a `shard_map`."""

    program: Program
    mesh: BaseMesh
    in_specs: Specs
    out_specs: Specs
    manual_axes: Axes
    checked: bool

    def context(self) -> ExitStack:
        """The context of the body."""
        return manual_axes_context(self.mesh, self.manual_axes, self.checked)

    def bound(
        self, program: Program, args: Arrays, in_specs: Iterable[PartitionSpec], out_specs: Iterable[PartitionSpec]
    ) -> tuple[list[Array], dict[str, Any]]:
        """Operands and parameters of an equation in the same place: every device has what ``program`` holds, first."""
        hoisted, consts = program.hoist_consts()
        specs = (*(PartitionSpec(),) * len(consts), *in_specs)
        params = self._replace(program=hoisted, in_specs=specs, out_specs=tuple(out_specs))
        return [*consts, *args], params._asdict()

    def varying(self, program: Program, vmas: Sequence[frozenset[Any]]) -> Program:
        """``program`` whose results vary along ``vmas`` too, where that is checked."""
        return pvary_results(program, vmas) if self.checked else program


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
            if not shard_type(t, mesh, spec, checked, "shard_map").typematch(inside):
                raise ShardingError("shard_map: an operand does not fit the program", got=t, expected=inside)
        return tuple(global_type(t, mesh, s, manual_axes) for t, s in zip(program.out_types, out_specs, strict=True))

    def eval(self, *xs: NDArray, **params: Any) -> tuple[NDArray, ...]:
        return eval_by_expand(self, xs, params)

    def expand(self, *xs: Array, **params: Any) -> tuple[Array, ...]:
        p = ShardMapParams(**params)
        axes = [n for n in p.mesh.axis_names if n in p.manual_axes]
        mapped = p.program
        held: list[list[Any]] = [[] for _ in p.out_specs]  # axes that a result is stacked along, outermost first
        for name in reversed(axes):
            dims = tuple(name in s.names for s in p.in_specs)
            force = tuple(name in s.names for s in p.out_specs)
            mapped, stacked = batch_program(mapped, p.mesh.shape[name], dims, force, name)
            for names, is_stacked in zip(held, stacked, strict=True):
                if is_stacked:
                    names.insert(0, name)
        ys = run(mapped, [_stacked(x, p.mesh, s, axes) for x, s in zip(xs, p.in_specs, strict=True)])
        return tuple(_joined(y, p.mesh, s, names) for y, s, names in zip(ys, p.out_specs, held, strict=True))

    # --- forward mode ---

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        p, mask = ShardMapParams(**params), not_none_mask(tangents)
        with p.context():
            pushed, varies = jvp_program(p.program, mask)
        types = (*p.program.out_types, *select_by_mask(p.program.out_types, varies))
        operands, params = p.bound(
            p.varying(pushed, [t.vma for t in types]),
            [*primals, *(t for t in tangents if t is not None)],
            (*p.in_specs, *select_by_mask(p.in_specs, mask)),
            (*p.out_specs, *select_by_mask(p.out_specs, varies)),
        )
        found, n = self(*operands, **params), len(p.out_specs)
        return found[:n], tuple(expand_by_mask(found[n:], varies))

    def partial_eval(self, trace: PartialTrace, args: Arrays, known: Mask, **params: Any) -> tuple[Array, ...]:
        p = ShardMapParams(**params)
        with p.context():
            halves = partial_eval(p.program, known)
        (inputs, late), (specs, late_specs) = split_by_mask(args, known), split_by_mask(p.in_specs, known)
        ready_specs, late_out_specs = split_by_mask(p.out_specs, halves.known_out)
        value, kept_specs = _residuals_stacked(halves.known, sum(halves.known_out), p)
        out: Sequence[Array] = ()
        if value.outputs or value.effect:
            out = trace.process_known(self, *p.bound(value, inputs, specs, (*ready_specs, *kept_specs)))
        if not halves.is_cut:
            return tuple(out)
        residual_specs = halves.residuals(specs, [*ready_specs, *kept_specs])
        rest = _residuals_unstacked(halves.unknown, tuple(i is None for i in halves.sources))
        types = select_by_mask(p.program.out_types, [not k for k in halves.known_out])
        rest = p.varying(rest, [t.vma for t in types])
        operands = [*halves.residuals(inputs, out), *late]
        found = trace.process_unknown(self, *p.bound(rest, operands, (*residual_specs, *late_specs), late_out_specs))
        return tuple(merge_by_mask(out, found, halves.known_out))

    # --- backwards ---

    def transpose(self, cts: Tangents, *args: Any, **params: Any) -> Tangents:
        p = ShardMapParams(**params)
        program, mesh = p.program, p.mesh
        linear = tuple(isinstance(x, UndefinedPrimal) for x in args)
        others, nonzero = [not l for l in linear], not_none_mask(cts)

        def unmentioned(spec: PartitionSpec) -> Axes:
            return tuple(n for n in mesh.axis_names if n in p.manual_axes and n not in spec.names)

        def flat(*xs: Array) -> Arrays:
            known, given = xs[: sum(others)], xs[sum(others) :]
            if not p.checked:
                specs = select_by_mask(p.out_specs, nonzero)
                shares = [math.prod(mesh.shape[a] for a in unmentioned(s)) for s in specs]
                given = [ct if n == 1 else ops.div(ct, like(ct, n)) for ct, n in zip(given, shares, strict=True)]
            found = backward_pass(program, expand_by_mask(known, others), expand_by_mask(given, nonzero))
            totals: list[Array] = []
            for ct, t, spec, l in zip(found, program.in_types, p.in_specs, linear, strict=True):
                if l:
                    ct = zeros(t) if ct is None else ct
                    axes = unmentioned(spec)
                    totals.append(ops.psum(ct, axis_names=axes) if axes and not p.checked else ct)
            return totals

        def make() -> Program:
            known_types = select_by_mask(program.in_types, others)
            ct_types = [t.strong() for t in select_by_mask(program.out_types, nonzero)]
            with p.context():
                back = stage(flat, [*known_types, *ct_types], f"transpose({program.name})")
            return p.varying(back, [t.vma for t in select_by_mask(program.in_types, linear)])

        operands, params = p.bound(
            program.derive(("shard_map transpose", linear, nonzero, mesh, p.in_specs, p.out_specs), make),
            [*select_by_mask(args, others), *(ct for ct in cts if ct is not None)],
            (*select_by_mask(p.in_specs, others), *select_by_mask(p.out_specs, nonzero)),
            select_by_mask(p.in_specs, linear),
        )
        return expand_by_mask(self(*operands, **params), linear)

    # --- batches ---

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        p, mask = ShardMapParams(**params), not_none_mask(dims)
        along = spmd_axis()
        names: Axes = () if along is None else along if isinstance(along, tuple) else (along,)
        own = tuple(n for n in names if n in p.manual_axes)
        used = sorted({str(n) for s in (*p.in_specs, *p.out_specs) for n in s.names if n in own})
        if used:
            raise ShardingError(
                "vmap: spmd_axis_name is an axis that a shard_map inside already uses",
                got=", ".join(used),
                expected="an axis of the mesh that its in_specs and out_specs do not name",
            )
        per_device = size // math.prod(p.mesh.shape[n] for n in own)
        if per_device * math.prod(p.mesh.shape[n] for n in own) != size:
            raise ShardingError("vmap: spmd_axis_name does not divide the mapped axis", got=size, expected=own)
        program = p.program
        if own and p.checked:
            program = pvary_inputs(program, [frozenset(own) if m else frozenset() for m in mask])
        with p.context():
            mapped, out = batch_program(program, per_device, mask, name=axis_name)
        entry = None if not own else own[0] if len(own) == 1 else own

        def cut(specs: Specs, which: Sequence[bool]) -> Specs:
            return tuple(
                insert_dim(NamedSharding(p.mesh, s), 0, entry).spec if w else s
                for s, w in zip(specs, which, strict=True)
            )

        outs = cut(p.out_specs, out)
        mapped = p.varying(mapped, [t.vma | frozenset(s.names) for t, s in zip(mapped.out_types, outs, strict=True)])
        operands, params = p.bound(mapped, batch_to_front(args, dims, size), cut(p.in_specs, mask), outs)
        return self(*operands, **params), tuple(0 if b else None for b in out)

    # --- effects ---

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        p, whole = ShardMapParams(**params), (PartitionSpec(),)
        program = thread(p.program)
        p = p._replace(program=program, in_specs=whole + p.in_specs, out_specs=whole + p.out_specs)
        return p._asdict(), 0, 0

    # --- lowering ---

    def stablehlo(self, b: Any, out: tuple[ArrayType, ...], *xs: Any, **params: Any) -> Any:
        if b.partitioning.size == 1:
            return b.inline(self.expand, xs, params)
        p = ShardMapParams(**params)
        body = lambda b, *shards: b.program(p.program, shards)
        return b.manual_computation(p.mesh, p.manual_axes, xs, p.in_specs, out, p.out_specs, p.program.in_types, body)


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
    return ops.transpose(ops.reshape(x, shape=tuple(shape)), permutation=order)


def _joined(y: Array, mesh: BaseMesh, spec: PartitionSpec, held: Sequence[Any]) -> Array:
    """The inverse of `_stacked`; of parts that are the same along an axis the first is taken."""
    kept = [a for a in held if a in spec.names]
    if len(kept) < len(held):
        limits = tuple(mesh.shape[a] if a in kept else 1 for a in held)
        y = ops.slice(y, start_indices=(0,) * y.ndim, limit_indices=(*limits, *y.shape[len(held) :]), strides=None)
        y = ops.reshape(y, shape=(*(mesh.shape[a] for a in kept), *y.shape[len(held) :]))
    if not kept:
        return y
    order: list[int] = []
    shape: list[int] = []
    for dim, n in enumerate(y.shape[len(kept) :]):
        order += [*(kept.index(a) for a in spec.axes(dim)), len(kept) + dim]
        shape.append(n * _parts(mesh, spec, dim))
    return ops.reshape(ops.transpose(y, permutation=tuple(order)), shape=tuple(shape))


def _residuals_stacked(value: Program, n: int, p: ShardMapParams) -> tuple[Program, Specs]:
    """``value`` with its results after the first ``n`` as parts of arrays, and the specs of those.

    A residual gets a leading dimension of size one, which is cut along the axes that it may vary along.
    """

    def flat(*xs: Array) -> Arrays:
        ys = run(value, xs)
        return [*ys[:n], *(ops.reshape(y, shape=(1, *y.shape)) for y in ys[n:])]

    specs: list[PartitionSpec] = []
    for t in value.out_types[n:]:
        names = tuple(a for a in p.mesh.axis_names if a in p.manual_axes and (a in t.vma or not p.checked))
        specs.append(PartitionSpec(names) if names else PartitionSpec())
    return value.derive(("stacked", n), lambda: stage(flat, value.in_types, value.name)), tuple(specs)


def _residuals_unstacked(tangent: Program, made: tuple[bool, ...]) -> Program:
    """``tangent`` for residuals that `_residuals_stacked` gave, where ``made`` says so."""
    if not any(made):
        return tangent

    def narrow(x: Array, is_made: bool) -> Array:
        return ops.reshape(x, shape=x.shape[1:]) if is_made else x

    def flat(*xs: Array) -> Arrays:
        k = len(made)
        return run(tangent, [*map(narrow, xs[:k], made), *xs[k:]])

    def shape(t: ArrayType) -> Shape:
        return (1, *t.shape)

    types = [t.with_shape(shape(t)) if m else t for t, m in zip(tangent.in_types, made, strict=False)]
    types += tangent.in_types[len(made) :]
    return tangent.derive(("unstacked", made), lambda: stage(flat, types, tangent.name))
