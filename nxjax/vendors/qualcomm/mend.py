"""A graph as Qualcomm's compiler gets it right: forms that it refuses or computes wrongly become others.

What is mended was seen with QNN 2.51 (onnxruntime-qnn 2.7.0) on its simulator:

- int8 operators that it lacks, or computes between floats, become tables of 256 values, which are exact;
- constants decompressed in the graph are decompressed in the file, since it dequantizes only per tensor;
- float convolutions with strides (2, 2) and more than eight rows or columns of weights read beyond their input from
  v73 on: they stride in one direction, and every other row is kept;
- products of values that end, along their last axis, in one repeated constant are wrong by any amount: one more element
  of another value follows, and is cut off;
- float gathers along another axis than the first give wrong rows: the axis goes first;
- transposed convolutions of volumes are wrong by any amount where the strides of height and width differ: they become
  those of images; and where more is cut before a result than behind it: the whole result is cut by a slice;
- float means of windows over a border are wrong for many sizes: zeros are padded, and what they took is multiplied in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.volume import by_images
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

# Int8 functions without a node of their own on the HTP.
TABLES: Final = frozenset(["erf", "rsqrt"])
# Weights of at most so many rows and columns stride in two directions at once.
STRIDED: Final = 8


@final
class _Mender:
    """The nodes being made, and the one of the graph that each stands for."""

    def __init__(self) -> None:
        self.origin: dict[Node, Node] = {}
        self.known: dict[Tensor, Tensor] = {}
        self.notes: list[str] = []
        self.plain_constants = 0

    def plain(self, t: Tensor) -> Tensor:
        """A constant without a grid; other tensors as they are."""
        if t.grid is None or t.data is None:
            return t
        if t not in self.known:
            self.known[t] = Tensor(t.name, t.shape, dtypes.float32, None, t.grid.dequantize(t.data))
            self.plain_constants += 1
        return self.known[t]

    def put(self, old: Node, new: Node) -> None:
        self.origin[new] = old

    def step(
        self, old: Node, op: str, inputs: Sequence[Tensor | None], shape: Sequence[int], suffix: str, **attrs: Any
    ) -> Tensor:
        """One more node for ``old``, with a result of its own."""
        like = inputs[0] or old.output
        y = Tensor(f"{old.output.name}/{suffix}", tuple(shape), like.dtype, like.grid)
        self.put(old, Node(op, tuple(inputs), (y,), attrs, old.source, old.scope, f"{old.name or old.op}/{suffix}"))
        return y


def mended(graph: NpuGraph, arch: int) -> tuple[NpuGraph, dict[Node, Node], list[str]]:
    """The graph to write, the node of ``graph`` behind each of its nodes, and what was changed.

    Args:
        graph: stays as it is.
        arch: generation of the HTP.
    """
    m = _Mender()
    for n in graph.nodes:
        new = replace(n, inputs=tuple(None if t is None else m.known.get(t, t) for t in n.inputs))
        real = n.output.grid is None and n.output.dtype in dtypes.FLOAT
        if real and any(t.grid is not None and t.constant for t in new.operands):
            new = replace(new, inputs=tuple(None if t is None else m.plain(t) for t in new.inputs))
        x = new.inputs[0] if new.inputs else None
        if n.op == "dequantize" and x is not None and x.constant:
            m.known[n.output] = x
        elif n.op in TABLES and _int8(x) and _int8(n.output):
            m.put(n, _table(new))
        elif n.op == "concatenation" and (real or n.output.grid is not None) and _ends_in_one_number(new):
            _joined(m, n, tuple(new.operands))
        elif n.op == "pad" and x is not None and (real or n.output.grid is not None) and _pads_the_end(new):
            _join_instead(m, n, new, x)
        elif n.op == "conv_2d" and real and arch >= 73 and _strides_twice(new):
            _split_strides(m, n, new)
        elif n.op == "transpose_conv_3d" and new.attrs["strides"][1] != new.attrs["strides"][2]:
            for part in by_images(new):
                m.put(n, part)
        elif n.op == "transpose_conv_3d" and any(low > max(high, 0) for low, high in new.attrs["padding"]):
            _cut_after(m, n, new)
        elif n.op == "average_pool_2d" and real and x is not None and any(map(any, n.attrs["padding"])):
            _pad_first(m, n, new, x)
        elif n.op == "gather" and real and x is not None and int(n.attrs["axis"]) % len(x.shape):
            _axis_first(m, n, new, x)
        else:
            m.put(n, new)
    if m.plain_constants:
        m.notes.append(
            f"{m.plain_constants} compressed constants are float in the file: the HTP multiplies floats there"
        )
    outputs = [m.known.get(t, t) for t in graph.outputs]
    return NpuGraph(graph.name, graph.inputs, outputs, list(m.origin), graph.rounding), m.origin, m.notes


def _int8(t: Tensor | None) -> bool:
    return t is not None and t.grid is not None and t.dtype == dtypes.int8 and t.grid.axis is None


def _ends_in_one_number(n: Node) -> bool:
    """Whether a concatenation along the last axis ends in a constant of equal elements, behind something computed."""
    last = n.operands[-1]
    same = last.data is not None and bool((last.data == last.data.flat[0]).all())
    return same and n.operands[0].data is None and n.attrs["axis"] == len(n.output.shape) - 1


def _pads_the_end(n: Node) -> bool:
    """Whether the last axis alone is padded, behind its end, with another number than zero."""
    *others, (low, high) = n.attrs["padding"]
    return bool(n.attrs["value"]) and high > 0 and not low and not any(map(any, others))


def _cut_after(m: _Mender, old: Node, n: Node) -> None:
    """A transposed convolution of which nothing is cut, and a slice of its result."""
    x, w, y = n.operand(), n.operand(1), n.output
    rows = zip(x.shape[1:-1], n.attrs["strides"], w.shape[1:-1], strict=True)
    shape = (y.shape[0], *((k - 1) * s + size for k, s, size in rows), y.shape[-1])
    full = Tensor(f"{y.name}/full", shape, y.dtype, y.grid)
    none = tuple((0, min(high, 0)) for _, high in n.attrs["padding"])
    m.put(old, replace(n, outputs=(full,), attrs={**n.attrs, "padding": none}, name=f"{n.name or n.op}/full"))
    begin = (0, *(low for low, _ in n.attrs["padding"]), 0)
    m.put(old, replace(old, op="slice", inputs=(full,), attrs={"begin": begin, "size": y.shape}))


def _joined(m: _Mender, old: Node, parts: tuple[Tensor, ...]) -> None:
    """A concatenation with one more element of another value at its end, which is then cut off."""
    y, last = old.output, parts[-1]
    assert last.data is not None
    other = np.full((*last.shape[:-1], 1), last.data.flat[0] == 0, last.dtype)
    data = np.concatenate([last.data, other], -1)
    uneven = Tensor(f"{y.name}/end", data.shape, last.dtype, last.grid, data)
    shape = (*y.shape[:-1], y.shape[-1] + 1)
    wide = m.step(old, "concatenation", (*parts[:-1], uneven), shape, "wide", axis=len(y.shape) - 1)
    m.put(old, replace(old, op="slice", inputs=(wide,), attrs={"begin": (0,) * len(y.shape), "size": y.shape}))


def _join_instead(m: _Mender, old: Node, new: Node, x: Tensor) -> None:
    """Padding at the end of the last axis as a concatenation."""
    y, grid = old.output, old.output.grid
    values = np.full((*x.shape[:-1], new.attrs["padding"][-1][1]), new.attrs["value"], np.float32)
    stored = values.astype(y.dtype) if grid is None else grid.quantize(values)
    constant = Tensor(f"{y.name}/end", stored.shape, y.dtype, grid, stored)
    _joined(m, old, (x, constant))


def _table(n: Node) -> Node:
    """The node as a table: its meaning on all 256 stored values."""
    x = n.operands[0]
    every = np.arange(-128, 128).astype(dtypes.int8)
    one = Tensor("x", (256,), x.dtype, x.grid)
    result = Tensor("y", (256,), n.output.dtype, n.output.grid)
    (values,) = interpret(NpuGraph("one", [one], [result], [replace(n, inputs=(one,), outputs=(result,))]), [every])
    return replace(n, op="table", attrs={"function": n.op, "values": values})


def _strides_twice(n: Node) -> bool:
    w = n.operands[1]
    return tuple(n.attrs["strides"]) == (2, 2) and max(w.shape[1:3]) > STRIDED


def _split_strides(m: _Mender, old: Node, new: Node) -> None:
    """Strides (1, 2), then every other row."""
    x, w = new.operands[:2]
    low, high = new.attrs["padding"][0]
    dilation = new.attrs.get("dilations", (1, 1))[0]
    rows = x.shape[1] + low + high - (w.shape[1] - 1) * dilation
    y = old.output
    tall = m.step(old, new.op, new.inputs, (y.shape[0], rows, *y.shape[2:]), "rows", **{**new.attrs, "strides": (1, 2)})
    cut = {"begin": (0, 0, 0, 0), "end": tall.shape, "strides": (1, 2, 1, 1)}
    m.put(old, replace(old, op="strided_slice", inputs=(tall,), attrs=cut))
    m.notes.append(f"{old.name or old.op}: strides in one direction, every other row is kept (twice the products)")


def _pad_first(m: _Mender, old: Node, new: Node, x: Tensor) -> None:
    """Zeros around, means without a border, and the windows' sizes over how much of the image is in them."""
    y, window, strides = old.output, old.attrs["window"], old.attrs["strides"]
    border = ((0, 0), *(tuple(p) for p in old.attrs["padding"]), (0, 0))
    shape = [n + low + high for n, (low, high) in zip(x.shape, border, strict=True)]
    wide = m.step(old, "pad", (x,), shape, "padded", padding=border, value=None)
    attrs = {**new.attrs, "padding": ((0, 0), (0, 0)), "activation": None}
    means = m.step(old, new.op, (wide,), y.shape, "means", **attrs)
    inside: list[NDArray] = []
    for n, (low, _), size, step, count in zip(x.shape[1:3], border[1:3], window, strides, y.shape[1:3], strict=True):
        first = np.arange(count) * step - low
        inside.append(size / (np.minimum(first + size, n) - np.maximum(first, 0)))
    factor = np.multiply.outer(*inside).astype(y.dtype)[None, :, :, None]
    part = Tensor(f"{y.name}/part", factor.shape, y.dtype, None, factor)
    m.put(old, replace(old, op="mul", inputs=(means, part), attrs={"activation": old.attrs.get("activation")}))


def _axis_first(m: _Mender, old: Node, new: Node, x: Tensor) -> None:
    """The axis to the front, a gather along it, and back."""
    indices = new.operands[1]
    axis, rank, wide = int(old.attrs["axis"]) % len(x.shape), len(x.shape), len(indices.shape)
    front = (axis, *(i for i in range(rank) if i != axis))
    turned = m.step(old, "transpose", (x,), [x.shape[i] for i in front], "front", permutation=front)
    got = m.step(old, "gather", (turned, indices), (*indices.shape, *turned.shape[1:]), "rows", axis=0)
    # The result has the indices' dimensions where the axis was.
    back = (*range(wide, wide + axis), *range(wide), *range(wide + axis, wide + rank - 1))
    m.put(old, replace(old, op="transpose", inputs=(got,), attrs={"permutation": back}))
