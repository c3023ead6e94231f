"""What Arm's Ethos-N78 takes, as its driver stack publishes it, in our own words.

Source: ``SUPPORTED.md`` of Arm's ethos-n-driver-stack. Files reach it through Arm NN's TFLite delegate, whose compiler
is part of the device's driver, so that this table is all that can be said without one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_schema import SAME, VALID
from nxjax.lower.npu.graph import Tensor
from nxjax.vendors.litert.table import BYTES, Limit, Table

_KERNELS: Final = (1, 2, 3, 5, 7, 9)
_LEAST_FACTOR: Final = 2.33e-10
_WIDEST_POOL: Final = 417
_LARGEST_AVERAGE: Final = 61440


def _scale(t: Tensor) -> float:
    assert t.grid is not None
    return float(np.max(t.grid.scale))


def _factor(o: TFLiteOperator) -> bool:
    x, w, out = o.first, o.weights, o.outputs[0]
    if x.grid is None or w.grid is None or out.grid is None:
        return False
    factors = np.asarray(w.grid.scale, np.float64) * _scale(x) / _scale(out)
    return bool((factors >= _LEAST_FACTOR).all() and (factors < 1).all())


def _strided(o: TFLiteOperator) -> bool:
    h, w = o.stride
    return h == w and h in (1, 2) and (max(o.kernel) <= 7 or h == 1) and o.dilation == (1, 1)


def _sixteens(o: TFLiteOperator) -> bool:
    """Pieces along the channels are multiples of 16 wide; inputs of a concatenation, results of a split."""
    parts: list[Tensor | None] = [*(o.inputs if o.name == "CONCATENATION" else o.outputs)]
    sizes = {t.shape for t in parts if t is not None}
    along_channels = len({s[-1] for s in sizes} | {o.first.shape[-1], o.outputs[0].shape[-1]}) > 1
    return not along_channels or all(s[-1] % 16 == 0 for s in sizes)


def _even_result(o: TFLiteOperator) -> bool:
    pairs = list(zip(o.first.shape[1:3], o.outputs[0].shape[1:3], strict=True))
    return all(m in (2 * n, 2 * n - 1) for n, m in pairs) and pairs[0][1] % 2 == pairs[1][1] % 2


def _max_pool(o: TFLiteOperator) -> bool:
    x, k = o.first.shape[1:3], o.kernel
    parity = {VALID: 0, SAME: 1}[o.options["padding"]]
    fits = k in ((2, 2), (3, 3)) and o.stride == (2, 2) and all(n % 2 == parity and n >= k[0] for n in x)
    return fits and (k == (2, 2) or x[1] <= _WIDEST_POOL)


def _average_pool(o: TFLiteOperator) -> bool:
    x, k = o.first.shape[1:3], o.kernel
    if k in ((7, 7), (8, 8)):
        return x == k
    return k == (3, 3) and o.stride == (1, 1) and o.options["padding"] == SAME and x[0] * x[1] <= _LARGEST_AVERAGE


def _mean(o: TFLiteOperator) -> bool:
    x = o.first
    return len(x.shape) == 4 and o.axes == (1, 2) and x.shape[1:3] in ((7, 7), (8, 8))


def _channels_constant(o: TFLiteOperator) -> bool:
    """A product with one constant per channel becomes a depthwise convolution."""
    channels = o.outputs[0].shape[-1:]
    return any(t is not None and t.constant and t.shape[-1:] == channels and t.size == channels[0] for t in o.inputs)


def _no_batch_moved(o: TFLiteOperator) -> bool:
    permutation = o.known(1)
    return len(permutation) < 4 or int(permutation[0]) == 0


_LIMITS: Final = {
    "bytes": BYTES,
    "rank": Limit(lambda o: all(len(t.shape) <= 4 for t in o.every_map), "at most 4 dimensions", "reshape"),
    "batch": Limit(
        lambda o: all(len(t.shape) < 4 or t.shape[0] == 1 for t in o.every_map), "the batch is 1", "one image at a time"
    ),
    "kernel": Limit(
        lambda o: all(k in _KERNELS for k in o.kernel), "kernels are 1, 2, 3, 5, 7 or 9 long", "a kernel of such sides"
    ),
    "strided": Limit(_strided, "strides are 1 or 2 in both directions, 1 over 7 x 7, and no dilation", "stride 1 or 2"),
    "factor": Limit(_factor, "operand scale * weight scale / result scale is under 1", "a wider range of the result"),
    "multiplier": Limit(
        lambda o: o.options.get("depth_multiplier", 1) == 1, "one result per channel", "a 1x1 convolution behind it"
    ),
    "sixteens": Limit(_sixteens, "parts along the channels are multiples of 16", "channels in multiples of 16"),
    "equal_shapes": Limit(
        lambda o: len({t.shape for t in o.every_map if t.size > 1}) == 1 or _channels_constant(o),
        "operands have one shape",
        "broadcast when the constants are made",
    ),
    "alpha": Limit(lambda o: 0 < o.options["alpha"] < 1, "the slope is between 0 and 1"),
    "finer": Limit(
        lambda o: _scale(o.outputs[0]) > _scale(o.first) / 128, "the result's scale is over 1/128 of the operand's"
    ),
    "max_pool": Limit(
        _max_pool,
        "maximum pooling is 2x2 or 3x3 with stride 2, sizes even without and odd with padding",
        "such a pooling, or a convolution of stride 2",
    ),
    "average_pool": Limit(
        _average_pool,
        "average pooling is 3x3 of stride 1 with padding, or of all of 7x7 or 8x8",
        "a mean over 7x7 or 8x8",
    ),
    "mean": Limit(_mean, "means are over height and width of 7x7 or 8x8", "an image size that ends at 7x7 or 8x8"),
    "moved": Limit(_no_batch_moved, "the batch stays where it is"),
    "doubled": Limit(_even_result, "resizing is by 2, or 2n - 1, in both directions alike", "resize by 2"),
    "per_channel": Limit(
        _channels_constant, "products are with one constant per channel", "fold the factor into a convolution's weights"
    ),
}
# A multiplication is one that Arm NN turns into a depthwise convolution.
_OPERATORS: Final = (
    ("equal_shapes", "ADD"),
    ("average_pool", "AVERAGE_POOL_2D"),
    ("sixteens finer", "CONCATENATION"),
    ("kernel strided factor", "CONV_2D TRANSPOSE_CONV"),
    ("kernel strided factor multiplier", "DEPTHWISE_CONV_2D"),
    ("factor", "FULLY_CONNECTED"),
    ("alpha", "LEAKY_RELU"),
    ("", "LOGISTIC RELU RELU6 RELU_N1_TO_1 RESHAPE"),
    ("max_pool", "MAX_POOL_2D"),
    ("mean", "MEAN"),
    ("per_channel", "MUL"),
    ("finer", "QUANTIZE"),
    ("doubled", "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR"),
    ("sixteens", "SPLIT SPLIT_V"),
    ("moved", "TRANSPOSE"),
)
_INSTEAD: Final = {
    "DEQUANTIZE": "let the result stay int8 and convert it on the host",
    "PAD": "'SAME' padding of the convolution behind it",
    "SOFTMAX": "the logits are enough for an argmax on the host",
    "HARD_SWISH": "relu6, or swish without its hard form on the host",
    "SUB": "add the negative, folded into the layer before",
}

TABLE: Final = Table.of("Ethos-N", _LIMITS, "bytes rank batch", _OPERATORS, _INSTEAD)
