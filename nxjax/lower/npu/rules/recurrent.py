"""The rule of loops that are recurrent layers: one node per layer, for formats that have such operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.blocks import recovered
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops import OPS
from nxjax.lower.npu.ops.recurrent import NpuRecurrent
from nxjax.lower.npu.recurrent.cells import Cell, Gate
from nxjax.lower.npu.recurrent.loops import LoopLayers, layers_of
from nxjax.lower.passes.fold import KEPT
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.vmap import batch_program

Values = Sequence[LogicalTensor]
# A product in front of a loop is looked for through so many nodes.
_NODES: Final = 8
# As many as a row has.
_ANY: Final = 1 << 62


def layers(b: GraphBuilder, out: Sequence[ArrayType], xs: Values, loop: LoopParams) -> Values | None:
    """The results of a loop that is made of layers that the format has; None if it is another."""
    if not b.recurrent:
        return None
    operands = loop.split(xs)
    consts = [None if x.known is None else x.known.full for x in operands.consts]
    found = layers_of(loop, [ArrayType(x.shape, x.dtype) for x in xs], consts)
    if found is None or any(
        c.op not in b.recurrent or not any(g.inputs for g in c.gates.values()) for c in found.cells
    ):
        return None
    kinds = _stored(loop, operands.consts)
    if kinds and any(recovered(m, kinds) is None for c in found.cells for m in _matrices(c)):
        return None
    rows: dict[int, _Row] = {}
    results: list[LogicalTensor] = []
    carry = {i: operands.carry[i] for i in found.kept}
    for cell in found.cells:
        sources = {i for gate in cell.gates.values() for i in gate.inputs}
        for i in sources:
            if i not in rows:
                rows[i] = _row(b, results[~i] if i < 0 else operands.xs[i])
        ys, *states = _node(b, cell, rows, [operands.carry[i] for i in cell.states], loop, kinds)
        results.append(ys)
        carry.update(zip(cell.states, states, strict=True))
    made = iter(_rest(b, found, operands.consts, operands.carry, operands.xs, results, loop))
    further = [next(made) if n is None else results[n] for n in found.results]
    return [*(carry[i] for i in range(loop.num_carry)), *further]


def _stored(loop: LoopParams, consts: Values) -> list[tuple[DType, int]]:
    """The dtypes in which a loop's weights are stored, each with how many numbers have a scale; none if it has floats.

    Between the weights and the layer is arithmetic: the layer's matrices are asked whether they are on such grids.
    """
    found: dict[tuple[DType, int], None] = {}
    for e in loop.body.equations:
        if e.op.name in KEPT and e.params["dtype"] in (dtypes.int4, dtypes.int8):
            w, scale = (a.type for a in e.inputs)
            found[e.params["dtype"], max(w.size // max(scale.size, 1), 1)] = None
    for x in consts:
        if x.blocks is not None:
            found[x.blocks.dtype, max(x.full().size // x.blocks.scales.size, 1)] = None
        elif x.grid is not None and x.grid.axis is not None:
            found[x.grid.dtype, max(x.full().size // np.size(x.grid.scale), 1)] = None
    # Matrices of several parts have rows of several lengths.
    return [*found, *((dtype, _ANY) for dtype in dict.fromkeys(dtype for dtype, _ in found))]


def _matrices(cell: Cell) -> list[NDArray]:
    gates = list(cell.gates.values())
    found = [m for g in gates for m in (*g.inputs.values(), g.state, g.before) if m is not None]
    return [m.astype(np.float32) for m in found]


def _rest(
    b: GraphBuilder, found: LoopLayers, consts: Values, carry: Values, xs: Values, results: Values, loop: LoopParams
) -> Values:
    """What is left of the steps, for all of them at once."""
    if found.rest is None:
        return []
    every = {"const": consts, "kept": carry, "row": xs, "cell": results}
    operands = [every[kind][i] for kind, i in found.sources]
    size = loop.length or 0
    dims = tuple(kind in ("row", "cell") for kind, _ in found.sources)
    program, _ = batch_program(found.rest, size, dims, (True,) * len(found.rest.outputs))
    return b.program(program, operands)


@final
@dataclass(frozen=True)
class _Row:
    """What a loop reads, [steps, batch, features], and the ``source`` of which it is a product and a bias, if any."""

    x: LogicalTensor
    source: LogicalTensor | None = None
    matrix: NDArray | None = None
    bias: NDArray | None = None


def _row(b: GraphBuilder, x: LogicalTensor) -> _Row:
    """What a loop reads, and the product in front of the loop that makes it, if one does."""
    x = b.real(b.full(x))
    made = {t: n for n in b.nodes for t in n.outputs}
    flat = _flat(b, x)
    y, way = x.tensor, list[Node]()
    bias = np.zeros(x.shape[-1])
    while y in made and len(way) < _NODES:
        n = made[y]
        if n.op == "fully_connected":
            source, w, own = n.inputs
            plain = n.attrs["activation"] is None and not n.attrs["dynamic"]
            if (
                not plain
                or source is None
                or w is None
                or w.data is None
                or any(t.grid is not None for t in n.operands)
            ):
                break
            if own is not None and own.data is None:
                break
            bias = bias if own is None or own.data is None else bias + own.data
            return _Row(flat, _again(b, source, way, x.shape), w.data.astype(np.float64), bias)
        inner = _through(n, y)
        if inner is None:
            break
        if n.op == "add":
            bias = bias + _number_row(n, inner)
        else:
            way.append(n)
        y = inner
    return _Row(flat)


def _through(n: Node, y: Tensor) -> Tensor | None:
    """The operand of a node that adds a bias, or moves rows as they are."""
    x = n.inputs[0]
    if n.op == "add" and n.attrs["activation"] is None and y.grid is None:
        pair = [(a, c) for a, c in (n.inputs, n.inputs[::-1]) if a is not None and c is not None and c.constant]
        found = next((a for a, c in pair if a.shape == y.shape and c.size in (1, c.shape[-1:] and c.shape[-1])), None)
        return found
    if x is None or not x.shape or x.shape[-1] != y.shape[-1] or x.grid is not None:
        return None
    last = len(x.shape) - 1
    if n.op == "transpose":
        return x if n.attrs["permutation"][-1] == last else None
    if n.op == "reverse":
        return x if last not in n.attrs["axes"] else None
    return x if n.op == "reshape" else None


def _number_row(n: Node, x: Tensor) -> NDArray:
    (c,) = (t for t in n.operands if t is not x)
    assert c.data is not None
    return c.data.reshape(-1).astype(np.float64)


def _again(b: GraphBuilder, source: Tensor, way: Sequence[Node], shape: Sequence[int]) -> LogicalTensor:
    """The operand of a product, moved as its result is: [steps, batch, features]."""
    x = LogicalTensor(source.shape, source)
    for n in reversed(way):
        if n.op == "transpose":
            x = b.transpose(x, n.attrs["permutation"])
        elif n.op == "reverse":
            x = b.emit("reverse", [x], x.shape, x.kind, **n.attrs)
        else:
            x = b.reshape(x, (*n.output.shape[:-1], x.shape[-1]))
    return _flat(b, b.reshape(x, (*shape[:-1], x.shape[-1])))


def _flat(b: GraphBuilder, x: LogicalTensor) -> LogicalTensor:
    steps, *rest = x.shape
    features = rest.pop()
    return b.full(b.reshape(x, (steps, int(np.prod(rest, dtype=np.int64)), features)))


def _node(
    b: GraphBuilder,
    cell: Cell,
    rows: dict[int, _Row],
    states: Values,
    loop: LoopParams,
    kinds: Sequence[tuple[DType, int]],
) -> list[LogicalTensor]:
    """The results of all steps, as the loop has them, and the states; weights are stored as one of ``kinds``."""
    op = OPS[cell.op]
    assert isinstance(op, NpuRecurrent)
    gates = [cell.gates[name] for name in op.gates]
    x, w, bias = _inputs(b, gates, rows)
    attrs: dict[str, object] = {"reverse": loop.reverse}
    parts = [bias]
    if cell.op == "gru":
        through = cell.gates.get("through")
        attrs["reset_after"] = through is not None
        parts.append(np.zeros(gates[-1].width) if through is None else through.bias)
        last = through.state if through is not None else gates[-1].before
        assert last is not None
        matrices = [*(g.state for g in gates[:-1]), last]
    else:
        matrices = [g.state for g in gates]
    if cell.function:
        attrs["function"] = cell.function
    single = lambda array: b.constant(array.astype(np.float32))
    shape = states[0].shape
    flat = [b.full(b.reshape(b.real(s), (x.shape[1], shape[-1]))) for s in states]
    stored = lambda m: b.real(LogicalTensor(m.shape, data=m, blocks=recovered(m, kinds)))
    weights = [stored(m.astype(np.float32)) for m in (w, np.concatenate(matrices))]
    operands = [x, *weights, single(np.concatenate(parts)), *flat]
    rows_shape = (*x.shape[:2], shape[-1])
    made = b.emit_many(cell.op, operands, [rows_shape, *(s.shape for s in flat)], dtypes.float32, **attrs)
    length = rows_shape[0]
    return [b.reshape(y, s) for y, s in zip(made, [(length, *shape), *(shape for _ in flat)], strict=True)]


def _inputs(b: GraphBuilder, gates: Sequence[Gate], rows: dict[int, _Row]) -> tuple[LogicalTensor, NDArray, NDArray]:
    """What a layer reads as one value, and the matrix and bias of it for all gates."""
    blocks: dict[Any, tuple[LogicalTensor, list[NDArray]]] = {}
    biases = [g.bias for g in gates]
    for i in sorted({i for g in gates for i in g.inputs}):
        row, x = rows[i], rows[i].x
        matrices = [g.inputs.get(i, np.zeros((g.width, x.shape[-1]))) for g in gates]
        # Gates that only choose from the result of a product take it in; it stays where one multiplies that again.
        if row.source is not None and row.matrix is not None and all(map(_chooses, matrices)):
            biases = [
                bias if row.bias is None else bias + m @ row.bias for bias, m in zip(biases, matrices, strict=True)
            ]
            x, matrices = row.source, [m @ row.matrix for m in matrices]
        _, before = blocks.get(x.tensor or i, (x, [np.zeros_like(m) for m in matrices]))
        blocks[x.tensor or i] = x, [p + q for p, q in zip(before, matrices, strict=True)]
    matrix = [np.concatenate(parts, 1) for parts in zip(*(m for _, m in blocks.values()), strict=True)]
    return b.concatenate([x for x, _ in blocks.values()], 2), np.concatenate(matrix), np.concatenate(biases)


def _chooses(matrix: NDArray) -> bool:
    """Whether each row has one 1 or -1 at most, and else 0: sums stay as they are."""
    sizes = np.abs(matrix)
    return bool(np.all((sizes == 0) | (sizes == 1)) and np.all(sizes.sum(1) <= 1))
