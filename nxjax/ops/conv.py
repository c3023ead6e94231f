"""The general convolution: any number of spatial dimensions, any layout, strides, dilations and groups.

Knows dimension numbers, not string layouts' users or devices. Its derivatives and its batching are convolutions again.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import add, sub
from nxjax.ops.base import Contraction, NDArray, Tangent, all_weak, eval_by_expand, move_batch, require, zeros
from nxjax.ops.complex import complex as complex_
from nxjax.ops.complex import imag, real
from nxjax.ops.convert import cast
from nxjax.ops.dimension_numbers import ConvDimensionNumbers, Spec
from nxjax.ops.dot import accumulation_dtype, align_dtypes, product_type, to_result_dtype
from nxjax.ops.precision import PrecisionPair, in_passes, passes, precision_text
from nxjax.ops.shape import reshape, rev, transpose
from nxjax.ops.slicing import pad
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

Pairs = tuple[tuple[int, int], ...]


def dilated(n: int, dilation: int) -> int:
    """The size of ``n`` elements with ``dilation - 1`` holes between them."""
    return n + (n - 1) * (dilation - 1) if n else 0


def _picked(shape: Sequence[int], spec: Spec) -> Shape:
    return tuple(shape[i] for i in spec)


def _inverse(spec: Spec) -> Spec:
    return tuple(sorted(range(len(spec)), key=spec.__getitem__))


@final
class ConvParams(NamedTuple):
    """The parameters of a convolution."""

    window_strides: Shape
    padding: Pairs
    lhs_dilation: Shape
    rhs_dilation: Shape
    feature_group_count: int
    batch_group_count: int
    dimension_numbers: ConvDimensionNumbers
    precision: PrecisionPair = None
    preferred_element_type: DType | None = None

    def padded(self, sizes: Sequence[int]) -> Shape:
        """The spatial sizes of an input with its holes and padding."""
        rows = zip(sizes, self.lhs_dilation, self.padding, strict=True)
        return tuple([dilated(n, d) + low + high for n, d, (low, high) in rows])

    def out_sizes(self, sizes: Sequence[int], window: Sequence[int]) -> Shape:
        """The spatial sizes of the result, from those of input and kernel."""
        rows = zip(self.padded(sizes), window, self.rhs_dilation, self.window_strides, strict=True)
        return tuple([max(0, (n - dilated(k, d)) // step + 1) for n, k, d, step in rows])

    def spans(self, lhs: Shape, rhs: Shape, out: Shape) -> tuple[list[int], list[int], list[int]]:
        """Along spatial dimensions: what input, kernel and result cover of the input with its holes."""
        lhs_spec, rhs_spec, out_spec = self.dimension_numbers
        n = list(map(dilated, _picked(lhs, lhs_spec[2:]), self.lhs_dilation))
        k = list(map(dilated, _picked(rhs, rhs_spec[2:]), self.rhs_dilation))
        return n, k, list(map(dilated, _picked(out, out_spec[2:]), self.window_strides))


@final
class ConvGeneralDilated(Contraction):
    """Correlation of an input with a kernel over spatial dimensions, summed over input features.

    With ``feature_group_count`` the features are cut into groups that do not mix; with ``batch_group_count`` each group
    of the batch sees its own group of output features. Negative padding cuts off.
    """

    name = "conv_general_dilated"

    def infer(
        self,
        lhs: ArrayType,
        rhs: ArrayType,
        /,
        *,
        window_strides: Shape,
        padding: Pairs,
        lhs_dilation: Shape,
        rhs_dilation: Shape,
        feature_group_count: int,
        batch_group_count: int,
        dimension_numbers: ConvDimensionNumbers,
        precision: PrecisionPair = None,
        preferred_element_type: DType | None = None,
    ) -> ArrayType:
        if lhs.ndim != rhs.ndim or lhs.ndim < 2:
            raise ShapeError(
                f"{self.name}: input and kernel differ in rank, or have no batch and feature dimensions",
                got=f"{lhs} and {rhs}",
                expected="the same number of dimensions, at least 2",
            )
        groups = feature_group_count, batch_group_count
        p = ConvParams(window_strides, padding, lhs_dilation, rhs_dilation, *groups, dimension_numbers)
        self._check_params(p, lhs.ndim)
        self._check_features(p, lhs, rhs)
        batch, _, *sizes = _picked(lhs.shape, dimension_numbers.lhs_spec)
        out_features, _, *window = _picked(rhs.shape, dimension_numbers.rhs_spec)
        for i, (n, size) in enumerate(zip(sizes, p.padded(sizes), strict=True)):
            if size < 0:
                raise ShapeError(
                    f"{self.name}: negative padding cuts off more than there is",
                    got=f"padding {padding[i]} of spatial dimension {i} with size {n}",
                )
        dtype = product_type(self, lhs, rhs, preferred_element_type)
        shape = (batch // batch_group_count, out_features, *p.out_sizes(sizes, window))
        weak = all_weak(lhs, rhs) and preferred_element_type is None
        return ArrayType(_picked(shape, _inverse(dimension_numbers.out_spec)), dtype, weak)

    def _check_params(self, p: ConvParams, ndim: int) -> None:
        groups = p.feature_group_count, p.batch_group_count
        for spec in p.dimension_numbers:
            require(self, sorted(spec) == list(range(ndim)), "dimension numbers", spec, f"an order of {ndim}")
        entries = f"{ndim - 2} entries, one per spatial dimension"
        for what in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
            values = getattr(p, what)
            require(self, len(values) == ndim - 2, what, values, entries)
        for what in ("window_strides", "lhs_dilation", "rhs_dilation", "group counts"):
            values = groups if what == "group counts" else getattr(p, what)
            require(self, all(v > 0 for v in values), what, values, "positive integers")
        require(
            self,
            1 in groups,
            "features and batch are both grouped",
            "feature_group_count={}, batch_group_count={}".format(*groups),
            "one of them 1",
        )

    def _check_features(self, p: ConvParams, lhs: ArrayType, rhs: ArrayType) -> None:
        batch, features = _picked(lhs.shape, p.dimension_numbers.lhs_spec[:2])
        out_features, depth = _picked(rhs.shape, p.dimension_numbers.rhs_spec[:2])
        groups = p.feature_group_count
        if features != depth * groups:
            raise ShapeError(
                f"{self.name}: input features do not fit the kernel",
                got=f"{features} features of the input {lhs}; kernel {rhs} with {depth} input features"
                + (f" in {groups} groups" if groups > 1 else ""),
                expected=f"{depth * groups} features of the input",
                fix="check dimension_numbers" + (" and feature_group_count" if groups > 1 else ""),
            )
        if out_features % groups or out_features % p.batch_group_count or batch % p.batch_group_count:
            raise ShapeError(
                f"{self.name}: groups do not divide",
                got=f"{out_features} output features and batch {batch} in "
                f"{groups} feature groups and {p.batch_group_count} batch groups",
                expected="multiples",
            )

    def eval(self, lhs: NDArray, rhs: NDArray, /, **params: Any) -> NDArray:
        p = ConvParams(**params)
        if in_passes(p.precision, lhs, rhs):
            return eval_by_expand(self, (lhs, rhs), params, CONV_PASSES)
        lhs_spec, rhs_spec, out_spec = p.dimension_numbers
        out_dtype = p.preferred_element_type or lhs.dtype
        kernel = rhs.transpose(rhs_spec)
        depth = math.prod(kernel.shape[1:])
        work = accumulation_dtype(lhs.dtype, out_dtype, depth)
        x, kernel = lhs.transpose(lhs_spec).astype(work, copy=False), kernel.astype(work, copy=False)
        out_sizes = p.out_sizes(x.shape[2:], kernel.shape[2:])
        bg, fg = p.batch_group_count, p.feature_group_count
        batch, out_features = x.shape[0] // bg, kernel.shape[0]
        if any(d > 1 for d in p.lhs_dilation):
            y = np.zeros((batch, out_features, *out_sizes), work)
            same = ConvDimensionNumbers(*(tuple(range(lhs.ndim)),) * 3)
            lows = [low for low, _ in p.padding]
            places = zip(x.shape[2:], kernel.shape[2:], out_sizes, p.window_strides, p.rhs_dilation, lows,
                         p.lhs_dilation, strict=True)  # fmt: skip
            for phase in itertools.product(*(_phases(*place) for place in places)):
                taps, outputs, steps, dilations, pads = zip(*phase, strict=True)
                part = ConvParams(steps, pads, (1,) * len(phase), dilations, fg, bg, same, None, np.dtype(work))
                y[(..., *outputs)] = self.eval(x, kernel[(..., *taps)], **part._asdict())
            return to_result_dtype(y.transpose(_inverse(out_spec)), lhs.dtype, out_dtype)
        config = ((0, 0, 0),) * 2 + tuple((l, h, 0) for l, h in p.padding)
        if any(c != (0, 0, 0) for c in config):
            # Padded in the layout it has, so that the copy below runs along memory.
            order = _inverse(lhs_spec)
            zero = np.zeros((), work)
            padded = pad.eval(
                x.transpose(order), zero, padding_config=tuple(config[lhs_spec.index(i)] for i in range(x.ndim))
            )
            x = padded.transpose(lhs_spec)
        shape = (batch, out_features, *out_sizes)
        if 0 in shape or depth == 0:
            return np.zeros(_picked(shape, _inverse(out_spec)), out_dtype)
        # Groups in front: x [g, n, c, spatial], kernel [g, o, c, window].
        x = x.reshape(bg, batch, *x.shape[1:]) if bg > 1 else x.reshape(batch, fg, -1, *x.shape[2:]).swapaxes(0, 1)
        kernel = kernel.reshape(bg * fg, -1, *kernel.shape[1:])
        windows = _windows(x, kernel.shape[3:], out_sizes, p.window_strides, p.rhs_dilation)
        channels_last = lhs_spec[1] == lhs.ndim - 1
        y = (
            _by_taps(windows, kernel)
            if kernel.shape[2] == 1 and bg * fg > 1
            else _by_columns(windows, kernel, channels_last)
        )
        # y [g, n, o, spatial]
        y = y.swapaxes(0, 1).reshape(shape)
        return to_result_dtype(y.transpose(_inverse(out_spec)), lhs.dtype, out_dtype)

    def tangents(self, out: Array, lhs: Array, rhs: Array, **params: Any) -> Sequence[Tangent | None]:
        return (lambda t: self(t, rhs, **params), lambda t: self(lhs, t, **params))

    def transpose(self, ct: Array, lhs: Any, rhs: Any, /, **params: Any) -> Tangents:
        # Leaving space out, with features j, k and batch m, a convolution is the product [m,j][j,k] -> [m,k]. So the
        # cotangents are convolutions too: [m,k][k,j] -> [m,j] and [j,m][m,k] -> [j,k].
        p = ConvParams(**params)
        if isinstance(lhs, UndefinedPrimal):
            return self._cotangent_lhs(ct, lhs, rhs, p), None
        return None, self._cotangent_rhs(ct, lhs, rhs, p)

    def _cotangent_lhs(self, ct: Array, lhs: UndefinedPrimal, rhs: Array, p: ConvParams) -> Array:
        if 0 in ct.shape or 0 in lhs.shape:
            return zeros(lhs.type)
        lhs_spec, rhs_spec, out_spec = p.dimension_numbers
        groups = p.feature_group_count * p.batch_group_count
        # Output features become input features, within each group.
        kernel = rev(rhs, dimensions=rhs_spec[2:])
        kernel = _move_groups(kernel, rhs_spec[0], rhs_spec[1], groups)
        spans = zip(*p.spans(lhs.shape, rhs.shape, ct.shape), p.padding, strict=True)
        back = ConvParams(
            p.lhs_dilation,
            tuple((k - 1 - low, n + low - m) for n, k, m, (low, _) in spans),
            p.window_strides,
            p.rhs_dilation,
            groups,
            1,
            ConvDimensionNumbers(out_spec, (rhs_spec[1], rhs_spec[0], *rhs_spec[2:]), lhs_spec),
            p.precision,
        )
        found = self(*align_dtypes(ct, kernel), **back._asdict())
        return cast(_move_groups(found, lhs_spec[1], lhs_spec[0], p.batch_group_count), lhs.dtype)

    def _cotangent_rhs(self, ct: Array, lhs: Array, rhs: UndefinedPrimal, p: ConvParams) -> Array:
        if 0 in ct.shape or 0 in rhs.shape:
            return zeros(rhs.type)
        lhs_spec, rhs_spec, out_spec = p.dimension_numbers
        spans = zip(*p.spans(lhs.shape, rhs.shape, ct.shape), p.padding, strict=True)
        swapped = ((spec[1], spec[0], *spec[2:]) for spec in (lhs_spec, out_spec, rhs_spec))
        forth = ConvParams(
            p.rhs_dilation,
            tuple((low, m + k - 1 - n - low) for n, k, m, (low, _) in spans),
            p.lhs_dilation,
            p.window_strides,
            p.batch_group_count,
            p.feature_group_count,
            ConvDimensionNumbers(*swapped),
            p.precision,
        )
        return cast(self(*align_dtypes(lhs, ct), **forth._asdict()), rhs.dtype)

    def batch(
        self,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        feature_group_count: int,
        batch_group_count: int,
        dimension_numbers: ConvDimensionNumbers,
        **params: Any,
    ) -> tuple[Any, Any]:
        (lhs, rhs), (dl, dr) = args, dims
        lhs_spec, rhs_spec, out_spec = dimension_numbers
        params["dimension_numbers"] = dimension_numbers
        groups = {"feature_group_count": feature_group_count, "batch_group_count": batch_group_count}
        if size == 0:
            without = [x.type.without_dim(d) for x, d in zip(args, dims, strict=True)]
            out = self.infer(*without, **groups, **params)
            return zeros(ArrayType((0, *out.shape), out.dtype)), 0
        if dl is not None and dr is not None:
            # One more level of groups.
            kind = "batch_group_count" if batch_group_count > 1 else "feature_group_count"
            groups[kind] *= size
            lhs = fold(lhs, dl, size, lhs_spec[0 if batch_group_count > 1 else 1])
            rhs = fold(rhs, dr, size, rhs_spec[0])
            return unfold(self(lhs, rhs, **groups, **params), size, out_spec[1]), out_spec[1]
        if dl is not None:
            lhs = fold(lhs, dl, size, lhs_spec[0], batch_group_count)
            return unfold(self(lhs, rhs, **groups, **params), size, out_spec[0]), out_spec[0]
        assert dr is not None
        inside = feature_group_count * batch_group_count
        rhs = fold(rhs, dr, size, rhs_spec[0], inside)
        return unfold(self(lhs, rhs, **groups, **params), size, out_spec[1], inside), out_spec[1]

    def stablehlo(self, b: Any, out: ArrayType, lhs: Any, rhs: Any, /, **params: Any) -> Any:
        if out.dtype in dtypes.COMPLEX:
            return b.inline(self._by_parts, (lhs, rhs), params)
        if lhs.type.dtype in dtypes.INTEGER and out.dtype in dtypes.INEXACT:
            lhs, rhs = b.convert(lhs, out.dtype), b.convert(rhs, out.dtype)
        lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
        spatial = len(lhs_spec) - 2
        texts = (_spec_text(s, names) for s, names in ((lhs_spec, "bf"), (rhs_spec, "oi"), (out_spec, "bf")))
        numbers = "[{}]x[{}]->[{}]".format(*texts)
        pads = "[" + ", ".join(f"[{l}, {h}]" for l, h in params["padding"]) + "]" if spatial else ""
        attrs = ", ".join(
            (
                f"batch_group_count = {params['batch_group_count']} : i64",
                f"dimension_numbers = #stablehlo.conv<{numbers}>",
                f"feature_group_count = {params['feature_group_count']} : i64",
                f"lhs_dilation = {b.ints(params['lhs_dilation'])}",
                f"padding = dense<{pads}> : tensor<{spatial}x2xi64>",
                precision_text(params.get("precision")),
                f"rhs_dilation = {b.ints(params['rhs_dilation'])}",
                f"window_reversal = {b.bools((False,) * spatial)}",
                f"window_strides = {b.ints(params['window_strides'])}",
            )
        )
        return b.op("stablehlo.convolution", (lhs, rhs), out, attrs)

    def _by_parts(self, lhs: Array, rhs: Array, **params: Any) -> Array:
        """A complex convolution from four real ones, which is what compilers know."""
        preferred: DType | None = params.pop("preferred_element_type", None)
        part = None if preferred is None else dtypes.real_part(preferred)

        def conv(x: Array, y: Array) -> Array:
            return self(x, y, preferred_element_type=part, **params)

        lr, li, rr, ri = real(lhs), imag(lhs), real(rhs), imag(rhs)
        return complex_(sub(conv(lr, rr), conv(li, ri)), add(conv(lr, ri), conv(li, rr)))


# --- the meaning ---


def _windows(x: NDArray, window: Shape, out: Shape, strides: Shape, dilation: Shape) -> NDArray:
    """A view [g, n, c, out..., window...] of x [g, n, c, spatial...]."""
    steps = x.strides[3:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:3], *out, *window),
        (
            *x.strides[:3],
            *(s * k for s, k in zip(steps, strides, strict=True)),
            *(s * d for s, d in zip(steps, dilation, strict=True)),
        ),
        writeable=False,
    )


# Columns are made for as many elements of the batch at a time as keep them in the cache.
_COLUMN_BYTES = 1 << 23
# Products that are added one after the other at most.
_DEPTH = 2048


def _by_columns(windows: NDArray, kernel: NDArray, channels_last: bool) -> NDArray:
    """Matrix products of the windows, each laid out as a column or row: [g, n, o, out...]."""
    g, n, c = windows.shape[:3]
    spatial = (windows.ndim - 3) // 2
    out, taps = windows.shape[3 : 3 + spatial], windows.shape[3 + spatial :]
    outputs, depth = kernel.shape[1], c * math.prod(taps)
    at, tap = tuple(range(3, 3 + spatial)), tuple(range(3 + spatial, windows.ndim))
    chunk = max(1, _COLUMN_BYTES // max(1, g * math.prod(out) * depth * windows.itemsize))
    y = np.empty((g, n, *out, outputs) if channels_last else (g, n, outputs, *out), windows.dtype)
    if channels_last:
        weights = kernel.transpose(0, *range(3, 3 + spatial), 2, 1).reshape(g, depth, outputs)
        for i in range(0, n, chunk):
            part = windows[:, i : i + chunk].transpose(0, 1, *at, *tap, 2)
            rows = part.reshape(g, -1, depth)
            y[:, i : i + chunk] = _product(rows, weights).reshape(g, -1, *out, outputs)
        return np.moveaxis(y, -1, 2)
    weights = kernel.reshape(g, 1, outputs, depth)
    for i in range(0, n, chunk):
        columns = windows[:, i : i + chunk].transpose(0, 1, 2, *tap, *at).reshape(g, -1, depth, math.prod(out))
        y[:, i : i + chunk] = _product(weights, columns).reshape(g, -1, outputs, *out)
    return y


def _product(x: NDArray, y: NDArray) -> NDArray:
    """Matrix products; NumPy adds those of one row and one column one after the other, so long ones are cut."""
    depth = x.shape[-1]
    if depth <= _DEPTH:
        return np.matmul(x, y)
    cuts = [slice(i, i + _DEPTH) for i in range(0, depth, _DEPTH)]
    return combined(np.add, (np.matmul(x[..., cut], y[..., cut, :]) for cut in cuts))


def _phases(
    size: int, taps: int, outputs: int, step: int, dilation: int, low: int, holes: int
) -> Iterator[tuple[slice, slice, int, int, tuple[int, int]]]:
    """Splits a dimension of a dilated input into dimensions without holes: taps, outputs, and the elements they meet.

    Holes are not multiplied, since zero times an infinite weight is NaN. Outputs at a distance of ``every`` use the
    same taps; these have a distance of ``apart``.
    """
    every, apart = holes // math.gcd(holes, step), holes // math.gcd(holes, dilation)
    for first in range(min(every, outputs)):
        fit = [k for k in range(min(apart, taps)) if (first * step + k * dilation - low) % holes == 0]
        if not fit:
            continue
        count, several = -(-(outputs - first) // every), -(-(taps - fit[0]) // apart)
        begin = (first * step + fit[0] * dilation - low) // holes
        steps, apart_of = every * step // holes, apart * dilation // holes
        end = begin + (count - 1) * steps + (several - 1) * apart_of + 1
        yield slice(fit[0], None, apart), slice(first, None, every), steps, apart_of, (-begin, end - size)


def _by_taps(windows: NDArray, kernel: NDArray) -> NDArray:
    """One multiply-add per tap, for groups with one input feature, where a matrix product has no depth."""
    spatial = (windows.ndim - 3) // 2
    ones = (1,) * spatial
    return combined(
        np.add,
        (
            windows[(..., *tap)] * kernel[(..., *tap)].reshape(kernel.shape[0], 1, kernel.shape[1], *ones)
            for tap in np.ndindex(*kernel.shape[3:])
        ),
    )


def combined(combine: Callable[[NDArray, NDArray], NDArray], parts: Iterable[NDArray]) -> NDArray:
    """All ``parts`` combined in pairs, so that the error of a sum grows with the logarithm of their number."""
    # Entry i holds as many parts as a bit of the count says: the last two are combined when they hold equally many.
    waiting: list[NDArray] = []
    for count, part in enumerate(parts, 1):
        waiting.append(part)
        while not count & 1:
            last = waiting.pop()
            waiting[-1] = combine(waiting[-1], last)
            count >>= 1
    return functools.reduce(lambda y, x: combine(x, y), reversed(waiting))


# --- groups and batches in one dimension ---


def _resized(shape: Sequence[int], axis: int, sizes: Sequence[int]) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _swapped(x: Array, i: int, j: int) -> Array:
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return transpose(x, permutation=tuple(order))


def _move_groups(x: Array, source: int, target: int, groups: int) -> Array:
    """The outer ``groups`` of dimension ``source`` as the outer part of dimension ``target``."""
    if groups == 1:
        return x
    n, m = x.shape[source], x.shape[target]
    split = reshape(x, shape=_resized(x.shape, source, (groups, n // groups)))
    rest = [i for i in range(split.ndim) if i != source]
    # Without the groups, dimension i of `split` is dimension i of x again.
    rest.insert(target, source)
    shape = list(x.shape)
    shape[source], shape[target] = n // groups, groups * m
    return reshape(transpose(split, permutation=tuple(rest)), shape=tuple(shape))


def fold(x: Array, dim: int, size: int, axis: int, groups: int = 1) -> Array:
    """The batch as part of ``axis`` (counted without the batch): (groups, batch, rest)."""
    x = move_batch(x, dim, size, axis)
    n = x.shape[axis + 1]
    if groups > 1:
        split = reshape(x, shape=_resized(x.shape, axis + 1, (groups, n // groups)))
        x = _swapped(split, axis, axis + 1)
        return reshape(x, shape=(*x.shape[:axis], size * n, *x.shape[axis + 3 :]))
    return reshape(x, shape=(*x.shape[:axis], size * n, *x.shape[axis + 2 :]))


def unfold(y: Array, size: int, axis: int, groups: int = 1) -> Array:
    """The inverse of `fold`: the batch is dimension ``axis`` of the result."""
    n = y.shape[axis] // size
    if groups > 1:
        split = reshape(y, shape=_resized(y.shape, axis, (groups, size, n // groups)))
        y = _swapped(split, axis, axis + 1)
        return reshape(y, shape=(*y.shape[: axis + 1], n, *y.shape[axis + 3 :]))
    return reshape(y, shape=_resized(y.shape, axis, (size, n)))


def _spec_text(spec: Spec, names: str) -> str:
    """``b, f, 0, 1``"""
    words = [""] * len(spec)
    for i, d in enumerate(spec):
        words[d] = names[i] if i < 2 else str(i - 2)
    return ", ".join(words)


conv_general_dilated = ConvGeneralDilated()
# The convolutions that an algorithm asks for.
CONV_PASSES: Final = passes(conv_general_dilated)
