"""Rules of ops that hold programs: calls, loops and branches. Their programs are walked side by side too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays
from nxjax.transforms.bucketing.interpret import interpret, rule, size_of
from nxjax.transforms.bucketing.sizes import Extent
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray
from nxjax.transforms.control.cond import switch
from nxjax.transforms.control.cond_branches import choose
from nxjax.transforms.control.loop_params import Operands
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import while_loop

Vals = Sequence[PaddedArray]


@rule("jit", "checkpoint", "custom_jvp_call", "custom_vjp_call", differing=("program", "rule", "policy", "name"))
def _call(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    # Derivatives were taken before padding was looked at: what is left of a custom rule is the function itself.
    return interpret(c, s.each("program"), xs)


def _arrays(vals: Sequence[PaddedArray]) -> tuple[Array, ...]:
    return tuple(v.array for v in vals)


def _kept(c: Context, s: MemberStep, carry: Sequence[PaddedArray], new: Sequence[PaddedArray]) -> list[Array]:
    """The next carry in the types of the last, whose sizes it must have."""
    found: list[Array] = []
    for old, v in zip(carry, new, strict=True):
        if not all(c.solver.same(a, b) for a, b in zip(old.sizes, v.sizes, strict=True)):
            raise s.refuse(
                "the carry changes its size from step to step", "keep its shape", got=f"{old.sizes}, {v.sizes}"
            )
        same = v.array.type.typematch(old.array.type) or v.array.dtype not in dtypes.NUMERIC
        found.append(
            v.array if same else ops.convert_element_type(v.array, dtype=old.array.dtype, weak=old.array.weak_type)
        )
    return found


@rule("scan", differing=("body", "length"))
def _scan(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    loop, bodies = s.params["loop"], s.each("body")
    _, consts, carry, sequences = loop.split(xs)
    length = size_of(c, s.each("length"), [x.sizes[0] for x in sequences], s)
    y_sizes: list[tuple[Extent, ...]] = []

    def step(state: Arrays, slices: Any) -> tuple[Any, Any]:
        place, rows = slices
        old = [PaddedArray(a, v.sizes) for a, v in zip(state, carry, strict=True)]
        row_vals = [PaddedArray(a, v.sizes[1:]) for a, v in zip(rows, sequences, strict=True)]
        after, ys = loop.results(interpret(c, bodies, [*consts, *old, *row_vals]))
        y_sizes[:] = [v.sizes for v in ys]
        new = _kept(c, s, carry, after)
        if not isinstance(length, int):
            # Steps in the padding leave the carry as it is.
            counts = ops.lt(place, c.value(length))
            new = [ops.select_n(counts, a, b) for a, b in zip(state, new, strict=True)]
        return tuple(new), _arrays(ys)

    place = ops.iota(dtype=dtypes.int32, shape=(len(loop.step_indices()),), dimension=0)
    final, ys = scan(
        step, _arrays(carry), (place, _arrays(sequences)), loop.length, reverse=loop.reverse, unroll=loop.unroll
    )
    ends = [PaddedArray(a, v.sizes) for a, v in zip(final, carry, strict=True)]
    return [*ends, *(PaddedArray(a, (length, *sizes)) for a, sizes in zip(ys, y_sizes, strict=True))]


@rule("while", differing=("cond", "body"))
def _while(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    operands = s.params["loop"].split(xs)
    carry, conds, bodies = operands.carry, s.each("cond"), s.each("body")

    def after(state: Arrays) -> Operands[PaddedArray]:
        return operands._replace(carry=[PaddedArray(x, v.sizes) for x, v in zip(state, carry, strict=True)])

    def holds(state: Arrays) -> Array:
        return interpret(c, conds, after(state).cond_inputs)[0].array

    def body(state: Arrays) -> tuple[Array, ...]:
        return tuple(_kept(c, s, carry, interpret(c, bodies, after(state).body_inputs)))

    return after(while_loop(holds, body, _arrays(carry))).carry


@rule("cond", differing=("branches",))
def _cond(c: Context, s: MemberStep, index: PaddedArray, *xs: PaddedArray) -> Vals:
    columns = list(zip(*s.each("branches"), strict=True))
    sizes: list[list[tuple[Extent, ...]]] = []

    def branch(programs: Sequence[Any]) -> list[Array]:
        out = interpret(c, programs, xs)
        sizes.append([v.sizes for v in out])
        return [v.array for v in out]

    if index.ndim:
        # One choice per element of a batch: every branch runs.
        results = [branch(programs) for programs in columns]
        arrays: Arrays = [choose(index.array, column) for column in zip(*results, strict=True)]
    else:
        arrays = switch(index.array, [lambda p=programs: branch(p) for programs in columns])
    for other in sizes[1:]:
        for mine, theirs in zip(sizes[0], other, strict=True):
            if not all(c.solver.same(m, t) for m, t in zip(mine, theirs, strict=True)):
                raise s.refuse("branches give results of different sizes", "give them one shape")
    return [PaddedArray(array, size) for array, size in zip(arrays, sizes[0], strict=True)]
