"""Walks over programs of several lengths side by side, and writes the masked program for the buckets' sizes.

Finds the meaning of every number that differs between the programs, and calls the rule of each op. Without a rule, an
op is kept unchanged if its operands have no padding, or expanded; otherwise it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError, Source
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import Elementwise, expansion, like
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.core import Array, Arrays, current_trace
from nxjax.trace.program import Atom, Literal, Program
from nxjax.trace.scope import replaying
from nxjax.trace.types import ArrayType
from nxjax.transforms.bucketing.sizes import Extent, Size, find_number, simplify
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray, over, unpadded
from nxjax.transforms.bucketing.walk import MemberWalk

# One value, or one per result of an op that gives several.
Rule = Callable[..., "PaddedArray | Sequence[PaddedArray]"]
RULES: Final[dict[str, Rule]] = {}
# Parameters that a rule takes to differ between the members.
DIVERGED: Final = "bucketed: the function does other things at one length than at another"
UNRECOGNIZED: Final = "bucketed: a number in the program depends on a bucketed length in a way that is not recognized"
# So many lengths are traced, one by one, to have their numbers in a table.
TABLE: Final = 1024
# So many different numbers of a captured array may depend on a length.
MOVING_NUMBERS: Final = 32
_MAY_DIFFER: Final[dict[str, frozenset[str]]] = {}


def rule(*names: str, differing: Sequence[str] = ()) -> Callable[[Rule], Rule]:
    """Decorator: the rule of these ops, called as ``rule(context, step, *values)``.

    ``differing`` are the parameters that it handles where they depend on a length; others must not.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            _MAY_DIFFER[name] = frozenset(differing)
        return function

    return register


def interpret(c: Context, programs: Sequence[Program], args: Sequence[PaddedArray]) -> list[PaddedArray]:
    """The results of the first of ``programs`` on ``args``, with padding kept out; runs under the current trace."""
    walk = MemberWalk(programs, lambda source=None: diverged(c, programs, source))
    env: list[PaddedArray] = [constant_of(c, column) for column in zip(*(p.values for p in programs), strict=True)]
    env += args

    def operand(atoms: Sequence[Atom], source: Source | None = None) -> PaddedArray:
        if isinstance(atoms[0], Literal):
            literals = [a for a in atoms if isinstance(a, Literal)]
            if len(literals) == len(atoms):
                return _literal(c, literals)
        return env[walk.slot(atoms, source)]

    for equations in walk.columns():
        step, first = MemberStep(equations), equations[0]
        with replaying(first.scope, first.source):
            xs = [operand(atoms, first.source) for atoms in zip(*(e.inputs for e in equations), strict=True)]
            found = apply(c, step, xs)
        env += [_checked(c, step, i, y) for i, y in enumerate(found)]
    return [operand(atoms) for atoms in zip(*(p.outputs for p in programs), strict=True)]


def apply(c: Context, step: MemberStep, xs: Sequence[PaddedArray]) -> Sequence[PaddedArray]:
    """One equation."""
    op = step.op
    if not any(x.varying() for x in xs) and _unchanging(step):
        return bind_unmasked(step, xs)
    found = RULES.get(op.name)
    if found is None and isinstance(op, Elementwise):
        found = elementwise
    if found is None:
        if op.has("expand"):
            return expanded(c, step, xs)
        raise step.refuse(
            "has no rule for an operand or result whose size depends on a bucketed length",
            "keep that axis out of it, or compute this part outside of nx.bucketed",
        )
    allowed = _MAY_DIFFER.get(op.name, frozenset[str]())
    for name in op.unpack_params(step.params):
        if name not in allowed and step.differs(name):
            if op.has("expand"):
                return expanded(c, step, xs)
            raise step.refuse(
                f"parameter {name} depends on a bucketed length",
                "make it a constant, or compute this part outside of nx.bucketed",
                got=", ".join(f"{v} at {m}" for v, m in zip(step.each(name), described(c), strict=True)),
            )
    y = found(c, step, *xs)
    return [y] if isinstance(y, PaddedArray) else y


def bind_unmasked(
    step: MemberStep, xs: Sequence[PaddedArray], sizes: Sequence[Sequence[Extent]] | None = None
) -> list[PaddedArray]:
    """The op as it is, on arrays that need no mask; results without padding unless ``sizes`` are given."""
    y = current_trace().process(step.op, [x.array for x in xs], step.params)
    ys: Arrays = y if step.op.multi else [y]
    if sizes is None:
        return [unpadded(a) for a in ys]
    return [PaddedArray(a, tuple(s)) for a, s in zip(ys, sizes, strict=True)]


def elementwise(c: Context, step: MemberStep, *xs: PaddedArray) -> Sequence[PaddedArray]:
    """Element by element: padding stays where it is."""
    shape = step.shapes()[0]
    sizes: list[Extent] = list(shape)
    for x in xs:
        if x.ndim == len(shape):
            sizes = [b if isinstance(a, int) else a for a, b in zip(sizes, x.sizes, strict=True)]
    return bind_unmasked(step, xs, [sizes] * len(step.equations[0].outputs))


def expanded(c: Context, step: MemberStep, xs: Sequence[PaddedArray]) -> Sequence[PaddedArray]:
    """The op by its expansion, made for every member.

    Where that has numbers of no known formula, such as the fixed-point multiplier of an integer mean, it is made for
    every single length, and the numbers are looked up in a table.
    """
    types = [[a.type for a in e.inputs] for e in step.equations]
    try:
        return interpret(c, [expansion(e.op, t, e.params) for e, t in zip(step.equations, types, strict=True)], xs)
    except LoweringError as error:
        solver = c.solver.everywhere(TABLE)
        if error.what != UNRECOGNIZED or solver is None or any(map(step.differs, step.params)):
            raise
    programs: list[Program] = []
    for n in solver.lengths:
        here = [t.with_shape(tuple(int(Size.of(s).at(n)) for s in x.sizes)) for t, x in zip(types[0], xs, strict=True)]
        programs.append(expansion(step.op, here, step.params))
    return interpret(Context(solver, c.lengths), programs, xs)


def is_operand(values: Arrays) -> bool:
    """True for a captured array that is the same for all members, or longer and longer with the length.

    Such a one can be an operand like any other, with its size found from its shapes.
    """
    first = values[0]
    if all(v is first for v in values):
        return True
    if not all(isinstance(v, DeviceArray) and v.dtype == first.dtype and v.ndim == first.ndim for v in values):
        return False
    arrays = [v.numpy() for v in values]
    return all(_is_corner(a, arrays[0]) for a in arrays)


def constant_of(c: Context, values: Arrays) -> PaddedArray:
    """A captured array: an operand, or one of few numbers that depend on the length, such as an index counted from the
    end."""
    first = values[0]
    if is_operand(values):
        sizes = [c.solver.find([v.shape[d] for v in values]) for d in range(first.ndim)]
        if all(s is not None for s in sizes):
            return PaddedArray(first, tuple(s for s in sizes if s is not None))
    elif all(isinstance(v, DeviceArray) and v.type == first.type for v in values):
        columns = np.stack([v.numpy().ravel() for v in values])
        different = np.unique(columns[:, (columns != columns[0]).any(0)], axis=1)
        if first.dtype in dtypes.NUMERIC - dtypes.COMPLEX and different.shape[1] <= MOVING_NUMBERS:
            found = first
            for column in different.T:
                here = wrap((columns == column[:, None]).all(0).reshape(first.shape))
                number = _literal(c, [Literal(wrap(n)) for n in column]).array
                found = ops.select_n(here, found, over(number, first.shape))
            return unpadded(found)
    raise LoweringError(
        "bucketed: an array made outside of nxjax depends on a bucketed length",
        got=", ".join(f"{v.type} at {m}" for v, m in zip(values, described(c), strict=True)),
        expected="that of a shorter length to be the beginning of that of a longer one",
        fix="make it with nx functions inside the function, or pass it as an argument with a bucketed axis",
    )


def _is_corner(part: np.ndarray[Any, Any], full: np.ndarray[Any, Any]) -> bool:
    if any(n > m for n, m in zip(part.shape, full.shape, strict=True)):
        return False
    corner = np.ascontiguousarray(full[tuple(slice(0, n) for n in part.shape)])
    return corner.tobytes() == np.ascontiguousarray(part).tobytes()


def _literal(c: Context, literals: Sequence[Literal]) -> PaddedArray:
    """A scalar in the program, which may be a size in disguise, such as the 1 / n of a mean."""
    first = literals[0]
    numbers = [np.asarray(l.value.numpy()) for l in literals]
    if all(n.tobytes() == numbers[0].tobytes() for n in numbers):
        return unpadded(first.value)
    found: Array | None = None
    if first.type.dtype in dtypes.INTEGER:
        size = c.solver.find([int(n) for n in numbers])
        if size is not None:
            found = ops.convert_element_type(c.value(size), dtype=first.type.dtype, weak=first.type.weak)
    elif first.type.dtype in dtypes.FLOAT:
        number = find_number(c.solver, numbers, first.type.dtype)
        if number is not None:
            found = c.number(number, first.type)
    if found is None and c.solver.complete:
        found = lookup_by_length(c, numbers, first.type)
    if found is None:
        raise LoweringError(
            UNRECOGNIZED,
            got=", ".join(f"{n} at {m}" for n, m in zip(numbers, described(c), strict=True)),
            expected="a polynomial in the lengths, its reciprocal, root or logarithm, or a constant times a power",
            fix="compute it from the shape with nx functions: nx.asarray(x.shape[0]) instead of Python arithmetic",
        )
    return unpadded(found)


def lookup_by_length(c: Context, numbers: Sequence[np.ndarray[Any, Any]], type: ArrayType) -> Array:
    """The number of this length, from all of them."""
    ranges = c.solver.domain.ranges
    table = np.zeros([len(r.lengths()) for r in ranges], type.dtype)
    index: Array | None = None
    for r in ranges:
        place = c.value((Size.of(r.name) - r.low) // r.step)
        count = like(place, len(r.lengths()))
        index = place if index is None else ops.add(ops.mul(index, count), place)
    for member, number in zip(c.solver.members, numbers, strict=True):
        table[tuple((n - r.low) // r.step for n, r in zip(member, ranges, strict=True))] = number
    assert index is not None
    found = ops.reshape(ops.dynamic_slice(wrap(table.ravel()), index, slice_sizes=(1,)), shape=())
    return ops.convert_element_type(found, dtype=type.dtype, weak=type.weak)


def _unchanging(step: MemberStep) -> bool:
    """No result and no parameter differs between the members."""
    first, *rest = step.equations
    types = [v.type for v in first.outputs]
    return all([v.type for v in e.outputs] == types for e in rest) and not any(map(step.differs, first.params))


def _checked(c: Context, step: MemberStep, i: int, y: PaddedArray) -> PaddedArray:
    """A result whose sizes fit what every member has there: the safety net under the rules."""
    shapes = step.shapes(i)
    sizes = tuple(simplify(s) for s in y.sizes)
    fits = y.array.shape == shapes[0] and len(sizes) == len(shapes[0])
    fits = fits and all(c.solver.values(s) == tuple(shape[d] for shape in shapes) for d, s in enumerate(sizes))
    if not fits:
        raise step.refuse(
            "the size of its result could not be followed",
            "use shapes that are polynomials in the bucketed lengths, or a bucket for every length that differs",
            got=", ".join(f"{shape} at {m}" for shape, m in zip(shapes, described(c), strict=True)),
        )
    for s, n in zip(sizes, y.array.shape, strict=True):
        c.solver.learn(s)
        low, high = c.solver.bounds(s)
        if low < 0 or high > n:
            raise step.refuse(
                f"a size between {low} and {high} does not fit the {n} that it is at the bucket's length",
                "do not make what gets longer as the length gets shorter: nx.pad to a fixed size instead",
            )
    wanted = step.equations[0].outputs[i].type
    array = y.array
    if array.type.weak != wanted.weak and wanted.dtype in dtypes.NUMERIC:
        array = ops.convert_element_type(array, dtype=wanted.dtype, weak=wanted.weak)
    return PaddedArray(array, sizes)


def described(c: Context) -> list[str]:
    """The members' lengths, for messages."""
    return [" ".join(f"{k}={v}" for k, v in n.items()) for n in c.solver.lengths]


def diverged(c: Context, programs: Sequence[Program], source: Source | None = None) -> LoweringError:
    """The error for a function that does something else at another length; names the first place."""
    names = described(c)
    got = ", ".join(f"{len(p.equations)} equations at {m}" for p, m in zip(programs, names, strict=True))
    for p, m in zip(programs, names, strict=True):
        pairs = zip(programs[0].equations, p.equations, strict=False)
        here = next((pair for pair in pairs if pair[0].op is not pair[1].op), None)
        if here is not None:
            source = source or here[0].source
            got = f"{here[0].op.name} at {names[0]}, {here[1].op.name} at {m}"
            break
    return LoweringError(
        DIVERGED,
        got=got,
        expected="the same operations for all lengths of one bucket",
        fix="branch on the length with nx.where or nx.cond, put a bucket border where it changes, or raise at_least",
        source=source,
    )


def size_of(c: Context, values: Sequence[int], proposals: Sequence[Extent], step: MemberStep) -> Extent:
    """The size that the members show, or the rule's error."""
    found = c.solver.find(values, proposals)
    if found is None:
        raise step.refuse(
            "a size depends on a bucketed length in a way that is not recognized",
            "use sizes that are polynomials in the lengths, or say which lengths there are with multiple_of",
            got=", ".join(f"{v} at {m}" for v, m in zip(values, described(c), strict=True)),
        )
    return found


def sizes_of(
    c: Context, step: MemberStep, proposals: Sequence[Sequence[Extent]], result: int = 0
) -> tuple[Extent, ...]:
    """The sizes of a result, with what the rule thinks each may be."""
    shapes = step.shapes(result)
    return tuple(size_of(c, [s[d] for s in shapes], p, step) for d, p in enumerate(proposals))
