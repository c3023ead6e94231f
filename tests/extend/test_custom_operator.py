"""Custom ops and kernels: one equation under every transform, refused when they are not what they say."""

import copy
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import KernelError, ParameterError
from nxjax.lower.npu import custom as npu
from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.lower.npu.rules.table import RULES
from nxjax.ops.fixed.functions import table
from nxjax.ops.quant_elementwise import qunary
from nxjax.ops.quant_grid import Grid, asymmetric
from nxjax.testing import executors, sample
from nxjax.trace.core import OPS, get_op
from nxjax.transforms.custom_op import CustomOp

rng = np.random.default_rng(0)
close = np.testing.assert_allclose


@pytest.fixture(autouse=True)
def _names():
    """Names that a test takes are free again after it."""
    before = dict(OPS)
    yield
    for name in [n for n, op in OPS.items() if n not in before and isinstance(op, CustomOp)]:
        del OPS[name]
        npu.forget(name)


def array(*shape):
    return rng.normal(size=shape).astype(np.float32)


def names(f, *args):
    return [e.op.name for e in nx.make_jaxpr(f)(*args).equations]


def swish_op():
    @nx.custom_op
    def beta_swish(x, beta=1.0):
        return x * nx.nn.sigmoid(beta * x)

    return beta_swish


def swish(x, beta=1.0):
    return x * jax.nn.sigmoid(beta * x)


# --- ops of nx functions ---


def test_an_elementwise_op_is_one_equation_everywhere():
    op, x = swish_op(), array(3, 4)
    close(np.asarray(op(x)), swish(x), rtol=1e-5, atol=1e-6)
    close(np.asarray(op(x, 2.0)), swish(x, 2.0), rtol=1e-5, atol=1e-6)
    close(np.asarray(op(x, beta=0.5)), swish(x, 0.5), rtol=1e-5, atol=1e-6)
    assert op.elementwise
    assert names(op, x) == ["beta_swish"]
    assert names(nx.vmap(op), x) == ["beta_swish"]
    assert names(nx.vmap(lambda v: op(v, 2.0), in_axes=1, out_axes=1), x) == ["beta_swish"]
    for executor in executors():
        close(np.asarray(nx.jit(op, device=executor)(x)), swish(x), rtol=1e-5, atol=1e-6)
    close(np.asarray(nx.grad(lambda v: op(v, 2.0).sum())(x)), jax.grad(lambda v: swish(v, 2.0).sum())(x), rtol=1e-4)
    close(np.asarray(nx.hessian(lambda v: op(v).sum())(x[0])), jax.hessian(lambda v: swish(v).sum())(x[0]), atol=1e-4)
    program = nx.make_jaxpr(op)(x)
    assert str(nx.parse_program(str(program))) == str(program)
    assert "beta=1.0" in str(program)


def test_elementwise_ops_of_two_operands_broadcast():
    @nx.custom_op
    def gated(x, gate):
        return x * nx.nn.sigmoid(gate)

    x, g = array(3, 4), array(4)
    assert gated.elementwise
    assert gated.quantized == "expand"
    close(np.asarray(gated(x, g)), x * jax.nn.sigmoid(g), rtol=1e-5)
    close(np.asarray(gated(x, array(3, 1) * 0)), x / 2, rtol=1e-5)
    close(np.asarray(gated(x, 0.0)), x / 2, rtol=1e-5)
    close(np.asarray(nx.vmap(gated, in_axes=(0, None))(x, g)), x * jax.nn.sigmoid(g), rtol=1e-5)
    with pytest.raises(nx.errors.ShapeError, match="gated"):
        gated(x, array(3))


def test_an_op_that_mixes_elements():
    @nx.custom_op(type="float[...,n] -> float[...]")
    def spread(x, power=2):
        return nx.mean(nx.abs(x - nx.mean(x, -1, keepdims=True)) ** power, -1)

    def theirs(x):
        return jnp.mean(jnp.abs(x - jnp.mean(x, -1, keepdims=True)) ** 2, -1)

    x = array(2, 3, 5)
    assert not spread.elementwise
    assert spread.quantized == "expand"
    assert names(spread, x) == ["spread"]
    close(np.asarray(spread(x)), theirs(x), rtol=1e-5)
    close(np.asarray(nx.vmap(spread, in_axes=2)(x)), jax.vmap(theirs, in_axes=2)(x), rtol=1e-5)
    got = nx.grad(lambda v: spread(v).sum())(x)
    close(np.asarray(got), jax.grad(lambda v: theirs(v).sum())(x), rtol=1e-4, atol=1e-6)


def test_batching_of_its_own_keeps_one_equation():
    def along(op, size, args, dims):
        return op(nx.moveaxis(args[0], dims[0], 0)), 0

    @nx.custom_op(type="float[...,n] -> float[...]", batching=along)
    def total(x):
        return nx.sum(x, -1)

    assert names(nx.vmap(total), array(2, 3)) == ["total"]
    close(np.asarray(nx.vmap(total, in_axes=1)(np.ones((3, 2)))), [3, 3])


def test_several_results():
    @nx.custom_op
    def both(x):
        return nx.sin(x), nx.cos(x)

    x = array(4)
    s, c = nx.jit(both)(x)
    close(np.asarray(s), np.sin(x), rtol=1e-5)
    close(np.asarray(c), np.cos(x), rtol=1e-5)
    assert names(nx.vmap(both), x) == ["both"]
    close(np.asarray(nx.grad(lambda v: both(v)[0].sum())(x)), np.cos(x), rtol=1e-5)


def test_a_type_of_its_own_is_held_to():
    with pytest.raises(KernelError, match="infer"):

        @nx.custom_op(type=lambda x: nx.trace.types.ArrayType((), x.dtype))
        def wrong_type(x):
            return x

    assert "wrong_type" not in OPS


def test_what_works_element_by_element():
    kinked = nx.custom_op(lambda x, slope=0.1: nx.where(x > 0, nx.tanh(x), nx.clip(slope * x, -1, 1)), name="kinked")
    assert kinked.elementwise
    assert kinked.quantized == "table"
    for f in (lambda x: x - nx.mean(x), lambda x: x[::-1], lambda x: nx.cumsum(x, -1), lambda x: nx.sum(x)):
        assert not nx.custom_op(f, name=f"mixing_{id(f)}").elementwise


def test_under_every_transform():
    op, x = swish_op(), array(3)
    steps = lambda f: lambda v: nx.scan(lambda c, _: (f(c), c), v, None, length=3)[0].sum()
    want = jax.grad(lambda v: swish(swish(swish(v))).sum())(x)
    close(np.asarray(nx.grad(steps(op))(x)), want, rtol=1e-4)
    close(np.asarray(nx.jit(nx.grad(steps(nx.checkpoint(op))))(x)), want, rtol=1e-4)
    each = nx.jit(nx.vmap(nx.grad(lambda v: op(v))))(x)
    close(np.asarray(each), jax.vmap(jax.grad(swish))(x), rtol=1e-4)
    for dtype in ("bfloat16", "float16", "float64"):
        assert op(nx.ones(2, dtype=dtype)).dtype == dtype


def test_a_definition_inside_a_traced_function():
    def f(x):
        @nx.custom_op
        def doubled(v):
            return v * 2

        nx.kernel(doubled)(lambda v: v + v)
        doubled.defgrad(lambda ct, v: 2 * ct)
        return doubled(x)

    assert float(nx.jit(f)(2.0)) == 4.0
    assert float(nx.grad(f)(2.0)) == 2.0


# --- ops of NumPy functions ---


def test_a_numpy_function_runs_on_the_host():
    @nx.custom_op(type="elementwise")
    def cbrt_np(x):
        return np.cbrt(x)

    x = array(3, 2)
    assert cbrt_np.numpy
    close(np.asarray(cbrt_np(x)), np.cbrt(x), rtol=1e-6)
    for executor in executors():
        close(np.asarray(nx.jit(cbrt_np, device=executor)(x)), np.cbrt(x), rtol=1e-6)
    assert names(nx.vmap(cbrt_np), x) == ["cbrt_np"]
    with pytest.raises(nx.errors.GradientError, match=r"cbrt_np\.defgrad"):
        nx.grad(lambda v: cbrt_np(v).sum())(x)

    @cbrt_np.defgrad
    def _(ct, x):
        return ct / (3 * cbrt_np(x) ** 2)

    close(np.asarray(nx.grad(lambda v: cbrt_np(v).sum())(x)), 1 / (3 * np.cbrt(x) ** 2), rtol=1e-4)
    close(np.asarray(nx.jvp(cbrt_np, (x,), (x,))[1]), x / (3 * np.cbrt(x) ** 2), rtol=1e-4)


def test_a_numpy_function_that_mixes_elements():
    @nx.custom_op(type="float[n,k], float[k] -> float[n]")
    def rows(a, v):
        return np.einsum("nk,k->n", a, v)

    @rows.defgrad
    def _(ct, a, v):
        return ct[:, None] * v, nx.matmul(ct, a)

    a, v = array(4, 2, 3), array(3)
    theirs = lambda p, q: jnp.sum((p @ q) ** 2)
    ours = lambda p, q: nx.sum(rows(p, q) ** 2)
    close(np.asarray(nx.vmap(rows, in_axes=(0, None))(a, v)), a @ v, rtol=1e-5)
    for which in (0, 1):
        close(np.asarray(nx.grad(ours, which)(a[0], v)), jax.grad(theirs, which)(a[0], v), rtol=1e-4)
        each = nx.vmap(nx.grad(ours, which), in_axes=(0, None))(a, v)
        close(np.asarray(each), jax.vmap(jax.grad(theirs, which), in_axes=(0, None))(a, v), rtol=1e-4)
        # The gradient of its own stays when vmap comes first.
        over = nx.grad(lambda p, q: nx.sum(nx.vmap(rows, in_axes=(0, None))(p, q) ** 2), which)(a, v)
        close(np.asarray(over), jax.grad(lambda p, q: jnp.sum((p @ q) ** 2), which)(a, v), rtol=1e-4)
    with pytest.raises(nx.errors.ShapeError, match=r"rows: shape of an operand"):
        rows(a[0], array(4))
    with pytest.raises(nx.errors.GradientError):
        nx.jvp(rows, (a[0], v), (a[0], v))


def test_a_numpy_function_says_its_type():
    with pytest.raises(ParameterError, match="does not say the type of its result"):

        @nx.custom_op
        def untyped(x):
            return np.sort(x)

    assert "untyped" not in OPS


# --- derivatives ---


def test_a_gradient_is_compared_with_the_meaning():
    op = swish_op()
    with pytest.raises(KernelError, match=r"gradient of operand 'x' .* element \[0, 0\]: got .*, expected"):

        @op.defgrad
        def wrong(ct, x, beta):
            return ct * nx.nn.sigmoid(beta * x)

    assert op.pulls is None

    @op.defgrad
    def right(ct, x, beta):
        s = nx.nn.sigmoid(beta * x)
        return ct * (s + beta * x * s * (1 - s))

    assert op.pulls is right
    x = array(3)
    close(np.asarray(nx.grad(lambda v: op(v, 2.0).sum())(x)), jax.grad(lambda v: swish(v, 2.0).sum())(x), rtol=1e-4)
    close(np.asarray(nx.jvp(op, (x,), (x,))[1]), jax.jvp(swish, (x,), (x,))[1], rtol=1e-4)


def test_a_straight_through_gradient_is_not_compared():
    @nx.custom_op
    def rounded(x):
        return nx.round(x)

    with pytest.raises(KernelError, match="not that of its meaning"):
        rounded.defgrad(lambda ct, x: ct)
    rounded.defgrad(lambda ct, x: ct, check=False)
    x = array(3)
    assert np.array_equal(np.asarray(nx.grad(lambda v: rounded(v).sum())(x)), np.ones(3))
    for f in (nx.jit(rounded), nx.vmap(rounded)):
        assert np.array_equal(np.asarray(nx.grad(lambda v, f=f: f(v).sum())(x)), np.ones(3))


def test_a_forward_rule():
    calls = []

    @nx.custom_op(type="float[n] -> float[]")
    def energy(x):
        return nx.sum(x * x)

    @energy.defjvp
    def push(primals, tangents):
        calls.append(1)
        (x,), (t,) = primals, tangents
        return energy(x), 2 * nx.sum(x * t)

    x = array(4)
    calls.clear()
    close(np.asarray(nx.grad(energy)(x)), 2 * x, rtol=1e-6)
    assert calls
    close(np.asarray(nx.grad(lambda v: nx.vmap(energy)(v.reshape(2, 2)).sum())(x)), 2 * x, rtol=1e-6)
    with pytest.raises(KernelError):
        energy.defjvp(lambda primals, tangents: (energy(*primals), nx.sum(primals[0] * tangents[0])))
    assert energy.pushes is push
    with pytest.raises(nx.errors.TreeError, match="must give a pair"):
        energy.defjvp(lambda primals, tangents: energy(*primals))
    with pytest.raises(nx.errors.DtypeError, match="tangent of another type"):
        energy.defjvp(lambda primals, tangents: (energy(*primals), tangents[0]))


def test_a_derivative_given_at_once():
    with pytest.raises(KernelError):

        @nx.custom_op(derivative=lambda ct, x: ct)
        def squared_wrongly(x):
            return x * x

    assert "squared_wrongly" not in OPS

    @nx.custom_op(derivative=lambda ct, x: 2 * x * ct)
    def squared(x):
        return x * x

    assert float(nx.grad(squared)(3.0)) == 6.0


@pytest.mark.parametrize(
    ("rule", "error", "says"),
    [
        (lambda ct, x, y: ct, nx.errors.TreeError, "one per operand: x, y"),
        (lambda ct, x, y: (ct, nx.ones(7)), nx.errors.DtypeError, "cotangent of another type"),
    ],
)
def test_rules_that_give_something_else(rule, error, says):
    @nx.custom_op
    def product(x, y):
        return x * y

    with pytest.raises(error, match=says):
        product.defgrad(rule)
    assert product.pulls is None


# --- what is refused, and what it leaves behind ---


def test_a_failed_definition_leaves_no_name():
    with pytest.raises(KernelError, match="fails its own test and is not registered"):

        @nx.custom_op
        def unstable(x):
            return x + (nx.trace.core.current_trace() is nx.trace.core.EVAL)

    assert "unstable" not in OPS

    @nx.custom_op
    def unstable(x):
        return x + 1

    assert float(unstable(1.0)) == 2.0


def test_names():
    with pytest.raises(ParameterError, match="an op 'sin' already"):
        nx.custom_op(lambda x: x, name="sin")
    assert get_op("sin")(nx.ones(())) != 1
    with pytest.raises(ParameterError, match="pass name="):
        nx.custom_op(lambda x: x)
    op = nx.custom_op(lambda x: x * 2, name="twice")
    assert get_op("twice") is op
    with pytest.raises(ParameterError, match="already"):

        @nx.custom_op(name="twice")
        def other(x):
            return x


def test_names_of_ops_that_nobody_has_used():
    """The file of `svd` is not loaded by then."""
    code = """
import nxjax as nx, nxjax.numpy as jnp
assert nx.extend.core.Primitive("svd").name == "svd_"
try:
    nx.custom_op(lambda x: x, name="svd")
except nx.errors.ParameterError:
    print(float(jnp.linalg.svdvals(jnp.ones((1, 1)))[0]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "1.0\n", done.stderr


def test_defining_again_replaces_and_forgets():
    def define(factor):
        @nx.custom_op
        def scaled(x):
            return x * factor

        return scaled

    grid = asymmetric(-4, 4)
    tabulated = lambda x: qunary(x, function="scaled", x_grid=grid, y_grid=grid, rounding="double", parameters=())
    run = lambda op: float(nx.jit(lambda x: op(x))(np.float32(1.0)))
    first = define(2.0)
    assert run(first) == 2.0
    x = grid.dequantize(grid.quantize(np.float32([1.0])))
    before = float(tabulated(nx.array(x))[0])
    second = define(3.0)
    assert get_op("scaled") is second
    assert run(second) == 3.0
    assert run(first) == 2.0
    close([before, float(tabulated(nx.array(x))[0])], [2 * x[0], 3 * x[0]], atol=0.04)


def _no_operand(axis=0):
    return axis


def _stars(*xs):
    return xs


@pytest.mark.parametrize(
    ("function", "kwargs", "says"),
    [
        (3, {}, "needs a function"),
        (_no_operand, {}, "has no operand"),
        (_stars, {}, "named parameters"),
        (lambda x: x, {"name": "f", "type": 3}, "type"),
        (lambda x: x, {"name": "f", "type": "float[n]"}, "operands -> results"),
        (lambda x: x, {"name": "f", "type": "float[n] -> float[m]"}, "does not follow"),
        (lambda x: x, {"name": "f", "type": "float[n-1] -> float[n]"}, "dimensions"),
        (lambda x: x, {"name": "f", "quantize": "int3"}, "quantize"),
        (lambda x: nx.sum(x), {"name": "f", "quantize": "table"}, "elementwise op of one operand"),
        (lambda x, *, axis: nx.sum(x, axis), {"name": "f"}, "do not fill its parameters"),
        (lambda x: nx.linalg.cholesky(x), {"name": "f"}, "does not take the samples"),
        (lambda x: x, {"name": "f", "samples": []}, "at least one"),
    ],
)
def test_bad_declarations(function, kwargs, says):
    with pytest.raises(ParameterError, match=says):
        nx.custom_op(function, **kwargs)
    assert "f" not in OPS


def test_samples_of_its_own():
    @nx.custom_op(samples=[sample(array(3, 2), axis=0), sample(array(2, 3), axis=1)])
    def summed(x, *, axis):
        return nx.sum(x, axis)

    assert summed(array(3, 4), axis=1).shape == (3,)
    with pytest.raises(ParameterError, match=r"arguments are missing"):
        summed(array(3))

    @nx.custom_op(samples=[np.eye(3, dtype=np.float32) * 2 + 0.1])
    def root(x):
        return nx.linalg.cholesky((x + x.T) / 2)

    close(np.asarray(root(4 * np.eye(2, dtype=np.float32))), 2 * np.eye(2), rtol=1e-6)


def test_bad_calls():
    op = swish_op()
    with pytest.raises(ParameterError, match=r"setting 'beta' is traced"):
        nx.jit(lambda b: op(array(2), b))(1.0)
    with pytest.raises(ParameterError, match=r"unknown: \['gamma'\]"):
        op(array(2), gamma=1.0)
    with pytest.raises(ParameterError, match=r"twice: \['beta'\]"):
        op(array(2), 1.0, beta=1.0)
    with pytest.raises(ParameterError, match="too many arguments"):
        op(array(2), 1.0, 2.0)
    with pytest.raises(ParameterError, match="does not hash"):
        op(array(2), beta=[1.0])
    with pytest.raises(nx.errors.DtypeError, match="beta_swish: not an array"):
        op([1.0])


# --- kernels of executors ---


def test_a_kernel_for_the_cpu_is_used_and_tested():
    op, calls = swish_op(), []

    @nx.kernel(op, target="cpu")
    def fast(x, beta):
        calls.append(x.shape)
        return x / (1 + np.exp(-np.float32(beta) * x))

    x = array(3, 4)
    calls.clear()
    close(np.asarray(op(x)), swish(x), rtol=1e-5, atol=1e-6)
    close(np.asarray(nx.jit(op, device="reference")(x)), swish(x), rtol=1e-5, atol=1e-6)
    assert calls == [(3, 4)] * 2
    with pytest.raises(KernelError) as caught:

        @nx.kernel(op, target="cpu")
        def wrong(x, beta):
            y = x / (1 + np.exp(-np.float32(beta) * x))
            y[..., -1] += 1
            return y

    assert "at element [0, 2] of float32[2, 3]" in str(caught.value)
    assert "expected:" in str(caught.value)
    assert op.kernels["cpu"].run is fast


def test_supports_says_when():
    op, calls = swish_op(), []

    @nx.kernel(op, target="cpu", supports=lambda x, beta: len(x.shape) == 2)
    def fast(x, beta):
        calls.append(x.shape)
        return x / (1 + np.exp(-np.float32(beta) * x))

    calls.clear()
    op(array(4))
    assert not calls
    op(array(4, 4))
    assert calls
    with pytest.raises(KernelError, match="supports none of the op's samples"):
        nx.kernel(op, target="cpu", supports=lambda x, beta: len(x.shape) == 3)(fast)
    assert op.kernels["cpu"].run is fast


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, beta: x[..., :1],
        lambda x, beta: (x, x),
        lambda x, beta: (x * 0).astype(np.complex64),
        lambda x, beta: np.full_like(x, np.nan),
    ],
)
def test_kernels_of_other_shapes_dtypes_or_counts(wrong):
    op = swish_op()
    with pytest.raises(KernelError, match="not registered"):
        nx.kernel(op)(wrong)
    assert not op.kernels


@pytest.mark.skipif("xla" not in executors(), reason="needs XLA")
def test_a_kernel_in_stablehlo():
    op = swish_op()

    @nx.kernel(op, target="xla")
    def emit(b, out, x, *, beta):
        scaled = b.simple("multiply", (x, b.constant(np.full(x.type.shape, beta, x.type.dtype), x.type)), out)
        return b.simple("multiply", (x, b.simple("logistic", (scaled,), out)), out)

    x = array(5)
    text = nx.jit(op, device="xla").lower(x).as_text()
    assert text.count("stablehlo.multiply") == 2
    close(np.asarray(nx.jit(op, device="xla")(x)), swish(x), rtol=1e-5)
    with pytest.raises(KernelError):
        nx.kernel(op, target="xla")(lambda b, out, x, *, beta: b.simple("logistic", (x,), out))
    with pytest.raises(KernelError, match="fails on the op's samples"):
        nx.kernel(op, target="xla")(lambda b, out, x, *, beta: b.simple("no_such_op", (x,), out))
    assert op.kernels["xla"].run is emit


def test_what_kernels_are_for():
    with pytest.raises(ParameterError, match=r"made by nx\.custom_op"):
        nx.kernel(nx.sin)
    with pytest.raises(ParameterError, match="tflite"):
        nx.kernel(swish_op(), target="abacus")


# --- kernels of file formats ---


def tabulated(b, x, *, out, beta):
    if x.grid is None:
        return None
    values = table(lambda v: v / (1 + np.exp(-beta * v)), x.grid, out)
    return b.elementwise("table", [x], out, function="beta_swish", values=values)


def lowered(op, x, out, rules, **settings):
    """The graph of one quantized call by a rule table."""
    b = GraphBuilder(rules)
    params = {"function": op.name, "x_grid": x.grid, "y_grid": out, "rounding": "double"}
    typed = nx.trace.types.ArrayType(x.shape, np.dtype("float32"))
    (y,) = b.apply(qunary, [LogicalTensor(x.shape, x)], {**params, "parameters": tuple(settings.items())}, [typed])
    return NpuGraph("test", [x], [b.tensor(y)], b.nodes).check()


def test_an_int8_table_kernel():
    op = swish_op()
    nx.kernel(op, target="tflite")(tabulated)
    assert str(op) in npu.rules_for("tflite", {}) and str(op) not in npu.rules_for("onnx", {})
    grid, out = asymmetric(-4, 4), asymmetric(-0.3, 4)
    x = Tensor("x", (256,), np.dtype("int8"), grid)
    graph = lowered(op, x, out, npu.rules_for("tflite", RULES), beta=2.0)
    assert [n.op for n in graph] == ["table"]
    stored = np.arange(-128, 128).astype(np.int8)
    want = out.quantize(np.asarray(swish(grid.dequantize(stored), 2.0)))
    (got,) = interpret(graph, [stored])
    assert np.abs(got.astype(int) - want).max() <= 1
    assert npu.rules_for("onnx", RULES) is RULES


def test_other_formats_take_the_op_without_a_kernel():
    op = swish_op()
    nx.kernel(op, target="tflite")(tabulated)
    grid = asymmetric(-4, 4)
    x = Tensor("x", (8,), np.dtype("int8"), grid)
    graph = lowered(op, x, grid, RULES, beta=2.0)
    (got,) = interpret(graph, [np.arange(8).astype(np.int8)])
    want = grid.quantize(np.asarray(swish(grid.dequantize(np.arange(8).astype(np.int8)), 2.0)))
    assert np.abs(got.astype(int) - want).max() <= 1


def test_a_wrong_table_is_refused():
    op = swish_op()

    def wrong(b, x, *, out, beta):
        if x.grid is None:
            return None
        values = table(lambda v: v / (1 + np.exp(-beta * v)), x.grid, out).copy()
        values[200] -= 3
        return b.elementwise("table", [x], out, function="beta_swish", values=values)

    with pytest.raises(KernelError, match=r"at element \[200\] of int8\[256\]"):
        nx.kernel(op, target="tflite")(wrong)
    assert str(op) not in npu.rules_for("tflite", {})
    with pytest.raises(KernelError, match="supports none"):
        nx.kernel(op, target="tflite")(lambda b, x, *, out, beta: None)
    with pytest.raises(KernelError, match="fails on the op's samples"):
        nx.kernel(op, target="tflite")(lambda b, x, *, out, beta: b.no_such_method())


def test_a_float_kernel_for_a_format():
    op = swish_op()

    @nx.kernel(op, target="onnx", supports=lambda x, out, beta: x.grid is None)
    def emit(b, x, *, out, beta):
        scaled = b.elementwise("mul", [x, b.constant(np.float32(beta))], out, activation=None)
        gate = b.elementwise("logistic", [scaled], out)
        return b.elementwise("mul", [x, gate], out, activation=None)

    b = GraphBuilder(npu.rules_for("onnx", RULES))
    x = Tensor("x", (4,), np.dtype("float32"))
    typed = nx.trace.types.ArrayType((4,), np.dtype("float32"))
    b.apply(op, [LogicalTensor((4,), x)], {"beta": 2.0}, [typed])
    assert [n.op for n in b.nodes] == ["mul", "logistic", "mul"]


# --- in quantized programs ---


def test_a_quantized_program_holds_a_table_of_it():
    op = swish_op()
    w, x = array(4, 4), array(64, 4)
    f = lambda v: op(v @ w, 2.0) @ w
    quantized = nx.quantize(f, "int8", calibrate=[x])
    text = str(nx.make_jaxpr(quantized)(x))
    assert "qunary" in text
    assert "logistic" not in text
    assert np.abs(np.asarray(quantized(x)) - np.asarray(f(x))).max() < 0.2
    slope = nx.grad(lambda v: quantized(v).sum())(x)
    exact = nx.grad(lambda v: f(v).sum())(x)
    assert np.corrcoef(np.asarray(slope).ravel(), np.asarray(exact).ravel())[0, 1] > 0.95


def test_an_op_in_quantized_pieces():
    op = nx.custom_op(lambda x, beta=1.0: x * nx.nn.sigmoid(beta * x), name="in_pieces", quantize="expand")
    w, x = array(4, 4), array(64, 4)
    f = lambda v: op(v @ w, 2.0) @ w
    quantized = nx.quantize(f, "int8", calibrate=[x])
    made = [e.op.name for e in nx.make_jaxpr(quantized)(x).equations]
    assert "in_pieces" not in made
    assert made.count("qmul") >= 1
    assert made.count("qunary") == 1
    want = np.asarray(f(x))
    assert np.abs(np.asarray(quantized(x)) - want).max() < 0.03 * np.abs(want).max()
    with pytest.raises(ParameterError, match="pieces"):
        nx.custom_op(lambda x: np.sort(x), name="f", type="float[n] -> float[n]", quantize="expand")


def test_an_op_that_is_not_quantized_stays_float():
    @nx.custom_op(quantize="float")
    def wavy(x):
        return nx.sin(20 * x)

    w, x = array(4, 4), array(8, 4)
    quantized = nx.quantize(lambda v: wavy(v @ w), "int8", calibrate=[x])
    text = str(nx.make_jaxpr(quantized)(x))
    assert "wavy " in text
    assert "qunary" not in text


def test_lowering_for_a_format_uses_its_kernels():
    op, made = swish_op(), []

    @nx.kernel(op, target="tflite")
    def noted(b, x, *, out, beta):
        made.append(out)
        return tabulated(b, x, out=out, beta=beta)

    w, x = array(4, 4), array(16, 4)
    quantized = nx.quantize(lambda v: op(v @ w) @ w, "int8", calibrate=[x])
    program = nx.make_jaxpr(quantized)(x)
    for format, used in (("tflite", 1), ("onnx", 0), ("", 0)):
        made.clear()
        graph = lower(program, format=format)
        assert len(made) == used
        assert [n.op for n in graph].count("table") == 1
        (y,) = interpret(graph, [x])
        assert np.abs(y - np.asarray(quantized(x))).max() <= 1e-6 + 0.05 * (format == "tflite")


# --- rules that fail themselves ---


def failing(*args, **settings):
    return 1 / 0


@pytest.mark.parametrize("target", ["cpu", "tflite", *({"xla"} & set(executors()))])
def test_kernels_that_raise_are_refused_with_what_they_raised(target):
    op = swish_op()
    for wrong in (failing, lambda: None):
        with pytest.raises(KernelError, match="fails on the op's samples") as caught:
            nx.kernel(op, target=target)(wrong)
        assert "ZeroDivisionError" in str(caught.value) or "TypeError" in str(caught.value)
    with pytest.raises(KernelError, match="fails on the op's samples"):
        nx.kernel(op, target=target, supports=failing)(lambda *a, **k: None)
    assert not op.kernels
    close(float(op(1.0)), float(swish(1.0)), 1e-6)


def test_a_kernel_that_writes_into_its_operands_is_refused():
    op = swish_op()
    with pytest.raises(KernelError, match="read-only"):
        nx.kernel(op)(lambda x, beta: np.divide(x, 1 + np.exp(-beta * x), out=x))
    close(float(op(1.0)), float(swish(1.0)), 1e-6)


@pytest.mark.skipif("xla" not in executors(), reason="needs XLA")
def test_a_kernel_that_writes_nothing_is_no_kernel():
    op = swish_op()
    with pytest.raises(KernelError, match="supports none"):
        nx.kernel(op, target="xla")(lambda b, out, x, *, beta: None)
    with pytest.raises(KernelError, match="fails on the op's samples"):
        nx.kernel(op, target="tflite")(lambda b, x, *, out, beta: 7)
    assert not op.kernels


def test_a_kernel_that_forgets_a_setting_is_refused():
    op = swish_op()
    with pytest.raises(KernelError, match="differs from the op's meaning"):
        nx.kernel(op)(lambda x, beta: x / (1 + np.exp(-x)))
    with pytest.raises(KernelError, match="not that of its meaning"):
        op.defgrad(lambda ct, x, beta: ct * nx.nn.sigmoid(x) * (1 + x * (1 - nx.nn.sigmoid(x))))
    with pytest.raises(KernelError, match="not registered"):
        nx.kernel(op, target="tflite")(lambda b, x, *, out, beta: tabulated(b, x, out=out, beta=1.0))


def test_settings_that_a_function_refuses_are_not_asked_for():
    @nx.custom_op
    def picky(x, rate=0.5):
        if rate != 0.5:
            raise ValueError("only a half")
        return x * rate

    assert float(picky(4.0)) == 2.0
    assert len(picky.samples) == 2


def test_derivatives_that_raise_are_refused_with_what_they_raised():
    op = swish_op()
    for give in (op.defgrad, op.defjvp):
        with pytest.raises(KernelError, match="its derivative rule fails") as caught:
            give(failing)
        assert "ZeroDivisionError" in str(caught.value)
    assert not op.derivative_given


def test_a_derivative_in_numpy_is_refused():
    """It would do in eager gradients, and fail under jit."""
    op = swish_op()
    with pytest.raises(nx.errors.TracerArrayConversionError, match=r"use the nx\.numpy function"):
        op.defgrad(lambda ct, x, beta: np.asarray(ct) * np.asarray(x))
    assert not op.derivative_given


def test_a_forward_rule_with_another_result_is_refused():
    op = swish_op()
    slope = lambda x, beta: nx.grad(lambda v: (v * nx.nn.sigmoid(beta * v)).sum())(x)
    with pytest.raises(KernelError, match="another result than the op"):
        op.defjvp(lambda p, t, beta: (2 * p[0], t[0] * slope(p[0], beta)))
    op.defjvp(lambda p, t, beta: (p[0] * nx.nn.sigmoid(beta * p[0]), t[0] * slope(p[0], beta)))
    assert op.derivative_given


@pytest.mark.parametrize(
    "wrong", [failing, lambda op, size, args, dims: (op(*args), 0), lambda op, size, args, dims: None]
)
def test_batching_that_fails_is_refused(wrong):
    with pytest.raises(KernelError, match=r"product_of: (its test ends in an error|fails its own test)"):

        @nx.custom_op(type="float[n,k], float[k] -> float[n]", batching=wrong)
        def product_of(a, b):
            return a @ b

    assert "product_of" not in OPS


def test_ops_are_copied_and_pickled_as_themselves():
    op = swish_op()
    for one in (op, get_op("add")):
        assert copy.copy(one) is copy.deepcopy(one) is pickle.loads(pickle.dumps(one)) is one
    data = pickle.dumps(op)
    del OPS[op.name]
    with pytest.raises(nx.errors.NxError, match="there is no op"):
        pickle.loads(data)
    OPS[op.name] = op


def test_definitions_on_many_threads():
    found, problems = [], []

    def work(i):
        try:

            @nx.custom_op
            def doubled_somewhere(x):
                return x * 2

            nx.kernel(doubled_somewhere)(lambda x: x + x)
            found.append(float(nx.jit(lambda v: get_op("doubled_somewhere")(v))(2.0)))
        except Exception as error:
            # Another thread may have defined it anew in between.
            if isinstance(error, ParameterError) and "made by nx.custom_op" in str(error):
                found.append(4.0)
            else:
                problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems and found == [4.0] * 6


# --- kernels where programs leave ops in float, and kernels that fail later ---


def test_a_kernel_is_given_reals_where_its_op_stays_float():
    """The op follows a product on a grid, and in 16 bits it is computed by its pieces."""
    op, seen = swish_op(), []

    @nx.kernel(op, target="tflite")
    def noted(b, x, *, out, beta):
        seen.append((x.grid, out))
        return tabulated(b, x, out=out, beta=beta)

    w, x = array(4, 4), array(16, 4)
    for how, policy in (("table", "int16x8"), ("float", "int16x8"), ("float", "int8")):
        op.quantized = how
        quantized = nx.quantize(lambda v: op(v @ w) @ w, policy, calibrate=[x])
        seen.clear()
        graph = lower(nx.make_jaxpr(quantized)(x), format="tflite")
        if how == "table":
            assert {str(n.output.dtype) for n in graph.nodes[:-1]} == {"int16"}
            assert not seen
        assert all((grid is None) == (not isinstance(out, Grid)) for grid, out in seen)
        (y,) = interpret(graph, [x])
        close(y, np.asarray(quantized(x)), atol=1e-3 if policy == "int8" else 1e-4)


def test_a_kernel_that_fails_when_lowered_is_named():
    op, passed = swish_op(), []

    @nx.kernel(op, target="tflite")
    def brittle(b, x, *, out, beta):
        if passed:
            return 1 / 0
        return tabulated(b, x, out=out, beta=beta)

    passed.append(True)
    w, x = array(4, 4), array(16, 4)
    for f in (nx.quantize(lambda v: op(v @ w), "int8", calibrate=[x]), lambda v: op(v @ w)):
        with pytest.raises(nx.errors.LoweringError, match="kernel of beta_swish for 'tflite': fails") as caught:
            lower(nx.make_jaxpr(f)(x), format="tflite")
        assert "ZeroDivisionError" in str(caught.value)
