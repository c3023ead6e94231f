"""`jax.lax`'s convolutions: paddings by name, layouts by letters, transposed convolutions and patches, over one op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.lax._operands import index
from nxjax.numpy.documented import shown
from nxjax.ops import conv as conv_ops
from nxjax.ops.base import require
from nxjax.ops.conv import dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers, ConvNumbersLike, conv_dimension_numbers
from nxjax.ops.dot import dot_general
from nxjax.ops.precision import PrecisionLike, canonical_precision
from nxjax.ops.shape import rev, transpose
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType

ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]
Padding = str | Sequence[tuple[int, int]]


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """The (low, high) padding per dimension for a name.

    ``"VALID"`` pads nothing. ``"SAME"`` pads so that there are ``ceil(size / stride)`` windows, an odd element at the
    end; ``"SAME_LOWER"`` puts it at the start.

    Raises:
        ParameterError: no such padding.

    >>> padtype_to_pads((5, 6), (3, 4), (1, 2), "SAME")
    [(1, 1), (1, 1)]
    """
    name = padding.upper() if isinstance(padding, str) else padding
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise ParameterError("padding: no such padding", got=repr(padding), expected="'SAME', 'SAME_LOWER' or 'VALID'")
    pads: list[tuple[int, int]] = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        low = total // 2 if name == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def sizes(values: Any, count: int, name: str, what: str) -> tuple[int, ...]:
    """One int per dimension; ones for None."""
    if values is None:
        return (1,) * count
    try:
        found = tuple(index(v, name) for v in values)
    except TypeError:
        found = ()
    require(name, len(found) == count, what, repr(values), f"{count} ints, one per dimension")
    return found


def pairs(padding: Any, name: str) -> tuple[tuple[int, int], ...]:
    """Explicit padding as pairs of ints."""
    try:
        return tuple((int(low), int(high)) for low, high in padding)
    except (TypeError, ValueError):
        raise ParameterError(
            f"{name}: padding", got=repr(padding), expected="'SAME', 'VALID' or a (low, high) pair per dimension"
        ) from None


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvNumbersLike | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Convolution (correlation) with any layout, strides, dilations and groups.

    Args:
        lhs: input ``[batch, features, spatial...]``, in the order that ``dimension_numbers`` says.
        rhs: kernel ``[output features, input features / feature_group_count, window...]``, in this order by default.
        window_strides: step of the window per spatial dimension.
        padding: ``"SAME"``, ``"SAME_LOWER"``, ``"VALID"``, or (low, high) per spatial dimension; negative cuts off.
        lhs_dilation: distance of input elements after holes are put between them. A hole adds nothing, also where a
            weight is infinite or NaN; a padded zero is multiplied. (JAX has both, by strides and dilations.)
        rhs_dilation: distance of kernel elements.
        dimension_numbers: None, three strings such as ``("NHWC", "HWIO", "NHWC")``, or `ConvDimensionNumbers`.
        feature_group_count: groups of features that do not mix; the number of input features for a depthwise one.
        batch_group_count: groups of the batch, each with its own output features.
        precision: as in `dot_general`.
        preferred_element_type: dtype of accumulator and result.

    Raises:
        ShapeError: the input's features do not fit the kernel; ParameterError: bad parameters.

    >>> x, kernel = nx.ones((1, 8, 8, 3)), nx.ones((3, 3, 3, 16))
    >>> conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 4, 4, 16)
    """
    name = "conv_general_dilated"
    x, y = as_value(lhs, name), as_value(rhs, name)
    numbers = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    spatial = max(0, x.ndim - 2)
    strides = sizes(window_strides, spatial, name, "window_strides")
    base = sizes(lhs_dilation, spatial, name, "lhs_dilation")
    holes = sizes(rhs_dilation, spatial, name, "rhs_dilation")
    if isinstance(padding, str):
        require(
            name,
            all(d == 1 for d in base),
            "padding by name has no meaning for a dilated input",
            f"padding={padding!r}, lhs_dilation={base}",
            "(low, high) pairs",
            "give the padding, or use conv_transpose",
        )
        window = [dilated(y.shape[i], d) for i, d in zip(numbers.rhs_spec[2:], holes, strict=True)]
        padding = padtype_to_pads([x.shape[i] for i in numbers.lhs_spec[2:]], window, strides, padding)
    return conv_ops.conv_general_dilated(
        x,
        y,
        window_strides=strides,
        padding=pairs(padding, name),
        lhs_dilation=base,
        rhs_dilation=holes,
        feature_group_count=int(feature_group_count),
        batch_group_count=int(batch_group_count),
        dimension_numbers=numbers,
        precision=canonical_precision(precision),
        preferred_element_type=None if preferred_element_type is None else dtypes.as_dtype(preferred_element_type),
    )


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` in the layout NCHW, OIHW, without dilation.

    Raises:
        ShapeError: the input's features do not fit the kernel.

    >>> x = jnp.array([[[1.0, 2.0, 3.0, 4.0]]])
    >>> kernel = jnp.array([[[1.0, -1.0]]])
    >>> lax.conv(x, kernel, (1,), "SAME")
    Array([[[-1., -1., -1.,  4.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` in the layout NCHW, OIHW.

    Raises:
        ShapeError: the input's features do not fit the kernel.

    >>> x = jnp.array([[[1.0, 2.0, 3.0]]])
    >>> kernel = jnp.array([[[1.0, -1.0]]])
    >>> lax.conv_with_general_padding(x, kernel, (1,), [(1, 0)], (2,), (1,))
    Array([[[-1.,  1., -2.,  2., -3.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def _transpose_padding(k: int, s: int, padding: Any) -> tuple[int, int]:
    """Padding of the fractionally strided convolution that belongs to a forward convolution of this padding."""
    if isinstance(padding, str):
        if padding == "SAME":
            total = k + s - 2
            low = k - 1 if s > k - 1 else -(-total // 2)
        elif padding == "VALID":
            total = k + s - 2 + max(k - s, 0)
            low = k - 1
        else:
            raise ParameterError("conv_transpose: padding", got=repr(padding), expected="'SAME', 'VALID' or pairs")
        return low, total - low
    low, high = padding
    return k - 1 - low, k - 1 - high


_TRANSPOSE_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvNumbersLike | None = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Fractionally strided ("transposed") convolution; channels last unless ``dimension_numbers`` says otherwise.

    Args:
        lhs, rhs: input and kernel.
        strides: by how much the result is finer than the input.
        padding: ``"SAME"`` or ``"VALID"``, as of the forward convolution; or (low, high) pairs as of this one.
        rhs_dilation: distance of kernel elements.
        dimension_numbers: as in `conv_general_dilated`.
        transpose_kernel: mirror the kernel and swap its feature dimensions, as Keras' ``Conv2DTranspose`` does.
        use_consistent_padding: pairs, too, are those of the forward convolution.

    Raises:
        ShapeError: input and kernel differ in rank or features; ParameterError: no such padding.

    >>> x = jnp.array([[[1.0], [2.0]]])
    >>> kernel = jnp.array([[[1.0]], [[10.0]]])
    >>> lax.conv_transpose(x, kernel, (2,), "SAME")
    Array([[[10.],
            [ 1.],
            [20.],
            [ 2.]]], dtype=float32)
    """
    x, y = as_value(lhs, "conv_transpose"), as_value(rhs, "conv_transpose")
    if x.ndim != y.ndim or x.ndim < 2:
        raise ShapeError("conv_transpose: input and kernel differ in rank", got=f"{x.type} and {y.type}")
    if dimension_numbers is None:
        require("conv_transpose", x.ndim <= 5, "no default layout for this rank", x.type, fix="give dimension_numbers")
        dimension_numbers = _TRANSPOSE_LAYOUTS[x.ndim]
    numbers = conv_dimension_numbers(x.shape, y.shape, dimension_numbers)
    spatial = x.ndim - 2
    holes = sizes(rhs_dilation, spatial, "conv_transpose", "rhs_dilation")
    strides = sizes(strides, spatial, "conv_transpose", "strides")
    if use_consistent_padding or isinstance(padding, str):
        each = [padding] * spatial if isinstance(padding, str) else pairs(padding, "conv_transpose")
        require("conv_transpose", len(each) == spatial, "padding", padding, f"{spatial} pairs")
        extents = [dilated(y.shape[i], d) for i, d in zip(numbers.rhs_spec[2:], holes, strict=True)]
        padding = [_transpose_padding(k, s, p) for k, s, p in zip(extents, strides, each, strict=True)]
    if transpose_kernel:
        y = rev(y, dimensions=numbers.rhs_spec[2:])
        order = list(range(y.ndim))
        i, j = numbers.rhs_spec[:2]
        order[i], order[j] = j, i
        y = transpose(y, permutation=tuple(order))
    return conv_general_dilated(
        x,
        y,
        (1,) * spatial,
        padding,
        strides,
        holes,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


@shown(
    "x = jnp.array([[[1.0, 2.0, 3.0]]])",
    "",
    'lax.conv_general_dilated_patches(x, (2,), (1,), "VALID")',
    "Array([[[1., 2.],\n        [2., 3.]]], dtype=float32)",
    raises="ParameterError: there is not one window size per spatial dimension.",
)
def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvNumbersLike | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The windows that a convolution sees, flattened into its output features: features first, then window."""
    x = as_value(lhs, "conv_general_dilated_patches")
    window = sizes(filter_shape, max(0, x.ndim - 2), "conv_general_dilated_patches", "filter_shape")
    numbers = conv_dimension_numbers(x.shape, (1, 1, *window), dimension_numbers)
    size, channels = math.prod(window), x.shape[numbers.lhs_spec[1]]
    # One output feature per place in the window, whose kernel is one there.
    kernel = np.tile(np.eye(size), (channels, 1)).reshape(channels * size, 1, *window).astype(x.dtype)
    kernel = kernel.transpose(sorted(range(x.ndim), key=numbers.rhs_spec.__getitem__))
    pair = canonical_precision(precision)
    return conv_general_dilated(
        x,
        wrap(np.ascontiguousarray(kernel)),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        numbers,
        feature_group_count=channels,
        precision=(pair[0], "default") if isinstance(pair, tuple) else "highest",
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvNumbersLike | None = None,
    precision: PrecisionLike = None,
) -> Array:
    """A convolution with its own kernel at each place of the result (a locally connected layer).

    Args:
        lhs: as in `conv_general_dilated`.
        rhs: kernels; spatial dimensions are those of the result, and the input features hold features and window.
        filter_shape: sizes of the window.

    Raises:
        ShapeError: the kernels do not fit the windows.

    >>> x = jnp.array([[[1.0, 2.0, 3.0]]])
    >>> kernels = jnp.array([[[1.0, 10.0], [1.0, -1.0]]])
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,))
    Array([[[ 3., 17.]]], dtype=float32)
    """
    x, y = as_value(lhs, "conv_general_dilated_local"), as_value(rhs, "conv_general_dilated_local")
    pair = canonical_precision(precision)
    exact = pair[0] if isinstance(pair, tuple) else "highest"
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, exact
    )
    _, rhs_spec, out_spec = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    both = sorted(zip(out_spec[2:], rhs_spec[2:], strict=True))
    batch = tuple(i for i, _ in both), tuple(j for _, j in both)
    out = dot_general(patches, y, dimension_numbers=(((out_spec[1],), (rhs_spec[1],)), batch), precision=pair)
    # out: spatial dimensions in order, batch, output features.
    places = [*batch[0], *out_spec[:2]]
    return transpose(out, permutation=tuple(sorted(range(out.ndim), key=places.__getitem__)))


# --- shapes ---


def conv_general_permutations(dimension_numbers: ConvNumbersLike) -> tuple[tuple[int, ...], ...]:
    """The three specs of string dimension numbers.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    ones = (1,) * len(dimension_numbers[0])
    return tuple(conv_dimension_numbers(ones, ones, dimension_numbers))


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: str | Sequence[tuple[int, int]],
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """Shape of a convolution of shapes in the order NC..., OI...

    Raises:
        ParameterError: no such padding.

    >>> lax.conv_shape_tuple((1, 3, 8, 8), (16, 3, 3, 3), (2, 2), "SAME")
    (1, 16, 4, 4)
    """
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    return _shape(lhs_shape, rhs_shape, strides, pads, None, batch_group_count)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: ConvNumbersLike,
) -> tuple[int, ...]:
    """Shape of a convolution in any layout.

    Raises:
        ShapeError: the shapes differ in rank; ParameterError: no such padding.

    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 16), (1, 1), "VALID", ("NHWC", "HWIO", "NHWC"))
    (1, 6, 6, 16)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    if isinstance(padding, str):
        inner = [lhs_shape[i] for i in numbers.lhs_spec[2:]]
        padding = padtype_to_pads(inner, [rhs_shape[i] for i in numbers.rhs_spec[2:]], window_strides, padding)
    return _shape(lhs_shape, rhs_shape, window_strides, padding, numbers)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: ConvNumbersLike,
) -> tuple[int, ...]:
    """Shape of a transposed convolution in any layout.

    Raises:
        ShapeError: the shapes differ in rank; ParameterError: no such padding.

    >>> lax.conv_transpose_shape_tuple((1, 4, 4, 3), (3, 3, 3, 8), (2, 2), "SAME", ("NHWC", "HWIO", "NHWC"))
    (1, 8, 8, 8)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    window = [rhs_shape[i] for i in numbers.rhs_spec[2:]]
    if isinstance(padding, str):
        padding = [_transpose_padding(k, s, padding) for k, s in zip(window, window_strides, strict=True)]
    return _shape(lhs_shape, rhs_shape, (1,) * len(window), padding, numbers, dilation=window_strides)


def _shape(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    padding: Any,
    numbers: ConvDimensionNumbers | None,
    batch_group_count: int = 1,
    dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    numbers = numbers or conv_dimension_numbers(lhs_shape, rhs_shape, None)
    ones = (1,) * (len(lhs_shape) - 2)
    # Only sizes are asked for: let the features fit.
    fitting = list(lhs_shape)
    fitting[numbers.lhs_spec[1]] = rhs_shape[numbers.rhs_spec[1]]
    out = conv_ops.conv_general_dilated.infer(
        ArrayType(tuple(fitting), dtypes.float32),
        ArrayType(tuple(rhs_shape), dtypes.float32),
        window_strides=tuple(strides),
        padding=pairs(padding, "conv_shape_tuple"),
        lhs_dilation=tuple(dilation) if dilation is not None else ones,
        rhs_dilation=ones,
        feature_group_count=1,
        batch_group_count=batch_group_count,
        dimension_numbers=numbers,
    )
    return out.shape
