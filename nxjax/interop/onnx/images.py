"""Rules that resample images: Resize, GridSample, AffineGrid, RoiAlign.

Resize multiplies each axis by a matrix that is computed while the graph is walked. Formulas: ONNX's operator
definitions; the cubic kernel is Keys', IEEE Transactions on Acoustics, Speech, and Signal Processing 29 (6), 1981.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.image import resize
from nxjax.interop.graphs.values import Refused
from nxjax.interop.onnx.shapes import ints, needed, sized
from nxjax.interop.onnx.walk import rule
from nxjax.ops.fixed.resize import nearest_index
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]


def _places(mode: str, y: NDArray, n: int, scale: float, size: float, roi: tuple[float, float]) -> NDArray:
    """Where the elements ``y`` of the result lie among ``n``; ``size`` is the result's before it is rounded.

    The arithmetic is of the dtype of ``y``.
    """
    m = len(y)
    if mode == "half_pixel":
        return (y + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        # The middle of the result is the middle of the operand, also where the size was rounded.
        shift = n / 2 * (1 - m / size)
        return shift + (y + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (y + 0.5) / scale - 0.5 if m > 1 else np.zeros_like(y)
    if mode == "align_corners":
        # Of the size as it is, as in ONNX Runtime and in PyTorch; ONNX's reference takes the size before it is rounded.
        return y * (n - 1) / (m - 1) if m != 1 else np.zeros_like(y)
    if mode == "asymmetric":
        return y / scale
    if mode == "tf_half_pixel_for_nn":
        return (y + 0.5) / scale
    if mode == "tf_crop_and_resize":
        first, last = map(y.dtype.type, roi)
        if m == 1:
            return np.full(1, 0.5 * (first + last) * (n - 1), y.dtype)
        return first * (n - 1) + y * (last - first) * (n - 1) / (m - 1)
    raise Refused("from_onnx: Resize with a coordinate mode that nxjax does not know", got=mode)


def _nearest(x: NDArray, mode: str) -> NDArray:
    if mode == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return np.floor(x) if mode == "floor" else np.ceil(x)


def _kernel(mode: str, d: NDArray, a: float) -> NDArray:
    """The weight at distance ``d``."""
    d = np.abs(d)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def resize_matrix(
    mode: str, x: NDArray, n: int, scale: float, cubic: float, antialias: bool, exclude_outside: bool
) -> NDArray:
    """Weights [m, n] of the elements for each place ``x`` of a result."""
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    base = np.floor(x)[:, None] + np.arange(-reach + 1 - (stretch < 1), reach + 1 + (stretch < 1))
    weights = _kernel(mode, (base - x[:, None]) * stretch, cubic)
    if exclude_outside:
        weights = np.where((base >= 0) & (base < n), weights, 0)
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    found = np.zeros((len(x), n))
    np.add.at(found, (np.arange(len(x))[:, None], np.clip(base, 0, n - 1).astype(int)), weights)
    return found


def _taken(x: Any, index: Mapping[int, NDArray]) -> Any:
    """The elements at ``index`` of some axes: by the op of images, which NPUs know, where that takes the same ones."""
    plain = [a for a, i in index.items() if np.array_equal(i, nearest_index(x.shape[a], len(i), False, True))]
    if 0 < len(plain) <= 2:
        shape = [len(index[a]) if a in plain else n for a, n in enumerate(x.shape)]
        x, index = resize(x, shape, "nearest"), {a: i for a, i in index.items() if a not in plain}
    for a, i in index.items():
        x = jnp.take(x, jnp.asarray(i), axis=a)
    return x


@rule("Resize", known=("roi", "scales", "sizes"))
def _resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor", opset: int,
) -> Any:  # fmt: skip
    if opset < 11:
        scales, coordinate_transformation_mode = roi, "asymmetric"
        nearest_mode, roi = "old", None
    along = [a % x.ndim for a in axes] if axes is not None else list(range(x.ndim))
    if sizes is not None and np.size(sizes):
        wanted = [int(s) for s in ints(sizes)]
        each = [m / x.shape[a] if x.shape[a] else 1.0 for m, a in zip(wanted, along, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = (min if keep_aspect_ratio_policy == "not_larger" else max)(each)
            each = [one] * len(each)
            wanted = [math.floor(one * x.shape[a] + 0.5) for a in along]
        exact = [float(m) for m in wanted]
    else:
        each = [float(s) for s in np.asarray(scales).reshape(-1)]
        exact = [s * x.shape[a] for s, a in zip(each, along, strict=True)]
        wanted = [math.floor(e) for e in exact]
    sized(wanted)
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if not crops and all(x.shape[a] == m for a, m in zip(along, wanted, strict=True)):
        return x  # as in ONNX Runtime, also by scales that leave a part of an element
    dtype = x.dtype
    work = x if dtype in dtypes.FLOAT and dtype not in dtypes.NARROW else x.astype(jnp.float32)
    outside: list[tuple[int, NDArray]] = []
    taken: dict[int, NDArray] = {}
    for i, (a, m, s, e) in enumerate(zip(along, wanted, each, exact, strict=True)):
        n = x.shape[a]
        region = (float(roi[i]), float(roi[len(along) + i])) if crops else (0.0, 1.0)
        if n == m and s == 1 and not crops:
            continue
        # Which element is the nearest of two is decided in float32, as in ONNX Runtime.
        y = np.arange(m, dtype=np.float32 if mode == "nearest" else np.float64)
        at = _places(coordinate_transformation_mode, y, n, s, e, region)
        if crops:
            outside.append((a, (at < 0) | (at > n - 1)))
        if mode == "nearest":
            # Before version 11 a smaller result took the next element, as ONNX Runtime does.
            way = nearest_mode if nearest_mode != "old" else "ceil" if s < 1 else "floor"
            taken[a] = np.clip(_nearest(at, way), 0, n - 1).astype(np.int64)
            continue
        matrix = resize_matrix(mode, at, n, s, cubic_coeff_a, bool(antialias), bool(exclude_outside))
        work = jnp.moveaxis(jnp.matmul(jnp.moveaxis(work, a, -1), jnp.asarray(matrix.T.astype(work.dtype))), -1, a)
    work = _taken(work, taken)
    for a, out in outside:
        shape = [1] * x.ndim
        shape[a] = -1
        work = jnp.where(jnp.asarray(out).reshape(tuple(shape)), extrapolation_value, work)
    if dtype in dtypes.INTEGER and mode != "nearest":
        work = jnp.clip(jnp.round(work), int(dtypes.lowest(dtype)), int(dtypes.highest(dtype)))
    return work.astype(dtype)


@rule("Upsample", known=("given",))
def _upsample(x: Any, given: Any = None, *, scales: Any = None, mode: str = "nearest") -> Any:
    return _resize(
        x, None, given if given is not None else np.asarray(scales), mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor", opset=11,
    )  # fmt: skip


# --- sampling at traced places ---


def _read(x: Any, index: Sequence[Any], inside: bool) -> Any:
    """Elements of ``x`` [n, c, ...] at whole places [n, ...]; 0 outside, or the nearest if ``inside``."""
    sizes = x.shape[2:]
    flat: Any = 0
    valid: Any = True
    for i, n in zip(index, sizes, strict=True):
        if not inside:
            valid = valid & (i >= 0) & (i < n)
        flat = flat * n + jnp.clip(i, 0, n - 1)
    rows = x.reshape((*x.shape[:2], -1))
    places = flat.reshape((x.shape[0], 1, -1))
    read = jnp.take_along_axis(rows, jnp.broadcast_to(places, (x.shape[0], x.shape[1], places.shape[-1])), axis=2)
    read = read.reshape((*x.shape[:2], *index[0].shape[1:]))
    return read if inside else jnp.where(jnp.expand_dims(valid, 1), read, 0)


def sampled(x: Any, places: Sequence[Any], inside: bool = False, mode: str = "linear") -> Any:
    """``x`` [n, c, ...] between its elements, at ``places`` (one array [n, ...] for each spatial axis): [n, c, ...]."""
    if mode == "nearest":
        return _read(x, [jnp.round(p).astype(jnp.int32) for p in places], inside)
    offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
    base = [jnp.floor(p) for p in places]
    total: Any = 0
    for corner in itertools.product(offsets, repeat=len(places)):
        weight: Any = 1
        for p, b, o in zip(places, base, corner, strict=True):
            weight = weight * _traced_kernel(mode, p - b - o)
        read = _read(x, [(b + o).astype(jnp.int32) for b, o in zip(base, corner, strict=True)], inside)
        total = total + read * jnp.expand_dims(weight, 1).astype(x.dtype)
    return total


def _traced_kernel(mode: str, d: Any) -> Any:
    d = jnp.abs(d)
    if mode == "linear":
        return jnp.maximum(1 - d, 0)
    a = -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return jnp.where(d <= 1, near, jnp.where(d < 2, far, 0))


def _reflected(p: Any, low: float, high: float) -> Any:
    span = high - low
    if span <= 0:
        return jnp.zeros_like(p) + low
    d = jnp.mod(jnp.abs(p - low), 2 * span)
    return low + jnp.where(d > span, 2 * span - d, d)


@rule("GridSample", "com.microsoft::GridSample")
def grid_sample(x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros") -> Any:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes = x.shape[2:]
    places: list[Any] = []
    bounds: list[tuple[float, float]] = []
    for i, n in enumerate(sizes):
        g = grid[..., len(sizes) - 1 - i]
        places.append((g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2)
        bounds.append((0.0, n - 1.0) if align_corners else (-0.5, n - 0.5))
    if padding_mode == "zeros":
        return sampled(x, places, mode=mode).astype(x.dtype)
    if mode != "cubic" or padding_mode == "border":
        if padding_mode == "border":
            places = places if mode == "cubic" else [jnp.clip(p, 0, n - 1) for p, n in zip(places, sizes, strict=True)]
        else:
            places = [jnp.clip(_reflected(p, *b), 0, n - 1) for p, b, n in zip(places, bounds, sizes, strict=True)]
        return sampled(x, places, inside=True, mode=mode).astype(x.dtype)
    # Cubic: each of the neighbours is reflected by itself.
    base = [jnp.floor(p) for p in places]
    total: Any = 0
    for corner in itertools.product((-1, 0, 1, 2), repeat=len(places)):
        weight: Any = 1
        index: list[Any] = []
        for p, b, o, edge in zip(places, base, corner, bounds, strict=True):
            weight = weight * _traced_kernel("cubic", p - b - o)
            index.append(_reflected(b + o, *edge).astype(jnp.int32))
        total = total + _read(x, index, True) * jnp.expand_dims(weight, 1).astype(x.dtype)
    return total.astype(x.dtype)


@rule("AffineGrid", known=("size",))
def _affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    sizes = ints(size)[2:]
    lines = [np.linspace(-1, 1, n) if align_corners else (np.arange(n) * 2 + 1) / n - 1 for n in sizes]
    grids = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(grids), np.ones(sizes)], -1).astype(theta.dtype)
    return jnp.einsum("...j,nij->n...i", jnp.asarray(points), theta)


@rule("RoiAlign")
def _roi_align(
    x: Any, rois: Any, batch: Any, *, coordinate_transformation_mode: str | None = None, mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0, opset: int,
) -> Any:  # fmt: skip
    half = (coordinate_transformation_mode or ("half_pixel" if opset >= 16 else "output_half_pixel")) == "half_pixel"
    boxes = rois * spatial_scale - (0.5 if half else 0.0)
    known = needed("RoiAlign", boxes)[0] if sampling_ratio <= 0 else None
    made: list[Any] = []
    sizes, out = x.shape[2:], (output_height, output_width)
    for i in range(rois.shape[0]):
        y1, x1, y2, x2 = boxes[i, 1], boxes[i, 0], boxes[i, 3], boxes[i, 2]
        lengths = [y2 - y1, x2 - x1]
        if not half:
            lengths = [jnp.maximum(v, 1.0) for v in lengths]
        spots: list[Any] = []
        for axis, (first, length) in enumerate(zip((y1, x1), lengths, strict=True)):
            bins = out[axis]
            if known is None:
                count = sampling_ratio
            else:
                span = float(known[i, 3 - axis] - known[i, 1 - axis])
                count = max(math.ceil((span if half else max(span, 1.0)) / bins), 1)
            steps = (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / count).astype(np.float32)
            spots.append(first + jnp.asarray(steps) * length / bins)  # [bins, count]
        grid = [
            jnp.broadcast_to(spots[0][:, :, None, None], (*spots[0].shape, *spots[1].shape))[None],
            jnp.broadcast_to(spots[1][None, None], (*spots[0].shape, *spots[1].shape))[None],
        ]
        beyond: Any = False
        for g, n in zip(grid, sizes, strict=True):
            beyond = beyond | (g < -1) | (g > n)
        image = jnp.take(x, batch[i : i + 1], axis=0)
        places = [jnp.clip(g, 0, n - 1) for g, n in zip(grid, sizes, strict=True)]
        if mode == "avg":
            read = jnp.where(beyond[:, None], 0, sampled(image, places, inside=True))
            made.append(read.mean((3, 5))[0])
        else:
            made.append(_corner_maximum(image, places, beyond).max((3, 5))[0])
    return jnp.stack(made)


@rule("MaxRoiPool")
def _max_roi_pool(x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    sizes = x.shape[2:]
    # Halves go away from 0.
    edges = jnp.floor(rois[:, 1:] * spatial_scale + 0.5)  # left, top, right and bottom of each
    made: list[Any] = []
    for i in range(rois.shape[0]):
        y = jnp.take(x, rois[i, 0].astype(jnp.int32), axis=0)
        for axis, first in ((1, 0), (0, 1)):
            start, bins = edges[i, first], pooled_shape[axis]
            step = jnp.maximum(edges[i, first + 2] - start + 1, 1) / bins
            k, at = jnp.arange(bins, dtype=rois.dtype)[:, None], jnp.arange(sizes[axis])
            inside = (at >= jnp.floor(k * step) + start) & (at < jnp.ceil((k + 1) * step) + start)  # [bins, size]
            spread = jnp.moveaxis(y, axis + 1, -1)[..., None, :]
            y = jnp.moveaxis(jnp.where(inside, spread, dtypes.lowest(x.dtype)).max(-1), -1, axis + 1)
            y = jnp.where(jnp.expand_dims(inside.any(-1), (0, 2 - axis)), y, 0)
        made.append(y)
    return jnp.stack(made)


def _corner_maximum(x: Any, places: Sequence[Any], beyond: Any) -> Any:
    """The largest of the four weighted neighbours, which is what ONNX's maximum takes."""
    base = [jnp.floor(p) for p in places]
    found: Any = None
    for corner in itertools.product((0, 1), repeat=2):
        weight: Any = 1
        for p, b, o in zip(places, base, corner, strict=True):
            weight = weight * jnp.maximum(1 - jnp.abs(p - b - o), 0)
        read = _read(x, [(b + o).astype(jnp.int32) for b, o in zip(base, corner, strict=True)], True)
        part = jnp.where(beyond[:, None], 0, read * weight[:, None])
        found = part if found is None else jnp.maximum(found, part)
    return found
