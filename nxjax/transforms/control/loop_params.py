"""What a loop is: its programs, and which operands are theirs. Knows no op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, final

from nxjax.trace.program import Program
from nxjax.transforms.subprograms import Mask, fixed_point, forwarded_inputs, select_by_mask, select_inputs_and_results

T = TypeVar("T")
R = TypeVar("R")


class Operands(NamedTuple, Generic[T]):
    """The operands of a loop, or something about each of them."""

    cond_consts: Sequence[T]
    consts: Sequence[T]
    carry: Sequence[T]
    xs: Sequence[T]

    @property
    def flat(self) -> tuple[T, ...]:
        return (*self.cond_consts, *self.body_inputs)

    @property
    def body_inputs(self) -> tuple[T, ...]:
        """Those that the body takes."""
        return (*self.consts, *self.carry, *self.xs)

    @property
    def cond_inputs(self) -> tuple[T, ...]:
        """Those that the condition takes."""
        return (*self.cond_consts, *self.carry)

    def masked(self, mask: Operands[bool]) -> Operands[T]:
        """Those that ``mask`` marks."""
        return Operands(*map(select_by_mask, self, mask))


def invert(mask: Operands[bool]) -> Operands[bool]:
    return Operands(*(tuple([not m for m in group]) for group in mask))


@final
class LoopParams(NamedTuple):
    """What a loop is: the parameter ``loop`` of its op.

    Attributes:
        cond: decides before each step whether it is done; None where ``length`` says how many steps there are.
        num_cond_consts, num_consts: how many operands are the consts of the condition, and of the body.
    """

    cond: Program | None
    num_cond_consts: int
    body: Program
    num_consts: int
    num_carry: int
    length: int | None = None
    reverse: bool = False
    unroll: int = 1

    @property
    def condition(self) -> Program:
        """``cond``, of a loop that has one."""
        assert self.cond is not None
        return self.cond

    def split(self, operands: Sequence[T]) -> Operands[T]:
        first = self.num_cond_consts
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

    def derive(self, key: tuple[Any, ...], make: Callable[[], R]) -> R:
        """What ``make`` makes of the body as that of this loop; kept with the body."""
        return self.body.derive((*key, self.num_consts, self.num_carry), make)

    def step_indices(self) -> Sequence[int]:
        """The places of the slices, step by step."""
        indices = range(self.length or 0)
        return indices[::-1] if self.reverse else indices

    def bound(
        self,
        operands: Operands[Any],
        body: Program | None = None,
        cond: Program | None = None,
        reverse: bool | None = None,
    ) -> tuple[list[Any], LoopParams]:
        """Operands and the loop that takes them: this one with other operands, programs or direction.

        What the programs hold becomes the first consts.
        """
        cond_consts, consts, carry, xs = operands
        body, held = (body or self.body).hoist_consts()
        cond = cond or self.cond
        cond, cond_held = (None, ()) if cond is None else cond.hoist_consts()
        first, second = [*cond_held, *cond_consts], [*held, *consts]
        way = self.reverse if reverse is None else reverse
        loop = LoopParams(cond, len(first), body, len(second), len(carry), self.length, way, self.unroll)
        return [*first, *second, *carry, *xs], loop

    def fixed_point(
        self, mask: Sequence[bool], rule: Callable[[Operands[bool]], tuple[R, Mask]]
    ) -> tuple[R, Operands[bool]]:
        """The mask that a step leaves as it is, and what ``rule`` gives for that mask.

        ``mask`` marks operands before the first step. ``rule`` takes a mask; it gives a result, and the marks of the
        carry after a step with that mask.
        """
        first, consts, carry, xs = self.split(tuple(mask))
        found, carry = fixed_point(carry, lambda carry: rule(Operands(first, consts, carry, xs)))
        return found, Operands(first, consts, carry, xs)

    def loop_invariant(self) -> Mask:
        """Which carries stay the same in every step."""
        sources = forwarded_inputs(self.body)[: self.num_carry]
        return tuple([i == self.num_consts + k for k, i in enumerate(sources)])

    def dce(self, operands: Operands[bool], results: Sequence[bool]) -> LoopParams:
        """The loop with the operands and results that are marked only; nothing that is left needs the others."""
        body, cond = self.body, self.cond
        return self._replace(
            body=select_inputs_and_results(body, select_by_mask(body.inputs, operands.body_inputs), results),
            num_consts=sum(operands.consts),
            num_carry=sum(operands.carry),
            cond=None
            if cond is None
            else select_inputs_and_results(cond, select_by_mask(cond.inputs, operands.cond_inputs), (True,)),
            num_cond_consts=sum(operands.cond_consts),
        )

    def hoist_invariants(self, carries: Mask, operands: Sequence[T]) -> tuple[LoopParams, Operands[T]]:
        """The loop with ``carries``, which no step changes, as the first consts of its programs; and its operands."""
        if not any(carries):
            return self, self.split(operands)
        body, cond, moves = self.body, self.cond, [not c for c in carries]

        def moved(x: Operands[Any]) -> Operands[Any]:
            first = select_by_mask(x.carry, carries)
            cond_consts = () if cond is None else (*first, *x.cond_consts)
            return Operands(cond_consts, (*first, *x.consts), select_by_mask(x.carry, moves), x.xs)

        kept = (*moves, *(True,) * (len(body.outputs) - len(moves)))
        loop = self._replace(
            body=select_inputs_and_results(body, moved(self.inside(body.inputs)).body_inputs, kept),
            num_consts=self.num_consts + sum(carries),
            num_carry=sum(moves),
        )
        if cond is not None:
            n = self.num_cond_consts
            inputs = moved(Operands(cond.inputs[:n], (), cond.inputs[n:], ())).cond_inputs
            loop = loop._replace(
                cond=select_inputs_and_results(cond, inputs, (True,)), num_cond_consts=n + sum(carries)
            )
        return loop, moved(self.split(operands))
