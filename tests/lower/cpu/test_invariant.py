"""What stands before a loop instead of in it."""

import numpy as np

import nxjax as nx
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.invariant import without_repetition
from nxjax.lower.cpu.tape import Buffer, CallStep, Counter, Ref, RepeatStep, TapeStep, WhileStep


def move(source: Ref, target: Buffer) -> CallStep:
    return CallStep(Move((4,), (4,), (4,), 4), (source,), (Ref(target),))


def buffers(n: int) -> list[Buffer]:
    return [Buffer(16, "temp") for _ in range(n)]


def test_a_chain_of_what_does_not_change_leaves_both_loops() -> None:
    given, a, b, c = Buffer(16, "input", 0), *buffers(3)
    outer, inner = Counter(3), Counter(2)
    first, second = move(Ref(given), a), move(Ref(a), b)
    moving = move(Ref(given, 0, ((inner, 16),)), c)
    last = move(Ref(b), Buffer(16, "output", 0))
    steps: list[TapeStep] = [RepeatStep(outer, [RepeatStep(inner, [first, second, moving, last])])]
    without_repetition(steps)
    assert steps[:2] == [first, second]
    assert isinstance(steps[2], RepeatStep) and isinstance(steps[2].body[0], RepeatStep)
    assert steps[2].body[0].body == [moving, last]


def test_what_a_turn_changes_stays() -> None:
    carry, a, b = buffers(3)
    flag = Buffer(1, "temp")
    body: list[TapeStep] = [move(Ref(carry), a), move(Ref(a), carry), move(Ref(b), a)]
    condition: list[TapeStep] = [CallStep(Move((1,), (1,), (1,), 1), (Ref(carry),), (Ref(flag),))]
    steps: list[TapeStep] = [move(Ref(b), carry), WhileStep(condition, Ref(flag), body)]
    without_repetition(steps)
    assert len(steps) == 2 and len(body) == 3 and len(condition) == 1


def test_what_is_read_before_it_is_made_or_elsewhere_stays() -> None:
    given, a, b, out = Buffer(16, "input", 0), *buffers(2), Buffer(16, "output", 0)
    body: list[TapeStep] = [move(Ref(a), out), move(Ref(given), a), move(Ref(given), b)]
    steps: list[TapeStep] = [RepeatStep(Counter(3), body), move(Ref(b), out)]
    without_repetition(steps)
    assert len(steps) == 2 and len(body) == 3


def test_results_are_the_same() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(65, 65)).astype(np.float32), rng.normal(size=(5, 40, 65)).astype(np.float32)

    def f(w, x):
        return nx.lax.scan(lambda c, r: (nx.tanh(c @ w + r @ w.T), c), x[0], x)

    def run(executor):
        with nx.config.using(executor=executor):
            return [np.asarray(y) for y in nx.tree.leaves(nx.jit(f)(nx.array(w), nx.array(x)))]

    for got, expected in zip(run("cpu"), run("reference"), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)
