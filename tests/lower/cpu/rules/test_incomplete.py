"""Incomplete gamma and beta functions as loops: near their NumPy meaning, on and beyond the edges of their domains."""

import numpy as np
import pytest

from nxjax.ops import vocabulary
from tests.lower.cpu.rules.equal import ISAS, meant, results

NAMES = ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "regularized_incomplete_beta")
EDGES = (0.0, 1.0, 0.5, 3.0, np.inf, np.nan, -1.0)


def operands(op, count, dtype):
    rng = np.random.default_rng(count)
    scales = (6, 4, 1) if op.count == 3 else (8, 20)
    return [(rng.random(count) * s + 1e-3).astype(dtype) for s in scales]


def near(ys, wanted, dtype):
    for y, w in zip(ys, wanted, strict=True):
        assert y.dtype == w.dtype
        assert y.shape == w.shape
        np.testing.assert_allclose(y.astype("f8"), w.astype("f8"), rtol={"f2": 2e-3, "f4": 1e-6, "f8": 1e-11}[dtype])


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_functions(name, op, dtype):
    op = vocabulary.every()[op]
    xs = operands(op, 50, dtype)
    near(results(op, *xs, name=name), meant(op, *xs), dtype)


@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("shape", [(), (3, 5), (1024,), (1025,), (5, 700)], ids=str)
def test_any_number_of_elements(op, shape):
    """More than a block of them, too, whose last one is not full."""
    op = vocabulary.every()[op]
    xs = [x.reshape(shape) for x in operands(op, int(np.prod(shape)), "f4")]
    near(results(op, *xs), meant(op, *xs), "f4")


@pytest.mark.parametrize("op", NAMES)
def test_edges(op):
    op = vocabulary.every()[op]
    xs = [x.reshape(-1) for x in np.meshgrid(*[np.array(EDGES, "f4")] * op.count)]
    near(results(op, *xs), meant(op, *xs), "f4")
