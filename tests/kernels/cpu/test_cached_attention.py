from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from nxjax.kernels.cpu.cached_attention import FilledAttention
from tests.kernels.cpu.running import ISAS, run


def case(query, cache, lengths, *, tokens=1, groups=2, size=32, room=40, seed=0):
    """A kernel and its operands, with NaN wherever nobody may look."""
    rng, heads = np.random.default_rng(seed), 3
    lengths = np.array(lengths, np.int32)
    q = rng.standard_normal((len(lengths), tokens, heads * groups, size)).astype(query)
    shape = (len(lengths), room + 2, heads, size)
    near = lambda x: x[:, :room]  # sequences have more room than is looked at
    draw = rng.standard_normal if np.dtype(cache).kind != "i" else lambda s: rng.integers(-127, 128, s)
    xs = [q, near(draw(shape).astype(cache)), near(draw(shape).astype(cache)), lengths]
    if cache == np.int8:
        xs += [near(rng.random(shape[:3]).astype(np.float32) / 99) for _ in range(2)]
    for x in xs[1:3] if cache == np.float32 else xs[4:]:
        for row, n in zip(x, lengths, strict=True):
            row[np.clip(n, 0, room - tokens) + tokens :] = np.nan
    strides = tuple(x.strides for x in xs)
    k = FilledAttention(q.dtype, xs[1].dtype, len(lengths), tokens, heads, groups, size, room, strides, 0.2, 0, None)
    return k, xs


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    ("query", "cache"),
    [
        ("float32", "float32"),
        ("float32", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("float32", "float16"),
        ("float32", "int8"),
    ],
)
def test_lengths(query, cache, name):
    query, cache = (np.dtype(getattr(ml_dtypes, d, d)) for d in (query, cache))
    k, xs = case(query, cache, [0, 7, 39, 16])
    (found,) = run(k, *xs, name=name, strided=True, cuts=[k.items // 2])
    (wanted,) = k.meaning(*xs)
    tolerance = 1e-2 if query != np.float32 else 1e-5
    np.testing.assert_allclose(found.astype("float32"), wanted.astype("float32"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    "how", [{"tokens": 3}, {"groups": 1}, {"groups": 5, "size": 80}, {"room": 1300}, {"window": 9}, {"cap": 0.5}]
)
def test_options(how, name):
    """Several tokens, other sizes, sums of many values, a window, a cap; lengths out of bounds are brought inside."""
    sizes = {x: n for x, n in how.items() if x not in ("window", "cap")}
    k, xs = case(np.float32, np.float32, [12, -1, 5000], **sizes)
    k = replace(k, **{x: n for x, n in how.items() if x not in sizes})
    (found,) = run(k, *xs, name=name, strided=True)
    np.testing.assert_allclose(found, k.meaning(*xs)[0], rtol=1e-5, atol=1e-5)


def test_a_sequence_gives_what_it_gives_alone():
    k, xs = case(np.float32, np.float32, [3, 30])
    both = run(k, *xs, strided=True)[0]
    one = replace(k, batch=1, strides=tuple(x[1:].strides for x in xs))
    assert both[1:].tobytes() == run(one, *(x[1:] for x in xs), strided=True)[0].tobytes()
