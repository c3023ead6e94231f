"""`custom_jvp`: a function with the user's own forward derivative.

The call is one op that holds the traced function, so that it prints, compiles and batches like any other, and the rule,
a Python function that is run when somebody differentiates. `jit`, `vmap`, `scan` and `checkpoint` keep the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import DtypeError, ParameterError, TreeError
from nxjax.ops.arithmetic import add
from nxjax.ops.base import move_batch
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Tangents, Tracer, current_trace, use
from nxjax.trace.program import Program, run
from nxjax.transforms.custom_call import (
    CustomCall,
    CustomFunction,
    check_no_closed_over_tangents,
    check_results,
    vmap_with_zeros,
)
from nxjax.transforms.has_aux import check_pair
from nxjax.transforms.jvp import instantiate, zero_tangent
from nxjax.transforms.linear_util import wrap_init
from nxjax.transforms.linearize import linearize_flat
from nxjax.transforms.partial_eval import PartialTrace
from nxjax.transforms.subprograms import Mask, expand_by_mask, mask_or, not_none_mask
from nxjax.transforms.symbolic_zero import SymbolicZero, as_symbolic_zeros

P = ParamSpec("P")
R = TypeVar("R")

Rule = Callable[[Arrays, Arrays], tuple[list[Array], list[Array | None]]]


@final
@dataclass(frozen=True)
class BatchedJvp:
    """``rule`` for every element of a batch; arguments are batched in dimension 0 where ``dims`` says so."""

    rule: Rule
    size: int
    dims: Mask
    axis_name: Any

    def __call__(self, primals: Arrays, tangents: Arrays) -> tuple[list[Array], list[Array | None]]:
        out, found = self.results(primals, tangents)
        moved: list[Any] = [None if y is None else move_batch(y, d, self.size) for y, d in zip(out, found, strict=True)]
        n = len(moved) // 2
        return moved[:n], moved[n:]

    def results(self, primals: Arrays, tangents: Arrays) -> tuple[list[Any], list[int | None]]:
        """What the rule gives, results then tangents, and along which dimension each varies."""

        def flat(*xs: Array) -> Tangents:
            ys, ts = self.rule(xs[: len(primals)], xs[len(primals) :])
            return [*ys, *ts]

        dims = [0 if d else None for d in self.dims]
        return vmap_with_zeros(flat, self.size, [*primals, *tangents], [*dims, *dims], self.axis_name)


@final
class CustomJvpCall(CustomCall):
    """``rule(primals, tangents)`` returns results and their tangents."""

    name = "custom_jvp_call"
    users_rule = True
    aliases = {"call_jaxpr": "program", "jvp_jaxpr_fun": "rule", "subfuns": ""}
    batched_rule = BatchedJvp

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """With ``subfuns``, whose first an interpreter of programs may call instead; `bind` takes no notice of it."""
        program: Program = params["program"]
        return {**params, "subfuns": [wrap_init(lambda *xs: list(program(*xs)))]}

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

    def derivative(self, rule: BatchedJvp, primals: Arrays, count: int) -> tuple[Arrays, Mask]:
        ys, dims = rule.results(primals, [zero_tangent(x.type) for x in primals])
        varies = not_none_mask(dims)
        return [y for y in ys if y is not None], mask_or(varies[:count], varies[count:])


custom_jvp_call = CustomJvpCall()


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
        tangent, residuals = tangent.hoist_consts()
    pushed = iter(run(tangent, [*residuals, *(t for t, m in zip(ts, moving, strict=True) if m)]))
    values = [next(pushed) if v else y for y, v in zip(found, varies, strict=True)]
    count = len(found) - sum(known[0])
    return found[:count], expand_by_mask(values[count:], known[0])


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
        y, t = check_pair(f"custom_jvp: the rule of {owner.__name__}", result, "(result, tangent)")
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


@final
class custom_jvp(CustomFunction[P, R]):
    """A function with a custom forward derivative, set by `defjvp` or `defjvps`. Reverse mode is its transpose.

    Args:
        fun: function of pytrees.
        nondiff_argnums, nondiff_argnames: arguments that the rule gets first, unchanged.

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
    op = custom_jvp_call

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """``jvp(*nondiff, primals, tangents) -> (result, tangent)``.

        Zero tangents are arrays, or `SymbolicZero` with ``symbolic_zeros``.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        self._rules.clear()
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One ``jvp(tangent, result, *primals) -> tangent`` per argument, or None if it is zero."""
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

    def flat_rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> _UserRule:
        return _UserRule(self, args, in_def)
