"""Programs in programs: hundreds of levels are traced, printed and run; what has no end is one clear error."""

import copy
import sys
import threading

import numpy as np
import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import NestingError
from nxjax.trace.text import parse_program

# Python 3.12.1 bounds calls through C at 1,500, which 500 nested jits come to.
DEEP = 500 if sys.version_info[:2] != (3, 12) else 300
X = np.linspace(-1, 1, 4, dtype=np.float32)


def nested(wrap, levels):
    f = nx.sin
    for _ in range(levels):
        f = wrap(f)
    return f


def jitted(g):
    return nx.jit(lambda x: g(x) * 0.5)


def scanned(g):
    return lambda x: nx.lax.scan(lambda c, _: (g(c) * 0.5, None), x, None, length=1)[0]


@pytest.fixture(autouse=True)
def _unchecked():
    with config.using(check=False):
        yield


def test_five_hundred_jits():
    f = nested(jitted, DEEP)
    expected = np.sin(X) * np.float32(0.5) ** DEEP
    program = nx.make_jaxpr(f)(X)
    text = str(program)
    assert str(parse_program(text)) == text
    assert copy.deepcopy(program) is program
    assert nx.jit(f, device="reference")(X).tolist() == expected.tolist()
    assert nx.jvp(f, (X,), (X,))[1].tolist() == (np.cos(X) * X * np.float32(0.5) ** DEEP).tolist()
    assert nx.vmap(f)(X[None]).shape == (1, 4)


def test_five_hundred_scans():
    assert nx.make_jaxpr(nx.vmap(nested(scanned, DEEP)))(X[None]).out_types[0].shape == (1, 4)
    f = nested(scanned, 100)
    assert nx.make_jaxpr(nx.grad(lambda x: f(x).sum()))(X).out_types[0].shape == (4,)


@pytest.mark.parametrize("kind", ["jit", "cond", "vmap"])
def test_a_function_that_calls_itself(kind):
    def f(x):
        if kind == "cond":
            return nx.lax.cond(x > 0, f, lambda v: v, x)
        return nx.jit(f)(x) if kind == "jit" else nx.vmap(nx.jit(f))(x[None])[0]

    found = []

    def call():
        try:
            f(1.0 if kind != "vmap" else nx.ones(()))
        except RecursionError as error:
            found.append(error)

    # In a thread of less stack than usual, which must not overflow.
    before = threading.stack_size(2**20)
    try:
        thread = threading.Thread(target=call)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert isinstance(found[0], NestingError) and "calls itself" in str(found[0])


def test_names_of_variables_are_no_numbers():
    """The 6,357th variable would be called inf."""

    def f(x):
        for _ in range(6400):
            x = -x
        return x

    program = nx.make_jaxpr(f)(1.0)
    assert str(parse_program(str(program))) == str(program)
