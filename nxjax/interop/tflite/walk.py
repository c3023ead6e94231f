"""Walks the graphs of a TFLite file and does what they say with nxjax's functions, one rule per operator.

A rule is a Python function: its positional parameters are the operator's operands, its keywords the options that it
heeds. Rules are in the files beside this one; this file names no operator. There are two kinds: of arrays, and of
values on grids (`nxjax.interop.tflite.held`); an operator that only moves elements has one rule for both.

What depends on no argument is computed while the graph is walked, so shapes that a graph computes are numbers when a
rule needs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from nxjax.interop.graphs.values import NeedsValue, Refused, applied, as_numpy, concrete, value
from nxjax.interop.tflite.graph import Quantization, TFLiteFile, TFLiteGraph, TFLiteNode, TFLiteTensor, invalid
from nxjax.interop.tflite.held import GridValue, numbers, parameter

# How deep graphs may call one another, and operators in them that one trace does; n deep, one counts n * n.
DEPTH: Final = 32
_WRITTEN: Final = 1 << 18
# What a rule of arrays does with an operand on a grid: refuses it, moves its elements, takes its stored integers, or
# takes it as it is held.
OnGrids = Literal["refused", "moved", "stored", "held"]


@final
@dataclass(frozen=True)
class TFLiteRule:
    """How one operator is done.

    Attributes:
        function: of operands and options.
        known: positions of operands that the function takes as NumPy arrays.
        asked: which of ``scope`` and ``node`` it also takes.
        options: names of the options that it takes.
    """

    function: Callable[..., Any]
    known: frozenset[int]
    asked: frozenset[str]
    options: frozenset[str]
    on_grids: OnGrids


# Rules of arrays, and of values on grids.
RULES: Final[dict[str, TFLiteRule]] = {}
QUANTIZED: Final[dict[str, TFLiteRule]] = {}
_ASKED: Final = frozenset(("scope", "node"))
Add = Callable[[Callable[..., Any]], Callable[..., Any]]


def rule(*names: str, known: Sequence[str] = (), on_grids: OnGrids = "refused") -> Add:
    """Decorator: the rule of the operators of these names; ``known`` operands come as NumPy arrays."""
    return _registered(RULES, names, known, on_grids)


def quantized(*names: str, known: Sequence[str] = ()) -> Add:
    """Decorator: the rule of these operators where an operand or the result is on a grid."""
    return _registered(QUANTIZED, names, known, "refused")


def _registered(table: dict[str, TFLiteRule], names: Sequence[str], known: Sequence[str], on_grids: OnGrids) -> Add:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        places = frozenset(positional.index(k) for k in known)
        for name in names:
            assert name not in table, name
            table[name] = TFLiteRule(function, places, frozenset(named & _ASKED), frozenset(named - _ASKED), on_grids)
        return function

    return add


@final
class TFLiteScope:
    """A graph being walked: the values of its tensors so far."""

    def __init__(self, walker: TFLiteWalker, graph: TFLiteGraph) -> None:
        self.walker, self.graph = walker, graph
        self.values: dict[int, Any] = {}

    def __getitem__(self, i: int | None) -> Any:
        if i is None:
            return None
        if i not in self.values:
            self.values[i] = self.walker.stored(self.graph.tensors[i])
        return self.values[i]

    def run(self, xs: Sequence[Any], outputs: Sequence[int] | None = None) -> list[Any]:
        """The results of the graph for these inputs, as they are held."""
        if len(xs) != len(self.graph.inputs):
            raise invalid(f"graph {self.graph.name!r} got {len(xs)} inputs", f"it has {len(self.graph.inputs)}")
        for i, x in zip(self.graph.inputs, xs, strict=True):
            self.values[i] = on_grid_of(self.graph.tensors[i], x)
        for node in self.graph.nodes:
            made = self.walker.apply(self, node, [self[i] for i in node.inputs])
            self.values.update((i, y) for i, y in zip(node.outputs, made, strict=False) if i is not None)
        return [self[i] for i in (self.graph.outputs if outputs is None else outputs)]


def on_grid_of(tensor: TFLiteTensor, x: Any) -> Any:
    """An array as the value of ``tensor``: real numbers or stored integers, where that is on a grid."""
    if tensor.grid is None or isinstance(x, GridValue) or not hasattr(x, "dtype"):
        return x
    return GridValue(tensor.grid, real=x) if x.dtype == "float32" else GridValue(tensor.grid, stored=x)


@final
class TFLiteWalker:
    """One model being walked.

    Attributes:
        params: arrays in the place of constants, by name.
        state: what variables hold now, by name.
        written: the operators done in graphs that others call.
    """

    def __init__(
        self, model: TFLiteFile, params: Mapping[str, Any], state: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self.model, self.params, self.seed, self.draws = model, params, seed, 0
        self.state: dict[str, Any] = dict(state or {})
        self.tables: dict[str, Any] = {}
        self._depth = self.written = 0

    def graph(self, index: int) -> TFLiteGraph:
        """A graph by its number."""
        if not 0 <= index < len(self.model.graphs):
            raise invalid("a graph that is not there", index)
        return self.model.graphs[index]

    def call(self, index: int, xs: Sequence[Any]) -> list[Any]:
        """The results of a graph."""
        if self._depth >= DEPTH:
            raise invalid(f"graphs call one another more than {DEPTH} deep", self.graph(index).name)
        graph = self.graph(index)
        self.written += len(graph.nodes) * (self._depth + 1) ** 2
        if self.written > _WRITTEN:
            raise invalid(f"graphs that come to more than {_WRITTEN} operators, each counted by its depth", graph.name)
        self._depth += 1
        try:
            return TFLiteScope(self, graph).run(xs)
        finally:
            self._depth -= 1

    def stored(self, tensor: TFLiteTensor) -> Any:
        """The value of a tensor that no operator makes."""
        if tensor.variable:
            return on_grid_of(tensor, self.state[tensor.name])
        if tensor.data is None:
            raise invalid("a value is used before it is made", tensor.name)
        given = self.params.get(tensor.name)
        if given is not None:
            return parameter(tensor, given)
        stored = value(tensor.data)
        return stored if tensor.grid is None else GridValue(tensor.grid, stored=stored, tensor=tensor)

    def apply(self, scope: TFLiteScope, node: TFLiteNode, xs: Sequence[Any]) -> Sequence[Any]:
        """The results of one operator."""
        on_grids = any(isinstance(x, GridValue) for x in xs) or any(t is not None and t.grid for t in node.results)
        found = RULES.get(node.kind)
        if on_grids and node.kind in QUANTIZED:
            found = QUANTIZED[node.kind]
        elif on_grids and found is not None and found.on_grids == "refused":
            raise Refused(f"from_tflite: no rule for operator {node.kind} of quantized values", got=node)
        if found is None:
            raise Refused(f"from_tflite: no rule for operator {node.kind}", got=node)
        given, real = list(xs), False
        for i in found.known:
            if i < len(xs) and xs[i] is not None:
                given[i] = _numbers(node, i, xs[i])
        if found.on_grids in ("moved", "stored"):
            real = found.on_grids == "moved" and _stay_real(node, xs)
            given = [(x.real if real else x.stored) if isinstance(x, GridValue) else x for x in given]
        options = {k: v for k, v in node.options.items() if k in found.options}
        options.update((k, {"scope": scope, "node": node}[k]) for k in found.asked)
        name = next((t.name for t in node.results if t is not None), node.kind)
        known = [x.either if isinstance(x, GridValue) else x for x in xs]
        out = applied("from_tflite", node.kind, node, name, known, lambda: found.function(*given, **options))
        return [y if t is None else on_grid_of(t, y) for t, y in zip(node.results, out, strict=False)]


def _stay_real(node: TFLiteNode, xs: Sequence[Any]) -> bool:
    """Whether moved elements may stay real numbers: what is put together has one grid, also in the result."""
    held = [x for x in xs if isinstance(x, GridValue)]
    grids: list[Quantization | None] = [t.grid for t in node.results if t is not None]
    every = [*(x.quantization for x in held), *(g for g in grids if g is not None)]
    plain = all(x.quantization.per_tensor for x in held) and any(grids)
    return plain and any(x.is_real for x in held) and all(every[0].same(g) for g in every)


def _numbers(node: TFLiteNode, i: int, x: Any) -> Any:
    if isinstance(x, GridValue):
        return numbers(x)
    if not concrete(x):
        t = node.operands[i]
        raise NeedsValue(
            f"from_tflite: {node.kind} needs the elements of operand {i} while it is traced",
            got=f"{node}: {x!r}",
            fix=f"call the function outside jit, or give {t.name if t else i!r} in constants=",
        )
    return as_numpy(x)
