"""Shared by functions with custom rules: the op that calls such a function, and the object that users make of it.

The call is one op with two parameters. The traced function makes it print, compile and batch like any op. The rule is a
Python object that transforms call. Knows no transform that a rule is for.
"""

from __future__ import annotations

import inspect
import types as python_types
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from nxjax.errors import DtypeError, GradientError, MissingRuleError, ParameterError, described
from nxjax.ops.base import check_count
from nxjax.ops.slicing import row
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import EVAL, Array, Arrays, Dims, Tangents, Tracer, UndefinedPrimal, current_trace
from nxjax.trace.program import Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of, wraps
from nxjax.transforms.call import ProgramCall
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.nested import Thread, batch_to_front
from nxjax.transforms.subprograms import Mask, expand_by_mask, mask_or, not_none_mask
from nxjax.transforms.transpose import transpose_program
from nxjax.transforms.vmap import batch_program, vmap_flat

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


# Whether a rule is run for what varies in it alone. It may call its own function, whose derivative nobody takes then.
_asking: ContextVar[bool] = ContextVar("asking", default=False)


class CustomCall(ProgramCall):
    """Call of ``program`` with a rule of its own; the first ``num_consts`` operands are none of the rule's."""

    # The rule for every element of a batch, from (rule, size, which arguments are batched, in dimension 0, axis name).
    batched_rule: ClassVar[type[Any]]

    def infer(
        self, *types: ArrayType, program: Program, num_consts: int, rule: Callable[..., Any]
    ) -> tuple[ArrayType, ...]:
        check_count(self, "num_consts", num_consts, len(types))
        return super().infer(*types, program=program)

    def _rule_varies(self, rule: Any, types: Sequence[ArrayType], count: int) -> Mask:
        """Of each result whether its derivative by the batched ``rule`` varies, which the result itself may not do."""
        found: list[Mask] = []

        def flat(*xs: Array) -> Arrays:
            ys, varies = self.derivative(rule, xs, count)
            found.append(varies)
            return ys

        token = _asking.set(True)
        try:
            stage(flat, types, self.name)
        finally:
            _asking.reset(token)
        return found[0]

    def derivative(self, rule: Any, primals: Arrays, count: int) -> tuple[Arrays, Mask]:
        """What the batched ``rule`` gives, and of each of ``count`` results whether it or its derivative varies."""
        raise NotImplementedError

    def with_token(self, params: dict[str, Any], thread: Thread) -> tuple[dict[str, Any], int, int]:
        return super().with_token({**params, "num_consts": params["num_consts"] + 1}, thread)

    def transpose(self, cts: Tangents, *args: Any, program: Program, **_: Any) -> Tangents:
        linear = tuple(isinstance(x, UndefinedPrimal) for x in args)
        known = [x for x in args if not isinstance(x, UndefinedPrimal)]
        back = transpose_program(program, linear, not_none_mask(cts))
        return expand_by_mask(run(back, [*known, *(ct for ct in cts if ct is not None)]), linear)

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, program: Program, num_consts: int, rule: Any
    ) -> tuple[Any, Any]:
        mask, force = not_none_mask(dims), (True,) * len(program.outputs)
        varies = batch_program(program, size, mask, None, axis_name)[1] if size else force
        mapped, _ = batch_program(program, size, mask, force, axis_name)
        rule = self.batched_rule(rule, size, mask[num_consts:], axis_name)
        if not (all(varies) or _asking.get()):
            varies = mask_or(varies, self._rule_varies(rule, mapped.in_types[num_consts:], len(force)))
        # Rules give a batch in every result; of one that is the same in all elements, the first element is taken.
        ys = self(*batch_to_front(args, dims, size), program=mapped, num_consts=num_consts, rule=rule)
        first = tuple(y if v else row(y, 0) for y, v in zip(ys, varies, strict=True))
        return first, tuple(0 if v else None for v in varies)


def vmap_with_zeros(
    function: Callable[..., Tangents], size: int, xs: Arrays, dims: Dims, axis_name: Any
) -> tuple[list[Any], list[int | None]]:
    """As `vmap_flat`, of a function whose results may be None."""
    mask: Mask = ()

    def flat(*values: Array) -> list[Array]:
        nonlocal mask
        ys = function(*values)
        mask = not_none_mask(ys)
        return [y for y in ys if y is not None]

    ys, out = vmap_flat(flat, size, xs, dims, axis_name)
    return expand_by_mask(ys, mask), expand_by_mask(out, mask)


def check_no_closed_over_tangents(name: str, program: Program, tangents: Tangents, num_consts: int) -> None:
    """A rule knows the arguments only: what the function closes over cannot be differentiated."""
    if any(t is not None for t in tangents[:num_consts]):
        raise GradientError(
            f"{name}: {program.name or 'the function'} closes over a value that is being differentiated",
            got="a traced value that is not an argument",
            fix="pass it as an argument of the function, so that the rule can answer for it",
        )


def check_results(where: str, program: Program, ys: Arrays) -> None:
    """The rule must give the results that the function gives."""
    types = [y.type for y in ys]
    if len(types) != len(program.outputs) or not all(
        a.typematch(b) for a, b in zip(types, program.out_types, strict=True)
    ):
        raise DtypeError(
            f"{where}: the rule of {program.name or 'the function'} gives other results than the function",
            got=", ".join(map(repr, types)),
            expected=", ".join(map(repr, program.out_types)),
        )


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
    """A callable with a rule of its own: argument handling that all of them share. ``op`` calls it."""

    __name__: str
    transform: str
    op: ClassVar[CustomCall]

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        if not callable(fun):
            raise ParameterError(f"{self.transform}: needs a function", got=type(fun).__name__)
        wraps(fun)(self)
        self.__name__ = name_of(fun)
        self.fun: Callable[..., Any] = fun
        self.nondiff = nondiff_positions(fun, nondiff_argnums, nondiff_argnames)
        self._rules: dict[tree.TreeDef, Any] = {}

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

    def flat_rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> Any:
        """The user's rule on flat arguments. ``args``: all of a call, where some are not differentiated."""
        raise NotImplementedError

    def _rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> Any:
        if self.nondiff:
            return self.flat_rule(args, in_def)
        # One object per structure: programs made from the same function stay equal, and compile once.
        found = self._rules.get(in_def)
        if found is None:
            found = self._rules[in_def] = self.flat_rule((), in_def)
        return found

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

        def called(*given: Any) -> Any:
            rest = iter(given)
            return self.fun(*(a if i in nondiff else next(rest) for i, a in enumerate(full)))

        flat = FlatFunction(called, in_def)
        names = tree.path_names(varying, "arguments")
        program, consts = stage(flat, [x.type for x in xs], self.__name__, names).hoist_consts()
        rule = self._rule(full, in_def)
        out = self.op(*consts, *xs, program=program, num_consts=len(consts), rule=rule)
        return tree.unflatten(flat.out_def, out)
