"""Random programs: eager, every executor, a batch of one, printed and parsed, all give the same numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
from nxjax.testing import assert_close, executors
from nxjax.trace.text import parse_program

UNARY = (nx.sin, nx.tanh, nx.negative, nx.abs, nx.square, nx.floor, nx.sign, lambda x: nx.exp(-nx.abs(x)))
BINARY = (nx.add, nx.subtract, nx.multiply, nx.maximum, nx.minimum, lambda a, b: a / (1 + b * b), nx.arctan2)
SHAPES = (
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x.reshape(-1),
    lambda x: nx.concatenate([x, x]),
    lambda x: nx.cumsum(x, 0),
    lambda x: nx.sort(x, axis=0),
    lambda x: x[1:] if x.shape[0] > 1 else x,
    lambda x: nx.pad(x, 1),
    lambda x: x.sum(0) if x.ndim > 1 else x,
    lambda x: x.max(0, keepdims=True),
    lambda x: nx.where(x > 0, x, x * 2),
    lambda x: x.at[0].add(1.0),
    lambda x: nx.take(x, np.array([0, -1]), axis=0),
    lambda x: (x > 0).astype(nx.int32) + 1.5,
)


@st.composite
def programs(draw):
    """A function of one [3, 4] array, and its text for the report."""
    steps = draw(
        st.lists(st.tuples(st.sampled_from(("unary", "binary", "shape")), st.integers(0, 99)), min_size=1, max_size=8)
    )

    def function(x):
        values = [x]
        for kind, n in steps:
            last = values[-1]
            if kind == "unary":
                values.append(UNARY[n % len(UNARY)](last))
            elif kind == "shape":
                values.append(SHAPES[n % len(SHAPES)](last))
            else:
                same = [v for v in values if v.shape == last.shape]
                values.append(BINARY[n % len(BINARY)](last, same[n % len(same)]))
        return values[-1]

    return function


POINT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@given(programs())
def test_every_way_of_running_agrees(function):
    y = function(nx.asarray(POINT))
    for name in executors():
        assert_close(f"jit on {name} = eager", "program", nx.jit(function, device=name)(POINT), y, 1e-4)
    assert_close("vmap of one = itself", "program", nx.vmap(function)(POINT[None])[0], y, 1e-4)
    program = nx.make_jaxpr(function)(POINT).check()
    text = str(program)
    again = parse_program(text, program.values)
    assert str(again) == text
    assert_close("parsed = itself", "program", again(nx.asarray(POINT))[0], y, 1e-4)


@given(programs())
def test_derivatives_are_adjoint_and_survive_jit(function):
    f = lambda x: function(x).astype(nx.float64)
    x = POINT.astype(np.float64)
    rng = np.random.default_rng(1)
    t = rng.normal(size=x.shape)
    point, direction = nx.array(x, nx.float64), nx.array(t, nx.float64)
    y, pushed = nx.jvp(f, (point,), (direction,))
    ct = nx.array(rng.normal(size=y.shape), nx.float64)
    pulled = nx.vjp(f, point)[1](ct)[0]
    left, right = np.sum(np.asarray(ct) * np.asarray(pushed)), np.sum(np.asarray(pulled) * t)
    np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-8)
    compiled = nx.jit(lambda v: nx.jvp(f, (v,), (direction,))[1])(point)
    np.testing.assert_allclose(np.asarray(compiled), np.asarray(pushed), rtol=1e-8, atol=1e-8)
