"""Passes over graphs in their order: tidy, recognize, lay out, fuse, name.

Holds the small clean-ups itself; layouts, patterns and fusions have files of their own.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from nxjax.lower.npu.fuse import fused, settled
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.hybrid import rows_settled
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.layout import channels_last
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.ops.elementwise import NpuElementwise
from nxjax.lower.npu.ops.products import NpuProduct
from nxjax.lower.npu.permutation import trivial
from nxjax.lower.npu.recognize import enlarged, recognized
from nxjax.lower.npu.rewrite import Rewriter, constant, fixpoint, live
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

# What one pass leaves may be what another looks for; this often is enough for all of them.
ROUNDS: Final = 8


def simplified(graph: NpuGraph, io: Literal["float", "integer"] = "float", format: str = "") -> NpuGraph:
    """The graph as targets of a file format want it; checked."""
    # Enlargements first: tidying runs the reshapes between two of them together.
    graph = tidied(fixpoint(pooled(live(graph)), enlarged))
    graph = tidied(channels_last(graph))
    for _ in range(ROUNDS):
        before = len(graph.nodes)
        graph = tidied(fixpoint(graph, recognized))
        graph = tidied(fixpoint(graph, fused))
        graph = tidied(channels_last(graph))
        if len(graph.nodes) == before:
            break
    graph = tidied(fixpoint(fixpoint(graph, settled), computed))
    graph = tidied(rows_settled(graph, format))
    graph = tidied(with_bytes_on_grids(graph))
    if io == "integer":
        graph = with_integer_ends(graph)
    return named(pooled(graph)).check()


def pooled(graph: NpuGraph) -> NpuGraph:
    """Constants of one type and content are one tensor, as the weights are that all steps of a loop read.

    Every format writes a tensor once, so this is what keeps a file from growing with the steps that are written out.

    >>> x, a, b, y, z = (Tensor(name, (2,), "float32") for name in "xabyz")
    >>> a.data, b.data = np.ones(2, np.float32), np.ones(2, np.float32)
    >>> graph = pooled(NpuGraph("g", [x], [z], [Node("mul", (x, a), (y,)), Node("mul", (y, b), (z,))]))
    >>> [t.name for t in graph.constants()]
    ['a']
    """
    first: dict[Any, Tensor] = {}
    taken: dict[Tensor, Tensor] = {}
    for t in graph.constants():
        assert t.data is not None
        content = hashlib.blake2b(np.ascontiguousarray(t.data).tobytes(), digest_size=16).digest()
        taken[t] = first.setdefault((t.shape, t.dtype, t.grid, content), t)
    same = lambda t: None if t is None else taken.get(t, t)
    nodes = [replace(n, inputs=tuple(map(same, n.inputs))) for n in graph.nodes]
    return replace(graph, nodes=nodes, outputs=[taken.get(t, t) for t in graph.outputs])


def tidied(graph: NpuGraph) -> NpuGraph:
    """Without nodes that do nothing, that do what another did, or whose result nothing reads."""
    return fixpoint(merged(live(graph)), _tidy)


def _tidy(r: Rewriter, n: Node) -> Tensor | None:
    x = n.inputs[0] if n.inputs else None
    if x is None or len(n.outputs) != 1:
        return None
    out = n.output
    if (x.shape, x.dtype, x.grid) == (out.shape, out.dtype, out.grid) and op_of(n).idle(n):
        return x
    if n.op == "transpose" and trivial(x.shape, n.attrs["permutation"]):
        return r.reshape(x, out.shape)
    if n.op == "reshape":
        inner = r.producer(x, "reshape")
        if inner is not None:
            return r.reshape(inner.inputs[0], out.shape)
    if n.op == "quantize":
        inner = r.producer(x, "dequantize")
        stored = inner.inputs[0] if inner is not None else None
        if stored is not None and stored.grid is not None and out.grid is not None:
            if stored.grid == out.grid:
                return stored
            if not stored.constant and stored.grid.scale == out.grid.scale:
                # Zero points alone differ: integers take the same steps as reals.
                return r.emit("quantize", [stored], out.shape, out.grid)
    return None


def computed(r: Rewriter, n: Node) -> Tensor | None:
    """The product of constants, and what floats of constants give: the first step of a loop begins with such ones.

    Weights on a grid stay as they are stored. Intel's CPU plugin refuses their product with a constant.
    """
    behind = [chain for t in n.operands if (chain := _off_grid(r, t))]
    known = [t.constant and t.grid is None for t in n.operands]
    op = op_of(n)
    if not known or len(behind) + sum(known) < len(known) or not isinstance(op, (NpuProduct, NpuElementwise)):
        return None
    if n.output in r.graph.outputs or n.output.grid is not None:
        return None
    if not isinstance(op, NpuProduct) and (behind or n.output.size > max(t.size for t in n.operands)):
        return None
    alone = NpuGraph("constants", [], [n.output], [*dict.fromkeys(d for chain in behind for d in chain), n])
    return constant(interpret(alone, [])[0])


def _off_grid(r: Rewriter, t: Tensor) -> list[Node]:
    """The nodes that say what a constant on a grid means, and under which shape; none if ``t`` is something else."""
    shaped = r.producer(t, "reshape")
    off = r.producer(t if shaped is None else shaped.inputs[0], "dequantize")
    if off is None or off.inputs[0] is None or not off.inputs[0].constant:
        return []
    return [off] if shaped is None else [off, shaped]


def merged(graph: NpuGraph) -> NpuGraph:
    """Equal nodes on equal operands become one."""
    seen: dict[Any, Tensor] = {}

    def rule(r: Rewriter, n: Node) -> Tensor | None:
        if len(n.outputs) != 1:
            return None
        attrs = tuple(sorted((k, v) for k, v in n.attrs.items()))
        key = (n.op, tuple(map(_identity, n.inputs)), attrs, n.output.dtype, n.output.grid)
        first = seen.setdefault(key, n.output)
        return None if first is n.output else first

    return Rewriter(graph).run(rule)


def _identity(t: Tensor | None) -> Any:
    """What makes an operand the same as another: being it, or for small constants being equal."""
    if t is None or t.data is None or t.nbytes > 1024:
        return id(t)
    return (t.shape, t.dtype, t.grid, t.data.tobytes())


def with_bytes_on_grids(graph: NpuGraph) -> NpuGraph:
    """Inputs of 8 bits that are only cast to float32, as pictures are, lie on the grid of scale 1.

    So the cast is a step off the grid, which every NPU has, and nothing at all before a grid of the same scale.
    """
    uses = graph.uses()
    inputs = list(graph.inputs)
    swapped: dict[Tensor, Tensor] = {}
    for i, t in enumerate(inputs):
        readers = uses.get(t, [])
        casts = all(n.op == "cast" and n.output.dtype == dtypes.float32 for n in readers)
        if t.grid is None and t.dtype in (dtypes.uint8, dtypes.int8) and readers and casts and t not in graph.outputs:
            inputs[i] = swapped[t] = Tensor(t.name, t.shape, t.dtype, Grid(t.dtype, 1.0))
    if not swapped:
        return graph
    off = lambda n: n.op == "cast" and n.operand() in swapped
    made = (replace(n, op="dequantize", inputs=(swapped[n.operand()],), attrs={}) if off(n) else n for n in graph)
    return replace(graph, inputs=inputs, nodes=list(made))


def with_integer_ends(graph: NpuGraph) -> NpuGraph:
    """Inputs that are only quantized come as integers, results that only come off a grid leave as such."""
    uses = graph.uses()
    made = graph.producers()
    swapped: dict[Tensor, Tensor] = {}
    gone: set[int] = set()
    inputs: list[Tensor] = []
    for t in graph.inputs:
        readers = uses.get(t, [])
        if len(readers) == 1 and readers[0].op == "quantize" and t.grid is None and t not in graph.outputs:
            q = readers[0].output
            swapped[q] = Tensor("", t.shape, q.dtype, q.grid)
            gone.add(id(readers[0]))
            t = swapped[q]
        inputs.append(t)
    outputs: list[Tensor] = []
    for t in graph.outputs:
        n = made.get(t)
        inner = n.inputs[0] if n is not None and n.op == "dequantize" else None
        t = t if inner is None or inner.constant else inner
        outputs.append(swapped.get(t, t))
    taken = lambda t: None if t is None else swapped.get(t, t)
    nodes = [replace(n, inputs=tuple(map(taken, n.inputs))) for n in graph.nodes if id(n) not in gone]
    return live(replace(graph, inputs=inputs, outputs=outputs, nodes=nodes))


def named(graph: NpuGraph) -> NpuGraph:
    """Names for nodes (``conv_2d_3``), their results, constants (``conv_2d_3/weights``) and inputs (``input_0``)."""
    for i, t in enumerate(graph.inputs):
        t.name = f"input_{i}"
    known = set(graph.inputs)
    count: dict[str, int] = {}
    for n in graph.nodes:
        k = count.get(n.op, 0)
        count[n.op] = k + 1
        n.name = f"{n.op}_{k}"
        roles = op_of(n).roles
        for i, t in enumerate(n.inputs):
            if t is not None and t.constant and t not in known:
                t.name = f"{n.name}/{roles[i] if i < len(roles) else i}"
                known.add(t)
        for i, t in enumerate(n.outputs):
            t.name = n.name if len(n.outputs) == 1 else f"{n.name}:{i}"
    for i, t in enumerate(graph.outputs):
        if t.constant and t not in known:
            t.name = f"output_{i}"
            known.add(t)
    return graph
