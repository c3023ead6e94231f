"""Kernels that do the same in every turn run once, before the loop: packed weights, converted tables.

What equations alone show is taken out of bodies before lowering (`lower.passes.loops`); here it is what rules add.
"""

from __future__ import annotations

from collections import Counter

from nxjax.lower.cpu.tape import Buffer, CallStep, Ref, RepeatStep, TapeStep, WhileStep, walk


def without_repetition(steps: list[TapeStep]) -> None:
    """Change ``steps`` so that calls in loops whose operands do not change stand before them."""
    _hoist(steps, _uses(steps))


def _uses(steps: list[TapeStep]) -> Counter[Buffer]:
    return Counter(r.buffer for s in walk(steps) for r in (*s.reads(), *s.writes()))


def _hoist(steps: list[TapeStep], everywhere: Counter[Buffer]) -> None:
    result: list[TapeStep] = []
    for step in steps:
        bodies = [b for b in step.bodies() if isinstance(b, list)]
        for body in bodies:
            _hoist(body, everywhere)
        if isinstance(step, (RepeatStep, WhileStep)):
            result += _moved(step, bodies, everywhere)
        result.append(step)
    steps[:] = result


def _moved(loop: RepeatStep | WhileStep, bodies: list[list[TapeStep]], everywhere: Counter[Buffer]) -> list[TapeStep]:
    """Take out of ``bodies`` what each turn would repeat."""
    inside = [s for body in bodies for s in walk(body)]
    if not any(isinstance(s, CallStep) for s in inside):
        return []
    written = Counter(r.buffer for s in inside for r in s.writes())
    used = Counter(r.buffer for s in inside for r in (*s.reads(), *s.writes()))
    found: list[TapeStep] = []
    for body in bodies:
        begun: set[Buffer] = set()  # used by a step that stays
        for step in list(body):
            if isinstance(step, CallStep) and _is_fixed(step, loop, written, used, everywhere, begun):
                body.remove(step)
                found.append(step)
                for ref in step.outs:
                    written[ref.buffer] -= 1
                continue
            begun.update(r.buffer for s in walk([step]) for r in (*s.reads(), *s.writes()))
    return found


def _is_fixed(
    step: CallStep,
    loop: RepeatStep | WhileStep,
    written: Counter[Buffer],
    used: Counter[Buffer],
    everywhere: Counter[Buffer],
    begun: set[Buffer],
) -> bool:
    """Whether ``step`` reads what no turn changes, and alone writes what only this loop reads."""

    def moves(ref: Ref) -> bool:
        return isinstance(loop, RepeatStep) and any(c is loop.counter for c, _ in ref.moves)

    if any(moves(r) or written[r.buffer] for r in step.ins):
        return False
    return all(
        r.buffer.kind == "temp"
        and not moves(r)
        and written[r.buffer] == 1
        and used[r.buffer] == everywhere[r.buffer]
        and r.buffer not in begun
        for r in step.outs
    )
