"""`jax.extend.core`: what programs that read and write programs, or define primitives, are made of.

    closed = nx.make_jaxpr(f)(x)
    for eqn in closed.jaxpr.eqns:
        print(eqn.primitive, eqn.invars, eqn.outvars, eqn.params)

``eqn.primitive`` is an op of nxjax, the same object that `nxjax.lax` names ``..._p``. Parameters have nxjax's names in
listings, and are found under JAX's too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from nxjax.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Tracer, Var, eval_jaxpr
from nxjax.errors import ConcretizationTypeError, InconclusiveDimensionOperation, NxError
from nxjax.extend.core import primitives
from nxjax.lax.staging import Token as Token
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.core import Array, Trace, current_trace, use
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.program import Program, check, subprograms
from nxjax.trace.stage import StageTrace
from nxjax.trace.types import ArrayType
from nxjax.transforms.primitive import Primitive
from nxjax.transforms.vmap import BatchTrace

__all__ = [
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "Token",
    "Var",
    "array_types",
    "check_jaxpr",
    "concrete_or_error",
    "find_top_trace",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "new_jaxpr_eqn",
    "no_effects",
    "primal_dtype_to_tangent_dtype",
    "primitives",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]
__getattr__ = _refusing(__name__)

Effect = str  # an equation's effects are the names of ops
Effects = frozenset[str]
no_effects: Effects = frozenset()
array_types = frozenset({Array})
set_current_trace = use


def jaxpr_as_fun(closed_jaxpr: Program) -> Callable[..., list[Array]]:
    """A function of the program's arguments that gives the list of its results.

    >>> jaxpr_as_fun(nx.make_jaxpr(lambda x: x + 1.0)(1.0))(2.0)[0].tolist()
    3.0
    """
    return lambda *args: eval_jaxpr(closed_jaxpr, closed_jaxpr.values, *args)


def new_jaxpr_eqn(
    invars: Sequence[Any],
    outvars: Sequence[Var],
    primitive: Primitive,
    params: dict[str, Any],
    effects: Any = no_effects,
    source_info: Any = None,
    ctx: Any = None,
) -> JaxprEqn:
    """An equation from its parts; ``effects`` follow from the primitive."""
    return JaxprEqn(primitive, tuple(invars), tuple(outvars), params, source_info)


def check_jaxpr(jaxpr: Program) -> None:
    """Raise `ProgramError` unless every rule of the language holds.

    >>> check_jaxpr(nx.make_jaxpr(nx.sin)(1.0))
    """
    if len(jaxpr.constvars) != len(jaxpr.values):
        jaxpr = Program((*jaxpr.constvars, *jaxpr.inputs), jaxpr.equations, jaxpr.outputs)
    check(jaxpr)


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Program]:
    """The programs among the parameters of an equation."""
    return subprograms(params)


def subjaxprs(jaxpr: Program) -> Iterator[Program]:
    """The programs that equations of ``jaxpr`` hold, not those that these hold.

    >>> [p.name for p in subjaxprs(nx.make_jaxpr(lambda x: nx.jit(nx.sin)(x))(1.0))]
    ['sin']
    """
    for e in jaxpr.equations:
        yield from e.programs()


def mapped_aval(size: int, axis: int | None, aval: ArrayType) -> ArrayType:
    """The type of one element along ``axis``.

    >>> mapped_aval(2, 0, nx.core.ShapedArray((2, 3), nx.float32))
    f32[3]
    """
    return aval.without_dim(axis)


def unmapped_aval(size: int, axis: int | None, aval: ArrayType, *_: Any) -> ArrayType:
    """The type of ``size`` elements along a new ``axis``: the inverse of `mapped_aval`.

    >>> unmapped_aval(2, 0, nx.core.ShapedArray((3,), nx.float32))
    f32[2,3]
    """
    return aval if axis is None else aval.with_shape((*aval.shape[:axis], size, *aval.shape[axis:]))


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents of values of a dtype.

    >>> primal_dtype_to_tangent_dtype(nx.numpy.dtype("int32")) == nx.float0
    True
    """
    dtype = dtypes.as_dtype(primal_dtype)
    return dtype if dtypes.is_differentiable(dtype) else dtypes.float0


def valid_jaxtype(arg: Any) -> bool:
    """Whether ``arg`` is a value, or becomes one when it is used as an operand.

    >>> valid_jaxtype(1.0), valid_jaxtype("a")
    (True, False)
    """
    try:
        as_value(arg)
    except (NxError, OverflowError):
        return False
    return True


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """``force(val)``, or ``val`` itself.

    Raises:
        ConcretizationTypeError: ``val`` is being traced.
    """
    if isinstance(val, Tracer):
        raise ConcretizationTypeError(
            f"{context or 'here'}: a value is needed while it is being traced",
            got=f"{val.type} {val.origin()}",
            expected="a concrete value",
            fix="take it out of the traced function, or name it in static_argnums",
        )
    return val if force is None else force(val)


def find_top_trace(xs: Iterable[Any]) -> Trace:
    """The trace that an op on ``xs`` would be handed to: the current one."""
    return current_trace()


class take_current_trace:
    """``with take_current_trace() as trace:`` gives the current trace."""

    def __enter__(self) -> Trace:
        return current_trace()

    def __exit__(self, *exc: object) -> None:
        return None


def get_opaque_trace_state(convention: Any = None) -> Any:
    """Something that is equal only while the same transforms are at work: the current trace.

    >>> get_opaque_trace_state() == get_opaque_trace_state()
    True
    """
    return current_trace()


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a program is being written.

    >>> unsafe_am_i_under_a_jit_DO_NOT_USE()
    False
    """
    return any(isinstance(t, StageTrace) for t in current_trace().ancestors())


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether some `vmap` is at work.

    >>> unsafe_am_i_under_a_vmap_DO_NOT_USE()
    False
    """
    return any(isinstance(t, BatchTrace) for t in current_trace().ancestors())


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The named axes in scope, outermost first.

    >>> unsafe_get_axis_names_DO_NOT_USE()
    []
    """
    return [bound[0] for bound in axes_in_scope()]


class DropVar:
    """JAX's variable for a result that nobody reads. Programs here have none: every variable is a `Var`."""
