"""What nodes take in: biases, scales and activations into products, zero padding into convolutions.

Asked after layouts, so that channels are last. On a grid only what changes no bit.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATIONS
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.hybrid import padded_behind
from nxjax.lower.npu.layout import reshape_through
from nxjax.lower.npu.ops import op_of, those
from nxjax.lower.npu.ops.along import NpuReduction
from nxjax.lower.npu.permutation import composed, inverse
from nxjax.lower.npu.rewrite import Rewriter, constant, number, split_constant
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

PRODUCTS: Final = those(lambda op: op.weighted)


def fused(r: Rewriter, n: Node) -> Tensor | None:
    """What takes the place of ``n``'s result, or None."""
    if n.op in ("add", "sub"):
        return _bias(r, n) or reshape_last(r, n)
    if n.op == "mul":
        return _scale(r, n) or reshape_last(r, n)
    if n.op in ACTIVATIONS:
        return _activation(r, n) or reshape_last(r, n)
    if n.op in ("conv_2d", "depthwise_conv_2d"):
        return _padding(r, n)
    if n.op == "fully_connected":
        return _flattened(r, n)
    if isinstance(op_of(n), NpuReduction):
        return _reduced_units(r, n)
    if n.op == "quantize_rows":
        return padded_behind(r, n)
    if n.op == "transpose":
        return _transpose_before_reshape(r, n)
    if n.op == "quantize":
        return _stored_rows(r, n) or _quantize_first(r, n) or reshape_last(r, n)
    return reshape_last(r, n)


def _row(t: Tensor, channels: int) -> NDArray | None:
    """A constant that has one value per channel, or one for all."""
    if t.data is None or t.grid is not None:
        return None
    if t.size == 1:
        return np.full(channels, t.data.reshape(()), t.dtype)
    if t.shape[-1] != channels or math.prod(t.shape[:-1]) != 1:
        return None
    return t.data.reshape(-1)


def _plain_product(r: Rewriter, t: Tensor, n: Node) -> Node | None:
    """A float product that only ``n`` reads, without activation, with a bias that is constant or not there."""
    p = r.sole(t, *PRODUCTS)
    if p is None or t.grid is not None or p.attrs["activation"] or n.output.shape != t.shape:
        return None
    bias = p.inputs[2]
    return p if bias is None or bias.constant else None


def _bias(r: Rewriter, n: Node) -> Tensor | None:
    """conv(x, w) + b"""
    pair = split_constant(n)
    if pair is None or n.output.grid is not None or (n.op == "sub" and pair[1] is n.inputs[0]):
        return None
    p = _plain_product(r, pair[0], n)
    row = _row(pair[1], n.output.shape[-1]) if p is not None else None
    if p is None or row is None:
        return None
    x, w, old = p.inputs
    row = -row if n.op == "sub" else row
    if old is not None:
        assert old.data is not None
        row = old.data + row
    return r.again(p, [x, w, constant(row)], activation=n.attrs.get("activation"))


def _scale(r: Rewriter, n: Node) -> Tensor | None:
    """conv(x, w) * s: normalization with known statistics."""
    pair = split_constant(n)
    p = _plain_product(r, pair[0], n) if pair is not None and n.output.grid is None else None
    if pair is None or p is None:
        return None
    x, w, bias = p.inputs
    row = _row(pair[1], n.output.shape[-1])
    axis = 3 if p.op == "depthwise_conv_2d" else 0
    weights = _scaled(r, w, row, axis) if row is not None else None
    if weights is None:
        return None
    scaled = None
    if bias is not None:
        assert bias.data is not None
        scaled = constant(bias.data * row)
    return r.again(p, [x, weights, scaled], activation=n.attrs.get("activation"))


def _scaled(r: Rewriter, w: Tensor | None, row: NDArray, axis: int) -> Tensor | None:
    """Constant weights times a number per slice of ``axis``; of stored integers, only grid and sign change."""
    off = r.producer(w, "dequantize")
    stored = off.inputs[0] if off is not None else w
    if w is None or stored is None or stored.data is None:
        return None
    spread = row.reshape([-1 if i == axis else 1 for i in range(stored.data.ndim)])
    grid = stored.grid
    if grid is None:
        return constant((stored.data * spread).astype(w.dtype))
    if off is None or grid.zero_point or grid.axis not in (None, axis) or not np.all(row):
        return None
    scales = np.broadcast_to(np.asarray(grid.scale, np.float32), row.shape) * np.abs(row)
    with np.errstate(all="ignore"):
        usable = np.all(np.isfinite(scales)) and np.all(scales >= np.finfo(np.float32).tiny)
    if not usable:
        return None
    signed = (stored.data.astype(np.int8) * np.sign(spread).astype(np.int8)).astype(stored.dtype)
    moved = constant(signed, Grid(grid.dtype, tuple(map(float, scales)), 0, axis))
    return r.emit("dequantize", [moved], w.shape, w.dtype)


def _activation(r: Rewriter, n: Node) -> Tensor | None:
    """relu(conv(x, w))"""
    x = n.operand()
    p = r.sole(x, *PRODUCTS, "add", "sub", "mul", "div")
    if p is None or p.attrs.get("activation") or x.grid != n.output.grid:
        return None
    if x.grid is None and x.dtype not in dtypes.FLOAT:
        return None
    return r.again(p, activation=n.op)


def _padding(r: Rewriter, n: Node) -> Tensor | None:
    """A convolution of a tensor padded with zeros, also through a reshape that adds a dimension."""
    x = n.inputs[0]
    pad = r.sole(x, "pad")
    if pad is None:
        thin = r.sole(x, "reshape")
        pad = r.sole(thin.inputs[0], "pad") if thin is not None else None
        if pad is None or thin is None or thin.output.shape != (pad.output.shape[0], 1, *pad.output.shape[1:]):
            return None
    if pad.attrs["value"] or any(map(any, (pad.attrs["padding"][0], pad.attrs["padding"][-1]))):
        return None
    source, widths = pad.operand(), pad.attrs["padding"][1:-1]
    if len(widths) == 1:
        widths = ((0, 0), *widths)
        source = r.reshape(source, (source.shape[0], 1, *source.shape[1:]))
    padding = tuple((l + p, h + q) for (l, h), (p, q) in zip(n.attrs["padding"], widths, strict=True))
    return r.again(n, [source, *n.inputs[1:]], padding=padding)


def _flattened(r: Rewriter, n: Node) -> Tensor | None:
    """A dense layer of a flattened transposed tensor: the weights are transposed instead."""
    x, w, bias = n.operand(), n.operand(1), n.inputs[2]
    flat = r.producer(x, "reshape")
    moved = r.producer(flat.inputs[0], "transpose") if flat is not None else None
    if flat is None or moved is None:
        return None
    source, seen = moved.operand(), moved.output.shape
    perm: tuple[int, ...] = moved.attrs["permutation"]
    k = len(x.shape) - 1
    if seen[:k] != x.shape[:k] or perm[:k] != tuple(range(k)):
        return None
    stored = w if w.constant else None
    if stored is None:
        off = r.producer(w, "dequantize")
        stored = off.inputs[0] if off is not None else None
    if stored is None or stored.data is None:
        return None
    o = stored.shape[0]
    back = sorted(range(k, len(perm)), key=perm.__getitem__)
    cube = stored.data.reshape(o, *seen[k:]).transpose(0, *(i - k + 1 for i in back))
    weights = constant(cube.reshape(o, -1), stored.grid)
    if not w.constant:
        weights = r.emit("dequantize", [weights], weights.shape, w.dtype)
    return r.again(n, [r.reshape(source, x.shape), weights, bias])


def _reduced_units(r: Rewriter, n: Node) -> Tensor | None:
    """A reduction of a tensor whose sizes 1 were dropped: they go with the others."""
    thin = r.sole(n.inputs[0], "reshape")
    if thin is None or n.attrs["keepdims"] or len((x := thin.operand()).shape) > 4:
        return None
    kept: list[int] = []
    for i, m in enumerate(x.shape):
        if len(kept) < len(thin.output.shape) and m == thin.output.shape[len(kept)]:
            kept.append(i)
        elif m != 1:
            return None
    if len(kept) != len(thin.output.shape):
        return None
    gone = {i for i in range(len(x.shape)) if i not in kept} | {kept[a] for a in n.attrs["axes"]}
    return r.again(n, [x], axes=tuple(sorted(gone)))


def _stored_rows(r: Rewriter, n: Node) -> Tensor | None:
    """Rows of a constant that are quantized after they are looked up: the constant is stored quantized."""
    gather = r.sole(n.inputs[0], "gather")
    rows = gather.inputs[0] if gather is not None else None
    grid = n.output.grid
    if gather is None or rows is None or rows.data is None or rows.grid is not None or grid is None:
        return None
    stored = constant(grid.quantize(rows.data), grid)
    return r.like(n, "gather", [stored, gather.inputs[1]], **gather.attrs)


def _quantize_first(r: Rewriter, n: Node) -> Tensor | None:
    """A part of a float value put on a grid: the value is, once for all parts, as for the steps of a scan."""
    moved = r.sole(n.inputs[0], "slice", "strided_slice", "reverse", "concatenation")
    grid = n.output.grid
    if moved is None or grid is None or any(t.grid is not None or t.dtype != dtypes.float32 for t in moved.operands):
        return None
    put = lambda t: (
        constant(grid.quantize(t.data), grid) if t.data is not None else r.emit("quantize", [t], t.shape, grid)
    )
    return r.like(n, moved.op, [put(t) for t in moved.operands], **moved.attrs)


def _fewer_dimensions(r: Rewriter, n: Node) -> Tensor | None:
    """A transpose of more than four dimensions with those of size 1 left out, and those that stay together joined."""
    x = n.operand()
    if len(x.shape) <= 4:
        return None
    runs: list[list[int]] = []
    for i in n.attrs["permutation"]:
        if x.shape[i] == 1:
            continue
        if runs and runs[-1][-1] == max((j for j in range(i) if x.shape[j] != 1), default=-1):
            runs[-1].append(i)
        else:
            runs.append([i])
    if len(runs) >= len(x.shape):
        return None
    stored = sorted(runs)
    shape = tuple(math.prod(x.shape[i] for i in run) for run in stored)
    perm = tuple(stored.index(run) for run in runs)
    moved = r.emit("transpose", [r.reshape(x, shape)], tuple(shape[i] for i in perm), x.kind, permutation=perm)
    return r.reshape(moved, n.output.shape)


def settled(r: Rewriter, n: Node) -> Tensor | None:
    """What is asked last, since layouts push the other way."""
    if n.op == "mean":
        return _one_image(r, n)
    if n.op not in ("transpose", "reshape"):
        return None
    return _integers_move(r, n) or (_fewer_dimensions(r, n) if n.op == "transpose" else None)


def _one_image(r: Rewriter, n: Node) -> Tensor | None:
    """A mean within the elements of a batch as one over rows or channels of a single image, which every NPU has."""
    x, axes = n.inputs[0], tuple(sorted(n.attrs["axes"]))
    if x is None or x.grid is None or n.output.grid is None or x.shape[0] == 1 or not axes or axes[0] == 0:
        return None
    first, last = axes[0], axes[-1]
    if len(axes) != last - first + 1:
        return None
    outer, count, inner = (math.prod(x.shape[k]) for k in (slice(first), slice(first, last + 1), slice(last + 1, None)))
    shape, axis = ((1, outer, count, inner), 2) if inner > 1 else ((1, 1, outer, count), 3)
    left = tuple(m for i, m in enumerate(shape) if i != axis)
    y = r.emit("mean", [r.reshape(x, shape)], left, n.output.grid, axes=(axis,), keepdims=False)
    return r.reshape(y, n.output.shape)


def _integers_move(r: Rewriter, n: Node) -> Tensor | None:
    """A transpose or reshape behind a dequantize goes before it: integers are smaller, and may leave as they are."""
    found = r.match(n, (("dequantize", "x"),))
    if found is None or found["x"].grid is None:
        return None
    moved = r.emit(n.op, [found["x"]], n.output.shape, found["x"].kind, **n.attrs)
    return r.like(n, "dequantize", [moved])


def _transpose_before_reshape(r: Rewriter, n: Node) -> Tensor | None:
    """transpose(reshape(transpose(x))) with both transposes before the reshape, where they are one."""
    shaped = r.sole(n.inputs[0], "reshape")
    moved = r.sole(shaped.inputs[0], "transpose") if shaped is not None else None
    if moved is None:
        return None
    seen, first, out = moved.output, moved.attrs["permutation"], n.output
    # Seen from the result: its reshape passes through the way back.
    through = reshape_through(out.shape, inverse(n.attrs["permutation"]), seen.shape)
    if through is None:
        return None
    perm = composed(first, inverse(through[1]))
    return r.reshape(r.emit("transpose", moved.inputs, through[0], out.kind, permutation=perm), out.shape)


def _units_move(inner: tuple[int, ...], n: Node) -> bool:
    """Whether only sizes 1 come or go before a node with no constants but single numbers."""
    real = lambda shape: [m for m in shape if m != 1]
    fits = real(inner) == real(n.output.shape) and len(inner) <= max(4, len(n.output.shape))
    return fits and all(t.size == 1 for t in n.operands if t.constant)


def reshape_last(r: Rewriter, n: Node) -> Tensor | None:
    """f(reshape(x)) as reshape(f(x)) where channels stay last: brings biases to products, and reshapes together.

    Also where only sizes 1 come or go, as around means: they find the place where they come or went.
    """
    if not op_of(n).elementwise:
        return None
    inner: tuple[int, ...] | None = None
    inputs: list[Tensor | None] = []
    for t in n.inputs:
        if t is None:
            return None
        if t.constant:
            inputs.append(t)
            continue
        p = r.sole(t, "reshape")
        x = p.inputs[0] if p is not None else None
        if x is None or t.shape != n.output.shape or (inner is not None and inner != x.shape):
            return None
        inner = x.shape
        inputs.append(x)
    if not inner or not n.output.shape:
        return None
    last_stays = len(inner) >= len(n.output.shape) and inner[-1] == n.output.shape[-1]
    if not last_stays and not _units_move(inner, n):
        return None
    for i, t in enumerate(inputs):
        if t is None or not t.constant or number(t) is not None:
            continue
        if math.prod(t.shape[:-1]) != 1:
            return None
        assert t.data is not None
        grid = t.grid if t.grid is None or t.grid.axis is None else None
        if grid is not t.grid:
            return None
        inputs[i] = constant(t.data.reshape((1,) * (len(inner) - 1) + (-1,)), grid)
    return r.reshape(r.emit(n.op, inputs, inner, n.output.kind, **n.attrs), n.output.shape)
