"""One walk over a graph that replaces nodes: what passes over graphs are written with.

Knows no op but those whose operands may change places. A rule sees a node whose operands are already rewritten and
gives the tensor that takes its result's place, or None. What a replaced node no longer reads is dropped by `live`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, TensorKind
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace.types import Shape

# What an operand is: the name of a computed tensor, in capitals of a constant, the same wherever it stands; a number;
# or the ops, one of which makes it, and their operands without activation, in either order where that is the same.
# Behind "~" others may read the result too.
Pattern = str | float | tuple[Any, ...]
_EITHER: Final = frozenset(("add", "mul", "maximum", "minimum"))
CLOSE: Final = 1e-6


@final
class Rewriter:
    """The graph before (``uses``) and the nodes after."""

    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.changed = False
        self._made: dict[Tensor, Node] = {}
        self._taken: dict[Tensor, Tensor] = {}
        self._count: dict[Tensor, int] = {}
        self._at: Node | None = None
        for t in [*graph.outputs, *(t for n in graph.nodes for t in n.operands)]:
            self._count[t] = self._count.get(t, 0) + 1

    def producer(self, t: Tensor | None, *ops: str) -> Node | None:
        """The node that makes ``t``, if it is one of ``ops`` (any, if none are given)."""
        node = None if t is None else self._made.get(t)
        return node if node is not None and (not ops or node.op in ops) else None

    def sole(self, t: Tensor | None, *ops: str) -> Node | None:
        """As `producer`, if nothing else reads ``t``."""
        node = self.producer(t, *ops)
        return node if node is not None and t is not None and self._count.get(t, 0) == 1 else None

    def match(self, n: Node, pattern: tuple[Pattern, ...]) -> dict[str, Tensor] | None:
        """The tensors that a pattern of ``n``'s operands names; None if they are others."""
        return next(self._operands(n, pattern, {}), None)

    def _operands(self, n: Node, pattern: Sequence[Pattern], found: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        orders = [n.inputs, n.inputs[::-1]] if n.op in _EITHER else [n.inputs]
        for order in orders if len(n.inputs) == len(pattern) else ():
            some = [found]
            for t, part in zip(order, pattern, strict=True):
                some = [more for known in some for more in self._matches(t, part, known)]
            yield from some

    def _matches(self, t: Tensor | None, pattern: Pattern, found: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        if isinstance(pattern, tuple):
            op, *parts = pattern
            make = self.sole if op[0] != "~" else self.producer
            node = make(t, *op.lstrip("~").split())
            if node is not None and not node.attrs.get("activation"):
                yield from self._operands(node, parts, found)
        elif isinstance(pattern, str):
            if t is not None and found.get(pattern, t) is t and t.constant == pattern.isupper():
                yield {**found, pattern: t}
        elif is_number(t, pattern):
            yield found

    def emit(self, op: str, inputs: Sequence[Tensor | None], shape: Shape, kind: TensorKind, /, **attrs: Any) -> Tensor:
        """A new node at this place; gives its result."""
        grid, dtype = (kind, kind.dtype) if isinstance(kind, Grid) else (None, kind)
        out = Tensor("", shape, dtype, grid)
        at = self._at
        source, scope = (at.source, at.scope) if at is not None else (None, "")
        node = Node(op, tuple(inputs), (out,), attrs, source, scope)
        self.nodes.append(node)
        self._made[out] = node
        return out

    def like(self, n: Node, op: str, inputs: Sequence[Tensor | None], **attrs: Any) -> Tensor:
        """A new node whose result is of the type of ``n``'s."""
        return self.emit(op, inputs, n.output.shape, n.output.kind, **attrs)

    def reshape(self, x: Tensor | None, shape: Shape) -> Tensor:
        """``x`` under another shape."""
        assert x is not None
        return self.emit("reshape", [x], shape, x.kind, shape=shape)

    def again(self, node: Node, inputs: Sequence[Tensor | None] | None = None, **attrs: Any) -> Tensor:
        """``node`` once more, with other operands or attributes; it stays the user's line that it was."""
        place = self._at
        self._at = node if node.source is not None else place
        t = self.like(node, node.op, node.inputs if inputs is None else inputs, **{**node.attrs, **attrs})
        self._at = place
        return t

    def run(self, rule: Callable[[Rewriter, Node], Tensor | None]) -> NpuGraph:
        """The graph after ``rule`` was asked at every node."""
        for old in self.graph.nodes:
            self._at = old
            inputs = tuple(None if t is None else self._taken.get(t, t) for t in old.inputs)
            node = old if inputs == old.inputs else replace(old, inputs=inputs)
            found = rule(self, node)
            if found is None:
                self.nodes.append(node)
                self._made.update((t, node) for t in node.outputs)
                continue
            self.changed = True
            self._taken[old.output] = found
            # Readers of the old result read the new one; this node's own reading of it ends.
            before = self._count.get(found, 0) - (found in node.inputs)
            self._count[found] = before + self._count.get(old.output, 0)
        outputs = [self._taken.get(t, t) for t in self.graph.outputs]
        return live(replace(self.graph, outputs=outputs, nodes=self.nodes))


def live(graph: NpuGraph) -> NpuGraph:
    """The graph without nodes that no result needs."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for n in reversed(graph.nodes):
        if not needed.isdisjoint(n.outputs):
            kept.append(n)
            needed.update(n.operands)
    return replace(graph, nodes=kept[::-1])


def fixpoint(graph: NpuGraph, rule: Callable[[Rewriter, Node], Tensor | None], rounds: int = 64) -> NpuGraph:
    """``rule`` at every node until it changes nothing."""
    for _ in range(rounds):
        rewriter = Rewriter(graph)
        graph = rewriter.run(rule)
        if not rewriter.changed:
            break
    return graph


def constant(data: NDArray, grid: Grid | None = None) -> Tensor:
    """A constant tensor without a name."""
    data = np.ascontiguousarray(data).reshape(data.shape)
    return Tensor("", data.shape, data.dtype, grid, data)


def number(t: Tensor | None) -> float | None:
    """The one real number that a constant consists of, or None."""
    if t is None or t.data is None or t.data.size != 1:
        return None
    data = t.data if t.grid is None else t.grid.dequantize(t.data)
    return float(data.reshape(()))


def is_number(t: Tensor | None, value: float) -> bool:
    """Whether a constant is a number: a whole one to the last bit, others as nearly as float32 holds them."""
    x = number(t)
    return x is not None and math.isclose(x, value, rel_tol=0 if isinstance(value, int) else CLOSE)


def split_constant(n: Node) -> tuple[Tensor, Tensor] | None:
    """The operands of a binary node as (computed, constant); None if not exactly one is constant."""
    x, y = n.inputs
    assert x is not None and y is not None
    if x.constant == y.constant:
        return None
    return (y, x) if x.constant else (x, y)
