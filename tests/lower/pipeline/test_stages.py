"""Cut programs compute what the whole ones compute, whatever crosses the cuts."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.lower.pipeline.stages import cost, cut
from nxjax.testing import random_program

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = [np.eye(4, dtype=np.float32) * s for s in (0.5, 1.5, 2.0, 0.25)]


def chain(ws, x):
    skip = x
    for w in ws:
        x = nx.tanh(x @ w) + skip * 0.1
    return x, ws[0], x.sum(), 3.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_stages_give_the_values_of_the_whole(count: int):
    program = nx.make_jaxpr(chain)(W, X)
    stages = cut(program, count)
    assert len(stages.stages) == count
    xs = [nx.asarray(v) for v in (*W, X)]
    for got, want in zip(stages(*xs), program(*xs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int):
    made = random_program(np.random.default_rng(seed), 12)
    f, args = made, made.args
    program = nx.make_jaxpr(f)(*args)
    xs = [nx.asarray(x) for x in nx.tree.leaves(args)]
    for count in (1, 2, 3):
        stages = cut(program, min(count, max(len(cut(program, 1).stages[0].program.equations), 1)))
        for got, want in zip(stages(*xs), program(*xs), strict=True):
            np.testing.assert_array_equal(got, want)


def test_costs_are_balanced():
    wide = [np.ones((64, 64), np.float32)] * 8

    def mlp(ws, x):
        for w in ws:
            x = nx.tanh(x @ w)
        return x

    stages = cut(nx.make_jaxpr(mlp)(wide, np.ones((16, 64), np.float32)), 4)
    costs = [sum(map(cost, s.program.equations)) for s in stages.stages]
    assert max(costs) <= 1.01 * sum(costs) / 4
    assert [len(s.sources) for s in stages.stages] == [3, 3, 3, 3]


def test_a_limit_of_parameters_moves_the_cut():
    def f(a, b, c, x):
        return nx.tanh(x @ a) @ b @ c

    a, b, c = (np.ones((n, 8), np.float32) for n in (256, 8, 8))
    program = nx.make_jaxpr(f)(a, b, c, np.ones((1, 256), np.float32))
    # Alone, the large first product makes a stage; no two of the others need more than the limit.
    (first, _) = cut(program, 2, limit=256 * 8 * 4 + 1024).stages
    assert next(e.op.name for e in first.program.equations) == "dot_general"


def test_given_places_and_their_errors():
    program = nx.make_jaxpr(lambda x: nx.sin(nx.cos(nx.tan(x))))(X)
    assert [len(s.program.equations) for s in cut(program, 2, at=[2]).stages] == [2, 1]
    for count, at in [(4, None), (0, None), (3, [2, 1]), (2, [5]), (3, [1])]:
        with pytest.raises(ParameterError):
            cut(program, count, at=at)
