"""What the phone NPUs behind LiteRT's compiler plugins take, operator by operator.

Facts of the plugins' own lists in the LiteRT sources (``litert/vendors/*/compiler``, 2026). They name operators only:
the vendors' libraries check types and shapes, so a table's yes is weaker than a compiler's.
"""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.constraints.tflite_table import Table

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


def _table(chip: str, *lists: str) -> Table:
    names = " ".join(lists).split()
    return Table(chip, dict.fromkeys(names, ()), _INSTEAD)


def _all_but(chip: str, refused: tuple[str, ...]) -> Table:
    from nxjax.lower.npu.formats.tflite_schema import BUILTINS

    return Table(chip, dict.fromkeys((n for n in BUILTINS if n not in refused), ()), _INSTEAD)


QUALCOMM: Final = _table("Qualcomm's LiteRT plugin", _COMMON, _BOTH, _QUALCOMM)
SAMSUNG: Final = _table("Samsung's LiteRT plugin", _COMMON, _BOTH)
MEDIATEK: Final = _table("MediaTek's LiteRT plugin", _COMMON, "PRELU")
GOOGLE: Final = _all_but("Google Tensor's LiteRT plugin", _GOOGLE_REFUSES)
