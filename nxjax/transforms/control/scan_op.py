"""The op `Scan`: a loop with a fixed number of steps, which holds its body once.

The body maps (consts..., carry..., slices of xs...) to (carry..., slices of ys...). Every transform of a scan is a scan
of the transformed body, which is kept with the body; the only other work in a rule is to find out which carries take
part. `jvp` and `batch_axis` are those of any loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add
from nxjax.ops.base import NDArray, check_carry, check_operands, require, zeros
from nxjax.trace.core import Array, Arrays, Tangents, UndefinedPrimal, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Equation, Literal, Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop import LoopOp
from nxjax.transforms.control.loop_params import LoopParams, Operands, invert
from nxjax.transforms.partial_eval import PartialEvalResult, PartialTrace, partial_eval
from nxjax.transforms.subprograms import (
    Groups,
    Mask,
    dependent_results,
    expand_by_mask,
    mask_or,
    merge_by_mask,
    not_none_mask,
    required_equations,
    select_by_mask,
    select_inputs_and_results,
)
from nxjax.transforms.transpose import backward_pass


@final
class Scan(LoopOp):
    """``length`` steps of ``body``; operands are consts, initial carry and xs, results final carry and ys."""

    name = "scan"
    # Releases of JAX before 0.9 also say which operands are linear.
    aliases = {"jaxpr": "body", "linear": "", "_split_transpose": ""}
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
            out = trace.process_known(self, inputs, {"loop": value})
        n = sum(cut.known_out)
        if not (cut.rest.outputs or cut.rest.effect):
            return tuple(out[:n])
        # Residuals that do not change from step to step are computed once, and xs need no second copy.
        assert trace.parent is not None
        with use(trace.parent):
            hoisted = run(cut.prelude, early.consts)
        late = late._replace(consts=(*hoisted, *late.consts), xs=(*(early.xs[i] for i in cut.xs), *out[n:], *late.xs))
        inputs, rest = loop.bound(late, body=cut.rest)
        return tuple(merge_by_mask(out, trace.process_unknown(self, inputs, {"loop": rest}), cut.known_out))

    def transpose(self, cts: Tangents, *args: Any, loop: LoopParams) -> Tangents:
        given = tuple(isinstance(x, UndefinedPrimal) for x in args)
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


@final
class CutBody(NamedTuple):
    """A body cut for `Scan.partial_eval`.

    Attributes:
        mask: which operands are known; a carry is where each step finds it from what is known.
        known_out: which results are known.
        value: known operands to (known results..., residuals that must be stacked...).
        prelude: known consts to the residuals that are the same in every step.
        xs: positions among the known xs of residuals that are slices of them.
        rest: (prelude residuals, unknown consts; unknown carries; xs residuals, stacked residuals, unknown xs) to
            the unknown results.
    """

    mask: Operands[bool]
    known_out: Mask
    value: Program
    prelude: Program
    xs: tuple[int, ...]
    rest: Program


def partial_eval_body(loop: LoopParams, known: Mask) -> CutBody:
    return loop.derive(("scan cut", known), lambda: _cut(loop, known))


def _cut(loop: LoopParams, known: Mask) -> CutBody:
    body, free = loop.body, (False,) * (len(loop.body.outputs) - loop.num_carry)

    def step(mask: Operands[bool]) -> tuple[PartialEvalResult, Mask]:
        late = (*(not k for k in mask.carry), *free)
        halves = partial_eval(body, mask.body_inputs, unknown_out=late)
        return halves, halves.known_out[: loop.num_carry]

    halves, mask = loop.fixed_point(known, step)
    first, n_consts, n_carry = halves.known, sum(mask.consts), sum(mask.carry)
    residuals = halves.residuals(first.inputs, first.outputs)
    variables = halves.unknown.inputs[: len(residuals)]
    fixed, invariant = _invariant(first, n_consts)
    hoist = [isinstance(a, Literal) or a in fixed for a in residuals]
    slices = {v: i for i, v in enumerate(first.inputs[n_consts + n_carry :])}
    is_slice = [a in slices for a in residuals]
    stack = [not h and not s for h, s in zip(hoist, is_slice, strict=True)]
    hoisted = select_by_mask(residuals, hoist)
    wanted = {a for a in hoisted if isinstance(a, Var)}
    prelude = Program(
        first.inputs[:n_consts],
        required_equations(invariant, wanted, set()),
        hoisted,
        first.constvars,
        first.values,
        f"prelude({body.name})",
    )
    outputs = [*first.outputs[: sum(halves.known_out)], *select_by_mask(residuals, stack)]
    value = Program(first.inputs, first.equations, outputs, first.constvars, first.values, first.name)
    late = Groups(halves.unknown.inputs[len(residuals) :])
    inputs = [
        *select_by_mask(variables, hoist),
        *late.take(loop.num_consts - n_consts),
        *late.take(loop.num_carry - n_carry),
        *select_by_mask(variables, is_slice),
        *select_by_mask(variables, stack),
        *late.rest(),
    ]
    rest = select_inputs_and_results(halves.unknown, inputs, (True,) * len(halves.unknown.outputs))
    positions = tuple(slices[a] for a, s in zip(residuals, is_slice, strict=True) if s)
    return CutBody(mask, halves.known_out, value, prelude, positions, rest)


def _invariant(body: Program, n_consts: int) -> tuple[set[Var], list[Equation]]:
    """The variables that are the same in every step, and the equations that make them of the consts."""
    fixed: set[Var] = {*body.inputs[:n_consts], *body.constvars}
    found: list[Equation] = []
    for e in body.equations:
        if not e.effect and all(isinstance(a, Literal) or a in fixed for a in e.inputs):
            found.append(e)
            fixed.update(e.outputs)
    return fixed, found


def transpose_body(loop: LoopParams, linear: Operands[bool], nonzero: Mask) -> Program:
    """(known consts; cts of linear consts, of carry; known slices, known carries, cts of ys) to
    (cts of linear consts, of carry; cts of linear slices)."""
    body, known, inner = loop.body, invert(linear), loop.inside(loop.body.inputs)

    def flat(*args: Array) -> Arrays:
        rest = Groups(args)
        k_consts = rest.take(sum(known.consts))
        ct_consts, ct_carry = rest.take(sum(linear.consts)), rest.take(sum(linear.carry))
        k_xs, k_carry = rest.take(sum(known.xs)), rest.take(sum(known.carry))
        values = expand_by_mask([*k_consts, *k_carry, *k_xs], known.body_inputs)
        found = loop.inside(
            backward_pass(
                body, values, [*expand_by_mask(ct_carry, linear.carry), *expand_by_mask(rest.rest(), nonzero)]
            )
        )
        sums = [
            c if f is None else add(c, f)
            for c, f in zip(ct_consts, select_by_mask(found.consts, linear.consts), strict=True)
        ]
        columns = (*found.carry, *found.xs), (*inner.carry, *inner.xs), (*linear.carry, *linear.xs)
        others = [zeros(v.type) if ct is None else ct for ct, v, m in zip(*columns, strict=True) if m]
        return [*sums, *others]

    def make() -> Program:
        t = loop.inside(body.in_types)
        k, l = t.masked(known), t.masked(linear)
        types = [
            *k.consts,
            *(t.strong() for t in (*l.consts, *l.carry)),
            *k.xs,
            *k.carry,
            *(t.strong() for t in select_by_mask(loop.results(body.out_types)[1], nonzero)),
        ]
        return stage(flat, types, f"transpose({body.name})")

    return loop.derive(("scan transpose", linear.body_inputs, nonzero), make)


scan_op = Scan()
