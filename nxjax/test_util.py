"""`jax.test_util`: derivatives against finite differences. More of that, for ops: `nxjax.testing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.testing.comparison import assert_close, directions, numpy_of, pairing
from nxjax.testing.functions import check_grads as check_grads
from nxjax.trace import tree


def _moved(f: Callable[..., Any], args: Sequence[Any], eps: float) -> tuple[Any, list[Any], list[Any], Any]:
    """Tangents of the arguments, and the results' differences along them."""
    leaves, treedef = tree.flatten(tuple(args))
    points = [np.asarray(numpy_of(x)) for x in leaves]
    ts = directions(points, 1)

    def at(sign: int) -> list[Any]:
        moved = [(p + sign * eps * t).astype(p.dtype) for p, t in zip(points, ts, strict=True)]
        return [np.asarray(numpy_of(y)) for y in tree.leaves(f(*tree.unflatten(treedef, moved)))]

    slopes = [(hi - lo) / (2 * eps) for hi, lo in zip(at(1), at(-1), strict=True)]
    return tree.unflatten(treedef, ts), ts, slopes, treedef


def _tolerances(atol: float | None, rtol: float | None) -> tuple[float, float]:
    r = 3e-2 if rtol is None else rtol
    return r, r if atol is None else atol


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float = 1e-2,
    err_msg: str = "",
) -> None:
    """``f_jvp(primals, tangents)`` against differences of ``f`` along a random direction.

    Args:
        f: function of arrays.
        f_jvp: gives ``(f(*primals), tangent)``, as `nx.jvp` of it.
        args: float arrays: where to compare.

    Raises:
        AssertionError: they differ.

    >>> check_jvp(nx.numpy.sin, lambda p, t: nx.jvp(nx.numpy.sin, p, t), (1.0,))
    """
    ts, _, slopes, _ = _moved(f, args, eps)
    _, pushed = f_jvp(tuple(args), ts)
    r, a = _tolerances(atol, rtol)
    for got, slope in zip(tree.leaves(pushed), slopes, strict=True):
        assert_close(err_msg or "jvp", "function", np.asarray(numpy_of(got)), slope, r, a)


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., Any],
    args: Sequence[Any],
    atol: float | None = None,
    rtol: float | None = None,
    eps: float = 1e-2,
    err_msg: str = "",
) -> None:
    """``f_vjp(*args) -> (y, pull)`` against differences of ``f`` along a random direction.

    Raises:
        AssertionError: they differ.

    >>> check_vjp(nx.numpy.sin, lambda x: nx.vjp(nx.numpy.sin, x), (1.0,))
    """
    _, ts, slopes, _ = _moved(f, args, eps)
    y, pull = f_vjp(*args)
    leaves, treedef = tree.flatten(y)
    cts = directions([np.asarray(numpy_of(v)) for v in leaves], 101)
    pulled = tree.leaves(pull(tree.unflatten(treedef, cts)))
    left = np.asarray(sum(pairing(c, s) for c, s in zip(cts, slopes, strict=True)))
    right = np.asarray(sum(pairing(np.asarray(numpy_of(c)), t) for c, t in zip(pulled, ts, strict=True)))
    r, a = _tolerances(atol, rtol)
    assert_close(err_msg or "vjp", "function", right, left, r, a)


__all__ = ["check_grads", "check_jvp", "check_vjp"]
