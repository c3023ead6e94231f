"""Settings: one object, JAX's names, restored after a block."""

import pytest

import nxjax as nx
from nxjax.config import config
from nxjax.errors import ParameterError


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
