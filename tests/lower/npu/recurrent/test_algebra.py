"""Equal values are one object, however they were made, and taking columns commutes with everything."""

import numpy as np
import pytest

from nxjax.lower.npu.recurrent.algebra import LARGEST, LOGISTIC, RECIPROCAL, TANH, Algebra, NoForm

W = np.random.default_rng(0).normal(size=(4, 6))


def given(batch=3, width=4):
    algebra = Algebra(batch)
    return algebra, algebra.given("state", 0, (batch, width)), algebra.given("row", 0, (batch, width))


def test_sums_and_products_have_one_form():
    a, h, x = given()
    one = a.constant(np.float32(1), h)
    z = a.mapped(LOGISTIC, x)
    minus = lambda v: a.value(v.shape, [a.scaled(s, -1) for s in v.segments], v.batch)
    plus, times = (lambda *v: a.combined(*v, product=False)), (lambda *v: a.combined(*v, product=True))
    spelled = [
        plus(times(plus(one, minus(z)), h), times(z, x)),
        plus(h, times(z, plus(x, minus(h)))),
        plus(times(x, z), plus(h, minus(times(h, z)))),
    ]
    assert len({id(v.segments[0]) for v in spelled}) == 1
    assert len(spelled[0].segments[0].terms) == 3


def test_sigmoids_in_other_words():
    a, h, _ = given()
    one, half = (a.constant(np.float32(v), h) for v in (1, 0.5))
    negative = a.value(h.shape, [a.scaled(s, -1) for s in h.segments])
    by_exp = a.mapped(RECIPROCAL, a.combined(a.mapped("exp", negative), one, product=False))
    by_tanh = a.combined(
        a.combined(a.mapped(TANH, a.combined(h, half, product=True)), half, product=True), half, product=False
    )
    assert by_exp.segments == by_tanh.segments == a.mapped(LOGISTIC, h).segments


def test_columns_of_a_product_are_the_product_with_columns():
    a, h, x = given()
    both = a.value((3, 8), [*x.segments, *h.segments])
    whole = a.value((3, 6), [a.product(both, np.concatenate([W, W]))])
    part = a.picked(a.mapped(TANH, whole), np.arange(2, 5))
    again = a.mapped(TANH, a.value((3, 3), [a.product(both, np.concatenate([W, W])[:, 2:5])]))
    assert tuple(part) == again.segments
    assert a.picked(both, np.array([3, 4])) == [a.picked(x, np.array([3]))[0], a.picked(h, np.array([0]))[0]]


def test_products_that_are_the_same_in_some_columns_are_added():
    a, h, x = given()
    alike = W.copy()
    alike[:, 3:] += 1
    total = a.added(a.product(x, W), a.product(x, alike))
    first = a.taken(total, np.arange(3))
    assert first is a.scaled(a.product(x, W[:, :3]), 2)
    both = a.combined(*(a.value((3, 2), a.picked(h, np.array(at))) for at in ([0, 1], [0, 2])), product=False)
    assert a.picked(both, np.array([0])) == [a.scaled(a.picked(h, np.array([0]))[0], 2)]


def test_dimensions_of_the_batch_and_of_features():
    a, h, _ = given(3, 4)
    wide = a.reshaped(h, (3, 2, 2))
    assert wide.batch == (0,) and wide.features == (1, 2)
    turned = a.transposed(wide, (2, 0, 1))
    assert turned.batch == (1,) and turned.shape == (2, 3, 2)
    back = a.transposed(turned, (1, 2, 0))
    assert len(back.segments) == 1 and back.segments == h.segments
    alone = Algebra(1).given("state", 0, (4,))
    assert alone.batch == () and alone.width == 4


def test_what_has_no_form():
    a, h, _ = given()
    for wrong in (
        lambda: a.given("state", 1, (2, 4)),
        lambda: a.constant(np.arange(3.0)[:, None], h),
        lambda: a.constant(np.float32(np.inf), h),
        lambda: a.reshaped(h, (4, 3)),
        lambda: a.combined(h, a.reshaped(h, (3, 2, 2)), product=False),
    ):
        with pytest.raises(NoForm):
            wrong()


def test_a_sum_of_too_many_products_is_no_cell():
    a, h, x = given()
    scaled = (a.combined(x, a.constant(np.float32(k + 2), x), product=True) for k in range(LARGEST))
    *most, last = [a.mapped(TANH, v) for v in scaled]
    total = h
    for v in most:
        total = a.combined(total, v, product=False)
    with pytest.raises(NoForm):
        a.combined(total, last, product=False)
