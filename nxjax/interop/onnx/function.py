"""`from_onnx`: an ONNX model as a function of its parameters and of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, InvalidFileError, ParameterError, ShapeError
from nxjax.files import safe_io
from nxjax.interop.onnx import rules
from nxjax.interop.onnx.graph import ModelReader, OnnxFile, OnnxGraph, ValueInfo, parsed
from nxjax.interop.onnx.walk import RULES, NeedsValue, OnnxWalker, value
from nxjax.ops.convert import convert_element_type
from nxjax.runtime import enable_x64
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array
from nxjax.transforms.jit import jit

assert rules.__all__  # the rules are registered by being imported


@final
class OnnxFunction:
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
        self._model, self._seed, self._closed = model, seed, closed
        self._sizes = {k: v for k, v in shapes.items() if isinstance(v, int)}
        known = {p.name for p in graph.inputs}
        for k in (*constants, *(k for k, v in shapes.items() if not isinstance(v, int))):
            if k not in known:
                raise ParameterError("from_onnx: no input of this name", got=k, expected=", ".join(sorted(known)))
        self._constants = {k: _constant(v) for k, v in constants.items()}
        self.inputs: tuple[ValueInfo, ...] = tuple(
            ValueInfo(p.name, p.dtype, tuple(shapes[p.name]), p.is_array) if p.name in shapes else p
            for p in graph.inputs
            if p.name not in constants
        )
        self.outputs: tuple[ValueInfo, ...] = graph.outputs
        self.__name__ = self.__qualname__ = name
        fixed = _decide_shapes(graph)
        self.params: dict[str, Array] = {
            k: value(x) for k, x in graph.initializers.items() if x.dtype in dtypes.FLOAT and k not in fixed
        }
        self.__doc__ = self._described()
        self._compiled = jit(self._walk)
        self._by_value = False

    def _described(self) -> str:
        lines = [f"ONNX model {self.__name__}.", "", "Args:"]
        if not self._closed:
            lines.append(f"    params: {len(self.params)} float arrays by name, as in ``.params``.")
        lines += [f"    {p}" for p in self.inputs]
        return "\n".join([*lines, "", "Returns:", *(f"    {p}" for p in self.outputs)])

    @api_boundary
    def __call__(self, *args: Any, **named: Any) -> Any:
        """The result, or a tuple of them where there are several or none."""
        params, given = (self.params, args) if self._closed else self._split(args)
        xs = self._values(given, named)
        arrays = all(isinstance(x, Array) for x in xs)
        with enable_x64():
            if self._by_value or not arrays:
                ys = self._walk(params, *xs)
            else:
                try:
                    ys = self._compiled(params, *xs)
                except NeedsValue:
                    if any(not isinstance(x, DeviceArray) for x in xs):
                        raise
                    # Elements decide shapes here: op by op from now on.
                    self._by_value = True
                    ys = self._walk(params, *xs)
        return ys[0] if len(ys) == 1 else tuple(ys)

    def _split(self, args: Sequence[Any]) -> tuple[Mapping[str, Any], Sequence[Any]]:
        params = args[0] if args else None
        if not isinstance(params, Mapping):
            raise ParameterError(
                f"{self.__name__}: the first argument holds the parameters",
                got=type(params).__name__,
                expected="a dict of arrays by name",
                fix="call it as f(f.params, x), or import with closed=True",
            )
        if params.keys() != self.params.keys():
            other = sorted(params.keys() ^ self.params.keys())
            raise ParameterError(
                f"{self.__name__}: other parameters than the file's",
                got=", ".join(other[:5]),
                expected="those of .params",
            )
        for k, v in params.items():
            if np.shape(v) != self.params[k].shape:
                raise ShapeError(
                    f"{self.__name__}: {k} has another shape", got=np.shape(v), expected=self.params[k].type
                )
        return params, args[1:]

    def _walk(self, params: Mapping[str, Any], *xs: Any) -> tuple[Any, ...]:
        walker = OnnxWalker(self._model, self._seed)
        given = iter(xs)
        every = [
            self._constants[p.name] if p.name in self._constants else next(given) for p in self._model.graph.inputs
        ]
        return tuple(walker.run(every, params))

    def _values(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of the file, each of the type that it says."""
        names = [p.name for p in self.inputs]
        unknown = named.keys() - set(names[len(args) :])
        if len(args) > len(names) or unknown:
            raise ParameterError(
                f"{self.__name__}: arguments that the model does not take",
                got=", ".join(sorted(unknown)) or f"{len(args)} arguments",
                expected=", ".join(map(str, self.inputs)) or "none",
            )
        missing = [n for n in names[len(args) :] if n not in named]
        if missing:
            raise ParameterError(
                f"{self.__name__}: arguments are missing",
                got=", ".join(missing),
                expected=", ".join(map(str, self.inputs)),
            )
        sizes = dict(self._sizes)
        every = [*args, *(named[n] for n in names[len(args) :])]
        return [self._value(p, x, sizes) for p, x in zip(self.inputs, every, strict=True)]

    def _value(self, port: ValueInfo, x: Any, sizes: dict[str, int]) -> Any:
        where = f"{self.__name__}: {port.name}"
        if x is None or (isinstance(x, (list, tuple)) and not port.is_array):
            return None if x is None else [_constant(v) for v in x]
        if port.dtype == object:
            return np.asarray(x, object)
        wanted = port.dtype
        if isinstance(x, (bool, int, float)) and wanted is not None and not isinstance(x, np.generic):
            y: Array = wrap(np.asarray(x).astype(wanted))
        elif isinstance(x, (np.ndarray, np.generic)):
            y = value(np.asarray(x))
        else:
            y = as_value(np.asarray(x) if isinstance(x, (list, tuple)) else x, where)
        if wanted is not None and y.dtype != wanted:
            # Outside of `enable_x64`, whole numbers of 64 bits have become 32 where they were traced.
            wider = {y.dtype, np.dtype(wanted)} <= dtypes.INTEGER and np.can_cast(y.dtype, wanted)
            if not (wider or y.type.weak or isinstance(x, (list, tuple))):
                raise DtypeError(
                    f"{where} has another dtype", got=y.type, expected=port, fix=f".astype({np.dtype(wanted).name!r})"
                )
            y = convert_element_type(y, dtype=wanted)
        if port.dims is not None:
            fits = len(port.dims) == y.ndim and all(
                n == (d if isinstance(d, int) else sizes.setdefault(d, n))
                for n, d in zip(y.shape, port.dims, strict=True)
            )
            if not fits:
                same = {k: v for k, v in sizes.items() if k in port.dims}
                raise ShapeError(
                    f"{where} has another shape", got=y.type, expected=f"{port}{f' with {same}' if same else ''}"
                )
        return y

    def __repr__(self) -> str:
        first = () if self._closed else ("params",)
        return f"{self.__name__}({', '.join((*first, *map(str, self.inputs)))}) -> {', '.join(map(str, self.outputs))}"


def _constant(x: Any) -> Any:
    if isinstance(x, (list, tuple)) and any(isinstance(v, (list, tuple, np.ndarray, Array)) for v in x):
        return [_constant(v) for v in x]
    return x if isinstance(x, Array) or x is None else value(np.asarray(x))


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
