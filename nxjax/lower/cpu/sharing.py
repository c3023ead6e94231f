"""Which steps of a program have helpers: a kernel by its own cost, or together with those that it hands its data to.

What helpers write is in their caches. A kernel that is the only one with helpers between others without pays for that
twice: half of what it reads comes from another cache, and half of what it writes goes to one. Between kernels that
share their work in the same way nothing changes hands, so a chain of short kernels is weighed as one. Must not know
what kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from nxjax.lower.cpu.tape import Buffer, CallStep, TapeStep, walk
from nxjax.lower.cpu.times import can_share, grains_of, is_parallel, least_grains


def shared(steps: Sequence[TapeStep]) -> set[CallStep]:
    """The steps, at any depth, that helpers take part in."""
    calls = [s for s in walk(steps) if isinstance(s, CallStep)]
    able = [s for s in calls if can_share(s.kernel) or is_parallel(s.kernel)]
    chains = _chains(able)
    return set(chain.from_iterable(c for c in chains if _is_worth(c)))


def _is_worth(steps: Sequence[CallStep]) -> bool:
    return any(is_parallel(s.kernel) for s in steps) or sum(grains_of(s.kernel) for s in steps) >= least_grains()


def _chains(steps: Sequence[CallStep]) -> list[list[CallStep]]:
    """Steps by what they are joined to: one of two reads what the other wrote last."""
    writer: dict[Buffer, CallStep] = {}
    before: dict[CallStep, CallStep] = {}

    def first(step: CallStep) -> CallStep:
        """Of its chain. Ways are halved as they are walked: chains that join one after another would make them long."""
        while step in before:
            above = before[step]
            before[step] = before.get(above, above)
            step = above
        return step

    for step in steps:
        for ref in step.ins:
            one, other = first(writer.get(ref.buffer, step)), first(step)
            if one is not other:
                before[other] = one
        writer.update((ref.buffer, step) for ref in step.outs)
    found: dict[CallStep, list[CallStep]] = {}
    for step in steps:
        found.setdefault(first(step), []).append(step)
    return list(found.values())
