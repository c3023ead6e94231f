"""Cloud TPUs as targets of `nx.compile`: one per generation, in every topology that Google's compiler takes.

A program goes to the compiler as StableHLO with the user's lines in it; what comes back is the executable itself, its
text and its statistics. Nothing is run here: the label is ``vendor-compiled``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from nxjax.backends.base import Label
from nxjax.backends.target import Build, OnChip, ProgramTarget, Target, file_name, only
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.analysis import TpuAnalysis, analysed
from nxjax.backends.tpu.chips import GENERATIONS, Generation, Topology, parsed
from nxjax.backends.tpu.topologies import device_ids
from nxjax.errors import DeviceMemoryError, ParameterError
from nxjax.lower.npu.placement import Cost, Verdict
from nxjax.lower.passes.narrow import narrow
from nxjax.lower.stablehlo.builder import lower
from nxjax.lower.stablehlo.sharding import partitioning
from nxjax.lower.stablehlo.support import check_portable, verdict
from nxjax.trace.program import Equation, Program
from nxjax.trace.types import ArrayType
from nxjax.transforms.inline import inlined

OPTIONS: Final = ("in_shardings", "out_shardings", "donate", "compiler_options", "timeout")
_LOOPS: Final = ("while", "scan")


class TpuTarget(ProgramTarget):
    """One generation of Cloud TPUs in one topology.

    Options of `build`: ``in_shardings`` and ``out_shardings``, a sharding or None per input and result; ``donate``,
    positions of inputs whose memory results may take; ``compiler_options``, by libtpu's own names; ``timeout`` in
    seconds.
    """

    generation: ClassVar[Generation]
    format: ClassVar[str] = "tpu"
    extra: ClassVar[str] = "tpu"
    precision: ClassVar[tuple[str, ...]] = ("bfloat16", "float32", "int8", "float64")
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
        program = narrow(inlined(subject))
        spread = partitioning(program, how.in_shardings, how.out_shardings)
        devices = device_ids(self.topology, spread)
        text, _ = lower(
            program, donate=how.donate, in_shardings=how.in_shardings, out_shardings=how.out_shardings, located=True
        )
        try:
            made = compiler.compile_text(
                text, self.topology, devices=devices, options=how.compiler_options, timeout=how.timeout
            )
        except DeviceMemoryError as error:
            raise _blamed(error, program, spread.size) from None
        analysis = analysed(self.topology, made, spread.size)
        analysis.image_layouts = list(_images(program))
        analysis.loops_written = sum(1 for e in _everything(program) if e.op.name in _LOOPS)
        analysis.advise()
        files = {
            file_name(subject.name, "tpu"): made.executable,
            file_name(subject.name, "mlir"): text.encode(),
            file_name(subject.name, "hlo.txt"): made.hlo.encode(),
        }
        return Build(
            files, "vendor-compiled", [_by_vendor(r) for r in rows], _cost(analysis), notes=self._notes(analysis),
            analysis=analysis,
        )  # fmt: skip

    def _notes(self, analysis: TpuAnalysis) -> list[str]:
        found = [
            f"compiled for {self.topology} by {compiler.available()[1]}; no TPU was used, and times are the compiler's "
            "static estimates",
        ]
        if analysis.optimal_seconds is None:
            found.append("the compiler has no estimate for some of its own kernels here, and so none for the whole")
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


def _cost(a: TpuAnalysis) -> Cost:
    cost, m, said = Cost(), a.memory, a.compiled.cost
    if a.optimal_seconds is not None:
        cost.add("latency", a.optimal_seconds, "s", "vendor-estimate")
    cost.add("flops", max(said.get("flops", 0.0), 0.0), "FLOP", "vendor-estimate")
    cost.add("bytes accessed", max(said.get("bytes accessed", 0.0), 0.0), "bytes", "vendor-estimate")
    for name, size in (
        ("arguments", m.arguments), ("results", m.results), ("temporaries", m.temporaries), ("code", m.code),
        ("peak memory", m.peak),
    ):  # fmt: skip
        cost.add(name, size, "bytes", "vendor-estimate")
    cost.add("roofline", a.roofline.seconds, "s", "model")
    cost.add("compilation", a.compiled.seconds, "s", "measured")
    return cost


def _everything(program: Program) -> Iterator[Equation]:
    for e in program.equations:
        yield e
        for held in e.programs():
            yield from _everything(held)


def _images(program: Program) -> Iterator[tuple[str, str]]:
    """Lines and layouts of the convolutions whose images do not have their channels last."""
    for e in _everything(program):
        numbers = e.params.get("dimension_numbers")
        if e.op.name not in ("conv_general_dilated", "qconv") or numbers is None:
            continue
        batch, channels, *spatial = numbers.lhs_spec
        rank = len(numbers.lhs_spec)
        if channels != rank - 1 and rank >= 3:
            letters = {batch: "N", channels: "C", **dict(zip(spatial, "DHW"[-len(spatial) :], strict=False))}
            where = f" at {e.source}" if e.source is not None else ""
            yield where, "".join(letters.get(d, "?") for d in range(rank))


def _blamed(error: DeviceMemoryError, program: Program, devices: int) -> DeviceMemoryError:
    """The error with the largest values of the program, where the compiler named none itself."""
    found: list[tuple[int, str]] = list(error.buffers)
    if not found:
        size = lambda t: t.size * max(t.dtype.itemsize, 1) if isinstance(t, ArrayType) else 0
        found = [(size(v.type), f"argument {i}, {v.type}") for i, v in enumerate(program.inputs)]
        for e in program.equations:
            where = f" at {e.source}: {e.source.text}" if e.source is not None else ""
            found += [(size(v.type), f"{v.type} of {e.op.name}{where}") for v in e.outputs]
        found = sorted(found, key=lambda f: -f[0])[:5]
    over = f" over {devices} devices" if devices > 1 else ""
    listed = "".join(f"\n    - {n:,} bytes{over}: {text}" for n, text in found)
    made = DeviceMemoryError(
        f"{error.what}; its largest values, before padding:{listed}",
        got=error.got,
        expected=error.expected,
        fix=error.fix,
    )
    made.required, made.available, made.buffers = error.required, error.available, tuple(found)
    return made


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
