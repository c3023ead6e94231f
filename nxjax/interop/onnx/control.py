"""Rules of branches, loops, sequences and optional values.

A branch on a traced value becomes `cond`. A loop of a known number of turns that always runs to its end becomes `scan`,
so it has a gradient; another one becomes `while_loop`. Where all is known, the graph's loops run in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import CarryTypeError, NxError
from nxjax.interop.graphs.values import NeedsValue, Refused, as_numpy, concrete
from nxjax.interop.onnx.graph import OnnxGraph, dtype_of, invalid
from nxjax.interop.onnx.shapes import number
from nxjax.interop.onnx.walk import OnnxScope, rule
from nxjax.trace.core import Array

# Turns of loops that run one by one while the graph is walked; under jit they are one compiled loop, of any length.
_TURNS = 1 << 14
# Turns that a counter of 32 bits counts.
_MOST = (1 << 31) - 1


@rule("If")
def _if(condition: Any, *, then_branch: OnnxGraph, else_branch: OnnxGraph, scope: OnnxScope) -> Any:
    if concrete(condition):
        return tuple(scope.function(then_branch if bool(number(as_numpy(condition))) else else_branch)())
    taken, other = scope.function(then_branch), scope.function(else_branch)
    try:
        return tuple(lax.cond(condition.reshape(()), lambda: tuple(taken()), lambda: tuple(other())))
    except NxError as error:
        raise NeedsValue(
            "from_onnx: an If on a traced condition, whose branches do not both fit these shapes",
            got=error.what, fix="call the function outside jit, or give the condition's inputs in constants=",
        ) from error  # fmt: skip


def _ends_late(body: OnnxGraph) -> bool:
    """Whether a loop's condition is given through unchanged, so that only the count of turns ends it."""
    wanted = body.outputs[0].name
    makers = {name: n for n in body.nodes for name in n.outputs}
    while wanted in makers and makers[wanted].kind == "Identity":
        wanted = makers[wanted].inputs[0]
    if wanted == body.inputs[1].name:
        return True
    made = makers.get(wanted)
    if made is not None and made.kind == "Constant":
        return bool(np.asarray(made.attributes.get("value", made.attributes.get("value_int", 0))).all())
    return wanted in body.initializers and bool(np.asarray(body.initializers[wanted]).all())


@rule("Loop")
def _loop(most: Any = None, condition: Any = None, *carry: Any, body: OnnxGraph, scope: OnnxScope) -> Any:
    turn = scope.function(body)
    count = len(carry)
    scans = len(body.outputs) - 1 - count
    runs = condition is None or (concrete(condition) and bool(number(as_numpy(condition))))
    n = None if most is None or not concrete(most) else int(number(as_numpy(most)))
    if n is not None and n > _MOST and runs and _ends_late(body):
        raise invalid(f"a loop of more than {_MOST} turns", n)
    if n is not None and runs and _ends_late(body) and not all(map(concrete, carry)) and n > 0 and _stays(carry):

        def step(c: Any, i: Any) -> Any:
            _, *ys = turn(i, jnp.asarray(True), *c)
            return tuple(ys[:count]), tuple(ys[count:])

        try:
            last, made = lax.scan(step, tuple(carry), jnp.arange(n, dtype=jnp.int64))
        except CarryTypeError:
            # A value that grows with each turn: every turn is written out.
            return _in_python(turn, n, condition, carry, scans, body)
        return (*last, *made)
    if not (concrete(condition) and concrete(most)):
        return _while(turn, most, condition, carry, scans)
    if n is not None and n > _TURNS and runs and _ends_late(body):
        raise _long(body)
    return _in_python(turn, n, condition, carry, scans, body)


def _long(body: OnnxGraph) -> Exception:
    return invalid(f"a loop of more than {_TURNS} turns is not run one by one; jit the function", body.name)


def _stays(carry: Any) -> bool:
    return all(isinstance(x, Array) for x in carry)


def _in_python(turn: Any, n: int | None, condition: Any, carry: Any, scans: int, body: OnnxGraph) -> Any:
    go = condition is None or bool(number(as_numpy(condition)))
    rows: list[list[Any]] = [[] for _ in range(scans)]
    state, i = list(carry), 0
    while go and (n is None or i < n):
        if i >= _TURNS:
            raise _long(body)
        go, *ys = turn(jnp.asarray(np.int64(i)), jnp.asarray(True), *state)
        state = ys[: len(state)]
        for row, y in zip(rows, ys[len(state) :], strict=True):
            row.append(y)
        if not concrete(go):
            raise NeedsValue("from_onnx: whether a Loop goes on depends on traced elements", fix="call it outside jit")
        go = bool(number(as_numpy(go)))
        i += 1
    return (*state, *(_stacked(row, body.outputs[1 + len(state) + k]) for k, row in enumerate(rows)))


def _stacked(row: list[Any], port: Any) -> Any:
    if row:
        return jnp.stack(row)
    return jnp.zeros((0, *(d if isinstance(d, int) else 0 for d in port.dims or ())), port.dtype or np.float32)


def _while(turn: Any, most: Any, condition: Any, carry: Any, scans: int) -> Any:
    if scans:
        raise NeedsValue("from_onnx: how many rows a Loop gives depends on traced elements", fix="call it outside jit")
    start = jnp.asarray(True) if condition is None else condition.reshape(())
    limit = jnp.asarray(np.iinfo(np.int64).max) if most is None else most.reshape(())

    def step(state: Any) -> Any:
        i, _, *c = state
        go, *ys = turn(i, jnp.asarray(True), *c)
        return (i + 1, go.reshape(()), *ys)

    first = (jnp.zeros((), limit.dtype), start, *carry)
    return tuple(lax.while_loop(lambda s: s[1] & (s[0] < limit), step, first)[2:])


@rule("Scan")
def _scan(
    *xs: Any, body: OnnxGraph, num_scan_inputs: int, scan_input_axes: Any = None, scan_input_directions: Any = None,
    scan_output_axes: Any = None, scan_output_directions: Any = None, directions: Any = None, opset: int,
    scope: OnnxScope,
) -> Any:  # fmt: skip
    if opset < 9:
        return _batched_scan(xs, body, num_scan_inputs, directions, scope)
    count = len(xs) - num_scan_inputs
    outputs = len(body.outputs) - count
    turn = scope.function(body)
    axes, turned = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    out_axes, out_turned = scan_output_axes or (0,) * outputs, scan_output_directions or (0,) * outputs
    rows = [jnp.moveaxis(x, a, 0) for x, a in zip(xs[count:], axes, strict=True)]
    rows = [jnp.flip(x, 0) if d else x for x, d in zip(rows, turned, strict=True)]

    def step(c: Any, x: Any) -> Any:
        ys = turn(*c, *x)
        return tuple(ys[:count]), tuple(ys[count:])

    last, made = lax.scan(step, tuple(xs[:count]), tuple(rows))
    made = [jnp.flip(y, 0) if d else y for y, d in zip(made, out_turned, strict=True)]
    return (*last, *(jnp.moveaxis(y, 0, a) for y, a in zip(made, out_axes, strict=True)))


def _batched_scan(xs: Any, body: OnnxGraph, inputs: int, directions: Any, scope: OnnxScope) -> Any:
    """Version 8: the first input are lengths, and everything has a batch in front."""
    if xs[0] is not None:
        raise Refused("from_onnx: Scan of version 8 with lengths", got=body.name)
    one = lambda *row: _scan(
        *row, body=body, num_scan_inputs=inputs, scan_input_directions=directions, opset=9, scope=scope
    )
    made = [one(*(x[i] for x in xs[1:])) for i in range(xs[1].shape[0])]
    return tuple(jnp.stack(ys) for ys in zip(*made, strict=True))


# --- sequences: Python lists ---


@rule("SequenceConstruct")
def _sequence(*xs: Any) -> Any:
    return list(xs)


@rule("SequenceEmpty")
def _empty(*, dtype: int = 1) -> Any:
    dtype_of(dtype)
    return []


@rule("SequenceInsert", known=("at",))
def _insert(xs: Any, x: Any, at: Any = None) -> Any:
    i = len(xs) if at is None else int(number(at))
    if not -len(xs) <= i <= len(xs):
        raise IndexError(f"place {i} of a sequence of {len(xs)}")
    i += len(xs) if i < 0 else 0
    return [*xs[:i], x, *xs[i:]]


@rule("SequenceErase", known=("at",))
def _erase(xs: Any, at: Any = None) -> Any:
    i = (-1 if at is None else int(number(at))) % len(xs)
    return [*xs[:i], *xs[i + 1 :]]


@rule("SequenceAt", known=("at",))
def _at(xs: Any, at: Any) -> Any:
    return xs[int(number(at))]


@rule("SequenceLength")
def _length(xs: Any) -> Any:
    return jnp.asarray(np.int64(len(xs)))


@rule("SplitToSequence", known=("sizes",))
def _split_to_sequence(x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    n = x.shape[axis]
    if sizes is None:
        parts = [1] * n
    elif np.ndim(sizes) == 0:
        size = int(number(sizes))
        parts = [min(size, n - i) for i in range(0, n, size)]
    else:
        parts = [int(k) for k in sizes]
    ends = np.cumsum(parts)
    cut = [lax.slice_in_dim(x, int(e) - k, int(e), axis=axis) for e, k in zip(ends, parts, strict=True)]
    return [c.squeeze(axis) for c in cut] if sizes is None and not keepdims else cut


@rule("ConcatFromSequence")
def _concat_from_sequence(xs: Any, *, axis: int, new_axis: int = 0) -> Any:
    return jnp.stack(xs, axis) if new_axis else jnp.concatenate(xs, axis)


@rule("SequenceMap")
def _sequence_map(xs: Any, *more: Any, body: OnnxGraph, scope: OnnxScope) -> Any:
    turn = scope.function(body)
    rows = [turn(*(v[i] if isinstance(v, list) else v for v in (xs, *more))) for i in range(len(xs))]
    return tuple([row[k] for row in rows] for k in range(len(body.outputs)))


@rule("Optional")
def _optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@rule("OptionalHasElement")
def _has_element(x: Any = None) -> Any:
    return jnp.asarray(np.bool_(x is not None))


@rule("OptionalGetElement")
def _get_element(x: Any) -> Any:
    if x is None:
        raise ValueError("the optional value is empty")
    return x
