"""What `scan` and `while` share: the rules that are the same for both. How operands are split is `loop_params`.

A loop's operands are consts of its condition, consts of its body, the carry and xs; its results are the carry and ys.
The body maps (consts..., carry..., slices of xs...) to (carry..., slices of ys...), the condition (its consts...,
carry...) to one boolean. A scan has a length and no condition; a while has a condition, and no xs and ys. Knows no loop
by its name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nxjax.ops.base import check_count, move_batch
from nxjax.ops.collectives import as_varying
from nxjax.ops.reduce import reduce_or
from nxjax.ops.select import select_leading
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.kinds import check_fields
from nxjax.trace.program import Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams, Operands
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.nested import Nested, Thread, batch_to_front, pvary_inputs, pvary_results
from nxjax.transforms.subprograms import (
    Groups,
    Mask,
    expand_by_mask,
    fixed_point,
    mask_or,
    not_none_mask,
    select_by_mask,
    select_inputs_and_results,
)
from nxjax.transforms.vmap import batch_program


class LoopOp(Nested):
    """The rules of a loop that do not depend on what ends it."""

    # Fields of `LoopParams`, and how programs name them.
    fields: ClassVar[dict[str, str]]

    def unpack_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: getattr(params["loop"], field) for field, name in self.fields.items()}

    @abstractmethod
    def pack_params(self, params: Mapping[str, Any]) -> dict[str, Any]: ...

    def loop_fields(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of `LoopParams`, of parameters as programs name them; what is not there is as in ``loop``."""
        apart = {name: value for name, value in params.items() if name != "loop"}
        if "loop" in params:
            apart = {**self.unpack_params(params), **apart}
        check_fields(self, apart, LoopParams, self.fields)
        return {field: apart[name] for field, name in self.fields.items()}

    def operands(self, types: Sequence[ArrayType], loop: LoopParams) -> Operands[ArrayType]:
        """``types`` as the operands of ``loop``."""
        left = len(types)
        for field in ("num_cond_consts", "num_consts", "num_carry"):
            left -= check_count(self, self.fields.get(field, field), getattr(loop, field), left)
        return loop.split(types)

    def pvary_operands(self, args: Arrays, params: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        loop: LoopParams = params["loop"]
        x, vmas = loop.split(args), loop.split([a.type.vma for a in args])

        def step(carry: tuple[frozenset[Any], ...]) -> tuple[Program, tuple[frozenset[Any], ...]]:
            body = pvary_inputs(loop.body, vmas._replace(carry=carry).body_inputs)
            after, _ = loop.results(body.out_types)
            return body, tuple([vma | t.vma for vma, t in zip(carry, after, strict=True)])

        body, carry = fixed_point(tuple(vmas.carry), step)
        body = pvary_results(body, [*carry, *(frozenset(),) * (len(body.outputs) - len(carry))])
        cond = loop.cond and pvary_inputs(loop.cond, vmas._replace(carry=carry).cond_inputs)
        start = [as_varying(c, vma) for c, vma in zip(x.carry, carry, strict=True)]
        return x._replace(carry=start).flat, {"loop": loop._replace(body=body, cond=cond)}

    def jvp(self, primals: Arrays, tangents: Tangents, *, loop: LoopParams) -> tuple[Any, Any]:
        (pushed, varies), mask = loop.fixed_point(not_none_mask(tangents), lambda mask: _jvp_body(loop, mask))
        ts = [instantiate(t, x) if m else None for x, t, m in zip(primals, tangents, mask.flat, strict=True)]
        x, t = loop.split(primals), loop.split(ts)
        # The condition is boolean: it has no tangent.
        groups = [(*a, *select_by_mask(b, m)) for a, b, m in zip(x[1:], t[1:], mask[1:], strict=True)]
        cond = loop.cond and _ignoring_tangents(loop.cond, loop.num_cond_consts, tuple(mask.carry))
        args, wider = loop.bound(Operands(x.cond_consts, *groups), body=pushed, cond=cond)
        out = Groups(self(*args, loop=wider))
        moves, ys_vary = loop.results(varies)
        carry, carry_t = out.take(len(moves)), expand_by_mask(out.take(sum(mask.carry)), mask.carry)
        ys, ys_t = out.take(len(ys_vary)), expand_by_mask(out.rest(), ys_vary)
        if loop.length:
            # A loop of no steps gives the tangents of its carries as they came.
            carry_t = [t if m else None for t, m in zip(carry_t, moves, strict=True)]
        return (*carry, *ys), (*carry_t, *ys_t)

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, loop: LoopParams) -> tuple[Any, Any]:
        def step(mask: Operands[bool]) -> tuple[Any, Mask]:
            force = (*mask.carry, *(False,) * (len(loop.body.outputs) - loop.num_carry))
            mapped, out = batch_program(loop.body, size, mask.body_inputs, force, axis_name)
            cond, varies = None, False
            if loop.cond is not None:
                cond, (varies,) = batch_program(loop.cond, size, mask.cond_inputs, None, axis_name)
            return (mapped, out, cond, varies), (True,) * loop.num_carry if varies else out[: loop.num_carry]

        (mapped, out, cond, varies), mask = loop.fixed_point(not_none_mask(dims), step)
        x, d = loop.split(args), loop.split(dims)
        operands = Operands(
            batch_to_front(x.cond_consts, d.cond_consts, size),
            batch_to_front(x.consts, d.consts, size),
            [move_batch(x, d, size) if m else x for x, d, m in zip(x.carry, d.carry, mask.carry, strict=True)],
            [x if d is None else move_batch(x, d, size, 1) for x, d in zip(x.xs, d.xs, strict=True)],
        )
        if varies:
            cond, mapped = _elementwise(cond, loop.num_cond_consts, mapped, loop.num_consts)
            operands = operands._replace(consts=(*operands.cond_consts, *operands.consts))
        args, batched = loop.bound(operands, body=mapped, cond=cond)
        out_dims = (*(0 if m else None for m in mask.carry), *(1 if m else None for m in loop.results(out)[1]))
        return self(*args, loop=batched), out_dims

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        loop: LoopParams = params["loop"]
        cond, at = loop.cond, loop.num_cond_consts
        if cond is not None:
            inputs = [*cond.inputs[:at], Var(ArrayType((), dtypes.bool_)), *cond.inputs[at:]]
            cond = select_inputs_and_results(cond, inputs, (True,))
        body = thread(loop.body, loop.num_consts, 0)
        loop = loop._replace(body=body, cond=cond, num_carry=loop.num_carry + 1)
        return {"loop": loop}, at + loop.num_consts, 0


def _jvp_body(loop: LoopParams, mask: Operands[bool]) -> tuple[tuple[Program, Mask], Mask]:
    """The body on values and tangents, which results vary, and which carries vary after a step.

    Inputs are consts, their tangents, carry, its tangents, slices, their tangents; results likewise.
    """
    body = loop.body

    def make() -> tuple[Program, Mask]:
        varies: list[Mask] = []
        types: list[ArrayType] = []
        for group, m in zip(loop.inside(body.in_types)[1:], mask[1:], strict=True):
            types += [*group, *(t.strong() for t in select_by_mask(group, m))]

        def flat(*args: Array) -> Arrays:
            rest, xs, ts = Groups(args), list[Array](), list[Array | None]()
            for m in mask[1:]:
                xs += rest.take(len(m))
                ts += expand_by_mask(rest.take(sum(m)), m)
            out, out_t = jvp_flat(body, xs, ts)
            varies[:] = [not_none_mask(out_t)]
            (carry, ys), (carry_t, ys_t) = loop.results(out), loop.results(out_t)
            filled = [instantiate(t, y) for y, t, m in zip(carry, carry_t, mask.carry, strict=True) if m]
            return [*carry, *filled, *ys, *(t for t in ys_t if t is not None)]

        return stage(flat, types, f"jvp({body.name})"), varies[0]

    made = loop.derive(("loop jvp", mask.body_inputs), make)
    return made, mask_or(mask.carry, made[1][: loop.num_carry])


def _ignoring_tangents(cond: Program, num_consts: int, mask: Mask) -> Program:
    """``cond`` with the carry's tangents as further inputs."""

    def make() -> Program:
        n = len(cond.inputs)
        t_types = [t.strong() for t in select_by_mask(cond.in_types[num_consts:], mask)]
        return stage(lambda *xs: run(cond, xs[:n]), [*cond.in_types, *t_types], cond.name)

    return cond.derive(("loop jvp", num_consts, mask), make)


def _elementwise(cond: Program, num_cond_consts: int, body: Program, num_consts: int) -> tuple[Program, Program]:
    """A loop that goes on while the batched ``cond`` holds for any element, and keeps elements that are done.

    The body takes the condition's consts before its own.
    """

    def make() -> tuple[Program, Program]:
        def any_left(*xs: Array) -> Arrays:
            return [reduce_or(run(cond, xs)[0], axes=(0,))]

        def step(*xs: Array) -> Arrays:
            rest = Groups(xs)
            cond_consts, consts, carry = rest.take(num_cond_consts), rest.take(num_consts), rest.rest()
            (going,) = run(cond, [*cond_consts, *carry])
            new = run(body, [*consts, *carry])
            return [select_leading(going, x, y) for x, y in zip(carry, new, strict=True)]

        types = [*cond.in_types[:num_cond_consts], *body.in_types]
        return stage(any_left, cond.in_types, cond.name), stage(step, types, body.name)

    return body.derive(("loop elementwise", cond, num_cond_consts, num_consts), make)
