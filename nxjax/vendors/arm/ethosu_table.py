"""What Arm's Ethos-U takes, as Vela 5 publishes it for its TFLite input, in our own words.

Source: the constraints that Vela itself reports (``vela --supported-ops-report``, version 5.2). U55 and U65 share a
table; U85 has its own. Where Vela is installed, its answer decides and the tests hold this table against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_schema import SAME, VALID
from nxjax.lower.npu.graph import Tensor
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.vendors.litert.table import QUANTIZE, Limit, Rows, Table, by_operator

_AXIS: Final = 1 << 16


def _kinds(*kinds: DType) -> Callable[[TFLiteOperator], bool]:
    return lambda o: all(t.dtype in kinds for t in o.every_map)


def _first_is(*kinds: DType) -> Callable[[TFLiteOperator], bool]:
    return lambda o: o.first.dtype in kinds and o.outputs[0].dtype == o.first.dtype


def _int(t: Tensor) -> bool:
    return t.dtype in (dtypes.int8, dtypes.uint8, dtypes.int16)


def _volume(o: TFLiteOperator) -> bool:
    """A strided slice steps over height and width only; axes count from the end: ..., h, w, c."""
    steps = [int(s) for s in o.known(3)]
    return all(s == 1 for i, s in enumerate(reversed(steps)) if i not in (1, 2)) and min(steps) > 0


def _weight_sum(limit16: int) -> Callable[[TFLiteOperator], bool]:
    def holds(o: TFLiteOperator) -> bool:
        w = o.weights
        if w.data is None:
            return True
        channel = 3 if o.name == "DEPTHWISE_CONV_2D" else 0
        sums = np.abs(w.data.astype(np.int64)).sum(tuple(i for i in range(w.data.ndim) if i != channel))
        return bool((sums <= (limit16 if o.first.dtype == dtypes.int16 else 127 * _AXIS)).all())

    return holds


def _bias(bits: int) -> Callable[[TFLiteOperator], bool]:
    def holds(o: TFLiteOperator) -> bool:
        b = o.inputs[3] if o.name == "TRANSPOSE_CONV" else o.inputs[2]
        if b is None:
            return True
        if b.data is None or b.dtype not in (dtypes.int32, dtypes.int64):
            return False
        return b.dtype != dtypes.int64 or bool((np.abs(b.data) < (1 << bits) - 1).all())

    return holds


def _products(o: TFLiteOperator) -> bool:
    """Products of two feature maps: of int8, with at most 2^16 terms and results a row."""
    if o.name == "FULLY_CONNECTED" and o.weights.constant:
        return True
    x, y = o.first, o.weights
    rows = (x.shape[-1], x.shape[-2] if len(x.shape) > 1 else 1, *y.shape[-2:])
    return x.dtype == dtypes.int8 and max(rows) <= _AXIS


def _transposed_shape(o: TFLiteOperator) -> bool:
    x, out = o.first.shape[1:3], o.outputs[0].shape[1:3]
    if o.options["padding"] == SAME:
        return all(n == m * s for n, m, s in zip(out, x, o.stride, strict=True))
    return all(n == m * s + max(k - s, 0) for n, m, s, k in zip(out, x, o.stride, o.kernel, strict=True))


def _transposed_stride(o: TFLiteOperator) -> bool:
    (h, w), x, k = o.stride, o.first.shape[1:3], o.kernel
    return (
        (h, w) in ((1, 1), (2, 2))
        or ((h, w) == (1, 2) and x[0] == k[0] == 1)
        or ((h, w) == (2, 1) and x[1] == k[1] == 1)
    )


def _scale(o: TFLiteOperator) -> tuple[tuple[int, int], tuple[int, int]]:
    """The factors of a resize, as fractions."""
    less = 1 if o.options["align_corners"] else 0
    pairs = zip(o.outputs[0].shape[1:3], o.first.shape[1:3], strict=True)
    h, w = ((max(n - less, 1), max(m - less, 1)) for n, m in pairs)
    return h, w


def _resize_u55(halves: tuple[int, ...]) -> Callable[[TFLiteOperator], bool]:
    def holds(o: TFLiteOperator) -> bool:
        size, made = o.first.shape[1:3], o.outputs[0].shape[1:3]
        if size == (1, 1) or (size == made and not (o.options["half_pixel_centers"] and len(halves) == 1)):
            return True
        factors = halves if o.options["half_pixel_centers"] else (2, 4, 8)
        (hn, hd), (wn, wd) = _scale(o)
        if hn * wd != wn * hd:
            # One axis of length 1 may stay so.
            if 1 not in made or (o.options["half_pixel_centers"] and len(halves) == 1):
                return False
            one = made.index(1)
            if size[one] != 1:
                return False
            n, d = ((wn, wd), (hn, hd))[one]
            return n % d == 0 and n // d in factors
        return hn % hd == 0 and hn // hd in factors

    return holds


def _resize_limit(o: TFLiteOperator) -> bool:
    if o.first.shape[1:3] == o.outputs[0].shape[1:3]:
        return True
    most = 2048 if o.options["align_corners"] else 1024
    return all(n / math.gcd(n, d) <= most for n, d in _scale(o))


def _powers(o: TFLiteOperator) -> bool:
    if o.first.shape[1:3] in ((1, 1), o.outputs[0].shape[1:3]):
        return True
    return all(n % d == 0 and (n // d).bit_count() == 1 for n, d in _scale(o))


def _hwc(t: Tensor) -> tuple[int, ...]:
    return (1,) * (4 - len(t.shape)) + t.shape


def _mean_depth(o: TFLiteOperator) -> bool:
    x, reduced = o.first, o.axes
    shape = _hwc(x)
    last = len(x.shape) - 1
    return last not in reduced or x.shape[last] == 1 or 1 in shape[-3:]


def _one_image(o: TFLiteOperator) -> bool:
    return len(o.first.shape) < 4 or o.first.shape[0] == 1


def _mean_count(o: TFLiteOperator) -> bool:
    x = o.first
    count = math.prod(x.shape[a] for a in o.axes)
    return count <= {dtypes.int8: 1 << 24, dtypes.uint8: 1 << 23}.get(x.dtype, 1 << 16)


def _permutation(o: TFLiteOperator) -> bool:
    """Int32 is moved by few permutations; 8 and 16 bits by all, while two axes' product stays under 2^16."""
    x, order = o.first, tuple(int(i) for i in o.known(1))
    if order == tuple(range(len(order))):
        return x.dtype != dtypes.int32 or x.shape[-1] <= _AXIS
    if x.dtype != dtypes.int32:
        return max(
            math.prod(x.shape) // max(x.shape[i] * x.shape[j], 1) for i in range(len(order)) for j in range(i)
        ) <= (_AXIS)
    if len(order) > 4:
        return False
    shape, full = _hwc(x), (*range(4 - len(order)), *(i + 4 - len(order) for i in order))
    n, h, w, c = shape
    if full == (0, 2, 1, 3):
        return n == 1 and h <= _AXIS and w <= _AXIS and c <= 1 << 14
    return full == (0, 1, 3, 2) and n * h <= _AXIS and max(w, c) <= _AXIS


def _window_stride(o: TFLiteOperator) -> bool:
    """Strides to 3; longer ones without padding and dilation. Where there is one step only, its length is nothing."""
    steps = [s for s, n in zip(o.stride, o.outputs[0].shape[1:3], strict=True) if n > 1]
    return max(steps, default=1) <= 3 or (o.dilation == (1, 1) and o.options["padding"] == VALID)


def _average_kernel(o: TFLiteOperator) -> bool:
    h, w = o.kernel
    return (h * w <= _AXIS and h <= 256) if o.options["padding"] == VALID else max(h, w) <= 8


_TWO: Final = (dtypes.int8, dtypes.int16)
_LIMITS: Final[dict[str, Limit]] = {
    "ranked": Limit(
        lambda o: all(t.shape != () for t in o.every_map if not t.constant),
        "a feature map has no dimensions",
        "keep one axis: keepdims=True, or reshape to (1,)",
    ),
    "grids": Limit(
        lambda o: all(t.grid is not None for t in o.every_map if _int(t)), "feature maps have a scale", QUANTIZE
    ),
    "scales": Limit(
        lambda o: all(float(np.max(t.grid.scale)) < 2.0**32 for t in o.every_map if t.grid is not None),
        "scales are under 2^32",
        "mask with a number near the others, such as -30, in place of -inf or the least float",
    ),
    "tensorwise": Limit(
        lambda o: all(t.grid is None or t.grid.axis is None for t in o.every_map), "one scale per feature map"
    ),
    "int8": Limit(_first_is(dtypes.int8), "int8 in and out", QUANTIZE),
    "byte": Limit(_first_is(dtypes.int8, dtypes.uint8), "8 bits in and out", "use the int8 preset for this layer"),
    "short": Limit(_first_is(*_TWO), "int8 or int16 in and out", QUANTIZE),
    "equal_shapes": Limit(lambda o: o.first.shape == o.outputs[0].shape, "operand and result have one shape"),
    "weights": Limit(lambda o: o.weights.dtype in (dtypes.int8, dtypes.uint8), "weights are of 8 bits", QUANTIZE),
    "constant_weights": Limit(
        lambda o: o.weights.constant, "weights are constants", "close over the weights instead of passing them"
    ),
    "pool_kernel": Limit(
        lambda o: math.prod(o.kernel) <= _AXIS and o.kernel[0] <= 256, "windows are at most 256 high, 65536 in all"
    ),
    "average_kernel": Limit(
        _average_kernel,
        "averaging windows are at most 8 x 8 with padding, 256 high and 65536 in all without",
        "no padding, or a smaller window",
    ),
    "transposed_shape": Limit(
        _transposed_shape,
        "the result of a transposed convolution is operand * stride, without padding + (kernel - stride)",
        "a kernel not smaller than its stride, and 'SAME' or 'VALID' padding",
    ),
    "equal_grids": Limit(
        lambda o: len({t.grid for t in o.every_map}) == 1,
        "operands and result have one scale and zero point",
        "give operands and result one range when quantizing",
    ),
    "mean_types": Limit(lambda o: _int(o.first), "means are of int8, uint8 or int16"),
    "mean_depth": Limit(
        _mean_depth,
        "a mean over channels needs height, width or channels of 1",
        "transpose first, or a 1x1 convolution with weights 1/channels",
    ),
    "mean_batch": Limit(_one_image, "the batch of a mean is 1", "vmap over one image at a time"),
    # Vela says "less than 4096" and "less than 65536" of the next two, and takes the number itself too.
    "mean_axis": Limit(lambda o: all(o.first.shape[a] <= 4096 for a in o.axes), "a mean's axes are at most 4096"),
    "softmax": Limit(
        lambda o: math.prod(o.first.shape[-3:-1]) <= _AXIS, "a softmax has at most 65536 rows", "split the rows"
    ),
    "mean_count": Limit(_mean_count, "a mean is of too many elements", "two means, one after the other"),
    "volume": Limit(
        _volume, "strided slices step over height and width only", "reshape so that the axis is one of them"
    ),
    "rank8": Limit(lambda o: len(o.first.shape) <= 8, "at most 8 dimensions"),
}
# Limits of U55 and U65 alone.
_U55: Final[dict[str, Limit]] = {
    "types": Limit(
        _kinds(dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64),
        "feature maps are 8, 16 or 32-bit integers",
        QUANTIZE,
    ),
    "narrow": Limit(
        lambda o: all(t.dtype != dtypes.int32 for t in o.every_map),
        "32-bit feature maps are not taken",
        "compute in int8 or int16; or Ethos-U85, which takes 32 bits",
    ),
    "weight_sum": Limit(_weight_sum(127 * _AXIS), "absolute weights of a channel add up to at most 127 * 65536"),
    "bias": Limit(_bias(40), "the bias is a constant, of 32 bits or under 2^40"),
    "stride3": Limit(
        lambda o: max(o.stride) <= 3, "strides are 1 to 3", "stride 1 to 3, or a pooling layer after a smaller stride"
    ),
    "stride3_valid": Limit(
        _window_stride,
        "strides over 3 go with no padding and no dilation",
        "stride 1 to 3, or padding 'VALID' after nx.numpy.pad",
    ),
    "products": Limit(
        _products, "products of two activations are of int8, at most 65536 long", "the int8 preset for this layer"
    ),
    "transposed_stride": Limit(
        _transposed_stride,
        "transposed convolutions have stride 1 or 2 in both directions",
        "stride (2, 2), several times if need be",
    ),
    "resize_nearest": Limit(
        _resize_u55((2, 4, 8)), "resizing is by 2, 4 or 8, in both directions alike", "resize by 2 several times"
    ),
    "resize_bilinear": Limit(
        _resize_u55((2,)),
        "resizing is by 2, 4 or 8 (2 with half-pixel centres), in both directions alike",
        "resize by 2 several times",
    ),
    "resize_batch": Limit(
        lambda o: o.first.shape[0] == 1 or o.first.shape[1:3] in ((1, 1), o.outputs[0].shape[1:3]),
        "the batch of a resize is 1",
        "vmap over one image at a time",
    ),
    "depth": Limit(
        lambda o: o.axes == (len(o.first.shape) - 1,), "argmax is along the last axis", "transpose the axis to the end"
    ),
    "depth127": Limit(lambda o: o.first.shape[-1] <= 127, "argmax is of at most 127 channels", "argmax on the host"),
    "permutation": Limit(
        _permutation, "this permutation is not taken at this width", "int8 in place of int32, or two transposes"
    ),
    "nothing_reversed": Limit(lambda o: False, "reversing along an axis is not taken", "reverse on the host"),
    "one_image": Limit(_one_image, "the batch is 1", "reshape the batch into the rows"),
}
# Limits of U85 alone.
_U85: Final[dict[str, Limit]] = {
    "types": Limit(
        _kinds(dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.bool_),
        "feature maps are 8, 16 or 32-bit integers or bool",
        QUANTIZE,
    ),
    "weight_sum": Limit(_weight_sum(32512 * _AXIS), "absolute weights of a channel add up to too much"),
    "bias": Limit(_bias(48), "the bias is a constant, of 32 bits or under 2^48"),
    "resize_limit": Limit(_resize_limit, "resizing is by at most 1024, or 2048 with aligned corners"),
    "resize_powers": Limit(_powers, "bilinear resizing is by powers of two", "resize by 2 several times"),
    "resize_modes": Limit(
        lambda o: not (o.options["align_corners"] and o.options["half_pixel_centers"]),
        "aligned corners exclude half-pixel centres",
    ),
    "gather_first": Limit(
        lambda o: o.options["axis"] == o.options.get("batch_dims", 0),
        "gathers are along the first axis",
        "transpose the axis to the front",
    ),
}

_CONVOLUTION: Final = "weights constant_weights weight_sum bias"
# Operators of both series with their limits, of which each series has its own.
_OPERATORS: Final = (
    (
        "",
        "ABS ADD CONCATENATION EXP EXPAND_DIMS LEAKY_RELU LOGISTIC MIRROR_PAD MUL NEG PACK PAD PADV2 PRELU QUANTIZE "
        "REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE SLICE SPLIT SPLIT_V SQUARED_DIFFERENCE "
        "SQUEEZE SUB SUM TANH TILE UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK",
    ),
    ("depth depth127 one_image", "ARG_MAX"),
    ("average_kernel stride3_valid", "AVERAGE_POOL_2D"),
    ("products", "BATCH_MATMUL"),
    (f"{_CONVOLUTION} stride3_valid", "CONV_2D"),
    (f"{_CONVOLUTION} stride3", "DEPTHWISE_CONV_2D"),
    ("int8 equal_shapes", "ELU"),
    ("weights weight_sum bias products", "FULLY_CONNECTED"),
    ("byte equal_shapes", "GELU"),
    ("byte", "HARD_SWISH"),
    ("short equal_shapes", "LOG"),
    ("equal_grids", "MAXIMUM MINIMUM"),
    ("pool_kernel stride3_valid", "MAX_POOL_2D"),
    ("mean_types mean_depth mean_batch mean_axis mean_count", "MEAN"),
    ("resize_bilinear resize_batch resize_modes resize_limit resize_powers", "RESIZE_BILINEAR"),
    ("resize_nearest resize_batch resize_modes resize_limit", "RESIZE_NEAREST_NEIGHBOR"),
    ("nothing_reversed", "REVERSE_V2"),
    ("short", "RSQRT"),
    ("softmax", "SOFTMAX"),
    ("volume", "STRIDED_SLICE"),
    ("rank8 permutation", "TRANSPOSE"),
    (f"{_CONVOLUTION} transposed_shape transposed_stride", "TRANSPOSE_CONV"),
)
_U85_OPERATORS: Final = (
    (
        "",
        "ASSIGN_VARIABLE CAST DIV EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_NOT LOGICAL_OR "
        "NOT_EQUAL READ_VARIABLE REDUCE_ALL REDUCE_ANY SCATTER_ND SELECT SELECT_V2",
    ),
    ("gather_first", "GATHER"),
)
# Operators that take 32-bit feature maps on U55 and U65.
_WIDE: Final = (
    "ADD ARG_MAX BATCH_MATMUL EXPAND_DIMS FULLY_CONNECTED MIRROR_PAD MUL NEG RESHAPE SQUEEZE SUB SUM TRANSPOSE"
)
# Operators that move numbers, whatever they mean, or bring them to another scale.
_UNSCALED: Final = "ARG_MAX EXPAND_DIMS GATHER MIRROR_PAD PAD PADV2 QUANTIZE SELECT SELECT_V2 TRANSPOSE"
_INSTEAD: Final = {
    "DEQUANTIZE": "let the result stay int8 and convert it on the host",
    "CAST": "keep one dtype through the function",
    "DIV": "multiply by a constant reciprocal",
    "POW": "multiply, or exp and log",
    "SQUARE": "x * x",
    "SQRT": "x * rsqrt(x), or the int8 preset, which makes a table of it",
    "SIN": "the int8 preset, which makes a table of it",
    "COS": "the int8 preset, which makes a table of it",
    "LOG_SOFTMAX": "softmax here, log on the host",
    "GATHER": "slice and concatenate where the indices are constants; or Ethos-U85",
    "SELECT_V2": "multiply with a mask of 0 and 1; or Ethos-U85",
    "CUMSUM": "a product with a triangular matrix of ones",
    "BROADCAST_TO": "let an add or multiply broadcast",
    "ONE_HOT": "pass the one-hot array in",
    **dict.fromkeys(
        ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), "arithmetic with clamps; or Ethos-U85"
    ),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"), "multiply and subtract 0 and 1; or Ethos-U85"),
}


def _table(chip: str, limits: dict[str, Limit], operators: Rows) -> Table:
    found: dict[str, tuple[Limit, ...]] = {}
    for name, own in by_operator(operators).items():
        every = ["types", "ranked", *([] if name in _WIDE.split() else ["narrow"]), "grids", "tensorwise"]
        every += [] if name in _UNSCALED.split() else ["scales"]
        found[name] = tuple(limits[n] for n in (*every, *own.split()) if n in limits)
    return Table(chip, found, _INSTEAD)


U55: Final = _table("Ethos-U55/U65", _LIMITS | _U55, _OPERATORS)
U85: Final = _table("Ethos-U85", _LIMITS | _U85, _OPERATORS + _U85_OPERATORS)


def table(series: str) -> Table:
    """The table of a series: "u55", "u65" or "u85".

    >>> "GATHER" in table("u55").limits, "GATHER" in table("u85").limits
    (False, True)
    """
    return U85 if series == "u85" else U55
