"""Choices and loops in MIL's cond and while_loop, whose blocks see what is outside of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.lower.npu.formats.channels_first import Value
from nxjax.lower.npu.formats.coreml_net import CoremlNet, clean
from nxjax.lower.npu.graph import Node, NpuGraph

# Writes a node under a name.
Write = Callable[[CoremlNet, Node, str], None]


def _written(net: CoremlNet, graph: NpuGraph, operands: Sequence[Value], write: Write, name: str) -> list[Value]:
    """The results of ``graph`` on values, in the block that is being made; each an operation of its own."""
    inner = net.inside()
    for t, value in zip(graph.inputs, operands, strict=True):
        inner.put(t, value, False)
    for i, n in enumerate(graph.nodes):
        write(inner, n, clean(f"{name}_{n.name or n.op}_{i}"))
    net.op.start(f"{name}_out")
    return [net.op.identity(x=inner.get(t)) for t in graph.outputs]


def _many(made: Any) -> list[Value]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def write_if(net: CoremlNet, node: Node, write: Write) -> list[Value]:
    a, name, (chosen, *operands) = node.attrs, net.op.prefix, map(net.get, node.operands)
    make = lambda key: lambda: tuple(_written(net, a[key], operands, write, f"{name}_{key}"))
    return _many(net.op.cond(pred=chosen, _true_fn=make("then"), _false_fn=make("otherwise")))


def write_while(net: CoremlNet, node: Node, write: Write) -> list[Value]:
    a, name, operands = node.attrs, net.op.prefix, [net.get(t) for t in node.operands]
    kept, carry = operands[: a["invariant"]], operands[a["invariant"] :]
    holds = lambda *now: _written(net, a["condition"], [*kept, *now], write, f"{name}_condition")[0]
    step = lambda *now: tuple(_written(net, a["body"], [*kept, *now], write, f"{name}_body"))
    return _many(net.op.while_loop(_cond=holds, _body=step, loop_vars=tuple(_any(net, v) for v in carry)))


def _any(net: CoremlNet, value: Value) -> Value:
    """A value that changes from step to step: MIL would hold on to a constant's, and refuse what makes it anew."""
    if value.val is None:
        return value
    found = net.op.identity(x=value)
    found._sym_val = None
    return found
