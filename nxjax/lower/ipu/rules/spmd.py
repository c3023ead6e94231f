"""`shard_map` over several IPUs: each has its own vertices and its own part of the data, collectives use the links.

The body is lowered for each device of the mesh on the tiles of its IPU; steps of equal form become one step of all
IPUs, since they run at the same time. Where there are fewer IPUs than devices of the mesh, or devices may go different
ways (loops and branches that depend on data), the call is written as its expansion instead, on one IPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import linear
from nxjax.lower.ipu.program import Boxes, Copy, Execute, MappedRegion, Repeat, Step, VariableView, row_major
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.base import move_batch
from nxjax.ops.collectives import CollectiveOp
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace.core import Array
from nxjax.trace.mesh import BaseMesh
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined

Specs = Sequence[Any]
# A value on every device of the mesh.
Views = list[VariableView]
# One answer of an elementwise reduction may be shared out over the devices that need it.
_SHARED: Final = ("psum", "psum_invariant", "pmax", "pmin")


def shard_map(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    p = e.params
    mesh: BaseMesh = p["mesh"]
    program = inlined(p["program"])
    if mesh.size > b.system.ipus or set(p["manual_axes"]) != set(mesh.axis_names) or not _alike(program):
        return tuple(b.inline(e.op.expand, xs, **p))
    return _Devices(b, mesh).run(program, p["in_specs"], p["out_specs"], xs)


def _alike(program: Program) -> bool:
    """Whether all devices take the same steps: no collectives inside of loops, no loops or branches by data."""
    for e in program.equations:
        held = list(e.programs())
        if held and (e.op.name != "scan" or any(p.axis_names or not _alike(p) for p in held)):
            return False
    return True


class _Devices:
    """A mesh of IPUs and what is written for all of them."""

    def __init__(self, b: Builder, mesh: BaseMesh) -> None:
        self.b = b
        self.sizes = dict(mesh.shape)
        self.places = [dict(zip(mesh.axis_names, at, strict=True)) for at in np.ndindex(*self.sizes.values())]

    @contextmanager
    def on(self, device: int) -> Generator[None]:
        """Variables without a place go to the tiles of this device meanwhile."""
        first = self.b.first
        self.b.first = device * self.b.chip.tiles
        try:
            yield
        finally:
            self.b.first = first

    def each(self, write: Callable[[int], Any]) -> list[Any]:
        """What ``write`` gives for each device; the steps that it writes become steps of all devices."""
        blocks: list[list[Step]] = []
        found: list[Any] = []
        for d in range(len(self.places)):
            with self.on(d), self.b.block() as steps:
                found.append(write(d))
            blocks.append(steps)
        self.b.steps.extend(merged(blocks))
        return found

    def run(
        self, program: Program, in_specs: Specs, out_specs: Specs, xs: Sequence[VariableView]
    ) -> tuple[VariableView, ...]:
        env: dict[Var, Views] = {}
        for v, x, spec in zip(program.inputs, xs, in_specs, strict=True):
            self._settle(x, spec)
            env[v] = [self._part(x, spec, at) for at in self.places]
        for v, value in zip(program.constvars, program.values, strict=True):
            env[v] = self.each(lambda d, value=value: self.b.constant(value.numpy()))
        equations = list(program.equations)
        while equations:
            local = next((i for i, e in enumerate(equations) if isinstance(e.op, CollectiveOp)), len(equations))
            self._local(equations[:local], equations[local:], program, env)
            if local < len(equations):
                e = equations[local]
                with self.b.at(e.op.name, e.source, e.scope):
                    env[e.outputs[0]] = self._collective(e, env)
            equations = equations[local + 1 :]
        found: list[VariableView] = []
        for a, spec in zip(program.outputs, out_specs, strict=True):
            if isinstance(a, Var):
                found.append(self._joined(env[a], spec))
            else:
                found.append(self._joined([self.b.constant(a.value.numpy())] * len(self.places), spec))
        return tuple(found)

    # --- shards ---

    def _part(self, x: VariableView, spec: Any, at: dict[Any, int]) -> VariableView:
        """The device's part of a whole value."""
        offset, shape = x.offset, list(x.shape)
        for d in range(len(shape)):
            index, count = self._index(spec, d, at)
            shape[d] //= count
            offset += index * shape[d] * x.strides[d]
        return VariableView(x.variable, offset, tuple(shape), x.strides)

    def _index(self, spec: Any, dim: int, at: dict[Any, int]) -> tuple[int, int]:
        index, count = 0, 1
        for name in spec.axes(dim):
            index, count = index * self.sizes[name] + at[name], count * self.sizes[name]
        return index, count

    def _settle(self, x: VariableView, spec: Any) -> None:
        """Put an input that nothing has touched yet where its parts are needed, if its first dimension is cut only."""
        v = x.variable
        cut = [d for d in range(len(x.shape)) if spec.axes(d)]
        if cut != [0] or not x.whole or v.role == "temporary" or not v.size:
            return
        pieces: list[MappedRegion] = []
        seen: set[int] = set()
        for d, at in enumerate(self.places):
            part = self._part(x, spec, at)
            if part.offset in seen:
                continue
            seen.add(part.offset)
            tiles = self.b.chip.tiles
            for piece in linear(part.size, v.dtype.itemsize, tiles, d * tiles):
                boxes = replace(piece.boxes, offsets=piece.boxes.offsets + part.offset)
                pieces.append(MappedRegion(boxes, piece.tiles))
        self.b.place(v, pieces)

    def _joined(self, parts: Views, spec: Any) -> VariableView:
        """The whole value that the devices' parts make."""
        if not spec.names:
            return parts[0]
        shape = tuple(n * self._index(spec, d, self.places[0])[1] for d, n in enumerate(parts[0].shape))
        whole = self.b.variable(shape, parts[0].dtype, ())
        pieces: list[MappedRegion] = []
        pairs: list[tuple[VariableView, VariableView]] = []
        seen: set[int] = set()
        for d, (part, at) in enumerate(zip(parts, self.places, strict=True)):
            target = self._part(whole.view(), spec, at)
            if target.offset in seen:
                continue
            seen.add(target.offset)
            pairs.append((part, target))
            pieces += self._rows(target, d)
        whole.pieces = tuple(pieces)
        self.b.copy(pairs, "joined")
        return whole.view()

    def _rows(self, target: VariableView, device: int) -> list[MappedRegion]:
        """Contiguous runs of a part of a variable over the tiles of a device."""
        tiles = self.b.chip.tiles
        inner = len(target.shape)
        run = 1
        while inner and (target.shape[inner - 1] == 1 or target.strides[inner - 1] == run):
            inner -= 1
            run *= target.shape[inner]
        starts = Boxes(np.zeros(1, np.int64), target.shape[:inner], target.strides[:inner]).elements().reshape(-1)
        found: list[MappedRegion] = []
        for piece in linear(target.size, target.dtype.itemsize, tiles, device * tiles):
            # Elements in the order of the part; each box is cut where a run ends.
            for begin, tile in zip(piece.boxes.offsets.tolist(), piece.tiles.tolist(), strict=True):
                end = begin + piece.boxes.count
                while begin < end:
                    row, within = divmod(begin, run)
                    length = min(run - within, end - begin)
                    offset = np.asarray([target.offset + starts[row] + within], np.int64)
                    found.append(MappedRegion(Boxes(offset, (length,), (1,)), np.asarray([tile], np.int32)))
                    begin += length
        return found

    # --- equations ---

    def _local(
        self, equations: Sequence[Equation], later: Sequence[Equation], program: Program, env: dict[Var, Views]
    ) -> None:
        """Equations without communication, on every device."""
        if not equations:
            return
        own = {v for e in equations for v in e.outputs}
        read = list(dict.fromkeys(a for e in equations for a in e.inputs if isinstance(a, Var) and a not in own))
        after = {a for e in later for a in e.inputs if isinstance(a, Var)}
        after.update(a for a in program.outputs if isinstance(a, Var))
        made = [v for e in equations for v in e.outputs if v in after]
        part = Program(read, equations, made, name=program.name)
        found = self.each(lambda d: self.b.program(part, [env[v][d] for v in read]))
        env.update((v, [ys[i] for ys in found]) for i, v in enumerate(made))

    def _collective(self, e: Equation, env: dict[Var, Views]) -> Views:
        op: Any = e.op
        names: tuple[Any, ...] = e.params["axis_names"]
        alone = _ALONE.get(op.name)
        if alone is not None:
            return alone(self, e, env)
        values = self.operand(e, env)
        # Reductions over several axes are done over one after the other; everything else names one.
        for name in names:
            params = {**e.params, "axis_names": (name,)}
            if op.name in _SHARED and e.params.get("groups") is None and values[0].size >= self.sizes[name]:
                values = self._all_reduced(op, values, name, params)
            else:
                values = self._answered(op, values, name, params)
        return values

    def index(self, e: Equation, env: dict[Var, Views]) -> Views:
        """The place of every device along an axis."""
        name = e.params["axis_names"][0]
        return self.each(lambda d: self.b.constant(np.asarray(self.places[d][name], np.int32)))

    def operand(self, e: Equation, env: dict[Var, Views]) -> Views:
        (a,) = e.inputs
        return env[a] if isinstance(a, Var) else self.each(lambda d: self.b.constant(a.value.numpy()))

    def _peers(self, device: int, name: Any) -> list[int]:
        """The devices that differ from this one along ``name`` only, in order."""
        at = self.places[device]
        return [i for i, other in enumerate(self.places) if all(other[k] == at[k] for k in at if k != name)]

    def _answered(self, op: Any, values: Views, name: Any, params: dict[str, Any]) -> Views:
        """Any collective: every device gets its peers' values, and answers as `vmap` would, for itself."""
        size = self.sizes[name]

        def write(d: int) -> VariableView:
            own = self.places[d][name]

            def answer(*xs: Array) -> Array:
                whole = concatenate(*(reshape(x, shape=(1, *x.shape)) for x in xs), dimension=0)
                y, dim = op.batch_axis(name, size, [whole], [0], **params)
                return y if dim is None else _entry(y, dim, own)

            return self.b.inline(answer, [values[i] for i in self._peers(d, name)])

        return self.each(write)

    def _all_reduced(self, op: Any, values: Views, name: Any, params: dict[str, Any]) -> Views:
        """Every device reduces its part of the elements, then all get all parts: 2 (n - 1) / n of the bytes over links.

        Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms (2009).
        """
        size, shape = self.sizes[name], values[0].shape
        count = math.prod(shape)
        cuts = [count * i // size for i in range(size + 1)]
        flat = self.each(lambda d: self.b.reshaped(values[d], (count,)))

        def part(v: VariableView, i: int) -> VariableView:
            return VariableView(v.variable, v.offset + cuts[i] * v.strides[0], (cuts[i + 1] - cuts[i],), v.strides)

        def reduced(d: int) -> VariableView:
            def answer(*xs: Array) -> Array:
                whole = concatenate(*(reshape(x, shape=(1, *x.shape)) for x in xs), dimension=0)
                return op.batch_axis(name, size, [whole], [0], **params)[0]

            own = self.places[d][name]
            return self.b.inline(answer, [part(flat[i], own) for i in self._peers(d, name)])

        parts = self.each(reduced)

        def gathered(d: int) -> VariableView:
            whole = self.b.variable((count,), values[0].dtype).view()
            self.b.copy([(parts[i], part(whole, self.places[i][name])) for i in self._peers(d, name)], "all parts")
            return VariableView(whole.variable, 0, shape, row_major(shape))

        return self.each(gathered)


def _entry(y: Array, dim: int, index: int) -> Array:
    y = move_batch(y, dim, y.shape[dim])
    rows = (index, *(0,) * (y.ndim - 1)), (index + 1, *y.shape[1:])
    one = slice_op(y, start_indices=rows[0], limit_indices=rows[1], strides=(1,) * y.ndim)
    return reshape(one, shape=y.shape[1:])


def merged(blocks: Sequence[Sequence[Step]]) -> list[Step]:
    """Steps of several devices that happen at the same time; one device after the other where they differ in form."""
    first = blocks[0]
    forms = [[type(s) for s in steps] for steps in blocks]
    if any(form != forms[0] for form in forms) or any(not isinstance(s, (Execute, Copy, Repeat)) for s in first):
        return [s for steps in blocks for s in steps]
    found: list[Step] = []
    for together in zip(*blocks, strict=True):
        head = together[0]
        if isinstance(head, Execute):
            groups = tuple(g for s in together if isinstance(s, Execute) for g in s.groups)
            found.append(Execute(head.name, groups, head.source, head.scope))
        elif isinstance(head, Copy):
            pairs = tuple(p for s in together if isinstance(s, Copy) for p in s.pairs)
            found.append(Copy(pairs, head.name, head.source, head.scope))
        else:
            repeats = [s for s in together if isinstance(s, Repeat)]
            if len({s.count for s in repeats}) > 1:
                found.extend(repeats)
            else:
                body = tuple(merged([s.body for s in repeats]))
                found.append(Repeat(repeats[0].count, body, repeats[0].source))
    return found


# Collectives that exchange nothing.
_ALONE: Final = {"pvary": _Devices.operand, "axis_index": _Devices.index}
RULES: Final = {"shard_map": Rule(shard_map)}
