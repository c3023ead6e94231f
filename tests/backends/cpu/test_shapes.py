"""Each class of kernels at the sizes and layouts where vectors, tiles and blocks end, on every instruction set.

A row of `ROWS` is a function of arrays whose sizes are each tried in each position: nothing, one, one lane less and
more than a vector or two, and a prime. Operands come as they are, transposed, reversed, cut out, or at an odd address.
They are small whole numbers, so that sums and products are exact and compiled programs equal eager ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.kernels.cpu import isa
from tests.kernels.cpu.running import ISAS

FLOATS = ("float32", "float64")
SUMMED = ("float32", "int32", "float64")
MOVED = ("float32", "int8", "bfloat16", "float64", "int16")


@dataclass(frozen=True)
class Row:
    """What is computed of arrays of which shapes.

    Attributes:
        shapes: the operands' shapes, by the sizes' letters.
        function: of the operands.
        dtypes: taken in turn.
        least: the smallest size that has a meaning.
        rtol: 0 where results are exact.
    """

    shapes: str
    function: Callable[..., Any]
    dtypes: tuple[str, ...] = MOVED
    least: int = 0
    rtol: float = 0

    @property
    def letters(self):
        return sorted(set(self.shapes) - {" ", ","})


def _positive(x):
    """A positive definite matrix made of any."""
    return x @ x.T + 4 * jnp.eye(x.shape[0], dtype=x.dtype) * max(x.shape[1], 1)


def _places(x, size):
    """Indices into ``size`` places, some of them beyond, made of the values of ``x``."""
    return x.astype(jnp.int32) * 7 % (size + 2)


def _conv(x, w, strides=(1, 1), padding: Any = "SAME", **params):
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **params)


def _window(x, init, op, size, step, padding="SAME"):
    dims = (1,) * (x.ndim - 2)
    return lax.reduce_window(x, np.array(init, x.dtype), op, (*dims, size, size), (*dims, step, step), padding)


# What is larger than blocks, tiles and one thread's work, by the letters of a row from its last.
LARGE = ((1201, 263, 3), (263, 1201, 7), (5003, 17, 3))

ROWS = {
    "elementwise": Row("mn mn", lambda x, y: jnp.maximum(x * y + x, y - 2)),
    "scalars": Row("m", lambda x: jnp.where(x > 1, x, 2 - x)),
    "rows of one": Row("mn n", lambda x, y: x * y),
    "columns of one": Row("mn m", lambda x, y: x + y[:, None]),
    "three axes": Row("amn a", lambda x, y: x - y[:, None, None]),
    "conversion": Row("mn", lambda x: (x.astype(jnp.float16), x.astype(jnp.int8), x.astype(jnp.bfloat16), x > 0)),
    "mixed widths": Row("mn", lambda x: x.astype(jnp.float64) + (x > 0).astype(jnp.int8).astype(jnp.float64)),
    "sum of rows": Row("mn", lambda x: x.sum(1), SUMMED),
    "sum of columns": Row("mn", lambda x: x.sum(0), SUMMED),
    "sum of the middle": Row("amn", lambda x: x.sum(1), SUMMED),
    "sum of the outer": Row("amn", lambda x: x.sum((0, 2)), SUMMED),
    "sum of all": Row("mn", lambda x: (x.sum(), (x * x).sum()), SUMMED),
    "extremes": Row("mn", lambda x: (x.max(1), x.min(0), x.max()), least=1),
    "places of extremes": Row("mn", lambda x: (x.argmax(1), x.argmin(0)), least=1),
    "all and any": Row("mn", lambda x: ((x > 0).all(1), (x > 2).any(0))),
    "normalization": Row("mn", lambda x: nx.nn.softmax(x, 1), FLOATS, rtol=1e-6),
    "normalization of columns": Row("mn", lambda x: nx.nn.softmax(x, 0), FLOATS, rtol=1e-6),
    "product": Row("mk kn", lambda x, y: x @ y, (*SUMMED, "int8", "bfloat16")),
    "product and tail": Row("mk kn n", lambda x, y, z: jnp.maximum(x @ y + z, 0), ("float32",)),
    "product by rows": Row("mk nk", lambda x, y: x @ y.T, SUMMED),
    "batch of products": Row("amk akn", lambda x, y: x @ y, SUMMED),
    "matrix and vector": Row("mk k", lambda x, y: x @ y, SUMMED),
    "vector and matrix": Row("k kn", lambda x, y: x @ y, SUMMED),
    "dot": Row("k k", lambda x, y: x @ y, SUMMED),
    "outer": Row("m n", jnp.outer, SUMMED),
    "int8 product": Row("mk kn", lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32), ("int8",)),
    "attention": Row("mk nk nl", lambda q, k, v: nx.nn.softmax(q @ k.T) @ v, FLOATS, least=1, rtol=1e-5),
    "convolution": Row("hwio", lambda x: _conv(x[None, :, :, :, 0], x[:3, :3]), FLOATS, 3, 1e-5),
    "convolution of channels": Row(
        "hwc",
        lambda x: _conv(x[None], x[:3, :3, None], padding=((1, 1), (0, 1)), feature_group_count=x.shape[2]),
        FLOATS,
        3,
    ),
    "pointwise convolution": Row("hwi io", lambda x, w: _conv(x[None], w[None, None], padding="VALID"), FLOATS, 1),
    "strided convolution": Row(
        "hwi io", lambda x, w: _conv(x[None], jnp.broadcast_to(w, (2, 3, *w.shape)), (2, 2)), FLOATS, 3
    ),
    "largest of windows": Row("chw", lambda x: _window(x, -100, lax.max, 3, 2)),
    "sums of windows": Row("chw", lambda x: _window(x, 0, lax.add, 2, 1, "VALID"), SUMMED, 2),
    "chosen of windows": Row("chw", nx.grad(lambda x: (_window(x, -100, lax.max, 2, 2) * 3).sum()), FLOATS, 2),
    "running sum": Row("mn", lambda x: (x.cumsum(1), x.cumsum(0)), SUMMED),
    "running extremes": Row("mn", lambda x: (lax.cummax(x, 1), lax.cummin(x, 0, reverse=True))),
    "rows by index": Row("mn a", lambda x, i: jnp.take(x, _places(i, x.shape[0]), 0, mode="clip"), least=1),
    "columns by index": Row(
        "mn a", lambda x, i: x.at[:, _places(i, x.shape[1])].get(mode="fill", fill_value=9), least=1
    ),
    "elements by index": Row(
        "mn mn", lambda x, i: jnp.take_along_axis(x, _places(i, x.shape[1]), 1, mode="clip"), least=1
    ),
    "additions by index": Row("mn an", lambda x, y: x.at[_places(y[:, 0], x.shape[0])].add(y), SUMMED, 1),
    "largest by index": Row("m a", lambda x, y: x.at[_places(y, x.shape[0])].max(y), least=1),
    "sort": Row("mn", lambda x: (jnp.sort(x, 1), jnp.sort(x, 0), jnp.argsort(x, 1)), least=1),
    "first of a sort": Row("mn", lambda x: lax.top_k(x, 1), least=1),
    "transposition": Row("amn", lambda x: (x.transpose(2, 0, 1).copy(), x.transpose(1, 0, 2).copy(), x.T.copy())),
    "transposition of four": Row(
        "abmn", lambda x: [x.transpose(p).copy() for p in ((2, 0, 3, 1), (3, 1, 2, 0), (1, 3, 0, 2))]
    ),
    "transposition of five": Row(
        "abcmn", lambda x: [x.transpose(p).copy() for p in ((4, 2, 0, 3, 1), (3, 1, 4, 0, 2))]
    ),
    "reversal": Row("mn", lambda x: (x[::-1] + 0, x[:, ::-1] + 0, x[::-1, ::-1].copy())),
    "steps": Row("mn", lambda x: (x[::2].copy(), x[:, 1::3].copy(), x[::-2, ::2].copy())),
    "joining": Row("mn an mk", lambda x, y, z: (jnp.concatenate([x, y], 0), jnp.concatenate([x, z], 1))),
    "padding": Row("mn", lambda x: lax.pad(x, np.array(5, x.dtype), ((1, 2, 1), (3, -1, 0))), least=1),
    "part": Row(
        "mn", lambda x: lax.dynamic_slice(x, (x[0, 0].astype(jnp.int32), 1), (max(x.shape[0] - 2, 1), 1)), least=2
    ),
    "part put in": Row(
        "mn a",
        lambda x, y: lax.dynamic_update_slice(x, jnp.zeros((1, 1), x.dtype), (y[0].astype(jnp.int32), 1)),
        least=1,
    ),
    "repetition": Row("mn", lambda x: (jnp.tile(x, (2, 3)), jnp.repeat(x, 3, 1), jnp.repeat(x, 2, 0))),
    "loop": Row("mn", lambda x: lax.scan(lambda c, r: (c + r, c * 2), jnp.zeros(x.shape[1:], x.dtype), x), SUMMED),
    "random bits": Row("mn", lambda x: nx.random.bits(nx.random.key(3), x.shape)),
    "Cholesky": Row("mk", lambda x: jnp.linalg.cholesky(_positive(x)), ("float64",), 1, 1e-9),
    "triangular solve": Row(
        "mn", lambda x: lax.linalg.triangular_solve(_positive(x), x, left_side=True, lower=True), ("float64",), 1, 1e-9
    ),
    "solve": Row("mn", lambda x: jnp.linalg.solve(_positive(x), x), ("float64",), 1, 1e-9),
    "QR": Row(
        "mn", lambda x: jnp.abs(jnp.linalg.qr(x + 5 * jnp.eye(*x.shape, dtype=x.dtype))[1]), ("float64",), 1, 1e-9
    ),
}


def transposed(x):
    return np.ascontiguousarray(x.T), lambda v: v.T


def reversed_(x):
    return np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim]), lambda v: lax.rev(v, range(v.ndim))


def cut(x):
    wide = np.pad(x, [(1, 2)] * x.ndim, constant_values=77)
    return wide, lambda v: v[(slice(1, -2),) * v.ndim]


def odd(x):
    """At an address that only the element's size divides."""
    memory = np.empty(x.nbytes + x.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64 + x.itemsize
    lying = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    lying[...] = x
    return lying, lambda v: v


LAYOUTS = (lambda x: (x, lambda v: v), transposed, reversed_, cut, odd)


def whole_numbers(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, shape).astype(np.int8).astype(jnp.dtype(dtype))


def cases(row, lanes, times):
    """Operands and how they are seen: each size in each position, in as many layouts as ``times``."""
    sizes = (0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes - 1, 2 * lanes + 1, 13)
    for turn in range(len(sizes)):
        chosen = {c: max(sizes[(turn + 3 * i) % len(sizes)], row.least) for i, c in enumerate(row.letters)}
        if len(chosen) > 3:
            chosen.update({c: min(n, 11 - len(chosen)) for c, n in list(chosen.items())[2:]})
        for k in range(times):
            layout, dtype = (turn + 2 * k + turn // 5) % len(LAYOUTS), row.dtypes[(turn + k) % len(row.dtypes)]
            arrays, views = [], []
            for i, shape in enumerate(row.shapes.split()):
                x = whole_numbers([chosen[c] for c in shape], dtype, 10 * turn + i)
                array, view = LAYOUTS[(layout + i) % len(LAYOUTS)](x)
                arrays.append(array)
                views.append(view)
            yield arrays, views


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("name", ROWS)
def test_sizes_and_layouts(name, isa_name):
    row = ROWS[name]
    made = list(cases(row, isa.named(isa_name).lanes(4), 2 if isa_name == ISAS[0] else 1))

    def program(*operands):
        return [
            row.function(*(v(x) for v, x in zip(views, xs, strict=True)))
            for xs, (_, views) in zip(operands, made, strict=True)
        ]

    operands = [arrays for arrays, _ in made]
    with nx.config.using(enable_x64=True):
        wanted = program(*[[jnp.asarray(x) for x in xs] for xs in operands])
        with nx.config.using(executor="cpu", cpu_isa=isa_name):
            got = nx.jit(program)(*operands)
    for one, y, want in zip(operands, got, wanted, strict=True):
        about = (name, isa_name, [(x.shape, x.dtype.name) for x in one])
        for a, b in zip(nx.tree.leaves(y), nx.tree.leaves(want), strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert (a.shape, a.dtype) == (b.shape, b.dtype), about
            if row.rtol:
                np.testing.assert_allclose(
                    a, b, rtol=row.rtol, atol=row.rtol * max(1, np.abs(b).max(initial=0)), err_msg=str(about)
                )
            else:
                assert np.array_equal(a, b), (*about, a, b)


@pytest.mark.unguarded  # it is guarded by itself
@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if len(row.letters) <= 3 and not row.rtol])
def test_large_sizes_between_guarded_pages(name, isa_name):
    """Of each dtype: narrow ones have the most lanes, and so the widest blocks."""
    row = ROWS[name]
    for turn, dtype in enumerate(row.dtypes):
        sizes = dict(zip(row.letters[::-1], LARGE[turn % 2 if isa_name == ISAS[0] else 2], strict=False))
        xs = [whole_numbers([sizes[c] for c in shape], dtype, i) for i, shape in enumerate(row.shapes.split())]
        program = lambda *xs: row.function(*xs)  # its own, which no other setting has compiled
        with nx.config.using(enable_x64=True, cache_dir=""):
            with nx.config.using(executor="reference"):
                wanted = nx.jit(program)(*xs)
            with nx.config.using(cpu_isa=isa_name, guard="end", num_threads=1 + turn % 2):
                got = nx.jit(program)(*xs)
        for a, b in zip(nx.tree.leaves(got), nx.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} {isa_name} {dtype} {sizes}")
