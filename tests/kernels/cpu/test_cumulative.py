import numpy as np
import pytest

from nxjax.kernels.cpu.cumulative import COLUMNS, Cumulative
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("shape", [(7, 50, 1), (3, 5, COLUMNS + 70), (2, 9, 3)])
@pytest.mark.parametrize("reverse", [False, True])
def test_any_items(name, shape, reverse):
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)
    kernel = Cumulative("add", x.dtype, *shape, reverse)
    (wanted,) = kernel.meaning(x)
    for cuts in (None, range(1, kernel.items)):
        (y,) = run(kernel, x, name=name, cuts=cuts)
        np.testing.assert_array_equal(y, wanted)


def test_code_is_shared_by_nothing_that_differs():
    keys = {Cumulative(op, np.dtype(d), 2, 3, 4, r).key for op in ("add", "max") for d in ("f4", "i4") for r in (0, 1)}
    assert len(keys) == 8
