"""What Google's Edge TPU takes, as Google publishes it, in our own words.

Source: "TensorFlow models on the Edge TPU" (coral.ai/docs/edgetpu/models-intro), its requirements and its table of
supported operations with known limitations, compiler version 16. The compiler's own tests go further and are not
published: it leaves some operators to the host "due to some unspecified limitation".
"""

from __future__ import annotations

import math
from typing import Final

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.vendors.litert.table import BYTES, Limit, Table

_SOFTMAX: Final = 16_000
_FUSED: Final = "give the relu its own range: quantize without fusing it into this layer"


def _inner(shape: tuple[int, ...], axis: int) -> int:
    """An axis counted from the innermost: 0 is z, 1 is x, 2 is y, 3 the batch."""
    return len(shape) - 1 - axis


def _one_dimensional(shape: tuple[int, ...]) -> bool:
    return math.prod(shape[:-1]) == 1


def _params(o: TFLiteOperator) -> bool:
    if o.name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
        return all(t is None or t.constant or t is o.first for t in o.inputs)
    return True


def _batch_kept(o: TFLiteOperator) -> bool:
    return all(_inner(o.first.shape, a) < 3 for a in o.axes)


def _mean_depth(o: TFLiteOperator) -> bool:
    x = o.first
    return all(_inner(x.shape, a) != 0 or x.shape[a] % 4 == 0 for a in o.axes)


def _no_batch_padding(o: TFLiteOperator) -> bool:
    pads = o.known(1)
    return not pads[: max(len(pads) - 3, 0)].any()


def _batch_not_split(o: TFLiteOperator) -> bool:
    shape, axis = o.first.shape, int(o.known(0 if o.name == "SPLIT" else 2).reshape(-1)[0])
    return _inner(shape, axis % len(shape)) < 3


def _zeros_appended(o: TFLiteOperator) -> bool:
    constants = [t for t in o.inputs if t is not None and t.data is not None]
    if not constants:
        return True
    zero = [t.grid.zero_point if t.grid is not None else 0 for t in constants]
    return len(o.inputs) == 2 and all(bool((t.data == z).all()) for t, z in zip(constants, zero, strict=True))


_LIMITS: Final = {
    "bytes": BYTES,
    "inner3": Limit(
        lambda o: all(math.prod(t.shape[:-3]) == 1 for t in o.every_map),
        "only the three innermost dimensions may be over 1",
        "a batch of one, or reshape to at most three dimensions",
    ),
    "constants": Limit(_params, "weights and biases are constants", "close over the weights instead of passing them"),
    "unfused": Limit(
        lambda o: not o.options.get("fused_activation_function"), "no activation may be fused into it", _FUSED
    ),
    "zeros": Limit(_zeros_appended, "a constant part must be zeros, and one of two parts", "nx.numpy.pad"),
    "dilation": Limit(
        lambda o: len(set(o.dilation)) == 1, "dilation is the same in both directions", "one dilation for both"
    ),
    "row": Limit(
        lambda o: _one_dimensional(o.outputs[0].shape),
        "the result has one dimension",
        "the option rows_as_pixels=True, which writes a 1x1 convolution; or one row at a time",
    ),
    "mean": Limit(_batch_kept, "the batch is not reduced", "reduce the other axes only"),
    "mean_depth": Limit(_mean_depth, "a mean over channels needs a multiple of 4 of them", "pad the channels to it"),
    "padding": Limit(_no_batch_padding, "the batch is not padded", "pad the other axes only"),
    "alpha": Limit(
        lambda o: _one_dimensional(o.weights.shape),
        "slopes are one per channel",
        "share the slope over height and width",
    ),
    "split": Limit(_batch_not_split, "the batch is not split", "slice the other axes only"),
    "steps": Limit(
        lambda o: bool((o.known(3) == 1).all()), "strides are 1", "a pooling or convolution with a stride does the same"
    ),
    "softmax": Limit(
        lambda o: _one_dimensional(o.first.shape) and o.first.shape[-1] <= _SOFTMAX,
        "a softmax is of one row, of at most 16000 elements",
        "softmax on the host, as the last operation",
    ),
}
_OPERATORS: Final = (
    (
        "",
        "ADD EXPAND_DIMS L2_NORMALIZATION LOGISTIC LSTM MAXIMUM MINIMUM MUL PACK QUANTIZE RELU RELU6 RELU_N1_TO_1 "
        "RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SPACE_TO_DEPTH SQUARED_DIFFERENCE SQUEEZE SUB "
        "TANH TRANSPOSE",
    ),
    ("unfused", "AVERAGE_POOL_2D MAX_POOL_2D"),
    ("unfused zeros", "CONCATENATION"),
    ("constants dilation", "CONV_2D DEPTHWISE_CONV_2D"),
    ("constants row", "FULLY_CONNECTED"),
    ("mean mean_depth", "MEAN"),
    ("padding", "PAD"),
    ("alpha", "PRELU"),
    ("mean", "REDUCE_MAX REDUCE_MIN SUM"),
    ("softmax", "SOFTMAX"),
    ("split", "SPLIT SPLIT_V"),
    ("steps", "STRIDED_SLICE"),
    ("constants", "TRANSPOSE_CONV"),
)
_INSTEAD: Final = {
    "DEQUANTIZE": "let the result stay int8 and convert it on the host",
    "HARD_SWISH": "relu6, as MobileNetV2 has it",
    "GELU": "relu or relu6",
    "ELU": "relu or relu6",
    "LEAKY_RELU": "prelu with one slope, or maximum(x, a * x)",
    "PADV2": "pad with zero",
    "DIV": "multiply by a constant reciprocal",
    "SQUARE": "x * x",
    "ABS": "maximum(x, -x)",
    "NEG": "multiply by -1",
    "TOPK_V2": "let the scores be the result, and sort them on the host",
    "IF": "nx.numpy.where of both branches",
    "WHILE": "a scan of few steps, which is written out; more with unroll=",
    "ARG_MAX": "let the scores be the result, argmax on the host",
    "GATHER": "slice and concatenate where the indices are constants",
    "BATCH_MATMUL": "a layer with constant weights; products of two activations run on the host",
    "LOG_SOFTMAX": "let the logits be the result",
    "CAST": "keep int8 through the function",
    "SELECT_V2": "multiply with a mask of 0 and 1",
    **dict.fromkeys(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
        "pass the mask in as numbers, or arithmetic with clamps",
    ),
}

TABLE: Final = Table.of("the Edge TPU", _LIMITS, "bytes inner3", _OPERATORS, _INSTEAD)
