"""Sums over devices whose messages are int8: the bytes, the bound of the error, numbers that are none."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.distributed import communication, quantized_pmean, quantized_psum
from nxjax.errors import DtypeError
from nxjax.sharding import PartitionSpec as P


def summed(x: Any, **options: Any) -> Any:
    return nx.vmap(lambda v: quantized_psum(v, "i", **options), axis_name="i")(x)


@given(
    n=st.integers(1, 5), size=st.integers(1, 70), block=st.sampled_from([1, 8, 32]), seed=st.integers(0, 99),
    spread=st.sampled_from([0, 3, 30]), chance=st.booleans(),
)  # fmt: skip
def test_the_error_is_within_its_bound(n: int, size: int, block: int, seed: int, spread: int, chance: bool) -> None:
    random = np.random.default_rng(seed)
    x = (random.normal(size=(n, size)) * 10.0 ** random.integers(-spread, spread + 1, size)).astype(np.float32)
    found = np.asarray(summed(x, block=block, key=nx.random.key(seed) if chance else None), np.float64)
    assert all(row.tobytes() == found[0].tobytes() for row in found)
    filled = np.zeros((n, -(-size // block) * block))
    filled[:, :size] = np.abs(x)
    most = np.repeat(filled.reshape(n, -1, block).max(2).sum(0), block)[:size]
    levels = 127 if chance else 254
    error = np.abs(found[0] - x.astype(np.float64).sum(0))
    assert (error <= most / levels * (2 + 1 / levels) * (1 + 1e-4) + 1e-36).all()


def test_a_quarter_of_the_bytes_and_the_same_bits_on_all_devices() -> None:
    mesh = nx.make_mesh((4,), ("x",), devices=nx.devices("cpu")[:4])
    x = np.random.default_rng(0).normal(size=(4, 4096)).astype(np.float32)

    def program(f: Any) -> Any:
        return nx.jit(nx.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))

    small, large = program(partial(quantized_psum, axis_name="x")), program(lambda v: nx.lax.psum(v, "x"))
    sent = communication(small.lower(x).compile())
    assert set(sent.by_kind()) == {"all-to-all s8", "all-gather s8"}
    assert sent.sent == 2 * 3 / 4 * 4096 * (1 + 4 / 256)
    whole = communication(large.lower(x).compile())
    assert whole.by_kind() == {"all-reduce f32": 2 * 3 * 4096}
    assert sent.sent / whole.sent == (1 + 4 / 256) / 4
    y = np.asarray(small(x))
    assert all(row.tobytes() == y[0].tobytes() for row in y)
    assert np.abs(y[0] - x.sum(0)).max() < 0.1


def test_numbers_that_are_none_are_not_hidden_and_dtypes_stay() -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 3], x[1, 40] = np.nan, np.inf
    found = np.asarray(summed(x, block=16))[0]
    assert not np.isfinite(found[:16]).any(), "a block is of one scale"
    assert not np.isfinite(found[32:48]).any()
    assert (np.delete(found.reshape(4, 16), [0, 2], 0) == 2).all()
    mixed = {"a": jnp.ones((2, 3), jnp.float64), "b": jnp.zeros((2, 0)), "c": jnp.ones((2, 2), jnp.bfloat16)}
    mean = nx.vmap(lambda v: quantized_pmean(v, "i"), axis_name="i")(mixed)
    assert {k: str(v.dtype) for k, v in mean.items()} == {"a": "float64", "b": "float32", "c": "bfloat16"}
    np.testing.assert_allclose(mean["a"], 1.0, rtol=1e-7)  # scales are float32 always
    tiny = np.full((2, 8), 1e-40, np.float32)
    assert (np.asarray(summed(tiny)) == 0).all()
    with pytest.raises(DtypeError, match="floating"):
        summed(np.ones((2, 3), np.int32))
