"""Transposes out of the way: a channels-first program becomes a channels-last graph.

Every tensor is kept as a *view*: a stored tensor and a permutation that has not been done yet. Ops that do not care
about the order of dimensions take stored tensors and pass the permutation on; ops that do care make it real, once.
Two permutations that undo one another meet as the identity and cost nothing; one that only moves sizes 1 is a reshape;
a reshape that cuts or joins neighbours goes through one. What a permutation meets last is a constant, if it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.permutation import Perm, back, composed, inverse, trivial
from nxjax.ops.quant_grid import Grid
from nxjax.trace.types import Shape


@final
@dataclass(frozen=True)
class TransposedView:
    """``transpose(base, perm)``, not done."""

    base: Tensor
    perm: Perm

    @property
    def plain(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))


def transposed_constant(t: Tensor, perm: Sequence[int]) -> Tensor:
    """A constant with its data moved."""
    assert t.data is not None
    grid = t.grid
    if grid is not None and grid.axis is not None:
        grid = Grid(grid.dtype, grid.scale, 0, list(perm).index(grid.axis))
    data = np.asarray(t.data.transpose(perm), order="C")
    return Tensor(t.name, data.shape, t.dtype, grid, data)


def channels_last(graph: NpuGraph) -> NpuGraph:
    """``graph`` with transposes pushed towards its results and cancelled; unchanged if that would cost more."""
    moved = _Pusher(graph).run()
    return moved if cost(moved) <= cost(graph) else graph


def cost(graph: NpuGraph) -> int:
    """Elements that transposes move."""
    return sum(
        n.output.size
        for n in graph.nodes
        if n.op == "transpose" and not trivial(n.operand().shape, n.attrs["permutation"])
    )


@final
class _Pusher:
    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.views: dict[Tensor, TransposedView] = {}
        self.nodes: list[Node] = []
        self.done: dict[tuple[Tensor, Perm], Tensor] = {}
        self.node: Node | None = None

    def run(self) -> NpuGraph:
        g = self.graph
        for n in g.nodes:
            self.node = n
            for t in n.operands:
                self.view(t)
            if not self._pass(n):
                self._keep(n)
        made = g.producers()
        outputs: list[Tensor] = []
        for t in g.outputs:
            # What brings a result into the user's order belongs to the line that makes the result.
            self.node = made.get(t)
            outputs.append(self.real(self.view(t)))
        return replace(g, outputs=outputs, nodes=self.nodes)

    def view(self, t: Tensor) -> TransposedView:
        found = self.views.get(t)
        if found is None:
            found = self.views[t] = TransposedView(t, tuple(range(len(t.shape))))
        return found

    def real(self, v: TransposedView) -> Tensor:
        """The view as a tensor: the transpose is done, once per tensor and permutation."""
        if v.plain:
            return v.base
        if v.base.constant:
            return self._constant(v.base, v.perm)
        found = self.done.get((v.base, v.perm))
        if found is None:
            shape = tuple(v.base.shape[i] for i in v.perm)
            found = Tensor("", shape, v.base.dtype, v.base.grid)
            if trivial(v.base.shape, v.perm):
                self._add("reshape", (v.base,), (found,), {"shape": shape})
            else:
                self._add("transpose", (v.base,), (found,), {"permutation": v.perm})
            self.done[v.base, v.perm] = found
        return found

    def _constant(self, t: Tensor, perm: Perm) -> Tensor:
        found = self.done.get((t, perm))
        if found is None:
            found = self.done[t, perm] = transposed_constant(t, perm)
        return found

    def _add(self, op: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], attrs: dict[str, Any]) -> None:
        n = self.node
        source, scope = (n.source, n.scope) if n is not None else (None, "")
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), attrs, source, scope))

    def _keep(self, n: Node) -> None:
        """The node as it is, on real operands."""
        inputs = tuple(None if t is None else self.real(self.view(t)) for t in n.inputs)
        self.nodes.append(replace(n, inputs=inputs))

    # --- nodes that pass a permutation on ---

    def _pass(self, n: Node) -> bool:
        """Lower ``n`` on stored tensors if it lets a permutation through."""
        v = self.view(n.operand())
        if n.op == "transpose":
            self.views[n.output] = TransposedView(v.base, composed(v.perm, n.attrs["permutation"]))
            return True
        if n.op == "reshape":
            return self._reshape(n, v)
        op = op_of(n)
        if op.together:
            return self._together(n)
        if op.swaps:
            return self._swapped(n, op.swaps)
        found = None if v.plain or v.base.constant else op.under(n, v.perm)
        if found is None:
            return False
        rest = [None if t is None else self.real(self.view(t)) for t in n.inputs[1:]]
        self._emit(n, [v.base, *rest], found[1], found[0])
        return True

    def _emit(self, n: Node, inputs: Sequence[Tensor | None], perm: Perm, attrs: dict[str, Any]) -> None:
        """``n`` on stored tensors; its results are views by ``perm``."""
        outputs: list[Tensor] = []
        for t in n.outputs:
            stored = Tensor(t.name, back(t.shape, perm), t.dtype, t.grid)
            self.views[t] = TransposedView(stored, perm)
            outputs.append(stored)
        self.nodes.append(replace(n, inputs=tuple(inputs), outputs=tuple(outputs), attrs=attrs))

    def _together(self, n: Node) -> bool:
        """Operands brought under the one permutation that costs least."""
        rank = len(n.output.shape)
        views = [self.view(t) for t in n.operands]
        plain = tuple(range(rank))
        wanted = [v.perm for v in views if not v.plain and not v.base.constant]
        if not wanted:
            return False
        choices = list(dict.fromkeys([*wanted, plain]))
        best = min(choices, key=lambda p: sum(self._price(v, p) for v in views))
        if best == plain:
            return False
        inputs = [None if t is None else self._under(self.view(t), best) for t in n.inputs]
        found = op_of(n).under(n, best)
        if found is None:
            return False
        self._emit(n, inputs, found[1], found[0])
        return True

    def _needed(self, v: TransposedView, perm: Perm) -> TransposedView:
        """The view that has to be real for ``v`` to be used under ``perm``."""
        return TransposedView(v.base, composed(v.perm, inverse(perm)))

    def _price(self, v: TransposedView, perm: Perm) -> int:
        """Elements moved to use ``v`` under ``perm``."""
        if not v.perm or v.base.constant:
            return 0
        w = self._needed(v, perm)
        if w.plain or trivial(w.base.shape, w.perm) or (w.base, w.perm) in self.done:
            return 0
        return w.base.size

    def _under(self, v: TransposedView, perm: Perm) -> Tensor:
        return v.base if not v.perm else self.real(self._needed(v, perm))

    def _swapped(self, n: Node, flags: Sequence[str]) -> bool:
        """A swap of an operand's last two dimensions is a flag of the op."""
        attrs, inputs, changed = dict(n.attrs), list[Tensor | None](), False
        for t, flag in zip(n.inputs, flags, strict=True):
            assert t is not None
            v = self.view(t)
            k = len(v.perm)
            if v.perm == (*range(k - 2), k - 1, k - 2):
                attrs[flag] = not attrs[flag]
                inputs.append(v.base)
                changed = True
            else:
                inputs.append(self.real(v))
        if changed:
            self.nodes.append(replace(n, inputs=tuple(inputs), attrs=attrs))
        return changed

    def _reshape(self, n: Node, v: TransposedView) -> bool:
        if v.plain or v.base.constant:
            return False
        through = reshape_through(v.base.shape, v.perm, n.output.shape)
        if through is None:
            return False
        shape, perm = through
        if shape == v.base.shape:
            self.views[n.output] = TransposedView(v.base, perm)
        else:
            self._emit(n, [v.base], perm, {"shape": shape})
        return True


def reshape_through(stored: Shape, perm: Perm, new: Shape) -> tuple[Shape, Perm] | None:
    """``reshape(transpose(x, perm), new)`` as ``transpose(reshape(x, shape), order)``; None if it cannot be.

    It can where the reshape cuts one dimension, or joins dimensions that also lie beside each other in the store.

    >>> reshape_through((1, 4, 4, 8), (0, 3, 1, 2), (1, 8, 16))
    ((1, 16, 8), (0, 2, 1))
    """
    # Dimensions of size 1 lie anywhere: they are left out, and put back where the result has them.
    view = [i for i in perm if stored[i] != 1]
    result = [d for d, n in enumerate(new) if n != 1]
    runs = _segments([stored[i] for i in view], [new[d] for d in result])
    if runs is None:
        return None
    placed: list[tuple[int, list[int]]] = []
    for old_run, new_run in runs:
        dims = [view[i] for i in old_run]
        between = (i for i in range(min(dims), max(dims)) if stored[i] != 1)
        if dims != sorted(dims) or any(i not in dims for i in between):
            return None
        placed.append((dims[0], [result[i] for i in new_run]))
    order = [d for _, run in sorted(placed) for d in run]
    for d, n in enumerate(new):
        if n == 1:
            # Behind its neighbour, so that what repeats there later still lies beside it.
            order.insert(order.index(d - 1) + 1 if d else 0, d)
    return tuple(new[d] for d in order), inverse(order)


def _segments(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The shortest runs of dimensions of equal size, [(of old, of new)]; all sizes are above 1."""
    if math.prod(old) != math.prod(new):
        return None
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old):
        a, c = [i], [j]
        size_a, size_c = old[i], new[j]
        while size_a != size_c:
            if size_a < size_c:
                a.append(a[-1] + 1)
                size_a *= old[a[-1]]
            else:
                c.append(c[-1] + 1)
                size_c *= new[c[-1]]
        runs.append((a, c))
        i, j = a[-1] + 1, c[-1] + 1
    return runs
