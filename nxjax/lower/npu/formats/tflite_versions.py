"""The version of a TFLite operator that a use of it needs: the least one whose runtime has that kernel.

Facts of the runtime's own rules (``op_version.cc``), said as tables: by the first operand's dtype where nothing else
counts. One difference: int16 activations with int8 weights get the version that brought 16-bit kernels, where the
rules give 1, so that a runtime too old for them says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nxjax.lower.npu.formats.tflite_schema import BUILTINS
from nxjax.lower.npu.graph import Tensor
from nxjax.trace.dtypes import short_name

Operands = Sequence[Tensor | None]
Options = dict[str, Any]

_BOTH: Final = {"i8": 2, "i16": 3}
_EIGHT: Final = {"i8": 2}
_EITHER: Final = {"i8": 2, "i16": 2}
_PLACE: Final = {"i8": 2, "bool": 3}

# Version by the dtype of the first operand; 1 for the rest.
_BY_TYPE: Final[dict[str, dict[str, int]]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "TANH", "LOGISTIC", "MEAN", "RSQRT", "RELU6"), _BOTH),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "LESS", "GREATER_EQUAL", "BATCH_MATMUL"), _BOTH),
    **dict.fromkeys(("SUM", "LOG_SOFTMAX", "GREATER", "LESS_EQUAL", "SQUARED_DIFFERENCE"), _EIGHT),
    **dict.fromkeys(("EXP", "LOG", "SQRT", "REDUCE_PROD"), _EITHER),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _PLACE),
    "RELU": {"i8": 2, "u8": 2, "i16": 3},
    "GELU": {"i8": 2, "u8": 2, "f16": 3},
    "SOFTMAX": {**_BOTH, "f16": 4},
    "CONCATENATION": {**_BOTH, "u32": 4, "i4": 5, "f16": 6},
    "GATHER": {"i8": 2, "bool": 3, "i16": 4, "i4": 7},
    "SPLIT_V": _EIGHT,
    "SPLIT": {"i8": 2, "i32": 3, "i16": 4},
    "EQUAL": {"i8": 2, "i16": 5},
    "NOT_EQUAL": {"i8": 2, "i16": 4},
    "LEAKY_RELU": {"i16": 2},
    "TILE": {"i8": 3},
    "REVERSE_V2": {"bool": 2, "i8": 3},
    "SIGN": {"i32": 2},
    "SIN": {"f16": 2},
    "COS": {"f16": 2},
    "SELECT_V2": {"u32": 2},
}


def _name(t: Tensor | None) -> str:
    return "" if t is None else short_name(t.dtype)


def _rank(inputs: Operands) -> int:
    return max(len(t.shape) for t in inputs if t is not None)


def _broadcasts(inputs: Operands) -> bool:
    x, y = inputs[0], inputs[1]
    assert x is not None and y is not None
    return x.shape != y.shape


def _per_axis(t: Tensor | None) -> bool:
    return t is not None and t.grid is not None and t.grid.axis is not None


def _conv_2d(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x, w = inputs[0], inputs[1]
    assert x is not None and w is not None
    if x.shape[-1] != w.shape[-1]:
        return 6
    if _name(x) == "i16":
        return 4
    if _name(w) == "i4":
        return 7
    if _name(x) == "f32" and _name(w) == "i8":
        return 5 if _per_axis(w) else 2
    return 3 if _name(x) == "i8" else 1


def _depthwise_conv_2d(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x, w = inputs[0], inputs[1]
    if _name(x) == "i16":
        return 5
    if _name(w) == "i4":
        return 7
    if _name(x) == "f32" and _name(w) == "i8":
        return 6 if _per_axis(w) else 4
    if _name(x) == "i8":
        return 3
    return 2 if options["dilation_w_factor"] != 1 or options["dilation_h_factor"] != 1 else 1


def _fully_connected(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x, w = _name(inputs[0]), _name(inputs[1])
    if x == "i16":
        return 13 if w == "i4" else 7
    if x == "f32" and w == "i8" and _per_axis(inputs[1]):
        return 12
    if w == "i4":
        return 10
    if len(inputs) == 2 or inputs[2] is None:
        return 6
    if options["keep_num_dims"]:
        return 5
    if x == "i8":
        return 4
    return 3 if w == "i8" else 1


def _transpose_conv(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if options["fused_activation_function"]:
        return 4
    if len(inputs) == 4:
        return 3
    return 2 if _name(inputs[1]) == "i8" else 1


def _add(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x = inputs[0]
    if _name(x) == "i16":
        return 3 if x is not None and x.grid is not None else 5
    return {"f16": 6, "i64": 4, "i8": 2}.get(_name(x), 1)


def _sub(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) == "i16":
        return 5
    if _name(inputs[0]) == "i64":
        return 4
    if _broadcasts(inputs) and _rank(inputs) > 4:
        return 3
    return 2 if _name(inputs[0]) == "i8" else 1


def _mul(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x, y, z = inputs[0], inputs[1], outputs[0]
    assert x is not None and y is not None
    if _name(x) == "i16":
        return 4 if x.grid is not None else 7
    special = {"f16": 8, "u32": 7, "i64": 5}.get(_name(x))
    if special is not None:
        return special
    if x.grid is not None and y.grid is not None and z.grid is not None:
        scales = [float(t.grid.scales(0)) for t in (x, y, z) if t.grid is not None]
        if scales[0] * scales[1] / scales[2] >= 1:
            return 3
    return 2 if _name(x) == "i8" else 1


def _div(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    return 2 if _broadcasts(inputs) and _rank(inputs) > 4 else 1


def _extremum(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) == "i16":
        return 4
    if _broadcasts(inputs) and _rank(inputs) > 4:
        return 3
    return 2 if _name(inputs[0]) == "i8" else 1


def _pad(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) == "bool":
        return 5
    if _rank(inputs[:1]) > 4:
        return 4
    return _BOTH.get(_name(inputs[0]), 1)


def _transpose(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    dtype, rank = _name(inputs[0]), _rank(inputs[:1])
    if dtype == "f16":
        return 9
    if rank > 6 or dtype == "bf16":
        return 8
    if dtype == "i4":
        return 7
    if rank > 5:
        return 6
    if dtype == "i16":
        return 5
    if rank > 4:
        return 4
    return {"bool": 3, "i8": 2}.get(dtype, 1)


def _slice(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    special = {"f16": 8, "i4": 7, "u32": 6}.get(_name(inputs[0]))
    if special is not None:
        return special
    return 5 if _rank(inputs[:1]) > 4 else {"i16": 4, "i8": 2}.get(_name(inputs[0]), 1)


def _strided_slice(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) == "u32":
        return 7
    return 4 if _rank(inputs[:1]) > 4 else {"bool": 3, "i8": 2}.get(_name(inputs[0]), 1)


def _resize(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) == "i16":
        return 4
    if options["half_pixel_centers"]:
        return 3
    return 2 if _name(inputs[0]) == "i8" else 1


def _resize_nearest(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if _name(inputs[0]) != "i16" and options["align_corners"]:
        return 3
    return _resize(inputs, outputs, options)


def _dequantize(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    dtype = _name(inputs[0])
    if dtype == "i8":
        return 5 if _per_axis(inputs[0]) else 2
    return {"u4": 8, "i4": 6, "i16": 3, "f16": 3}.get(dtype, 1)


def _quantize(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    if "i4" in (_name(inputs[0]), _name(outputs[0])):
        return 4
    if _per_axis(outputs[0]):
        return 3
    return 2 if _name(outputs[0]) == "i16" else 1


def _abs(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    x = inputs[0]
    if _name(x) == "i16":
        return 3 if x is not None and x.grid is not None else 4
    return {"i32": 5, "i8": 2, "u8": 2}.get(_name(x), 1)


def _broadcast_to(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    return 3 if _name(inputs[0]) in ("i8", "i16") else 2


def _cast(inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    pair = {_name(inputs[0]), _name(outputs[0])}
    rules = (({"u4"}, 8), ({"bf16"}, 7), ({"i4"}, 6), ({"f64", "f16"}, 5), ({"u16"}, 4), ({"i8"}, 3), ({"u32"}, 2))
    return next((version for names, version in rules if pair & names), 1)


_RULES: Final = {
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv,
    "ADD": _add,
    "SUB": _sub,
    "MUL": _mul,
    "DIV": _div,
    "MAXIMUM": _extremum,
    "MINIMUM": _extremum,
    "PAD": _pad,
    "PADV2": _pad,
    "TRANSPOSE": _transpose,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "ABS": _abs,
    "BROADCAST_TO": _broadcast_to,
    "CAST": _cast,
}


def version(name: str, inputs: Operands, outputs: Sequence[Tensor], options: Options) -> int:
    """The version to write for one use of operator ``name``.

    Args:
        name: TFLite's name, e.g. "CONV_2D".
        inputs: operands in the file's order, None for absent ones.
        outputs: results.
        options: the fields of the operator's options.

    >>> x = Tensor("x", (1, 4), "int8")
    >>> version("TANH", [x], [x], {})
    2
    """
    rule = _RULES.get(name)
    if rule is not None:
        return rule(inputs, outputs, options)
    # The data of SPLIT is its second operand.
    return _BY_TYPE.get(name, {}).get(_name(inputs[1 if name == "SPLIT" else 0]), 1)


def runtime(name: str, number: int) -> str:
    """The first runtime that has version ``number`` of operator ``name``, e.g. "2.3.0"."""
    return BUILTINS[name].runtimes[number - 1]
