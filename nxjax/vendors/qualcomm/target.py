"""Qualcomm's Hexagon NPU (HTP): ONNX QDQ through ONNX Runtime's QNN provider, on the chip or on its simulator.

The wheel ``onnxruntime-qnn`` holds the HTP's compiler and, on machines without a Snapdragon, a simulator of its
arithmetic. Both say what they placed, and for which chip they compiled; what they do not say is not claimed: the
simulator's times are the host's and no figure of the chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from nxjax.backends.evidence import By, Label, digest
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, Kind, NpuTarget, Runner, Site, only, variant
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions, package
from nxjax.lower.npu.formats.onnx_writer import OnnxModel
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import Verdict
from nxjax.ops.base import NDArray
from nxjax.vendors.onnx.placement import placements
from nxjax.vendors.onnx.target import fetched, modelled, run_on_host, started
from nxjax.vendors.qualcomm.mend import mended
from nxjax.vendors.qualcomm.rank import merged
from nxjax.vendors.qualcomm.table import floating, verdict
from nxjax.vendors.qualcomm.worker import PROVIDER, QnnSession, on_snapdragon

EXTRA: Final = "qnn"
# Systems-on-chip by generation of their HTP, with the provider's numbers for them (enum Qnn_SocModel_t of QnnTypes.h);
# the first of each generation is what is compiled for unless told.
SOCS: Final[dict[int, dict[str, int]]] = {
    68: {"SM8350": 30, "SA8295": 39},
    69: {"SM8450": 36, "SM8475": 42, "SXR2230P": 53},
    73: {"SM8550": 43, "SC8380XP": 60, "SA8255": 52, "QCS9100": 77, "SSG2115P": 46, "SSG2125P": 58, "SXR1230P": 45},
    75: {"SM8650": 57},
    79: {"SM8750": 69, "SXR2330P": 75},
    81: {"SM8850": 87},
}
DEFAULT_ARCH: Final = 73
# The operator that stands for what is compiled.
_CONTEXT: Final = "EPContext"
_CHECKED: Final = "the chip compiled for; inputs and results by name, dtype and shape"
# Systems-on-chip whose figures our cost model has.
CHIPS: Final = {60: "hexagon-x-elite"}


def htp_arch(value: object) -> int:
    """A known generation; the provider itself would compile for none in particular and not say so.

    >>> htp_arch("v75")
    75
    """
    text = str(value).lower().removeprefix("v")
    if not text.isdigit() or int(text) not in SOCS:
        raise ParameterError(
            "qualcomm-htp: no such generation of the HTP", got=value, expected=", ".join(f"v{a}" for a in SOCS)
        )
    return int(text)


def soc_model(value: object, arch: int) -> int:
    """The number of a system-on-chip that has an HTP of generation ``arch``.

    >>> soc_model(None, 73), soc_model("SC8380XP", 73)
    (43, 60)
    """
    known = SOCS[arch]
    if value is None:
        return next(iter(known.values()))
    number = known.get(value.upper()) if isinstance(value, str) and not value.isdigit() else value
    if number is None or int(str(number)) not in known.values():
        names = ", ".join(f"{name} ({n})" for name, n in known.items())
        raise ParameterError(f"qualcomm-htp: no such system-on-chip with a v{arch}", got=value, expected=names)
    return int(str(number))


class QualcommHtp(NpuTarget):
    """One generation of the HTP.

    Options of `build`: ``htp_arch`` (68, 69, 73, 75, 79, 81), ``soc_model`` (name or number). Floats are computed in
    float16, as the chip does, from v69 on: the provider takes that from the system-on-chip.
    """

    title: ClassVar[str] = "Qualcomm Hexagon NPU (HTP)"
    site: ClassVar[Site] = "edge"
    format: ClassVar[str] = "onnx"
    extra: ClassVar[str] = EXTRA
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float16")
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Qualcomm", "Hexagon", nodes=("dev/fastrpc-cdsp*", "dev/adsprpc-smd*"), module="onnxruntime_qnn",
             extra="qnn", target="qualcomm-htp"),
    )  # fmt: skip
    providers: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "qnn": {"backend_path": "QnnHtp.so", "htp_performance_mode": "burst"}
    }
    arch: ClassVar[int] = DEFAULT_ARCH
    rules: ClassVar[str] = "a list of what QNN 2.51's provider was seen to refuse: operators, types and ranks"

    def available(self) -> tuple[Label, str]:
        if not (installed("onnxruntime_qnn") and installed("onnxruntime") and installed("onnx")):
            return "emitted", f"pip install 'nxjax[{EXTRA}]' brings Qualcomm's compiler and simulator"
        if on_snapdragon():
            return "hardware", ""
        return "vendor-simulator", "no Snapdragon here: Qualcomm's simulator of the HTP executes"

    def supports(self, node: Node) -> Verdict:
        return verdict(node, self.arch)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        only(self.name, options, ("htp_arch", "soc_model"))
        arch = htp_arch(options.get("htp_arch", self.arch))
        soc = soc_model(options.get("soc_model"), arch)
        need("onnx", EXTRA, "Qualcomm's compiler")
        narrow, wide = merged(graph)
        other, origin, changed = mended(narrow, arch)
        build, written = started(
            other, OnnxOptions(21, unsigned=True, integer_products=False), place(graph, lambda n: verdict(n, arch))
        )
        written.owners = {name: None if n is None else wide[origin[n]] for name, n in written.owners.items()}
        (name,), build.notes = build.files, changed + build.notes
        label, why = self.available()
        if label == "emitted":
            build.notes.append(why)
            if installed("onnxruntime"):
                run_on_host(build, written)
            return build
        provider = {
            "backend_type": "htp",
            "htp_arch": str(arch),
            "soc_model": str(soc),
            # Otherwise quantizing inputs and dequantizing results would be the host's work.
            "offload_graph_io_quantization": "0",
        }
        took = (digest(written.data),)
        try:
            session = QnnSession(
                written.data, provider, [p.name for p in written.inputs], [p.name for p in written.outputs]
            )
            build.notes += confirmed(session.answer["targets"], arch, soc)
            refuse_other(written, session.context)
        except ExecutionError as error:
            build.unanswered(error, "vendor-compiler", "ONNX Runtime's QNN provider", took)
            run_on_host(build, written)
            return build
        build.placements = placements(
            graph, written, session.answer["where"], session.answer["reasons"], PROVIDER, build.placements
        )
        if soc in CHIPS:
            modelled(build, graph, CHIPS[soc])
        hardware = bool(session.answer["hardware"])
        tool = f"ONNX Runtime {session.answer['runtime']} QNN provider"
        taken = sum(provider == PROVIDER for provider, _ in session.answer["where"].values())
        said = f"{taken} of {len(session.answer['where'])} operations on the HTP; {session.answer['targets']}"
        gave = (digest(session.context),) if session.context else ()
        build.record(
            "compiled", "vendor-compiler", tool, took=took, gave=gave, answer=said, checked=_CHECKED if gave else ""
        )
        if session.context:
            build.files[name.replace(".onnx", "_ctx.onnx")] = session.context
            build.cost.add("context binary", len(session.context), "bytes", "measured")
        else:
            build.notes.append("nothing was placed on the HTP: ONNX Runtime's host kernels execute")
        by: By = "chip" if hardware else "vendor-simulator"
        where = "HTP" if hardware else "HTP simulator"

        def run(args: Sequence[NDArray]) -> list[NDArray]:
            return fetched(written, session(list(written.feeds(args).values())), f"the {where}")

        build.runner = Runner(run, f"{tool}, {where} v{arch}, SoC {soc}", by, took)
        _notes(build, graph, arch)
        return build


def confirmed(targets: list[dict[str, Any]], arch: int, soc: int) -> list[str]:
    """The provider compiled for what it was told, by its own trace: a wrong generation is not an error to it."""
    for t in targets:
        if (t.get("htp_arch"), t.get("soc_model")) != (f"V{arch}", soc):
            raise ExecutionError("qualcomm-htp: compiled for another chip", got=t, expected=f"V{arch}, SoC {soc}")
    return [] if targets else ["the provider did not say which chip it compiled for"]


def refuse_other(written: OnnxModel, context: bytes) -> None:
    """Raise `ExecutionError` where a compiled model holds nothing compiled, or takes and gives other things."""
    if not context:
        return
    onnx = package()
    try:
        found = onnx.load_from_string(context).graph
        kind = lambda x: (x.name, x.type.tensor_type.elem_type, [d.dim_value for d in x.type.tensor_type.shape.dim])
        ends = [[kind(x) for x in part] for part in (found.input, found.output)]
        own = onnx.load_from_string(written.data).graph
        asked = [[kind(x) for x in part] for part in (own.input, own.output)]
        kinds = {n.op_type for n in found.node}
    except Exception as error:  # protocol buffers' errors have no class that both of its implementations share
        raise ExecutionError("qualcomm-htp: the compiled model cannot be read", got=str(error)) from error
    if _CONTEXT not in kinds or any(x not in asked[0] for x in ends[0]) or ends[1] != asked[1]:
        raise ExecutionError("qualcomm-htp: the compiled model is another one", got=(ends, kinds), expected=asked)


def _notes(build: Build, graph: NpuGraph, arch: int) -> None:
    wrong = [n for n in graph.nodes if not (v := verdict(n, arch)).ok and "wrongly" in v.reason]
    build.notes += [f"{n.name or n.op}: {verdict(n, arch).reason}" for n in wrong]
    if arch == 68 and any(map(floating, graph.nodes)):
        build.notes.append("the simulator computes floats of a v68 in float32, which that chip does not do")
    if build.ran_by == "vendor-simulator":
        build.notes.append("no latency is given: the simulator's time is the host's")


# The generation that most phones and laptops with an HTP have.
QualcommHtpDefault: Final = variant(QualcommHtp, "qualcomm-htp", QualcommHtp.title)
_GENERATIONS: Final = (
    variant(QualcommHtp, f"qualcomm-htp-v{arch}", f"{QualcommHtp.title} v{arch}", arch=arch) for arch in SOCS
)
TARGETS: Final[tuple[type[NpuTarget], ...]] = (QualcommHtpDefault, *_GENERATIONS)
