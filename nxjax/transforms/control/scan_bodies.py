"""What the transforms of a scan make of its body: with tangents, cut into value and linear part, transposed.

Each is a program kept with the body, in the order of operands that `Scan` has: consts, carry, slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.trace.core import Array
from nxjax.trace.program import Literal, Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.linearize import linearized
from nxjax.transforms.nested import Groups, Mask, either, needed, picked, present, spread
from nxjax.transforms.transpose import backward


def jvp_body(body: Program, mask: Mask, num_consts: int, num_carry: int) -> tuple[Program, Mask, Mask]:
    """The body on values and tangents, which ys vary, and ``mask`` grown by the carries that vary after a step.

    Inputs are consts, their tangents, carry, its tangents, slices, their tangents; results likewise.
    """
    counts = (num_consts, num_carry, len(mask) - num_consts - num_carry)

    def make() -> tuple[Program, Mask, Mask]:
        store: list[tuple[Mask, Mask]] = []
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
            carry_grown = either(carry_mask, present(out_t[:num_carry]))
            ys_vary = present(out_t[num_carry:])
            store[:] = [(ys_vary, (*mask[:num_consts], *carry_grown, *mask[num_consts + num_carry :]))]
            carry_t = [
                instantiate(t, y) for y, t, m in zip(out[:num_carry], out_t[:num_carry], carry_mask, strict=True) if m
            ]
            return [*out[:num_carry], *carry_t, *out[num_carry:], *picked(out_t[num_carry:], ys_vary)]

        return stage(flat, types, f"jvp({body.name})"), *store[0]

    return body.derive(("scan jvp", mask, num_consts, num_carry), make)


@final
class LinearBody:
    """A body cut for `Scan.linearize`.

    Attributes:
        value: the body with residuals that must be stacked as further ys.
        prelude: consts to the residuals that are the same in every step.
        xs: positions among the operands of residuals that are slices of xs.
        tangent: (prelude residuals, varying consts' tangents; carry tangents; xs residuals, stacked residuals,
            varying xs' tangents) to (carry tangents; tangents of varying ys).
    """

    def __init__(self, value: Program, prelude: Program, xs: Sequence[int], tangent: Program) -> None:
        self.value = value
        self.prelude = prelude
        self.xs = tuple(xs)
        self.tangent = tangent


def linear_body(body: Program, mask: Mask, num_consts: int, num_carry: int) -> LinearBody:
    return body.derive(("scan linearize", mask, num_consts, num_carry), lambda: _cut(body, mask, num_consts, num_carry))


def _cut(body: Program, mask: Mask, num_consts: int, num_carry: int) -> LinearBody:
    value, tangent, varies = linearized(body, mask)
    n, whole = len(body.outputs), num_consts + num_carry
    residuals = value.outputs[n:]
    fixed: set[Var] = {*value.inputs[:num_consts], *value.constvars}
    fixed_equations = [
        e
        for e in value.equations
        if _reads_only(e.inputs, fixed)
        and not e.op.effect
        and not any(p.effect for p in e.programs())
        and not fixed.update(e.outputs)
    ]
    slices = {v: i for i, v in enumerate(value.inputs) if i >= whole}
    hoist = [isinstance(a, Literal) or a in fixed for a in residuals]
    is_slice = [isinstance(a, Var) and a in slices for a in residuals]
    stack = [not h and not s for h, s in zip(hoist, is_slice, strict=True)]
    hoisted = picked(residuals, hoist)
    wanted = {a for a in hoisted if isinstance(a, Var)}
    prelude = Program(
        value.inputs[:num_consts],
        needed(fixed_equations, wanted, set()),
        hoisted,
        value.constvars,
        value.values,
        f"prelude({body.name})",
    )
    stacking = Program(
        value.inputs,
        value.equations,
        [*value.outputs[:n], *picked(residuals, stack)],
        value.constvars,
        value.values,
        value.name,
    )

    types = [a.type for a in residuals]
    t_types = [t.strong() for t in picked(body.in_types, mask)]
    carry_mask = mask[num_consts:whole]
    n_tc, n_tk = sum(mask[:num_consts]), sum(carry_mask)

    def flat(*args: Array) -> Sequence[Array]:
        rest = Groups(args)
        fixed_values, tc, tk = iter(rest.take(sum(hoist))), rest.take(n_tc), rest.take(n_tk)
        slice_values, stacked_values = iter(rest.take(sum(is_slice))), iter(rest.take(sum(stack)))
        values = [
            next(fixed_values) if h else next(slice_values) if s else next(stacked_values)
            for h, s in zip(hoist, is_slice, strict=True)
        ]
        found = iter(run(tangent, [*values, *tc, *tk, *rest.rest()]))
        ts = [next(found) if v else None for v in varies]
        carry_t = [
            _written_out(t, type)
            for t, type, m in zip(ts[:num_carry], body.out_types[:num_carry], carry_mask, strict=True)
            if m
        ]
        return [*carry_t, *(t for t in ts[num_carry:] if t is not None)]

    order = [
        *picked(types, hoist),
        *t_types[: n_tc + n_tk],
        *picked(types, is_slice),
        *picked(types, stack),
        *t_types[n_tc + n_tk :],
    ]
    positions = [slices[a] for a in residuals if isinstance(a, Var) and a in slices]
    return LinearBody(stacking, prelude, positions, stage(flat, order, tangent.name))


def _written_out(t: Array | None, type: ArrayType) -> Array:
    return zeros(type) if t is None else t


def _reads_only(atoms: Sequence[Any], known: set[Var]) -> bool:
    return all(isinstance(a, Literal) or a in known for a in atoms)


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
