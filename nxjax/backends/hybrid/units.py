"""The units there are: the host's executors, backends by name (GPUs, TPUs, ...), NPU targets by name.

`resolve` turns what the user wrote into units, and keeps the reason for each that is missing. A simulator is taken
where it is named, never where an NPU was asked for by kind, unless the user allows it. Of an NPU, verdicts are asked
per equation, from the target's own table; what the vendor's tools then place is read back when a region is built, and a
region that is not wholly on the chip is refused with the equations to blame.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final, final

import numpy as np

from nxjax.backends import registry, target_registry
from nxjax.backends.base import Backend
from nxjax.backends.evidence import Label
from nxjax.backends.hybrid.jobs import agree
from nxjax.backends.hybrid.trying import NOT_INTEGERS, comparable, compared
from nxjax.backends.hybrid.unit import Estimate, Link, RegionRefused, Step, Unit
from nxjax.backends.target import Build, NpuTarget
from nxjax.errors import ExecutionError, NxError, ParameterError, Source
from nxjax.lower.macs import macs
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower, lowerable
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.lower.trip_count import trip_counts_within
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_base import QuantizedOp
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.sharding import SingleDeviceSharding

# Nodes that stand where floats come in and integers go out: the border's, not the user's.
BORDER: Final = frozenset(("quantize", "dequantize"))
# What only moves values, so that they stay on their grid.
_MOVES: Final = frozenset(
    (
        "broadcast_in_dim", "concatenate", "copy", "gather", "name", "reshape", "rev", "slice", "split",
        "stop_gradient", "transpose",
    )
)  # fmt: skip


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
        if isinstance(e.op, QuantizedOp):
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


# How far results on a chip's grids may be from the reference's, as a share of the largest.
_APART: Final = 0.25


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
            build = target.made(self.graph, {})
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
            another = self._target.made(self.graph, {})
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
        # Until a run was compared with the reference, none counts. A runtime may write to what it is given.
        new = not any(r.act == "ran" or (r.act == "failed" and r.gave) for r in self.build.evidence)
        wanted = interpret(self.graph, stored) if new else None
        session = self._session()
        try:
            out = session.execute(stored, [t.shape for t in self.graph.outputs])
        finally:
            self._idle.put(session)
        made = self._floats(out)
        if wanted is not None:
            if agree(made, self._floats(wanted), exact=False, tolerance=_APART):
                self.build.proved(out)
            else:
                self.build.disproved(ExecutionError(f"{self.runs_on} gave results of another function"), out)
        return made

    def _floats(self, out: Sequence[NDArray]) -> list[DeviceArray]:
        """Results as the program has them."""
        made: list[DeviceArray] = []
        for v, t, q in zip(self.program.outputs, self.graph.outputs, out, strict=True):
            y: NDArray = np.asarray(q)
            y = t.grid.dequantize(y) if t.grid is not None else y
            made.append(DeviceArray(np.array(y.reshape(v.type.shape), v.type.dtype, order="C"), v.type))
        return made


def _estimate(build: Build) -> Estimate | None:
    if build.cost.time is None:
        return None
    figure = build.cost.time[1]
    scale = {"s": 1.0, "us": 1e-6, "ms": 1e-3}.get(figure.unit)
    if scale is None or figure.value <= 0:
        return None
    return Estimate(figure.value * scale, figure.basis, build.runs_on or "the target's tools")


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


# What one host core does at least: floating-point operations and bytes a second. A first guess, as that of a GPU.
PLAIN_RATES: Final = (20e9, 8e9)
# What a call of an executable takes whatever it computes (seconds).
_CALL: Final = 5e-6
# PCI Express 3.0 with 16 lanes carries 15.75 GB/s; what is left of it after packets, as vendors' tools measure.
_PCIE: Final = Link(12e9, 10e-6, "model: PCI Express 3.0 x16 at three quarters of its rate, 10 us a transfer")
# Published peaks of a small GPU; only a first guess, which measured times replace.
_GPU_RATES: Final = (2e12, 200e9)
# Kinds of unit that stand for whichever is here.
KINDS: Final = ("npu", "gpu", "tpu")


def roofline(program: Program, rates: tuple[float, float]) -> float:
    """Seconds of a region, each equation bound by its products or its bytes (Williams, Waterman, Patterson 2009)."""
    return _CALL + sum(seconds_of(e, rates) for e in program.equations)


def seconds_of(e: Equation, rates: tuple[float, float] = PLAIN_RATES) -> float:
    """One equation's part of `roofline`; a loop's is that of its equations in all turns."""
    inner = trip_counts_within(e, lambda i: seconds_of(i, rates))
    if inner is not None:
        return inner
    nbytes = sum(a.type.size * a.type.dtype.itemsize for a in (*e.inputs, *e.outputs))
    count = 2 * macs(e) or sum(v.type.size for v in e.outputs)
    return max(count / rates[0], nbytes / rates[1])


def put(backend: Backend, value: DeviceArray) -> DeviceArray:
    """A value where a backend's device computes, if that has a memory of its own; else in the host's."""
    if not backend.places:
        value.numpy()
        return value
    where = SingleDeviceSharding(backend.devices()[0])
    return DeviceArray(None, value.type, backend.put(value, where), where)


@final
class ExecutableStep(Step):
    """A region compiled by a backend. Its consts are held by the executable, or where the backend's devices are."""

    def __init__(self, backend: Backend, program: Program) -> None:
        hoisted, consts = program.hoist_consts()
        values: list[Any] = list(consts)
        try:
            made = backend.compile(hoisted)
            held = made.bind_leading(values) if values else None
        except NxError as error:
            got = f": {error.got}"[:300] if error.got else ""
            raise RegionRefused(f"{backend.name} cannot compile it: {error.what}{got}") from error
        if held is not None:
            made, values = held
        self._there = list(values) if backend.platform == "cpu" else [put(backend, x) for x in values]
        made.prepare()
        self._made = made
        self.label = backend.label
        self.runs_on = str(backend.devices()[0])

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        out = self._made([*self._there, *args])
        for y in out:
            raw = getattr(y.buffer, "raw", None)
            if raw is not None:
                raw.block_until_ready()
        return out


@final
class BackendUnit(Unit):
    """An executor or device of the registry.

    Args:
        name: as the user wrote it.
        backend: what runs.
        lanes: how many regions at once.
    """

    def __init__(self, name: str, backend: Backend, lanes: int = 1) -> None:
        self.name = name
        self.backend = backend
        self.platform = backend.platform
        self.label = backend.label
        self.host = backend.platform == "cpu"
        self.binds = not self.host
        self.exact = True  # integers are the language's, whoever runs it
        self.lanes = lanes
        if not self.host:
            self.link = _PCIE

    @property
    def key(self) -> str:
        return self.backend.name

    def available(self) -> tuple[bool, str]:
        return self.backend.available()

    def supports(self, program: Program) -> list[Verdict]:
        rows: list[Verdict] = []
        for e in program.equations:
            if e.effect and not self.host:
                rows.append(Verdict(False, f"{e.op.name} has an effect, which is the host's"))
                continue
            ok, why = self.backend.supports(e.op, [a.type for a in e.inputs], e.params)
            rows.append(YES if ok else Verdict(False, why))
        return rows

    def estimate(self, program: Program) -> Estimate | None:
        rates = PLAIN_RATES if self.host else _GPU_RATES
        return Estimate(roofline(program, rates), "model", "roofline of assumed rates")

    def prepare(self, program: Program) -> Step:
        return ExecutableStep(self.backend, program)

    def receive(self, value: DeviceArray) -> DeviceArray:
        return super().receive(value) if self.host else put(self.backend, value)


@final
class NpuUnit(Unit):
    """A target that something here runs: a chip through its vendor's runtime, a simulator, or a runtime on the host.

    Regions go to it whole: lowered with the quantized program's integers, built by the target's tools, refused where
    these leave an operation to the host.
    """

    wants_grids = True

    def __init__(self, name: str, target: NpuTarget) -> None:
        self.name = name
        self.target = target
        self.label, self._why = target.here()
        self.platform = "cpu" if target.host else "npu"
        # A runtime on the host whose integer kernels are the reference's, bit for bit.
        self.exact = target.exact and target.host
        # Chips that compute on grids of 8 bits are coarser than float16 and bfloat16.
        self.tolerance = _APART if target.precision[0].startswith("int") and not self.exact else Unit.tolerance

    @property
    def key(self) -> str:
        return self.target.name

    def available(self) -> tuple[bool, str]:
        return self.label in ("hardware", "vendor-simulator") or self.target.host, self._why

    def supports(self, program: Program) -> list[Verdict]:
        return verdicts(self.target, program)

    def estimate(self, program: Program) -> Estimate | None:
        return None  # the target's tools say, once they have built it

    def prepare(self, program: Program) -> Step:
        step = NpuStep(self.target, program, self.lanes)
        if not self.exact:
            step.checked = "not compared with a reference: the unit is not exact"
        elif not comparable(program):
            step.checked = NOT_INTEGERS
        else:
            run = lambda args: [y.numpy() for y in step([wrap(a) for a in args])]
            step.checked, _, _ = compared(program, run, step.runs_on)
        return step


# --- by name ---

Missing = tuple[str, str]


def resolve(
    wanted: Sequence[str | Unit],
    *,
    simulators: bool = False,
    sessions: dict[str, int] | None = None,
) -> tuple[list[Unit], list[Missing]]:
    """Units for what the user wrote, in order, and (name, reason) of the missing units.

    Args:
        wanted: kinds ("npu", "gpu", "tpu": whichever is here), names of backends or of targets, or units.
        simulators: "npu" may be a simulator.
        sessions: how many regions a unit runs at once, by name.

    Raises:
        ParameterError: a name that means nothing, one that is there twice, or nothing that is here.

    >>> units, missing = resolve(("npu", "cpu"))
    >>> units[-1].name, units[-1].label
    ('cpu', 'hardware')
    """
    found: list[Unit] = []
    missing: list[Missing] = []
    sessions = dict(sessions or {})
    if not wanted:
        raise ParameterError("Hybrid: names no unit", expected='names such as "npu", "gpu", "cpu"')
    for w in wanted:
        if not isinstance(w, (str, Unit)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("Hybrid: not a unit", got=repr(w), expected="names, and objects of nx.hybrid.Unit")
    names = [w if isinstance(w, str) else w.name for w in wanted]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ParameterError("Hybrid: a unit is named twice", got=repr(twice))
    unknown = sessions.keys() - set(names)
    if unknown:
        raise ParameterError("Hybrid: sessions of a unit that it does not have", got=min(unknown), expected=names)
    for name, item in zip(names, wanted, strict=True):
        unit = item if isinstance(item, Unit) else _unit(name, simulators)
        if isinstance(unit, str):
            missing.append((name, unit))
            continue
        ok, why = unit.available()
        if not ok:
            missing.append((name, why or "it is not available"))
            continue
        if name in sessions:
            unit.lanes = sessions[name]
        found.append(unit)
    if not found:
        raise ParameterError(
            "Hybrid: none of its units is available",
            got="; ".join(f"{n}: {why}" for n, why in missing),
            fix='add "cpu", which is always available',
        )
    return found, missing


def _unit(name: str, simulators: bool) -> Unit | str:
    """The unit of a name, or why there is none."""
    if name == "npu":
        return _npu(simulators)
    if name == "gpu":
        return _gpu()
    alias = registry.ALIASES.get(name, name)
    if alias == "cpu":
        return BackendUnit(name, registry.host())
    if alias in registry.names():
        backend = registry.get(alias)
        return BackendUnit(name, backend)
    if alias in KINDS:
        return f"no backend of nxjax drives a {alias}"
    try:
        target = target_registry.get(name)
    except ParameterError as error:
        raise ParameterError(
            "Hybrid: no such unit",
            got=repr(name),
            expected=f'"npu", {", ".join(map(repr, registry.names()))}, or a target of nx.targets()',
            fix=error.fix,
        ) from None
    if not isinstance(target, NpuTarget):
        return f"{target.name} is a file format or a whole machine, and takes no region: {target.title}"
    unit = NpuUnit(name, target)
    if not unit.available()[0]:
        return f"{unit.label}: {unit.available()[1] or 'nothing here runs it'}"
    return unit


def _gpu() -> Unit | str:
    """The best GPU that is one: of a PJRT plugin, of OpenVINO, of Vulkan."""
    whys: list[str] = []
    found: list[Backend] = []
    for backend in map(registry.get, registry.names()):
        if backend.platform != "gpu":
            continue
        ok, why = backend.available()
        if ok and backend.label == "hardware":
            found.append(backend)
        whys.append(f"{backend.name}: {f'a {backend.label}, to be named' if ok else why}")
    if found:
        return BackendUnit("gpu", max(found, key=lambda b: b.priority))
    return "; ".join(whys)


def _npu(simulators: bool) -> Unit | str:
    """The first NPU whose results are the chip's own; or, where they are allowed, a simulator."""
    reachable: dict[str, str] = {}
    for name in target_registry.names():
        target = target_registry.get(name)
        if not isinstance(target, NpuTarget) or target.host:
            continue
        label = target.available()[0]
        reachable.setdefault(label, name)
        if label == "hardware":
            return NpuUnit("npu", target)
    if simulators and "vendor-simulator" in reachable:
        target = target_registry.npu(reachable["vendor-simulator"], "Hybrid")
        return NpuUnit("npu", target)
    why = "no NPU on this machine"
    if "vendor-simulator" in reachable:
        why += f" (simulators=True takes a simulator, here {reachable['vendor-simulator']})"
    return why
