"""What `scan` and `while` share: how operands are split, and the rules that are the same for both.

A loop's operands are consts of its test, consts of its body, the carry and xs; its results are the carry and ys. The
body maps (consts..., carry..., slices of xs...) to (carry..., slices of ys...), the test (its consts..., carry...) to
one boolean. A scan has a length and no test; a while has a test, and no xs and ys. Knows no loop by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, final

from nxjax.ops.base import move_batch
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.program import Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.nested import (
    Groups,
    Mask,
    Nested,
    Thread,
    batch_to_front,
    expand_by_mask,
    fixed_point,
    forwarded_inputs,
    mask_or,
    not_none_mask,
    select_by_mask,
    select_inputs_and_results,
)
from nxjax.transforms.vmap import batch_program

T = TypeVar("T")
R = TypeVar("R")
# The parameters of a scan, in the order of `LoopParams`.
_SCAN: Final = ("body", "num_consts", "num_carry", "length", "reverse", "unroll")


class Operands(NamedTuple, Generic[T]):
    """The operands of a loop, or something about each of them."""

    test_consts: Sequence[T]
    consts: Sequence[T]
    carry: Sequence[T]
    xs: Sequence[T]

    @property
    def flat(self) -> tuple[T, ...]:
        return (*self.test_consts, *self.body)

    @property
    def body(self) -> tuple[T, ...]:
        """Those that the body takes."""
        return (*self.consts, *self.carry, *self.xs)

    @property
    def test(self) -> tuple[T, ...]:
        """Those that the test takes."""
        return (*self.test_consts, *self.carry)

    def picked(self, mask: Operands[bool]) -> Operands[T]:
        """Those that ``mask`` marks."""
        return Operands(*map(select_by_mask, self, mask))


def negated(mask: Operands[bool]) -> Operands[bool]:
    return Operands(*(tuple([not m for m in group]) for group in mask))


@final
class LoopParams(NamedTuple):
    """The parameters of a loop. ``length``: how many turns it takes; None, where ``test`` says it."""

    body: Program
    num_consts: int
    num_carry: int
    length: int | None = None
    reverse: bool = False
    unroll: int = 1
    test: Program | None = None
    num_test_consts: int = 0

    @staticmethod
    def of(params: Mapping[str, Any]) -> LoopParams:
        """The loop that an equation's parameters describe."""
        if "cond" not in params:
            return LoopParams(**params)
        body, test = params["body"], params["cond"]
        return LoopParams(
            body, params["body_nconsts"], len(body.outputs), test=test, num_test_consts=params["cond_nconsts"]
        )

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its equation."""
        if self.test is None:
            return dict(zip(_SCAN, self, strict=False))
        return {
            "cond": self.test,
            "cond_nconsts": self.num_test_consts,
            "body": self.body,
            "body_nconsts": self.num_consts,
        }

    def split(self, operands: Sequence[T]) -> Operands[T]:
        first = self.num_test_consts
        second = first + self.num_consts
        last = second + self.num_carry
        return Operands(operands[:first], operands[first:second], operands[second:last], operands[last:])

    def inside(self, inputs: Sequence[T]) -> Operands[T]:
        """As `split`, of what the body takes."""
        first, last = self.num_consts, self.num_consts + self.num_carry
        return Operands(inputs[:0], inputs[:first], inputs[first:last], inputs[last:])

    def results(self, values: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        """Carry and ys, of the loop or its body."""
        return values[: self.num_carry], values[self.num_carry :]

    def order(self) -> Sequence[int]:
        """The places of slices, turn by turn."""
        order = range(self.length or 0)
        return order[::-1] if self.reverse else order

    def bound(
        self,
        operands: Operands[Any],
        body: Program | None = None,
        test: Program | None = None,
        reverse: bool | None = None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Operands and parameters of an equation: this loop of other ``operands``, programs or direction.

        What the programs hold becomes the first consts.
        """
        test_consts, consts, carry, xs = operands
        body, held = (body or self.body).close_over()
        test, test_held = test or self.test, ()
        if test is not None:
            test, test_held = test.close_over()
        first, second = [*test_held, *test_consts], [*held, *consts]
        way = self.reverse if reverse is None else reverse
        loop = LoopParams(body, len(second), len(carry), self.length, way, self.unroll, test, len(first))
        return [*first, *second, *carry, *xs], loop.params

    def fixed_point(
        self, mask: Sequence[bool], step: Callable[[Operands[bool]], tuple[R, Mask]]
    ) -> tuple[R, Operands[bool]]:
        """``mask`` of the operands with the carry's part as every turn leaves it, and what ``step`` finds for that.

        ``step`` of a mask gives what it finds, and the carry's part after a turn.
        """
        first, consts, carry, xs = self.split(tuple(mask))
        found, carry = fixed_point(carry, lambda carry: step(Operands(first, consts, carry, xs)))
        return found, Operands(first, consts, carry, xs)

    def constant(self) -> Mask:
        """Which carries every turn hands on as they are."""
        sources = forwarded_inputs(self.body)[: self.num_carry]
        return tuple([i == self.num_consts + k for k, i in enumerate(sources)])

    def narrowed(self, operands: Operands[bool], results: Sequence[bool]) -> LoopParams:
        """The loop with the operands and results that are marked only; nothing that is left needs the others."""
        body, test = self.body, self.test
        return self._replace(
            body=select_inputs_and_results(body, select_by_mask(body.inputs, operands.body), results),
            num_consts=sum(operands.consts),
            num_carry=sum(operands.carry),
            test=None
            if test is None
            else select_inputs_and_results(test, select_by_mask(test.inputs, operands.test), (True,)),
            num_test_consts=sum(operands.test_consts),
        )

    def with_consts(self, carries: Mask, operands: Sequence[T]) -> tuple[LoopParams, Operands[T]]:
        """The loop whose ``carries``, that no turn changes, are the first consts of its programs; and its operands."""
        if not any(carries):
            return self, self.split(operands)
        body, test, moves = self.body, self.test, [not c for c in carries]

        def moved(x: Operands[Any]) -> Operands[Any]:
            first = select_by_mask(x.carry, carries)
            test_consts = () if test is None else (*first, *x.test_consts)
            return Operands(test_consts, (*first, *x.consts), select_by_mask(x.carry, moves), x.xs)

        kept = (*moves, *(True,) * (len(body.outputs) - len(moves)))
        loop = self._replace(
            body=select_inputs_and_results(body, moved(self.inside(body.inputs)).body, kept),
            num_consts=self.num_consts + sum(carries),
            num_carry=sum(moves),
        )
        if test is not None:
            n = self.num_test_consts
            inputs = moved(Operands(test.inputs[:n], (), test.inputs[n:], ())).test
            loop = loop._replace(
                test=select_inputs_and_results(test, inputs, (True,)), num_test_consts=n + sum(carries)
            )
        return loop, moved(self.split(operands))


class LoopOp(Nested):
    """The rules of a loop that its turns decide, and not what ends it."""

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        loop = LoopParams.of(params)
        (pushed, varies), mask = loop.fixed_point(not_none_mask(tangents), lambda mask: _jvp_body(loop, mask))
        ts = [instantiate(t, x) if m else None for x, t, m in zip(primals, tangents, mask.flat, strict=True)]
        x, t = loop.split(primals), loop.split(ts)
        # The test is boolean: it has no tangent.
        groups = [(*a, *select_by_mask(b, m)) for a, b, m in zip(x[1:], t[1:], mask[1:], strict=True)]
        test = loop.test and _ignoring_tangents(loop.test, loop.num_test_consts, tuple(mask.carry))
        args, params = loop.bound(Operands(x.test_consts, *groups), body=pushed, test=test)
        out = Groups(self(*args, **params))
        moves, ys_vary = loop.results(varies)
        carry, carry_t = out.take(len(moves)), expand_by_mask(out.take(sum(mask.carry)), mask.carry)
        ys, ys_t = out.take(len(ys_vary)), expand_by_mask(out.rest(), ys_vary)
        if loop.length:
            # Without a turn, tangents of carries stay those that came.
            carry_t = [t if m else None for t, m in zip(carry_t, moves, strict=True)]
        return (*carry, *ys), (*carry_t, *ys_t)

    def batch_axis(self, axis_name: Any, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        loop = LoopParams.of(params)

        def turn(mask: Operands[bool]) -> tuple[Any, Mask]:
            force = (*mask.carry, *(False,) * (len(loop.body.outputs) - loop.num_carry))
            mapped, out = batch_program(loop.body, size, mask.body, force, axis_name)
            test, varies = None, False
            if loop.test is not None:
                test, (varies,) = batch_program(loop.test, size, mask.test, None, axis_name)
            return (mapped, out, test, varies), (True,) * loop.num_carry if varies else out[: loop.num_carry]

        (mapped, out, test, varies), mask = loop.fixed_point(not_none_mask(dims), turn)
        x, d = loop.split(args), loop.split(dims)
        operands = Operands(
            batch_to_front(x.test_consts, d.test_consts, size),
            batch_to_front(x.consts, d.consts, size),
            [move_batch(x, d, size) if m else x for x, d, m in zip(x.carry, d.carry, mask.carry, strict=True)],
            [x if d is None else move_batch(x, d, size, 1) for x, d in zip(x.xs, d.xs, strict=True)],
        )
        if varies:
            test, mapped = _elementwise(test, loop.num_test_consts, mapped, loop.num_consts)
            operands = operands._replace(consts=(*operands.test_consts, *operands.consts))
        args, params = loop.bound(operands, body=mapped, test=test)
        ys_mask = loop.results(out)[1]
        return self(*args, **params), (*(0 if m else None for m in mask.carry), *(1 if m else None for m in ys_mask))

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        loop = LoopParams.of(params)
        test, at = loop.test, loop.num_test_consts
        if test is not None:
            inputs = [*test.inputs[:at], Var(ArrayType((), dtypes.bool_)), *test.inputs[at:]]
            test = select_inputs_and_results(test, inputs, (True,))
        body = thread(loop.body, loop.num_consts, 0)
        loop = loop._replace(body=body, test=test, num_carry=loop.num_carry + 1)
        return loop.params, at + loop.num_consts, 0


def _jvp_body(loop: LoopParams, mask: Operands[bool]) -> tuple[tuple[Program, Mask], Mask]:
    """The body on values and tangents, with which of its results vary; and the carries that do after a turn.

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

    made = body.derive(("loop jvp", mask.body, loop.num_consts, loop.num_carry), make)
    return made, mask_or(mask.carry, made[1][: loop.num_carry])


def _ignoring_tangents(test: Program, num_consts: int, mask: Mask) -> Program:
    """``test`` with the carry's tangents as further inputs."""

    def make() -> Program:
        n = len(test.inputs)
        t_types = [t.strong() for t in select_by_mask(test.in_types[num_consts:], mask)]
        return stage(lambda *xs: run(test, xs[:n]), [*test.in_types, *t_types], test.name)

    return test.derive(("loop jvp", num_consts, mask), make)


def _elementwise(test: Program, num_test_consts: int, body: Program, num_consts: int) -> tuple[Program, Program]:
    """A loop that goes on while the batched ``test`` holds for any element, and keeps elements that are done.

    The body takes the test's consts before its own.
    """

    def make() -> tuple[Program, Program]:
        from nxjax.ops.reduce import reduce_or

        def any_left(*xs: Array) -> Arrays:
            return [reduce_or(run(test, xs)[0], axes=(0,))]

        def step(*xs: Array) -> Arrays:
            rest = Groups(xs)
            test_consts, consts, carry = rest.take(num_test_consts), rest.take(num_consts), rest.rest()
            (going,) = run(test, [*test_consts, *carry])
            new = run(body, [*consts, *carry])
            return [_choose(going, y, x) for x, y in zip(carry, new, strict=True)]

        types = [*test.in_types[:num_test_consts], *body.in_types]
        return stage(any_left, test.in_types, test.name), stage(step, types, body.name)

    return body.derive(("loop elementwise", test, num_test_consts, num_consts), make)


def _choose(which: Array, yes: Array, no: Array) -> Array:
    """``yes`` where ``which`` holds, else ``no``; ``which`` has leading axes of them."""
    from nxjax.ops.select import select_n

    if which.shape != yes.shape:
        which = broadcast_in_dim(which, shape=yes.shape, broadcast_dimensions=tuple(range(which.ndim)))
    return select_n(which, no, yes)
