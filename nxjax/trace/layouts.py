"""Which meshes and shardings a program names itself. Knows no op."""

from __future__ import annotations

from collections.abc import Iterator

from nxjax.trace.mesh import BaseMesh
from nxjax.trace.program import Program
from nxjax.trace.sharding import Sharding


def program_layouts(program: Program) -> tuple[BaseMesh | Sharding, ...]:
    """The meshes and shardings among the parameters of a program's equations, at any depth; kept with the program."""
    return program.derive("layouts", lambda: tuple(dict.fromkeys(_named(program))))


def _named(program: Program) -> Iterator[BaseMesh | Sharding]:
    for e in program.equations:
        yield from (v for v in e.params.values() if isinstance(v, (BaseMesh, Sharding)))
        for inner in e.programs():
            yield from program_layouts(inner)
