"""What the transforms of a scan make of its body: with tangents, cut into value and linear part, transposed.

Each is a program kept with the body, in the order of operands that `Scan` has: consts, carry, slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.trace.core import Array
from nxjax.trace.program import Literal, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.nested import Groups, Mask, either, narrowed, needed, picked, present, spread
from nxjax.transforms.partial_eval import partial_eval
from nxjax.transforms.transpose import backward


def jvp_body(body: Program, mask: Mask, num_consts: int, num_carry: int) -> tuple[Program, Mask, Mask, Mask]:
    """The body on values and tangents, which carries and ys vary after a step, and ``mask`` grown by these carries.

    Inputs are consts, their tangents, carry, its tangents, slices, their tangents; results likewise.
    """
    counts = (num_consts, num_carry, len(mask) - num_consts - num_carry)

    def make() -> tuple[Program, Mask, Mask, Mask]:
        store: list[tuple[Mask, Mask, Mask]] = []
        types: list[ArrayType] = []
        groups, masks = Groups(body.in_types), Groups(mask)
        for n in counts:
            group = groups.take(n)
            types += [*group, *(t.strong() for t in picked(group, masks.take(n)))]

        def flat(*args: Array) -> Sequence[Array]:
            rest, masks = Groups(args), Groups(mask)
            xs: list[Array] = []
            ts: list[Array | None] = []
            for n in counts:
                m = masks.take(n)
                xs += rest.take(n)
                ts += spread(rest.take(sum(m)), m)
            out, out_t = jvp_flat(body, xs, ts)
            carry_mask = mask[num_consts : num_consts + num_carry]
            moves, ys_vary = present(out_t[:num_carry]), present(out_t[num_carry:])
            carry_grown = either(carry_mask, moves)
            store[:] = [(moves, ys_vary, (*mask[:num_consts], *carry_grown, *mask[num_consts + num_carry :]))]
            carry_t = [
                instantiate(t, y) for y, t, m in zip(out[:num_carry], out_t[:num_carry], carry_mask, strict=True) if m
            ]
            return [*out[:num_carry], *carry_t, *out[num_carry:], *picked(out_t[num_carry:], ys_vary)]

        return stage(flat, types, f"jvp({body.name})"), *store[0]

    return body.derive(("scan jvp", mask, num_consts, num_carry), make)


@final
@dataclass(frozen=True)
class CutBody:
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

    mask: Mask
    known_out: Mask
    value: Program
    prelude: Program
    xs: tuple[int, ...]
    rest: Program


def cut_body(body: Program, known: Mask, num_consts: int, num_carry: int) -> CutBody:
    return body.derive(("scan cut", known, num_consts, num_carry), lambda: _cut(body, known, num_consts, num_carry))


def _cut(body: Program, known: Mask, num_consts: int, num_carry: int) -> CutBody:
    whole = num_consts + num_carry
    free = (False,) * (len(body.outputs) - num_carry)
    while True:
        carry = known[num_consts:whole]
        halves = partial_eval(body, known, unknown_out=(*(not k for k in carry), *free))
        if halves.known_out[:num_carry] == carry:
            break
        known = (*known[:num_consts], *halves.known_out[:num_carry], *known[whole:])
    first, n_consts, n_carry = halves.known, sum(known[:num_consts]), sum(carry)
    fixed: set[Var] = {*first.inputs[:n_consts], *first.constvars}
    invariant = [
        e
        for e in first.equations
        if all(isinstance(a, Literal) or a in fixed for a in e.inputs) and not e.effect and not fixed.update(e.outputs)
    ]
    residuals = halves.residuals(first.inputs, first.outputs)
    variables = halves.unknown.inputs[: len(residuals)]
    hoist = [isinstance(a, Literal) or a in fixed for a in residuals]
    slices = {v: i for i, v in enumerate(first.inputs[n_consts + n_carry :])}
    is_slice = [a in slices for a in residuals]
    stack = [not h and not s for h, s in zip(hoist, is_slice, strict=True)]
    hoisted = picked(residuals, hoist)
    prelude = Program(
        first.inputs[:n_consts],
        needed(invariant, {a for a in hoisted if isinstance(a, Var)}, set()),
        hoisted,
        first.constvars,
        first.values,
        f"prelude({body.name})",
    )
    outputs = [*first.outputs[: sum(halves.known_out)], *picked(residuals, stack)]
    value = Program(first.inputs, first.equations, outputs, first.constvars, first.values, first.name)
    late = Groups(halves.unknown.inputs[len(residuals) :])
    inputs = [
        *picked(variables, hoist),
        *late.take(num_consts - n_consts),
        *late.take(num_carry - n_carry),
        *picked(variables, is_slice),
        *picked(variables, stack),
        *late.rest(),
    ]
    rest = narrowed(halves.unknown, inputs, (True,) * len(halves.unknown.outputs))
    positions = tuple(slices[a] for a, s in zip(residuals, is_slice, strict=True) if s)
    return CutBody(known, halves.known_out, value, prelude, positions, rest)


def transposed_body(body: Program, linear: Mask, nonzero: Mask, num_consts: int, num_carry: int) -> Program:
    """(known consts; cts of linear consts, of carry; known slices, known carries, cts of ys) to
    (cts of linear consts, of carry; cts of linear slices)."""
    whole = num_consts + num_carry
    m_consts, m_carry, m_xs = linear[:num_consts], linear[num_consts:whole], linear[whole:]
    t_consts, t_carry, t_xs = body.in_types[:num_consts], body.in_types[num_consts:whole], body.in_types[whole:]
    t_ys = body.out_types[num_carry:]

    def flat(*args: Array) -> Sequence[Array]:
        rest = Groups(args)
        k_consts = rest.take(num_consts - sum(m_consts))
        ct_consts, ct_carry = rest.take(sum(m_consts)), rest.take(sum(m_carry))
        k_xs, k_carry = rest.take(len(m_xs) - sum(m_xs)), rest.take(num_carry - sum(m_carry))
        values = [
            *spread(k_consts, [not m for m in m_consts]),
            *spread(k_carry, [not m for m in m_carry]),
            *spread(k_xs, [not m for m in m_xs]),
        ]
        found = backward(body, values, [*spread(ct_carry, m_carry), *spread(rest.rest(), nonzero)])
        sums = [
            c if f is None else add(c, f) for c, f in zip(ct_consts, picked(found[:num_consts], m_consts), strict=True)
        ]
        others = [
            zeros(t) if ct is None else ct
            for ct, t, m in zip(found[num_consts:], (*t_carry, *t_xs), (*m_carry, *m_xs), strict=True)
            if m
        ]
        return [*sums, *others]

    def make() -> Program:
        types = [
            *picked(t_consts, [not m for m in m_consts]),
            *(t.strong() for t in (*picked(t_consts, m_consts), *picked(t_carry, m_carry))),
            *picked(t_xs, [not m for m in m_xs]),
            *picked(t_carry, [not m for m in m_carry]),
            *(t.strong() for t in picked(t_ys, nonzero)),
        ]
        return stage(flat, types, f"transpose({body.name})")

    return body.derive(("scan transpose", linear, nonzero, num_consts, num_carry), make)
