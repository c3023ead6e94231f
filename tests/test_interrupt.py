"""Ctrl-C in the middle of tracing, of a transform or of a loop: the next call works as if nothing had been."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest

import nxjax as nx
from nxjax.trace.core import EVAL, current_trace


@pytest.mark.parametrize(
    "wrap",
    [nx.jit, nx.grad, nx.vmap, nx.jacrev, nx.checkpoint, nx.make_jaxpr, lambda f: nx.jit(nx.vmap(nx.grad(f)))],
    ids=["jit", "grad", "vmap", "jacrev", "checkpoint", "make_jaxpr", "all"],
)
def test_tracing_that_was_stopped_leaves_no_trace(wrap):
    interrupt = [True]

    def f(x: Any) -> Any:
        y = nx.lax.cond(x.sum() > 0, lambda x: nx.sin(x), lambda x: x, x)
        if interrupt:
            interrupt.pop()
            signal.raise_signal(signal.SIGINT)
        return y.sum()

    x = nx.ones(3)
    wrapped = wrap(f)
    given = x if wrap is not nx.vmap else nx.ones((2, 3))
    if wrap not in (nx.jit, nx.grad, nx.vmap, nx.jacrev, nx.checkpoint, nx.make_jaxpr):
        given = nx.ones((2, 3))
    with pytest.raises(KeyboardInterrupt):
        wrapped(given)
    assert current_trace() is EVAL
    found = wrapped(given)
    assert str(found) == str(wrap(f)(given))


@pytest.mark.parametrize("make", ["scan", "while", "eager"])
def test_a_minute_of_work_stops(make):
    """The signal comes from another thread, as from a notebook's front end, while machine code runs."""
    x = nx.ones((64, 64))
    body = lambda i, c: nx.sin(c) + 1.0

    def eager(x: Any, n: int) -> Any:
        for i in range(n):
            x = body(i, x)
        return x

    run = {
        "scan": nx.jit(lambda x, n: nx.lax.fori_loop(0, n, body, x)),
        "while": nx.jit(
            lambda x, n: nx.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, body(0, s[1])), (0, x))[1]
        ),
        "eager": eager,
    }[make]
    expected = nx.numpy.asarray(run(x, 3))

    def stop() -> None:
        time.sleep(0.2)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(x, 10_000_000)
    finally:
        thread.join()
    assert (run(x, 3) == expected).all()
