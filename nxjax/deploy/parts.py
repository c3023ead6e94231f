"""A program that has ops without a form in any NPU file: cut into parts, those for the chip and those for the host.

A part for the chip is what the target makes of it alone. A part for the host is a StableHLO file, or where it has no
form there either, a program that only this process has. A plan, as JSON, says what reads what.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import By, digest
from nxjax.backends.target import Build, NpuTarget, Runner, Target, file_name
from nxjax.deploy.trace import IO, NDArray, Subject, stored_inputs
from nxjax.errors import LoweringError, NxError, UnsupportedOpsError
from nxjax.lower.macs import macs
from nxjax.lower.npu.builder import Unsupported, check_dtype
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import RefusedEquation, lower, prepared, refusals
from nxjax.lower.npu.ops import op_of
from nxjax.lower.partition.regions import Partition, Region, cut
from nxjax.lower.passes.fold import folded
from nxjax.lower.placement import Placement
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Atom, Equation, Literal, Program, Var

HOST: Final = "stablehlo"
_OTHERS: Final = "it is in a part of the program that the host computes"


@final
@dataclass(frozen=True)
class ProgramPart:
    """A region, what was made of it, and its graph if it is one for the chip."""

    region: Region
    build: Build
    graph: NpuGraph | None

    def given(self, values: Sequence[NDArray]) -> list[NDArray]:
        """Values as its inputs are stored."""
        return list(values) if self.graph is None else stored_inputs(self.graph.inputs, values)

    def taken(self, results: Sequence[NDArray]) -> list[NDArray]:
        """Its results as the program has them."""
        types = [v.type for v in self.region.outputs]
        if self.graph is not None:
            real = zip(self.graph.outputs, results, strict=True)
            results = [y if t.grid is None else t.grid.dequantize(y) for t, y in real]
        return [np.asarray(y).reshape(t.shape).astype(t.dtype) for y, t in zip(results, types, strict=True)]

    def meaning(self, values: Sequence[NDArray]) -> list[NDArray]:
        """The exact results."""
        if self.graph is None:
            with np.errstate(all="ignore"):
                return evaluate(self.region.program, list(values))
        return self.taken(interpret(self.graph, self.given(values)))

    def run(self, values: Sequence[NDArray]) -> list[NDArray]:
        if self.build.runner is None:
            return self.meaning(values)
        ends = self.graph.outputs if self.graph is not None else [v.type for v in self.region.outputs]
        shapes = [t.shape for t in ends]
        return self.taken(self.build.execute(self.given(values), shapes))


def parted(
    target: Target[Any], program: Program, name: str, io: IO, unroll: int, options: dict[str, object]
) -> tuple[Subject, Build] | None:
    """What an artifact of ``program`` in parts is written from, and its build; None where no part is for the chip.

    Raises:
        LoweringError, ParameterError: of the target, about a part.
    """
    if not isinstance(target, NpuTarget):
        return None
    flat = folded(prepared(program, unroll, target.recurrent))
    rows = refusals(flat, unroll=unroll, format=target.format, recurrent=target.recurrent)
    refused = {r.number for r in rows}
    refused |= {i for i, e in enumerate(flat.equations) if not all(map(_held, (*e.inputs, *e.outputs)))}
    if not rows or min(refused) < 0 or any(r.mistake for r in rows) or len(refused) == len(flat.equations):
        return None
    said = {r.number: (r.reason, r.suggestion) for r in rows}
    flat, levels, origins = _with_own_constants(flat, _alternating(flat, refused), refused)
    whole = cut(flat, levels)
    advice = {i: said[number] for i, number in enumerate(origins) if number in said}
    parts = [_made(target, r, levels[r.equations[0]] % 2 > 0, name, io, unroll, options, advice) for r in whole.regions]
    # On what is this machine's processor everything is placed on the host.
    if not any(p.graph is not None and (target.host or p.build.on_chip is not False) for p in parts):
        return None
    return _subject(flat, whole, parts), _build(target, whole, parts, name, advice)


def _held(a: Atom) -> bool:
    """Whether NPU formats hold values of this type."""
    try:
        check_dtype(a.type.dtype)
    except Unsupported:
        return isinstance(a, Literal)
    return True


def _alternating(program: Program, host: set[int]) -> list[int]:
    """A group per equation: how often its operands changed sides on their way, so that it is as seldom as can be.

    Even groups are the chip's. What depends on no input is in the first of its side.
    """
    made: dict[Var, int] = {}
    level: list[int] = []
    constant = _constant(program)
    for i, e in enumerate(program.equations):
        own = i in host
        before = [made[a] for a in e.inputs if isinstance(a, Var) and a in made]
        sides = [level[j] + ((j in host) != own) for j in before if j not in constant]
        level.append(max(sides, default=int(own)))
        made.update(dict.fromkeys(e.outputs, i))
    return level


def _constant(program: Program) -> set[int]:
    """The equations that depend on no input: values that repeat, and how weights are stored."""
    known = set(program.constvars)
    found: set[int] = set()
    for i, e in enumerate(program.equations):
        if not e.effect and all(isinstance(a, Literal) or a in known for a in e.inputs):
            found.add(i)
            known.update(e.outputs)
    return found


def _with_own_constants(program: Program, level: list[int], host: set[int]) -> tuple[Program, list[int], list[int]]:
    """The program with constants written out in each group that reads them, its groups, and the equations' old numbers.

    A bias that is the result of another part would be no constant.
    """
    constant = _constant(program)
    maker = {v: i for i in constant for v in program.equations[i].outputs}
    equations: list[Equation] = []
    groups: list[int] = []
    origins: list[int] = []
    made: dict[tuple[int, Var], Var] = {}

    def read(a: Atom, group: int) -> Atom:
        """An operand in a group, whose equations are written at the first use."""
        if not isinstance(a, Var) or a not in maker:
            return a
        if (group, a) not in made:
            e = program.equations[maker[a]]
            own = tuple([Var(v.type) for v in e.outputs])
            write(e.replaced(tuple(read(x, group) for x in e.inputs), own), group, maker[a])
            made.update(((group, v), new) for v, new in zip(e.outputs, own, strict=True))
        return made[group, a]

    def write(e: Equation, group: int, number: int) -> None:
        equations.append(e)
        groups.append(group)
        origins.append(number)

    for i, (e, group) in enumerate(zip(program.equations, level, strict=True)):
        if i not in constant:
            write(e.replaced(tuple(read(a, group) for a in e.inputs), e.outputs), group, i)
    side = lambda a: int(isinstance(a, Var) and maker.get(a) in host)
    outputs = [read(a, side(a)) for a in program.outputs]
    p = program
    return Program(p.inputs, equations, outputs, p.constvars, p.values, p.name), groups, origins


def _made(
    target: NpuTarget,
    region: Region,
    host: bool,
    name: str,
    io: IO,
    unroll: int,
    options: dict[str, object],
    advice: dict[int, tuple[str, str]],
) -> ProgramPart:
    """A part of the target's, or of the host where that has no form of it: ``advice`` is told why, by equation."""
    r = region.program
    program = Program(r.inputs, r.equations, r.outputs, r.constvars, r.values, f"{name}_{region.number}")
    if not host:
        try:
            format, layers = target.format, target.recurrent
            graph = lower(program, program.name, io=io, unroll=unroll, format=format, recurrent=layers)
            # What only moves elements is not worth a way to the chip.
            if not all(op_of(n).picks or op_of(n).view for n in graph.nodes):
                return ProgramPart(region, target.made(graph, options), graph)
        except UnsupportedOpsError as error:
            why = [(row.reason, row.suggestion) for row in error.rows if isinstance(row, RefusedEquation)]
            advice.update(dict.fromkeys(region.equations, why[0] if why else (error.what, "")))
        except LoweringError as error:
            advice.update(dict.fromkeys(region.equations, (f"{error.what}: {error.got}", error.fix or "")))
    try:
        build = registry.get(HOST).made(program, {})
    except NxError as error:
        build = Build({}, [], notes=[f"part {region.number} is in no file, this process computes it: {error.what}"])
    return ProgramPart(region, build, None)


def _subject(program: Program, whole: Partition, parts: Sequence[ProgramPart]) -> Subject:
    named = lambda kind, atoms: [Tensor(f"{kind}_{i}", a.type.shape, a.type.dtype) for i, a in enumerate(atoms)]
    inputs, outputs = named("input", program.inputs), named("output", program.outputs)
    return Subject(program, inputs, outputs, lambda xs: _through(whole, [p.meaning for p in parts], xs))


def _through(whole: Partition, steps: Sequence[Any], inputs: Sequence[NDArray]) -> list[NDArray]:
    """ProgramPart by part."""
    p = whole.program
    values: dict[Var, NDArray] = dict(zip(p.inputs, map(np.asarray, inputs), strict=True))
    values.update((v, x.numpy()) for v, x in zip(p.constvars, p.values, strict=True))
    for region, step in zip(whole.regions, steps, strict=True):
        values.update(zip(region.outputs, step([values[v] for v in region.inputs]), strict=True))
    return [a.value.numpy() if isinstance(a, Literal) else values[a] for a in p.outputs]


def _build(
    target: NpuTarget, whole: Partition, parts: Sequence[ProgramPart], name: str, advice: dict[int, tuple[str, str]]
) -> Build:
    build = Build({}, [], host=target.host)
    for part in parts:
        taken = [file for file in part.build.files if file in build.files]
        # Such as a script that is called alike in every part.
        own = {file: file_name(f"{name}_{part.region.number}", file) for file in taken}
        part.build.files = {own.get(file, file): data for file, data in part.build.files.items()}
        build.files.update(part.build.files)
        build.evidence += part.build.evidence
        # What a file of StableHLO is good for elsewhere is not of interest here.
        said = part.build.notes if part.graph is not None or not part.build.files else []
        build.notes += [n for n in said if n not in build.notes]
        build.placements += part.build.placements if part.graph is not None else _host_rows(part.region, advice)
    files = build.files = {file_name(name, "parts.json"): _plan(target, whole, parts), **build.files}
    build.cost.add("file", sum(map(len, files.values())), "bytes", "measured")
    build.cost.why = "a program in parts: the time of a part is not that of the whole"
    chips = [p.build for p in parts if p.graph is not None]
    runners = [b.runner for b in chips if b.runner is not None]
    if len(runners) == len(chips):
        titles = dict.fromkeys(r.title for r in runners)
        # What one part cannot claim, the whole cannot.
        same = all(r.by == runners[0].by for r in runners)
        by: By = runners[0].by if same else "host"
        host = next((p.build.runs_on for p in parts if p.graph is None and p.build.runner is not None), "this process")
        run = lambda xs: _through(whole, [p.run for p in parts], xs)
        took = tuple(d for r in runners for d in r.took)
        build.runner = Runner(run, f"{', '.join(titles)}; the parts for the host: {host}", by, took)
    return build


def _host_rows(region: Region, advice: dict[int, tuple[str, str]]) -> list[Placement]:
    rows: list[Placement] = []
    for i, e in zip(region.equations, region.program.equations, strict=True):
        types = ", ".join(str(v.type) for v in e.outputs)
        rows.append(
            Placement(e.op.name, types, "host", e.source, e.scope, *advice.get(i, (_OTHERS, "")), macs(e), "table")
        )
    return rows


def _plan(target: NpuTarget, whole: Partition, parts: Sequence[ProgramPart]) -> bytes:
    """Which file computes which part of what: an input of the whole, or a result of a part before it."""
    p, maker = whole.program, whole.maker()
    place = {v: ["input", i] for i, v in enumerate(p.inputs)} | {v: ["part", *at] for v, at in maker.items()}
    known = dict(zip(p.constvars, p.values, strict=True))

    def of(a: Var | Literal) -> list[Any]:
        value = a.value if isinstance(a, Literal) else known.get(a)
        return place[a] if value is None and isinstance(a, Var) else ["value", _stored(value.numpy())]  # pyright: ignore

    rows = [
        {
            "on": target.name if part.graph is not None else "host",
            "file": next(iter(part.build.files), None),
            "sha256": {file: digest(data) for file, data in part.build.files.items()},
            "inputs": [of(v) for v in part.region.inputs],
            "results": [_typed(v) for v in part.region.outputs],
            "grids": [] if part.graph is None else [_grid(t) for t in (*part.graph.inputs, *part.graph.outputs)],
        }
        for part in parts
    ]
    plan = {"inputs": list(map(_typed, p.inputs)), "parts": rows, "outputs": [of(a) for a in p.outputs]}
    return json.dumps(plan, indent=1, allow_nan=False).encode()


def _typed(v: Var) -> dict[str, Any]:
    return {"dtype": v.type.dtype.name, "shape": v.type.shape}


def _stored(x: NDArray) -> dict[str, Any]:
    """A constant: its elements in C order, little-endian. JSON has no NaN, no complex numbers, and no types."""
    data = np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"dtype": x.dtype.name, "shape": x.shape, "base64": b64encode(data).decode()}


def _grid(t: Tensor) -> list[float] | None:
    """Scale and zero point of an end of a part that holds integers of a grid."""
    return None if t.grid is None else [float(np.max(t.grid.scale)), t.grid.zero_point]
