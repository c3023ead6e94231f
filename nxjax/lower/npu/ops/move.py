"""Ops that move stored values as they are: the grid of the operand is that of the results."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.lower.npu.attributes import AXES, AXIS, INTEGER, INTEGERS, NEW_AXIS, NUMBER, PAIRS, PER_DIMENSION
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops.base import NpuOp, agree, need, need_axes, op, shape_of
from nxjax.lower.npu.ops.elementwise import broadcast
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.lower.npu.permutation import Perm
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.types import Shape


class NpuMove(NpuOp):
    """A new order of the first operand's elements."""

    picks = True

    def eval(self, run: NodeRun, x: NDArray, *rest: NDArray) -> NDArray | list[NDArray]:
        run.same_grids(0)
        return self.move(run, x, *rest)

    @abstractmethod
    def move(self, run: NodeRun, x: NDArray, *rest: Any) -> NDArray | list[NDArray]:
        """The results."""


class NpuSame(NpuMove):
    """One that does nothing where shapes stay."""

    movable = True

    def idle(self, node: Node) -> bool:
        return True


@final
@op("reshape")
class NpuReshape(NpuMove):
    """The same elements under another shape."""

    attributes = {"shape": INTEGERS}
    view = True

    def shape(self, node: Node) -> Shape:
        shape = node.attrs["shape"]
        need(math.prod(shape) == math.prod(shape_of(node)), f"reshape of {shape_of(node)} to {shape}")
        return shape

    def idle(self, node: Node) -> bool:
        return True

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return x.reshape(run.attrs["shape"])


@final
@op("transpose")
class NpuTranspose(NpuMove):
    """Dimensions in another order."""

    attributes = {"permutation": INTEGERS}

    def shape(self, node: Node) -> Shape:
        x, permutation = shape_of(node), node.attrs["permutation"]
        need(sorted(permutation) == list(range(len(x))), f"transpose: permutation {permutation} of {x}")
        return tuple(x[p] for p in permutation)

    def idle(self, node: Node) -> bool:
        return node.attrs["permutation"] == tuple(range(len(node.output.shape)))

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return x.transpose(run.attrs["permutation"])


@final
@op("concatenation")
class NpuConcatenation(NpuOp):
    """Operands on one grid, one after the other along ``axis``."""

    attributes = {"axis": AXIS}
    movable = True
    picks = True
    together = True

    def shape(self, node: Node) -> Shape:
        first, axis = shape_of(node), node.attrs["axis"]
        need_axes(node, len(first), axis)
        shapes = [shape_of(node, i) for i in range(len(node.inputs))]
        rest = {s[:axis] + s[axis + 1 :] for s in shapes if len(s) == len(first)}
        need(len(rest) == 1 and all(len(s) == len(first) for s in shapes), f"concatenation of {shapes}")
        return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])

    def eval(self, run: NodeRun, *xs: NDArray) -> NDArray:
        run.same_grids(*range(len(xs)))
        return np.concatenate(xs, run.attrs["axis"])


@final
@op("split")
class NpuSplit(NpuMove):
    """Parts of ``sizes`` along ``axis``, each a result."""

    attributes = {"axis": AXIS, "sizes": INTEGERS}
    movable = True

    def shape(self, node: Node) -> Shape:
        return self.shapes(node)[0]

    def shapes(self, node: Node) -> list[Shape]:
        x, axis, sizes = shape_of(node), node.attrs["axis"], node.attrs["sizes"]
        need_axes(node, len(x), axis)
        need(min(sizes, default=0) > 0 and sum(sizes) == x[axis], f"split of {x} at axis {axis} into {sizes}")
        return [(*x[:axis], n, *x[axis + 1 :]) for n in sizes]

    def move(self, run: NodeRun, x: NDArray) -> list[NDArray]:
        return list(np.split(x, np.cumsum(run.attrs["sizes"])[:-1], run.attrs["axis"]))


@final
@op("slice")
class NpuSlice(NpuSame):
    """``size`` elements per dimension from ``begin`` on."""

    attributes = {"begin": PER_DIMENSION, "size": PER_DIMENSION}

    def shape(self, node: Node) -> Shape:
        x, begin, size = shape_of(node), node.attrs["begin"], node.attrs["size"]
        need(len(begin) == len(size) == len(x), f"slice: {len(begin)} starts for {x}")
        inside = all(b >= 0 and n > 0 and b + n <= full for b, n, full in zip(begin, size, x, strict=True))
        need(inside, f"slice at {begin} of size {size} from {x}")
        return size

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return x[tuple(slice(b, b + n) for b, n in zip(run.attrs["begin"], run.attrs["size"], strict=True))]


@final
@op("strided_slice")
class NpuStridedSlice(NpuSame):
    """Every ``strides``-th element from ``begin`` to before ``end``, all static, strides above 0."""

    attributes = {"begin": PER_DIMENSION, "end": PER_DIMENSION, "strides": PER_DIMENSION}

    def shape(self, node: Node) -> Shape:
        x, (begin, end, strides) = shape_of(node), node.attrs.values()
        need(len(begin) == len(end) == len(strides) == len(x), f"strided_slice: {len(begin)} starts for {x}")
        rows = list(zip(begin, end, strides, x, strict=True))
        need(all(s > 0 and 0 <= b < e <= n for b, e, s, n in rows), f"strided_slice of {x}: {rows}")
        return tuple(-(-(e - b) // s) for b, e, s, _ in rows)

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return x[tuple(slice(*row) for row in zip(*run.attrs.values(), strict=True))]


@final
@op("pad")
class NpuPad(NpuSame):
    """A border of the real ``value``, None for 0."""

    attributes = {"padding": PAIRS, "value": NUMBER(None)}
    picks = False

    def shape(self, node: Node) -> Shape:
        x, padding = shape_of(node), node.attrs["padding"]
        need(len(padding) == len(x) and all(min(p) >= 0 for p in padding), f"pad of {x} by {padding}")
        return tuple(n + low + high for n, (low, high) in zip(x, padding, strict=True))

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        value, grid = run.attrs["value"] or 0, run.out.grid
        stored = value if grid is None else grid.quantize(np.asarray(value, np.float32))
        if math.isinf(value) and np.issubdtype(x.dtype, np.integer):
            stored = np.iinfo(x.dtype).min if value < 0 else np.iinfo(x.dtype).max
        return np.pad(x, run.attrs["padding"], constant_values=stored)


@final
@op("broadcast_to")
class NpuBroadcastTo(NpuSame):
    """Elements repeated along dimensions of size 1."""

    attributes = {"shape": PER_DIMENSION}

    def shape(self, node: Node) -> Shape:
        shape = node.attrs["shape"]
        need(broadcast(shape_of(node), shape) == shape, f"broadcast_to of {shape_of(node)} to {shape}")
        return shape

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.broadcast_to(x, run.attrs["shape"])


@final
@op("tile")
class NpuTile(NpuMove):
    """The whole repeated ``multiples`` times per dimension."""

    attributes = {"multiples": PER_DIMENSION}
    movable = True

    def shape(self, node: Node) -> Shape:
        x, multiples = shape_of(node), node.attrs["multiples"]
        need(len(multiples) == len(x) and all(m > 0 for m in multiples), f"tile of {x} by {multiples}")
        return tuple(n * m for n, m in zip(x, multiples, strict=True))

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.tile(x, run.attrs["multiples"])


@final
@op("reverse")
class NpuReverse(NpuMove):
    """The other way round along ``axes``."""

    attributes = {"axes": AXES}
    movable = True

    def shape(self, node: Node) -> Shape:
        need_axes(node, len(shape_of(node)), *node.attrs["axes"])
        return shape_of(node)

    def move(self, run: NodeRun, x: NDArray) -> NDArray:
        return np.flip(x, run.attrs["axes"])


@final
@op("gather")
class NpuGather(NpuMove):
    """The slices of x along ``axis`` that int32 indices name."""

    attributes = {"axis": AXIS}
    roles = ("x", "indices")
    movable = True

    def values(self, node: Node) -> Sequence[Tensor]:
        return node.operands[:1]

    def shape(self, node: Node) -> Shape:
        x, axis = shape_of(node), node.attrs["axis"]
        need_axes(node, len(x), axis)
        indices = node.operands[1].data
        if indices is not None and indices.size:
            low, high = int(indices.min()), int(indices.max())
            need(low >= 0 and high < x[axis], f"gather: indices from {low} to {high} into {x[axis]}")
        return (*x[:axis], *shape_of(node, 1), *x[axis + 1 :])

    def move(self, run: NodeRun, x: NDArray, indices: NDArray) -> NDArray:
        size = x.shape[run.attrs["axis"]]
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
            raise run.refuse("an index out of range", f"{int(indices.min())} to {int(indices.max())} into {size}")
        return np.take(x, indices, run.attrs["axis"])

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        return super().under(node, perm) if len(node.operands[1].shape) == 1 else None


@final
@op("one_hot")
class NpuOneHot(NpuOp):
    """1 at the place that an index names along a new ``axis`` of ``depth`` elements, 0 elsewhere."""

    attributes = {"depth": INTEGER, "axis": NEW_AXIS}

    def shape(self, node: Node) -> Shape:
        x, axis, depth = shape_of(node), node.attrs["axis"], node.attrs["depth"]
        need(0 <= axis <= len(x) and depth > 0, f"one_hot: axis {axis}, depth {depth}")
        return (*x[:axis], depth, *x[axis:])

    def check_types(self, node: Node) -> None:
        agree(node, node.operand().dtype in dtypes.INTEGER)

    def eval(self, run: NodeRun, indices: NDArray) -> NDArray:
        axis, depth = run.attrs["axis"], run.attrs["depth"]
        places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
        found = (np.expand_dims(indices, axis) == places).astype(np.float32)
        return found if run.out.grid is None else run.out.grid.quantize(found)
