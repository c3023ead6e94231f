"""Devices, device_put and device_get, and the process-wide switches."""

import ml_dtypes
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ConcretizationTypeError, ExecutionError, ParameterError


def test_devices_say_what_can_execute():
    first = nx.devices()[0]
    assert first.platform == nx.default_backend() == "cpu"
    assert nx.local_devices()[0] == first
    assert nx.device_count() == nx.local_device_count() >= 1
    assert (nx.process_index(), nx.process_count()) == (0, 1)


def test_a_platform_that_is_not_here_is_a_runtime_error():
    with pytest.raises(RuntimeError, match="no 'nowhere' device"):
        nx.devices("nowhere")
    with pytest.raises(ExecutionError):
        nx.device_put(1.0, "nowhere")


def test_device_put_makes_arrays_of_a_tree():
    tree = nx.device_put({"a": 1.0, "b": np.arange(3)}, nx.devices()[0])
    assert isinstance(tree["b"], nx.Array)
    assert tree["b"].dtype == np.int32
    assert nx.device_put(tree, {"a": None, "b": nx.devices()[0]})["a"].dtype == np.float32
    assert nx.jit(lambda x: nx.device_put(x))(np.float32(2)) == 2
    with pytest.raises(ParameterError, match="not a device"):
        nx.device_put(1.0, 3)


def test_device_get_gives_numpy():
    got = nx.device_get({"a": nx.ones(2), "b": 3, "s": "text"})
    assert type(got["a"]) is np.ndarray
    assert got["b"] == 3
    assert got["s"] == "text"
    key = nx.random.key(0)
    assert nx.device_get(key) is key
    with pytest.raises(ConcretizationTypeError):
        nx.jit(nx.device_get)(1.0)


def test_block_until_ready_gives_the_tree_back():
    tree = {"a": nx.jit(lambda x: x + 1)(1.0), "b": 2}
    assert nx.block_until_ready(tree) is tree


def test_disable_jit():
    seen = []
    with nx.disable_jit():
        nx.jit(lambda x: seen.append(float(x)))(2.0)
    assert seen == [2.0]


def test_enable_x64_moves_the_defaults():
    with nx.enable_x64():
        assert nx.asarray(1.0).dtype == np.float64
        with nx.enable_x64(False):
            assert nx.asarray(1.0).dtype == np.float32
    assert nx.asarray(1.0).dtype == np.float32


def test_ensure_compile_time_eval_computes_inside_a_trace():
    def f(x):
        with nx.ensure_compile_time_eval():
            n = int(nx.asarray(3) + 1)
        return x * n

    assert float(nx.jit(f)(2.0)) == 8.0


def test_ensure_compile_time_eval_takes_traced_values_as_everywhere():
    def f(x):
        with nx.ensure_compile_time_eval():
            shift = nx.numpy.ones(3)
            assert isinstance(shift, nx.Array) and not isinstance(shift, nx.core.Tracer)
            inner = nx.jit(lambda: int(nx.numpy.ones(2).sum()))
            total = nx.lax.fori_loop(0, 3, lambda i, c: c + i, 0)
            return nx.lax.scan(lambda c, y: (c + y * inner(), c), x, shift)[0] + int(total), nx.lax.psum(x, "i")

    for g in (nx.vmap(f, axis_name="i"), nx.jit(nx.vmap(f, axis_name="i"))):
        got, total = g(nx.numpy.arange(2.0))
        assert got.tolist() == [9.0, 10.0] and total.tolist() == [1.0, 1.0]
    with pytest.raises(ConcretizationTypeError):
        nx.jit(_truth)(1.0)


def _truth(x):
    with nx.ensure_compile_time_eval():
        return x if x > 0 else -x


def test_clear_caches_keeps_functions_working():
    f = nx.jit(lambda x: x + 1)
    assert float(f(1.0)) == 2.0
    nx.clear_caches()
    assert float(f(1.0)) == 2.0


def test_dtypes():
    from nxjax import dtypes

    key = nx.random.key(0)
    assert nx.numpy.issubdtype(key.dtype, dtypes.prng_key)
    assert not nx.numpy.issubdtype(np.float32, dtypes.prng_key)
    assert dtypes.canonicalize_dtype("int64") == np.int32
    assert dtypes.scalar_type_of(np.float32(1)) is float
    assert type(dtypes.bfloat16(1)) is ml_dtypes.bfloat16  # a number; `nx.bfloat16` makes an array
    assert dtypes.itemsize_bits("int4") == 4
    assert float(dtypes.finfo("bfloat16").eps) == 2.0**-7
    assert dtypes.iinfo("int8").max == 127


def test_default_device_is_where_jit_computes_what_was_put_nowhere():
    first, *_, last = nx.devices("cpu")
    f = nx.jit(lambda x: x + 1.0)
    x = nx.ones(3)
    assert f(x).device == first
    with nx.default_device(last):
        assert f(x).device == last and x.device == last
        assert f(nx.device_put(x, first)).device == first
        with nx.default_device("cpu"):
            assert f(x).device == first
    assert f(x).device == first and nx.config.default_device is None
    with pytest.raises(nx.errors.ParameterError, match="default_device"), nx.default_device(3):
        pass
    with pytest.raises(nx.errors.ParameterError, match="default_device"):
        nx.config.update("jax_default_device", "tpu")
