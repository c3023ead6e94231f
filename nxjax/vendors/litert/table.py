"""Tables of constraints over TFLite's operators: the common part of chips that read TFLite files.

A vendor's table says for each operator which limits it has; a node is taken if all its operators are. Knows how nodes
become operators (`formats.tflite_ops`), no vendor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_ops import operations
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes

# Names of limits, and the operators that have them.
Rows = Sequence[tuple[str, str]]

# What to write for a function that is a look-up in TFLite.
ACTIVATIONS: Final = (
    "an activation that is an operator: relu, relu6, tanh, sigmoid, or gelu and hard_swish on some chips"
)

# Says operators in another form that means the same.
Adapt = Callable[[Sequence[TFLiteOperator]], list[TFLiteOperator]]


@final
@dataclass(frozen=True)
class Limit:
    """One published rule: whether it holds, why not, and what to write instead."""

    holds: Callable[[TFLiteOperator], bool]
    reason: str
    suggestion: str = ""


@final
@dataclass(frozen=True)
class Table:
    """What a chip takes.

    Attributes:
        chip: its name, for reasons.
        limits: the limits of each operator that the chip has, by the operator's name in TFLite.
        instead: for operators that it has not, what to write.
    """

    chip: str
    limits: Mapping[str, tuple[Limit, ...]]
    instead: Mapping[str, str]

    @classmethod
    def of(cls, chip: str, limits: Mapping[str, Limit], every: str, rows: Rows, instead: Mapping[str, str]) -> Table:
        """The table whose operators have the limits that ``every`` and their row name."""
        found = {name: tuple(limits[n] for n in (every + " " + own).split()) for name, own in by_operator(rows).items()}
        return cls(chip, found, instead)

    def judge(self, operation: TFLiteOperator) -> Verdict:
        """Whether the chip takes one operator."""
        limits = self.limits.get(operation.name)
        if limits is None:
            return Verdict(
                False,
                f"{self.chip} has no {operation.name}",
                self.instead.get(operation.name, "compute it on the host"),
            )
        for limit in limits:
            if not limit.holds(operation):
                return Verdict(False, f"{operation.name}: {limit.reason}", limit.suggestion)
        return YES

    def verdict(self, node: Node, adapt: Adapt | None = None) -> Verdict:
        """Whether the chip takes a node: all the operators that it becomes, as ``adapt`` says them for the chip."""
        inputs = [t for t in dict.fromkeys(node.operands) if not t.constant]
        try:
            parts = operations(NpuGraph(node.name or node.op, inputs, list(node.outputs), [node]))
        except LoweringError as e:
            return Verdict(False, f"{e.what}: {e.got}", e.fix or "")
        written = adapt(parts) if adapt is not None else parts
        for part in written:
            found = self.judge(part)
            if not found.ok and node.op == "table":
                said = f"{node.attrs.get('function', 'it')} has no operator of TFLite, and {self.chip} no look-up"
                return Verdict(False, f"{said} ({found.reason})", ACTIVATIONS)
            if not found.ok and len(written) > 1:
                # The user wrote one op, and may not know that TFLite has to say it in several.
                said = f"{node.op} is {', '.join(dict.fromkeys(o.name for o in written))} in TFLite; {found.reason}"
                return Verdict(False, said, found.suggestion)
            if not found.ok:
                return found
        return YES


def by_operator(rows: Rows) -> dict[str, str]:
    """The names of each operator's limits."""
    return {name: own for own, names in rows for name in names.split()}


QUANTIZE: Final = "quantize it: nx.quantize(f, 'int8')"
BYTES: Final = Limit(
    lambda o: all(t.dtype in (dtypes.int8, dtypes.uint8) and t.grid is not None for t in o.every_map),
    "tensors are quantized to 8 bits",
    QUANTIZE,
)
