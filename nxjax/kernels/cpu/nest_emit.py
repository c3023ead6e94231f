"""The machine code of a nest: its loops, and in what scope each value is made.

A value is made in the loop of the last dimension along which it varies (`Dependences.depth`), once for all that runs
inside; as a scalar if it does not vary along the lanes, and spread over them where a vector needs it. A `LoopScope`
holds what is known at one place of the loops: values, and the address of every operand for the indices so far.

    dealt items -> other kept loops -> columns: tiles of the lanes' dimension -> passes: reduced loops -> vectors
                                    -> rows:                                     passes: reduced loops -> vectors

Knows no dtype's representation (`convert`) and no op (`ops`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.config.dataclass import dataclass
from nxjax.config.digest import digest
from nxjax.errors import LoweringError
from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.expression import Constant, ExpressionNode
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, bits_of, element, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.nest import Iota, Nest, Output, Reduction
from nxjax.kernels.cpu.nest_passes import parts, scratch_sizes, widths
from nxjax.kernels.cpu.nest_plan import uneven
from nxjax.kernels.cpu.op_files import DEAR, FUNCTIONS
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

NEAR: Final = 8  # elements apart up to which registers are read whole, rather than element by element
# How often a module has the code of a function where it is used. LLVM takes milliseconds for each, so further uses are
# calls, which take up to a third longer to run: not where there are more points than these.
IN_LINE: Final = 8
FEW_POINTS: Final = 1 << 12


def emit(nest: Nest, module: LlvmModule, isa: Isa) -> None:
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
            _loops(NestEmitter(nest, module, f, isa, True), places, lo, hi)
            f.line("fence seq_cst")  # they are seen by whoever is told that this is done
        with f.if_(~aligned):
            _loops(NestEmitter(nest, module, f, isa), places, lo, hi)
    else:
        _loops(NestEmitter(nest, module, f, isa), places, lo, hi)
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

    def __init__(self, nest: Nest, module: LlvmModule, f: Function, isa: Isa, streams: bool = False) -> None:
        self.nest = nest
        self.module = module
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
        assert isinstance(node, ExpressionNode)
        xs = [self.value(scope, a, here.lanes) for a in node.args]
        if not node.args:
            return ops.emit(f, self.isa, node.op.name, dict(node.params), [], node.dtype, [])
        ins = [nest.dtype_of(a) for a in node.args]
        long = node.op.name in FUNCTIONS and DEAR.get(node.op.name, 0) >= 12
        # With a constant among its operands a function may have shorter code.
        if long and nest.size <= FEW_POINTS and all(x.name.startswith("%") for x in xs):
            key = (node.op.name, node.params, node.dtype, *ins, *(x.type for x in xs))
            self.module.uses[key] += 1
            if self.module.uses[key] > IN_LINE:
                helper = self._helper(key, node, ins, xs)
                return f.call(helper.name, helper.result, *xs)
        return ops.emit(f, self.isa, node.op.name, dict(node.params), ins, node.dtype, xs)

    def _helper(
        self, key: tuple[Any, ...], node: ExpressionNode, ins: Sequence[DType], xs: Sequence[Value]
    ) -> Function:
        """The module's function that is ``node``."""
        name = f"{node.op.name}.{digest(repr(key).encode()).hexdigest()[:16]}"
        helper = self.module.functions.get(name)
        if helper is None:
            helper = Function(name, [x.type for x in xs], linkage="internal")
            y = ops.emit(helper, self.isa, node.op.name, dict(node.params), ins, node.dtype, helper.arguments)
            helper.result = y.type
            helper.ret(y)
            self.module.add(helper)
        return helper

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
        return self._converted(number, dtype, node.dtype)

    def _converted(self, x: Value, dtype: DType, to: DType) -> Value:
        if dtype == to:
            return x
        return ops.emit(self.f, self.isa, "convert_element_type", {"dtype": to}, [dtype], to, [x])

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
        elif here.mask is None and stride in [k * dtype.itemsize for k in range(2, NEAR + 1)]:
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
        x = self._converted(self.value(scope, r.arg, lanes), self.nest.dtype_of(r.arg), r.accumulator)
        y = self.combine(index, total, x)
        return y if mask is None else self.f.select(mask, y, total)

    def finished(self, scope: LoopScope, index: int, total: Value) -> None:
        """The result of a reduction becomes a value."""
        r = self.reduction(index)
        total = self._converted(total, r.accumulator, r.dtype)
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
