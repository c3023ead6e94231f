"""`scan`: a loop with a fixed number of steps, from a Python function for one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nxjax.config import config
from nxjax.errors import CarryTypeError, ParameterError, ShapeError
from nxjax.ops.base import move_batch
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate, row
from nxjax.trace import tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Dims, Op
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.wrapping import name_of
from nxjax.transforms.control.carry import stage_loop_body
from nxjax.transforms.control.loop_params import LoopParams, Operands
from nxjax.transforms.control.scan_op import scan_op
from nxjax.transforms.has_aux import check_pair
from nxjax.transforms.subprograms import forwarded_inputs, merge_by_mask, select_by_mask, select_inputs_and_results


@api_boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: PyTree,
    xs: PyTree = None,
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
        reverse: go from the last element to the first; ``ys`` keep their places.
        unroll: steps in one iteration of the compiled loop; True unrolls all of it.

    Returns:
        The last carry, and the ``y`` of all steps stacked along a new leading axis.

    Raises:
        CarryTypeError: ``f`` returns a carry of another structure or type than its input.
        ShapeError: leaves of ``xs`` are scalars or differ in leading size.
        ParameterError: not a function, or ``unroll`` is not a number of steps.
        TreeError: the function does not return a pair.

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

    def step(carry: Any, slice_leaves: Arrays) -> tuple[Any, list[Any]]:
        result = f(carry, tree.unflatten(x_def, slice_leaves))
        carry, y = check_pair("scan: the function", result, "(carry, y)", "return carry, None")
        ys, y_def = tree.flatten(y)
        y_defs[:] = [y_def]
        return carry, ys

    carry, carry_def, program = stage_loop_body("scan", CarryTypeError, init, slices, step, name_of(f, "body"))
    hoisted, consts = program.hoist_consts()
    if unroll is True:
        unroll = max(n, 1)
    elif not isinstance(unroll, int) or unroll < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError("scan: unroll", got=unroll, expected="a positive int, or a bool")
    loop = LoopParams(None, 0, hoisted, len(consts), len(carry), n, bool(reverse), max(int(unroll), 1))
    # A carry that no step changes becomes a const, and a ``y`` that is an ``x`` is not stacked.
    same, first = loop.loop_invariant(), len(hoisted.inputs) - len(sequences)
    taken = [i - first if i is not None and i >= first else None for i in forwarded_inputs(hoisted)[len(carry) :]]
    loop, operands = loop.hoist_invariants(same, [*consts, *carry, *sequences])
    if any(i is not None for i in taken):
        stacked = (*(True,) * loop.num_carry, *(i is None for i in taken))
        loop = loop._replace(body=select_inputs_and_results(loop.body, loop.body.inputs, stacked))
    args, loop = loop.bound(operands)
    moved, ys = loop.results(scan_op(*args, loop=loop))
    rest = iter(ys)
    return (
        tree.unflatten(carry_def, merge_by_mask(select_by_mask(carry, same), moved, same)),
        tree.unflatten(y_defs[0], [next(rest) if i is None else sequences[i] for i in taken]),
    )


def scan_program(
    body: Program, consts: Arrays, carry: Arrays, xs: Arrays, *, length: int, **how: Any
) -> tuple[Array, ...]:
    """The final carry and ys of a body that is a program; ``how``: reverse, unroll."""
    loop = LoopParams(None, 0, body, len(consts), len(carry), length, **how)
    args, loop = loop.bound(Operands((), consts, carry, xs))
    return scan_op(*args, loop=loop)


def per_element(
    op: Op, size: int, args: Arrays, dims: Dims, params: dict[str, Any], unroll: int = 1
) -> tuple[tuple[Array, ...], Dims]:
    """`Op.batch` of an op with several results, as one call per element, in order."""
    fixed = [x for x, d in zip(args, dims, strict=True) if d is None]
    moving = [move_batch(x, d, size) for x, d in zip(args, dims, strict=True) if d is not None]

    def step(*xs: Array) -> Arrays:
        shared, own = iter(xs[: len(fixed)]), iter(xs[len(fixed) :])
        return op(*(next(shared) if d is None else next(own) for d in dims), **params)

    types = [*(x.type for x in fixed), *(x.type.with_shape(x.shape[1:]) for x in moving)]
    ys = scan_program(stage(step, types, op.name), fixed, (), moving, length=size, unroll=unroll)
    return ys, (0,) * len(ys)


def _step_by_step(
    f: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    sequences: Arrays,
    x_def: tree.TreeDef,
    n: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """`scan` as a Python loop, so that every step can be looked at."""
    ys: list[Any] = [None] * n
    for i in reversed(range(n)) if reverse else range(n):
        carry, ys[i] = f(carry, tree.unflatten(x_def, [row(s, i) for s in sequences]))

    def stacked(*column: Any) -> Array:
        values = [as_value(y, "scan") for y in column]
        return concatenate(*(reshape(v, shape=(1, *v.shape)) for v in values), dimension=0)

    return carry, tree.map(stacked, *ys)


def _length(sequences: Arrays, xs: Any, given: int | None) -> int:
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
