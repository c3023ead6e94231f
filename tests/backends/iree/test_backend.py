"""Programs and arrays on a Vulkan device: the same numbers, honest about what the device is and has not."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import registry
from nxjax.backends.iree import choose, compiler, drivers
from nxjax.backends.iree.backend import VulkanBackend
from nxjax.backends.iree.buffers import IreeBuffer, failure
from nxjax.config import config
from nxjax.errors import DeviceMemoryError, ExecutionError, LoweringError, MissingExtraError

RNG = np.random.default_rng(0)
W = RNG.standard_normal((24, 8), np.float32)
X = RNG.standard_normal((5, 24), np.float32)


def model(w, x):
    return jnp.tanh(x @ w).sum(0), jnp.argmax(x, 1)


# --- without a device ---


def test_a_missing_package_or_driver_is_the_reason(monkeypatch):
    backend = VulkanBackend()
    monkeypatch.setattr(compiler, "missing", lambda: "iree-base-compiler")
    assert backend.available() == (False, "iree-base-compiler is not installed; pip install 'nxjax[vulkan]'")
    assert backend.devices() == []
    monkeypatch.setattr(compiler, "missing", lambda: "")
    monkeypatch.setattr(drivers, "can_be_listed", lambda: True)
    monkeypatch.setattr(drivers, "installed", list)
    assert backend.available() == (False, "no Vulkan driver is installed (no manifest in vulkan/icd.d)")


def test_an_absent_device_is_an_error_that_says_why(monkeypatch):
    backend = registry.get("vulkan")
    monkeypatch.setattr(compiler, "missing", lambda: "iree-base-runtime")
    monkeypatch.setattr(backend, "_devices", None)
    with pytest.raises(ExecutionError, match="iree-base-runtime is not installed"):
        nx.devices("vulkan")
    with pytest.raises(MissingExtraError, match=r"nxjax\[vulkan\]"):
        nx.jit(model, device="vulkan")(W, X)
    monkeypatch.setattr(compiler, "missing", lambda: "")
    monkeypatch.setattr(compiler, "version", lambda: "3.13.0")
    monkeypatch.setattr(drivers, "installed", list)
    monkeypatch.setattr(drivers, "can_be_listed", lambda: True)
    with pytest.raises(ExecutionError, match="no Vulkan driver is installed"):
        nx.jit(model, device="vulkan")(W, X)


def test_nobody_is_asked_where_no_gpu_was_seen(monkeypatch):
    """`nx.devices()` starts no process, and a rasteriser is no GPU."""
    monkeypatch.setattr(drivers, "gpu_seen", lambda: False)
    monkeypatch.setattr(choose, "devices", lambda: pytest.fail("the drivers were asked"))
    backend = VulkanBackend()
    assert backend.label == "host"
    assert not backend.listed
    assert all(d.backend.name != "vulkan" for d in nx.devices())


def test_a_full_device_is_told_from_a_broken_one():
    full = failure("vulkan", "an array f32[9]", RuntimeError("RESOURCE_EXHAUSTED; out of memory"), 36)
    assert isinstance(full, DeviceMemoryError)
    assert full.required == 36
    assert type(failure("vulkan", "the compiled program", RuntimeError("device lost"))) is ExecutionError


# --- on Mesa's rasteriser ---


def test_the_rasteriser_is_a_simulator_and_stands_in_for_nothing(vulkan, monkeypatch):
    (device,) = nx.devices("vulkan")
    assert (str(device), device.platform, device.backend.label) == ("vulkan:0", "gpu", "host")
    assert "software rasteriser" in vulkan.available()[1]
    facts = vulkan.facts(device)
    assert facts.name == device.device_kind
    assert facts.subgroup[1] > 0
    assert max(facts.heaps) > 2**20
    assert f"subgroup_size_choices = [{facts.subgroup[1]}]" in vulkan.choice(device).spec.attribute
    registry._best.cache_clear()
    with pytest.raises(ExecutionError, match="vulkan: IREE"):
        nx.devices("gpu")
    registry._best.cache_clear()


def test_programs_give_the_same_numbers(vulkan):
    run = nx.jit(model, device="vulkan")
    sums, index = run(W, X)
    np.testing.assert_allclose(sums, np.tanh(X @ W).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(index, X.argmax(1))
    assert str(sums.device) == "vulkan:0"
    compiled = compiler.compilations
    again = nx.jit(model, device="vulkan")
    np.testing.assert_array_equal(again(W, X)[0], sums)
    assert compiler.compilations == compiled
    assert "stablehlo.dot_general" in run.lower(W, X).as_text()


def test_integers_are_exact(vulkan):
    """An int8 network: the quantized program has the reference's bits."""
    quantized = nx.quantize(lambda p, x: nx.nn.relu(x @ p), "int8", calibrate=[(W, X)])
    np.testing.assert_array_equal(nx.jit(quantized, device="vulkan")(W, X), nx.jit(quantized)(W, X))


def test_float64_is_rounded_as_biases_of_int8_networks_are(vulkan):
    x = np.concatenate([np.arange(-4, 4.5, 0.5), np.nextafter([-1.5, -0.5, 0.5, 2.5], 0), [2.0**60, np.inf, np.nan]])
    for f in (jnp.round, jnp.sign, lambda x: nx.lax.round(x, nx.lax.RoundingMethod.AWAY_FROM_ZERO)):
        with config.using(enable_x64=True):
            y = nx.jit(f, device="vulkan")(x)
            assert y.dtype == np.float64
            np.testing.assert_array_equal(y, nx.jit(f)(x))
    layers = {"w": W, "b": W[0]}
    quantized = nx.quantize(lambda p, x: nx.nn.relu(x @ p["w"] + p["b"]), "int8", calibrate=[(layers, X)])
    np.testing.assert_array_equal(nx.jit(quantized, device="vulkan")(layers, X), nx.jit(quantized)(layers, X))


def test_arrays_stay_where_they_were_put(vulkan):
    device = nx.devices("vulkan")[0]
    w = nx.device_put(W, device)
    assert isinstance(w.buffer, IreeBuffer)
    assert w.device == device
    np.testing.assert_array_equal(nx.device_get(w), W)
    before = device.memory_stats()["bytes_in_use"]
    run = nx.jit(lambda w, x: x @ w)  # no device named: the argument's
    y = run(w, X)
    assert y.device == device
    np.testing.assert_allclose(y, X @ W, rtol=1e-4, atol=1e-5)
    assert w.buffer is nx.device_put(w, device).buffer
    assert device.memory_stats()["bytes_in_use"] >= before > 0
    weights = jnp.asarray(W)
    held = nx.jit(lambda x: x @ weights, device=device)
    np.testing.assert_array_equal(held(X), y)


def test_it_is_the_executor_when_it_is_named(vulkan):
    with config.using(executor="vulkan"):
        f = nx.jit(lambda w, x: x @ w + 1)
        w = jnp.asarray(W)
        y = f(w, X)
        assert isinstance(y.buffer, IreeBuffer)
        assert "hal.device.targets" in f.lower(w, X).as_text(dialect="target")
        first = w.buffer
        f(w, X)
        assert w.buffer is first  # weights travel once
        np.testing.assert_allclose(y, X @ W + 1, rtol=1e-4, atol=1e-5)
        donated = nx.jit(lambda w: w * 2, donate_argnums=0)
        np.testing.assert_allclose(donated(w), W * 2)
        assert w.is_deleted()


def test_what_the_compiler_gets_wrong_is_written_otherwise(vulkan):
    """Each of these gives other numbers, or touches other memory, by the portable rule (IREE 3.13)."""
    whole = np.array([1.5, -1.5, 3e9, -3e9, 300, np.nan, np.inf, -np.inf], np.float32)
    base, exponent = np.array([-2, 0, -1, 4, -8, 0], np.float32), np.array([3, 0, 2, 0.5, 0.5, -2], np.float32)
    words, by = np.array([7, 2**32 - 1, 2**31, 5], np.uint32), np.array([3, 2, 2**32 - 1, 0], np.uint32)
    rows = np.array([1, 20, 8, -30], np.int32)

    def f(table, rows, whole, base, exponent, words, by, key):
        return (
            (whole.astype("int32"), whole.astype("uint8"), whole.astype("int8"), (whole > 0).astype("float32")),
            (jnp.power(base, exponent), jnp.arctan2(base, abs(base))),
            (nx.lax.div(words, by), nx.lax.rem(words, by)),
            (jnp.sin(table * 1000), jnp.cos(table), jnp.tan(table)),
            (table[rows], jnp.take(table, rows, axis=0, mode="fill"), table.at[rows].add(table[:4], mode="drop")),
            (nx.random.key_data(nx.random.fold_in(key, 7)),),
        )

    args = (W[:9], rows, whole, base, exponent, words, by, nx.random.key(3))
    given, wanted = nx.jit(f, device="vulkan")(*args), f(*map(jnp.asarray, args[:-1]), args[-1])
    for y, w in zip(nx.tree.leaves(given), nx.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(y, w, rtol=1e-5, atol=2e-6)


def test_what_it_cannot_do_is_refused_with_the_users_line(vulkan):
    with pytest.raises(LoweringError) as caught:
        nx.jit(lambda x: jnp.linalg.cholesky(x), device="vulkan")(jnp.eye(3))
    assert "cholesky: IREE's compiler has no code for it (test_backend.py:" in str(caught.value)
    for f, n in ((jnp.sort, 300), (jnp.sum, 70000)):
        with pytest.raises(LoweringError, match="the software rasteriser leaves it after 65535"):
            nx.jit(f, device="vulkan")(jnp.ones(n))
    with pytest.raises(LoweringError, match="f8_e5m2 does not work on this device"):
        nx.jit(lambda x: x.astype("float8_e5m2"), device="vulkan")(jnp.ones(3))
