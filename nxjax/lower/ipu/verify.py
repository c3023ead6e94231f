"""Holds an IpuProgram against the rules of `program`: for tests, and for who suspects a rule of lowering.

Needs memory for a few arrays of the size of each variable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nxjax.errors import ProgramError
from nxjax.lower.ipu.program import (
    Boxes,
    Call,
    Copy,
    Execute,
    FieldConnection,
    Group,
    IpuProgram,
    NDArray,
    Step,
    Switch,
    Variable,
    VariableView,
    While,
    inside,
)


def verify(program: IpuProgram) -> IpuProgram:
    """``program`` if every rule holds.

    Raises:
        ProgramError: the first rule that does not.
    """
    return _Verifier(program).verify()


def _need(holds: bool, what: str, got: object = None) -> None:
    if not holds:
        raise ProgramError(f"ipu program: {what}", got=got)


class _Verifier:
    def __init__(self, program: IpuProgram) -> None:
        self.program = program
        self.tiles = program.system.chip.tiles * program.system.ipus

    def verify(self) -> IpuProgram:
        program = self.program
        for v in program.variables():
            self._variable(v)
        for number, source in program.aliases.items():
            _need(program.outputs[number] is program.inputs[source], "an aliased output is not its input", number)
        for v in program.inputs:
            _need(v.role in ("input", "state"), "an input has another role", (v.name, v.role))
        for v in program.outputs:
            _need(v.role in ("output", "state"), "an output has another role", (v.name, v.role))
        self._reachable(program.steps, ())
        for step in program.walk():
            match step:
                case Execute():
                    self._execute(step)
                case Copy():
                    self._copy(step)
                case While():
                    p = step.predicate
                    _need(p.size == 1 and p.dtype == np.bool_, "a predicate is not one bool", p.name)
                case Switch():
                    i = step.index
                    _need(i.size == 1 and i.dtype == np.int32, "an index is not one int32", i.name)
                    _need(len(step.branches) > 0, "a switch without branches")
                case Call():
                    _need(step.function in program.functions, "no such function", step.function)
                case _:
                    _need(step.count >= 0, "a negative count", step.count)
        return program

    def _reachable(self, steps: Sequence[Step], calls: tuple[str, ...]) -> None:
        """Functions do not call themselves."""
        for step in steps:
            if isinstance(step, Call):
                _need(step.function not in calls, "a function calls itself", step.function)
                self._reachable(self.program.functions.get(step.function, ()), (*calls, step.function))
            for body in inside(step):
                self._reachable(body, calls)

    def _variable(self, v: Variable) -> None:
        """Every element in exactly one box."""
        count = np.zeros(v.size, np.int64)
        for p in v.pieces:
            _need(len(p.tiles) == len(p.boxes.offsets), "a piece has a tile for each box", v.name)
            _need(bool(np.all((p.tiles >= 0) & (p.tiles < self.tiles))), "a tile that is not there", v.name)
            count += np.bincount(_inside(p.boxes, v).ravel(), minlength=v.size)
        _need(bool(np.all(count == 1)), "an element does not lie in exactly one place", v.name)
        if v.value is not None:
            _need(v.value.shape == v.shape and v.value.dtype == v.dtype, "a constant of another type", v.name)
        _need((v.value is not None) == (v.role == "constant"), "a constant has a value, nothing else has", v.name)

    def _execute(self, step: Execute) -> None:
        written: dict[int, NDArray] = {}
        owner: dict[int, NDArray] = {}
        vertex = 0
        edges: list[tuple[Variable, NDArray, NDArray, bool, bool]] = []
        for g in step.groups:
            self._group(g, step.name)
            ids = vertex + np.arange(len(g.tiles))
            vertex += len(g.tiles)
            for f in g.codelet.fields:
                edge = g.edges[f.name]
                places = _inside(edge.boxes, edge.variable).reshape(len(g.tiles), -1)
                edges.append((edge.variable, places, ids, f.io != "in", f.io != "out"))
                if f.io != "in":
                    self._local(g, edge, places, step.name)
        for v, places, ids, writes, _ in edges:
            if writes:
                count = written.setdefault(id(v), np.zeros(v.size, np.int64))
                count += np.bincount(places.ravel(), minlength=v.size)
                by = owner.setdefault(id(v), np.full(v.size, -1, np.int64))
                by[places] = ids[:, None]
        for v, places, ids, writes, reads in edges:
            if writes:
                _need(int(written[id(v)].max(initial=0)) <= 1, f"{step.name}: two vertices write an element", v.name)
            if reads and id(v) in owner:
                by = owner[id(v)][places]
                clash = (by >= 0) & (by != ids[:, None])
                _need(not bool(clash.any()), f"{step.name}: a vertex reads what another one writes", v.name)
        for v, _, _, writes, _ in edges:
            _need(not writes or v.role != "constant", f"{step.name}: writes a constant", v.name)

    def _group(self, g: Group, name: str) -> None:
        codelet = g.codelet
        _need(
            set(g.edges) == {f.name for f in codelet.fields}, f"{name}: {codelet} is connected otherwise", list(g.edges)
        )
        wanted = {a.name for a in codelet.attributes}
        _need(set(g.attributes) == wanted, f"{name}: {codelet} has other attributes", list(g.attributes))
        for a, value in g.attributes.items():
            _need(
                np.ndim(value) == 0 or np.shape(value) == g.tiles.shape, f"{name}: attribute {a} is no number or column"
            )
        _need(bool(np.all((g.tiles >= 0) & (g.tiles < self.tiles))), f"{name}: a tile that is not there")
        for f in codelet.fields:
            edge = g.edges[f.name]
            _need(len(edge.boxes.offsets) == len(g.tiles), f"{name}: {f.name} has not one box for each vertex")
            _need(edge.variable.dtype.name == f.dtype, f"{name}: {f.name} is {f.dtype}", edge.variable.dtype.name)

    def _local(self, g: Group, edge: FieldConnection, places: NDArray, name: str) -> None:
        """What is written lies on the vertex's tile."""
        v = edge.variable
        _need(bool(np.all(v.tiles()[places] == g.tiles[:, None])), f"{name}: writes to another tile", v.name)

    def _copy(self, step: Copy) -> None:
        targets: dict[int, NDArray] = {}
        for source, target in step.pairs:
            _need(source.shape == target.shape, f"copy {step.name}: shapes differ", (source.shape, target.shape))
            _need(source.dtype == target.dtype, f"copy {step.name}: dtypes differ", (source.dtype, target.dtype))
            _need(target.variable.role != "constant", f"copy {step.name}: writes a constant", target.variable.name)
            count = targets.setdefault(id(target.variable), np.zeros(target.variable.size, np.int64))
            count += np.bincount(_inside(_boxes(target), target.variable).ravel(), minlength=target.variable.size)
            _need(int(count.max(initial=0)) <= 1, f"copy {step.name}: two targets overlap", target.variable.name)
        for source, _ in step.pairs:
            count = targets.get(id(source.variable))
            places = _inside(_boxes(source), source.variable)
            clash = count is not None and bool(np.any(count[places]))
            _need(not clash, f"copy {step.name}: a target overlaps a source", source.variable.name)


def _boxes(view: VariableView) -> Boxes:
    return Boxes(np.asarray([view.offset], np.int64), view.shape, view.strides)


def _inside(boxes: Boxes, v: Variable) -> NDArray:
    """The elements of the boxes, which are elements of the variable."""
    places = boxes.elements()
    low, high = (int(places.min()), int(places.max())) if places.size else (0, -1)
    _need(low >= 0 and high < v.size, "elements that the variable does not have", (v.name, low, high, v.size))
    return places
