"""Known powers: the laws of ops."""

import numpy as np

from nxjax.ops.power import power
from nxjax.testing import check_op, sample

X = np.random.default_rng(0).uniform(0.2, 3, (3, 4)).astype(np.float32)


def test_laws():
    check_op(power, [sample(X, y=y) for y in (1 / 3, 2.5, -1.0, 0.0)])
    assert np.isnan(power.eval(np.float32([-1]), y=0.5)).all()
