"""Checks in programs, and `checkify`: a function that returns the first failed check as a value.

`checkify` stages the function and walks its program: at a check, a division, an index or anything that may make a NaN
(as far as these are asked for) it notes whether that went wrong, and the notes are threaded through calls, loops and
branches. The walk runs under the current trace, so that its results can be jitted, batched and differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import NxError, Source
from nxjax.ops.argreduce import argmax
from nxjax.ops.arithmetic import div
from nxjax.ops.base import NDArray, move_batch
from nxjax.ops.bitwise import and_, not_, or_
from nxjax.ops.collectives import as_varying
from nxjax.ops.compare import eq, gt, lt, ne
from nxjax.ops.convert import convert_element_type
from nxjax.ops.identity import stop_gradient
from nxjax.ops.reduce import reduce_or
from nxjax.ops.select import select_leading, select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import concatenate, dynamic_slice, part
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.program import Equation, Program, Var, subprograms
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.call import jit_call
from nxjax.transforms.callback import Keyed, Sink
from nxjax.transforms.control.cond import choose, switch
from nxjax.transforms.control.loop import LoopParams
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.has_aux import Flat
from nxjax.transforms.shard_map_op import manual_axes_context, shard_map_op


class CheckError(NxError, ValueError):
    """A check failed. Its kinds are the subclasses below; `jax.experimental.checkify.JaxRuntimeError`."""


@final
class FailedCheckError(CheckError):
    """A condition that `checkify.check` was given does not hold."""


@final
class NaNError(CheckError):
    """An op made a NaN."""


@final
class DivisionByZeroError(CheckError):
    """A number was divided by zero."""


@final
class OOBError(CheckError):
    """An index is out of bounds."""


Category = type[CheckError]
Categories = frozenset[Category]


@final
class CheckSite(Keyed):
    """A place where a check may fail, and its message, which may show the arrays that come with the failure.

    ``among``: the sites of an error that is checked once more; the first array is the index of the one that failed.
    """

    def __init__(
        self,
        kind: Category,
        text: str,
        types: tuple[ArrayType, ...],
        in_def: Any = None,
        source: Source | None = None,
        among: tuple[CheckSite, ...] = (),
    ) -> None:
        super().__init__(repr(text), kind, text, types, in_def, among)
        self.kind = kind
        self.text = text
        self.types = types
        self.in_def = in_def
        self.source = source
        self.among = among

    def __hash__(self) -> int:
        return hash((self.kind, self.text))

    def chosen(self, payload: Arrays) -> tuple[CheckSite, Arrays]:
        """The site itself that failed, and its arrays."""
        if not self.among:
            return self, payload
        which, start = int(np.asarray(payload[0])), 1
        for site in self.among[:which]:
            start += len(site.types)
        found = self.among[which]
        return found.chosen(payload[start : start + len(found.types)])

    def message(self, payload: Arrays) -> str:
        site, values = self.chosen(payload)
        if site.in_def is None:
            return site.text.format(*values)
        args, kwargs = tree.unflatten(site.in_def, list(values))
        return f"{site.text.format(*args, **kwargs)} (`check` failed)"

    def error(self, payload: Arrays) -> CheckError:
        site, _ = self.chosen(payload)
        return site.kind(self.message(payload), source=site.source)

    def kinds(self) -> Categories:
        return frozenset[Category]().union(*(s.kinds() for s in self.among)) if self.among else frozenset((self.kind,))


@final
class Check(Sink):
    """Raises unless its first operand is true. `checkify` takes it out of a program; elsewhere Python looks.

    ``callback`` is the `CheckSite`. With ``debug`` it does nothing where nobody checkifies.
    """

    name = "check"

    def call(self, xs: Sequence[NDArray], *, callback: Any, debug: bool = False, **_: Any) -> tuple[NDArray, ...]:
        if not debug and not xs[0]:
            raise callback.error([wrap(x) for x in xs[1:]])
        return ()

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        if dims[0] is None and all(d is None for d in dims):
            return self(*args, **params), ()
        ok, *payload = [move_batch(x, d, size) for x, d in zip(args, dims, strict=True)]
        failed = not_(ok)
        return self(not_(reduce_or(failed, axes=(0,))), *first_failed(failed, payload), **params), ()


check_op = Check()


def first_failed(failed: Array, payload: Arrays) -> list[Array]:
    """The rows of ``payload`` at the first place where ``failed`` is true."""
    if not payload:
        return []
    at = argmax(convert_element_type(failed, dtype=dtypes.int32), axes=(0,), index_dtype=dtypes.int32)
    zero = wrap(np.asarray(0, np.int32))
    return [
        reshape(dynamic_slice(x, at, *(zero,) * (x.ndim - 1), slice_sizes=(1, *x.shape[1:])), shape=x.shape[1:])
        for x in payload
    ]


def first_failed_rows(columns: Arrays) -> list[Array]:
    """Of columns of batches, whose first says what failed, the row in which something failed first."""
    failed = columns[0]
    inner = _any(failed) if failed.ndim == 1 else reduce_or(failed, axes=tuple(range(1, failed.ndim)))
    return first_failed(inner if inner.ndim else failed, columns)


# --- what happened so far ---


@final
class CheckState(NamedTuple):
    """Whether something failed, which site was first, and what each site handed on."""

    failed: Array
    code: Array
    payload: tuple[tuple[Array, ...], ...]

    def noted(self, i: int, code: int, failed: Array, payload: Arrays) -> CheckState:
        """With site ``i``, whose code is ``code``, found ``failed`` unless an earlier one has."""
        new = and_(failed, not_(self.failed))
        kept = tuple(select_leading(new, old, x) for old, x in zip(self.payload[i], map(_plain, payload), strict=True))
        mine = wrap(np.asarray(code, np.int32))
        return CheckState(
            or_(self.failed, failed),
            select_n(new, self.code, mine),
            (*self.payload[:i], kept, *self.payload[i + 1 :]),
        )

    def then(self, later: CheckState) -> CheckState:
        """The state after ``later``, of the same sites, which counts unless something failed before."""
        new = and_(later.failed, not_(self.failed))
        rows = tuple(
            tuple(select_leading(new, old, x) for old, x in zip(*row, strict=True))
            for row in zip(self.payload, later.payload, strict=True)
        )
        return CheckState(or_(self.failed, later.failed), select_leading(new, self.code, later.code), rows)

    def of_sites(self, start: int, count: int) -> CheckState:
        return CheckState(self.failed, self.code, self.payload[start : start + count])

    def joined(self, start: int, part: CheckState) -> CheckState:
        before, after = self.payload[:start], self.payload[start + len(part.payload) :]
        return CheckState(part.failed, part.code, (*before, *part.payload, *after))


def initial_state(sites: Sequence[CheckSite]) -> CheckState:
    """The state before anything was done."""
    zeros = tuple(tuple(wrap(np.zeros(t.shape, t.dtype)) for t in s.types) for s in sites)
    return CheckState(wrap(np.asarray(False)), wrap(np.asarray(0, np.int32)), zeros)


def _plain(x: Array) -> Array:
    """Without a derivative, and not weak."""
    return stop_gradient(convert_element_type(x, dtype=x.dtype, weak=False) if x.weak_type else x)


# --- what is looked at ---

# Ops that make no number that they were not given.
_MOVES: Final = frozenset(
    ("copy", "stop_gradient", "reshape", "transpose", "broadcast_in_dim", "slice", "dynamic_slice", "rev", "gather",
     "dynamic_update_slice", "concatenate", "split", "select_n", "sort", "top_k", "convert_element_type", "reduce_max",
     "reduce_min", "max", "min", "neg", "abs", "sign", "clamp", "scatter", "optimization_barrier", "reduce_precision",
     "bitcast_convert_type", "real", "imag", "conj", "complex", "floor", "ceil", "round", "nextafter", "div",
     "sharding_constraint")
)  # fmt: skip
_INT = ArrayType((), np.dtype(np.int32))
# A check of an equation's operands and results: whether it failed, and the arrays for its message.
Look = Callable[[Arrays, Arrays], tuple[Array, Arrays]]


def _any(x: Array) -> Array:
    return reduce_or(x, axes=tuple(range(x.ndim)))


def _against(x: Array, value: Any, compare: Any) -> Array:
    return compare(x, broadcast_in_dim(wrap(np.asarray(value, x.dtype)), shape=x.shape, broadcast_dimensions=()))


def _made_nan(operands: Arrays, results: Arrays) -> tuple[Array, Arrays]:
    found = [_any(ne(y, y)) for y in results if y.dtype in dtypes.FLOAT or y.dtype in dtypes.COMPLEX]
    return functools.reduce(or_, found), ()


def _divided(operands: Arrays, results: Arrays) -> tuple[Array, Arrays]:
    return _any(_against(operands[1], 0, eq)), ()


def _outside(columns: Sequence[tuple[Array, int, int, int]]) -> tuple[Array, Arrays]:
    """Of columns (indices, axis, size of the axis, largest start): the first index that is out of bounds."""
    failed: list[Array] = []
    rows: list[list[Array]] = [[], [], []]
    for indices, axis, size, last in columns:
        flat = reshape(indices, shape=(indices.size,))
        over = _against(flat, min(last, int(np.iinfo(flat.dtype).max)), gt)
        failed.append(over if flat.dtype in dtypes.UNSIGNED else or_(_against(flat, 0, lt), over))
        rows[0].append(convert_element_type(flat, dtype=dtypes.int32) if flat.dtype != dtypes.int32 else flat)
        for row, value in ((1, axis), (2, size)):
            rows[row].append(wrap(np.full(flat.shape, value, np.int32)))
    every = concatenate(*failed, dimension=0)
    return _any(every), first_failed(every, [concatenate(*r, dimension=0) for r in rows])


def _looks(e: Equation, wanted: Categories) -> list[tuple[CheckSite, Look]]:
    """What is looked at by itself in an equation that holds no program."""
    name = e.op.name
    divides = e.op is div
    found: list[tuple[CheckSite, Look]] = []
    makes_floats = any(v.type.dtype in dtypes.FLOAT or v.type.dtype in dtypes.COMPLEX for v in e.outputs)
    if divides and DivisionByZeroError in wanted and e.outputs[0].type.size:
        found.append((CheckSite(DivisionByZeroError, "division by zero", (), source=e.source), _divided))
    if NaNError in wanted and makes_floats and (name not in _MOVES or divides):
        found.append((CheckSite(NaNError, f"nan generated by primitive: {name}.", (), source=e.source), _made_nan))
    columns = _columns(e) if OOBError in wanted else None
    if columns is not None:
        shape = str(e.inputs[0].type.shape).replace("{", "{{").replace("}", "}}")
        text = f"out-of-bounds indexing for array of shape {shape}: "
        text += "index {} is out of bounds for axis {} with size {}. "
        found.append((CheckSite(OOBError, text, (_INT,) * 3, source=e.source), lambda xs, _: _outside(columns(xs))))
    return found


# Of operands: the indices along an axis, the axis, its size and the last index, for each axis.
_Columns = Callable[[Arrays], list[tuple[Array, int, int, int]]]


def _columns(e: Equation) -> _Columns | None:
    """How the indices of a slice, gather or scatter are found among its operands."""
    find = _INDEXING.get(e.op.name)
    return None if find is None else find(e)


def _of_starts(e: Equation, first: int, sizes: Sequence[int]) -> _Columns | None:
    shape = e.inputs[0].type.shape
    if not shape:
        return None
    return lambda xs: [(x, d, shape[d], shape[d] - sizes[d]) for d, x in enumerate(xs[first:])]


def _of_gather(e: Equation) -> _Columns | None:
    return _of_table(e, e.params["dimension_numbers"].start_index_map, e.params["slice_sizes"])


def _of_scatter(e: Equation) -> _Columns | None:
    n = e.params["dimension_numbers"]
    return _of_table(e, n.scatter_dims_to_operand_dims, n.sizes(e.inputs[0].type, e.inputs[2].type))


_INDEXING: Final[dict[str, Callable[[Equation], _Columns | None]]] = {
    "dynamic_slice": lambda e: _of_starts(e, 1, e.params["slice_sizes"]),
    "dynamic_update_slice": lambda e: _of_starts(e, 2, e.inputs[1].type.shape),
    "gather": _of_gather,
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_max", "scatter_min"), _of_scatter
    ),
}


def _of_table(e: Equation, axes: Sequence[int], window: Sequence[int]) -> _Columns | None:
    """Indices whose last dimension goes over ``axes``."""
    shape = e.inputs[0].type.shape
    if not axes or not e.inputs[1].type.size:
        return None

    def columns(xs: Arrays) -> list[tuple[Array, int, int, int]]:
        table = xs[1]
        at = [part(table, table.ndim - 1, k, k + 1) for k in range(len(axes))]
        return [(x, d, shape[d], shape[d] - window[d]) for x, d in zip(at, axes, strict=True)]

    return columns


# --- the walk ---


@final
class CheckStep(NamedTuple):
    """An equation: where its sites begin among the program's, what is looked at, the plans of what it holds."""

    equation: Equation
    start: int
    looks: tuple[tuple[CheckSite, Look], ...]
    inner: tuple[CheckPlan, ...]

    def walk(self, i: int, args: Arrays, state: CheckState, base: int) -> tuple[list[Array], CheckState]:
        """`walk` of the plan ``i``, in a state of all sites of the equation, whose first has the code ``base``."""
        start, plan = sum(len(p.sites) for p in self.inner[:i]), self.inner[i]
        ys, part = walk(plan, args, state.of_sites(start, len(plan.sites)), base + start)
        return ys, state.joined(start, part)


@final
class CheckPlan(NamedTuple):
    program: Program
    steps: tuple[CheckStep, ...]
    sites: tuple[CheckSite, ...]


def plan_checks(program: Program, wanted: Categories) -> CheckPlan:
    """Everything in ``program`` that is looked at."""
    return program.derive(("checkify", wanted), lambda: _planned(program, wanted))


def _planned(program: Program, wanted: Categories) -> CheckPlan:
    sites: list[CheckSite] = []
    steps: list[CheckStep] = []
    for e in program.equations:
        start = len(sites)
        looks: list[tuple[CheckSite, Look]] = []
        inner: tuple[CheckPlan, ...] = ()
        if _is_check(e):
            site: CheckSite = e.params["callback"]
            if site.kinds() & wanted:
                sites.append(site)
            else:
                start = -1
        elif e.op.nested:
            held: Sequence[Program] = list(e.programs()) if e.op.name in _RULES else ()
            if "program" in e.params:  # beside it, a custom rule may hold further ones
                held = held[:1] and [e.params["program"]]
            inner = tuple(plan_checks(p, wanted) for p in held)
            sites += [s for p in inner for s in p.sites]
            e = e.replaced(e.inputs, e.outputs, _without_checks(e.params))
        else:
            looks = _looks(e, wanted)
            sites += [s for s, _ in looks]
        steps.append(CheckStep(e, start, tuple(looks), inner if len(sites) > start else ()))
    return CheckPlan(program, tuple(steps), tuple(sites))


def _is_check(e: Equation) -> bool:
    return e.op is check_op


def _without_checks(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters whose programs check nothing."""

    def stripped(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(stripped(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(value, Program) or not value.effect:
            return value
        equations = [
            e.replaced(e.inputs, e.outputs, _without_checks(e.params)) if e.op.nested else e
            for e in value.equations
            if not _is_check(e)
        ]
        return Program(value.inputs, equations, value.outputs, value.constvars, value.values, value.name)

    return {k: stripped(v) for k, v in params.items()} if any(p.effect for p in subprograms(params)) else params


def walk(plan: CheckPlan, args: Arrays, state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    """The results of the plan's program, and what happened; its first site has the code ``base``."""
    program = plan.program
    env: dict[Var, Array] = dict(zip(program.inputs, args, strict=True))
    env.update(zip(program.constvars, program.values, strict=True))
    for step in plan.steps:
        e = step.equation
        xs = [env[v] if isinstance(v, Var) else v.value for v in e.inputs]
        with replaying(e.scope, e.source):
            if _is_check(e):
                if step.start >= 0:
                    state = state.noted(step.start, base + step.start, not_(xs[0]), xs[1:])
                continue
            if step.inner:
                count = sum(len(p.sites) for p in step.inner)
                inside = state.of_sites(step.start, count)
                ys, part = _RULES[e.op.name](step, xs, inside, base + step.start)
                state = state.joined(step.start, part)
            else:
                y = e.op(*xs, **e.params)
                ys = list(y) if e.op.multi else [y]
            for i, (_, look) in enumerate(step.looks, step.start):
                state = state.noted(i, base + i, *look(xs, ys))
        env.update(zip(e.outputs, ys, strict=True))
    return [env[v] if isinstance(v, Var) else v.value for v in program.outputs], state


def _call(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    return walk(step.inner[0], xs, state, base)


def _custom(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    # Its results are its own, with its own derivative; the function is looked into beside it.
    e = step.equation
    _, state = walk(step.inner[0], [stop_gradient(x) for x in xs], state, base)
    return list(e.op(*xs, **e.params)), state


def _jit(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    (plan,) = step.inner
    leaves, structure = tree.flatten(state)

    def flat(*given: Array) -> Arrays:
        ys, after = walk(plan, given[len(leaves) :], tree.unflatten(structure, given[: len(leaves)]), base)
        return [*tree.leaves(after), *ys]

    name = f"checkify({step.equation.params['name']})"
    hoisted, consts = stage(flat, [x.type for x in (*leaves, *xs)], name).hoist_consts()
    out = jit_call(*consts, *leaves, *xs, program=hoisted, name=name)
    return list(out[len(leaves) :]), tree.unflatten(structure, out[: len(leaves)])


def _scan(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    (plan,), loop = step.inner, LoopParams.of(step.equation.params)
    _, consts, carry, sequences = loop.split(xs)

    def body(held: Any, rows: Arrays) -> tuple[Any, Any]:
        before, old = held
        out, after = walk(plan, [*consts, *old, *rows], before, base)
        new, ys = loop.results(tuple(out))
        return (after, new), ys

    (after, last), ys = scan(
        body,
        (state, tuple(carry)),
        tuple(sequences),
        length=loop.length,
        reverse=loop.reverse,
        unroll=loop.unroll,
    )
    return [*last, *ys], after


def _while(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    p = step.equation.params
    # Plans are in the order of the parameters.
    order = [k for k, v in p.items() if isinstance(v, Program)]
    operands = LoopParams.of(p).split(xs)

    def run(name: str, args: Arrays, before: CheckState) -> tuple[list[Array], CheckState]:
        return step.walk(order.index(name), args, before, base)

    def holds(before: CheckState, values: Arrays) -> tuple[Array, CheckState]:
        (keep,), after = run("cond", operands._replace(carry=values).cond_inputs, before)
        return keep, after

    def next_state(held: Any) -> Any:
        _, before, old = held
        ys, after = run("body", operands._replace(carry=old).body_inputs, before)
        keep, after = holds(after, ys)
        return keep, after, tuple(ys)

    keep, state = holds(state, operands.carry)
    _, state, last = while_loop(lambda held: held[0], next_state, (keep, state, tuple(operands.carry)))
    return list(last), state


def _cond(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    index, operands = xs[0], xs[1:]

    def branch(i: int, before: CheckState) -> tuple[list[Array], CheckState]:
        return step.walk(i, operands, before, base)

    if index.ndim:
        # One choice per element of a batch: every branch runs, and what is chosen is not known of a check.
        columns: list[list[Array]] = []
        for i in range(len(step.inner)):
            ys, state = branch(i, state)
            columns.append(ys)
        return [choose(index, column) for column in zip(*columns, strict=True)], state
    ys, state = switch(index, [functools.partial(branch, i) for i in range(len(step.inner))], state)
    return list(ys), state


def _shard_map(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    # Every device has a state of its own; afterwards the first of them that failed counts.
    p, (plan,) = step.equation.params, step.inner
    axes: tuple[Any, ...] = p["manual_axes"]
    leaves, structure = tree.flatten(initial_state(plan.sites))

    def flat(*parts: Array) -> Arrays:
        own = [as_varying(x, axes) for x in leaves] if p["checked"] else leaves
        ys, after = walk(plan, parts, tree.unflatten(structure, own), base)
        return [*ys, *(reshape(x, shape=(1, *x.shape)) for x in tree.leaves(after))]

    with manual_axes_context(p["mesh"], axes, p["checked"]):
        hoisted, consts = stage(flat, plan.program.in_types, plan.program.name).hoist_consts()
    count = len(plan.program.outputs)
    out = shard_map_op(
        *consts,
        *xs,
        **{
            **p,
            "program": hoisted,
            "in_specs": (*(PartitionSpec(),) * len(consts), *p["in_specs"]),
            "out_specs": (*p["out_specs"], *(PartitionSpec(axes),) * len(leaves)),
        },
    )
    return list(out[:count]), state.then(tree.unflatten(structure, first_failed_rows(out[count:])))


_RULES: Final[dict[str, Callable[..., tuple[list[Array], CheckState]]]] = {
    "jit": _jit,
    "checkpoint": _call,
    "custom_jvp_call": _custom,
    "custom_vjp_call": _custom,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
}


@api_boundary
def checked(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Categories
) -> tuple[tuple[CheckSite, ...], CheckState, Any]:
    """``fun``'s result, with what happened at the sites that it has."""
    leaves, in_def = tree.flatten((args, kwargs))
    values = [as_value(x, "checkify") for x in leaves]
    flat = Flat(lambda args, kwargs: fun(*args, **kwargs), in_def)
    program = stage(flat, [x.type for x in values], getattr(fun, "__name__", ""))
    plan = plan_checks(program, wanted)
    ys, state = walk(plan, values, initial_state(plan.sites), 0)
    return plan.sites, state, tree.unflatten(flat.out_def, ys)
