"""Which steps have helpers: by their own cost, or as a chain of short ones."""

from dataclasses import dataclass

import pytest

from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import KernelCost
from nxjax.lower.cpu.sharing import _chains, shared
from nxjax.lower.cpu.tape import Buffer, CallStep, Counter, Ref, RepeatStep
from nxjax.lower.cpu.times import least_grains


@dataclass(eq=False)
class Short:
    """As much of a kernel as the rule looks at: ``grains`` of work that reads as much as it writes, or far more."""

    grains: float
    read: float = 1e3
    grain: int = 10

    @property
    def items(self):
        return int(self.grains * self.grain)

    def cost(self):
        return KernelCost(1e6, self.read, 1e3)


def steps(*kernels):
    """A chain: each reads what the one before it has written."""
    buffers = [Ref(Buffer(1000, "temp")) for _ in range(len(kernels) + 1)]
    return [CallStep(k, (x,), (y,)) for k, x, y in zip(kernels, buffers[:-1], buffers[1:], strict=True)]


def which(made):
    found = shared(made)
    return [step in found for step in made]


@pytest.fixture(params=isa.possible())
def least(request):
    with config.using(cpu_isa=request.param):
        yield least_grains()


def test_a_step_alone(least):
    assert which(steps(Short(1.9))) == [False]
    assert which(steps(Short(least - 0.1))) == [False]
    assert which(steps(Short(least))) == [True]
    assert which(steps(Short(2, read=32e3))) == [True]  # it writes little


def test_a_chain_is_weighed_as_one(least):
    assert which(steps(*[Short(2)] * 3)) == [True] * 3
    # What is too short for two threads is part of no chain.
    assert which(steps(Short(least), Short(1), Short(2))) == [True, False, least <= 2]
    assert which(steps(Short(2), Short(1.9))) == [least <= 2, False]


def test_two_items_are_too_few_for_a_chain(least):
    assert which(steps(Short(2, grain=1), Short(9 * least))) == [least <= 2, True]
    assert which(steps(Short(2, grain=2), Short(9 * least))) == [True, True]


def test_before_and_after_a_long_step(least):
    assert which(steps(Short(2), Short(2), Short(9 * least), Short(2))) == [True] * 4


def test_a_chain_is_what_changes_hands_and_not_what_follows(least):
    apart = [*steps(Short(2)), *steps(Short(2))]
    assert which(apart) == [least <= 2] * 2
    reading = CallStep(Short(2), apart[0].ins, (Ref(Buffer(1000, "output")),))
    assert which([apart[0], reading]) == [least <= 2] * 2  # two that read the same


def test_two_chains_that_meet(least):
    one, other = steps(Short(2)), steps(Short(2))
    meeting = CallStep(Short(2), (*one[0].outs, *other[0].outs), (Ref(Buffer(1000, "output")),))
    assert which([*one, *other, meeting]) == [True] * 3


def test_chains_go_into_loops(least):
    outside, inside = steps(Short(2), Short(2))
    loop = RepeatStep(Counter(3), [inside])
    assert shared([outside, loop]) == ({outside, inside} if least <= 4 else set())


def test_chains_that_join_one_after_another_take_time_in_proportion():
    asked = 0

    class Step:
        def __init__(self, ins, outs):
            self.ins, self.outs = ins, outs

        def __hash__(self):
            nonlocal asked
            asked += 1
            return id(self)

    def looks(n):
        nonlocal asked
        asked, made, last = 0, [], Ref(Buffer(8, "temp"))
        for _ in range(n):
            fresh, out = Ref(Buffer(8, "temp")), Ref(Buffer(8, "temp"))
            made += [Step([], [fresh]), Step([last, fresh], [out])]
            last = out
        assert len(_chains(made)) == 1
        return asked

    assert looks(1600) < 8 * looks(400)
