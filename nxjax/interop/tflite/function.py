"""`from_tflite`: a TFLite model as a function of its parameters, of its state and of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.interop.graphs.function import ImportedFunction
from nxjax.interop.graphs.mapped import mapped
from nxjax.interop.graphs.values import ValueInfo, constant, value
from nxjax.interop.tflite import rules
from nxjax.interop.tflite.graph import Quantization, TFLiteFile, TFLiteSignature, TFLiteTensor, invalid, read
from nxjax.interop.tflite.held import GridValue, parameter
from nxjax.interop.tflite.save import save
from nxjax.interop.tflite.variables import first_state
from nxjax.interop.tflite.walk import QUANTIZED, RULES, TFLiteScope, TFLiteWalker
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.runtime import enable_x64
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]
assert rules.__all__  # the rules are registered by being imported


@final
class TFLiteFunction(ImportedFunction):
    """A model of a TFLite file as a function: ``y = f(params, x)``, or ``state, y = f(params, state, x)``.

    Attributes:
        params: the constants of the file that can be trained, by their names: float tensors, and the real numbers that
            quantized weights stand for. Give them as the first argument, these or others.
        state: what the model's variables hold at first, by name; None where it has none.
        inputs: name, dtype and dimensions of each further argument, in order.
        outputs: the same of the results.

    >>> x = np.ones((1, 2), np.float32)
    >>> data = nx.compile(lambda x: jnp.tanh(x), target="tflite")(x).bytes
    >>> f = nx.interop.from_tflite(data)
    >>> f.params, f.state, f({}, x).shape
    ({}, None, (1, 2))
    """

    def __init__(
        self,
        data: NDArray,
        model: TFLiteFile,
        signature: TFLiteSignature,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Any],
        real: bool,
        seed: int,
        closed: bool,
    ) -> None:
        graph = model.graphs[signature.graph]
        self._data, self._model, self._graph, self._seed, self._real = data, model, graph, seed, real
        names = {i: name for name, i in signature.inputs}
        known = [names.get(i, graph.tensors[i].name) for i in graph.inputs]
        for k in (*constants, *shapes):
            if k not in known:
                raise ParameterError("from_tflite: no input of this name", got=k, expected=", ".join(sorted(known)))
        self._constants = {known.index(k): constant(v) for k, v in constants.items()}
        ports = [graph.tensors[i].port(name, real) for name, i in zip(known, graph.inputs, strict=True)]
        self.inputs = tuple(
            ValueInfo(p.name, p.dtype, tuple(shapes[p.name])) if p.name in shapes else p
            for p in ports
            if p.name not in constants
        )
        self._outputs = [i for _, i in signature.outputs] or list(graph.outputs)
        told = [name for name, _ in signature.outputs] or [graph.tensors[i].name for i in graph.outputs]
        self.outputs = tuple(graph.tensors[i].port(n, real) for n, i in zip(told, self._outputs, strict=True))
        fixed = _decide_shapes(model)
        every = [t for g in model.graphs for t in g.tensors if t.trained and t.name not in fixed]
        self._tensors = {t.name: t for t in every}
        self.params = {t.name: value(t.real) for t in every}
        with enable_x64():
            first = first_state(model, seed)
            self.state = {k: self._given(x) for k, x in first.items()} or None
        self._kept = {k: x.quantization for k, x in first.items() if isinstance(x, GridValue)}
        super().__init__("TFLite", signature.key or graph.name, {}, closed)

    def _given(self, x: Any) -> Any:
        """A value as callers see it."""
        return x if not isinstance(x, GridValue) else x.real if self._real else x.stored

    def _walk(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any
    ) -> tuple[dict[str, Any] | None, tuple[Any, ...]]:
        held = {k: _on_grid(self._kept.get(k), x) for k, x in (state or {}).items()}
        walker = TFLiteWalker(self._model, params, held, self._seed)
        given = iter(xs)
        every = [self._constants[i] if i in self._constants else next(given) for i in range(len(self._graph.inputs))]
        tensors = [self._graph.tensors[i] for i in self._graph.inputs]
        placed = [_on_grid(t.grid, x) for t, x in zip(tensors, every, strict=True)]
        made = TFLiteScope(walker, self._graph).run(placed, self._outputs)
        after = None if state is None else {k: self._given(walker.state[k]) for k in state}
        return after, tuple(map(self._given, made))

    @api_boundary
    def save(self, path: str | Path, params: Mapping[str, Any] | None = None) -> None:
        """Write the model to a TFLite file again, with other parameters: all else of the file stays as it is.

        A tensor that the file stores in whole numbers is stored so again, on the grid that it has there. So LiteRT
        computes with the file what this function computes with ``params``. Elements that a sparse tensor does not
        store stay as they are.

        Args:
            params: as in a call; by default ``f.params``, which gives the same bytes unless these were changed.

        Raises:
            ParameterError: other parameters than the file's, or numbers that are not finite for whole ones.
            ShapeError, DtypeError: one has another shape, or holds no floats.
            OSError: the file cannot be written.

        >>> import tempfile
        >>> w, x = np.float32([[1, 2], [3, 4]]), np.ones((1, 2), np.float32)
        >>> f = nx.interop.from_tflite(nx.compile(lambda x: x @ w, target="tflite")(x).bytes)
        >>> path = tempfile.mkdtemp() + "/doubled.tflite"
        >>> f.save(path, {k: 2 * v for k, v in f.params.items()})
        >>> nx.interop.from_tflite(path, closed=True)(x).tolist()
        [[8.0, 12.0]]
        """
        changed = self._changed("parameters", params)
        with enable_x64():
            elements = {k: self._elements(self._tensors[k], v) for k, v in changed.items()}
        save(Path(path), self._data.data, self._model, elements)

    def _elements(self, tensor: TFLiteTensor, x: Any) -> NDArray:
        """A parameter as the file stores it."""
        made = parameter(tensor, x)
        if tensor.grid is None:
            return np.asarray(made)
        if not np.isfinite(np.asarray(x)).all():
            raise ParameterError(
                f"{self.__name__}: {tensor.name} cannot be stored as {tensor.dtype}", got="NaN or infinity"
            )
        return np.asarray(made.stored)


def _on_grid(grid: Quantization | None, x: Any) -> Any:
    """An argument: real numbers are put on the grid of their tensor, as QUANTIZE does it."""
    if grid is None or not isinstance(x, Array):
        return x
    if x.dtype != np.float32:
        return GridValue(grid, stored=x)
    return GridValue(grid, real=quantize_dequantize(x, grid=grid.grid))


def _decide_shapes(model: TFLiteFile) -> set[str]:
    """Names of constants whose elements some rule takes as numbers."""
    found: set[str] = set()
    for node in (n for g in model.graphs for n in g.nodes):
        for table in (RULES, QUANTIZED):
            known = table[node.kind].known if node.kind in table else ()
            found.update(t.name for i, t in enumerate(node.operands) if i in known and t is not None)
    return found


@api_boundary
def from_tflite(
    model: str | Path | bytes,
    *,
    signature: str | None = None,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    io: Literal["file", "float"] = "file",
    closed: bool = False,
    seed: int = 0,
) -> TFLiteFunction:
    """A TFLite model as a function of its parameters and of arrays: ``y = f(f.params, x)``.

    It traces into ordinary nxjax ops: `jit`, `grad`, `vmap`, `quantize` and `compile` work on it. A quantized model
    becomes nxjax's quantized ops on the grids of the file; its results are those of LiteRT's reference kernels, bit for
    bit, and its derivatives are straight-through.

    Variables become an explicit state: ``state, y = f(f.params, state, x)``, from ``f.state``, which is what the file
    sets them to at first.

    Args:
        model: a file, or its bytes.
        signature: the name of one of the file's signatures; the only one, or else the first graph, if left out.
        shapes: whole shapes by the input's name, in place of the file's: ``{"image": (4, 96, 96, 1)}``. Dimensions that
            the file leaves open take their sizes from each call.
        constants: values of inputs that the function does not take then.
        io: "file": quantized inputs, results and state are the integers that the file says. "float": they are the real
            numbers that these stand for, so derivatives reach the inputs and `nx.compile` writes the file's grids.
        closed: the function holds the parameters itself: ``y = f(x)``.
        seed: of what random operators draw.

    Returns:
        the function, with ``params``, ``state``, ``inputs`` and ``outputs``. Arguments may also be given by name.

    Raises:
        InvalidFileError: no TFLite model, or a damaged one.
        LoweringError: an operator or a type that nxjax has no rule for, when the function is called.

    >>> w = np.float32([[1, 2], [3, 4]])
    >>> x = np.ones((1, 2), np.float32)
    >>> data = nx.compile(lambda x: x @ w, target="tflite")(x).bytes
    >>> f = nx.interop.from_tflite(data)
    >>> f(f.params, x).tolist()
    [[4.0, 6.0]]
    """
    if io not in ("file", "float"):
        raise ParameterError("from_tflite: io", got=io, expected="'file' or 'float'")
    if isinstance(model, (str, Path)):
        data = mapped(Path(model))
    else:
        try:
            data = np.frombuffer(bytes(memoryview(model)), np.uint8)
        except TypeError:
            raise ParameterError(
                "from_tflite: not a model", got=type(model).__name__, expected="a path, or the bytes of a file"
            ) from None
    try:
        file = read(data.data)
    except RecursionError as e:
        raise InvalidFileError("from_tflite: the model is nested too deeply") from e
    return TFLiteFunction(
        data, file, _chosen(file, signature), constants or {}, shapes or {}, io == "float", seed, closed
    )


def _chosen(file: TFLiteFile, key: str | None) -> TFLiteSignature:
    known = {s.key: s for s in file.signatures}
    if key is not None and key not in known:
        raise ParameterError("from_tflite: no signature of this name", got=key, expected=", ".join(known) or "none")
    found = known[key] if key is not None else file.signatures[0] if len(file.signatures) == 1 else None
    if found is None:
        return TFLiteSignature("", 0, (), ())
    if {i for _, i in found.inputs} - set(file.graphs[found.graph].inputs):
        raise invalid("a signature of inputs that its graph does not have", found.key)
    return found
