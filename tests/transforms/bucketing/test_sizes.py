"""Sizes that depend on lengths: their arithmetic, and finding them from numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.trace import dtypes
from nxjax.transforms.bucketing.sizes import Domain, Range, Size, Solver, find_number, product, simplify, total

N, M = Size.of("n"), Size.of("m")
ints = st.integers(-6, 6)


@st.composite
def sizes(draw, depth=2):
    if depth == 0:
        return draw(st.sampled_from([N, M, Size.of(draw(ints))]))
    a, b = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    op = draw(st.integers(0, 3))
    return a + b if op == 0 else a * b if op == 1 else a - b if op == 2 else a // draw(st.integers(1, 5))


@given(sizes(), sizes(), st.integers(1, 5), st.integers(0, 40), st.integers(0, 40))
def test_arithmetic_is_that_of_integers(a, b, k, n, m):
    at = {"n": n, "m": m}
    assert (a + b).at(at) == a.at(at) + b.at(at)
    assert (a * b).at(at) == a.at(at) * b.at(at)
    assert (a - b).at(at) == a.at(at) - b.at(at)
    assert (a // k).at(at) == a.at(at) // k
    assert total([a, 3, b]) == simplify(a + 3 + b)
    assert product([a, 2]) == simplify(a * 2)


def test_canonical_form():
    assert N + M == M + N
    assert (N * 6 + 4) // 2 == N * 3 + 2
    assert (N * 3 + 7) // 3 == N + 2
    assert simplify(N - N + 5) == 5
    assert (N - N).constant == 0
    assert repr(N * 2 + 1) == "2 * n + 1"
    assert "floor" in repr(N // 2)


def solver(*ranges: Range) -> Solver:
    domain = Domain(ranges)
    return Solver(domain, domain.members())


@pytest.mark.parametrize("high", [3, 8, 64, 129])
@given(st.integers(-3, 5), st.integers(-50, 50))
def test_affine_sizes_are_found(high, a, b):
    s = solver(Range("n", 2, high))
    size = s.find(s.values(N * a + b))
    assert size is not None
    assert s.same(size, N * a + b)


@given(sizes())
def test_polynomials_of_two_lengths_are_found_or_refused(size):
    s = solver(Range("n", 2, 40), Range("m", 3, 17))
    found = s.find(s.values(size))
    # A wrong one is never given.
    assert found is None or s.same(found, size)
    if "floor" not in repr(size) and len(max((m for m, _ in size.terms), key=len, default=())) <= 2:
        assert found is not None


@given(st.integers(2, 4), st.integers(0, 3), st.integers(1, 3), st.integers(-4, 4))
def test_floor_quotients_are_told_apart(by, shift, a, b):
    s = solver(Range("n", 5, 64))
    size = (N + shift % by) // by * a + b
    assert s.find(s.values(size)) == simplify(size)


def test_an_unknown_function_is_not_found_before_it_is_learned():
    s = solver(Range("n", 5, 64))
    size = (N * 3 + 1) // 7
    assert s.find(s.values(size)) is None
    s.learn(size)
    assert s.find(s.values(size * 2 + 1)) == size * 2 + 1
    assert s.find([n * n % 11 for (n,) in s.members]) is None


def test_what_agrees_on_the_members_only_is_refused():
    s = solver(Range("n", 2, 100))
    # Two proposals that show the same numbers at every member, and differ between them.
    a = N // 2
    b = a + _bump(s)
    assert s.values(a) == s.values(b)
    assert not s.same(a, b)
    assert s.find(s.values(a), [a, b]) is None


def _bump(s: Solver) -> Size:
    """Zero at every member, and not everywhere."""
    found = Size.of(1)
    for (n,) in s.members:
        found = found * (N - n)
    return found


def test_members_hold_the_ends_of_the_range():
    domain = Domain((Range("n", 9, 64), Range("m", 2, 8)))
    members = domain.members()
    assert members[0] == (64, 8)
    assert (9, 8) in members
    assert (64, 2) in members
    assert (9, 2) in members
    assert Domain((Range("n", 5, 5),)).members() == [(5,)]
    assert [r for (r,) in Domain((Range("n", 4, 16, 4),)).members()] == [16, 4, 8, 12]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16, np.dtype(np.float16)])
@pytest.mark.parametrize(
    ("formula", "power"),
    [
        (lambda n: n, 1.0),
        (lambda n: 1 / n, -1.0),
        (lambda n: -1 / (n - 1), -1.0),
        (lambda n: 1 / (64 * n), -1.0),
        (lambda n: np.sqrt(n), 0.5),
        (lambda n: 1 / np.sqrt(n), -0.5),
        (lambda n: np.log(n), 1.0),
        (lambda n: 0.3 / n, -1.0),
        (lambda n: 1e-3 * n, 1.0),
    ],
)
def test_numbers(dtype, formula, power):
    s = solver(Range("n", 5, 64))
    values = [np.asarray(formula(n)).astype(dtype) for (n,) in s.members]
    number = find_number(s, values, dtype)
    if number is None:
        assert dtype.itemsize == 2  # too few digits to be sure
        return
    assert number.power == power
    for n in (5, 6, 17, 33, 64):
        size = float(number.size.at({"n": n}))
        made = np.log(size) * number.factor if number.log else number.factor * size**number.power
        assert made == pytest.approx(formula(n), rel=8 * float(dtypes.float_info(dtype).eps))


def test_numbers_that_are_no_formula():
    s = solver(Range("n", 5, 64))
    for f in (lambda n: n**0.3 + 1, lambda n: (-1) ** n, lambda n: np.nan, lambda n: 0.0 * n, lambda n: np.sin(n)):
        assert find_number(s, [np.float32(f(n)) for (n,) in s.members], dtypes.float32) is None
