"""`checkpoint` (`remat`): keep fewer values for the backward pass and recompute them there.

Linearization of the op computes the value and keeps only what the policy names. The staged tangent equation is a
`checkpoint` again: a program from (inputs, kept values, tangents) in which the other values are computed anew. Its
transpose is a `checkpoint` of the transposed program, so the recomputation happens where the cotangents are, and an
optimization barrier keeps a compiler from merging it with the first computation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar, final, overload

from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError, Shown, needs_function
from nxjax.ops.base import Contraction, LinearOp
from nxjax.ops.dot import dot_general
from nxjax.ops.identity import IdentityOp
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Op, Tangents, UndefinedPrimal, use
from nxjax.trace.program import Atom, Program, Var, run
from nxjax.trace.stage import stage
from nxjax.trace.text import param_class
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of, wraps
from nxjax.transforms.call import ProgramCall
from nxjax.transforms.custom_call import is_eager
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.linearize import linearize_flat
from nxjax.transforms.partial_eval import OpPolicy, PartialTrace, Policy, ProgramPolicy, partial_eval
from nxjax.transforms.subprograms import Mask, merge_by_mask, select_by_mask

P = ParamSpec("P")
R = TypeVar("R")


@final
class Checkpoint(ProgramCall):
    """Call of ``program``; ``differentiated`` says that it recomputes values."""

    name = "checkpoint"

    def infer(
        self, *types: ArrayType, program: Program, prevent_cse: bool, policy: Policy | None, differentiated: bool
    ) -> tuple[ArrayType, ...]:
        return super().infer(*types, program=program)

    def transposed(self, program: Program, linear: Mask, given: Mask) -> Program:
        back = super().transposed(program, linear, given)
        return back.derive(("on demand", sum(given)), lambda: _on_demand(back, sum(given)))

    def derived(self, transform: str, program: Program, args: Arrays, params: dict[str, Any]) -> Sequence[Array]:
        if transform == "transpose":
            params = {**params, "differentiated": True}
        return super().derived(transform, program, args, params)

    def partial_eval(
        self, trace: PartialTrace, args: Arrays, known: Mask, *, program: Program, policy: Policy | None, **rest: Any
    ) -> tuple[Array, ...]:
        halves = partial_eval(program, known, policy or nothing_saveable)
        inputs = select_by_mask(args, known)
        assert trace.parent is not None
        with use(trace.parent):
            out = run(halves.known, inputs)
        if not halves.is_cut:
            return tuple(out)
        again, consts = halves.unknown.hoist_consts()
        operands = [*consts, *halves.residuals(inputs, out), *select_by_mask(args, [not k for k in known])]
        late = trace.process_unknown(
            self, operands, {**rest, "program": again, "policy": policy, "differentiated": True}
        )
        return tuple(merge_by_mask(out, late, halves.known_out))

    def stablehlo(
        self,
        b: Any,
        out: tuple[ArrayType, ...],
        *xs: Any,
        program: Program,
        prevent_cse: bool,
        policy: Policy | None,
        differentiated: bool,
    ) -> Any:
        if differentiated and prevent_cse and xs:
            xs = b.op("stablehlo.optimization_barrier", xs, tuple(x.type for x in xs))
        return super().stablehlo(b, out, *xs, program=program)


checkpoint_op = Checkpoint()


def _on_demand(program: Program, count: int) -> Program:
    """The equations in another order: what does not depend on the last ``count`` inputs, the cotangents, is computed
    where it is first needed. So values that are computed again are not all there at once."""
    reached = set[Var](program.inputs[len(program.inputs) - count :])
    places = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
    order: dict[int, None] = {}

    def need(atoms: Iterable[Atom]) -> None:
        found: set[int] = set()
        stack = list(atoms)
        while stack:
            i = places.get(a) if isinstance(a := stack.pop(), Var) else None
            if i is not None and i not in order and i not in found:
                found.add(i)
                stack += program.equations[i].inputs
        order.update(dict.fromkeys(sorted(found)))

    for i, e in enumerate(program.equations):
        if e.effect or not reached.isdisjoint(e.inputs):
            reached.update(e.outputs)
            need(e.inputs)
            order[i] = None
    need(program.outputs)
    equations = [program.equations[i] for i in order]
    return Program(program.inputs, equations, program.outputs, program.constvars, program.values, program.name)


@final
class Name(LinearOp, IdentityOp):
    """``x`` itself, with a name that checkpoint policies can see."""

    name = "name"

    def infer(self, x: ArrayType, /, *, name: str) -> ArrayType:
        return x

    def jvp(self, primals: Arrays, tangents: Tangents, *, name: str) -> tuple[Array, Array | None]:
        return self(primals[0], name=name), tangents[0]

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, name: str) -> Tangents:
        return (ct,)


name_op = Name()


def checkpoint_name(x: Any, name: str) -> Any:
    """``x`` (a pytree) with a name for `checkpoint_policies.save_only_these_names` and similar policies.

    >>> policy = checkpoint_policies.save_only_these_names("y")
    >>> f = nx.checkpoint(lambda x: nx.sin(checkpoint_name(nx.sin(x), "y")), policy=policy)
    >>> saved_residuals(f, 1.0)
    [f32[]*, f32[]*]
    """
    return tree.map(lambda leaf: name_op(as_value(leaf, "checkpoint_name"), name=name), x)


@overload
def checkpoint(
    fun: Callable[P, R],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Callable[P, R]: ...
@overload
def checkpoint(
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    concrete: bool = False,
) -> Any:
    """``fun`` without saved intermediate values: the backward pass recomputes them.

    Args:
        fun: function of pytrees. Left out, `checkpoint` is a decorator with options.
        prevent_cse: keep a compiler from merging the two computations; may be False inside `scan`, where they are
            separate.
        policy: which values may be kept; see `checkpoint_policies` and `fit_in`. None keeps only the arguments. A
            policy applies inside jitted functions; a loop counts as one op.
        static_argnums, static_argnames: arguments that stay Python values; names are of keyword arguments.

    Raises:
        ParameterError: not a function.

    >>> float(nx.grad(checkpoint(lambda x: nx.sin(nx.sin(x))))(0.0))
    1.0
    """
    if fun is None:
        return functools.partial(
            checkpoint,
            prevent_cse=prevent_cse,
            policy=policy,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            concrete=concrete,
        )
    if not callable(fun):
        raise ParameterError("checkpoint: needs a function", got=type(fun).__name__)
    if policy is not None and not isinstance(policy, ProgramPolicy) and not callable(policy):
        raise ParameterError(
            "checkpoint: policy",
            got=repr(policy),
            expected="a function, or None",
            fix="one of nx.checkpoint_policies, such as nx.checkpoint_policies.dots_saveable",
        )
    fixed = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    named_fixed = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    name = name_of(fun)

    @wraps(fun)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        static = {i % len(args) for i in fixed if -len(args) <= i < len(args)}
        given = tuple(a for i, a in enumerate(args) if i not in static)
        python = {k: v for k, v in kwargs.items() if k in named_fixed}
        arrays = {k: v for k, v in kwargs.items() if k not in python}
        leaves, treedef = tree.flatten((given, arrays))
        xs = [as_value(x, "checkpoint") for x in leaves]

        def called(dynamic: Sequence[Any], named: dict[str, Any]) -> Any:
            rest = iter(dynamic)
            whole = [a if i in static else next(rest) for i, a in enumerate(args)]
            return fun(*whole, **named, **python)

        if is_eager(leaves):
            return called(*tree.unflatten(treedef, xs))
        flat = FlatFunction(called, treedef)
        program = stage(flat, [x.type for x in xs], name, tree.path_names((given, arrays), "arguments"))
        hoisted, consts = program.hoist_consts()
        out = checkpoint_op(*consts, *xs, program=hoisted, prevent_cse=prevent_cse, policy=policy, differentiated=False)
        return tree.unflatten(flat.out_def, out)

    return recomputed


remat = checkpoint


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[ArrayType]:
    """The types of the values that differentiating ``fun`` keeps for the backward pass.

    Args:
        fun: function of pytrees.
        args, kwargs: its arguments.

    >>> saved_residuals(lambda x: nx.sin(x), nx.ones(3))
    [f32[3]]
    """
    needs_function("saved_residuals", fun, "saved_residuals(f, x)")
    leaves, treedef = tree.flatten((args, kwargs))
    values = [as_value(x, "saved_residuals") for x in leaves]
    found: list[ArrayType] = []
    inner = FlatFunction(lambda args, kwargs: fun(*args, **kwargs), treedef)

    def flat(*xs: Array) -> Arrays:
        varying = [dtypes.is_differentiable(x.dtype) for x in xs]
        ys, program, _ = linearize_flat(inner, xs, varying)
        found[:] = [v.type for v in program.constvars]
        return ys

    stage(flat, [x.type for x in values], "saved_residuals")
    return found


def print_saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print one line per value that the backward pass of ``fun`` keeps.

    >>> print_saved_residuals(lambda x: nx.sin(x), nx.ones(3))
    f32[3]
    """
    for type in saved_residuals(fun, *args, **kwargs):
        print(type)


# --- policies ---


def everything_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep everything, as without `checkpoint`."""
    return True


def nothing_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep only the arguments, as without a policy."""
    return False


def dots_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep the results of matrix products and convolutions."""
    return isinstance(op, Contraction)


def dots_with_no_batch_dims_saveable(op: Op, *types: ArrayType, **params: Any) -> bool:
    """Keep the results of matrix products without batch dimensions: those with weights, in most networks."""
    return op is dot_general and not any(params["dimension_numbers"][1])


def _name_of(op: Op, params: dict[str, Any]) -> str | None:
    """The name that `checkpoint_name` gives a value."""
    return params["name"] if op is name_op else None


@final
@param_class
@dataclass(frozen=True)
class SaveOnlyTheseNames:
    names: tuple[str, ...]

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        return _name_of(op, params) in self.names


@final
@param_class
@dataclass(frozen=True)
class SaveAnyNamesButThese:
    names: tuple[str, ...]

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        name = _name_of(op, params)
        return name is not None and name not in self.names


@final
@param_class
@dataclass(frozen=True)
class SaveAnythingExceptTheseNames:
    names: tuple[str, ...]

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        return _name_of(op, params) not in self.names


@final
@dataclass(frozen=True)
class SaveFromBoth:
    first: OpPolicy
    second: OpPolicy

    def __call__(self, op: Op, *types: ArrayType, **params: Any) -> bool:
        return self.first(op, *types, **params) or self.second(op, *types, **params)


@final
class CheckpointPolicies(Shown):
    """Ready-made policies for `checkpoint`."""

    everything_saveable = staticmethod(everything_saveable)
    nothing_saveable = staticmethod(nothing_saveable)
    dots_saveable = checkpoint_dots = staticmethod(dots_saveable)
    dots_with_no_batch_dims_saveable = staticmethod(dots_with_no_batch_dims_saveable)
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Keep values with one of ``names`` from `checkpoint_name`."""
        return SaveOnlyTheseNames(names)

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Keep values with other names than ``names``."""
        return SaveAnyNamesButThese(names)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        """Keep all values except those with one of ``names``."""
        return SaveAnythingExceptTheseNames(names)

    @staticmethod
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Keep what either policy keeps.

        Raises:
            ParameterError: one of them looks at whole programs, as `fit_in` does.
        """
        if isinstance(first, ProgramPolicy) or isinstance(second, ProgramPolicy):
            raise ParameterError(
                "checkpoint: save_from_both_policies",
                got=f"{first!r}, {second!r}",
                expected="policies that decide op by op",
                fix="fit_in alone: it decides on all values",
            )
        return SaveFromBoth(first, second)


checkpoint_policies: Final = CheckpointPolicies()
