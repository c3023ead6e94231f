"""Where elements are that are picked: sizes that are said before, and nothing to pick from."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_indices_of_nothing_are_filled(shape):
    """As they are where there is something; JAX gives zeros."""
    x = np.zeros(shape, np.float32)
    for f in (
        lambda x: jnp.nonzero(x, size=3, fill_value=-2),
        lambda x: jnp.where(x > 0, size=3, fill_value=-2),
        lambda x: jnp.argwhere(x, size=3, fill_value=-2).T,
    ):
        for found in (f(jnp.asarray(x)), nx.jit(f)(x)):
            np.testing.assert_array_equal(found, np.full((len(shape), 3), -2))
    np.testing.assert_array_equal(nx.jit(lambda x: jnp.nonzero(x, size=2))(x), np.zeros((len(shape), 2)))
