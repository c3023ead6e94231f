"""Narrow constants: the same bits from fewer bytes."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.narrow import SMALLEST, expanded, narrow, narrowed
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Var

RNG = np.random.default_rng(0)
W = RNG.normal(size=(64, 128)).astype(np.float32)
X = RNG.normal(size=(3, 64)).astype(np.float32)


def bytes_of(program):
    return sum(v.type.size * v.type.dtype.itemsize for v in program.constvars)


@pytest.mark.parametrize("policy", ["int8", "int16x8", "int8-weights", "int4-weights", "fp8"])
def test_quantized_weights_are_kept_as_they_are_stored(policy):
    f = lambda x: nx.nn.relu(x @ W) @ W.T
    program = nx.make_jaxpr(nx.quantize(f, policy, calibrate=[(X,)]))(X)
    small = narrow(program)
    # What is left of the family puts activations on a scale.
    left = [e for e in small.equations if e.op.name.startswith("q")]
    assert not [e for e in left if not isinstance(e.inputs[0], Var) or e.inputs[0] in small.constvars]
    # int4 and float8 elements are a byte each in memory; scales come on top.
    assert bytes_of(small) < bytes_of(program) * (0.3 if policy != "int4-weights" else 0.55)
    for a, b in zip(evaluate(program, [X]), evaluate(small, [X]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_what_comes_back_the_same_is_converted():
    n = SMALLEST
    whole, halves = np.arange(n, dtype=np.float32) % 100 - 50, np.arange(n, dtype=np.float32) / 2
    negative_zero, wide = whole.copy(), whole * 3
    negative_zero[0] = -0.0
    f = lambda x: x * whole + x * halves + x * negative_zero + x * wide + x[: n // 2].sum() * whole[: n // 2].sum()
    program = nx.make_jaxpr(f)(whole)
    small = narrowed(program)
    assert sorted(str(v.type) for v in small.constvars) == sorted([f"i8[{n}]", *[f"f32[{n}]"] * 3])
    np.testing.assert_array_equal(evaluate(small, [halves])[0], evaluate(program, [halves])[0])


WHOLE = (-128, 127, -129, 128, 383, -(2**31))
FLOATS = (*WHOLE, 2.0**31, 0.5, -0.0, np.nan, np.inf, -np.inf)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [(d, n) for d, numbers in (("i4", WHOLE), ("i8", WHOLE), ("f4", FLOATS), ("f8", FLOATS)) for n in numbers],
)
def test_the_ends_of_int8(dtype, number):
    constant = np.ones(SMALLEST, dtype)
    constant[1] = number
    with nx.enable_x64(True):
        program = nx.make_jaxpr(lambda: jnp.asarray(constant)[::-1])()
    small = narrowed(program)
    fits = number in (-128, 127)
    assert [v.type.dtype == np.int8 for v in small.constvars] == [fits]
    assert evaluate(small, ())[0].tobytes() == constant[::-1].tobytes()


def test_programs_without_quantized_ops_are_left_alone():
    program = nx.make_jaxpr(lambda x: jnp.sin(x) @ W)(X)
    assert expanded(program) is program
    assert narrowed(program) is program


def test_lines_and_scopes_stay():
    def f(x):
        with nx.named_scope("head"):
            return x @ W

    small = narrow(nx.make_jaxpr(nx.quantize(f, "int8", calibrate=[(X,)]))(X))
    assert all(e.scope == "head" and "test_narrow" in str(e.source) for e in small.equations)
