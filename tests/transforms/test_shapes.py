"""`eval_shape` and `make_jaxpr`."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError

S = nx.ShapeDtypeStruct((3, 4), np.float32)


def test_eval_shape_computes_nothing_and_takes_trees_and_keywords():
    def f(p, *, scale):
        return {"out": p["w"].sum(0) * scale, "same": p["w"]}

    got = nx.eval_shape(f, {"w": S}, scale=2.0)
    assert got["out"] == nx.ShapeDtypeStruct((4,), np.float32)
    assert got["same"].shape == (3, 4)
    huge = nx.eval_shape(lambda x: x @ x, nx.ShapeDtypeStruct((10**6, 10**6), np.float32))
    assert huge.shape == (10**6, 10**6)
    with pytest.raises(ParameterError, match="needs a function"):
        nx.eval_shape(3)


def test_eval_shape_of_a_function_that_gives_types():
    half = nx.ShapeDtypeStruct((2,), np.float16)
    assert nx.eval_shape(lambda x: {"a": half, "b": x}, S) == {"a": half, "b": S}
    assert nx.eval_shape(lambda x: nx.eval_shape(nx.sin, x), S) == S
    weak = nx.eval_shape(lambda x: (nx.ShapeDtypeStruct((), np.float32, weak_type=True), x), 1.0)
    assert weak[0].weak_type and weak[1].weak_type
    with pytest.raises(DtypeError, match="this is a type"):
        nx.vmap(lambda x: half)(np.ones(2))


def test_make_jaxpr_gives_a_checked_program():
    program = nx.make_jaxpr(lambda x, n: nx.sin(x) * n, static_argnums=1)(S, 2.0)
    assert program.eqns[0].primitive.name == "sin"
    assert program.in_avals[0].shape == (3, 4)
    program, shape = nx.make_jaxpr(lambda x: (x, x > 0), return_shape=True)(S)
    assert shape[1].dtype == np.bool_
    assert nx.parse_program(str(program)).fingerprint == program.fingerprint
    with pytest.raises(ParameterError, match="needs a function"):
        nx.make_jaxpr(3)


def test_constants_in_inner_programs_take_part_in_the_fingerprint():
    def program(value):
        rule = lambda p, t: (p[0], t[0] * np.full(3, value, np.float32))
        f = nx.custom_jvp(lambda x: x)
        f.defjvp(rule)
        inner = nx.jit(lambda x: nx.jvp(f, (x,), (x,))[1])
        return inner(np.ones(3, np.float32))

    assert program(2.0).tolist() == [2, 2, 2]
    assert program(3.0).tolist() == [3, 3, 3]
