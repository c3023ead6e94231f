"""Ctrl-C in the middle of tracing, of a transform or of a loop: the next call works as if nothing had been."""

from __future__ import annotations

import contextvars
import signal
import sys
import threading
import time
from typing import Any

import pytest

import nxjax as nx
from nxjax.trace.core import AROUND, EVAL, current_trace


@pytest.fixture(autouse=True)
def heard():
    """Python does not listen to Ctrl-C if whoever started it turned that off, as a shell does for what runs behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


class _Stop(BaseException):
    """What a signal's handler raises."""


@pytest.mark.parametrize(
    "wrap",
    [
        nx.jit,
        nx.grad,
        lambda f: lambda x: nx.jvp(f, (x,), (x,))[1],
        lambda f: lambda x: nx.vmap(lambda v: nx.lax.psum(v, "i"), axis_name="i")(x),
        lambda f: lambda x: nx.vmap(lambda v: f(v[None]))(x),
        lambda f: nx.make_jaxpr(f)(nx.ones(3)),
    ],
    ids=["jit", "grad", "jvp", "vmap with a name", "vmap", "a program"],
)
def test_tracing_may_be_stopped_anywhere(wrap):
    """Python runs handlers where a function begins and where one of C's has returned: each such place, one by one."""
    files = (
        "core.py",
        "stage.py",
        "axes.py",
        "scope.py",
        "vmap.py",
        "jvp.py",
        "linearize.py",
        "transpose.py",
        "program.py",
    )
    left = [0]

    def at(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code  # nobody hears what a generator raises while it is closed
        if event in ("call", "c_return") and code.co_filename.endswith(files) and code.co_name != "<genexpr>":
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise _Stop

    def f(x: Any) -> Any:
        with nx.named_scope("here"):
            return nx.sin(x).sum()

    x = nx.ones(3)
    expected = str(wrap(f)(x))
    rest = contextvars.Context().run(lambda: [v.get() for v in AROUND])
    stopped, places = True, 0
    while stopped:
        places += 1
        left[0] = places
        run = wrap(f)
        try:
            sys.setprofile(at)
            run(x)
            stopped = False
        except _Stop:
            pass
        finally:
            sys.setprofile(None)
        assert current_trace() is EVAL, places
        assert [v.get() for v in AROUND] == rest, places
    assert places > 20
    assert str(wrap(f)(x)) == expected


@pytest.mark.parametrize("way", ["a call", "placed", "compiled", "watched"])
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_a_call_that_is_stopped_anywhere_has_taken_all_or_nothing(way):
    """What is given away is gone, or none of it: also that which the program does not write over."""
    files = (
        "jit.py",
        "jit_arguments.py",
        "jit_trace.py",
        "jit_entry.py",
        "jit_stages.py",
        "array.py",
        "executable.py",
        "memory.py",
    )
    left = [0]

    def at(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code  # nobody hears what a destructor raises
        if event in ("call", "c_return") and code.co_filename.endswith(files) and code.co_name != "__del__":
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise _Stop

    def f(a: Any, b: Any, c: Any) -> Any:
        return a + 1, (b * 2).sum(), c - a

    device = nx.devices()[0]
    make = lambda: [nx.device_put(x, device) if way == "placed" else x for x in (nx.ones(3) + i for i in range(3))]
    run = nx.jit(f, donate_argnums=(0, 1, 2))
    if way == "compiled":
        run = run.lower(*make()).compile()
    with nx.config.using(fast_calls=False, debug_nans=way == "watched"):
        for _ in range(2):
            expected = [float(x.sum()) for x in run(*make())]
        stopped, places, states = True, 0, set()
        while stopped:
            places += 1
            args = make()
            left[0] = places
            try:
                sys.setprofile(at)
                found = run(*args)
                stopped = False
            except _Stop:
                pass
            finally:
                sys.setprofile(None)
            states.add(tuple(x.is_deleted() for x in args))
            for i, x in enumerate(args):
                assert x.is_deleted() or float(x.sum()) == 3 * (i + 1), places
        assert states == {(False,) * 3, (True,) * 3}
        assert [float(x.sum()) for x in found] == expected
