"""Choices and loops in a Core ML package mean what they mean in the graph."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower

pytest.importorskip("coremltools")
from nxjax.lower.npu.formats.coreml_writer import author, read
from tests.lower.npu.formats.mil_meaning import run

X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32) / 2


def until(x):
    body = lambda s: (s[0] + 1, jnp.tanh(s[1] @ W) + s[1] + x.sum())
    return lax.while_loop(lambda s: (jnp.sum(s[1]) < 9) & (s[0] < 20), body, (0, x))


def scanned(x):
    return lax.scan(lambda h, row: (jnp.tanh(h + row), h), jnp.zeros(4), jnp.tile(x, (20, 1)))


COURSES = {
    "while": until,
    "scan": scanned,
    "cond": lambda x: lax.cond(x.sum() > 0, lambda x: (x * 2, x), lambda x: (jnp.tanh(x) + 1, x), x),
    "switch": lambda x: lax.switch((x[0, 0] * 3).astype(int), [lambda x: x, lambda x: x * 2, lambda x: -x], x),
    "nested": lambda x: lax.cond(x.sum() > 0, lambda x: until(x)[1], jnp.tanh, x),
}


@pytest.mark.parametrize("name", COURSES)
def test_the_package_takes_the_same_course(name):
    graph = lower(nx.make_jaxpr(COURSES[name])(X), "f", format="coreml", unroll=8)
    assert {"if", "while"} & {n.op for n in graph.nodes}
    made = author(graph, np.dtype("float32"))
    read(made.files)
    for x in (X, -X, np.abs(X), np.zeros_like(X)):
        found = run(made.files, {graph.inputs[0].name: x}).values()
        for got, want in zip(found, interpret(graph, [x]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
