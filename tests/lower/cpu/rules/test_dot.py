import functools
import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.gemm import Gemm
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CallStep, HostStep, walk
from nxjax.ops.dot import dot_general
from nxjax.trace import dtypes

ISAS = isa.possible()


def lowered(function, *xs):
    types = [nx.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in xs]
    return lower(nx.make_jaxpr(function)(*types))


def run(function, *xs, name=None, host=()):
    """The results of ``function`` by machine code for ``name``; only ``host`` ops may run on the host."""
    with config.using(cpu_isa=name or ""):
        program = lowered(function, *xs)
        names = {s.equation.op.name for s in walk(program.steps) if isinstance(s, HostStep)}
        assert names <= set(host), str(program)
        return TapeInterpreter(program, engine(isa.current()))([np.asarray(x) for x in xs])


def kernels(function, *xs):
    return [s.kernel.key.split("(")[0] for s in walk(lowered(function, *xs).steps) if isinstance(s, CallStep)]


def values(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        return rng.integers(int(info.min), int(info.max), shape, np.int64, endpoint=True).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(x, y, name=None, **params):
    (found,) = run(lambda a, b: dot_general(a, b, **params), x, y, name=name)
    wanted = dot_general.eval(x, y, **params)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if found.dtype in dtypes.INTEGER:
        np.testing.assert_array_equal(found, wanted)
        return
    short = found.dtype in (dtypes.bfloat16, dtypes.float16)
    tolerance = {2: 0.02, 4: 2e-5, 8: 1e-12}[found.dtype.itemsize]
    exact = dot_general.eval(np.abs(x), np.abs(y), **params).astype(np.float64) if x.dtype in dtypes.FLOAT else 1
    error = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    assert (error <= tolerance * (exact if not short else exact + 0.01)).all()


@st.composite
def contractions(draw):
    """Two shapes, dimension numbers: every order of batch, free and contracting dimensions."""
    sizes = lambda n: draw(st.lists(st.sampled_from([1, 2, 3, 5, 0, 17]), min_size=n, max_size=n))
    batch, rows, columns, depth = (sizes(draw(st.integers(0, 2))) for _ in range(4))
    labels = lambda tag, dims: [(tag, i, n) for i, n in enumerate(dims)]
    x = draw(st.permutations(labels("b", batch) + labels("m", rows) + labels("k", depth)))
    y = draw(st.permutations(labels("b", batch) + labels("n", columns) + labels("k", depth)))
    place = lambda side, tag, dims: tuple(side.index((tag, i, n)) for i, n in enumerate(dims))
    numbers = (
        (place(x, "k", depth), place(y, "k", depth)),
        (place(x, "b", batch), place(y, "b", batch)),
    )
    return tuple(n for _, _, n in x), tuple(n for _, _, n in y), numbers


@given(case=contractions(), dtype=st.sampled_from(["float32", "int8", "bfloat16"]), seed=st.integers(0, 9))
@settings(max_examples=120, deadline=None)
def test_any_contraction(case, dtype, seed):
    xs, ys, numbers = case
    rng = np.random.default_rng(seed)
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    check(values(rng, xs, dtype), values(rng, ys, dtype), dimension_numbers=numbers)


@given(case=contractions(), dtype=st.sampled_from(["complex64", "complex128"]), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_complex_numbers(case, dtype, seed):
    xs, ys, numbers = case
    rng = np.random.default_rng(seed)
    x, y = ((values(rng, s, "float64") + 1j * values(rng, s, "float64")).astype(dtype) for s in (xs, ys))
    (found,) = run(lambda a, b: dot_general(a, b, dimension_numbers=numbers), x, y)
    wanted = dot_general.eval(x, y, dimension_numbers=numbers)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_complex_products_in_another_dtype():
    rng = np.random.default_rng(6)
    x, y = ((values(rng, s, "float32") + 1j * values(rng, s, "float32")) for s in ((7, 9), (9, 40)))
    numbers = (((1,), (0,)), ((), ()))
    wide = {"dimension_numbers": numbers, "preferred_element_type": np.dtype("complex128")}
    (found,) = run(lambda a, b: dot_general(a, b, **wide), x, y)
    np.testing.assert_allclose(found, x.astype(np.complex128) @ y, rtol=1e-12, atol=1e-12)


PREFERRED = (
    ("float32", "float64"),
    ("float64", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float32"),
    ("float8_e4m3fn", "float32"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("uint8", "uint8"),
    ("int8", "float32"),
    ("int4", "int32"),
    ("int16", "int64"),
    ("int64", "int64"),
    ("uint32", "uint32"),
    ("int32", "float32"),
)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("dtype", "preferred"), PREFERRED)
def test_dtypes(name, dtype, preferred):
    rng = np.random.default_rng(0)
    dtype, out = (np.dtype(getattr(ml_dtypes, d, d)) for d in (dtype, preferred))
    for m, n, k in ((9, 40, 33), (1, 40, 50), (40, 1, 50)):
        x, y = values(rng, (m, k), dtype), values(rng, (n, k), dtype)
        check(x, y, name=name, dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=out)


@pytest.mark.parametrize("name", ISAS)
def test_large_sums_of_bytes_are_exact(name):
    """Sums that float32 does not hold, and that 16 bits do not."""
    for left, right in itertools.product((-128, 127), repeat=2):
        x, y = np.full((3, 5000), left, np.int8), np.full((5000, 20), right, np.int8)
        numbers = (((1,), (0,)), ((), ()))
        check(x, y, name=name, dimension_numbers=numbers, preferred_element_type=np.dtype("int32"))


@pytest.mark.parametrize("name", ISAS)
def test_what_follows_is_computed_before_the_store(name):
    rng = np.random.default_rng(1)
    x, w, c, r = (values(rng, s, "float32") for s in ((37, 70), (70, 90), (90,), (37, 90)))
    layer = lambda x, w, c, r: jnp.maximum(x @ w + c, 0) + r
    with config.using(cpu_isa=name):
        made = kernels(layer, x, w, c, r)
    # Short vectors read columns that are not whole ones from panels.
    assert [k for k in made if k != "pack"] == ["gemm"]
    (found,) = run(layer, x, w, c, r, name=name)
    np.testing.assert_allclose(found, np.maximum(x @ w + c, 0) + r, rtol=1e-4, atol=1e-4)


def test_results_may_lie_in_any_order():
    rng = np.random.default_rng(2)
    x, w, r = (values(rng, s, "float32") for s in ((37, 70), (70, 90), (90, 37)))
    found = run(lambda x, w, r: ((x @ w).T + r, jnp.transpose(x @ w + 1)), x, w, r)
    np.testing.assert_allclose(found[0], (x @ w).T + r, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], (x @ w).T + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", ["ikj,kl->ijl", "kij,lki->ijl", "ikj,kjl->ijl"])
def test_what_is_computed_for_a_product_gets_memory_that_suits_it(spec):
    """``j`` is a short row beside ``k``, or a dimension of the batch; its elements would be 16 bytes apart."""
    operands, _ = spec.split("->")
    sizes = {"i": 30, "j": 4, "k": 100, "l": 40}
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal([sizes[c] for c in word]).astype(np.float32) for word in operands.split(","))
    f = lambda x, y: jnp.einsum(spec, x * x[:1] + 1, y)
    gemms = [s.kernel for s in walk(lowered(f, x, y).steps) if isinstance(s, CallStep) and isinstance(s.kernel, Gemm)]
    assert all(k.layout != "strided" for k in gemms)
    np.testing.assert_allclose(run(f, x, y)[0], np.einsum(spec, x * x[:1] + 1, y), rtol=1e-4, atol=1e-4)


def test_constants_are_packed_when_lowered():
    rng = np.random.default_rng(3)
    x, w = values(rng, (64, 300), "float32"), values(rng, (300, 500), "float32")
    layer = lambda x: x @ jnp.asarray(w)
    assert kernels(layer, x) == ["gemm"]
    np.testing.assert_allclose(run(layer, x)[0], x @ w, rtol=1e-4, atol=1e-4)
    batched = lambda x: jnp.matmul(x, jnp.asarray(w.reshape(2, 150, 500)))
    x = values(rng, (2, 30, 150), "float32")
    np.testing.assert_allclose(run(batched, x)[0], np.matmul(x, w.reshape(2, 150, 500)), rtol=1e-4, atol=1e-4)


def test_attention_needs_no_transposed_copies():
    q, k = np.zeros((2, 20, 4, 16), np.float32), np.zeros((2, 30, 4, 16), np.float32)
    found = kernels(lambda q, k: jnp.einsum("bthd,bshd->bhts", q, k), q, k)
    assert set(found) <= {"gemm", "pack"}
    assert "gemm" in found


@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    ways=st.tuples(*[st.sampled_from(["reverse", "repeat", "skip", "turn", "as it is"])] * 2),
    batch=st.sampled_from([(), (3,)]),
)
@settings(max_examples=60, deadline=None)
def test_operands_may_be_any_views(sizes, ways, batch):
    m, n, k = sizes
    rng = np.random.default_rng(0)

    def view(x, way):
        if way == "reverse":
            return x[..., ::-1, ::-1]
        if way == "repeat":
            return x[..., :1, :] + jnp.zeros((x.shape[-2], 1), np.float32)
        if way == "skip":
            return jnp.concatenate([x, x], axis=-1)[..., ::2]
        return jnp.swapaxes(x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2]), -1, -2) if way == "turn" else x

    product = lambda x, y: view(x, ways[0]) @ view(y, ways[1])
    x, y = values(rng, (*batch, m, k), "float32"), values(rng, (*batch, k, n), "float32")
    (found,) = run(product, x, y)
    with config.using(executor="reference"):
        wanted = np.asarray(product(jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_batches_of_vectors_are_not_packed():
    rng = np.random.default_rng(5)
    x, y = values(rng, (6, 80, 90), "float32"), values(rng, (6, 90), "float32")
    function = lambda x, y: jnp.einsum("bmk,bk->bm", x, y)
    assert kernels(function, x, y) == ["gemv"]
    np.testing.assert_allclose(run(function, x, y)[0], np.einsum("bmk,bk->bm", x, y), rtol=1e-4, atol=1e-4)
    # The vectors' elements lie apart.
    function = lambda x, y: jnp.einsum("bmk,kb->bm", x, y)
    np.testing.assert_allclose(run(function, x, y.T.copy())[0], np.einsum("bmk,bk->bm", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(("rows", "dtype"), [(1, "float32"), (3, "float32"), (2, "int8"), (1, "bfloat16")])
def test_rows_of_a_large_matrix_are_added_in_pieces(rows, dtype, name):
    rng = np.random.default_rng(6)
    n = 999
    depth = (7 << 20) // (n * np.dtype(dtype).itemsize) // 3 * 3 + 1  # three pieces, the last one shorter
    x, y = values(rng, (rows, depth), dtype), values(rng, (depth, n), dtype)
    b, c = values(rng, (n,), dtype), values(rng, (rows, 1), dtype)
    function = lambda x, y, b, c: (x @ y + b) * c
    assert kernels(function, x, y, b, c) == ["gemv", "gemv", "gemv"]
    found = run(function, x, y, b, c, name=name)[0]
    if dtype == "int8":
        np.testing.assert_array_equal(found, (x @ y + b) * c)
        return
    wide = [v.astype(np.float64) for v in (x, y, b, c)]
    tolerance = 1e-4 if dtype == "float32" else 0.02
    np.testing.assert_allclose(found.astype(np.float64), function(*wide), rtol=tolerance, atol=tolerance * depth**0.5)
    rows_back = run(lambda x, y: x @ y[::-1], x, y, name=name)[0]
    np.testing.assert_allclose(
        rows_back.astype(np.float64), wide[0] @ wide[1][::-1], rtol=tolerance, atol=tolerance * depth**0.5
    )


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(("depth", "pieces"), [(1023, 1), (1024, 2), (1025, 2), (1535, 2), (1536, 3), (1537, 3)])
def test_how_many_pieces_and_whether_the_last_is_shorter(rows, depth, pieces):
    """Rows of 4 KiB; whole numbers, whose sums are exact in every order."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 10, s).astype(np.float32) for s in ((rows, depth), (depth, 1024)))
    shorter = pieces > 1 and depth % -(-depth // pieces) != 0
    assert kernels(lambda x, y: x @ y + 1, x, y) == ["gemv"] * (1 if pieces == 1 else 2 + shorter)
    np.testing.assert_array_equal(run(lambda x, y: x @ y + 1, x, y)[0], x @ y + 1)


def test_known_scalars_have_no_dimension():
    x = np.arange(5, dtype=np.float32)
    numbers = (((), ()), ((), ()))
    function = lambda x: dot_general(x, jnp.asarray(np.float32(3)), dimension_numbers=numbers)
    np.testing.assert_array_equal(run(function, x)[0], 3 * x)


def test_gradients():
    rng = np.random.default_rng(4)
    x, w = values(rng, (32, 50), "float32"), values(rng, (50, 40), "float32")
    loss = lambda w, x: jnp.sum((x @ w) ** 2)
    (found,) = run(nx.grad(loss), w, x)
    np.testing.assert_allclose(found, 2 * x.T @ (x @ w), rtol=1e-3, atol=1e-3)


def test_an_ending_of_many_operands():
    """More numbers than a kernel has places for in any other test."""
    rng = np.random.default_rng(5)
    x, w, *others = (values(rng, shape, "int32") for shape in ((2, 3, 6, 8), (2, 1, 8, 7), *[(2, 3, 6, 7)] * 24))
    function = lambda x, w, *others: functools.reduce(jnp.add, others, jnp.matmul(x, w))
    (found,) = run(function, x, w, *others)
    np.testing.assert_array_equal(found, functools.reduce(np.add, others, np.matmul(x, w)))


@pytest.mark.parametrize(
    ("rows", "dtype"), [(1, "int8"), (1, "bfloat16"), (3, "bfloat16"), (4, "int8"), (8, "bfloat16"), (9, "int8")]
)
@pytest.mark.parametrize("turned", [False, True])
def test_few_rows_read_narrow_numbers_as_they_are(rows, dtype, turned):
    """Weights of 8 or 16 bits times a few rows: no copy in float32, which would be several times the bytes."""
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 70)).astype(np.float32)
    w = rng.integers(-128, 128, (90, 70) if turned else (70, 90)).astype(jnp.dtype(dtype))
    scale = rng.random(90).astype(np.float32)

    def f(x, w, scale):
        matrix = w.T if turned else w
        return (x @ matrix.astype("float32")) * scale

    want = x.astype(np.float64) @ (w.T if turned else w).astype(np.float64) * scale
    for name in ISAS:
        (got,) = run(f, x, w, scale, name=name)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)
    text = nx.jit(f).lower(x, w, scale).as_text()
    assert (f"float32 {dtype} float32" in text) == (rows <= (4 if turned else 8)), text


def test_groups_of_small_integers_are_read_as_they_are():
    """A scale for each so many weights: a batch of products, each small."""
    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=(2, 96)).astype(np.float32), rng.random((3, 50)).astype(np.float32)
    w = rng.integers(-7, 8, (96, 50)).astype(np.int8)

    def f(x, w, scale):
        sums = jnp.einsum("bgk,gkn->gbn", x.reshape(2, 3, 32), w.reshape(3, 32, 50).astype("float32"))
        return (sums * scale[:, None]).sum(0)

    want = x.astype(np.float64) @ (w * np.repeat(scale, 32, 0))
    for name in ISAS:
        (got,) = run(f, x, w, scale, name=name)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)
    assert "float32 int8 float32" in nx.jit(f).lower(x, w, scale).as_text()


def test_loops_read_small_integers_as_they_are():
    """The conversion does the same in every turn, and yet is no copy before the loop."""
    rng = np.random.default_rng(0)
    w, x = rng.integers(-3, 4, (40, 40)).astype(np.int8), rng.normal(size=(1, 40)).astype(np.float32)

    def f(w, x):
        return nx.fori_loop(0, 5, lambda i, x: x @ w.astype("float32") * 0.05, x)

    want = x.astype(np.float64)
    for _ in range(5):
        want = want @ w * 0.05
    np.testing.assert_allclose(nx.jit(f)(w, x), want, rtol=1e-4)
    text = nx.jit(f).lower(w, x).as_text()
    assert "float32 int8 float32" in text and "convert_element_type" not in text
    many = rng.normal(size=(30, 40)).astype(np.float32)
    want = many.astype(np.float64)
    for _ in range(5):
        want = want @ w * 0.05
    np.testing.assert_allclose(nx.jit(f)(w, many), want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "x", "y"),
    [
        ("hwc,c->hw", (9, 16, 3), (3,)),
        ("c,hwc->hw", (3,), (9, 16, 3)),
        ("ci,c->i", (4, 70), (4,)),
        ("ij,ij->i", (70, 2), (70, 2)),
        ("ij,ij->i", (70, 33), (70, 33)),
        ("bij,bj->bi", (70, 5, 6), (70, 6)),
        ("abi,iab->ab", (3, 2, 40), (40, 3, 2)),
        ("ijk,kji->k", (2, 2, 70), (70, 2, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_many_short_sums_are_part_of_what_follows(spec, x, y, dtype):
    def product(a, b):
        return jnp.exp(-jnp.einsum(spec, a, b))

    rng, dtype = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, y = (rng.uniform(-1, 1, s).astype(dtype) for s in (x, y))
    many = spec != "abi,iab->ab"  # of six sums, the kernel for products makes each by vectors
    assert {"gemv", "gemm"}.isdisjoint(kernels(product, x, y)) is many
    (found,) = run(product, x, y)
    exact = np.exp(-np.einsum(spec, x.astype(np.float64), y.astype(np.float64)))
    tolerance = {2: 0.02, 4: 1e-5, 8: 1e-13}[dtype.itemsize]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=tolerance)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int32"])
@pytest.mark.parametrize("depth", [3000, 3001])
def test_few_results_of_long_sums_are_summed_in_pieces(depth, dtype, name):
    """Blocks of the depth are items; without them there would be one, or hardly more."""
    rng = np.random.default_rng(7)
    x, y, z = (values(rng, s, dtype) for s in ((depth, 60), (depth, 50), (60, 1)))
    function = lambda x, y, z: x.T @ y + z
    with config.using(cpu_isa=name):
        vectors, found = isa.current().bits, kernels(function, x, y, z)
    if vectors == 512 and dtype == "float32":
        assert found == ["gemm"] * (1 + depth % 2) + ["gemv"]
    found = run(function, x, y, z, name=name)[0]
    if np.dtype(dtype) in dtypes.INTEGER:
        np.testing.assert_array_equal(found, x.T @ y + z)
        return
    tolerance = {"float32": 1e-5, "float64": 1e-13, "bfloat16": 0.02}[dtype]
    wide = [v.astype(np.float64) for v in (x, y, z)]
    np.testing.assert_allclose(found.astype(np.float64), function(*wide), rtol=tolerance, atol=tolerance * depth**0.5)
    with config.using(reproducible=True):
        assert kernels(function, x, y, z)[-1] == "gemm"
