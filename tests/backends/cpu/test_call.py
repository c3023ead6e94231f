"""The native call path: the same answers as the way through Python, under everything that can change between calls."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.backends.cpu import call
from nxjax.transforms.jit import Jitted

pytestmark = [
    pytest.mark.unguarded,  # every call goes through Python there
    pytest.mark.skipif(sys.version_info >= (3, 14), reason="calls go through Python from 3.14 on"),
]
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def _on_the_cpu() -> Iterator[None]:
    with nx.config.using(executor="cpu"):
        yield


def warm(f: Any, *args: Any, **kwargs: Any) -> Any:
    """``f`` after so many calls that the next one is native."""
    for _ in range(3):
        f(*args, **kwargs)
    assert call.install(Jitted) == ""
    assert f._plans
    return f


def through_python(f: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a call gets to `Jitted.__call__`."""
    seen: list[Any] = []
    before = Jitted.__call__.__code__

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is before:
            seen.append(frame)

    sys.setprofile(watch)
    try:
        f(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return bool(seen)


class Pair(NamedTuple):
    a: Any
    b: Any


def as_lists(tree: Any) -> Any:
    return nx.tree.map(lambda x: x.tolist() if isinstance(x, nx.Array) else x, tree)


@pytest.mark.parametrize(
    "args",
    [
        (nx.asarray(X), nx.asarray(X)),
        (X, X),
        (nx.asarray(X), 2.0),
        (3, nx.asarray(X)),
        (True, X),
        ([nx.asarray(X), (1, None)], {"b": X, "a": {"c": 2.5}}),
        (Pair(X, nx.asarray(X)), {}),
        (np.zeros((0, 3), np.float32), np.ones((), np.float32)),
        (np.ones((2, 3), "int8"), nx.ones((2, 3), "bfloat16")),
    ],
)
def test_trees_of_all_kinds(args: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return {"z": (x, [y]), "a": nx.tree.map(lambda v: v * 2, (y, x)), "one": 1, "none": None}

    g = warm(nx.jit(f), *args)
    assert not through_python(g, *args)
    first, second = nx.jit(f)(*args), g(*args)
    assert nx.tree.structure(first) == nx.tree.structure(second)
    assert as_lists(first) == as_lists(second)
    for a, b in zip(nx.tree.leaves(first), nx.tree.leaves(second), strict=True):
        assert (a.type, type(a)) == (b.type, type(b))


leaves = st.sampled_from([1.5, 7, True, X, nx.asarray(X), nx.ones((2, 1), "int16"), None])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.sampled_from("badce"), inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(trees, trees)
def test_any_trees(x: Any, y: Any) -> None:
    f = nx.jit(lambda a, k: (k, {"a": a, "k": [k, a]}))
    expected = f(x, k=y)
    for _ in range(4):
        found = f(x, k=y)
        assert nx.tree.structure(found) == nx.tree.structure(expected)
        assert as_lists(found) == as_lists(expected)
    assert f.trace_count == 1


def test_dicts_in_another_order_and_with_equal_keys() -> None:
    f = warm(nx.jit(lambda p: {"d": p["a"] - p["b"], "e": p["b"]}), {"a": nx.asarray(X), "b": nx.ones(4)})
    p = {"b": nx.ones(4), "a": nx.asarray(X)}
    assert not through_python(f, p)
    assert f(p)["d"].tolist() == [-1, 0, 1, 2]
    keys = "".join(["long ", "key ", "one"]), "".join(["long ", "key ", "two"])
    g = warm(nx.jit(lambda p: sum(p.values())), {"long key one": nx.asarray(X), "long key two": nx.ones(4)})
    assert not through_python(g, {keys[1]: nx.asarray(X), keys[0]: nx.asarray(X)})
    assert g({keys[1]: nx.asarray(X), keys[0]: nx.asarray(X)}).tolist() == [0, 2, 4, 6]
    assert g({"long key one": 1.0, "other": 2.0}).tolist() == 3.0


def test_other_types_are_traced_as_ever() -> None:
    f = warm(nx.jit(lambda x: x * 2), nx.asarray(X))
    assert f.trace_count == 1
    for x, count in ((X, 1), (nx.ones(5), 2), (nx.ones(4, "int32"), 3), (1.0, 4), (1, 5), (np.float32(1), 6)):
        f(x), f(x)
        assert f.trace_count == count
        np.testing.assert_array_equal(f(x), np.asarray(x) * 2)
    for x in (nx.asarray(X), nx.ones(5), nx.ones(4, "int32"), 1.0, 1):
        for _ in range(3):
            f(x)
        assert not through_python(f, x)
    assert f.trace_count == 6
    with pytest.raises(OverflowError):
        f(2**40)
    weak, strong = f(2.0), f(np.float32(2.0))
    assert weak.weak_type
    assert not strong.weak_type
    f.clear_cache()
    assert f(nx.asarray(X)).tolist() == [0, 2, 4, 6]
    assert f.trace_count == 7


def test_an_equal_type_is_as_good() -> None:
    f = warm(nx.jit(lambda x: x + 1), nx.asarray(X))
    for _ in range(3):
        x = nx.asarray(X.copy())
        assert not through_python(f, x)
    assert f(nx.asarray(X)).tolist() == [1, 2, 3, 4]


def test_types_that_differ_in_one_thing_are_others() -> None:
    """In shape, dtype, or whether the dtype yields: each after each other one has been called with."""

    def every() -> list[Any]:
        weak = nx.jit(lambda: 2.0)()
        arrays = [np.float32(2), np.int32(2), np.ones(1, "f4"), np.ones((1, 1), "f4"), np.ones(2, "f4")]
        return [weak, *map(nx.asarray, arrays)]

    for i, first in enumerate(every()):
        f = warm(nx.jit(lambda x: x * 2), first)
        for k, x in enumerate(every()):
            before = x.aval
            y = f(x)
            assert (y.shape, y.dtype, y.weak_type) == (x.shape, x.dtype, x.weak_type), (i, k)
            assert x.aval == before and x.weak_type == (k == 0)


def test_settings() -> None:
    f = warm(nx.jit(lambda x: x + 1), nx.asarray(X))
    with nx.config.using(disable_jit=True):
        assert through_python(f, nx.asarray(X))
        assert f(nx.asarray(X)).buffer is None
    with nx.config.using(enable_x64=True):
        assert f(np.arange(3.0)).dtype == np.float64
        assert f(1.0).dtype == np.float64
    with nx.config.using(executor="reference"):
        assert f(nx.asarray(X)).buffer is None
    g = warm(nx.jit(lambda x: x + 1), 1.0)
    assert g(1.0).dtype == np.float32
    with nx.config.using(enable_x64=True):
        assert [g(1.0).dtype for _ in range(5)] == [np.float64] * 5
        assert not through_python(g, 1.0)
    assert g(1.0).dtype == np.float32
    assert not through_python(g, 1.0)


def test_static_arguments() -> None:
    f = nx.jit(lambda x, n, *, mode: x * n if mode == "times" else x + n, static_argnums=1, static_argnames="mode")
    for n in (2, 3):
        for mode in ("times", "plus"):
            for _ in range(4):
                wanted = X * n if mode == "times" else X + n
                assert f(nx.asarray(X), n, mode=mode).tolist() == wanted.tolist()
            assert not through_python(f, nx.asarray(X), n, mode=mode)
    assert f.trace_count == 4
    assert f(nx.asarray(X), 2.0, mode="times").tolist() == [0, 2, 4, 6]
    assert f.trace_count == 5  # 2.0 is not 2

    class Scaled:
        def __init__(self, k: float) -> None:
            self.k = k

        @functools.partial(nx.jit, static_argnums=0)
        def __call__(self, x: Any) -> Any:
            return x * self.k

    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(5):
        assert two(nx.asarray(X)).tolist() == [0, 2, 4, 6]
        assert three(nx.asarray(X)).tolist() == [0, 3, 6, 9]
    assert not through_python(two, nx.asarray(X))

    class Changing:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Changing) and self.k == other.k

        def __hash__(self) -> int:
            return hash(self.k)

    g, c = nx.jit(lambda x, c: x * c.k, static_argnums=1), Changing(2)
    for _ in range(4):
        assert g(nx.asarray(X), c).tolist() == [0, 2, 4, 6]
    c.k = 3
    assert g(nx.asarray(X), c).tolist() == [0, 3, 6, 9]


def test_inside_of_transforms() -> None:
    f = warm(nx.jit(lambda x, y: x * y), nx.asarray(X), nx.asarray(X))
    assert nx.grad(lambda x: f(x, x).sum())(nx.asarray(X)).tolist() == [0, 2, 4, 6]
    assert nx.vmap(f)(nx.ones((2, 4)), nx.ones((2, 4))).tolist() == np.ones((2, 4)).tolist()
    assert nx.jit(lambda x: f(x, nx.asarray(X)))(nx.asarray(X)).tolist() == [0, 1, 4, 9]

    def constant(x: Any) -> Any:
        # No argument is traced, but a trace is being made: the call belongs to it.
        return f(nx.asarray(X), nx.asarray(X)) + x

    assert nx.jit(constant)(1.0).tolist() == [1, 2, 5, 10]
    assert "mul" in str(nx.make_jaxpr(constant)(1.0))
    assert nx.vmap(lambda x: f(nx.asarray(X), nx.asarray(X)) + x)(nx.ones(2)).tolist() == [[1, 2, 5, 10]] * 2


def test_meshes_and_placed_arrays() -> None:
    f = warm(nx.jit(lambda x: x + 1), nx.asarray(X))
    placed = nx.device_put(X, nx.devices()[0])
    assert through_python(f, placed)
    assert f(placed).sharding == placed.sharding
    with nx.make_mesh((1,), ("x",)):
        assert through_python(f, nx.asarray(X))
        assert f(nx.asarray(X)).tolist() == [1, 2, 3, 4]
    assert not through_python(f, nx.asarray(X))


def test_donated_arguments() -> None:
    f = nx.jit(lambda x, y: (x + y, y), donate_argnums=0)
    for _ in range(3):
        f(nx.asarray(X), nx.asarray(X))
    x, y = nx.asarray(X), nx.asarray(X)
    assert not through_python(f, x, y)
    assert x.is_deleted()
    assert not y.is_deleted()
    with pytest.raises(RuntimeError, match="donated"):
        x.numpy()
    with pytest.raises(RuntimeError, match="donated"):
        f(x, y)
    user = X.copy()
    assert f(user, y)[0].tolist() == [0, 2, 4, 6]
    assert user.tolist() == X.tolist()


def test_a_value_given_back_twice_in_donated_memory() -> None:
    """One memory for both, whether it is the argument's own or, where somebody sees that, a copy."""
    for f in (lambda x: ((y := x + 1), y), lambda x: ((y := x + 1), y.reshape(2, 1), y, y * 2)):
        jitted = nx.jit(f, donate_argnums=0)
        for seen in (False, False, False, False, True):
            x = nx.asarray(np.full(2, 7, np.float32))
            view = np.asarray(x) if seen else None
            results = [np.asarray(y).ravel().tolist() for y in jitted(x)]
            assert results == [[8, 8], [8, 8], [8, 8], [16, 16]][: len(results)]
            assert view is None or view.tolist() == [7, 7]


def test_donated_memory_that_somebody_sees_is_not_written_to() -> None:
    f = nx.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x: Any = nx.asarray(np.arange(10_000, dtype=np.float32))
    for _ in range(4):
        x = f(x)
    seen = x.numpy()
    before = seen.copy()
    y = f(x)
    np.testing.assert_array_equal(seen, before)
    np.testing.assert_array_equal(y, before * 2 + 1)
    g = nx.jit(lambda a, b: (a * 2, a + b), donate_argnums=0)
    made = nx.jit(lambda x: nx.zeros(1000) + x)
    for _ in range(4):
        a = made(1.0)
        doubled, total = g(a, a)
        assert float(doubled.sum()) == 2000
        assert float(total.sum()) == 2000


def test_results_that_are_arguments_are_the_users_own_no_more() -> None:
    f = warm(nx.jit(lambda x: (x, x)), X)
    mine = X.copy()
    a, b = f(mine)
    mine[:] = 9
    assert a.tolist() == b.tolist() == X.tolist()
    x = nx.asarray(X)
    assert f(x)[0].tolist() == X.tolist()


def test_deleted_arrays_and_constants() -> None:
    constant = nx.asarray(X)
    f = warm(nx.jit(lambda x: x + constant), nx.asarray(X))
    x = nx.asarray(X)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x)
    # What a function closes over is its own.
    constant.delete()
    np.testing.assert_array_equal(f(nx.asarray(X)), X + X)


def test_strided_and_misaligned_memory() -> None:
    f = warm(nx.jit(lambda x: x + 1), nx.asarray(X))
    wide = np.arange(8, dtype=np.float32)
    raw = np.zeros(17, np.uint8)
    raw[1:] = np.frombuffer(X.tobytes(), np.uint8)
    for x in (wide[::2], wide[::-2], raw[1:].view(np.float32), np.broadcast_to(np.float32(1), 4)):
        np.testing.assert_array_equal(f(x), x + 1)
        np.testing.assert_array_equal(f(nx.asarray(x)), x + 1)
    g = warm(nx.jit(lambda x: x + 1), X)
    for x in (wide[::2], raw[1:].view(np.float32), X.astype(">f4"), X.reshape(4, 1)[:, 0]):
        np.testing.assert_array_equal(g(x), x + 1)


def test_numbers_at_the_edges() -> None:
    f = warm(nx.jit(lambda x: x), 1.0)
    for x in (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4028234e38, 1e39, 0.1):
        with np.errstate(all="ignore"):
            assert f(x).numpy().tobytes() == np.float32(x).tobytes()
    g = warm(nx.jit(lambda x: x), 1)
    for n in (0, -1, 2**31 - 1, -(2**31)):
        assert int(g(n)) == n
    for n in (2**31, -(2**31) - 1, 2**70):
        with pytest.raises(OverflowError):
            g(n)
    assert g(True).dtype == np.bool_
    h = warm(nx.jit(lambda x: x), True)
    assert [bool(h(b)) for b in (False, True)] == [False, True]


class Node:
    def __init__(self, x: Any) -> None:
        self.x = x


nx.tree_util.register_pytree_node(Node, lambda n: ((n.x,), None), lambda _, c: Node(*c))


def test_nodes_of_other_kinds() -> None:
    f = nx.jit(lambda n: (Node(n.x * 2), collections.OrderedDict(a=n.x), collections.deque([n.x])))
    for i in range(5):
        assert through_python(f, Node(nx.asarray(X))) == (i < 1)
        node, ordered, queue = f(Node(nx.asarray(X)))
        assert node.x.tolist() == [0, 2, 4, 6]
        assert (list(ordered), queue[0].tolist()) == (["a"], X.tolist())
    g = warm(nx.jit(lambda x: (x, Node((x, x + 1)), collections.OrderedDict(b=x, a=x - 1))), nx.asarray(X))
    assert not through_python(g, nx.asarray(X))
    x, node, ordered = g(nx.asarray(X))
    assert (x.tolist(), node.x[1].tolist(), ordered["a"].tolist()) == (X.tolist(), [1, 2, 3, 4], [-1, 0, 1, 2])


class Sized:
    def __init__(self, x: Any, size: int) -> None:
        self.x, self.size = x, size


flattened: list[Any] = []


def _flatten_sized(n: Sized) -> Any:
    if flattened:
        flattened.pop()()
    return (n.x,), n.size


nx.tree_util.register_pytree_node(Sized, _flatten_sized, lambda size, c: Sized(*c, size))


def test_an_equal_plan_takes_the_place_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    shortcut = call.shortcut
    monkeypatch.setattr(call, "shortcut", lambda *args: (told.append(args), shortcut(*args))[1])
    f = nx.jit(lambda x: x + 1)
    for size in (2, 3):
        for _ in range(3):
            f(nx.ones(size))
    assert len(f._plans) == 3 and told
    for _ in range(10):
        for args in told:
            shortcut(*args)
    assert len(f._plans) == 3


def test_nodes_differ_by_what_they_are_besides_children() -> None:
    f = nx.jit(lambda n: n.x * n.size)
    for size in (2, 3):
        for _ in range(3):
            assert f(Sized(nx.asarray(X), size)).tolist() == (X * size).tolist()
        assert not through_python(f, Sized(nx.asarray(X), size))
    assert f.trace_count == 2
    assert len(f._plans) == 3
    for _ in range(40):  # the executor is told again; an equal plan takes the old one's place
        f(Sized(X[:2], 2))
        with nx.config.using(disable_jit=True):
            f(Sized(nx.asarray(X), 2))
    assert len(f._plans) <= 4

    def fail() -> None:
        raise KeyboardInterrupt

    flattened.append(fail)
    with pytest.raises(KeyboardInterrupt):
        f(Sized(nx.asarray(X), 2))
    assert f(Sized(nx.asarray(X), 2)).tolist() == [0, 2, 4, 6]


def test_a_tree_that_changes_while_it_is_taken_apart() -> None:
    f = nx.jit(lambda p: [n.x + 1 for n in p])
    nodes = [Sized(nx.asarray(X), i) for i in range(6)]
    for _ in range(4):
        f(nodes)
    for action in (lambda: nodes.clear(), lambda: nodes.extend(nodes[:1] * 1000), lambda: nodes.__setitem__(0, None)):
        flattened.append(action)
        with contextlib.suppress(Exception):
            f(nodes)
        nodes[:] = [Sized(nx.asarray(X), i) for i in range(6)]
        assert [y.tolist() for y in f(nodes)] == [[1, 2, 3, 4]] * 6


def test_an_array_that_its_container_loses_is_held() -> None:
    """A node that is taken apart after a list has been may empty the list."""
    f = nx.jit(lambda p, n: (p[0] + n.x, n.x * 2), donate_argnums=(0, 1))
    fresh = lambda: nx.jit(lambda x: x + 1)(X)
    for _ in range(4):
        f([fresh()], Sized(fresh(), 2))
    assert f._plans
    given, alive = [fresh()], list[bool]()
    there = weakref.ref(given[0])

    def lose() -> None:
        given.clear()
        alive.append(there() is not None)

    flattened.append(lose)
    y, z = f(given, Sized(fresh(), 2))
    assert alive == [True] and there() is None
    assert y.tolist() == [2, 4, 6, 8] and z.tolist() == [2, 4, 6, 8]


def test_models_and_their_updates() -> None:
    model: Any = nx.nn.Sequential(nx.nn.Linear(4, 4, key=nx.random.key(0)), nx.nn.ReLU())

    @functools.partial(nx.jit, donate_argnums=0)
    def step(model: Any, x: Any) -> Any:
        loss, gradient = nx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
        return nx.tree.map(lambda p, g: p - 0.01 * g, model, gradient), loss

    losses: list[float] = []
    for _ in range(8):
        before = model
        model, loss = step(model, nx.asarray(X))
        assert before.layers[0].weight.is_deleted()
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
    assert not through_python(step, model, nx.asarray(X))


def test_errors_pass() -> None:
    class Wrong(Pair):
        __slots__ = ()

        def __new__(cls, a: Any, b: Any) -> Any:
            if wrong:
                raise ZeroDivisionError
            return super().__new__(cls, a, b)

    wrong = False
    f = warm(nx.jit(lambda x: Wrong(x + 1, x)), nx.asarray(X))
    wrong = True
    with pytest.raises(ZeroDivisionError):
        f(nx.asarray(X))

    def fail(x: Any) -> Any:
        if wrong:
            raise RuntimeError("on purpose")
        return np.asarray(x)

    wrong = False
    g = warm(nx.jit(lambda x: nx.pure_callback(fail, nx.ShapeDtypeStruct((4,), np.float32), x)), nx.asarray(X))
    wrong = True
    with pytest.raises(Exception, match="on purpose"):
        g(nx.asarray(X))
    wrong = False
    assert g(nx.asarray(X)).tolist() == X.tolist()


@pytest.mark.parametrize("count", [42, 44, 52, 63, 85, 86, 128, 500])
def test_many_arguments(count: int) -> None:
    xs = {f"k{i}": nx.full((2,), float(i)) for i in range(count)}
    f = warm(nx.jit(lambda p: nx.tree.map(lambda x: x + 1, p)), xs)
    assert not through_python(f, xs)
    assert {k: v.tolist() for k, v in f(xs).items()} == {f"k{i}": [i + 1, i + 1] for i in range(count)}


def test_large_results_come_from_the_pool() -> None:
    x = nx.asarray(np.arange(100_000, dtype=np.float32))
    f = warm(nx.jit(lambda x: x * 2), x)
    y = f(x)
    view = y.numpy()
    assert view.ctypes.data % 64 == 0
    del y
    np.testing.assert_array_equal(view, np.arange(100_000, dtype=np.float32) * 2)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), "float32"), ((4,), "bfloat16"), ((0, 3), "int8"), ((2, 3, 1, 5), "bool"), ((1,) * 32, "float64"),
     ((1,) * 33, "int32"), ((3, 2), "float8_e4m3fn"), ((7,), "int4"), ((300, 7), "uint16")],
)  # fmt: skip
def test_results_as_numpy(shape: tuple[int, ...], dtype: str) -> None:
    x = nx.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 3).astype(dtype)
    mask = nx.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 2 == 0)
    f = warm(nx.jit(nx.where), mask, x, nx.zeros_like(x))
    y = f(mask, x, nx.zeros_like(x))
    assert type(y.buffer).__name__ == "Buffer"
    data = y.buffer.to_numpy()
    assert (data.shape, data.dtype, data.flags.writeable) == (shape, x.dtype, False)
    np.testing.assert_array_equal(data, np.where(mask.numpy(), x.numpy(), np.zeros_like(x.numpy())))
    assert memoryview(y.buffer).nbytes == data.nbytes
    assert memoryview(y.buffer).readonly
    buffer = y.buffer
    before = sys.getrefcount(buffer)
    views = [buffer.to_numpy() for _ in range(50)]
    assert sys.getrefcount(buffer) == before + 50 * bool(data.nbytes)
    del views
    assert sys.getrefcount(buffer) == before


def test_keys_and_values_without_bytes() -> None:
    f = warm(nx.jit(lambda k: nx.random.split(k)), nx.random.key(3))
    assert f(nx.random.key(3)).numpy().tobytes() == nx.random.split(nx.random.key(3)).numpy().tobytes()


def test_nothing_is_left_behind() -> None:
    x = nx.asarray(X)
    p = {"a": x, "b": [x, 1.5], "c": (X, 3)}
    f = warm(nx.jit(lambda p: {"y": p["a"] * 2, "z": (p["b"][0], [1.0, p["c"][0] + 1])}, donate_argnums=()), p)
    g = warm(nx.jit(lambda x: x + 1), nx.ones(300))
    bad = {"a": x, "b": [x, 1.5], "c": (X, "no")}
    counted = (x, x.type, x.numpy(), X, None, f._plans, p)

    def calls(n: int) -> None:
        for _ in range(n):
            f(p)
            g(nx.ones(300))

    calls(1000)
    for _ in range(10):
        with pytest.raises(nx.errors.DtypeError):
            f(bad)
    gc.collect()
    before, references = sys.getallocatedblocks(), [sys.getrefcount(o) for o in counted]
    calls(20_000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - before) < 500
    for old, new in zip(references, [sys.getrefcount(o) for o in counted], strict=True):
        assert abs(old - new) < 100


def test_functions_die() -> None:
    def once() -> weakref.ref[Any]:
        big = nx.ones(1000)
        f: Any = nx.jit(lambda x: x + big)
        f.itself = f
        warm(f, big)
        return weakref.ref(f)

    refs = [once() for _ in range(20)]
    gc.collect()
    assert not [r for r in refs if r() is not None]


def test_arrays_are_as_before() -> None:
    f = warm(nx.jit(lambda x: x + 1), nx.asarray(X))
    x = f(nx.asarray(X))
    dead: list[int] = []
    reference = weakref.ref(x, lambda _: dead.append(1))
    assert reference() is x
    del x
    assert dead == [1]

    class Mine(type(nx.asarray(X))):  # a subclass with more than slots
        pass

    mine = Mine(X, nx.asarray(X).type)
    mine.more = [mine]  # type: ignore[attr-defined]
    reference = weakref.ref(mine)
    del mine
    gc.collect()
    assert reference() is None
    made = [f(nx.asarray(X)) for _ in range(1000)]
    assert all(y.tolist() == [1, 2, 3, 4] for y in made)
    assert len({id(y) for y in made}) == 1000
    round_trip = pickle.loads(pickle.dumps(made[0]))
    assert round_trip.tolist() == copy.deepcopy(made[0]).tolist() == [1, 2, 3, 4]


def test_threads() -> None:
    xs = [nx.full((n,), float(n)) for n in (3, 50, 1000)]
    f = nx.jit(lambda x, k: {"y": x * k["a"], "x": x})
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(400):
            x = xs[(i + seed) % 3]
            n = x.shape[0]
            y = f(x, {"a": x})
            if y["y"].numpy()[-1] != n * n:
                wrong.append(y)
            if i % 100 == 0:
                f.clear_cache()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_call_within_a_call() -> None:
    f: Any = None
    depth = 0

    def host(x: Any) -> Any:
        nonlocal depth
        depth += 1
        return f(nx.asarray(x)).numpy() if depth < 4 else np.asarray(x)

    f = nx.jit(lambda x: nx.pure_callback(host, nx.ShapeDtypeStruct((4,), np.float32), x) + 1)
    for _ in range(4):
        depth = 0
        assert f(nx.asarray(X)).tolist() == [4, 5, 6, 7]


def test_what_functions_are_besides_calls() -> None:
    class Model:
        k = 3.0

        @nx.jit
        def free(x: Any) -> Any:
            return x * 2

        @functools.partial(nx.jit, static_argnums=0)
        def scaled(self, x: Any) -> Any:
            """Documented."""
            return x * self.k

    model = Model()
    for _ in range(5):
        assert model.scaled(nx.asarray(X)).tolist() == [0, 3, 6, 9]
        assert Model.free(nx.asarray(X)).tolist() == [0, 2, 4, 6]
    assert Model.scaled.__doc__ == "Documented."
    assert list(inspect.signature(Model.scaled).parameters) == ["self", "x"]
    f = warm(nx.jit(nx.sin), nx.asarray(X))
    again = copy.copy(f)
    assert again._plans is None
    assert again(nx.asarray(X)).tolist() == f(nx.asarray(X)).tolist()
    fresh = pickle.loads(pickle.dumps(nx.jit(nx.sin)))
    assert fresh(nx.asarray(X)).tolist() == f(nx.asarray(X)).tolist()
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f(nx.asarray(X), nothing=1)


_END = """
import sys, nxjax as nx
nx.config.update("executor", "cpu")
f = nx.jit(lambda x, y: (x * y, y))
a = nx.ones(4)
for i in range(5):
    r = f(a, a)
view = r[0].numpy()

class Late:
    def __del__(self):
        print(f(a, a)[0].tolist(), view.tolist(), flush=True)

sys.modules["late"] = Late()
sys.late, sys.result = Late(), r
"""


def test_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", _END], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Fatal" not in done.stderr


_NO_MEMORY = """
import mmap, resource, sys, numpy as np, nxjax as nx
import nxjax.numpy as jnp
nx.config.update("executor", "cpu")
nx.config.update("cpu_pool_bytes", 0)
f = nx.jit(lambda x, y: (y * 2, jnp.broadcast_to(x, (2**25,)) + 1, y + 1, y - 1), donate_argnums=1)
x = nx.ones(())
fresh = lambda: nx.jit(lambda x: x + 0)(np.arange(4.0, dtype=np.float32))
for _ in range(4): f(x, fresh())
assert f._plans
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 2**25, -1))
try:
    mmap.mmap(-1, 2**27)
    sys.exit("no limit")
except OSError:
    pass
for _ in range(3):
    try:
        f(x, fresh())
    except MemoryError as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
y = f(x, fresh())
print(y[0].tolist(), y[1][-1], y[2].tolist(), y[3].tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is limited otherwise")
def test_no_memory_for_a_result() -> None:
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", _NO_MEMORY], capture_output=True, text=True)
    if done.stderr == "no limit\n":
        pytest.skip("this system does not keep RLIMIT_AS")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["MemoryLimitError"] * 3,
        "[0.0, 2.0, 4.0, 6.0] 2.0 [1.0, 2.0, 3.0, 4.0] [-1.0, 0.0, 1.0, 2.0]",
    ]
