"""A program as a picture and as a page: boxes for equations, frames for named scopes, programs within programs.

A run of equations of one scope is a frame. Where there are too many to read, frames are folded into single boxes, and
what they hold is drawn below, to be opened. Knows ops by where they are defined only, which is their colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax.display import graph as drawing
from nxjax.display import page
from nxjax.display.graph import DrawnGraph, GraphEdge, GraphNode
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.text import literal_text, params_text, to_text, variable_name

_READABLE: Final = 110  # boxes of one picture
_NOTE: Final = 30  # characters of what stands under an op's name
_DEEPEST: Final = 24  # programs within programs
_DRAWN: Final = 1500  # equations that one page draws
_RUN: Final = 60  # equations of a fold where no scope says where to cut
_KINDS: Final = {
    "compute": re.compile("dot|conv(?!ert)|attention|linalg|fft|quant_products|recurrence"),
    "reduce": re.compile("reduce|argreduce|cumulative|sort|window|softmax|norm"),
    "move": re.compile(
        "shape|indexing|slicing|convert|create|scatter|select|sharding|identity|collectives|one_hot|random"
    ),
}


@final
@dataclass(slots=True)
class _Run:
    """Equations ``first`` to ``last`` (excluded) of one scope, ``depth`` names deep; or of none, one after another."""

    name: str
    first: int
    last: int
    items: list[_Run | int]


def _kind(e: Equation) -> str:
    if any(True for _ in e.programs()):
        return "control"
    where = type(e.op).__module__.rpartition(".")[2]
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(where)), "elementwise")


def _runs(equations: Sequence[Equation], first: int, last: int, depth: int) -> list[_Run | int]:
    """Equations, with runs of one scope put together."""
    items: list[_Run | int] = []
    i = first
    while i < last:
        parts = equations[i].scope.split("/") if equations[i].scope else []
        if len(parts) <= depth:
            items.append(i)
            i += 1
            continue
        j = i + 1
        head = parts[: depth + 1]
        while j < last and equations[j].scope.split("/")[: depth + 1] == head:
            j += 1
        # A single equation needs no frame.
        items.append(_Run(parts[depth], i, j, _runs(equations, i, j, depth + 1)) if j - i > 1 else i)
        i = j
    return items


def _chunked(items: list[_Run | int]) -> list[_Run | int]:
    """Items, so many of them put together that a picture of all is readable."""
    if len(items) <= _READABLE:
        return items
    size = max(_RUN, -(-len(items) // 60))
    found: list[_Run | int] = []
    for k in range(0, len(items), size):
        part = items[k : k + size]
        first = part[0].first if isinstance(part[0], _Run) else part[0]
        last = part[-1].last if isinstance(part[-1], _Run) else part[-1] + 1
        found.append(_Run(f"equations {first + 1} to {last}", first, last, part))
    return found


@final
class _Picture:
    """One program's graph and what was folded in it."""

    def __init__(self, program: Program, first: int = 0, last: int | None = None, items: Any = None) -> None:
        self.program = program
        self.first = first
        self.last = len(program.equations) if last is None else last
        self.items: list[_Run | int] = _chunked(
            _runs(program.equations, self.first, self.last, 0) if items is None else items
        )
        self.names: dict[Var, str] = {}
        for v in (*program.constvars, *program.inputs, *(v for e in program.equations for v in e.outputs)):
            self.names[v] = variable_name(len(self.names))
        self.readers: dict[Var, int] = {}
        for i, e in enumerate(program.equations):
            for v in e.inputs:
                if isinstance(v, Var):
                    self.readers[v] = i
        for v in program.outputs:
            if isinstance(v, Var):
                self.readers[v] = len(program.equations)
        self.opened = self._opened()
        self.folded: list[_Run] = []

    def _opened(self) -> set[int]:
        """The runs, by identity, that are drawn open: small and outer ones first, while all stays readable."""
        shown, found = len(self.items), set[int]()
        queue = [r for r in self.items if isinstance(r, _Run)]
        while queue:
            queue.sort(key=lambda r: len(r.items))
            run = queue.pop(0)
            if shown + len(run.items) - 1 > _READABLE:
                break
            shown += len(run.items) - 1
            found.add(id(run))
            queue += [r for r in run.items if isinstance(r, _Run)]
        return found

    def label(self, v: Var) -> str:
        return f"{self.names[v]}:{v.type}"

    def graph(self) -> DrawnGraph:
        """The whole picture."""
        program, whole = self.program, self.last - self.first == len(self.program.equations)
        if whole:
            sources = [(v, "const") for v in program.constvars] + [(v, "") for v in program.inputs]
            results: Sequence[Atom] = program.outputs
        else:
            sources = [(v, "") for v in self._read(self.first, self.last)]
            results = self._exported(self.first, self.last)
        g = DrawnGraph()
        made: dict[Var, tuple[int, int]] = {}
        for v, note in sources:
            i = g.add(GraphNode(self.label(v), "value", note, "a captured array" if note else "an input"), [""])
            made[v] = i, 0
            g.inputs.append(i)
        self._fill(g, self.items, made)
        for a in results:
            text = self.label(a) if isinstance(a, Var) else literal_text(a)
            i = g.add(GraphNode(text, "value", "", "a result"), [])
            if isinstance(a, Var):
                g.edges.append(GraphEdge(*made[a], i, 0))
            g.outputs.append(i)
        return g

    def _fill(self, g: DrawnGraph, items: Sequence[_Run | int], made: dict[Var, tuple[int, int]]) -> None:
        for item in items:
            if isinstance(item, _Run):
                first, last = item.first, item.last
                reads, gives = self._read(first, last), self._exported(first, last)
                box = self._frame(item, reads, gives) if id(item) in self.opened else self._fold(item)
            else:
                e = self.program.equations[item]
                reads, gives = [v for v in e.inputs if isinstance(v, Var)], list(e.outputs)
                box = self._equation(e)
            # Names stand where values are made, not again where they leave a frame.
            i = g.add(box, [self.label(v) if box.inside is None else "" for v in gives])
            g.edges += [GraphEdge(*made[v], i, k) for k, v in enumerate(reads)]
            made.update((v, (i, k)) for k, v in enumerate(gives))

    def _frame(self, run: _Run, reads: Sequence[Var], gives: Sequence[Var]) -> GraphNode:
        inner = DrawnGraph()
        made: dict[Var, tuple[int, int]] = {}
        for v in reads:
            i = inner.add(GraphNode("", "port"), [""])
            made[v] = i, 0
            inner.inputs.append(i)
        self._fill(inner, run.items, made)
        for v in gives:
            i = inner.add(GraphNode("", "port"), [""])
            inner.edges.append(GraphEdge(*made[v], i, 0))
            inner.outputs.append(i)
        return GraphNode(run.name, "group", tip=f"{run.name}: {_count(run.last - run.first)}", inside=inner)

    def _fold(self, run: _Run) -> GraphNode:
        self.folded.append(run)
        ops: dict[str, int] = {}
        for e in self.program.equations[run.first : run.last]:
            ops[e.op.name] = ops.get(e.op.name, 0) + 1
        most = sorted(ops.items(), key=lambda kv: -kv[1])
        tip = ", ".join(f"{n} {name}" for name, n in most[:12])
        return GraphNode(run.name, "fold", _count(run.last - run.first), tip)

    def _equation(self, e: Equation) -> GraphNode:
        note = " ".join(literal_text(a) for a in e.inputs if isinstance(a, Literal))
        nested = any(True for _ in e.programs())
        apart = e.op.unpack_params(e.params)
        params = params_text({k: v for k, v in apart.items() if not nested or k in ("name", "length")})
        if len(note) + len(params) <= _NOTE:
            note = f"{note} {params}".strip()
        tip = [f"{e.op.name}{params}", f"scope {e.scope}" if e.scope else "", str(e.source) if e.source else ""]
        return GraphNode(
            e.op.name,
            _kind(e),
            note if len(note) <= _NOTE else note[: _NOTE - 1] + "…",
            "\n".join(line for line in tip if line),
        )

    def _read(self, first: int, last: int) -> list[Var]:
        """What these equations read and do not make."""
        made: set[Var] = set()
        found: dict[Var, None] = {}
        for e in self.program.equations[first:last]:
            found.update((v, None) for v in e.inputs if isinstance(v, Var) and v not in made)
            made.update(e.outputs)
        return list(found)

    def _exported(self, first: int, last: int) -> list[Var]:
        """What they make and others read."""
        made = (v for e in self.program.equations[first:last] for v in e.outputs)
        return [v for v in made if self.readers.get(v, -1) >= last]


def _count(n: int) -> str:
    return f"{n:,} equation{'' if n == 1 else 's'}"


def program_picture(program: Program) -> str:
    """The program's picture, as the text of a file."""
    return drawing.draw(_Picture(program).graph(), alone=True)


def program_page(program: Program) -> str:
    """The page of a program: what it is, its picture, the programs and scopes within, its text."""
    whole = _equations(program)
    facts = [("", _count(len(program.equations)))]
    if whole > len(program.equations):
        facts.append(("with those within", f"{whole:,}"))
    types = [", ".join(map(str, ts)) for ts in (program.in_types, program.out_types)]
    facts.append(("", " → ".join(t if len(t) <= 80 else t[:79] + "…" for t in types)))
    if program.constvars:
        held = sum(v.type.size * v.type.dtype.itemsize for v in program.constvars)
        facts.append(("captured", f"{len(program.constvars)} arrays, {held:,} bytes"))
    return page.page(
        page.heading(f"Program {program.name}".strip(), *facts),
        *_parts(program, [_DRAWN]),
        page.details("text", _marked(page.text(to_text(program))), opened=whole <= 30),
    )


def _equations(program: Program) -> int:
    """How many there are, at any depth."""
    count, left = 0, [program]
    while left:
        equations = left.pop().equations
        count += len(equations)
        left += [inner for e in equations if e.op.nested for inner in e.programs()]
    return count


def _parts(
    program: Program, budget: list[int], first: int = 0, last: int | None = None, items: Any = None, depth: int = 0
) -> list[str]:
    """The picture, then what is folded in it and what its equations hold, each to be opened."""
    picture = _Picture(program, first, last, items)
    if budget[0] <= 0 or depth > _DEEPEST:
        return [page.paragraph("Not drawn, as the page would be too long: the text has it all.")]
    g = picture.graph()
    folded = sum(run.last - run.first for run in picture.folded)
    budget[0] -= picture.last - picture.first - folded + len(picture.folded)
    parts = [page.scroll(drawing.draw(g))]
    for run in picture.folded:
        inner = _parts(program, budget, run.first, run.last, run.items, depth + 1)
        parts.append(page.details(f"{run.name}: {_count(run.last - run.first)}", "".join(inner)))
    hidden = [range(r.first, r.last) for r in picture.folded]
    for i in range(picture.first, picture.last):
        if any(i in r for r in hidden):
            continue
        e = program.equations[i]
        for key, inner in _held(e):
            title = f"{e.op.name} {', '.join(picture.names[v] for v in e.outputs[:6])}: {key}"
            name = f" {inner.name}" if inner.name else ""
            parts.append(
                page.details(
                    f"{title}{name}, {_count(len(inner.equations))}", "".join(_parts(inner, budget, depth=depth + 1))
                )
            )
    return parts


def _held(e: Equation) -> Iterator[tuple[str, Program]]:
    for key, value in e.op.unpack_params(e.params).items():
        if isinstance(value, Program):
            yield key, value
        elif isinstance(value, tuple):
            held: Sequence[Any] = value  # pyright: ignore[reportUnknownVariableType]
            for k, v in enumerate(held):
                if isinstance(v, Program):
                    yield f"{key}[{k}]", v


def _marked(body: str) -> str:
    """Ops in bold, types in grey."""
    body = re.sub(r":([a-z0-9]+(?:&lt;fry&gt;)?\[[0-9,]*\]\*?)", r':<span class="quiet">\1</span>', body)
    return re.sub(r" = ([a-z0-9_]+)", r" = <b>\1</b>", body)
