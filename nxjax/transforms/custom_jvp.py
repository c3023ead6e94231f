"""`custom_jvp`: a function with the user's own forward derivative.

The call is one op that holds the traced function, so that it prints, compiles and batches like any other, and the rule,
a Python function that is run when somebody differentiates. `jit`, `vmap`, `scan` and `checkpoint` keep the rule.
"""

from __future__ import annotations

import functools
import inspect
import types as python_types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, final, overload

from nxjax.errors import DtypeError, GradientError, MissingRuleError, ParameterError, TreeError, described
from nxjax.ops.arithmetic import add
from nxjax.ops.base import NDArray, check_count, check_operands, move_batch
from nxjax.ops.convert import convert_element_type
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import EVAL, Array, Arrays, Dims, Linear, Tangents, Tracer, current_trace, use
from nxjax.trace.evaluate import evaluate
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import instantiate, zero_tangent
from nxjax.transforms.linearize import linearize_flat
from nxjax.transforms.nested import Mask, Nested, Thread, batch_to_front, expand_by_mask, not_none_mask
from nxjax.transforms.partial_eval import PartialTrace
from nxjax.transforms.symbolic_zero import SymbolicZero, as_symbolic_zeros
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program, vmap_flat

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

Rule = Callable[[Arrays, Arrays], tuple[list[Array], list[Array | None]]]


class CustomCall(Nested):
    """Call of ``program`` with a derivative rule of its own; the first ``num_consts`` operands have none."""

    def infer(self, *types: ArrayType, program: Program, num_consts: int, rule: Rule) -> tuple[ArrayType, ...]:
        check_operands(self, types, program)
        check_count(self, "num_consts", num_consts, len(types))
        return program.out_types

    def eval(self, *xs: NDArray, program: Program, num_consts: int, rule: Any) -> tuple[NDArray, ...]:
        return tuple(evaluate(program, xs))

    def expand(self, *xs: Array, program: Program, num_consts: int, rule: Any) -> tuple[Array, ...]:
        return tuple(run(program, xs))

    def transpose(self, cts: Tangents, *args: Any, program: Program, num_consts: int, rule: Any) -> Tangents:
        linear = tuple(isinstance(x, Linear) for x in args)
        known = [x for x in args if not isinstance(x, Linear)]
        back = transpose_program(program, linear, not_none_mask(cts))
        return expand_by_mask(run(back, [*known, *(ct for ct in cts if ct is not None)]), linear)

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        return {**params, "program": thread(params["program"]), "num_consts": params["num_consts"] + 1}, 0, 0

    def stablehlo(self, b: Any, out: Any, *xs: Any, program: Program, num_consts: int, rule: Any) -> Any:
        return tuple(b.program(program, xs))


def batch_all_results(program: Program, size: int, mask: Mask, axis_name: Any) -> tuple[Program, Mask]:
    """``program`` with a batch in every result, as rules give them, and which results differ in it."""
    force = (True,) * len(program.outputs)
    varies = batch_program(program, size, mask, None, axis_name)[1] if size else force
    return batch_program(program, size, mask, force, axis_name)[0], varies


def unbatch_shared(ys: Arrays, varies: Mask) -> tuple[tuple[Array, ...], tuple[int | None, ...]]:
    """Batched results and where their batch is: of one that is the same in all elements, the first element."""
    found = tuple(y if v else _first(y) for y, v in zip(ys, varies, strict=True))
    return found, tuple(0 if v else None for v in varies)


def _first(y: Array) -> Array:
    shape = y.shape[1:]
    row = slice_op(y, start_indices=(0,) * y.ndim, limit_indices=(1, *shape), strides=None)
    return reshape(row, shape=shape)


def check_no_closed_over_tangents(name: str, program: Program, tangents: Tangents, num_consts: int) -> None:
    """A rule knows the arguments only: what the function closes over cannot be differentiated."""
    if any(t is not None for t in tangents[:num_consts]):
        raise GradientError(
            f"{name}: {program.name or 'the function'} closes over a value that is being differentiated",
            got="a traced value that is not an argument",
            fix="pass it as an argument of the function, so that the rule can answer for it",
        )


@final
class CustomJvpCall(CustomCall):
    """``rule(primals, tangents)`` gives results and their tangents."""

    name = "custom_jvp_call"
    aliases = {"call_jaxpr": "program", "jvp_jaxpr_fun": "rule"}

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, program: Program, num_consts: int, rule: Rule
    ) -> tuple[Any, Any]:
        check_no_closed_over_tangents("custom_jvp", program, tangents, num_consts)
        xs, ts = primals[num_consts:], tangents[num_consts:]
        if getattr(rule, "symbolic_zeros", False):
            filled: list[Any] = as_symbolic_zeros(ts, [x.type for x in xs])
        else:
            filled = [instantiate(t, x) for x, t in zip(xs, ts, strict=True)]
        ys, dys = rule(xs, filled)
        trace = current_trace()
        if isinstance(trace, PartialTrace) and staged(ys, trace) and not staged(xs, trace):
            ys, dys = _stage_tangents_only(rule, xs, filled, trace)
        check_results("custom_jvp", program, ys)
        return tuple(ys), tuple(dys)

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, program: Program, num_consts: int, rule: Rule
    ) -> tuple[Any, Any]:
        mask = not_none_mask(dims)
        mapped, varies = batch_all_results(program, size, mask, axis_name)
        lifted = BatchedJvp(rule, size, mask[num_consts:], axis_name)
        ys = self(*batch_to_front(args, dims, size), program=mapped, num_consts=num_consts, rule=lifted)
        return unbatch_shared(ys, varies)


def staged(xs: Sequence[Any], trace: PartialTrace) -> bool:
    """Whether one of them is known only when the tangents are."""
    return any(isinstance(x, Tracer) and x.owner is trace for x in xs)


def _stage_tangents_only(rule: Rule, xs: Arrays, ts: Sequence[Any], trace: PartialTrace) -> tuple[Arrays, Tangents]:
    """What ``rule`` gives, where it computes values and tangents in one loop or branch: the tangents alone are staged.

    Tangents are linear in tangents, so they are what the rule's own derivative says, at any point.
    """
    moving = tuple(staged([t], trace) for t in ts)
    known: list[Mask] = []

    def flat(*given: Array) -> Arrays:
        rest = iter(given)
        ys, dys = rule(xs, [next(rest) if m else t for t, m in zip(ts, moving, strict=True)])
        known[:] = [not_none_mask(dys)]
        return [*ys, *(t for t in dys if t is not None)]

    assert trace.parent is not None
    with use(trace.parent):
        zeros = [zero_tangent(t.type) for t, m in zip(ts, moving, strict=True) if m]
        found, tangent, varies = linearize_flat(flat, zeros, (True,) * len(zeros))
        tangent, residuals = tangent.close_over()
    pushed = iter(run(tangent, [*residuals, *(t for t, m in zip(ts, moving, strict=True) if m)]))
    values = [next(pushed) if v else y for y, v in zip(found, varies, strict=True)]
    count = len(found) - sum(known[0])
    return found[:count], expand_by_mask(values[count:], known[0])


custom_jvp_call = CustomJvpCall()


@final
@dataclass(frozen=True)
class BatchedJvp:
    """``rule`` for every element of a batch; arguments are batched in dimension 0 where ``dims`` says so."""

    rule: Rule
    size: int
    dims: Mask
    axis_name: Any

    def __call__(self, primals: Arrays, tangents: Arrays) -> tuple[list[Array], list[Array | None]]:
        varies: list[Mask] = []

        def flat(*xs: Array) -> Arrays:
            ys, ts = self.rule(xs[: len(primals)], xs[len(primals) :])
            varies[:] = [not_none_mask(ts)]
            return [*ys, *(t for t in ts if t is not None)]

        dims = [0 if d else None for d in self.dims]
        out, found = vmap_flat(flat, self.size, [*primals, *tangents], [*dims, *dims], self.axis_name)
        moved = [move_batch(y, d, self.size) for y, d in zip(out, found, strict=True)]
        n = len(varies[0])
        return moved[:n], expand_by_mask(moved[n:], varies[0])


def check_results(where: str, program: Program, ys: Arrays) -> None:
    """The rule must give the results that the function gives."""
    types = [y.type for y in ys]
    if len(types) != len(program.outputs) or not all(a.same(b) for a, b in zip(types, program.out_types, strict=True)):
        raise DtypeError(
            f"{where}: the rule of {program.name or 'the function'} gives other results than the function",
            got=", ".join(map(repr, types)),
            expected=", ".join(map(repr, program.out_types)),
        )


@final
class _UserRule:
    """The user's ``jvp`` on flat arguments."""

    def __init__(self, owner: custom_jvp, args: Sequence[Any], in_def: tree.TreeDef) -> None:
        self.owner = owner
        self.args = args
        self.in_def = in_def
        self.symbolic_zeros = owner.symbolic_zeros
        self.__qualname__ = f"jvp of {owner.__name__}"

    def __call__(self, primals: Arrays, tangents: Arrays) -> tuple[list[Array], list[Array | None]]:
        owner = self.owner
        assert owner.jvp is not None
        static = [self.args[i] for i in owner.nondiff]
        result = owner.jvp(*static, tree.unflatten(self.in_def, primals), tree.unflatten(self.in_def, tangents))
        if not (isinstance(result, (tuple, list)) and len(result) == 2):  # pyright: ignore[reportUnknownArgumentType]
            raise TreeError(
                f"custom_jvp: the rule of {owner.__name__} must give a pair",
                got=described(result),  # pyright: ignore[reportUnknownArgumentType]
                expected="(result, tangent)",
            )
        y, t = result  # pyright: ignore[reportUnknownVariableType]
        leaves, y_def = tree.flatten(y)
        t_leaves = tree.flatten_up_to(y_def, t, f"custom_jvp: tangents that the rule of {owner.__name__} gives")
        ys = [as_value(v, "custom_jvp") for v in leaves]
        return ys, [_tangent(owner.__name__, v, dv) for v, dv in zip(ys, t_leaves, strict=True)]


def _tangent(name: str, y: Array, t: Any) -> Array | None:
    if t is None or isinstance(t, SymbolicZero) or not dtypes.is_differentiable(y.dtype):
        return None
    if isinstance(t, (tuple, list, dict)):
        raise TreeError(
            f"custom_jvp: tangents that the rule of {name} gives differ in structure from the result",
            got=tree.structure(t),
            expected=y.type,
        )
    value = as_value(t, "custom_jvp: tangent")
    if value.dtype == dtypes.float0:
        return None
    if value.shape == y.shape and value.dtype != y.dtype and value.type.weak:
        value = convert_element_type(value, dtype=y.dtype)
    if value.shape != y.shape or value.dtype != y.dtype:
        raise DtypeError(
            f"custom_jvp: the rule of {name} gives a tangent of another type than the result",
            got=value.type,
            expected=y.type,
        )
    return value


def positional(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, defaults filled in."""
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if kwargs:
            raise ParameterError("custom derivative: keyword arguments need a signature", got=sorted(kwargs)) from None
        return args
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise ParameterError(
            "custom derivative: keyword-only arguments have no place in a rule",
            got=sorted(bound.kwargs),
            fix="make them positional",
        )
    return bound.args


def nondiff_positions(fun: Callable[..., Any], nums: Sequence[int], names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the arguments that are not differentiated, in order."""
    if not isinstance(nums, (tuple, list, range)) or not all(isinstance(n, int) for n in nums):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError(
            "nondiff_argnums",
            got=described(nums),
            expected="a tuple of ints",
            fix="call what this gives: custom_jvp(f)(x)",
        )
    found = [*nums]
    if names:
        parameters = list(inspect.signature(fun).parameters)
        for name in names:
            if name not in parameters:
                raise ParameterError("nondiff_argnames names no parameter", got=name, expected=parameters)
            found.append(parameters.index(name))
    return tuple(sorted(set(found)))


def is_eager(leaves: Sequence[Any]) -> bool:
    """True when nothing is being traced, so that the function can simply be called."""
    return current_trace() is EVAL and not any(isinstance(x, Tracer) for x in leaves)


class CustomFunction(Generic[P, R]):
    """A callable with a rule of its own: argument handling that `custom_jvp` and `custom_vjp` share."""

    __name__: str
    transform: str

    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        if not callable(fun):
            raise ParameterError(f"{self.transform}: needs a function", got=type(fun).__name__)
        functools.update_wrapper(self, fun)
        self.__name__ = getattr(fun, "__name__", "function")
        self.fun: Callable[..., Any] = fun
        self.nondiff = nondiff_positions(fun, nondiff_argnums, nondiff_argnames)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: CustomFunction[Concatenate[Any, Q], R], instance: object, owner: Any = None
    ) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else python_types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.transform} of {self.__name__}>"

    def has_rule(self) -> bool:
        raise NotImplementedError

    def bind(self, consts: Arrays, xs: Arrays, program: Program, rule: Any) -> Arrays:
        raise NotImplementedError

    def rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> Any:
        raise NotImplementedError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.has_rule():
            raise MissingRuleError(
                f"{self.transform}: {self.__name__} has no rule",
                fix=f"give it one with {self.__name__}.def{self.transform.removeprefix('custom_')}(...)",
            )
        full = positional(self.fun, args, kwargs)
        nondiff = {i % len(full) for i in self.nondiff} if full else set[int]()
        varying = tuple(a for i, a in enumerate(full) if i not in nondiff)
        leaves, in_def = tree.flatten(varying)
        if is_eager([*leaves, *(x for i in nondiff for x in tree.leaves(full[i]))]):
            return self.fun(*full)
        xs = [as_value(x, self.transform) for x in leaves]
        out_defs: list[tree.TreeDef] = []

        def flat(*values: Array) -> Sequence[Any]:
            rest = iter(tree.unflatten(in_def, values))
            given = [a if i in nondiff else next(rest) for i, a in enumerate(full)]
            ys, out_def = tree.flatten(self.fun(*given))
            out_defs.append(out_def)
            return ys

        names = tree.path_names(varying, "arguments")
        program = stage(flat, [x.type for x in xs], self.__name__, names)
        opened, consts = program.close_over()
        out = self.bind(consts, xs, opened, self.rule(full, in_def))
        return tree.unflatten(out_defs[0], out)


@final
class custom_jvp(CustomFunction[P, R]):
    """A function whose forward derivative is given by `defjvp` or `defjvps`; reverse mode follows by transposition.

    Args:
        fun: function of pytrees.
        nondiff_argnums, nondiff_argnames: arguments that are handed to the rule first, as they are.

    >>> import nxjax as nx
    >>> @custom_jvp
    ... def f(x):
    ...     return nx.sin(x)
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     return f(*primals), 2.0 * tangents[0]
    >>> float(nx.grad(f)(1.0))
    2.0
    """

    transform = "custom_jvp"

    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: Sequence[str] = (),
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        self._rules: dict[tree.TreeDef, _UserRule] = {}

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """``jvp(*nondiff, primals, tangents) -> (result, tangent)``.

        Zero tangents are written out, or `SymbolicZero` with ``symbolic_zeros``.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        self._rules.clear()
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One ``jvp(tangent, result, *primals) -> tangent`` per argument, or None where it is zero."""
        if self.nondiff:
            raise ParameterError("custom_jvp: defjvps does not go with nondiff_argnums", fix="use defjvp")

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            if len(jvps) != len(tangents):
                raise ParameterError(
                    f"custom_jvp: defjvps of {self.__name__} takes one rule per argument",
                    got=f"{len(jvps)} rules",
                    expected=f"{len(tangents)}",
                    fix="give None for an argument without a derivative",
                )
            y: Any = self(*primals)  # pyright: ignore[reportCallIssue]
            leaves, y_def = tree.flatten(y)
            totals: list[Any] = [None] * len(leaves)
            for rule, t in zip(jvps, tangents, strict=True):
                if rule is not None:
                    parts = tree.flatten_up_to(y_def, rule(t, y, *primals), "custom_jvp: defjvps")
                    totals = [
                        p if total is None else add(total, as_value(p)) for total, p in zip(totals, parts, strict=True)
                    ]
            ts = [instantiate(t, as_value(v)) if t is None else t for t, v in zip(totals, leaves, strict=True)]
            return y, tree.unflatten(y_def, ts)

        self.defjvp(jvp)

    def has_rule(self) -> bool:
        return self.jvp is not None

    def rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> _UserRule:
        if self.nondiff:
            return _UserRule(self, args, in_def)
        # One object per structure: programs made from the same function stay equal, and compile once.
        found = self._rules.get(in_def)
        if found is None:
            found = self._rules[in_def] = _UserRule(self, (), in_def)
        return found

    def bind(self, consts: Arrays, xs: Arrays, program: Program, rule: Any) -> Arrays:
        return custom_jvp_call(*consts, *xs, program=program, num_consts=len(consts), rule=rule)
