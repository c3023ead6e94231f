"""Reverse mode: linearize, then transpose. Nothing else happens here but argument handling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import numpy as np

from nxjax.errors import GradientError, ParameterError, described, needs_function
from nxjax.ops.base import constant, zeros
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.boundary import api_boundary, entry
from nxjax.trace.core import Array
from nxjax.trace.tree_partial import Partial
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import wraps
from nxjax.transforms.has_aux import FlatFunction, split_aux
from nxjax.transforms.linearize import linearize_flat
from nxjax.transforms.transpose import backward_pass, flatten_cotangents

P = ParamSpec("P")
R = TypeVar("R")


@entry
def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, Any]:
    """The gradient of a scalar function, as a function of the same arguments.

    Args:
        fun: returns a float scalar array; with ``has_aux`` a pair of it and anything else.
        argnums: which positional arguments to differentiate (trees of float arrays): an int for one gradient, a
            sequence for a tuple.
        has_aux: return ``(gradient, aux)``.
        holomorphic: ``fun`` is complex and holomorphic; inputs and output must be complex.
        allow_int: return float0 zeros for integer inputs instead of an error.

    Returns:
        Gradients have the structure, shapes and dtypes of the arguments.

    Raises:
        GradientError: the output is not a real scalar, or an input is not float.
        ParameterError: not a function, or ``argnums`` names a missing argument or one twice.

    >>> float(grad(lambda x: x**3)(2.0))
    12.0
    """
    with_value = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    def gradient(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, gradients = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


@entry
def value_and_grad(
    fun: Callable[P, R],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence[Any] = (),
) -> Callable[P, tuple[R, Any]]:
    """A function that returns ``(value, gradient)`` of a scalar ``fun``.

    Args:
        fun: returns a scalar, or ``(scalar, aux)`` with ``has_aux``.
        argnums: which positional arguments to differentiate: an int for one gradient, a sequence for a tuple.
        has_aux: ``fun`` returns ``(value, aux)``.
        holomorphic: ``fun`` is complex and holomorphic; inputs and output must be complex.
        allow_int: return float0 zeros for integer inputs instead of an error.

    Returns:
        Gradients have the structure, shapes and dtypes of the arguments.

    Raises:
        GradientError: the output is not a real scalar, or an input is not float.
        ParameterError: not a function.

    >>> value, gradient = value_and_grad(lambda p: p["w"] * p["b"])({"w": 2.0, "b": 3.0})
    >>> float(value), float(gradient["w"])
    (6.0, 3.0)
    """
    if not callable(fun):
        raise ParameterError("grad: needs a function", got=described(fun), expected="grad(f)(x), not grad(f(x))")
    called: Callable[..., Any] = fun

    @api_boundary
    @wraps(fun)
    def with_gradient(*args: P.args, **kwargs: P.kwargs) -> Any:
        inner, picked = argnums_partial(called, argnums, args, kwargs, "grad")
        leaves, treedef = tree.flatten(picked)
        xs = [as_value(x, "grad") for x in leaves]
        for i, x in enumerate(xs):
            _check_input(x, i, picked, holomorphic, allow_int)
        store: list[Any] = []

        def flat(*values: Array) -> Sequence[Any]:
            y: Any = inner(*tree.unflatten(treedef, values))
            if has_aux:
                if not (isinstance(y, tuple) and len(y) == 2):  # pyright: ignore[reportUnknownArgumentType]
                    raise GradientError(
                        "grad: with has_aux the function gives a pair", got=described(y), expected="(value, aux)"
                    )
                y, aux = y  # pyright: ignore[reportUnknownVariableType]
            else:
                aux = None
            arrays, rebuilt = split_aux(aux)
            store[:] = [rebuilt]
            return [_check_output(y, holomorphic), *arrays]

        varying = [dtypes.is_differentiable(x.dtype) for x in xs]
        (value, *aux), program, varies = linearize_flat(flat, xs, varying)
        seed = constant(1, value.dtype)
        cts = [seed if i == 0 else None for i, v in enumerate(varies) if v]
        found = iter(backward_pass(program, [None] * len(program.inputs), cts))
        gradients = [_gradient(x.type, next(found) if v else None) for x, v in zip(xs, varying, strict=True)]
        grads = tree.unflatten(treedef, gradients)
        result = (value, store[0](aux)) if has_aux else value
        return result, grads[0] if is_single_argnum(argnums) else grads

    return with_gradient


def argnum_positions(where: str, argnums: int | Sequence[int], n: int) -> tuple[int, ...]:
    """``argnums`` of ``n`` positional arguments, counted from the front.

    Raises:
        ParameterError: it holds something else than integers, names no argument, or names one twice.
    """
    try:
        wanted = tuple(map(operator.index, (argnums,) if is_single_argnum(argnums) else argnums))  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise ParameterError(
            f"{where}: argnums",
            got=repr(argnums),
            expected="an int, or several: positions of arguments",
            fix="0 is the first argument; names are not taken",
        ) from None
    for i in wanted:
        if not -n <= i < n:
            raise ParameterError(
                f"{where}: argnums names no positional argument",
                got=i,
                expected=f"an index into {n} positional arguments",
                fix="pass the argument by position, not by name" if not n else None,
            )
    found = tuple(i % n for i in wanted)
    if len(set(found)) < len(found):
        raise ParameterError(
            f"{where}: argnums names an argument twice",
            got=repr(argnums),
            expected="each position once",
            fix="take the one gradient twice",
        )
    return found


def argnums_partial(
    fun: Callable[..., Any], argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """``fun`` as a function of the chosen arguments only, and those."""
    places = argnum_positions(where, argnums, len(args))

    def inner(*chosen: Any) -> Any:
        full = list(args)
        for i, x in zip(places, chosen, strict=True):
            full[i] = x
        return fun(*full, **kwargs)

    return inner, tuple(args[i] for i in places)


def is_single_argnum(argnums: object) -> bool:
    """Whether ``argnums`` is one position, whose gradient stands alone, and no sequence of them."""
    return hasattr(argnums, "__index__")


def _check_input(x: Array, index: int, picked: Any, holomorphic: bool, allow_int: bool) -> None:
    if holomorphic:
        if x.dtype not in dtypes.COMPLEX:
            raise GradientError("grad: holomorphic needs complex inputs", got=x.type)
    elif x.dtype not in dtypes.INEXACT and not allow_int:
        name = tree.path_names(picked, "argument")[index]
        raise GradientError(
            f"grad: {name} is not float, so it has no derivative",
            got=x.type,
            expected="a float dtype",
            fix="cast it with x.astype(float), leave it out of argnums, or pass allow_int=True",
        )
    elif x.dtype in dtypes.COMPLEX:
        return


def _check_output(y: Any, holomorphic: bool) -> Array:
    if not isinstance(y, (Array, int, float, complex, np.ndarray, np.generic)):
        raise GradientError(
            "grad: the function must give one scalar",
            got=described(y),
            fix="use has_aux=True to give more, or nx.jacrev",
        )
    value = as_value(y, "grad")
    if value.shape:
        raise GradientError(
            "grad: the function must give a scalar",
            got=value.type,
            expected=f"{dtypes.short_name(value.dtype)}[]",
            fix="reduce it, for example with .sum(), or use nx.jacrev for a vector",
        )
    allowed = dtypes.COMPLEX if holomorphic else dtypes.FLOAT
    if value.dtype not in allowed:
        raise GradientError(
            "grad: the result must be " + ("complex, as holomorphic is set" if holomorphic else "a real float"),
            got=value.type,
            fix=None if holomorphic or value.dtype not in dtypes.COMPLEX else "take .real, or pass holomorphic=True",
        )
    return value


def _gradient(kind: ArrayType, ct: Array | None) -> Array:
    if kind.dtype not in dtypes.INEXACT:
        return wrap(np.zeros(kind.shape, dtypes.float0))
    gradient = zeros(kind) if ct is None else ct
    if kind.weak and not gradient.type.weak:
        # What came from a Python number yields in promotion, and so does its gradient.
        return convert_element_type(gradient, dtype=gradient.dtype, weak=True)
    return gradient


@overload
def vjp(
    fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False, reduce_axes: Sequence[Any] = ()
) -> tuple[R, Callable[..., tuple[Any, ...]]]: ...
@overload
def vjp(
    fun: Callable[..., tuple[R, Any]], *primals: Any, has_aux: Literal[True], reduce_axes: Sequence[Any] = ()
) -> tuple[R, Callable[..., tuple[Any, ...]], Any]: ...
@overload
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool, reduce_axes: Sequence[Any] = ()) -> Any: ...
@api_boundary
def vjp(fun: Callable[..., Any], *primals: PyTree, has_aux: bool = False, reduce_axes: Sequence[Any] = ()) -> Any:
    """Value of ``fun(*primals)``, and the map from the cotangent of the result to those of the arguments.

    Args:
        fun: function of pytrees of float or complex arrays.
        primals: its arguments.
        has_aux: ``fun`` returns ``(y, aux)``, and ``aux`` is not differentiated.
        reduce_axes: accepted for JAX programs.

    Returns:
        ``(y, vjp_fn)`` or ``(y, vjp_fn, aux)``; ``vjp_fn(ct)`` returns a tuple with one entry per argument. ``vjp_fn``
        is a tree of the arrays that it keeps.

    >>> y, pull = vjp(nx.sin, 0.0)
    >>> float(pull(1.0)[0])
    1.0
    """
    needs_function("vjp", fun, "vjp(f, x), not vjp(f(x))")
    leaves, treedef = tree.flatten(primals)
    xs = [as_value(x, "vjp") for x in leaves]
    varying = [dtypes.is_differentiable(x.dtype) for x in xs]
    flat = FlatFunction(fun, treedef, has_aux)
    ys, program, varies = linearize_flat(flat, xs, varying)
    y_def, n = flat.out_def, flat.count
    in_types, out_types, results = [x.type for x in xs], [y.type for y in ys[:n]], len(ys)
    linear, residuals = program.hoist_consts()
    kept = len(residuals)

    def pull(*args: Any) -> tuple[Any, ...]:
        (cts,) = args[kept:]
        given = flatten_cotangents(y_def, out_types, cts, "vjp")
        flat_cts = [ct for ct, v in zip([*given, *([None] * (results - n))], varies, strict=True) if v]
        known = [as_value(x, "vjp") for x in args[:kept]]
        found = iter(backward_pass(linear, [*known, *([None] * (len(linear.inputs) - kept))], flat_cts)[kept:])
        return tree.unflatten(
            treedef, [_gradient(t, next(found) if v else None) for t, v in zip(in_types, varying, strict=True)]
        )

    y = tree.unflatten(y_def, ys[:n])
    # A tree of what it keeps, so that it can be handed out of a traced function, or be what a `custom_vjp` keeps.
    vjp_fn = Partial(pull, *residuals)
    return (y, vjp_fn, flat.aux(ys[n:])) if has_aux else (y, vjp_fn)
