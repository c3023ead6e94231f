"""The StableHLO of a few programs, word for word, and that jaxlib takes every op's text."""

import re
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import LoweringError
from nxjax.lower.stablehlo import types
from nxjax.lower.stablehlo.builder import lower
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

X = np.zeros((2, 3), np.float32)
PROGRAMS = {
    "elementwise": (lambda x: nx.tanh(x) * 2 + 1, X),
    "dense_layer_gradient": (nx.grad(lambda w: nx.sum(nx.tanh(np.ones((4, 2), np.float32) @ w))), X),
    "convolution": (lambda x: nx.lax.conv_general_dilated(x[None, None], x[None, None], (1, 1), "SAME"), X),
    "gather_scatter": (lambda x: x.at[nx.array([1, 0])].add(x[nx.array([0, 0])]), X),
    "scan": (lambda x: nx.lax.scan(lambda c, r: (c + r, r * 2), nx.zeros(3), x), X),
    "sort": (lambda x: nx.sort(x, axis=1), X),
    "nested_jit": (lambda x: nx.jit(nx.sin)(x) + nx.jit(nx.sin)(x), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name, golden):
    function, x = PROGRAMS[name]
    program = nx.make_jaxpr(function)(x)
    golden(f"{name}.program.txt", str(program) + "\n")
    hoisted, _ = program.hoist_consts()
    golden(f"{name}.stablehlo.mlir", lower(hoisted, name)[0])


def test_constants_keep_their_bits():
    assert types.scalar_text(np.float32(np.nan), dtypes.float32).startswith("0x7FC")
    assert types.scalar_text(np.float32(-np.inf), dtypes.float32) == "0xFF800000"
    for value in (np.float32(0.1), np.float32(1e-45), np.float32(3.4e38)):
        assert np.float32(types.scalar_text(value, dtypes.float32)) == value
    value = np.float64(0.1)
    assert np.float64(types.scalar_text(value, dtypes.float64)) == value


def test_types_as_text():
    assert types.tensor(ArrayType((2, 3), dtypes.uint8)) == "tensor<2x3xui8>"
    assert types.tensor(ArrayType((), dtypes.bfloat16)) == "tensor<bf16>"
    assert types.tensor(ArrayType((2,), dtypes.key)) == "tensor<2xui64>"
    assert types.dense(np.zeros((0, 2), np.float32), dtypes.float32) == "dense<>"


def test_dead_code_goes_and_effects_stay():
    def f(x):
        nx.sin(x)
        nx.debug.print("x = {}", x)
        return x * 2

    text = nx.jit(f).lower(1.0).as_text("stablehlo")
    assert "sine" not in text
    assert "custom_call" in text


def test_an_op_without_a_rule_is_named():
    from nxjax.trace.core import Op
    from nxjax.trace.stage import stage

    class Unlowered(Op):
        name = "test_unlowered"

        def infer(self, x):
            return x

    op = Unlowered()
    with pytest.raises(LoweringError, match="test_unlowered"):
        lower(stage(lambda x: [op(x)], [ArrayType((), dtypes.float32)]))


@pytest.mark.parametrize("dtype", sorted(dtypes.NUMERIC, key=str), ids=str)
def test_constants_of_many_elements_are_bytes_and_keep_them(dtype):
    """MLIR reads the hexadecimal form; a NaN's payload and a negative zero are in it too."""
    from nxjax.vendors.stablehlo import host

    low = 0 if dtype in dtypes.UNSIGNED else -7
    values = (np.random.default_rng(0).standard_normal((3, 100)) * 3).clip(low, 7).astype(dtype)
    if dtype in (dtypes.float32, dtypes.float64):
        values[0, :2] = np.array([-0.0, np.nan], dtype)
    program = nx.jit(lambda x: (nx.asarray(values, dtype=dtype), x)).trace(1.0).program
    text, _ = lower(program)
    assert ('dense<"0x' in text) == (dtype not in (dtypes.bool_, dtypes.int4, dtypes.uint4))
    (y, _) = host(text, program)([np.float32(1)])
    np.testing.assert_array_equal(y.view(np.uint8), values.view(np.uint8))


def test_operations_carry_the_users_lines_where_they_are_asked_for():
    def f(x):
        with nx.named_scope("layer"):
            y = nx.numpy.tanh(x) * 2
        return nx.lax.fori_loop(0, 3, lambda i, c: c + y, y)

    program = nx.make_jaxpr(f)(nx.numpy.ones(3))
    plain, _ = lower(program)
    assert "loc(" not in plain
    text, _ = lower(program, located=True)
    tanh = next(line for line in text.splitlines() if "stablehlo.tanh" in line)
    number = next(
        i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "y = nx.numpy.tanh(x) * 2" in line
    )
    assert tanh.endswith(f'loc("layer/tanh"("{__file__}":{number}:0))')
    # What stands in a loop has the place that it has in its body, and the same text is there once more.
    assert re.sub(r" loc\(.*\)$", "", text, flags=re.MULTILINE) == plain


@pytest.mark.parametrize("x", [False, True])
@pytest.mark.parametrize("y", [False, True])
def test_sums_and_products_of_booleans_are_logical(x, y):
    """Also where XLA knows both, which it takes for numbers of one bit."""
    n = np.int32(3)
    for f, wanted in ((lambda a, b: a + b, x or y), (lambda a, b: a * b, x and y)):
        known = lambda n, f=f: f(jnp.full((), x) & (n == n), jnp.full((), y) | (n != n))
        assert nx.jit(known, device="xla")(n) == wanted
        assert nx.jit(f, device="xla")(np.bool_(x), np.bool_(y)) == wanted
