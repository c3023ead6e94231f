"""Rules of ops that hold programs, call the host, or speak between devices. Must not know any op's own rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from nxjax.lower.type_rules.base import (
    ORDERED,
    Params,
    Results,
    Rule,
    Types,
    distinct,
    need,
    of,
    one_shape,
    operands,
    put,
    results,
    same,
    without,
)
from nxjax.trace import dtypes
from nxjax.trace.dtypes import NUMBER, DType
from nxjax.trace.program import Program
from nxjax.trace.types import ArrayType

_INDEX: Final = ArrayType((), dtypes.int32)
_TRUTH: Final = ArrayType((), dtypes.bool_)


def _takes(program: Program, types: Types) -> None:
    same(types, program.in_types, "operands do not fit the program")


def _count(n: int, most: int, what: str) -> int:
    need(0 <= n <= most, what, n)
    return n


def _call(counts: tuple[str, ...] = (), name: str = "program") -> Rule:
    """A program of the operands; ``counts`` are parameters that say how many of them are of a kind."""

    def rule(types: Types, params: Params) -> Results:
        _takes(params[name], types)
        left = len(types)
        for count in counts:
            left -= _count(params[count], left, count)
        return results(params[name].out_types)

    return rule


def _cond(types: Types, params: Params) -> Results:
    index, *others = types
    branches = params["branches"]
    need(len(branches) > 0, "no branches")
    of((dtypes.int32,), index)
    for branch in branches:
        _takes(branch, others)
        same(branch.out_types, branches[0].out_types, "branches give different types")
    for t in branches[0].out_types:
        need(t.shape[: len(index.shape)] == index.shape, "index and results differ in leading axes", (index, t))
    return results(branches[0].out_types)


def _scan(types: Types, params: Params) -> Results:
    loop = params["loop"]
    body, length = loop.body, loop.length
    need(length >= 0 and loop.unroll >= 1, "length and unroll", (length, loop.unroll))
    need(loop.cond is None and loop.num_cond_consts == 0, "a condition", loop.cond)
    first = _count(loop.num_consts, len(types), "num_consts")
    last = first + _count(loop.num_carry, len(types) - first, "num_carry")
    xs = types[last:]
    need(all(t.shape[:1] == (length,) for t in xs), "operands of another length", (length, xs))
    _takes(body, [*types[:last], *[t.with_shape(t.shape[1:]) for t in xs]])
    carry = body.out_types[: last - first]
    same(carry, types[first:last], "the carry changes its types")
    return [*results(carry), *[((length, *t.shape), t.dtype) for t in body.out_types[last - first :]]]


def _while(types: Types, params: Params) -> Results:
    loop = params["loop"]
    first = _count(loop.num_cond_consts, len(types), "num_cond_consts")
    last = first + _count(loop.num_consts, len(types) - first, "num_consts")
    carry = types[last:]
    need(loop.num_carry == len(carry), "num_carry", loop.num_carry)
    _takes(loop.cond, [*types[:first], *carry])
    _takes(loop.body, types[first:])
    same(loop.cond.out_types, [_TRUTH], "the condition gives something else than one bool")
    same(loop.body.out_types, carry, "the carry changes its types")
    return results(carry)


def _bucketed(types: Types, params: Params) -> Results:
    first, *others = params["programs"]
    names = params["domain"].names
    need(len(set(names)) == len(names), "two dimensions of one name", names)
    same(types[: len(names)], [_INDEX] * len(names), "lengths are integers of 32 bits")
    _takes(first, types[len(names) :])
    need(len(params["programs"]) == len(params["domain"].members()), "not one program per length to trace at")
    alike = lambda p: [(len(t.shape), t.dtype) for t in (*p.in_types, *p.out_types)]
    need(all(alike(p) == alike(first) for p in others), "programs differ in more than sizes")
    return results(first.out_types)


def _linear_solve(types: Types, params: Params) -> Results:
    counts = params["counts"]
    need(len(params["programs"]) == 4 == len(counts) and all(n >= 0 for n in counts), "counts", counts)
    b = types[_count(sum(counts), len(types), "counts") :]
    for i, program in enumerate(params["programs"]):
        before = sum(counts[:i])
        _takes(program, [*types[before : before + counts[i]], *b])
        same(program.out_types[: len(b)], b, "a program gives another type than the right-hand side")
    return results(params["programs"][2].out_types)


def _root(types: Types, params: Params) -> Results:
    counts = params["counts"]
    need(len(counts) == 2 and all(n >= 0 for n in counts), "counts", counts)
    guess = types[_count(sum(counts), len(types), "counts") :]
    _takes(params["function"], [*types[: counts[0]], *guess])
    _takes(params["solve"], types[counts[0] :])
    same(params["function"].out_types, guess, "the function gives other types than the guess")
    same(params["solve"].out_types[: len(guess)], guess, "the solver gives other types than the guess")
    return results(params["solve"].out_types)


def _reduce(types: Types, params: Params) -> Results:
    xs, starts = types[: len(types) // 2], types[len(types) // 2 :]
    need(len(xs) == len(starts) > 0, "not one initial value per operand", types)
    gone = distinct(params["dimensions"], len(one_shape(xs)), "dimensions")
    scalars = [t.with_shape(()) for t in xs]
    same(starts, scalars, "initial values are no scalars of the operands' dtypes")
    _takes(params["computation"], [*scalars, *scalars])
    same(params["computation"].out_types, scalars, "the function gives other types than it takes")
    return [(without(t.shape, gone), t.dtype) for t in xs]


def _callback(types: Types, params: Params) -> Results:
    token: list[ArrayType] = [types[0]] if params.get("threaded", False) else []
    same(token, [_TRUTH] * len(token), "the first operand is no token")
    return results([*token, *params["result_types"]])


def _custom_lin(types: Types, params: Params) -> Results:
    tangents = len(types) - _count(params["num_residuals"], len(types), "num_residuals")
    need(tangents == params["varying"].count(True), "not one tangent per argument that varies", types)
    return results(params["out_types"])


def _shard_map(types: Types, params: Params) -> Results:
    mesh, program = params["mesh"], params["program"]

    def times(t: ArrayType, spec: Any) -> list[int]:
        """Into how many parts each dimension is cut."""
        return [math.prod([mesh.shape[n] for n in spec.axes(d)]) for d in range(len(t.shape))]

    cut: list[ArrayType] = []
    for t, spec in zip(types, params["in_specs"], strict=True):
        parts = times(t, spec)
        need(all(n % k == 0 for n, k in zip(t.shape, parts, strict=True)), "sizes do not divide", (t, spec))
        cut.append(t.with_shape(tuple([n // k for n, k in zip(t.shape, parts, strict=True)])))
    _takes(program, cut)
    made: list[tuple[tuple[int, ...], DType]] = []
    for t, spec in zip(program.out_types, params["out_specs"], strict=True):
        made.append((tuple([n * k for n, k in zip(t.shape, times(t, spec), strict=True)]), t.dtype))
    return made


# --- between devices ---


def _everywhere(allowed: Collection[DType], fits: Callable[[ArrayType, Params], bool] = lambda t, p: True) -> Rule:
    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(allowed, x)
        need(fits(x, params), "parameters out of range", dict(params))
        return [(x.shape, x.dtype)]

    return rule


def _once_each(x: ArrayType, params: Params) -> bool:
    """Nobody gets two values."""
    targets = [target for _, target in params["perm"]]
    return len(set(targets)) == len(targets) and all(i >= 0 for pair in params["perm"] for i in pair)


def _axis_index(types: Types, params: Params) -> Results:
    operands(types, 0)
    return results([_INDEX])


def _all_gather(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    d, n = params["all_gather_dimension"], params["axis_size"]
    need(n >= 1, "axis_size", n)
    distinct([d], len(x.shape) + 1, "all_gather_dimension")
    return [((*x.shape[:d], n, *x.shape[d:]), x.dtype)]


def _reduce_scatter(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of(NUMBER, x)
    d = params["scatter_dimension"]
    distinct([d], len(x.shape), "scatter_dimension")
    need(x.shape[d] == params["axis_size"], "the dimension is not of the axis size", x)
    return [(without(x.shape, (d,)), x.dtype)]


def _all_to_all(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    d, to = params["split_axis"], params["concat_axis"]
    distinct([d], len(x.shape), "split_axis")
    distinct([to], len(x.shape), "concat_axis")
    need(x.shape[d] == params["axis_size"], "the split axis is not of the axis size", x)
    shape = list(x.shape)
    shape.insert(to, shape.pop(d))
    return [(put(tuple(shape), to, params["axis_size"]), x.dtype)]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("jit", "checkpoint", "composite"), _call()),
    **dict.fromkeys(("custom_jvp_call", "custom_vjp_call", "custom_vmap_call"), _call(("num_consts",))),
    "linear_call": _call(("num_consts", "num_res")),
    "cond": _cond,
    "scan": _scan,
    "while": _while,
    "bucketed": _bucketed,
    "custom_linear_solve": _linear_solve,
    "custom_root": _root,
    "reduce": _reduce,
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback", "check"), _callback),
    "custom_lin": _custom_lin,
    "shard_map": _shard_map,
    "sharding_constraint": _everywhere(dtypes.NAMED),
    "pvary": _everywhere(dtypes.NAMED),
    **dict.fromkeys(("psum", "psum_invariant"), _everywhere(NUMBER)),
    **dict.fromkeys(("pmax", "pmin"), _everywhere(ORDERED)),
    "ppermute": _everywhere(dtypes.NAMED, _once_each),
    "axis_index": _axis_index,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
