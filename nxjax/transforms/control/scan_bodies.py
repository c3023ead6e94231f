"""What the transforms of a scan make of its body: cut into value and linear part, transposed.

Each is a program kept with the body, in the order of operands that `Scan` has: consts, carry, slices.
"""

from __future__ import annotations

from typing import NamedTuple, final

from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.trace.core import Array, Arrays
from nxjax.trace.program import Equation, Literal, Program, Var
from nxjax.trace.stage import stage
from nxjax.transforms.control.loop import LoopParams, Operands, invert
from nxjax.transforms.nested import (
    Groups,
    Mask,
    expand_by_mask,
    required_equations,
    select_by_mask,
    select_inputs_and_results,
)
from nxjax.transforms.partial_eval import PartialEvalResult, partial_eval
from nxjax.transforms.transpose import backward_pass


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
