"""Whether samples may go apart, and whether a loss is a mean: found for functions whose shapes do not say it."""

import numpy as np
import pytest

from nxjax.lower.pipeline.samples import is_sum, parts_of
from nxjax.trace.types import ArrayType

X = ArrayType((6, 6), np.dtype("float32"))
TOGETHER = {
    "mean": lambda xs: [xs[0] - xs[0].mean(0)],
    "rev": lambda xs: [xs[0][::-1]],
    "sort": lambda xs: [np.sort(xs[0], axis=0)],
    "size": lambda xs: [xs[0] / len(xs[0])],
    "product": lambda xs: [xs[0] @ xs[0]],
    "threshold": lambda xs: [xs[0] * (np.abs(xs[0]).max() > 10) * xs[0].sum()],
}


@pytest.mark.parametrize("f", TOGETHER.values(), ids=TOGETHER)
def test_samples_that_need_each_other_are_not_cut(f):
    assert parts_of(f, [X], (6, 3, 2)) == 0 and parts_of(f, [X], (6, 3, 2, 1)) == 1


def test_samples_that_do_not_are_cut_where_the_batch_divides():
    f = lambda xs: [np.tanh(xs[0]) @ np.ones((6, 2), np.float32), xs[0].max(1)]
    assert parts_of(f, [X], (4, 3, 2)) == 3 and parts_of(f, [X], (5, 4)) == 0
    # Results, or inputs, without a dimension of samples.
    assert parts_of(lambda xs: [xs[0].sum(1), xs[0].sum()], [X], (2, 1)) == 0
    assert parts_of(lambda xs: [xs[0]], [X, ArrayType((3,), X.dtype)], (3, 1)) == 0
    assert parts_of(lambda xs: [xs[0]], [ArrayType((), X.dtype)], (1,)) == 0


def test_a_sum_is_no_mean():
    w = ArrayType((6,), X.dtype)
    assert is_sum(lambda xs: [((xs[1] @ xs[0]) ** 2).sum()], [w, X], 1)
    assert not is_sum(lambda xs: [((xs[1] @ xs[0]) ** 2).mean()], [w, X], 1)
    # Of another number of samples there is no such product.
    assert not is_sum(lambda xs: [(xs[1] @ xs[1]).sum()], [w, X], 1)
