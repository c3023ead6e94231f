"""Keys and generator ops: known answers, the expansion, compiled code."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, KeyTypeError, ParameterError, ShapeError
from nxjax.ops import random as ops
from nxjax.ops.base import eval_by_expand
from nxjax.trace.array import wrap


def u32(*values):
    return wrap(np.array(values, np.uint32))


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [
        # The known answers of the reference implementation (Random123, kat_vectors, threefry2x32 20 rounds).
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key, counter, want):
    operands = [u32(w) for w in (*key, *counter)]
    assert [int(y[0]) for y in ops.threefry2x32(*operands)] == list(want)
    assert [int(y[0]) for y in nx.jit(ops.threefry2x32)(*operands)] == list(want)


KEYS = ops.random_wrap(wrap(np.arange(12, dtype=np.uint32).reshape(2, 3, 2)))


@pytest.mark.parametrize(
    ("op", "operands", "params"),
    [
        *(
            (ops.random_bits, (KEYS,), {"bit_width": w, "shape": s})
            for w in (8, 16, 32, 64)
            for s in ((), (4,), (2, 0))
        ),
        (ops.random_split, (KEYS,), {"shape": (2, 2)}),
        (ops.random_fold_in, (KEYS, wrap(np.arange(6, dtype=np.uint32).reshape(2, 3))), {}),
        (ops.random_seed, (wrap(np.array([1, -1], np.int8)),), {}),
        (ops.random_seed, (wrap(np.array([1, -1], np.int64)),), {}),
        (ops.threefry2x32, tuple(wrap(np.full(3, i, np.uint32)) for i in range(4)), {}),
    ],
)
def test_meaning_expansion_and_compiled_code_agree(op, operands, params):
    want = op(*operands, **params)
    expanded = eval_by_expand(op, [x.numpy() for x in operands], params)
    compiled = nx.jit(lambda *xs: op(*xs, **params))(*operands)
    for w, e, c in zip(*((y if op.multi else (y,)) for y in (want, expanded, compiled)), strict=True):
        assert (w.numpy() == e).all()
        assert (w.numpy() == c.numpy()).all()


def test_large_draws_are_blocks_of_the_same_numbers():
    key = ops.random_wrap(u32(1, 2))
    many = ops.random_bits(key, bit_width=32, shape=(100_000,)).numpy()
    few = ops.random_bits(key, bit_width=32, shape=(100,)).numpy()
    assert (many[:100] == few).all()
    assert len(np.unique(many)) > 99_900


def test_batch_draws_what_each_key_draws_alone():
    drawn = nx.vmap(nx.vmap(lambda k: ops.random_bits(k, bit_width=32, shape=(5,))))(KEYS)
    assert (drawn.numpy() == ops.random_bits(KEYS, bit_width=32, shape=(5,)).numpy()).all()


def test_keys_move_through_data_movement():
    f = nx.jit(lambda k: ops.random_unwrap(nx.numpy.transpose(k).reshape(6)))
    assert (f(KEYS).numpy() == np.arange(12, dtype=np.uint32).reshape(2, 3, 2).swapaxes(0, 1).reshape(6, 2)).all()


def test_errors():
    with pytest.raises(KeyTypeError, match="u32"):
        ops.random_wrap(wrap(np.zeros(2, np.int32)))
    with pytest.raises(KeyTypeError, match="two words"):
        ops.random_wrap(u32(1, 2, 3))
    with pytest.raises(KeyTypeError, match="random_bits"):
        ops.random_bits(u32(1, 2), bit_width=32, shape=())
    with pytest.raises(ParameterError, match="bit_width"):
        ops.random_bits(KEYS, bit_width=4, shape=())
    with pytest.raises(DtypeError, match="threefry2x32"):
        ops.threefry2x32(*(wrap(np.zeros(1, np.int32)),) * 4)
    with pytest.raises(ShapeError, match="random_fold_in"):
        ops.random_fold_in(KEYS, u32(1))
