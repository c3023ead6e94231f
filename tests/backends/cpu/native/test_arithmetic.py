"""Floats are as IEEE has them by default where that is promised, whatever a library has left in the thread."""

import ctypes
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.native.sync import SYSTEM, arithmetic, set_arithmetic
from nxjax.errors import LoweringError
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import Function, LlvmModule

X86 = {"subnormals are 0": 0x9FC0, "up": 0x5F80, "down": 0x3F80, "towards zero": 0x7F80}
ARM = {"subnormals are 0": 1 << 24, "up": 1 << 22, "down": 2 << 22, "towards zero": 3 << 22}
CONTROLS = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}.get(SYSTEM.processor, {})
rng = np.random.default_rng(0)
X = rng.standard_normal(30_000).astype(np.float32)
X[::7] = np.float32(1e-41)
THIRD, SMALL = np.float32(0.3), np.float32(1e-5)  # made by NumPy, here and now


@pytest.fixture(scope="module")
def functions():
    """Set this thread's control; give it."""
    module = LlvmModule()
    setter = Function("test_set_arithmetic", ["i64"], "void")
    module.add(setter)
    asked = setter.arguments[0]
    set_arithmetic(setter, SYSTEM, asked if CONTROLS is ARM else asked.convert("i32"))
    setter.ret()
    getter = Function("test_arithmetic", [], "i64")
    module.add(getter)
    control, _ = arithmetic(getter, SYSTEM)
    getter.ret(control.convert("i64"))
    at = engine(isa.current()).module(module.text, ["test_set_arithmetic", "test_arithmetic"])
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64)(at[0]), ctypes.PYFUNCTYPE(ctypes.c_int64)(at[1])


@pytest.fixture(params=CONTROLS)
def odd(request, functions):
    set_, get = functions

    @contextmanager
    def block():
        before = get()
        set_(CONTROLS[request.param])
        try:
            yield
            assert get() & CONTROLS[request.param] == CONTROLS[request.param]  # as the library left it
        finally:
            set_(before)

    return block


def same(x, y):
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


PROGRAMS = {
    "product": lambda x: x * THIRD + x / 7,
    "softmax": nx.nn.softmax,
    "matrices": lambda x: x[:9000].reshape(90, 100) @ x[:9000].reshape(100, 90),
    "half": lambda x: (x * SMALL).astype(np.float16) * 3,
    "constant": lambda x: jnp.asarray(X[:99]) * THIRD + x[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_reproducible_programs_have_the_bits_of_everywhere(name, odd):
    f = PROGRAMS[name]
    with nx.config.using(reproducible=True):
        x = jnp.asarray(X)
        warm = nx.jit(f)
        expected = [warm(x) for _ in range(3)][-1]
        with odd():
            found = [warm(x)]
            with suppress(LoweringError):  # of eager calls whose code is still to be written, see below
                found.append(f(x))
        for y in found:
            same(y, expected)


def test_code_is_written_where_floats_round_to_nearest(odd):
    below = 2.0**-60
    with nx.config.using(reproducible=True):
        expected = nx.jit(lambda x: x.astype(np.float16) * 5)(X)
        nx.clear_caches()
        with odd():
            if 1 + below == 1 == 1 - below:  # subnormal numbers are no matter here
                found = nx.jit(lambda x: x.astype(np.float16) * 5)(X)
            else:
                with pytest.raises(LoweringError, match="rounded to nearest") as error:
                    nx.jit(lambda x: x.astype(np.float16) * 5)(X)
                assert "fesetround" in str(error.value)
                found = expected
        same(found, expected)


def test_helpers_compute_as_the_caller_does(odd):
    x = np.tile(X, 60)
    f = lambda v: v * THIRD + v / 7
    expected = nx.jit(f)(x)
    for threads in (1, 3):
        with nx.config.using(num_threads=threads):
            warm = nx.jit(lambda v: f(v))
            warm(x)
            with odd():
                found = warm(x)
            same(found, expected)
