"""A model that the doctor examines: a flat function of arrays, from a function or from a file of any known format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.deploy.trace import BoundFunction
from nxjax.errors import InvalidFileError, NxError, ParameterError
from nxjax.files import safe_io
from nxjax.interop import from_onnx, from_stablehlo, from_tflite, from_torch
from nxjax.trace import dtypes, tree
from nxjax.trace.types import Shape
from nxjax.transforms.inline import inlined

NDArray = np.ndarray[Any, Any]
# What is taken for dimensions that a file leaves open, in the order in which they are tried; the first dimension is 1.
_SIZES: Final = (64, 32, 1, 224)
_MOST: Final = 2**32
SUFFIXES: Final = (".onnx", ".tflite", ".pt2", ".mlir", ".mlirbc", ".stablehlo")


@final
@dataclass(frozen=True)
class ModelInput:
    """One argument: its name, dtype and shape; and what a file's own state is at first."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    first: NDArray | None = None

    def __str__(self) -> str:
        return f"{self.name}: {dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]"


@final
@dataclass
class Model:
    """A function of arrays, one for each of ``inputs``. The first ``len(state)`` results are the next state."""

    name: str
    fun: Callable[..., Any]
    inputs: list[ModelInput]
    quantized: bool = False
    notes: list[str] = field(default_factory=list[str])

    @property
    def state(self) -> int:
        """How many arguments are state, which come first."""
        return sum(x.first is not None for x in self.inputs)

    def quantizes(self) -> bool:
        """Whether its program is on grids already, as a quantized file's is."""
        program = BoundFunction(self.fun, [np.zeros(x.shape, x.dtype) for x in self.inputs], {}, ()).program
        ops = {e.op.name for e in inlined(program).equations}
        return not ops.isdisjoint(("qconv", "qdot", "quantize_dequantize", "qunary", "requantize"))


def given(fun: Callable[..., Any], args: Sequence[Any], constants: Any = None) -> tuple[Model, tuple[NDArray, ...]]:
    """A function with example arguments: trees are its parameters, as `nx.compile` has it, and arrays its inputs."""
    bound = BoundFunction(fun, args, {}, constants)
    if bound.inputs is None:
        raise ParameterError("doctor: needs values", got="types alone", expected="arrays to run the function on")
    free = [n for n in range(len(args)) if n not in bound.constants]
    counts = [len(bound.in_trees[n][0]) for n in free]

    def flat(*xs: Any) -> Any:
        whole, rest = list(args), list(xs)
        for n, count in zip(free, counts, strict=True):
            whole[n] = tree.unflatten(bound.in_trees[n][1], rest[:count])
            rest = rest[count:]
        return fun(*whole)

    flat.__name__ = bound.name
    inputs = [ModelInput(f"argument {i}", x.dtype, x.shape) for i, x in enumerate(bound.inputs)]
    model = Model(bound.name, flat, inputs)
    model.quantized = model.quantizes()
    return model, tuple(bound.inputs)


def read(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Model:
    """The model of a file: ONNX, TFLite, an exported program of PyTorch, StableHLO.

    Args:
        path: its suffix says what it is; without one of `SUFFIXES`, its content does.
        shapes: whole shapes of inputs by name, where the file leaves dimensions open.

    Raises:
        ParameterError: no such file, or no input of that name.
        InvalidFileError: a damaged file, or one of no known format.
    """
    path = Path(path)
    if not path.is_file():
        folder = "a folder" if path.is_dir() else "no such file"
        raise ParameterError(f"doctor: {path.name or path}: {folder}", expected=f"a file: {', '.join(SUFFIXES)}")
    shapes = {k: tuple(v) for k, v in (shapes or {}).items()}
    kind = _kind(path)
    if kind == "stablehlo":
        return _module(path, shapes)
    reader: Any = {"onnx": from_onnx, "tflite": from_tflite, "pt2": from_torch}[kind]
    more = {"io": "float"} if kind == "tflite" else {}
    f = reader(str(path) if kind == "pt2" else path, closed=True, **more)
    known = {p.name for p in f.inputs}
    if wrong := [k for k in shapes if k not in known]:
        raise ParameterError(
            "doctor: no input of this name", got=", ".join(wrong), expected=", ".join(map(str, f.inputs))
        )
    model = _first_that_traces(path, f, shapes)
    model.quantized = model.quantizes()
    return model


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".onnx", ".tflite", ".pt2"):
        return suffix[1:]
    head = safe_io.read(path, _MOST)[:64]
    if suffix in SUFFIXES or head[:4] == b"ML\xefR" or head.lstrip()[:6] in (b"module", b"func.f"):
        return "stablehlo"
    if head[4:8] == b"TFL3":
        return "tflite"
    raise InvalidFileError(
        f"doctor: {path.name}: of no format that can be read",
        got=f"bytes that begin with {head[:8]!r}",
        expected=", ".join(SUFFIXES),
    )


def _first_that_traces(path: Path, f: Any, shapes: Mapping[str, Shape]) -> Model:
    """With the first sizes of open dimensions of which the file's ops make sense."""
    names = {p.name: p for p in f.inputs}
    opened = any(isinstance(d, str) or d is None or d < 1 for p in names.values() for d in p.dims or ())
    failed: NxError | None = None
    for size in _SIZES if opened else _SIZES[:1]:
        model = _sized(path, f, shapes, size)
        try:
            BoundFunction(model.fun, [np.zeros(x.shape, x.dtype) for x in model.inputs], {}, ())
        except NxError as error:
            failed = failed or error
        else:
            return model
    assert failed is not None
    if opened:
        failed.fix = failed.fix or "say the shapes of inputs: --shape NAME=1,3,224,224"
    raise failed


def _sized(path: Path, f: Any, shapes: Mapping[str, Shape], size: int) -> Model:
    sizes: dict[str, int] = {}
    inputs: list[ModelInput] = []
    notes: list[str] = []
    for p in f.inputs:
        if p.dims is None and p.name not in shapes:
            fix = f"--shape {p.name}=1,3,224,224"
            raise ParameterError(f"doctor: {path.name} does not say the shape of {p.name}", got=str(p), fix=fix)
        dims: tuple[Any, ...] = p.dims if p.dims is not None else shapes[p.name]
        shape = shapes.get(p.name)
        if shape is None:
            is_open = [not isinstance(d, int) or d < 1 for d in dims]
            shape = tuple(
                int(d) if not o else sizes.setdefault(str(d), 1 if i == 0 else size)
                for i, (d, o) in enumerate(zip(dims, is_open, strict=True))
            )
            if any(is_open):
                notes.append(f"{p} has open dimensions: {list(shape)} is taken; --shape {p.name}=... says another")
        elif len(shape) != len(dims) or any(
            isinstance(d, int) and d > 0 and d != n for d, n in zip(dims, shape, strict=True)
        ):
            raise ParameterError(f"doctor: the shape of {p.name}", got=list(shape), expected=str(p))
        inputs.append(ModelInput(p.name, np.dtype(p.dtype or np.float32), shape))
    state: dict[str, Any] = f.state or {}
    first = [ModelInput(k, np.dtype(v.dtype), v.shape, np.asarray(v)) for k, v in state.items()]

    def flat(*xs: Any) -> Any:
        after, *ys = f(dict(zip(state, xs, strict=False)), *xs[len(state) :])
        return (*(after[k] for k in state), *tree.leaves(ys))

    def plain(*xs: Any) -> Any:
        return f(*xs)

    fun = flat if state else plain
    fun.__name__ = path.stem
    if state:
        notes.append(f"{len(state)} variables of the file are inputs and results here")
    return Model(path.name, fun, [*first, *inputs], notes=notes)


def _module(path: Path, shapes: Mapping[str, Shape]) -> Model:
    f = from_stablehlo(safe_io.read(path, _MOST))
    names = [*f.arg_names, *("",) * (len(f.in_types) - len(f.arg_names))]
    inputs = [
        ModelInput(name or f"argument {i}", np.dtype(t.dtype), t.shape)
        for i, (name, t) in enumerate(zip(names, f.in_types, strict=True))
    ]
    if shapes:
        raise ParameterError("doctor: a StableHLO module has its shapes", got=", ".join(shapes))

    def plain(*xs: Any) -> Any:
        return f(*xs)

    plain.__name__ = path.stem
    return Model(path.name, plain, inputs)
