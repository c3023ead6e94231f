"""Which equations an NPU target takes, and a region lowered, built and run on one.

Verdicts are asked per equation, from the target's own table; what the vendor's tools then place is read back when a
region is built, and a region that is not wholly on the chip is refused with the equations to blame. Knows one target
at a time, no schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, final

import numpy as np

from nxjax.backends.evidence import Label
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Step
from nxjax.backends.target import Build, NpuTarget
from nxjax.errors import NxError, Source
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.lower import lower, lowerable
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_base import Quantized
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Equation, Program, Var

# Nodes that stand where floats come in and integers go out: the border's, not the user's.
BORDER: Final = frozenset(("quantize", "dequantize"))
# What only moves values, so that they stay on their grid.
_MOVES: Final = frozenset(
    (
        "broadcast_in_dim", "concatenate", "copy", "gather", "name", "reshape", "rev", "slice", "split",
        "stop_gradient", "transpose",
    )
)  # fmt: skip
# What computes on integers, or moves and chooses values, so that every exact unit has the same bits.
_EXACT_MOVES: Final = frozenset(
    (
        "abs", "argmax", "argmin", "broadcast_in_dim", "clamp", "concatenate", "copy", "dynamic_slice",
        "dynamic_update_slice", "eq", "gather", "ge", "gt", "iota", "le", "lt", "max", "min",
        "name", "ne", "neg", "pad", "quantize_dequantize", "quantize_weight", "reduce_max", "reduce_min",
        "requantize", "reshape", "rev", "select_n", "slice", "sort", "split", "stop_gradient",
        "top_k", "transpose",
    )
)  # fmt: skip


def is_exact(e: Equation) -> bool:
    """Whether an equation has one right answer, bit for bit: integers, grids, or values that only move.

    >>> p = nx.make_jaxpr(lambda i, x: (i * 2, nx.max(x), x * 2))(1, nx.ones(3))
    >>> [(e.op.name, is_exact(e)) for e in p.equations if e.op.name != "broadcast_in_dim"]
    [('mul', True), ('reduce_max', True), ('mul', False)]
    """
    name = e.op.name
    if name in _EXACT_MOVES or any(isinstance(v, Grid) for v in e.params.values()):
        return True
    types = [a.type.dtype for a in (*e.inputs, *e.outputs)]
    return not e.effect and all(d in dtypes.INTEGER or d == dtypes.bool_ for d in types)


def grids_of(program: Program) -> dict[Var, Grid]:
    """The grids that values lie on: results of quantized ops, and what only moves such.

    >>> from nxjax.ops.quant_grid import Grid
    >>> grid = Grid(np.dtype("int8"), 0.1, 0)
    >>> p = nx.make_jaxpr(lambda x: nx.sin(quantize_dequantize(x, grid=grid).reshape(2, 2)))(nx.ones(4))
    >>> [e.op.name for e in p.equations if e.outputs[0] in grids_of(p)]
    ['quantize_dequantize', 'reshape']
    """
    found: dict[Var, Grid] = {}
    for e in program.equations:
        if isinstance(e.op, Quantized):
            found[e.outputs[0]] = e.params[e.op.result]
        elif e.op.name in _MOVES:
            over = {found.get(a) if isinstance(a, Var) else None for a in e.inputs}
            grid = over.pop() if len(over) == 1 else None
            if grid is not None:
                found.update(dict.fromkeys(e.outputs, grid))
    return found


def snapped(program: Program, grids: Mapping[Var, Grid]) -> Program:
    """A region whose inputs that lie on grids are put on them first: nothing for values, integers for a chip."""
    new = {v: Var(v.type) for v in program.inputs if v in grids and v.type.dtype == dtypes.float32}
    if not new:
        return program
    puts = [Equation(quantize_dequantize, (v,), (w,), {"grid": grids[v]}) for v, w in new.items()]
    at = lambda a: new.get(a, a) if isinstance(a, Var) else a
    rest = [e.replaced(tuple(map(at, e.inputs)), e.outputs) for e in program.equations]
    outputs = [at(a) for a in program.outputs]
    return Program(program.inputs, [*puts, *rest], outputs, program.constvars, program.values, program.name)


def verdicts(target: NpuTarget, program: Program) -> list[Verdict]:
    """What a target's table says of each equation, with the program's consts known, and values on their grids."""
    known = set(program.constvars)
    grids = grids_of(program)
    asked: dict[Any, Verdict] = {}
    rows: list[Verdict] = []
    for e in program.equations:
        key = _key(e, known, grids)
        if key not in asked:
            asked[key] = _verdict(target, e, known, grids)
        rows.append(asked[key])
    return rows


def _key(e: Equation, known: set[Var], grids: Mapping[Var, Grid]) -> Any:
    kinds = tuple((a.type, a in known, grids.get(a)) if isinstance(a, Var) else repr(a.value) for a in e.inputs)
    return e.op, kinds, repr(sorted(e.params.items(), key=lambda p: p[0]))


def _verdict(target: NpuTarget, e: Equation, known: set[Var], grids: Mapping[Var, Grid]) -> Verdict:
    if e.effect:
        return Verdict(False, f"{e.op.name} has an effect, which is the host's")
    free = [a for a in dict.fromkeys(e.inputs) if isinstance(a, Var) and a not in known]
    if not free:
        return YES  # a constant of the graph, wherever it is used
    found = lowerable(e, known)
    if not found.ok:
        return found
    bound = [a for a in dict.fromkeys(e.inputs) if isinstance(a, Var) and a in known]
    ones = [wrap(np.ones(v.type.shape, v.type.dtype)) for v in bound]
    one = snapped(Program(free, [e], e.outputs, bound, ones, e.op.name), grids)
    try:
        graph = lower(one, io="float", format=target.format)
    except NxError as error:
        return Verdict(False, error.what)
    for node in graph.nodes:
        if node.op in BORDER and e.op.name != "quantize_dequantize":
            continue
        said = target.supports(node)
        if not said.ok and not (node.op in BORDER and _at_border(graph, node)):
            return said
    return YES


def _at_border(graph: NpuGraph, node: Node) -> bool:
    return node.operand(0) in graph.inputs or node.output in graph.outputs


@final
class NpuStep(Step):
    """A region built for a target; its results are floats where the program's are, integers stay inside.

    Args:
        sessions: how many may run it at once; those beyond the first are built when they are first needed.
    """

    def __init__(self, target: NpuTarget, program: Program, sessions: int = 1) -> None:
        self.program = program
        self._target = target
        try:
            self.graph = lower(program, program.name, io="integer", format=target.format)
            build = target.build(self.graph, {})
        except NxError as error:
            blamed = _blamed(program, [(error.source, None)]) if error.source is not None else ()
            raise RegionRefused(f"{target.name} cannot build it: {error.what}", blamed) from error
        left = [] if target.host else _left_on_host(self.graph, build.placements)
        if left:
            listed = "; ".join(f"{r.op}: {r.reason}" for r in left[:4])
            raise RegionRefused(
                f"{len(left)} of {len(build.placements)} operations would not run on {target.name} ({listed})",
                _blamed(program, [(r.source, r.scope) for r in left]),
            )
        if build.runner is None:
            raise RegionRefused(f"nothing here runs what {target.name} built: {'; '.join(build.notes)[:300]}")
        self.runs_on = build.runs_on
        self.notes = tuple(build.notes)
        self.build = build
        self.estimate = _estimate(build)
        self._idle: SimpleQueue[Build] = SimpleQueue()
        self._idle.put(build)
        self._more = sessions - 1
        self._lock = threading.Lock()

    @property
    def label(self) -> Label:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What its records earn: more once it has run."""
        return self.build.label

    def _session(self) -> Build:
        """One that nobody uses; another one, while there may be more."""
        with self._lock:
            more = self._idle.empty() and self._more > 0
            self._more -= more
        if more:
            another = self._target.build(self.graph, {})
            if another.runner is not None:
                # One record of evidence for all: they run the same files.
                another.evidence = self.build.evidence
                return another
        return self._idle.get()

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        stored = [
            t.grid.quantize(x.numpy()) if t.grid is not None else np.asarray(x.numpy(), t.dtype).reshape(t.shape)
            for t, x in zip(self.graph.inputs, args, strict=True)
        ]
        session = self._session()
        try:
            out = session.execute(stored, [t.shape for t in self.graph.outputs])
        finally:
            self._idle.put(session)
        made: list[DeviceArray] = []
        for v, t, q in zip(self.program.outputs, self.graph.outputs, out, strict=True):
            y: NDArray = np.asarray(q)
            y = t.grid.dequantize(y) if t.grid is not None else y
            made.append(DeviceArray(np.array(y.reshape(v.type.shape), v.type.dtype, order="C"), v.type))
        return made


def _estimate(build: Build) -> Estimate | None:
    for name in ("latency", "npu latency"):
        if name in build.cost:
            figure = build.cost[name]
            scale = {"s": 1.0, "us": 1e-6, "ms": 1e-3}.get(figure.unit)
            if scale is not None and figure.value > 0:
                return Estimate(figure.value * scale, figure.basis, build.runs_on or "the target's tools")
    return None


def _left_on_host(graph: NpuGraph, rows: Sequence[Placement]) -> list[Placement]:
    """Placements off the chip, but for those of border nodes: floats come from and go to the host in any case."""
    border = {n.name for n in graph.nodes if n.op in BORDER and _at_border(graph, n)}
    return [r for r in rows if not r.on_chip and r.name not in border]


def _blamed(program: Program, places: Sequence[tuple[Source | None, str | None]]) -> tuple[int, ...]:
    """Equations of the lines (and scopes, where they are known) that nodes came from."""
    found: list[int] = []
    for i, e in enumerate(program.equations):
        for source, scope in places:
            if source is not None and str(e.source) == str(source) and (scope is None or scope == e.scope):
                found.append(i)
                break
    return tuple(found)


def meaning(program: Program, args: Sequence[NDArray]) -> list[NDArray]:
    """The exact results of a region, by NumPy."""
    return [np.asarray(y) for y in evaluate(program, args)]
