"""Constant folding: equations whose operands are all known are computed by NumPy when the program is lowered.

A known value that repeats along an axis is kept with size 1 there, so that ``ones((1024, 1024)) * 2`` costs one
multiplication and four bytes. Names no op but those that move dimensions of such values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config import config
from nxjax.config.dataclass import dataclass
from nxjax.lower.reproducible import by_numpy
from nxjax.ops.base import Elementwise, NDArray
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Op
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType, Shape

# A result larger than this, and larger than all operands together, is left to be computed where the program runs.
LARGEST: Final = 1 << 24
# Marks: what they give is a number, but how it is stored is the point.
KEPT: Final = frozenset(("quantize_weight",))


@final
@dataclass(frozen=True)
class FoldedValue:
    """A value known at compile time: ``data`` has the rank of ``shape`` and broadcasts to it."""

    data: NDArray
    shape: Shape

    @property
    def full(self) -> NDArray:
        """All elements; a view where they repeat."""
        return np.broadcast_to(self.data, self.shape)


def known(array: NDArray) -> FoldedValue:
    """An array as it is."""
    return FoldedValue(array, array.shape)


def compact(array: NDArray) -> FoldedValue:
    """An array, with size 1 along the axes on which it repeats.

    >>> compact(np.ones((3, 4))).data.shape
    (1, 1)
    """
    data = array
    for axis, n in enumerate(array.shape):
        if n > 1 and data.size and _repeats(data, axis):
            data = data[(slice(None),) * axis + (slice(0, 1),)]
    return FoldedValue(np.ascontiguousarray(data).reshape(data.shape), array.shape)


def _repeats(data: NDArray, axis: int) -> bool:
    if data.strides[axis] == 0:
        return True
    before = (slice(None),) * axis
    first = data[(*before, slice(0, 1))]
    # Most arrays differ at once; few bytes tell.
    return _equal(data[(*before, slice(1, 2))], first) and _equal(data, first)


def _equal(x: NDArray, y: NDArray) -> bool:
    """Bit by bit: 0.0 is not -0.0."""
    if x.dtype in dtypes.COMPLEX:
        return _equal(x.real, y.real) and _equal(x.imag, y.imag)
    word = f"u{x.dtype.itemsize}"
    return bool(np.all(x.view(word) == y.view(word)))


def evaluated(
    op: Op, xs: Sequence[FoldedValue], params: dict[str, Any], types: Sequence[ArrayType], largest: int = LARGEST
) -> list[FoldedValue] | None:
    """The results of ``op``, or None if they are better left alone."""
    # What runs a user's Python waits for the run: it may lie in a branch that is not taken.
    if op.effect or op.name in KEPT or op.has("host") or not op.has("eval"):
        return None
    if config.reproducible and not by_numpy(op, [*(x.data.dtype for x in xs), *(t.dtype for t in types)]):
        return None
    own = _ROWS.get(op.name)
    if own is not None:
        return [own(xs[0], **params)]
    if isinstance(op, Elementwise):
        common = np.broadcast_shapes(*(x.data.shape for x in xs))
        if _too_large(math.prod(common), xs, largest):
            return None
        with np.errstate(all="ignore"):
            y = np.asarray(op.eval(*(np.broadcast_to(x.data, common) for x in xs), **params))
        return [FoldedValue(y, types[0].shape)]
    if any(_too_large(math.prod(t.shape), xs, largest) for t in (*types, *xs)):
        return None  # nor is one number repeated millions of times summed here
    with np.errstate(all="ignore"):
        result: Any = op.eval(*(x.full for x in xs), **params)
    return [compact(np.asarray(y)) for y in (result if op.multi else (result,))]


def _too_large(size: int, xs: Sequence[FoldedValue], largest: int) -> bool:
    return size > largest and size > sum(x.data.size for x in xs)


def _broadcast(x: FoldedValue, shape: Shape, broadcast_dimensions: Sequence[int]) -> FoldedValue:
    order = sorted(range(len(broadcast_dimensions)), key=broadcast_dimensions.__getitem__)
    sizes = [1] * len(shape)
    for d, n in zip(broadcast_dimensions, x.data.shape, strict=True):
        sizes[d] = n
    return FoldedValue(x.data.transpose(order).reshape(sizes), shape)


# Those that need not compute their elements.
_ROWS: Final[dict[str, Callable[..., FoldedValue]]] = {"broadcast_in_dim": _broadcast}


def folded(program: Program, keep: Collection[str] = (), largest: int = LARGEST) -> Program:
    """``program`` with every equation that only reads constants computed; ops named in ``keep`` are left.

    What has more than ``largest`` elements, and more than all operands have in memory, is left too.

    Kept with ``program``.

    >>> import nxjax as nx, nxjax.numpy as np
    >>> p = nx.make_jaxpr(lambda x: x + np.arange(3.0) * 2)(np.zeros(3))
    >>> [e.op.name for e in folded(p).equations]
    ['add']
    """
    how = ("folded", frozenset(keep), largest, config.reproducible)
    return program.derive(how, lambda: _folded(program, frozenset(keep), largest))


def _folded(program: Program, keep: frozenset[str], largest: int) -> Program:
    values: dict[Var, FoldedValue] = {
        v: known(x.numpy())  # pyright: ignore[reportAttributeAccessIssue]
        for v, x in zip(program.constvars, program.values, strict=True)
    }
    made: set[Var] = set()
    left: list[Equation] = []

    def value(a: Atom) -> FoldedValue | None:
        return known(a.value.numpy()) if isinstance(a, Literal) else values.get(a)

    for e in program.equations:
        xs = [value(a) for a in e.inputs]
        ready = [x for x in xs if x is not None]
        found = None
        if len(ready) == len(xs) and e.op.name not in keep:
            found = evaluated(e.op, ready, e.params, [v.type for v in e.outputs], largest)
        if found is None:
            left.append(e)
            continue
        made.update(e.outputs)
        values.update(zip(e.outputs, found, strict=True))
    if not made:
        return program
    return _rebuilt(program, left, values, made)


def _rebuilt(program: Program, left: Sequence[Equation], values: dict[Var, FoldedValue], made: set[Var]) -> Program:
    """The equations that are left, with the values they read as literals, consts, or repeated ones."""
    consts, data = list(program.constvars), list(program.values)
    equations: list[Equation] = []
    atoms: dict[Var, Atom] = {}

    def atom(a: Atom, e: Equation | None) -> Atom:
        if not isinstance(a, Var) or a not in made:
            return a
        if a not in atoms:
            atoms[a] = constant(a, values[a], e)
        return atoms[a]

    def constant(v: Var, x: FoldedValue, e: Equation | None) -> Atom:
        if not x.shape:
            return Literal(wrap(x.data, v.type.weak))
        if x.data.size == x.full.size:
            var = Var(v.type)
            consts.append(var)
            data.append(wrap(x.data.reshape(x.shape), v.type.weak))
            return var
        # One element stays a literal, others lose the axes along which they repeat.
        axes = () if x.data.size == 1 else tuple(i for i, n in enumerate(x.data.shape) if n > 1)
        small = wrap(x.data.reshape([x.data.shape[i] for i in axes]), v.type.weak)
        source: Atom = Literal(small)
        if axes:
            source = Var(small.type)
            consts.append(source)
            data.append(small)
        var = Var(v.type)
        params = {"shape": x.shape, "broadcast_dimensions": axes}
        where = (e.source, e.scope) if e else (None, "")
        equations.append(Equation(broadcast_in_dim, (source,), (var,), params, *where))
        return var

    for e in left:
        inputs = tuple([atom(a, e) for a in e.inputs])
        equations.append(e.replaced(inputs, e.outputs))
    outputs = [atom(a, None) for a in program.outputs]
    return Program(program.inputs, equations, outputs, consts, data, program.name)
