"""Offsets in the arena: what is needed at the same time does not overlap, what is not may."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.lower.cpu.memory_offsets import FEW, assigned, lifetimes
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import ALIGN, Buffer, Copy, Counter, Ref, Repeat


def chain(sizes):
    """Each buffer is made of the one before."""
    buffers = [Buffer(n, "temp") for n in sizes]
    return buffers, [Copy(Ref(a), Ref(b), min(a.nbytes, b.nbytes)) for a, b in pairwise(buffers)]


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
    loop = Repeat(Counter(3), [Copy(Ref(outer), Ref(inner), 64), Copy(Ref(inner), Ref(out), 64)])
    assert check([Copy(Ref(Buffer(64, "input", 0)), Ref(outer), 64), loop]) == 128
    assert outer.offset != inner.offset


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 64, 65, 1000, 4096]), min_size=2, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
def test_no_two_that_are_needed_overlap(sizes, pairs):
    buffers = [Buffer(n, "temp") for n in sizes]
    pick = lambda i: buffers[i % len(buffers)]
    check([Copy(Ref(pick(i)), Ref(pick(j)), 0) for i, j in pairs])
