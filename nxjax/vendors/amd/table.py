"""What AMD's XDNA compiler takes: the operator table of Ryzen AI Software 1.5 (ryzenai.docs.amd.com, ops_support).

It has a column per arithmetic: BF16, A16W8 (16-bit activations), A8W8 (any scales), XINT8 (power-of-two scales). An
operator of the graph needs every ONNX operator that it is written with. "Broad coverage" is what the table promises:
some configurations may still go to the host, which only AMD's own compiler knows.
"""

from __future__ import annotations

from typing import Final, Literal

from nxjax.lower.npu.graph import Node
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes

Mode = Literal["BF16", "A16W8", "A8W8", "XINT8"]
MODES: Final[tuple[Mode, ...]] = ("BF16", "A16W8", "A8W8", "XINT8")

# Columns in the order of MODES, then the operators of the graph that have them.
_ROWS: Final[tuple[tuple[str, str], ...]] = (
    (
        "yyyy",
        "conv_2d depthwise_conv_2d fully_connected batch_matmul add sub mul div maximum minimum squared_difference "
        "square max_pool_2d average_pool_2d reduce_max sqrt rsqrt reshape transpose concatenation slice strided_slice "
        "reverse pad broadcast_to quantize dequantize",
    ),
    ("yyyn", "transpose_conv logistic sin"),
    ("nyyy", "softmax relu relu6 relu_n1_to_1 leaky_relu"),
    ("ynyy", "mean sum reduce_min resize_bilinear resize_nearest"),
    ("yyny", "tanh select"),
    (
        "ynny",
        "pow equal less greater logical_and logical_or argmax argmin log abs neg floor ceil round sign erf gelu tile "
        "one_hot cumsum cast",
    ),
    ("nyyn", "cos"),
    ("nnyy", "hard_swish"),
    ("nyny", "elu"),
    ("yynn", "exp split"),
    ("nnny", "less_equal greater_equal"),
    ("ynnn", "not_equal logical_not gather"),
    ("nnnn", "reduce_prod log_softmax prelu table top_k conv_3d transpose_conv_3d if while lstm gru rnn"),
)
TABLE: Final[dict[str, frozenset[Mode]]] = {
    op: frozenset(m for m, has in zip(MODES, columns, strict=True) if has == "y")
    for columns, ops in _ROWS
    for op in ops.split()
}


def mode(node: Node, power_of_two: bool) -> Mode:
    """The arithmetic that a node asks for by its grids."""
    grids = [t.grid for t in [*node.operands[:1], *node.outputs] if t.grid is not None]
    if not grids:
        return "BF16"
    if any(g.dtype == dtypes.int16 for g in grids):
        return "A16W8"
    return "XINT8" if power_of_two else "A8W8"


def verdict(node: Node, power_of_two: bool = True) -> Verdict:
    """Whether AMD's table has the node in its arithmetic."""
    wanted = mode(node, power_of_two)
    has = TABLE.get(node.op, frozenset[Mode]())
    if wanted in has:
        return YES
    reason = f"{node.op} is not in AMD's operator table for {wanted}"
    if not has:
        return Verdict(False, reason, "write it with other operations")
    return Verdict(False, reason, f"it is there for {', '.join(m for m in MODES if m in has)}")
