"""Integer products give what the float products of quantized ops give, bit for bit, and are products of int8."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.narrow import narrow
from nxjax.ops.quant_integer import integer_products
from nxjax.trace.evaluate import evaluate
from nxjax.transforms.inline import inlined

KEY = nx.random.key(0)


def both(q, *args):
    """The program with float products and with integer ones, and their results."""
    program = inlined(nx.jit(q).trace(*args).program)
    plain = narrow(program)
    with integer_products():
        whole = narrow(program)
    values = [np.asarray(a) for a in nx.tree.leaves(args)]
    return whole, evaluate(plain, values), evaluate(whole, values)


def products(program):
    return [
        [str(a.type.dtype) for a in e.inputs] for e in program.equations
        if e.op.name in ("dot_general", "conv_general_dilated")
    ]  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 6), st.integers(0, 9), st.booleans())
def test_dense_layers(n, depth, m, seed, positive):
    x = nx.random.normal(nx.random.key(seed), (n, depth)) * 3 + 1
    x = abs(x) if positive else x
    w, b = nx.random.normal(KEY, (depth, m)), nx.random.normal(KEY, (m,))
    q = nx.quantize(lambda x: x @ w + b, "int8", calibrate=[(x,)])
    whole, want, got = both(q, x)
    assert all(kinds == ["int8", "int8"] for kinds in products(whole)) and products(whole)
    np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_activations(batch):
    x, y = nx.random.normal(KEY, (*batch, 4, 9)) + 1, nx.random.uniform(KEY, (*batch, 9, 5)) * 4 - 1
    q = nx.quantize(lambda x, y: jnp.matmul(x, y), "int8", calibrate=[(x, y)], params=())
    whole, want, got = both(q, x, y)
    assert products(whole) and all(kinds == ["int8", "int8"] for kinds in products(whole))
    np.testing.assert_array_equal(got[0], want[0])


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 2), st.sampled_from([1, 2]), st.sampled_from([1, 2]),
    st.sampled_from(["SAME", "VALID", ((2, 0), (1, 3))]), st.sampled_from([1, 2]), st.integers(0, 5),
)  # fmt: skip
def test_convolutions(stride, hole, groups, padding, gap, seed):
    x = nx.random.normal(nx.random.key(seed), (2, 7, 6, 4)) + 0.5
    w = nx.random.normal(KEY, (3, 2, 4 // groups, 6))
    if isinstance(padding, str) and gap > 1:
        padding = ((1, 1), (1, 1))

    def f(x):
        return nx.lax.conv_general_dilated(
            x, w, (stride, stride), padding, lhs_dilation=(gap, gap), rhs_dilation=(hole, 1),
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip

    whole, want, got = both(nx.quantize(f, "int8", calibrate=[(x,)]), x)
    assert products(whole) and all(kinds == ["int8", "int8"] for kinds in products(whole))
    np.testing.assert_array_equal(got[0], want[0])


def test_sixteen_bits_and_sums_that_could_wrap_stay_float():
    x, w = nx.random.normal(KEY, (2, 64)), nx.random.normal(KEY, (64, 3))
    whole, want, got = both(nx.quantize(lambda x: x @ w, "int16x8", calibrate=[(x,)]), x)
    assert all("int8" not in kinds for kinds in products(whole))
    np.testing.assert_array_equal(got[0], want[0])
    x, w = nx.random.normal(KEY, (1, 40000)), nx.random.normal(KEY, (40000, 1))
    whole, *_ = both(nx.quantize(lambda x: x @ w, "int8", calibrate=[(x,)]), x)
    assert all("int8" not in kinds for kinds in products(whole))
