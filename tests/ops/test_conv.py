"""Convolutions in every layout, stride, dilation and grouping, against JAX: values, derivatives, batching, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import NxError, ParameterError, ShapeError
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers, conv_dimension_numbers
from nxjax.ops.precision import Precision
from nxjax.testing import check_op, sample

LAYOUTS = {
    0: [("NC", "OI", "NC"), ("CN", "IO", "NC")],
    1: [("NCW", "OIW", "NCW"), ("NWC", "WIO", "NWC"), ("WNC", "IWO", "CNW")],
    2: [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("HCWN", "WOHI", "NWHC")],
    3: [("NCDHW", "OIDHW", "NCDHW"), ("NDHWC", "DHWIO", "NDHWC")],
}


def random_config(seed):
    """Shapes and parameters of a convolution drawn at random; groups, dilations and negative padding included."""
    rng = np.random.default_rng(seed)
    spatial = int(rng.choice([0, 1, 2, 2, 2, 3]))
    layouts = LAYOUTS[spatial]
    numbers = conv_dimension_numbers((1,) * (spatial + 2), (1,) * (spatial + 2), layouts[rng.integers(len(layouts))])
    kind = rng.integers(3)
    fg = int(rng.integers(2, 4)) if kind == 1 else 1
    bg = int(rng.integers(2, 4)) if kind == 2 else 1
    depth, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 3)) * fg * bg
    batch = int(rng.integers(1, 4)) * bg
    sizes = rng.integers(4, 8, spatial)
    window = rng.integers(1, 4, spatial)
    ints = lambda low, high: tuple(int(v) for v in rng.integers(low, high, spatial))
    lhs_dilation, rhs_dilation, strides = ints(1, 3), ints(1, 3), ints(1, 4)
    padding = tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (spatial, 2)))
    # The result must not be empty, which has its own test.
    for i in range(spatial):
        padded = sizes[i] + (sizes[i] - 1) * (lhs_dilation[i] - 1) + sum(padding[i])
        if padded < (window[i] - 1) * rhs_dilation[i] + 1:
            window[i] = 1

    def placed(spec, values):
        shape = [0] * len(spec)
        for d, n in zip(spec, values, strict=True):
            shape[d] = int(n)
        return tuple(shape)

    xs = placed(numbers.lhs_spec, (batch, depth * fg, *sizes))
    ys = placed(numbers.rhs_spec, (outputs, depth, *window))
    params = {
        "window_strides": strides,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "feature_group_count": fg,
        "batch_group_count": bg,
    }
    x, y = (rng.standard_normal(s).astype(np.float32) for s in (xs, ys))
    return x, y, numbers, params


def peer(numbers, params):
    import jax

    jax_numbers = jax.lax.ConvDimensionNumbers(*numbers)
    return lambda a, b: jax.lax.conv_general_dilated(a, b, dimension_numbers=jax_numbers, **params)


def close(a, b, scale=1e-4):
    np.testing.assert_allclose(np.asarray(a.numpy()), np.asarray(b), rtol=scale, atol=scale)


@pytest.mark.parametrize("seed", range(60))
def test_values_and_gradients_are_jax(seed):
    import jax

    x, y, numbers, params = random_config(seed)
    f = lambda a, b: conv_general_dilated(a, b, dimension_numbers=numbers, **params)
    expected, pull_jax = jax.vjp(peer(numbers, params), x, y)
    found, pull = nx.vjp(f, x, y)
    close(found, expected)
    ct = np.random.default_rng(seed).standard_normal(expected.shape).astype(np.float32)
    for a, b in zip(pull(nx.asarray(ct)), pull_jax(ct), strict=True):
        close(a, b)
    if seed % 6 == 0:
        close(nx.jit(f)(x, y), expected)
        for a, b in zip(nx.jit(lambda c: pull(c))(ct), pull_jax(ct), strict=True):
            close(a, b)


@pytest.mark.parametrize("seed", range(24))
def test_vmap_in_random_positions(seed):
    x, y, numbers, params = random_config(seed + 1000)
    rng = np.random.default_rng(seed)
    f = lambda a, b: conv_general_dilated(a, b, dimension_numbers=numbers, **params)
    size = 3
    for batched in ((True, False), (False, True), (True, True)):
        dims = tuple(int(rng.integers(0, v.ndim + 1)) if b else None for v, b in zip((x, y), batched, strict=True))
        operands = []
        for v, d in zip((x, y), dims, strict=True):
            shape = v.shape if d is None else (*v.shape[:d], size, *v.shape[d:])
            operands.append(rng.standard_normal(shape).astype(np.float32))
        found = nx.vmap(f, in_axes=dims)(*operands).numpy()
        for i in range(size):
            one = [v if d is None else np.take(v, i, d) for v, d in zip(operands, dims, strict=True)]
            np.testing.assert_allclose(found[i], f(*map(nx.asarray, one)).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_gradient_of_gradient_is_jax(seed):
    import jax

    x, y, numbers, params = random_config(seed + 2000)
    f = lambda a, b: conv_general_dilated(a, b, dimension_numbers=numbers, **params)
    g = peer(numbers, params)
    ct = np.random.default_rng(seed).standard_normal(g(x, y).shape).astype(np.float32)
    mine = lambda a, b: nx.vjp(f, a, b)[1](nx.asarray(ct))
    theirs = lambda a, b: jax.vjp(g, a, b)[1](ct)
    for a, b in zip(nx.jvp(mine, (x, y), (x, y))[1], jax.jvp(theirs, (x, y), (x, y))[1], strict=True):
        close(a, b)


NCHW = conv_dimension_numbers((1,) * 4, (1,) * 4, None)


def conv2d(x, y, **more):
    params = {
        "window_strides": (1, 1),
        "padding": ((0, 0), (0, 0)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "feature_group_count": 1,
        "batch_group_count": 1,
        "dimension_numbers": NCHW,
    }
    return conv_general_dilated(nx.asarray(x), nx.asarray(y), **{**params, **more})


def test_int8_accumulates_exactly_in_int32():
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 200, 6, 6), dtype=np.int8)
    y = rng.integers(-128, 128, (3, 200, 3, 3), dtype=np.int8)
    exact = conv2d(x.astype(np.int32), y.astype(np.int32)).numpy()
    f = lambda a, b: conv2d(a, b, preferred_element_type=np.dtype(np.int32))
    for g in (f, nx.jit(f)):
        z = g(x, y)
        assert z.dtype == np.int32
        np.testing.assert_array_equal(z.numpy(), exact)


def test_bfloat16_gradients_keep_the_operands_dtype():
    x, y = (nx.asarray(np.ones(s, ml_dtypes.bfloat16)) for s in ((1, 2, 4, 4), (3, 2, 3, 3)))
    z, pull = nx.vjp(lambda a, b: conv2d(a, b, preferred_element_type=np.dtype(np.float32)), x, y)
    assert z.dtype == np.float32
    gx, gy = pull(nx.asarray(np.ones(z.shape, np.float32)))
    assert gx.dtype == gy.dtype == ml_dtypes.bfloat16
    assert float(gy.numpy().astype(np.float32).max()) == 4.0


def test_complex_values_and_gradients():
    import jax

    rng = np.random.default_rng(0)
    x, y = (
        (rng.standard_normal(s) + 1j * rng.standard_normal(s)).astype(np.complex64)
        for s in ((1, 2, 5, 5), (3, 2, 3, 3))
    )
    g = lambda a, b: jax.lax.conv_general_dilated(a, b, (1, 1), "VALID")
    expected, pull_jax = jax.vjp(g, x, y)
    found, pull = nx.vjp(conv2d, x, y)
    close(found, expected)
    close(nx.jit(conv2d)(x, y), expected)
    for a, b in zip(pull(found), pull_jax(expected), strict=True):
        close(a, b)


@pytest.mark.parametrize(
    ("xs", "ys", "out"),
    [
        ((2, 3, 2, 5), (4, 3, 3, 3), (2, 4, 0, 3)),
        ((0, 3, 5, 5), (4, 3, 3, 3), (0, 4, 3, 3)),
        ((2, 0, 5, 5), (4, 0, 3, 3), (2, 4, 3, 3)),
    ],
)
def test_empty_sizes(xs, ys, out):
    x, y = np.ones(xs, np.float32), np.ones(ys, np.float32)
    z, pull = nx.vjp(conv2d, x, y)
    assert z.shape == out
    assert not z.numpy().any()
    gx, gy = pull(z)
    assert (gx.shape, gy.shape) == (xs, ys)


def test_batch_of_size_zero():
    z = nx.vmap(conv2d, in_axes=(0, None))(np.ones((0, 1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32))
    assert z.shape == (0, 1, 3, 2, 2)


def test_text_round_trip_and_precision():
    from nxjax.lower.stablehlo.builder import lower

    f = lambda a, b: conv2d(a, b, precision=(Precision.HIGHEST, Precision.DEFAULT))
    program = nx.jit(f).trace(np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32)).program
    assert str(nx.parse_program(str(program))) == str(program)
    assert "#stablehlo<precision HIGHEST>" in lower(program)[0]


def test_dimension_numbers():
    numbers = conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), ("NHWC", "HWIO", "NCHW"))
    lhs, rhs, out = numbers
    assert (lhs, rhs, out) == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    assert numbers == ConvDimensionNumbers(lhs, rhs, out)
    assert conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), numbers) is numbers
    # Spatial letters are matched by name: W before H here.
    assert conv_dimension_numbers((1,) * 4, (1,) * 4, ("NCHW", "OIWH", "NCHW")).lhs_spec == (0, 1, 3, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("NCHW", "not dimension numbers"),
        (("NCHW", "OIHW"), "not dimension numbers"),
        (("NCH", "OIHW", "NCHW"), "layout of the input"),
        (("NCHW", "OIHH", "NCHW"), "layout of the kernel"),
        (("NCHW", "OIHW", "NCHD"), "different spatial dimensions"),
    ],
)
def test_bad_dimension_numbers(value, text):
    with pytest.raises(ParameterError, match=text):
        conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), value)


@pytest.mark.parametrize(
    ("xs", "ys", "more", "error", "text"),
    [
        ((1, 3, 4, 4), (2, 4, 3, 3), {}, ShapeError, "input features do not fit the kernel"),
        ((1, 4, 4, 4), (3, 2, 3, 3), {"feature_group_count": 2}, ShapeError, "groups do not divide"),
        ((3, 2, 4, 4), (2, 2, 3, 3), {"batch_group_count": 2}, ShapeError, "groups do not divide"),
        (
            (4, 4, 4, 4),
            (4, 2, 3, 3),
            {"batch_group_count": 2, "feature_group_count": 2},
            ParameterError,
            "both grouped",
        ),
        ((1, 2, 4), (2, 2, 3, 3), {}, ShapeError, "differ in rank"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"window_strides": (1,)}, ParameterError, "window_strides"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"window_strides": (0, 1)}, ParameterError, "window_strides"),
        ((1, 2, 4, 4), (2, 2, 3, 3), {"padding": ((-3, -3), (0, 0))}, ShapeError, "negative padding"),
    ],
)
def test_errors_name_the_op_and_the_fault(xs, ys, more, error, text):
    with pytest.raises(error, match=text) as caught:
        conv2d(np.ones(xs, np.float32), np.ones(ys, np.float32), **more)
    assert str(caught.value).startswith("conv_general_dilated: ")
    assert isinstance(caught.value, NxError)


def test_laws():
    samples = []
    for seed in (1, 2, 4, 5, 7):
        x, y, numbers, params = random_config(seed)
        samples.append(sample(x, y, dimension_numbers=numbers, **params))
    check_op(conv_general_dilated, samples, rtol=1e-4)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "params",
    [
        {"window_strides": (1, 1), "lhs_dilation": (2, 2)},
        {"window_strides": (2, 1), "lhs_dilation": (3, 2)},
        {"window_strides": (1, 2), "lhs_dilation": (2, 4), "rhs_dilation": (2, 1)},
        {"window_strides": (1, 1), "lhs_dilation": (2, 1), "feature_group_count": 2},
    ],
    ids=["transposed", "strided", "both", "groups"],
)
def test_no_weight_is_multiplied_with_a_hole(params, dtype, value):
    """A hole is no zero, of which an infinite weight would make NaN. XLA has both, by strides and dilations."""
    with nx.enable_x64(dtype == "float64"):
        x = np.arange(1, 65, dtype=np.float32).reshape(1, 4, 4, 4).astype(nx.numpy.dtype(dtype))
        w = np.ones((4, 4 // params.get("feature_group_count", 1), 3, 3), x.dtype)
        f = lambda x, w: nx.lax.conv_general_dilated(x, w, padding=((0, 0), (0, 0)), **params)
        w[1, 0, 1, 0] = 0
        without = np.asarray(f(x, w))
        w[1, 0, 1, 0] = 1
        expected = np.where(np.asarray(f(x, w)) > without, x.dtype.type(value), without)
        assert 0 < np.isfinite(expected).sum() < expected.size
        w[1, 0, 1, 0] = value
        for run in (f, nx.jit(f)):
            np.testing.assert_array_equal(np.asarray(run(x, w)).astype("float64"), expected.astype("float64"))


def test_paddings_are_zeros():
    """Eagerly, compiled and by XLA, where the input has no holes."""
    import jax

    x, w = np.ones((1, 2, 6, 6), np.float32), np.ones((3, 2, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    f = lambda lax: lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME")
    expected = np.asarray(f(jax.lax)(x, w))
    assert np.isnan(expected).any()
    for run in (f(nx.lax), nx.jit(f(nx.lax))):
        np.testing.assert_array_equal(np.asarray(run(x, w)), expected)


def test_long_windows_of_one_feature_keep_digits_in_the_reference():
    x, w = np.full((1, 2, 70_000), 0.1, np.float32), np.ones((2, 1, 70_000), np.float32)
    with nx.config.using(executor="reference"):
        y = nx.lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=2)
    np.testing.assert_allclose(y, np.full((1, 2, 1), x[0, 0].sum(dtype=np.float64)), rtol=4e-6)
