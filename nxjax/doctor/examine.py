"""`nx.deploy.doctor`: a model, examined for each of several targets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import plain
from nxjax.backends.target import Target
from nxjax.deploy.artifact import Artifact, MetricScores
from nxjax.deploy.compile import built, calibrated, explain
from nxjax.deploy.deviation import measured
from nxjax.deploy.trace import BoundFunction, Subject, stored_inputs
from nxjax.display.progress import bars
from nxjax.doctor import model as models
from nxjax.doctor import rewrites, samples
from nxjax.doctor.diagnosis import Diagnosis
from nxjax.doctor.divergence import STEPS, Divergence, first_divergence, leaves
from nxjax.doctor.findings import POOR, Fix, TargetDiagnosis, decibels
from nxjax.doctor.model import Model
from nxjax.doctor.samples import Samples
from nxjax.errors import ExecutionError, NxError, ParameterError
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.lower import UNROLL
from nxjax.lower.npu.memory import plan
from nxjax.quant.comparison import compare
from nxjax.quant.function import quantize
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.boundary import entry
from nxjax.trace.program import Program, Var
from nxjax.transforms.inline import inlined

# Samples that results are compared on, and how long that may take.
_MEASURED: Final = 4
_PATIENCE: Final = 30.0
# So many multiply-accumulates are not run by our own model of an NPU.
SLOW: Final = 100_000_000
# Below so many decibels, wider activations are tried; above so many, a rewrite may cost some.
_WIDER: Final = 20.0
_ENOUGH: Final = 30.0
_FLOATS: Final = ("float", "bfloat")
_WIDE: Final = "int16x8"
_FILE: Final = "as in the file"


@entry
def doctor(
    model: Callable[..., Any] | str | Path,
    *args: PyTree,
    targets: str | Sequence[str] = "usual",
    data: str | Path | Mapping[str, Any] | Iterable[Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    policy: str = "",
    metric: Callable[..., Any] | None = None,
    tests: Iterable[tuple[tuple[Any, ...], Any]] = (),
    fix: bool = False,
    progress: bool | None = None,
    report: Callable[[TargetDiagnosis], None] | None = None,
) -> Diagnosis:
    """Examine a model for each target: where its ops run, what that costs, what is lost, what would help.

    What can compile, simulate or run for a target on this machine is asked. If something is not here, the answer says
    so. Errors of one target do not end the others.

    Args:
        model: a function, or a file: ONNX, TFLite, an exported program of PyTorch (``.pt2``), StableHLO.
        *args: example arguments of a function. Trees are parameters, arrays are inputs.
        targets: names, or one of: "usual" (one size of each chip, one TPU and one IPU), "all".
        data: what it is calibrated and measured on: an ``.npz`` file or a dict of arrays by the input's name, with
            samples first; or tuples of arguments. Without any, a function's example; of a file, seeded noise.
        shapes: of inputs of a file that leaves dimensions open.
        policy: how float models are quantized, as of `nx.quantize`; "float32": not at all. By default int8 for targets
            that are for integers first.
        metric: maps (result, answer) to a number, as of `Artifact.score`.
        tests: pairs of inputs and answers for ``metric``.
        fix: try rewrites of what a target refuses, and verify again what they give.
        progress: show a bar; by default in a terminal or notebook.
        report: called with each target's result as soon as it is there.

    Raises:
        ParameterError: no such file, target or input.
        InvalidFileError: a damaged file.
        ShapeError, DtypeError: data that does not fit the inputs.

    >>> found = nx.deploy.doctor(lambda x: nx.nn.relu(x * 2), jnp.ones((1, 3)), targets=["tflite", "ethos-u55"])
    >>> [t.target for t in found.targets], found["tflite"].deviation.exact
    (['tflite', 'ethos-u55'], True)
    """
    chosen = _chosen(targets)
    if callable(model):
        patient, example = models.given(model, args)
        found = Samples([example], "the example arguments")
    else:
        if args:
            raise ParameterError("doctor: a file takes no arguments", got=len(args), fix="give data=")
        patient, found = models.read(model, shapes), None
    if isinstance(data, (str, Path)):
        found = samples.of_file(patient, data)
    elif isinstance(data, Mapping):
        found = samples.of_arrays(patient, {str(k): np.asarray(v) for k, v in data.items()})
    elif data is not None:
        found = samples.of_calls(patient, data)
    return _Examination(patient, found or samples.drawn(patient), policy, metric, list(tests), fix).of(
        chosen, progress, report
    )


def usual() -> list[str]:
    """One size of each chip, one TPU and one IPU."""
    known = registry.names()
    sizes = [n for n in known if n.rpartition("-")[0] not in known]
    # A program is written for a TPU or an IPU of any size: the first stands for all.
    families: dict[str, str] = {}
    for n in sizes:
        device = registry.get(n).device
        families.setdefault(n if device == "npu" else device, n)
    return list(families.values())


def _chosen(targets: str | Sequence[str]) -> list[str]:
    if targets == "usual":
        return usual()
    if targets == "all":
        return registry.names()
    given = targets.split(",") if isinstance(targets, str) else list(targets)
    asked = [n.strip() for n in given if n.strip()]
    if not asked:
        raise ParameterError("doctor: no targets", expected="'usual', 'all', or names that nx.targets() lists")
    for n in asked:
        registry.get(n)
    return list(dict.fromkeys(asked))


class _Made(NamedTuple):
    """An artifact, and what it was made of."""

    artifact: Artifact
    subject: Subject
    settings: dict[str, object]


@final
class _Examination:
    """One model, one set of samples, and what is made of them for every target."""

    def __init__(
        self,
        model: Model,
        data: Samples,
        policy: str,
        metric: Callable[..., Any] | None,
        tests: list[tuple[tuple[Any, ...], Any]],
        fix: bool,
    ) -> None:
        self.model, self.data, self.policy, self.metric, self.tests, self.fix = model, data, policy, metric, tests, fix
        self.result = Diagnosis(model.name, [str(x) for x in model.inputs], data.said, notes=list(model.notes))
        self._functions: dict[str, Callable[..., Any] | NxError] = {}
        self._wanted: list[Any] | None = None
        self._arenas: dict[str, int] = {}
        self._divergences: dict[Any, Divergence | None] = {}

    def of(
        self, names: Sequence[str], progress: bool | None, report: Callable[[TargetDiagnosis], None] | None
    ) -> Diagnosis:
        if self.policy and not self.policy.startswith(_FLOATS) and not self.model.quantized:
            # What is wrong with the user's own policy is an error, and no target's.
            self._quantized(self.policy)
        make = bars(progress, "doctor", len(names) > 1)
        bar: Any = None if make is None else make(total=len(names), desc="doctor", unit="target", leave=False)
        if metric := self.metric:
            scores = [float(metric(self.model.fun(*xs), answer)) for xs, answer in self.tests]
            if not scores:
                raise ParameterError("doctor: a metric needs tests", expected="pairs of inputs and answers")
            self.result.float_score = float(np.mean(scores))
        for name in names:
            if bar is not None:
                bar.set_postfix_str(name)
            began = time.monotonic()
            t = self._target(name)
            t.seconds = time.monotonic() - began
            self.result.targets.append(t)
            if report is not None:
                report(t)
            if bar is not None:
                bar.update()
        if bar is not None:
            bar.close()
        self._layers()
        return self.result

    def _layers(self) -> None:
        """The error of each layer, of the first policy with integers that was needed."""
        made = next((p for p, f in self._functions.items() if " " not in p and callable(f)), None)
        if made is None:
            return
        try:
            found = compare(self.model.fun, self._functions[made], self.data.calls[:_MEASURED])  # type: ignore[arg-type]
            self.result.layers = list(found)
        except NxError as error:
            self.result.notes.append(f"no error by layer: {error.what}")

    # --- one target ---

    def _target(self, name: str) -> TargetDiagnosis:
        target = registry.get(name)
        t = TargetDiagnosis(name, target.title)
        try:
            fun, t.policy = self._function(target)
        except NxError as error:
            t.state, t.said = "failed", _line(error)
            return t
        made = self._made(t, target, fun)
        if made is not None:
            self._measured(t, made.artifact)
            self._diverges(t, target, made)
        self._rewrites(t, target)
        return t

    def _function(self, target: Target[Any]) -> tuple[Callable[..., Any], str]:
        """What the target is given, and how it is quantized."""
        if self.model.quantized:
            return self.model.fun, _FILE
        asked = self.policy or (target.precision[0] if target.precision else "int8")
        if target.quantizes or asked.startswith(_FLOATS):
            return self.model.fun, "float32" if not target.quantizes else "by the target's own quantizer"
        return self._quantized(asked), asked

    def _quantized(self, policy: str, fun: Callable[..., Any] | None = None, key: str = "") -> Callable[..., Any]:
        """The function in integers, or another form of it that ``key`` names, made once: what failed fails again."""
        name = f"{policy} {key}".strip()
        found = self._functions.get(name)
        if found is None:
            try:
                found = quantize(fun or self.model.fun, policy, calibrate=self.data.calls, params=(), progress=False)
            except NxError as error:
                found = error
            self._functions[name] = found
        if isinstance(found, NxError):
            raise found
        return found

    def _made(self, t: TargetDiagnosis, target: Target[Any], fun: Callable[..., Any]) -> _Made | None:
        """Compile it; where that is not possible, ask what is in the way."""
        call = self.data.calls[0]
        options: dict[str, Any] = {"calibrate": self.data.calls} if target.quantizes else {}
        subject: Subject | None = None
        try:
            bound = BoundFunction(fun, call, {}, ())
            subject = bound.subject(target, "integer", UNROLL)
            settings = calibrated(target, fun, bound, options)
            macs = sum(r.macs for r in target.placed(subject.form)) if isinstance(subject.form, NpuGraph) else 0
            # Our own model of an array of cores takes minutes for a large network.
            slow = macs > SLOW and target.available()[0] == "own-model"
            artifact = built(target, bound, subject, settings, False, not slow, lambda _: None)
        except Exception as error:  # vendors' tools have no class of errors in common
            # Behind what an adapter did not mean to raise stands what it was.
            fault = error.__cause__ if isinstance(error, ExecutionError) else None
            t.state = "refused" if isinstance(error, NxError) and fault is None else "failed"
            t.said = _line(error if not isinstance(fault, Exception) else fault)
            try:
                t.report = explain(fun, target=t.target, constants=(), progress=False, **options)(*call)
                # What each op is refused for says more than the first error.
                t.said = t.said if not t.refused else ""
            except Exception:  # the first error has said it
                pass
            return None
        t.report, t.runs_on = artifact.report, "" if slow else artifact.runs_on
        t.deviation, t.others = artifact.deviation, artifact.others
        if slow:
            t.said = f"not run here: the model of the chip takes minutes for {macs / 1e6:,.0f} million MACs"
        t.files = {name: len(data) for name, data in artifact.files.items()}
        t.edges = _edges(subject.form)
        if isinstance(subject.form, NpuGraph):
            t.activations = self._planned(t.policy, subject.form)
        self._state(t, artifact)
        return _Made(artifact, subject, settings)

    def _planned(self, policy: str, graph: NpuGraph) -> int:
        """Bytes of the arena by our plan, which targets share: their graphs are nearly one."""
        if policy not in self._arenas:
            self._arenas[policy] = plan(graph).peak
        return self._arenas[policy]

    def _state(self, t: TargetDiagnosis, artifact: Artifact) -> None:
        report = artifact.report
        blamed = [r for r in artifact.evidence if r.act in ("failed", "refused")]
        if any(r.gave for r in blamed):
            t.state, t.said = "wrong", blamed[0].answer or blamed[0].tool
        elif t.runs_on and artifact.deviation is None and blamed:
            t.state, t.said = "failed", f"{blamed[-1].tool}: {blamed[-1].answer}"
        elif report.host or (report.rows and report.on_npu == len(report.rows)):
            t.state = "all"
        elif report.on_npu:
            t.state = "part"
        elif report.unknown or not report.rows:
            t.state = "unknown"
        else:
            t.state = "none"
        if not t.said and not t.runs_on:
            t.said = self._absent(t.target)

    @staticmethod
    def _absent(name: str) -> str:
        _, reason = registry.get(name).available()
        return f"nothing here runs it: {reason}"

    def _diverges(self, t: TargetDiagnosis, target: Target[Any], made: _Made) -> None:
        """Look for the first op that leaves the reference, if any does."""
        artifact, subject = made.artifact, made.subject
        if not t.runs_on:
            t.unsought = "nothing here runs it"
            return
        if t.deviation is not None and not leaves(t.deviation):
            t.unsought = "" if t.deviation.exact else f"within rounding ({STEPS} step) of the reference"
            return
        if t.state == "failed" and t.deviation is None and not artifact.evidence:
            t.unsought = "no run counts"
            return
        # What ran for another target too, with the same results, need not be searched again.
        off = t.deviation.short if t.deviation is not None else t.said
        key = (t.runs_on, t.policy, off, tuple(r.op for r in artifact.report.rows))
        if key in self._divergences:
            t.divergence = self._divergences[key]
            return
        stored = stored_inputs(subject.inputs, [np.asarray(x) for x in self.data.calls[0]])
        try:
            t.divergence = first_divergence(target, subject.form, stored, dict(made.settings))
        except NxError as error:
            t.unsought = _line(error)
            return
        self._divergences[key] = t.divergence
        if t.divergence is None:
            t.unsought = "every part that was cut out agrees on the first sample"

    def _measured(self, t: TargetDiagnosis, artifact: Artifact) -> None:
        """Results against the float model, and the metric of the task."""
        runs = t.runs_on and t.state not in ("failed",)
        run, t.sqnr_of = (artifact.run, t.runs_on) if runs else (artifact.reference, "the exact reference")
        try:
            t.sqnr, t.samples = self._sqnr(run)
            if self.metric is not None:
                if runs:
                    t.scores = artifact.score(self.metric, self.tests)
                else:
                    scored = [float(self.metric(artifact.reference(*xs), answer)) for xs, answer in self.tests]
                    t.scores = MetricScores(math.nan, float(np.mean(scored)))
        except Exception as error:  # vendors' runtimes have no class of errors in common
            t.said = t.said or _line(error)

    def _sqnr(self, run: Callable[..., Any]) -> tuple[float | None, int]:
        """Decibels, and over how many samples: slow models of chips do not get to see all."""
        calls, began = self.data.calls[:_MEASURED], time.monotonic()
        if self._wanted is None:
            self._wanted = [_flat(self.model.fun(*xs)) for xs in calls]
        got: list[list[Any]] = []
        for xs in calls:
            got.append(_flat(run(*xs)))
            if time.monotonic() - began > _PATIENCE:
                break
        pairs = [
            (a, b)
            for i, ys in enumerate(got)
            for a, b in zip(ys, self._wanted[i], strict=True)
            if b.dtype in dtypes.FLOAT
        ]
        if not pairs:
            return None, len(got)
        ends = [Tensor(f"result {i}", b.shape, b.dtype) for i, (_, b) in enumerate(pairs)]
        return measured("", ends, [a for a, _ in pairs], [b for _, b in pairs]).sqnr, len(got)

    # --- rewrites ---

    def _rewrites(self, t: TargetDiagnosis, target: Target[Any]) -> None:
        """Name what could be written otherwise; on request, try it and look at the target again."""
        if self.model.quantized:
            return
        host = (
            {r.op for r in t.report.rows if r.device == "host"} if t.report is not None and t.state != "all" else set()
        )
        ops: dict[str, int] = {}
        base, key = self.model.fun, ""
        if host or t.state in ("refused", "wrong"):
            program = rewrites.program_of(self.model)
            ops = {op: n for op, n in rewrites.possible(program).items() if op in host}
            if ops and self.fix:
                other, named = rewrites.rewritten(program, ops), " ".join(sorted(ops))
                says = "; ".join(f"{op}: {rewrites.REWRITES[op].says}" for op in ops)
                if self._tried(t, target, other, t.policy, named, says):
                    base, key = other, named
        wider = t.policy == "int8" and t.sqnr is not None and t.sqnr < _WIDER and _WIDE in target.precision
        if wider and self.fix:
            self._tried(t, target, base, _WIDE, key, f"activations in 16 bits (policy {_WIDE})")
        if not self.fix:
            t.rewrites = [f"{op} ({n} times): {rewrites.REWRITES[op].says}" for op, n in ops.items()]
            if wider:
                t.rewrites.append(f"activations in 16 bits (policy {_WIDE}), which the target has")

    def _tried(
        self, t: TargetDiagnosis, target: Target[Any], fun: Callable[..., Any], policy: str, key: str, says: str
    ) -> bool:
        """Examine another form of the model, and take it if it is better in something and worse in nothing."""
        words = lambda d: ", ".join(filter(None, (d.placement, f"{decibels(d.sqnr)} dB" if d.sqnr is not None else "")))
        new, made = TargetDiagnosis(t.target, t.title, policy=policy), None
        try:
            made = self._made(new, target, fun if policy == "float32" else self._quantized(policy, fun, key))
        except NxError as error:
            new.said = _line(error)
        if made is not None:
            self._measured(new, made.artifact)
        kept = made is not None and _better(new, t)
        fixes = [*t.fixes, Fix(says, kept, words(t) or t.state, words(new) or new.said or new.state)]
        if kept:
            assert made is not None
            self._diverges(new, target, made)
            vars(t).update(vars(new))
        t.fixes = fixes
        return kept


def _better(new: TargetDiagnosis, old: TargetDiagnosis) -> bool:
    """Whether another form of a model is better in something, and worse in nothing that counts."""
    share = lambda d: (bool(d.files) and d.state != "wrong", 0.0 if d.report is None else d.report.share)
    macs = lambda d: 0.0 if d.report is None else d.report.mac_share
    level = lambda d: -math.inf if d.sqnr is None else min(d.sqnr, 200.0)
    if share(new) > share(old):
        return old.sqnr is None or level(new) >= min(level(old) - 1, _ENOUGH)
    if level(old) < POOR <= level(new) and share(new)[0]:
        # What was useless: an op or two that then run on the host are worth it.
        return macs(new) >= macs(old) - 0.01
    return share(new) == share(old) and level(new) > level(old) + 3


def _flat(y: Any) -> list[Any]:
    return [np.asarray(x) for x in tree.leaves(y)]


def _line(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, NxError):
        return plain(": ".join(filter(None, (error.what, str(error.got or "")))), 300)
    return plain(f"{type(error).__name__}: {error}", 300)


def _edges(form: NpuGraph | Program) -> list[tuple[int, int]]:
    """From which op to which values go, by their places."""
    makers: dict[Any, int] = {}
    found: dict[tuple[int, int], None] = {}
    if isinstance(form, Program):
        for i, e in enumerate(inlined(form).equations):
            found.update(((makers[a], i), None) for a in e.inputs if isinstance(a, Var) and a in makers)
            makers.update(dict.fromkeys(e.outputs, i))
    else:
        for i, n in enumerate(form.nodes):
            found.update(((makers[x], i), None) for x in n.operands if x in makers)
            makers.update(dict.fromkeys(n.outputs, i))
    return list(found)
