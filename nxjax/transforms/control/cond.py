"""`cond` and `switch`: one of several programs, chosen by an index.

The op's first operand is the index. All branches take the same operands and return results of the same types. Under
`vmap` over the index, the op stays one op with an index per element: each branch works on whole batches, and results
are selected element by element. So its derivative selects among the branches' derivatives, and a branch that was not
taken cannot add a NaN to a gradient, whichever of `grad` and `vmap` is outside. Operands that all elements share
(``shared``) are not repeated. Derivatives of such an op write its branches out, and `_Taken` keeps them clean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from nxjax.config import config
from nxjax.errors import BranchTypeError, DtypeError, ParameterError, ProgramError, ShapeError
from nxjax.ops.arithmetic import add
from nxjax.ops.arithmetic import max as maximum
from nxjax.ops.arithmetic import min as minimum
from nxjax.ops.base import NDArray, check_operands, like, move_batch, require, zeros
from nxjax.ops.bitwise import or_
from nxjax.ops.collectives import as_varying
from nxjax.ops.compare import eq, ge, lt
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.reduce import reduce_min
from nxjax.ops.select import select_leading, select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import dynamic_slice
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, PyTree
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Literal, Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of
from nxjax.transforms.custom_jvp import custom_jvp_call
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.jvp import instantiate, jvp_flat
from nxjax.transforms.nested import (
    Mask,
    Nested,
    Thread,
    clamped_branch,
    expand_by_mask,
    forwarded_inputs,
    hoist_all_consts,
    jvp_program,
    mask_and,
    mask_or,
    merge_by_mask,
    not_none_mask,
    pvary_inputs,
    pvary_results,
    select_by_mask,
    select_inputs_and_results,
    split_by_mask,
)
from nxjax.transforms.partial_eval import PartialEvalResult, PartialTrace, partial_eval
from nxjax.transforms.symbolic_zero import SymbolicZero
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program

Branches = tuple[Program, ...]


@final
class Cond(Nested):
    """``branches[index]`` of the other operands. ``index`` is int32; if it is out of range, the last branch runs.

    An index with a shape has the leading axes of every result: the choice is made for each of its elements. It has
    those of every operand, too, but for those that are ``shared``, and operands beyond that mask.
    """

    name = "cond"

    def infer(
        self, index: ArrayType, /, *types: ArrayType, branches: Branches, shared: Mask = ()
    ) -> tuple[ArrayType, ...]:
        if index.dtype != dtypes.int32:
            raise DtypeError("cond: the index must be int32", got=index)
        require(self, bool(branches), "no branches", branches, "at least one")
        for branch in branches:
            check_operands(self, types, branch, "branch")
        first, *rest = (b.out_types for b in branches)
        if any(len(o) != len(first) or not all(a.typematch(b) for a, b in zip(o, first, strict=True)) for o in rest):
            raise ProgramError("cond: branches give different types", got=rest, expected=first)
        if any(t.shape[: index.ndim] != index.shape for t in first):
            raise ShapeError("cond: the index has other leading axes than a result", got=index, expected=first)
        columns = zip(first, *rest, strict=True)
        return tuple(
            ArrayType(t.shape, t.dtype, t.weak, index.vma.union(*(o.vma for o in column)))
            for t, column in zip(first, columns, strict=True)
        )

    def eval(self, index: NDArray, /, *xs: NDArray, branches: Branches, shared: Mask = ()) -> tuple[NDArray, ...]:
        if not index.ndim:
            return tuple(evaluate(clamped_branch(branches, int(index)), xs))
        results = [evaluate(b, xs) for b in branches]
        return tuple(_choose_numpy(index, columns) for columns in zip(*results, strict=True))

    def jvp(self, primals: Arrays, tangents: Tangents, *, branches: Branches, shared: Mask = ()) -> tuple[Any, Any]:
        if any(shared):
            return jvp_flat(lambda index, *xs: _written_out(index, xs, branches, shared), primals, tangents)
        (index, *xs), (_, *ts) = primals, tangents
        mask = not_none_mask(ts)
        pushed, varies = _jvp_branches(branches, mask)
        pushed, captured = hoist_all_consts(pushed)
        out = self(index, *captured, *xs, *(t for t in ts if t is not None), branches=pushed)
        n = len(varies)
        return out[:n], tuple(expand_by_mask(out[n:], varies))

    def partial_eval(
        self, trace: PartialTrace, args: Arrays, known: Mask, *, branches: Branches, shared: Mask = ()
    ) -> tuple[Array, ...]:
        (index, *xs), (index_known, *rest) = args, known
        if any(shared):
            return trace.process_unknown(self, args, {"branches": branches, "shared": shared})
        if not index_known:
            return trace.process_unknown(self, args, {"branches": branches})
        mask = tuple(rest)
        ready: Mask = (True,) * len(branches[0].outputs)
        for b in branches:
            ready = mask_and(ready, partial_eval(b, mask).known_out)
        halves = [partial_eval(b, mask, unknown_out=tuple(not r for r in ready)) for b in branches]
        inputs, late_inputs = split_by_mask(xs, mask)
        n = sum(ready)
        values = tuple(h.known for h in halves)
        if index.ndim:
            # Every branch runs anyway, so each keeps its own residuals, whole.
            slots, places = _own_slots(values, n)
            assert trace.parent is not None
            with use(trace.parent):
                runs = [run(value, inputs) for value in values]
                results = [choose(index, columns) for columns in zip(*(r[:n] for r in runs), strict=True)]
            made = [x for r in runs for x in r[n:]]
        else:
            slots, places = _shared_slots(values, n)
            joined, captured = hoist_all_consts(
                [_to_slots(v, n, slots, mine) for v, mine in zip(values, places, strict=True)]
            )
            out: Arrays = ()
            if joined[0].outputs or any(b.effect for b in joined):
                out = trace.process_known(self, [index, *captured, *inputs], {"branches": joined})
            results, made = out[:n], out[n:]
        if not any(h.is_cut for h in halves):
            return tuple(results)
        # Residuals are slots, and operands that are residuals of any branch.
        order = list(dict.fromkeys(i for h in halves for i in h.sources if i is not None))
        types = [*slots, *(select_by_mask(branches[0].in_types, mask)[i] for i in order)]
        pushed, captured = hoist_all_consts(
            [_unknown_on_slots(h, types, mine, len(slots), order) for h, mine in zip(halves, places, strict=True)]
        )
        operands = [index, *captured, *made, *(inputs[i] for i in order), *late_inputs]
        return tuple(merge_by_mask(results, trace.process_unknown(self, operands, {"branches": pushed}), ready))

    def transpose(self, cts: Tangents, index: Any, /, *args: Any, branches: Branches, shared: Mask = ()) -> Any:
        linear = tuple(isinstance(x, UndefinedPrimal) for x in args)
        nonzero = not_none_mask(cts)
        # A result varies where it does in any branch, and so does its cotangent in all.
        vmas = [
            frozenset[Any]().union(*(t.vma for t in column))
            for column in zip(*(b.out_types for b in branches), strict=True)
        ]
        back, consts = hoist_all_consts([transpose_program(pvary_results(b, vmas), linear, nonzero) for b in branches])
        known = [x for x, l in zip(args, linear, strict=True) if not l]
        given = [ct for ct in cts if ct is not None]
        if any(shared):
            # What all elements share has the sum over those that take a branch, and over all branches.
            parts: list[Arrays] = []
            for i, b in enumerate(back):
                taken = _takes(index, i, len(back))
                mine = [select_leading(taken, zeros(ct.type), ct) for ct in given]
                parts.append(run(b, [*consts, *known, *mine]))
            found = [functools.reduce(add, column) for column in zip(*parts, strict=True)]
        else:
            found = self(index, *consts, *known, *given, branches=back)
        return [None, *expand_by_mask(found, linear)]

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, branches: Branches, shared: Mask = ()
    ) -> tuple[Any, Any]:
        if any(shared):
            return self._batch_shared(axis_name, size, args, dims, branches, shared)
        (index, *xs), (d_index, *d_xs) = args, dims
        if d_index is None:
            mask = not_none_mask(d_xs)
            n = len(branches[0].outputs)
            varies: Mask = (False,) * n
            for b in branches:
                varies = mask_or(varies, batch_program(b, size, mask, None, axis_name)[1])
            mapped = [batch_program(b, size, mask, varies, axis_name)[0] for b in branches]
            mapped, captured = hoist_all_consts([_move_batch_after_index(b, varies, index.ndim) for b in mapped])
            operands = [x if d is None else move_batch(x, d, size) for x, d in zip(xs, d_xs, strict=True)]
            ys = self(index, *captured, *operands, branches=mapped)
            return ys, tuple(index.ndim if v else None for v in varies)
        each = not_none_mask(d_xs)
        if not (all(each) or index.ndim > 1 or not size or index.type.vma or any(b.effect for b in branches)):
            force = (True,) * len(branches[0].outputs)
            mapped, captured = hoist_all_consts([batch_program(b, size, each, force, axis_name)[0] for b in branches])
            which, *operands = [
                x if d is None else move_batch(x, d, size) for x, d in zip((index, *xs), dims, strict=True)
            ]
            shared = (True,) * len(captured) + tuple(not e for e in each)
            return self(which, *captured, *operands, branches=mapped, shared=shared), (0,) * len(force)
        # An index per element: every operand is one per element too, so that no branch shares anything among them.
        everything = (True,) * len(xs)
        force = (True,) * len(branches[0].outputs)
        mapped = tuple(batch_program(b, size, everything, force, axis_name)[0] for b in branches)
        mapped, captured = hoist_all_consts(mapped)
        which, *operands = [move_batch(x, d, size) for x, d in zip((index, *xs), dims, strict=True)]
        return self(which, *captured, *operands, branches=mapped), (0,) * len(force)

    def _batch_shared(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, branches: Branches, shared: Mask
    ) -> tuple[Any, Any]:
        n = len(branches[0].outputs)
        each = _each(shared, len(args) - 1)
        repeated = (True, *each)
        if dims[0] is not None and all(d is None or r for d, r in zip(dims, repeated, strict=True)):
            # One more level of elements.
            mapped = [batch_program(b, size, each, (True,) * n, axis_name)[0] for b in branches]
            mapped, captured = hoist_all_consts(mapped)
            which, *xs = [move_batch(x, d, size) if r else x for x, d, r in zip(args, dims, repeated, strict=True)]
            masks = (True,) * len(captured) + tuple(not e for e in each)
            return self(which, *captured, *xs, branches=mapped, shared=masks), (0,) * n
        types = [x.type if d is None else x.type.without_dim(d) for x, d in zip(args, dims, strict=True)]
        whole = stage(lambda index, *xs: _written_out(index, xs, branches, shared), types, self.name)
        moved = [x if d is None else move_batch(x, d, size) for x, d in zip(args, dims, strict=True)]
        program, varies = batch_program(whole, size, not_none_mask(dims), None, axis_name)
        return tuple(run(program, moved)), tuple(0 if v else None for v in varies)

    def pvary_operands(self, args: Arrays, params: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        index, *xs = args
        vma = index.type.vma
        xs = [as_varying(x, vma) for x in xs]
        branches = [pvary_inputs(b, [x.type.vma for x in xs]) for b in params["branches"]]
        wanted = [vma.union(*(t.vma for t in column)) for column in zip(*(b.out_types for b in branches), strict=True)]
        return (index, *xs), {**params, "branches": tuple(pvary_results(b, wanted) for b in branches)}

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        return {**params, "branches": tuple(thread(b) for b in params["branches"])}, 1, 0

    def stablehlo(
        self, b: Any, out: tuple[ArrayType, ...], index: Any, /, *xs: Any, branches: Branches, shared: Mask = ()
    ) -> Any:
        if len(branches) == 1:
            return tuple(b.program(branches[0], xs))
        if index.type.shape:
            results = [b.program(branch, xs) for branch in branches]
            chosen: Callable[..., Array] = lambda i, *xs: choose(i, xs)
            return tuple(b.inline(chosen, (index, *column)) for column in zip(*results, strict=True))
        regions = [((), lambda b, branch=branch: b.program(branch, xs)) for branch in branches]
        return b.op("stablehlo.case", (index,), out, regions=regions)


def _takes(index: Array, branch: int, count: int) -> Array:
    """The elements of an index that take a branch; one that is out of range takes the last."""
    if branch < count - 1:
        return eq(index, like(index, branch))
    return or_(lt(index, like(index, 0)), ge(index, like(index, branch)))


def _each(shared: Mask, count: int) -> Mask:
    """Which of ``count`` operands are one per element."""
    return tuple(not s for s in shared) + (False,) * (count - len(shared))


def _written_out(index: Array, xs: Arrays, branches: Branches, shared: Mask) -> list[Array]:
    """`Cond` of an index per element, as the selection of its branches' results."""
    own = _Taken(_each(shared, len(xs)))
    results = [run(b, own.operands(_takes(index, i, len(branches)), xs)) for i, b in enumerate(branches)]
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


def _choose_numpy(index: NDArray, columns: Sequence[NDArray]) -> NDArray:
    *others, chosen = columns
    for i, column in enumerate(others):
        where = (index == i).reshape(index.shape + (1,) * (column.ndim - index.ndim))
        chosen = np.where(where, column, chosen)
    return chosen


def choose(index: Array, columns: Arrays) -> Array:
    """Element by element the entry of ``columns`` that ``index`` names, or the last; it has their leading axes."""
    *others, chosen = columns
    for i, column in enumerate(others):
        chosen = select_leading(eq(index, i), chosen, column)
    return chosen


def _jvp_branches(branches: Branches, mask: Mask) -> tuple[Branches, Mask]:
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


def _shared_slots(values: Branches, n: int) -> Slots:
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


def _own_slots(values: Branches, n: int) -> Slots:
    """As `_shared_slots`, with a slot for every residual of every branch."""
    slots: list[ArrayType] = []
    places: list[list[int]] = []
    for value in values:
        own = value.out_types[n:]
        places.append(list(range(len(slots), len(slots) + len(own))))
        slots += own
    return slots, places


def _to_slots(value: Program, n: int, slots: Sequence[ArrayType], mine: Sequence[int]) -> Program:
    """``value`` with its residuals in the slots."""

    def flat(*xs: Array) -> Arrays:
        ys = run(value, xs)
        held = dict(zip(mine, ys[n:], strict=True))
        return [*ys[:n], *(held[i] if i in held else zeros(t) for i, t in enumerate(slots))]

    return value.derive(("cond slots", n, tuple(slots), tuple(mine)), lambda: stage(flat, value.in_types, value.name))


def _unknown_on_slots(
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


def _move_batch_after_index(program: Program, varies: Mask, axes: int) -> Program:
    """``program``, whose batched results have the batch moved the ``axes`` that an index has."""
    if not axes:
        return program

    def moved(y: Array) -> Array:
        return transpose(y, permutation=(*range(1, axes + 1), 0, *range(axes + 1, y.ndim)))

    def flat(*xs: Array) -> Arrays:
        return [moved(y) if v else y for y, v in zip(run(program, xs), varies, strict=True)]

    return program.derive(("moved", varies, axes), lambda: stage(flat, program.in_types, program.name))


cond_op = Cond()


@api_boundary
def cond(
    pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: PyTree, **old: PyTree
) -> PyTree:
    """``true_fun(*operands)`` if ``pred`` else ``false_fun(*operands)``; only one of them runs.

    Args:
        pred: boolean scalar; a number means "is not zero".
        true_fun, false_fun: functions with results of the same structure and types.
        *operands: pytrees; ``operand=x`` is accepted for a single one, and so is the old order
            ``cond(pred, true_operand, true_fun, false_operand, false_fun)``.

    Raises:
        BranchTypeError: the two results differ in structure or type.
        ParameterError: not two functions, or unknown arguments.
        ShapeError, DtypeError: ``pred`` is not a boolean or number without dimensions.

    >>> float(cond(True, lambda x: x + 1, lambda x: x - 1, 1.0))
    2.0
    """
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        # The former order: cond(pred, true_operand, true_fun, false_operand, false_fun).
        yes, no = false_fun, operands[1]
        pair = (true_fun, operands[0])
        return cond(pred, lambda xs: yes(xs[0]), lambda xs: no(xs[1]), pair)
    if not (callable(true_fun) and callable(false_fun)):
        raise ParameterError(
            "cond: needs two functions",
            got=f"{type(true_fun).__name__} and {type(false_fun).__name__}",
            fix="cond(pred, true_fun, false_fun, *operands)",
        )
    if "operand" in old:
        if operands:
            raise ParameterError("cond: operands given twice", got="positions and operand=")
        operands = (old.pop("operand"),)
    old.pop("linear", None)
    if old:
        raise ParameterError("cond: unknown arguments", got=", ".join(old))
    value = as_value(pred, "cond: pred")
    if value.shape:
        raise ShapeError("cond: pred must be a scalar", got=value.type, fix="use nx.where to choose element by element")
    if value.dtype not in dtypes.NUMERIC:
        raise DtypeError("cond: pred must be boolean or a number", got=value.type)
    if value.dtype != dtypes.bool_:
        value = convert_element_type(value, dtype=dtypes.bool_)
    index = convert_element_type(value, dtype=dtypes.int32)
    return _choose_branch("cond", index, (false_fun, true_fun), operands, ("false_fun", "true_fun"))


@api_boundary
def switch(
    index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: PyTree, operand: PyTree = tree.NOT_GIVEN
) -> PyTree:
    """``branches[index](*operands)``; the index is clamped into range.

    Args:
        index: an integer without dimensions.
        branches: functions of ``operands`` whose results have one structure, shape and dtype.
        operands: pytrees of arrays; ``operand=x`` is accepted for a single one.

    Raises:
        BranchTypeError: the branches' results differ in structure or type.
        ParameterError: not a sequence of functions, or operands given twice.
        ShapeError, DtypeError: ``index`` is not an integer scalar.

    >>> float(switch(1, [lambda x: x, lambda x: x * 10], 2.0))
    20.0
    """
    functions = tuple(branches)
    if not functions or not all(callable(f) for f in functions):
        raise ParameterError("switch: needs a sequence of functions", got=f"{len(functions)} branches")
    if operand is not tree.NOT_GIVEN:
        if operands:
            raise ParameterError("switch: operands given twice", got="positions and operand=")
        operands = (operand,)
    value = as_value(index, "switch: index")
    if value.shape:
        raise ShapeError("switch: the index must be a scalar", got=value.type)
    if value.dtype not in dtypes.INTEGER:
        raise DtypeError("switch: the index must be an integer", got=value.type)
    if len(functions) == 1:
        return functions[0](*operands)
    if value.dtype != dtypes.int32:
        if value.dtype in dtypes.UNSIGNED:
            # The most that int32 holds, too, and no more than the index's own dtype does.
            most = min(len(functions) - 1, int(dtypes.integer_info(value.dtype).max))
            value = minimum(value, wrap(np.asarray(most, value.dtype)))
        value = convert_element_type(value, dtype=dtypes.int32)
    last = wrap(np.asarray(len(functions) - 1, np.int32))
    clamped = minimum(maximum(value, wrap(np.asarray(0, np.int32))), last)
    return _choose_branch("switch", clamped, functions, operands, [f"branch {i}" for i in range(len(functions))])


def _choose_branch(
    where: str, index: Array, functions: Sequence[Callable[..., Any]], operands: tuple[Any, ...], names: Sequence[str]
) -> Any:
    if config.disable_jit and isinstance(index, DeviceArray):
        return functions[int(index.numpy())](*operands)
    leaves, treedef = tree.flatten(operands)
    vma = index.type.vma
    xs = [as_varying(as_value(x, where), vma) for x in leaves]
    types = [x.type for x in xs]
    arg_names = tree.path_names(operands, "operands")
    flats = [FlatFunction(f, treedef) for f in functions]
    programs = [stage(f, types, name_of(f.function, where), arg_names) for f in flats]
    out_def = _one_structure(where, names, [f.out_def for f in flats])
    paths = tree.path_names(tree.unflatten(out_def, range(out_def.num_leaves)), "result")
    columns = zip(*(p.out_types for p in programs), strict=True)
    wanted = [_common_type(where, path, names, column) for path, column in zip(paths, columns, strict=True)]
    if vma:
        wanted = [t.with_vma(t.vma | vma) for t in wanted]
    branches, consts = hoist_all_consts(programs)
    if vma:
        # Devices may take different branches: what they share with each other, they share outside. So this comes before
        # results are made to vary, whose transpose is a sum over all devices.
        branches = tuple(pvary_inputs(b, [vma] * len(b.inputs)) for b in branches)
        consts = [as_varying(c, vma) for c in consts]
    branches = tuple(_converted(b, wanted) for b in branches)
    every = (*consts, *xs)
    handed = _forwarded_operands(branches, every)
    branches = tuple(select_inputs_and_results(b, b.inputs, [x is None for x in handed]) for b in branches)
    out = iter(cond_op(index, *every, branches=branches))
    return tree.unflatten(out_def, [next(out) if x is None else x for x in handed])


def _one_structure(where: str, names: Sequence[str], found: Sequence[tree.TreeDef]) -> tree.TreeDef:
    for name, out_def in zip(names, found, strict=True):
        if out_def != found[0]:
            raise BranchTypeError(
                f"{where}: results differ in structure",
                got=f"{name} gives {out_def}",
                expected=f"{found[0]}, as {names[0]} gives",
            )
    return found[0]


def _forwarded_operands(branches: Branches, operands: Arrays) -> list[Array | None]:
    """The results that do not depend on the choice: what all branches hand on from one operand, or from outside."""
    handed = [
        [
            a.value if isinstance(a, Literal) else None if i is None else operands[i]
            for a, i in zip(b.outputs, forwarded_inputs(b), strict=True)
        ]
        for b in branches
    ]
    return [column[0] if all(_equal(x, column[0]) for x in column) else None for column in zip(*handed, strict=True)]


def _equal(x: Array | None, y: Array | None) -> bool:
    """Whether two operands are one value: the same one, or scalars with the same bits."""
    if x is y:
        return True
    if not (isinstance(x, DeviceArray) and isinstance(y, DeviceArray)) or x.shape or x.type != y.type:
        return False
    return x.dtype in dtypes.NUMERIC and x.numpy().tobytes() == y.numpy().tobytes()


def _common_type(where: str, path: str, names: Sequence[str], types: Sequence[ArrayType]) -> ArrayType:
    """The one type of a result. Weak ones yield to others; of equal dtypes it is weak if the first is, as in JAX."""
    first = types[0]
    vma = first.vma.union(*(t.vma for t in types))
    if all(t.typematch(first) for t in types):
        return ArrayType(first.shape, first.dtype, first.weak, vma)
    strong = {t.dtype for t in types if not t.weak}
    if all(t.shape == first.shape and t.dtype in dtypes.NUMERIC for t in types) and len(strong) <= 1:
        dtype, weak = dtypes.promote(*((t.dtype, t.weak) for t in types))
        if not strong or dtype in strong:
            return ArrayType(first.shape, dtype, weak, vma)
    raise BranchTypeError(
        f"{where}: branches give different types at {path}",
        got="; ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True)),
        expected="equal shapes and dtypes",
        fix="cast with .astype(...)" if all(t.shape == first.shape for t in types) else "give equal shapes",
    )


def _converted(program: Program, wanted: Sequence[ArrayType]) -> Program:
    if all(t.typematch(w) and t.vma == w.vma for t, w in zip(program.out_types, wanted, strict=True)):
        return program
    hoisted, consts = program.hoist_consts()

    def flat(*xs: Array) -> Arrays:
        ys = run(hoisted, [*consts, *xs])
        return [
            as_varying(y if y.type.typematch(w) else convert_element_type(y, dtype=w.dtype, weak=w.weak), w.vma)
            for y, w in zip(ys, wanted, strict=True)
        ]

    return stage(flat, program.in_types, program.name)
