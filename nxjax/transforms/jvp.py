"""Forward mode: push a tangent along with every value.

`JVPTrace` is the whole machine: each op answers with its own `jvp` rule, run with the *tangents'* trace as the current
one. For `nx.jvp` that is the surrounding trace; for `linearize` it is one that computes what it can and stages the
rest. A tangent that is None is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar, final, overload

import numpy as np

from nxjax.config import config, current_settings
from nxjax.errors import DtypeError, ShapeError, TreeError, described
from nxjax.ops import base
from nxjax.ops.collectives import as_varying
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, leaks, tree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Op, Tangents, Trace, Tracer, current_trace, run_in_trace, use
from nxjax.trace.scope import current_scope, current_source, replaying
from nxjax.trace.types import ArrayType
from nxjax.transforms.has_aux import FlatFunction

R = TypeVar("R")

# How notes of lines begin where somebody debugs (`Source.note`).
DERIVATIVE: Final = "the derivative of "


@final
class JVPTracer(Tracer):
    """A value and its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: Array, tangent: Array) -> None:
        self.owner = trace
        self.type = primal.type
        self.primal = primal
        self.tangent = tangent

    def origin(self) -> str:
        return "being differentiated by nx.grad or nx.jvp"


class JVPTrace(Trace):
    """Interprets ops on (primal, tangent) pairs, in the trace ``outer``."""

    __slots__ = ("outer",)
    outer: Trace

    def __init__(self, parent: Trace) -> None:
        self.parent = self.outer = parent

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        mine = [isinstance(x, JVPTracer) and x.owner is self for x in args]
        if True not in mine:
            return self.outer.process(op, args, params)
        primals = [x.primal if m else x for x, m in zip(args, mine, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
        tangents = [x.tangent if m else None for x, m in zip(args, mine, strict=True)]  # pyright: ignore[reportAttributeAccessIssue]
        with use(self.outer):
            if current_settings().mode is None:
                y, t = self.differentiate(op, primals, tangents, params)
            else:
                source = current_source()
                with replaying(current_scope(), source and source.noted(DERIVATIVE + op.name)):
                    y, t = self.differentiate(op, primals, tangents, params)
        if op.multi:
            return tuple(self.join(a, b) for a, b in zip(y, t, strict=True))
        return self.join(y, t)

    def differentiate(self, op: Op, primals: Arrays, tangents: Tangents, params: dict[str, Any]) -> tuple[Any, Any]:
        """Result and tangent of one op, by its rule or by that of its expansion."""
        if op.has("jvp"):
            return op.jvp(primals, tangents, **params)
        if not op.has("expand"):
            raise NotImplementedError(
                f"{op.name} of {primals[0].type} has no derivative: give the function a rule with nx.custom_jvp, "
                "or take it of nx.lax.stop_gradient(x)"
            )
        if op.multi:
            y, t = jvp_flat(lambda *xs: op.expand(*xs, **params), primals, tangents)
            return tuple(y), tuple(t)
        (y,), (t,) = jvp_flat(lambda *xs: [op.expand(*xs, **params)], primals, tangents)
        return y, t

    def join(self, primal: Array, tangent: Array | None) -> Array:
        if tangent is None or not dtypes.is_differentiable(primal.dtype):
            return primal
        if primal.type.vma and tangent.type.vma != primal.type.vma:
            with use(self.outer):
                tangent = as_varying(tangent, primal.type.vma)
        return JVPTracer(self, primal, tangent)

    def split(self, y: Array) -> tuple[Array, Array | None]:
        """Primal and tangent of a result."""
        if isinstance(y, JVPTracer) and y.owner is self:
            return y.primal, y.tangent
        return y, None


def jvp_flat(
    function: Callable[..., Sequence[Any]], primals: Arrays, tangents: Tangents
) -> tuple[list[Array], list[Array | None]]:
    """Results and tangents of a function of flat sequences, in the current trace."""
    trace = JVPTrace(current_trace())
    xs = [trace.join(x, t) for x, t in zip(primals, tangents, strict=True)]
    ys = run_in_trace(trace, lambda: [as_value(y, "jvp") for y in function(*xs)])
    pairs = [trace.split(y) for y in ys]
    if config.check_tracer_leaks:
        del xs, ys
        leaks.check(trace, "the function under nx.jvp")
    return [y for y, _ in pairs], [t for _, t in pairs]


def zero_tangent(type: ArrayType) -> Array:
    """The zero tangent of a value of ``type``: zeros of its type, or float0 for what has no tangent."""
    t = type.to_tangent_aval()
    return wrap(np.zeros(t.shape, dtypes.float0)) if t.dtype == dtypes.float0 else base.zeros(t)


def instantiate(tangent: Array | None, primal: Array) -> Array:
    """``tangent`` with a zero written out."""
    return zero_tangent(primal.type) if tangent is None else tangent


@overload
def jvp(
    fun: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[R, Any]], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[True]
) -> tuple[R, R, Any]: ...
@overload
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any: ...
@api_boundary
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """Value of ``fun(*primals)`` and its derivative in the direction ``tangents``.

    Args:
        fun: function of pytrees of arrays.
        primals: positional arguments, a tuple or list.
        tangents: like ``primals`` in structure, shapes and dtypes; float0 zeros for integer leaves.
        has_aux: ``fun`` returns ``(result, aux)``; ``aux`` is passed through.

    Returns:
        ``(y, t)``, or ``(y, t, aux)``.

    Raises:
        TreeError: ``primals`` and ``tangents`` are not two tuples of one structure.

    >>> y, t = jvp(nx.sin, (0.0,), (1.0,))
    >>> float(t)
    1.0
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TreeError(
            "jvp: primals and tangents are tuples of arguments",
            got=f"{described(primals)} and {described(tangents)}",
            expected="tuple or list",
            fix="jvp(f, (x,), (t,))",
        )
    leaves, treedef = tree.flatten(tuple(primals))
    names = tree.path_names(tuple(primals), "primals")
    t_leaves = tree.flatten_up_to(treedef, tuple(tangents), "jvp: tangents")
    xs = [as_value(x, "jvp") for x in leaves]
    ts = [checked_tangent(x.type, t, name) for x, t, name in zip(xs, t_leaves, names, strict=True)]
    flat = FlatFunction(fun, treedef, has_aux)
    ys, dys = jvp_flat(flat, xs, ts)
    y_def, n = flat.out_def, flat.count
    y = tree.unflatten(y_def, ys[:n])
    t = tree.unflatten(y_def, [instantiate(d, v) for d, v in zip(dys[:n], ys[:n], strict=True)])
    return (y, t, flat.aux(ys[n:])) if has_aux else (y, t)


def checked_tangent(kind: ArrayType, t: Any, name: str) -> Array | None:
    """``t`` as a tangent of what is of type ``kind``; None where that doesn't vary."""
    expected = kind.to_tangent_aval()
    if expected.dtype == dtypes.float0:
        got = getattr(t, "dtype", None)
        if got != dtypes.float0:
            raise DtypeError(
                f"jvp: {name} has no tangent",
                got=f"tangent of dtype {got}",
                expected="float0 zeros, as integers do not vary",
            )
        return None
    value = as_value(t, "jvp")
    if value.shape != kind.shape:
        raise ShapeError(f"jvp: tangent of {name}", got=value.type, expected=expected)
    if value.dtype != kind.dtype:
        if value.type.weak and value.dtype in dtypes.INEXACT:
            return convert_element_type(value, dtype=kind.dtype)
        raise DtypeError(f"jvp: tangent of {name}", got=value.type, expected=expected)
    return value
