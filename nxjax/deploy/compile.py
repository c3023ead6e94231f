"""`compile` and `explain`: a function and a target in, an artifact or a report out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from nxjax.backends import target_registry as registry
from nxjax.backends.target import Build, Target, blamed
from nxjax.deploy import state as states
from nxjax.deploy.artifact import Artifact
from nxjax.deploy.parts import parted
from nxjax.deploy.report import Report
from nxjax.deploy.shardings import input_names, output_names, spread
from nxjax.deploy.trace import IO, BoundFunction, CallSignature, Positions, Subject, is_leaf
from nxjax.display.progress import Phases
from nxjax.errors import LoweringError, MemoryLimitError, ParameterError, PlacementError, UnsupportedOpsError
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.lower import UNROLL, refusals
from nxjax.lower.placement import Cost, Placement
from nxjax.quant.function import Quantized
from nxjax.trace.annotations import PyTree
from nxjax.trace.boundary import entry

# What `compile` does, in this order; building is writing the file and running the vendor's compiler.
PHASES: Final = ("tracing", "lowering", "building", "verifying")


@entry
def compile(
    fun: Callable[..., Any],
    *,
    target: str,
    strict: bool = False,
    constants: Positions = None,
    io: IO = "integer",
    verify: bool = True,
    unroll: int = UNROLL,
    state: int | None = None,
    signatures: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **options: object,
) -> Callable[..., Artifact]:
    """A function of example arguments that returns ``fun`` compiled for ``target``.

    Args:
        fun: pure function; quantized (see `quantize`) for targets that compute on integers.
        target: a name that `nx.targets()` lists.
        strict: raise if any op would not run on the NPU, with the whole list.
        constants: positions of the arguments that become part of the artifact; by default the ``params`` of `quantize`,
            else those that are trees. A single array is an input. Float functions for TPUs have no constants by
            default.
        io: "integer" makes quantized inputs and results integers in the file, while `Artifact.run` still takes and
            returns floats. "float" keeps them float.
        verify: run the artifact on the example arguments if possible, and measure its deviation from the exact
            reference.
        unroll: scans of at most this many steps are unrolled.
        state: position of the argument that is a state, as ``state, loss = f(state, x, y)`` gives it back first; by
            default what `quantize` was told. ``.tflite`` files for LiteRT and Ethos-U keep it in variables; see
            docs/on_device_training.md.
        signatures: more functions of the same state for such a file, by name: a tuple of the function and its example
            arguments without the state, ``{"infer": (predict, x)}``. They read the state.
        progress: show the phases as a bar; by default in a terminal or notebook, after one second.
        **options: of the target; see docs/targets.md. Targets with their own quantizer take the float function and
            ``calibrate``, a list of batches of arguments. Targets with several devices take ``in_shardings``,
            ``out_shardings`` and ``donate_argnums``, as `jit` does; see docs/tpu.md.

    Returns:
        ``compile(f, target=t)(*example_args)`` is an `Artifact`. Inputs may be `ShapeDtypeStruct`. Then nothing is run.

    Raises:
        ParameterError: no such target or option; a function that does not return the state that it takes.
        ShapeError, DtypeError: a state that comes out in another shape or dtype.
        UnsupportedOpsError: all ops that no NPU file has a form for, where nothing else is left that the chip computes.
            Otherwise the program is cut: the host computes these ops, and a plan says which file computes what.
        PlacementError: ``strict`` and not all on the NPU.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> f = lambda p, x: nx.nn.relu(x @ p["w"])
    >>> artifact = compile(f, target="tflite")({"w": np.ones((4, 2))}, np.ones((1, 4)))
    >>> artifact.run(np.ones((1, 4))).tolist()
    [[4.0, 4.0]]
    """
    chosen = registry.get(target)

    @functools.wraps(fun, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Artifact:
        with Phases(f"compiling for {chosen.name}", PHASES, progress, "compile") as phase:
            place = states.position(fun, state, args)
            more = states.examples(signatures, fun, place)
            phase("tracing")
            bound = BoundFunction(fun, args, kwargs, _constants(chosen, fun, constants, place, args))
            phase("lowering")
            settings = calibrated(chosen, fun, bound, spread(fun, bound, options))
            try:
                subject = bound.subject(chosen, io, unroll)
            except UnsupportedOpsError:
                phase("building")
                found = parted(chosen, bound.program, bound.name, io, unroll, settings) if place is None else None
                if found is None:
                    raise
                return finished(chosen, bound, *found, strict, verify, phase)
            if place is None:
                return built(chosen, bound, subject, settings, strict, verify, phase)
            main = states.Stated.of(bound, subject, place)
            others: dict[str, tuple[BoundFunction, states.Stated]] = {}
            for key, (g, rest) in more.items():
                given = (*rest[:place], args[place], *rest[place:])
                one = BoundFunction(g, given, {}, _constants(chosen, g, constants, place, given))
                others[key] = one, main.read_by(one, one.subject(chosen, io, unroll), place)
            artifact = built(
                chosen, bound, main.subject, settings, strict, verify, phase,
                states.keeping(main, {key: s for key, (_, s) in others.items()}, bound, place),
            )  # fmt: skip
            for key, (one, s) in others.items():
                artifact.signatures[key] = built(chosen, one, s.subject, settings, strict, verify, phase)
            return artifact

    return compiled


def _constants(
    target: Target[Any], fun: object, given: Positions, state: int | None = None, args: Sequence[Any] = ()
) -> Positions:
    """Which arguments are bound: those that were named, else as the target has it; weights of quantized functions.

    A state is none of them, unless it was named.
    """
    if given is not None:
        return given
    if not target.binds and not isinstance(fun, Quantized):
        return ()
    if state is None or (isinstance(fun, Quantized) and fun.params is not None):
        return None
    return [i for i, a in enumerate(args) if i != state and not is_leaf(a)]


def calibrated(target: Target[Any], fun: object, bound: BoundFunction, options: dict[str, object]) -> dict[str, object]:
    """The options, with calibration data flat where the target's compiler quantizes by itself.

    Raises:
        ParameterError: such a target is given a function that is quantized already, or data that is no list of batches.
    """
    if not target.quantizes:
        return options
    if isinstance(fun, Quantized):
        raise ParameterError(
            f"compile: {target.name} has its own quantizer",
            got="a quantized function",
            expected="the float function, and calibrate=[batch, ...]",
        )
    given = options.get("calibrate", ())
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ParameterError(
            f"compile: calibrate of {target.name}", got=type(given).__name__, expected="a list of batches of arguments"
        )
    batches: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    flat = [bound.flat_inputs(b if isinstance(b, (tuple, list)) else (b,), "calibrate") for b in batches]
    return {**options, "calibrate": flat}


def built(
    target: Target[Any],
    signature: CallSignature,
    subject: Subject,
    options: dict[str, object],
    strict: bool,
    verify: bool,
    phase: Callable[[str], None],
    kept: states.Kept | None = None,
) -> Artifact:
    """The artifact that ``target`` makes of a subject, checked as `compile` says; ``phase`` is told what begins.

    ``kept`` is the state that its file is to keep.
    """
    phase("building")
    if strict and not target.host:
        # What the published rules refuse need not be compiled to be refused.
        with blamed(target.name):
            rows = target.placed(subject.form)
        _check_strict(target, rows)
    build = target.made(subject.form, options)
    if kept is not None:
        kept.put_into(build, target, options)
    return finished(target, signature, subject, build, strict, verify, phase)


def finished(
    target: Target[Any],
    signature: CallSignature,
    subject: Subject,
    build: Build,
    strict: bool,
    verify: bool,
    phase: Callable[[str], None],
) -> Artifact:
    """The artifact of a build, checked as `compile` says."""
    if strict and not target.host:
        _check_strict(target, build.placements)
    _name(build, signature)
    if isinstance(subject.form, NpuGraph):
        build.notes.extend(n for n in subject.form.notes if n not in build.notes)
    artifact = Artifact(target.name, signature, subject, build, _report(target, build))
    if verify and build.runner is not None and signature.inputs is not None:
        phase("verifying")
        artifact.verify(signature.inputs)
    return artifact


def _report(target: Target[Any], build: Build) -> Report:
    found = (build.placements, build.cost, build.notes, build.analysis)
    report = Report(target.name, target.title, build.label, *found, rules=target.rules)
    report.evidence, report.host = build.evidence, build.host
    return report


def _name(build: Build, signature: object) -> None:
    """Call what a compiler says of arguments and results by the user's own names."""
    if build.analysis is not None and isinstance(signature, BoundFunction):
        build.analysis.named(input_names(signature), output_names(signature))


def _check_strict(target: Target[Any], rows: Sequence[Placement]) -> None:
    left = [r for r in rows if not r.on_chip]
    if not left:
        return
    listed = "".join(
        f"\n    - {r.op} {r.name}: {r.reason or 'left to the host'}"
        + (f"\n      at {r.source}: {r.source.text}" if r.source else "")
        + (f"\n      instead: {r.suggestion}" if r.suggestion else "")
        for r in left
    )
    unknown = sum(r.device == "unknown" for r in left)
    said = f"{unknown} of {len(rows)} ops are not known to run on" if unknown else ""
    error = PlacementError(
        f"compile: {said or f'{len(left)} of {len(rows)} ops would not run on'} {target.name}{listed}",
        expected="every op on the NPU, as strict=True asks",
        fix="write what the rows say instead, or leave strict out and read artifact.report",
        source=next((r.source for r in left if r.source is not None), None),
    )
    error.rows = tuple(left)
    raise error


@entry
def explain(
    fun: Callable[..., Any],
    *,
    target: str,
    constants: Positions = None,
    io: IO = "integer",
    unroll: int = UNROLL,
    state: int | None = None,
    progress: bool | None = None,
    **options: object,
) -> Callable[..., Report]:
    """As `compile`, but returns only the report. What `compile` refuses is not an error here: unsupported ops are rows,
    and a program that does not fit in memory is a note.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> report = explain(lambda x: np.sort(x * 2), target="ethos-u55")(np.ones((1, 4)))
    >>> [(r.op, r.device) for r in report.rows if r.op == "top_k"]
    [('top_k', 'host')]
    """
    chosen = registry.get(target)

    @functools.wraps(fun, updated=())
    def explained(*args: Any, **kwargs: Any) -> Report:
        with Phases(f"explaining {chosen.name}", PHASES[:3], progress, "explain") as phase:
            return report(phase, args, kwargs)

    def report(phase: Callable[[str], None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
        place = states.position(fun, state, args)
        phase("tracing")
        bound = BoundFunction(fun, args, kwargs, _constants(chosen, fun, constants, place, args))
        phase("lowering")
        try:
            subject = bound.subject(chosen, io, unroll)
            form = subject.form if place is None else states.Stated.of(bound, subject, place).subject.form
        except UnsupportedOpsError:
            settings = calibrated(chosen, fun, bound, spread(fun, bound, options))
            parts = parted(chosen, bound.program, bound.name, io, unroll, settings) if place is None else None
            return _refused(chosen, bound, unroll) if parts is None else _report(chosen, parts[1])
        phase("building")
        try:
            build = chosen.made(form, calibrated(chosen, fun, bound, spread(fun, bound, options)))
            _name(build, bound)
        except LoweringError as error:
            # The file cannot be written; the published rules say where each op would run.
            notes = [f"the artifact cannot be written: {error.what}", *([str(error.got)] if error.got else [])]
            return _unwritten(chosen, chosen.placed(form), notes)
        except MemoryLimitError as error:
            # Its size is what is wrong with the program, not an op.
            notes = [f"does not fit: {error.what}", f"got {error.got}, expected {error.expected}"]
            notes += [f"fix: {error.fix}"] if error.fix else []
            return _unwritten(chosen, chosen.placed(form), notes)
        return _report(chosen, build)

    return explained


def _refused(target: Target[Any], bound: BoundFunction, unroll: int) -> Report:
    rows = [
        Placement(r.op, r.types, "host", r.source, r.scope, r.reason, r.suggestion)
        for r in refusals(bound.program, unroll=unroll, format=target.format, recurrent=target.recurrent)
    ]
    notes = ["these ops have no form in any NPU format; the rest of the program is placed once they are gone"]
    return _unwritten(target, rows, notes)


def _unwritten(target: Target[Any], rows: list[Placement], notes: list[str]) -> Report:
    """The report of a program of which no file was made: all that is left is the host."""
    cost = Cost(why="nothing was compiled; the notes say why")
    return Report(target.name, target.title, "host", rows, cost, notes, rules=target.rules)


def reference(artifact: Artifact, *args: PyTree) -> PyTree:
    """The exact results of an artifact: `Artifact.reference`.

    Args:
        artifact: any.
        *args: as for `Artifact.run`.

    >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> reference(artifact, nx.ones((1, 3))).tolist()
    [[2.0, 2.0, 2.0]]
    """
    return artifact.reference(*args)
