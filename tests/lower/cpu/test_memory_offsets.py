"""Offsets in the arena: what is needed at the same time does not overlap, what is not may."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.lower.cpu.memory_offsets import FEW, assigned, lifetimes
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import ALIGN, Buffer, CopyStep, Counter, Ref, RepeatStep


def chain(sizes):
    """Each buffer is made of the one before."""
    buffers = [Buffer(n, "temp") for n in sizes]
    return buffers, [CopyStep(Ref(a), Ref(b), min(a.nbytes, b.nbytes)) for a, b in pairwise(buffers)]


def check(steps):
    uses = Uses(steps)
    top = assigned(uses)
    lives = [(b, *life) for b, life in lifetimes(uses).items() if life[2]]
    for i, (a, first, last, size) in enumerate(lives):
        assert a.offset % ALIGN == 0
        assert 0 <= a.offset <= top - size
        for b, start, end, other in lives[:i]:
            if first <= end and start <= last:
                assert a.offset + size <= b.offset or b.offset + other <= a.offset
    return top


def test_a_chain_takes_two_places():
    buffers, steps = chain([640] * 50)
    assert check(steps) == 2 * 640
    assert len({b.offset for b in buffers}) == 2


def test_long_programs_are_placed_in_time():
    assert check(chain([640] * (FEW + 50))[1]) == 2 * 640


def test_what_lives_through_a_loop_is_kept():
    outer, inner, out = Buffer(64, "temp"), Buffer(64, "temp"), Buffer(64, "output", 0)
    loop = RepeatStep(Counter(3), [CopyStep(Ref(outer), Ref(inner), 64), CopyStep(Ref(inner), Ref(out), 64)])
    assert check([CopyStep(Ref(Buffer(64, "input", 0)), Ref(outer), 64), loop]) == 128
    assert outer.offset != inner.offset


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 64, 65, 1000, 4096]), min_size=2, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
def test_no_two_that_are_needed_overlap(sizes, pairs):
    buffers = [Buffer(n, "temp") for n in sizes]
    pick = lambda i: buffers[i % len(buffers)]
    check([CopyStep(Ref(pick(i)), Ref(pick(j)), 0) for i, j in pairs])


BLOCK = ALIGN  # bytes that are followed together
INPUTS = 3
TURNS = 2


def nested(r, buffers, known, depth=0):
    """Copies of what was written before, and loops of such."""
    steps = []
    for _ in range(r.randint(1, 4)):
        if depth < 4 and r.random() < 0.4:
            steps.append(RepeatStep(Counter(TURNS), nested(r, buffers, known, depth + 1)))
        else:
            a, b = r.choice(known), r.choice(buffers[INPUTS:])
            steps.append(CopyStep(Ref(a), Ref(b), min(a.nbytes, b.nbytes)))
            known.append(b)
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_every_step_reads_what_was_written(seed):
    """The steps run in two memories: one in which each buffer has its own, and the arena."""
    r = random.Random(seed)
    for _ in range(25):
        count = INPUTS + r.randint(2, 12)
        buffers = [Buffer(r.choice((1, 2, 5)) * BLOCK, "input" if i < INPUTS else "temp", i) for i in range(count)]
        runs_as_if_each_had_its_own(nested(r, buffers, buffers[:INPUTS]), buffers)


def runs_as_if_each_had_its_own(steps, buffers):
    uses = Uses(steps)
    arena = [object()] * (assigned(uses) // BLOCK)
    paths = {b: [u.path for u in used] for b, used in uses.of.items()}
    own = {b: [(b, k) if b.kind == "input" else None for k in range(b.nbytes // BLOCK)] for b in buffers}

    def ran(steps, prefix):
        for i, step in enumerate(steps):
            if isinstance(step, RepeatStep):
                inside = (*prefix, i, 0)
                for _ in range(TURNS):
                    for b, found in paths.items():
                        # What lives in a turn only begins with nothing.
                        if b.kind == "temp" and all(path[: len(inside)] == inside for path in found):
                            own[b] = [None] * len(own[b])
                    ran(step.body, inside)
                continue
            source, target = step.source_ref.buffer, step.target.buffer
            if source is not target and source.kind == "temp":
                # A kernel would read what it has just written.
                assert source.offset + source.nbytes <= target.offset or target.offset + target.nbytes <= source.offset
            for k in range(step.nbytes // BLOCK):
                value = own[source][k]
                if value is not None and source.kind == "temp":
                    assert arena[source.offset // BLOCK + k] == value
                if target.kind == "temp":
                    own[target][k] = arena[target.offset // BLOCK + k] = value

    ran(steps, ())
