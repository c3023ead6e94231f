"""`scan`: a loop with a fixed number of steps, as one op that holds its body once.

The body maps (consts..., carry..., slices of xs...) to (carry..., slices of ys...). Every transform of a scan is a scan
of the transformed body; the only work in a rule is to find out which carries take part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.config import config
from nxjax.errors import CarryTypeError, ParameterError, ShapeError
from nxjax.ops.base import NDArray, check_carry, check_operands, move_batch, require, zeros
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate, row
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Dims, Linear, Op, Tangents, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of
from nxjax.transforms.control.carry import stage_loop_body
from nxjax.transforms.control.loop import LoopOp, LoopParams, Operands, invert
from nxjax.transforms.control.scan_bodies import partial_eval_body, transpose_body
from nxjax.transforms.has_aux import check_pair
from nxjax.transforms.nested import (
    Mask,
    dependent_results,
    expand_by_mask,
    forwarded_inputs,
    mask_or,
    merge_by_mask,
    not_none_mask,
    required_equations,
    select_by_mask,
    select_inputs_and_results,
)
from nxjax.transforms.partial_eval import PartialTrace


@final
class Scan(LoopOp):
    """``length`` steps of ``body``; operands are consts, initial carry and xs, results final carry and ys."""

    name = "scan"
    aliases = {"jaxpr": "body"}
    fields = {name: name for name in ("body", "num_consts", "num_carry", "length", "reverse", "unroll")}

    def pack_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"loop": LoopParams(None, 0, **self.loop_fields(params))}

    def infer(self, *types: ArrayType, loop: LoopParams) -> tuple[ArrayType, ...]:
        x, length = self.operands(types, loop), loop.length
        require(self, length is not None and length >= 0, "length", length, "0 or more")
        require(self, loop.unroll >= 1, "unroll", loop.unroll, "1 or more")
        assert length is not None and not x.cond_consts
        if any(t.shape[:1] != (length,) for t in x.xs):
            raise ShapeError("scan: xs differ from the length", got=x.xs, expected=f"leading size {length}")
        check_operands(self, [*x.consts, *x.carry, *(t.with_shape(t.shape[1:]) for t in x.xs)], loop.body, "body")
        carry, ys = loop.results(loop.body.out_types)
        check_carry(self, x.carry, carry)
        return (*carry, *(t.with_shape((length, *t.shape)) for t in ys))

    def eval(self, *xs: NDArray, loop: LoopParams) -> tuple[NDArray, ...]:
        x = loop.split(xs)
        carry = x.carry
        columns = [
            np.zeros((len(loop.step_indices()), *t.shape), t.dtype) for t in loop.results(loop.body.out_types)[1]
        ]
        for i in loop.step_indices():
            carry, ys = loop.results(evaluate(loop.body, [*x.consts, *carry, *(s[i, ...] for s in x.xs)]))
            for column, y in zip(columns, ys, strict=True):
                column[i, ...] = y
        return (*carry, *columns)

    def partial_eval(self, trace: PartialTrace, args: Arrays, known: Mask, *, loop: LoopParams) -> tuple[Array, ...]:
        cut = partial_eval_body(loop, known)
        x = loop.split(args)
        early, late = x.masked(cut.mask), x.masked(invert(cut.mask))
        out: Arrays = ()
        if cut.value.outputs or cut.value.effect:
            inputs, value = loop.bound(early, body=cut.value)
            out = trace.outside(self, inputs, {"loop": value})
        n = sum(cut.known_out)
        if not (cut.rest.outputs or cut.rest.effect):
            return tuple(out[:n])
        # Residuals that do not change from step to step are computed once, and xs need no second copy.
        assert trace.parent is not None
        with use(trace.parent):
            hoisted = run(cut.prelude, early.consts)
        late = late._replace(consts=(*hoisted, *late.consts), xs=(*(early.xs[i] for i in cut.xs), *out[n:], *late.xs))
        inputs, rest = loop.bound(late, body=cut.rest)
        return tuple(merge_by_mask(out, trace.write(self, inputs, {"loop": rest}), cut.known_out))

    def transpose(self, cts: Tangents, *args: Any, loop: LoopParams) -> Tangents:
        given = tuple(isinstance(x, Linear) for x in args)
        _, linear = loop.fixed_point(
            given, lambda m: (None, mask_or(m.carry, dependent_results(loop.body, m.body_inputs)[: loop.num_carry]))
        )
        x, known = loop.split(args), invert(linear)
        steps = self._known_carries(loop, x, known)
        ct_carry, ct_ys = loop.results(cts)
        nonzero = not_none_mask(ct_ys)
        columns = zip((*x.consts, *x.carry), (*(None,) * len(x.consts), *ct_carry), strict=True)
        sums = [
            zeros(x.type) if ct is None else ct for x, ct in select_by_mask([*columns], (*linear.consts, *linear.carry))
        ]
        xs = (*select_by_mask(x.xs, known.xs), *steps, *select_by_mask(ct_ys, nonzero))
        operands = Operands((), select_by_mask(x.consts, known.consts), sums, xs)
        inputs, back = loop.bound(operands, body=transpose_body(loop, linear, nonzero), reverse=not loop.reverse)
        # Cotangents of linear operands come in their order.
        every = expand_by_mask(self(*inputs, loop=back), linear.flat)
        return [ct if g else None for ct, g in zip(every, given, strict=True)]

    def _known_carries(self, loop: LoopParams, x: Operands[Any], known: Operands[bool]) -> Arrays:
        """What the carries that are ``known`` hold at the start of each step; found by running them alone."""
        if not any(known.carry):
            return []

        def make() -> Program:
            body = loop.body
            after, before = body.outputs[: loop.num_carry], loop.inside(body.inputs).carry
            outputs = [*select_by_mask(after, known.carry), *select_by_mask(before, known.carry)]
            wanted = {a for a in outputs if isinstance(a, Var)}
            inputs = select_by_mask(body.inputs, known.body_inputs)
            equations = required_equations(body.equations, wanted, set(inputs))
            return Program(inputs, equations, outputs, body.constvars, body.values, f"known({body.name})")

        alone = loop.derive(("scan known", known.body_inputs), make)
        args, first = loop.bound(x.masked(known), body=alone)
        return self(*args, loop=first)[sum(known.carry) :]

    def stablehlo(self, b: Any, out: tuple[ArrayType, ...], *xs: Any, loop: LoopParams) -> Any:
        _, consts, carry, sequences = loop.split(xs)
        length, count = len(loop.step_indices()), loop.num_carry
        ys = [b.constant(0, t) for t in out[count:]]
        index = ArrayType((), np.dtype(np.int32))
        per_iteration = min(max(loop.unroll, 1), length)
        iterations = length // per_iteration if length else 0

        def step(b: Any, i: Any, carry: Sequence[Any], ys: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            at = b.simple("subtract", (b.constant(length - 1, index), i), index) if loop.reverse else i
            slices = [_take_row(b, s, at) for s in sequences]
            carry, rows = loop.results(b.program(loop.body, [*consts, *carry, *slices]))
            return carry, [_put_row(b, column, y, at) for column, y in zip(ys, rows, strict=True)]

        def several(b: Any, i: Any, carry: Sequence[Any], ys: Sequence[Any], n: int) -> tuple[Any, Any, Any]:
            one = b.constant(1, index)
            for _ in range(n):
                carry, ys = step(b, i, carry, ys)
                i = b.simple("add", (i, one), index)
            return i, carry, ys

        i = b.constant(0, index)
        if iterations > 1:
            end = iterations * per_iteration
            state = [i, *carry, *ys]
            types = [x.type for x in state]

            def go_on(b: Any, i: Any, *_: Any) -> Any:
                return b.compare("LT", i, b.constant(end, index), ArrayType((), np.dtype(bool)))

            def iteration(b: Any, i: Any, *state: Any) -> Any:
                i, carry, ys = several(b, i, state[:count], state[count:], per_iteration)
                return [i, *carry, *ys]

            state = b.op("stablehlo.while", state, tuple(types), regions=[(types, go_on), (types, iteration)])
            i, carry, ys = state[0], state[1 : 1 + count], state[1 + count :]
        elif iterations == 1:
            i, carry, ys = several(b, i, carry, ys, per_iteration)
        _, carry, ys = several(b, i, carry, ys, length - iterations * per_iteration)
        return (*carry, *ys)


def _take_row(b: Any, x: Any, i: Any) -> Any:
    zero = b.constant(0, i.type)
    row = ArrayType((1, *x.type.shape[1:]), x.type.dtype)
    starts = [i] + [zero] * (len(x.type.shape) - 1)
    taken = b.op("stablehlo.dynamic_slice", (x, *starts), row, f"slice_sizes = {b.ints(row.shape)}")
    return b.simple("reshape", (taken,), ArrayType(x.type.shape[1:], x.type.dtype))


def _put_row(b: Any, column: Any, y: Any, i: Any) -> Any:
    zero = b.constant(0, i.type)
    row = b.simple("reshape", (y,), ArrayType((1, *y.type.shape), y.type.dtype))
    return b.op("stablehlo.dynamic_update_slice", (column, row, i, *[zero] * len(y.type.shape)), column.type)


scan_op = Scan()


@api_boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply ``f`` along the leading axis of ``xs``, carrying a value from step to step.

    Args:
        f: maps ``(carry, x)`` to ``(carry, y)``; the carry keeps its structure, shapes and dtypes.
        init: the first carry, a pytree.
        xs: pytree of arrays of one leading size, or None.
        length: number of steps; needed when ``xs`` has no leaves.
        reverse: go from the last element to the first; ``ys`` keep their places.
        unroll: steps in one iteration of the compiled loop; True unrolls all of it.

    Returns:
        The last carry, and the ``y`` of all steps stacked along a new leading axis.

    Raises:
        CarryTypeError: ``f`` returns a carry of another structure or type than its input.
        ShapeError: leaves of ``xs`` are scalars or differ in leading size.
        ParameterError: not a function, or ``unroll`` is not a number of steps.
        TreeError: the function does not return a pair.

    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, nx.arange(4.0))
    >>> float(total), sums.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise ParameterError("scan: needs a function", got=type(f).__name__, fix="scan(f, init, xs)")
    x_leaves, x_def = tree.flatten(xs)
    sequences = [as_value(x, "scan: xs") for x in x_leaves]
    n = _length(sequences, xs, length)
    if config.disable_jit and n:
        return _step_by_step(f, init, sequences, x_def, n, reverse)
    slices = [s.type.with_shape(s.shape[1:]) for s in sequences]
    y_defs: list[tree.TreeDef] = []

    def step(carry: Any, slice_leaves: Arrays) -> tuple[Any, list[Any]]:
        result = f(carry, tree.unflatten(x_def, slice_leaves))
        carry, y = check_pair("scan: the function", result, "(carry, y)", "return carry, None")
        ys, y_def = tree.flatten(y)
        y_defs[:] = [y_def]
        return carry, ys

    carry, carry_def, program = stage_loop_body("scan", CarryTypeError, init, slices, step, _name(f))
    hoisted, consts = program.hoist_consts()
    if unroll is True:
        unroll = max(n, 1)
    elif not isinstance(unroll, int) or unroll < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("scan: unroll", got=unroll, expected="a positive int, or a bool")
    loop = LoopParams(None, 0, hoisted, len(consts), len(carry), n, bool(reverse), max(int(unroll), 1))
    # A carry that no step changes becomes a const, and a ``y`` that is an ``x`` is not stacked.
    same, first = loop.loop_invariant(), len(hoisted.inputs) - len(sequences)
    taken = [i - first if i is not None and i >= first else None for i in forwarded_inputs(hoisted)[len(carry) :]]
    loop, operands = loop.hoist_invariants(same, [*consts, *carry, *sequences])
    if any(i is not None for i in taken):
        stacked = (*(True,) * loop.num_carry, *(i is None for i in taken))
        loop = loop._replace(body=select_inputs_and_results(loop.body, loop.body.inputs, stacked))
    args, loop = loop.bound(operands)
    moved, ys = loop.results(scan_op(*args, loop=loop))
    rest = iter(ys)
    return (
        tree.unflatten(carry_def, merge_by_mask(select_by_mask(carry, same), moved, same)),
        tree.unflatten(y_defs[0], [next(rest) if i is None else sequences[i] for i in taken]),
    )


def scan_program(
    body: Program, consts: Arrays, carry: Arrays, xs: Arrays, *, length: int, **how: Any
) -> tuple[Array, ...]:
    """The final carry and ys of a body that is a program; ``how``: reverse, unroll."""
    loop = LoopParams(None, 0, body, len(consts), len(carry), length, **how)
    args, loop = loop.bound(Operands((), consts, carry, xs))
    return scan_op(*args, loop=loop)


def per_element(
    op: Op, size: int, args: Arrays, dims: Dims, params: dict[str, Any], unroll: int = 1
) -> tuple[tuple[Array, ...], Dims]:
    """`Op.batch` of an op with several results, as one call per element, in order."""
    fixed = [x for x, d in zip(args, dims, strict=True) if d is None]
    moving = [move_batch(x, d, size) for x, d in zip(args, dims, strict=True) if d is not None]

    def step(*xs: Array) -> Arrays:
        shared, own = iter(xs[: len(fixed)]), iter(xs[len(fixed) :])
        return op(*(next(shared) if d is None else next(own) for d in dims), **params)

    types = [*(x.type for x in fixed), *(x.type.with_shape(x.shape[1:]) for x in moving)]
    ys = scan_program(stage(step, types, op.name), fixed, (), moving, length=size, unroll=unroll)
    return ys, (0,) * len(ys)


def _step_by_step(
    f: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    sequences: Arrays,
    x_def: tree.TreeDef,
    n: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """`scan` as a Python loop, so that every step can be looked at."""
    ys: list[Any] = [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        carry, ys[i] = f(carry, tree.unflatten(x_def, [row(s, i) for s in sequences]))

    def stacked(*column: Any) -> Array:
        values = [as_value(y, "scan") for y in column]
        return concatenate(*(reshape(v, shape=(1, *v.shape)) for v in values), dimension=0)

    return carry, tree.map(stacked, *ys)


def _name(f: Any) -> str:
    return name_of(f, "body")


def _length(sequences: Arrays, xs: Any, given: int | None) -> int:
    names = tree.path_names(xs, "xs")
    for name, s in zip(names, sequences, strict=True):
        if not s.shape:
            raise ShapeError(
                f"scan: {name} has no axis to walk along",
                got=s.type,
                expected="at least one axis",
                fix="close over values that are the same in every step",
            )
    sizes = [s.shape[0] for s in sequences]
    if given is not None:
        try:
            length = given.__index__()
        except AttributeError:
            raise ParameterError("scan: length", got=repr(given), expected="an int") from None
        if length < 0:
            raise ParameterError("scan: length", got=length, expected="zero or more")
        if any(s != length for s in sizes):
            rows = "; ".join(f"{n}: {s.type}" for n, s in zip(names, sequences, strict=True))
            raise ShapeError("scan: xs differ from length", got=rows, expected=f"leading size {length}")
        return length
    if not sizes:
        raise ParameterError("scan: the number of steps is unknown", got="xs without leaves", fix="give length=")
    if len(set(sizes)) > 1:
        rows = "; ".join(f"{n}: {s.type}" for n, s in zip(names, sequences, strict=True))
        raise ShapeError("scan: xs differ in leading size", got=rows, expected="one size")
    return sizes[0]
