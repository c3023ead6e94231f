"""Operators, methods, conversion and printing of arrays; the errors of tracers."""

import copy
import pickle

import jax
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import errors

X = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
I = jnp.array([1, 2, 3])
B = jnp.array([True, False])

OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "divmod": divmod,
}


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("left", [X, I, jnp.asarray(2.0), jnp.asarray(3), jnp.arange(3, dtype="uint8")], ids=str)
def test_operator_with_everything(check, symbol, left):
    op = OPERATORS[symbol]
    for right in (2, 2.5, True, np.float32(1.5), np.arange(1, 4), jnp.array([1.0, 2.0, 3.0]), jnp.array([1, 2, 3])):
        if right is True and symbol == "**":
            continue
        check.values(lambda m, x, right=right: op(x, check.peer(m, right)), left, weak=True)
        if not isinstance(right, (np.ndarray, np.generic)):
            check.values(lambda m, x, right=right: op(check.peer(m, right), x), left, weak=True)


@pytest.mark.parametrize("symbol", ["&", "|", "^", "<<", ">>"])
def test_bit_operators(check, symbol):
    op = {
        "&": lambda a, b: a & b,
        "|": lambda a, b: a | b,
        "^": lambda a, b: a ^ b,
        "<<": lambda a, b: a << b,
        ">>": lambda a, b: a >> b,
    }[symbol]
    check.values(lambda m, x: [op(x, 1), op(5, x), op(x, x)], I)


def test_unary_operators(check):
    check.values(lambda m, x: [-x, +x, abs(x), round(x * 1.26, 1)], X)
    check.values(lambda m, x: [~x, -x], I)


def test_eager_result_is_that_of_the_op():
    big = jnp.array([3e38, 1.0], "float32")
    assert np.isinf((big + big).numpy()[0])
    assert np.isnan((jnp.zeros(1) / jnp.zeros(1)).numpy()[0])
    assert (jnp.arange(3, dtype="int32") + (2**31 - 1)).dtype == np.int32
    with pytest.raises(OverflowError):  # as in JAX
        jnp.arange(3, dtype="int32") + 2**31
    assert (X + 1).dtype == np.float32
    assert (jnp.asarray(1.0) + 1).weak_type
    assert not (jnp.asarray(1.0) + X).weak_type
    assert (X + X).shape == (2, 3)
    assert (X + I).dtype == np.float32
    assert (jnp.float32(1) + jnp.float32(1)).shape == ()


METHODS = {
    "sum": lambda x: x.sum(axis=0),
    "mean": lambda x: x.mean(),
    "max": lambda x: [x.max(1), x.min(), x.argmax(), x.argmin(1), x.ptp(0)],
    "moments": lambda x: [x.std(), x.var(0), x.prod()],
    "tests": lambda x: [x.all(), x.any(0)],
    "running": lambda x: [x.cumsum(0), x.cumprod(1)],
    "shape": lambda x: [
        x.reshape(3, 2),
        x.reshape((6,)),
        x.T,
        x.mT,
        x.ravel(),
        x.flatten(),
        x.squeeze(),
        x.swapaxes(0, 1),
    ],
    "order": lambda x: [x.sort(0), x.argsort(), x.transpose(1, 0), x.transpose((1, 0)), x.searchsorted is not None],
    "pick": lambda x: [x.take(1), x.diagonal(), x.trace(), x.repeat(2), x.clip(2, 4), x.round()],
    "type": lambda x: [x.astype(int), x.astype("bfloat16").astype("float32"), x.real, x.imag, x.conj(), x.copy()],
    "product": lambda x: [x.dot(x.T), x @ x.T],
    "view": lambda x: [x.view("int32"), x.view("uint8"), x.astype("int16").view("uint16")],
    "iteration": lambda x: [row * 2 for row in x],
    "facts": lambda x: np.array([x.ndim, x.size, len(x), x.nbytes, x.itemsize]),
}


@pytest.mark.parametrize("name", METHODS)
def test_method(check, name):
    check.values(lambda m, x: METHODS[name](x), X, jit=name != "facts")


def test_to_python():
    assert float(jnp.float32(1.5)) == 1.5
    assert int(jnp.array(3)) == 3
    assert complex(jnp.array(1j)) == 1j
    assert bool(jnp.array(True)) is True
    assert [10, 20, 30][jnp.array(1)] == 20
    assert X.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert X[0, 1].item() == 2.0
    assert f"{jnp.float32(1.5):.2f}" == "1.50"
    with pytest.raises(TypeError, match=r"'\.2f' is for scalars, got f32\[2\]"):
        format(jnp.ones(2), ".2f")
    assert 2.0 in X
    assert 9.0 not in X
    assert round(jnp.float32(2.6)) == 3
    for bad in (float, int, complex):
        with pytest.raises(TypeError):
            bad(X)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(X)
    with pytest.raises(ValueError, match="empty"):
        bool(jnp.zeros(0))
    with pytest.raises(TypeError):
        len(jnp.float32(1))
    with pytest.raises(TypeError):
        iter(jnp.float32(1))
    with pytest.raises(TypeError):
        hash(X)
    with pytest.raises(TypeError):
        range(jnp.float32(3))


def test_printing_is_that_of_jax():
    import jax.numpy

    for make in (
        lambda m: m.array([0.0, 1.0]),
        lambda m: m.asarray(1.0),
        lambda m: m.zeros((0, 3)),
        lambda m: m.array([]),
        lambda m: m.arange(40),
        lambda m: m.arange(12.0).reshape(3, 4),
        lambda m: m.array([True]),
        lambda m: m.array([1, 2], "bfloat16"),
        lambda m: m.array([1 + 2j]),
        lambda m: m.arange(5000),
    ):
        assert repr(make(jnp)) == repr(make(jax.numpy))
        assert str(make(jnp)) == str(make(jax.numpy))


def test_numpy_and_others():
    data = np.asarray(X)
    assert data.dtype == np.float32
    assert not data.flags.writeable
    assert isinstance(np.ones((2, 3), np.float32) + X, nx.Array)
    np.testing.assert_array_equal(np.from_dlpack(X), X)
    np.testing.assert_array_equal(jnp.from_dlpack(np.ones(3)), np.ones(3))
    assert X.__array_namespace__() is jnp
    again = pickle.loads(pickle.dumps(X))
    assert again.dtype == X.dtype
    np.testing.assert_array_equal(again, X)
    assert pickle.loads(pickle.dumps(jnp.asarray(1.0))).weak_type
    np.testing.assert_array_equal(copy.deepcopy([X])[0], X)
    source = np.ones(3, np.float32)
    x = jnp.asarray(source)
    source[0] = 7
    assert x[0] == 1


def test_protocol_of_jax_arrays():
    class Wrapped:
        def __jax_array__(self):
            return I

    assert (jnp.add(Wrapped(), 1)).tolist() == [2, 3, 4]
    assert (I + Wrapped()).tolist() == [2, 4, 6]


def test_operators_ask_the_other_operand():
    class Other:
        def __radd__(self, x):
            return "mine"

    assert X + Other() == "mine"
    with pytest.raises(TypeError):
        X + [1.0]  # noqa: RUF005
    assert (X == None) is False  # noqa: E711
    assert (X != "a") is True


@pytest.mark.parametrize("transform", [nx.jit, nx.grad, nx.vmap], ids=["jit", "grad", "vmap"])
def test_tracers_say_what_is_wrong(transform):
    x = jnp.arange(3.0) if transform is nx.vmap else jnp.float32(1)

    def attempt(error, use, *words):
        with pytest.raises(error) as caught:
            transform(lambda v: (use(v), v)[1])(x)
        for word in words:
            assert word in str(caught.value)

    if transform is nx.grad:
        # Outside of jit, the value that is differentiated is known.
        assert transform(lambda v: v * 3 if v > 0 else v)(x) == 3.0
        # Its tangent would be lost, and the gradient be 0 without a word.
        attempt(errors.ConcretizationTypeError, lambda v: float(v) ** 2)
    else:
        attempt(
            errors.TracerBoolConversionError, lambda v: 1 if v > 0 else 2, "nx.where", "static_argnums", "test_methods"
        )
        attempt(errors.ConcretizationTypeError, float, "astype")
        attempt(errors.ConcretizationTypeError, int)
        attempt(errors.TracerIntegerConversionError, range, "fori_loop")
        attempt(errors.ConcretizationTypeError, lambda v: v.item())
    attempt(errors.TracerArrayConversionError, np.asarray, "pure_callback")
    attempt(errors.ConcretizationTypeError, lambda v: v.tolist())
    attempt(errors.ImmutableArrayError, lambda v: v.__setitem__(0, 1.0), ".at[")
    seen = []
    transform(lambda v: (seen.append(repr(v)), v)[1])(x)
    assert "f32[]" in seen[0]


def test_scalar_types_are_dtypes():
    assert jnp.float32 == np.float32
    assert X.dtype == jnp.float32
    assert np.dtype(jnp.int8) == np.int8
    assert jnp.zeros(2, jnp.bfloat16).dtype == jnp.bfloat16
    assert hash(jnp.float32) == hash(np.dtype("float32"))
    assert len({jnp.float32, jnp.int32, jnp.float32}) == 2
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert not jnp.issubdtype(jnp.int32, jnp.floating)
    assert jnp.isdtype(jnp.int8, ("real floating", "integral"))
    assert jnp.finfo(jnp.bfloat16).bits == 16
    assert jnp.iinfo(jnp.int8).max == 127
    assert jnp.result_type(I, 1.5) == np.float32
    assert jnp.result_type(jnp.bfloat16, jnp.float16) == np.float32
    assert jnp.promote_types("int32", "bfloat16") == jnp.bfloat16
    assert jnp.can_cast("int8", "int32")


def test_every_public_name_exists():
    for name in jnp.__all__:
        assert getattr(jnp, name) is not None or name == "newaxis"
        assert name in dir(jnp)
    with pytest.raises(AttributeError):
        jnp.no_such_function  # noqa: B018


def test_files(tmp_path):
    jnp.save(tmp_path / "x.npy", X)
    np.testing.assert_array_equal(jnp.load(tmp_path / "x.npy"), X)
    jnp.savez(tmp_path / "x.npz", a=X)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["a"], X)


def test_booleans_count_as_integers():
    truths = jnp.array([True, False])
    for y, want in ((truths + 1, [2, 1]), (2 * truths, [2, 0]), (truths & 1, [1, 0]), (1 | truths, [1, 1])):
        assert y.dtype == np.int32 and y.weak_type and y.tolist() == want
    assert (truths < 1).dtype == bool
    assert jnp.square(truths).dtype == np.int32


def test_bytes_and_copies():
    x = jnp.array([[1, 2]], "int16")
    assert x.tobytes() == b"\x01\x00\x02\x00" and x.byteswap().tolist() == [[256, 512]]
    assert jnp.array(1 + 2j).byteswap().byteswap() == 1 + 2j and x.clone().tolist() == [[1, 2]]
    assert round(jnp.array([1.6], "float16")).dtype == np.int32
    with pytest.raises(nx.errors.ConcretizationTypeError, match="tobytes"):
        nx.jit(lambda v: v.tobytes())(x)


def test_numbers_made_of_others():
    assert jnp.full(2, -1, "uint8").tolist() == [255, 255] and jnp.full_like(x8 := jnp.zeros(1, "int8"), 300) == 44
    assert jnp.vander(x8 + 2).dtype == np.int8 and jnp.linspace(0, 1j, 3, dtype="int8").tolist() == [0, 0, 0]
    assert np.isnan(jnp.geomspace(0, 1, 3)).all() and jnp.geomspace(1, 8, 4)[-1] == 8
    assert jnp.logspace(0, 2, 3, dtype="int32").tolist() == [1, 10, 100]
    assert jnp.frombuffer(np.float64(2.5).tobytes()).tolist() == [2.5]
    assert jnp.digitize(5, jnp.array([8, 5, 4])) == np.digitize(5, [8, 5, 4])
    assert jnp.digitize(5, jnp.array([8, 5, 4]), right=True) == np.digitize(5, [8, 5, 4], right=True)
    assert jnp.unravel_index(jnp.array(5, "uint8"), (2, 3))[0].dtype == np.uint8
    assert jnp.fmax(1j, 2) == 2 and jnp.fmin(1j, np.nan) == 1j
    strong = (jnp.log2(0.5), jnp.log10(2), jnp.copysign(-1, jnp.ones(())))
    assert not any(y.weak_type for y in strong)
    assert jnp.logaddexp2(0.5, 1).weak_type  # as in JAX
    assert jnp.zeros(2, int).at[0].subtract(True).tolist() == [-1, 0]
    assert float(jnp.finfo(np.dtype(jnp.float4_e2m1fn)).max) == 6
    assert jnp.unwrap(jnp.array([0, 9], "uint32")).dtype == np.float32
    assert nx.grad(jnp.i0)(0.0) == 0
    assert (x8 ** np.int64(3)).dtype == np.int8
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        jnp.array([1, 300], "uint8")


@pytest.mark.parametrize("kind", ["i2", "u2", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("order", "<>=")
def test_bytes_are_read_in_the_order_of_their_dtype(kind, order, tmp_path):
    x = np.array([1, 258, 77], order + kind)
    (tmp_path / "x").write_bytes(x.tobytes())
    for spec in (order + kind, x.dtype):
        for y in (jnp.frombuffer(x.tobytes(), spec), jnp.fromfile(tmp_path / "x", spec), jnp.asarray(memoryview(x))):
            assert y.tolist() == x.tolist() and y.dtype.isnative
    assert jnp.fromfile(tmp_path / "x", order + kind, 1, offset=x.itemsize).tolist() == [258]


def test_pythons_types_have_numpys_width_in_files(tmp_path):
    for kind in (int, float, complex):
        np.arange(3).astype(kind).tofile(tmp_path / "x")
        assert jnp.fromfile(tmp_path / "x", dtype=kind).tolist() == [0, 1, 2]
    (tmp_path / "x").write_text("1.5, 2")
    assert jnp.fromfile(tmp_path / "x", sep=",").tolist() == [1.5, 2]


def test_bits_of_arrays_have_one_order():
    """The bytes that another order would need are no array of ours: silence would give other numbers."""
    x = jnp.asarray([1, 258])
    for read in (x.view, lambda dtype: nx.lax.bitcast_convert_type(x, dtype)):
        assert read(np.dtype("i4").newbyteorder("=")).tolist() == [1, 258]
        with pytest.raises(TypeError, match="order of bytes"):
            read(np.dtype("i4").newbyteorder("S"))


# Arrays of one axis that are still weak, as `where(mask, 0.5, 2)` and products of integers and Python floats are.
OF_WEAK_ARRAYS = {
    "pad": lambda J, s: [J.numpy.pad(s, 1, mode=m) for m in ("constant", "mean", "linear_ramp", "edge", "reflect")],
    "pad with": lambda J, s: J.numpy.pad(s, 1, constant_values=((1, 2),)),
    "diag": lambda J, s: [J.numpy.diag(s), J.numpy.diag(s[None] * s[:, None]), J.numpy.diagflat(s)],
    "convolve": lambda J, s: [J.numpy.convolve(s, s), J.numpy.correlate(s, s, "same")],
    "insert": lambda J, s: [J.numpy.insert(s, 1, 9), J.numpy.insert(s, 1, s[0])],
    "sets": lambda J, s: [J.numpy.unique(s, size=3), J.numpy.unique(s, size=3, fill_value=1)],
    "sets of two": lambda J, s: [
        getattr(J.numpy, name)(s, s[:1], size=3) for name in ("union1d", "setdiff1d", "intersect1d", "setxor1d")
    ],
    "cross": lambda J, s: [J.numpy.cross(s, s), J.numpy.cross(s[:2], s[:2])],
    "power": lambda J, s: [2**s, s**s, s**2, 2.5**s, s**1.5],
    "polynomials": lambda J, s: [J.numpy.polyadd(s, s), J.numpy.polysub(s, s[:1]), J.numpy.polymul(s, s)],
    "angles": lambda J, s: [J.numpy.angle(s), J.numpy.deg2rad(s), J.numpy.rad2deg(s), J.numpy.deg2rad(s[0])],
    "sinc": lambda J, s: [J.numpy.sinc(s), J.numpy.sinc(s[0])],
    "fft": lambda J, s: [J.numpy.fft.fft(s), J.numpy.fft.rfft(s), J.lax.fft(s * 1.0, "RFFT", (3,))],
    "softmax": lambda J, s: [f(s * 0.5) for f in (J.nn.softmax, J.nn.log_softmax, J.nn.logsumexp)],
    "reduce": lambda J, s: [J.lax.reduce(s, 0, J.lax.add, (0,)), J.lax.reduce(s, s[0], lambda a, b: a + b, (0,))],
    "reduce_window": lambda J, s: [
        J.lax.reduce_window(s, np.array(0, s.dtype), J.lax.add, (2,), (1,), "VALID"),
        J.lax.reduce_window(s, np.array(1, s.dtype), J.lax.mul, (2,), (1,), "VALID"),
        J.lax.reduce_window(s, np.array(3, s.dtype), J.lax.max, (2,), (1,), "VALID"),
    ],
    "update": lambda J, s: [J.lax.dynamic_update_slice(s, s[:1], (0,)), s.at[0].set(1)],
    "associative_scan": lambda J, s: [J.lax.associative_scan(J.lax.add, s[:n]) for n in (1, 2, 3)],
    "resize": lambda J, s: [J.image.resize(s, (5,), m) for m in ("nearest", "linear", "cubic")],
}


@pytest.mark.parametrize("numbers", [(1, 2, 3), (1.0, 2.0, 3.0)], ids=["integers", "floats"])
@pytest.mark.parametrize("name", list(OF_WEAK_ARRAYS))
def test_results_of_weak_arrays_are_as_weak_as_in_jax(name, numbers):
    def types(J):
        found = J.eval_shape(lambda *xs: OF_WEAK_ARRAYS[name](J, J.numpy.stack(xs)), *map(J.numpy.asarray, numbers))
        return [(str(y.dtype), y.shape, y.weak_type) for y in J.tree.leaves(found)]

    assert types(nx) == types(jax)
