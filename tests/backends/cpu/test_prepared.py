"""What is prepared of held arrays is there once, for all programs that prepare the same."""

import gc

import numpy as np

import nxjax as nx
from nxjax.backends.cpu import prepared

R = np.random.default_rng(0)


def weight(*shape: int) -> nx.Array:
    return nx.array(R.normal(size=shape).astype(np.float32))


def ready(f, rows: int, depth: int):
    """A function that was called often enough, its result, and the buffers that were prepared for it."""
    x = R.normal(size=(rows, depth)).astype(np.float32)
    first, second = (np.asarray(f(x)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    (entry,) = f._entries.values()
    return x, second, [y for y in entry.prepared.leading if y.dtype == np.uint8]


def test_programs_for_several_lengths_pack_a_weight_once():
    gc.collect()
    before = len(prepared._KNOWN)
    w, b = weight(576, 768), weight(768)
    made = []
    functions = [
        nx.jit(lambda x: nx.nn.relu(x @ w + b)),
        nx.jit(lambda x: nx.numpy.tanh(x @ w)),
        nx.jit(lambda x: x @ w),
    ]
    for f, rows, formula in zip(
        functions,
        (32, 64, 128),
        (lambda y: np.maximum(y + np.asarray(b), 0), np.tanh, lambda y: y),
        strict=True,
    ):
        x, y, buffers = ready(f, rows, 576)
        np.testing.assert_allclose(y, formula(x @ np.asarray(w)), rtol=1e-3, atol=1e-3)
        made.append(buffers)
    assert [len(buffers) for buffers in made] == [1, 1, 1]
    assert len({id(buffers[0]) for buffers in made}) == 1
    del functions, f, made, buffers
    gc.collect()
    assert len(prepared._KNOWN) == before


def test_what_differs_is_not_shared():
    """Another array of equal bytes, another constant, another order of the same: each its own; one ``v`` for all."""
    w, v = weight(96, 96), weight(96, 96)
    copy = nx.array(np.array(w))
    functions = [
        nx.jit(f)
        for f in (
            lambda x: x @ (w * 2) @ v,
            lambda x: x @ (w * 3) @ v,
            lambda x: x @ (copy * 2) @ v,
            lambda x: x @ (w - v) @ v,
            lambda x: x @ (v - w) @ v,
        )
    ]
    found = [ready(f, 64, 96) for f in functions]
    a, b = np.asarray(w), np.asarray(v)
    for (x, y, _), first in zip(found, (a * 2, a * 3, a * 2, a - b, b - a), strict=True):
        np.testing.assert_allclose(y, x @ first @ b, rtol=1e-3, atol=1e-3)
    assert len({id(buffer) for *_, buffers in found for buffer in buffers}) == len(found) + 1
