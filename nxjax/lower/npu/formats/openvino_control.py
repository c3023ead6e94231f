"""Choices and loops in OpenVINO's If and Loop, whose bodies are models of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.channels_first import Value
from nxjax.lower.npu.formats.openvino_net import OpenvinoNet
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, held_graphs
from nxjax.lower.npu.ops import op_of
from nxjax.trace import dtypes

# Of as many steps as the condition says.
_FOREVER: Final = np.asarray(-1, np.int64)

# Writes a node.
Write = Callable[[OpenvinoNet, Node], None]


def _written(net: OpenvinoNet, graph: NpuGraph, operands: Sequence[Value], write: Write) -> list[Value]:
    """The results of ``graph`` on values of the model that ``net`` makes."""
    for t, value in zip(graph.inputs, operands, strict=True):
        net.put(t, value, False)
    for n in graph.nodes:
        write(net, n)
    return [net.get(t) for t in graph.outputs]


def _parameters(net: OpenvinoNet, graph: NpuGraph) -> list[Value]:
    return [net.op.parameter(list(t.shape), t.dtype, t.name) for t in graph.inputs]


def _results(net: OpenvinoNet, values: Sequence[Value]) -> list[Value]:
    return [net.op.result(v) for v in values]


def write_if(net: OpenvinoNet, node: Node, write: Write) -> list[Value]:
    """A body has no parameter for what it does not read: OpenVINO drops such, and loses count of the others."""
    chosen, *operands = map(net.get, node.operands)
    choice = net.op.if_op(_output(chosen))
    taken: list[list[Value | None]] = []
    made: list[list[Value]] = []
    for graph, put in zip(held_graphs(node).values(), (choice.set_then_body, choice.set_else_body), strict=True):
        inner = OpenvinoNet()
        used = {t for n in graph.nodes for t in n.operands} | set(graph.outputs)
        parameters = _parameters(inner, graph)
        kept = [p if t in used else None for p, t in zip(parameters, graph.inputs, strict=True)]
        made.append(_results(inner, _written(inner, graph, parameters, write)))
        put(net.ov.Model(made[-1], [p for p in kept if p is not None], graph.name))
        taken.append(kept)
    for value, then, otherwise in zip(operands, *taken, strict=True):
        choice.set_input(_output(value), then, otherwise)
    return [choice.set_output(then, otherwise) for then, otherwise in zip(*made, strict=True)]


def write_while(net: OpenvinoNet, node: Node, write: Write) -> list[Value]:
    """The condition is computed before the loop, and by its body for the next step."""
    a, operands = node.attrs, [net.get(t) for t in node.operands]
    count, condition, body = a["invariant"], a["condition"], a["body"]
    (more,) = _written(net, condition, operands, write)
    inner = OpenvinoNet()
    parameters = _parameters(inner, body)
    made = _written(inner, body, parameters, write)
    (again,) = _written(inner, condition, [*parameters[:count], *made], write)
    made = [_copy(inner, t, y) if _moved(body, t) else y for t, y in zip(body.outputs, made, strict=True)]
    results = _results(inner, [again, *made])
    loop = net.op.loop(_output(net.constant(_FOREVER)), _output(more))
    loop.set_function(net.ov.Model(results, parameters, "body"))
    loop.set_special_body_ports([-1, 0])
    for parameter, value in zip(parameters[:count], operands[:count], strict=True):
        loop.set_invariant_input(parameter, _output(value))
    for parameter, value, result in zip(parameters[count:], operands[count:], results[1:], strict=True):
        loop.set_merged_input(parameter, _output(value), result.output(0))
    read = {t for n in body.nodes for t in n.operands} | set(body.outputs)
    found: list[Value] = []
    for t, value, result in zip(body.inputs[count:], operands[count:], results[1:], strict=True):
        y = loop.get_iter_value(result.output(0), -1)
        # What its body does not read is not set before the first step: without one, the plugin gives any memory back.
        found.append(y if t in read else net.op.select(_output(more), y, _output(value)))
    return found


def _moved(graph: NpuGraph, t: Tensor) -> bool:
    """Whether a tensor is what comes in, at most moved: it may lie in the same memory."""
    maker = {y: n for n in graph.nodes for y in n.outputs}
    while (n := maker.get(t)) is not None and (op_of(n).picks or op_of(n).view):
        t = n.operand()
    return t in graph.inputs


def _copy(net: OpenvinoNet, t: Tensor, value: Value) -> Value:
    """The same numbers in memory of their own.

    OpenVINO 2026.4's CPU plugin gives a loop's results back one after the other, so that what two of them exchange is
    overwritten by the first.
    """
    return (net.op.logical_or if t.dtype == dtypes.bool_ else net.op.maximum)(value, value)


def _output(value: Value) -> Any:
    """The output of an operation that has one; a value may be either."""
    return value if hasattr(value, "get_node") else value.output(0)
