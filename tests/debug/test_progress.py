"""A bar follows a loop on the device, begins anew with every run, and changes no result."""

from __future__ import annotations

from typing import Any

import pytest

import nxjax as nx
from nxjax.errors import ParameterError

SEEN: list[Any] = []


class Bar:
    def __init__(self, total: int, desc: str) -> None:
        SEEN.append((desc, total))

    def update(self, n: int) -> None:
        SEEN.append(n)

    def close(self) -> None:
        SEEN.append("close")


def test_a_loop_of_python():
    assert list(nx.debug.progress_bar((c for c in "ab"), desc="letters", bar=Bar)) == ["a", "b"]
    assert drain() == [("letters", None), 1, 1, "close"]
    for _ in nx.debug.progress_bar(range(3), bar=Bar):
        break
    assert drain() == [("", 3), "close"]


def drain() -> list[Any]:
    nx.effects_barrier()
    found = SEEN[:]
    SEEN.clear()
    return found


def test_bars_of_loops_and_scans():
    counted = nx.debug.progress_bar(10, every=4, desc="sum", bar=Bar)(lambda i, c: c + i)
    run = nx.jit(lambda c: nx.lax.fori_loop(0, 10, counted, c))
    for _ in range(2):
        assert int(run(0)) == 45
        assert drain() == [("sum", 10), 4, 4, 2, "close"]

    @nx.debug.progress_bar(6, every=3, scan=True, bar=Bar)
    def body(c: Any, ix: Any) -> Any:
        i, x = ix
        return nx.sin(c) * x, i

    def f(c: Any) -> Any:
        return nx.lax.scan(body, c, (nx.arange(6), nx.ones(6)))[0]

    plain = nx.lax.scan(lambda c, x: (nx.sin(c) * x, None), 1.0, nx.ones(6))[0]
    assert float(f(1.0)) == float(plain) and body.__name__ == "body"
    assert drain() == [("", 6), 3, 3, "close"]
    nx.grad(f)(1.0)
    assert drain() == [("", 6), 3, 3, "close"]
    nx.vmap(f)(nx.ones(2))
    assert drain() == [("", 6), 3, 3, "close"]


def test_a_run_that_was_stopped_leaves_nothing_behind():
    bar = nx.debug.progress_bar(4, every=1, bar=Bar)(lambda i, c: c + i)

    def stopped(i: Any, c: Any) -> Any:
        nx.debug.callback(lambda i: 1 / 0 if i == 2 else None, i, ordered=True)
        return bar(i, c)

    with pytest.raises(Exception, match="division by zero"):
        nx.block_until_ready((nx.lax.fori_loop(0, 4, stopped, 0), nx.effects_barrier()))
    drain()
    assert int(nx.lax.fori_loop(0, 4, bar, 0)) == 6
    assert drain()[-5:] == [1, 1, 1, 1, "close"]


def test_what_has_no_index_is_refused():
    for scan in (False, True):
        with pytest.raises(ParameterError, match="no index"):
            nx.lax.scan(nx.debug.progress_bar(3, scan=scan)(lambda c, x: (c, x)), 0.0, nx.ones(3))
    with pytest.raises(ParameterError, match="positive"):
        nx.debug.progress_bar(0)
