"""A program on several units: planned at its first call, run by the engine, planned anew when measurements say so.

Values of arguments that look like weights become part of the plan, and are compared at every call; what turns out to
change is an argument again. A plan that is one region on the host's executor is that executor's own executable, and
costs what its calls cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple, final
from weakref import finalize

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.jobs import CALLER, Graph, Job
from nxjax.backends.hybrid.plan import Place, Plan
from nxjax.backends.hybrid.planner import Planner, PlanSetting, weight_inputs
from nxjax.backends.hybrid.run import GraphRun
from nxjax.backends.hybrid.trying import form, guarded, measurable, sample
from nxjax.backends.hybrid.unit import RegionRefused, Unit
from nxjax.backends.hybrid.units import BackendUnit
from nxjax.backends.pairs import measured
from nxjax.errors import ExecutionError, LoweringError, PlacementError
from nxjax.lower.npu.bind import bind
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.program import Literal, Program, Var
from nxjax.transforms.inline import inlined

# After so many calls of a plan its times are looked at again; then after twice as many, and so on.
_FIRST_LOOK: Final = 16
# Seconds that two plans are measured in turn, about.
_IN_TURN: Final = 0.2
# Calls under way in a stream, where nobody says otherwise.
IN_FLIGHT: Final = 4
# A new plan has to be so much better than the one that runs.
BETTER: Final = 0.9
# An argument that was taken for a weight this often and changed, is none.
_PATIENCE: Final = 1
# What has been the same for so many calls is a weight again: somebody has loaded others.
_STEADY: Final = 100


@final
class _State:
    """A plan made ready to run.

    Attributes:
        bound: (position, array) of arguments that the plan has as constants.
        host, direct: what runs the whole program, where the plan is the host's alone.
        key: what its measured times are kept under: which regions run where.
        source: per input of the plan's program, the position of the argument.
    """

    def __init__(self, planner: Planner, plan: Plan, bound: Sequence[tuple[int, DeviceArray]], count: int) -> None:
        self.planner = planner
        self.plan = plan
        self.bound = tuple(bound)
        known = {i for i, _ in bound}
        self.source = tuple(i for i in range(count) if i not in known)
        self.host: BackendUnit | None = None
        self.direct: Executable | None = None
        self.graph = graph_of(plan)
        self.forms = [form(p.region.program) for p in plan.places]
        self.key = " ".join(f"{f[:8]}@{p.on[p.unit].unit.key}" for f, p in zip(self.forms, plan.places, strict=True))
        self.calls = 0
        self.look = _FIRST_LOOK


@final
class Begun(NamedTuple):
    """A call under way; without a run it is over, and here are its results."""

    state: _State
    run: GraphRun | None
    results: Sequence[DeviceArray]
    args: Sequence[DeviceArray] = ()

    def cancel(self) -> None:
        if self.run is not None:
            self.run.cancel()


@final
class HybridExecutable(Executable):
    """See the module. May be called by several threads at once.

    Args:
        program: without consts.
        donate: arguments that are gone after a call, which are never bound.
        setting: what plans are made from.
        engine: asked for when something has to run on it.
        trial: gives another like it, that plans are compared on.
    """

    def __init__(
        self,
        program: Program,
        donate: tuple[int, ...],
        setting: PlanSetting,
        engine: Callable[[], Engine],
        trial: Callable[[], Engine],
    ) -> None:
        self.program = program
        self._donate = donate
        self._setting = setting
        self._engine = engine
        self._trial = trial
        self._state: _State | None = None
        self._changed: dict[int, int] = {}
        self._constants_only = False
        self._lock = Lock()

    # --- plans ---

    @property
    def plan(self) -> Plan | None:
        """The plan that runs; None before the first call."""
        return None if self._state is None else self._state.plan

    def planned(self, args: Sequence[DeviceArray]) -> Plan:
        """The plan for a call with these arguments; what is planned is kept."""
        return self._ready(args).plan

    def _ready(self, args: Sequence[DeviceArray]) -> _State:
        state = self._state
        if state is None:
            with self._lock:
                state = self._state or self._made(args)
                self._state = state
        elif any(args[i] is not x for i, x in state.bound):
            with self._lock:
                state = self._state = self._held(args, self._state or state)
        return state

    def _held(self, args: Sequence[DeviceArray], state: _State) -> _State:
        """The state for arguments of which some are not the very arrays that are bound."""
        changed = [i for i, x in state.bound if args[i] is not x and not _equal(args[i], x)]
        if not changed:
            # Equal values in other arrays: the next call brings these again.
            state.bound = tuple((i, args[i]) for i, _ in state.bound)
            return state
        for i in changed:
            before = 0 if state.calls >= _STEADY else self._changed.get(i, 0)
            self._changed[i] = before + 1
        made = self._made(args)
        # Calls that are under way with the former values still run what it holds.
        finalize(state, state.plan.close).atexit = False
        return made

    def _made(self, args: Sequence[DeviceArray]) -> _State:
        if not any(u.binds for u in self._setting.units):
            return self._made_for(args, ())
        found = tuple(i for i in weight_inputs(inlined(self.program)) if i not in self._donate)
        steady = tuple(i for i in found if self._changed.get(i, 0) <= _PATIENCE)
        if steady == found or self._constants_only:
            return self._made_for(args, found)
        try:
            return self._made_for(args, steady)
        except PlacementError:
            # The only unit for an equation takes it with constants: then each new value is another plan.
            made = self._made_for(args, found)
            self._constants_only = True
            return made

    def _made_for(self, args: Sequence[DeviceArray], weights: tuple[int, ...]) -> _State:
        """A plan that has these of the arguments as constants."""
        bound = [(i, args[i]) for i in weights]
        planner = Planner(bind(self.program, dict(bound)), self._setting)
        state = self._no_slower(self._settled(_State(planner, planner.plan(), bound, len(args))), args)
        state.plan.constants = weights
        return state

    def _no_slower(self, state: _State, args: Sequence[DeviceArray], former: _State | None = None) -> _State:
        """``state``, unless another is as fast: they are measured in turn, as `nx.tune` does.

        The others are ``former``, which it is to replace, and each unit that takes everything, where the plan has
        several units or estimates decided. Energy is not measured: there the sums decide, and one unit is among them.

        Args:
            args: a call's. Loops that made-up data could keep going are run on them.
        """
        options, cut = self._setting.options, state
        runs = measurable(self.program) or (args and not self.program.effect)
        if not (runs and options.measure and options.objective != "energy"):
            return cut
        rivals = [] if former is None else [former]
        used = set(cut.plan.assignment)
        guessed = any(p.cost is None or p.cost.basis != "measured" for p in cut.plan.places)
        # What a link is said to take, nobody has measured.
        if len(used) > 1 or guessed or any(u.link.seconds(1) for u in self._setting.units):
            plans = [p for p in cut.planner.alone() if set(p.assignment) != used]
            rivals += [self._settled(_State(cut.planner, p, cut.bound, len(self.program.inputs))) for p in plans]
        notes = list(cut.plan.notes)
        for rival in rivals:
            first, second = (rival, state) if state is cut else (state, rival)
            one, other = ("+".join(dict.fromkeys(s.plan.assignment)) for s in (first, second))
            try:
                ratio, faster = self._in_turn(first, second, args, former is not None)
            except ExecutionError as error:
                notes.append(f"{other} and {one} were not measured in turn: {error.what}")
                continue
            notes.append(f"{other} takes {ratio:.2f} of the time of {one}, measured in turn")
            state, left = (second, first) if faster else (first, second)
            if left is not former:  # calls may be under way with that
                left.plan.close(state.plan)
        state.plan.notes = tuple(notes)
        return state

    def _in_turn(self, first: _State, second: _State, args: Sequence[DeviceArray], anew: bool) -> tuple[float, bool]:
        """The second one's time as a share of the first one's, and whether it is less for sure.

        Once per machine, unless ``anew``: what calls took has told of a change.
        """
        kept, share = form(first.planner.program), self._setting.options.verify
        checked = f", {share:g} of the answers checked" if share else ""
        rows = [f"{a.key} in turn with {b.key}{checked}" for a, b in ((first, second), (second, first))]
        if anew or not all(self._setting.history.count(kept, row) for row in rows):
            with self._trial() as engine:
                one, other = (self._runner(s, engine, args) for s in (first, second))
                pair = measured(one, other, seconds=_IN_TURN)
            # What is not faster for sure counts as equal.
            ratio = pair.ratio if pair.faster or pair.ratio >= 1 else 1.0
            for row, seconds in zip(rows, (pair.first, ratio * pair.first), strict=True):
                self._setting.history.forget(kept, row)
                self._setting.history.add(kept, row, seconds)
        least, most = (self._setting.history.seconds(kept, row) or 1.0 for row in rows)
        return most / least, most < least

    def _runner(self, state: _State, engine: Engine, args: Sequence[DeviceArray]) -> Callable[[], object]:
        """What runs one call, or as many as a stream has under way; with made-up arguments where these will do."""
        if measurable(self.program):
            held = dict(state.bound)
            args = [held.get(i, x) for i, x in enumerate(map(wrap, sample(self.program)))]
        calls = range(IN_FLIGHT if self._setting.options.objective == "throughput" else 1)
        if state.host is not None:
            direct = state.host.backend.compile(self.program)
            return lambda: [y.numpy() for _ in calls for y in direct(args)]
        given = [args[i] for i in state.source]

        def run() -> object:
            runs = [engine.submit(state.graph, given) for _ in calls]
            return [y.numpy() for r in runs for y in r.result()]

        return run

    def _settled(self, state: _State) -> _State:
        """``state``, with the host's own executable where that is all it is."""
        places = state.plan.places
        used = {p.unit for p in places}
        unit = next((u for u in self._setting.units if used == {u.name}), None) if places else self._host()
        if isinstance(unit, BackendUnit) and unit.host:
            state.host = unit
            state.direct = unit.backend.compile(self.program, self._donate)
            state.plan.close()
        else:
            for p in places:
                # So that the first call's times are those of the others. What fails now, fails in the engine's hands.
                with contextlib.suppress(RegionRefused):
                    ready = p.on[p.unit]
                    guarded(ready.unit, ready.step)
        return state

    def _host(self) -> Unit | None:
        return next((u for u in self._setting.units if u.host), self._setting.units[0])

    # --- calls ---

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        state = self._ready(args)
        if state.direct is not None:
            return state.direct(args)
        return self.finish(self._begun(state, args))

    def begin(self, args: Sequence[DeviceArray]) -> Begun:
        """Begin a call, to be ended by `finish`."""
        state = self._ready(args)
        return self._begun(state, args) if state.direct is None else Begun(state, None, state.direct(args))

    def finish(self, begun: Begun) -> list[DeviceArray]:
        """The results of a call that was begun."""
        if begun.run is None:
            return list(begun.results)
        try:
            found = begun.run.result()
        except ExecutionError as error:
            self._explain(error, begun.state.plan)
            raise
        self._ran(begun.state, begun.run, begun.args)
        return [landed(y) for y in found]

    def _explain(self, error: ExecutionError, plan: Plan) -> None:
        """Say of a failed call what the engine cannot know: that others could have run a region with other bits."""
        alone = [p.unit for p in plan.places if len(p.takers) == 1 and not p.region.program.effect]
        inexact = {u.name for u in self._setting.units if not u.exact} & set(alone)
        if inexact and self._setting.options.redo == "same":
            error.add_note(
                f"{', '.join(sorted(inexact))} rounds otherwise than the other units, so that none stood in for it; "
                'nx.Hybrid(..., redo="exact") lets those that have the exact results'
            )

    def _begun(self, state: _State, args: Sequence[DeviceArray]) -> Begun:
        run = self._engine().submit(state.graph, [args[i] for i in state.source])
        return Begun(state, run, (), () if self._donate else args)

    def _ran(self, state: _State, run: GraphRun, args: Sequence[DeviceArray]) -> None:
        """Remember what a call took; look at the plan again now and then."""
        spans = run.spans
        state.plan.spans = spans
        keys = {u.name: u.key for u in self._setting.units}
        for s in spans:
            if s.outcome == "done" and s.job < len(state.forms):  # behind the regions stand constants
                self._setting.history.add(state.forms[s.job], keys[s.unit], s.seconds)
        state.calls += 1
        if state.calls >= state.look:
            state.look *= 2
            self.replan(args)

    def replan(self, args: Sequence[DeviceArray] = (), *, better: float = BETTER) -> bool:
        """Plan anew with what has been measured; whether another plan runs from now on.

        Args:
            args: of a call, to compare plans on.
            better: the share of the present plan's time (or energy) that a new one may take at most.
        """
        with self._lock:
            state = self._state
            if state is None or state.direct is not None:
                return False
            try:
                plan = state.planner.again(state.plan, better)
            except PlacementError:  # a unit refuses what it has taken: the call's own jobs go to others
                return False
            if plan.places is state.plan.places:
                state.plan = plan
                return False
            new = self._settled(_State(state.planner, plan, state.bound, len(self.program.inputs)))
            # No measurement moves work to or from units that round otherwise.
            free = self._setting.options.redo == "any" or all(u.exact for u in self._setting.units)
            self._state = self._no_slower(new, args, state) if free else new
            self._state.plan.constants = state.plan.constants
            return self._state is not state

    # --- what others ask of an executable ---

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        direct = self._state.direct if self._state is not None else None
        return direct.bind_leading(held) if direct is not None else None

    def shortcut(self, jitted: Any, call: Any) -> None:
        direct = self._state.direct if self._state is not None else None
        if direct is not None:
            direct.shortcut(jitted, call)

    @property
    def text(self) -> str:
        return str(self.plan) if self._state is not None else f"not planned before the first call\n{self.program}"

    def cost_analysis(self) -> dict[str, float]:
        """``seconds`` of a call and of the next one in a stream, by the schedule; ``joules`` where they are known."""
        plan = self.plan
        if plan is None:
            return {}
        found = {"seconds": plan.schedule.makespan, "interval": plan.schedule.interval}
        return found if plan.schedule.joules is None else {**found, "joules": plan.schedule.joules}


def graph_of(plan: Plan) -> Graph:
    """The plan as jobs for the engine."""
    parts = plan.partition
    maker = parts.maker()
    argument = {v: i for i, v in enumerate(parts.program.inputs)}
    fixed: list[DeviceArray] = []
    known = dict(zip(parts.program.constvars, parts.program.values, strict=True))

    def place(v: Var) -> tuple[int, int]:
        return maker[v] if v in maker else (CALLER, argument[v])

    jobs: list[Job] = []
    for p in plan.places:
        r = p.region
        inputs = [place(v) for v in r.inputs]
        # What only has to come after a region with an effect takes its token, and does not look at it.
        order = [b for b in r.after if b not in {s for s, _ in inputs} and parts.regions[b].program.effect]
        waits = [(b, len(parts.regions[b].outputs)) for b in order]
        seconds = {n: c.seconds for n in p.takers if (c := p.on[n].cost) is not None}
        pure = not r.program.effect
        gives = tuple((v.type.shape, v.type.dtype.name) for v in r.outputs) if pure else None
        runs = {n: _runner(p, n, len(inputs)) for n in p.takers}
        name = f"{r.name} #{form(r.program)[:6]}"  # measured times are kept by it, for all programs
        jobs.append(Job(name, p.unit, runs, (*inputs, *waits), seconds, gives, p.exact, p.tolerance, pure, p.rough))
    results: list[tuple[int, int]] = []
    for a in parts.program.outputs:
        if isinstance(a, Var) and a not in known:
            results.append(place(a))
        else:
            value: Any = a.value if isinstance(a, Literal) else known[a]
            fixed.append(value)
            results.append((len(jobs), len(fixed) - 1))
    if fixed:
        unit = plan.units[0].name
        jobs.append(Job("constants", unit, {u.name: lambda _: fixed for u in plan.units}))
    return Graph(jobs, results, plan.name)


def _runner(p: Place, name: str, count: int) -> Callable[[list[Any]], Sequence[Any]]:
    ready = p.on[name]
    token = [None] if p.region.program.effect else []

    def run(values: list[Any]) -> Sequence[Any]:
        try:
            step = ready.step()
        except RegionRefused as why:
            raise LoweringError(f"{name}: the region is refused", got=why.reason) from why
        return [*step(values[:count]), *token]

    return run


def landed(x: DeviceArray) -> DeviceArray:
    """A result as arrays are that were put nowhere; what another device holds is fetched."""
    if x.place is None:
        return x
    return DeviceArray(x.numpy(), x.type)


def _equal(a: DeviceArray, b: DeviceArray) -> bool:
    if a.is_deleted() or b.is_deleted():
        return False
    x, y = a.numpy(), b.numpy()
    return x is y or np.array_equal(_bits(x), _bits(y))


def _bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
