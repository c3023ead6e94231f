"""A program in parts, read back from its plan: every file is checked, and all of them are one function.

Neither the plan nor the files are trusted. A file must have the digest that the plan gives it. The parts for a chip are
read as such files are and computed by nxjax, or by OpenVINO on this host; those for the host are StableHLO, which XLA
computes.
"""

from __future__ import annotations

import math
import os
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends.evidence import digest
from nxjax.deploy.files import inside
from nxjax.deploy.trace import NDArray, stored_inputs
from nxjax.errors import InvalidFileError, LoweringError, NxError
from nxjax.files import safe_io
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.placement import placed
from nxjax.lower.placement import Placement
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

END: Final = ".parts.json"
_ANEW: Final = "save the artifact anew: artifact.save(folder)"
_DTYPES: Final = {d.name: d for d in (*dtypes.INTEGER, *dtypes.FLOAT, *dtypes.COMPLEX, *dtypes.BOOL)}

Types = list[tuple[DType, Shape]]
Run = Callable[[Sequence[NDArray]], list[NDArray]]
# Reads the graph of a file: its name, its bytes, the folder.
ReadGraph = Callable[[str, bytes, Path], NpuGraph]


@final
@dataclass(frozen=True)
class PlannedProgram:
    """A program in parts.

    Attributes:
        files: the plan and all files of the parts.
        inputs: of the whole; ``outputs`` likewise.
        run: values to results.
        rows: what the parts are made of.
    """

    files: dict[str, bytes]
    inputs: list[Tensor]
    outputs: list[Tensor]
    run: Run
    rows: list[Placement]


def plan_of(source: str | os.PathLike[str] | bytes) -> Path | None:
    """The plan that a path leads to, itself or the one in a folder; None where it leads to another file.

    Raises:
        InvalidFileError: a folder with several plans.
    """
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = Path(source)
    if not path.is_dir():
        return path if path.suffix == ".json" else None
    found = sorted(path.glob(f"*{END}"))
    if len(found) > 1:
        raise InvalidFileError(
            f"{path.name}: several plans are in this folder", got=", ".join(p.name for p in found), fix="load one"
        )
    return found[0] if found else None


def read(path: Path, most: int, graph: ReadGraph) -> PlannedProgram:
    """The program of a plan.

    Args:
        path: of the plan.
        most: bytes that all files together may have.
        graph: what reads files of chips.

    Raises:
        InvalidFileError: no plan; a file of it is missing or has another digest; it names values that there are not.
        LoweringError: a part is in no file, or in one that nothing here reads.
    """
    data = safe_io.read(path, most)
    try:
        return _Plan(path, data, most, graph).program(safe_io.parsed(data, unique=True))
    except NxError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidFileError(
            f"{path.name}: not a plan of parts", got=f"{type(error).__name__}: {error}"[:300], fix=_ANEW
        ) from error


@final
class _Plan:
    def __init__(self, path: Path, data: bytes, most: int, graph: ReadGraph) -> None:
        self.path = path
        self.graph = graph
        self.left = most - len(data)
        self.files = {path.name: data}
        self.rows: list[Placement] = []

    def program(self, plan: dict[str, Any]) -> PlannedProgram:
        inputs = list(map(self._type, plan["inputs"]))
        known: dict[tuple[str, int, int], tuple[DType, Shape]] = {("input", i, 0): t for i, t in enumerate(inputs)}
        steps: list[tuple[list[Any], Run]] = []
        for number, row in enumerate(plan["parts"]):
            given = [self._operand(x, known) for x in row["inputs"]]
            results = list(map(self._type, row["results"]))
            steps.append((given, self._part(number, row, results)))
            known.update((("part", number, i), t) for i, t in enumerate(results))
        outputs = [self._operand(x, known) for x in plan["outputs"]]

        def run(values: Sequence[NDArray]) -> list[NDArray]:
            made = {("input", i, 0): np.asarray(x) for i, x in enumerate(values)}
            taken = lambda x: made[x] if isinstance(x, tuple) else x
            for number, (given, step) in enumerate(steps):
                made.update((("part", number, i), y) for i, y in enumerate(step(list(map(taken, given)))))
            return list(map(taken, outputs))

        types = [known[x] if isinstance(x, tuple) else (x.dtype, x.shape) for x in outputs]
        ends = lambda kind, found: [Tensor(f"{kind}_{i}", shape, dtype) for i, (dtype, shape) in enumerate(found)]
        return PlannedProgram(self.files, ends("input", inputs), ends("output", types), run, self.rows)

    def _type(self, row: dict[str, Any]) -> tuple[DType, Shape]:
        dtype, shape = _DTYPES[row["dtype"]], tuple(row["shape"])
        if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * dtype.itemsize > self.left:
            raise ValueError(f"a value of shape {shape}")
        return dtype, shape

    def _operand(self, x: list[Any], known: dict[tuple[str, int, int], Any]) -> Any:
        """The place of a value that is known when it is read, or a constant."""
        kind, first, *rest = x
        if kind == "value":
            dtype, shape = self._type(first)
            data = np.frombuffer(b64decode(first["base64"], validate=True), dtype.newbyteorder("<"))
            return data.astype(dtype).reshape(shape)
        place = (str(kind), int(first), int(rest[0]) if rest else 0)
        if place not in known:
            raise ValueError(f"{x} is read before it is made")
        return place

    def _file(self, number: int, name: str, expected: str) -> bytes:
        """A file of a part, which is as the plan was written with."""
        where = f"{self.path.name}: part {number}"
        if not inside(name):
            raise InvalidFileError(f"{where}: a file's name leads outside its folder", got=repr(name))
        place = self.path.parent / name
        if not place.is_file():
            raise InvalidFileError(f"{where}: a file is missing", got=str(place), fix=f"put it there, or {_ANEW}")
        data = safe_io.read(place, self.left)
        self.left -= len(data)
        if (got := digest(data)) != expected:
            raise InvalidFileError(
                f"{where}: {name} is not the file that the plan was written with",
                got=f"SHA-256 {got}", expected=expected, fix=f"restore it, or {_ANEW}",
            )  # fmt: skip
        return data

    def _part(self, number: int, row: dict[str, Any], results: Types) -> Run:
        name = row["file"]
        if name is None:
            raise LoweringError(
                f"{self.path.name}: part {number} is in no file",
                got=f"a part for {row['on']}",
                fix="it calls Python, or has no form in StableHLO: run it in the process that compiles it",
            )
        files = {str(n): self._file(number, str(n), str(sha)) for n, sha in row["sha256"].items()}
        self.files |= files
        suffix = Path(name).suffix
        reader = {".mlir": self._host, ".xml": self._openvino}.get(suffix)
        if reader is None and suffix not in (".tflite", ".onnx"):
            raise LoweringError(
                f"{self.path.name}: part {number} is in a file that nothing here reads",
                got=name, expected=".tflite, .onnx, .xml or .mlir",
            )  # fmt: skip
        made = (reader or self._chip)(number, name, files, row)
        return lambda values: _typed(made(values), results)

    def _host(self, number: int, name: str, files: dict[str, bytes], row: dict[str, Any]) -> Run:
        from nxjax.backends.xla.executable import XlaExecutable, compile_text

        types = [ArrayType(shape, dtype) for dtype, shape in map(self._type, row["results"])]
        text = files[name].decode()
        try:
            executable = XlaExecutable(compile_text(text), text, types)
        except NxError:
            raise
        except Exception as error:  # the compiler's errors have no class in common
            got = f"{type(error).__name__}: {error}"[:300]
            raise InvalidFileError(f"{self.path.name}: part {number} is no StableHLO", got=got, fix=_ANEW) from error
        said = ", ".join(map(str, types))
        self.rows.append(Placement("stablehlo", f"part {number}: {said}", "host", reason="a part for the host"))

        def run(values: Sequence[NDArray]) -> list[NDArray]:
            given: Any = [wrap(np.ascontiguousarray(x).reshape(x.shape)) for x in values]
            return [y.numpy() for y in executable(given)]

        return run

    def _chip(self, number: int, name: str, files: dict[str, bytes], row: dict[str, Any]) -> Run:
        graph = self.graph(name, files[name], self.path.parent)
        self.rows += [placed(n, "host", f"part {number}, for {row['on']}", decided_by="table") for n in graph.nodes]
        return lambda values: _real(graph.outputs, interpret(graph, stored_inputs(graph.inputs, values)))

    def _openvino(self, number: int, name: str, files: dict[str, bytes], row: dict[str, Any]) -> Run:
        from nxjax.vendors.intel.openvino_run import CPU, core, open_session, openvino

        ov = openvino()
        weights = np.frombuffer(files.get(str(Path(name).with_suffix(".bin")), b""), np.uint8)
        model = core().read_model(files[name], ov.Tensor(np.array(weights)))
        session = open_session(model, "CPU", CPU)
        ports = [*model.inputs, *model.outputs]
        ends = [
            Tensor("", tuple(p.shape), dtype := p.element_type.to_dtype(), g and Grid(dtype, float(g[0]), int(g[1])))
            for p, g in zip(ports, row["grids"], strict=True)
        ]
        count = len(model.inputs)
        self.rows.append(
            Placement("openvino", f"part {number}: {name}", "host", reason=f"part {number}, for {row['on']}")
        )
        return lambda values: _real(ends[count:], session(stored_inputs(ends[:count], values)))


def _real(ends: Sequence[Tensor], stored: Sequence[NDArray]) -> list[NDArray]:
    return [y if t.grid is None else t.grid.dequantize(y) for t, y in zip(ends, stored, strict=True)]


def _typed(made: Sequence[NDArray], types: Types) -> list[NDArray]:
    """Results as the program has them."""
    pairs = zip(made, types, strict=True)
    return [np.asarray(y).reshape(shape).astype(dtype, copy=False) for y, (dtype, shape) in pairs]
