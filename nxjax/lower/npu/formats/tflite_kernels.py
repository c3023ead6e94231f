"""What LiteRT's kernels on a CPU take: the published limits of the format's own runtime, as one table.

Facts of LiteRT 2.3, held against that runtime by a test that builds every op in every type. Needs no package.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.graph import Node, Tensor, held_graphs
from nxjax.lower.placement import YES, Verdict
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

_MOVES: Final = "f32 f16 q8 q16 qu8 i8 i16 i32 i64 bool"
_COMPARES: Final = "f32 f16 q8 qu8 i32 i64"

# Per op, the kinds that its data may be: q8, q16, qu8 are integers on a grid, i8 and the like integers that mean
# themselves. Where the data is not the first operand or the result has another type, see `_data`.
KINDS: Final[dict[str, str]] = {
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d", "fully_connected"), "f32 q8 q16"),
    **dict.fromkeys(("transpose_conv", "conv_3d", "transpose_conv_3d"), "f32 q8 q16"),
    "batch_matmul": "f32 q8 q16",
    **dict.fromkeys(("add", "sub", "mul"), "f32 q8 q16 qu8 i32 i64"),
    "div": "f32 q8 qu8",
    **dict.fromkeys(("maximum", "minimum"), _MOVES.replace(" bool", "")),
    "squared_difference": "f32 q8 i32",
    "pow": "f32 i32",
    **dict.fromkeys(("equal", "not_equal"), _COMPARES + " bool"),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), _COMPARES),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), "bool"),
    **dict.fromkeys(("max_pool_2d", "average_pool_2d"), "f32 q8 q16 qu8"),
    "mean": "f32 q8 q16 qu8 i32 i64",
    **dict.fromkeys(("sum", "reduce_max", "reduce_min"), "f32 q8 q16 qu8 i32 i64 bool"),
    "reduce_prod": "f32 q8 q16 i32 i64 bool",
    **dict.fromkeys(("argmax", "argmin"), "f32 q8 q16 qu8 i8 i32"),
    "if": "bool",
    "while": "f32 f16 i8 i16 i32 i64 bool",
    **dict.fromkeys(("lstm", "rnn"), "f32"),
    "gru": "",
    "top_k": "f32 q8 q16 qu8 i8 i16 i32 i64",
    **dict.fromkeys(("softmax", "tanh", "relu", "relu6", "leaky_relu", "gelu"), "f32 q8 q16 qu8"),
    "prelu": "f32 q8 qu8",
    "logistic": "f32 q8 q16",
    **dict.fromkeys(("relu_n1_to_1", "hard_swish"), "f32 q8 qu8"),
    **dict.fromkeys(("elu", "log_softmax"), "f32 q8"),
    **dict.fromkeys(("exp", "log", "sqrt", "rsqrt"), "f32 q8 q16"),
    "abs": "f32 q8 q16 i32",
    # On int8 these are looked up, having no kernel.
    "neg": "f32 f16 q8 q16 i8 i16 i32 i64",
    **dict.fromkeys(("square", "sin", "cos", "ceil", "round"), "f32 q8"),
    "floor": "f32 f16 q8",
    "sign": "f32 q8 i32",
    "erf": "q8",
    "cumsum": "f32 i32 i64",
    "table": "q8",
    **dict.fromkeys(("reshape", "transpose", "concatenation", "slice", "strided_slice", "pad"), _MOVES),
    **dict.fromkeys(("broadcast_to", "tile", "reverse", "gather", "select"), _MOVES),
    # Of the stored integer: how a table is looked up.
    "cast": "f32 f16 i8 i16 i32 i64 bool q8 q16 qu8",
    "split": "f32 q8 q16 qu8 i8 i16 i32 i64",
    "one_hot": "f32 q8 qu8 i8 i32 i64 bool",
    "resize_bilinear": "f32 q8 q16 qu8",
    "resize_nearest": "f32 f16 q8 q16 qu8 i8 i16 i32 bool",
    "quantize": "q8 q16 qu8",
    "dequantize": "q4 q8 q16 qu8",
}
# Comparisons of 8-bit integers happen in steps of 1/256 of a unit.
_COMPARE_STEP: Final = 1 / 256
# An 8-bit (16-bit) sum shifts its operands up by so many bits, and the factor back must be below one.
_SHIFTS: Final = {"q8": 20, "qu8": 20, "q16": 15}
_SQUARED_SHIFT: Final = 14
# The one of hard_swish, whose result is at most 128 times finer than its operand; and bits of the exponentials of int8.
_HARD_SWISH_SHIFT: Final = 8
_EXP_BITS: Final = 26
_RANKS: Final = {"pad": 5, "batch_matmul": 5}
_RANK: Final = 8
_WORDS: Final = {"f": "float", "i": "int", "q": "quantized int", "qu": "quantized uint", "bool": "bool"}


def kind(t: Tensor) -> str:
    """The kind of a tensor in the table's words: "q8" for int8 on a grid, "i8" for plain int8, "f32", "bool"."""
    short = dtypes.short_name(t.dtype)
    if t.grid is None:
        return short
    return {"i4": "q4", "i8": "q8", "i16": "q16", "u8": "qu8", "i32": "q32"}.get(short, short)


def _spelled(name: str) -> str:
    letters = name.rstrip("0123456789")
    return _WORDS.get(letters, letters) + name[len(letters) :]


def _data(node: Node) -> Tensor:
    """The tensor whose kind decides."""
    if node.op in ("one_hot", "quantize"):
        return node.output
    return node.operands[1 if node.op == "select" else 0]


def supports(node: Node) -> Verdict:
    """Whether LiteRT has a kernel for ``node``, and if not, why.

    >>> x, y = (Tensor(name, (4,), "int32") for name in "xy")
    >>> supports(Node("tanh", (x,), (y,))).reason
    'LiteRT has no tanh of int32; it has float32, quantized int8, quantized int16, quantized uint8'
    """
    kinds = KINDS.get(node.op, "").split()
    if not kinds:
        return Verdict(False, f"TFLite has no operator {node.op}", "write it with other operations")
    inner = (v for graph in held_graphs(node).values() for n in graph.nodes if not (v := supports(n)).ok)
    if (refused := next(inner, None)) is not None:
        return Verdict(False, f"inside of {node.op}: {refused.reason}", refused.suggestion)
    data = _data(node)
    if kind(data) not in kinds:
        listed = ", ".join(map(_spelled, kinds))
        why = f"LiteRT has no {node.op} of {_spelled(kind(data))}; it has {listed}"
        return Verdict(False, why, _advice(data.dtype, kinds))
    limit, rank = _RANKS.get(node.op, _RANK), max(len(t.shape) for t in [*node.operands, *node.outputs])
    if rank > limit:
        return Verdict(False, f"{node.op} of {rank} dimensions", f"reshape to at most {limit} dimensions")
    if node.output.grid is not None or data.grid is not None:
        verdict = _scales(node, data)
        if not verdict.ok:
            return verdict
    return _weights(node, data)


def _scales(node: Node, data: Tensor) -> Verdict:
    """Scales that make LiteRT's fixed point fail: some end the process, some compare unequal values as equal."""
    scales = [float(t.grid.scales(0)) for t in node.operands if t.grid is not None and t.grid.axis is None]
    compares = node.op in KINDS and KINDS[node.op].startswith(_COMPARES)
    if compares and not _COMPARE_STEP <= min(scales) <= max(scales) < 1:
        odd = min(scales) if min(scales) < _COMPARE_STEP else max(scales)
        why = f"LiteRT compares quantized values in steps of 1/256 and scales below 1, and a scale is {odd:.3g}"
        return Verdict(False, why, "compare in float32, before the operands are quantized")
    if node.op == "neg" and kind(data) == "q16" and node.output.grid != data.grid:
        return Verdict(False, "LiteRT negates int16 on one grid only", "multiply by -1")
    if node.op in ("softmax", "log_softmax") and kind(data) == "q8":
        if scales[0] * node.attrs.get("beta", 1.0) * 2**_EXP_BITS > 1:
            return YES
        why = f"LiteRT's {node.op} has no bits for a scale of {scales[0]:.3g}"
        return Verdict(False, why, "calibrate on data of the usual range, so that its operand is not all but constant")
    if node.op not in ("add", "sub", "squared_difference", "hard_swish") or node.output.grid is None:
        return YES
    twice, out = 2 * max(scales), float(node.output.grid.scales(0))
    if node.op == "squared_difference":
        factor = twice**2 / 2**_SQUARED_SHIFT
    else:
        factor = twice / 2 ** (_HARD_SWISH_SHIFT if node.op == "hard_swish" else _SHIFTS[kind(data)])
    if factor < out:
        return YES
    why = f"LiteRT's {node.op} cannot go from a scale of {max(scales):.3g} to {out:.3g}"
    return Verdict(False, why, "calibrate on data of the usual range, so that the scales are nearer to each other")


def _advice(dtype: DType, kinds: list[str]) -> str:
    if "f32" in kinds and dtype in dtypes.FLOAT:
        return "compute in float32"
    return "quantize it, or keep this operation in float32" if "f32" in kinds else "convert the operand first"


def _weights(node: Node, x: Tensor) -> Verdict:
    """Types of weights. (A depthwise convolution of int16 with int4 weights runs in LiteRT, and is wrong.)"""
    w, narrow = node.inputs[1] if len(node.inputs) > 1 else None, ("q8", "q4")
    if node.op in ("conv_2d", "fully_connected"):
        allowed = {"f32": ("f32", *narrow)}.get(kind(x), narrow)
    elif node.op == "depthwise_conv_2d":
        allowed = {"f32": ("f32", "q8"), "q8": narrow}.get(kind(x), ("q8",))
    elif node.op in ("transpose_conv", "transpose_conv_3d"):
        allowed = {"f32": ("f32",)}.get(kind(x), ("q8",))
    elif node.op == "conv_3d":
        if node.attrs["groups"] != 1:
            return Verdict(False, "TFLite convolves volumes in one group", "convolve parts of the channels, and join")
        allowed = {"f32": ("f32",)}.get(kind(x), narrow)
    else:
        return YES
    assert w is not None
    if kind(w) in allowed:
        return YES
    listed = " or ".join(map(_spelled, allowed))
    why = f"{node.op} of {_spelled(kind(x))} takes {listed} weights, not {_spelled(kind(w))}"
    return Verdict(False, why, "quantize the weights and the activations to types that go together")
