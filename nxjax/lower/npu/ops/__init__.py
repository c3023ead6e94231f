"""The vocabulary of NPU graphs, one class per op: importing this makes all of them known."""

from nxjax.lower.npu.ops import along, control, elementwise, functions, move, products, recurrent, window
from nxjax.lower.npu.ops.base import OPS, NpuOp, op_of, those

__all__ = [
    "OPS",
    "NpuOp",
    "along",
    "control",
    "elementwise",
    "functions",
    "move",
    "op_of",
    "products",
    "recurrent",
    "those",
    "window",
]
