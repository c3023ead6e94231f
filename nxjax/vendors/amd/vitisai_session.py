"""An ONNX Runtime session over AMD's NPU and what else is there, which says where every node runs.

ONNX Runtime drops a provider that it does not have with a warning, takes settings that do not exist without a word,
and runs on the CPU what nobody else takes. Here each of them is an error: a session is what was asked for, or none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from nxjax.backends.evidence import Label, Record, digest, earned
from nxjax.backends.extras import need
from nxjax.display import page
from nxjax.errors import ExecutionError, ParameterError, PlacementError
from nxjax.ops.base import NDArray
from nxjax.vendors.amd.vitisai import EXTRA, OVERLAYS, PASSED, PROVIDER, check_overlay, reported, reporting, reports

CPU: Final = "CPUExecutionProvider"
DML: Final = "DmlExecutionProvider"
# The provider's options (Ryzen AI Software, "Model Compilation and Deployment"; RyzenAI-SW's examples).
OPTIONS: Final = (
    *PASSED,
    "target",
    "enable_cache_file_io_in_mem",
    "ai_analyzer_visualization",
    "ai_analyzer_profiling",
)
# Names that are about, and that no provider has -> what there is instead.
_INSTEAD: Final[Mapping[str, str]] = {
    "hybrid_mode": "the order of providers: what the NPU does not take goes to the next one",
    "cpu_fallback": "put CPUExecutionProvider behind, or leave it out and have an error instead",
    "device_id": "there is one NPU; the provider has no number for it",
    "enable_igpu": "DmlExecutionProvider behind it (Windows), or nx.Hybrid('npu', 'gpu', 'cpu')",
    "vulkan_compute": "nx.Hybrid('npu', 'vulkan', 'cpu'), or nx.jit(f, device='vulkan')",
    "oga_integration": "a model folder of ONNX Runtime GenAI; its provider RyzenAI is in AMD's own build alone",
    "npu_config": "options of the provider itself: config_file, target, xclbin",
    "igpu_config": "options of the iGPU's own provider, or nx.MemoryPools for memory",
    "hybrid_scheduling": "nx.Hybrid(...), which schedules by cost and redoes what fails",
    "turbo_mode": "nx.hardware.power.set('turbo'), before the session is made",
    "precision": "the model's own: quantize it with nx.quantize, or give bfloat16 a config_file",
    "concurrent_streams": "nx.Hybrid(...).stream, or several sessions in threads",
    "memory_pool_size": "nx.MemoryPools",
    "load_balancing": "nx.Hybrid(...)",
    "fallback_strategy": "nx.Hybrid(...), which redoes the work in flight on the next device",
    "cacheDir": "cache_dir",
    "cacheKey": "cache_key",
    "encryptionKey": "encryption_key",
}
_ENTRIES: Final[Mapping[str, str]] = {
    "hybrid_execution": "the order of providers",
    "dynamic_load_balancing": "nx.Hybrid(...), which schedules by measured times",
}
_SOURCES: Final[Mapping[str, str]] = {
    PROVIDER: "it comes with AMD's Ryzen AI Software, whose ONNX Runtime has to be the one that is imported",
    DML: "it comes with onnxruntime-directml, on Windows; elsewhere nx.Hybrid('npu', 'vulkan', 'cpu') has the iGPU",
}


@final
@dataclass(eq=False)
class HybridSession:
    """A session whose placement is known.

    Attributes:
        session: ONNX Runtime's own object.
        placement: node -> (provider that runs it, ONNX operator), in the model's order.
        took: the model's digest.
        evidence: what took the model. Its runs are compared with nothing, so that none counts.
    """

    session: Any
    placement: Mapping[str, tuple[str, str]]
    runs_on: str
    took: tuple[str, ...]
    evidence: list[Record]

    @property
    def label(self) -> Label:
        """How far towards silicon it went, by the records."""
        return earned(self.evidence, {*self.took}, PROVIDER in self.counts, host=True)

    @property
    def counts(self) -> dict[str, int]:
        """Provider -> how many nodes it runs."""
        found: dict[str, int] = {}
        for provider, _ in self.placement.values():
            found[provider] = found.get(provider, 0) + 1
        return found

    def __call__(self, *args: NDArray) -> list[NDArray]:
        """Run: the model's inputs in order, its outputs in order."""
        names = [i.name for i in self.session.get_inputs()]
        if len(args) != len(names):
            raise ParameterError("hybrid session: inputs", got=len(args), expected=", ".join(names))
        return list(self.session.run(None, dict(zip(names, args, strict=True))))

    def __str__(self) -> str:
        counts = ", ".join(f"{n} nodes on {provider}" for provider, n in self.counts.items())
        return f"{self.runs_on}: {counts or 'no nodes'} ({self.label})"

    def _repr_html_(self) -> str:
        rows = [(name, kind, provider) for name, (provider, kind) in self.placement.items()]
        facts = [(provider, n) for provider, n in self.counts.items()]
        return page.page(
            page.heading(self.runs_on, ("label", self.label), *facts),
            page.details("placement", page.table(("node", "operator", "provider"), rows)),
        )


def hybrid_session(
    model: str | os.PathLike[str] | bytes,
    providers: Sequence[str | tuple[str, Mapping[str, object]]] | None = None,
    *,
    entries: Mapping[str, str] | None = None,
    module: Any = None,
) -> HybridSession:
    """A session of ONNX Runtime on AMD's NPU and behind it whatever ``providers`` name, in the order of preference.

    Args:
        model: a file's path or its bytes: QDQ int8, or float for bfloat16.
        providers: names, or (name, options). Of ``VitisAIExecutionProvider`` the options are `OPTIONS`, among them
            ``config_file``, ``cache_dir``, ``cache_key``, ``target`` ("X2", or "X1" with ``xclbin``). Without
            ``CPUExecutionProvider`` nodes that nobody takes are an error. If not given: AMD's, DirectML's where it is
            there, the CPU's.
        entries: configuration entries of the session, by ONNX Runtime's names.
        module: stands for the package ``onnxruntime``.

    Returns:
        A `HybridSession`, which has been asked where its nodes run.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
        ParameterError: a provider, an option or an entry that does not exist; the message names the real way.
        ExecutionError: a provider is not in this ONNX Runtime, or it refuses the model.
        PlacementError: a provider that was asked for runs no node: all would be on the CPU.
    """
    ort = module if module is not None else need("onnxruntime", EXTRA, "sessions of ONNX Runtime")
    available = list(ort.get_available_providers())
    usual = [PROVIDER, *([DML] if DML in available else []), CPU]
    wanted = [_provider(p) for p in (usual if providers is None else providers)]
    if not wanted:
        raise ParameterError("hybrid session: providers", got="none", expected=f"{PROVIDER}, {CPU}")
    settings = dict(entries or {})
    for name in settings:
        if name in _ENTRIES:
            raise ParameterError(f"hybrid session: ONNX Runtime has no entry {name!r}", got=name, fix=_ENTRIES[name])
    for name, _ in wanted:
        if name not in available:
            raise ExecutionError(
                f"hybrid session: {name} is not in this ONNX Runtime",
                got=f"onnxruntime {ort.__version__} with {', '.join(available)}",
                fix=_SOURCES.get(name),
            )
    # Who was not asked for by name need not have anything to do.
    asked = [PROVIDER] if providers is None else [name for name, _ in wanted]
    return _made(ort, model, wanted, settings, asked)


def _provider(given: str | tuple[str, Mapping[str, object]]) -> tuple[str, dict[str, str]]:
    """A provider's name and options, checked."""
    name, options = (given, {}) if isinstance(given, str) else given
    if name in ("RyzenAIExecutionProvider", "RyzenAI"):
        fix = f"{PROVIDER} is AMD's provider for ONNX Runtime's sessions"
        raise ParameterError("hybrid session: ONNX Runtime has no such provider", got=name, fix=fix)
    for key, value in options.items():
        # Only what is known to be wrong is refused of providers that are not AMD's: their options are their own.
        if key in _INSTEAD and (name == PROVIDER or key != "device_id"):
            raise ParameterError(f"hybrid session: {name} has no option {key!r}", got=value, fix=_INSTEAD[key])
        if name == PROVIDER and key not in OPTIONS:
            known = ", ".join(OPTIONS)
            raise ParameterError(f"hybrid session: {name} has no option {key!r}", got=value, expected=known)
        if isinstance(value, (Mapping, list, tuple)):
            raise ParameterError(f"hybrid session: option {key} of {name}", got=value, expected="text or a number")
    made = {key: str(value) for key, value in options.items()}
    if name == PROVIDER:
        _checked(made)
    return name, made


def _checked(options: Mapping[str, str]) -> None:
    check_overlay("hybrid session: target", options.get("target", OVERLAYS[0]), options)
    for name in ("config_file", "xclbin"):
        if name in options and not os.path.isfile(options[name]):
            raise ParameterError(f"hybrid session: {name}", got=options[name], expected="a file")


def _made(
    ort: Any,
    model: str | os.PathLike[str] | bytes,
    wanted: Sequence[tuple[str, dict[str, str]]],
    settings: dict[str, str],
    asked: Sequence[str],
) -> HybridSession:
    own = None
    for name, options in wanted:
        if name == PROVIDER:
            if "cache_dir" not in options:
                own = options["cache_dir"] = tempfile.mkdtemp(prefix="nxjax_vitisai_")
            options.setdefault("cache_key", "nxjax")
            options.setdefault("enable_cache_file_io_in_mem", "0")
    try:
        made = _opened(ort, model, wanted, settings)
        _kept(made, asked)
    except Exception:
        shutil.rmtree(own or "", ignore_errors=True)
        raise
    if own is not None:
        weakref.finalize(made, shutil.rmtree, own, True)
    return made


def _opened(
    ort: Any,
    model: str | os.PathLike[str] | bytes,
    wanted: Sequence[tuple[str, dict[str, str]]],
    settings: dict[str, str],
) -> HybridSession:
    names = [name for name, _ in wanted]
    so = ort.SessionOptions()
    so.log_severity_level = 3
    settings.setdefault("session.record_ep_graph_assignment_info", "1")
    if CPU not in names:
        settings.setdefault("session.disable_cpu_ep_fallback", "1")
    for key, value in settings.items():
        so.add_session_config_entry(key, str(value))
    data = model if isinstance(model, bytes) else os.fspath(model)
    before = next((reports(o) for name, o in wanted if name == PROVIDER), {})
    try:
        with reporting():
            session = ort.InferenceSession(data, so, providers=names, provider_options=[o for _, o in wanted])
    except Exception as error:
        # ONNX Runtime's errors have no class in common that it promises.
        line = str(error).strip().split("\n")[0][:300]
        raise ExecutionError("hybrid session: ONNX Runtime makes no session", got=line) from error
    have = list(session.get_providers())
    lost = [name for name in names if name not in have]
    if lost:
        # What builds do with devices that are not there: a warning, and the CPU.
        got = ", ".join(have)
        raise ExecutionError(f"hybrid session: {', '.join(lost)} did not start", got=got, expected=", ".join(names))
    runs_on, took = f"ONNX Runtime {ort.__version__}", (digest(_bytes(model)),)
    taken = (
        Record("compiled", "vendor-compiler", f"{PROVIDER} of {runs_on}", took=took)
        if PROVIDER in names
        else Record("loaded", "host", runs_on, took=took)
    )
    return HybridSession(session, _placement(session, model, wanted, before), runs_on, took, [taken])


def _bytes(model: str | os.PathLike[str] | bytes) -> bytes:
    return model if isinstance(model, bytes) else Path(model).read_bytes()


def _kept(made: HybridSession, names: Sequence[str]) -> None:
    """`PlacementError` where a provider that was asked for has nothing to do."""
    idle = [name for name in names if name != CPU and not made.counts.get(name)]
    if not idle:
        return
    error = PlacementError(
        f"hybrid session: {', '.join(idle)} runs no node",
        got=", ".join(f"{n} on {p}" for p, n in made.counts.items()) or "nobody says where the nodes run",
        fix="nx.explain(f, target='amd-xdna') says which ops it takes; leave the provider out to run without it",
    )
    error.rows = tuple(f"{name} ({kind}): {provider}" for name, (provider, kind) in made.placement.items())
    raise error


def _placement(
    session: Any,
    model: str | os.PathLike[str] | bytes,
    wanted: Sequence[tuple[str, dict[str, str]]],
    before: Mapping[Path, tuple[int, int]],
) -> dict[str, tuple[str, str]]:
    """Where nodes run, by ONNX Runtime's record, or by the report of AMD's provider where it keeps none."""
    if hasattr(session, "get_provider_graph_assignment_info"):
        found: dict[str, tuple[str, str]] = {}
        for part in session.get_provider_graph_assignment_info():
            for node in part.get_nodes():
                # Nodes need no name.
                found[str(node.name) or f"{node.op_type} ({len(found)})"] = (str(part.ep_name), str(node.op_type))
        return found
    options = next((o for name, o in wanted if name == PROVIDER), None)
    where = reported(options, _bytes(model), before)[0] if options else {}
    return {name: (CPU if device == "CPU" else device, kind) for name, (device, kind) in where.items()}
