"""Rules that close over traced values: what they capture travels as operands of the ops that hold programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nxjax as nx

X = np.array([0.5, 1.5], np.float32)


def scaled_gradient(a: Any) -> Any:
    """The identity, whose derivative is ``a``, a value of an enclosing trace."""

    @nx.custom_jvp
    def f(x: Any) -> Any:
        return x * 1.0

    f.defjvp(lambda p, t: (f(*p), t[0] * a))
    return f


LOOPS = {
    "scan": lambda f, x: nx.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "cond": lambda f, x: nx.cond(x.sum() > 0, f, lambda y: y, x),
    "jit": lambda f, x: nx.jit(f)(x),
    "checkpoint": lambda f, x: nx.checkpoint(f)(x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_rule_may_use_values_of_enclosing_traces(name: str) -> None:
    def slope(a: Any) -> Any:
        f = scaled_gradient(a)
        return nx.grad(lambda x: LOOPS[name](f, x).sum())(X)

    a = np.array([3.0, 4.0], np.float32)
    assert slope(a).tolist() == [3, 4]
    assert nx.jit(slope)(a).tolist() == [3, 4]
    assert nx.vmap(slope)(np.stack([a, 2 * a])).tolist() == [[3, 4], [6, 8]]
    assert nx.jit(lambda a: nx.jvp(lambda x: LOOPS[name](scaled_gradient(a), x), (X,), (X,))[1])(a).tolist() == [1.5, 6]
