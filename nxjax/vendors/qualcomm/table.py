"""What Qualcomm's HTP takes, one verdict per node: what ONNX Runtime's QNN provider was seen to accept and refuse.

Used where the provider is not installed, and for the words beside its answer. Needs no vendor package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes
from nxjax.trace.dtypes import short_name

# More dimensions than that are refused ("Failed to add node").
MAX_RANK: Final = 5
STORED: Final = frozenset(
    [dtypes.int4, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.int64]
)
PLAIN: Final = frozenset([dtypes.float32, dtypes.float16, dtypes.int32, dtypes.bool_])
MOVES: Final = frozenset(["quantize", "dequantize", "reshape", "transpose"])


def _no_erf(n: Node) -> Verdict:
    if n.output.grid is not None and n.output.grid.dtype == dtypes.int8:
        return YES
    return Verdict(False, "the HTP has no erf", "use gelu, which it has, or quantize: an int8 erf becomes a table")


def _no_product(_: Node) -> Verdict:
    return Verdict(False, "the HTP has no product over an axis", "multiply slices one by one, or exp(sum(log(x)))")


def _cumsum(n: Node) -> Verdict:
    if n.attrs.get("reverse"):
        return Verdict(False, "the HTP sums forwards only", "reverse the operand and the result")
    return YES


def _log(n: Node) -> Verdict:
    if n.output.grid is not None and n.output.grid.dtype == dtypes.int16:
        return Verdict(
            False, "the HTP computes log wrongly in 16-bit integers", "quantize it to int8, or keep it float"
        )
    return YES


def _no_loop(_: Node) -> Verdict:
    return Verdict(False, "the HTP has no loops", "ask for more steps with unroll=, or loop outside")


RULES: Final[dict[str, Callable[[Node], Verdict]]] = {
    "erf": _no_erf,
    "reduce_prod": _no_product,
    "cumsum": _cumsum,
    "log": _log,
    "while": _no_loop,
}


def floating(n: Node) -> bool:
    """Whether a node computes real numbers outside integer grids."""
    if n.op in MOVES:
        return False
    return any(t.grid is None and t.dtype in dtypes.FLOAT for t in n.outputs)


def _dtype(t: Tensor) -> bool:
    return t.dtype in (PLAIN if t.grid is None else STORED) or (t.constant and t.dtype == dtypes.int64)


def verdict(n: Node, arch: int) -> Verdict:
    """Whether the HTP of generation ``arch`` takes ``n``."""
    tensors = [*n.operands, *n.outputs]
    for t in tensors:
        if len(t.shape) > MAX_RANK:
            fix = "merge dimensions with reshape"
            return Verdict(False, f"{len(t.shape)} dimensions; the HTP has at most {MAX_RANK}", fix)
        if not _dtype(t):
            return Verdict(False, f"dtype {short_name(t.dtype)}", "use float32, int32 or bool, or quantize")
    if arch == 68 and floating(n):
        return Verdict(False, "the HTP v68 computes integers only", "quantize the function, or take v69 or later")
    rule = RULES.get(n.op)
    return YES if rule is None else rule(n)
