"""one_hot as jax.nn."""

import jax
import numpy as np
import pytest

import nxjax as nx


@pytest.mark.parametrize("axis", [-1, 0, 1, -2])
@pytest.mark.parametrize("dtype", [None, "int8", "bool", "bfloat16"])
def test_values(axis, dtype):
    x = np.array([[0, 2, -1], [5, 1, 3]], np.int32)
    got, want = nx.nn.one_hot(x, 4, dtype=dtype, axis=axis), jax.nn.one_hot(x, 4, dtype=dtype, axis=axis)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    np.testing.assert_array_equal(
        np.asarray(nx.jit(lambda x: nx.nn.one_hot(x, 4, dtype=dtype, axis=axis))(x)), np.asarray(want)
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("d", [0, 1, 2])
def test_vmap(axis, d):
    x = np.random.default_rng(0).integers(0, 4, (2, 3, 4)).astype(np.int32)
    got = nx.vmap(lambda x: nx.nn.one_hot(x, 5, axis=axis), in_axes=d)(x)
    want = jax.vmap(lambda x: jax.nn.one_hot(x, 5, axis=axis), in_axes=d)(x)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_small_index_dtypes_and_errors():
    x = np.array([3, 255], np.uint8)
    np.testing.assert_array_equal(
        np.asarray(nx.nn.one_hot(x, 300)), np.asarray(jax.nn.one_hot(x.astype(np.int32), 300))
    )
    assert [e.op.name for e in nx.make_jaxpr(lambda x: nx.nn.one_hot(x, 3))(x).equations] == ["one_hot"]
    with pytest.raises(nx.errors.AxisError):
        nx.nn.one_hot(x, 3, axis=2)
    with pytest.raises(nx.errors.ParameterError):
        nx.nn.one_hot(x, -3)


def test_axis_by_name():
    classes = np.array([2, 0, 5], np.int32)
    got = nx.vmap(lambda x: nx.nn.one_hot(x, 3, axis="i"), axis_name="i", in_axes=None, axis_size=3)(classes)
    assert got.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    with pytest.raises(nx.errors.ParameterError, match="named axis"):
        nx.vmap(lambda x: nx.nn.one_hot(x, 4, axis="i"), axis_name="i")(classes)
