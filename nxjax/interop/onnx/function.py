"""`from_onnx`: an ONNX model as a function of its parameters and of arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.interop.graphs.function import ImportedFunction
from nxjax.interop.graphs.mapped import mapped
from nxjax.interop.graphs.values import ValueInfo, value
from nxjax.interop.onnx import rules
from nxjax.interop.onnx.graph import ModelReader, OnnxFile, OnnxGraph, OnnxNode, inside, parsed, read_by
from nxjax.interop.onnx.grids import StoredParameter, stored_parameter
from nxjax.interop.onnx.save import save
from nxjax.interop.onnx.walk import RULES, OnnxWalker
from nxjax.interop.onnx.wire import without_elements
from nxjax.quant.planned import PlannedCall
from nxjax.quant.qarray import QArray, float_leaf
from nxjax.runtime import enable_x64
from nxjax.trace import dtypes
from nxjax.trace.boundary import api_boundary

assert rules.__all__  # the rules are registered by being imported


@final
class OnnxFunction(ImportedFunction):
    """A model of an ONNX file as a function: ``y = f(params, x)``.

    Attributes:
        params: the float tensors of the file by their names; give them as the first argument, these or others.
        inputs: name, dtype and dimensions of each further argument, in order.
        outputs: the same of the results.
        metadata: texts that the file has by key, such as the names of its classes.

    >>> from onnx import helper
    >>> x, y = (helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
    >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "size", [x], [y])
    >>> f = nx.interop.from_onnx(helper.make_model(graph).SerializeToString())
    >>> isinstance(f, OnnxFunction), f.params, [str(p) for p in f.inputs], f({}, jnp.array([-1.0, 2.0])).tolist()
    (True, {}, ['x: float32[2]'], [1.0, 2.0])
    """

    def __init__(
        self,
        model: OnnxFile,
        proto: object,  # an `onnx.ModelProto`
        reader: ModelReader,
        name: str,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Any],
        seed: int,
        closed: bool,
    ) -> None:
        graph = model.graph
        self._model, self._proto, self._reader, self._seed = model, proto, reader, seed
        sizes = {k: int(v) for k, v in shapes.items() if _is_size(v)}
        whole = {k: _shape(k, v) for k, v in shapes.items() if k not in sizes}
        _known("input", {*constants, *whole}, {p.name for p in graph.inputs})
        ports = [ValueInfo(p.name, p.dtype, whole[p.name], p.is_array) if p.name in whole else p for p in graph.inputs]
        _known("symbolic dimension", sizes, {d for p in graph.inputs for d in p.dims or () if isinstance(d, str)})
        self.inputs = tuple(p for p in ports if p.name not in constants)
        self.outputs = graph.outputs
        self.metadata: dict[str, str] = dict(model.metadata)
        fixed = _fixed(graph, model.functions)
        self._stored = _stored_parameters(graph)
        self._on_grids = _on_grids(graph)
        self.params = {
            k: self._stored[k].initial if k in self._stored else value(x)
            for k, x in graph.initializers.items()
            if k in self._stored or (x.dtype in dtypes.FLOAT and k not in fixed)
        }
        self.state = None
        super().__init__("ONNX", name, sizes, closed)
        # Sizes that constants have are those of the arguments, too.
        self._constants = {p.name: self._value(p, constants[p.name], self._sizes) for p in ports if p.name in constants}

    def _planned(self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any) -> Any:
        if not self._on_grids:
            return self._walk(params, state, *xs)
        on_grids = frozenset(k for k, v in params.items() if isinstance(v, QArray))
        # What is in floats is rounded before the plan is made, which is of real numbers.
        rounded = {k: s.value(params[k], False).real for k, s in self._stored.items() if s.in_floats}
        grids = {id(params[k]): self._stored[k].grid for k in on_grids}
        walk = partial(self._walk, whole=on_grids | rounded.keys())
        every = ({**params, **rounded}, state, *xs)
        return PlannedCall(walk, every, {}, (0,)).quantized_as_named(lambda x: grids[id(x)])

    def _walk(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any, whole: frozenset[str] = frozenset()
    ) -> tuple[dict[str, Any] | None, tuple[Any, ...]]:
        walker = OnnxWalker(self._model, self._seed)
        held = {k: s.value(float_leaf(params[k]), k in whole) for k, s in self._stored.items()}
        given = iter(xs)
        every = [
            self._constants[p.name] if p.name in self._constants else next(given) for p in self._model.graph.inputs
        ]
        return None, tuple(walker.run(every, {**params, **held}))

    @api_boundary
    def save(self, path: str | Path, params: Mapping[str, Any] | None = None) -> None:
        """Write the model to an ONNX file again, with other parameters: same graph, names and dtypes.

        A tensor that the file stores in whole numbers is stored so again, on the grid that it has there. Where tensors
        came from files beside the model, or are too large for it, they are written to a file beside ``path``.

        Args:
            params: as in a call; by default ``f.params``.

        Raises:
            ParameterError: other parameters than the file's, or numbers that are not finite for whole ones.
            ShapeError, DtypeError: one has another shape, or holds no floats.
            OSError: the file cannot be written.

        >>> from onnx import helper
        >>> x, y = (helper.make_tensor_value_info(n, 1, [1]) for n in "xy")
        >>> w = helper.make_tensor("w", 1, [1], [3.0])
        >>> graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "scale", [x], [y], [w])
        >>> f = nx.interop.from_onnx(helper.make_model(graph).SerializeToString())
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/doubled.onnx"
        >>> f.save(path, {"w": f.params["w"] * 2})
        >>> nx.interop.from_onnx(path).params["w"].tolist()
        [6.0]
        """
        stored = self._model.graph.initializers
        changed: dict[str, Any] = {}
        with enable_x64():
            for k, v in self._changed("parameters", params).items():
                held = self._stored.get(k)
                if held is not None and not np.isfinite(np.asarray(v)).all():
                    raise ParameterError(
                        f"{self.__name__}: {k} cannot be stored as {held.dtype}", got="NaN or infinity"
                    )
                changed[k] = np.asarray(v).astype(stored[k].dtype) if held is None else held.written(v)
        save(Path(path), self._proto, self._reader, stored, changed)


def _is_size(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool) and x >= 0


def _shape(name: str, given: Any) -> tuple[int | str, ...]:
    """The whole shape that a caller gives for an input."""
    sizes: tuple[Any, ...] = tuple(given) if isinstance(given, (tuple, list)) else ()
    if not isinstance(given, (tuple, list)) or not all(isinstance(n, str) or _is_size(n) for n in sizes):
        raise ParameterError(
            f"from_onnx: shapes= of {name}",
            got=repr(given),
            expected="a size for a symbolic dimension, or a tuple of sizes for an input",
        )
    return tuple(n if isinstance(n, str) else int(n) for n in sizes)


def _known(what: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise unless the model has what a caller names."""
    for k in given:
        if k not in known:
            raise ParameterError(
                f"from_onnx: no {what} of this name", got=k, expected=", ".join(sorted(known)) or "none"
            )


# What these give does not depend on elements.
_OF_SHAPES: Final = frozenset(("Shape", "Size"))


def _fixed(graph: OnnxGraph, functions: Mapping[str, OnnxGraph]) -> set[str]:
    """Names of stored tensors that say a grid, or whose elements a rule takes as numbers, as they are or computed."""
    in_functions: dict[str, frozenset[int]] = {}
    for kind in functions:
        _inputs_numbers(kind, functions, in_functions)
    says = {
        name
        for n in _every_node(graph)
        if n.kind in RULES
        for i, name in enumerate(n.inputs)
        if i in RULES[n.kind].grids
    }
    return says | _numbers(graph, in_functions, {p.name for p in graph.inputs})


def _inputs_numbers(kind: str, functions: Mapping[str, OnnxGraph], found: dict[str, frozenset[int]]) -> frozenset[int]:
    """Places of inputs whose elements the body of a function takes as numbers."""
    if kind not in found:
        found[kind] = frozenset()  # for one that calls itself
        body = functions[kind]
        for n in _every_node(body):
            if n.kind in functions:
                _inputs_numbers(n.kind, functions, found)
        names = _numbers(body, found, set())
        found[kind] = frozenset(i for i, p in enumerate(body.inputs) if p.name in names)
    return found[kind]


def _numbers(graph: OnnxGraph, in_functions: Mapping[str, frozenset[int]], of_arguments: set[str]) -> set[str]:
    """Names of values that a rule takes as numbers, and of what these are computed from, if that is no argument."""
    nodes = [*_every_node(graph)]
    found: set[str] = set()
    for n in nodes:
        at = in_functions.get(n.kind) or (RULES[n.kind].known if n.kind in RULES else ())
        found.update(name for i, name in enumerate(n.inputs) if i in at)
        if inside(n) or (n.kind not in _OF_SHAPES and not of_arguments.isdisjoint(n.inputs)):
            of_arguments.update(n.outputs, *([p.name for p in inner.inputs] for inner in inside(n)))
    for n in reversed(nodes):
        if n.kind not in _OF_SHAPES and not (found - of_arguments).isdisjoint(n.outputs):
            found.update(n.inputs)
    return found


def _every_node(graph: OnnxGraph) -> Iterator[OnnxNode]:
    """The nodes of a graph, each before those in it."""
    for n in graph.nodes:
        yield n
        for inner in inside(n):
            yield from _every_node(inner)


def _on_grids(graph: OnnxGraph) -> bool:
    """Whether something in the graph says a grid."""
    return any((n.kind in RULES and RULES[n.kind].grids) or any(map(_on_grids, inside(n))) for n in graph.nodes)


_MICROSOFT: Final = "com.microsoft::"
# Where operators take stored weights; the two places behind it say their grid.
_WEIGHTS: Final = {"DequantizeLinear": 0, "QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}


def _weights_axis(kind: str, attributes: Mapping[str, Any]) -> Any:
    """The axis along which the scales of an operator's weights lie."""
    if kind == "DequantizeLinear":
        return attributes.get("axis", 1)
    return 0 if kind == "QLinearConv" or attributes.get("transB") else -1


def _stored_parameters(graph: OnnxGraph) -> dict[str, StoredParameter]:
    """Tensors in whole numbers that nothing reads but operators which say their grid, all the same one."""
    readers: dict[str, list[OnnxNode | None]] = {p.name: [None] for p in graph.outputs}
    for n in graph.nodes:
        for name in n.inputs:
            readers.setdefault(name, []).append(n)
        for inner in inside(n):
            for name in read_by(inner):
                readers.setdefault(name, []).append(None)
    found: dict[str, StoredParameter] = {}
    stored = graph.initializers
    for name, x in stored.items():
        words = {None if n is None else _said_of(name, n) for n in readers.get(name, [None])}
        said = words.pop() if len(words) == 1 else None
        if said is None:
            continue
        scale, zero = stored.get(said[0]), stored.get(said[1])
        if scale is not None and (zero is not None or not said[1]):
            made = stored_parameter(x, scale, zero, said[2])
            if made is not None:
                found[name] = made
    return found


def _said_of(name: str, reader: OnnxNode) -> tuple[str, str, int] | None:
    """Names of scale and zero point, and the axis, that an operator says of the weights that it reads, if it does."""
    kind, given = reader.kind.removeprefix(_MICROSOFT), reader.attributes
    if kind not in _WEIGHTS or given.get("block_size") or given.get("output_dtype"):
        return None
    which, *said = (*reader.inputs[_WEIGHTS[kind] :], "", "", "")[:3]
    axis = _weights_axis(kind, given)
    return (said[0], said[1], axis) if which == name and isinstance(axis, int) else None


@api_boundary
def from_onnx(
    model: str | Path | bytes,
    *,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    closed: bool = False,
    seed: int = 0,
    trusted: bool = False,
) -> OnnxFunction:
    """An ONNX model as a function of its parameters and of arrays: ``y = f(f.params, x)``.

    It traces into ordinary nxjax ops: `jit`, `grad`, `vmap`, `quantize` and `compile` work on it. Shapes that the graph
    computes are numbers while it is traced. Dtypes are those of the file, exactly: 64-bit ones stay 64-bit.

    A function whose shapes depend on elements (``NonZero``, or a ``Reshape`` to a shape that is an argument) runs op by
    op outside `jit`. Inside, give such an argument in ``constants``.

    Args:
        model: a file, or its bytes. Tensors may lie in other files of its folder, which are mapped into memory.
        shapes: sizes of symbolic dimensions by name, ``{"batch": 4}``, or whole shapes by the input's name. What is
            left out takes its sizes from each call.
        constants: values of inputs that the function does not take then.
        closed: the function holds the parameters itself: ``y = f(x)``.
        seed: of what random operators without a seed of their own draw.
        trusted: tensors may lie in any file, also outside of the model's folder. Caches of downloads may need it, whose
            folders hold links.

    Returns:
        the function, with ``params``, ``inputs`` and ``outputs``. Arguments may also be given by their names.

    Raises:
        MissingExtraError: the package onnx is not installed.
        InvalidFileError: no ONNX model, or a damaged one.
        ParameterError: a name in ``shapes`` or ``constants`` that the model does not have, or no size.
        ShapeError, DtypeError: a constant of another shape or dtype than the model's.
        OSError: the file cannot be read.
        LoweringError: an operator that nxjax has no rule for, when the function is called.

    >>> from onnx import helper, TensorProto
    >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
    >>> w = helper.make_tensor("w", TensorProto.FLOAT, [1], [3.0])
    >>> graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "scale", [x], [y], [w])
    >>> f = nx.interop.from_onnx(helper.make_model(graph).SerializeToString())
    >>> f
    scale(params, x: float32[n]) -> y: float32[n]
    >>> f(f.params, jnp.arange(3.0)).tolist()
    [0.0, 3.0, 6.0]
    >>> nx.grad(lambda p, x: f(p, x).sum())(f.params, jnp.arange(3.0))["w"].tolist()
    [3.0]
    """
    folder: Path | None = None
    if isinstance(model, (str, Path)):
        folder = Path(model).absolute().parent
        data = mapped(Path(model))
    else:
        try:
            data = np.frombuffer(model if isinstance(model, bytes) else bytes(memoryview(model)), np.uint8)
        except TypeError:
            raise ParameterError(
                "from_onnx: not a model",
                got=type(model).__name__,
                expected="a path, or the bytes of a file",
                fix="model.SerializeToString()" if hasattr(model, "SerializeToString") else None,
            ) from None
    graph, elements = without_elements(data)
    proto = parsed(graph)
    reader = ModelReader(folder, elements, trusted)
    try:
        read = reader.model(proto)
    except RecursionError as e:
        raise InvalidFileError("from_onnx: the model is nested too deeply") from e
    name = read.graph.name or "model"
    return OnnxFunction(read, proto, reader, name, constants or {}, shapes or {}, seed, closed)
