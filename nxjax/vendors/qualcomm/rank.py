"""Elementwise nodes and concatenations of five dimensions, in four or three: Qualcomm's compiler gets five wrong.

Seen with QNN 2.51 (onnxruntime-qnn 2.7.0) on its simulator: a requantized logistic function that is concatenated gives
wrong values, a sum with a constant behind a reshape ends the process, a requantized hard swish is refused; each in
five dimensions only. None of these ops cares how elements are counted, so leading dimensions are merged around them.
Reshapes move nothing, and where such nodes follow each other there is one before the first and one behind the last.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.rewrite import live
from nxjax.trace.types import Shape

# So many dimensions are merged into fewer.
TOO_MANY: Final = 5
ELEMENTWISE: Final = frozenset(
    (
        "add", "sub", "mul", "div", "maximum", "minimum", "squared_difference", "pow", "equal", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not", "logistic", "tanh",
        "relu", "relu6", "relu_n1_to_1", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square",
        "sin", "cos", "floor", "ceil", "round", "sign", "leaky_relu", "prelu", "gelu", "erf", "table", "select",
        "quantize", "cast", "dequantize",
    )
)  # fmt: skip


def merged(graph: NpuGraph) -> tuple[NpuGraph, dict[Node, Node]]:
    """The graph with fewer dimensions where that changes nothing, and the node behind each of its nodes."""
    origin: dict[Node, Node] = {}
    known: dict[tuple[Tensor, Shape], Tensor] = {}
    made: dict[Tensor, Tensor] = {}

    def fewer(n: Node, t: Tensor, shape: Shape) -> Tensor:
        """``t`` in ``shape``."""
        if t.shape == shape:
            return t
        if (t, shape) not in known:
            data = None if t.data is None else t.data.reshape(shape)
            y = Tensor(f"{t.name}/{'x'.join(map(str, shape))}", shape, t.dtype, t.grid, data)
            if data is None:
                name = f"{y.name}/reshape"
                origin[Node("reshape", (made.get(t, t),), (y,), {"shape": shape}, n.source, n.scope, name)] = n
            known[t, shape] = y
        return known[t, shape]

    for n in graph.nodes:
        shapes = _shapes(n)
        if shapes is None:
            origin[n] = n
            continue
        *wanted, to = shapes
        old = n.output
        y = Tensor(f"{old.name}/{'x'.join(map(str, to))}", to, old.dtype, old.grid)
        inputs = tuple(fewer(n, t, s) for t, s in zip(n.operands, wanted, strict=True))
        attrs = {**n.attrs, "axis": 1} if n.op == "concatenation" else n.attrs
        origin[replace(n, inputs=inputs, outputs=(y,), attrs=attrs)] = n
        known[old, to] = made[old] = y
        back = Node("reshape", (y,), (old,), {"shape": old.shape}, n.source, n.scope, f"{old.name}/whole")
        origin[back] = n
    found = live(NpuGraph(graph.name, graph.inputs, graph.outputs, list(origin), graph.rounding))
    return found, {n: origin[n] for n in found.nodes}


def _shapes(n: Node) -> list[Shape] | None:
    """Shapes for the operands and the result, in which the node means the same; None if it is left alone."""
    if len(n.outputs) != 1 or len(n.output.shape) < TOO_MANY or len(n.operands) != len(n.inputs):
        return None
    to = n.output.shape
    if n.op == "concatenation":
        axis = int(n.attrs["axis"]) % len(to)
        return [
            (math.prod(t.shape[:axis]), t.shape[axis], math.prod(t.shape[axis + 1 :])) for t in (*n.operands, n.output)
        ]
    if n.op not in ELEMENTWISE:
        return None
    found: list[Shape] = []
    for t in (*n.operands, n.output):
        whole = (1,) * (len(to) - len(t.shape)) + t.shape
        lead = whole[:-3]
        # A dimension that is spread stays one; one that is spread next to one that is not cannot be merged with it.
        if lead != to[:-3] and math.prod(lead) != 1:
            return None
        found.append(t.shape if t.size == 1 and len(t.shape) < TOO_MANY else (math.prod(lead), *whole[-3:]))
    return found
