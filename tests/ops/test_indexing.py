"""gather and scatter: every law in every mode, against JAX."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops import scatter as scatters
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.indexing import gather
from nxjax.testing import bad, check_op, sample
from nxjax.trace import dtypes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
INDICES = RNG.integers(-3, 9, (3, 2, 2)).astype(np.int32)
# offset (window) dims, collapsed (inserted) dims, index map, slice sizes
CONFIGS = [((2,), (0, 1), (0, 1), (1, 1, 6)), ((0, 2, 3), (), (2, 0), (2, 3, 1)), ((1, 3), (1,), (1, 2), (4, 1, 2))]
MODES = ["clip", "fill", "promise_in_bounds"]


def indices(mode):
    return np.abs(INDICES) % 2 if mode == "promise_in_bounds" else INDICES


def test_no_index_vectors_take_nothing_of_an_empty_axis():
    numbers = GatherDimensionNumbers((), (0, 1), (1,), (), ())
    params = {"dimension_numbers": numbers, "slice_sizes": (1, 1), "mode": GatherScatterMode.CLIP}
    none, two = np.zeros((0, 1), np.int32), np.zeros((2, 1), np.int32)
    errors = [bad(X[:0, 0], two, error=ShapeError, says="larger", **params)]
    check_op(gather, [sample(X[:0, 0], none, **params), sample(X[0, :, :0], none, **params)], errors)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("offset", "collapsed", "index_map", "sizes"), CONFIGS)
def test_gather(mode, offset, collapsed, index_map, sizes):
    peer = jax.lax.GatherDimensionNumbers(offset, collapsed, index_map)
    numbers = GatherDimensionNumbers(offset, collapsed, index_map)
    params = {"dimension_numbers": numbers, "slice_sizes": sizes, "mode": GatherScatterMode.from_any(mode)}
    params["fill_value"] = 7 if mode == "fill" else None  # whose derivative is 0
    reference = lambda x, i, **p: jax.lax.gather(x, i, peer, sizes, mode=mode, fill_value=p["fill_value"])
    errors = [
        bad(X, INDICES.astype(np.float32), error=DtypeError, says="integers", **params),
        bad(X, INDICES[..., :1].copy(), error=ShapeError, says="index vector", **params),
        bad(X, INDICES, error=ShapeError, says="larger", **{**params, "slice_sizes": (9, 9, 9)}),
    ]
    samples = [sample(x, indices(mode), **params) for x in (X, (X * 9).astype(np.int32))]
    check_op(gather, samples, errors, reference=reference)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.complex64, np.bool_])
def test_what_lies_outside_reads_as_the_fill_value(dtype):
    x = np.arange(3).astype(dtype)
    params = {"dimension_numbers": GatherDimensionNumbers((), (0,), (0,)), "slice_sizes": (1,)}
    peer = jax.lax.GatherDimensionNumbers((), (0,), (0,))
    reference = lambda x, i, **_: jax.lax.gather(x, i, peer, (1,), mode="fill")
    params["mode"] = GatherScatterMode.FILL_OR_DROP
    check_op(gather, [sample(x, np.array([[1], [7]], np.int32), differentiable=False, **params)], reference=reference)


def test_keys_and_wide_indices():
    keys = np.arange(8, dtype=np.uint32).view(dtypes.key)
    numbers = GatherDimensionNumbers((), (0,), (0,))
    params = {"dimension_numbers": numbers, "slice_sizes": (1,), "mode": GatherScatterMode.CLIP}
    words = (np.int8, np.uint32, np.int64, np.uint64)
    check_op(gather, [sample(keys, np.array([[3], [0]], d), **params) for d in words])
    fill = {**params, "mode": GatherScatterMode.FILL_OR_DROP, "fill_value": 0}
    wide = np.arange(300, dtype=np.float32)
    outside = np.array([[-1], [127]], np.int8), np.array([[2**63]], np.uint64)
    check_op(gather, [sample(wide, at, **fill) for at in outside])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["scatter_add", "scatter_sub", "scatter_mul", "scatter_max", "scatter_min"])
@pytest.mark.parametrize(("window", "inserted", "index_map", "sizes"), CONFIGS)
def test_scatter_and_combine(mode, name, window, inserted, index_map, sizes):
    op, peer_op = getattr(scatters, name), getattr(jax.lax, name)
    peer = jax.lax.ScatterDimensionNumbers(window, inserted, index_map)
    numbers = ScatterDimensionNumbers(window, inserted, index_map)
    at = indices(mode)
    like = jax.lax.GatherDimensionNumbers(window, inserted, index_map)
    updates = RNG.normal(size=jax.lax.gather(X, at, like, sizes, mode="clip").shape).astype(np.float32)
    params = {"dimension_numbers": numbers, "mode": GatherScatterMode.from_any(mode)}
    reference = lambda x, i, u, **_: peer_op(x, i, u, peer, mode=mode)
    errors = [
        bad(X, at, updates.astype(np.float16), error=DtypeError, says="equal dtypes", **params),
        bad(X, at[:1], updates, error=ShapeError, says="differ", **params),
    ]
    check_op(op, [sample(X, at, updates, **params)], errors, reference=reference, rtol=1e-4)


@pytest.mark.parametrize("unique", [True, False])
def test_scatter_overwrites(unique):
    peer = jax.lax.ScatterDimensionNumbers((0, 1), (2,), (2,))
    numbers = ScatterDimensionNumbers((0, 1), (2,), (2,))
    at = np.array([[3], [0], [5]], np.int32)
    updates = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    params = {"dimension_numbers": numbers, "mode": GatherScatterMode.CLIP, "unique_indices": unique}
    reference = lambda x, i, u, **_: jax.lax.scatter(x, i, u, peer, mode="clip")
    check_op(scatters.scatter, [sample(X, at, updates, **params)], reference=reference)


def test_gradient_of_overwritten_duplicates_goes_to_the_winner():
    import nxjax as nx

    numbers = ScatterDimensionNumbers((), (0,), (0,))
    at = nx.array([[1], [1], [0]])

    def f(x, u):
        y = scatters.scatter(x, at, u, dimension_numbers=numbers, mode=GatherScatterMode.CLIP)
        return nx.sum(y * nx.arange(1.0, 4.0)), y

    x, u = nx.zeros(3), nx.array([5.0, 7.0, 9.0])
    (gx, gu), y = nx.grad(f, argnums=(0, 1), has_aux=True)(x, u)
    winner = 0 if y[1] == 5.0 else 1
    np.testing.assert_array_equal(gx, [0, 0, 3])
    np.testing.assert_array_equal(gu, [2.0 * (winner == 0), 2.0 * (winner == 1), 1.0])


def test_products_scattered_over_zeros_have_derivatives():
    """Each update's factor is the product of the others, one or two of which may be zero."""
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    at = np.array([[1], [1], [1], [0], [2], [2]], np.int32)
    updates = np.array([2, 0, 3, 5, 0, 0], np.float32)
    params = {"dimension_numbers": numbers, "mode": GatherScatterMode.CLIP}
    x = np.array([7, 11, 13], np.float32)

    def f(u):
        return jax.numpy.stack([x[0] * u[3], x[1] * u[0] * u[1] * u[2], x[2] * u[4] * u[5]]).sum()

    import nxjax as nx

    product = lambda u: nx.sum(scatters.scatter_mul(nx.array(x), nx.array(at), u, **params))
    for ours, peer in (
        (nx.grad(product), jax.grad(f)),
        (nx.hessian(product), jax.hessian(f)),
        (nx.jacfwd(nx.hessian(product)), jax.jacfwd(jax.hessian(f))),
    ):
        np.testing.assert_allclose(nx.jit(ours)(updates), peer(updates), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
def test_products_scattered_have_derivatives_where_the_product_of_all_is_too_large_or_small(dtype):
    """A factor is a product of the others, and no quotient."""
    import nxjax as nx

    numbers = ScatterDimensionNumbers((), (0,), (0,))
    params = {"dimension_numbers": numbers, "mode": GatherScatterMode.FILL_OR_DROP}
    large = 2.0 ** (12 if dtype == "float16" else 100)
    x, at = nx.ones((3,), dtype), nx.array([[0], [1], [0], [1], [9]])
    updates = nx.array([1 / large, large, 1 / large, large, large]).astype(dtype)
    _, pull = nx.vjp(lambda u: scatters.scatter_mul(x, at, u, **params), updates)
    (g,) = pull(nx.ones((3,), dtype))
    np.testing.assert_array_equal(g, [1 / large, large, 1 / large, large, 0])


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_batching_dimensions(mode):
    """Operand and indices share dimensions, in an order of their own."""
    x = RNG.normal(size=(2, 5, 3)).astype(np.float32)
    at = RNG.integers(-2, 7, (3, 4, 2, 1)).astype(np.int32)
    dims = (), (1,), (1,), (0, 2), (2, 0)
    params = {"dimension_numbers": GatherDimensionNumbers(*dims), "mode": GatherScatterMode.from_any(mode)}
    peer = jax.lax.GatherDimensionNumbers(*dims)
    check_op(
        gather,
        [sample(x, at, slice_sizes=(1, 1, 1), fill_value=0, **params)],
        [
            bad(x, at[:2].copy(), error=ShapeError, says="batching", slice_sizes=(1, 1, 1), **params),
            bad(x, at, error=ParameterError, says="per dimension", slice_sizes=(1, 1), **params),
        ],
        reference=lambda x, i, **_: jax.lax.gather(x, i, peer, (1, 1, 1), mode=mode, fill_value=0),
    )
    updates = RNG.normal(size=(3, 4, 2)).astype(np.float32)
    params["dimension_numbers"] = ScatterDimensionNumbers(*dims)
    peer_numbers = jax.lax.ScatterDimensionNumbers(*dims)
    reference = lambda x, i, u, **_: jax.lax.scatter_add(x, i, u, peer_numbers, mode=mode)
    check_op(scatters.scatter_add, [sample(x, at, updates, **params)], reference=reference, rtol=1e-4)


NUMBERS = [
    ((9,), (0, 1), (0, 1), "offset_dims"),
    ((2,), (1, 0), (0, 1), "collapsed_slice_dims"),
    ((2,), (0, 1), (0, 0), "start_index_map"),
    ((2,), (0, 7), (0, 1), "collapsed_slice_dims"),
]


@pytest.mark.parametrize(("offset", "collapsed", "index_map", "says"), NUMBERS)
def test_dimension_numbers_are_checked(offset, collapsed, index_map, says):
    mode = GatherScatterMode.CLIP
    numbers = GatherDimensionNumbers(offset, collapsed, index_map)
    params = {"dimension_numbers": numbers, "slice_sizes": (1, 1, 6), "mode": mode}
    check_op(gather, [], [bad(X, INDICES, error=ParameterError, says=says, **params)])
    says = {"offset_dims": "update_window_dims", "collapsed_slice_dims": "inserted_window_dims"}.get(
        says, "scatter_dims"
    )
    params = {"dimension_numbers": ScatterDimensionNumbers(offset, collapsed, index_map), "mode": mode}
    updates = np.zeros((3, 2, 6), np.float32)
    check_op(scatters.scatter_add, [], [bad(X, INDICES, updates, error=ParameterError, says=says, **params)])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("name", ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"])
def test_derivatives_of_what_is_scattered_into_nothing(name, mode, shape):
    def f(x, update):
        return getattr(x.at[np.array([-49, 1])], name)(update, mode=mode).sum()

    x, update = np.ones(shape, np.float32), np.float32(0.5)
    y, t = nx.jvp(f, (x, update), (x, update))
    assert y == t == 0
    grad = nx.grad(f, (0, 1))
    for again in (grad, nx.jit(grad), nx.vmap(grad, (None, None), axis_size=2)):
        ct_x, ct_u = again(x, update)
        assert ct_x.shape[-len(shape) :] == shape and not np.asarray(ct_u).any()


def test_no_index_at_all():
    """Every update of an empty index vector meets the same window."""
    numbers = ScatterDimensionNumbers((), (0, 1), ())
    at, updates = np.zeros((4, 0), np.int32), np.full(4, 3, np.float32)
    x = np.ones((3, 2), np.float32)
    expected = x.copy()
    expected[0, 0] += 12
    params = {"dimension_numbers": numbers, "mode": GatherScatterMode.CLIP}
    check_op(scatters.scatter_add, [sample(x, at, updates, **params)], reference=lambda *_, **__: expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("mode", [GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP])
def test_scatter_at_indices_of_any_width(dtype, mode):
    info = np.iinfo(dtype)
    at = np.array([[info.min], [info.max], [4]], dtype)
    params = {"dimension_numbers": ScatterDimensionNumbers((), (0,), (0,)), "mode": mode}
    x = np.zeros(300, np.float32)
    check_op(scatters.scatter_add, [sample(x, at, np.ones(3, np.float32), **params)])


def pushed(name, x, at, updates, tx, tu):
    """The tangent of a scatter, element by element: equal extrema share it, factors are those of all others."""
    y = []
    for k, start in enumerate(x):
        here = [j for j, i in enumerate(at) if i == k]
        values, tangents = [start, *updates[here]], [tx[k], *tu[here]]
        if name == "scatter_mul":
            others = [np.prod(values[:j] + values[j + 1 :]) for j in range(len(values))]
            y.append(np.dot(tangents, others))
        elif name in ("scatter_max", "scatter_min"):
            best = max(values) if name == "scatter_max" else min(values)
            y.append(np.mean([t for v, t in zip(values, tangents, strict=True) if v == best]))
        else:
            y.append(tangents[0] + sum(tangents[1:]) * (1 if name == "scatter_add" else -1))
    return np.array(y, np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["scatter_add", "scatter_sub", "scatter_mul", "scatter_max", "scatter_min"])
def test_derivatives_where_elements_are_equal_or_zero_or_met_repeatedly(mode, name):
    rng = np.random.default_rng(len(name))
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    for trial in range(12):
        x, updates = (rng.integers(-1, 2, n).astype(np.float32) for n in (5, 7))
        at = rng.integers(0, 5, 7) if mode == "promise_in_bounds" else rng.integers(-2, 8, 7)
        unique = trial % 3 == 0
        if unique:
            at, updates = rng.permutation(5), updates[:5]
        params = {"dimension_numbers": numbers, "mode": GatherScatterMode.from_any(mode), "unique_indices": unique}
        derived(name, x, at, updates, rng, params)


def derived(name, x, at, updates, rng, params):
    """Every derivative against `pushed`."""
    import nxjax as nx

    tx, tu, ct = (rng.normal(size=n).astype(np.float32) for n in (5, len(at), 5))
    met = np.clip(at, 0, 4) if params["mode"] is GatherScatterMode.CLIP else at
    xs = [nx.array(x), nx.array(updates)]
    f = lambda x, u: getattr(scatters, name)(x, nx.array(at[:, None]), u, **params)
    want = lambda tx, tu: pushed(name, x, met, updates, tx, tu)
    _, got = nx.jvp(f, xs, [nx.array(tx), nx.array(tu)])
    np.testing.assert_allclose(got, want(tx, tu), rtol=1e-5, atol=1e-5)
    # One argument alone takes other ways through the rules.
    _, got = nx.jvp(lambda x: f(x, xs[1]), xs[:1], [nx.array(tx)])
    np.testing.assert_allclose(got, want(tx, 0 * tu), rtol=1e-5, atol=1e-5)
    _, got = nx.jvp(lambda u: f(xs[0], u), xs[1:], [nx.array(tu)])
    np.testing.assert_allclose(got, want(0 * tx, tu), rtol=1e-5, atol=1e-5)
    _, pull = nx.vjp(f, *xs)
    back = sum(np.dot(p, q) for p, q in zip(pull(nx.array(ct)), (tx, tu), strict=True))
    np.testing.assert_allclose(back, np.dot(ct, want(tx, tu)), rtol=1e-4, atol=1e-4)
