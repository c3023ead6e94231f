"""`nx.ops.segment_*` against JAX: buckets, modes, no segments; and samplers' `out_sharding`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError, ShapeError

X = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
IDS = np.int32([0, 2, 1, -1, 2, 9, 2])


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segments(name):
    ours, theirs = getattr(nx.ops, name), getattr(jax.ops, name)
    cases = [{}, {"num_segments": 4, "mode": "clip"}, {"num_segments": 0}]
    cases += [{"num_segments": 3, "bucket_size": n} for n in (1, 2, 5, 9)]
    for options in cases:
        expected = np.asarray(theirs(jax.numpy.asarray(X), jax.numpy.asarray(IDS), **options))
        np.testing.assert_allclose(ours(X, IDS, **options), expected, rtol=1e-6)
    with pytest.raises(ShapeError, match="negative"):
        ours(X, IDS, -1)
    with pytest.raises(ParameterError, match="bucket_size"):
        ours(X, IDS, 3, bucket_size=0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_ids_of_a_dtype_that_does_not_hold_the_number_of_rows(dtype):
    ids = (np.arange(300) % 3).astype(dtype)
    for options in ({}, {"bucket_size": 1}, {"bucket_size": 7}):
        for f in (nx.ops.segment_sum, nx.jit(nx.ops.segment_sum, static_argnums=2, static_argnames="bucket_size")):
            np.testing.assert_array_equal(f(np.ones(300), ids, 400, **options), [100] * 3 + [0] * 397)


def test_results_laid_out():
    rows = nx.sharding.NamedSharding(nx.make_mesh((1,), ("x",)), nx.sharding.PartitionSpec("x"))
    key = nx.random.key(0)
    assert nx.ops.segment_sum(X, IDS, 3, out_sharding=rows).sharding == rows
    assert nx.random.normal(key, (2,), out_sharding=rows).sharding == rows
    drawn = nx.jit(lambda k: nx.random.exponential(k, (2,), out_sharding=rows))(key)
    np.testing.assert_array_equal(drawn, nx.random.exponential(key, (2,)))


def test_extrema_of_complex_numbers():
    x = np.array([1 + 2j, 1 - 1j, 3, 2j, 3 - 1j], np.complex64)
    ids, u = np.array([0, 0, 2, 2, 2]), np.array([1 + 1j, 2 - 5j, 3 - 1j, 4, 3], np.complex64)
    for name in ("max", "min"):
        want = getattr(jax.ops, f"segment_{name}")(x, ids, 4)
        for wrap in (lambda f: f, nx.jit):
            got = wrap(lambda v, name=name: getattr(nx.ops, f"segment_{name}")(v, ids, 4))(x)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
            into = wrap(lambda v, w, name=name: getattr(nx.numpy.asarray(v).at[ids], name)(w))(x, u)
            want_into = getattr(jax.numpy.asarray(x).at[ids], name)(u)
            np.testing.assert_array_equal(np.asarray(into), np.asarray(want_into))
