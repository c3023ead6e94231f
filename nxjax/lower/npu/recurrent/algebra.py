"""Values of one step of a loop, as polynomials: the same value has the same form, however it was written.

A `StepValue` is a row of features for each element of a batch. Each of its `Segment`s is a sum of products of `Atom`s:
parts of the state or of what a step reads, matrix products of values with constants, and functions of values. So
``n + z * (h - n)`` and ``(1 - z) * n + z * h`` are equal, and taking columns commutes with all of it. Knows no op.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.trace.types import Shape

# A product of atoms, in the order of their numbers; () is that of none, whose coefficient is a constant.
Monomial = tuple["Atom", ...]
# More products than this are no cell.
LARGEST: Final = 32
# Functions of one value.
LOGISTIC, TANH, RELU, EXP, RECIPROCAL = "logistic", "tanh", "relu", "exp", "reciprocal"


class NoForm(Exception):
    """A value that this algebra has no form for."""


@final
@dataclass(frozen=True, eq=False)
class Atom:
    """What is not a sum or product of others.

    Attributes:
        kind: "state" or "row" (of what a step reads), "product" with a constant matrix, or the name of a function.
        place: the number of the state or row.
        columns: those of the state or row that it is, or the matrix of a product.
        inner: what a product or function is of.
    """

    number: int
    kind: str
    place: int
    columns: NDArray
    inner: Segment | None

    @property
    def width(self) -> int:
        return self.inner.width if self.inner is not None and self.kind != "product" else self.columns.shape[-1]


@final
class Segment:
    """Features beside one another: products of atoms with a coefficient per feature. Equal ones are one object."""

    def __init__(self, width: int, terms: dict[Monomial, NDArray]) -> None:
        self.width = width
        self.terms = terms

    @property
    def constant(self) -> NDArray:
        """What it adds to the others' sum."""
        return self.terms.get((), np.zeros(self.width))

    @property
    def sole(self) -> Monomial | None:
        """The one product that it is, with the coefficient 1."""
        (found,) = self.terms if len(self.terms) == 1 else (None,)
        return found if found is not None and np.all(self.terms[found] == 1) else None


@final
@dataclass(frozen=True)
class StepValue:
    """A batch of rows: ``shape``, the axes of it that are the batch's, and the features of the others, flat."""

    shape: Shape
    batch: tuple[int, ...]
    segments: tuple[Segment, ...]

    @property
    def features(self) -> tuple[int, ...]:
        """The axes of features."""
        return tuple(i for i in range(len(self.shape)) if i not in self.batch)

    @property
    def sizes(self) -> Shape:
        """Sizes of the axes of features."""
        return tuple(self.shape[i] for i in self.features)

    @property
    def width(self) -> int:
        return math.prod(self.sizes)

    @property
    def numbers(self) -> NDArray:
        """The number of each feature, by the axes of features."""
        return np.arange(self.width).reshape(self.sizes)


@final
class Algebra:
    """Makes values for a batch of ``batch`` elements, and keeps equal ones one object."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        # Features of what a step reads, by its number.
        self.widths: dict[int, int] = {}
        self._atoms: dict[Any, Atom] = {}
        self._segments: dict[Any, Segment] = {}

    # Segments and atoms.

    def segment(self, width: int, terms: dict[Monomial, NDArray]) -> Segment:
        kept = {m: c for m, c in terms.items() if np.any(c)}
        if len(kept) > LARGEST:
            raise NoForm
        kept = self._sigmoid_by_tanh(width, kept)
        key = width, frozenset((tuple(a.number for a in m), c.tobytes()) for m, c in kept.items())
        return self._segments.setdefault(key, Segment(width, kept))

    def _sigmoid_by_tanh(self, width: int, terms: dict[Monomial, NDArray]) -> dict[Monomial, NDArray]:
        """tanh(x / 2) / 2 + 1 / 2"""
        if len(terms) != 2 or () not in terms or not all(np.all(c == 0.5) for c in terms.values()):
            return terms
        (found,) = (m for m in terms if m)
        if len(found) != 1 or found[0].kind != TANH or found[0].inner is None:
            return terms
        return {(self.function(LOGISTIC, self.scaled(found[0].inner, 2)),): np.ones(width)}

    def _atom(self, kind: str, place: int, columns: NDArray, inner: Segment | None) -> Atom:
        content = hashlib.blake2b(np.ascontiguousarray(columns).tobytes(), digest_size=16).digest()
        key = kind, place, columns.shape, content, id(inner)
        return self._atoms.setdefault(key, Atom(len(self._atoms), kind, place, columns, inner))

    def single(self, atom: Atom) -> Segment:
        return self.segment(atom.width, {(atom,): np.ones(atom.width)})

    def function(self, kind: str, inner: Segment) -> Atom:
        return self._atom(kind, 0, np.zeros(0), inner)

    def scaled(self, x: Segment, factor: NDArray | float) -> Segment:
        return self.segment(x.width, {m: c * factor for m, c in x.terms.items()})

    def added(self, x: Segment, y: Segment) -> Segment:
        terms = dict(x.terms)
        for m, c in y.terms.items():
            terms[m] = terms[m] + c if m in terms else c
        return self.segment(x.width, terms)

    def multiplied(self, x: Segment, y: Segment) -> Segment:
        terms: dict[Monomial, NDArray] = {}
        if len(x.terms) * len(y.terms) > LARGEST:
            raise NoForm
        for m, c in x.terms.items():
            for k, d in y.terms.items():
                both = tuple(sorted((*m, *k), key=lambda a: a.number))
                terms[both] = terms[both] + c * d if both in terms else c * d
        return self.segment(x.width, terms)

    def taken(self, x: Segment, at: NDArray) -> Segment:
        """Columns of a segment."""
        terms: dict[Monomial, NDArray] = {}
        for m, c in x.terms.items():
            # Products that differ may be the same in these columns.
            some = tuple(sorted((self._columns(a, at) for a in m), key=lambda a: a.number))
            terms[some] = terms[some] + c[at] if some in terms else c[at]
        return self.segment(len(at), terms)

    def _columns(self, a: Atom, at: NDArray) -> Atom:
        if a.inner is None or a.kind == "product":
            return self._atom(a.kind, a.place, a.columns[..., at], a.inner)
        return self.function(a.kind, self.taken(a.inner, at))

    # Values.

    def value(self, shape: Shape, segments: Sequence[Segment], batch: tuple[int, ...] | None = None) -> StepValue:
        """A value; where it is not said, the first dimensions are the batch's. One element is no dimension."""
        if batch is None:
            last, size = 0, 1
            while size < self.batch and last < len(shape):
                size *= shape[last]
                last += 1
            batch = tuple(range(last))
        found = StepValue(shape, batch, tuple(segments))
        if math.prod(shape[i] for i in batch) != self.batch or found.width != sum(s.width for s in segments):
            raise NoForm
        return found

    def given(self, kind: str, place: int, shape: Shape) -> StepValue:
        """A state, or what a step reads: its last dimension is that of features."""
        if not shape or not shape[-1] or math.prod(shape[:-1]) != self.batch:
            raise NoForm
        if kind == "row":
            self.widths[place] = shape[-1]
        return self.value(shape, [self.single(self._atom(kind, place, np.arange(shape[-1]), None))])

    def constant(self, x: NDArray, like: StepValue) -> StepValue:
        """A constant with the shape of another value, the same for all elements of the batch."""
        full = np.broadcast_to(x, like.shape).transpose((*like.batch, *like.features))
        rows = full.reshape(self.batch, -1).astype(np.float64)
        if np.any(rows != rows[:1]) or not np.all(np.isfinite(rows)):
            raise NoForm
        return self.value(like.shape, [self.segment(like.width, {(): rows[0]})], like.batch)

    def reshaped(self, x: StepValue, shape: Shape) -> StepValue:
        """The same elements; a batch that is not in front stays where it is, among dimensions of other sizes than 1."""
        if x.batch == tuple(range(len(x.batch))):
            return self.value(shape, x.segments)
        old, new = ([i for i, n in enumerate(s) if n != 1] for s in (x.shape, shape))
        if [x.shape[i] for i in old] != [shape[i] for i in new]:
            raise NoForm
        return self.value(shape, x.segments, tuple(new[old.index(i)] for i in x.batch if x.shape[i] != 1))

    def transposed(self, x: StepValue, permutation: Sequence[int]) -> StepValue:
        order = [a for a in permutation if a in x.features]
        at = x.numbers.transpose([x.features.index(a) for a in order]).reshape(-1)
        shape = tuple(x.shape[a] for a in permutation)
        batch = tuple(i for i, a in enumerate(permutation) if a in x.batch)
        if [a for a in permutation if a in x.batch] != list(x.batch):
            raise NoForm
        return self.value(shape, self.picked(x, at), batch)

    def picked(self, x: StepValue, at: NDArray) -> list[Segment]:
        """The features with these numbers."""
        if np.array_equal(at, np.arange(x.width)):
            return list(x.segments)
        if not len(at):
            raise NoForm
        ends = np.cumsum([s.width for s in x.segments])
        owner = np.searchsorted(ends, at, side="right")
        first = ends - [s.width for s in x.segments]
        runs = np.split(np.arange(len(at)), np.flatnonzero(np.diff(owner)) + 1)
        return [self.taken(x.segments[owner[run[0]]], at[run] - first[owner[run[0]]]) for run in runs]

    def mapped(self, kind: str, x: StepValue) -> StepValue:
        """A function of each element."""
        return self.value(x.shape, [self._mapped(kind, s) for s in x.segments], x.batch)

    def _mapped(self, kind: str, x: Segment) -> Segment:
        if kind == RECIPROCAL and () in x.terms and len(x.terms) == 2 and all(np.all(c == 1) for c in x.terms.values()):
            # 1 / (1 + exp(-x))
            (found,) = (m for m in x.terms if m)
            if len(found) == 1 and found[0].kind == EXP and found[0].inner is not None:
                return self.single(self.function(LOGISTIC, self.scaled(found[0].inner, -1)))
        return self.single(self.function(kind, x))

    def combined(self, x: StepValue, y: StepValue, product: bool) -> StepValue:
        """The sum or product of two values of one shape."""
        if x.shape != y.shape or x.batch != y.batch:
            raise NoForm
        cuts = sorted({int(n) for v in (x, y) for n in np.cumsum([s.width for s in v.segments])})
        parts = [np.arange(a, b) for a, b in zip([0, *cuts[:-1]], cuts, strict=True)]
        make = self.multiplied if product else self.added
        pairs = ((self.picked(v, at)[0] for v in (x, y)) for at in parts)
        return self.value(x.shape, [make(*pair) for pair in pairs], x.batch)

    def product(self, x: StepValue, w: NDArray) -> Segment:
        """All features times a matrix."""
        total = self.segment(w.shape[1], {})
        at = 0
        for s in x.segments:
            rows = w[at : at + s.width].astype(np.float64)
            at += s.width
            if not s.terms:
                continue
            known = list(s.terms) == [()]
            more = {(): s.constant @ rows} if known else {(self._atom("product", 0, rows, s),): np.ones(w.shape[1])}
            total = self.added(total, self.segment(w.shape[1], more))
        return total
