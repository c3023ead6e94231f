"""Whole Jacobians: `jacfwd` pushes a basis of the inputs forward, `jacrev` pulls a basis of the outputs back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import numpy as np

from nxjax.errors import GradientError
from nxjax.ops.shape import reshape, transpose
from nxjax.ops.slicing import slice_axis
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array, Arrays
from nxjax.trace.wrapping import wraps
from nxjax.transforms.grad import argnums_partial, is_single_argnum, vjp
from nxjax.transforms.jvp import jvp
from nxjax.transforms.vmap import vmap

P = ParamSpec("P")


def jacfwd(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The Jacobian of ``fun`` in forward mode: one pass per input element, all at once.

    Args:
        fun: function of pytrees; returns a pytree, or ``(result, aux)`` with ``has_aux``.
        argnums: positional arguments to differentiate by.
        holomorphic: inputs and results are complex and ``fun`` is holomorphic.

    Returns:
        A function that returns, for each result leaf, a tree like the arguments with leaves of shape
        ``result.shape + argument.shape``.

    >>> jacfwd(lambda x: x * x)(nx.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inner, picked = argnums_partial(fun, argnums, args, kwargs, "jacfwd")
        leaves, in_def = tree.flatten(picked)
        xs = [as_value(x, "jacfwd") for x in leaves]
        for x in xs:
            _check(x, holomorphic, "jacfwd: input")
        basis = _basis(xs)

        def push(*ts: Array) -> Any:
            given = tree.unflatten(in_def, ts)
            return jvp(inner, tree.unflatten(in_def, xs), given, has_aux=has_aux)

        axes = (None, 0, None) if has_aux else (None, 0)
        y, pushed, *aux = vmap(push, out_axes=axes)(*basis)
        if holomorphic:
            for leaf in tree.leaves(y):
                _check(leaf, holomorphic, "jacfwd: result")

        def cut(t: Array) -> Any:
            # t holds one row per input element: input elements last, as in a matrix.
            whole = transpose(t, permutation=(*range(1, t.ndim), 0))
            return _argument_tree(in_def, xs, whole, argnums)

        result = tree.map(cut, pushed)
        return (result, aux[0]) if has_aux else result

    return jacobian


def jacrev(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """The Jacobian of ``fun`` in reverse mode: one pass per result element, all at once.

    Takes the arguments of `jacfwd`.

    >>> jacrev(lambda x: x * x)(nx.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    @wraps(fun)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inner, picked = argnums_partial(fun, argnums, args, kwargs, "jacrev")
        leaves, in_def = tree.flatten(picked)
        for x in leaves:
            v = as_value(x, "jacrev")
            # Complex inputs have gradients of real results, as with `grad`.
            if not (allow_int and v.dtype not in dtypes.INEXACT) and (holomorphic or v.dtype not in dtypes.COMPLEX):
                _check(v, holomorphic, "jacrev: input")
        y, pull, *aux = vjp(inner, *picked, has_aux=has_aux)
        ys, y_def = tree.flatten(y)
        for leaf in ys:
            _check(leaf, holomorphic, "jacrev: result")
        rows = vmap(lambda *cts: pull(tree.unflatten(y_def, cts)))(*_basis(ys))
        columns = tree.leaves(rows)
        starts = np.cumsum([0, *(v.size for v in ys)])

        def rows_of(k: int) -> Any:
            found = [
                reshape(slice_axis(c, 0, int(starts[k]), int(starts[k + 1])), shape=(*ys[k].shape, *c.shape[1:]))
                for c in columns
            ]
            return _single(tree.unflatten(in_def, found), argnums)

        result = tree.unflatten(y_def, [rows_of(k) for k in range(len(ys))])
        return (result, aux[0]) if has_aux else result

    return jacobian


jacobian = jacrev


def hessian(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """The matrix of second derivatives: forward over reverse. As `jacfwd`.

    >>> hessian(lambda x: x[0] * x[0] * x[1])(nx.array([1.0, 2.0])).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def _check(x: Array, holomorphic: bool, what: str) -> None:
    allowed = dtypes.COMPLEX if holomorphic else dtypes.FLOAT
    if x.dtype not in allowed:
        raise GradientError(
            f"{what} must be {'complex, as holomorphic is set' if holomorphic else 'real and float'}",
            got=x.type,
            fix="pass holomorphic=True" if x.dtype in dtypes.COMPLEX else "cast it with .astype(float)",
        )


def _basis(xs: Arrays) -> list[Array]:
    """Per leaf, its part of the unit vectors of all leaves together, one per row."""
    total = sum(x.size for x in xs)
    parts: list[Array] = []
    start = 0
    for x in xs:
        rows = np.zeros((total, x.size), x.dtype)
        rows[np.arange(start, start + x.size), np.arange(x.size)] = 1
        parts.append(wrap(rows.reshape(total, *x.shape)))
        start += x.size
    return parts


def _argument_tree(in_def: tree.TreeDef, xs: Arrays, whole: Array, argnums: int | Sequence[int]) -> Any:
    lead = whole.shape[:-1]
    parts: list[Array] = []
    start = 0
    for x in xs:
        columns = slice_axis(whole, len(lead), start, start + x.size)
        parts.append(reshape(columns, shape=(*lead, *x.shape)))
        start += x.size
    return _single(tree.unflatten(in_def, parts), argnums)


def _single(arguments: tuple[Any, ...], argnums: int | Sequence[int]) -> Any:
    return arguments[0] if is_single_argnum(argnums) else arguments
