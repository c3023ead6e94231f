"""What the rules of `cond` make of its branches: one program from several, on the same operands and residuals.

The first part is an op with an index per element, written out as a selection of its branches' results. `_Taken` keeps
its derivative clean of elements that do not take a branch. The second part gives all branches one row of tangents, of
residuals, or of batched results. Must not know the op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

from nxjax.config.dataclass import dataclass
from nxjax.ops.base import like, zeros
from nxjax.ops.bitwise import or_
from nxjax.ops.compare import eq, ge, lt
from nxjax.ops.create import iota
from nxjax.ops.reduce import reduce_min
from nxjax.ops.select import choose, select_leading, select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import dynamic_slice
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays
from nxjax.trace.program import Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.custom_jvp import custom_jvp_call
from nxjax.transforms.jvp import instantiate
from nxjax.transforms.nested import jvp_program
from nxjax.transforms.partial_eval import PartialEvalResult
from nxjax.transforms.subprograms import Mask, expand_by_mask, mask_or, select_inputs_and_results
from nxjax.transforms.symbolic_zero import SymbolicZero

Branches = tuple[Program, ...]


def takes(index: Array, branch: int, count: int) -> Array:
    """The elements of an index that take a branch; one that is out of range takes the last."""
    if branch < count - 1:
        return eq(index, like(index, branch))
    return or_(lt(index, like(index, 0)), ge(index, like(index, branch)))


def one_per_element(shared: Mask, count: int) -> Mask:
    """Which of ``count`` operands are one per element."""
    return tuple(not s for s in shared) + (False,) * (count - len(shared))


def written_out(index: Array, xs: Arrays, branches: Branches, shared: Mask) -> list[Array]:
    """`Cond` of an index per element, as the selection of its branches' results."""
    own = _Taken(one_per_element(shared, len(xs)))
    results = [run(b, own.operands(takes(index, i, len(branches)), xs)) for i, b in enumerate(branches)]
    return [choose(index, columns) for columns in zip(*results, strict=True)]


@final
@dataclass(frozen=True)
class _Taken:
    """The derivative of a branch's operands, which are as they were, by elements for which the branch is ``taken``.

    What all elements share has one gradient, so an element for which the branch is not taken must not add a NaN to it.
    Such elements become the first one for which it is. Where there is none, shared operands have no tangent.
    """

    each: Mask
    symbolic_zeros: ClassVar[bool] = True

    def operands(self, taken: Array, xs: Arrays) -> Arrays:
        """``xs``, with this derivative."""
        same = stage(lambda _, *xs: list(xs), [taken.type, *(x.type for x in xs)], "taken")
        return custom_jvp_call(taken, *xs, program=same, num_consts=0, rule=self)

    def __call__(self, primals: Arrays, tangents: Sequence[Any]) -> tuple[list[Array], list[Array | None]]:
        taken, *xs = primals
        size, levels = taken.size, taken.ndim
        flat = reshape(taken, shape=(size,))
        place = iota(dtype=dtypes.int32, shape=(size,), dimension=0)
        first = reduce_min(select_n(flat, like(place, size), place), axes=(0,))
        some = lt(first, like(first, size))
        ys, ts = list(xs), list[Array | None]()
        for i, (x, t, each) in enumerate(zip(xs, tangents[1:], self.each, strict=True)):
            if each:
                one = x.shape[levels:]
                rows = reshape(x, shape=(size, *one))
                row = dynamic_slice(rows, first, *(like(first, 0) for _ in one), slice_sizes=(1, *one))
                row = broadcast_in_dim(row, shape=rows.shape, broadcast_dimensions=tuple(range(rows.ndim)))
                ys[i] = reshape(select_leading(flat, row, rows), shape=x.shape)
            counts = taken if each else some
            ts.append(None if isinstance(t, SymbolicZero) else select_leading(counts, zeros(t.type), t))
        # What derivatives are made of has a derivative too, with NaN where there is no other element.
        return [*self.operands(taken, ys)], ts


def jvp_branches(branches: Branches, mask: Mask) -> tuple[Branches, Mask]:
    """The branches on (operands..., varying tangents...) and which results vary in any of them."""
    pushed = [jvp_program(b, mask) for b in branches]
    varies: Mask = (False,) * len(branches[0].outputs)
    for _, own in pushed:
        varies = mask_or(varies, own)
    return tuple(_fill_tangents(program, own, varies) for program, own in pushed), varies


def _fill_tangents(program: Program, own: Mask, varies: Mask) -> Program:
    """``program``, which gives tangents of its ``own`` results, with zeros for the others of ``varies``."""
    if own == varies:
        return program
    n = len(varies)

    def flat(*xs: Array) -> Arrays:
        ys = run(program, xs)
        tangents = zip(ys[:n], expand_by_mask(ys[n:], own), varies, strict=True)
        return [*ys[:n], *(instantiate(t, y) for y, t, v in tangents if v)]

    return program.derive(("cond filled", varies), lambda: stage(flat, program.in_types, program.name))


Slots = tuple[list[ArrayType], list[list[int]]]


def shared_slots(values: Branches, n: int) -> Slots:
    """Slots for the residuals of all branches, shared among residuals of one type in different branches, and per
    branch the places of its own.

    The type says along which mesh axes a residual varies. A value that all devices share never takes the slot of one
    that each device has for itself: their cotangents are summed in different places.
    """
    slots: list[ArrayType] = []
    places: list[list[int]] = []
    of_type: dict[ArrayType, list[int]] = {}
    for value in values:
        taken: list[int] = []
        used: dict[ArrayType, int] = {}
        for type in value.out_types[n:]:
            key = type.strong()
            known, k = of_type.setdefault(key, []), used.get(key, 0)
            used[key] = k + 1
            if k == len(known):
                known.append(len(slots))
                slots.append(key)
            taken.append(known[k])
        places.append(taken)
    return slots, places


def own_slots(values: Branches, n: int) -> Slots:
    """As `shared_slots`, with a slot for every residual of every branch."""
    slots: list[ArrayType] = []
    places: list[list[int]] = []
    for value in values:
        own = value.out_types[n:]
        places.append(list(range(len(slots), len(slots) + len(own))))
        slots += own
    return slots, places


def to_slots(value: Program, n: int, slots: Sequence[ArrayType], mine: Sequence[int]) -> Program:
    """``value`` with its residuals in the slots."""

    def flat(*xs: Array) -> Arrays:
        ys = run(value, xs)
        held = dict(zip(mine, ys[n:], strict=True))
        return [*ys[:n], *(held[i] if i in held else zeros(t) for i, t in enumerate(slots))]

    return value.derive(("cond slots", n, tuple(slots), tuple(mine)), lambda: stage(flat, value.in_types, value.name))


def unknown_on_slots(
    halves: PartialEvalResult, types: Sequence[ArrayType], mine: Sequence[int], slots: int, order: Sequence[int]
) -> Program:
    """The unknown half on (slots..., operands that are residuals..., unknown operands...)."""
    inputs = [Var(t) for t in types]
    made = iter(mine)
    count = len(halves.sources)
    for v, i in zip(halves.unknown.inputs, halves.sources, strict=False):
        inputs[next(made) if i is None else slots + order.index(i)] = v
    every = [*inputs, *halves.unknown.inputs[count:]]
    return select_inputs_and_results(halves.unknown, every, (True,) * len(halves.unknown.outputs))


def move_batch_after_index(program: Program, varies: Mask, axes: int) -> Program:
    """``program``, whose batched results have the batch moved the ``axes`` that an index has."""
    if not axes:
        return program

    def moved(y: Array) -> Array:
        return transpose(y, permutation=(*range(1, axes + 1), 0, *range(axes + 1, y.ndim)))

    def flat(*xs: Array) -> Arrays:
        return [moved(y) if v else y for y, v in zip(run(program, xs), varies, strict=True)]

    return program.derive(("moved", varies, axes), lambda: stage(flat, program.in_types, program.name))
