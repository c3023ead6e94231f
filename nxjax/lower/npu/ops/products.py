"""Products of values with weights, and with each other."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATION, BORDER, BORDERS, FLAG, INTEGER, THREE, TWO
from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops.base import NpuOp, agree, need, op, same_kind, shape_of
from nxjax.lower.npu.ops.elementwise import broadcast
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.lower.npu.ops.window import windows
from nxjax.lower.npu.permutation import Perm
from nxjax.ops.base import NDArray
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import conv_dimension_numbers
from nxjax.ops.fake_quantize import quantize_rows
from nxjax.ops.fixed import elementwise, product
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# By rank.
_LAYOUTS: Final = {
    4: conv_dimension_numbers((1,) * 4, (1,) * 4, ("NHWC", "OHWI", "NHWC")),
    5: conv_dimension_numbers((1,) * 5, (1,) * 5, ("NDHWC", "ODHWI", "NDHWC")),
}
_NONE: Final = ((0, 0), (0, 0))
_NONE_3: Final = ((0, 0),) * 3


class NpuProduct(NpuOp):
    """A sum of products per element of the result."""

    kind: product.Kind

    @abstractmethod
    def depth(self, node: Node) -> int:
        """Products per sum."""

    @abstractmethod
    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        """The sums, in the operands' dtype."""

    def row(self, x: NDArray) -> tuple[int, ...]:
        """The axes of what a dynamic product brings to 8 bits with one scale."""
        return tuple(range(1, x.ndim))

    def macs(self, node: Node) -> int:
        return node.output.size * self.depth(node)

    def eval(self, run: NodeRun, x: NDArray, w: NDArray, b: NDArray | None = None) -> NDArray:
        """The sums with bias on the grid of the result, or in floats."""
        if run.grids[0] is None:
            w = w if run.grids[1] is None else run.of(1).dequantize(w)
            x = quantize_rows.eval(x, axes=self.row(x)) if run.attrs.get("dynamic") else x
            y = self.sums(run.node, x, w)
            return run.activated(y if b is None else y + b)
        x, w = x.astype(np.int64) - run.of(0).zero_point, w.astype(np.int64) - run.of(1).zero_point
        acc = self.sums(run.node, *_exact(x, w, self.depth(run.node))).astype(np.int64)
        if b is not None:
            acc = acc + b.astype(np.int64)
        scales = float(elementwise.scale_of(run.of(0))), np.asarray(run.of(1).scale, np.float32)
        ends = run.clamp(run.attrs.get("activation"))
        return product.requantize_products(acc, *scales, run.grid, *ends, run.rounding, self.kind)


def _exact(x: NDArray, w: NDArray, depth: int) -> tuple[NDArray, NDArray]:
    """Whole numbers in the fastest dtype that rounds no sum of ``depth`` products: NumPy is fast only with floats."""
    largest = int(np.abs(x).max(initial=0)) * int(np.abs(w).max(initial=0)) * depth
    work = np.float32 if largest <= 2**24 else np.float64 if largest <= 2**53 else np.int64
    return x.astype(work), w.astype(work)


def _correlate(x: NDArray, w: NDArray, strides: Any, padding: Any, spread: Any, dilations: Any, groups: int) -> NDArray:
    return conv_general_dilated.eval(
        x, w, window_strides=strides, padding=padding, lhs_dilation=spread, rhs_dilation=dilations,
        feature_group_count=groups, batch_group_count=1, dimension_numbers=_LAYOUTS[x.ndim],
    )  # fmt: skip


class NpuWeighted(NpuProduct):
    """A product with weights: a bias per output channel, or None, is operand 2."""

    roles = ("x", "weights", "bias")
    weighted = True
    # Where output channels lie in the weights.
    channels = 0

    def check_types(self, node: Node) -> None:
        """Floats take floats, or weights on a grid, which are compressed; integers on a grid an integer bias."""
        x, w, *bias = node.operands
        if x.grid is None:
            good = x.dtype in dtypes.FLOAT and all(t.dtype == x.dtype for t in bias)
            good = good and (w.grid is not None or w.dtype == x.dtype)
        else:
            good = w.grid is not None and all(t.dtype in (dtypes.int32, dtypes.int64) for t in bias)
        agree(node, node.output.dtype == x.dtype and good)
        same_kind(node, [x, *node.outputs])

    def checked(self, node: Node, *spatial: int) -> Shape:
        """The shape of the result, of images if there are spatial sizes; the bias fits its channels."""
        n = shape_of(node, 1)[self.channels]
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            need(shape_of(node, 2) == (n,), f"{node.op}: bias of shape {shape_of(node, 2)} for {n} channels")
        return (*(shape_of(node)[:1] if spatial else shape_of(node)[:-1]), *spatial, n)


class NpuConvolution(NpuWeighted):
    """A correlation of an image with a kernel per output channel."""

    attributes = {"strides": TWO((1, 1)), "dilations": TWO((1, 1)), "padding": BORDER(_NONE), "activation": ACTIVATION}
    kind = "conv"


class NpuFullConvolution(NpuConvolution):
    """Every output channel reads all channels of its group."""

    rank: int

    def shape(self, node: Node) -> Shape:
        x, w, groups = shape_of(node), shape_of(node, 1), node.attrs["groups"]
        need(len(x) == len(w) == self.rank, f"{node.op}: ranks {len(x)} and {len(w)}")
        good = groups > 0 and x[-1] == w[-1] * groups and w[0] % groups == 0
        need(good, f"{node.op}: channels {x[-1]}, weights {w}")
        return self.checked(node, *windows(node, x, w[1:-1]))

    def depth(self, node: Node) -> int:
        return math.prod(node.operand(1).shape[1:])

    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        a = node.attrs
        return _correlate(x, w, a["strides"], a["padding"], (1,) * (x.ndim - 2), a["dilations"], a["groups"])


@final
@op("conv_2d")
class NpuConv2d(NpuFullConvolution):
    """x [n,h,w,c], weights [o,kh,kw,c/groups]."""

    attributes = {**NpuConvolution.attributes, "groups": INTEGER(1), "dynamic": FLAG(False)}
    rank = 4


@final
@op("conv_3d")
class NpuConv3d(NpuFullConvolution):
    """x [n,d,h,w,c], weights [o,kd,kh,kw,c/groups]."""

    attributes = {
        "strides": THREE((1, 1, 1)), "dilations": THREE((1, 1, 1)), "padding": BORDERS(_NONE_3),
        "activation": ACTIVATION, "groups": INTEGER(1),
    }  # fmt: skip
    rank = 5


@final
@op("depthwise_conv_2d")
class NpuDepthwiseConv2d(NpuConvolution):
    """x [n,h,w,c], weights [1,kh,kw,c*m]: channels do not share terms."""

    channels = 3
    shares_terms = False

    def shape(self, node: Node) -> Shape:
        x, w = shape_of(node), shape_of(node, 1)
        need(len(x) == len(w) == 4 and w[0] == 1, f"{node.op}: operands {x} and {w}")
        need(w[3] % x[3] == 0, f"{node.op}: {w[3]} filters for {x[3]} channels")
        return self.checked(node, *windows(node, x, w[1:3]))

    def depth(self, node: Node) -> int:
        return math.prod(node.operand(1).shape[1:3])

    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        a = node.attrs
        kernel = w.transpose(3, 1, 2, 0)
        return _correlate(x, kernel, a["strides"], a["padding"], (1, 1), a["dilations"], x.shape[3])


class NpuSpread(NpuWeighted):
    """Every element spreads over a window; ``padding`` is cut from the result."""

    rank: int
    kind = "conv"

    def shape(self, node: Node) -> Shape:
        x, w = shape_of(node), shape_of(node, 1)
        need(len(x) == len(w) == self.rank and x[-1] == w[-1], f"{node.op}: operands {x} and {w}")
        rows = zip(x[1:-1], w[1:-1], node.attrs["strides"], node.attrs["padding"], strict=True)
        sizes = tuple((n - 1) * s + k - low - high for n, k, s, (low, high) in rows)
        need(min(sizes) > 0, f"{node.op}: result sizes {sizes}")
        return self.checked(node, *sizes)

    def depth(self, node: Node) -> int:
        return math.prod(node.operand(1).shape[1:])

    def macs(self, node: Node) -> int:
        return node.operand(0).size * math.prod(node.operand(1).shape[:-1])

    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        """The correlation of the spread operand with the turned kernel."""
        a, ones = node.attrs, (1,) * (x.ndim - 2)
        padding = tuple((k - 1 - low, k - 1 - high) for k, (low, high) in zip(w.shape[1:-1], a["padding"], strict=True))
        return _correlate(x, np.flip(w, tuple(range(1, w.ndim - 1))), ones, padding, a["strides"], ones, 1)


@final
@op("transpose_conv")
class NpuTransposeConv(NpuSpread):
    """x [n,h,w,c], weights [o,kh,kw,c]."""

    attributes = {"strides": TWO((1, 1)), "padding": BORDER(_NONE), "activation": ACTIVATION}
    rank = 4


@final
@op("transpose_conv_3d")
class NpuTransposeConv3d(NpuSpread):
    """x [n,d,h,w,c], weights [o,kd,kh,kw,c]."""

    attributes = {"strides": THREE((1, 1, 1)), "padding": BORDERS(_NONE_3), "activation": ACTIVATION}
    rank = 5


@final
@op("fully_connected")
class NpuFullyConnected(NpuWeighted):
    """x [..., i], weights [o,i]."""

    attributes = {"activation": ACTIVATION, "dynamic": FLAG(False)}
    kind = "dense"
    movable = True

    def shape(self, node: Node) -> Shape:
        x, w = shape_of(node), shape_of(node, 1)
        need(len(w) == 2 and len(x) > 0 and x[-1] == w[1], f"{node.op}: operands {x} and {w}")
        return self.checked(node)

    def depth(self, node: Node) -> int:
        return node.operand(1).shape[1]

    def row(self, x: NDArray) -> tuple[int, ...]:
        return (x.ndim - 1,)

    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        return x.reshape(-1, w.shape[1]) @ w.T

    def eval(self, run: NodeRun, x: NDArray, w: NDArray, b: NDArray | None = None) -> NDArray:
        return super().eval(run, x, w, b).reshape(run.out.shape)

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        return super().under(node, perm) if perm[-1] == len(perm) - 1 else None


@final
@op("batch_matmul")
class NpuBatchMatmul(NpuProduct):
    """x [...,m,k], y [...,k,n]; ``adj_x`` and ``adj_y`` say that the last two are stored the other way round."""

    attributes = {"adj_x": FLAG(False), "adj_y": FLAG(False)}
    kind = "matmul"
    swaps = ("adj_x", "adj_y")

    def shape(self, node: Node) -> Shape:
        x, y = shape_of(node), shape_of(node, 1)
        need(min(len(x), len(y)) >= 2, f"{node.op}: operands {x} and {y}")
        m, k = x[-2:] if not node.attrs["adj_x"] else x[:-3:-1]
        l, n = y[-2:] if not node.attrs["adj_y"] else y[:-3:-1]
        need(k == l, f"{node.op}: operands {x} and {y}")
        return (*broadcast(x[:-2], y[:-2]), m, n)

    def depth(self, node: Node) -> int:
        return node.operand().shape[-2 if node.attrs["adj_x"] else -1]

    def sums(self, node: Node, x: NDArray, w: NDArray) -> NDArray:
        x = x.swapaxes(-1, -2) if node.attrs["adj_x"] else x
        return np.matmul(x, w.swapaxes(-1, -2) if node.attrs["adj_y"] else w)
