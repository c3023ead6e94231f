"""Program -> Plan: verdicts, regions, costs, a schedule, and neighbours on one unit put together again.

Regions are built on targets before anything is decided, since only a target's own tools know what it takes; what is
refused shrinks the regions until all stand. Costs are what was measured on this machine, else what the target's tools
say, else a model; each says which. A device that wants weights as constants gets those that a call was given. That is a
guess about later calls, never about results: whoever binds values compares them at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from nxjax.backends import registry
from nxjax.backends.hybrid.choose import choose
from nxjax.backends.hybrid.plan import PINNED, Place, Plan, Ready
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Objective, Schedule, Task, Work
from nxjax.backends.hybrid.trying import ENOUGH, History, form, guarded, is_exact, measurable, measure
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Unit
from nxjax.backends.hybrid.units import PLAIN_RATES, grids_of, roofline, seconds_of, snapped
from nxjax.errors import PlacementError
from nxjax.lower.partition.grouping import LIGHT, MOST, grouped, joined
from nxjax.lower.partition.regions import Partition, Region, cut
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined

# Products, and the operands of theirs that hold what was learned.
_PRODUCTS: Final = {
    "dot_general": (1,),
    "conv_general_dilated": (1,),
    "qdot": (1, 2, 3),
    "qconv": (1, 2, 3),
    "layer_norm": (1, 2),
    "rms_norm": (1,),
    "batch_norm_inference": (1, 2, 3, 4),
    "prelu": (1,),
    "qprelu": (1,),
    "gather": (0,),
}
_MOVES: Final = frozenset(("broadcast_in_dim", "reshape", "copy", "transpose"))
# What repeats a value of so many elements more is computed where it is read.
_GROWN: Final = 4096


def weight_inputs(program: Program) -> tuple[int, ...]:
    """Positions of the inputs of a flat program that look like weights.

    Inputs that reach the second operand of a product, its scales or biases, on a way without other products, and no
    product's first operand; and those of at most one dimension that are only spread over larger values.

    >>> f = lambda p, x: nx.nn.relu(x @ p["w"] + p["b"])
    >>> weight_inputs(inlined(nx.make_jaxpr(f)({"w": nx.ones((3, 2)), "b": nx.ones(2)}, nx.ones((4, 3)))))
    (0, 1)
    """
    # Inputs that a variable depends on without a product between; and of which it is nothing but a copy.
    reach: dict[Var, set[int]] = {v: {i} for i, v in enumerate(program.inputs)}
    copies: dict[Var, set[int]] = dict(reach)
    data: set[int] = set()
    fed: set[int] = set()
    weights: set[int] = set()
    elsewhere: set[int] = set()
    for e in program.equations:
        read = [a for a in e.inputs if isinstance(a, Var)]
        held = _PRODUCTS.get(e.op.name)
        moves = e.op.name in _MOVES
        for n, a in enumerate(e.inputs):
            if isinstance(a, Var) and held is not None:
                (weights if n in held else data).update(reach.get(a, ()))
                fed.update(copies.get(a, ()) if n not in held else ())
            elif a in program.inputs and not moves:
                elsewhere.update(reach.get(a, ()))  # pyright: ignore[reportArgumentType]
        for v in e.outputs:
            reach[v] = set() if held is not None else set[int]().union(*(reach.get(a, ()) for a in read))
            copies[v] = copies.get(read[0], set()) if moves and read else set()
    results = {i for i, v in enumerate(program.inputs) if v in program.outputs}
    read_ones = {a for e in program.equations for a in e.inputs}
    spread = {
        i
        for i, v in enumerate(program.inputs)
        if len(v.type.shape) == 1 and v in read_ones and i not in elsewhere | fed
    }
    return tuple(sorted((weights - data | spread) - results))


def settled(program: Program, compute: Callable[[Program], Sequence[Array]]) -> Program:
    """A flat program without what depends on its consts alone: computed once by ``compute``, and made consts.

    ``compute`` runs a program that has no inputs. Results that are much larger than what they are made of, such as a
    bias spread over a batch, stay equations.
    """
    flat = dead_code_eliminated(inlined(program))
    known: set[Var] = set(flat.constvars)
    read_by_known: set[Var] = set()
    fixed: list[bool] = []
    for e in flat.equations:
        read = [a for a in e.inputs if isinstance(a, Var)]
        fixed.append(not e.effect and all(a in known for a in read))
        if fixed[-1]:
            known.update(e.outputs)
            read_by_known.update(read)
    done: list[Equation] = []
    left: list[Equation] = []
    for e, still in zip(flat.equations, fixed, strict=True):
        grown = sum(v.type.size for v in e.outputs) - sum(a.type.size for a in e.inputs if isinstance(a, Var))
        spread = grown > _GROWN and read_by_known.isdisjoint(e.outputs)
        (done if still and not spread else left).append(e)
    if not done:
        return _trimmed(flat, flat.equations, dict(zip(flat.constvars, flat.values, strict=True)))
    # In their order: times are kept by what a program is, which depends on the order of its consts.
    made = [v for e in done for v in e.outputs]
    wanted = {a for e in left for a in e.inputs if isinstance(a, Var)} | {a for a in flat.outputs if isinstance(a, Var)}
    outputs = [v for v in made if v in wanted]
    values: dict[Var, Any] = dict(zip(flat.constvars, flat.values, strict=True))
    if outputs:
        part = Program((), done, outputs, flat.constvars, flat.values, f"{program.name}_known")
        values.update(zip(outputs, compute(part), strict=True))
    return _trimmed(flat, left, values)


def _trimmed(flat: Program, equations: Sequence[Equation], values: dict[Var, Any]) -> Program:
    """The program of these equations, with the consts that it reads."""
    read = {a for e in equations for a in e.inputs} | set(flat.outputs)
    consts = [v for v in values if v in read]
    return Program(flat.inputs, equations, flat.outputs, consts, [values[v] for v in consts], flat.name)


# Named scopes that begin so say where their equations run: see `nx.hybrid.device_scope`.
SCOPE: Final = "device:"
# Seconds for which a unit may be silent when it is measured.
_PATIENCE: Final = 30.0
# The number of a result that orders effects: it has no bytes.
_ORDER: Final = 1 << 20


@final
@dataclass(frozen=True)
class PlanOptions:
    """What the user asked for: see `nx.Hybrid`."""

    objective: Objective = "latency"
    deadline: float | None = None
    pin: Mapping[str, str] = field(default_factory=dict[str, str])
    measure: bool = True
    redo: str = "exact"
    watts: Mapping[str, float] = field(default_factory=dict[str, float])
    verify: float = 0.0
    light: float = LIGHT
    most: int = MOST


@final
@dataclass(frozen=True)
class PlanSetting:
    """What plans are made from: the units that are here by the user's priority and, with the reason, those that are
    not; what the user asked for, and what was measured."""

    units: tuple[Unit, ...]
    missing: tuple[tuple[str, str], ...]
    options: PlanOptions
    history: History


def compute(program: Program) -> list[DeviceArray]:
    """The results of a program without inputs, by the host's executor."""
    hoisted, values = program.hoist_consts()
    return registry.host().compile(hoisted)(list(values))  # pyright: ignore[reportArgumentType]


@final
class Planner:
    """Plans one program, and plans it again when more is known; what was built is kept.

    Args:
        program: its consts are known to the units.
    """

    def __init__(self, program: Program, setting: PlanSetting) -> None:
        self.program = settled(program, compute)
        self.grids = grids_of(self.program)
        self.units = {u.name: u for u in setting.units}
        self.missing, self.options, self.history = setting.missing, setting.options, setting.history
        self.notes: list[str] = []
        self.whys: dict[str, dict[int, str]] = {name: {} for name in self.units}
        self.ready: dict[tuple[str, tuple[int, ...]], Ready] = {}
        # Which units may get each equation, by what they take and by the pins.
        self.allowed: list[set[str]] = []

    def plan(self) -> Plan:
        """The plan.

        Raises:
            PlacementError: equations that no unit takes, or pins that cannot be kept.
        """
        self._ask()
        self._pin()
        self._fine = self._settle()
        return self._planned(self._fine, self._costs(self._fine))

    def alone(self) -> list[Plan]:
        """The plans of one unit each, of those that take everything; the best by what is known first."""
        costs = self._costs(self._fine)
        names = [n for n in self.units if all(n in row for row in costs)]
        plans = [self._planned(self._fine, [{n: row[n]} for row in costs]) for n in names]
        return sorted(plans, key=lambda plan: _worth(plan.schedule))

    def again(self, old: Plan, better: float) -> Plan:
        """Other units for the regions of ``old``, if by what is known now that takes at most ``better`` times as much;
        else the same places, with the times that are known now.

        Only exact units take regions from one another: what is planned anew gives the results of before.
        """
        fine, parts = self._costs(self._fine), old.partition
        rows = [self._summed(r, self._fine, fine) for r in parts.regions]
        may = lambda n: self.units[n].exact or self.options.redo == "any"
        both = list(zip(old.places, rows, strict=True))
        if any(p.unit not in row for p, row in both):
            return old  # it has just been refused
        known = [{p.unit: row[p.unit]} for p, row in both]
        now = [{n: c for n, c in row.items() if n == p.unit or (may(p.unit) and may(n))} for p, row in both]
        work = work_of(parts, known, self.units)
        found, kept = self._chosen(work_of(parts, now, self.units)), self._chosen(work)
        if found.assignment() == kept.assignment() or _worth(found) > better * _worth(kept):
            return replace(old, work=work, schedule=kept)
        return self._planned(parts, now)

    def _planned(self, parts: Partition, costs: Sequence[Mapping[str, Estimate]]) -> Plan:
        """Units for regions, and neighbours on one unit put together."""
        units = self._chosen(work_of(parts, costs, self.units)).assignment()
        whole, units = self._together(parts, units)
        rows = [self._summed(r, parts, costs) for r in whole.regions]
        alone = [{unit: row[unit]} for row, unit in zip(rows, units, strict=True)]
        work = work_of(whole, alone, self.units)
        places = tuple(self._place(r, u) for r, u in zip(whole.regions, units, strict=True))
        return Plan(
            self.program.name or "function", whole, places, tuple(self.units.values()), self.missing, work,
            self._chosen(work), tuple(self.notes),
        )  # fmt: skip

    def _summed(self, r: Region, parts: Partition, costs: Sequence[Mapping[str, Estimate]]) -> dict[str, Estimate]:
        """What a region takes: what was measured of it, else the regions of ``parts`` that it consists of together."""
        numbers = sorted({parts.owner[i] for i in r.equations})
        row: dict[str, Estimate] = {}
        for name in self._names(r):
            ready = self._ready(r, name)
            found = [c for n in numbers if (c := costs[n].get(name)) is not None]
            if len(found) < len(numbers):
                continue
            if len(found) == 1:
                ready.cost = found[0]
            elif self.history.count(form(r.program), ready.unit.key) >= ENOUGH:
                ready.cost = self._cost(r, ready, alone=True)
            else:
                worst = min(found, key=lambda c: ("model", "vendor-estimate", "measured").index(c.basis))
                joules = [c.joules for c in found if c.joules is not None]
                total = sum(joules) if len(joules) == len(found) else None
                ready.cost = Estimate(sum(c.seconds for c in found), worst.basis, "the sum of its parts", total)
            row[name] = ready.cost
        return row

    # --- who can ---

    def _ask(self) -> None:
        rows = {name: unit.supports(self.program) for name, unit in self.units.items()}
        for i in range(len(self.program.equations)):
            self.allowed.append({name for name, row in rows.items() if row[i].ok})
            for name, row in rows.items():
                if not row[i].ok:
                    self.whys[name][i] = row[i].reason
        self._check()

    def _check(self) -> None:
        """Every equation has a unit, or one error names all that have none."""
        left = [i for i, names in enumerate(self.allowed) if not names]
        if not left:
            return
        rows: list[str] = []
        for i in left[:10]:
            e = self.program.equations[i]
            whys = "; ".join(f"{name}: {w[i]}" for name, w in self.whys.items() if i in w)
            rows.append(f"\n    - {e.op.name}: {whys}" + (f"\n      at {e.source}" if e.source is not None else ""))
        if len(left) > 10:
            rows.append(f"\n    - and {len(left) - 10} more")
        error = PlacementError(
            f"Hybrid: {len(left)} of {len(self.allowed)} equations run on none of its units{''.join(rows)}",
            got=", ".join(self.units),
            fix='add "cpu", which supports everything' if not any(u.host for u in self.units.values()) else None,
            source=next((s for i in left if (s := self.program.equations[i].source) is not None), None),
        )
        error.rows = tuple(rows)
        raise error

    def _pin(self) -> None:
        """Leave pinned equations the one unit that they are pinned to."""
        gone = dict(self.missing)
        for i, e in enumerate(self.program.equations):
            name = pinned(e.scope, e.op.name, self.options.pin)
            if name is None:
                continue
            if name in gone or name not in self.units:
                why = gone.get(name, "it is not among the units")
                note = f"pinned to {name}, which is missing ({why}): placed freely"
                self.notes += [note] if note not in self.notes else []
            elif name in self.allowed[i]:
                self.allowed[i] = {name}
            elif e.effect or any(isinstance(a, Var) for a in e.inputs):
                error = PlacementError(
                    f"Hybrid: {e.op.name} is pinned to {name}, which does not support it",
                    got=self.whys[name].get(i, "it was refused when it was built"),
                    expected=f"one of {', '.join(sorted(self.allowed[i]))}",
                    source=e.source,
                )
                raise error

    # --- regions that their units take ---

    def _settle(self) -> Partition:
        seconds = [seconds_of(e) for e in self.program.equations]
        while True:
            sets = [frozenset(names) for names in self.allowed]
            groups = grouped(self.program, sets, seconds, light=self.options.light, most=self.options.most)
            parts = cut(self.program, groups)
            refused = [r.number for r in parts.regions if self._refused(r)]
            if not refused:
                return parts
            self._check()

    def _names(self, r: Region) -> list[str]:
        """The units that take a region, by the user's priority."""
        shared = set[str].intersection(*(self.allowed[i] for i in r.equations))
        return [name for name in self.units if name in shared]

    def _refused(self, r: Region) -> bool:
        """Build a region where only building tells; what is refused is taken from the units of its equations."""
        refused = False
        for name in self._names(r):
            ready = self._ready(r, name)
            told = ready.prepared is not None or ready.unit.estimate(r.program) is not None
            why = None if told else self._refusal(ready)
            if why is not None:
                refused = True
                put = len(ready.program.equations) - len(r.equations)  # what puts inputs on their grids stands in front
                for i in [r.equations[n - put] for n in why.numbers if n >= put] or r.equations:
                    self._lose(i, name, why.reason)
        return refused

    def _refusal(self, ready: Ready) -> RegionRefused | None:
        """Why a region cannot be built on a unit; None once it is."""
        try:
            guarded(ready.unit, ready.step)
        except RegionRefused as why:
            return why
        return None

    def _lose(self, i: int, name: str, why: str) -> None:
        self.allowed[i].discard(name)
        self.whys[name][i] = why

    def _ready(self, r: Region, name: str) -> Ready:
        key = (name, r.equations)
        found = self.ready.get(key)
        if found is None:
            unit = self.units[name]
            program = snapped(r.program, self.grids) if unit.wants_grids else r.program
            found = self.ready[key] = Ready(unit, program)
        return found

    # --- what it costs ---

    def _costs(self, parts: Partition) -> list[dict[str, Estimate]]:
        rows: list[dict[str, Estimate]] = []
        for r in parts.regions:
            row: dict[str, Estimate] = {}
            names = self._names(r)
            for name in names:
                ready = self._ready(r, name)
                try:
                    ready.cost = self._cost(r, ready, alone=len(names) == 1)
                except RegionRefused as why:
                    if len(names) == 1:
                        raise PlacementError(f"Hybrid: {name} refuses a region", got=why.reason) from why
                    ready.why = why.reason
                    for i in r.equations:
                        self._lose(i, name, why.reason)
                    continue
                row[name] = ready.cost
            rows.append(row)
        return rows

    def _cost(self, r: Region, ready: Ready, *, alone: bool) -> Estimate:
        unit, kept = ready.unit, form(r.program)
        # Where there is nothing to choose, only what nobody estimates is measured.
        step = ready.prepared
        unknown = unit.estimate(r.program) is None and (step is None or step.estimate is None)
        if (
            self.options.measure
            and (unknown or not alone)
            and self.history.count(kept, unit.key) < ENOUGH
            and measurable(r.program)
        ):
            for seconds in guarded(unit, lambda: measure(ready.step(), r.program), _PATIENCE):
                self.history.add(kept, unit.key, seconds)
        count = self.history.count(kept, unit.key)
        median = self.history.seconds(kept, unit.key)
        step = ready.prepared
        if median is not None and count >= ENOUGH:
            runs_on = step.runs_on if step is not None else unit.name
            found = Estimate(median, "measured", f"{count} runs on this machine, {runs_on}")
        else:
            found = step.estimate if step is not None else None
            found = found or unit.estimate(r.program)
            found = found or Estimate(roofline(r.program, PLAIN_RATES), "model", "roofline of assumed rates")
        watts = self.options.watts.get(unit.name, unit.watts)
        if found.joules is None and watts is not None:
            found = Estimate(found.seconds, found.basis, found.says, watts * found.seconds)
        return found

    def _chosen(self, work: Work) -> Schedule:
        return choose(work, self.options.objective, deadline=self.options.deadline)

    # --- neighbours on one unit ---

    def _together(self, parts: Partition, units: Sequence[str]) -> tuple[Partition, tuple[str, ...]]:
        """Regions with neighbours of the same unit merged where nothing comes to wait for more than it did."""
        several = {n for n, u in self.units.items() if u.lanes > 1}
        merged = joined(self.program, parts.owner, [units[r] for r in parts.owner], several)
        old = {r.equations for r in parts.regions}
        while True:
            found = cut(self.program, merged)
            names = tuple(units[parts.owner[r.equations[0]]] for r in found.regions)
            # What cannot be built as one stays in pieces.
            new = [(r, n) for r, n in zip(found.regions, names, strict=True) if r.equations not in old]
            refused = {i for r, name in new if self._refusal(self._ready(r, name)) for i in r.equations}
            if not refused:
                return found, names
            merged = [-1 - parts.owner[i] if i in refused else g for i, g in enumerate(merged)]

    def _place(self, r: Region, unit: str) -> Place:
        names = self._names(r)
        on: dict[str, Ready] = {}
        for name, u in self.units.items():
            why = next((self.whys[name][i] for i in r.equations if i in self.whys[name]), "") or PINNED
            on[name] = self._ready(r, name) if name in names else Ready(u, r.program, why)
        pure = not r.program.effect
        may = lambda n: self.units[n].exact or self.options.redo == "any"
        # What an inexact unit leaves undone has the language's own bits where an exact one does it.
        left = may(unit) or self.options.redo == "exact"
        # A pin says where a region is planned; where its unit fails, it goes where it can.
        able = [n for n, whys in self.whys.items() if whys.keys().isdisjoint(r.equations)]
        others = [n for n in able if n != unit and pure and may(n) and left]
        takers = (unit, *others)
        sure = all(self.units[n].exact for n in takers)
        exact = sure and all(map(is_exact, r.program.equations))
        apart = max(self.units[n].tolerance for n in takers) if others else None
        return Place(r, unit, on, takers, exact, apart, rough=not sure)


def _worth(s: Schedule) -> float:
    """What a schedule is judged by."""
    if s.objective == "energy" and s.joules is not None:
        return s.joules
    return s.interval if s.objective == "throughput" else s.makespan


def pinned(scope: str, op: str, pins: Mapping[str, str]) -> str | None:
    """The unit that an equation is pinned to: by the innermost `device_scope`, else by a scope or an op of ``pins``.

    >>> pinned("encoder/device:npu/conv", "exp", {}), pinned("a/head", "exp", {"head": "cpu"}), pinned("", "exp", {})
    ('npu', 'cpu', None)
    """
    parts = scope.split("/")
    for part in reversed(parts):
        if part.startswith(SCOPE):
            return part.removeprefix(SCOPE)
    for key, unit in pins.items():
        words = key.split("/")
        inside = any(parts[i : i + len(words)] == words for i in range(len(parts)))
        if inside or key == op:
            return unit
    return None


def work_of(parts: Partition, costs: Sequence[Mapping[str, Estimate]], units: Mapping[str, Unit]) -> Work:
    """Regions as tasks: what each takes where, and what it needs of the others."""
    maker = parts.maker()
    argument = {v: i for i, v in enumerate(parts.program.inputs)}

    def edge(v: Var) -> Edge:
        source, value = maker.get(v, (CALLER, argument.get(v, 0)))
        return Edge(source, v.type.size * v.type.dtype.itemsize, value)

    tasks: list[Task] = []
    for r, row in zip(parts.regions, costs, strict=True):
        needs = [edge(v) for v in r.inputs]
        order = [Edge(b, 0, _ORDER) for b in r.after if b not in {e.source for e in needs}]
        joules = {name: c.joules for name, c in row.items() if c.joules is not None}
        tasks.append(Task(r.name, {name: c.seconds for name, c in row.items()}, joules, (*needs, *order)))
    results = [edge(a) for a in dict.fromkeys(parts.program.outputs) if isinstance(a, Var) and a in maker]
    links = {name: u.link for name, u in units.items()}

    def transfer(a: str, b: str, nbytes: int) -> float:
        return links[a if b == HOST else b].seconds(nbytes)

    shared = {name: HOST for name, u in units.items() if u.host or u.link.bandwidth == float("inf")}
    lanes = {name: u.lanes for name, u in units.items()}
    cores = {name: HOST for name, u in units.items() if u.on_cores}
    return Work(tuple(tasks), tuple(units), transfer, tuple(results), lanes, shared, processors=cores)
