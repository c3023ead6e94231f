"""Convolutions of volumes by those of images, for what has none of three dimensions: exact, in floats and integers.

The taps of a kernel along the depth lie beside each other as channels, so that one sum has all of its terms and is
rounded once. The slices of a volume are stacked to one high image, since many chips take one image at a time; the rows
that reach from one slice into the next are cut off behind. Knows graphs, no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.rewrite import constant
from nxjax.trace.types import Shape

_PRODUCTS: Final = ("conv_2d", "transpose_conv")


@final
class _Nodes:
    """Nodes that together are one, with its source; the last makes its result."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.made: list[Node] = []

    def emit(self, op: str, inputs: Sequence[Tensor | None], shape: Shape, /, **attrs: Any) -> Tensor:
        kind = self.node.output if op in _PRODUCTS else inputs[0]
        assert kind is not None
        out = Tensor(f"{self.node.output.name}/{op}_{len(self.made)}", shape, kind.dtype, kind.grid)
        self.made.append(Node(op, tuple(inputs), (out,), attrs, self.node.source, self.node.scope, out.name))
        return out

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        if self.made and self.made[-1].op == "reshape" and self.made[-1].output is x:
            x = self.made.pop().operand()
        return x if x.shape == shape else self.emit("reshape", [x], shape, shape=shape)

    def pad(self, x: Tensor, axis: int, low: int, high: int) -> Tensor:
        """Zeros around one axis; negative amounts cut."""
        n = x.shape[axis]
        x = self.cut(x, axis, max(-low, 0), n - max(-high, 0))
        low, high = max(low, 0), max(high, 0)
        if not low + high:
            return x
        widths = [(low, high) if i == axis else (0, 0) for i in range(len(x.shape))]
        shape = tuple(m + a + b for m, (a, b) in zip(x.shape, widths, strict=True))
        return self.emit("pad", [x], shape, padding=widths, value=None)

    def cut(self, x: Tensor, axis: int, begin: int, end: int, step: int = 1) -> Tensor:
        """Every ``step``-th element of one axis."""
        if (begin, end, step) == (0, x.shape[axis], 1):
            return x
        at = lambda v, i: v if i == axis else 0
        starts = [at(begin, i) for i in range(len(x.shape))]
        shape = tuple(-(-(end - begin) // step) if i == axis else n for i, n in enumerate(x.shape))
        if step == 1:
            return self.emit("slice", [x], shape, begin=starts, size=shape)
        ends = [end if i == axis else n for i, n in enumerate(x.shape)]
        strides = [step if i == axis else 1 for i in range(len(x.shape))]
        return self.emit("strided_slice", [x], shape, begin=starts, end=ends, strides=strides)

    def taps(self, x: Tensor, count: int, every: int, dilation: int, depth: int) -> Tensor:
        """[n, d, rest, c] -> [n, depth, rest, count * c]: what each place along the depth is multiplied with."""
        last = (depth - 1) * every + 1
        parts = [self.cut(x, 1, k * dilation, k * dilation + last, every) for k in range(count)]
        if count == 1:
            return parts[0]
        shape = (*parts[0].shape[:3], count * x.shape[3])
        return self.emit("concatenation", parts, shape, axis=3)

    def done(self) -> list[Node]:
        """The nodes; the last makes the node's own result."""
        last = self.made[-1]
        last.outputs = self.node.outputs
        return self.made


def _image_weights(w: Tensor, turned: bool = False) -> Tensor:
    """[o, kd, kh, kw, c] -> [o, kh, kw, kd * c], the depth turned round for transposed kernels."""
    assert w.data is not None
    data = w.data[:, ::-1] if turned else w.data
    o, kd, kh, kw, c = data.shape
    flat = constant(data.transpose(0, 2, 3, 1, 4).reshape(o, kh, kw, kd * c), w.grid)
    flat.name = f"{w.name}/image"
    return flat


def by_images(node: Node) -> list[Node]:
    """A ``conv_3d`` of one group or a ``transpose_conv_3d`` as nodes of images.

    Args:
        node: one with constant weights.

    >>> import numpy as np
    >>> x, y = Tensor("x", (1, 4, 5, 5, 2), "float32"), Tensor("y", (1, 3, 5, 5, 3), "float32")
    >>> w = Tensor("w", (3, 2, 1, 1, 2), "float32", None, np.ones((3, 2, 1, 1, 2), np.float32))
    >>> [n.op for n in by_images(Node("conv_3d", (x, w, None), (y,)))]
    ['reshape', 'slice', 'slice', 'concatenation', 'reshape', 'conv_2d', 'reshape']
    """
    return _transposed(_Nodes(node)) if node.op == "transpose_conv_3d" else _direct(_Nodes(node))


def _direct(b: _Nodes) -> list[Node]:
    node, a = b.node, b.node.attrs
    x, w, bias = node.operand(), node.operand(1), node.inputs[2]
    n, d, h, v, c = x.shape
    _, od, oh, ow, o = node.output.shape
    kd, kh = w.shape[1:3]
    (sd, sh, sw), (dd, dh, dw), (pd, ph, pw) = a["strides"], a["dilations"], a["padding"]
    rows = -(-(h + sum(ph)) // sh) * sh
    y = b.reshape(x, n * d, h, v, c)
    y = b.pad(b.pad(y, 1, ph[0], rows - h - ph[0]), 2, *pw)
    columns = v + sum(pw)
    y = b.pad(b.reshape(y, n, d, rows * columns, c), 1, *pd)
    y = b.taps(y, kd, sd, dd, od)
    y = b.pad(b.reshape(y, 1, n * od * rows, columns, kd * c), 1, 0, max((kh - 1) * dh + 1 - sh, 0))
    made = n * od * rows // sh
    more = {"strides": (sh, sw), "dilations": (dh, dw), "activation": a["activation"]}
    y = b.emit("conv_2d", [y, _image_weights(w), bias], (1, made, ow, o), **more)
    y = b.cut(b.reshape(y, n * od, rows // sh, ow, o), 1, 0, oh)
    b.reshape(y, n, od, oh, ow, o)
    return b.done()


def _transposed(b: _Nodes) -> list[Node]:
    node, a = b.node, b.node.attrs
    x, w, bias = node.operand(), node.operand(1), node.inputs[2]
    n, d, h, v, c = x.shape
    _, od, oh, ow, o = node.output.shape
    kd, (sd, *strides), (pd, *cuts) = w.shape[1], a["strides"], a["padding"]
    # Zeros between the slices, in a dimension of their own.
    y = b.pad(b.reshape(x, n * d, 1, h * v, c), 1, 0, sd - 1)
    y = b.cut(b.reshape(y, n, d * sd, h * v, c), 1, 0, (d - 1) * sd + 1)
    y = b.taps(b.pad(y, 1, kd - 1 - pd[0], kd - 1 - pd[1]), kd, 1, 1, od)
    y = b.reshape(y, n * od, h, v, kd * c)
    more = {"strides": strides, "padding": cuts, "activation": a["activation"]}
    y = b.emit("transpose_conv", [y, _image_weights(w, True), bias], (n * od, oh, ow, o), **more)
    b.reshape(y, n, od, oh, ow, o)
    return b.done()
