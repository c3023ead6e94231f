"""`nx.deploy.doctor`: a model, examined for each of several targets."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import plain
from nxjax.backends.target import Target
from nxjax.display.progress import bars
from nxjax.doctor import model as models
from nxjax.doctor import rewrites, samples
from nxjax.doctor.diagnosis import Diagnosis
from nxjax.doctor.findings import POOR, Fix, TargetDiagnosis
from nxjax.doctor.model import Model
from nxjax.doctor.samples import Samples
from nxjax.doctor.trial import MEASURED, Trials, line
from nxjax.errors import NxError, ParameterError
from nxjax.quant.comparison import compare
from nxjax.quant.function import quantize
from nxjax.trace.annotations import PyTree
from nxjax.trace.boundary import entry

# Below so many decibels, wider activations are tried; above so many, a rewrite may cost some.
_WIDER: Final = 20.0
_ENOUGH: Final = 30.0
_FLOATS: Final = ("float", "bfloat")
_WIDE: Final = "int16x8"
_FILE: Final = "as in the file"
_AS_IS: Final = "not quantized"


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
    arrays: dict[str, Any] | None = None
    calls: Iterable[Any] | None = None
    origin, found = "that were given", None
    if isinstance(data, (str, Path)):
        arrays, origin = samples.loaded(data), f"of {Path(data).name}"
    elif isinstance(data, Mapping):
        arrays = {str(k): np.asarray(v) for k, v in data.items()}
    else:
        calls = data
    if callable(model):
        patient, example = models.given(model, args)
        found = Samples([example], "the example arguments")
    elif args:
        raise ParameterError("doctor: a file takes no arguments", got=len(args), fix="give data=")
    else:
        patient = models.read(model, shapes, arrays)
    if arrays is not None:
        found = samples.of_arrays(patient, arrays, origin)
    elif calls is not None:
        found = samples.of_calls(patient, calls)
    found = found or samples.drawn(patient)
    found = replace(found, calls=patient.narrow(found.calls))
    return _Examination(patient, found, policy, metric, list(tests), fix).of(chosen, progress, report)


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
    return list(dict.fromkeys(registry.get(n).name for n in asked))


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
        self._trials = Trials(model.fun, data.calls, metric, tests)

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
            found = compare(self.model.fun, self._functions[made], self.data.calls[:MEASURED])  # type: ignore[arg-type]
            self.result.layers = list(found)
        except NxError as error:
            self.result.notes.append(f"no error by layer: {error.what}")

    def _target(self, name: str) -> TargetDiagnosis:
        target = registry.get(name)
        t = TargetDiagnosis(name, target.title)
        try:
            fun, t.policy, why = self._function(target)
            self._trials.run(t, target, fun)
            t.said = "; ".join(filter(None, (why, t.said)))
            self._rewrites(t, target)
        except Exception as error:  # one target's is not to end the others
            t.state, t.said = "failed", line(error)
        return t

    def _function(self, target: Target[Any]) -> tuple[Callable[..., Any], str, str]:
        """What the target is given, how it is quantized, and why it is not, where it should be."""
        if self.model.quantized:
            return self.model.fun, _FILE, ""
        if target.quantizes:
            return self.model.fun, "by the target's own quantizer", ""
        asked = self._asked(target)
        if asked.startswith(_FLOATS):
            return self.model.fun, "float32", ""
        try:
            return self._quantized(asked), asked, ""
        except NxError as error:
            # As it is, it may still run: on a chip that has floats, or as the integers that it has.
            noise = self.data.drawn and "nothing in the function" not in error.what
            return self.model.fun, _AS_IS, f"{line(error)}{'; noise was drawn: give --data' if noise else ''}"

    def _asked(self, target: Target[Any]) -> str:
        return self.policy or (target.precision[0] if target.precision else "int8")

    def _quantized(self, policy: str, fun: Callable[..., Any] | None = None, key: str = "") -> Callable[..., Any]:
        """The function in integers, or another form of it that ``key`` names, made once: what failed fails again."""
        name = f"{policy} {key}".strip()
        found = self._functions.get(name)
        if found is None:
            try:
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always", UserWarning)
                    found = quantize(
                        fun or self.model.fun, policy, calibrate=self.data.calls, params=(), progress=False
                    )
                notes = [plain(f"{policy}: {w.message}") for w in told if issubclass(w.category, UserWarning)]
                self.result.notes += [n for n in notes if n not in self.result.notes]
            except NxError as error:
                found = error
            self._functions[name] = found
        if isinstance(found, NxError):
            raise found
        return found

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
            program = self.model.program
            ops = {op: n for op, n in rewrites.possible(program).items() if op in host}
            if ops and self.fix:
                other, named = rewrites.rewritten(program, ops), " ".join(sorted(ops))
                says = "; ".join(f"{op}: {rewrites.REWRITES[op].says}" for op in ops)
                policy = self._asked(target) if t.policy == _AS_IS else t.policy
                if self._tried(t, target, other, policy, named, says):
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
        words = lambda d: ", ".join(filter(None, (d.placement, f"{d.level} dB" if d.level else "")))
        new, made = TargetDiagnosis(t.target, t.title, policy=policy), False
        try:
            whole = target.quantizes or policy.startswith(_FLOATS)
            made = self._trials.run(new, target, fun if whole else self._quantized(policy, fun, key))
        except NxError as error:
            new.said = line(error)
        kept = made and _better(new, t)
        fixes = [*t.fixes, Fix(says, kept, words(t) or t.state, words(new) or new.said or new.state)]
        if kept:
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
