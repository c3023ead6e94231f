"""Cloud TPUs as targets of `nx.compile`: one per generation, in every topology that Google's compiler takes.

A program goes to the compiler as StableHLO with the user's lines in it; what comes back is the executable itself, its
text and its statistics. Nothing is run here: the label is ``vendor-compiled``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

from nxjax.backends.evidence import Label, digests
from nxjax.backends.target import Build, OnChip, ProgramTarget, Site, Target, file_name, only
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.analysis import TpuAnalysis
from nxjax.backends.tpu.build import built, narrowed, written
from nxjax.backends.tpu.chips import GENERATIONS, Generation, Topology, parsed
from nxjax.backends.tpu.loops import BYTES, FLOPS, SECONDS
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.placement import Cost, Verdict
from nxjax.lower.stablehlo.support import check_portable, verdict
from nxjax.trace.program import Equation, Program

OPTIONS: Final = ("in_shardings", "out_shardings", "donate", "compiler_options", "timeout")


class TpuTarget(ProgramTarget):
    """One generation of Cloud TPUs in one topology.

    Options of `build`: ``in_shardings`` and ``out_shardings``, a sharding or None per input and result; ``donate``,
    positions of inputs whose memory results may take; ``compiler_options``, by libtpu's own names; ``timeout`` in
    seconds.
    """

    generation: ClassVar[Generation]
    format: ClassVar[str] = "tpu"
    site: ClassVar[Site] = "data center"
    extra: ClassVar[str] = "tpu"
    precision: ClassVar[tuple[str, ...]] = ("float32", "bfloat16", "int8", "float64")
    device: ClassVar[OnChip] = "tpu"
    binds: ClassVar[bool] = False

    def __init__(self, topology: Topology | None = None) -> None:
        self.topology = topology or self.generation.topology(self.generation.topologies[0])
        if topology is not None:
            self.name = str(topology)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    @classmethod
    def of(cls, form: str) -> TpuTarget:
        return cls(cls.generation.topology(form))

    def available(self) -> tuple[Label, str]:
        found, reason = compiler.available()
        return ("vendor-compiled", f"{reason}, compiles; nothing here runs it") if found else ("emitted", reason)

    def supports(self, equation: Equation) -> Verdict:
        return verdict(equation)

    def build(self, subject: Program, options: dict[str, object]) -> Build:
        only(self.name, options, OPTIONS)
        how = _Options(self.name, subject, options)
        rows = self.placed(subject)
        check_portable(self.name, rows)
        spread = (how.in_shardings, how.out_shardings, how.donate)
        try:
            text, analysis = built(
                subject, self.topology, *spread, options=how.compiler_options, timeout=how.timeout
            )  # fmt: skip
        except ExecutionError as error:
            source = written(narrowed(subject), *spread).encode()
            build = Build({file_name(subject.name, "mlir"): source}, rows)
            build.unanswered(error, "vendor-compiler", compiler.available()[1], digests(build.files))
            return build
        files = {
            file_name(subject.name, "tpu"): analysis.compiled.executable,
            file_name(subject.name, "mlir"): text.encode(),
            file_name(subject.name, "hlo.txt"): analysis.hlo.encode(),
        }
        rows = [_by_vendor(r) for r in rows]
        build = Build(files, rows, _cost(analysis), notes=self._notes(analysis), analysis=analysis)
        binary, source, hlo = files
        build.record(
            "compiled", "vendor-compiler", compiler.available()[1], took=digests(files, [source]),
            gave=digests(files, [binary, hlo]), status=0, answer=f"for {self.topology}",
        )  # fmt: skip
        return build

    def _notes(self, analysis: TpuAnalysis) -> list[str]:
        found = [
            f"compiled for {self.topology} by {compiler.available()[1]}; no TPU was used, and times are the compiler's "
            "static estimates",
        ]
        if analysis.compiled.switched_off:
            found.append(
                "compiled again without collectives on sparse cores, whose instructions this jaxlib does not read: "
                + ", ".join(analysis.compiled.switched_off)
            )
        if analysis.optimal_seconds is None:
            found.append(_untimed(analysis))
        found += analysis.counted()
        if "f32" in analysis.products:
            found.append("float32 products are made of bfloat16 pieces, one unless precision='highest' asks for more")
        return found


@final
class _Options:
    """The options of a build, checked."""

    def __init__(self, name: str, program: Program, given: Mapping[str, Any]) -> None:
        self.in_shardings = self._shardings(name, "in_shardings", given, program.inputs)
        self.out_shardings = self._shardings(name, "out_shardings", given, program.outputs)
        self.donate: tuple[int, ...] = tuple(given.get("donate", ()))
        if any(not 0 <= i < len(program.inputs) for i in self.donate):
            raise ParameterError(
                f"{name}: donate", got=self.donate, expected=f"inputs from 0 to {len(program.inputs) - 1}"
            )
        self.compiler_options: dict[str, Any] = dict(given.get("compiler_options") or {})
        wrong = {k: v for k, v in self.compiler_options.items() if not isinstance(v, (bool, int, float, str))}
        if wrong:
            raise ParameterError(f"{name}: compiler_options", got=wrong, expected="names with a bool, number or string")
        self.timeout = given.get("timeout", compiler.TIMEOUT)
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)) or self.timeout <= 0:
            raise ParameterError(f"{name}: timeout", got=repr(self.timeout), expected="seconds, more than 0")

    @staticmethod
    def _shardings(name: str, what: str, given: Mapping[str, Any], atoms: Sequence[Any]) -> tuple[Any, ...]:
        found = tuple(given.get(what) or (None,) * len(atoms))
        if len(found) != len(atoms):
            raise ParameterError(f"{name}: {what}", got=f"{len(found)} of them", expected=f"{len(atoms)}, one for each")
        for sharding, atom in zip(found, atoms, strict=True):
            if sharding is not None:
                sharding.check(atom.type.shape, what)
        return found


def _by_vendor(row: Any) -> Any:
    from dataclasses import replace

    return replace(row, decided_by="vendor")


def _untimed(a: TpuAnalysis) -> str:
    """Why there is no estimate of a run's time."""
    if a.counts.get(SECONDS, 0.0) < 0:
        return "the compiler has no estimate for some of its own kernels here, and so none for the whole"
    return "the compiler gives no estimate of how long this program takes"


def _cost(a: TpuAnalysis) -> Cost:
    cost, m = Cost(), a.memory
    # The vendor counts a loop's body once: the turns are ours.
    basis = lambda key: "vendor-estimate" if a.counts.get(key) == a.compiled.cost.get(key) else "model"
    if a.open_loops:
        # A body that was counted once says nothing of a run.
        cost.why = f"unknown: loop ({'; '.join(a.open_loops)})"
    else:
        if a.optimal_seconds is not None:
            cost.add("chip time", a.optimal_seconds, "s", basis(SECONDS))
        else:
            cost.why = _untimed(a)
        cost.add("flops", max(a.counts.get(FLOPS, 0.0), 0.0), "FLOP", basis(FLOPS))
        cost.add("bytes accessed", max(a.counts.get(BYTES, 0.0), 0.0), "bytes", basis(BYTES))
        cost.add("roofline", a.roofline.seconds, "s", "model")
    for name, size in (
        ("arguments", m.arguments), ("results", m.results), ("temporaries", m.temporaries), ("code", m.code),
        ("peak memory", m.peak),
    ):  # fmt: skip
        cost.add(name, size, "bytes", "vendor-estimate")
    cost.add("compilation", a.compiled.seconds, "s", "measured")
    return cost


def _target(g: Generation) -> type[TpuTarget]:
    """The class of one generation."""
    aliases = {f"tpu{g.name}", f"tpu-{g.compiler_name}", g.compiler_name if g.compiler_name.startswith("tpu") else ""}
    return type(
        f"Tpu{g.name.capitalize()}",
        (TpuTarget,),
        {
            "__doc__": f"{g.title}.",
            "__module__": __name__,
            "name": f"tpu-{g.name}",
            "title": g.title,
            "aliases": tuple(sorted(filter(None, aliases))),
            "forms": g.topologies,
            "generation": g,
        },
    )


TARGETS: Final[tuple[type[Target[Any]], ...]] = tuple(_target(g) for g in GENERATIONS)

__all__ = ["TARGETS", "TpuTarget", "parsed"]
