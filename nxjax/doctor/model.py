"""A model that the doctor examines: a flat function of arrays, from a function or from a file of any known format."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.deploy.trace import BoundFunction
from nxjax.doctor.rewrites import narrowed
from nxjax.errors import InvalidFileError, NxError, ParameterError
from nxjax.files import safe_io
from nxjax.interop import from_onnx, from_stablehlo, from_tflite, from_torch
from nxjax.lax import convert_element_type
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.runtime import enable_x64
from nxjax.trace import dtypes, tree
from nxjax.trace.program import Program
from nxjax.trace.types import Shape, ShapeDtypeStruct
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
    """A function of arrays, one for each of ``inputs``. The first ``state`` results are the next state.

    ``held`` are inputs of the file that have become constants.
    """

    name: str
    fun: Callable[..., Any]
    inputs: list[ModelInput]
    quantized: bool = False
    held: dict[str, NDArray] = field(default_factory=dict[str, NDArray])
    notes: list[str] = field(default_factory=list[str])

    @property
    def state(self) -> int:
        """How many arguments are state, which come first."""
        return sum(x.first is not None for x in self.inputs)

    @property
    def program(self) -> Program:
        """Its program, with calls written out."""
        types = [ShapeDtypeStruct(x.shape, x.dtype) for x in self.inputs]
        return inlined(BoundFunction(self.fun, types, {}, ()).program)

    def look(self) -> None:
        """See what its program says of itself: whether it is on grids already, as a quantized file's is."""
        ops = {e.op.name for e in self.program.equations}
        self.quantized = not ops.isdisjoint(("qconv", "qdot", "quantize_dequantize", "qunary", "requantize"))

    def narrow(self, calls: list[tuple[NDArray, ...]]) -> list[tuple[NDArray, ...]]:
        """Compute numbers of 64 bits in 32, as all chips do, where that gives the same on the first call.

        The result is these calls as they are given then.
        """
        program = self.program
        wide = lambda vs: any(dtypes.canonical(v.type.dtype) != v.type.dtype for v in vs)
        if not wide(v for e in dead_code_eliminated(program).equations for v in (*e.outputs, *e.inputs)):
            return calls
        cut = [tuple(x.astype(dtypes.canonical(x.dtype)) for x in call) for call in calls]
        other = narrowed(program)
        try:
            pairs = zip(tree.leaves(other(*cut[0])), tree.leaves(self.fun(*calls[0])), strict=True)
            if not all(np.allclose(a, b, 1e-3, 1e-4, equal_nan=True) for a, b in pairs):
                return calls
        except NxError:
            return calls
        self.fun = other
        self.inputs = [replace(x, dtype=dtypes.canonical(x.dtype)) for x in self.inputs]
        self.notes.append("numbers of 64 bits are computed in 32: chips have no others")
        return cut


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
    model.look()
    return model, tuple(bound.inputs)


def read(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Mapping[str, NDArray] | None = None,
) -> Model:
    """The model of a file: ONNX, TFLite, an exported program of PyTorch, StableHLO.

    Args:
        path: its suffix says what it is; without one of `SUFFIXES`, its content does.
        shapes: whole shapes of inputs by name, where the file leaves dimensions open.
        data: arrays by the input's name. A whole number that never changes there, such as a rate, is a constant of the
            model: it chooses branches and sizes.

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
    source, more = str(path) if kind == "pt2" else path, {"io": "float"} if kind == "tflite" else {}
    f = reader(source, closed=True, **more)
    data, held = data or {}, {}
    if len(f.inputs) == len(data) == 1:
        data = {f.inputs[0].name: next(iter(data.values()))}
    if kind == "onnx":
        held = {
            p.name: np.ravel(data[p.name])[0] for p in f.inputs if p.name in data and _never_changes(p, data[p.name])
        }
        f = reader(source, closed=True, constants=held) if held else f
    known = {p.name for p in f.inputs}
    if wrong := [k for k in shapes if k not in known]:
        raise ParameterError(
            "doctor: no input of this name", got=", ".join(wrong), expected=", ".join(map(str, f.inputs))
        )
    model = _first_that_traces(path, f, {**_shapes_of(f, data), **shapes})
    model.look()
    model.held = held
    model.notes += [f"{k} is {v} in all samples, and a constant here" for k, v in held.items()]
    return model


def _shapes_of(f: Any, data: Mapping[str, NDArray]) -> dict[str, Shape]:
    """Shapes that samples say, of inputs whose dimensions the file leaves open. Samples or the batch come first."""
    found: dict[str, Shape] = {}
    for p in f.inputs:
        if p.name not in data or not any(map(_open, p.dims or ())):
            continue
        given, rank = np.shape(data[p.name]), len(p.dims)
        shape = given[1:] if len(given) > rank else (1, *given[1:]) if _open(p.dims[0]) else given
        if len(shape) == rank and all(_open(d) or d == n for d, n in zip(p.dims, shape, strict=True)):
            found[p.name] = shape
    return found


def _never_changes(x: Any, values: NDArray) -> bool:
    whole = x.dims == () and x.dtype in dtypes.BITS and np.asarray(values).dtype in dtypes.BITS
    return whole and np.size(values) > 0 and bool(np.all(values == np.ravel(values)[0]))


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".onnx", ".tflite", ".pt2"):
        return suffix[1:]
    head = safe_io.read(path, _MOST)[:64]
    if suffix in SUFFIXES or head[:4] == b"ML\xefR" or head.lstrip()[:6] in (b"module", b"func.f"):
        return "stablehlo"
    if head[4:8] == b"TFL3":
        return "tflite"
    if head[:2] in (b"PK", b"\x08\x07", b"\x08\x08", b"\x08\x09", b"\x08\x0a"):
        return "pt2" if head[:2] == b"PK" else "onnx"
    raise InvalidFileError(
        f"doctor: {path.name}: of no format that can be read",
        got=f"bytes that begin with {head[:8]!r}",
        expected=", ".join(SUFFIXES),
    )


def _first_that_traces(path: Path, f: Any, shapes: Mapping[str, Shape]) -> Model:
    """With the first sizes of open dimensions of which the file's ops make sense."""
    opened = any(map(_open, (d for p in f.inputs for d in p.dims or ())))
    failed: NxError | None = None
    for size in _SIZES if opened else _SIZES[:1]:
        model = _sized(path, f, shapes, size)
        try:
            _ = model.program
        except NxError as error:
            failed = failed or error
        else:
            return model
    assert failed is not None
    if opened:
        failed.fix = failed.fix or "say the shapes of inputs: --shape NAME=1,3,224,224"
    raise failed


def _open(d: object) -> bool:
    """Whether a dimension is left open: without a size, or with one below 0."""
    return not isinstance(d, int) or d < 0


def _sized(path: Path, f: Any, shapes: Mapping[str, Shape], size: int) -> Model:
    # A dimension that has a name has one size, in all inputs.
    named = [pair for p in f.inputs for pair in zip(p.dims or (), shapes.get(p.name, ()), strict=False)]
    known: dict[str, int] = {str(d): n for d, n in named}
    sizes = dict(known)
    inputs: list[ModelInput] = []
    notes: list[str] = []
    for p in f.inputs:
        if p.dims is None and p.name not in shapes:
            fix = f"--shape {p.name}=1,3,224,224"
            raise ParameterError(f"doctor: {path.name} does not say the shape of {p.name}", got=str(p), fix=fix)
        dims: tuple[Any, ...] = p.dims if p.dims is not None else shapes[p.name]
        shape = shapes.get(p.name)
        if shape is None:
            is_open = list(map(_open, dims))
            shape = tuple(
                int(d) if not o else sizes.setdefault(str(d), 1 if i == 0 else size)
                for i, (d, o) in enumerate(zip(dims, is_open, strict=True))
            )
            if any(o and str(d) not in known for d, o in zip(dims, is_open, strict=True)):
                notes.append(f"{p} has open dimensions: {list(shape)} is taken; --shape {p.name}=... says another")
        elif len(shape) != len(dims) or any(not _open(d) and d != n for d, n in zip(dims, shape, strict=True)):
            raise ParameterError(f"doctor: the shape of {p.name}", got=list(shape), expected=str(p))
        inputs.append(_input(p.name, np.dtype(p.dtype or np.float32), shape))
    state: dict[str, Any] = f.state or {}
    first = [ModelInput(k, np.dtype(v.dtype), v.shape, np.asarray(v)) for k, v in state.items()]

    def flat(*xs: Any) -> Any:
        after, *ys = f(dict(zip(state, xs, strict=False)), *xs[len(state) :])
        return (*(after[k] for k in state), *tree.leaves(ys))

    def plain(*xs: Any) -> Any:
        if not any(x.dtype == dtypes.float64 for x in inputs):
            return f(*xs)
        with enable_x64():
            return f(*(convert_element_type(x, p.dtype) for x, p in zip(xs, inputs, strict=True)))

    fun = flat if state else plain
    fun.__name__ = path.stem
    if state:
        notes.append(f"{len(state)} variables of the file are inputs and results here")
    return Model(path.name, fun, [*first, *inputs], notes=notes)


def _input(name: str, dtype: np.dtype[Any], shape: Shape) -> ModelInput:
    if dtype.kind in "OSU":
        raise InvalidFileError(f"doctor: {name} holds texts", expected="inputs that are numbers")
    size = math.prod(shape) * dtype.itemsize
    if size > _MOST:
        raise ParameterError(f"doctor: {name}{list(shape)} is too large", got=f"{size:,} bytes", expected=f"{_MOST:,}")
    return ModelInput(name, dtype, shape)


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
