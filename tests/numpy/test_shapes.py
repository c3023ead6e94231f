"""Shapes, repetition, joining and splitting, against JAX."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = jnp.array(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
Y = jnp.array(np.arange(12, dtype=np.int32).reshape(3, 4))
V = jnp.arange(5.0)

ONE = {
    "reshape": lambda m, x: m.reshape(x, (4, -1)),
    "reshape F": lambda m, x: m.reshape(x, (4, 6), order="F"),
    "method reshape": lambda m, x: x.reshape(6, -1),
    "ravel": lambda m, x: m.ravel(x, order="F"),
    "flatten": lambda m, x: x.flatten(),
    "transpose": lambda m, x: m.transpose(x, (1, 2, 0)),
    "T": lambda m, x: x.T,
    "mT": lambda m, x: x.mT,
    "swapaxes": lambda m, x: m.swapaxes(x, 0, -1),
    "moveaxis": lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)),
    "rollaxis": lambda m, x: m.rollaxis(x, 2, 0),
    "expand_dims": lambda m, x: m.expand_dims(x, (0, -1)),
    "squeeze": lambda m, x: m.squeeze(x[:1]),
    "squeeze axis": lambda m, x: m.squeeze(x[:1, :, :1], axis=(0, 2)),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (5, 2, 3, 4)),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, x[0], 1.0),
    "atleast": lambda m, x: [m.atleast_3d(x[0, 0]), m.atleast_2d(x[0, 0, 0]), m.atleast_3d(x[0])],
    "flip": lambda m, x: m.flip(x),
    "flip axis": lambda m, x: m.flip(x, (0, 2)),
    "fliplr": lambda m, x: m.fliplr(x),
    "rot90": lambda m, x: [m.rot90(x, k) for k in (0, 1, 2, 3, -1)],
    "rot90 axes": lambda m, x: m.rot90(x, 1, (1, 2)),
    "roll": lambda m, x: m.roll(x, 5),
    "roll axes": lambda m, x: m.roll(x, (1, -2), (0, 2)),
    "tile": lambda m, x: m.tile(x, (2, 1, 3)),
    "tile more": lambda m, x: m.tile(x[0], (2, 1, 2)),
    "repeat": lambda m, x: m.repeat(x, 3, axis=1),
    "repeat flat": lambda m, x: m.repeat(x, 2),
    "repeat counts": lambda m, x: m.repeat(x, np.array([1, 0, 2]), axis=1),
    "repeat total": lambda m, x: m.repeat(x, np.array([1, 0, 2]), axis=1, total_repeat_length=5),
    "resize": lambda m, x: m.resize(x, (5, 7)),
    "unstack": lambda m, x: m.unstack(x, axis=1),
    "concatenate": lambda m, x: m.concatenate([x, x + 1], axis=1),
    "concatenate flat": lambda m, x: m.concatenate([x, x[0]], axis=None),
    "stack": lambda m, x: m.stack([x, x * 2], axis=-1),
    "vstack": lambda m, x: m.vstack([x[0], x[1]]),
    "hstack": lambda m, x: m.hstack([x[0], x[1]]),
    "hstack of vectors": lambda m, x: m.hstack([x[0, 0], x[0, 1]]),
    "dstack": lambda m, x: m.dstack([x[0], x[1]]),
    "column_stack": lambda m, x: m.column_stack([x[0, 0], x[1, 0]]),
    "block": lambda m, x: m.block([[x[0], x[0] * 2], [x[1], x[1]]]),
    "split": lambda m, x: m.split(x, 2, axis=2),
    "split at": lambda m, x: m.split(x, [1, 3], axis=2),
    "array_split": lambda m, x: m.array_split(x, 3, axis=2),
    "vsplit": lambda m, x: m.vsplit(x, 2),
    "hsplit": lambda m, x: m.hsplit(x, 3),
    "dsplit": lambda m, x: m.dsplit(x, 2),
    "append": lambda m, x: m.append(x, x[:1], axis=0),
    "append flat": lambda m, x: m.append(x, 1.0),
    "insert": lambda m, x: m.insert(x, 1, 9.0, axis=1),
    "insert many": lambda m, x: m.insert(x, np.array([0, 2, 2]), 9.0, axis=2),
    "insert slice": lambda m, x: m.insert(x[0, 0], slice(None, 2), np.array([7.0, 8.0])),
    "delete": lambda m, x: m.delete(x, 1, axis=1),
    "delete many": lambda m, x: m.delete(x, np.array([0, -1]), axis=2),
    "delete slice": lambda m, x: m.delete(x, slice(0, 2), axis=2),
    "ediff1d": lambda m, x: m.ediff1d(x, to_end=1.0, to_begin=np.array([2.0, 3.0])),
    "where": lambda m, x: m.where(x > 4, x, -x),
    "where scalar": lambda m, x: m.where(x > 4, x, 0),
    "select": lambda m, x: m.select([x > 12, x < 3], [x, x * 2], 9.0),
    "piecewise": lambda m, x: m.piecewise(x, [x < 3, x > 12], [-1, lambda y: y * 2]),
    "diagonal": lambda m, x: [m.diagonal(x), m.diagonal(x, 1, 1, 2), m.diagonal(x, -1)],
    "diag": lambda m, x: [m.diag(x[0]), m.diag(x[0, 0], 1), m.diag(x[0], -1), m.diagflat(x[0], -1)],
    "tril": lambda m, x: [m.tril(x), m.triu(x), m.tril(x, 1), m.triu(x, -1)],
    "trace": lambda m, x: [m.trace(x), m.trace(x, 1, 1, 2)],
    "meshgrid": lambda m, x: m.meshgrid(x[0, 0], x[0, 1, :2]),
    "meshgrid ij": lambda m, x: m.meshgrid(x[0, 0], x[0, 1, :2], indexing="ij", sparse=True),
    "pad": lambda m, x: m.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3),
    "fill_diagonal": lambda m, x: m.fill_diagonal(x[0], 5.0, inplace=False),
    "diff": lambda m, x: [m.diff(x), m.diff(x, 2, axis=1), m.diff(x, axis=0, prepend=0.0, append=1.0)],
    "gradient": lambda m, x: m.gradient(x, 0.5),
    "gradient of coordinates": lambda m, x: m.gradient(x, np.array([0.0, 1.0, 3.0, 3.5]), axis=2),
    "trapezoid": lambda m, x: [m.trapezoid(x), m.trapezoid(x, dx=0.5, axis=1)],
    "unwrap": lambda m, x: m.unwrap(x * 2.5),
}


@pytest.mark.parametrize("name", ONE)
def test_of_one_array(check, name):
    check.values(ONE[name], X)


@pytest.mark.parametrize("name", [n for n in ONE if n not in ("unwrap",)])
def test_gradient(check, name):
    check.grad(ONE[name], X)


@pytest.mark.parametrize(
    "name", ["roll axes", "tile", "repeat", "concatenate", "split", "diag", "pad", "diff", "rot90", "tril"]
)
def test_batched(check, name):
    check.vmap(ONE[name], jnp.stack([X, X * 2]))


@pytest.mark.parametrize(
    "mode", ["edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap"]
)
@pytest.mark.parametrize("x", [X[0], Y], ids=["f32", "i32"])
def test_pad_modes(check, mode, x):
    check.values(lambda m, x: m.pad(x, ((2, 3), (5, 1)), mode=mode), x)


def test_pad_options(check):
    check.values(lambda m, x: m.pad(x, 2, mode="maximum", stat_length=2), X[0])
    check.values(lambda m, x: m.pad(x, ((2, 1), (3, 4)), mode="reflect", reflect_type="odd"), X[0])
    check.values(lambda m, x: m.pad(x, ((2, 1), (3, 5)), mode="symmetric", reflect_type="odd"), X[0])
    check.values(lambda m, x: m.pad(x, (1, 2), mode="linear_ramp", end_values=(5, -4)), X[0])
    assert jnp.pad(X[0], {0: (1, 2)}).shape == (6, 4)
    check.values(lambda m, x: m.pad(x, 1, constant_values=((1, 2), (3, 4))), X[0])
    check.raises_alike(lambda m, x: m.pad(x, 1, mode="edge", constant_values=1), X)
    check.raises_alike(lambda m, x: m.pad(x, 1, mode="nonsense"), X)


def test_roll_by_a_traced_shift(check):
    check.values(lambda m, x, k: m.roll(x, k, 1), X, jnp.array(-5))
    check.values(lambda m, x, k: m.roll(x, k), X, jnp.array(3))
    for k in (-0.5, -1.5, 1.5, 2.0):  # towards zero, known or traced
        check.values(lambda m, x, k: m.roll(x, k), X, jnp.array(k))


def test_repeat_by_traced_counts(check):
    check.values(lambda m, x, k: m.repeat(x, k, axis=1, total_repeat_length=4), X, jnp.array([2, 0, 1]))
    with pytest.raises(nx.errors.ConcretizationTypeError):
        nx.jit(lambda x, k: jnp.repeat(x, k))(V, jnp.array(2))


def test_nothing_repeated_is_nothing(check):
    for axis in (None, 0):
        check.values(lambda m, x, k, axis=axis: m.repeat(x, k, axis=axis, total_repeat_length=3), X[:0], jnp.array(2))
        check.values(lambda m, x, axis=axis: m.repeat(x, 2, axis=axis, total_repeat_length=3), X[:0])


GRIDS = {
    "arange": lambda m: [
        m.arange(5),
        m.arange(2, 9, 3),
        m.arange(0, 1, 0.25),
        m.arange(3, dtype="int8"),
        m.arange(5, 0, -2),
    ],
    "linspace": lambda m: [m.linspace(0, 1, 7), m.linspace(1, 5, 4, endpoint=False), m.linspace(0, 10, 4, dtype=int)],
    "linspace of arrays": lambda m: m.linspace(np.zeros(3), np.arange(3.0), 5, axis=1),
    "linspace step": lambda m: m.linspace(0, 1, 5, retstep=True),
    "linspace short": lambda m: [m.linspace(0, 1, 0), m.linspace(0, 1, 1)],
    "logspace": lambda m: [m.logspace(0, 2, 5), m.geomspace(1, 100, 5), m.geomspace(-1, -100, 3)],
    "eye": lambda m: [m.eye(3, 4, k=1), m.identity(3), m.eye(2, dtype=int), m.tri(3, 4, 1)],
    "full": lambda m: [m.full((2, 3), 1.5), m.full((2,), 3, dtype="float32"), m.full_like(m.ones(3), 7)],
    "like": lambda m: [
        m.zeros_like(m.asarray(1)),
        m.ones_like(m.arange(3), dtype=float),
        m.zeros(3, int),
        m.ones((2, 1)),
    ],
    "vander": lambda m: [m.vander(m.arange(1.0, 4)), m.vander(m.arange(1, 4), 2, increasing=True)],
    "array": lambda m: [m.array([[1, 2], [3.0, 4]]), m.array([]), m.array([True, 2]), m.array([m.float32(1), 2])],
    "array ndmin": lambda m: [m.array([1, 2], ndmin=3), m.array(3, "int8"), m.asarray([1, 2], m.bfloat16)],
    "array of numpy": lambda m: [m.array(np.arange(3)), m.array(np.float64(2)), m.array([np.int8(1), np.int8(2)])],
    "scalars": lambda m: [m.float32(3), m.int32(2.7), m.bool_(2), m.complex64(1)],
    "indices": lambda m: [m.indices((2, 3)), m.indices((2, 3), sparse=True)],
    "mgrid": lambda m: [m.mgrid[0:3, 0:2], m.mgrid[0:1:5j], m.ogrid[0:3, 0:2]],
    "ix": lambda m: m.ix_(np.array([0, 2]), np.array([3, 0, 1])),
    "r_": lambda m: [
        m.r_[0:3, 5, np.array([7, 8])],
        m.c_[np.arange(3), np.arange(3)],
        m.r_["0,2", np.arange(3), np.arange(3)],
    ],
    "triangles": lambda m: [
        m.tril_indices(3, 1),
        m.triu_indices(3, -1, 4),
        m.diag_indices(3),
        m.mask_indices(3, m.triu),
    ],
    "broadcast_shapes": lambda m: m.zeros(m.broadcast_shapes((2, 1), (3,), ())),
    "windows": lambda m: [m.bartlett(5), m.blackman(6), m.hamming(7), m.hanning(4), m.kaiser(5, 3.0), m.hanning(1)],
    "fromfunction": lambda m: m.fromfunction(lambda i, j: i + 2 * j, (2, 3), dtype=int),
}


@pytest.mark.parametrize("name", GRIDS)
def test_creation(check, name):
    check.values(
        GRIDS[name], weak=name not in ("logspace", "vander", "linspace step", "windows"), jit=name != "triangles"
    )


def test_refusals(check):
    check.raises_alike(lambda m, x: m.reshape(x, (5, 5)), X)
    check.raises_alike(lambda m, x: m.reshape(x, (-1, -1)), X)
    check.raises_alike(lambda m, x: m.squeeze(x, 0), X)
    check.raises_alike(lambda m, x: m.transpose(x, (0, 0, 1)), X)
    check.raises_alike(lambda m, x: m.broadcast_to(x, (5,)), X)
    check.raises_alike(lambda m: m.concatenate([1, 2]))
    check.raises_alike(lambda m: m.concatenate([]))
    check.raises_alike(lambda m, x: m.split(x, 3, axis=2), X)
    check.raises_alike(lambda m, x: m.stack([x, x[0]]), X)
    check.raises_alike(lambda m, x: m.swapaxes(x, 0, 7), X)
    check.raises_alike(lambda m: m.array([2**40]))
    with pytest.raises(TypeError):
        jnp.array(None)
    with pytest.raises(TypeError):
        jnp.array(["a"])
    check.raises_alike(lambda m: m.arange(0, 1, 0))
    with pytest.raises(TypeError, match="static"):
        nx.jit(lambda n: jnp.zeros(n))(3)


def test_places_and_sizes_of_rare_kinds():
    assert jnp.shape(None) == () and jnp.shape([[1, 2]]) == (1, 2) and jnp.size([1, 2]) == 2 and jnp.ndim([]) == 1
    with pytest.raises(ValueError):
        jnp.shape([[1], 2])
    assert [x.size for x in jnp.array_split(jnp.arange(5), 2.5)] == [3, 2]
    x = np.arange(6).reshape(2, 3)
    for place, values, axis in ((1, [7, 8], 1), (1, [[7, 8, 9]], 0), (2, 5, 1)):
        np.testing.assert_array_equal(jnp.insert(x, place, np.array(values), axis), np.insert(x, place, values, axis))
    gone = nx.jit(lambda x, i: jnp.delete(x, i, assume_unique_indices=True))(jnp.arange(5), jnp.array([3, 0]))
    assert gone.tolist() == [1, 2, 4]
    assert jnp.r_["r", [1, 2], 3].shape == (1, 3) and jnp.r_["c", [1, 2]].shape == (2, 1)
    assert jnp.unpackbits(jnp.array([3], "uint8"), count=10, bitorder="little").tolist() == [1, 1, *[0] * 8]


_NOTHING_TO_DO = {
    "ravel": lambda np, x: np.ravel(x),
    "x.ravel": lambda np, x: x.ravel(),
    "flatten": lambda np, x: x.flatten(),
    "moveaxis": lambda np, x: np.moveaxis(x, 0, 0),
    "swapaxes": lambda np, x: np.swapaxes(x, 0, 0),
    "rollaxis": lambda np, x: np.rollaxis(x, 0),
    "flip": lambda np, x: np.flip(x, ()),
    "roll": lambda np, x: np.roll(x, 0),
    "diff": lambda np, x: np.diff(x, 0),
    "sum": lambda np, x: np.sum(x, ()),
    "prod": lambda np, x: np.prod(x, ()),
    "max": lambda np, x: np.max(x, ()),
    "mean": lambda np, x: np.mean(x, ()),
    "cumsum": lambda np, x: np.cumsum(x),
    "squeeze": lambda np, x: np.squeeze(x),
    "broadcast_to": lambda np, x: np.broadcast_to(x, x.shape),
    "broadcast_arrays": lambda np, x: np.broadcast_arrays(x, x)[0],
    "positive": lambda np, x: np.positive(x),
    "conj": lambda np, x: np.conj(x),
    "real": lambda np, x: np.real(x),
    "copy": lambda np, x: np.copy(x),
    "array": lambda np, x: np.array(x),
    "asarray": lambda np, x: np.asarray(x, copy=True),
    "concatenate": lambda np, x: np.concatenate([x]),
    "split": lambda np, x: np.split(x, 1)[0],
    "pad": lambda np, x: np.pad(x, 0),
    "tile": lambda np, x: np.tile(x, 1),
    "repeat": lambda np, x: np.repeat(x, 1),
    "clip": lambda np, x: np.clip(x),
    "round": lambda np, x: np.round(x),
    "nan_to_num": lambda np, x: np.nan_to_num(x),
    "where": lambda np, x: np.where(True, x, x),
    "delete": lambda np, x: np.delete(x, slice(0, 0)),
    "x[:]": lambda np, x: x[:],
}


@pytest.mark.parametrize("name", _NOTHING_TO_DO)
def test_what_lives_on_in_jax_lives_on_here(name):
    """Where a function has nothing to do, its result may be the array itself, or one of its own."""
    import jax

    f = _NOTHING_TO_DO[name]
    for given in (0, 1):  # the array, or the result
        alive = []
        for np_, take in ((jnp, nx.jit(lambda x: x + 1, donate_argnums=0)), (jax.numpy, lambda x: x.delete())):
            x = np_.arange(9.0) + 0
            both = x, f(np_, x)
            take(both[given])
            alive.append(not both[1 - given].is_deleted())
        assert alive[0] >= alive[1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int4", "bool"])
def test_full_keeps_the_sign_of_zero(dtype):
    for fill in (0.0, -0.0):
        x = np.asarray(jnp.full((3, 2), fill, dtype))
        assert x.tobytes() == np.full((3, 2), np.asarray(fill).astype(x.dtype)).tobytes()
