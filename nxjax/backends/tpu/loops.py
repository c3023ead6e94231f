"""How often each part of an optimized program runs: XLA's own counts take the body of a loop once, however often it
goes round.

A loop's number of turns is read from its condition and its counter, where both are plain; nested loops multiply. The
compiler's totals are shared out over the instructions by what they do, and each share multiplied. Knows HLO's text
alone.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, final

from nxjax.backends.tpu.hlo import FREE, HloModule, Instruction
from nxjax.lower.trip_count import SWAPPED, count

# An int that is known (None, n), or element ``k`` of a loop's state plus n; of a tuple a list; None: not known.
Value = tuple[int | None, int] | list["Value"] | None
Body = dict[str, Instruction]
_DEEP: Final = 200
_KNOWN: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_SAME: Final = (
    "copy",
    "bitcast",
    "convert",
    "reshape",
    "copy-start",
    "copy-done",
    "opt-barrier",
    "optimization-barrier",
)
# Their computations say how two elements become one, and are counted with the operands.
_ELEMENTWISE_BODY: Final = (
    "reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map", "all-reduce", "reduce-scatter",
    "all-reduce-start",
)  # fmt: skip
_TRANSCENDENTAL: Final = frozenset(
    ("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "sine", "cosine", "tan", "sqrt",
     "rsqrt", "cbrt", "power", "atan2", "erf")
)  # fmt: skip
_ARITHMETIC: Final = frozenset(
    ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "abs", "negate", "sign", "compare",
     "select", "and", "or", "xor", "not", "clamp", "floor", "ceil", "round-nearest-even", "round-nearest-afz",
     "convert", "is-finite", "shift-left", "shift-right-arithmetic", "shift-right-logical", "popcnt",
     "count-leading-zeros", "reduce-precision")
)  # fmt: skip
_SLICES: Final = ("dynamic-slice", "slice", "gather")
# A copy beside other work: the compilers count both of its ends.
_COPIES: Final = ("copy-start", "copy-done")
# The compiler's own kernel that gives memory without writing to it.
_NOTHING: Final = "AllocateBuffer"
# What the compilers call their totals.
FLOPS: Final = "flops"
BYTES: Final = "bytes accessed"
SECONDS: Final = "optimal_seconds"
TRANSCENDENTALS: Final = "transcendentals"


@final
@dataclass(frozen=True)
class HloLoop:
    """A loop of the optimized program.

    Attributes:
        instruction: the ``while``.
        turns: how often it goes round each time that it is entered; None where that is not known.
    """

    instruction: Instruction
    turns: int | None


@final
@dataclass(frozen=True)
class _Part:
    """One run of a computation, and what it runs: how often, which, and whether it is one of these alone."""

    name: str
    inner: list[tuple[int, list[_Part], bool]]


@final
class HloLoops:
    """The loops of a module.

    Attributes:
        found: all of them, the outer ones first.
        times: how often each computation runs in one run of the module. Loops whose turns are not known count once.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.found: list[HloLoop] = []
        self.times: dict[str, int] = defaultdict(int)
        self._bodies = {name: {i.name: i for i in body} for name, body in module.computations.items()}
        self._whole = self._visit(module.entry, 1, [])

    @property
    def known(self) -> bool:
        """Whether all of them have a number of turns."""
        return all(loop.turns is not None for loop in self.found)

    def totals(self, said: Mapping[str, float], flops: float = 1.0, bandwidth: float = 1.0) -> dict[str, float]:
        """A compiler's totals, in which a body is counted once, with the turns of its loops.

        Args:
            said: what the compiler says; names that are not known here stay as they are.
            flops, bandwidth: of the device, a second: by which its seconds are shared out.
        """
        found = dict(said)
        if not any(loop.turns not in (None, 1) for loop in self.found):
            return found
        inside = self.module.inside

        @cache
        def own(name: str) -> dict[str, float]:
            total: dict[str, float] = dict.fromkeys((FLOPS, TRANSCENDENTALS, BYTES, SECONDS), 0.0)
            for i in self.module.computations.get(name, ()):
                total[FLOPS] += _flops(i, self._bodies[name])
                total[TRANSCENDENTALS] += _size(i) if i.opcode in _TRANSCENDENTAL else 0.0
                if name not in inside:
                    moved = float(self.traffic(i, name))
                    total[BYTES] += moved
                    total[SECONDS] += max(self._inner_flops(i, name) / flops, moved / bandwidth)
            return total

        def work(part: _Part, key: str, turned: bool) -> float:
            total = own(part.name)[key]
            for turns, parts, choice in part.inner:
                each = [work(p, key, turned) for p in parts]
                # The compilers count the dearest branch.
                total += (turns if turned else 1) * (max(each, default=0.0) if choice else sum(each))
            return total

        once, all_turns = ({key: work(self._whole, key, t) for key in own(self._whole.name)} for t in (False, True))
        for key in (FLOPS, TRANSCENDENTALS, BYTES, SECONDS):
            # A compiler's number below 0 says that it has none.
            if found.get(key, 0.0) > 0:
                by = key if once[key] else BYTES
                found[key] *= all_turns[by] / once[by] if once[by] else 1.0
        return found

    # --- what is where ---

    def _visit(self, name: str, times: int, arguments: Sequence[Value]) -> _Part:
        part = _Part(name, [])
        body = self._bodies.get(name)
        if body is None:
            return part
        self.times[name] += times
        held: dict[str, Value] = {}
        value = lambda o: self._value(body, o, arguments, held)
        for i in body.values():
            if i.opcode == "while":
                condition, inner = i.computation("condition"), i.computation("body")
                start = value(i.operands[0]) if i.operands else None
                said = _KNOWN.search(i.attributes)
                turns = int(said[1]) if said else self._turns(condition, inner, start)
                self.found.append(HloLoop(i, turns))
                many = 1 if turns is None else turns
                kept = self._kept(inner, start)
                part.inner.append((many, [self._visit(c, times * many, [kept]) for c in (inner, condition)], False))
            elif i.opcode not in _ELEMENTWISE_BODY and i.called:
                given = [value(o) for o in i.operands] if i.opcode == "call" else []
                part.inner.append((1, [self._visit(c, times, given) for c in i.called], i.opcode == "conditional"))
        return part

    def _root(self, name: str) -> Instruction | None:
        return next((i for i in self._bodies.get(name, {}).values() if i.root), None)

    # --- numbers of turns ---

    def _value(self, body: Body, name: str, arguments: Sequence[Value], held: dict[str, Value], deep: int = 0) -> Value:
        """What an instruction gives."""
        if name not in held:
            i = body.get(name)
            held[name] = None
            if i is not None and deep < _DEEP:
                held[name] = self._found(body, i, arguments, held, deep + 1)
        return held[name]

    def _found(
        self,
        body: Body,
        i: Instruction,
        arguments: Sequence[Value],
        held: dict[str, Value],
        deep: int,
    ) -> Value:
        operands = lambda: [self._value(body, o, arguments, held, deep) for o in i.operands]
        if i.opcode == "parameter":
            n = int(i.literal) if i.literal.isdigit() else len(arguments)
            return arguments[n] if n < len(arguments) else None
        if i.opcode == "constant":
            return (None, int(i.literal)) if re.fullmatch(r"-?\d+", i.literal) else None
        if i.opcode == "tuple":
            return operands()
        if i.opcode == "get-tuple-element":
            (given,) = operands()
            at = re.search(r"index=(\d+)", i.attributes)
            return given[int(at[1])] if isinstance(given, list) and at and int(at[1]) < len(given) else None
        if i.opcode in _SAME:
            return operands()[0] if i.operands else None
        if i.opcode in ("add", "subtract"):
            a, b = operands()
            return _sum(a, b, 1 if i.opcode == "add" else -1)
        if i.opcode in ("fusion", "call") and i.called:
            inner, root = self._bodies.get(i.called[0], {}), self._root(i.called[0])
            return None if root is None else self._value(inner, root.name, operands(), {}, deep)
        if i.opcode == "while" and i.operands:
            return self._kept(i.computation("body"), operands()[0])
        return None

    def _after(self, inner: str, size: int) -> Value:
        """A loop's state after one turn, in terms of the state before it."""
        root = self._root(inner)
        state: Value = [(k, 0) for k in range(size)]
        return None if root is None else self._value(self._bodies[inner], root.name, [state], {})

    def _kept(self, inner: str, start: Value) -> Value:
        """What of a loop's state is a known number in every turn."""
        if not isinstance(start, list):
            return None
        after = self._after(inner, len(start))
        if not isinstance(after, list) or len(after) != len(start):
            return None
        return [x if x is not None and y == (k, 0) else None for k, (x, y) in enumerate(zip(start, after, strict=True))]

    def _turns(self, condition: str, inner: str, start: Value) -> int | None:
        root = self._root(condition)
        if root is None or not isinstance(start, list):
            return None
        state: Value = [(k, 0) for k in range(len(start))]
        test = self._test(self._bodies[condition], root, [state])
        after, kept = self._after(inner, len(start)), self._kept(inner, start)
        if test is None or not isinstance(after, list) or not isinstance(kept, list) or len(after) != len(start):
            return None
        left, direction, right = test

        def number(v: Value, among: Sequence[Value]) -> int | None:
            """``v`` where the state is ``among``."""
            if not isinstance(v, tuple):
                return None
            base = (None, 0) if v[0] is None else among[v[0]]
            return base[1] + v[1] if isinstance(base, tuple) and base[0] is None else None

        bound = number(right, kept)
        if bound is None:
            left, right, direction = right, left, SWAPPED.get(direction, "")
            bound = number(right, kept)
        if bound is None or not isinstance(left, tuple) or left[0] is None:
            return None
        first, step = number(left, start), after[left[0]]
        if first is None or not isinstance(step, tuple) or step[0] != left[0]:
            return None
        return count(first, step[1], direction, bound)

    def _test(self, body: Body, i: Instruction, arguments: Sequence[Value]) -> tuple[Value, str, Value] | None:
        """Both sides of a comparison and its direction."""
        held: dict[str, Value] = {}
        for _ in range(_DEEP):
            if i.opcode == "compare" and len(i.operands) == 2:
                a, b = (self._value(body, o, arguments, held) for o in i.operands)
                direction = re.search(r"direction=(\w+)", i.attributes)
                return a, direction[1] if direction else "", b
            if i.opcode in ("fusion", "call") and i.called and (root := self._root(i.called[0])) is not None:
                arguments = [self._value(body, o, arguments, held) for o in i.operands]
                body, i, held = self._bodies[i.called[0]], root, {}
            elif i.opcode in _SAME and i.operands and i.operands[0] in body:
                i = body[i.operands[0]]
            else:
                return None
        return None

    # --- what instructions do ---

    def _inner_flops(self, i: Instruction, name: str) -> float:
        """Operations of an instruction, those of a fusion with what is fused."""
        if i.opcode != "fusion":
            return _flops(i, self._bodies[name])
        return sum(self._inner_flops(j, c) for c in i.called for j in self.module.computations.get(c, ()))

    def traffic(self, i: Instruction, name: str) -> int:
        """Bytes that an instruction reads and writes: of what it takes a slice of, or writes one into, the slice."""
        if i.opcode in _COPIES and i.results:
            return 2 * i.results[0].padded
        if i.opcode in FREE or i.target == _NOTHING:
            return 0
        body = self._bodies[name]
        sizes = [body[o].bytes if o in body else 0 for o in i.operands]
        if i.opcode in _SLICES:
            return 2 * i.bytes
        if i.opcode == "dynamic-update-slice":
            return 2 * sizes[1] if len(sizes) > 1 else i.bytes
        if i.opcode != "fusion" or not i.called:
            return i.bytes + sum(sizes)
        inner = self._bodies.get(i.called[0], {})
        read = [self._read(inner, n, size) for n, size in enumerate(sizes)]
        return sum(read) + self._written(inner, i)

    def _read(self, inner: Body, number: int, size: int) -> int:
        """Bytes that a fusion reads of one of its operands."""
        own = next((i for i in inner.values() if i.opcode == "parameter" and i.literal == str(number)), None)
        if own is None:
            return size
        names, total = {own.name}, 0
        for i in inner.values():
            if not names & set(i.operands):
                continue
            if i.opcode in ("bitcast", "copy", "reshape"):
                names.add(i.name)
            elif i.opcode == "fusion" and i.called:
                within = self._bodies.get(i.called[0], {})
                total += sum(self._read(within, n, size) for n, o in enumerate(i.operands) if o in names)
            elif i.opcode in _SLICES and i.operands[0] in names:
                total += i.bytes
            elif i.opcode == "dynamic-update-slice" and i.operands[0] in names and not names & set(i.operands[1:]):
                continue
            else:
                return size
        # What is handed on is read by whoever takes it.
        return size if any(inner[n].root for n in names) else min(total, size)

    def _written(self, inner: Body, i: Instruction) -> int:
        root = next((j for j in inner.values() if j.root), None)
        while root is not None and root.opcode in ("bitcast", "copy") and root.operands and root.operands[0] in inner:
            root = inner[root.operands[0]]
        ends = (
            [inner[o] for o in root.operands if o in inner] if root is not None and root.opcode == "tuple" else [root]
        )
        if root is None or any(e is None for e in ends):
            return i.bytes
        update = lambda e: inner[e.operands[1]].bytes if len(e.operands) > 1 and e.operands[1] in inner else e.bytes
        return sum(update(e) if e.opcode == "dynamic-update-slice" else e.bytes for e in ends if e is not None)


def _sum(a: Value, b: Value, sign: int) -> Value:
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        return None
    if b[0] is None:
        return a[0], a[1] + sign * b[1]
    return (b[0], a[1] + b[1]) if a[0] is None and sign > 0 else None


def _size(i: Instruction) -> float:
    return float(sum(math.prod(s.dims) for s in i.results))


def _flops(i: Instruction, body: Mapping[str, Instruction]) -> float:
    """Operations of one instruction, as XLA counts them."""
    if i.opcode in _ARITHMETIC:
        return _size(i)
    shape = lambda n: body[i.operands[n]].results[0].dims if n < len(i.operands) and i.operands[n] in body else ()
    if i.opcode == "dot":
        found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.attributes)
        return 2 * _size(i) * math.prod(shape(0)[int(d)] for d in (found[1].split(",") if found and found[1] else ()))
    if i.opcode == "convolution":
        # The weights' features that go out, "o" of "01io", are those of the result.
        labels = re.search(r"dim_labels=\w+_(\w+)->", i.attributes)
        weights = shape(1)
        if labels is None or len(labels[1]) != len(weights):
            return _size(i)
        return 2 * _size(i) * math.prod(n for n, label in zip(weights, labels[1], strict=True) if label != "o")
    if i.opcode in ("reduce", "reduce-window", "all-reduce"):
        return float(math.prod(shape(0)))
    return 0.0
