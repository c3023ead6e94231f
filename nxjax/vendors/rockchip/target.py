"""Rockchip's NPUs (RK3588 and its relatives) as targets: a float ONNX file that RKNN Toolkit 2 quantizes and compiles.

The toolkit finds the grids itself, from calibration data; its own log says which operation runs on the NPU. Where the
toolkit is not here, the file is written, and where its operations would run is unknown: no table of them is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from nxjax.backends.evidence import Label, digest
from nxjax.backends.target import Build, Kind, NpuTarget, Runner, Site, file_name, only, variant
from nxjax.backends.tools import CHECKED
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_writer import OnnxModel, emit
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import unknown
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.vendors.onnx.placement import placements
from nxjax.vendors.onnx.target import fetched, run_on_host, started
from nxjax.vendors.probe import probe
from nxjax.vendors.rockchip import toolkit
from nxjax.vendors.rockchip.toolkit import RknnResult, RknnRow

PLATFORMS: Final = ("rk3588", "rk3576", "rk3568", "rk3566", "rk3562", "rv1103", "rv1106", "rv1126b", "rk2118")
OPTIONS: Final = ("calibrate", "algorithm", "method", "dtype", "python")
# What the toolkit's own options may be (its `config`), the default first.
_CHOICES: Final = {
    "algorithm": ("quantized_algorithm", ("normal", "mmse", "kl_divergence", "gdq")),
    "method": ("quantized_method", ("channel", "layer")),
    "dtype": ("quantized_dtype", ("w8a8", "w8a16", "w16a16i_dfp", "w4a16")),
}
_NPU: Final = "NPU"


class Rockchip(NpuTarget):
    """One of Rockchip's chips.

    Options of `build`: ``calibrate`` (a list of batches of arguments: the toolkit quantizes by them; without any the
    model is compiled in float16), ``algorithm`` ("normal", "mmse", "kl_divergence" or "gdq"), ``method`` ("channel" or
    "layer"), ``dtype`` ("w8a8", "w8a16", "w16a16i_dfp" or "w4a16"), ``python`` (one that has RKNN Toolkit 2; by default
    this one, or what the environment variable ``RKNN_PYTHON`` names).
    """

    format: ClassVar[str] = "onnx"
    site: ClassVar[Site] = "edge"
    extra: ClassVar[str] = "onnx"
    precision: ClassVar[tuple[str, ...]] = ("int8", "float16")
    rules: ClassVar[str] = ""
    quantizes: ClassVar[bool] = True
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Rockchip", "RKNPU", drivers=("rocket",), nodes=("dev/rknpu*",), target="rockchip"),
    )
    platform: ClassVar[str]

    def available(self) -> tuple[Label, str]:
        found, said = toolkit.python()
        if found:
            return "vendor-simulator", f"RKNN Toolkit 2 {said} compiles, and its simulator executes"
        return "emitted", said

    def supports(self, node: Node) -> Verdict:
        return YES

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the file; let the toolkit quantize, compile and place it, and its simulator run it.

        Raises:
            ExecutionError: the Python that was named has no toolkit.
        """
        config, calibration, given = self._settings(options)
        build, written = started(graph, OnnxOptions(13, "float"), self.placed(graph))
        interpreter, version = toolkit.python(given)
        if not interpreter and given:
            raise ExecutionError(f"{self.name}: the Python that was named has no RKNN Toolkit 2", got=version)
        if not interpreter:
            build.notes.append(f"{version}; the file is run on the host")
            run_on_host(build, written)
            return build
        batches = [list(written.feeds(batch).values()) for batch in calibration]
        compiled = partial(toolkit.compile_model, interpreter, written.data, config, batches, another=_another)
        tool, took = f"RKNN Toolkit 2 {version}", (digest(written.data),)
        try:
            made = compiled()
        except ExecutionError as error:
            build.unanswered(error, "vendor-compiler", tool, took)
            run_on_host(build, written)
            return build
        build.files = {file_name(graph.name, "rknn"): made.model, **build.files}
        on_npu = sum(r.on_npu for r in made.rows)
        build.record(
            "compiled", "vendor-compiler", tool, command=made.answer.command, status=made.answer.status, took=took,
            gave=(digest(made.model),), answer=f"{on_npu} of {len(made.rows)} operations on the NPU",
            checked=CHECKED,
        )  # fmt: skip
        build.placements = self._placements(graph, written, made, build.placements)
        build.cost.add("compiled file", len(made.model), "bytes", "measured")
        if made.rows:
            build.cost.add("npu cycles", sum(r.cycles for r in made.rows if r.on_npu), "cycles", "vendor-estimate")
        how = (
            f"quantized by {tool} with {len(batches)} batches" if batches else "float16: no calibration data was given"
        )
        build.notes.append(f"compiled for {self.title}, {how}")
        title = f"{tool}, simulator of {self.title}"
        build.runner = Runner(partial(_simulated, compiled, made.rows, written), title, "vendor-simulator", took)
        return build

    def _settings(self, options: dict[str, object]) -> tuple[dict[str, str], Sequence[Sequence[NDArray]], str]:
        only(self.name, options, OPTIONS)
        config = {"target_platform": self.platform}
        for key, (word, known) in _CHOICES.items():
            value = options.get(key, known[0])
            if value not in known:
                raise ParameterError(f"{self.name}: option {key}", got=repr(value), expected=", ".join(known))
            config[word] = str(value)
        given = options.get("python", "")
        if not isinstance(given, str):
            raise ParameterError(f"{self.name}: option python", got=repr(given), expected="the path of an interpreter")
        batches: Any = options.get("calibrate", ())
        return config, batches, given

    def _placements(
        self, graph: NpuGraph, written: OnnxModel, made: RknnResult, table: list[Placement]
    ) -> list[Placement]:
        """What the compiler's own table says; where it printed none, nothing is known."""
        if not made.rows:
            return [unknown(n, "the toolkit's log has no table of operations") for n in graph.nodes]
        where: dict[str, tuple[str, str]] = {}
        for row in made.rows:
            name = _owner(row, written)
            if name is not None and where.get(name, (_NPU, ""))[0] == _NPU:
                where[name] = (_NPU if row.on_npu else "CPU", row.kind)
        return placements(graph, written, where, {}, _NPU, table)


def _another() -> bytes:
    return emit(probe(quantized=False), OnnxOptions(13, "float")).data


def _owner(row: RknnRow, written: OnnxModel) -> str | None:
    """The operation of the file that a row stands for: parts that the compiler makes have suffixes."""
    if row.name in written.owners:
        return row.name
    known = [n for n in written.owners if row.name.startswith(n) and not row.name[len(n)].isalnum()]
    # A change of layout that it puts beside an operation says nothing of the operation.
    return max(known, key=len, default=None) if row.kind not in ("Reshape", "Transpose") else None


def _simulated(compiled: Any, rows: tuple[RknnRow, ...], written: OnnxModel, args: Sequence[NDArray]) -> list[NDArray]:
    """One run: the toolkit simulates only what it has built in the same process, from the same file."""
    made: RknnResult = compiled(inputs=list(written.feeds(args).values()))
    if made.rows != rows:
        raise ExecutionError("rockchip: the toolkit planned the same file in another way for its simulator")
    return fetched(written, made.results, "rockchip: the simulator")


# The vendor's own name means the chip that most boards have.
_NAMES: Final = {"rockchip": "rk3588"} | {f"rockchip-{platform}": platform for platform in PLATFORMS}
TARGETS: Final[tuple[type[NpuTarget], ...]] = tuple(
    variant(Rockchip, name, f"Rockchip {platform.upper()}", platform=platform) for name, platform in _NAMES.items()
)
