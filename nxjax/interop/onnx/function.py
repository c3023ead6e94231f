"""`from_onnx`: an ONNX model as a function of its parameters and of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from nxjax.errors import InvalidFileError, ParameterError
from nxjax.files import safe_io
from nxjax.interop.imported import ImportedFunction
from nxjax.interop.onnx import rules
from nxjax.interop.onnx.graph import ModelReader, OnnxFile, OnnxGraph, parsed
from nxjax.interop.onnx.walk import RULES, OnnxWalker
from nxjax.interop.values import ValueInfo, constant, value
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
        name: str,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Any],
        seed: int,
        closed: bool,
    ) -> None:
        graph = model.graph
        self._model, self._seed = model, seed
        known = {p.name for p in graph.inputs}
        for k in (*constants, *(k for k, v in shapes.items() if not isinstance(v, int))):
            if k not in known:
                raise ParameterError("from_onnx: no input of this name", got=k, expected=", ".join(sorted(known)))
        self._constants = {k: constant(v) for k, v in constants.items()}
        self.inputs = tuple(
            ValueInfo(p.name, p.dtype, tuple(shapes[p.name]), p.is_array) if p.name in shapes else p
            for p in graph.inputs
            if p.name not in constants
        )
        self.outputs = graph.outputs
        fixed = _decide_shapes(graph)
        stored = graph.initializers.items()
        self.params = {k: value(x) for k, x in stored if x.dtype in dtypes.FLOAT and k not in fixed}
        self.state = None
        super().__init__("ONNX", name, {k: v for k, v in shapes.items() if isinstance(v, int)}, closed)

    def _walk(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any
    ) -> tuple[dict[str, Any] | None, tuple[Any, ...]]:
        walker = OnnxWalker(self._model, self._seed)
        given = iter(xs)
        every = [
            self._constants[p.name] if p.name in self._constants else next(given) for p in self._model.graph.inputs
        ]
        return None, tuple(walker.run(every, params))


def _decide_shapes(graph: OnnxGraph) -> set[str]:
    """Names of stored tensors whose elements some rule takes as numbers."""
    found: set[str] = set()
    for n in graph.nodes:
        known = RULES[n.kind].known if n.kind in RULES else ()
        found.update(name for i, name in enumerate(n.inputs) if i in known)
        for a in n.attributes.values():
            if isinstance(a, OnnxGraph):
                found |= _decide_shapes(a)
    return found


@api_boundary
def from_onnx(
    model: str | Path | bytes,
    *,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    closed: bool = False,
    seed: int = 0,
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

    Returns:
        the function, with ``params``, ``inputs`` and ``outputs``. Arguments may also be given by their names.

    Raises:
        MissingExtraError: the package onnx is not installed.
        InvalidFileError: no ONNX model, or a damaged one.
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
        with safe_io.opened(Path(model)) as f:
            data = f.read()
    else:
        try:
            data = bytes(memoryview(model))
        except TypeError:
            raise ParameterError(
                "from_onnx: not a model", got=type(model).__name__, expected="a path, or the bytes of a file"
            ) from None
    proto = parsed(data)
    try:
        read = ModelReader(folder).model(proto)
    except RecursionError as e:
        raise InvalidFileError("from_onnx: the model is nested too deeply") from e
    return OnnxFunction(read, proto.graph.name or "model", constants or {}, shapes or {}, seed, closed)
