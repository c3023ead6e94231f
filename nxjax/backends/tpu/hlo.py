"""The compiler's optimized program, read from its text: instructions, what they give, and the user's line each is from.

Knows HLO's text alone. A computation that another calls (a fusion's body, a loop's) is one of `HloModule.computations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from nxjax.backends.tpu.layout import Shape, shapes
from nxjax.config.forks import cached_property

_COMPUTATION: Final = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
_INSTRUCTION: Final = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE: Final = re.compile(r"([a-z][\w\-]*)\(")
_OPERAND: Final = re.compile(r"%([\w.\-]+)")
_ENTRY_LAYOUT: Final = "entry_computation_layout={"
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
# Instructions that only name what is there already.
FREE: Final = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "copy-start", "copy-done", "while",
     "conditional", "call", "async-start", "async-done", "async-update", "partition-id", "opt-barrier")
)  # fmt: skip


@final
@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name, opcode: as HLO has them.
        results: shapes of what it gives, tuples flat.
        operands: names of instructions of the same computation.
        attributes: the rest of its line.
        at: (file, line) of the user's code, or None.
        scope: the op's name there, with its named scopes.
        literal: what stands where operands do: a constant's value, a parameter's number.
        root: it is what its computation gives.
    """

    name: str
    opcode: str
    results: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    at: tuple[str, int] | None
    scope: str
    literal: str = ""
    root: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of what it gives, padded."""
        return sum(s.padded for s in self.results)

    @property
    def target(self) -> str:
        """What a custom call calls."""
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found[1] if found else ""

    @property
    def called(self) -> tuple[str, ...]:
        """Computations that it calls."""
        listed = re.findall(r"(?:calls|body|condition|to_apply)=%([\w.\-]+)", self.attributes)
        many = re.search(r"branch_computations=\{([^}]*)\}", self.attributes)
        return (*listed, *(_OPERAND.findall(many[1]) if many else ()))

    def computation(self, kind: str) -> str:
        """The name of its ``body`` or ``condition``; empty where it has none."""
        found = re.search(rf"\b{kind}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else ""

    @property
    def cycles(self) -> int:
        """The compiler's estimate for this instruction alone; 0 where it has none."""
        found = _CYCLES.search(self.attributes)
        return int(found[1]) if found else 0


@final
class HloModule:
    """An optimized module.

    Attributes:
        text: all of it.
        arguments, results: shapes of the entry's.
        computations: name -> instructions, in the order they run.
        entry: the name of the one that is run.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.arguments, self.results = _entry_layout(text)
        self._where = _Places(text)
        self.computations: dict[str, list[Instruction]] = {}
        self.entry = ""
        current: list[Instruction] = []
        for line in text.splitlines():
            if found := _INSTRUCTION.match(line):
                current.append(self._instruction(found[2], line[found.end() :], bool(found[1])))
            elif line and not line[0].isspace() and (head := _COMPUTATION.match(line)):
                current = self.computations[head[2]] = []
                if head[1]:
                    self.entry = head[2]

    def _instruction(self, name: str, rest: str, root: bool) -> Instruction:
        types, rest = _type(rest)
        found = _OPCODE.match(rest)
        opcode = found[1] if found else ""
        inside, attributes = _parenthesized(rest[found.end() - 1 :] if found else "")
        at, scope = self._where.of(attributes)
        literal = inside.strip() if opcode in ("constant", "parameter") else ""
        return Instruction(
            name, opcode, tuple(shapes(types)), tuple(_OPERAND.findall(inside)), attributes, at, scope, literal, root
        )  # fmt: skip

    def main(self) -> list[Instruction]:
        """The entry's own instructions."""
        return self.computations.get(self.entry, [])

    @cached_property
    def fused(self) -> frozenset[str]:
        """Computations that run inside of one instruction: they move nothing through memory."""
        return frozenset(
            c for i in self.everything() if i.opcode == "fusion" or "to_apply=" in i.attributes for c in i.called
        )

    def everything(self) -> Iterator[Instruction]:
        """Every instruction of every computation."""
        for found in self.computations.values():
            yield from found

    def scheduled(self) -> Iterator[Instruction]:
        """The instructions that run one after another, each body of a loop once, without the insides of fusions."""
        inside = self.inside
        for name, found in self.computations.items():
            if name not in inside:
                yield from found

    @cached_property
    def inside(self) -> frozenset[str]:
        """The fused computations and what they call in turn."""
        found, new = set(self.fused), set(self.fused)
        while new:
            new = {c for n in new for i in self.computations.get(n, ()) for c in i.called} - found
            found |= new
        return frozenset(found)


def _entry_layout(text: str) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    head = text[: text.find("\n")]
    at = head.find(_ENTRY_LAYOUT)
    if at < 0:
        return (), ()
    inside, rest = _parenthesized(head[at + len(_ENTRY_LAYOUT) :])
    arrow = rest.find("->")
    out, _ = _type(rest[arrow + 2 :])
    return tuple(shapes(inside)), tuple(shapes(out))


def _parenthesized(text: str) -> tuple[str, str]:
    """What stands between the first parenthesis, which begins the text, and its partner; and what follows."""
    depth = 0
    for i, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if not depth:
                return text[1:i], text[i + 1 :]
    return text[1:], ""


def _type(text: str) -> tuple[str, str]:
    """The type at the beginning of a text, a tuple's whole, and what follows."""
    text = text.lstrip()
    if text.startswith("("):
        inside, rest = _parenthesized(text)
        return inside, rest.lstrip()
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if (c in " ," and not depth) or depth < 0:
            return text[:i], text[i:].lstrip()
    return text, ""


@final
class _Places:
    """The tables of files, functions, locations and frames at the top of a module, which metadata points into."""

    def __init__(self, text: str) -> None:
        self.files: dict[str, str] = {}
        self.frames: dict[str, str] = {}
        self.locations: dict[str, tuple[str, int]] = {}
        table = ""
        for line in text.splitlines()[1:]:
            if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
                table = line
            elif not line.strip():
                continue
            elif not line[0].isdigit():
                break
            else:
                number, _, rest = line.partition(" ")
                if table == "FileNames":
                    self.files[number] = rest.strip('"')
                elif table == "FileLocations":
                    at = dict(re.findall(r"(\w+)=(\d+)", rest))
                    self.locations[number] = (self.files.get(at.get("file_name_id", ""), ""), int(at.get("line", 0)))
                elif table == "StackFrames" and (found := re.search(r"file_location_id=(\d+)", rest)):
                    self.frames[number] = found[1]

    def of(self, attributes: str) -> tuple[tuple[str, int] | None, str]:
        start = attributes.find("metadata={")
        if start < 0:
            return None, ""
        text = attributes[start:].split("}, backend_config")[0]
        name = re.search(r'op_name="([^"]*)"', text)
        scope = name[1] if name else ""
        file, line = re.search(r'source_file="([^"]*)"', text), re.search(r"source_line=(\d+)", text)
        at: tuple[str, int] | None = (file[1], int(line[1])) if file and line else None
        if at is None and (frame := re.search(r"stack_frame_id=(\d+)", text)):
            at = self.locations.get(self.frames.get(frame[1], ""))
        return (None if at is None or at[0] in ("", "-") else at), scope
