"""Ops on elements: every op that `kernels.cpu.ops` has code for becomes a node of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.kernels.cpu import ops
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lazy import TALL, Lazy, Map, indexed
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape


def lowered(b: Builder, x: Lazy) -> Lazy:
    """A new value for the current equation; what it is made of becomes memory where its graph is too deep."""
    x.equation = b.equation
    while x.height > TALL:
        deepest = max(x.args, key=lambda a: a.height)
        b.view(deepest)
        x.height = 1 + max(a.height for a in x.args)
    return x


def spread(x: Lazy, shape: Shape) -> Lazy:
    """A scalar in every element; others as they are."""
    return x if x.shape == shape else indexed(x, shape, ())


def mapped(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    (y,) = e.outputs
    ins: list[DType] = [x.type.dtype for x in e.inputs]
    why = ops.supported(e.op.name, e.params, ins, y.type.dtype)
    if why:
        raise NoKernel(why)
    shape = y.type.shape
    args = tuple([spread(b.lazy(x), shape) for x in xs])
    params = tuple(sorted((k, v) for k, v in e.params.items() if k != "weak"))
    return (lowered(b, Map(e.op, params, args, shape, y.type.dtype)),)


@rule("copy", "stop_gradient")
def same(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    return (x,)


rule(*(ops.NAMES - {"copy"}))(mapped)
