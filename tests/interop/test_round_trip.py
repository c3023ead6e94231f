"""Programs of nxjax written as StableHLO and read again are the same functions."""

import numpy as np
import pytest

from nxjax.interop import from_stablehlo
from nxjax.lower.stablehlo.builder import lower
from nxjax.testing import random_program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int):
    f = random_program(np.random.default_rng(seed), 12)
    program = stage(lambda *xs: [f(*xs)], [ArrayType(a.shape, a.dtype) for a in f.args])
    text, _ = lower(program)
    g = from_stablehlo(text, trusted=True)
    expected = f(*f.args).numpy()
    got = g(*f.args).numpy()
    assert got.dtype == expected.dtype
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, 1e-4, 1e-5, err_msg=repr(f))
    else:
        np.testing.assert_array_equal(got, expected, repr(f))
    # Once more through StableHLO nothing is left to change.
    again, _ = lower(g.program)
    np.testing.assert_allclose(from_stablehlo(again, trusted=True)(*f.args), got, 1e-5, 1e-5)
