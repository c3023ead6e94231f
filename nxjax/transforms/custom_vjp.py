"""`custom_vjp`: a function with the user's own reverse derivative; `custom_gradient` and `closure_convert`.

Differentiating the call runs the user's ``fwd`` and leaves one linear op, `custom_lin`, on the tangents. It cannot be
run forwards, since nobody said how; transposed, it is the user's ``bwd``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, final

from nxjax.config.dataclass import dataclass
from nxjax.errors import GradientError, ParameterError, ShapeError, Shown, TreeError, described, needs_function
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import NDArray, check_count, like, move_batch, require
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents, Tracer, UndefinedPrimal
from nxjax.trace.program import Program, run
from nxjax.trace.scope import current_scope, replaying
from nxjax.trace.stage import stage
from nxjax.trace.tree_nodes import register_pytree_node
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import wraps
from nxjax.transforms.custom_call import (
    CustomCall,
    CustomFunction,
    check_no_closed_over_tangents,
    check_results,
    vmap_with_zeros,
)
from nxjax.transforms.has_aux import FlatFunction, check_pair
from nxjax.transforms.jvp import zero_tangent
from nxjax.transforms.subprograms import Mask, merge_by_mask, not_none_mask, select_by_mask, split_by_mask
from nxjax.transforms.symbolic_zero import SymbolicZero, as_symbolic_zeros
from nxjax.transforms.vmap import vmap_flat

P = ParamSpec("P")
R = TypeVar("R")

Pullback = Callable[[Arrays, Arrays], list[Array | None]]


class Forward:
    """What `CustomVjpCall` holds: ``rule(primals) -> (results, residuals, pull)``.

    ``pull(residuals, cotangents)`` gives a cotangent, or None for zero, per primal.
    """

    def __call__(self, primals: Arrays) -> tuple[list[Array], list[Array], Pullback]:
        raise NotImplementedError

    def with_perturbed(self, perturbed: Mask) -> Forward:
        """The rule when it is known which primals are being differentiated."""
        return self


@final
@dataclass(frozen=True)
class BatchedForward(Forward):
    """``rule`` for every element of a batch; arguments are batched in dimension 0 where ``dims`` says so."""

    rule: Forward
    size: int
    dims: Mask
    axis_name: Any

    def with_perturbed(self, perturbed: Mask) -> Forward:
        return replace(self, rule=self.rule.with_perturbed(perturbed))

    def __call__(self, primals: Arrays) -> tuple[list[Array], list[Array], _BatchedPullback]:
        store: list[Any] = []

        def flat(*xs: Array) -> Arrays:
            ys, residuals, pull = self.rule(xs)
            store[:] = [len(ys), pull]
            return [*ys, *residuals]

        dims = [0 if d else None for d in self.dims]
        out, found = vmap_flat(flat, self.size, primals, dims, self.axis_name)
        n, pull = store
        ys = [move_batch(y, d, self.size) for y, d in zip(out[:n], found[:n], strict=True)]
        return ys, out[n:], _BatchedPullback(pull, self.size, tuple(found[n:]), self.dims, self.axis_name)


@final
@dataclass(frozen=True)
class _BatchedPullback:
    pull: Pullback
    size: int
    residual_dims: tuple[int | None, ...]
    dims: Mask
    axis_name: Any

    def __call__(self, residuals: Arrays, cts: Arrays) -> list[Array | None]:
        n = len(residuals)
        dims = [*self.residual_dims, *(0,) * len(cts)]
        found, out = vmap_with_zeros(
            lambda *xs: self.pull(xs[:n], xs[n:]), self.size, [*residuals, *cts], dims, self.axis_name
        )
        return [
            None if ct is None else self._placed(ct, d, batched)
            for ct, d, batched in zip(found, out, self.dims, strict=True)
        ]

    def _placed(self, ct: Array, dim: int | None, is_batched: bool) -> Array:
        if is_batched:
            return move_batch(ct, dim, self.size)
        # An argument that all elements share collects the cotangents of all of them.
        return ops.mul(ct, like(ct, self.size)) if dim is None else ops.reduce_sum(ct, axes=(dim,))


@final
class CustomVjpCall(CustomCall):
    """``rule`` is a `Forward`."""

    name = "custom_vjp_call"
    users_rule = True
    aliases = {"call_jaxpr": "program"}
    batched_rule = BatchedForward

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, program: Program, num_consts: int, rule: Forward
    ) -> tuple[Any, Any]:
        check_no_closed_over_tangents("custom_vjp", program, tangents, num_consts)
        mask = not_none_mask(tangents[num_consts:])
        ys, residuals, pull = rule.with_perturbed(mask)(primals[num_consts:])
        check_results("custom_vjp", program, ys)
        differentiable = tuple(dtypes.is_differentiable(y.dtype) for y in ys)
        found = custom_lin(
            *residuals,
            *(t for t in tangents if t is not None),
            num_residuals=len(residuals),
            varying=mask,
            pull=pull,
            out_types=tuple(y.type.strong() for y in ys),
        )
        return tuple(ys), tuple(t if d else None for t, d in zip(found, differentiable, strict=True))

    def derivative(self, rule: BatchedForward, primals: Arrays, count: int) -> tuple[Arrays, Mask]:
        ys, residuals, pull = rule(primals)
        return [*ys, *residuals], (any(not_none_mask(pull.residual_dims)),) * count


@final
class CustomLin(Op):
    """The tangent of a `custom_vjp` function: known only by its transpose, ``pull``."""

    name = "custom_lin"
    users_rule = True
    multi = True
    pulls_zeros = True  # ``pull`` need not be linear: as "cotangents" it may give what a training step is to remember

    def infer(
        self, *types: ArrayType, num_residuals: int, varying: Mask, pull: Pullback, out_types: tuple[ArrayType, ...]
    ) -> tuple[ArrayType, ...]:
        tangents = len(types) - check_count(self, "num_residuals", num_residuals, len(types))
        require(self, tangents == sum(varying), "tangents", tangents, f"{sum(varying)}, one per argument that varies")
        return out_types

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        raise _no_forward_mode()

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> Any:
        raise _no_forward_mode()

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        raise _no_forward_mode()

    def transpose(
        self,
        cts: Tangents,
        *args: Any,
        num_residuals: int,
        varying: Mask,
        pull: Pullback,
        out_types: tuple[ArrayType, ...],
    ) -> Tangents:
        if getattr(pull, "symbolic_zeros", False):
            filled: list[Any] = as_symbolic_zeros(cts, out_types)
        else:
            filled = [zero_tangent(t) if ct is None else ct for ct, t in zip(cts, out_types, strict=True)]
        found = select_by_mask(pull(args[:num_residuals], filled), varying)
        return [
            *(None,) * num_residuals,
            *(
                ct if isinstance(x, UndefinedPrimal) else None
                for x, ct in zip(args[num_residuals:], found, strict=True)
            ),
        ]


def _no_forward_mode() -> GradientError:
    return GradientError(
        "jvp: a custom_vjp function has a reverse-mode rule only",
        got="forward mode (nx.jvp, nx.jacfwd, nx.linearize)",
        fix="use nx.grad or nx.jacrev, or give the function a rule with nx.custom_jvp",
    )


custom_vjp_call = CustomVjpCall()
custom_lin = CustomLin()


@final
class CustomVJPPrimal(Shown):
    """A leaf of ``fwd``'s arguments with ``symbolic_zeros=True``: the value, and whether it may be perturbed.

    >>> primal = CustomVJPPrimal(2.0, perturbed=False)
    >>> primal.value, primal.perturbed
    (2.0, False)
    """

    def __init__(self, value: Array, perturbed: bool = True) -> None:
        self.value = value
        self.perturbed = perturbed


def custom_vjp_primal_tree_values(tree_of_primals: Any) -> Any:
    """The values of a tree of `CustomVJPPrimal`, from the arguments of ``fwd`` with ``symbolic_zeros=True``.

    Raises:
        TreeError: a leaf of another class.

    >>> custom_vjp_primal_tree_values((CustomVJPPrimal(1.0), [CustomVJPPrimal(2.0, False)]))
    (1.0, [2.0])
    """

    def value(x: Any) -> Any:
        if not isinstance(x, CustomVJPPrimal):
            raise TreeError("custom_vjp_primal_tree_values: a leaf is no CustomVJPPrimal", got=type(x).__name__)
        return x.value

    return tree.map(value, tree_of_primals)


@final
class _UserForward(Forward):
    """The user's ``fwd`` and ``bwd`` on flat arguments."""

    def __init__(
        self, owner: custom_vjp, args: Sequence[Any], in_def: tree.TreeDef, perturbed: Mask | None = None
    ) -> None:
        self.owner = owner
        self.args = args
        self.in_def = in_def
        self.perturbed = perturbed
        self.__qualname__ = f"vjp of {owner.__name__}"

    def with_perturbed(self, perturbed: Mask) -> Forward:
        if not self.owner.symbolic_zeros:
            return self
        return _UserForward(self.owner, self.args, self.in_def, perturbed)

    def __call__(self, primals: Arrays) -> tuple[list[Array], list[Array], Pullback]:
        owner = self.owner
        assert owner.fwd is not None
        perturbed = self.perturbed or (True,) * len(primals)
        leaves: Sequence[Any] = [*map(CustomVJPPrimal, primals, perturbed)] if owner.symbolic_zeros else primals
        rest = iter(tree.unflatten(self.in_def, leaves))
        n = len(self.args)
        nondiff = {i % n for i in owner.nondiff} if n else set[int]()
        full = [a if i in nondiff else next(rest) for i, a in enumerate(self.args)] if nondiff else list(rest)
        result = owner.fwd(*full)
        y, residuals = check_pair(f"custom_vjp: fwd of {owner.__name__}", result, "(result, residuals)")
        ys, y_def = tree.flatten(y)
        rs, r_def = tree.flatten(residuals)
        # Python's numbers stay what they are, so that ``bwd`` may branch by them.
        numbers = tuple(type(r) in (bool, int, float, complex) for r in rs)
        kept, traced = split_by_mask(rs, numbers)
        pull = _UserPullback(self, y_def, r_def, kept, numbers, tuple(x.type for x in primals))
        return [as_value(v, "custom_vjp") for v in ys], [as_value(r, "custom_vjp: residual") for r in traced], pull


@final
class _UserPullback:
    """``bwd`` on flat residuals and cotangents; ``numbers`` says which of all residuals are the ``kept`` ones."""

    def __init__(
        self,
        forward: _UserForward,
        y_def: tree.TreeDef,
        r_def: tree.TreeDef,
        kept: Sequence[Any],
        numbers: Mask,
        types: tuple[ArrayType, ...],
    ) -> None:
        self.forward = forward
        self.y_def = y_def
        self.r_def = r_def
        self.kept = kept
        self.numbers = numbers
        self.types = types
        self.symbolic_zeros = forward.owner.symbolic_zeros

    def __call__(self, residuals: Arrays, cts: Arrays) -> list[Array | None]:
        owner = self.forward.owner
        assert owner.bwd is not None
        static = [self.forward.args[i] for i in owner.nondiff]
        residuals = merge_by_mask(self.kept, residuals, self.numbers)
        with replaying(current_scope(), None):  # its lines are its own
            found = owner.bwd(*static, tree.unflatten(self.r_def, residuals), tree.unflatten(self.y_def, cts))
        where = f"custom_vjp: bwd of {owner.__name__}"
        arguments = tree.unflatten(self.forward.in_def, list(range(len(self.types))))
        if isinstance(found, list):
            found = tuple(found)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if not isinstance(found, tuple) or len(found) != len(arguments):  # pyright: ignore[reportUnknownArgumentType]
            raise TreeError(
                f"{where} must give a tuple with one cotangent per argument",
                got=f"{len(found)} entries" if isinstance(found, tuple) else described(found),  # pyright: ignore[reportUnknownArgumentType]
                expected=f"{len(arguments)} entries",
                fix="write (ct,) for one argument, and None for a zero cotangent",
            )
        result: list[Array | None] = []
        for argument, ct in zip(arguments, found, strict=True):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            result += self._checked(argument, ct, where)
        return result

    def _checked(self, argument: Any, ct: Any, where: str) -> list[Array | None]:
        # ``ct`` is a prefix of the argument's tree in which None stands for zeros.
        prefixes, treedef = tree.flatten(ct, lambda x: x is None)
        subtrees = tree.flatten_up_to(treedef, argument, where) if treedef.num_leaves else []
        result: list[Array | None] = []
        if not treedef.num_leaves and tree.leaves(argument):
            raise TreeError(
                f"{where}: a cotangent differs in structure", got=treedef, expected=tree.structure(argument)
            )
        for p, sub in zip(prefixes, subtrees, strict=True):
            positions = tree.leaves(sub)
            if p is not None and len(positions) != 1:
                raise TreeError(
                    f"{where}: a cotangent differs in structure", got=treedef, expected=tree.structure(argument)
                )
            result += [None if p is None else _cotangent(p, self.types[i], where) for i in positions]
        return result


def _same_kind(a: dtypes.DType, b: dtypes.DType) -> bool:
    return (a in dtypes.FLOAT and b in dtypes.FLOAT) or (a in dtypes.COMPLEX and b in dtypes.COMPLEX)


def _cotangent(ct: Any, type: ArrayType, where: str) -> Array | None:
    if isinstance(ct, SymbolicZero) or not dtypes.is_differentiable(type.dtype):
        return None
    if getattr(ct, "dtype", None) == dtypes.float0:
        return None
    value = as_value(ct, where)
    # A weak number yields to any dtype; a float of another width, as rules in mixed precision give them, is rounded.
    if (
        value.shape == type.shape
        and value.dtype != type.dtype
        and (value.type.weak or _same_kind(value.dtype, type.dtype))
    ):
        value = ops.convert_element_type(value, dtype=type.dtype)
    if value.shape != type.shape or value.dtype != type.dtype:
        raise ShapeError(f"{where} gives a cotangent of another type than the argument", got=value.type, expected=type)
    return value


@final
class custom_vjp(CustomFunction[P, R]):
    """A function with a custom reverse derivative, set by `defvjp`.

    Args:
        fun: function of pytrees.
        nondiff_argnums, nondiff_argnames: arguments that ``bwd`` gets first, unchanged.

    >>> @custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, ct: (nx.clip(ct, -1.0, 1.0),))
    >>> float(nx.grad(lambda x: 5.0 * clip_gradient(x))(2.0))
    1.0
    """

    transform = "custom_vjp"
    op = custom_vjp_call

    def __init__(
        self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """``fwd(*args) -> (result, residuals)`` and ``bwd(*nondiff, residuals, cotangent) -> cotangents``.

        ``bwd`` returns a tuple with one cotangent per differentiated argument; None is zero.
        """
        if not (callable(fwd) and callable(bwd)):
            raise ParameterError("custom_vjp: defvjp needs two functions", got=f"{fwd!r}, {bwd!r}")
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros
        self._rules.clear()

    def has_rule(self) -> bool:
        return self.fwd is not None

    def flat_rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> _UserForward:
        return _UserForward(self, args, in_def)


@final
class _Closure:
    """A staged function and the arrays it closed over, as a pytree whose leaves are those arrays."""

    def __init__(self, program: Program, out_def: tree.TreeDef, consts: Arrays) -> None:
        self.program = program
        self.out_def = out_def
        self.consts = tuple(consts)

    def __call__(self, *leaves: Array) -> Any:
        return tree.unflatten(self.out_def, run(self.program, [*self.consts, *leaves]))


register_pytree_node(
    _Closure, lambda c: (c.consts, (c.program, c.out_def)), lambda aux, consts: _Closure(aux[0], aux[1], consts)
)


def _closure(function: Callable[..., Any], arguments: tuple[Any, ...], name: str) -> _Closure:
    leaves, treedef = tree.flatten(arguments)
    flat = FlatFunction(function, treedef)
    program, consts = stage(flat, [as_value(x, name).type for x in leaves], name).hoist_consts()
    return _Closure(program, flat.out_def, consts)


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """``fun`` returns ``(result, vjp)``, and ``vjp(ct)`` returns the cotangents of the arguments.

    >>> @custom_gradient
    ... def f(x):
    ...     return x * x, lambda ct: 10.0 * ct
    >>> float(nx.grad(f)(3.0))
    10.0
    """

    @wraps(fun)
    def with_gradient(*args: Any, **kwargs: Any) -> Any:
        @custom_vjp
        def call(*xs: Any) -> Any:
            return fun(*xs, **kwargs)[0]

        def fwd(*xs: Any) -> tuple[Any, Any]:
            y, pull = fun(*xs, **kwargs)
            return y, _closure(lambda ct: pull(ct), (y,), "custom_gradient")

        def bwd(closure: _Closure, ct: Any) -> tuple[Any, ...]:
            found = closure(*tree.leaves(ct))
            found = found if isinstance(found, (tuple, list)) else (found,)
            return tuple(found)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

        call.defvjp(fwd, bwd)
        return call(*args)

    return with_gradient


def closure_convert(fun: Callable[..., Any], *example_args: PyTree) -> tuple[Callable[..., Any], list[Array]]:
    """``fun`` with the traced values that it closes over as extra arguments.

    Args:
        fun: function of pytrees.
        example_args: arguments of the types that ``converted`` will be called with.

    Returns:
        ``converted`` and ``consts``, such that ``converted(*args, *consts)`` is ``fun(*args)``.

    Raises:
        TreeError: called with arguments of another structure than the examples.

    >>> converted, consts = closure_convert(lambda x: x + 1.0, 2.0)
    >>> float(converted(2.0, *consts)), len(consts)
    (3.0, 0)
    """
    needs_function("closure_convert", fun, "closure_convert(f, x)")
    closure = _closure(fun, example_args, getattr(fun, "__name__", "function"))
    in_def = tree.structure(example_args)
    traced = [isinstance(c, Tracer) and dtypes.is_differentiable(c.dtype) for c in closure.consts]
    hoisted = [c for c, t in zip(closure.consts, traced, strict=True) if t]

    def converted(*args: Any) -> Any:
        cut = len(args) - len(hoisted)
        leaves, treedef = tree.flatten(args[:cut])
        if treedef != in_def:
            raise TreeError("closure_convert: arguments differ in structure", got=treedef, expected=in_def)
        given = iter(args[cut:])
        consts = [next(given) if t else c for c, t in zip(closure.consts, traced, strict=True)]
        values = [as_value(x, "closure_convert") for x in (*consts, *leaves)]
        return tree.unflatten(closure.out_def, run(closure.program, values))

    return converted, hoisted
