"""`lax`'s convolutions against `jax.lax`: named paddings, layouts, transposed ones, patches, shapes."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import NxError, ParameterError, ShapeError

NHWC = ("NHWC", "HWIO", "NHWC")


def operands(xs, ys, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(xs).astype(np.float32), rng.standard_normal(ys).astype(np.float32)


def close(a, b):
    np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", ((1, 0), (-1, 2))])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilation", [None, (2, 1)])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv_general_dilated(padding, strides, dilation, groups):
    import jax

    x, y = operands((2, 7, 8, 4), (3, 2, 4 // groups, 6))
    options = {"rhs_dilation": dilation, "dimension_numbers": NHWC, "feature_group_count": groups}
    expected = jax.lax.conv_general_dilated(x, y, strides, padding, **options)
    close(lax.conv_general_dilated(x, y, strides, padding, **options), expected)
    close(nx.jit(lambda a, b: lax.conv_general_dilated(a, b, strides, padding, **options))(x, y), expected)


def test_conv_and_conv_with_general_padding():
    import jax

    x, y = operands((2, 3, 7, 8), (4, 3, 3, 2))
    close(lax.conv(x, y, (1, 2), "SAME"), jax.lax.conv(x, y, (1, 2), "SAME"))
    more = ((1, 1), [(1, 2), (0, 1)], (2, 1), (1, 2))
    close(lax.conv_with_general_padding(x, y, *more), jax.lax.conv_with_general_padding(x, y, *more))


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 0), (2, 1))])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3), (4, 1)])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 2)])
@pytest.mark.parametrize("flip", [False, True])
def test_conv_transpose(padding, strides, kernel, flip):
    import jax

    x, y = operands((2, 5, 4, 3), (*kernel, 2, 3) if flip else (*kernel, 3, 2))
    for more in ({}, {"use_consistent_padding": True}, {"rhs_dilation": (2, 1)}):
        options = {"transpose_kernel": flip, **more}
        expected = jax.lax.conv_transpose(x, y, strides, padding, **options)
        close(lax.conv_transpose(x, y, strides, padding, **options), expected)


@pytest.mark.parametrize("layouts", [("NCHW", "OIHW", "NCHW"), NHWC, ("NCHW", "OIWH", "CNHW")])
def test_patches_and_local_convolution(layouts):
    import jax

    x, _ = operands((2, 4, 6, 5), (1,))
    args = ((2, 3), (1, 2), "SAME")
    mine = lax.conv_general_dilated_patches(x, *args, dimension_numbers=layouts)
    theirs = np.asarray(jax.lax.conv_general_dilated_patches(x, *args, dimension_numbers=layouts))
    close(mine, theirs)
    spec = lax.conv_dimension_numbers(x.shape, x.shape, layouts)
    shape = [0] * 4
    for d, o in zip(spec.rhs_spec[2:], spec.out_spec[2:], strict=True):
        shape[d] = theirs.shape[o]
    shape[spec.rhs_spec[0]], shape[spec.rhs_spec[1]] = 3, theirs.shape[spec.out_spec[1]]
    kernels = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    local = lambda module: module.conv_general_dilated_local(
        x, kernels, args[1], args[2], args[0], dimension_numbers=layouts, precision="highest"
    )
    import jax.lax

    close(local(lax), local(jax.lax))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER"])
def test_padtype_to_pads(padding):
    import jax

    for n in range(1, 9):
        for k in range(1, 5):
            for s in range(1, 4):
                assert lax.padtype_to_pads((n,), (k,), (s,), padding) == [
                    tuple(map(int, p)) for p in jax.lax.padtype_to_pads((n,), (k,), (s,), padding)
                ]
    with pytest.raises(ParameterError, match="no such padding"):
        lax.padtype_to_pads((3,), (2,), (1,), "FULL")


def test_shape_functions():
    import jax

    for module in (lax, jax.lax):
        assert tuple(module.conv_shape_tuple((2, 3, 7, 8), (4, 3, 3, 2), (1, 2), "SAME")) == (2, 4, 7, 4)
        shape = module.conv_general_shape_tuple((2, 7, 8, 3), (3, 2, 3, 4), (1, 2), "VALID", NHWC)
        assert tuple(map(int, shape)) == (2, 5, 4, 4)
        shape = module.conv_transpose_shape_tuple((2, 7, 8, 3), (3, 2, 3, 4), (2, 2), "SAME", NHWC)
        assert tuple(map(int, shape)) == (2, 14, 16, 4)
        perms = module.conv_general_permutations(NHWC)
        assert tuple(map(tuple, perms)) == ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def test_gradient_of_a_strided_same_convolution():
    import jax

    x, y = operands((2, 7, 8, 4), (3, 2, 4, 6))
    f = lambda module: (
        lambda a, b: (module.conv_general_dilated(a, b, (2, 3), "SAME", dimension_numbers=NHWC) ** 2).sum()
    )
    for a, b in zip(nx.grad(f(lax), (0, 1))(x, y), jax.grad(f(jax.lax), (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-4, atol=1e-3)


def test_errors():
    x, y = operands((2, 3, 7, 8), (4, 3, 3, 2))
    with pytest.raises(ParameterError, match="padding by name"):
        lax.conv_general_dilated(x, y, (1, 1), "SAME", lhs_dilation=(2, 1))
    with pytest.raises(ParameterError, match="conv_general_dilated: padding"):
        lax.conv_general_dilated(x, y, (1, 1), (1, 1))
    for strides in ((1,), 1, (1.5, 2), "11"):
        with pytest.raises(NxError, match="conv_general_dilated: "):
            lax.conv_general_dilated(x, y, strides, "SAME")
    with pytest.raises(ParameterError, match="not dimension numbers"):
        lax.conv_general_dilated(x, y, (1, 1), "SAME", dimension_numbers=(1, 2, 3))
    with pytest.raises(ParameterError, match="filter_shape"):
        lax.conv_general_dilated_patches(x, (2,), (1, 1), "SAME")
    with pytest.raises(ShapeError, match="input features"):
        lax.conv(x[:, :2], y, (1, 1), "SAME")
    with pytest.raises(ShapeError, match="differ in rank"):
        lax.conv(x[0], y, (1, 1), "SAME")
    with pytest.raises(ParameterError, match="conv_transpose: padding"):
        lax.conv_transpose(x, y, (1, 1), "FULL", dimension_numbers=("NCHW", "OIHW", "NCHW"))
