"""One form of a model on one target: built, run, compared with the reference and with the float model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.backends.evidence import plain
from nxjax.backends.target import Target
from nxjax.deploy.artifact import Artifact, MetricScores
from nxjax.deploy.compile import built, calibrated, explain
from nxjax.deploy.deviation import measured
from nxjax.deploy.divergence import STEPS, Divergence, first_divergence, leaves
from nxjax.deploy.trace import BoundFunction, Subject, stored_inputs
from nxjax.doctor.findings import TargetDiagnosis
from nxjax.errors import ExecutionError, MissingExtraError, NxError, UnsupportedOpsError
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.lower import UNROLL
from nxjax.lower.npu.memory import plan
from nxjax.trace import dtypes, tree
from nxjax.trace.program import Program, Var
from nxjax.transforms.inline import inlined

NDArray = np.ndarray[Any, Any]
# Samples that results are compared on, and how long that may take.
MEASURED: Final = 4
_PATIENCE: Final = 30.0
# So many multiply-accumulates are not run by our own model of an NPU.
SLOW: Final = 100_000_000


class _Made(NamedTuple):
    """An artifact, and what it was made of."""

    artifact: Artifact
    subject: Subject
    settings: dict[str, object]


@final
class Trials:
    """What is tried with one model on one set of samples. What several targets share is computed once.

    Args:
        fun: the float model, or that of a quantized file.
        calls: its samples.
        metric, tests: of the task, as of `Artifact.score`; None and nothing without one.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        calls: Sequence[tuple[NDArray, ...]],
        metric: Callable[..., Any] | None,
        tests: list[tuple[tuple[Any, ...], Any]],
    ) -> None:
        self._fun, self._calls, self._metric, self._tests = fun, calls, metric, tests
        self._wanted: list[Any] | None = None
        self._arenas: dict[str, int] = {}
        self._divergences: dict[Any, Divergence | None] = {}

    def run(self, t: TargetDiagnosis, target: Target[Any], fun: Callable[..., Any]) -> bool:
        """Write into ``t`` what ``target`` makes of a form of the model; whether a file could be made."""
        made = self._made(t, target, fun)
        if made is None:
            return False
        self._measured(t, made.artifact)
        self._diverges(t, target, made)
        return True

    def _made(self, t: TargetDiagnosis, target: Target[Any], fun: Callable[..., Any]) -> _Made | None:
        """Compile it; where that is not possible, ask what is in the way."""
        call = self._calls[0]
        options: dict[str, Any] = {"calibrate": self._calls} if target.quantizes else {}
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
            known = isinstance(error, NxError) and fault is None
            # What is not installed says nothing of the chip.
            missing = isinstance(error, MissingExtraError)
            t.state = "unknown" if missing else "refused" if known else "failed"
            t.said = line(error if not isinstance(fault, Exception) else fault)
            try:
                t.report = explain(fun, target=t.target, constants=(), progress=False, **options)(*call)
                t.report.host = target.host
                # What each op is refused for says more than the first error.
                t.said = "" if isinstance(error, UnsupportedOpsError) and t.refused else t.said
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
        self._state(t, target, artifact)
        return _Made(artifact, subject, settings)

    def _planned(self, policy: str, graph: NpuGraph) -> int:
        """Bytes of the arena by our plan, which targets share: their graphs are nearly one."""
        if policy not in self._arenas:
            self._arenas[policy] = plan(graph).peak
        return self._arenas[policy]

    @staticmethod
    def _state(t: TargetDiagnosis, target: Target[Any], artifact: Artifact) -> None:
        report = artifact.report
        blamed = [r for r in artifact.evidence if r.act in ("failed", "refused")]
        if gave := next((r for r in blamed if r.gave), None):
            t.state, t.said = "wrong", gave.answer or gave.tool
        elif t.runs_on and artifact.deviation is None and blamed:
            t.state, t.said = "failed", f"{blamed[-1].tool}: {blamed[-1].answer}"
        elif report.host:
            t.state = "all" if t.runs_on else "unknown"
        elif report.rows and report.on_npu == len(report.rows):
            t.state = "all"
        elif report.on_npu:
            t.state = "part"
        elif report.unknown or not report.rows:
            t.state = "unknown"
        else:
            t.state = "none"
        if not t.said and blamed:
            # Its placement and cost are those of a table then.
            t.said = plain(f"{blamed[-1].tool}: {blamed[-1].answer}", 300)
        if not t.said and not t.runs_on:
            t.said = f"nothing here runs it: {target.available()[1]}"

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
        if key not in self._divergences:
            stored = stored_inputs(subject.inputs, [np.asarray(x) for x in self._calls[0]])
            try:
                self._divergences[key] = first_divergence(target, subject.form, stored, dict(made.settings))
            except NxError as error:
                t.unsought = line(error)
                return
        t.divergence = self._divergences[key]
        if t.divergence is None:
            t.unsought = "every part that was cut out agrees on the first sample"

    def _measured(self, t: TargetDiagnosis, artifact: Artifact) -> None:
        """Results against the float model, and the metric of the task."""
        runs = t.runs_on and t.state not in ("failed",)
        run, t.sqnr_of = (artifact.run, t.runs_on) if runs else (artifact.reference, "the exact reference")
        try:
            t.sqnr, t.samples = self._sqnr(run)
            if self._metric is not None:
                if runs:
                    t.scores = artifact.score(self._metric, self._tests)
                else:
                    scored = [float(self._metric(artifact.reference(*xs), answer)) for xs, answer in self._tests]
                    t.scores = MetricScores(math.nan, float(np.mean(scored)))
        except Exception as error:  # vendors' runtimes have no class of errors in common
            t.said = t.said or line(error)

    def _sqnr(self, run: Callable[..., Any]) -> tuple[float | None, int]:
        """Decibels, and over how many samples: slow models of chips do not get to see all."""
        calls, began = self._calls[:MEASURED], time.monotonic()
        if self._wanted is None:
            self._wanted = [_flat(self._fun(*xs)) for xs in calls]
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
        if pairs and not any(np.isfinite(b).any() for _, b in pairs):
            raise ExecutionError(
                "no result of the model itself is finite: there are no decibels", fix="look at its weights and the data"
            )
        if not pairs:
            return None, len(got)
        ends = [Tensor(f"result {i}", b.shape, b.dtype) for i, (_, b) in enumerate(pairs)]
        return measured("", ends, [a for a, _ in pairs], [b for _, b in pairs]).sqnr, len(got)


def _flat(y: Any) -> list[Any]:
    return [np.asarray(x) for x in tree.leaves(y)]


def line(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, NxError):
        fix = error.fix if isinstance(error, MissingExtraError) else ""
        return plain(": ".join(filter(None, (error.what, str(error.got or ""), fix))), 300)
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
