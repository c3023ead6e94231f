"""The contract of `Executable` and of calls, asked of every way in which a call may run."""

import gc
import itertools
import pickle
import random
import sys
import threading
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.config import config
from nxjax.errors import ExecutionError, StaticArgumentError
from tests.ways import HERE, Way

N = 6


def marked(ways: list[Way]) -> list[Any]:
    """Guard mode all over is no other run of a way that says itself how it is guarded, or of another executor."""
    same = [w.settings["executor"] != "cpu" or "guard" in w.settings for w in ways]
    return [pytest.param(w, marks=pytest.mark.unguarded if s else ()) for w, s in zip(ways, same, strict=True)]


@pytest.fixture(params=marked(HERE), ids=lambda w: w.name)
def way(request: pytest.FixtureRequest):
    with request.param.taken():
        yield request.param


def without(*kinds: str) -> Any:
    """For a test that has no meaning in some ways: of these kinds, or of the executor ``xla``."""
    left = [w for w in HERE if not any(w.settings["executor"] == k or getattr(w, k, False) for k in kinds)]
    return pytest.mark.parametrize("way", marked(left), ids=lambda w: w.name, indirect=True)


def floats(n: int = N, start: float = 1.0) -> np.ndarray[Any, Any]:
    return np.arange(n, dtype=np.float32) + np.float32(start)


# --- arguments ---


def _unaligned(x: Any) -> Any:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    view = memory[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def _read_only(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


def _mapped(x: Any, folder: Any) -> Any:
    found = np.memmap(folder / "x", x.dtype, "w+", shape=x.shape)
    found[...] = x
    return found


LAYOUTS = {
    "dense": lambda x: x.copy(),
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "offset": lambda x: np.concatenate([x, x])[len(x) :],
    "strided": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "unaligned": _unaligned,
    "read-only": _read_only,
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "big-endian's native copy": lambda x: x.astype(x.dtype.newbyteorder(">")).astype(x.dtype),
}


@pytest.mark.parametrize("as_array", [False, True], ids=["numpy", "array"])
def test_layouts(way: Way, as_array: bool, tmp_path: Any) -> None:
    base = floats(12).reshape(3, 4)
    layouts = {**LAYOUTS, "memory map": lambda x: _mapped(x, tmp_path)}
    function = lambda x, y: (x * 2 + y, x.T, x[1], jnp.sum(x, 0))
    f = way.jit(function)
    for name, of in layouts.items():
        made = of(base)
        before, other = made.copy(), floats(4, 9)
        given = nx.asarray(made) if as_array else made
        got, _ = way.last(f, lambda given=given, other=other: (given, other))
        for y, wanted in zip(got, (before * 2 + other, before.T, before[1], before.sum(0)), strict=True):
            np.testing.assert_array_equal(np.asarray(y), wanted, err_msg=name)
        np.testing.assert_array_equal(made, before, err_msg=name)


def test_what_goes_out_is_no_memory_of_the_users(way: Way) -> None:
    """Also where a result is an argument, part of one, or a constant."""
    held = floats(N, 50)
    constant = nx.asarray(held)
    f = way.jit(lambda x, n: (x, x.reshape(2, 3), x[0:2], x[::-1], constant, constant + 0, n, x.astype(x.dtype)))
    x, n = floats(), np.float32(7)
    wanted = [np.asarray(y).copy() for y in (x, x.reshape(2, 3), x[:2], x[::-1], held, held, n, x)]
    got, _ = way.last(f, lambda: (x, n))
    x[:] = -1
    held[:] = -2
    for y, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(y), w)
        assert not np.asarray(y).flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            np.asarray(y).flags.writeable = True


def test_empty_and_scalar_arguments(way: Way) -> None:
    got = way.run(lambda a, b, c, d: (a + 1, b * 2, -c, d & True), lambda: (np.zeros((0, 3)), 3, 2.5, np.bool_(1)))
    assert [y.shape for y in got] == [(0, 3), (), (), ()]
    assert [y.item() for y in got[1:]] == [6, -2.5, True]
    assert [y.dtype.name for y in got] == ["float32", "int32", "float32", "bool"]


def test_results_in_several_places(way: Way) -> None:
    """An argument may be a result, twice, beside others made of it; retyped ones keep their own type."""
    got = way.run(lambda x, n: (x, x, x + 1, {"n": n, "x": x}, n * 1), lambda: (nx.asarray(floats()), 2.0))
    for y in (got[0], got[1], got[3]["x"]):
        np.testing.assert_array_equal(y, floats())
        y.delete()  # its own array
    np.testing.assert_array_equal(got[2], floats() + 1)
    assert [(y.dtype.name, y.weak_type) for y in (got[3]["n"], got[4])] == [("float32", True)] * 2


# --- donation ---

_SUBSETS = [s for n in range(4) for s in itertools.combinations(range(3), n)]


@without("inside")  # an inner function gives nothing away
@pytest.mark.parametrize("donate", _SUBSETS, ids=str)
def test_donation_of_any_subset(way: Way, donate: tuple[int, ...]) -> None:
    make = lambda: tuple(nx.asarray(floats(start=s)) for s in (1, 10, 100))
    f = way.jit(lambda a, b, c: (a + b, b * c, c - a, a), donate_argnums=donate)
    seen: list[Any] = []

    def watched() -> tuple[Any, ...]:
        args = make()
        seen[:] = [np.asarray(x) for x in args]
        return args

    got, args = way.last(f, watched)
    a, b, c = (floats(start=s) for s in (1, 10, 100))
    for y, wanted in zip(got, (a + b, b * c, c - a, a), strict=True):
        np.testing.assert_array_equal(y, wanted)
    assert [x.is_deleted() for x in args] == [i in donate for i in range(3)]
    for view, wanted in zip(seen, (a, b, c), strict=True):  # NumPy's views live, and keep their elements
        np.testing.assert_array_equal(view, wanted)


@without("inside")  # an inner function gives nothing away
@pytest.mark.parametrize("donate", [(0,), (1,), (0, 1)], ids=str)
def test_the_same_array_twice(way: Way, donate: tuple[int, ...]) -> None:

    def make() -> tuple[Any, Any]:
        x = nx.asarray(floats()) + 0
        return way.put(x), x

    def same() -> tuple[Any, Any]:
        x = way.put(nx.asarray(floats()) + 0)
        return x, x

    f = way.jit(lambda a, b: (a + 1, a * b, b - 1), donate_argnums=donate)
    for args in (same,):
        got, given = way.last(f, args)
        for y, wanted in zip(got, (floats() + 1, floats() ** 2, floats() - 1), strict=True):
            np.testing.assert_array_equal(y, wanted)
        assert all(x.is_deleted() for x in given)


@without("inside")  # an inner function gives nothing away
def test_donated_memory_that_others_have(way: Way) -> None:
    """Closed over, held by another array, or by a view: it is not written over."""
    kept: list[Any] = []

    def make() -> tuple[Any, ...]:
        x = nx.jit(lambda x: x + 0)(floats())
        kept[:] = [nx.jit(lambda x: x)(x), np.asarray(x), nx.asarray(x).reshape(2, 3).reshape(6)]
        return (x,)

    closed = nx.jit(lambda x: x * 1)(floats(start=3))
    f = way.jit(lambda x: (x * 5, closed + x), donate_argnums=0)
    got, args = way.last(f, make)
    assert args[0].is_deleted()
    for y in kept:
        np.testing.assert_array_equal(y, floats())
    np.testing.assert_array_equal(got[0], floats() * 5)
    if not way.compiled and not way.placed:
        got = f(closed)  # what is closed over, given away
        np.testing.assert_array_equal(got[1], floats(start=3) * 2)
        assert closed.is_deleted()
        np.testing.assert_array_equal(f(nx.asarray(floats()))[1], floats(start=3) + floats())


@without("inside", "compiled")  # an inner function gives nothing away; a compiled one is made once
def test_results_of_donated_arguments_can_be_given_away_again(way: Way) -> None:
    f = way.jit(lambda s, n: (s[0] + n, s[1] * 2), donate_argnums=0)
    state = (way.put(nx.asarray(floats())), way.put(nx.asarray(floats(start=5))))
    kept: list[Any] = []
    for i in range(6):
        kept.append(np.asarray(state[i % 2]))
        before = state
        state = f(state, 1.0)
        assert all(x.is_deleted() for x in before)
    np.testing.assert_array_equal(state[0], floats() + 6)
    np.testing.assert_array_equal(state[1], floats(start=5) * 64)
    for i, y in enumerate(kept):
        np.testing.assert_array_equal(y, floats(start=5) * 2**i if i % 2 else floats() + i)


# --- lifetime ---


def test_deleted_arrays_are_errors(way: Way) -> None:
    f = way.jit(lambda x, y: x + y)

    def call(which: int) -> None:
        args = [way.put(nx.asarray(floats())) for _ in range(2)]
        args[which].delete()
        way.last(f, lambda: (args[0], args[1]))

    good = lambda: way.last(f, lambda: (nx.asarray(floats()), nx.asarray(floats())))[0]
    np.testing.assert_array_equal(good(), floats() * 2)
    for which in (0, 1):
        with pytest.raises(RuntimeError, match="deleted"):
            call(which)
    np.testing.assert_array_equal(good(), floats() * 2)


def test_results_outlive_everything(way: Way) -> None:

    def made() -> tuple[Any, Any]:
        closed = nx.asarray(floats(start=4)) + 0
        f = way.jit(lambda x: (x + closed, x, closed, jnp.cumsum(x)))
        got, _ = way.last(f, lambda: (nx.asarray(floats()) + 0,))
        closed.delete()
        return got, weakref.ref(f)

    got, alive = made()
    nx.clear_caches()
    gc.collect()
    assert alive() is None
    trash = [nx.jit(lambda x, i=i: x + i)(floats()) for i in range(4)]  # takes memory that is free
    for y, wanted in zip(got, (floats() + floats(start=4), floats(), floats(start=4), floats().cumsum()), strict=True):
        np.testing.assert_array_equal(y, wanted)
    assert len(trash) == 4


@without("placed")  # XLA runs callbacks of its own threads
def test_a_call_may_collect_and_clear(way: Way) -> None:
    """What a host callback does in the middle: collect garbage, forget programs, call the function itself."""
    inner: list[Any] = []

    def host(x: Any) -> Any:
        gc.collect()
        nx.clear_caches()
        if not inner:
            inner.append(None)
            inner[0] = np.asarray(f(nx.asarray(floats(start=20))))
        return np.asarray(x) * 2

    def function(x: Any) -> Any:
        y = nx.pure_callback(host, nx.ShapeDtypeStruct((N,), "float32"), x + 1)
        return y + x

    f = way.jit(function)
    got, _ = way.last(f, lambda: (nx.asarray(floats()),))
    np.testing.assert_array_equal(got, (floats() + 1) * 2 + floats())
    np.testing.assert_array_equal(inner[0], floats(start=20) * 3 + 2)


# --- errors ---


class Refused(Exception):
    pass


@without("placed", "xla")  # XLA turns what a callback raises into its own error
@pytest.mark.parametrize("error", [Refused, KeyboardInterrupt, MemoryError, SystemExit])
def test_after_an_error_all_is_as_before(way: Way, error: type[BaseException]) -> None:
    asked: list[Any] = [None]

    def host(x: Any) -> Any:
        if asked[0] is not None:
            raise asked[0]("no")
        return np.asarray(x)

    f = way.jit(lambda x, y: nx.pure_callback(host, nx.ShapeDtypeStruct((N,), "float32"), x * 2) + y)
    make = lambda: (nx.asarray(floats()), nx.asarray(floats(start=3)))
    good = lambda: np.testing.assert_array_equal(way.last(f, make)[0], floats() * 2 + floats(start=3))
    good()
    args = make()
    asked[0] = error
    with pytest.raises((error, ExecutionError)) as raised:
        way.last(f, lambda: args)
    # What ends a program passes as it is; what may be handled is the cause of an error that names the op.
    assert isinstance(raised.value, error) or type(raised.value.__cause__) is error
    assert raised.type is error or issubclass(error, Exception), raised.type
    asked[0] = None
    assert not any(x.is_deleted() for x in args)
    good()


@without("inside")  # its donation is an outer function's
def test_a_call_that_fails_takes_all_that_it_was_given_or_nothing(way: Way) -> None:
    """Memory that is written over and memory that is not, before and behind a function that fails."""
    fails = [False]

    def host(x: Any) -> Any:
        if fails[0]:
            raise ValueError("here")
        return np.asarray(x)

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        x = nx.pure_callback(host, nx.ShapeDtypeStruct((N,), "float32"), a * 2)
        return a + x, b * 2, (c + x).sum(), d

    f = way.jit(function, donate_argnums=(0, 1, 2))
    make = lambda: tuple(way.put(nx.asarray(floats(start=i))) for i in range(4))
    way.last(f, make)
    args = make()
    fails[0] = True
    with pytest.raises((ValueError, ExecutionError)):
        way.last(f, lambda: args)
    assert not args[3].is_deleted()
    assert len({x.is_deleted() for x in args[:3]}) == 1
    args, fails[0] = make(), False
    args[3].delete()
    with pytest.raises(RuntimeError, match="deleted"):
        way.last(f, lambda: args)
    assert [x.is_deleted() for x in args] == [False, False, False, True]


@without("inside", "compiled")  # static values are an outer function's own
def test_static_arguments_that_are_equal_but_differ(way: Way) -> None:
    values = [1, True, 1.0, 0.0, -0.0, 0, False, np.float32(1), np.int32(1), 1 + 0j, (1, 2), (1.0, True), (True, 1)]
    f = nx.jit(lambda x, n: tuple(jnp.asarray(v) + x for v in n), static_argnums=1)
    for v in values:
        given = v if isinstance(v, tuple) else (v,)
        got, _ = way.last(f, lambda given=given: (jnp.zeros((), bool), given))
        wanted = tuple(jnp.asarray(w) + jnp.zeros((), bool) for w in given)
        assert [y.dtype for y in got] == [w.dtype for w in wanted], v
        assert [np.asarray(y).tobytes() for y in got] == [np.asarray(w).tobytes() for w in wanted], v
    with pytest.raises(StaticArgumentError):
        f(1.0, [1])
    g = nx.jit(lambda x, n: jnp.copysign(x, n), static_argnums=1)
    for v in (0.0, -0.0, 0.0, -0.0):
        got, _ = way.last(g, lambda v=v: (nx.ones(2), v))
        assert np.asarray(got).tolist() == [np.copysign(1, v)] * 2


Pair = namedtuple("Pair", "first second")


class Sub(np.ndarray[Any, Any]):
    pass


class Whole(int):
    pass


class Real(float):
    pass


def test_arguments_of_derived_classes(way: Way) -> None:
    """They are what their class says, also where a plan knows one of another class."""
    f = way.jit(lambda t: {"y": t["x"] + t["n"]})
    base = floats()
    arrays = [base, base.view(Sub), nx.asarray(base)]
    numbers = [2, 2.0, True, np.float64(2), np.float32(2), Whole(2), Real(2), np.int8(2), np.bool_(1)]
    mappings = [dict, OrderedDict, partial(defaultdict, None)]
    for x, n, mapping in itertools.product(arrays, numbers, mappings):
        got, _ = way.last(f, lambda x=x, n=n, mapping=mapping: (mapping([("x", x), ("n", n)]),))
        wanted = nx.asarray(np.asarray(x)) + n
        assert type(got) is dict and got["y"].dtype == wanted.dtype and got["y"].weak_type == wanted.weak_type
        np.testing.assert_array_equal(got["y"], wanted)
    with pytest.raises(ValueError, match="masks"):
        way.last(f, lambda: ({"x": np.ma.masked_array(base), "n": 2},))


def test_trees_of_results(way: Way) -> None:
    trees = lambda x: (
        Pair(x, [x + 1]),
        {"b": x, "a": (None, x * 2)},
        OrderedDict([("z", x), ("a", x - 1)]),
        (),
        None,
        [[], {"n": 3, "m": 2.5}],
    )
    got = way.run(trees, lambda: (nx.asarray(floats()),))
    wanted = trees(floats())
    assert nx.tree.structure(got) == nx.tree.structure(wanted)
    assert list(got[2]) == ["z", "a"] and type(got[0]) is Pair
    for y, w in zip(nx.tree.leaves(got), nx.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(y, w)


# --- the same bits ---


def _bits(tree: Any) -> list[tuple[Any, ...]]:
    return [(y.shape, y.dtype.name, y.weak_type, np.asarray(y).tobytes()) for y in nx.tree.leaves(tree)]


_SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, -np.nan, 1e-42, 3e38, 16777217, -0.5], np.float32)
# NaNs with a sign and a payload that a user may have given.
_NANS = np.array([0x7FC00001, 0xFFC00002, 0x7F800003, 0xFF800004], np.uint32).view(np.float32)
PROGRAMS: dict[str, Any] = {
    "arithmetic": lambda x, i, b: (x * x + 0.1, x / (x - 1.5), x - x, -x, abs(x), x % 2.0, x // 0.7),
    "functions": lambda x, i, b: (jnp.exp(x), jnp.sin(x), jnp.log(x), jnp.sqrt(x), jnp.tanh(x), x**3, jnp.log1p(x)),
    "choices": lambda x, i, b: (jnp.where(b, x, -x), jnp.maximum(x, 0), jnp.minimum(x, i), jnp.clip(x, -1, 1)),
    "whole numbers": lambda x, i, b: (i // 3, i % 3, i << 2, i * i, i & 5, ~i, i // (i - i), -i, abs(i)),
    "truth": lambda x, i, b: (x < 0, x == x, b & (i > 0), ~b, b ^ (x > 1), i != i, x >= -x),
    "moves": lambda x, i, b: (x[::-1], x.reshape(3, 4).T, jnp.concatenate([x, x]), jnp.where(b, i, 0), x[3:7], x),
    "sums": lambda x, i, b: (jnp.sum(x[:4]), jnp.cumsum(i), jnp.max(x), jnp.argmax(x), jnp.prod(i), jnp.mean(x[:4])),
    "numbers": lambda x, i, b: (2.0, x * True, i + 1.5, b * 2, jnp.float32(1) / 3, i / 7),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_way_gives_the_same_bits(name: str) -> None:
    function = PROGRAMS[name]
    wide = np.tile(_SPECIAL, 1)
    make = lambda: (wide, np.arange(12, dtype=np.int32) - 5, np.arange(12) % 3 == 0)
    found: dict[str, Any] = {}
    for w in HERE:
        if w.settings["executor"] == "cpu" and not w.placed and "reproducible" not in w.settings:
            with w.taken():
                found[w.name] = _bits(w.run(function, make))
    first = found.pop("general")
    for other, bits in found.items():
        assert bits == first, other


@pytest.mark.parametrize("name", ["arithmetic", "choices", "moves", "functions"])
def test_nans_keep_their_signs_from_call_to_call(name: str) -> None:
    function = lambda x, y: (PROGRAMS[name](x, y, x > 0), x + y, y - x, x * y)
    make = lambda: (np.resize(_NANS, 12), np.resize(_SPECIAL, 12))
    for settings in ({}, {"compile_first": False}, {"fast_calls": False}):
        with config.using(executor="cpu", **settings):
            f = nx.jit(function)
            calls = [_bits(f(*make())) for _ in range(6)]
            assert all(c == calls[0] for c in calls), settings


_BINARY = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.true_divide, jnp.minimum, jnp.maximum, jnp.arctan2, jnp.equal, jnp.less,
    jnp.greater_equal, jnp.bitwise_and, jnp.left_shift, jnp.power, jnp.mod, jnp.floor_divide, jnp.hypot,
]  # fmt: skip
_UNARY = [
    jnp.negative, jnp.abs, jnp.sqrt, jnp.exp, jnp.exp2, jnp.sin, jnp.tanh, jnp.floor, jnp.isnan, jnp.square, jnp.sign,
    jnp.logical_not,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8", "bool"])
def test_eager_ops_without_their_shortcut(dtype: str) -> None:
    with config.using(enable_x64=True), np.errstate(all="ignore"):
        x = nx.asarray(np.tile(_SPECIAL, 9).astype(dtype))
        y = nx.asarray(np.tile(_SPECIAL[::-1], 9).astype(dtype))
        m = nx.asarray(np.resize(_SPECIAL[[0, 2, 3, 11]], (4, 4)).astype(dtype))
        ops: dict[str, Any] = {f.__name__: partial(f, x, y) for f in _BINARY}
        ops |= {f.__name__: partial(f, x) for f in _UNARY}
        ops |= {f"{n} number": lambda n=n: getattr(x, n)(2) for n in ("__add__", "__mul__", "__rsub__", "__lt__")}
        ops |= {"sum": lambda: x.sum(), "max": lambda: x.max(), "product": lambda: m @ m, "vector": lambda: m @ m[0]}
        ops |= {"sum 0": lambda: m.sum(0), "mean": lambda: m.mean(), "where": lambda: jnp.where(x > y, x, y)}

        def done(name: str) -> Any:
            try:
                return _bits(ops[name]())
            except (TypeError, ValueError) as error:
                return type(error)

        for name in ops:
            quick = done(name)
            with config.using(fast_calls=False):
                assert done(name) == quick, name


# --- settings and threads ---


def test_settings_between_calls(way: Way) -> None:
    """Each call follows the settings of its time, of its thread; back again, the first results come back."""
    f = way.jit(lambda x, n: (x * n, jnp.arange(2) + n))
    make = lambda: (nx.asarray(np.arange(3.0)), 1.5)
    call = lambda: way.last(f, make)[0]
    narrow = _bits(call())
    assert [b[1] for b in narrow] == ["float32", "float32"]
    for settings in ({"cpu_isa": "portable"}, {"num_threads": 1}, {"disable_jit": True}, {"debug_nans": True},
                     {"fast_calls": False}, {"executor": "reference"}, {"check": False}):  # fmt: skip
        if (way.placed or "reproducible" in way.settings) and "executor" in settings:
            continue  # which has one device, and promises no bits
        with config.using(**settings):
            assert [b[1] for b in _bits(call())] == ["float32", "float32"]
            with nx.enable_x64(True):
                assert [b[1] for b in _bits(call())] == ["float64", "float64"], settings
            assert _bits(call()) == narrow
        assert _bits(call()) == narrow
    with nx.enable_x64(True), ThreadPoolExecutor(1) as pool:
        assert [b[1] for b in _bits(call())] == ["float64", "float64"]
        assert [b[1] for b in pool.submit(lambda: _bits(call())).result()] == ["float32", "float32"]
        assert [b[1] for b in _bits(call())] == ["float64", "float64"]


def test_debugging_finds_what_any_way_computes(way: Way) -> None:
    f = way.jit(lambda x: jnp.log(x))
    good, bad = lambda: (nx.ones(3),), lambda: (-nx.ones(3),)
    assert np.isnan(way.last(f, bad)[0]).all()
    with nx.debug_nans(True):
        if not way.compiled:  # which is told to run, and runs
            with pytest.raises(FloatingPointError):
                way.last(f, bad)
        np.testing.assert_array_equal(way.last(f, good)[0], np.zeros(3))
    assert np.isnan(way.last(f, bad)[0]).all()


@without("inside", "compiled", "placed")  # its calls have no trace of their own
def test_meshes_and_axes_between_calls(way: Way) -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        seen.append(nx.sharding.get_mesh().axis_names)
        return x + len(nx.sharding.get_mesh().axis_names)

    f = way.jit(function)
    call = lambda: float(way.last(f, lambda: (nx.zeros(()),))[0])
    assert call() == 0.0
    with nx.sharding.set_mesh(nx.make_mesh((1,), ("x",))):
        assert call() == 1.0
        with nx.sharding.set_mesh(nx.make_mesh((1, 1), ("x", "y"))):
            assert call() == 2.0
        assert call() == 1.0
    assert call() == 0.0 and len(seen) == 3
    g = way.jit(lambda x: x * 2)
    np.testing.assert_array_equal(nx.vmap(g)(floats()), floats() * 2)
    np.testing.assert_array_equal(nx.vmap(g, axis_name="i")(floats()), floats() * 2)


def test_threads_call_delete_and_clear(way: Way) -> None:
    """Eight threads on one function: results are right, and what is deleted meanwhile is an error and no more."""
    f = way.jit(lambda x, t: {"y": x * 2 + t["c"], "x": x})
    donating = way.jit(lambda x: x + 1, donate_argnums=0)
    shared = [way.put(nx.asarray(floats()) + 0) for _ in range(4)]
    wrong: list[Any] = []

    def work(number: int) -> None:
        with config.using(**way.settings):
            try:
                for turn in range(12):
                    which = (number + turn) % 4
                    x, c = shared[which], np.float32(number)
                    try:
                        got = f(x, {"c": c})
                        if not np.array_equal(got["y"], floats() * 2 + c) or not np.array_equal(got["x"], floats()):
                            wrong.append((number, turn))
                        if number < 3 and not way.inside:
                            z = donating(x)
                            if not np.array_equal(z, floats() + 1):
                                wrong.append((number, turn, "donated"))
                    except RuntimeError as error:
                        if "deleted" not in str(error):
                            raise
                    if number == 3:
                        shared[which].delete()
                    shared[which] = way.put(nx.asarray(floats()) + 0)
                    if number == 4 and turn % 4 == 0:
                        nx.clear_caches()
                    if number == 5 and turn % 4 == 0:
                        f.clear_cache()
            except BaseException as error:
                wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def _scaled(x: Any, n: Any) -> Any:
    return x * n, jnp.sum(x)


def test_pickled_functions(way: Way) -> None:
    f = nx.jit(_scaled)
    got, args = way.last(f, lambda: (nx.asarray(floats()), 2.0))
    again = pickle.loads(pickle.dumps(nx.jit(_scaled)))
    other, _ = way.last(again, lambda: (nx.asarray(floats()), 2.0))
    assert _bits(got) == _bits(other)
    thawed = pickle.loads(pickle.dumps((args, got)))
    assert _bits(way.last(again, lambda: thawed[0])[0]) == _bits(thawed[1]) == _bits(got)


# --- results and donation, at random ---

_CLOSED = nx.asarray(floats(start=100))
_RESULTS: list[Any] = [
    lambda a, b, n: a,
    lambda a, b, n: b,
    lambda a, b, n: n,
    lambda a, b, n: a + 1,
    lambda a, b, n: (a + 1) * 2,
    lambda a, b, n: (a + 1).reshape(2, 3),
    lambda a, b, n: a.reshape(2, 3),
    lambda a, b, n: a[::-1],
    lambda a, b, n: a * b,
    lambda a, b, n: (a * b).astype("float16"),
    lambda a, b, n: jnp.where(a > b, a, b),
    lambda a, b, n: jnp.sum(a),
    lambda a, b, n: jnp.cumsum(b),
    lambda a, b, n: jnp.roll(a, 1),
    lambda a, b, n: jnp.concatenate([a, b])[:N],
    lambda a, b, n: nx.lax.fori_loop(0, 3, lambda i, c: c + 1, a),
    lambda a, b, n: nx.lax.scan(lambda c, y: (c + y, c * y), 0.0, b)[1],
    lambda a, b, n: n * 1,
    lambda a, b, n: jnp.asarray(n, "float32"),
    lambda a, b, n: n + a,
    lambda a, b, n: _CLOSED,
    lambda a, b, n: _CLOSED + a,
    lambda a, b, n: jnp.arange(6.0),
    lambda a, b, n: 3.0,
]
_MADE: dict[str, Any] = {
    "NumPy's": lambda: (floats(), floats(start=7)),
    "copies": lambda: (nx.asarray(floats()), nx.asarray(floats(start=7))),
    "results": lambda: (nx.jit(lambda x: x + 0)(floats()), nx.jit(lambda x: x * 1)(floats(start=7))),
    "one": lambda: (nx.jit(lambda x: x + 0)(floats()),) * 2,
}


@pytest.mark.parametrize("made", _MADE)
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_random_results_of_random_donations(made: str) -> None:
    """Values that are given back once or several times, of arguments given away or not, call after call."""
    draw = random.Random(made)
    for _ in range(8):
        chosen = [draw.choice(_RESULTS) for _ in range(draw.randint(1, 5))]
        chosen += [draw.choice(chosen)]
        donate = tuple(i for i in range(3) if draw.random() < 0.5)
        number = draw.choice([2.0, np.float32(2)])

        def function(a: Any, b: Any, n: Any, chosen: Any = chosen) -> Any:
            known = {f: f(a, b, n) for f in chosen}  # what is chosen twice is one value
            return [known[f] for f in chosen]

        make = lambda number=number: (*_MADE[made](), number)
        with config.using(executor="cpu", fast_calls=False):
            wanted = _bits(nx.jit(function)(*make()))
        kept: list[Any] = []
        for settings in ({"fast_calls": False}, {}, {"compile_first": False}):
            with config.using(executor="cpu", **settings):
                f = nx.jit(function, donate_argnums=donate)
                for _ in range(5):
                    args = make()
                    kept.append(f(*args))
                    gone = {i for i in donate if i < 2} | ({0, 1} if made == "one" and {0, 1} & {*donate} else set())
                    assert made == "NumPy's" or {i for i in (0, 1) if args[i].is_deleted()} == gone
        assert all(_bits(got) == wanted for got in kept)


def test_no_memory_is_an_error_and_no_more(way: Way) -> None:
    """Results and temporaries that no machine has room for; the next call is as any."""
    f = way.jit(lambda x, y: (jnp.broadcast_to(x[0] + y, (2**24, 2**24)) * y[0], y + 1))
    for _ in range(2):
        args = (nx.asarray(floats()), nx.asarray(floats(1)))
        with pytest.raises(MemoryError):
            way.last(f, lambda args=args: args)
        assert not any(x.is_deleted() for x in args)
    got = way.run(lambda x, y: (x * y, y + 1), lambda: (nx.asarray(floats()), nx.asarray(floats(1))))
    np.testing.assert_array_equal(got[0], floats() * floats(1))
