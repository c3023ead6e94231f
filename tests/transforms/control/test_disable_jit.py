"""With `disable_jit`, control flow runs as Python, on values that can be looked at."""

import numpy as np

import nxjax as nx
from nxjax.config import config

X = np.arange(3, dtype=np.float32)


def test_every_step_sees_concrete_values():
    seen = []

    def step(c, x):
        seen.append(float(c))
        return c + x, {"y": c * x}

    expected = nx.scan(lambda c, x: (c + x, {"y": c * x}), 1.0, X, reverse=True)
    with config.using(disable_jit=True):
        c, ys = nx.scan(step, 1.0, X, reverse=True)
        assert int(nx.while_loop(lambda n: n < 5, lambda n: (seen.append(int(n)), n + 2)[1], 1)) == 5
        assert float(nx.cond(True, lambda x: float(x) + 1, lambda x: x, 2.0)) == 3.0
    assert float(c) == float(expected[0])
    assert ys["y"].tolist() == expected[1]["y"].tolist()
    assert seen == [1, 3, 4, 1, 3]


def _doubled_to_ten(x):
    return nx.while_loop(lambda s: s < 10.0, lambda s: s * 2 + 1, x)


def test_a_loop_whose_condition_is_not_known_runs_as_one_operation():
    with config.using(disable_jit=True):
        assert nx.vmap(_doubled_to_ten)(np.array([1, 2, 30], np.float32)).tolist() == [15, 11, 30]
        assert nx.vmap(lambda n: nx.fori_loop(0, n, lambda i, s: s + i, 0))(np.arange(4)).tolist() == [0, 0, 1, 3]
        assert nx.eval_shape(_doubled_to_ten, 1.0).shape == ()
        assert "while" in str(nx.make_jaxpr(_doubled_to_ten)(1.0))
        nested = nx.vmap(lambda x: nx.while_loop(lambda s: s < 40, lambda s: _doubled_to_ten(s) + 9, x))
        assert nested(np.array([1, 35], np.float32)).tolist() == [42, 44]


def test_a_loop_goes_on_from_the_step_where_its_condition_stops_to_be_known():
    # The counter is one number in the first step, and one for each element after it.
    def count(n):
        return nx.while_loop(lambda s: s < 7, lambda s: (seen.append(1), s + n)[1], 0)

    seen = []
    with config.using(disable_jit=True):
        assert nx.vmap(count)(np.array([1, 2, 7], np.int32)).tolist() == [7, 8, 7]
    assert seen
