"""What runs when nothing is traced: ops at once, programs compiled once per content."""

import gc
import weakref

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import dispatch
from nxjax.backends.dispatch import compiler
from nxjax.errors import UnexpectedTracerError
from nxjax.trace.core import EVAL, current_trace


def test_warnings_of_numpy_stay_silent_and_its_settings_alone():
    with np.errstate(all="raise"):
        assert np.isposinf(nx.array(1.0) / 0.0)
        assert np.isnan(nx.log(nx.array(-1.0)))
        with pytest.raises(FloatingPointError):
            np.float32(1) / np.float32(0)


def test_equal_programs_share_an_executable(executor):
    x = nx.arange(3.0)
    first, second = nx.jit(lambda v: v * 3 + 1, device=executor), nx.jit(lambda v: v * 3 + 1, device=executor)
    np.testing.assert_array_equal(first(x), second(x))
    (one,), (two,) = first._entries.values(), second._entries.values()
    assert one.prepared.executable is two.prepared.executable
    compiler.clear()
    third = nx.jit(lambda v: v * 3 + 1, device=executor)
    np.testing.assert_array_equal(third(x), first(x))


def test_executables_of_functions_that_are_gone_go(executor, monkeypatch):
    """But for the last ones, which come again where a function is made in each turn of a loop."""
    monkeypatch.setattr(dispatch, "_RECENT", 4)
    compiler.clear()
    made = []
    for i in range(9):
        f = nx.jit(lambda v, i=i: v + i, device=executor)
        f(np.float32(0))
        made.append(weakref.ref(next(iter(f._entries.values())).prepared.executable))
    last = made[-1]()
    del f
    gc.collect()
    assert sum(ref() is not None for ref in made) == 4
    f = nx.jit(lambda v: v + (len(made) - 1), device=executor)
    f(np.float32(0))
    assert next(iter(f._entries.values())).prepared.executable is last


def test_a_tracer_outside_its_trace_is_refused():
    kept = []
    nx.grad(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(UnexpectedTracerError, match="has left"):
        nx.sin(kept[0])
    with pytest.raises(UnexpectedTracerError, match="has left"):
        nx.jit(lambda x: x)(kept[0])
    assert current_trace() is EVAL


def test_results_of_one_executor_go_into_another():
    on = {name: nx.jit(lambda x: x + 1, device=name) for name in nx.testing.executors()}
    x = nx.zeros(2)
    for _ in range(2):
        for function in on.values():
            x = function(x)
    assert x.tolist() == [2 * len(on)] * 2


def test_scalars_of_numpy_become_arrays():
    assert np.asarray(nx.lax.clz(4)) == 29
    assert nx.lax.population_count(7).shape == ()
