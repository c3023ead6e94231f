"""Functions that a program spells out are the ops that they are, whatever the spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = nx.random.normal(nx.random.key(0), (8, 64)) * 3
F = Callable[[Any], Any]


def ops(f: F, policy: str = "int8") -> list[str]:
    """The first op of each group, but those that only move values."""
    q = nx.quantize(f, policy, calibrate=[(X,)], observer="minmax")
    return [g.equations[0].op.name for g in q.plan(q.traced(X)).groups()]


def db(f: F, policy: str = "int8") -> float:
    x, q = np.asarray(f(X)), np.asarray(nx.quantize(f, policy, calibrate=[(X,)])(X))
    return 10 * float(np.log10((x**2).sum() / ((q - x) ** 2).sum()))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def _softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (_gelu, ["gelu"]),
        (lambda x: x * 0.5 * (1 + jnp.tanh(np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x))), ["gelu"]),
        (lambda x: 1 / (1 + jnp.exp(-x)), ["logistic"]),
        (lambda x: x / (1 + jnp.exp(-x)), ["logistic", "mul"]),
        (lambda x: (jnp.exp(x) - jnp.exp(-x)) / (jnp.exp(x) + jnp.exp(-x)), ["tanh"]),
        (lambda x: jnp.log(1 + jnp.exp(x)), ["softplus"]),
        (_softmax, ["softmax"]),
        (lambda x: jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True), None),
    ],
    ids=["gelu", "gelu, factored", "logistic", "silu", "tanh", "softplus",
         "softmax", "two exponentials"],
)  # fmt: skip
def test_a_function_is_found_in_its_spelling(f: F, expected: list[str] | None):
    if expected is not None:
        assert ops(f) == expected
        assert db(f) > 35


def test_functions_that_chips_have_of_16_bits_are_found_in_16_bits():
    """A gelu by erf has no other integers of 16 bits; one by tanh stays in pieces, which more chips have."""
    erf = nx.scipy.special.erf
    found = {
        "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
        "logistic": lambda x: 1 / (1 + jnp.exp(-x)),
        "tanh": lambda x: (jnp.exp(x) - jnp.exp(-x)) / (jnp.exp(x) + jnp.exp(-x)),
    }
    for name, f in found.items():
        assert ops(f, "int16x8") == [name]
    assert db(found["gelu"], "int16x8") > 60
    assert "gelu" not in ops(_gelu, "int16x8") and "softplus" not in ops(lambda x: jnp.log(1 + jnp.exp(x)), "int16x8")


def test_numbers_of_a_file_are_numbers():
    """Constants of one element, as ONNX files have them, are known as if they were written in the program."""
    one = jnp.array([1], np.float32)
    assert ops(lambda x: one / (one + jnp.exp(-x))) == ["logistic"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * jnp.clip(x + 3, 0, 6) / 6,
        lambda x: x * (nx.nn.relu6(x + 3) * (1 / 6)),
        lambda x: x * jnp.minimum(jnp.maximum(3 + x, 0), 6) * (1 / 6),
    ],
)
def test_pieces_of_a_hard_swish_run_where_there_is_no_hard_swish(f: F):
    """An Edge TPU has no such operator, and a file of a network that spells it out is one for it, too."""
    assert "hard_swish" not in ops(f) and db(f) > 35


def test_what_is_nearly_a_function_stays_what_it_is():
    assert "logistic" not in ops(lambda x: 1 / (1.1 + jnp.exp(-x)))
    assert "gelu" not in ops(lambda x: 0.5 * x * (1 + jnp.tanh(0.79 * (x + 0.044715 * x**3))))
    assert "softmax" not in ops(lambda x: jnp.exp(x - x) / jnp.exp(x).sum(1, keepdims=True))
    assert "softmax" not in ops(lambda x: (lambda e: e / e.sum(0, keepdims=True)[:, :1])(jnp.exp(x)))


def test_a_function_of_two_values_is_none_of_one():
    y = X[::-1]
    assert "gelu" not in ops(lambda x: 0.5 * x * (1 + jnp.tanh(0.7978845608 * (y + 0.044715 * y**3))))


@pytest.mark.parametrize("axes", [(1,), (0, 1)])
def test_a_variance_as_a_difference_of_means_keeps_its_digits(axes: tuple[int, ...]):
    """mean(x^2) - mean(x)^2 of values far from 0 has no digit left in 8 bits."""
    far = lambda x: x * 0.3 + 7

    def norm(x: Any) -> Any:
        x = far(x)
        mean = x.mean(axes, keepdims=True)
        return (x - mean) / jnp.sqrt((x * x).mean(axes, keepdims=True) - mean**2 + 1e-5)

    assert db(norm) > 25
    assert "square" in ops(norm)


def test_the_gradient_is_that_of_the_function():
    hard = lambda x: x * jnp.clip(x + 3, 0, 6) / 6
    q = nx.quantize(hard, "int8", calibrate=[(X,)])
    mine, exact = nx.grad(lambda x: q(x).sum())(X), nx.grad(lambda x: hard(x).sum())(X)
    assert float(abs(mine - exact).mean()) < 0.1


def test_roots_of_sums_of_squares_have_16_bits_on_the_way():
    """Squares of values over 40 dB are over 80, and 8 bits are 48."""
    near = jnp.exp(X)
    f = lambda x: jnp.sqrt((x * x) + jnp.square(x[::-1]))
    x, q = np.asarray(f(near)), np.asarray(nx.quantize(f, "int8", calibrate=[(near,)], observer="minmax")(near))
    small = x < np.median(x)
    plan = (made := nx.quantize(f, "int8", calibrate=[(near,)])).plan(made.traced(near))
    assert {g.dtype.name for g in plan.groups() if g.equations[0].op.name in ("mul", "square", "add", "sqrt")} == {
        "int16"
    }
    assert abs(q - x)[small].max() < 2 * (x.max() / 255)


def test_a_root_of_something_else_stays_in_8_bits():
    f = lambda x: jnp.sqrt(jnp.exp(x) + x * x)
    q = nx.quantize(f, "int8", calibrate=[(X,)])
    assert {g.dtype.name for g in q.plan(q.traced(X)).groups()} == {"int8"}
