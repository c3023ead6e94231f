"""LiteRT on this machine: the runtime of ``.tflite`` files, as the target "tflite".

Writes the file, loads it into the interpreter, and reports what the interpreter itself says it runs: the operators it
read, which of them its XNNPACK delegate took, how much memory its tensors span. It computes on the host's CPU.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.backends import extras
from nxjax.backends.evidence import Label, digest, digests
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, NpuTarget, Runner, only
from nxjax.errors import ExecutionError, LoweringError, ParameterError
from nxjax.lower.npu.formats import tflite, tflite_kernels, tflite_ops, tflite_variables
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_variables import StatefulGraph, StateVariable
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import placed
from nxjax.lower.placement import Cost, Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.vendors.litert.variables import StatefulSession

KERNELS: Final = ("reference", "default")
_OPTIONS: Final = ("kernels", "threads", "measure")
_NO_SUCH_VERSION: Final = "Didn't find op for builtin opcode"
_OPTIMIZED: Final = "optimized kernels, without XNNPACK,"
_MEASURE_SECONDS: Final = 0.5
_MEASURE_RUNS: Final = 200


def version() -> str:
    """The installed LiteRT's version, or an empty string."""
    return extras.version("ai-edge-litert")


def _mistaken(o: TFLiteOperator) -> str:
    """What LiteRT's reference kernels do not compute as the file says; empty for all else.

    Their SUM takes every tensor on a grid for uint8, and their ELU is older than that of int8.
    """
    x = o.inputs[0] if o.inputs else None
    if x is None or x.grid is None:
        return ""
    if o.name == "SUM" and x.dtype != dtypes.uint8:
        return f"reference SUM reads {x.dtype} as uint8"
    return "reference kernels have no ELU of int8" if o.name == "ELU" else ""


@final
class LiteRTSession:
    """A model in LiteRT's interpreter; calls are serialized, since an interpreter has one set of tensors.

    Args:
        data: the bytes of the file.
        operations: what the file was written from, held against what the interpreter read.
        kernels: "reference" (plain C++, exact integers) or "default" (XNNPACK and the optimized ones).
        threads: for the default kernels.

    Attributes:
        runs_on: runtime, version and kernels, for people.
        resolver: which kernels these are, as LiteRT says it.
        notes: what was not as asked.
        delegated: numbers of the operations that the XNNPACK delegate computes.

    Raises:
        MissingExtraError: LiteRT is not installed.
        LoweringError: LiteRT has no kernel for an operation; it names the user's line.
    """

    def __init__(self, data: bytes, operations: Sequence[TFLiteOperator], kernels: str = "reference", threads: int = 1):
        self.runtime = need("ai_edge_litert.interpreter", "litert", "the TFLite runtime")
        # Some of what has no kernel ends the process instead of failing.
        refuse([o.node for o in operations if o.node is not None], "tflite")
        self.data = data
        self.operations = operations
        self.notes: list[str] = []
        self.lock = threading.Lock()
        resolver = self.runtime.OpResolverType
        chosen = resolver.BUILTIN_REF if kernels == "reference" else resolver.AUTO
        words = f"{kernels} kernels"
        wrong = (
            list(dict.fromkeys(filter(None, map(_mistaken, tflite_ops.all_of(operations)))))
            if kernels == "reference"
            else []
        )
        if wrong:
            # The file that is verified is the file that is saved: it is not rewritten for a kernel's sake.
            chosen, words = resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES, _OPTIMIZED
            self.notes += [f"LiteRT's {what}: its optimized kernels run instead" for what in wrong]
        try:
            self.interpreter = self.load(self.data, chosen, threads)
        except (RuntimeError, ValueError) as error:
            if words == _OPTIMIZED or kernels != "reference" or _NO_SUCH_VERSION not in str(error):
                raise self.refusal(error) from error
            # The registry of reference kernels ends at older versions of some operators.
            name = re.search(r"opcode '(\w+)' version '(\d+)'", str(error))
            which = f"{name[1]} version {name[2]}" if name else "an operator"
            self.notes.append(f"LiteRT's reference kernels have no {which}: its optimized kernels run instead")
            chosen, words = resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES, _OPTIMIZED
            try:
                self.interpreter = self.load(self.data, chosen, threads)
            except (RuntimeError, ValueError) as again:
                raise self.refusal(again) from again
        self.resolver, self.runs_on = chosen, f"LiteRT {version()} {words} on the host"
        self.inputs = [int(d["index"]) for d in self.interpreter.get_input_details()]
        self.outputs = [int(d["index"]) for d in self.interpreter.get_output_details()]
        self.delegated = self.read_back()

    def load(self, data: bytes, resolver: Any, threads: int) -> Any:
        interpreter = self.runtime.Interpreter(
            model_content=data, experimental_op_resolver_type=resolver, num_threads=threads
        )
        interpreter.allocate_tensors()
        return interpreter

    def refusal(self, error: Exception) -> LoweringError:
        """LiteRT's own words, and the user's line of the operation they are about."""
        found = re.search(r"Node number (\d+)", str(error))
        node = None
        if found is not None and int(found[1]) < len(self.operations):
            node = self.operations[int(found[1])].node
        return LoweringError(
            "tflite: LiteRT cannot run this model",
            got=str(error).replace("\n", " "),
            fix='use other operations or types here, or kernels="default"',
            source=node.source if node is not None else None,
        )

    def read_back(self) -> frozenset[int]:
        """Hold the interpreter's operators against ours; give the numbers of those a delegate took.

        A delegate is an operator behind ours, of which only operands and results are told: what lies between, is its.
        """
        rows: list[dict[str, Any]] = self.interpreter._get_ops_details()
        read = [r["op_name"] for r in rows if r["op_name"] != "DELEGATE"]
        if read != [o.name for o in self.operations]:
            raise ExecutionError(
                "tflite: LiteRT read other operators than were written",
                got=read,
                expected=[o.name for o in self.operations],
            )
        maker = {int(t): i for i, r in enumerate(rows[: len(read)]) for t in r["outputs"]}
        taken: set[int] = set()
        for row in rows[len(read) :]:
            stop, ahead = {int(t) for t in row["inputs"]}, [int(t) for t in row["outputs"]]
            while ahead:
                number = maker.get(ahead.pop())
                if number is not None and number not in taken:
                    taken.add(number)
                    ahead += [int(t) for t in rows[number]["inputs"] if int(t) not in stop]
        return frozenset(taken)

    def __call__(self, args: Sequence[NDArray]) -> list[NDArray]:
        """Graph inputs to graph outputs, in storage dtypes."""
        with self.lock:
            for index, x in zip(self.inputs, args, strict=True):
                self.interpreter.set_tensor(index, np.asarray(x, order="C"))
            self.invoke()
            return [self.interpreter.get_tensor(index) for index in self.outputs]

    def invoke(self) -> None:
        try:
            self.interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ExecutionError("tflite: LiteRT failed while it ran", got=str(error).replace("\n", " ")) from error

    def arena(self) -> int:
        """Bytes that the interpreter's own tensors span in memory: parts that lie on each other count once."""
        spans: list[tuple[int, int]] = []
        # Constants lie in the file's own bytes.
        first = np.frombuffer(self.data, np.uint8).ctypes.data
        for row in self.interpreter.get_tensor_details():
            # A tensor that a delegate has fused away has no memory.
            with contextlib.suppress(ValueError, RuntimeError):
                view = self.interpreter.tensor(int(row["index"]))()
                if not isinstance(view, np.ndarray):
                    continue  # a tensor without dimensions comes as a copy
                start = int(view.ctypes.data)
                if view.nbytes and not first <= start < first + len(self.data):
                    spans.append((start, start + view.nbytes))
                del view
        total, end = 0, 0
        for low, high in sorted(spans):
            total += max(high - max(low, end), 0)
            end = max(end, high)
        return total

    def measure(self) -> float:
        """Median seconds of one run on this host, over at least three and up to half a second of them."""
        with self.lock:
            self.invoke()
            times: list[float] = []
            stop = time.perf_counter() + _MEASURE_SECONDS
            while len(times) < 3 or (len(times) < _MEASURE_RUNS and time.perf_counter() < stop):
                start = time.perf_counter()
                self.invoke()
                times.append(time.perf_counter() - start)
        return float(np.median(times))


@final
class LiteRt(NpuTarget):
    """``.tflite`` files, run by LiteRT on the host: the exact reference of the other TFLite targets.

    Options: ``kernels`` "reference" (default) or "default" (XNNPACK); ``threads``; ``measure`` True to time it.
    """

    name: ClassVar[str] = "tflite"
    title: ClassVar[str] = "TFLite file, LiteRT on the host"
    format: ClassVar[str] = "tflite"
    extra: ClassVar[str] = "litert"
    host: ClassVar[bool] = True
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float32")
    recurrent: ClassVar[frozenset[str]] = frozenset(("lstm", "rnn"))
    rules: ClassVar[str] = "a table of LiteRT's kernels"
    exact: ClassVar[bool] = True
    variables: ClassVar[bool] = True

    def available(self) -> tuple[Label, str]:
        if installed("ai_edge_litert"):
            return "host", f"LiteRT {version()} runs it on this machine's CPU"
        return "emitted", "LiteRT is not installed: pip install 'nxjax[litert]'"

    def supports(self, node: Node) -> Verdict:
        return tflite_kernels.supports(node)

    def placed(self, graph: NpuGraph) -> list[Placement]:
        """Every node on the host: this target has no other device."""
        rows = [(n, self.supports(n)) for n in graph.nodes]
        return [placed(n, "host", v.reason or "LiteRT computes on the host", v.suggestion, "table") for n, v in rows]

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write, load and hold the interpreter's account against ours."""
        kernels, threads = checked(options)
        refuse(graph.nodes, self.name)
        operations = tflite_ops.operations(graph)
        data = tflite.encode(graph, operations)
        cost = Cost()
        cost.add("file", len(data), "bytes", "measured")
        files = {f"{graph.name or 'model'}.tflite": data}
        if not installed("ai_edge_litert"):
            return Build(files, self.placed(graph), cost, notes=[self.available()[1]], host=True)
        took = digests(files)
        try:
            session = LiteRTSession(data, operations, kernels, threads)
            cost.add("arena", session.arena(), "bytes", "measured")
        except LoweringError:
            raise
        except Exception as error:  # a runtime that does not start says nothing of the file
            said = error.got if isinstance(error, ExecutionError) else f"{type(error).__name__}: {error}"
            what = error.what if isinstance(error, ExecutionError) else "it does not load the file"
            build = Build(files, self.placed(graph), cost, host=True)
            build.unanswered(ExecutionError(what, got=said), "host", f"LiteRT {version()}", took)
            return build
        cost.timed(options.get("measure"), session.measure)
        notes = list(session.notes)
        if graph.rounding == "single":
            notes.append(
                "LiteRT rounds twice ('double'): results may differ by one unit from this graph's single rounding"
            )
        rows = _placements(graph, session)
        build = Build(files, rows, cost, Runner(session, session.runs_on, "host", took), notes, host=True)
        if kernels == "reference":
            try:
                phone = LiteRTSession(data, operations, "default", threads)
                build.others.append(Runner(phone, phone.runs_on.replace("default kernels", "XNNPACK"), "host", took))
            except (ExecutionError, LoweringError) as error:
                notes.append(f"LiteRT's XNNPACK does not take the file: {error.what}")
        build.record("loaded", "host", session.runs_on, took=took, answer=f"{len(operations)} operators read")
        return build

    def keeping(
        self,
        build: Build,
        graphs: Sequence[StatefulGraph],
        variables: Sequence[StateVariable],
        options: dict[str, object],
    ) -> None:
        data = tflite_variables.write(graphs, variables)
        name = tflite_variables.file_name(graphs)
        build.files = {name: data, **build.files}
        run_here(build, name, data, graphs[0], variables)


def run_here(build: Build, name: str, data: bytes, given: StatefulGraph, variables: Sequence[StateVariable]) -> None:
    """Let LiteRT run the file with variables in place of the one without, where it runs that here."""
    runner = build.runner
    if runner is not None and isinstance(runner.run, LiteRTSession):
        session, kernels = StatefulSession(data, given, variables, runner.run.resolver), runner.run.runs_on
        title = kernels if build.host else f"host reference of {name} ({kernels})"
        build.runner = Runner(session, title, "host", (digest(data),))


def checked(options: dict[str, object]) -> tuple[str, int]:
    """The options ``kernels`` and ``threads``, or `ParameterError`."""
    only("tflite", options, _OPTIONS)
    kernels, threads = options.get("kernels", "reference"), options.get("threads", 1)
    if kernels not in KERNELS:
        raise ParameterError("tflite: option kernels", got=repr(kernels), expected=" or ".join(map(repr, KERNELS)))
    if not isinstance(threads, int) or threads < 1:
        raise ParameterError("tflite: option threads", got=repr(threads), expected="a positive number")
    return str(kernels), threads


def refuse(nodes: Sequence[Node], target: str) -> None:
    """Raise one `LoweringError` that lists every node that LiteRT has no kernel for, with its line."""
    nodes = list(dict.fromkeys(nodes))
    rows = [(n, v) for n in nodes if not (v := tflite_kernels.supports(n)).ok]
    if rows:
        listed = [f"{v.reason} ({n.source or n.name}); {v.suggestion}" for n, v in rows]
        raise LoweringError(
            f"{target}: {len(rows)} of {len(nodes)} operations cannot be run by LiteRT",
            got="\n            ".join(listed),
            fix="change each as suggested, or compile these parts separately",
            source=rows[0][0].source,
        )


def _placements(graph: NpuGraph, session: LiteRTSession) -> list[Placement]:
    """One row per node, with the kernel that LiteRT chose."""
    numbers: dict[Node, list[int]] = {}
    for i, o in enumerate(session.operations):
        if o.node is not None:
            numbers.setdefault(o.node, []).append(i)
    rows: list[Placement] = []
    for n in graph.nodes:
        delegated = all(i in session.delegated for i in numbers[n])
        kernel = "XNNPACK" if delegated else session.runs_on.removeprefix(f"LiteRT {version()} ").split(" kernels")[0]
        rows.append(placed(n, "host", f"runs on the host: LiteRT's {kernel} kernel"))
    return rows


TARGETS: Final[tuple[type[NpuTarget], ...]] = (LiteRt,)
