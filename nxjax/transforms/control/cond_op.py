"""The op of `cond` and `switch`: one of several programs, chosen by an index.

The op's first operand is the index. All branches take the same operands and return results of the same types. Under
`vmap` over the index, the op stays one op with an index per element: each branch works on whole batches, and results
are selected element by element. So its derivative selects among the branches' derivatives, and a branch that was not
taken cannot add a NaN to a gradient, whichever of `grad` and `vmap` is outside. Operands that all elements share
(``shared``) are not repeated. Derivatives of such an op write its branches out (`cond_branches`). Knows no function of
the user.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import DtypeError, ProgramError, ShapeError
from nxjax.ops.arithmetic import add
from nxjax.ops.base import NDArray, check_operands, move_batch, require, zeros
from nxjax.ops.collectives import as_varying
from nxjax.ops.select import choose, select_leading
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents, UndefinedPrimal, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.cond_branches import (
    Branches,
    jvp_branches,
    move_batch_after_index,
    one_per_element,
    own_slots,
    shared_slots,
    takes,
    to_slots,
    unknown_on_slots,
    written_out,
)
from nxjax.transforms.jvp import jvp_flat
from nxjax.transforms.nested import Nested, Thread, pvary_inputs, pvary_results
from nxjax.transforms.partial_eval import PartialTrace, partial_eval
from nxjax.transforms.subprograms import (
    Mask,
    clamped_branch,
    expand_by_mask,
    hoist_all_consts,
    mask_and,
    mask_or,
    merge_by_mask,
    not_none_mask,
    select_by_mask,
    split_by_mask,
)
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program


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
            return jvp_flat(lambda index, *xs: written_out(index, xs, branches, shared), primals, tangents)
        (index, *xs), (_, *ts) = primals, tangents
        mask = not_none_mask(ts)
        pushed, varies = jvp_branches(branches, mask)
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
            slots, places = own_slots(values, n)
            assert trace.parent is not None
            with use(trace.parent):
                runs = [run(value, inputs) for value in values]
                results = [choose(index, columns) for columns in zip(*(r[:n] for r in runs), strict=True)]
            made = [x for r in runs for x in r[n:]]
        else:
            slots, places = shared_slots(values, n)
            joined, captured = hoist_all_consts(
                [to_slots(v, n, slots, mine) for v, mine in zip(values, places, strict=True)]
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
            [unknown_on_slots(h, types, mine, len(slots), order) for h, mine in zip(halves, places, strict=True)]
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
                taken = takes(index, i, len(back))
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
            mapped, captured = hoist_all_consts([move_batch_after_index(b, varies, index.ndim) for b in mapped])
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
        each = one_per_element(shared, len(args) - 1)
        repeated = (True, *each)
        if dims[0] is not None and all(d is None or r for d, r in zip(dims, repeated, strict=True)):
            # One more level of elements.
            mapped = [batch_program(b, size, each, (True,) * n, axis_name)[0] for b in branches]
            mapped, captured = hoist_all_consts(mapped)
            which, *xs = [move_batch(x, d, size) if r else x for x, d, r in zip(args, dims, repeated, strict=True)]
            masks = (True,) * len(captured) + tuple(not e for e in each)
            return self(which, *captured, *xs, branches=mapped, shared=masks), (0,) * n
        types = [x.type if d is None else x.type.without_dim(d) for x, d in zip(args, dims, strict=True)]
        whole = stage(lambda index, *xs: written_out(index, xs, branches, shared), types, self.name)
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


def _choose_numpy(index: NDArray, columns: Sequence[NDArray]) -> NDArray:
    *others, chosen = columns
    for i, column in enumerate(others):
        where = (index == i).reshape(index.shape + (1,) * (column.ndim - index.ndim))
        chosen = np.where(where, column, chosen)
    return chosen


cond_op = Cond()
