"""The machine code of a nest: its loops, and in what scope each value is made.

A value is made in the loop of the last dimension along which it varies (`Dependences.depth`), once for all that runs
inside; as a scalar if it does not vary along the lanes, and spread over them where a vector needs it. A `LoopScope`
holds what is known at one place of the loops: values, and the address of every operand for the indices so far.

    dealt items -> other kept loops -> columns: tiles of the lanes' dimension -> passes: reduced loops -> vectors
                                    -> rows:                                     passes: reduced loops -> vectors

Knows no dtype's representation (`convert`) and no op (`ops`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from nxjax.errors import LoweringError
from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.expression import Constant, Node
from nxjax.kernels.cpu.ir import Function, Module, Value, bits_of, element, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.nest import ACCUMULATORS, BLOCK, Iota, Nest, Output, Reduction
from nxjax.kernels.cpu.nest_plan import TILE, NestPlan, Pass, SavedValue, uneven
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

SAVED: Final = 192 << 10  # bytes of a row's values that are kept for the next pass rather than computed again
NEAR: Final = 4  # elements apart up to which registers are read whole, rather than element by element
CHUNK: Final = 128  # vectors that are summed one after the other before their sum joins the others
COLUMN_CHUNK: Final = 32  # rows likewise, of columns: they have no lanes among which a sum is dealt out


def emit(nest: Nest, module: Module, isa: Isa) -> None:
    """Add the function of ``nest``."""
    f, words, lo, hi, scratch = nest.function(module)
    places = [pointer(f, words, i) for i in range(len(nest.inputs) + len(nest.outputs))]
    if nest.whole:
        offset = 0
        for size in scratch_sizes(nest):
            places.append(f.at(scratch, offset))
            offset += size
    else:
        places += [f.at(scratch, s.offset) for s in nest.plan.slots]
    streamed = [p for p, y in zip(places[len(nest.inputs) :], nest.outputs, strict=False) if y.stream]
    if streamed:
        # Stores past the caches want vectors at multiples of their size; what was planned so may have moved since.
        bits = f.value(0, "i64")
        for p in streamed:
            bits = bits | f.cast("ptrtoint", p, "i64")
        aligned = (bits & 63).eq(0)
        with f.if_(aligned):
            _loops(NestEmitter(nest, f, isa, True), places, lo, hi)
            f.line("fence seq_cst")  # they are seen by whoever is told that this is done
        with f.if_(~aligned):
            _loops(NestEmitter(nest, f, isa), places, lo, hi)
    else:
        _loops(NestEmitter(nest, f, isa), places, lo, hi)
    f.ret()


def _loops(w: NestEmitter, places: list[Value], lo: Value, hi: Value) -> None:
    """The items from ``lo`` to ``hi``."""
    nest, f = w.nest, w.f
    top = LoopScope({}, {}, places, [None] * len(nest.sizes))
    w.make_depth(top, 0)
    with f.loop(lo, hi) as loop:
        item, scope = loop.index, top
        block: Value | None = None
        if nest.blocks > 1:
            block, item = (item.urem(nest.blocks), item.udiv(nest.blocks)) if nest.dealt else (item, item)
        for d in reversed(range(nest.dealt)):
            index = item.urem(nest.sizes[d]) if d else item
            item = item.udiv(nest.sizes[d]) if d else item
            scope = w.moved(scope, d, index)
        for d in range(nest.dealt):
            w.make_depth(scope, d + 1)
        w.kept(scope, nest.dealt, block)


# --- values that are kept from one pass to the next ---


def saved(nest: Nest) -> list[int]:
    """Values of the whole space that later passes read back from scratch memory: those that are dear to make."""
    facts = nest.facts
    if nest.sweeps <= 1:
        return []
    uses: dict[int, set[int]] = {}
    for p in range(facts.passes):
        for i in needed(nest, p, ()):
            uses.setdefault(i, set()).add(p)
    n, found, room = len(nest.inputs), list[int](), SAVED
    covered: set[int] = set()
    for i in reversed(range(n, n + len(nest.nodes))):
        node = nest.nodes[i - n]
        if isinstance(node, Node) and len(uses.get(i, ())) > 1 and i not in covered:
            below = _below(nest, i)
            if sum(ops.DEAR.get(m.op.name, 0) for k in below if isinstance(m := nest.nodes[k - n], Node)) >= 8:
                size = slot_bytes(nest, i)
                if size <= room:
                    room -= size
                    found.append(i)
                    covered |= below
    return found


def _below(nest: Nest, index: int) -> set[int]:
    """The nodes of the whole space from which a value is made, itself included."""
    n, facts, found, todo = len(nest.inputs), nest.facts, set[int](), [index]
    while todo:
        i = todo.pop()
        if i >= n and i not in found and facts.full[i]:
            found.add(i)
            node = nest.nodes[i - n]
            todo += node.args if isinstance(node, Node) else ()
    return found


def slot_bytes(nest: Nest, index: int) -> int:
    size = nest.dtype_of(index).itemsize * (1 if nest.rows else TILE)
    for n in nest.sizes[nest.kept :]:
        size *= n
    return -(-size // 64) * 64


def last_reads(nest: Nest) -> list[int]:
    """For each input the last pass that reads it; -1 for what is read before all passes."""
    last = [-1] * len(nest.inputs)
    for p, one in enumerate(nest.plan.passes):
        for i in one.values:
            if i < len(last):
                last[i] = p
    return last


def scratch_sizes(nest: Nest) -> list[int]:
    """Bytes of what lies in scratch memory: saved values, or the accumulators of rows that are read whole."""
    if nest.whole:
        room = -(-min(nest.sizes[nest.lane], nest.block) // BLOCK) * BLOCK  # whole tiles
        sizes = [room * m.accumulator.itemsize for m in nest.nodes if isinstance(m, Reduction)]
        return sizes * (1 + sum(map(len, parts(nest, 1))))
    return [s.nbytes for s in nest.plan.slots]


def needed(nest: Nest, number: int, have: Collection[int]) -> list[int]:
    """The values of the whole space that pass ``number`` takes, in order; those of ``have`` are there already."""
    facts, n = nest.facts, len(nest.inputs)
    todo = [m.arg for m in nest.nodes if isinstance(m, Reduction) and facts.level[m.arg] == number]
    todo += [y.value for y in nest.outputs if nest.inside(y) and facts.level[y.value] == number]
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in found or not facts.full[i]:
            continue
        found.add(i)
        if i >= n and i not in have:
            node = nest.nodes[i - n]
            todo += node.args if isinstance(node, Node) else ()
    return sorted(found)


def passes(nest: Nest, keep: Collection[int]) -> list[Pass]:
    """The passes, where the values of ``keep`` are saved.

    The first pass that takes such a value makes and saves it. That may come later than the pass in which it could be
    had: ``cos(x)`` in ``(sum(x) * cos(x)).sum()`` is first needed in the second one.
    """
    found: list[Pass] = []
    have: set[int] = set()
    for p in range(nest.facts.passes):
        values = needed(nest, p, have)
        found.append(Pass(values, frozenset(have.intersection(values))))
        have |= {i for i in values if i in keep}
    return found


def planned(nest: Nest) -> NestPlan:
    """The passes, and where saved values lie in scratch memory."""
    keep = saved(nest)
    slots: list[SavedValue] = []
    offset = 0
    for i in keep:
        nbytes = slot_bytes(nest, i)
        slots.append(SavedValue(i, offset, nbytes, _slot_strides(nest, i)))
        offset += nbytes
    return NestPlan(tuple(passes(nest, keep)), tuple(slots))


def _slot_strides(nest: Nest, index: int) -> tuple[int, ...]:
    found: list[int] = []
    step = nest.dtype_of(index).itemsize * (1 if nest.rows else TILE)
    for n in reversed(nest.sizes[nest.kept :]):
        found.append(step)
        step *= n
    strides = [*([0] * nest.kept), *reversed(found)]
    if not nest.rows:
        strides[nest.lane] = nest.dtype_of(index).itemsize
    return tuple(strides)


# --- how long ---


def parts(nest: Nest, lanes: int, masks: bool = True) -> list[list[int]]:
    """For each reduced dimension the lengths of the parts that a sum along it is cut in, the shortest first.

    No sum is one long chain of additions, whose error grows with its length: a part is a chain from the start, and so
    are the sums of the parts. The part of a dimension inside counts as what it adds to the chain. ``lanes``: of rows,
    whose last dimension goes by vectors, and without ``masks`` element by element where less than one is left.
    """
    # Accumulators in memory are dearer to add than those in registers.
    chunk = CHUNK if nest.rows or nest.fixed else COLUMN_CHUNK * (1 + nest.whole)
    unit = ACCUMULATORS if nest.fixed else lanes if nest.rows else 1
    found: list[list[int]] = []
    links = 1
    for n in reversed(nest.sizes[nest.kept :]):
        turns, step, lengths = n // unit, 1, list[int]()
        if n * links > 2 * chunk * unit:
            step = max(chunk // links, 1)
            lengths.append(step * unit)
            links = 1
            while -(-turns // step) > 2 * chunk:
                step *= chunk
                lengths.append(step * unit)
        links *= max(-(-turns // step), 1 if masks else n % unit, 1)
        unit = 1
        found.append(lengths)
    return found[::-1]


# --- how wide ---


def register_bytes(nest: Nest) -> int:
    """Of the largest element among the vectors."""
    found = [1]
    for i, wide in enumerate(nest.facts.wide):
        if wide:
            found.append(bits_of(convert.register_type(nest.dtype_of(i))) // 8)
    return max(found)


def widths(nest: Nest, isa: Isa) -> tuple[int, int]:
    """Lanes of one register, and of the vectors that the code is written in: some registers, independent chains."""
    one = max(isa.lanes(register_bytes(nest)), 1)
    if nest.fixed and nest.rows:
        return min(one, ACCUMULATORS), ACCUMULATORS
    count = sum(isinstance(m, Reduction) for m in nest.nodes)
    if nest.columns and nest.sweeps == 1 and nest.weight <= 8 and not nest.whole and not nest.fixed:
        many = max(isa.registers // 2 // max(count, 1), 1)
    else:
        many = 4 if nest.weight <= 10 else 2 if nest.weight <= 100 else 1
    many = 1 << (many.bit_length() - 1)
    n = nest.sizes[nest.lane] if nest.sizes else 1
    lanes = one * many
    if nest.columns and nest.sweeps > 1:
        lanes = min(lanes, TILE)
    if nest.blocks > 1:
        lanes = min(lanes, BLOCK)  # a block ends where a vector does
    while lanes > 1 and lanes >= 2 * n:
        lanes //= 2
    return min(one, lanes), lanes


@final
@dataclass(slots=True)
class LoopScope:
    """What is known at one place of the loops.

    Attributes:
        values: by number.
        spread: scalars among them, in all lanes of a register.
        places: the address of each input, output and saved value, for the indices so far (none along the lanes).
        index: of each dimension whose loop is around.
    """

    values: dict[int, Value]
    spread: dict[int, Value]
    places: list[Value]
    index: list[Value | None]

    def copy(self) -> LoopScope:
        return LoopScope(dict(self.values), dict(self.spread), list(self.places), list(self.index))


@final
@dataclass(frozen=True, slots=True)
class Here:
    """Which elements along the lanes are worked on: ``lanes`` from number ``at`` (0: one, as scalars), of those
    the lanes of ``mask``."""

    lanes: int
    at: Value | int
    mask: Value | None = None


@final
class NestEmitter:
    """Writes one nest; ``streams``: large outputs go past the caches."""

    def __init__(self, nest: Nest, f: Function, isa: Isa, streams: bool = False) -> None:
        self.nest = nest
        self.streams = streams
        self.f = f
        self.isa = isa
        self.facts = nest.facts
        self.count = len(nest.inputs)
        self.register, self.lanes = widths(nest, isa)
        if why := uneven(nest, self.lanes):
            raise LoweringError(f"cpu: {nest.title}: {why}")
        self.parts = parts(nest, self.lanes, nest.fixed or self.masks())
        self.saved = [s.value for s in nest.plan.slots]
        self.plan = nest.plan.passes
        self.strides = [
            *(x.strides for x in nest.inputs),
            *(y.strides for y in nest.outputs),
            *(s.strides for s in nest.plan.slots),
        ]

    # --- scopes ---

    def moved(self, scope: LoopScope, dim: int, index: Value) -> LoopScope:
        """The scope inside the loop of ``dim``."""
        inner = scope.copy()
        inner.index[dim] = index
        for k, strides in enumerate(self.strides):
            if strides[dim] and dim != self.nest.lane:
                inner.places[k] = self.f.at(scope.places[k], index * strides[dim])
        return inner

    def make_depth(self, scope: LoopScope, depth: int) -> None:
        """Make the scalars that vary along dimension ``depth - 1`` and none after it, and need no reduction."""
        facts = self.facts
        for i in range(len(facts.depth)):
            if facts.depth[i] == depth and not (facts.level[i] or facts.wide[i] or facts.full[i]):
                self.make(scope, i, Here(0, 0))

    def make(self, scope: LoopScope, i: int, here: Here) -> None:
        """Make value ``i``."""
        if i >= self.count and isinstance(self.nest.nodes[i - self.count], Constant | Reduction):
            return
        self.known(scope, i, self._made(scope, i, here if self.facts.wide[i] else Here(0, here.at)))

    def known(self, scope: LoopScope, i: int, y: Value) -> None:
        """Value ``i`` is ``y`` here."""
        scope.values[i] = y
        if not self.facts.wide[i] and self.lanes > 1 and any(self._spreads(u) for u in self.facts.users[i]):
            scope.spread[i] = self.f.splat(y, self.register)

    def _spreads(self, user: int) -> bool:
        return self.facts.wide[user] or isinstance(self.nest.nodes[user - self.count], Reduction)

    def value(self, scope: LoopScope, i: int, lanes: int) -> Value:
        """Value ``i`` in as many lanes."""
        if i >= self.count and isinstance(node := self.nest.nodes[i - self.count], Constant):
            return convert.constant(self.f, node.dtype, node.array, lanes)
        y = scope.values[i]
        have = lanes_of(y.type)
        if have == lanes:
            return y
        assert not have, "a vector where a scalar is"
        one = scope.spread.get(i)
        if one is None or lanes < self.register:
            return self.f.splat(y, lanes)
        return self.f.shuffle(one, None, [k % self.register for k in range(lanes)]) if lanes != self.register else one

    def _made(self, scope: LoopScope, i: int, here: Here) -> Value:
        nest, f = self.nest, self.f
        if i < self.count:
            return self.load(nest.inputs[i].dtype, scope.places[i], nest.inputs[i].strides, here)
        node = nest.nodes[i - self.count]
        if isinstance(node, Iota):
            return self._iota(scope, node, here)
        assert isinstance(node, Node)
        xs = [self.value(scope, a, here.lanes) for a in node.args]
        if not node.args:
            return ops.emit(f, self.isa, node.op.name, dict(node.params), [], node.dtype, [])
        ins = [nest.dtype_of(a) for a in node.args]
        return ops.emit(f, self.isa, node.op.name, dict(node.params), ins, node.dtype, xs)

    def _iota(self, scope: LoopScope, node: Iota, here: Here) -> Value:
        f, nest = self.f, self.nest
        ends = [node.offset + sum(s * (n - 1) for s, n in zip(node.steps, nest.sizes, strict=True) if s * k > 0)
                for k in (1, -1)]  # fmt: skip
        small = min(ends) >= -(2**31) and max(ends) < 2**31
        type, dtype = ("i32", dtypes.int32) if small else ("i64", dtypes.int64)
        base = f.value(node.offset, "i64")
        for d, step in enumerate(node.steps):
            index = here.at if d == nest.lane else scope.index[d]
            if step and nest.sizes[d] != 1:
                assert index is not None
                base = base + f.value(index, "i64") * step
        number = base.convert(type)
        if here.lanes:
            step = node.steps[nest.lane] if nest.lane >= 0 else 0
            number = f.splat(number, here.lanes) + f.constants(type, [k * step for k in range(here.lanes)])
        if node.dtype == dtype:
            return number
        return ops.emit(f, self.isa, "convert_element_type", {"dtype": node.dtype}, [dtype], node.dtype, [number])

    # --- memory ---

    def load(self, dtype: DType, place: Value, strides: Sequence[int], here: Here) -> Value:
        """Elements as registers hold them; ``place`` is that of element 0 along the lanes."""
        f, lane = self.f, self.nest.lane
        stride = strides[lane] if lane >= 0 and here.lanes else 0
        if not here.lanes:
            return convert.load(f, self.isa, dtype, self._place(place, strides, here))
        type = convert.memory_type(dtype, here.lanes)
        if stride == dtype.itemsize:
            p = f.at(place, here.at, stride)
            raw = f.load(type, p) if here.mask is None else f.load_masked(type, p, here.mask)
        elif stride == -dtype.itemsize and here.mask is None:
            last = f.value(here.at, "i64") + (here.lanes - 1)
            raw = f.shuffle(f.load(type, f.at(place, last * stride)), None, range(here.lanes)[::-1])
        elif here.mask is None and dtype.itemsize >= 4 and stride in [k * dtype.itemsize for k in range(2, NEAR + 1)]:
            raw = self._near(type, f.at(place, f.value(here.at, "i64") * stride), stride // dtype.itemsize)
        else:
            pointers, mask = self._pointers(place, stride, here)
            raw = f.gather(type, pointers, mask)
        return convert.from_memory(f, self.isa, dtype, raw)

    def _near(self, type: str, first: Value, step: int) -> Value:
        """Every ``step``-th element from ``first`` on: whole registers, of which shuffles keep those.

        For each register of the result ``step`` are read; the last one ends with the last element that is wanted, so
        that nothing after it is touched.
        """
        f, scalar, size = self.f, element(type), bits_of(element(type)) // 8
        one = min(self.register, lanes_of(type))
        found: list[Value] = []
        for base in range(0, lanes_of(type), one):
            ends = (one - 1) * step + 1 - one
            starts = [min(k * one, ends) for k in range(step)]
            y: Value | None = None
            have = 0
            for k, start in enumerate(starts):
                end = (k + 1) * one if k + 1 < step else one * step
                wanted = [i for i in range(one) if k * one <= i * step < end]
                x = f.load(vector(scalar, one), f.at(first, base * step + start, size))
                if y is None:
                    y = f.shuffle(x, None, [i * step if i in wanted else -1 for i in range(one)])
                else:
                    y = f.shuffle(y, x, [i if i < have else one + i * step - start if i in wanted else -1
                                         for i in range(one)])  # fmt: skip
                have = wanted[-1] + 1 if wanted else have
            assert y is not None
            found.append(y)
        while len(found) > 1:
            found = [f.shuffle(a, b, range(2 * lanes_of(a.type))) for a, b in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    def store(self, out: Output, x: Value, place: Value, here: Here) -> None:
        f, nest, dtype = self.f, self.nest, self.nest.dtype_of(out.value)
        lanes = lanes_of(x.type)
        raw = convert.to_memory(f, self.isa, dtype, x)
        if not lanes:
            f.store(raw, self._place(place, out.strides, here))
            return
        stride = out.strides[nest.lane]
        if stride == dtype.itemsize:
            p = f.at(place, here.at, stride)
            if here.mask is not None:
                f.store_masked(raw, p, here.mask)
            elif self.streams and out.stream and lanes * dtype.itemsize % (self.isa.bits // 8) == 0:
                f.store(raw, p, self.isa.bits // 8, stream=True)
            else:
                f.store(raw, p)
            return
        f.scatter(raw, *self._pointers(place, stride, here))

    def _place(self, place: Value, strides: Sequence[int], here: Here) -> Value:
        """Of the one element that scalars work on."""
        lane = self.nest.lane
        if lane < 0 or not strides[lane]:
            return place
        return self.f.at(place, self.f.value(here.at, "i64") * strides[lane])

    def _pointers(self, place: Value, stride: int, here: Here) -> tuple[Value, Value]:
        f = self.f
        first = f.at(place, f.value(here.at, "i64") * stride)
        steps = f.constants("i64", [k * stride for k in range(here.lanes)])
        type = vector("ptr", here.lanes)
        pointers = f.emit(type, f"getelementptr i8, ptr {first.name}, {steps.type} {steps.name}")
        return pointers, here.mask or f.constant(vector("i1", here.lanes), True)

    def masks(self) -> bool:
        """Remainders along the lanes are done with masks; otherwise element by element."""
        if self.isa.name.startswith("avx512"):
            return True
        if self.isa.name != "avx2":
            return False
        lane = self.nest.lane
        sizes = [x.dtype.itemsize for x in self.nest.inputs if x.strides[lane]]
        sizes += [self.nest.dtype_of(y.value).itemsize for y in self.nest.outputs if y.strides[lane]]
        return all(s in (4, 8) for s in sizes)

    def mask(self, left: Value | int) -> Value:
        """The first ``left`` lanes."""
        lanes = self.lanes
        type = "i8" if self.isa.name.startswith("avx512") and lanes <= 128 else "i16" if lanes > 64 else "i32"
        return self.f.lanes_below(left, lanes, type)

    # --- loops ---

    def kept(self, scope: LoopScope, dim: int, block: Value | None) -> None:
        """The kept loops from ``dim`` on, and what is inside."""
        nest, f = self.nest, self.f
        end = nest.kept if nest.rows else nest.kept - 1
        if dim < end:
            with f.loop(0, nest.sizes[dim]) as loop:
                inner = self.moved(scope, dim, loop.index)
                self.make_depth(inner, dim + 1)
                self.kept(inner, dim + 1, block)
        elif nest.rows:
            from nxjax.kernels.cpu.rows import write

            write(self, scope)
        elif nest.whole:
            from nxjax.kernels.cpu.columns_whole import write

            write(self, scope, block, scope.places[len(nest.inputs) + len(nest.outputs) :])
        else:
            from nxjax.kernels.cpu.columns import write

            write(self, scope, block)

    def passes(self, scope: LoopScope, here: Here, run: Callable[[int, LoopScope], None]) -> None:
        """Every pass, what is made of its reductions, and at last the outputs of the kept dimensions."""
        nest, facts = self.nest, self.facts
        for p in range(facts.passes):
            outputs = any(nest.inside(y) and facts.level[y.value] == p for y in nest.outputs)
            if self.plan[p].values or self.reductions(p) or outputs:
                run(p, scope)
            self.after(scope, here, p + 1)
        self.stored(scope, here)

    def after(self, scope: LoopScope, here: Here, level: int) -> None:
        """What is made of the reductions of the pass before, and is not of the whole space."""
        for i in range(len(self.facts.depth)):
            if self.facts.level[i] == level and not self.facts.full[i]:
                self.make(scope, i, here)

    def stored(self, scope: LoopScope, here: Here) -> None:
        """Store the outputs of the kept dimensions."""
        nest, facts = self.nest, self.facts
        for k, out in enumerate(nest.outputs):
            if not nest.inside(out):
                lanes = here.lanes if facts.wide[out.value] or (not nest.rows and out.strides[nest.lane]) else 0
                self.store(out, self.value(scope, out.value, lanes), scope.places[self.count + k], here)

    def reductions(self, number: int) -> list[int]:
        """Those whose argument is made in pass ``number``."""
        nodes = enumerate(self.nest.nodes, self.count)
        return [i for i, m in nodes if isinstance(m, Reduction) and self.facts.level[m.arg] == number]

    def reduction(self, index: int) -> Reduction:
        node = self.nest.nodes[index - self.count]
        assert isinstance(node, Reduction)
        return node

    def inside(self, scope: LoopScope, number: int, depth: int | None, here: Here) -> None:
        """Make or read back what pass ``number`` takes at this depth (None: what is left); then save and store."""
        nest, facts = self.nest, self.facts
        first = self.count + len(nest.outputs)
        for i in self.plan[number].values:
            if i in scope.values or (depth is not None and facts.depth[i] != depth):
                continue
            if i not in self.saved:
                self.make(scope, i, here)
                continue
            k, slot = first + self.saved.index(i), self._slot(i, here)
            if i in self.plan[number].back:
                self.known(scope, i, self.load(nest.dtype_of(i), scope.places[k], self.strides[k], slot))
            else:
                self.make(scope, i, here)
                self.store(Output(i, self.strides[k]), self.value(scope, i, slot.lanes), scope.places[k], slot)
        if depth is None:
            for k, out in enumerate(nest.outputs, self.count):
                if nest.inside(out) and facts.level[out.value] == number:
                    self.store(out, self.value(scope, out.value, here.lanes), scope.places[k], here)

    def _slot(self, i: int, here: Here) -> Here:
        """Where a saved value lies: those of columns begin with their tile; what does not vary is one number."""
        at = here.at if self.nest.rows else 0
        return Here(here.lanes, at, here.mask) if self.facts.wide[i] else Here(0, at)

    # --- reductions ---

    def start(self, index: int, lanes: int) -> Value:
        r = self.reduction(index)
        return convert.constant(self.f, r.accumulator, Constant(r.start, r.accumulator).array, lanes)

    def combine(self, index: int, x: Value, y: Value) -> Value:
        r = self.reduction(index)
        return ops.emit(self.f, self.isa, r.op, {}, [r.accumulator] * 2, r.accumulator, [x, y])

    def added(self, index: int, total: Value, scope: LoopScope, mask: Value | None) -> Value:
        """``total`` with this turn's element or vector."""
        r, lanes = self.reduction(index), lanes_of(total.type)
        x, dtype = self.value(scope, r.arg, lanes), self.nest.dtype_of(r.arg)
        if dtype != r.accumulator:
            x = ops.emit(
                self.f, self.isa, "convert_element_type", {"dtype": r.accumulator}, [dtype], r.accumulator, [x]
            )
        y = self.combine(index, total, x)
        return y if mask is None else self.f.select(mask, y, total)

    def finished(self, scope: LoopScope, index: int, total: Value) -> None:
        """The result of a reduction becomes a value."""
        r = self.reduction(index)
        if r.dtype != r.accumulator:
            params = {"dtype": r.dtype}
            total = ops.emit(self.f, self.isa, "convert_element_type", params, [r.accumulator], r.dtype, [total])
        scope.values[index] = total
        if not lanes_of(total.type) and self.lanes > 1 and any(self._spreads(u) for u in self.facts.users[index]):
            scope.spread[index] = self.f.splat(total, self.register)

    def chained(
        self,
        sums: Sequence[int],
        parts: Sequence[int],
        lo: Value | int,
        hi: Value | int,
        step: int,
        totals: Sequence[Value],
        turn: Callable[[Value, Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """The loop of ``turn(index, totals)``, whose sums go by ``parts``."""
        f = self.f
        if not parts:
            with f.loop(lo, hi, step, totals) as loop:
                loop.next(*turn(loop.index, loop.carried))
            return loop.results
        *shorter, part = parts
        with f.loop(lo, hi, part, totals) as loop:
            starts = [self.start(i, lanes_of(t.type)) for i, t in zip(sums, totals, strict=True)]
            some = self.chained(sums, shorter, loop.index, self.end_of(loop.index, part, hi), step, starts, turn)
            loop.next(*(self.combine(i, a, b) for i, a, b in zip(sums, loop.carried, some, strict=True)))
        return loop.results

    def end_of(self, first: Value, part: int, hi: Value | int) -> Value:
        """Where a part ends that begins at ``first``; the last one ends at ``hi``."""
        after = first + part
        return after if part == 1 else self.f.select(after.lt(hi), after, hi)

    def gathered(self, index: int, totals: Sequence[Value]) -> Value:
        """One element out of `ACCUMULATORS`, by halves."""
        while len(totals) > 1:
            half = len(totals) // 2
            totals = [self.combine(index, x, y) for x, y in zip(totals[:half], totals[half:], strict=True)]
        return totals[0]

    def limit(self, scope: LoopScope) -> Value | int:
        """How many elements the first reduced dimension has here."""
        nest = self.nest
        size = nest.sizes[nest.kept]
        if not nest.total or nest.total % size == 0:
            return size
        index = scope.index[0]
        assert index is not None
        left = self.f.value(nest.total, "i64") - index * size
        return self.f.select(left.lt(size), left, size)


def folded(w: NestEmitter, index: int, total: Value) -> Value:
    """One element out of a vector of accumulators, by halves."""
    f = w.f
    lanes = lanes_of(total.type)
    while lanes > 1:
        half = lanes // 2
        low = f.shuffle(total, None, range(half)) if half > 1 else f.extract(total, 0)
        high = f.shuffle(total, None, range(half, lanes)) if half > 1 else f.extract(total, 1)
        total = w.combine(index, low, high)
        lanes = half
    return total
