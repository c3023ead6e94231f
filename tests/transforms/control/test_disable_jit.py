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
