"""Choices and loops in ONNX's If and Loop, whose graphs read what is outside of them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nxjax.lower.npu.formats.onnx_build import OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_pow2 import said
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

# Writes a node.
Write = Callable[[OnnxBuilder, Node], None]


def _written(inner: OnnxBuilder, graph: NpuGraph, operands: Sequence[str], write: Write) -> list[str]:
    """The results of ``graph`` on values by name, whose nodes are put where ``inner`` puts them."""
    for t, name in zip(graph.inputs, operands, strict=True):
        inner.bind(t, name)
    nodes = [said(n, replace(n)) for n in graph.nodes] if inner.options.style == "float" else graph.nodes
    for n in nodes:
        inner.enter(n)
        write(inner, n)
    inner.enter(None)
    found: list[str] = []
    for t in graph.outputs:
        found.append(inner.port_out(t, {*operands, *found}).name)
    return found


def _info(b: OnnxBuilder, name: str, dtype: DType, shape: Shape) -> Any:
    helper = b.onnx.helper
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _closed(b: OnnxBuilder, inner: OnnxBuilder, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
    """A graph of what ``inner`` wrote; its operations are those of the node that ``b`` writes."""
    b.own(inner)
    return b.onnx.helper.make_graph(inner.nodes, name, inputs, outputs, list(inner.initializers.values()))


def _held(b: OnnxBuilder, tensors: Sequence[Tensor]) -> list[str]:
    return [b.stored(t, identity(len(t.shape))) for t in tensors]


def _results(b: OnnxBuilder, n: Node, values: Sequence[str]) -> None:
    for t, value in zip(n.outputs, values, strict=True):
        b.hold(t, value, identity(len(t.shape)))


def write_if(b: OnnxBuilder, n: Node, write: Write) -> None:
    chosen, *operands = _held(b, n.operands)

    def branch(graph: NpuGraph, name: str) -> Any:
        inner = b.inside(graph)
        made = _written(inner, graph, operands, write)
        infos = [_info(b, v, t.dtype, t.shape) for v, t in zip(made, graph.outputs, strict=True)]
        return _closed(b, inner, name, [], infos)

    graphs = {f"{key}_branch": branch(n.attrs[which], key) for key, which in (("then", "then"), ("else", "otherwise"))}
    _results(b, n, b.ops("If", [chosen], len(n.outputs), **graphs))


def write_while(b: OnnxBuilder, n: Node, write: Write) -> None:
    """The condition is computed before the loop, and by its body for the next step."""
    a, operands = n.attrs, _held(b, n.operands)
    kept, carry = operands[: a["invariant"]], operands[a["invariant"] :]

    def holds(at: OnnxBuilder, values: Sequence[str]) -> str:
        inner = at.inside(a["condition"], inline=True)
        (found,) = _written(inner, a["condition"], [*kept, *values], write)
        at.own(inner)
        return found

    inner = b.inside(a["body"])
    step, more, *now = (inner.fresh(name) for name in ("step", "more", *(f"carry_{i}" for i in range(len(carry)))))
    made = _written(inner, a["body"], [*kept, *now], write)
    again = holds(inner, made)
    shapes = [(t.dtype, t.shape) for t in a["body"].outputs]
    ends = [_info(b, more, dtypes.bool_, ()), *(_info(b, v, *of) for v, of in zip(now, shapes, strict=True))]
    outs = [_info(b, again, dtypes.bool_, ()), *(_info(b, v, *of) for v, of in zip(made, shapes, strict=True))]
    body = _closed(b, inner, "body", [_info(b, step, dtypes.int64, ()), *ends], outs)
    _results(b, n, b.ops("Loop", ["", holds(b, carry), *carry], len(n.outputs), body=body))
