import numpy as np
import pytest

from nxjax.config import config
from nxjax.kernels.cpu.cumulative import COLUMNS, Cumulative
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize(
    "shape", [(7, 50, 1), (3, 5, COLUMNS + 70), (2, 9, 3), (2, 16, 1), (2, 17, 1), (3, 1, 40), (2, 1, 1)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_any_items(name, shape, reverse):
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.int32)
    kernel = Cumulative("add", x.dtype, *shape, reverse)
    (wanted,) = kernel.meaning(x)
    for cuts in (None, range(1, kernel.items)):
        (y,) = run(kernel, x, name=name, cuts=cuts)
        np.testing.assert_array_equal(y, wanted)


def _exact(op, x, reverse):
    """Of the running reduction, in a type that is wider than every other."""
    x = (x[:, ::-1] if reverse else x).astype(np.longdouble)
    y = getattr(np, {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}.get(op, op)).accumulate(x, 1)
    return y[:, ::-1] if reverse else y


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("op", ["add", "mul", "max", "min", "logaddexp"])
@pytest.mark.parametrize(("shape", "reverse"), [((2, 3003, 1), False), ((1, 403, COLUMNS + 5), True)])
def test_floats_are_right_to_the_last_bits_however_long_a_row_is(shape, reverse, op, dtype, reproducible):
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape)
    if op == "mul":
        x = np.exp(x * 0.01)
    if op == "add":  # each too small to move the sum, and all together not
        x = abs(np.where(rng.random(shape) < 0.01, x, 1e-17 * x))
        x[:, -1 if reverse else 0] = 1
    x = x.astype(getattr(dtypes, dtype))
    with config.using(reproducible=reproducible):
        (y,) = run(Cumulative(op, x.dtype, *shape, reverse), x)
    wanted = _exact(op, x, reverse)
    # Sums alone are wider than float64.
    eps = float(dtypes.float_info(x.dtype).eps) * (shape[1] if dtype == "float64" and op in ("mul", "logaddexp") else 1)
    np.testing.assert_array_less(abs(y.astype(np.longdouble) - wanted), 2 * eps * abs(wanted) + 1e-300)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_sums_that_become_infinite_stay_so(columns, reverse, dtype, reproducible, name):
    """Until an infinity of the other sign comes: then they are NaN."""
    rows = np.ones((60, 9), dtype)
    rows[:20, 3], rows[20:40, 3], rows[40:, 3] = np.inf, -np.inf, np.inf
    rows[40:, 6] = -np.inf
    x = np.ascontiguousarray(rows.T)[None] if columns else rows[..., None]
    with config.using(reproducible=reproducible), np.errstate(invalid="ignore"):
        (y,) = run(Cumulative("add", x.dtype, *x.shape, reverse), x, name=name)
        wanted = np.cumsum(x[:, ::-1], 1, x.dtype)[:, ::-1] if reverse else np.cumsum(x, 1, x.dtype)
    np.testing.assert_array_equal(y, wanted)


def test_code_is_shared_by_nothing_that_differs():
    keys = {Cumulative(op, np.dtype(d), 2, 3, 4, r).key for op in ("add", "max") for d in ("f4", "i4") for r in (0, 1)}
    assert len(keys) == 8
