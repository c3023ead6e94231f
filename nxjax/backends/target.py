"""The contract of a target: a format, a constraint table, a vendor's compiler, a runtime.

A target can be compiled for whether or not its chip is here. What its tools say is kept beside what its published
rules say; the label tells how far towards silicon a result went.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, final, get_args

import numpy as np

from nxjax.backends.evidence import LABELS, Act, By, Label, Record, digest, label, plain
from nxjax.errors import ExecutionError, NxError, ParameterError, Shown
from nxjax.lower.macs import macs
from nxjax.lower.npu.formats.tflite_variables import StatefulGraph, StateVariable
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import UNKNOWN, Basis, Cost, Device, Placement, Said, Verdict
from nxjax.ops.base import NDArray
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation, Program
from nxjax.trace.types import Shape
from nxjax.transforms.inline import inlined

# Graph inputs to graph outputs, in order, each in its tensor's storage dtype and shape.
Run = Callable[[Sequence[NDArray]], list[NDArray]]
# Where an op runs if it is not the host.
OnChip = Literal["npu", "tpu", "ipu"]
Site = Literal["", "edge", "data center"]
# What a target's files are written from.
Subject = TypeVar("Subject", NpuGraph, Program)


@final
@dataclass(frozen=True)
class Runner:
    """What executes an artifact.

    Attributes:
        run: graph inputs to graph outputs.
        title: what it is, e.g. "QNN HTP simulator 2.51.0" or "LiteRT 2.3.0 reference kernels on the host".
        by: what kind of thing that is.
        took: digests of the files that it loaded (`nxjax.backends.evidence.digests`).
    """

    run: Run
    title: str
    by: By = "host"
    took: tuple[str, ...] = ()

    def execute(self, args: Sequence[NDArray], shapes: Sequence[Shape], stored: Sequence[DType] = ()) -> list[NDArray]:
        """Run it once. It earns nothing before its results were compared: `Build.proved` or `Build.disproved`.

        Raises:
            ExecutionError: it failed, or gave results of other shapes, or of other dtypes than ``stored``.
        """
        try:
            results = [np.asarray(y) for y in self.run([_kept(x) for x in args])]
        except NxError:
            raise
        except (Exception, SystemExit) as error:  # vendors' runtimes have no class of errors in common
            raise ExecutionError(f"{self.title} failed while it ran", got=f"{type(error).__name__}: {error}") from error
        if (given := [y.shape for y in results]) != list(shapes):
            raise ExecutionError(f"{self.title} gave results of other shapes", got=given, expected=list(shapes))
        if wrong := [
            f"{y.dtype} for {wanted}" for y, wanted in zip(results, stored, strict=False) if y.dtype != wanted
        ]:
            raise ExecutionError(f"{self.title} gave results of other dtypes", got=", ".join(wrong))
        return results


@final
@dataclass
class Build:
    """What a target's tools made of a graph, and the records of what they did.

    Attributes:
        files: file name to bytes; the first is the artifact itself. A name with "/" lies in a folder (``.mlpackage``).
        placements: one per node of the graph.
        cost: figures, each with its source.
        runner: executes it (on the chip, the vendor's simulator or a host runtime), or None where nothing here can.
        others: what executes the same files in another way, for comparison: the kernels of a phone, say.
        notes: what the user should know: tools not found, options chosen, conversions added.
        analysis: what the compiler itself found out about the program, for targets that tell more than costs.
        evidence: what tools did, in order.
        host: whether the target's device is this machine's processor.
    """

    files: dict[str, bytes]
    placements: list[Placement]
    cost: Cost = field(default_factory=Cost)
    runner: Runner | None = None
    notes: list[str] = field(default_factory=list[str])
    analysis: Analysis | None = None
    evidence: list[Record] = field(default_factory=list[Record])
    host: bool = False
    others: list[Runner] = field(default_factory=list[Runner])

    @property
    def label(self) -> Label:
        """How far towards silicon it went, by the records."""
        return label(self.evidence, self.files, self.on_chip, self.host)

    @property
    def on_chip(self) -> bool | None:
        """Whether anything is on the chip; None where nothing is known to be, and some of it may."""
        unknown = any(r.device == "unknown" for r in self.placements)
        return any(r.on_chip for r in self.placements) or (None if unknown else False)

    @property
    def ran_by(self) -> By:
        """What kind of thing runs it: the host, where nothing is known to be on the chip."""
        by: By = self.runner.by if self.runner is not None else "host"
        return by if self.on_chip or by not in ("chip", "vendor-simulator") else "host"

    @property
    def run(self) -> Run | None:
        """What runs it; None where nothing here can."""
        return self.runner.run if self.runner is not None else None

    @property
    def runs_on(self) -> str:
        """What runs it, in words; empty where nothing here can."""
        return self.runner.title if self.runner is not None else ""

    @property
    def ran_file(self) -> str:
        """Which of the files the runner runs, byte for byte; empty where it runs others."""
        took = self.runner.took if self.runner is not None else ()
        return next((name for name, data in self.files.items() if digest(data) in took), "")

    def record(self, act: Act, by: By, tool: str, **more: Any) -> Record:
        """Note what a tool did; arguments as of `Record`."""
        self.evidence.append(made := Record(act, by, tool, **more))
        return made

    def blame(
        self, error: ExecutionError, by: By, tool: str, took: tuple[str, ...], gave: tuple[str, ...] = ()
    ) -> None:
        """Note a tool that gave no files: it refused these, or it failed; or whose results are none of theirs."""
        act: Act = "refused" if error.refused else "failed"
        said = ": ".join(filter(None, (error.what, str(error.got or ""))))
        self.record(act, by, tool, took=took, gave=gave, command=error.command, status=error.status, answer=said)

    def unanswered(self, error: ExecutionError, by: By, tool: str, took: tuple[str, ...]) -> None:
        """`blame`, and the tool's words as a note: the artifact stays as it was before the tool was asked.

        What the tool refuses runs on the host, by its own word.
        """
        self.blame(error, by, tool, took)
        if error.refused:
            said: dict[str, Any] = {"device": "host", "reason": str(error.got), "decided_by": "vendor"}
            self.placements = [replace(r, **said) for r in self.placements]
        what = "refuses it" if error.refused else "gave no answer"
        self.notes.append(plain(f"{tool} {what}: {error.what}: {error.got or error.command}"))

    def execute(self, args: Sequence[NDArray], shapes: Sequence[Shape], stored: Sequence[DType] = ()) -> list[NDArray]:
        """`Runner.execute` of its runner."""
        assert self.runner is not None
        return self.runner.execute(args, shapes, stored)

    def proved(self, results: Sequence[NDArray]) -> None:
        """Note the first run whose ``results`` were compared with the reference, and are of the same function."""
        assert self.runner is not None
        # Results of another function are not made good by a later run.
        if not any(r.act == "ran" or (r.act == "failed" and r.gave) for r in self.evidence):
            types = ", ".join(f"{y.dtype}{list(y.shape)}" for y in results)
            gave = _results(results)
            self.record("ran", self.ran_by, self.runner.title, took=self.runner.took, gave=gave, answer=types)

    def disproved(self, error: ExecutionError, results: Sequence[NDArray] = ()) -> None:
        """Note that what runs it failed, or gave ``results`` that are none of it: no run counts."""
        assert self.runner is not None
        self.blame(error, self.ran_by, self.runner.title, self.runner.took, _results(results))
        self.uncounted(f"{error.what}: {error.got or error.command}")

    def uncounted(self, why: str) -> None:
        """Note that no run counts, and no time that was measured of one."""
        self.evidence[:] = [r for r in self.evidence if r.act != "ran"]
        said = plain(f"no run of it counts: {why}")
        self.notes.append(said)
        if "latency" in self.cost and self.cost["latency"].basis == "measured":
            del self.cost.figures["latency"]
            self.cost.why = said

    def check(self, name: str, nodes: Sequence[Node] | None = None) -> None:
        """Raise `ExecutionError` where an adapter says more than its records, or what nothing can mean.

        A build has files, and what is placed on the word of the vendor's tool has a record of what that tool said: of
        a runtime on the host only where the host is the device. A run counts once its results were compared, which
        `proved` records. Of a graph there is one placement for each of its ``nodes``.
        """
        if wrong := self._unfounded() or self._misplaced(nodes):
            got, expected = wrong
            raise ExecutionError(f"{name}: the target's adapter is at fault", got=got, expected=expected)

    def _unfounded(self) -> tuple[str, str] | None:
        """What is said without the files and the record that it takes, and these."""
        if not self.files:
            return "no files", "files, and records"
        for file, data in self.files.items():
            if not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                return f"{type(data).__name__} as the file {file!r}", "bytes"
        vendor = any(r.decided_by == "vendor" for r in self.placements)
        held = {digest(data) for data in self.files.values()}
        tools = ("vendor-compiler", "vendor-simulator", "chip", *(["host"] if self.host else []))
        said = [r for r in self.evidence if r.by in tools and r.answered and r.act != "ran"]
        if vendor and not any(r.took and held.issuperset(r.took) for r in said):
            return "ops that the vendor's tool placed, and no record of that tool and these files", "files, and records"
        if early := next((r for r in self.evidence if r.act == "ran" and r.by in ("chip", "vendor-simulator")), None):
            return f"a run by {early.tool} whose results nothing compared", "a Runner, which is run and compared"
        return None

    def _misplaced(self, nodes: Sequence[Node] | None) -> tuple[str, str] | None:
        """A row or a figure that means nothing, and what it should be."""
        if nodes is not None and [r.op for r in self.placements] != [n.op for n in nodes]:
            given, wanted = (plain(", ".join(row.op for row in rows), 200) for rows in (self.placements, nodes))
            return f"placements of {given or 'nothing'}", f"of the graph's nodes, in order: {wanted}"
        for what, given, known in (
            *(("a placement on", r.device, get_args(Device)) for r in self.placements),
            *(("a placement decided by", r.decided_by, get_args(Said)) for r in self.placements),
            *((f"{k} with the basis", figure.basis, get_args(Basis)) for k, figure in self.cost.figures.items()),
        ):
            if given not in known:
                return f"{what} {given!r}", ", ".join(map(repr, known))
        return None


class Analysis(Protocol):
    """A compiler's own answer about a program, beyond where ops run."""

    @property
    def hlo(self) -> str:
        """The program after optimization, as text."""
        ...

    @property
    def memory(self) -> object:
        """Bytes on the device, each kind of them."""
        ...

    def named(self, arguments: Sequence[str], results: Sequence[str]) -> None:
        """Take the user's own names for what comes in and goes out, in order."""
        ...

    def lines(self) -> list[str]:
        """What a report says of it."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        ...

    def svg(self) -> str:
        """A picture."""
        ...


@final
@dataclass(frozen=True)
class Kind:
    """A family of chips: whose it is, what its driver makes, what talks to it.

    Attributes:
        drivers: names of kernel drivers that register it with the accel subsystem.
        nodes: device files that other drivers of it make, as patterns.
        usb: vendor and product numbers on USB.
        systems: names of a system and its machine whose processors all have one, as ``sys`` and ``platform`` say them.
        module: the Python package that reaches it; empty where it has none.
        extra: the extra of nxjax that brings the package.
        target: what `nx.compile` is told; empty where nobody writes a file for it.
    """

    vendor: str
    name: str
    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    usb: tuple[str, ...] = ()
    systems: tuple[tuple[str, str], ...] = ()
    module: str = ""
    extra: str = ""
    target: str = ""


class Target(Shown, ABC, Generic[Subject]):
    """One thing that can be compiled for: from a graph (`NpuTarget`) or from a program (`ProgramTarget`).

    Attributes:
        name: as in ``nx.compile(f, target=...)``.
        title: vendor and chip, for people.
        format: the file format it reads: "tflite", "onnx", "openvino", "coreml".
        extra: the ``pip install nxjax[...]`` extra that brings the vendor's tools.
        host: its device is this machine's CPU, so that nothing can fall back to it.
        recurrent: the layers that it takes as one op, of "lstm", "gru" and "rnn"; loops of others are written out.
        precision: what it computes in: any of "int8", "int16x8", "float32", "float16".
        aliases: other names it is known by.
        forms: where it comes in several forms, such as sizes of a machine: the usual ones, the smallest first. Each is
            a target of its own, called ``name:form``.
        device: what the places where its ops run are called in reports: "npu", "tpu", "ipu".
        site: where its chips serve: "edge" (phones, laptops, sensors), one request at a time, or "data center", many at
            once; empty of a target that is no chip in particular.
        binds: whether arguments that are trees are constants of an artifact unless the user says otherwise.
        rules: what placement rests on where no tool of the vendor's is asked: which table, and what it checks; empty
            where there is none, so that where an op runs is unknown.
        exact: whether the vendor specifies its integers as TFLite's reference kernels compute them, so that the exact
            reference gives the chip's own bits.
        simulated: whether these bits, computed here, simulate a chip.
        quantizes: whether its compiler quantizes by itself. It is then given the float function, with calibration data
            as the option ``calibrate``: a list of batches, each a list of arrays, one for each of its inputs.
        chips: families of chips that a machine may have and that the target's files are for.
        providers: ONNX Runtime's providers for its chips, by the names that the configuration of its text generator has
            for them, each with the options that it starts with.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    format: ClassVar[str]
    extra: ClassVar[str] = ""
    host: ClassVar[bool] = False
    recurrent: ClassVar[frozenset[str]] = frozenset()
    precision: ClassVar[tuple[str, ...]] = ("int8",)
    aliases: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[tuple[str, ...]] = ()
    device: ClassVar[OnChip] = "npu"
    site: ClassVar[Site] = ""
    binds: ClassVar[bool] = True
    rules: ClassVar[str] = "the target's own rules"
    exact: ClassVar[bool] = False
    quantizes: ClassVar[bool] = False
    chips: ClassVar[tuple[Kind, ...]] = ()
    providers: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    @property
    def simulated(self) -> bool:
        return self.exact and not self.host

    @classmethod
    def of(cls, form: str) -> Target[Subject]:
        """The target in one of its forms; `ParameterError` where it has no such one."""
        raise ParameterError(f"compile: {cls.name} comes in one form only", got=repr(form), expected=repr(cls.name))

    @abstractmethod
    def available(self) -> tuple[Label, str]:
        """The best label reachable on this machine, and why no better one. Imports nothing heavy."""

    @abstractmethod
    def placed(self, subject: Subject) -> list[Placement]:
        """Placement by the published rules alone."""

    @abstractmethod
    def build(self, subject: Subject, options: dict[str, object]) -> Build:
        """Write the artifact and take it as far as the vendor's tools here go.

        Raises:
            LoweringError: operations that the file format has no form for, or that nothing here runs.
            ParameterError: an option that the target has not, or a value that it cannot have.
        """

    def here(self) -> tuple[Label, str]:
        """What `available` says; where it fails, nothing can be verified here, and why."""
        try:
            found, why = self.available()
        except (Exception, SystemExit) as error:  # an adapter of a package may raise anything
            return "emitted", plain(f"the target's adapter is at fault: {type(error).__name__}: {error}")
        return (found, why) if found in LABELS else ("emitted", f"the target's adapter has no such label: {found!r}")

    def made(self, subject: Subject, options: dict[str, object]) -> Build:
        """What `build` gives, checked.

        Raises:
            ExecutionError: a file that the target's tools need cannot be written or read here, or the adapter is at
                fault.
        """
        try:
            with blamed(self.name):
                build = self.build(subject, options)
                if not isinstance(build, Build):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError(f"build returned {type(build).__name__}, not a Build")
            build.check(self.name, subject.nodes if isinstance(subject, NpuGraph) else None)
            return build
        except OSError as error:
            where = error.filename or tempfile.tempdir or "the temporary folder"
            raise ExecutionError(
                f"{self.name}: a file that its tools need cannot be written or read",
                got=f"{where}: {error.strerror or error}",
                fix="free space on that disk, or let the environment variable TMPDIR name a folder that can be written",
            ) from error


@contextlib.contextmanager
def blamed(name: str) -> Generator[None]:
    """Give what an adapter raises by mistake the name of its target: packages bring adapters that nobody here tests.

    Raises:
        ExecutionError: the body raised what is neither an `NxError` nor about the machine.
    """
    try:
        yield
    except (NxError, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        got = f"{type(error).__name__}: {error}"
        raise ExecutionError(f"{name}: the target's adapter is at fault", got=got) from error


class NpuTarget(Target[NpuGraph]):
    """A target whose files are written from an `NpuGraph`. Abstract; implementations are final.

    Attributes:
        variables: whether its files can keep a state (`keeping`).
    """

    variables: ClassVar[bool] = False

    @abstractmethod
    def supports(self, node: Node) -> Verdict:
        """The published constraints on one node. Needs no vendor package."""

    def placed(self, subject: NpuGraph) -> list[Placement]:
        """Placement by the published rules alone (a target whose partition is not per node overrides this)."""
        return place(subject, self.supports, bool(self.rules))

    def keeping(
        self,
        build: Build,
        graphs: Sequence[StatefulGraph],
        variables: Sequence[StateVariable],
        options: dict[str, object],
    ) -> None:
        """Add to a build of the first graph the file that keeps the state in variables, as its main file.

        Args:
            build: what `build` gave for the first graph.
            graphs: the file's signatures, the main one first.
            variables: the leaves of the state.
            options: as of `build`.

        Raises:
            LoweringError: what `build` raises of the other graphs.
            ParameterError: the target's files have no variables.
        """
        raise ParameterError(f"compile: the files of {self.name} have no variables", got=len(variables))


_Target = TypeVar("_Target", bound=Target[Any])


def variant(base: type[_Target], name: str, title: str, **attributes: object) -> type[_Target]:
    """The target that one chip of a family is: ``base`` with a name, a title, and what else is its own."""
    words = {"name": name, "title": title, "__doc__": f"{title}. {base.__doc__}", "__module__": base.__module__}
    made: Any = type("".join(part.title() for part in name.split("-")), (base,), {**words, **attributes})
    return made


class ProgramTarget(Target[Program]):
    """A target whose files are written from a program with its parameters bound. Abstract."""

    @abstractmethod
    def supports(self, equation: Equation) -> Verdict:
        """The published constraints on one equation. Needs no vendor package."""

    def placed(self, subject: Program) -> list[Placement]:
        rows: list[Placement] = []
        for e in inlined(subject).equations:
            v = self.supports(e)
            types = ", ".join(str(o.type) for o in e.outputs)
            what, where = (e.op.name, types), (e.source, e.scope)
            if v.ok and not self.rules:
                rows.append(Placement(*what, "unknown", *where, UNKNOWN, "", macs(e), "nobody"))
            else:
                device = self.device if v.ok else "host"
                rows.append(Placement(*what, device, *where, v.reason, v.suggestion, macs(e)))
        return rows


def _kept(x: NDArray) -> NDArray:
    """A view that cannot be written to: inputs are the caller's."""
    view = np.asarray(x).view()
    view.flags.writeable = False
    return view


def _results(results: Sequence[NDArray]) -> tuple[str, ...]:
    return tuple(digest(np.ascontiguousarray(y).tobytes()) for y in results)


def file_name(name: str, suffix: str) -> str:
    """A file's name for a function's: what file systems do not like is left out.

    >>> file_name("a/b c", "onnx"), file_name("", "onnx")
    ('a_b_c.onnx', 'graph.onnx')
    """
    return (re.sub(r"[^\w.-]+", "_", name).strip("._") or "graph") + "." + suffix


def only(name: str, options: dict[str, object], known: Sequence[str]) -> None:
    """Raise `ParameterError` for options that a target does not have."""
    unknown = sorted(set(options) - set(known))
    if unknown and not known:
        raise ParameterError(f"{name}: this target has no options", got=", ".join(unknown))
    if unknown:
        wanted = ", ".join(known)
        raise ParameterError(f"{name}: unknown option", got=", ".join(unknown), expected=wanted)
