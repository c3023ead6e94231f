"""Rules of loops and choices whose course is known when the program is lowered: they are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.trace.program import Program
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.nested import clamped_branch


def _while(b: GraphBuilder, out: Any, *xs: LogicalTensor, loop: LoopParams) -> Sequence[LogicalTensor]:
    operands = loop.split(xs)
    for _ in range(b.unroll + 1):
        more = b.program(loop.condition, operands.cond_inputs)[0].scalar()
        if more is None:
            raise Unsupported(
                "the number of its steps is data, and NPU graphs have no loops",
                "compile the body and loop outside, or use nx.lax.scan with a fixed length",
            )
        if not more:
            return operands.carry
        operands = operands._replace(carry=b.program(loop.body, operands.body_inputs))
    raise _too_long(b)


def _too_long(b: GraphBuilder) -> Unsupported:
    return Unsupported(
        f"it has more than {b.unroll} steps, and NPU graphs have no loops",
        "compile one step and loop outside, or ask for more steps with unroll=",
    )


def _scan(b: GraphBuilder, out: Any, *xs: LogicalTensor, **params: Any) -> Sequence[LogicalTensor]:
    raise _too_long(b)


def _cond(
    b: GraphBuilder, out: Any, index: LogicalTensor, *xs: LogicalTensor, branches: tuple[Program, ...]
) -> Sequence[LogicalTensor]:
    number = index.scalar() if not index.shape else None
    if number is None:
        raise Unsupported(
            "which branch runs is data, and NPU graphs have no branches",
            "compute both and choose with nx.numpy.where, or compile the branches apart",
        )
    return b.program(clamped_branch(branches, int(number)), xs)


RULES: Final[dict[str, Rule]] = {"while": _while, "scan": _scan, "cond": _cond}
