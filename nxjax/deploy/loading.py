"""`load`: a ``.tflite`` or ``.onnx`` file from other tools as an artifact: checked, run exactly, compiled again.

A program in parts is loaded from its plan, see `plan_loading`.

Files are not trusted. Nothing in a file is executed. It is read into a graph, every number of it is checked, and that
graph is run or compiled. Knows which formats have readers; the readers know the formats.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import digests
from nxjax.backends.target import Build, Runner
from nxjax.deploy import plan_loading
from nxjax.deploy.artifact import Artifact
from nxjax.deploy.compile import PHASES, built
from nxjax.deploy.files import safe_name
from nxjax.deploy.plan_loading import plan_of
from nxjax.deploy.report import Report
from nxjax.deploy.trace import Subject, as_given, converted, refuse_traced
from nxjax.display.progress import Phases
from nxjax.errors import ExecutionError, InvalidFileError, LoweringError, MemoryLimitError, NxError, ParameterError
from nxjax.files import safe_io
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.placement import placed
from nxjax.lower.placement import Cost
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.program import Program, Var
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
_TFLITE: Final = b"TFL3"
# The first field of every ONNX model: the version of the format, a small number.
_ONNX: Final = b"\x08"
_SUFFIXES: Final = {".tflite": "tflite", ".onnx": "onnx"}
_ELSEWHERE: Final = {".safetensors": "nx.quant.load reads parameters", ".npz": "nx.numpy.load reads arrays"}
_REFERENCE: Final = "nxjax's exact reference on the host"


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    target: str | None = None,
    strict: bool = False,
    example: Sequence[Any] | None = None,
    memory_limit: int = 2**32,
    progress: bool | None = None,
    **options: object,
) -> Artifact:
    """Read a ``.tflite`` or ``.onnx`` file, or a program in parts from its ``.parts.json``.

    The artifact's `run` takes one array per input of the file, in order, and returns its result, or a tuple of several.
    It takes and returns real numbers, and converts them for integers on a grid.

    Args:
        source: path, or bytes; of a program in parts the path of its plan, or of a folder with one. External
            tensors of an ONNX file are read if they are in its folder.
        target: a name from `targets` to compile the file for; by default it is run on this host, with integers bit for
            bit as TFLite specifies them.
        strict: as for `compile`.
        example: one array per input, to measure the deviation of a target; by default random.
        memory_limit: bytes for all values of the file, because a small file may request any amount.
        progress: as for `compile`.
        **options: of the target.

    Raises:
        InvalidFileError: damaged, truncated, of another format, or inconsistent; it names the file and the place.
        LoweringError: valid, but with an operator or a dynamic shape that NPU graphs do not have.
        MemoryLimitError: it would take more than ``memory_limit``; the error names the largest values.
        PlacementError: as from `compile`.

    >>> written = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(jnp.ones((1, 3)))
    >>> loaded = load(written.bytes)
    >>> loaded.run(jnp.float32([[-1, 0, 4]])).tolist()
    [[0.0, 0.0, 8.0]]
    >>> [row.op for row in loaded.report.rows]
    ['mul']
    """
    plan = plan_of(source)
    if plan is not None:
        if target is not None or options:
            raise ParameterError(
                "load: the parts of a program are compiled already", got=target, fix="leave target out"
            )
        return _parts(plan, memory_limit, example)
    name, data, folder = _bytes(source, memory_limit)
    try:
        # The name that it has for itself may be a path.
        graph = replace(_graph(name, data, folder), name=safe_name(Path(name).stem, "model"))
    except (InvalidFileError, LoweringError) as error:
        raise type(error)(f"{name}: {error.what}", got=error.got, expected=error.expected, fix=error.fix) from None
    _refuse_too_large(name, graph, memory_limit)
    ends = Ends(name, graph.inputs, example)
    subject = Subject(graph, graph.inputs, graph.outputs, partial(interpret, graph))
    if target is not None:
        chosen = registry.npu(target, "load")
        with Phases(f"compiling for {target}", PHASES[2:], progress, "load") as phase:
            artifact = built(chosen, ends, subject, dict(options), strict, True, phase)
        if example is None and artifact.deviation is not None:
            artifact.notes.append("the deviation is on random inputs: give some of the real ones as example=")
        return artifact
    if options:
        raise ParameterError("load: options are a target's", got=sorted(options), fix="name the target")
    cost = Cost()
    cost.add("file", len(data), "bytes", "measured")
    rows = [placed(n, "host", _REFERENCE, decided_by="table") for n in graph.nodes]
    cost.add("macs", sum(r.macs for r in rows), "MAC", "model")
    build = Build({name: data}, rows, cost, Runner(partial(_run, name, graph), _REFERENCE, "host"), host=True)
    build.record("loaded", "host", _REFERENCE, took=digests(build.files))
    report = Report(
        "file", f"{name}, read from its file", build.label, rows, cost, build.notes, evidence=build.evidence, host=True
    )
    return Artifact("file", ends, subject, build, report)


def _parts(path: Path, limit: int, example: Sequence[Any] | None) -> Artifact:
    """A program in parts as an artifact that runs here."""

    def graph(name: str, data: bytes, folder: Path) -> NpuGraph:
        found = _graph(name, data, folder)
        _refuse_too_large(name, found, limit)
        return found

    made = plan_loading.read(path, limit, graph)
    cost = Cost()
    cost.add("file", sum(map(len, made.files.values())), "bytes", "measured")
    others = {"openvino": "OpenVINO", "stablehlo": "XLA"}
    title = " and ".join([_REFERENCE, *(others[op] for op in sorted({r.op for r in made.rows} & others.keys()))])
    build = Build(made.files, made.rows, cost, Runner(made.run, title, "host"), host=True)
    build.record("loaded", "host", title, took=digests(build.files))
    report = Report(
        "parts", f"{path.name}, read from its files", build.label, made.rows, cost, build.notes,
        evidence=build.evidence, host=True,
    )  # fmt: skip
    # What the parts compute is in their files: no program and no graph is the whole.
    form = Program(
        [Var(ArrayType(t.shape, t.dtype)) for t in made.inputs], [], [], [], [], safe_name(path.stem, "parts")
    )
    subject = Subject(form, made.inputs, made.outputs, made.run)
    return Artifact("parts", Ends(path.name, made.inputs, example), subject, build, report)


def _bytes(source: str | os.PathLike[str] | bytes, most: int) -> tuple[str, bytes, Path | None]:
    """Name for messages, content, and the folder it lies in."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "data", bytes(source), None
    if not isinstance(source, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("load: needs a path or bytes", got=type(source).__name__)
    path = Path(source)
    if path.exists() and not path.is_file():
        # A folder, or something without an end, such as a device.
        raise InvalidFileError(
            f"{path.name}: not a file",
            got=str(path),
            expected="a .tflite or .onnx file, or a folder with a .parts.json",
        )
    return path.name, safe_io.read(path, most), path.parent


def _graph(name: str, data: bytes, folder: Path | None) -> NpuGraph:
    from nxjax.lower.npu.formats import onnx_read, tflite_read

    suffix = Path(name).suffix.lower()
    kind = "tflite" if data[4:8] == _TFLITE else _SUFFIXES.get(suffix, "onnx" if data[:1] == _ONNX else "")
    if kind == "tflite":
        return tflite_read.read(data)
    if kind == "onnx":
        return onnx_read.read(data, folder)
    raise InvalidFileError(
        "neither a .tflite nor an .onnx file",
        got=f"{len(data)} bytes that begin with {data[:8]!r}",
        expected=f"{_TFLITE.decode()!r} at byte 4, or a name that ends in .onnx",
        fix=_ELSEWHERE.get(suffix),
    )


def _refuse_too_large(name: str, graph: NpuGraph, limit: int) -> None:
    """A file of a hundred bytes can ask for terabytes: what its values and the padded ones between take is counted."""
    # Names are the file's own, and may all be the same.
    sizes = [(t.name, _nbytes(t)) for t in graph.tensors() if not t.constant]
    between = [(f"{n.name or n.op}, padded", _padded(n)) for n in graph.nodes]
    needed = sum(size for _, size in sizes) + max((size for _, size in between), default=0)
    if needed > limit:
        largest = sorted(sizes + between, key=lambda item: -item[1])[:3]
        raise MemoryLimitError(
            f"{name}: the file asks for more memory than it may take",
            got=f"{needed:,} bytes; most by {', '.join(f'{n} ({size:,})' for n, size in largest)}",
            expected=f"at most {limit:,}",
            fix="if the file is trusted: load(..., memory_limit=...)",
        )


def _nbytes(t: Tensor) -> int:
    # As Python counts: shapes of files overflow machine integers.
    return -(-math.prod(t.shape) * dtypes.bit_width(t.dtype) // 8)


def _padded(n: Node) -> int:
    """Bytes of an operand with its border, or of a transposed convolution before it is cut."""
    if "padding" not in n.attrs or n.op == "pad":
        return 0
    x = n.operands[0].shape
    if n.op.startswith("transpose_conv"):
        window = n.operands[1].shape[1:-1]
        sizes = [(a - 1) * s + k for a, s, k in zip(x[1:-1], n.attrs["strides"], window, strict=True)]
    else:
        sizes = [a + low + high for a, (low, high) in zip(x[1:-1], n.attrs["padding"], strict=True)]
    return 8 * x[0] * math.prod(sizes) * x[-1]


def _run(name: str, graph: NpuGraph, args: Sequence[NDArray]) -> list[NDArray]:
    try:
        return interpret(graph, args)
    except NxError:
        raise
    except (ArithmeticError, AssertionError, IndexError, MemoryError, TypeError, ValueError) as error:
        # Scales at the end of what floats can say, and the like: types that fit, numbers that do not.
        got = f"{type(error).__name__}: {error}"
        raise ExecutionError(f"{name}: the file has numbers that are not usable", got=got) from error


@final
@dataclass
class Ends:
    """Arguments to inputs and results to what `run` gives, for a graph that no function was traced for."""

    name: str
    tensors: Sequence[Tensor]
    example: Sequence[Any] | None

    @property
    def inputs(self) -> list[NDArray]:
        """Arrays to measure a deviation on: the user's, or seeded noise over each grid."""
        if self.example is not None:
            return self.flat_inputs(self.example, "load: example")
        random = np.random.default_rng(0)
        arrays: list[NDArray] = []
        for t in self.tensors:
            if t.grid is not None:
                low, high = t.grid.limits
                arrays.append(t.grid.dequantize(random.integers(low, high + 1, t.shape).astype(t.dtype)))
            elif t.dtype in dtypes.FLOAT:
                arrays.append(random.standard_normal(t.shape).astype(t.dtype))
            else:
                # Numbers of rows of something, for all that is known.
                arrays.append(np.zeros(t.shape, t.dtype))
        return arrays

    def flat_inputs(self, args: Sequence[Any], where: str) -> list[NDArray]:
        refuse_traced(args, where)
        wanted = [f"{t.name} {dtypes.short_name(t.dtype)}{list(t.shape)}" for t in self.tensors]
        if len(args) != len(wanted):
            raise ParameterError(
                f"{where}: wrong number of inputs", got=len(args), expected=f"{len(wanted)}: {', '.join(wanted)}"
            )
        arrays: list[NDArray] = []
        for t, a, text in zip(self.tensors, args, wanted, strict=True):
            x = as_given(a, where)
            if x.shape != t.shape:
                raise ParameterError(
                    f"{where}: input {t.name!r} has another shape than {self.name} has", got=x.shape, expected=text
                )
            arrays.append(converted(x, t.dtype if t.grid is None else dtypes.float32, f"{where}: input {t.name!r}"))
        return arrays

    def result(self, outputs: Sequence[Tensor], stored: Sequence[NDArray]) -> Any:
        rows = zip(outputs, stored, strict=True)
        arrays = [wrap(np.array(q if t.grid is None else t.grid.dequantize(q), order="C")) for t, q in rows]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)
