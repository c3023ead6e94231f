"""What the phone NPUs behind LiteRT's compiler plugins take, operator by operator.

Facts of the plugins' own lists in the LiteRT sources (``litert/vendors/*/compiler``, 2026). They name operators;
MediaTek's names the tensor types too ("LiteRT to MediaTek Neuron Compiler Support", ``GetNeuronTensorType``). Sizes are
checked by the vendors' libraries alone, so a table's yes is weaker than a compiler's, and is reported as what it is.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_schema import BUILTINS
from nxjax.lower.npu.graph import Tensor
from nxjax.trace import dtypes
from nxjax.vendors.litert.table import Limit, Table

# Operators that all three plugins with a list have.
_COMMON: Final = """
ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CAST CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE DIV FULLY_CONNECTED GELU
GREATER HARD_SWISH LEAKY_RELU LESS LOGISTIC MAX_POOL_2D MAXIMUM MEAN MINIMUM MUL PAD PADV2 QUANTIZE REDUCE_MAX RELU
RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX SPLIT SQRT SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM
TANH TRANSPOSE TRANSPOSE_CONV
"""
# Beside those, Qualcomm's and Samsung's.
_BOTH: Final = """
ARG_MAX BROADCAST_TO CEIL COS CUMSUM EQUAL EXP FLOOR GATHER GREATER_EQUAL LOG LOGICAL_AND NOT_EQUAL POW REDUCE_MIN RELU6
RELU_N1_TO_1 REVERSE_V2 SELECT SELECT_V2 SIN
"""
_QUALCOMM: Final = """
ARG_MIN ELU LESS_EQUAL LOG_SOFTMAX LOGICAL_NOT LOGICAL_OR NEG ONE_HOT PRELU ROUND SIGN SPLIT_V SQUARE TILE
"""
# Google's plugin lists what it refuses; of the operators that we write, this is all.
_GOOGLE_REFUSES: Final = ("REDUCE_PROD",)
# Of these it is not known.
_NOT_KNOWN: Final = ("TOPK_V2", "CONV_3D", "CONV_3D_TRANSPOSE", "IF", "WHILE")

_INSTEAD: Final = {
    "ELU": "use relu, leaky_relu or gelu",
    "PRELU": "use leaky_relu, with one slope",
    "REDUCE_PROD": "multiply in steps, or add logarithms",
    "SQUARE": "multiply by itself",
    "NEG": "subtract from zero",
    "TILE": "concatenate",
    "LESS_EQUAL": "swap the operands of >=",
    "SPLIT_V": "split into equal parts, or slice",
}


# Tensor types of MediaTek's plugin; those of the second row on a grid only, and 16 bits with one scale only.
_PLAIN: Final = frozenset((dtypes.float32, dtypes.float16, dtypes.int32, dtypes.uint8, dtypes.bool_))
_ON_GRIDS: Final = frozenset((dtypes.int8, dtypes.int4, dtypes.int16, dtypes.uint16))
_ONE_SCALE: Final = frozenset((dtypes.int16, dtypes.uint16))


def _neuron_type(t: Tensor) -> bool:
    if t.dtype in _ON_GRIDS:
        return t.grid is not None and (t.grid.axis is None or t.dtype not in _ONE_SCALE)
    return t.dtype in _PLAIN or (t.dtype == dtypes.int64 and t.constant)


def _neuron_types(o: TFLiteOperator) -> bool:
    return all(map(_neuron_type, [t for t in (*o.inputs, *o.outputs) if t is not None]))


_TYPES: Final = Limit(
    _neuron_types,
    "a tensor's type is none of float32, float16, int32, bool, int8 or int4 on a grid, int16 on a grid of one scale",
    "quantize the function, or cast to int32 or float32",
)


def _table(chip: str, *lists: str, limits: tuple[Limit, ...] = ()) -> Table:
    names = " ".join(lists).split()
    return Table(chip, dict.fromkeys(names, limits), _INSTEAD)


def _all_but(chip: str, refused: tuple[str, ...]) -> Table:
    return Table(chip, dict.fromkeys((n for n in BUILTINS if n not in refused), ()), _INSTEAD)


QUALCOMM: Final = _table("Qualcomm's LiteRT plugin", _COMMON, _BOTH, _QUALCOMM)
SAMSUNG: Final = _table("Samsung's LiteRT plugin", _COMMON, _BOTH)
MEDIATEK: Final = _table("MediaTek's LiteRT plugin", _COMMON, "PRELU", limits=(_TYPES,))
GOOGLE: Final = _all_but("Google Tensor's LiteRT plugin", _GOOGLE_REFUSES + _NOT_KNOWN)
