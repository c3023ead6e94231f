"""LLVM IR as text, written function by function: values with operators, loops with carried values, branches.

Text because it is the quickest way from Python to LLVM: no object per instruction is built twice. Emitters write in
SSA form, so no pass has to run before code generation. Knows LLVM's language and no kernel, dtype or processor.

Types are LLVM's own names: ``float``, ``i32``, ``<16 x float>``, ``ptr``. No instruction carries fast-math flags:
what a kernel computes is what it says.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, final

from nxjax.errors import LoweringError
from nxjax.kernels.cpu.intrinsics import element, lanes_of, mangled, signature, vector
from nxjax.kernels.cpu.ir_types import FLOATS, bits_of, is_float, number, with_element

__all__ = [
    "FLOATS", "Function", "LlvmModule", "Loop", "Value", "bits_of", "element", "is_float", "lanes_of", "mangled",
    "number", "vector", "with_element",
]  # fmt: skip


# The attribute of functions whose code their callers get: of a module that has one, LLVM's passes are run.
INLINED: Final = "alwaysinline"


def _integer(op: str) -> Callable[[Value, Value | int], Value]:
    return lambda self, other: self.f.binary(op, self, other)


def _unsigned(op: str) -> Callable[[Value, Value | int], Value]:
    return lambda self, other: self.f.compare(op, op, self, other)


def _arithmetic(floats: str, integers: str) -> Callable[[Value, Value | float], Value]:
    return lambda self, other: self.f.binary(floats if is_float(self.type) else integers, self, other)


def _comparison(floats: str, integers: str) -> Callable[[Value, Value | float], Value]:
    return lambda self, other: self.f.compare(floats, integers, self, other)


@final
class Value:
    """An SSA value or a constant, with the function that it lives in. Operators emit instructions.

    A Python number beside a value becomes a constant of its type. ``/`` is for floats; integers have `sdiv`, `udiv`,
    `srem`, `urem`. ``>>`` is arithmetic; `lshr` is not. Comparisons are ordered for floats (`ne`: unordered) and signed
    for integers; ``u...`` names are unsigned.
    """

    __slots__ = ("f", "name", "type")

    def __init__(self, f: Function, type: str, name: str) -> None:
        self.f = f
        self.type = type
        self.name = name

    def __repr__(self) -> str:
        return f"{self.type} {self.name}"

    __add__ = _arithmetic("fadd", "add")
    __sub__ = _arithmetic("fsub", "sub")
    __mul__ = _arithmetic("fmul", "mul")
    __and__ = _integer("and")
    __or__ = _integer("or")
    __xor__ = _integer("xor")
    __lshift__ = _integer("shl")
    __rshift__ = _integer("ashr")
    lshr = _integer("lshr")
    sdiv = _integer("sdiv")
    udiv = _integer("udiv")
    srem = _integer("srem")
    urem = _integer("urem")
    eq = _comparison("oeq", "eq")
    ne = _comparison("une", "ne")
    lt = _comparison("olt", "slt")
    le = _comparison("ole", "sle")
    gt = _comparison("ogt", "sgt")
    ge = _comparison("oge", "sge")
    ult = _unsigned("ult")
    ule = _unsigned("ule")
    ugt = _unsigned("ugt")
    uge = _unsigned("uge")

    def __radd__(self, other: float) -> Value:
        return self.f.constant(self.type, other) + self

    def __rsub__(self, other: float) -> Value:
        return self.f.constant(self.type, other) - self

    def __rmul__(self, other: float) -> Value:
        return self.f.constant(self.type, other) * self

    def __truediv__(self, other: Value | float) -> Value:
        return self.f.binary("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Value:
        return self.f.constant(self.type, other) / self

    def __neg__(self) -> Value:
        if is_float(self.type):
            return self.f.emit(self.type, f"fneg {self.type} {self.name}")
        return self.f.constant(self.type, 0) - self

    def __invert__(self) -> Value:
        return self.f.binary("xor", self, -1 if element(self.type) != "i1" else True)

    def is_nan(self) -> Value:
        return self.f.compare("uno", "ne", self, self)

    def bitcast(self, type: str) -> Value:
        return self if type == self.type else self.f.cast("bitcast", self, type)

    def convert(self, type: str, *, signed: bool = True) -> Value:
        """The number in another type: widened, narrowed (floats to nearest even, integers cut), or between the kinds.

        Floats out of an integer's range give what the processor gives; clamp first where that matters.
        """
        return self.f.convert(self, type, signed)


@final
class Loop:
    """A loop that is being written; see `Function.loop`."""

    __slots__ = ("carried", "index", "nexts", "results")

    def __init__(self, index: Value, carried: tuple[Value, ...]) -> None:
        self.index = index
        self.carried = carried
        self.nexts: tuple[Value, ...] | None = None if carried else ()
        self.results: tuple[Value, ...] = ()

    def next(self, *values: Value) -> None:
        """What the carried values are in the next turn."""
        self.nexts = values


def constant_of(x: Value) -> float | None:
    """The float that ``x`` is in every lane, where that is known."""
    name = x.name.removeprefix(f"splat ({element(x.type)} ").removesuffix(")")
    return struct.unpack(">d", bytes.fromhex(name[2:]))[0] if re.fullmatch("0x[0-9A-F]{16}", name) else None


@final
class Function:
    """One LLVM function under construction.

    Args:
        name: its symbol.
        parameters: LLVM types in order; `arguments` are their values.
        result: LLVM type, or ``void``.
        attributes: of the function, such as ``alwaysinline``.
        linkage: ``""`` for symbols others see, ``internal`` for helpers.

    ``whole`` has the names of floats that were made of integers.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[str],
        result: str = "void",
        attributes: str = "nounwind",
        linkage: str = "",
    ) -> None:
        self.name = name
        self.result = result
        self.parameters = tuple(parameters)
        self.arguments = tuple(Value(self, t, f"%a{i}") for i, t in enumerate(parameters))
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.whole: set[str] = set()
        self._attributes = attributes
        self._linkage = linkage
        self._lines: list[str] = []
        self._allocas: list[str] = []
        self._count = 0
        self._block = "entry"
        self._closed = False

    # --- text ---

    def to_helper(self, name: str, *, inlined: bool = False) -> None:
        """From now on it is ``name``, and only its own module sees it; its callers get its code, if that is asked."""
        self.name, self._linkage = name, "internal"
        self._attributes += f" {INLINED}" if inlined else ""

    @property
    def text(self) -> str:
        head = ", ".join(f"{t} %a{i}" for i, t in enumerate(self.parameters))
        body = "\n".join(["entry:", *self._allocas, *self._lines])
        return f"define {self._linkage} {self.result} @{self.name}({head}) {self._attributes} {{\n{body}\n}}\n"

    @property
    def declaration(self) -> str:
        """How another module declares it."""
        return _declared(self.name, self.result, self.parameters)

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def line(self, text: str) -> None:
        """One instruction that has no value."""
        self._lines.append("  " + text)

    def emit(self, type: str, text: str) -> Value:
        """One instruction, and its value of ``type``."""
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(self, type, name)

    # --- values ---

    def constant(self, type: str, value: float | int | bool) -> Value:
        """A number in every lane of ``type``."""
        scalar = element(type)
        text = number(scalar, value)
        return Value(self, type, f"splat ({scalar} {text})" if scalar != type else text)

    def constants(self, scalar: str, values: Sequence[float | int]) -> Value:
        """A vector of given numbers."""
        inside = ", ".join(f"{scalar} {number(scalar, v)}" for v in values)
        return Value(self, vector(scalar, len(values)), f"<{inside}>")

    def poison(self, type: str) -> Value:
        return Value(self, type, "poison")

    def value(self, x: Value | float, type: str) -> Value:
        return x if isinstance(x, Value) else self.constant(type, x)

    def binary(self, op: str, x: Value, y: Value | float) -> Value:
        y = self.value(y, x.type)
        return self.emit(x.type, f"{op} {x.type} {x.name}, {y.name}")

    def compare(self, floats: str, integers: str, x: Value, y: Value | float) -> Value:
        y = self.value(y, x.type)
        op = f"fcmp {floats}" if is_float(x.type) else f"icmp {integers}"
        return self.emit(with_element(x.type, "i1"), f"{op} {x.type} {x.name}, {y.name}")

    def select(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """``x`` where ``condition`` (``i1`` in as many lanes), else ``y``."""
        type = x.type if isinstance(x, Value) else y.type if isinstance(y, Value) else ""
        x, y = self.value(x, type), self.value(y, type)
        if type in ("float", "double") and not (x.name.startswith("%") or y.name.startswith("%")):
            # LLVM 22 makes a load from a table of this, which it may then mistake for one of a vector, and ends the
            # process: choose between the bits.
            word = f"i{bits_of(type)}"
            return self.select(condition, x.bitcast(word), y.bitcast(word)).bitcast(type)
        return self.emit(type, f"select {condition.type} {condition.name}, {type} {x.name}, {type} {y.name}")

    def cast(self, op: str, x: Value, type: str) -> Value:
        return self.emit(type, f"{op} {x.type} {x.name} to {type}")

    def convert(self, x: Value, type: str, signed: bool = True) -> Value:
        if type == x.type:
            return x
        a, b = element(x.type), element(type)
        if is_float(a) and is_float(b):
            if bits_of(a) == bits_of(b):  # half and bfloat: by way of float
                return self.convert(self.convert(x, with_element(x.type, "float")), type)
            if (a, b) == ("float", "half") and not lanes_of(x.type):
                # A float that was a double before LLVM rounds once, by a function that no process has.
                x = self.hidden(x.bitcast("i32")).bitcast("float")
            return self.cast("fpext" if bits_of(a) < bits_of(b) else "fptrunc", x, type)
        if is_float(a):
            return self.cast("fptosi" if signed else "fptoui", x, type)
        if x.type == "i1" and b in ("float", "double"):
            return self.select(x, self.value(1.0, b), self.value(0.0, b))
        if is_float(b):
            return self.cast("sitofp" if signed and a != "i1" else "uitofp", x, type)
        if bits_of(a) < bits_of(b):
            return self.cast("sext" if signed and a != "i1" else "zext", x, type)
        return self.cast("trunc", x, type)

    def splat(self, x: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if not lanes:
            return x
        type = vector(x.type, lanes)
        if not x.name.startswith("%"):
            return Value(self, type, f"splat ({x.type} {x.name})")
        one = self.emit(type, f"insertelement {type} poison, {x.type} {x.name}, i64 0")
        return self.emit(type, f"shufflevector {type} {one.name}, {type} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, x: Value, y: Value | None, mask: Sequence[int]) -> Value:
        """Lanes of ``x`` and ``y`` (after those of ``x``) by number; -1: any."""
        inside = ", ".join(f"i32 {'poison' if i < 0 else i}" for i in mask)
        type = vector(element(x.type), len(mask))
        other = y.name if y is not None else "poison"
        return self.emit(type, f"shufflevector {x.type} {x.name}, {x.type} {other}, <{len(mask)} x i32> <{inside}>")

    def extract(self, x: Value, lane: Value | int) -> Value:
        lane = self.value(lane, "i64")
        return self.emit(element(x.type), f"extractelement {x.type} {x.name}, i64 {lane.name}")

    def insert(self, x: Value, y: Value, lane: Value | int) -> Value:
        lane = self.value(lane, "i64")
        return self.emit(x.type, f"insertelement {x.type} {x.name}, {y.type} {y.name}, i64 {lane.name}")

    def intrinsic(self, name: str, type: str, *xs: Value, over: str = "") -> Value:
        """A call of ``llvm.<name>``, overloaded by the type of its first operand unless ``over`` says."""
        symbol, result, parameters = signature(name, over or (xs[0].type if xs else ""))
        if type != result or tuple(x.type for x in xs) != parameters:
            raise LoweringError(
                f"cpu: {symbol} has another signature",
                got=f"{type} ({', '.join(x.type for x in xs)})",
                expected=f"{result} ({', '.join(parameters)})",
            )
        return self._called(symbol, type, xs)

    def call(self, name: str, result: str, *xs: Value) -> Value:
        """A call of a function by symbol; declared in the module if it is not defined there."""
        if name.startswith("llvm."):
            raise LoweringError("cpu: an intrinsic is called by its name alone", got=name, fix="use f.intrinsic")
        return self._called(name, result, xs)

    def _called(self, name: str, result: str, xs: Sequence[Value]) -> Value:
        """The only place that declares a function: one symbol has one signature."""
        declaration = _declared(name, result, [x.type for x in xs])
        if self.declarations.setdefault(name, declaration) != declaration:
            raise _differs("function", name, declaration, self.declarations[name])
        text = f"call {result} @{name}({', '.join(f'{x.type} {x.name}' for x in xs)})"
        if result == "void":
            self.line(text)
            return Value(self, "void", "")
        return self.emit(result, text)

    def call_pointer(self, function: Value, result: str, *xs: Value) -> Value:
        """A call through a pointer."""
        text = f"call {result} {function.name}({', '.join(f'{x.type} {x.name}' for x in xs)})"
        if result == "void":
            self.line(text)
            return Value(self, "void", "")
        return self.emit(result, text)

    def fma(self, x: Value, y: Value | float, z: Value | float) -> Value:
        """``x * y + z``, rounded once where the processor can (LLVM's ``fmuladd``)."""
        return self.intrinsic("fmuladd", x.type, x, self.value(y, x.type), self.value(z, x.type))

    # --- memory ---

    def alloca(self, type: str, count: int = 1, align: int = 64) -> Value:
        """Room on the stack, for the whole call."""
        name = self.fresh("s")
        self._allocas.append(f"  {name} = alloca {type}, i64 {count}, align {align}")
        return Value(self, "ptr", name)

    def at(self, pointer: Value, index: Value | int, size: int = 1) -> Value:
        """The address ``index * size`` bytes after ``pointer``; ``index`` is an ``i64``."""
        if not isinstance(index, Value):
            if not index:
                return pointer
            return self.emit("ptr", f"getelementptr i8, ptr {pointer.name}, i64 {index * size}")
        return self.emit("ptr", f"getelementptr [{size} x i8], ptr {pointer.name}, i64 {index.name}")

    def load(self, type: str, pointer: Value, align: int | None = None) -> Value:
        """Elements from memory, aligned as one element unless ``align`` says."""
        return self.emit(type, f"load {type}, ptr {pointer.name}, align {align or _aligned(type)}")

    def store(self, x: Value, pointer: Value, align: int | None = None, *, stream: bool = False) -> None:
        """Elements to memory; ``stream``: past the caches (needs a vector's alignment)."""
        hint = ", !nontemporal !{i32 1}" if stream else ""
        self.line(f"store {x.type} {x.name}, ptr {pointer.name}, align {align or _aligned(x.type)}{hint}")

    def load_masked(self, type: str, pointer: Value, mask: Value, other: Value | None = None) -> Value:
        """Lanes of ``mask`` from memory, the rest from ``other`` (by default zero); the rest is not touched."""
        filler = other or Value(self, type, "zeroinitializer")
        align = self.constant("i32", _aligned(type))
        return self.intrinsic("masked.load", type, pointer, align, mask, filler, over=type)

    def store_masked(self, x: Value, pointer: Value, mask: Value) -> None:
        """Lanes of ``mask`` to memory; the rest is not touched."""
        self.intrinsic("masked.store", "void", x, pointer, self.constant("i32", _aligned(x.type)), mask)

    def gather(self, type: str, pointers: Value, mask: Value, other: Value | None = None) -> Value:
        """Each lane of ``mask`` from its own place, the rest from ``other`` (by default zero)."""
        filler = other or Value(self, type, "zeroinitializer")
        align = self.constant("i32", _aligned(type))
        return self.intrinsic("masked.gather", type, pointers, align, mask, filler, over=type)

    def scatter(self, x: Value, pointers: Value, mask: Value) -> None:
        """Each lane of ``mask`` to its own place."""
        self.intrinsic("masked.scatter", "void", x, pointers, self.constant("i32", _aligned(x.type)), mask)

    def prefetch(self, pointer: Value, *, write: bool = False) -> None:
        """Ask the caches for the line at ``pointer``; any address will do."""
        how = [self.constant("i32", n) for n in (int(write), 3, 1)]
        self.intrinsic("prefetch", "void", pointer, *how)

    def hidden(self, x: Value) -> Value:
        """An integer that LLVM does not know anything of."""
        return self.emit(x.type, f'call {x.type} asm "", "=r,0"({x.type} {x.name})')

    def lanes_below(self, count: Value | int, lanes: int, type: str = "i64") -> Value:
        """A mask of the first ``count`` (an ``i64``) of ``lanes`` lanes, compared as numbers of ``type``.

        LLVM does not learn a count that is known. With a mask of one lane of a register, LLVM 22 takes the other lanes
        of what is computed from masked loads for zeros, though ``0 / 0`` is NaN, and leaves out the selection.

        Numbers are at least so wide that they fill a register of 16 bytes: AVX-512 compares whole registers, LLVM 22
        clears the bits of the lanes that a narrower vector hasn't, and forgets that where the mask is spilled. A masked
        store of eight bytes then writes sixteen.
        """
        if isinstance(count, int):
            count = self.hidden(Value(self, "i64", str(count)))
        if bits_of(type) * lanes < 128:
            type = f"i{min(64, 128 // lanes)}"
        return self.constants(type, range(lanes)).ult(self.splat(count.convert(type), lanes))

    # --- control ---

    def label(self, name: str) -> None:
        """Begin the block ``name`` (without %), falling into it from the block before."""
        if not self._closed:
            self.line(f"br label %{name}")
        self._lines.append(f"{name}:")
        self._block = name
        self._closed = False

    def branch(self, name: str) -> None:
        self.line(f"br label %{name}")
        self._closed = True

    def branch_if(self, condition: Value, yes: str, no: str) -> None:
        """End the block: to ``yes`` where ``condition`` (an ``i1``) holds, else to ``no``."""
        self.line(f"br i1 {condition.name}, label %{yes}, label %{no}")
        self._closed = True

    def switch(self, x: Value, cases: Sequence[tuple[int, str]], other: str) -> None:
        """End the block: to the label of the case that ``x`` (an integer) equals, else to ``other``."""
        inside = " ".join(f"{x.type} {n}, label %{name}" for n, name in cases)
        self.line(f"switch {x.type} {x.name}, label %{other} [ {inside} ]")
        self._closed = True

    @property
    def block(self) -> str:
        """The name of the block that is being written."""
        return self._block

    def ret(self, x: Value | None = None) -> None:
        self.line("ret void" if x is None else f"ret {x.type} {x.name}")
        self._closed = True

    @contextmanager
    def loop(
        self,
        lo: Value | int,
        hi: Value | int,
        step: Value | int = 1,
        carry: Sequence[Value] = (),
        *,
        unroll: int | None = None,
    ) -> Generator[Loop]:
        """``for index in range(lo, hi, step)`` over ``i64``, with values carried from turn to turn.

        Inside, ``loop.index`` and ``loop.carried`` are this turn's, and ``loop.next(...)`` says the next turn's; after
        it, ``loop.results`` are the last ones (``carry`` where there was no turn). ``unroll`` is accepted by LLVM's
        passes only: emitters that want copies of a body write them.
        """
        start, stop = self.value(lo, "i64"), self.value(hi, "i64")
        stride = self.value(step, "i64")
        number_ = self.fresh("l")[1:]
        head, body, end = f"{number_}.head", f"{number_}.body", f"{number_}.end"
        before = self._block
        self.label(head)
        index = Value(self, "i64", f"%{number_}.i")
        carried = tuple(Value(self, c.type, f"%{number_}.c{i}") for i, c in enumerate(carry))
        place = len(self._lines)
        self._lines.append("")
        self.line(f"%{number_}.more = icmp slt i64 {index.name}, {stop.name}")
        self.line(f"br i1 %{number_}.more, label %{body}, label %{end}")
        self._closed = True
        self._lines.append(f"{body}:")
        self._block, self._closed = body, False
        loop = Loop(index, carried)
        yield loop
        if loop.nexts is None or len(loop.nexts) != len(carried):
            raise AssertionError(f"{self.name}: a loop carries {len(carried)} values; next() says which follow")
        self.line(f"%{number_}.next = add nsw i64 {index.name}, {stride.name}")
        latch = self._block
        self.line(f"br label %{head}")
        phis = [f"  {index.name} = phi i64 [ {start.name}, %{before} ], [ %{number_}.next, %{latch} ]"]
        for c, first, following in zip(carried, carry, loop.nexts, strict=True):
            phis.append(f"  {c.name} = phi {c.type} [ {first.name}, %{before} ], [ {following.name}, %{latch} ]")
        self._lines[place] = "\n".join(phis)
        self._lines.append(f"{end}:")
        self._block, self._closed = end, False
        loop.results = carried

    @contextmanager
    def if_(self, condition: Value, rarely: bool = False) -> Generator[None]:
        """What is written inside runs where ``condition`` (an ``i1``) holds.

        ``rarely``: it hardly ever does, so code there saves registers that others want to keep.
        """
        number_ = self.fresh("b")[1:]
        weights = ', !prof !{!"branch_weights", i32 1, i32 2000}' if rarely else ""
        self.line(f"br i1 {condition.name}, label %{number_}.then, label %{number_}.end{weights}")
        self._closed = True
        self._lines.append(f"{number_}.then:")
        self._block, self._closed = f"{number_}.then", False
        yield
        if not self._closed:
            self.line(f"br label %{number_}.end")
        self._lines.append(f"{number_}.end:")
        self._block, self._closed = f"{number_}.end", False

    def phi(self, type: str, incoming: Sequence[tuple[Value, str]]) -> Value:
        """A value by the block that one comes from."""
        inside = ", ".join(f"[ {v.name}, %{block} ]" for v, block in incoming)
        return self.emit(type, f"phi {type} {inside}")


@final
class LlvmModule:
    """Functions that are compiled together; ``uses``: how often they need code that they may share, by what it is."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.uses: Counter[Any] = Counter()
        # Helpers that several kernels bring: by the time of the text they are what is there already.
        self._doubles: list[Function] = []
        self.globals: dict[str, str] = {}

    def add(self, function: Function) -> None:
        if self.functions.setdefault(function.name, function) is not function:
            self._doubles.append(function)

    def take(self, other: LlvmModule, symbol: str, name: str, *, inlined: bool = False) -> None:
        """The functions of ``other``; the one that is called ``symbol`` becomes the helper ``name`` of this module."""
        for function in (*other.functions.values(), *other._doubles):
            if function.name == symbol:
                function.to_helper(name, inlined=inlined)
            self.add(function)
        _merge("global", self.globals, other.globals)

    @property
    def declarations(self) -> dict[str, str]:
        """What functions call, by symbol; that of a function which the module has is checked against it."""
        found = {f.name: f.declaration for f in self.functions.values()}
        for f in self.functions.values():
            _merge("function", found, f.declarations)
        return found

    @property
    def text(self) -> str:
        constants = dict(self.globals)
        defined = {f.name: f.text for f in self.functions.values()}
        for f in self._doubles:
            _merge("function", defined, {f.name: f.text})
        for f in self.functions.values():
            _merge("global", constants, f.globals)
        outside = [text for name, text in self.declarations.items() if name not in self.functions]
        return "\n".join([*constants.values(), *defined.values(), *outside])


def _declared(name: str, result: str, parameters: Sequence[str]) -> str:
    return f"declare {result} @{name}({', '.join(parameters)})"


def _merge(what: str, known: dict[str, str], more: dict[str, str]) -> None:
    """Add ``more`` to ``known``; one name means one text."""
    for name, text in more.items():
        if known.setdefault(name, text) != text:
            raise _differs(what, name, text, known[name])


def _differs(what: str, name: str, got: str, expected: str) -> LoweringError:
    return LoweringError(f"cpu: {what} {name} is declared twice and differently", got=got, expected=expected)


@lru_cache(None)
def _aligned(type: str) -> int:
    return max(bits_of(element(type)) // 8, 1)
