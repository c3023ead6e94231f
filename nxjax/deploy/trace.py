"""A user's function with its parameters bound, as a graph: what every target starts from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, final

import numpy as np

from nxjax.backends.target import ProgramTarget, Target
from nxjax.deploy.files import safe_name
from nxjax.errors import DtypeError, ParameterError
from nxjax.lower.npu.bind import bind
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.quant.function import Quantized
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, type_of, wrap
from nxjax.trace.core import Array, Tracer
from nxjax.trace.dtypes import DType
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ShapeDtypeStruct

NDArray = np.ndarray[Any, Any]
# Stored inputs to stored results, exactly.
Meaning = Callable[[Sequence[NDArray]], list[NDArray]]
IO = Literal["float", "integer"]
# Which positional arguments become constants: some, one, or by default those that are trees.
Positions = Sequence[int] | int | None
_KINDS: Final = (dtypes.BOOL, dtypes.INTEGER, dtypes.FLOAT, dtypes.COMPLEX)


@final
@dataclass(frozen=True)
class Subject:
    """What an artifact is written from and checked against.

    Attributes:
        form: a graph, or the program itself for formats that have all of the language.
        inputs, outputs: as they are stored: shape, dtype, grid.
        meaning: the exact results for stored inputs.
    """

    form: NpuGraph | Program
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    meaning: Meaning


class CallSignature(Protocol):
    """How the arguments of a call become inputs as they are stored, and stored results what the call gives."""

    @property
    def inputs(self) -> Sequence[NDArray] | None:
        """Values to measure a deviation on; None where types alone were given."""
        ...

    def flat_inputs(self, args: Sequence[Any], where: str) -> list[NDArray]: ...

    def result(self, outputs: Sequence[Tensor], stored: Sequence[NDArray]) -> Any: ...


@final
class BoundFunction:
    """A traced function whose parameters are constants.

    Attributes:
        program: of the remaining inputs, flat.
        constants: which positional arguments are bound.
        args: the example arguments that are not.
    """

    def __init__(
        self, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], constants: Positions
    ) -> None:
        if not callable(fun):
            raise ParameterError("compile: needs a function", got=type(fun).__name__)
        if kwargs:
            raise ParameterError(
                "compile: an artifact has no keyword arguments",
                got=", ".join(kwargs),
                fix="pass them by position, or bind them with functools.partial",
            )
        self.args = args
        if constants is None and isinstance(fun, Quantized):
            # What quantize was told holds weights.
            constants = fun.params
        self.constants = self._chosen(args, constants)
        self.in_trees = [tree.flatten(a) for a in args]
        given = [x for leaves, _ in self.in_trees for x in leaves]
        # A type alone is enough for an input: nothing that large need be in memory to be compiled for.
        values = [None if isinstance(x, ShapeDtypeStruct) else as_value(x, "compile") for x in given]
        if any(isinstance(v, Tracer) for v in values):
            raise ParameterError(
                "compile: example arguments are being traced", fix="call nx.compile(...) outside of jit, grad and vmap"
            )
        store: list[tree.TreeDef] = []

        def flat(*xs: Array) -> Sequence[Any]:
            parts, rest = [], list(xs)
            for leaves, treedef in self.in_trees:
                parts.append(tree.unflatten(treedef, rest[: len(leaves)]))
                rest = rest[len(leaves) :]
            leaves, out_tree = tree.flatten(fun(*parts))
            store[:] = [out_tree]
            return leaves

        self.name = safe_name(str(getattr(fun, "__name__", type(fun).__name__.lower())), "function")
        types = [type_of(x, "compile") if v is None else v.type for x, v in zip(given, values, strict=True)]
        traced = stage(flat, types, self.name)
        self.out_tree = store[0]
        if not traced.outputs:
            raise ParameterError(
                "compile: the function returns no arrays", got=self.name, fix="return what is computed"
            )
        bound: dict[int, Any] = {}
        inputs: list[NDArray | None] = []
        # Values, since the arrays that were given may be written to.
        self.held: dict[int, list[Array]] = {n: [] for n in self.constants}
        i = 0
        for n, (leaves, _) in enumerate(self.in_trees):
            for _ in leaves:
                v = values[i]
                if n not in self.constants:
                    inputs.append(None if v is None else np.asarray(v.numpy()))
                elif v is None:
                    raise ParameterError(
                        f"compile: argument {n} becomes part of the artifact, but has no values",
                        got=types[i],
                        expected="arrays",
                        fix="pass its values, or make it an input with constants=()",
                    )
                else:
                    bound[i] = v
                    self.held[n].append(v)
                i += 1
        values_only = [x for x in inputs if x is not None]
        self.inputs: list[NDArray] | None = values_only if len(values_only) == len(inputs) else None
        self.program: Program = bind(traced, bound)

    @staticmethod
    def _chosen(args: Sequence[Any], constants: Positions) -> frozenset[int]:
        if constants is None:
            return frozenset(i for i, a in enumerate(args) if not is_leaf(a))
        try:
            given = [operator.index(i) for i in ((constants,) if isinstance(constants, int) else constants)]
        except TypeError:
            raise ParameterError(
                "compile: constants are positions of arguments", got=constants, expected="integers, such as (0,)"
            ) from None
        wrong = [i for i in given if not -len(args) <= i < len(args)]
        if wrong:
            raise ParameterError("compile: constants name no argument", got=wrong, expected=f"below {len(args)}")
        return frozenset(i % len(args) for i in given)

    def graph(self, io: IO, unroll: int, format: str = "", recurrent: frozenset[str] = frozenset()) -> NpuGraph:
        """The graph, with the kernels that the program's own ops have for ``format``; one error lists what has none."""
        return lower(self.program, self.name, io=io, unroll=unroll, format=format, recurrent=recurrent)

    def subject(self, target: Target[Any], io: IO, unroll: int) -> Subject:
        """What ``target`` is given: the graph, or the program."""
        if isinstance(target, ProgramTarget):
            p = self.program
            named = lambda kind, atoms: [Tensor(f"{kind}_{i}", a.type.shape, a.type.dtype) for i, a in enumerate(atoms)]
            return Subject(p, named("input", p.inputs), named("output", p.outputs), partial(evaluate, p))
        graph = self.graph(io, unroll, target.format, target.recurrent)
        return Subject(graph, graph.inputs, graph.outputs, partial(interpret, graph))

    def flat_inputs(self, args: Sequence[Any], where: str) -> list[NDArray]:
        """Leaves of a call's inputs: of all arguments, or of those that are not bound."""
        refuse_traced(args, where)
        free = [n for n in range(len(self.args)) if n not in self.constants]
        if len(args) == len(self.args):
            self._same_constants(args)
            args = [args[n] for n in free]
        if len(args) != len(free):
            raise ParameterError(
                f"{where}: wrong number of arguments",
                got=len(args),
                expected=f"{len(free)} inputs, or all {len(self.args)} arguments",
            )
        leaves: list[NDArray] = []
        for n, a in zip(free, args, strict=True):
            wanted = self.in_trees[n][1]
            for x in tree.flatten_up_to(wanted, a, f"{where}: argument {n}"):
                leaves.append(as_given(x, where))
        for i, (x, v) in enumerate(zip(leaves, self.program.inputs, strict=True)):
            if x.shape != v.type.shape:
                raise ParameterError(
                    f"{where}: input {i} has another shape than the artifact was compiled for",
                    got=x.shape,
                    expected=v.type,
                    fix="compile for this shape, or make the function nx.bucketed",
                )
            leaves[i] = converted(x, v.type.dtype, f"{where}: input {i}")
        return leaves

    def _same_constants(self, args: Sequence[Any]) -> None:
        for n, old in self.held.items():
            new, structure = tree.flatten(args[n])
            if structure != self.in_trees[n][1] or not all(map(_equal, old, new)):
                raise ParameterError(
                    f"run: argument {n} differs from the parameters in the artifact",
                    got="changed values",
                    expected="the parameters it was compiled with",
                    fix="compile again with the new parameters, or leave them out of the call",
                )

    def result(self, outputs: Sequence[Tensor], stored: Sequence[NDArray]) -> Any:
        """Results in the function's structure and dtypes, from storage dtypes."""
        leaves: list[Array] = []
        for v, t, q in zip(self.program.outputs, outputs, stored, strict=True):
            x = t.grid.dequantize(np.asarray(q)) if t.grid is not None else np.asarray(q)
            leaves.append(wrap(np.array(x.reshape(v.type.shape), v.type.dtype, order="C")))
        return tree.unflatten(self.out_tree, leaves)


def refuse_traced(args: Sequence[Any], where: str) -> None:
    """An artifact runs on values: inside of a transformation there are none."""
    if any(isinstance(x, Tracer) for a in args for x in tree.leaves(a)):
        raise ParameterError(
            f"{where}: an argument is being traced",
            expected="values",
            fix="run the artifact outside of jit, grad and vmap, or call it there by nx.pure_callback",
        )


def as_given(x: Any, where: str) -> NDArray:
    """An argument with the numbers that it has: 64-bit ones of NumPy are not cut to 32 before anybody looks."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype in dtypes.NUMERIC:
        return np.asarray(x)
    return np.asarray(as_value(x, where).numpy())


def converted(x: NDArray, dtype: DType, what: str) -> NDArray:
    """``x`` as ``dtype``; refused where that would cut floats to integers or wrap numbers."""
    kind = lambda d: next((i for i, kinds in enumerate(_KINDS) if d in kinds), -1)
    if x.dtype == dtype:
        return x
    if not 0 <= kind(x.dtype) <= kind(dtype):
        raise DtypeError(
            f"{what} would lose by conversion",
            got=dtypes.short_name(x.dtype),
            expected=dtypes.short_name(dtype),
            fix=f"convert it before: x.astype({dtype.name!r})",
        )
    with np.errstate(all="ignore"):
        y = x.astype(dtype)
    if dtype in dtypes.INTEGER and not np.array_equal(y, x):
        raise ParameterError(f"{what} holds numbers outside of its range", got=x.dtype, expected=dtype.name)
    return y


def stored_inputs(inputs: Sequence[Tensor], values: Sequence[NDArray]) -> list[NDArray]:
    """Float values as a graph's inputs take them."""
    return [
        t.grid.quantize(x) if t.grid is not None else x.astype(t.dtype) for t, x in zip(inputs, values, strict=True)
    ]


def is_leaf(a: Any) -> bool:
    leaves = tree.leaves(a)
    return len(leaves) == 1 and leaves[0] is a


def _equal(held: Array, given: Any) -> bool:
    if held is given:
        return True
    x, y = (np.asarray(v.numpy()) for v in (held, as_value(given, "run")))
    # Bits, so that a NaN is its own equal.
    return (x.shape, x.dtype) == (y.shape, y.dtype) and (np.array_equal(x, y) or x.tobytes() == y.tobytes())
