"""What a graph means: a walk that asks every node's op. The oracle that devices and vendors are held against.

Tensors on a grid are computed in integers by `nxjax.ops.fixed`, bit for bit as LiteRT's reference kernels do; an op for
which TFLite has no integer kernel is a float32 op between DEQUANTIZE and QUANTIZE. Floats are computed in their dtype.
Knows no op, no file format and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nxjax.errors import DtypeError, ProgramError, ShapeError
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.ops.run import Call, NodeRun
from nxjax.ops.base import NDArray


def interpret(graph: NpuGraph, inputs: Sequence[NDArray]) -> list[NDArray]:
    """The results of ``graph``, in order, each in its tensor's storage dtype and shape.

    Args:
        graph: any graph of the vocabulary.
        inputs: one array per graph input, in its storage dtype (integers for a tensor on a grid) and shape.

    Raises:
        ShapeError, DtypeError: an input that is not of its tensor's type.
        ProgramError: a node that no kernel computes, such as a concatenation of operands on different grids; an index
            out of range.

    >>> from nxjax.lower.npu.graph import Node
    >>> from nxjax.ops.quant_grid import Grid
    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> x, y = Tensor("x", (3,), "int8", g), Tensor("y", (3,), "int8", g)
    >>> graph = NpuGraph("abs", [x], [y], [Node("abs", (x,), (y,))])
    >>> interpret(graph, [np.int8([-3, 0, 5])])[0].tolist()
    [3, 0, 5]
    """
    values = interpret_all(graph, inputs)
    return [values[t] for t in graph.outputs]


def interpret_all(graph: NpuGraph, inputs: Sequence[NDArray]) -> dict[Tensor, NDArray]:
    """The value of every tensor of ``graph``; arguments and errors as of `interpret`."""
    if len(inputs) != len(graph.inputs):
        raise ShapeError("interpret: number of inputs", got=len(inputs), expected=len(graph.inputs))
    values: dict[Tensor, NDArray] = {}
    for t, x in zip(graph.inputs, inputs, strict=True):
        if x.shape != t.shape:
            raise ShapeError(f"interpret: input {t.name!r} has another shape", got=x.shape, expected=t.shape)
        if x.dtype != t.dtype:
            raise DtypeError(f"interpret: input {t.name!r} has another dtype", got=x.dtype, expected=t.dtype)
        values[t] = x
    for t in graph.constants():
        assert t.data is not None
        values[t] = t.data
    # The graphs that nodes hold round as the whole does.
    call: Call = lambda inner, xs: interpret(replace(inner, rounding=graph.rounding), xs)
    for node in graph.nodes:
        xs = [None if t is None else values[t] for t in node.inputs]
        # Infinities and what becomes of them are results like others.
        with np.errstate(all="ignore"):
            found = op_of(node).eval(NodeRun(node, graph.rounding, call), *xs)
        results = found if isinstance(found, list) else [np.asarray(found)]
        for t, y in zip(node.outputs, results, strict=True):
            if y.shape != t.shape:
                raise ProgramError(
                    f"interpret: {node.op} makes another shape than {t.name!r} has",
                    got=y.shape,
                    expected=t.shape,
                    source=node.source,
                )
            values[t] = y.astype(t.dtype, copy=False)
    return values
