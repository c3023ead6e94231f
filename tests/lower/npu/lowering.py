"""How lowering is tested: the graph of a function gives the function's results, and has the nodes one expects."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.trace.evaluate import evaluate

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).normal(size=shape).astype(np.float32)


def graph_of(f: Any, *xs: Any, **options: Any) -> NpuGraph:
    return lower(nx.make_jaxpr(f)(*xs), "f", **options)


def same(f: Any, *xs: Any, rtol: float = 1e-5, atol: float = 1e-5, exact: bool = False, **options: Any) -> NpuGraph:
    """The graph of ``f``, after it has given what the program gives."""
    program = nx.make_jaxpr(f)(*xs)
    graph = lower(program, "f", **options)
    want = evaluate(program, [np.asarray(x) for x in xs])
    got = interpret(graph, [np.asarray(x) for x in xs])
    assert len(got) == len(want)
    for a, b, t in zip(got, want, graph.outputs, strict=True):
        assert a.shape == b.shape == t.shape
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return graph


def ops(graph: NpuGraph) -> list[str]:
    return [n.op for n in graph.nodes]


def count(graph: NpuGraph) -> dict[str, int]:
    return dict(Counter(ops(graph)))
