"""An IPU program as a Poplar C++ project: graph, codelets, streams, tables of places, and the commands that build it.

Knows the text of the project; running it is a backend's. What would be thousands of equal lines (where each box of a
tensor lies, a vertex per tile) is in ``tables.bin``, which the program reads when it builds its graph.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu.spec import Codelet
from nxjax.lower.ipu.program import (
    Boxes,
    Call,
    Copy,
    Execute,
    Group,
    IpuProgram,
    MappedRegion,
    NDArray,
    Repeat,
    Shape,
    Step,
    Switch,
    Variable,
    VariableView,
    While,
)

# NumPy dtype -> Poplar's type, and the C++ type of its elements in a table.
_TYPES: Final = {
    "float32": ("FLOAT", "float"),
    "float16": ("HALF", "std::uint16_t"),
    "int32": ("INT", "std::int32_t"),
    "uint32": ("UNSIGNED_INT", "std::uint32_t"),
    "int16": ("SHORT", "std::int16_t"),
    "uint16": ("UNSIGNED_SHORT", "std::uint16_t"),
    "int8": ("SIGNED_CHAR", "signed char"),
    "uint8": ("UNSIGNED_CHAR", "unsigned char"),
    "bool": ("BOOL", "char"),
}

_BUILD: Final = """#!/bin/sh
# Builds ./program against the Poplar SDK whose enable.sh has been sourced.
set -e
cd "$(dirname "$0")"
popc --target={target} -O3 codelet_*.cpp -o codelets.gp
"${{CXX:-g++}}" -std=c++17 -O1 main.cpp -lpoplar -o program
"""

_README: Final = """# {name}

A program for {system}, written by nxjax for Graphcore's Poplar SDK.

    . /path/to/poplar/enable.sh
    sh build.sh
    ./program --device=ipu --data=.       # or model, cpu, offline

Inputs are read from `in_<i>.bin`, results written to `out_<i>.bin`, raw elements in row-major order:

{signature}
"""


@final
class _Writer:
    """Text and tables, as they grow."""

    def __init__(self, program: IpuProgram) -> None:
        self.program = program
        self.lines: list[str] = []
        self.tables: list[bytes] = []
        self._known: dict[bytes, int] = {}
        self._names: dict[int, str] = {id(v): f"v{i}" for i, v in enumerate(program.variables())}
        self._functions = {name: f"function_{i}" for i, name in enumerate(program.functions)}
        self._sets = 0
        self._blocks = 0

    def table(self, data: NDArray) -> int:
        """The number of the table with these bytes; equal ones are kept once."""
        raw = np.ascontiguousarray(data).tobytes()
        if raw not in self._known:
            self._known[raw] = len(self.tables)
            self.tables.append(raw)
        return self._known[raw]

    def name(self, v: Variable) -> str:
        return self._names[id(v)]

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    # --- declarations ---

    def variables(self) -> None:
        for v in self.program.variables():
            kind, element = _TYPES[v.dtype.name]
            pieces = "{" + ", ".join(map(self.piece, v.pieces)) + "}"
            label = f"{_string(v.name)}, "
            if v.role == "constant" and v.value is not None:
                made = f"s.constant<{element}>(poplar::{kind}, {v.size}, {label}{self.table(v.value)}, {pieces})"
            else:
                made = f"s.variable(poplar::{kind}, {v.size}, {label}{pieces})"
            self.line(f"poplar::Tensor {self.name(v)} = {made};  // {_shape(v.shape)}")

    def piece(self, p: MappedRegion) -> str:
        return f"{{{self.boxes(p.boxes)}, {self.table(p.tiles.astype(np.int32))}}}"

    def boxes(self, b: Boxes) -> str:
        offsets = self.table(b.offsets.astype(np.int64))
        return f"{{{offsets}, {_list(b.sizes)}, {_list(b.strides)}}}"

    # --- steps ---

    def block(self, steps: Sequence[Step], name: str) -> str:
        """Steps as a sequence of that name."""
        self.line(f"poplar::program::Sequence {name};")
        for step in steps:
            self.step(step, name)
        return name

    def fresh(self) -> str:
        self._blocks += 1
        return f"block_{self._blocks}"

    def step(self, step: Step, to: str) -> None:
        source = getattr(step, "source", None)
        if source is not None:
            self.line(f"// {' '.join(str(source).split())}")
        match step:
            case Execute():
                self.execute(step, to)
            case Copy():
                for a, b in step.pairs:
                    if a.size:
                        self.line(f"{to}.add(poplar::program::Copy({self.view(a)}, {self.view(b)}));")
            case Repeat():
                body = self.block(step.body, self.fresh())
                self.line(f"{to}.add(poplar::program::Repeat({step.count}, {body}));")
            case While():
                condition, body = (self.block(b, self.fresh()) for b in (step.condition, step.body))
                predicate = f"{self.name(step.predicate)}[0]"
                self.line(f"{to}.add(poplar::program::RepeatWhileTrue({condition}, {predicate}, {body}));")
            case Switch():
                names = [self.block(b, self.fresh()) for b in step.branches]
                cases = ", ".join(f"{{{i}, {n}}}" for i, n in enumerate(names[:-1]))
                index = f"{self.name(step.index)}[0]"
                self.line(f"{to}.add(poplar::program::Switch({index}, {{{cases}}}, {names[-1]}));")
            case Call():
                self.line(f"{to}.add(poplar::program::Call({self._functions[step.function]}));")

    def execute(self, step: Execute, to: str) -> None:
        self._sets += 1
        cs = f"set_{self._sets}"
        self.line(f"poplar::ComputeSet {cs} = s.graph.addComputeSet({_string(step.name)});")
        for g in step.groups:
            self.group(g, cs)
        self.line(f"{to}.add(poplar::program::Execute({cs}));")

    def group(self, g: Group, cs: str) -> None:
        if any(0 in e.boxes.sizes for e in g.edges.values()) and not len(g.tiles):
            return
        edges = ", ".join(
            f"{{{_string(f.name)}, {self.name(g.edges[f.name].variable)}, {self.boxes(g.edges[f.name].boxes)}}}"
            for f in g.codelet.fields
        )
        kinds = [self.attributes(g, ctype) for ctype in ("unsigned", "int", "float")]
        cycles = g.codelet.cycles(g.sizes(), g.attributes, self.program.system.chip)
        tiles = self.table(g.tiles.astype(np.int32))
        self.line(f"s.vertices({cs}, {_string(g.codelet.name)}, {tiles}, {cycles}, {{{edges}}}, {', '.join(kinds)});")

    def attributes(self, g: Group, ctype: str) -> str:
        dtype = {"unsigned": np.uint32, "int": np.int32, "float": np.float32}[ctype]
        found: list[str] = []
        for a in g.codelet.attributes:
            if a.ctype != ctype:
                continue
            value: Any = np.asarray(g.attributes[a.name])
            if value.ndim:
                found.append(f"{{{_string(a.name)}, {ctype}(0), {self.table(value.astype(dtype))}}}")
            else:
                # Floats by their bits: a table of one keeps infinities and every digit.
                single = ctype == "float"
                text = f"0.0f, {self.table(np.full(len(g.tiles), value, dtype))}" if single else _integer(value, ctype)
                found.append(f"{{{_string(a.name)}, {text}}}")
        return "{" + ", ".join(found) + "}"

    def view(self, v: VariableView) -> str:
        if v.whole:
            return self.name(v.variable)
        return f"nx::box({self.name(v.variable)}, {v.offset}, {_list(v.shape)}, {_list(v.strides)})"

    # --- the whole ---

    def main(self) -> str:
        p = self.program
        self.line(f"nx::Session s(argc, argv, {_string(p.system.chip.version)}, {p.system.ipus});")
        self.line('s.graph.addCodelets(s.option("codelets", "codelets.gp"));')
        self.variables()
        for name, symbol in self._functions.items():
            body = self.block(p.functions[name], self.fresh())
            self.line(f"poplar::Function {symbol} = s.graph.addFunction({body});")
        # States come once, stay on the chip from run to run, and leave once.
        self.line("poplar::program::Sequence load, steps, save;")
        for v in p.inputs:
            to = "load" if v.role == "state" else "steps"
            self.line(f"s.input({to}, {self.name(v)}, {v.nbytes});")
        for step in p.steps:
            self.step(step, "steps")
        for v in p.outputs:
            to = "save" if v.role == "state" else "steps"
            self.line(f"s.output({to}, {self.name(v)}, {v.nbytes});")
        flags = '{{"debug.instrument", s.option("profile", "").size() ? "true" : "false"}}'
        self.line(f"return s.run({{load, steps, save}}, {flags});")
        head = [
            f"// {p.name}: {p.system.title}.",
            '#include "nx_graph.hpp"',
            "",
            "int main(int argc, char **argv) try {",
        ]
        tail = [
            "} catch (const std::exception &error) {",
            "  std::cerr << error.what() << std::endl;",
            "  return 1;",
            "}",
            "",
        ]
        return "\n".join([*head, *self.lines, *tail])


def write(program: IpuProgram) -> dict[str, bytes]:
    """The files of the project, name -> bytes: ``main.cpp`` first.

    >>> from nxjax.kernels.ipu.chip import system
    >>> from nxjax.lower.ipu.lower import lower
    >>> p = lower(nx.make_jaxpr(lambda x: nx.tanh(x))(np.ones(6, np.float32)), system("bow"))
    >>> sorted(write(p))
    ['README.md', 'build.sh', 'codelet_0.cpp', 'main.cpp', 'nx_graph.hpp', 'tables.bin']
    """
    writer = _Writer(program)
    main = writer.main()
    signature = [
        f"    {kind}_{i}.bin  {v.dtype.name}{list(v.shape)}"
        for kind, variables in (("in", program.inputs), ("out", program.outputs))
        for i, v in enumerate(variables)
    ]
    system = program.system
    readme = _README.format(name=program.name or "program", system=system.title, signature="\n".join(signature))
    return {
        "main.cpp": main.encode(),
        **{name: text.encode() for name, text in codelets(program.codelets()).items()},
        "nx_graph.hpp": (files("nxjax.lower.ipu.formats") / "poplar" / "nx_graph.hpp").read_bytes(),
        "tables.bin": b"".join(struct.pack("<Q", len(t)) + t for t in writer.tables),
        "build.sh": _BUILD.format(target=system.chip.version).encode(),
        "README.md": readme.encode(),
    }


def codelets(found: Sequence[Codelet]) -> dict[str, str]:
    """File name -> C++ text, a file for each codelet: their helpers of one name may differ."""
    return {f"codelet_{i}.cpp": f"// {c.name}\n{c.source}" for i, c in enumerate(found)}


def _list(values: Shape) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _shape(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _integer(value: Any, ctype: str) -> str:
    return f"{int(value)}u" if ctype == "unsigned" else str(int(value))


def signature(program: IpuProgram) -> Mapping[str, list[str]]:
    """Names of the files of inputs and outputs, in order."""
    return {
        "inputs": [f"in_{i}.bin" for i in range(len(program.inputs))],
        "outputs": [f"out_{i}.bin" for i in range(len(program.outputs))],
    }
