"""has_aux: arrays leave their traces, all else comes out as it went in."""

from typing import Any

import nxjax as nx


def test_what_is_no_array_comes_out_as_it_is() -> None:
    def f(x: Any) -> Any:
        return x * x, {"name": "square", "n": 3, "x": x + 1, "none": None}

    _, in_grad = nx.grad(f, has_aux=True)(2.0)
    (_, in_value), _ = nx.value_and_grad(f, has_aux=True)(2.0)
    *_, in_jvp = nx.jvp(f, (2.0,), (1.0,), has_aux=True)
    *_, in_vjp = nx.vjp(f, 2.0, has_aux=True)
    *_, in_linearize = nx.linearize(f, 2.0, has_aux=True)
    for aux in (in_grad, in_value, in_jvp, in_vjp, in_linearize):
        assert aux["name"] == "square" and type(aux["n"]) is int and aux["none"] is None
        assert isinstance(aux["x"], nx.Array) and float(aux["x"]) == 3.0


def test_numbers_meet_other_transforms() -> None:
    f = nx.grad(lambda x: (x * x, (3, x)), has_aux=True)
    assert nx.vmap(f)(nx.ones(2))[1][0].tolist() == [3, 3]
    assert int(nx.jit(f)(2.0)[1][0]) == 3
    assert nx.grad(lambda x: f(x), has_aux=True)(2.0)[1][0] == 3
