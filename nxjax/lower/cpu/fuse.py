"""What becomes one kernel: a walk from a wanted value down its graph, over one index space.

The space is the wanted value's own, with the reduced dimensions of a reduction that the value is made of behind it (a
mean), or with those of its dimensions as reduced ones along which a reduction below it is repeated (softmax). Every
value met on the way is looked at from the space: a `Lazy` at an affine index. Three things interrupt the walk:

    Refine    a reshape needs a dimension of the space in two factors; the walk starts again with those
    Apart     a value must be memory first: another reduction, a dear value that would be made over and over,
              a product of which only a part is read; it gets a kernel of its own, and the walk starts again
    Parted    one part of the space sees one piece of a concatenation, and the rest others; each part has a plan

The walk ends in a `FusionPlan`, or one for each part; `nests` makes a kernel of each.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.expression import Constant
from nxjax.lower.cpu.lazy import (
    FIXED,
    Affine,
    Count,
    Joined,
    Lazy,
    LazyIndex,
    LazyProduct,
    LazyReduce,
    Map,
    Scalar,
    Shaped,
    groups,
    pending,
)
from nxjax.lower.cpu.tape import Ref
from nxjax.lower.cpu.view import View
from nxjax.trace.dtypes import DType

Places = tuple[Affine, ...]

FEW: Final = 4  # repeated less often than this, a value that is not very dear is made again rather than stored
SMALL: Final = 8  # so many times smaller values are stored wherever they are needed again
PARTS: Final = 9  # of a space, at most: a shift along two dimensions has as many


class Refine(Exception):
    """Dimension ``dim`` of the space (of ``sizes``) is wanted in two; the faster one has ``inner`` elements."""

    def __init__(self, sizes: Sequence[int], dim: int, inner: int) -> None:
        self.sizes = tuple(sizes)
        self.dim = dim
        self.inner = inner


class Apart(Exception):
    """``value`` must be memory before the kernel that was being planned."""

    def __init__(self, value: Lazy) -> None:
        self.value = value


class Parted(Exception):
    """From index ``at`` of dimension ``dim`` on, the space sees another piece of ``value``."""

    def __init__(self, dim: int, at: int, value: Joined) -> None:
        self.dim = dim
        self.at = at
        self.value = value


@final
@dataclass(frozen=True, slots=True)
class Counted:
    """An affine function of the space's index, as a number of ``dtype``."""

    dtype: DType
    place: Affine


What = Constant | Counted | Map | LazyReduce | LazyProduct


@final
class FusionPlan:
    """One kernel in the making.

    Attributes:
        sizes: of the space.
        reduced: dimensions of it that reductions remove.
        targets, where: the wanted values, of one shape, and their place for an index of the space.
        views: memory that is read, as views of the space's shape.
        nodes: what is computed; arguments count nodes from 0 and views from -1 downwards.
        results: the targets' nodes or views.
        made: place and node of each value on the way, operands first.
        order: all values on the way, operands first.
        product: what the kernel is an epilogue of.
    """

    def __init__(
        self, targets: Sequence[Lazy], sizes: Sequence[int], where: Places, reduced_sizes: Sequence[int] | None
    ) -> None:
        self.targets = targets
        self.sizes = list(sizes)
        self.where = where
        self.reduced: list[int] = []
        self.views: list[View] = []
        self.nodes: list[tuple[What, tuple[int, ...]]] = []
        self.made: dict[Lazy, tuple[Places, int]] = {}
        self.order: dict[Lazy, None] = {}
        self.product: LazyProduct | None = None
        self._reduced_sizes = reduced_sizes
        self._fixed = isa.current().reproducible
        self._open = True  # whether reduced dimensions may still be chosen
        self._seen: dict[tuple[int, Places], int] = {}
        self._weights: dict[Lazy, int] = {}
        self._known_views: dict[tuple[object, ...], int] = {}
        self.results = [self.visit(x, where) for x in targets]

    # --- the walk ---

    def visit(self, x: Lazy, at: Places) -> int:
        """The value of ``x`` at ``at``."""
        key = (id(x), at)
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._visit(x, at)
        return found

    def _visit(self, x: Lazy, at: Places) -> int:
        if x.view is not None:
            return self._view(x.view, at)
        if isinstance(x, LazyIndex):
            found = self.visit(x.args[0], tuple([composed(p, at) for p in x.places]))
        elif isinstance(x, Shaped):
            found = self.visit(x.args[0], self._reshaped(x, at))
        elif isinstance(x, Joined):
            found = self._joined(x, at)
        elif isinstance(x, Scalar):
            return self._node(Constant(x.data, x.dtype), ())
        elif isinstance(x, Count):
            return self._node(Counted(x.dtype, at[x.dimension]), ())
        else:
            if x in self.made and self.weight(x) > knobs.FUSE_AGAIN():
                raise Apart(x)
            if isinstance(x, LazyReduce):
                found = self._reduce(x, at)
            elif isinstance(x, LazyProduct):
                found = self._product(x, at)
            else:
                assert isinstance(x, Map)
                if x not in self.targets:
                    self._check_repeated(x, at)
                args = tuple([self.visit(a, at) for a in x.args])
                found = self._node(x, args)
            self.made.setdefault(x, (at, found))
        self.order[x] = None
        return found

    def _node(self, what: What, args: tuple[int, ...]) -> int:
        self.nodes.append((what, args))
        if len(self.nodes) > knobs.FUSE_MOST():
            # Something in the middle gets a kernel of its own.
            inner = [x for x in self.made if isinstance(x, Map) and x not in self.targets]
            if inner:
                raise Apart(max(inner, key=lambda x: min(x.height, self.targets[0].height - x.height)))
        return len(self.nodes) - 1

    def _view(self, v: View, at: Places) -> int:
        offset, strides = v.ref.offset, [0] * len(self.sizes)
        for (start, steps), stride in zip(at, v.strides, strict=True):
            offset += start * stride
            for dim, step in steps:
                strides[dim] += step * stride
        key = (v.ref.buffer, offset, v.ref.moves, v.dtype, tuple(s for s in enumerate(strides) if s[1]))
        found = self._known_views.get(key)
        if found is None:
            self.views.append(View(Ref(v.ref.buffer, offset, v.ref.moves), (), tuple(strides), v.dtype))
            found = self._known_views[key] = -len(self.views)
        return found

    def strides(self, view: View) -> tuple[int, ...]:
        """Bytes of a view per dimension of the space, also of those that came later than it."""
        return (*view.strides, *([0] * (len(self.sizes) - len(view.strides))))

    def weight(self, x: Lazy) -> int:
        """What an element takes to make from what is memory now, in additions."""
        if x.view is not None:
            return 0
        found = self._weights.get(x)
        if found is None:
            found = x.own + sum([self.weight(a) for a in x.args])
            if isinstance(x, LazyReduce):
                found *= x.args[0].size // max(x.size, 1)
            self._weights[x] = found = min(found, 1 << 20)
        return found

    def _used(self, at: Places) -> set[int]:
        """Dimensions of the space that a place depends on."""
        return {dim for _, steps in at for dim, _ in steps}

    def _check_repeated(self, x: Lazy, at: Places) -> None:
        """A dear value that does not vary along an outer dimension would be made for each index of it."""
        used = self._used(at)
        inner = max(used, default=-1)
        again = math.prod([n for d, n in enumerate(self.sizes) if d not in used and d < inner])
        most = knobs.FUSE_AGAIN()
        if self.weight(x) > most and (again >= FEW or (again - 1) * self.weight(x) > FEW * most):
            raise Apart(x)

    def _reduce(self, x: LazyReduce, at: Places) -> int:
        if self.product is not None:
            raise Apart(self.product)
        arg = x.args[0]
        wanted = [arg.shape[a] for a in x.axes]
        used = self._used(at)
        unused = [d for d, n in enumerate(self.sizes) if d not in used and n != 1]
        if self._open:
            if not unused:
                first = len(self.sizes)
                self.sizes += self._reduced_sizes or wanted
                self.reduced = list(range(first, len(self.sizes)))
                unused = [d for d in self.reduced if self.sizes[d] != 1]
                self._open = False
            elif math.prod(wanted) <= knobs.FUSE_ROW() and unused[0] > max(used, default=-1):
                self.reduced = unused
                self._open = False
        reduced = [d for d in self.reduced if self.sizes[d] != 1]
        sizes = [self.sizes[d] for d in reduced]
        if self._open or unused != reduced or math.prod(sizes) != math.prod(wanted):
            raise Apart(x)
        alike = sizes == [n for n in wanted if n != 1]
        if self._fixed and not alike:
            raise Apart(x)  # the order of its sums hangs on the dimensions that it has
        if alike:
            dims = iter(reduced)
            found: list[Affine] = [FIXED if n == 1 else (0, ((next(dims), 1),)) for n in wanted]
        else:  # the same elements, with the dimensions cut otherwise
            terms, step = list[tuple[int, int]](), 1
            for d in reversed(reduced):
                terms.append((d, step))
                step *= self.sizes[d]
            found = self._digits((0, tuple(terms)), wanted, x)
        along, rest = dict(zip(x.axes, found, strict=True)), iter(at)
        full = tuple([along[i] if i in along else next(rest) for i in range(len(arg.shape))])
        ref = self.visit(arg, full)
        return self._node(x, (ref,))

    def _joined(self, x: Joined, at: Places) -> int:
        """The piece of a concatenation that all of the space sees."""
        offset, steps = at[x.axis]
        ends = [(self.sizes[d] - 1) * k for d, k in steps]
        first, last = (offset + sum(pick(e, 0) for e in ends) for pick in (min, max))
        i = bisect.bisect_right(x.starts, first) - 1
        behind = x.starts[i] + x.args[i].shape[x.axis]
        if last < behind:
            place = (offset - x.starts[i], steps)
            return self.visit(x.args[i], (*at[: x.axis], place, *at[x.axis + 1 :]))
        if len(steps) == 1 and steps[0][1] == 1:
            raise Parted(steps[0][0], behind - offset, x)
        raise Apart(x)

    def _product(self, x: LazyProduct, at: Places) -> int:
        """An element of a product that is still to be made; the kernel is then the product's own."""
        whole = tuple([FIXED if n == 1 else (0, ((d, 1),)) for d, n in enumerate(self.sizes)])
        if self.product is not None or self.reduced or at != whole or tuple(self.sizes) != x.shape:
            raise Apart(x)
        self.product = x
        self._open = False
        return self._node(x, ())

    # --- reshapes ---

    def _reshaped(self, x: Shaped, at: Places) -> Places:
        """The place in the operand of a reshape."""
        old = x.args[0].shape
        places: list[Affine] = [FIXED] * len(old)
        if 0 in old:
            return tuple(places)
        for left, right in groups(old, x.shape):
            offset, terms, step = 0, list[tuple[int, int]](), 1
            for d in reversed(right):
                start, steps = at[d]
                offset += start * step
                terms += [(dim, k * step) for dim, k in steps]
                step *= x.shape[d]
            linear = (offset, tuple(sorted(terms)))
            if len(left) == 1:
                places[left[0]] = linear
            else:
                for d, place in zip(left, self._digits(linear, [old[d] for d in left], x), strict=True):
                    places[d] = place
        return tuple(places)

    def _digits(self, linear: Affine, sizes: Sequence[int], x: Lazy) -> list[Affine]:
        """The digits of a linear index in mixed radix ``sizes``, if each is affine in the space's dimensions."""
        offset, steps = linear
        apart = Apart(x.args[0] if isinstance(x, Shaped) and x.args[0].view is None else x)
        terms = sorted(steps, key=lambda t: t[1])
        if offset:  # a step down begins at one: no place is negative
            raise apart
        found: list[Affine] = []
        below, i = 1, 0  # the product of the sizes that are done, and how many terms are
        for n in reversed(sizes):
            digit: list[tuple[int, int]] = []
            while n != 1 and i < len(terms) and terms[i][1] < below * n:
                dim, step = terms[i]
                size = self.sizes[dim]
                if step % below:
                    raise apart
                if step * size > below * n:  # it goes on into the next digit
                    inner = below * n // step
                    if below * n % step or size % inner:
                        raise apart
                    if self._fixed and dim in self.reduced:
                        raise apart
                    raise Refine(self.sizes, dim, inner)
                digit.append((dim, step // below))
                i += 1
            assert sum((self.sizes[d] - 1) * k for d, k in digit) < n, "places that are met twice"
            found.append((0, tuple(sorted(digit))))
            below *= n
        if i < len(terms):
            raise apart
        return found[::-1]

    # --- what else is stored ---

    def extras(self) -> list[Lazy]:
        """Values that are needed again after this kernel and are not cheap: it stores them too.

        Raises:
            Apart: such a value is not made once for each of its elements here.
        """
        gone: dict[Lazy, int] = {}  # how many of those that hold a value are done with it after this kernel
        found: list[Lazy] = []
        for x in reversed(self.order):
            later = x not in self.targets and x.refs > gone.get(x, 0)
            if later:
                if x not in self.made or self._cheap(x, gone):
                    continue
                if not self._once(x):
                    if self.weight(x) > knobs.FUSE_AGAIN():
                        raise Apart(x)
                    continue
                found.append(x)
            for a in x.args:
                gone[a] = gone.get(a, 0) + 1
        return found

    def _cheap(self, x: Lazy, gone: dict[Lazy, int]) -> bool:
        """Making it again is no dearer than reading it: from memory, from what is much smaller than it, and from what
        is dear and needed by somebody else too, so that it will be memory."""
        cheap, weight, read, todo = knobs.FUSE_CHEAP(), 0, 0, [x]
        seen: set[Lazy] = set()
        while todo and weight <= cheap:
            y = todo.pop()
            if y in seen or (y is not x and y.size * SMALL <= x.size):
                continue
            seen.add(y)
            others = y is not x and y.refs - gone.get(y, 0) > 1
            if y.view is not None or (others and y.own > cheap and y in self.made and self._once(y)):
                read += y.size * y.dtype.itemsize
            elif isinstance(y, LazyReduce | LazyProduct):
                return False
            else:
                weight += y.own
                todo += y.args
        return weight <= cheap and read <= x.size * x.dtype.itemsize * 5 // 4

    def _once(self, x: Lazy) -> bool:
        """Each of its elements is made at one index of the space (of its kept dimensions)."""
        at, _ = self.made[x]
        seen: set[int] = set()
        for (offset, steps), n in zip(at, x.shape, strict=True):
            # No place is met twice, so as many as there are elements are all of them.
            if offset or math.prod([self.sizes[d] for d, _ in steps]) != n:
                return False
            seen |= {d for d, _ in steps}
        left = [d for d, n in enumerate(self.sizes) if n != 1 and d not in seen]
        return not left or left == [d for d in self.reduced if self.sizes[d] != 1]


def composed(place: Affine, at: Places) -> Affine:
    """An affine function of affine places."""
    offset, steps = place
    if len(steps) == 1 and steps[0][1] == 1:
        dim = steps[0][0]
        return at[dim] if not offset else (at[dim][0] + offset, at[dim][1])
    found: dict[int, int] = {}
    for dim, step in steps:
        start, inner = at[dim]
        offset += step * start
        for d, k in inner:
            found[d] = found.get(d, 0) + k * step
    return offset, tuple(sorted(found.items()))


def refined(sizes: Sequence[int], where: Places, dim: int, inner: int) -> tuple[list[int], Places]:
    """The space with ``dim`` in two, and the target's place in it."""
    new = [*sizes[:dim], sizes[dim] // inner, inner, *sizes[dim + 1 :]]

    def moved(place: Affine) -> Affine:
        offset, steps = place
        found: list[tuple[int, int]] = []
        for d, k in steps:
            if d == dim:
                found += [(d, k * inner), (d + 1, k)]
            else:
                found.append((d + (d > dim), k))
        return offset, tuple(found)

    return new, tuple([moved(p) for p in where])


def planned(targets: Sequence[Lazy]) -> list[FusionPlan]:
    """The plans for values of one shape: one for each part of it.

    Raises:
        Apart: something must be memory first.
    """
    sizes: Sequence[int] = targets[0].shape
    where: Places = tuple([FIXED if n == 1 else (0, ((d, 1),)) for d, n in enumerate(sizes)])
    reduced_sizes: Sequence[int] | None = None
    found: list[FusionPlan] = []
    rest: list[tuple[Sequence[int], Places]] = []
    while True:
        try:
            found.append(FusionPlan(targets, sizes, where, reduced_sizes))
            if not rest:
                return found
            sizes, where = rest.pop()
        except Refine as cut:
            own = len(sizes)
            if cut.dim < own:
                sizes, where = refined(sizes, where, cut.dim, cut.inner)
            else:
                reduced_sizes, _ = refined(cut.sizes[own:], (), cut.dim - own, cut.inner)
        except Parted as cut:
            # What sums or multiplies is not cut: it may be dear to begin, and dearer to do twice.
            plain = all(isinstance(y, Map) for x in targets for y in pending(x) if y.own)
            if not plain or len(found) + len(rest) + 2 > PARTS:
                raise Apart(cut.value) from None
            after = [*sizes]
            after[cut.dim] -= cut.at
            rest.append((after, tuple([_begun(p, cut.dim, cut.at) for p in where])))
            sizes = [*sizes[: cut.dim], cut.at, *sizes[cut.dim + 1 :]]


def _begun(place: Affine, dim: int, at: int) -> Affine:
    """``place`` for a space that begins ``at`` steps further along ``dim``."""
    return place[0] + sum(k * at for d, k in place[1] if d == dim), place[1]
