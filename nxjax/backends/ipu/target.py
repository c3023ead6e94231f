"""IPU systems as targets of `nx.compile`: a program of tiles, run and counted by the model. The label: ``own-model``.

What it says is a model's answer, as that of Graphcore's own IPUModel device: values as the codelets compute them,
cycles and bytes as published figures and estimates have them. Nothing ran on an IPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, final

from nxjax.backends.evidence import Label
from nxjax.backends.ipu import emit
from nxjax.backends.ipu.backend import DEFAULT
from nxjax.backends.ipu.cycles import CycleCount
from nxjax.backends.ipu.detect import hardware, without_hardware
from nxjax.backends.ipu.engine import IpuEngine
from nxjax.backends.ipu.executable import from_tiles, to_tiles
from nxjax.backends.ipu.fit import fitted
from nxjax.backends.ipu.model import CycleModel
from nxjax.backends.target import Build, OnChip, ProgramTarget, Run, Runner, Site, Target, file_name, only
from nxjax.errors import ParameterError, UnsupportedOpsError
from nxjax.kernels.ipu.chip import SYSTEMS, IpuSystem
from nxjax.kernels.ipu.host import available, runner
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.precision import in_half
from nxjax.lower.ipu.program import IpuProgram, NDArray, While
from nxjax.lower.ipu.rules import RULES
from nxjax.lower.macs import macs
from nxjax.lower.placement import YES, Cost, Placement, Verdict
from nxjax.ops.base import Elementwise
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined

OPTIONS: Final = (
    "precision", "partials", "available_memory_proportion", "stochastic_rounding", "seed", "num_ipus", "compile_only",
    "donate",
)  # fmt: skip
_PARTIALS: Final[dict[str, Literal["float32", "float16"]]] = {
    "float": "float32", "float32": "float32", "half": "float16", "float16": "float16",
}  # fmt: skip
PRECISIONS: Final = ("float32", "float16", "mixed")


class IpuTarget(ProgramTarget):
    """One IPU system.

    Options of `build`: ``precision``: "float32", "float16" (the whole program), or "mixed" (half operands of products);
    ``partials``: what products of halves are summed up in, "float" or "half"; ``available_memory_proportion``: how much
    of a tile's memory one product may take for its temporaries, 0 to 1; ``stochastic_rounding`` and its ``seed``;
    ``num_ipus``; ``compile_only``: not run here; ``donate``: numbers of inputs whose place results may take, so that
    they stay on the chip between runs.
    """

    system: ClassVar[IpuSystem]
    format: ClassVar[str] = "ipu"
    site: ClassVar[Site] = "data center"
    precision: ClassVar[tuple[str, ...]] = ("float32", "float16", "int8")
    device: ClassVar[OnChip] = "ipu"
    binds: ClassVar[bool] = False

    def available(self) -> tuple[Label, str]:
        return "own-model", without_hardware(hardware())

    def supports(self, equation: Equation) -> Verdict:
        rows = self.placed(Program(*_alone(equation)))
        left = [r for r in rows if r.device == "host"]
        return Verdict(False, left[0].reason, left[0].suggestion) if left else YES

    def placed(self, subject: Program) -> list[Placement]:
        """Where each equation runs, and by what; those that tiles cannot run with the reason."""
        try:
            lower(subject, replace(self.system, ipus=1))
        except UnsupportedOpsError as error:
            return rows(subject, error.rows)
        return rows(subject)

    def build(self, subject: Program, options: dict[str, object]) -> Build:
        only(self.name, options, OPTIONS)
        how = BuildOptions(self.name, self.system, subject, options)
        program = in_half(subject) if how.options.precision == "float16" else subject
        model, ipus = fitted(program, how.system, how.options, how.donate, subject.name)
        made = model.program
        cost = Cost()
        _figures(cost, model, how)
        build = Build(
            emit.files(made, file_name(subject.name, "").strip(".") or "graph"),
            rows(subject),
            cost,
            notes=self._notes(model, how, ipus),
            analysis=model,
        )
        if not how.compile_only:
            run = _runner(_engine(made, how), model, subject, build, how)
            build.runner = Runner(run, f"the model of {how.system.title}", "own-model")
        return build

    def _notes(self, model: CycleModel, how: BuildOptions, ipus: int) -> list[str]:
        found = [f"cycles, times and bytes are those of a model, not measured; {without_hardware(hardware())}"]
        if ipus > 1:
            found.append(
                f"tensors lie over the tiles of {ipus} IPUs, since fewer have not the memory; pipeline stages "
                "(nxjax.hardware.graphcore) or nx.shard_map use the links between them less"
            )
        if not model.cycles.measured:
            found.append(
                "loops of unknown length are counted once, and of choices the longest branch, until a run has shown "
                "how often each runs"
            )
        kept = set(model.program.aliases.values())
        streamed = sum(v.nbytes for i, v in enumerate(model.program.inputs) if i not in kept)
        if streamed > 1 << 16 and model.cycles.host > model.cycles.device:
            found.append(
                f"{streamed:,} bytes of inputs are streamed from the host in each run, which takes longer than it: "
                "constants=(0,) makes parameters part of the program, donate=... keeps results in place of inputs"
            )
        compiled, compiler = available()
        if not compiled:
            found.append(
                f"codelets run by their meanings, slowly and rounding to nearest: no C++ compiler ({compiler})"
            )
        elif how.options.stochastic_rounding:
            found.append("stochastic rounding draws other random numbers than hardware does")
        return found


@final
class BuildOptions:
    """The options of a build, checked."""

    def __init__(self, name: str, system: IpuSystem, program: Program, given: Mapping[str, Any]) -> None:
        def choice(key: str, known: Sequence[Any], default: Any) -> Any:
            value = given.get(key, default)
            if not any(value is k or (value == k and type(value) is type(k)) for k in known):
                raise ParameterError(f"{name}: {key}", got=repr(value), expected=", ".join(map(repr, known)))
            return value

        precision = choice("precision", PRECISIONS, "float32")
        partials = choice("partials", tuple(_PARTIALS), "float")
        proportion = given.get("available_memory_proportion", 0.6)
        if isinstance(proportion, bool) or not isinstance(proportion, (int, float)) or not 0 < proportion <= 1:
            raise ParameterError(
                f"{name}: available_memory_proportion", got=repr(proportion), expected="more than 0, at most 1"
            )
        rounding = choice("stochastic_rounding", (False, True), False)
        self.compile_only: bool = choice("compile_only", (False, True), False)
        self.seed = _integer(name, "seed", given.get("seed", 0), 0)
        ipus = _integer(name, "num_ipus", given.get("num_ipus", system.ipus), 1)
        self.system = replace(system, ipus=ipus)
        donate = given.get("donate", ())
        several = donate if isinstance(donate, (tuple, list, range)) else (donate,)
        self.donate = tuple(_integer(name, "donate", i, 0) for i in several)  # pyright: ignore[reportUnknownVariableType]
        if any(i >= len(program.inputs) for i in self.donate) or len(set(self.donate)) != len(self.donate):
            wanted = f"different inputs from 0 to {len(program.inputs) - 1}"
            raise ParameterError(f"{name}: donate", got=self.donate, expected=wanted)
        self.options = IpuOptions(precision, _PARTIALS[partials], float(proportion), rounding)

    @property
    def macs(self) -> int:
        """Multiply-adds that a tile does a cycle at its best in this precision."""
        o, units = self.options, self.system.chip.conv_units
        if o.precision == "float32":
            return 16
        return 4 * units if o.partials == "float16" else 4 * min(units, 8)


def _integer(name: str, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name}: {key}", got=repr(value), expected=f"an int, at least {least}")
    return value


def _engine(program: IpuProgram, how: BuildOptions) -> IpuEngine:
    stochastic = how.options.stochastic_rounding
    return IpuEngine(program, runner(program.codelets(), stochastic=stochastic, seed=how.seed))


def _runner(engine: IpuEngine, model: CycleModel, program: Program, build: Build, how: BuildOptions) -> Run:
    """What runs the model; a run whose loops were counted corrects the figures."""
    types = program.out_types

    def run(args: Sequence[NDArray]) -> list[NDArray]:
        inputs = engine.program.inputs
        ys = engine.run([to_tiles(x, v.dtype) for x, v in zip(args, inputs, strict=True)])
        if not model.cycles.measured:
            model.counted(engine.counts)
            _figures(build.cost, model, how)
        return [from_tiles(y, t) for y, t in zip(ys, types, strict=True)]

    return run


def _figures(cost: Cost, model: CycleModel, how: BuildOptions) -> None:
    c: CycleCount = model.cycles
    m = model.memory
    open_loops = not c.measured and any(isinstance(s, While) and s.turns is None for s in model.program.walk())
    # A body that was counted once says nothing of how long a run takes.
    cost.why = (
        "unknown: loop, until a run has shown how often it turns"
        if open_loops
        else "how long launch and transfers take is not published; see 'chip time'"
    )
    if not open_loops:
        cost.add("chip time", c.seconds, "s", "model")
    cost.add("cycles", c.total, "cycles", "model")
    for name in ("compute", "exchange", "sync", "host"):
        cost.add(f"{name} cycles", getattr(c, name), "cycles", "model")
    cost.add("flops", c.flops, "FLOP", "model")
    cost.add("share of peak", c.share_of_peak(how.macs), "of 1", "model")
    cost.add("tile utilization", c.utilization, "of 1", "model")
    cost.add("peak tile memory", m.peak, "bytes", "model")
    cost.add("tile memory", m.available, "bytes", "model")
    cost.add("memory", m.total, "bytes", "model")


def _alone(e: Equation) -> tuple[Any, Any, Any]:
    fresh = {a: Var(a.type) for a in e.inputs if isinstance(a, Var)}
    inputs = tuple(fresh[a] if isinstance(a, Var) else a for a in e.inputs)
    outputs = tuple(Var(v.type) for v in e.outputs)
    return list(fresh.values()), [e.replaced(inputs, outputs)], outputs


def rows(program: Program, refused: Sequence[Any] = ()) -> list[Placement]:
    """One row per equation; ``refused`` are `UnsupportedOpsError.rows` of the lowering."""
    left = {(what, str(source)): error for what, error, source in refused}
    found: list[Placement] = []
    for e in inlined(program).equations:
        types = ", ".join(str(o.type) for o in e.outputs)
        error = left.pop((e.op.name, str(e.source)), None)
        if error is not None:
            found.append(Placement(e.op.name, types, "host", e.source, e.scope, error.reason, error.fix, macs(e)))
        else:
            found.append(Placement(e.op.name, types, "ipu", e.source, e.scope, _how(e), "", macs(e)))
    # Ops inside of loops and expansions, inputs and constants.
    for (what, _), error in left.items():
        source = next(s for w, e, s in refused if e is error and w == what)
        found.append(Placement(what, "", "host", source, "", error.reason, error.fix))
    return found


def _how(e: Equation) -> str:
    """What writes an equation."""
    rule = RULES.get(e.op.name)
    if rule is not None and rule.supports(e):
        return "rule"
    return "fused elementwise" if isinstance(e.op, Elementwise) else "expansion"


def summary(rows: Sequence[Placement]) -> dict[str, int]:
    """How many equations each way of writing serves.

    >>> summary([Placement("add", "", "ipu", reason="rule")])
    {'rule': 1}
    """
    return dict(Counter(r.reason for r in rows if r.device == "ipu"))


def _target(s: IpuSystem) -> type[IpuTarget]:
    """The class of one system."""
    return type(
        f"Ipu{''.join(p.capitalize() for p in s.name.split('-'))}",
        (IpuTarget,),
        {
            "__doc__": f"{s.title}.",
            "__module__": __name__,
            "name": f"ipu-{s.name}",
            "title": f"Graphcore {s.title.removeprefix('Graphcore ').removeprefix('one ')} (model)",
            "aliases": ("ipu",) if s.name == DEFAULT else (),
            "system": s,
        },
    )


TARGETS: Final[tuple[type[Target[Any]], ...]] = tuple(_target(s) for s in SYSTEMS.values())
