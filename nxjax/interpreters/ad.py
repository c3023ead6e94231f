"""`jax.interpreters.ad`: derivatives of primitives that a program defines itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.core import UndefinedPrimal as UndefinedPrimal
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.tree_nodes import register_pytree_node as _register_node
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import JVPTrace, JVPTracer
from nxjax.transforms.primitive import Primitive, Zero, primitive_jvps, primitive_transposes

__all__ = [
    "JVPTrace",
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]
__getattr__ = _refusing(__name__)
# A node without leaves: transforms that a transpose rule calls hand it through.
_register_node(UndefinedPrimal, lambda x: ((), x.type), lambda type, _: UndefinedPrimal(type))


def is_undefined_primal(x: Any) -> bool:
    """Whether a transpose rule's operand is one that it must give a cotangent for: it has a type (``aval``), no value.

    >>> is_undefined_primal(1.0)
    False
    """
    return isinstance(x, UndefinedPrimal)


def zeros_like_aval(aval: ArrayType) -> Array:
    """Zeros of a type.

    >>> zeros_like_aval(nx.core.ShapedArray((2,), nx.float32)).tolist()
    [0.0, 0.0]
    """
    return zeros(aval)


def instantiate_zeros(tangent: Any) -> Any:
    """``tangent``, with a `Zero` written out.

    >>> instantiate_zeros(Zero(nx.core.ShapedArray((), nx.float32))).tolist()
    0.0
    """
    return tangent.instantiate() if isinstance(tangent, Zero) else tangent


def add_jaxvals(x: Any, y: Any) -> Array:
    """The sum of two values of one type."""
    return add(as_value(x, "add_jaxvals"), as_value(y, "add_jaxvals"))


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, each of which may be a `Zero`."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add_jaxvals(x, y)


def get_primitive_transpose(primitive: Any) -> Callable[..., Any]:
    """The transpose rule of a primitive.

    Raises:
        NotImplementedError: it has none.
    """
    try:
        return primitive_transposes[primitive]
    except KeyError:
        raise NotImplementedError(
            f"transpose rule (for reverse-mode differentiation) for {primitive} not implemented"
        ) from None


def defjvp(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """One ``jvp(t, *primals, **params)`` per operand, None where the result does not vary; their results are added."""
    defjvp2(
        primitive,
        *(None if f is None else lambda t, y, *xs, f=f, **params: f(t, *xs, **params) for f in jvps),
    )


def defjvp2(primitive: Primitive, *jvps: Callable[..., Any] | None) -> None:
    """As `defjvp`, with rules ``jvp(t, y, *primals, **params)`` that get the result too."""

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        parts = [
            f(t, y, *primals, **params)
            for f, t in zip(jvps, tangents, strict=True)
            if f is not None and not isinstance(t, Zero)
        ]
        return y, reduce(add_tangents, parts) if parts else Zero.from_primal_value(y)

    primitive_jvps[primitive] = rule


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """The primitive is linear in all its operands; ``transpose_rule(ct, **params)`` gives their cotangents."""
    deflinear2(primitive, lambda ct, *_, **params: transpose_rule(ct, **params))


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """As `deflinear`, with ``transpose_rule(ct, *operands, **params)``."""

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        y = primitive.bind(*primals, **params)
        if all(isinstance(t, Zero) for t in tangents):
            return y, [Zero.from_primal_value(v) for v in y] if primitive.multi else Zero.from_primal_value(y)
        return y, primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[primitive] = rule
    primitive_transposes[primitive] = transpose_rule


def defbilinear(primitive: Primitive, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """The primitive is linear in each of its two operands.

    ``lhs_rule(ct, x, y, **params)`` and ``rhs_rule(ct, x, y, **params)`` give the cotangent of the first and of the
    second operand; the operand that it is of has a type and no value.
    """
    defjvp(
        primitive,
        lambda t, x, y, **params: primitive.bind(t, y, **params),
        lambda t, x, y, **params: primitive.bind(x, t, **params),
    )

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> tuple[Any, Any]:
        if is_undefined_primal(x):
            return lhs_rule(ct, x, y, **params), None
        return None, rhs_rule(ct, x, y, **params)

    primitive_transposes[primitive] = transpose
