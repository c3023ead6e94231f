"""Sizes that depend on the lengths of named dimensions, and how they are found by comparing several tracings.

A `Size` is a polynomial with integer coefficients in dimension names and floor quotients. Traces carry plain integers,
so which size a number stands for is found by tracing at several lengths (`Domain.members`) and looking for the one
polynomial that gives all the numbers seen. Knows no op and no array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
Monomial = tuple["Atom", ...]


@final
@dataclass(frozen=True)
class Quotient:
    """floor(of / by)."""

    of: Size
    by: int

    def __repr__(self) -> str:
        return f"floor(({self.of}) / {self.by})"


Atom = str | Quotient


@final
@dataclass(frozen=True)
class Size:
    """A polynomial: coefficient per product of atoms, in a canonical order."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(value: Extent | str) -> Size:
        """A constant, or the length of the dimension of that name."""
        if isinstance(value, Size):
            return value
        return _made({(value,): 1} if isinstance(value, str) else {(): int(value)})

    def __add__(self, other: Extent) -> Size:
        total = dict(self.terms)
        for monomial, c in Size.of(other).terms:
            total[monomial] = total.get(monomial, 0) + c
        return _made(total)

    def __mul__(self, other: Extent) -> Size:
        total: dict[Monomial, int] = {}
        for (a, c), (b, d) in itertools.product(self.terms, Size.of(other).terms):
            monomial = tuple(sorted((*a, *b), key=repr))
            total[monomial] = total.get(monomial, 0) + c * d
        return _made(total)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Extent) -> Size:
        return self + -Size.of(other)

    def __floordiv__(self, by: int) -> Size:
        """floor(self / by); what divides exactly is taken out of the quotient."""
        whole = _made({m: c // by for m, c in self.terms})
        rest = _made({m: c % by for m, c in self.terms})
        constant = rest.constant
        if constant is not None:
            return whole + constant // by
        return whole + _made({(Quotient(rest, by),): 1})

    @property
    def constant(self) -> int | None:
        """The value of a size that depends on nothing."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def at(self, lengths: Mapping[str, Any]) -> Any:
        """The value for these lengths, which may be integers or arrays of them."""
        total: Any = 0
        for monomial, c in self.terms:
            product: Any = c
            for atom in monomial:
                product = product * (lengths[atom] if isinstance(atom, str) else atom.of.at(lengths) // atom.by)
            total = total + product
        return total

    def __repr__(self) -> str:
        parts = [
            " * ".join([*([str(c)] if c != 1 or not m else []), *(a if isinstance(a, str) else repr(a) for a in m)])
            for m, c in self.terms
        ]
        return " + ".join(parts) or "0"


Extent = int | Size


def _made(terms: Mapping[Monomial, int]) -> Size:
    kept = [(m, c) for m, c in terms.items() if c]
    return Size(tuple(sorted(kept, key=lambda t: (-len(t[0]), repr(t[0])))))


def simplify(value: Extent) -> Extent:
    """An int where the size is one."""
    if isinstance(value, int):
        return value
    constant = value.constant
    return value if constant is None else constant


def total(values: Iterable[Extent]) -> Extent:
    """The sum."""
    found = Size.of(0)
    for v in values:
        found = found + v
    return simplify(found)


def product(values: Iterable[Extent]) -> Extent:
    """The product."""
    found = Size.of(1)
    for v in values:
        found = found * v
    return simplify(found)


@final
@dataclass(frozen=True)
class Range:
    """The lengths that one bucket serves: multiples of ``step`` from ``low`` to ``high``, the bucket's own size."""

    name: str
    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.high < 1 << 31 and self.step >= 1):
            raise ParameterError(
                "bucketed: a range of lengths", got=self, expected="0 <= low <= high < 2**31, and a positive step"
            )

    def lengths(self) -> range:
        return range(self.low, self.high + 1, self.step)

    def probes(self) -> list[int]:
        """Lengths other than the bucket's to trace at: all of a few; else the lowest four and a middle one.

        The lowest length and the bucket's are the ends of the range, so a branch on a threshold inside the range shows.
        Neighbouring lengths have different remainders, so floor quotients show.
        """
        lengths = self.lengths()
        if len(lengths) <= 7:
            return list(lengths[:-1])
        return [*lengths[:4], lengths[len(lengths) // 2 + 1]]


# Points of a domain on which two sizes are compared: all, or that many.
POINTS: Final = 20_000


@final
@dataclass(frozen=True)
class Domain:
    """The lengths of all dimensions that one program serves."""

    ranges: tuple[Range, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(r.name for r in self.ranges)

    def members(self) -> list[tuple[int, ...]]:
        """Lengths to trace at: the buckets' own, then one dimension at a time, then pairs, both at their lowest."""
        top = tuple(r.high for r in self.ranges)
        found = [top]
        for i, r in enumerate(self.ranges):
            found += [(*top[:i], n, *top[i + 1 :]) for n in r.probes()]
        for i, j in itertools.combinations(range(len(self.ranges)), 2):
            pair = list(top)
            pair[i], pair[j] = self.ranges[i].low, self.ranges[j].low
            found.append(tuple(pair))
        return list(dict.fromkeys(found))

    def points(self) -> dict[str, NDArray]:
        """Lengths of the whole domain, for checks."""
        share = max(2, int(POINTS ** (1 / max(1, len(self.ranges)))))
        axes: list[NDArray] = []
        for r in self.ranges:
            lengths = r.lengths()
            some = np.unique(np.linspace(0, len(lengths) - 1, min(share, len(lengths))).astype(int))
            axes.append(np.asarray([lengths[i] for i in some.tolist()], np.int64))
        grid = np.meshgrid(*axes, indexing="ij") if axes else []
        return {r.name: g.ravel() for r, g in zip(self.ranges, grid, strict=True)}


@final
class Solver:
    """Finds the size behind the numbers that the members of a domain show.

    Attributes:
        known: sizes met so far that are not polynomials in the lengths, such as those after a strided convolution.
    """

    def __init__(self, domain: Domain, members: Sequence[tuple[int, ...]]) -> None:
        self.domain = domain
        self.members = tuple(members)
        self.lengths = [dict(zip(domain.names, m, strict=True)) for m in members]
        self.known: list[Size] = []
        self._points = domain.points()
        # True when no length of the domain is missing, so that nothing is guessed.
        self.complete = len(self.members) == math.prod(len(r.lengths()) for r in domain.ranges)
        columns = np.asarray(members, np.int64).reshape(len(members), len(domain.names))
        moving = [i for i in range(len(domain.names)) if len(set(columns[:, i].tolist())) > 1]
        self._bases = list(_bases([domain.names[i] for i in moving]))
        # Sizes of what goes in steps of 2 to 4: the lengths traced at have all remainders of these.
        self._quotients = [
            (Size.of(domain.names[i]) + shift) // by for i in moving for by in (2, 3, 4) for shift in range(by)
        ]

    def everywhere(self, most: int) -> Solver | None:
        """A solver whose members are all lengths of the domain, if there are no more than ``most``."""
        if math.prod(len(r.lengths()) for r in self.domain.ranges) > most:
            return None
        every = itertools.product(*(reversed(r.lengths()) for r in self.domain.ranges))
        found = Solver(self.domain, list(every))
        found.known = list(self.known)
        return found

    def values(self, size: Extent) -> tuple[int, ...]:
        """What the members show of ``size``."""
        return tuple(int(Size.of(size).at(n)) for n in self.lengths)

    def bounds(self, size: Extent) -> tuple[int, int]:
        """Least and largest value in the domain."""
        found = np.asarray(Size.of(size).at(self._points))
        return int(found.min()), int(found.max())

    def same(self, a: Extent, b: Extent) -> bool:
        """Equal for all lengths of the domain."""
        return a == b or bool(np.all(Size.of(a).at(self._points) == Size.of(b).at(self._points)))

    def learn(self, size: Extent) -> None:
        """Keep a size to recognize it, and what is affine in it, later."""
        if (
            isinstance(size, Size)
            and size not in self.known
            and any(isinstance(a, Quotient) for m, _ in size.terms for a in m)
        ):
            self.known.append(size)

    def find(self, values: Sequence[int], proposals: Iterable[Extent] = ()) -> Extent | None:
        """The size that shows ``values``, or None if there is none, or several that differ."""
        numbers = tuple(int(v) for v in values)
        if len(set(numbers)) == 1:
            return numbers[0]
        found: list[Extent] = [p for p in proposals if self.values(p) == numbers]
        found += self._polynomials(numbers)
        if not found:
            found += self._affine_in(self.known, numbers)
        if not found:
            found += self._affine_in(self._quotients, numbers)
        if not found or any(not self.same(found[0], other) for other in found[1:]):
            return None
        self.learn(found[0])
        return simplify(found[0])

    def _polynomials(self, values: tuple[int, ...]) -> Iterator[Size]:
        """The simplest polynomial in the lengths."""
        wanted = np.asarray(values, np.float64)
        for base in self._bases:
            matrix = np.asarray([[_monomial(m, n) for m in base] for n in self.lengths], np.float64)
            if np.linalg.matrix_rank(matrix) < len(base):
                continue
            solution, *_ = np.linalg.lstsq(matrix, wanted, rcond=None)
            size = _made(dict(zip(base, (int(c) for c in np.rint(solution)), strict=True)))
            if self.values(size) == values:
                yield size
                return

    def _affine_in(self, sizes: Iterable[Size], values: tuple[int, ...]) -> Iterator[Size]:
        for size in sizes:
            e = self.values(size)
            i, j = int(np.argmin(e)), int(np.argmax(e))
            if e[i] == e[j] or (values[j] - values[i]) % (e[j] - e[i]):
                continue
            slope = (values[j] - values[i]) // (e[j] - e[i])
            found = size * slope + (values[i] - slope * e[i])
            if self.values(found) == values:
                yield found


def _bases(names: Sequence[str]) -> Iterator[tuple[Monomial, ...]]:
    """Sets of monomials of growing degree."""
    affine: tuple[Monomial, ...] = ((), *((n,) for n in names))
    pairs: tuple[Monomial, ...] = tuple(itertools.combinations(names, 2))
    squares: tuple[Monomial, ...] = tuple((n, n) for n in names)
    yield affine
    if pairs:
        yield (*affine, *pairs)
    yield (*affine, *squares)
    if pairs:
        yield (*affine, *pairs, *squares)


def _monomial(monomial: Monomial, lengths: Mapping[str, int]) -> int:
    found = 1
    for name in monomial:
        assert isinstance(name, str)
        found *= lengths[name]
    return found


@final
@dataclass(frozen=True)
class Number:
    """A floating-point number that depends on the lengths: ``factor * size ** power``, or its logarithm."""

    size: Size
    power: float = 1.0
    factor: float = 1.0
    log: bool = False


# power, and what undoes it
_POWERS: Final[tuple[tuple[float, Callable[[Any], Any]], ...]] = (
    (1.0, lambda v: v),
    (-1.0, lambda v: 1 / v),
    (0.5, lambda v: v * v),
    (-0.5, lambda v: 1 / (v * v)),
)


def find_number(solver: Solver, values: Sequence[Any], dtype: np.dtype[Any]) -> Number | None:
    """The formula behind a literal that differs between the members, or None.

    Size itself, reciprocal, root and their negatives are recognized exactly, as rounded to ``dtype``; then a constant
    times a power of a length.
    """
    shown = np.asarray(values).astype(np.float64)
    if not np.isfinite(shown).all() or (shown == 0).any() or len(set(np.sign(shown).tolist())) > 1:
        return None
    sign, shown = float(np.sign(shown[0])), np.abs(shown)
    rounded = lambda v: np.asarray(v, np.float64).astype(dtype).astype(np.float64)
    for power, undo in _POWERS:
        size = _exactly(solver, np.rint(undo(shown)), lambda n, p=power: rounded(n**p), shown)
        if size is not None:
            return Number(size, power, sign)
    size = _exactly(solver, np.rint(np.exp(np.minimum(shown, 60))), lambda n: rounded(np.log(n)), shown)
    if size is not None:
        return Number(size, 1.0, sign, log=True)
    bases = [*(Size.of(r.name) for r in solver.domain.ranges), *solver.known]
    precision = 4 * float(dtypes.float_info(dtype).eps)
    for base, (power, _) in itertools.product(bases, _POWERS):
        e = np.asarray(solver.values(base), np.float64)
        if (e <= 0).any() or len(set(e.tolist())) == 1:
            continue
        factors = shown / e**power
        if np.ptp(factors) <= precision * factors[0]:
            return Number(base, power, sign * float(factors[0]))
    return None


def _exactly(solver: Solver, numbers: NDArray, made: Callable[[NDArray], NDArray], shown: NDArray) -> Size | None:
    if not np.isfinite(numbers).all() or (numbers < 1).any() or (numbers > 2**31).any():
        return None
    if not np.array_equal(made(numbers), shown):
        return None
    size = solver.find([int(n) for n in numbers])
    return size if isinstance(size, Size) else None
