from dataclasses import replace

import numpy as np
import pytest

from nxjax.kernels.cpu.attention import Attention, joins
from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output, Reduction
from nxjax.trace.core import get_op
from tests.kernels.cpu.products import planned
from tests.kernels.cpu.running import ISAS, run

FLOAT = np.dtype("float32")


def less_the_largest(rows, columns, bias=False):
    """A nest along rows: each number less the largest of its row, plus a number of the row where there is a bias."""
    line = (4 * columns, 4)
    inputs = (Input(FLOAT, line), *[Input(FLOAT, (4, 0))] * bias)
    n = len(inputs)
    nodes = [
        Reduction("max", 0, np.float32(-np.inf).tobytes(), FLOAT),
        ExpressionNode(get_op("sub"), (), (0, n), FLOAT),
        *[ExpressionNode(get_op("add"), (), (n + 1, 1), FLOAT)] * bias,
    ]
    return Nest((rows, columns), 1, True, inputs, tuple(nodes), (Output(n + len(nodes) - 1, line),))


def made(x, y, z, name, bias=False):
    """The kernel, and its three."""
    rows, columns = x.shape[-2], y.shape[-1]
    first = planned(x, y, "float32", name).product
    middle = less_the_largest(rows * int(np.prod(x.shape[:-2])), columns, bias)
    last = planned(np.empty((*x.shape[:-2], rows, columns), FLOAT), z, "float32", name).product
    assert joins(first, middle, last, 0)
    return Attention(first, middle, last, 0)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("batch", "rows"), [((), 331), ((2, 3), 64), ((3,), 150)])
def test_items_are_independent(batch, rows, name):
    rng = np.random.default_rng(rows)
    # Columns are whole vectors, so that nothing is packed.
    x, y, z = (rng.standard_normal((*batch, *s), FLOAT) for s in ((rows, 17), (17, 192), (192, 32)))
    b = rng.standard_normal((rows * int(np.prod(batch)), 1), FLOAT)
    kernel = made(x, y, z, name, bias=True)
    assert kernel.items > 1
    found = run(kernel, x, y, b, z, name=name)[0]
    cuts = [kernel.items // 3, kernel.items // 2]
    again = run(kernel, x, y, b, z, name=name, cuts=cuts)[0]
    assert found.tobytes() == again.tobytes()
    s = np.matmul(x.astype(np.float64), y)
    wanted = np.matmul(s - s.max(-1, keepdims=True) + b.reshape(*batch, rows, 1), z)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(kernel.meaning(x, y, b, z)[0], wanted, rtol=1e-3, atol=1e-2)


def test_costs_are_without_what_lies_between():
    x, y, z = (np.zeros(s, FLOAT) for s in ((320, 16), (16, 192), (192, 32)))
    kernel = made(x, y, z, ISAS[0])
    cost = kernel.cost()
    assert cost.read == x.nbytes + y.nbytes + z.nbytes
    assert cost.written == 320 * 32 * 4
    assert cost.flops >= 2 * 320 * 192 * (16 + 32)


def test_what_does_not_fit():
    x, y, z = (np.zeros(s, FLOAT) for s in ((320, 16), (16, 192), (192, 32)))
    first, last = planned(x, y, "float32", ISAS[0]).product, planned(np.zeros((320, 192), FLOAT), z, "float32", ISAS[0])
    assert joins(first, less_the_largest(320, 192), last.product, 0)
    turned = planned(np.zeros((192, 320), FLOAT).T, z, "float32", ISAS[0])
    assert not joins(first, less_the_largest(320, 192), turned.product, 0)
    assert not joins(first, less_the_largest(192, 320), last.product, 0)
    assert not joins(first, less_the_largest(160, 192), last.product, 0)


def test_each_thing_that_does_not_fit():
    """Three that fit, but for one thing."""
    batch = (2, 3)
    x, y, z = (np.zeros((*batch, *s), FLOAT) for s in ((40, 16), (16, 192), (192, 32)))
    first = planned(x, y, "float32", ISAS[0]).product
    last = planned(np.zeros((*batch, 40, 192), FLOAT), z, "float32", ISAS[0]).product
    nest = less_the_largest(240, 192)
    assert joins(first, nest, last, 0)
    p, q = first.problem, last.problem
    double = np.dtype("float64")

    def made(**more):
        how = {"sizes": nest.sizes, "kept": 1, "rows": True, "inputs": nest.inputs, "nodes": nest.nodes}
        return Nest(**{**how, "outputs": nest.outputs, **more})

    wrong = {
        "columns have the vectors": (first, made(rows=False), last),
        "a reduction that is cut": (first, made(sizes=(2, 192), total=192 * 120), last),
        "items of several rows": (first, made(item=1 << 22), last),
        "two results": (first, made(outputs=(*nest.outputs, Output(0, (768, 4)))), last),
        "other rows": (first, less_the_largest(240, 96), last),
        "scores in another dtype": (first, made(inputs=(Input(np.dtype("int32"), (768, 4)),)), last),
        "weights in another dtype": (first, nest, replace(last, left=double)),
        "rows of scores with gaps": (first, made(inputs=(Input(FLOAT, (772, 4)),)), last),
        "rows of weights with gaps": (first, made(outputs=(Output(2, (772, 4)),)), last),
        "rows of the first with gaps": (replace(first, problem=replace(p, others=(772,))), nest, last),
        "rows of the second with gaps": (first, nest, replace(last, problem=replace(q, left_row=772))),
        "columns of the second with gaps": (first, nest, replace(last, problem=replace(q, left_depth=8))),
        "another batch": (first, nest, replace(last, problem=replace(q, batch=q.batch[:1]))),
        "another depth": (first, nest, replace(last, problem=replace(q, depth=191))),
    }
    for i in range(2):
        axes = list(p.batch)
        axes[i] = replace(axes[i], others=(axes[i].others[0] + 64,))
        wrong[f"matrices of scores apart {i}"] = (replace(first, problem=replace(p, batch=tuple(axes))), nest, last)
        axes = list(q.batch)
        axes[i] = replace(axes[i], left=axes[i].left + 64)
        wrong[f"matrices of weights apart {i}"] = (first, nest, replace(last, problem=replace(q, batch=tuple(axes))))
    for what, three in wrong.items():
        assert not joins(*three, 0), what
    # How far apart the only one lies is nothing to anybody.
    one = planned(x[:1, :1], y[:1, :1], "float32", ISAS[0]).product
    moved = replace(one, problem=replace(one.problem, batch=tuple(replace(a, others=(7,)) for a in one.problem.batch)))
    end = planned(np.zeros((1, 1, 40, 192), FLOAT), z[:1, :1], "float32", ISAS[0]).product
    assert joins(moved, made(sizes=(40, 192), item=1), end, 0)
