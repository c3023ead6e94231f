"""Whether an op has a form in StableHLO that any compiler can read, and if not, why not. Knows ops by their rules."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.errors import LoweringError
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.trace.program import Equation


def verdict(equation: Equation) -> Verdict:
    """The verdict on one equation and the programs that it holds."""
    op = equation.op
    if op.effect:
        return Verdict(False, f"{op.name} calls back into Python", "leave it out of what is deployed")
    for held in equation.programs():
        for inner in held.equations:
            if not (found := verdict(inner)).ok:
                return found
    if op.host_only or not (op.has("stablehlo") or op.has("expand")):
        return Verdict(False, f"{op.name} has no form in StableHLO", "compute it on the host")
    return YES


def check_portable(target: str, rows: Sequence[Placement]) -> None:
    """Raise `LoweringError` that lists every row that is left to the host."""
    left = [r for r in rows if r.device == "host"]
    if left:
        listed = [f"{r.reason} ({r.source or r.op}); {r.suggestion}" for r in left]
        raise LoweringError(
            f"{target}: {len(left)} of {len(rows)} operations cannot be written as StableHLO",
            got="\n            ".join(listed),
            source=left[0].source,
        )
