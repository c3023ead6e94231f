"""Who reads and writes which buffer, where, and uses that move to other memory."""

from nxjax.lower.cpu.memory_uses import Uses, placed
from nxjax.lower.cpu.tape import Buffer, Copy, Counter, Ref, Repeat


def steps():
    """``b = a``; twice: ``c = b``; ``d = c``."""
    a, b, c, d = (Buffer(n, kind, 0) for n, kind in ((8, "input"), (8, "temp"), (8, "temp"), (16, "output")))
    turn = Counter(2)
    inside = [Copy(Ref(b), Ref(c), 8), Copy(Ref(c), Ref(d, 0, ((turn, 8),)), 8)]
    return (a, b, c, d), turn, [Copy(Ref(a), Ref(b), 8), Repeat(turn, inside)]


def test_steps_inside_loops_have_longer_paths():
    _, _, found = steps()
    assert [path for path, _ in placed(found)] == [(0,), (1,), (1, 0, 0), (1, 0, 1)]


def test_uses_come_in_the_order_of_steps():
    (a, b, c, d), _, found = steps()
    uses = Uses(found)
    told = {x: [(u.path, u.writes) for u in uses.of[x]] for x in (a, b, c, d)}
    assert told[a] == [((0,), False)]
    assert told[b] == [((0,), True), ((1, 0, 0), False)]
    assert told[c] == [((1, 0, 0), True), ((1, 0, 1), False)]
    assert told[d] == [((1, 0, 1), True)]


def test_a_buffer_moves_into_another_with_its_offsets():
    (_, _, c, d), turn, found = steps()
    uses = Uses(found)
    uses.move(c, Ref(d, 4, ((turn, 8),)))
    assert c not in uses.of
    first, second = found[1].body
    assert first.target == second.source_ref == Ref(d, 4, ((turn, 8),))
    assert [u.path for u in uses.of[d]] == [(1, 0, 0), (1, 0, 1), (1, 0, 1)]
