"""The files of a compiled program: the C++ project for Poplar, and the program of tiles as text.

Knows programs of tiles, no target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nxjax.lower.ipu.formats import poplar
from nxjax.lower.ipu.program import (
    Call,
    Copy,
    Execute,
    IpuProgram,
    Repeat,
    Step,
    Switch,
    Variable,
    VariableView,
    While,
)


def files(program: IpuProgram, name: str) -> dict[str, bytes]:
    """File name to bytes; the first is the artifact itself.

    Args:
        program: what to write.
        name: of its files, without a suffix.
    """
    project = {f"{name}.poplar/{file}": data for file, data in poplar.write(program).items()}
    return {f"{name}.ipu.txt": text(program).encode(), **project}


def text(program: IpuProgram) -> str:
    """The program in words: variables with where they lie, then steps."""
    names = _names(program)
    s = program.system
    lines = [f"program {program.name or 'f'} for {s.title}: {s.ipus} x {s.chip.tiles} tiles", ""]
    for v in program.variables():
        tiles = sorted({(int(p.tiles.min()), int(p.tiles.max())) for p in v.pieces if len(p.tiles)})
        on = f" on tiles {tiles[0][0]} to {max(t[1] for t in tiles)}" if tiles else ""
        at = f"  # {v.source}" if v.source else ""
        lines.append(f"{v.role:<9} {names[id(v)]}: {v.dtype.name}{list(v.shape)}{on}{at}")
    lines += ["", *_steps(program.steps, names, "")]
    for name, steps in program.functions.items():
        lines += ["", f"function {name}:", *_steps(steps, names, "  ")]
    return "\n".join([*lines, ""])


def _names(program: IpuProgram) -> dict[int, str]:
    found: dict[int, str] = {}
    used: dict[str, int] = {}
    for v in program.variables():
        n = used[v.name] = used.get(v.name, 0) + 1
        found[id(v)] = v.name if n == 1 else f"{v.name}'{n}"
    return found


def _view(view: VariableView, names: dict[int, str]) -> str:
    name = names[id(view.variable)]
    return name if view.whole else f"{name}[{view.offset} + {list(view.shape)} by {list(view.strides)}]"


def _steps(steps: Sequence[Step], names: dict[int, str], indent: str) -> Iterator[str]:
    name = lambda v: names[id(v)]

    def held(head: str, body: Sequence[Step]) -> Iterator[str]:
        yield f"{indent}{head}"
        yield from _steps(body, names, indent + "  ")

    for step in steps:
        match step:
            case Execute():
                at = f"  # {step.source}" if step.source else ""
                yield f"{indent}execute {step.name}{at}"
                for g in step.groups:
                    edges = ", ".join(f"{f}: {_edge(e.variable, e.boxes.sizes, names)}" for f, e in g.edges.items())
                    yield f"{indent}  {len(g.tiles)} x {g.codelet.name}({edges})"
            case Copy():
                at = f"  # {step.source}" if step.source else ""
                for s, t in step.pairs:
                    yield f"{indent}copy {_view(s, names)} -> {_view(t, names)}{at}"
            case Repeat(count=count, body=body):
                yield from held(f"repeat {count}:", body)
            case While(condition=condition, predicate=predicate, body=body):
                yield from held("condition:", condition)
                yield from held(f"while {name(predicate)}:", body)
            case Switch(index=index, branches=branches):
                for i, b in enumerate(branches):
                    yield from held(f"if {name(index)} == {i}:", b)
            case Call(function=function):
                yield f"{indent}call {function}"


def _edge(v: Variable, sizes: tuple[int, ...], names: dict[int, str]) -> str:
    return f"{names[id(v)]}{list(sizes)}"
