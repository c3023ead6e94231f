"""The loop nest: elementwise graphs with reductions over a strided index space, in as few passes as they need.

A nest has *kept* dimensions and, after them, *reduced* ones. Every value of its graph belongs to a point of the space,
or, after a `Reduction`, to a point of the kept dimensions. One dimension is the *lanes*': vectors run along it.

    columns    the last kept dimension has the lanes. Without reductions this is the elementwise loop; with them,
               accumulators are vectors, one element for each column, and the reduced loops run inside.
    rows       the last reduced dimension has the lanes. Accumulators are vectors too, and are folded in halves once at
               the end of the row: lane i holds elements i, i + V, i + 2V, ... of it.

A value that needs a reduction of others comes in a later *pass* over the same reduced loops: softmax takes three over
a row that stays in the cache. Results of reductions stay in registers. Nothing depends on how items are dealt out, so
sums have one association for a shape and an instruction set. Where a nest is `fixed`, the association depends on the
sizes of the reduced dimensions alone, in rows and in columns: element e along the last of them is combined into
accumulator e % ACCUMULATORS, see `nest_emit`.

Here are the data and the meaning; `nest_passes` plans, `nest_emit` has the loops, `rows` and `columns` what is in
them. Knows no program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.config.digest import digest
from nxjax.config.forks import cached_property
from nxjax.kernels.cpu import knobs
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, OutputEffect, Touches
from nxjax.kernels.cpu.expression import Constant, ExpressionNode
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.nest_plan import NestPlan, flaw
from nxjax.kernels.cpu.op_files import DEAR
from nxjax.ops.reduce import REDUCTIONS
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]

ACCUMULATORS: Final = 8  # of a fixed reduction
BLOCK: Final = 256  # pieces of a dimension that is cut for items are multiples of this many elements
STRIP: Final = 2048  # bytes of a row of accumulators from which on rows are read whole
FIRST: Final = 32 << 10  # bytes of accumulators that stay in the first cache


@final
@dataclass(frozen=True, slots=True)
class Input:
    """Elements in memory: bytes from one to the next along each dimension of the nest; 0 where it is repeated."""

    dtype: DType
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.strides)}"


@final
@dataclass(frozen=True, slots=True)
class Iota:
    """``offset + sum(step * index)`` over the dimensions, in ``dtype``."""

    dtype: DType
    offset: int
    steps: tuple[int, ...]

    def __str__(self) -> str:
        return f"iota:{self.dtype.name}:{self.offset}{list(self.steps)}"


@final
@dataclass(frozen=True, slots=True)
class Reduction:
    """The elements of ``arg`` along the reduced dimensions, combined by the binary op ``op``.

    ``start`` are the bytes of what is combined with nothing, in the accumulator's dtype (`accumulator`).
    """

    op: str
    arg: int
    start: bytes
    dtype: DType

    @property
    def accumulator(self) -> DType:
        """Sums and products of narrow floats are made in float32."""
        narrow = self.dtype in dtypes.FLOAT and self.dtype.itemsize < 4 and self.op in ("add", "mul")
        return dtypes.float32 if narrow else self.dtype

    def __str__(self) -> str:
        return f"reduce {self.op}({self.arg}):{self.dtype.name}:{self.start.hex()}"


@final
@dataclass(frozen=True, slots=True)
class Output:
    """Where a value goes: bytes from one element to the next; those of reduced dimensions are 0 for kept values.

    ``stream``: the output is much larger than the caches and begins at a multiple of 64 bytes, as do all its runs of
    lanes; it is stored past the caches.
    """

    value: int
    strides: tuple[int, ...]
    stream: bool = False

    def __str__(self) -> str:
        return f"{self.value}{list(self.strides)}{'!' if self.stream else ''}"


Item = ExpressionNode | Constant | Iota | Reduction


def weight_of(nodes: Sequence[Item]) -> int:
    """What the operations of one point take, in additions, about."""
    return sum(DEAR.get(n.op.name, 1) for n in nodes if isinstance(n, ExpressionNode))


@final
class Nest(Kernel):
    """A loop nest.

    Args:
        sizes: of the kept dimensions, then of the reduced ones.
        kept: how many are kept.
        rows: the last reduced dimension has the lanes; otherwise the last kept one.
        inputs: what is read.
        nodes: the graph; arguments count the inputs first, then the nodes.
        outputs: what is written.
        total: 0, or the first kept dimension cuts a longer reduced one of ``total`` elements into blocks of
            ``sizes[kept]``, of which the last may be shorter.
        item: about how many points an item has, at least.
        fixed: reductions have the association that hangs on nothing but the sizes of the reduced dimensions.
    """

    plan: NestPlan

    def __init__(
        self,
        sizes: tuple[int, ...],
        kept: int,
        rows: bool,
        inputs: tuple[Input, ...],
        nodes: tuple[Item, ...],
        outputs: tuple[Output, ...],
        total: int = 0,
        item: int = knobs.NEST_ITEM.default,
        fixed: bool = False,
    ) -> None:
        self.fixed = fixed
        self.sizes = sizes
        self.kept = kept
        self.rows = rows
        self.inputs = inputs
        self.nodes = nodes
        self.outputs = outputs
        self.total = total
        self.item = item
        self._cut()

    @cached_property
    def text(self) -> str:
        """All that the code depends on."""
        sizes = f"{list(self.sizes[: self.kept])}{list(self.sizes[self.kept :])}{'rows' if self.rows else ''}"
        item = f" item {self.item}" if self.item != knobs.NEST_ITEM.default else ""
        item += " fixed" if self.fixed else ""
        return ";".join((sizes + (f"/{self.total}" if self.total else "") + item, *map(str, self.inputs), "->",
                         *map(str, self.nodes), "->", *map(str, self.outputs)))  # fmt: skip

    @cached_property
    def key(self) -> str:
        names = [
            n.op.name if isinstance(n, ExpressionNode) else n.op
            for n in self.nodes
            if isinstance(n, ExpressionNode | Reduction)
        ]
        shown = "+".join(names if len(names) < 7 else (*names[:3], "...", *names[-3:])) or "fill"
        sizes = "x".join(map(str, self.sizes[: self.kept])) or "1"
        reduced = " over " + "x".join(map(str, self.sizes[self.kept :])) if self.kept < len(self.sizes) else ""
        return f"{shown}({sizes}{reduced} #{digest(self.text.encode()).hexdigest()[:16]})"

    # --- geometry ---

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def lane(self) -> int:
        """The dimension along which vectors run; -1 where there is none."""
        return len(self.sizes) - 1 if self.rows else self.kept - 1

    @cached_property
    def weight(self) -> int:
        """What one point takes, in additions, about."""
        return weight_of(self.nodes) + len(self.inputs)

    @property
    def columns(self) -> bool:
        """Accumulators are vectors of columns."""
        return self.kept < len(self.sizes) and not self.rows

    @cached_property
    def whole(self) -> bool:
        """Columns whose accumulators wait in memory while whole rows are read; see `columns_whole`."""
        if not self.columns or self.fixed or self.sweeps != 1 or any(self.inside(y) for y in self.outputs):
            return False
        found = [m for m in self.nodes if isinstance(m, Reduction)]
        row = self.sizes[self.lane] * self.accumulated
        one_level = all(not self.facts.level[m.arg] and self.facts.wide[m.arg] for m in found)
        return one_level and row > STRIP

    @property
    def accumulated(self) -> int:
        """Bytes of the accumulators of one column."""
        return sum(m.accumulator.itemsize for m in self.nodes if isinstance(m, Reduction))

    def _cut(self) -> None:
        """Items: the first ``self.dealt`` kept dimensions, and blocks of the lanes' dimension in columns."""
        outer = self.sizes[: self.kept] if self.rows else self.sizes[: max(self.kept - 1, 0)]
        target = max(self.item // max(self.weight // 4, 1), 1)
        inside = self.size // max(math.prod(outer), 1)
        dealt = len(outer)
        while dealt and outer[dealt - 1] * inside <= target:
            dealt -= 1
            inside *= outer[dealt]
        self.dealt = dealt
        self.block = self.blocks = 0
        if not self.rows and self.kept:
            n = self.sizes[self.kept - 1]
            depth = max(math.prod(self.sizes[self.kept :]), 1)
            if self.whole:
                self.block = max(FIRST // self.accumulated // BLOCK, 1) * BLOCK
            else:
                self.block = max(-(-target // (BLOCK * depth)), 1) * BLOCK if dealt == len(outer) else n
            self.blocks = -(-n // self.block) if n else 0
        count = math.prod(outer[:dealt]) * (self.blocks if not self.rows and self.kept else 1)
        self.items = count if math.prod(self.sizes[: self.kept]) else 0
        per = max(self.size // max(self.items, 1) * self.weight, 1)
        self.grain = max(1, (4 * self.item) // per)
        self._plan_scratch()

    def _plan_scratch(self) -> None:
        from nxjax.kernels.cpu.nest_passes import last_reads, planned, scratch_sizes

        self.plan = planned(self)
        self.scratch = sum(scratch_sizes(self))
        last = last_reads(self)
        # An output may lie where an input does that has the same elements in the same places, unless a pass after the
        # one that writes it reads the input again.
        self.inplace = tuple(
            [
                (k, i)
                for k, y in enumerate(self.outputs)
                for i, x in enumerate(self.inputs)
                if self._alike(x.strides, y)
                and x.dtype.itemsize == self.dtype_of(y.value).itemsize
                and last[i] <= (self.facts.level[y.value] if self.inside(y) else self.facts.passes)
            ]
        )

    def _alike(self, x: Sequence[int], out: Output) -> bool:
        """Strides ``x`` are those of ``out``, which are not 0 along any dimension that it has."""
        has = len(self.sizes) if self.inside(out) else self.kept
        return all(
            n == 1 or (a == c and (a != 0) == (d < has))
            for d, (n, a, c) in enumerate(zip(self.sizes, x, out.strides, strict=True))
        )

    # --- facts of values ---

    @cached_property
    def facts(self) -> Dependences:
        return Dependences(self)

    def inside(self, out: Output) -> bool:
        """Whether an output has an element for each point of the whole space."""
        return self.facts.full[out.value] or any(
            s and n > 1 for s, n in zip(out.strides[self.kept :], self.sizes[self.kept :], strict=True)
        )

    @cached_property
    def sweeps(self) -> int:
        """How often the reduced loops run."""
        level = self.facts.level
        found = {level[m.arg] for m in self.nodes if isinstance(m, Reduction)}
        return len(found | {level[y.value] for y in self.outputs if self.inside(y)})

    def dtype_of(self, index: int) -> DType:
        n = len(self.inputs)
        return self.inputs[index].dtype if index < n else self.nodes[index - n].dtype

    # --- the contract ---

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """``xs`` have the nest's shape, or 1 where they are repeated.

        Where a reduced dimension is cut, they have it whole, and not the dimension of the blocks.
        """
        if self.total:
            return self._blocks_meaning(xs)
        axes = tuple(range(self.kept, len(self.sizes)))
        known: list[NDArray] = [np.broadcast_to(x, self.sizes) for x in xs]
        for node in self.nodes:
            match node:
                case Constant():
                    y = np.broadcast_to(node.array, self.sizes)
                case Iota():
                    y = np.full(self.sizes, node.offset, np.int64)
                    for i, step in enumerate(node.steps):
                        y = y + step * np.arange(self.sizes[i]).reshape([-1 if k == i else 1 for k in range(y.ndim)])
                    y = y.astype(node.dtype)
                case Reduction():
                    reduced = _REDUCERS[node.op].eval(known[node.arg], axes=axes)
                    kept = (*self.sizes[: self.kept], *(1 for _ in axes))
                    y = np.broadcast_to(reduced.reshape(kept), self.sizes)
                case ExpressionNode():
                    y = np.asarray(node.op.eval(*(known[i] for i in node.args), **dict(node.params)))
            known.append(y)
        found: list[NDArray] = []
        for out in self.outputs:
            y = known[out.value]
            if not self.inside(out):
                y = y[(..., *(np.s_[:1] for _ in axes))].reshape(self.sizes[: self.kept])
            found.append(np.array(y, order="C"))
        return found

    def _blocks_meaning(self, xs: Sequence[NDArray]) -> Sequence[NDArray]:
        axis, size = self.kept - 1, self.sizes[self.kept]
        found: list[Sequence[NDArray]] = []
        for start in range(0, self.total, size):
            length = min(size, self.total - start)
            parts = [x[(*(np.s_[:],) * axis, np.s_[start : start + length])] if x.shape[axis] > 1 else x for x in xs]
            block = Nest(
                (*self.sizes[1 : self.kept], length, *self.sizes[self.kept + 1 :]),
                axis,
                self.rows,
                tuple([Input(x.dtype, x.strides[1:]) for x in self.inputs]),
                self.nodes,
                tuple([Output(y.value, y.strides[1:]) for y in self.outputs]),
            )
            found.append(block.meaning(*parts))
        return [np.stack(ys) for ys in zip(*found, strict=True)]

    def touches(self) -> Touches:
        if not self.items:
            return Touches(((),) * len(self.inputs), (OutputEffect(()),) * len(self.outputs))
        ins = tuple([self._boxes(x.strides, x.dtype.itemsize, len(self.sizes)) for x in self.inputs])
        # Results of reductions have elements of the kept dimensions; of what is empty along a reduced one, too.
        size = lambda y: self.dtype_of(y.value).itemsize
        has = lambda y: len(self.sizes) if self.inside(y) else self.kept
        return Touches(ins, tuple([OutputEffect(self._boxes(y.strides, size(y), has(y))) for y in self.outputs]))

    def _boxes(self, strides: Sequence[int], size: int, ndim: int) -> tuple[Box, ...]:
        """The elements of an operand along the first ``ndim`` dimensions; of a cut dimension all that there are."""
        sizes, strides = self.sizes[:ndim], tuple(strides[:ndim])
        length = self.sizes[self.kept] if self.total else 1
        if ndim <= self.kept or not self.total % length:
            return (Box(size, sizes, strides),)
        whole, rest = divmod(self.total, length)
        last = (1, *sizes[1 : self.kept], rest, *sizes[self.kept + 1 :])
        return Box(size, (whole, *sizes[1:]), strides), Box(size, last, strides, whole * strides[0])

    def flaw(self) -> str:
        return flaw(self)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        from nxjax.kernels.cpu.nest_emit import emit

        emit(self, module, isa)

    def cost(self) -> KernelCost:
        def touched(strides: Sequence[int], itemsize: int) -> int:
            return math.prod(n for n, s in zip(self.sizes, strides, strict=True) if s) * itemsize

        flops = self.size * sum(isinstance(n, ExpressionNode | Reduction) for n in self.nodes)
        read = sum(touched(x.strides, x.dtype.itemsize) for x in self.inputs)
        written = sum(touched(y.strides, self.dtype_of(y.value).itemsize) for y in self.outputs)
        return KernelCost(flops, read, written)


_REDUCERS: Final = {op.combiner.name: op for op in REDUCTIONS}


@final
class Dependences:
    """What each value of a nest depends on, counted as arguments are.

    Attributes:
        full: it belongs to points of the whole space, not of the kept dimensions.
        wide: it varies along the lanes.
        depth: the loop, counted from 1, inside which it must be made: the last dimension along which it varies.
        level: how many passes come before the one in which it can be had.
        users: which values take it.
    """

    def __init__(self, nest: Nest) -> None:
        n, lane, kept = len(nest.inputs), nest.lane, nest.kept
        count = n + len(nest.nodes)
        self.full = [False] * count
        self.wide = [False] * count
        self.depth = [0] * count
        self.level = [0] * count
        self.users: list[list[int]] = [[] for _ in range(count)]

        def varying(index: int, steps: Sequence[int]) -> None:
            along = [d for d, s in enumerate(steps) if s and nest.sizes[d] != 1]
            self.depth[index] = max(along, default=-1) + 1
            self.full[index] = self.depth[index] > kept
            self.wide[index] = lane in along

        for i, x in enumerate(nest.inputs):
            varying(i, x.strides)
        for i, node in enumerate(nest.nodes, n):
            match node:
                case Constant():
                    pass
                case Iota():
                    varying(i, node.steps)
                case Reduction():
                    self.users[node.arg].append(i)
                    self.depth[i] = kept
                    self.wide[i] = not nest.rows and self.wide[node.arg]
                    self.level[i] = self.level[node.arg] + 1
                case ExpressionNode():
                    for a in node.args:
                        self.users[a].append(i)
                    self.full[i] = any(self.full[a] for a in node.args)
                    self.wide[i] = any(self.wide[a] for a in node.args)
                    self.depth[i] = max((self.depth[a] for a in node.args), default=0)
                    self.level[i] = max((self.level[a] for a in node.args), default=0)
        self.passes = 1 + max((self.level[i] for i in range(count)), default=0)
