"""Simplified programs: what is left, and that no bit of a result differs."""

import itertools
import math
import random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import NxError
from nxjax.lower.passes.simplify import simplified
from nxjax.ops.shape import broadcast_in_dim
from nxjax.testing import random_program
from nxjax.trace import dtypes
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program

SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38], np.float32)


def bits(y):
    y = np.asarray(y)
    nan = y != y
    return np.where(nan, np.zeros_like(y), y).tobytes(), nan.tobytes(), y.shape, y.dtype


def simple(function, *args, whole=frozenset()):
    """Names of the equations that are left; results are compared bit by bit."""
    hoisted, consts = nx.make_jaxpr(function)(*args).hoist_consts()
    result = simplified(hoisted).check()
    values = [x.numpy() for x in consts] + [np.asarray(x) for x in nx.tree.leaves(args)]
    with np.errstate(all="ignore"):
        for got, expected in zip(evaluate(result, values), evaluate(hoisted, values), strict=True):
            assert bits(got) == bits(expected)
    return [e.op.name for e in result.equations]


FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
NOTHING_LEFT = {
    "x * 1": lambda x: x * 1,
    "1 * x": lambda x: 1 * x,
    "x / 1": lambda x: x / 1,
    "x - 0.0": lambda x: x - 0.0,
    "x + -0.0": lambda x: x + -0.0,
    "-(-x)": lambda x: nx.negative(nx.negative(x)),
    "max(x, x)": lambda x: nx.lax.max(x, x),
    "x ** 1": lambda x: x**1,
    "wide and back": lambda x: x.astype("float64").astype(x.dtype),
    "reshape and back": lambda x: x.reshape(5, 2).reshape(10),
    "transposed twice": lambda x: x.reshape(5, 2).T.T.reshape(10),
    "reversed twice": lambda x: x[::-1][::-1],
    "all of it": lambda x: nx.lax.dynamic_slice(x, (np.int32(3),), (10,)),
    "with nothing": lambda x: nx.concatenate([x[:0], x, x[:0]]),
    "select known": lambda x: nx.where(True, x, x + 1),
    "select of equals": lambda x: nx.where(x > 0, x, x),
    "largest of one": lambda x: x.reshape(10, 1).max(1),
}


def special(dtype):
    with np.errstate(all="ignore"):
        return nx.array(SPECIAL.astype(dtype), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", list(NOTHING_LEFT))
def test_identities(name, dtype):
    assert simple(NOTHING_LEFT[name], special(dtype)) == []


KEPT = {
    "x + 0.0": lambda x: x + 0.0,
    "0.0 - x": lambda x: 0.0 - x,
    "x * 0": lambda x: x * 0,
    "x - x": lambda x: x - x,
    "x == x": lambda x: x == x,
    "narrow and back": lambda x: x.astype(np.float16).astype(np.float32),
    "sum of one": lambda x: x.reshape(10, 1).sum(1),
    "x / 3": lambda x: x / 3,
}


@pytest.mark.parametrize("name", list(KEPT))
def test_what_would_change_a_bit_stays(name):
    assert simple(KEPT[name], SPECIAL)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("divisor", [2.0, 0.25, -8.0, 2.0**-126, 2.0**127, 2.0**-130, 2.0**-149])
def test_division_by_a_power_of_two_is_multiplication(dtype, divisor):
    with np.errstate(all="ignore"):
        names = simple(lambda x: x / nx.array(divisor, dtype), special(dtype))
    far = dtype is np.float32 and not 2.0**-125 <= divisor <= 2.0**125 and divisor > 0
    assert ("mul" in names) == (not far)


INTEGERS = {
    "x + 0": lambda x: x + 0,
    "x * 1": lambda x: x * 1,
    "x | 0": lambda x: x | 0,
    "x & -1": lambda x: x & ~np.int32(0),
    "x ^ 0": lambda x: x ^ 0,
    "x << 0": lambda x: x << 0,
    "~~x": lambda x: ~~x,
    "x & x": lambda x: x & x,
    "sum of one": lambda x: x.reshape(7, 1).sum(1),
}


@pytest.mark.parametrize("name", list(INTEGERS))
def test_integer_identities(name):
    x = np.array([0, 1, -1, 5, 2**31 - 1, -(2**31), 7], np.int32)
    assert simple(INTEGERS[name], x) == []
    assert simple(lambda v: INTEGERS[name](v) * 0, x) == ["broadcast_in_dim"]


def test_chains_of_shapes_are_one():
    x = SPECIAL.reshape(5, 2)
    assert simple(lambda v: nx.broadcast_to(nx.broadcast_to(v.reshape(1, 5, 2), (3, 5, 2)), (4, 3, 5, 2)), x) == [
        "broadcast_in_dim"
    ]
    assert simple(lambda v: v.reshape(1, 5, 2).transpose(2, 0, 1).transpose(1, 2, 0).reshape(10), x) == ["reshape"]
    assert simple(lambda v: v.reshape(2, 5).reshape(10).reshape(5, 2).T, x) == ["transpose"]


def test_exact_conversions_are_one():
    x = np.arange(-3, 4).astype(np.int8)
    assert simple(lambda v: v.astype(np.int32).astype(np.float32), x) == ["convert_element_type"]
    y = special(ml_dtypes.bfloat16)
    assert simple(lambda v: v.astype(np.float32).astype("float64"), y) == ["convert_element_type"]
    # A float holds the integers that fit its mantissa, and no wider ones.
    assert simple(lambda v: v.astype(np.float32).astype(np.int32), x) == ["convert_element_type"]
    wide = np.array([2**24 + 1, 7], np.int32)
    assert len(simple(lambda v: v.astype(np.float32).astype(np.int32), wide)) == 2
    # 300 does not survive int8.
    assert len(simple(lambda v: v.astype(np.int8).astype(np.float32), np.array([300, 1], np.int32))) == 2


def numbers(dtype):
    """Every value of a dtype of 8 bits; of others what lies about powers of two and the ends."""
    if dtype == dtypes.bool_:
        return np.array([False, True])
    if dtype.itemsize == 1:
        every = np.arange(256, dtype=np.uint8)
        return every.view(dtype) if dtypes.bit_width(dtype) == 8 else every[:16].astype(np.int8).astype(dtype)
    if dtype in dtypes.INTEGER:
        info = np.iinfo(dtype)
        about = {s * (1 << k) + d for k in range(info.bits) for s in (1, -1) for d in (-3, -1, 0, 1, 3)}
        return np.array(sorted(n for n in about if info.min <= n <= info.max), dtype)
    with np.errstate(all="ignore"):
        powers = np.ldexp(1.0, np.arange(-140, 128))
        about = np.concatenate([powers, powers * 1.0039062, powers * 1.5 - 1, SPECIAL.astype(np.float64)])
        return np.concatenate([about, -about]).astype(dtype)


@pytest.mark.parametrize("dtype", sorted(dtypes.NUMERIC - dtypes.COMPLEX, key=str), ids=str)
def test_no_chain_of_conversions_changes_a_bit(dtype):
    """From each dtype by way of each other one to each."""
    others = sorted(dtypes.NUMERIC - dtypes.COMPLEX, key=str)
    convert = nx.lax.convert_element_type
    with nx.enable_x64(True):
        left = simple(lambda x: [convert(convert(x, a), b) for a in others for b in others], numbers(dtype))
    assert len(left) < len(others) * (len(others) + 1)


def known(dtype):
    """Numbers that a rule may know something of."""
    if dtype == dtypes.bool_:
        return [False, True]
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        least, most = int(info.min), int(info.max)
        return [n for n in (0, 1, 2, 3, -1, -2, info.bits - 1, info.bits, least, most) if least <= n <= most]
    powers = [2.0**k for k in (-149, -127, -126, -24, -14, -9, 2, 9, 15, 124, 125, 126, 127)]
    found = [0.0, -0.0, 1.0, -1.0, 0.5, -4.0, 3.0, np.nan, np.inf, -np.inf, *powers]
    return (
        found
        if dtype in dtypes.FLOAT
        else [*found[:7], *(complex(a, b) for a in (-0.0, 0.0, 1.0) for b in (-0.0, 1.0))]
    )


PAIRS = ("add", "sub", "mul", "div", "max", "min", "rem", "pow", "bitwise_and", "bitwise_or", "bitwise_xor",
         "shift_left", "shift_right_arithmetic", "shift_right_logical", "eq", "lt")  # fmt: skip
ALONE = ("neg", "abs", "bitwise_not", "sign", "square", "real", "conj")


def takes(op, *xs):
    try:
        return nx.eval_shape(op, *xs) is not None
    except NxError:
        return False


@pytest.mark.parametrize("dtype", sorted(dtypes.NUMERIC | {dtypes.bool_}, key=str), ids=str)
def test_no_known_operand_changes_a_bit(dtype):
    """On both sides of each op of two, alone and repeated; an operand by itself; ops of one after one another."""
    x = numbers(dtype) if dtype not in dtypes.COMPLEX | {dtypes.bool_} else np.array(known(dtype) * 3).astype(dtype)

    def f(x):
        found = []
        with np.errstate(all="ignore"):
            literals = [np.asarray(c).astype(dtype) for c in known(dtype)]
        for name in PAIRS:
            op = getattr(nx.lax, name)
            if not takes(op, x, x):
                continue
            for c in literals:
                repeated, one = nx.full(x.shape, nx.array(c, dtype), dtype), nx.array(c, dtype)
                found += [op(x, repeated), op(repeated, x), op(x[3], one), op(one, x[3]), op(x, x)]
        for first, second in itertools.product(ALONE, ALONE):
            if takes(y := getattr(nx.lax, first), x) and takes(z := getattr(nx.lax, second), y(x)):
                found.append(z(y(x)))
        return found

    with nx.enable_x64(True):
        assert len(simple(f, x)) > 3


def step(rng, x, i):
    """One more equation that only moves elements of ``x``, or takes all of them."""
    lax, shape = nx.lax, x.shape
    pick = lambda: rng.randrange(len(shape))
    match rng.randrange(10):
        case 0:
            n = x.size
            d = rng.choice([k for k in (1, 2, 3, 4, 6) if n % k == 0])
            return lax.reshape(x, rng.choice([(n,), (d, n // d), (n // d, 1, d), shape, (1, *shape), (*shape, 1)]))
        case 1 if len(shape) < 5:
            d = rng.randrange(len(shape) + 1)
            new = (*shape[:d], rng.choice([1, 2]), *shape[d:])
            return lax.broadcast_in_dim(x, new, [k + (k >= d) for k in range(len(shape))])
        case 2:
            order = rng.sample(range(len(shape)), len(shape))
            new = tuple(shape[order.index(k)] for k in range(len(shape)))
            return broadcast_in_dim(x, shape=new, broadcast_dimensions=tuple(order))
        case 3 if shape:
            order = rng.sample(range(len(shape)), len(shape))
            return lax.transpose(x, order)
        case 4 if shape:
            return lax.rev(x, rng.sample(range(len(shape)), rng.randint(1, len(shape))))
        case 5 if shape and 0 not in shape:
            lo = [rng.choice([0, 0, n - 1]) for n in shape]
            strides = [rng.choice([1, 1, 2]) for _ in shape]
            return lax.slice(x, lo, shape, rng.choice([None, strides]))
        case 6 if shape:
            sizes = [max(n - rng.choice([0, 0, 1]), 0) for n in shape]
            starts = [rng.choice([np.int32(rng.randint(-2, 3)), i]) for _ in shape]
            return lax.dynamic_slice(x, starts, sizes)
        case 7 if shape:
            none = lax.slice_in_dim(x, 0, 0, axis=(d := pick()))
            return lax.concatenate(rng.choice([[none, x], [x, none, x], [none, none]]), d)
        case 8 if shape:
            return lax.pad(
                x, nx.array(7, x.dtype), [rng.choice([(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 1)]) for _ in shape]
            )
        case 9 if shape:
            reduce = rng.choice([nx.lax.reduce_max, nx.lax.reduce_sum, nx.lax.reduce_prod, nx.lax.reduce_min])
            return reduce(x, [k for k, n in enumerate(shape) if n == 1] or [pick()])
    return x


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("block", range(3))
def test_chains_of_moves_keep_every_element(dtype, block):
    for seed in range(100 * block, 100 * block + 100):
        rng = random.Random(seed)
        shape = rng.choice([(), (6,), (1, 6), (4, 3), (3, 1, 4), (2, 0, 3), (1, 1), (3, 3)])
        x = (np.arange(math.prod(shape)) - 3).astype(dtype).reshape(shape) * dtype(-1)

        def f(x, i, rng=rng, state=rng.getstate()):
            rng.setstate(state)
            found = [x]
            for _ in range(rng.randint(2, 6)):
                y = step(rng, rng.choice(found[-2:]), i)
                found += [y] if y.size < 200 else []
            return found[1:]

        simple(f, x, np.int32(rng.randint(-1, 2)))


def test_equal_expressions_are_computed_once():
    assert simple(lambda x: nx.sin(x + 1.5) * nx.sin(x + 1.5), SPECIAL).count("sin") == 1
    assert simple(lambda x: nx.sin(x * 0.0) + nx.sin(x * -0.0), SPECIAL).count("sin") == 2


@pytest.mark.parametrize("kind", [float, np.float32, ml_dtypes.bfloat16, complex, np.complex64])
def test_parameters_that_are_equal_may_be_other_numbers(kind):
    """0.0 and -0.0: what fills a gather beyond the end, at both."""
    numbers = nx.lax.GatherDimensionNumbers((), collapsed_slice_dims=(0,), start_index_map=(0,))
    dtype = np.complex64 if kind in (complex, np.complex64) else np.float32
    fills = [kind(0.0), kind(-0.0)] + ([kind(complex(0.0, -0.0))] if dtype == np.complex64 else [])

    def f(x, i):
        return [nx.lax.gather(x, i, numbers, (1,), mode="fill", fill_value=fill) for fill in (*fills, *fills)]

    assert simple(f, np.ones(3, dtype), np.array([[9]])) == ["gather"] * len(fills)


@pytest.mark.parametrize("index", [-1, 0, 1, 5])
def test_a_known_choice_is_made(index):
    names = simple(lambda x: nx.lax.switch(index, [nx.sin, nx.cos], x), SPECIAL[:4])
    assert names == ["cos" if index > 0 else "sin"]


def test_a_transposed_product_is_the_other_product():
    x, y = (np.arange(n * 3, dtype=np.float32).reshape(2, n // 2, 3) for n in (4, 8))
    batched = lambda a, b: nx.einsum("bik,bjk->bij", a, b)
    assert simple(lambda a, b: nx.transpose(batched(a, b), (0, 2, 1)), x, y) == ["dot_general"]
    assert simple(lambda a, b: nx.transpose(batched(a, b), (1, 0, 2)), x, y) == ["dot_general", "transpose"]
    # The product itself is wanted too.
    names = simple(lambda a, b: (batched(a, b), nx.transpose(batched(a, b), (0, 2, 1))), x, y)
    assert names == ["dot_general", "transpose"]


@pytest.mark.parametrize("left", ["highest", "default"])
def test_each_operand_of_a_turned_product_keeps_its_precision(left):
    x, w = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    program = nx.make_jaxpr(lambda x, w: nx.lax.dot(x, w, precision=(left, "default")).T)(x, w)
    (product,) = simplified(program).equations
    names = [p and p.name.lower() for p in product.params["precision"]]
    assert [v.type.shape for v in product.inputs] == [(4, 5), (3, 4)] and names == ["default", left]


def test_effects_and_barriers_are_not_merged():
    seen = []

    def f(x):
        nx.debug.callback(seen.append, x)
        nx.debug.callback(seen.append, x)
        return x * 2

    assert simple(f, SPECIAL).count("debug_callback") == 2 and len(seen) == 4
    g = nx.value_and_grad(lambda x: nx.checkpoint(lambda v: nx.sin(nx.sin(v)))(x).sum())
    assert simple(g, SPECIAL[:4]).count("sin") == 3


@given(st.data())
def test_random_programs_keep_their_bits(data):
    program = random_program(lambda n: data.draw(st.integers(0, n - 1)), 10)
    simple(program, *program.args)


def test_a_loop_whose_results_are_known_does_not_run():
    # Nobody could tell what it does but by waiting for it.
    f = nx.jit(lambda: nx.lax.while_loop(lambda c: c < 10, lambda c: c * 1.0, 0.0))
    assert float(f()) == 0


def test_numbers_without_sign_keep_their_negation():
    x = np.array([0, 1, 94, 255], np.uint8)
    assert simple(lambda x: nx.lax.abs(nx.lax.neg(x)), x) == ["neg", "abs"]
    assert simple(lambda x: nx.lax.abs(nx.lax.neg(x)), x.view(np.int8)) == ["abs"]


@pytest.mark.parametrize("which", [-1, 0, 1, 7])
def test_of_two_cases_any_number_but_0_takes_the_second(which):
    x = np.arange(3.0, dtype=np.float32)
    simple(lambda x: nx.lax.select_n(nx.full(3, which, "int32"), x, nx.lax.neg(x)), x)
    # Of more, those outside take the nearest.
    simple(lambda x: nx.lax.select_n(nx.full(3, which, "int32"), x, nx.lax.neg(x), x * 3), x)


def test_an_array_in_its_own_shape_is_not_repeated():
    x = np.ones((3, 3), np.float32)
    assert simple(lambda x: broadcast_in_dim(x, shape=(3, 3), broadcast_dimensions=(0, 1)), x) == []
    assert simple(lambda x: broadcast_in_dim(x, shape=(3, 3), broadcast_dimensions=(1, 0)), x) == ["broadcast_in_dim"]


@pytest.mark.parametrize("step", ["flattened", "folded"])
def test_what_a_pass_gives_is_checked(step, monkeypatch):
    short = lambda p, *_: Program(p.inputs, p.equations[1:], p.outputs, p.constvars, p.values)
    monkeypatch.setattr(f"nxjax.lower.passes.simplify.{step}", short)
    p = nx.make_jaxpr(lambda x: nx.sin(x) * nx.cos(x))(0.5)
    with nx.config.using(check=True), pytest.raises(nx.errors.ProgramError, match="not defined"):
        simplified(p)
