"""Product, nest along its rows, product: one step where the matrices between them are large and nobody else reads them.

Looks at steps, not at equations, so it does not matter how attention was written: with `jax.nn`'s function or by hand,
with a causal mask, with one that is given, or with something else than a softmax.
"""

from __future__ import annotations

from collections import Counter

from nxjax.kernels.cpu import knobs
from nxjax.kernels.cpu.attention import Attention, joins
from nxjax.kernels.cpu.gemm import Gemm
from nxjax.kernels.cpu.gemm_plan import packed_before
from nxjax.kernels.cpu.nest import Nest
from nxjax.lower.cpu.tape import Buffer, CallStep, Ref, TapeStep, walk


def with_attention(steps: list[TapeStep]) -> None:
    """Change ``steps``, before their memory is planned, such that attention is one call."""
    lists, todo = list[list[TapeStep]](), [steps]
    while todo:
        some = todo.pop()
        lists.append(some)
        todo += [b for s in some for b in s.bodies() if isinstance(b, list)]
    uses: Counter[Buffer] | None = None
    for some in lists:
        i = 2
        while i < len(some):
            if _is(some[i], Gemm):
                uses = uses or Counter(r.buffer for s in walk(steps) for r in (*s.reads(), *s.writes()))
                if _joined(some, i, uses):
                    i -= 2
            i += 1


def _is(step: TapeStep, kind: type) -> bool:
    return isinstance(step, CallStep) and isinstance(step.kernel, kind)


def _joined(steps: list[TapeStep], at: int, uses: Counter[Buffer]) -> bool:
    """Make one step of the product at ``at`` and what it is made of, if that pays and may be done."""
    last = steps[at]
    assert isinstance(last, CallStep)
    weights = last.ins[0]
    middle_at = _maker(steps, at, weights, uses)
    middle = steps[middle_at]
    if middle_at < 0 or not (isinstance(middle, CallStep) and isinstance(middle.kernel, Nest)):
        return False
    for place, scores in enumerate(middle.ins):
        first_at = _maker(steps, middle_at, scores, uses)
        first = steps[first_at]
        if first_at < 0 or not (isinstance(first, CallStep) and isinstance(first.kernel, Gemm)):
            continue
        assert isinstance(last.kernel, Gemm)
        if scores.buffer.nbytes < knobs.ATTENTION() or not joins(first.kernel, middle.kernel, last.kernel, place):
            continue
        others = tuple(r for i, r in enumerate(middle.ins) if i != place)
        moved = {r.buffer for r in (*first.ins, *others)}
        between = [s for i, s in enumerate(steps[first_at:at], first_at) if i not in (first_at, middle_at)]
        if any(r.buffer in moved for s in walk(between) for r in s.writes()):
            continue
        before: list[TapeStep] = []
        (one, left), (two, right) = _packed(first, before), _packed(last, before)
        kernel = Attention(one, middle.kernel, two, place)
        joined = CallStep(kernel, (*left, *others, *right[1:]), last.outs, equation=middle.equation)
        steps[at : at + 1] = [*before, joined]
        del steps[middle_at], steps[first_at]
        return True
    return False


def _packed(call: CallStep, before: list[TapeStep]) -> tuple[Gemm, tuple[Ref, ...]]:
    """A product and its operands; panels that its items make themselves would be made for each few rows, so they are
    made by a step ``before``."""
    assert isinstance(call.kernel, Gemm)
    made = packed_before(call.kernel)
    if made.pack is None:
        return made.product, call.ins
    panels = Ref(Buffer(made.bytes, "temp"))
    before.append(CallStep(made.pack, (call.ins[1],), (panels,), equation=call.equation))
    return made.product, (call.ins[0], panels, *call.ins[2:])


def _maker(steps: list[TapeStep], at: int, ref: Ref, uses: Counter[Buffer]) -> int:
    """Which step before ``at`` makes the temporary that only the step at ``at`` reads; -1 if there is none."""
    whole = Ref(ref.buffer)
    if ref.buffer.kind != "temp" or ref != whole or uses[ref.buffer] != 2:
        return -1
    for i in range(at - 1, -1, -1):
        if whole in steps[i].writes():
            return i
    return -1
