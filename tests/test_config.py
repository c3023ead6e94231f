"""Settings: one object, JAX's names, restored after a block."""

import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import ParameterError, TypePromotionError


def test_update_and_restore():
    with config.using(executor="reference"):
        assert config.executor == "reference"
        with pytest.raises(ZeroDivisionError), config.using(executor="xla"):
            raise ZeroDivisionError
        assert config.executor == "reference"
    assert config.executor != "reference"


def test_jax_names_are_understood_and_unknown_ones_refused():
    with config.using(enable_x64=False):
        nx.config.update("jax_enable_x64", True)
        assert nx.zeros(1).dtype == "float64"
    with pytest.raises(ParameterError, match="no setting"):
        config.update("jax_nonsense", 1)


def test_flags_of_jax():
    assert config.jax_debug_nans is False and config.read("jax_threefry_partitionable") is True
    for name, value in (("jax_threefry_partitionable", True), ("jax_default_prng_impl", "threefry2x32")):
        config.update(name, value)
    with config.using(jax_transfer_guard="disallow", jax_log_compiles=False):
        assert config.jax_transfer_guard == "disallow"
    assert config.jax_transfer_guard == "allow"
    config.parse_flags_with_absl()
    assert config.values["jax_numpy_rank_promotion"] == "allow"
    for name, value, said in (
        ("jax_threefry_partitionable", False, "one value"),
        ("jax_numpy_rank_promotion", "never", "raise"),
        ("jax_debug_nan", True, "debug_nans"),
        ("mode", (), "no setting"),
        ("jax_transfer_guard", "perhaps", "disallow"),
        ("jax_debug_nans", "yes", "True or False"),
    ):
        with pytest.raises(ParameterError, match=said):
            config.update(name, value)
    with pytest.raises(AttributeError):
        _ = config.jax_nonsense
    assert config.mode is None
    assert repr(nx.debug_nans) == "<setting debug_nans = False>" and nx.debug_nans.value is False
    with pytest.raises(TypeError, match="context manager"):
        bool(nx.debug_nans)


def test_promotion_can_be_strict():
    x, i = nx.ones(2), nx.ones(2, int)
    with nx.numpy_dtype_promotion("strict"):
        assert (x + 1).dtype == "float32" and (i * 2).dtype == "int32" and (x * 2.0).dtype == "float32"
        for f in (lambda: x + i, lambda: i + 1.5, lambda: nx.jit(lambda a, b: a * b)(x, i)):
            with pytest.raises(TypePromotionError, match="strict"):
                f()
    assert (x + i).dtype == "float32"
    with nx.numpy_rank_promotion("raise"):
        assert (x + 1).shape == (2,)
        for f in (lambda: x + nx.ones((2, 2)), lambda: nx.jit(nx.add)(x, nx.ones((2, 2)))):
            with pytest.raises(ValueError, match="numpy_rank_promotion"):
                f()
    with nx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="numpy_rank_promotion"):
        _ = x + nx.ones((2, 2))


@pytest.mark.parametrize("name", ["CACHE_BYTES", "CPU_POOL_BYTES", "NUM_CPU_DEVICES", "NUM_THREADS"])
@pytest.mark.parametrize("given", ["abc", "1e9", "-5"])
def test_environment_variables_that_are_no_numbers_are_named(name, given, monkeypatch):
    monkeypatch.setenv(f"NXJAX_{name}", given)
    with pytest.raises(ParameterError, match=f"NXJAX_{name}"):
        type(config)()
    monkeypatch.setenv(f"NXJAX_{name}", "12")
    assert getattr(type(config)(), name.lower()) == 12
