"""What a call of a jitted function costs besides the work: the first, and the thousandth; small arrays, and trees.

"First call" is trace, compile and run, of a function that this process has not seen; the on-disk caches are off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import nxjax as nx
from benchmarks.peers import Row, Work, all_measured, package
from benchmarks.runner import Figure


def call(
    name: str, f: Callable[[Any], Callable[..., Any]], arguments: Callable[[Any], tuple[Any, ...]], bar: Any
) -> Row:
    """``f(library)`` jitted, of ``arguments(library)``; libraries are nxjax and JAX."""

    def works() -> tuple[Work, dict[str, Work]]:
        def work(library: Any) -> Work:
            g, args = library.jit(f(library)), arguments(library)
            return lambda: g(*args)

        jax = package("jax")
        return work(nx), {} if jax is None else {"jax": work(jax)}

    return Row(name, works, bar)


def vector(library: Any) -> Any:
    return library.numpy.arange(4.0, dtype="float32")


def calls() -> Iterator[Row]:
    yield call("add of two 4-vectors", lambda _: lambda x, y: x + y, lambda lib: (vector(lib),) * 2, 4)
    yield call("4-vector and a number", lambda _: lambda x, k: x * k + 1, lambda lib: (vector(lib), 0.5), 4)
    mapped = lambda lib: lambda t: lib.tree.map(lambda x: x + 1, t)
    yield call("dict of 40 leaves", mapped, lambda lib: ({f"k{i}": vector(lib) for i in range(40)},), 10)

    def deep(lib: Any) -> Any:
        a = vector(lib)
        return ([(a, {"m": a, "v": [a, a]}) for _ in range(10)],)

    yield call("40 leaves deep", mapped, deep, 10)


def read_back() -> Row:
    def works() -> tuple[Work, dict[str, Work]]:
        def work(library: Any) -> Work:
            g, a = library.jit(lambda x, y: x + y), vector(library)
            return lambda: float(g(a, a)[1])

        jax = package("jax")
        return work(nx), {} if jax is None else {"jax": work(jax)}

    return Row("call, read one number back", works, None)


def first_calls() -> Iterator[Row]:
    n = itertools.count(1)
    for name, f in (
        ("first call: x + n", lambda lib, k: lambda x: x + k),
        ("first call: sin(x * n)", lambda lib, k: lambda x: lib.numpy.sin(x * k)),
    ):

        def works(f: Any = f) -> tuple[Work, dict[str, Work]]:
            def work(library: Any) -> Work:
                a = vector(library)
                return lambda: library.jit(f(library, next(n) + 0.5))(a)

            jax = package("jax")
            return work(nx), {} if jax is None else {"jax": work(jax)}

        yield Row(name, works, 10, cold=True)


def rows() -> Iterator[Row]:
    yield from calls()
    yield read_back()
    yield from first_calls()


def figures() -> Iterator[Figure]:
    return all_measured(rows())
