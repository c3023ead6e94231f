"""Kernels of plans: the order of the loops, which of them has the vectors, and reductions cut into blocks.

    copies      a plan without a node is a `Move`
    epilogues   a plan with a product is the product's kernel, with an expression
    nests       all others; inputs that run along other dimensions than the vectors are transposed first

A reduction with few results of many elements is cut into blocks of fixed size: one nest gives a partial result for
each, another one combines them, so that there is work for every thread and the result does not depend on their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, isa, knobs
from nxjax.kernels.cpu.expression import Constant, Expression, ExpressionNode
from nxjax.kernels.cpu.move import Move
from nxjax.kernels.cpu.nest import BLOCK, Input, Iota, Item, Nest, Output, Reduction, weight_of
from nxjax.kernels.cpu.op_files import DEAR
from nxjax.lower.cpu.fuse import Apart, Counted, FusionPlan, Places
from nxjax.lower.cpu.lazy import LazyProduct, LazyReduce, Map
from nxjax.lower.cpu.tape import ALIGN, Buffer, Ref
from nxjax.lower.cpu.view import NoKernel, View, dense_view
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType

if TYPE_CHECKING:
    from nxjax.lower.cpu.builder import Builder

TALL: Final = 1024  # rows of columns that a second pass finds in the second cache
LONG: Final = 1 << 16  # elements of a row that it finds there
FEW_ROWS: Final = 8  # with fewer rows than this, a reduction is better cut for threads than done in passes
LEAST: Final = 1 << 11  # elements of a block of a reduction of dear functions
SHORT: Final = 8  # a row of no more elements is summed column by column, if there are many
SHORT_DEAR: Final = 64  # and one of no more, if its sums are dear: what is made of them takes so many additions,
DEAR_SUMS: Final = 12
NEAR: Final = 4  # elements apart
DEAR_PASSES: Final = 24  # or they wait for one another, and all takes so many for each element


@final
@dataclass(slots=True)
class StoredOutput:
    """A value that is stored: the plan's number for it, and where its element at an index of the space lies."""

    value: int
    view: View
    strides: tuple[int, ...]


def target(plan: FusionPlan, value: int, at: Places, view: View) -> StoredOutput:
    """``view`` is of the value's own shape, ``at`` its place for an index of the space."""
    strides, offset = [0] * len(plan.sizes), view.ref.offset
    for (start, steps), stride in zip(at, view.strides, strict=True):
        offset += start * stride
        for d, k in steps:
            strides[d] += k * stride
    return StoredOutput(value, replace(view, ref=replace(view.ref, offset=offset)), tuple(strides))


def write(b: Builder, plan: FusionPlan, targets: Sequence[StoredOutput]) -> None:
    """Add the kernels of ``plan``."""
    if not math.prod(plan.sizes[d] for d in range(len(plan.sizes)) if d not in plan.reduced):
        return
    if plan.product is not None:
        _epilogue(b, plan, plan.product, targets)
    elif not plan.nodes:
        _copy(b, plan, targets)
    else:
        _nest(b, _Nest(plan, targets))


def _copy(b: Builder, plan: FusionPlan, targets: Sequence[StoredOutput]) -> None:
    (t,) = targets
    source = plan.views[-1 - t.value]
    kernel = Move(plan.sizes, plan.strides(source), t.strides, source.dtype.itemsize)
    b.call(kernel, [source], [t.view])


def _epilogue(b: Builder, plan: FusionPlan, product: LazyProduct, targets: Sequence[StoredOutput]) -> None:
    numbers: dict[int, int] = {-1 - i: 1 + i for i in range(len(plan.views))}
    nodes: list[ExpressionNode | Constant] = []
    for i, (what, args) in enumerate(plan.nodes):
        if what is product:
            numbers[i] = 0
            continue
        if isinstance(what, Map):
            nodes.append(ExpressionNode(what.op, what.params, tuple([numbers[a] for a in args]), what.dtype))
        elif isinstance(what, Constant):
            nodes.append(what)
        else:
            raise Apart(product)
        numbers[i] = len(plan.views) + len(nodes)
    inputs = (product.dtype, *(v.dtype for v in plan.views))
    expression = Expression(inputs, tuple(nodes), tuple([numbers[t.value] for t in targets]))
    shape = tuple(plan.sizes)
    operands = [View(v.ref, shape, plan.strides(v), v.dtype) for v in plan.views]
    product.emit(expression, operands, [View(t.view.ref, shape, t.strides, t.view.dtype) for t in targets])


# --- nests ---


@final
class _Nest:
    """A nest in the making: dimensions in the order of the loops, and everything's strides along them."""

    def __init__(self, plan: FusionPlan, targets: Sequence[StoredOutput]) -> None:
        reduced = set(plan.reduced)
        self.kept = [d for d, n in enumerate(plan.sizes) if n != 1 and d not in reduced]
        self.reduced = [d for d in plan.reduced if plan.sizes[d] != 1]
        self.size = dict(enumerate(plan.sizes))
        self.refs = [v.ref for v in plan.views]
        self.dtypes = [v.dtype for v in plan.views]
        self.strides: list[tuple[int, ...]] = [plan.strides(v) for v in plan.views]
        self.nodes: list[Item] = []
        self.reductions: dict[int, LazyReduce] = {}  # by value
        self.steps: dict[int, tuple[int, ...]] = {}  # of counts, by node
        n = len(plan.views)
        for i, (what, args) in enumerate(plan.nodes):
            at = tuple([-1 - a if a < 0 else n + a for a in args])
            if isinstance(what, Map):
                self.nodes.append(ExpressionNode(what.op, what.params, at, what.dtype))
            elif isinstance(what, Constant):
                self.nodes.append(what)
            elif isinstance(what, LazyReduce):
                self.reductions[n + i] = what
                self.nodes.append(Reduction(what.op, at[0], what.start, what.dtype))
            else:
                assert isinstance(what, Counted)
                steps = [0] * len(plan.sizes)
                for d, k in what.place[1]:
                    steps[d] += k
                self.steps[i] = tuple(steps)
                self.nodes.append(Iota(what.dtype, what.place[0], ()))
        self.targets = [(-1 - t.value if t.value < 0 else n + t.value, t) for t in targets]
        self.out_strides: list[tuple[int, ...]] = [t.strides for t in targets]
        self.moves: list[tuple[View, View]] = []  # outputs that are made elsewhere, and where they belong
        self.rows = False
        # Integers give the same in any order.
        self.fixed = isa.current().reproducible and any(r.dtype not in dtypes.BITS for r in self.reductions.values())

    # --- the order of loops ---

    def count(self, strides: Sequence[int]) -> int:
        """Elements that are touched."""
        return math.prod(self.size[d] for d in (*self.kept, *self.reduced) if strides[d])

    def order(self) -> None:
        """Loops over large strides outside; vectors along the dimension in which most elements are neighbours."""
        inputs = [*zip(self.strides, (d.itemsize for d in self.dtypes), strict=True)]
        operands = inputs + [(t.strides, t.view.dtype.itemsize) for _, t in self.targets]
        largest = max(operands, key=lambda o: self.count(o[0]), default=None)
        outs = [t.strides for _, t in self.targets]
        first = max(outs, key=self.count)
        assert largest is not None
        self.kept.sort(key=lambda d: (-abs(first[d]), -abs(largest[0][d])))
        if not self.fixed:
            self.reduced.sort(key=lambda d: (-abs(first[d]), -abs(largest[0][d])))
        dims = [*self.kept, *(self.reduced[-1:] if self.fixed else self.reduced)]
        if not dims:
            return
        score = dict.fromkeys(dims, 0)
        for strides, size in operands:
            for d in dims:
                if abs(strides[d]) == size:
                    score[d] += self.count(strides) * size
        for strides, size in inputs:
            # Registers of a few elements apart are read as whole ones, which is better than memory in another order.
            for d in dims:
                if size < strides[d] <= NEAR * size and self.size[d] > SHORT:
                    score[d] += self.count(strides) * size // 2
        # Of equals the later one: outputs are in order.
        best = max(reversed(dims), key=lambda d: score[d])
        if best in self.reduced and self.size[best] <= self._short() and self.kept:
            # Of the long ones that in which most elements are neighbours.
            dear = self.size[best] <= SHORT and self._sums()[1] >= DEAR_SUMS
            long = [d for d in self.kept if self.size[d] >= (SHORT if dear else 8 * self.size[best])]
            best = max(long, key=lambda d: (score[d], self.size[d]), default=best)
        self.rows = best in self.reduced
        group = self.reduced if self.rows else self.kept
        group.remove(best)
        group.append(best)

    def _short(self) -> int:
        """The longest row that is better done column by column.

        A fold of lanes takes longer than the shortest rows. What waits for several folds, and dear functions of sums,
        are made row by row, but in vectors of columns; for these longer rows have their inputs transposed.
        """
        if any(s[d] for s in self.out_strides for d in self.reduced):
            return SHORT
        folds, weight = self._sums()
        return SHORT_DEAR if weight >= DEAR_SUMS or (folds > 1 and weight_of(self.nodes) >= DEAR_PASSES) else SHORT

    def _sums(self) -> tuple[int, int]:
        """How many reductions wait for one another, and what is made of them for each row, in additions."""
        full = [any(s[d] for d in self.reduced) for s in self.strides]
        after = [0] * len(full)
        weight = 0
        for i, node in enumerate(self.nodes):
            args = (node.arg,) if isinstance(node, Reduction) else getattr(node, "args", ())
            steps = self.steps.get(i, ())
            full.append(
                not isinstance(node, Reduction)
                and any([*(full[a] for a in args), *(steps[d] for d in self.reduced if steps)])
            )
            after.append(max((after[a] for a in args), default=0) + isinstance(node, Reduction))
            if isinstance(node, ExpressionNode) and after[-1] and not full[-1]:
                weight += DEAR.get(node.op.name, 1)
        return max(after, default=0), weight

    def collapse(self) -> None:
        """Join neighbours that are one run in every operand."""
        everything = [*self.strides, *self.out_strides, *self.steps.values()]
        for group in (self.kept,) if self.fixed else (self.kept, self.reduced):
            i = len(group) - 2
            while i >= 0:
                a, c = group[i], group[i + 1]
                if all(s[a] == s[c] * self.size[c] for s in everything):
                    self._join(group, i)
                i -= 1

    def _join(self, group: list[int], i: int) -> None:
        """Dimensions ``i`` and ``i + 1`` of ``group`` are one run."""
        a = group.pop(i)
        self.size[group[i if i >= 0 else i + 1]] *= self.size[a]

    def transpose(self, b: Builder) -> None:
        """Large inputs that run along another dimension than the vectors get memory in the order of the loops."""
        dims = [*self.kept, *self.reduced]
        lane = self.reduced[-1] if self.rows else self.kept[-1]
        for i, strides in enumerate(self.strides):
            size = self.dtypes[i].itemsize
            used = [d for d in dims if strides[d]]
            other = any(abs(strides[d]) == size and self.size[d] >= SHORT for d in used if d != lane)
            if abs(strides[lane]) in (0, size) or not other or self.count(strides) < knobs.NEST_TRANSPOSE():
                continue
            self._copy(b, i, [d for d in used if d != lane] + [lane])
        for k, strides in enumerate(self.out_strides):
            size = self.targets[k][1].view.dtype.itemsize
            used = [d for d in dims if strides[d]]
            other = any(abs(strides[d]) == size for d in used if d != lane)
            if abs(strides[lane]) not in (0, size) and other and self.count(strides) >= knobs.NEST_TRANSPOSE():
                self._move_later(k, [d for d in used if d != lane] + [lane])

    def _move_later(self, k: int, dims: Sequence[int]) -> None:
        """Output ``k`` gets memory in which ``dims`` lie in this order, and is moved to its own afterwards."""
        strides, (value, t) = self.out_strides[k], self.targets[k]
        fresh, new = self._fresh(t.view.dtype, dims)
        self.moves.append((fresh, View(t.view.ref, fresh.shape, tuple([strides[d] for d in dims]), fresh.dtype)))
        self.out_strides[k] = new
        self.targets[k] = value, StoredOutput(t.value, fresh, new)

    def _fresh(self, dtype: DType, dims: Sequence[int]) -> tuple[View, tuple[int, ...]]:
        """New memory in which ``dims`` lie in this order, and its strides along all dimensions."""
        shape = tuple([self.size[d] for d in dims])
        fresh = dense_view(Buffer(math.prod(shape) * dtype.itemsize, "temp"), ArrayType(shape, dtype))
        strides = [0] * len(self.size)
        for d, s in zip(dims, fresh.strides, strict=True):
            strides[d] = s
        return fresh, tuple(strides)

    def lengthen(self, b: Builder) -> None:
        """Vectors along a short dimension go on along the one around it: inputs that do not are copied first."""
        while len(self.kept) > 1 and not self.reduced and self.size[self.kept[-1]] <= SHORT:
            around, lane = self.kept[-2:]
            joins = lambda s, a=around, c=lane: s[a] == s[c] * self.size[c]
            if not all(map(joins, (*self.out_strides, *self.steps.values()))):
                return
            if math.prod(self.size[d] for d in self.kept) < LEAST:
                return
            others = [i for i, s in enumerate(self.strides) if not joins(s)]
            if any(not self.strides[i][around] for i in others):
                # What is the same all along is repeated for a few vectors.
                few = max(k for k in range(1, BLOCK // self.size[lane] + 1) if self.size[around] % k == 0)
                if 1 < few < self.size[around]:
                    self._cut(around, few)
                    continue
            for i in others:
                self._copy(b, i, [d for d in self.kept if self.strides[i][d] or d in (around, lane)])
            self._join(self.kept, -2)

    def _cut(self, d: int, inner: int) -> None:
        """Dimension ``d`` in two, of which the inner one has ``inner`` elements."""
        new = len(self.size)
        self.size |= {d: self.size[d] // inner, new: inner}
        self.kept.insert(self.kept.index(d) + 1, new)
        cut = lambda s: (*s[:d], s[d] * inner, *s[d + 1 :], s[d])
        self.strides, self.out_strides = [*map(cut, self.strides)], [*map(cut, self.out_strides)]
        self.steps = {i: cut(s) for i, s in self.steps.items()}

    def _copy(self, b: Builder, i: int, dims: Sequence[int]) -> None:
        """Input ``i`` gets memory in which ``dims`` lie in this order."""
        strides, dtype = self.strides[i], self.dtypes[i]
        fresh, new = self._fresh(dtype, dims)
        source = View(self.refs[i], fresh.shape, tuple([strides[d] for d in dims]), dtype)
        b.call(Move(fresh.shape, source.strides, fresh.strides, dtype.itemsize), [source], [fresh])
        self.refs[i], self.strides[i] = fresh.ref, new

    # --- as a kernel ---

    def kernel(self, total: int = 0) -> Nest:
        if not self.rows and not self.kept:  # scalars: a column of one
            new = len(self.size)
            self.size[new] = 1
            self.kept.append(new)
            self.strides = [(*s, 0) for s in self.strides]
            self.out_strides = [(*s, 0) for s in self.out_strides]
            self.steps = {i: (*s, 0) for i, s in self.steps.items()}
        dims = [*self.kept, *self.reduced]
        lane = dims[-1] if self.rows else self.kept[-1]

        def along(strides: Sequence[int]) -> tuple[int, ...]:
            return tuple([strides[d] for d in dims])

        nodes = tuple(
            [replace(n, steps=along(self.steps[i])) if isinstance(n, Iota) else n for i, n in enumerate(self.nodes)]
        )
        outputs = tuple(
            [
                Output(value, along(strides), self._streams(t.view, strides, lane))
                for (value, t), strides in zip(self.targets, self.out_strides, strict=True)
            ]
        )
        inputs = tuple([Input(d, along(s)) for d, s in zip(self.dtypes, self.strides, strict=True)])
        sizes = tuple([self.size[d] for d in dims])
        return _interned(sizes, len(self.kept), self.rows, inputs, nodes, outputs, total, knobs.NEST_ITEM(), self.fixed)

    def _streams(self, v: View, strides: Sequence[int], lane: int) -> bool:
        """Whether an output goes past the caches: it is large, and its vectors are aligned if its place is.

        The kernel asks for that itself: a place may move from turn to turn, or be another one later.
        """
        if self.count(strides) * v.dtype.itemsize < knobs.NEST_STREAM() or strides[lane] != v.dtype.itemsize:
            return False
        rest = [strides[d] for d in (*self.kept, *self.reduced) if d != lane]
        return v.ref.buffer.kind in ("temp", "output") and not any(s % ALIGN for s in (*rest, v.ref.offset))

    def call(self, b: Builder, total: int = 0) -> None:
        kernel = self.kernel(total)
        b.call(kernel, [View(r, (), (), d) for r, d in zip(self.refs, self.dtypes, strict=True)],
               [t.view for _, t in self.targets])  # fmt: skip


# Equal layers of a network are equal nests: what a nest finds out about itself, it finds out once.
_interned = lru_cache(4096)(Nest)


def _nest(b: Builder, n: _Nest) -> None:
    n.order()
    _check_passes(n)
    if n.kept or n.reduced:
        n.transpose(b)
    n.collapse()
    n.lengthen(b)
    n.collapse()
    blocks = _blocks(n)
    if blocks:
        _cut(b, n, blocks)
    else:
        n.call(b)
    for made, wanted in n.moves:
        b.call(Move(made.shape, made.strides, wanted.strides, made.dtype.itemsize), [made], [wanted])


def _check_passes(n: _Nest) -> None:
    """Raise `Apart` where a second pass would not find what the first one read in the caches."""
    size = math.prod(n.size[d] for d in n.reduced)
    kept = math.prod(n.size[d] for d in n.kept)
    if size <= (TALL if not n.rows else LONG if kept >= FEW_ROWS else knobs.NEST_CUT()):
        return
    inside = [i for i, t in n.targets if any(t.strides[d] for d in n.reduced)]
    inside += [m.arg for m in n.nodes if isinstance(m, Reduction)]
    for i in sorted(_below(n, inside)):
        if i in n.reductions:
            raise Apart(n.reductions[i])


def _blocks(n: _Nest) -> int:
    """Elements of the first reduced dimension that make a block, or 0 where the reduction is not cut."""
    if not n.reduced or n.fixed or any(isinstance(m, Iota) for m in n.nodes):
        return 0
    reductions = [m for m in n.nodes if isinstance(m, Reduction)]
    if any(any(t[d] for d in n.reduced) for t in n.out_strides):
        return 0
    kernel_args = {m.arg for m in reductions}
    if _depends(n, kernel_args):
        return 0
    size = n.size[n.reduced[0]]
    rest = math.prod(n.size[d] for d in n.reduced[1:])
    kept = math.prod(n.size[d] for d in n.kept)
    # Fewer elements are as much work where their functions are dear.
    cut = min(knobs.NEST_CUT(), max(knobs.NEST_CUT() // max(weight_of(n.nodes) // 4, 1), LEAST))
    if rest * size * kept < 4 * cut or (n.rows and kept >= 32) or (not n.rows and kept >= 32 * BLOCK):
        return 0
    per = rest * (kept if not n.rows else 1)
    block = max(cut // per, 1)
    if n.rows and len(n.reduced) == 1:
        block = -(-block // BLOCK) * BLOCK
        block = max(block, -(-size // (1024 * BLOCK)) * BLOCK)
    else:
        block = max(block, -(-size // 128), 16)
    return block if block < size else 0


def _depends(n: _Nest, args: set[int]) -> bool:
    """Whether one of ``args`` needs a reduction."""
    first = len(n.dtypes)
    todo, seen = list(args), set[int]()
    while todo:
        i = todo.pop()
        if i < first or i in seen:
            continue
        seen.add(i)
        node = n.nodes[i - first]
        if isinstance(node, Reduction):
            return True
        if isinstance(node, ExpressionNode):
            todo += node.args
    return False


def _cut(b: Builder, n: _Nest, block: int) -> None:
    """Two nests: one reduction per block, and what is made of those."""
    first, d = len(n.dtypes), n.reduced[0]
    total = n.size[d]
    count = -(-total // block)
    kept = list(n.kept)
    reductions = [(i, m) for i, m in enumerate(n.nodes, first) if isinstance(m, Reduction)]

    # The partial results lie block by block, in the order of the kept loops.
    part = _Nest.__new__(_Nest)
    part.fixed = False  # else it would not be cut
    new = len(n.size)
    part.size = {**n.size, new: count, d: block}
    part.kept, part.reduced, part.rows = [new, *kept], list(n.reduced), n.rows
    part.refs, part.dtypes = n.refs, n.dtypes
    part.strides = [(*s, s[d] * block) for s in n.strides]
    keep = _below(n, [m.arg for _, m in reductions]) | {i for i, _ in reductions}
    renumber, nodes = {i: i for i in range(first)}, list[Item]()
    for i, m in enumerate(n.nodes, first):
        if i in keep:
            renumber[i] = first + len(nodes)
            if isinstance(m, ExpressionNode):
                m = replace(m, args=tuple([renumber[a] for a in m.args]))
            elif isinstance(m, Reduction):
                m = replace(m, arg=renumber[m.arg], dtype=m.accumulator)
            nodes.append(m)
    part.nodes, part.steps = nodes, {}
    part.targets, part.out_strides = [], []
    partial: list[tuple[Ref, DType, tuple[int, ...]]] = []
    for i, m in reductions:
        dtype = m.accumulator
        strides = [0] * (new + 1)
        step = dtype.itemsize
        for k in reversed(part.kept):
            strides[k] = step
            step *= part.size[k]
        buffer = Buffer(step, "temp")
        view = View(Ref(buffer), (step // dtype.itemsize,), (dtype.itemsize,), dtype)
        part.targets.append((renumber[i], StoredOutput(0, view, tuple(strides))))
        part.out_strides.append(tuple(strides))
        partial.append((Ref(buffer), dtype, tuple(strides)))
    part.call(b, total)

    # The combining nest: what depended on the reductions depends on those of the partial results.
    rest = _Nest.__new__(_Nest)
    rest.fixed = False
    rest.size = {**n.size, new: count}
    rest.kept, rest.reduced = kept, [new]
    rest.rows = not kept
    outs = [i for i, _ in n.targets]
    above = _below(n, outs, stop={i for i, _ in reductions})
    reads = sorted(i for i in (above | set(outs)) if i < first)
    rest.refs = [n.refs[i] for i in reads] + [p[0] for p in partial]
    rest.dtypes = [n.dtypes[i] for i in reads] + [p[1] for p in partial]
    rest.strides = [(*n.strides[i], 0) for i in reads] + [p[2] for p in partial]
    inputs = len(rest.refs)
    renumber = {i: k for k, i in enumerate(reads)}
    nodes = []
    for k, (i, m) in enumerate(reductions):
        renumber[i] = inputs + len(nodes)
        nodes.append(Reduction(m.op, len(reads) + k, m.start, m.accumulator))
        if m.dtype != m.accumulator:
            nodes.append(ExpressionNode(convert_element_type, (("dtype", m.dtype),), (renumber[i],), m.dtype))
            renumber[i] += 1
    for i, m in enumerate(n.nodes, first):
        if i in above and not isinstance(m, Reduction):
            renumber[i] = inputs + len(nodes)
            nodes.append(replace(m, args=tuple([renumber[a] for a in m.args])) if isinstance(m, ExpressionNode) else m)
    rest.nodes, rest.steps = nodes, {}
    rest.targets = [(renumber[i], t) for i, t in n.targets]
    rest.out_strides = [(*s, 0) for s in n.out_strides]
    rest.call(b)


def _below(n: _Nest, values: Sequence[int], stop: set[int] | None = None) -> set[int]:
    """What ``values`` are made of, themselves included, not going below ``stop``."""
    first, found, todo = len(n.dtypes), set[int](), list(values)
    while todo:
        i = todo.pop()
        if i in found:
            continue
        found.add(i)
        if i >= first and not (stop and i in stop):
            node = n.nodes[i - first]
            todo += node.args if isinstance(node, ExpressionNode) else ()
    return found


def checked(dtypes: Sequence[DType]) -> None:
    """Raise `NoKernel` for dtypes that registers cannot hold."""
    for d in dtypes:
        if not convert.known(d):
            raise NoKernel(f"no kernels for {d}")
