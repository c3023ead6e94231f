"""Artifact: the files of a compiled function, how to run them, and facts about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.backends.evidence import Label, Record, plain
from nxjax.backends.target import Build
from nxjax.deploy import files
from nxjax.deploy.deviation import Deviation, cancelled, constant, drawn, measured
from nxjax.deploy.report import Report
from nxjax.deploy.trace import CallSignature, Subject, stored_inputs
from nxjax.display import page
from nxjax.errors import ExecutionError, NxError, ParameterError
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.placement import Cost
from nxjax.trace.dtypes import DType
from nxjax.trace.lazy import replacement_hint
from nxjax.trace.program import Program
from nxjax.trace.types import Shape

NDArray = np.ndarray[Any, Any]


@final
class MetricScores(NamedTuple):
    """A metric of the task, for the artifact's results and for the exact reference."""

    artifact: float
    reference: float


@final
class Artifact:
    """A function compiled for a target.

    Attributes:
        target: the target's name.
        files: file name to bytes; the first is the artifact itself.
        label: hardware, vendor-simulator, vendor-compiled, own-model, emitted or host, by the records in ``evidence``.
            A label that needs a run appears only after one that was compared with the reference: with
            ``verify=False``, or from types alone, after `verify`.
        evidence: what tools did with the files: tool, version, command, status, digests of its input and output bytes,
            answer, time.
        report: where each op runs.
        cost: times, memory, bytes; each figure is labelled measured, vendor-estimate or model.
        deviation: differences from the exact reference on the example arguments; None if nothing here can run it.
        others: the deviation of other ways to run the files, such as LiteRT's XNNPACK, as on a phone.
        graph: the source of the files; None if that is the program.
        signatures: artifacts of the other functions of the same state, by name; their graphs are in this one's file.
        notes: other facts.

    >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> artifact.target, artifact.run(nx.ones((1, 3))).tolist()
    ('tflite', [[2.0, 2.0, 2.0]])
    """

    def __init__(self, target: str, signature: CallSignature, subject: Subject, build: Build, report: Report) -> None:
        self.target = target
        self.graph = subject.form if isinstance(subject.form, NpuGraph) else None
        self._report = report
        self.deviation: Deviation | None = None
        self.others: list[Deviation] = []
        self.signatures: dict[str, Artifact] = {}
        self._signature = signature
        self._subject = subject
        self._build = build

    @property
    def files(self) -> dict[str, bytes]:
        return self._build.files

    @property
    def bytes(self) -> bytes:
        """The artifact's main file."""
        return next(iter(self._build.files.values()))

    @property
    def label(self) -> Label:
        return self._build.label

    @property
    def report(self) -> Report:
        self._report.label = self.label
        return self._report

    @property
    def evidence(self) -> list[Record]:
        return self._build.evidence

    @property
    def cost(self) -> Cost:
        return self._build.cost

    @property
    def notes(self) -> list[str]:
        return self._build.notes

    @property
    def analysis(self) -> Any:
        """The compiler's report on the whole program (layouts, memory, time), or None."""
        return self._build.analysis

    @property
    def hlo(self) -> str:
        """The program after the compiler's optimization, as text.

        Raises:
            ParameterError: the target's compiler does not provide it.
        """
        return self._analysed("hlo").hlo

    @property
    def memory(self) -> Any:
        """Bytes of each kind on one device, after padding.

        Raises:
            ParameterError: the target's compiler does not provide them.
        """
        return self._analysed("memory").memory

    def _analysed(self, what: str) -> Any:
        if self._build.analysis is None:
            raise ParameterError(f"{what}: {self.target}'s compiler does not say", expected="a target such as tpu-v4")
        return self._build.analysis

    @property
    def runs_on(self) -> str:
        """What `run` uses, in words; empty if nothing here can run it."""
        return self._build.runs_on

    def run(self, *args: Any) -> Any:
        """Results for one set of inputs: the function's arguments, with or without the bound ones.

        Takes and returns floats. Integer inputs and results are converted here.
        """
        if self._build.runner is None:
            raise ExecutionError(
                f"{self.target}: nothing on this machine can run the artifact",
                got=f"label {self.label!r}",
                expected="a chip, a simulator or a runtime of the vendor",
                fix="; ".join(self.notes) or "save it and run it on the device",
            )
        stored = self._executed(stored_inputs(self._subject.inputs, self._signature.flat_inputs(args, "run")))
        return self._signature.result(self._subject.outputs, stored)

    __call__ = run

    def stored(self, *args: Any) -> list[NDArray]:
        """The inputs of `run` as the files take them: integers where these have a grid."""
        return stored_inputs(self._subject.inputs, self._signature.flat_inputs(args, "stored"))

    @property
    def form(self) -> NpuGraph | Program:
        """What the files are written from: a graph, or the program itself."""
        return self._subject.form

    def verify(self, inputs: Sequence[NDArray]) -> None:
        """Run the artifact on inputs of the function, flat, and measure its `deviation` from the reference.

        If a vendor's tool fails, or gives results unrelated to the reference, there is no deviation. A note quotes the
        tool, and the label follows from the other records.

        Where all values of a result of a chip or of a vendor's simulator are one, it is run on other inputs too, which
        are drawn from a fixed seed. Results of another function count as such, and a note has the other deviation. If
        no inputs can be drawn, no run counts.

        Raises:
            ExecutionError: nxjax's model of a chip failed.
        """
        self.deviation, self.others = None, []
        stored = stored_inputs(self._subject.inputs, inputs)
        # The reference first, and copies to the runtime: one that writes to its inputs must not be its own judge.
        wanted = self._subject.meaning(stored)
        got: list[NDArray] = []
        try:
            got = first = self._executed([np.array(x) for x in stored])
            found = self._judged([stored], [got], [wanted])
            if stored and self._build.ran_by in ("chip", "vendor-simulator") and any(map(constant, wanted)):
                # What answers everything with one value would give these results too.
                said = "all values of a result are one on this example"
                calls = drawn(self._subject.inputs, stored)
                if not calls:
                    self._build.uncounted(f"{said}, and no others can be drawn: give an example whose results vary")
                    return
                others, results = [self._subject.meaning(call) for call in calls], list[list[NDArray]]()
                for call in calls:
                    got = []
                    results.append(got := self._executed([np.array(x) for x in call]))
                more = self._judged(calls, results, others)
                if not more.exact:
                    self.notes.append(f"{said}; on others: {more.short}")
        except NxError as error:
            if self._build.runner is None or self._build.runner.by == "own-model":
                raise
            said = error if isinstance(error, ExecutionError) else ExecutionError(error.what, got=error.got)
            self._build.disproved(said, got)
            return
        self._build.proved(first)
        self.deviation = found
        for runner in self._build.others:
            try:
                got = runner.execute([np.array(x) for x in stored], *self._results)
                self.others.append(measured(runner.title, self._subject.outputs, got, wanted, self._build.ran_file))
            except NxError as error:
                self.notes.append(plain(f"{runner.title} did not run it: {error.what}: {error.got}"))

    def score(self, metric: Callable[..., Any], batches: Iterable[tuple[tuple[Any, ...], Any]]) -> MetricScores:
        """A metric of the task, for the artifact's results and for the exact reference.

        Args:
            metric: maps (result, target) to a number per batch; the mean over batches is returned.
            batches: pairs of inputs (a tuple, as for `run`) and targets.

        Raises:
            ParameterError: no batches.
            ExecutionError: nothing here can run the artifact.

        >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
        >>> error = lambda y, target: abs(y - target).mean()
        >>> artifact.score(error, [((nx.ones((1, 3)),), 2.0)])
        MetricScores(artifact=0.0, reference=0.0)
        """
        rows = [
            (float(metric(self.run(*inputs), target)), float(metric(self.reference(*inputs), target)))
            for inputs, target in batches
        ]
        if not rows:
            raise ParameterError("score: no batches", expected="pairs of inputs and targets")
        return MetricScores(*(float(np.mean(column)) for column in zip(*rows, strict=True)))

    def _judged(
        self, calls: Sequence[Sequence[NDArray]], got: Sequence[Sequence[NDArray]], wanted: Sequence[Sequence[NDArray]]
    ) -> Deviation:
        """The deviation over some calls; an error where their results are of another function."""
        # Beside one another along a last axis, where they leave the axes of grids as they are.
        together = lambda rows: [np.stack(ys, -1) for ys in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]
        compared = (self.runs_on, self._subject.outputs, together(got), together(wanted), self._build.ran_file)
        found = measured(*compared)
        if found.unrelated:
            rounding = [cancelled(self._subject.meaning, call) for call in calls]
            found = measured(*compared, [max(each) for each in zip(*rounding, strict=True)])
        if found.unrelated:
            raise ExecutionError(f"{self.runs_on} gave results of another function", got=found.short)
        return found

    def _executed(self, stored: Sequence[NDArray]) -> list[NDArray]:
        """Results as they are stored, of the shapes that they have to be of."""
        return self._build.execute(stored, *self._results)

    @property
    def _results(self) -> tuple[list[Shape], list[DType]]:
        """The shapes and dtypes of results as they are stored."""
        return [t.shape for t in self._subject.outputs], [t.dtype for t in self._subject.outputs]

    def reference(self, *args: Any) -> Any:
        """The exact results for the inputs of `run`, computed on this host."""
        leaves = self._signature.flat_inputs(args, "reference")
        stored = self._subject.meaning(stored_inputs(self._subject.inputs, leaves))
        return self._signature.result(self._subject.outputs, stored)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the artifact, all of its files or none, and return its path.

        Args:
            path: a folder for the files, under their own names; or, with the extension of the main file or package, its
                path. The other files then go next to it, under its name. A single file may have any name.
        """
        return files.save(self.files, path)

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        more = replacement_hint(f"artifact.{name}")
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(said + more) if more else AttributeError(said, name=name, obj=self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(data):,} bytes" for name, data in self.files.items())
        lines = [self.report.summary(), f"  files: {sizes}"]
        if self.runs_on:
            lines.append(f"  runs on: {self.runs_on}")
        lines += [f"  {name}: {f.value:,.6g} {f.unit} ({f.basis})" for name, f in self.cost.figures.items()]
        if self.deviation is not None:
            lines += [f"  {line}" for line in str(self.deviation).splitlines()]
        lines += [f"  {d.runs_on}: {d.short}" for d in self.others]
        lines += [f"  evidence: {r}" for r in self.evidence]
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])

    def _repr_html_(self) -> str:
        deviation = page.page(page.text(str(self.deviation))) if self.deviation is not None else ""
        return self.report._repr_html_() + deviation  # pyright: ignore[reportPrivateUsage]
