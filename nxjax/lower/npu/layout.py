"""Transposes out of the way: a channels-first program becomes a channels-last graph.

Every tensor is kept as a *view*: a stored tensor and a permutation that has not been done yet. Ops that do not care
about the order of dimensions take stored tensors and pass the permutation on; ops that do care make it real, once.
Two permutations that undo one another meet as the identity and cost nothing; one that only moves sizes 1 is a reshape;
a reshape that cuts or joins neighbours goes through one. What a permutation meets last is a constant, if it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace.types import Shape

Perm = tuple[int, ...]

# One operand (the first), result of its shape; attributes say nothing about dimensions.
UNARY: Final = frozenset(
    (
        "logistic", "tanh", "relu", "relu6", "relu_n1_to_1", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs",
        "neg", "square", "sin", "cos", "floor", "ceil", "round", "sign", "logical_not", "leaky_relu", "gelu", "erf",
        "table", "quantize", "dequantize", "cast",
    )
)  # fmt: skip
# Operands that broadcast against each other.
BROADCASTING: Final = frozenset(
    (
        "add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow", "equal", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "select", "prelu",
    )
)  # fmt: skip
REDUCTIONS: Final = frozenset(("mean", "sum", "reduce_max", "reduce_min", "reduce_prod"))


@final
@dataclass(frozen=True)
class TransposedView:
    """``transpose(base, perm)``, not done."""

    base: Tensor
    perm: Perm

    @property
    def plain(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))


def inverse(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def composed(first: Sequence[int], second: Sequence[int]) -> Perm:
    """The permutation of ``transpose(transpose(x, first), second)``."""
    return tuple(first[i] for i in second)


def trivial(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether a transpose only moves dimensions of size 1."""
    kept = [i for i in perm if shape[i] != 1]
    return kept == sorted(kept)


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
        if n.op == "transpose" and not trivial(_first(n).shape, n.attrs["permutation"])
    )


def _first(n: Node) -> Tensor:
    t = n.inputs[0]
    assert t is not None
    return t


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
        made = {t: n for n in g.nodes for t in n.outputs}
        outputs: list[Tensor] = []
        for t in g.outputs:
            # What brings a result into the user's order belongs to the line that makes the result.
            self.node = made.get(t)
            outputs.append(self.real(self.view(t)))
        return NpuGraph(g.name, g.inputs, outputs, self.nodes, g.rounding)

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
        self.nodes.append(Node(n.op, inputs, n.outputs, n.attrs, n.source, n.scope, n.name))

    # --- nodes that pass a permutation on ---

    def _pass(self, n: Node) -> bool:
        """Lower ``n`` on stored tensors if it lets a permutation through."""
        v = self.view(_first(n))
        if n.op == "transpose":
            self.views[n.output] = TransposedView(v.base, composed(v.perm, n.attrs["permutation"]))
            return True
        if n.op == "reshape":
            return self._reshape(n, v)
        if n.op in BROADCASTING or n.op == "concatenation":
            return self._together(n)
        if n.op == "batch_matmul":
            return self._matmul(n)
        if v.plain or v.base.constant:
            return False
        p = v.perm
        if n.op in UNARY:
            self._emit(n, [v.base], p, n.attrs)
        elif n.op in REDUCTIONS:
            self._reduce(n, v, tuple(sorted(p[a] for a in n.attrs["axes"])), {"keepdims": n.attrs["keepdims"]})
        elif n.op in ("softmax", "log_softmax", "fully_connected"):
            if p[-1] != len(p) - 1:
                return False
            rest = [None if t is None else self.real(self.view(t)) for t in n.inputs[1:]]
            self._emit(n, [v.base, *rest], p, n.attrs)
        elif n.op == "pad":
            self._emit(n, [v.base], p, {**n.attrs, "padding": _back(n.attrs["padding"], p)})
        elif n.op in ("slice", "strided_slice"):
            self._emit(n, [v.base], p, {k: _back(a, p) for k, a in n.attrs.items()})
        elif n.op == "broadcast_to":
            self._emit(n, [v.base], p, {"shape": _back(n.attrs["shape"], p)})
        elif n.op == "tile":
            self._emit(n, [v.base], p, {"multiples": _back(n.attrs["multiples"], p)})
        elif n.op == "reverse":
            self._emit(n, [v.base], p, {"axes": tuple(sorted(p[a] for a in n.attrs["axes"]))})
        elif n.op in ("cumsum", "split"):
            self._emit(n, [v.base], p, {**n.attrs, "axis": p[n.attrs["axis"]]})
        elif n.op in ("argmax", "argmin"):
            self._arg(n, v)
        elif n.op == "gather" and len(n.inputs[1].shape if n.inputs[1] else ()) == 1:
            indices = self.real(self.view(n.inputs[1]))  # pyright: ignore[reportArgumentType]
            self._emit(n, [v.base, indices], p, {"axis": p[n.attrs["axis"]]})
        else:
            return False
        return True

    def _emit(self, n: Node, inputs: Sequence[Tensor | None], perm: Perm, attrs: dict[str, Any]) -> None:
        """``n`` on stored tensors; its results are views by ``perm``."""
        outputs: list[Tensor] = []
        for t in n.outputs:
            stored = Tensor(t.name, _back(t.shape, perm), t.dtype, t.grid)
            self.views[t] = TransposedView(stored, perm)
            outputs.append(stored)
        self.nodes.append(Node(n.op, tuple(inputs), tuple(outputs), attrs, n.source, n.scope, n.name))

    def _reduce(self, n: Node, v: TransposedView, axes: tuple[int, ...], attrs: dict[str, Any]) -> None:
        if attrs["keepdims"]:
            self._emit(n, [v.base], v.perm, {"axes": axes, **attrs})
            return
        left = [i for i in range(len(v.perm)) if i not in axes]
        perm = tuple(left.index(i) for i in v.perm if i in left)
        self._emit(n, [v.base], perm, {"axes": axes, **attrs})

    def _arg(self, n: Node, v: TransposedView) -> None:
        axis = v.perm[n.attrs["axis"]]
        left = [i for i in range(len(v.perm)) if i != axis]
        self._emit(n, [v.base], tuple(left.index(i) for i in v.perm if i != axis), {"axis": axis})

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
        attrs = {"axis": best[n.attrs["axis"]]} if n.op == "concatenation" else n.attrs
        self._emit(n, inputs, best, attrs)
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

    def _matmul(self, n: Node) -> bool:
        """A swap of the last two dimensions is a flag of the product."""
        attrs, inputs, changed = dict(n.attrs), list[Tensor | None](), False
        for t, flag in zip(n.inputs, ("adj_x", "adj_y"), strict=True):
            assert t is not None
            v = self.view(t)
            k = len(v.perm)
            if v.perm == (*range(k - 2), k - 1, k - 2):
                attrs[flag] = not attrs.get(flag, False)
                inputs.append(v.base)
                changed = True
            else:
                inputs.append(self.real(v))
        if changed:
            self.nodes.append(Node(n.op, tuple(inputs), n.outputs, attrs, n.source, n.scope, n.name))
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


def _back(values: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    """Entries per dimension of the view as entries per dimension of the stored tensor."""
    return tuple(values[i] for i in inverse(perm))


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
