"""AIE MLIR text read back to a design: the operations that designs here are written in, and no others.

A small reader of our own, so that what is checked and run is the text that users get and not what it was made from.
Every refusal names the line. Checks spelling and types of uses; everything else is `verify`'s.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, TypeVar, cast, final

from nxjax.errors import ProgramError
from nxjax.kernels.aie.spec import DTYPES, MemRef
from nxjax.lower.aie.design import (
    AcquireOp,
    BufferOp,
    CallOp,
    CoreOp,
    Design,
    Dimensions,
    DmaMemcpyOp,
    DmaWaitOp,
    ForOp,
    FuncOp,
    ObjectFifoLinkOp,
    ObjectFifoOp,
    Port,
    ReleaseOp,
    RuntimeSequenceOp,
    Statement,
    TileOp,
)  # fmt: skip

_T = TypeVar("_T")
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)|(?P<string>"[^"\n]*")|(?P<arrow>->)|(?P<memref>memref<[^<>\n]*>)
    |(?P<name>[%@!]?[A-Za-z_][\w.$]*|%\d+)|(?P<number>-?\d+)|(?P<mark>[(){}\[\]<>=,:])""",
    re.VERBOSE,
)
_KINDS: Final = ("memref", "string", "arrow", "name", "number", "mark")


def parse(text: str) -> Design:
    """The design of a module with one ``aie.device``.

    Raises:
        ProgramError: an operation or spelling that designs here do not have; the message names the line.

    >>> try:
    ...     parse("module { }")
    ... except ProgramError as error:
    ...     print(error.what)
    AIE MLIR, line 1: 'aie.device' should stand here
    """
    return _Reader(text).module()


@final
class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, int]] = []
        at, line = 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ProgramError(f"AIE MLIR, line {line}: no word of the language", got=text[at : at + 20])
            if found.lastgroup in _KINDS:
                self.tokens.append((found[0], line))
            line += found[0].count("\n")
            at = found.end()
        self.at = 0
        self.tiles: dict[str, TileOp] = {}
        self.functions: dict[str, FuncOp] = {}
        self.buffers: dict[str, BufferOp] = {}
        self.fifos: dict[str, ObjectFifoOp] = {}
        self.links: list[ObjectFifoLinkOp] = []
        self.cores: list[CoreOp] = []
        self.sequences: list[RuntimeSequenceOp] = []
        self.lines: dict[str, int] = {}

    # --- words ---

    @property
    def word(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else "the end"

    def refuse(self, why: str, got: object = None) -> NoReturn:
        line = self.tokens[min(self.at, len(self.tokens) - 1)][1] if self.tokens else 1
        raise ProgramError(f"AIE MLIR, line {line}: {why}", got=repr(self.word) if got is None else got)

    def take(self, *wanted: str) -> str:
        """The next word, one of ``wanted`` if any are given."""
        word = self.word
        if self.at >= len(self.tokens) or (wanted and word not in wanted):
            self.refuse(f"{' or '.join(map(repr, wanted)) or 'a word'} should stand here")
        self.at += 1
        return word

    def all(self, *words: str) -> None:
        for w in words:
            self.take(w)

    def has(self, word: str) -> bool:
        """Whether the next word is this one; then it is taken."""
        if self.word != word:
            return False
        self.at += 1
        return True

    def symbol(self, sign: str) -> str:
        word = self.word
        if not word.startswith(sign) or len(word) < 2:
            self.refuse(f"a name with {sign} should stand here")
        self.at += 1
        return word[1:]

    def number(self) -> int:
        word = self.word
        if not re.fullmatch(r"-?\d+", word):
            self.refuse("a number should stand here")
        self.at += 1
        return int(word)

    def numbers(self) -> tuple[int, ...]:
        self.take("[")
        found: list[int] = []
        while not self.has("]"):
            if found:
                self.take(",")
            found.append(self.number())
        return tuple(found)

    def names(self, opens: str, closes: str, sign: str) -> tuple[str, ...]:
        self.take(opens)
        found: list[str] = []
        while not self.has(closes):
            if found:
                self.take(",")
            found.append(self.symbol(sign))
        return tuple(found)

    def memref(self) -> MemRef:
        word = self.word
        *shape, element = word[7:-1].split("x") if word.startswith("memref<") else ("",)
        if element not in DTYPES or not shape or not all(n.isdigit() and int(n) > 0 for n in shape):
            self.refuse("a memref of fixed sizes and an element type that is known should stand here")
        self.at += 1
        return MemRef(tuple(map(int, shape)), element)

    def attribute(self, name: str) -> str:
        """``name = "text"``."""
        self.all(name, "=")
        word = self.take()
        if not word.startswith('"'):
            self.at -= 1
            self.refuse("a text in quotes should stand here")
        return word[1:-1]

    def typed(self, type_: str) -> int:
        value = self.number()
        self.all(":", type_)
        return value

    def define(self, table: dict[str, _T], name: str, value: _T, what: str) -> None:
        if name in table:
            self.refuse(f"a second {what} of this name", name)
        self.lines[name] = self.tokens[self.at - 1][1]
        table[name] = value

    # --- operations ---

    def module(self) -> Design:
        self.all("module", "{", "aie.device", "(")
        device = self.take()
        self.all(")", "{")
        while not self.has("}"):
            self.operation()
        self.take("}")
        if self.at < len(self.tokens):
            self.refuse("nothing should follow the module")
        if len(self.sequences) != 1:
            self.refuse("a device has one runtime sequence", len(self.sequences))
        parts = [tuple(t.values()) for t in (self.functions, self.tiles, self.buffers, self.fifos)]
        functions, tiles, buffers, fifos = parts
        return Design(
            device,
            cast(tuple[FuncOp, ...], functions),
            cast(tuple[TileOp, ...], tiles),
            cast(tuple[BufferOp, ...], buffers),
            cast(tuple[ObjectFifoOp, ...], fifos),
            tuple(self.links),
            tuple(self.cores),
            self.sequences[0],
            self.lines,
        )

    def operation(self) -> None:
        word = self.word
        if word == "func.func":
            self.function()
        elif word == "aie.objectfifo":
            self.fifo()
        elif word == "aie.objectfifo.link":
            self.link()
        elif word in ("aie.runtime_sequence", "aiex.runtime_sequence"):
            self.sequence()
        elif word.startswith("%"):
            name = self.symbol("%")
            self.take("=")
            kind = self.take("aie.tile", "aie.buffer", "aie.core")
            (self.tile if kind == "aie.tile" else self.buffer if kind == "aie.buffer" else self.core)(name)
        else:
            self.refuse("an operation that designs here do not have")

    def function(self) -> None:
        self.all("func.func", "private")
        name = self.symbol("@")
        self.take("(")
        arguments: list[MemRef] = []
        while not self.has(")"):
            if arguments:
                self.take(",")
            arguments.append(self.memref())
        file = ""
        if self.has("attributes"):
            self.take("{")
            file = self.attribute("link_with")
            self.take("}")
        self.define(self.functions, name, FuncOp(name, tuple(arguments), file), "function")

    def tile(self, name: str) -> None:
        self.take("(")
        column = self.number()
        self.take(",")
        row = self.number()
        self.take(")")
        self.define(self.tiles, name, TileOp(name, column, row), "tile")

    def known_tile(self) -> str:
        name = self.symbol("%")
        if name not in self.tiles:
            self.refuse("a tile that is not declared", name)
        return name

    def buffer(self, name: str) -> None:
        self.take("(")
        tile = self.known_tile()
        self.all(")", "{")
        symbol = self.attribute("sym_name")
        if symbol != name:
            self.refuse("a buffer whose symbol is not its name", symbol)
        self.all("}", ":")
        type_ = self.memref()
        values = None
        if self.has("="):
            self.all("dense", "<")
            word = self.take()
            try:
                values = bytes.fromhex(word[3:-1] if word.startswith('"0x') else "?")
            except ValueError:
                self.refuse("bytes in hexadecimal should stand here", word[:24])
            if len(values) != type_.nbytes:
                self.refuse("a buffer's values are not of its size", f"{len(values)} bytes for {type_}")
            self.take(">")
        self.define(self.buffers, name, BufferOp(name, tile, type_, values), "buffer")

    def fifo(self) -> None:
        self.take("aie.objectfifo")
        name = self.symbol("@")
        self.take("(")
        producer = self.known_tile()
        steps: list[tuple[int, int]] = []
        if self.has("dimensionsToStream"):
            self.take("[")
            while not self.has("]"):
                if steps:
                    self.take(",")
                self.all("<", "size", "=")
                size = self.number()
                self.all(",", "stride", "=")
                steps.append((size, self.number()))
                self.take(">")
        self.take(",")
        at = self.at
        consumers = self.names("{", "}", "%")
        if any(c not in self.tiles for c in consumers):
            self.at = at
            self.refuse("a tile that is not declared", [c for c in consumers if c not in self.tiles])
        self.take(",")
        depth = self.typed("i32")
        self.all(")", ":", "!aie.objectfifo", "<")
        type_ = self.memref()
        self.take(">")
        dimensions: Dimensions = tuple(steps)
        self.define(self.fifos, name, ObjectFifoOp(name, producer, consumers, depth, type_, dimensions), "object fifo")

    def known_fifo(self) -> str:
        name = self.symbol("@")
        if name not in self.fifos:
            self.refuse("an object fifo that is not declared", name)
        return name

    def link(self) -> None:
        self.take("aie.objectfifo.link")
        sources = self.names("[", "]", "@")
        self.take("->")
        targets = self.names("[", "]", "@")
        for n in (*sources, *targets):
            if n not in self.fifos:
                self.refuse("an object fifo that is not declared", n)
        self.take("(")
        source_offsets, target_offsets = self.numbers(), self.numbers()
        self.take(")")
        self.links.append(ObjectFifoLinkOp(sources, targets, source_offsets, target_offsets))

    def core(self, name: str) -> None:
        self.take("(")
        tile = self.known_tile()
        self.all(")", "{")
        constants: dict[str, int] = {}
        values: dict[str, MemRef] = {b.name: b.type for b in self.buffers.values() if b.tile == tile}
        body = self.body(constants, values, "aie.end")
        self.all("}", "{")
        file = ""
        if self.word == "link_with":
            file = self.attribute("link_with")
            self.take(",")
        self.all("dynamic_objfifo_lowering", "=", "true", ",", "stack_size", "=")
        stack = self.typed("i32")
        self.take("}")
        if file:
            # Earlier releases name the object file here, not at the functions.
            for s in self.functions.values():
                self.functions[s.name] = FuncOp(s.name, s.arguments, file)
        self.lines[name] = self.tokens[self.at - 1][1]
        self.cores.append(CoreOp(tile, body, stack))

    def body(self, constants: dict[str, int], values: dict[str, MemRef], end: str) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while not self.has(end):
            word = self.word
            if word == "scf.for":
                found.append(self.loop(constants, values))
            elif word == "func.call":
                found.append(self.call(values))
            elif word == "aie.objectfifo.release":
                self.take()
                fifo = self.known_fifo()
                found.append(ReleaseOp(fifo, self.port()))
            elif word.startswith("%"):
                name = self.symbol("%")
                self.take("=")
                if name in constants or name in values:
                    self.refuse("a second value of this name", name)
                if self.take("arith.constant", "aie.objectfifo.acquire") == "arith.constant":
                    constants[name] = self.typed("index")
                else:
                    found.append(self.acquire(name, values))
            else:
                self.refuse("an operation that cores here do not have")
        return tuple(found)

    def port(self) -> Port:
        self.take("(")
        port = self.take("Produce", "Consume")
        self.take(",")
        if self.number() != 1:
            self.at -= 1
            self.refuse("cores here take one object at a time")
        self.take(")")
        return "Produce" if port == "Produce" else "Consume"

    def view(self, fifo: str) -> None:
        self.all("!aie.objectfifosubview", "<")
        at, type_ = self.at, self.memref()
        if type_ != self.fifos[fifo].type:
            self.at = at
            self.refuse(f"@{fifo} holds {self.fifos[fifo].type}")
        self.take(">")

    def acquire(self, view: str, values: dict[str, MemRef]) -> AcquireOp:
        fifo = self.known_fifo()
        port = self.port()
        self.take(":")
        self.view(fifo)
        name = self.symbol("%")
        self.all("=", "aie.objectfifo.subview.access")
        if self.symbol("%") != view:
            self.at -= 1
            self.refuse(f"the view %{view} should be accessed here")
        if self.numbers() != (0,):
            self.at -= 2
            self.refuse("cores here take one object at a time")
        self.take(":")
        self.view(fifo)
        self.take("->")
        at, type_ = self.at, self.memref()
        if type_ != self.fifos[fifo].type:
            self.at = at
            self.refuse(f"@{fifo} holds {self.fifos[fifo].type}")
        if name in values or view in values:
            self.refuse("a second value of this name", name)
        # A view is no buffer: no call takes it, since no function's argument is of no elements.
        values[name], values[view] = type_, MemRef((0,), type_.element)
        return AcquireOp(name, fifo, port)

    def call(self, values: dict[str, MemRef]) -> CallOp:
        self.take("func.call")
        name = self.symbol("@")
        if name not in self.functions:
            self.refuse("a function that is not declared", name)
        arguments = self.names("(", ")", "%")
        for a, t in zip(arguments, self.functions[name].arguments, strict=False):
            if values.get(a) != t:
                self.refuse(f"@{name} takes {t}", f"%{a}: {values.get(a, 'no such value')}")
        if len(arguments) != len(self.functions[name].arguments):
            self.refuse(f"@{name} takes {len(self.functions[name].arguments)} arguments", len(arguments))
        self.all(":", "(")
        for i, t in enumerate(self.functions[name].arguments):
            if i:
                self.take(",")
            self.take(str(t))
        self.all(")", "->", "(", ")")
        return CallOp(name, arguments)

    def loop(self, constants: dict[str, int], values: dict[str, MemRef]) -> ForOp:
        self.take("scf.for")
        self.symbol("%")
        self.take("=")
        ends: list[int] = []
        for before in ("", "to", "step"):
            if before:
                self.take(before)
            name = self.symbol("%")
            if name not in constants:
                self.refuse("a constant that is not declared", name)
            ends.append(constants[name])
        if (ends[0], ends[2]) != (0, 1):
            self.refuse("loops here go from 0 in steps of 1", ends)
        self.take("{")
        return ForOp(ends[1], self.body(dict(constants), dict(values), "}"))

    def sequence(self) -> None:
        self.take()
        name = self.symbol("@")
        self.take("(")
        arguments: dict[str, MemRef] = {}
        while not self.has(")"):
            if arguments:
                self.take(",")
            argument = self.symbol("%")
            self.take(":")
            arguments[argument] = self.memref()
        self.take("{")
        body: list[DmaMemcpyOp | DmaWaitOp] = []
        while not self.has("}"):
            if self.take("aiex.npu.dma_memcpy_nd", "aiex.npu.dma_wait") == "aiex.npu.dma_wait":
                self.all("{", "symbol", "=")
                body.append(DmaWaitOp(self.known_fifo()))
                self.take("}")
            else:
                body.append(self.copy(arguments))
        self.sequences.append(RuntimeSequenceOp(name, tuple(arguments.items()), tuple(body)))

    def copy(self, arguments: dict[str, MemRef]) -> DmaMemcpyOp:
        self.take("(")
        name = self.symbol("%")
        if name not in arguments:
            self.refuse("an argument that the sequence has not", name)
        four: list[tuple[int, int, int, int]] = []
        for _ in range(3):
            at, part = self.at, self.numbers()
            if len(part) != 4:
                self.at = at
                self.refuse("offsets, sizes and strides are four numbers each", part)
            four.append((part[0], part[1], part[2], part[3]))
        self.all(")", "{", "id", "=")
        id_ = self.typed("i64")
        token = False
        self.take(",")
        if self.has("issue_token"):
            self.take("=")
            token = self.take("true", "false") == "true"
            self.take(",")
        self.all("metadata", "=")
        fifo = self.known_fifo()
        self.all("}", ":")
        at, type_ = self.at, self.memref()
        if type_ != arguments[name]:
            self.at = at
            self.refuse(f"%{name} is {arguments[name]}")
        return DmaMemcpyOp(name, four[0], four[1], four[2], fifo, id_, token)
