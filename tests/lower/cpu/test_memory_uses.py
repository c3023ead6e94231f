"""Who reads and writes which buffer, where, and uses that move to other memory."""

import itertools

from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu import memory_uses
from nxjax.lower.cpu.memory_copies import without_copies
from nxjax.lower.cpu.memory_uses import Uses, placed
from nxjax.lower.cpu.tape import Buffer, CallStep, CopyStep, Counter, Ref, RepeatStep


def steps():
    """``b = a``; twice: ``c = b``; ``d = c``."""
    a, b, c, d = (Buffer(n, kind, 0) for n, kind in ((8, "input"), (8, "temp"), (8, "temp"), (16, "output")))
    turn = Counter(2)
    inside = [CopyStep(Ref(b), Ref(c), 8), CopyStep(Ref(c), Ref(d, 0, ((turn, 8),)), 8)]
    return (a, b, c, d), turn, [CopyStep(Ref(a), Ref(b), 8), RepeatStep(turn, inside)]


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


def test_long_chains_of_copies_take_a_few_changes_for_each(monkeypatch):
    changes = []
    real = memory_uses.replace
    monkeypatch.setattr(memory_uses, "replace", lambda step, by: changes.append(step) or real(step, by))
    x, y = Buffer(8, "input", 0), Buffer(8, "output", 0)
    chain = [Buffer(8, "temp") for _ in range(300)]
    kernel = Move((2,), (4,), (4,), 4)
    steps = [CopyStep(Ref(x), Ref(chain[0]), 8)]
    for b, c in itertools.pairwise(chain):
        steps += [CallStep(kernel, (Ref(b),), (Ref(b),)), CopyStep(Ref(b), Ref(c), 8)]
    steps.append(CopyStep(Ref(chain[-1]), Ref(y), 8))
    without_copies(steps)
    assert len(steps) == 300 and {r.buffer for s in steps for r in s.writes()} == {y}
    assert len(changes) < 2000
