"""`scan`: a loop with a fixed number of steps, as one op that holds its body once.

The body maps (consts..., carry..., slices of xs...) to (carry..., slices of ys...). Every transform of a scan is a scan
of the transformed body; the only work in a rule is to find out which carries take part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.config import config
from nxjax.errors import CarryTypeError, ParameterError, ShapeError, TreeError, described
from nxjax.ops.base import NDArray, carried, counted, fits, move_batch, require, zeros
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import boundary
from nxjax.trace.core import Array, Linear, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, Var, run
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.carry import carry_of_one_type
from nxjax.transforms.control.scan_bodies import cut_body, jvp_body, transposed_body
from nxjax.transforms.jvp import instantiate
from nxjax.transforms.nested import (
    Groups,
    Mask,
    Nested,
    Thread,
    either,
    handed_on,
    merged,
    narrowed,
    needed,
    parted,
    picked,
    present,
    reached,
    spread,
    to_front,
)
from nxjax.transforms.partial_eval import PartialTrace
from nxjax.transforms.vmap import batched


@final
class Scan(Nested):
    """``length`` steps of ``body``; operands are consts, initial carry and xs, results final carry and ys."""

    name = "scan"
    aliases = {"jaxpr": "body"}

    def infer(
        self,
        *types: ArrayType,
        body: Program,
        num_consts: int,
        num_carry: int,
        length: int,
        reverse: bool,
        unroll: int,
    ) -> tuple[ArrayType, ...]:
        counted(self, "num_consts", num_consts, len(types))
        counted(self, "num_carry", num_carry, len(types) - num_consts)
        require(self, length >= 0, "length", length, "0 or more")
        require(self, unroll >= 1, "unroll", unroll, "1 or more")
        whole = num_consts + num_carry
        if any(t.shape[:1] != (length,) for t in types[whole:]):
            raise ShapeError("scan: xs differ from the length", got=types[whole:], expected=f"leading size {length}")
        fits(self, [*types[:whole], *(t.with_shape(t.shape[1:]) for t in types[whole:])], body, "body")
        carried(self, types[num_consts:whole], body.out_types[:num_carry])
        ys = (t.with_shape((length, *t.shape)) for t in body.out_types[num_carry:])
        return (*body.out_types[:num_carry], *ys)

    def eval(
        self, *xs: NDArray, body: Program, num_consts: int, num_carry: int, length: int, reverse: bool, unroll: int
    ) -> tuple[NDArray, ...]:
        groups = Groups(xs)
        consts, carry, sequences = groups.take(num_consts), groups.take(num_carry), groups.rest()
        ys = [np.zeros((length, *t.shape), t.dtype) for t in body.out_types[num_carry:]]
        for i in reversed(range(length)) if reverse else range(length):
            out = evaluate(body, [*consts, *carry, *(s[i, ...] for s in sequences)])
            carry = out[:num_carry]
            for column, y in zip(ys, out[num_carry:], strict=True):
                column[i, ...] = y
        return (*carry, *ys)

    def jvp(
        self,
        primals: Sequence[Array],
        tangents: Sequence[Array | None],
        *,
        body: Program,
        num_consts: int,
        num_carry: int,
        length: int,
        reverse: bool,
        unroll: int,
    ) -> tuple[Any, Any]:
        mask = present(tangents)
        while True:
            pushed, moves, ys_vary, grown = jvp_body(body, mask, num_consts, num_carry)
            if grown == mask:
                break
            mask = grown
        x, t, m = Groups(primals), Groups(_instantiated(primals, tangents, mask)), Groups(mask)
        operands: list[Any] = []
        for n in (num_consts, num_carry, len(primals) - num_consts - num_carry):
            operands += [*x.take(n), *picked(t.take(n), m.take(n))]
        consts_vary, carry_varies = mask[:num_consts], mask[num_consts : num_consts + num_carry]
        pushed, captured = pushed.close_over()
        out = Groups(
            self(
                *captured,
                *operands,
                body=pushed,
                num_consts=len(captured) + num_consts + sum(consts_vary),
                num_carry=num_carry + sum(carry_varies),
                length=length,
                reverse=reverse,
                unroll=unroll,
            )
        )
        carry, carry_t = out.take(num_carry), spread(out.take(sum(carry_varies)), carry_varies)
        ys, ys_t = out.take(len(ys_vary)), out.rest()
        # Without a turn, tangents of carries stay those that came.
        carry_t = [t if m or not length else None for t, m in zip(carry_t, moves, strict=True)]
        return (*carry, *ys), (*carry_t, *spread(ys_t, ys_vary))

    def partial_eval(
        self,
        trace: PartialTrace,
        args: Sequence[Array],
        known: Mask,
        *,
        body: Program,
        num_consts: int,
        num_carry: int,
        **loop: Any,
    ) -> tuple[Array, ...]:
        cut = cut_body(body, known, num_consts, num_carry)
        groups, masks = Groups(args), Groups(cut.mask)
        (consts, late_consts), (carry, late_carry), (xs, late_xs) = (
            parted(groups.take(n), masks.take(n)) for n in (num_consts, num_carry, len(args) - num_consts - num_carry)
        )
        value, captured = cut.value.close_over()
        counts = {"num_consts": len(captured) + len(consts), "num_carry": len(carry)}
        out: Sequence[Array] = ()
        if value.outputs or value.effect:
            out = trace.outside(self, [*captured, *consts, *carry, *xs], {"body": value, **counts, **loop})
        n = sum(cut.known_out)
        if not (cut.rest.outputs or cut.rest.effect):
            return tuple(out)
        # Residuals that do not change from step to step are computed once, and xs need no second copy.
        assert trace.parent is not None
        with use(trace.parent):
            hoisted = run(cut.prelude, consts)
        rest, captured = cut.rest.close_over()
        fixed = [*captured, *hoisted, *late_consts]
        counts = {"num_consts": len(fixed), "num_carry": len(late_carry)}
        operands = [*fixed, *late_carry, *(xs[i] for i in cut.xs), *out[n:], *late_xs]
        return tuple(merged(out, trace.write(self, operands, {"body": rest, **counts, **loop}), cut.known_out))

    def transpose(
        self,
        cts: Sequence[Array | None],
        *args: Any,
        body: Program,
        num_consts: int,
        num_carry: int,
        length: int,
        reverse: bool,
        unroll: int,
    ) -> Sequence[Array | None]:
        given = tuple(isinstance(x, Linear) for x in args)
        linear = given
        while True:
            carry_linear = reached(body, linear)[:num_carry]
            grown = either(
                linear, (*(False,) * num_consts, *carry_linear, *(False,) * (len(args) - num_consts - num_carry))
            )
            if grown == linear:
                break
            linear = grown
        loop = {"length": length, "unroll": unroll}
        steps = _known_carries(self, args, linear, body, num_consts, num_carry, reverse, loop)
        nonzero = present(cts[num_carry:])
        back, captured = transposed_body(body, linear, nonzero, num_consts, num_carry).close_over()
        groups, masks = Groups(args), Groups(linear)
        consts, m_consts = groups.take(num_consts), masks.take(num_consts)
        carry, m_carry = groups.take(num_carry), masks.take(num_carry)
        xs, m_xs = groups.rest(), masks.rest()
        ct_carry = [zeros(x.type) if ct is None else ct for x, ct, m in zip(carry, cts, m_carry, strict=False) if m]
        operands = [
            *captured,
            *picked(consts, [not m for m in m_consts]),
            *(zeros(x.type) for x in picked(consts, m_consts)),
            *ct_carry,
            *picked(xs, [not m for m in m_xs]),
            *steps,
            *picked(cts[num_carry:], nonzero),
        ]
        found = Groups(
            self(
                *operands,
                body=back,
                num_consts=len(captured) + num_consts - sum(m_consts),
                num_carry=sum(m_consts) + sum(m_carry),
                reverse=not reverse,
                **loop,
            )
        )
        ct_consts = spread(found.take(sum(m_consts)), m_consts)
        ct_init = spread(found.take(sum(m_carry)), m_carry)
        every = [*ct_consts, *ct_init, *spread(found.rest(), m_xs)]
        return [ct if g else None for ct, g in zip(every, given, strict=True)]

    def batch_axis(
        self,
        axis_name: Any,
        size: int,
        args: Sequence[Array],
        dims: Sequence[int | None],
        *,
        body: Program,
        num_consts: int,
        num_carry: int,
        length: int,
        reverse: bool,
        unroll: int,
    ) -> tuple[Any, Any]:
        whole = num_consts + num_carry
        mask = present(dims)
        n_ys = len(body.outputs) - num_carry
        while True:
            force = (*mask[num_consts:whole], *(False,) * n_ys)
            mapped, out = batched(body, size, mask, force, axis_name)
            grown = (*mask[:num_consts], *out[:num_carry], *mask[whole:])
            if grown == mask:
                break
            mask = grown
        mapped, captured = mapped.close_over()
        operands = [
            *captured,
            *to_front(args[:num_consts], dims[:num_consts], size),
            *(
                move_batch(x, d, size) if m else x
                for x, d, m in zip(args[num_consts:whole], dims[num_consts:whole], mask[num_consts:whole], strict=True)
            ),
            *(x if d is None else move_batch(x, d, size, 1) for x, d in zip(args[whole:], dims[whole:], strict=True)),
        ]
        ys = self(
            *operands,
            body=mapped,
            num_consts=len(captured) + num_consts,
            num_carry=num_carry,
            length=length,
            reverse=reverse,
            unroll=unroll,
        )
        carry_dims = tuple(0 if m else None for m in out[:num_carry])
        return ys, (*carry_dims, *(1 if m else None for m in out[num_carry:]))

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        at = params["num_consts"]
        return {**params, "body": thread(params["body"], at, 0), "num_carry": params["num_carry"] + 1}, at, 0

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        body: Program,
        num_consts: int,
        num_carry: int,
        length: int,
        reverse: bool,
        unroll: int,
    ) -> Any:
        groups = Groups(xs)
        consts, carry, sequences = groups.take(num_consts), groups.take(num_carry), groups.rest()
        ys = [b.constant(0, t) for t in out[num_carry:]]
        index = ArrayType((), np.dtype(np.int32))
        per_turn = min(max(unroll, 1), length)
        turns = length // per_turn if length else 0

        def step(b: Any, i: Any, carry: Sequence[Any], ys: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            at = b.simple("subtract", (b.constant(length - 1, index), i), index) if reverse else i
            slices = [_take_row(b, s, at) for s in sequences]
            results = b.program(body, [*consts, *carry, *slices])
            rows = zip(ys, results[num_carry:], strict=True)
            return results[:num_carry], [_put_row(b, column, y, at) for column, y in rows]

        def several(b: Any, i: Any, carry: Sequence[Any], ys: Sequence[Any], n: int) -> tuple[Any, Any, Any]:
            one = b.constant(1, index)
            for _ in range(n):
                carry, ys = step(b, i, carry, ys)
                i = b.simple("add", (i, one), index)
            return i, carry, ys

        i = b.constant(0, index)
        if turns > 1:
            end = turns * per_turn
            state = [i, *carry, *ys]
            types = [x.type for x in state]

            def go_on(b: Any, i: Any, *_: Any) -> Any:
                return b.compare("LT", i, b.constant(end, index), ArrayType((), np.dtype(bool)))

            def turn(b: Any, i: Any, *state: Any) -> Any:
                i, carry, ys = several(b, i, state[:num_carry], state[num_carry:], per_turn)
                return [i, *carry, *ys]

            state = b.op("stablehlo.while", state, tuple(types), regions=[(types, go_on), (types, turn)])
            i, carry, ys = state[0], state[1 : 1 + num_carry], state[1 + num_carry :]
        elif turns == 1:
            i, carry, ys = several(b, i, carry, ys, per_turn)
        _, carry, ys = several(b, i, carry, ys, length - turns * per_turn)
        return (*carry, *ys)


def _take_row(b: Any, x: Any, i: Any) -> Any:
    zero = b.constant(0, i.type)
    row = ArrayType((1, *x.type.shape[1:]), x.type.dtype)
    starts = [i] + [zero] * (len(x.type.shape) - 1)
    taken = b.op("stablehlo.dynamic_slice", (x, *starts), row, f"slice_sizes = {b.ints(row.shape)}")
    return b.simple("reshape", (taken,), ArrayType(x.type.shape[1:], x.type.dtype))


def _put_row(b: Any, column: Any, y: Any, i: Any) -> Any:
    zero = b.constant(0, i.type)
    row = b.simple("reshape", (y,), ArrayType((1, *y.type.shape), y.type.dtype))
    return b.op("stablehlo.dynamic_update_slice", (column, row, i, *[zero] * len(y.type.shape)), column.type)


def _instantiated(primals: Sequence[Array], tangents: Sequence[Array | None], mask: Mask) -> list[Array | None]:
    return [instantiate(t, x) if m else None for x, t, m in zip(primals, tangents, mask, strict=True)]


def _known_carries(
    op: Scan,
    args: Sequence[Any],
    linear: Mask,
    body: Program,
    num_consts: int,
    num_carry: int,
    reverse: bool,
    loop: dict[str, Any],
) -> list[Array]:
    """What the carries that are not linear hold at the start of each step; found by running them alone."""
    whole = num_consts + num_carry
    known = [not m for m in linear]
    if not any(known[num_consts:whole]):
        return []

    def make() -> Program:
        outputs = [
            *picked(body.outputs[:num_carry], known[num_consts:whole]),
            *picked(body.inputs[num_consts:whole], known[num_consts:whole]),
        ]
        wanted = {a for a in outputs if isinstance(a, Var)}
        inputs = picked(body.inputs, known)
        equations = needed(body.equations, wanted, set(inputs))
        return Program(inputs, equations, outputs, body.constvars, body.values, f"known({body.name})")

    alone = body.derive(("scan known", linear, num_consts, num_carry), make)
    n = sum(known[num_consts:whole])
    out = op(
        *picked(args, known),
        body=alone,
        num_consts=sum(known[:num_consts]),
        num_carry=n,
        reverse=reverse,
        **loop,
    )
    return list(out[n:])


scan_op = Scan()


@boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
) -> tuple[Any, Any]:
    """Apply ``f`` along the leading axis of ``xs``, carrying a value from step to step.

    Args:
        f: maps ``(carry, x)`` to ``(carry, y)``; the carry keeps its structure, shapes and dtypes.
        init: the first carry, a pytree.
        xs: pytree of arrays of one leading size, or None.
        length: number of steps; needed when ``xs`` has no leaves.
        reverse: walk from the last element to the first; ``ys`` keep their places.
        unroll: steps per turn of the compiled loop; True unrolls all of it.

    Returns:
        The last carry, and the ``y`` of all steps stacked along a new leading axis.

    Raises:
        CarryTypeError: ``f`` gives a carry of another structure or type than it takes.
        ShapeError: leaves of ``xs`` are scalars or differ in leading size.
        ParameterError: not a function, or an ``unroll`` that is no number of steps.
        TreeError: the function gives no pair.

    >>> import nxjax as nx
    >>> total, sums = scan(lambda c, x: (c + x, c + x), 0.0, nx.arange(4.0))
    >>> float(total), sums.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    if not callable(f):
        raise ParameterError("scan: needs a function", got=type(f).__name__, fix="scan(f, init, xs)")
    x_leaves, x_def = tree.flatten(xs)
    sequences = [as_value(x, "scan: xs") for x in x_leaves]
    n = _length(sequences, xs, length)
    if config.disable_jit and n:
        return _step_by_step(f, init, sequences, x_def, n, reverse)
    slices = [s.type.with_shape(s.shape[1:]) for s in sequences]
    y_defs: list[tree.TreeDef] = []

    def step(carry: Any, slice_leaves: Sequence[Array]) -> tuple[Any, list[Any]]:
        result = f(carry, tree.unflatten(x_def, slice_leaves))
        if not (isinstance(result, (tuple, list)) and len(result) == 2):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TreeError(
                "scan: the function must give a pair",
                got=described(result),
                expected="(carry, y)",
                fix="return carry, None",
            )
        ys, y_def = tree.flatten(result[1])
        y_defs[:] = [y_def]
        return result[0], ys

    carry, carry_def, program = carry_of_one_type("scan", CarryTypeError, init, slices, step, _name(f))
    opened, consts = program.close_over()
    if unroll is True:
        unroll = max(n, 1)
    elif not isinstance(unroll, int) or unroll < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("scan: unroll", got=unroll, expected="a positive int, or a bool")
    # A carry that every step hands on as it is need not be carried, and a ``y`` that is an ``x`` need not be stacked.
    first, rest = len(consts), len(consts) + len(carry)
    sources = handed_on(opened)
    same = [i == first + k for k, i in enumerate(sources[: len(carry)])]
    moves = [not s for s in same]
    taken = [i - rest if i is not None and i >= rest else None for i in sources[len(carry) :]]
    inner = opened.inputs[first:rest]
    order = (*picked(inner, same), *opened.inputs[:first], *picked(inner, moves), *opened.inputs[rest:])
    kept = picked(carry, same)
    out = scan_op(
        *kept,
        *consts,
        *picked(carry, moves),
        *sequences,
        body=narrowed(opened, order, (*moves, *(i is None for i in taken))),
        num_consts=len(kept) + first,
        num_carry=sum(moves),
        length=n,
        reverse=bool(reverse),
        unroll=max(int(unroll), 1),
    )
    ys = iter(out[sum(moves) :])
    return (
        tree.unflatten(carry_def, merged(kept, out[: sum(moves)], same)),
        tree.unflatten(y_defs[0], [next(ys) if i is None else sequences[i] for i in taken]),
    )


def _step_by_step(
    f: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    sequences: Sequence[Array],
    x_def: tree.TreeDef,
    n: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """`scan` as a Python loop, so that every step can be looked at."""
    from nxjax.ops.shape import reshape
    from nxjax.ops.slicing import concatenate
    from nxjax.ops.slicing import slice as slice_op

    def row(x: Array, i: int) -> Array:
        rest = x.shape[1:]
        taken = slice_op(x, start_indices=(i, *(0,) * len(rest)), limit_indices=(i + 1, *rest), strides=None)
        return reshape(taken, shape=rest)

    ys: list[Any] = [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        carry, ys[i] = f(carry, tree.unflatten(x_def, [row(s, i) for s in sequences]))

    def stacked(*column: Any) -> Array:
        values = [as_value(y, "scan") for y in column]
        return concatenate(*(reshape(v, shape=(1, *v.shape)) for v in values), dimension=0)

    return carry, tree.map(stacked, *ys)


def _name(f: Any) -> str:
    return getattr(f, "__name__", "body")


def _length(sequences: Sequence[Array], xs: Any, given: int | None) -> int:
    names = tree.path_names(xs, "xs")
    for name, s in zip(names, sequences, strict=True):
        if not s.shape:
            raise ShapeError(
                f"scan: {name} has no axis to walk along",
                got=s.type,
                expected="at least one axis",
                fix="close over values that are the same in every step",
            )
    sizes = [s.shape[0] for s in sequences]
    if given is not None:
        try:
            length = given.__index__()
        except AttributeError:
            raise ParameterError("scan: length", got=repr(given), expected="an int") from None
        if length < 0:
            raise ParameterError("scan: length", got=length, expected="zero or more")
        if any(s != length for s in sizes):
            rows = "; ".join(f"{n}: {s.type}" for n, s in zip(names, sequences, strict=True))
            raise ShapeError("scan: xs differ from length", got=rows, expected=f"leading size {length}")
        return length
    if not sizes:
        raise ParameterError("scan: the number of steps is unknown", got="xs without leaves", fix="give length=")
    if len(set(sizes)) > 1:
        rows = "; ".join(f"{n}: {s.type}" for n, s in zip(names, sequences, strict=True))
        raise ShapeError("scan: xs differ in leading size", got=rows, expected="one size")
    return sizes[0]
