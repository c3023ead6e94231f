"""Choices and loops in ONNX's If and Loop, whose graphs read what is outside of them by name, both ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nxjax.lower.npu.formats.onnx_build import OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_pow2 import said
from nxjax.lower.npu.formats.onnx_reader import LayoutView, OnnxReader, captured, held, name_at, refuse
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.rewrite import constant
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


# Reading.


def _read(r: OnnxReader, n: Any, values: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """The results of a node that holds graphs as values."""
    for name, t in zip(values, tensors, strict=True):
        if name:
            r.views[name] = LayoutView(t, identity(len(t.shape)))


def _outside(r: OnnxReader, n: Any) -> list[str]:
    """The values around an operator that its graphs read and that are not known."""
    return [name for name in captured(n) if not r.is_weights(name)]


def _plain(r: OnnxReader, name: str, shape: Shape) -> Tensor:
    """An operand on no grid, of a shape that it may have but for dimensions of size 1."""
    t = r.tensor(name, real=True)
    t = t if t.grid is None else constant(t.grid.dequantize(np.asarray(t.data)))
    if t.shape == shape:
        return t
    if t.data is not None:
        return constant(t.data.reshape(shape))
    made = Tensor(f"{name}_one", shape, t.dtype)
    r.nodes.append(Node("reshape", (t,), (made,), {"shape": shape}, name=f"{name}/reshape"))
    return made


def read_if(r: OnnxReader, n: Any) -> None:
    names = _outside(r, n)
    bodies = {a.name: a.g for a in n.attribute}
    then, otherwise = (r.part(bodies[f"{key}_branch"], names) for key in ("then", "else"))
    kinds = [[(t.shape, t.dtype) for t in g.outputs] for g in (then, otherwise)]
    if kinds[0] != kinds[1]:
        raise refuse(n, "whose branches give results of different types")
    operands = [_plain(r, n.input[0], ()), *(_plain(r, name, r.shape(name)) for name in names)]
    made = [Tensor(f"{n.name or 'if'}:{i}", t.shape, t.dtype) for i, t in enumerate(then.outputs)]
    r.nodes.append(Node("if", tuple(operands), tuple(made), {"then": then, "otherwise": otherwise}, name=n.name))
    _read(r, n, n.output, made)


def read_loop(r: OnnxReader, n: Any) -> None:
    """A loop that carries the number of its step and whether it goes on, beside what the file's carries.

    Results that are collected step by step are refused: how many there are is data.
    """
    names, (body,) = _outside(r, n), held(n)
    count = len(n.input) - 2
    if len(body.output) != count + 1 or len(body.input) != count + 2:
        raise refuse(n, "that collects a result of every step")
    most, going = name_at(n, 0), name_at(n, 1)
    kinds = [((), dtypes.int64), ((), dtypes.bool_), *((r.shape(v), r.dtype(v)) for v in n.input[2:])]
    whole = r.part(body, names, kinds)
    kept = len(names)
    step, more, *carry = whole.inputs[kept:]
    if kinds[1:] != [(t.shape, t.dtype) for t in whole.outputs]:
        raise refuse(n, "whose step changes the types of what it carries")
    limit = [] if most is None else [_plain(r, most, ())]
    outer = [*(_plain(r, name, r.shape(name)) for name in names), *limit]
    start = constant(np.asarray(True)) if going is None else _plain(r, going, ())
    first = [constant(np.asarray(0, step.dtype)), start, *(_plain(r, name, r.shape(name)) for name in n.input[2:])]
    own = [Tensor(t.name, t.shape, t.dtype) for t in outer]
    ends = [Tensor("limit", (), step.dtype)] if limit else []
    inputs = [*whole.inputs[:kept], *ends, step, more, *carry]
    following = Tensor("next", (), step.dtype)
    count_up = Node("add", (step, constant(np.asarray(1, step.dtype))), (following,), name="next")
    steps = replace(whole, inputs=inputs, outputs=[following, *whole.outputs], nodes=[*whole.nodes, count_up])
    tests = [Tensor(t.name, t.shape, t.dtype) for t in inputs]
    now, again = tests[len(own) : len(own) + 2]
    goes, within = Tensor("goes", (), dtypes.bool_), Tensor("within", (), dtypes.bool_)
    nodes = (
        [Node("less", (now, tests[kept]), (within,)), Node("logical_and", (again, within), (goes,))] if limit else []
    )
    condition = NpuGraph("condition", tests, [goes if limit else again], nodes)
    made = [Tensor(f"{n.name or 'loop'}:{i}", t.shape, t.dtype) for i, t in enumerate([step, more, *carry])]
    attrs: dict[str, Any] = {"condition": condition, "body": steps, "invariant": len(own)}
    r.nodes.append(Node("while", (*outer, *first), tuple(made), attrs, name=n.name))
    _read(r, n, n.output, made[2:])
