"""Walks an ONNX graph and does what it says with nxjax's functions, one rule per operator.

A rule is a Python function: its positional parameters are the operator's inputs, its keywords the attributes with their
defaults. Rules are in the files beside this one; this file names no operator.

What depends on no argument is computed while the graph is walked, so shapes that a graph computes are numbers when a
rule needs them. An operator without a rule is written out by the body that the file or ONNX's own schema has for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax import random
from nxjax.interop.graphs.values import NeedsValue, Refused, ValueInfo, applied, as_numpy, concrete, value
from nxjax.interop.onnx.graph import (
    AttributeReference,
    ModelReader,
    OnnxFile,
    OnnxGraph,
    OnnxNode,
    invalid,
    package,
)
from nxjax.interop.onnx.grids import OnGrid, stored
from nxjax.trace.core import Array
from nxjax.trace.scope import named_scope
from nxjax.trace.types import ArrayType

# How deep bodies of operators may lie in one another.
DEPTH: Final = 32
# What to do about an operator that nobody knows, and about those that ONNX Runtime makes for the processor it runs on.
_BODY: Final = "give the file a function that says what it computes (onnx.helper.make_function)"
_ONE_PROCESSOR: Final = "write the optimized model with ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL"
# Operators that one walk does in such bodies; one that lies n deep counts n * n.
_WRITTEN: Final = 1 << 18


@final
@dataclass(frozen=True)
class OnnxRule:
    """How one operator is done.

    Attributes:
        function: of inputs and attributes.
        known: positions of inputs that the function takes as NumPy arrays.
        grids: names of inputs that say a grid; the function takes stored values as `OnGrid`.
        moves: whether the result is elements of the first input, or of all where any number are given.
        asked: which of ``scope``, ``node``, ``opset`` and ``outputs`` (how many are used) it also takes.
        attributes: names of the attributes that it takes; None: all.
    """

    function: Callable[..., Any]
    known: frozenset[int]
    asked: frozenset[str]
    attributes: frozenset[str] | None
    grids: frozenset[int]
    moves: bool
    variadic: bool


RULES: Final[dict[str, OnnxRule]] = {}
_ASKED: Final = frozenset(("scope", "node", "opset", "outputs"))
# Attributes of old versions that mean nothing.
_IGNORED: Final = frozenset(("consumed_inputs", "storage_order"))


def rule(
    *names: str, known: Sequence[str] = (), grids: Sequence[str] = (), moves: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the rule of the operators of these names; ``known`` inputs come as NumPy arrays."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        free = any(p.kind is p.VAR_KEYWORD for p in parameters)
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        at = lambda some: frozenset(positional.index(k) for k in some)
        for name in names:
            assert name not in RULES, name
            RULES[name] = OnnxRule(
                function, at(known), frozenset(named & _ASKED), None if free else frozenset(named - _ASKED), at(grids),
                moves, variadic,
            )  # fmt: skip
        return function

    return add


@final
class OnnxScope:
    """A graph being walked: its values so far, and the graph around it."""

    def __init__(self, walker: OnnxWalker, graph: OnnxGraph, outer: OnnxScope | None = None) -> None:
        self.walker, self.graph, self.outer = walker, graph, outer
        self.values: dict[str, Any] = {"": None}

    def __getitem__(self, name: str) -> Any:
        scope: OnnxScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.graph.initializers:
                scope.values[name] = found = value(scope.graph.initializers[name])
                return found
            scope = scope.outer
        raise invalid("a value is used before it is made", name)

    def run(self, xs: Sequence[Any]) -> list[Any]:
        """The results of the graph for these inputs."""
        if len(xs) != len(self.graph.inputs):
            raise invalid(f"graph {self.graph.name!r} got {len(xs)} inputs", f"it has {len(self.graph.inputs)}")
        self.values.update(zip((p.name for p in self.graph.inputs), xs, strict=True))
        for node in self.graph.nodes:
            made = self.walker.apply(self, node, [self[name] for name in node.inputs])
            self.values.update((n, y) for n, y in zip(node.outputs, made, strict=False) if n)
        return [stored(self[p.name]) for p in self.graph.outputs]

    def some(self, xs: Sequence[Any], count: int) -> list[Any]:
        """The first ``count`` results of an operator's body, which may leave out what nobody asked for."""
        outputs = self.graph.outputs
        body = OnnxGraph(self.graph.name, self.graph.nodes, self.graph.inputs, outputs[:count], self.graph.initializers)
        made = {name for n in body.nodes for name in n.outputs} | {p.name for p in body.inputs}
        kept = tuple(p if p.name in made else ValueInfo("", None, None) for p in body.outputs)
        self.graph = OnnxGraph(body.name, body.nodes, body.inputs, kept, body.initializers)
        return self.run(xs)

    def function(self, graph: OnnxGraph) -> Callable[..., list[Any]]:
        """A graph in this one as a Python function; it sees the values of this one."""
        return lambda *xs: OnnxScope(self.walker, graph, self).run(xs)


@final
class OnnxWalker:
    """One model being walked.

    Attributes:
        seed: of what random operators draw.
    """

    def __init__(self, model: OnnxFile, seed: int = 0) -> None:
        self.model, self.seed, self.draws = model, seed, 0
        self._depth = self._written = 0

    def run(self, xs: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
        scope = OnnxScope(self, self.model.graph)
        scope.values.update(params)
        return scope.run(xs)

    def apply(self, scope: OnnxScope, node: OnnxNode, xs: Sequence[Any]) -> Sequence[Any]:
        """The results of one node."""
        found = None if node.kind in self.model.functions else RULES.get(node.kind)
        grid = None
        if any(isinstance(x, OnGrid) for x in xs) and not (found is not None and found.grids):
            grid = _shared_grid(found, xs)
            xs = [x.real if isinstance(x, OnGrid) and grid is not None else stored(x) for x in xs]
        if found is None:
            return self._written_out(scope, node, xs)
        given = list(xs)
        for i in found.known:
            if i < len(xs):
                if not concrete(xs[i]):
                    raise NeedsValue(
                        f"from_onnx: {node.kind} needs the elements of input {i} while it is traced",
                        got=f"{node}: {xs[i]!r}",
                        fix=f"call the function outside jit, or give {node.inputs[i]!r} in constants=",
                    )
                given[i] = as_numpy(xs[i])
        attributes = dict(node.attributes)
        for name in _IGNORED & attributes.keys():
            if found.attributes is not None and name not in found.attributes:
                del attributes[name]
        if found.attributes is not None and not attributes.keys() <= found.attributes:
            more = ", ".join(sorted(attributes.keys() - found.attributes))
            raise Refused(f"from_onnx: {node.kind} has attributes that nxjax does not know", got=f"{node}: {more}")
        if any(isinstance(v, AttributeReference) for v in attributes.values()):
            raise invalid("an attribute that no caller gives", node)
        extra = {"scope": scope, "node": node, "opset": node.opset, "outputs": _used(node)}
        attributes.update((k, extra[k]) for k in found.asked)
        known = [x.real if isinstance(x, OnGrid) else x for x in xs]
        out = applied("from_onnx", node.kind, node, node.title, known, lambda: found.function(*given, **attributes))
        return out if grid is None else tuple(grid.holding(y) if y.dtype == np.float32 else y for y in out)

    def _written_out(self, scope: OnnxScope, node: OnnxNode, xs: Sequence[Any]) -> Sequence[Any]:
        if self._depth >= DEPTH:
            raise invalid(f"functions call one another more than {DEPTH} deep", node)
        body = self.model.functions.get(node.kind) or schema_body(node, xs)
        if body is None:
            raise Refused(
                f"from_onnx: no rule for operator {node.kind}, version {node.opset}", got=node,
                fix=_ONE_PROCESSOR if node.kind.startswith("com.microsoft.nchwc::") else _BODY,
            )  # fmt: skip
        self._written += len(body.nodes) * (self._depth + 1) ** 2
        if self._written > _WRITTEN:
            raise invalid(f"functions that come to more than {_WRITTEN} operators, each counted by its depth", node)
        filled = _filled(body, {**body.defaults, **node.attributes})
        given = [*xs, *[None] * (len(body.inputs) - len(xs))]
        self._depth += 1
        try:
            with named_scope(node.title.strip("/")):
                return tuple(OnnxScope(self, filled).some(given, _used(node)))
        finally:
            self._depth -= 1


def _shared_grid(found: OnnxRule | None, xs: Sequence[Any]) -> OnGrid | None:
    """The grid on which the elements stay that a rule moves, if they lie on one."""
    first = xs[0]
    if found is None or not found.moves or not isinstance(first, OnGrid) or first.axis is not None:
        return None
    same = all(isinstance(x, OnGrid) and x.same(first.scale, first.zero, first.axis) for x in xs)
    return first if same or not (found.variadic or any(isinstance(x, OnGrid) for x in xs[1:])) else None


def drawing_key(scope: OnnxScope, seed: float | None) -> Any:
    """The key of a random operator: another for each operator of a walk, the same in every walk."""
    walker = scope.walker
    walker.draws += 1
    return random.fold_in(random.key(walker.seed if seed is None else int(seed)), walker.draws)


def _used(node: OnnxNode) -> int:
    """The number of results up to the last one that has a name."""
    return max((i + 1 for i, name in enumerate(node.outputs) if name), default=0)


def _filled(body: OnnxGraph, given: Mapping[str, Any]) -> OnnxGraph:
    """The body of a function, with the attributes of its caller."""

    def node(n: OnnxNode) -> OnnxNode:
        held = {k: given.get(v.name) if isinstance(v, AttributeReference) else v for k, v in n.attributes.items()}
        # What the caller leaves out is left out here, too.
        held = {
            k: _filled(v, given) if isinstance(v, OnnxGraph) else v
            for k, v in held.items()
            if v is not None or not isinstance(n.attributes[k], AttributeReference)
        }
        return OnnxNode(n.kind, n.name, n.inputs, n.outputs, held, n.opset)

    return OnnxGraph(body.name, tuple(map(node, body.nodes)), body.inputs, body.outputs, body.initializers)


def schema_body(node: OnnxNode, xs: Sequence[Any]) -> OnnxGraph | None:
    """What ONNX's schema says that an operator computes, in simpler operators; None: it does not say."""
    onnx = package()
    domain, _, kind = node.kind.rpartition("::")
    try:
        schema = onnx.defs.get_schema(kind, node.opset, domain)
    except (onnx.defs.SchemaError, TypeError):
        # A version that is no number of 32 bits is a type error there.
        return None
    if schema.has_function:
        proto = schema.function_body
    elif schema.has_context_dependent_function:
        proto = _of_context(schema, node, xs)
    else:
        return None
    if proto is None:
        return None
    if not proto.opset_import:
        proto.opset_import.add(domain="", version=node.opset)
    kinds = [a.default_value for a in schema.attributes.values() if a.default_value.name]
    defaults = {a.name: onnx.helper.get_attribute_value(a) for a in kinds}
    text = {k: v.decode() if isinstance(v, bytes) else v for k, v in defaults.items()}
    return _filled(ModelReader(None).function(proto), {**text, **node.attributes})


def _of_context(schema: Any, node: OnnxNode, xs: Sequence[Any]) -> Any:
    """The body that depends on types of inputs and on attributes."""
    onnx = package()
    domain, _, kind = node.kind.rpartition("::")
    attributes = {k: _plain(v) for k, v in node.attributes.items()}
    proto = onnx.helper.make_node(kind, list(node.inputs), list(node.outputs), node.name, domain=domain, **attributes)
    types = [_type_proto(x) for x in xs]
    versions = sorted(v for v in schema.context_dependent_function_opset_versions if v <= node.opset)
    if not versions:
        return None
    text = schema.get_context_dependent_function_with_opset_version(
        versions[-1], proto.SerializeToString(), [t.SerializeToString() for t in types]
    )
    found = onnx.FunctionProto()
    found.ParseFromString(text)
    return found


def _plain(v: Any) -> Any:
    if isinstance(v, OnnxGraph):
        return v.proto
    return package().numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v


def _type_proto(x: Any) -> Any:
    onnx = package()
    if isinstance(x, Array):
        t: ArrayType = x.type
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), t.shape)
    return onnx.TypeProto()
