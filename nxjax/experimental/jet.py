"""`jax.experimental.jet`: the Taylor series of a function along a curve, by nested forward derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.creation import asarray
from nxjax.trace import dtypes, tree
from nxjax.trace.core import Array
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.jvp import jvp

__all__ = ["jet"]
__getattr__ = _refusing(__name__)


def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """The value of ``fun`` and the terms of its Taylor series along a curve through ``primals``.

    Every term is one more `jvp` of all before it. So it works for any function, and each term doubles the work.

    Args:
        fun: function of arrays.
        primals: one float array per argument: the start of the curve.
        series: for each argument its derivatives along the curve, from the first on, in the argument's shape; the same
            number for all.
        factorial_scaled: terms are derivatives; False: coefficients of powers, which are derivatives over factorials.

    Returns:
        ``fun(*primals)``, and in the same structure the terms of each array, as a list.

    Raises:
        ParameterError: numbers of arguments or terms that differ.
        ShapeError: a term of another shape than its argument.
        DtypeError: an argument that is not float.

    >>> y, terms = jet(nx.sin, (0.0,), ((1.0, 0.0, 0.0),))
    >>> float(y), [float(t) for t in terms]
    (0.0, [1.0, 0.0, -1.0])
    """
    if len(primals) != len(series) or len({len(terms) for terms in series}) > 1:
        raise ParameterError(
            "jet: as many series as arguments, of one length",
            got=f"{len(primals)} arguments, series of {[len(terms) for terms in series]} terms",
        )
    xs = [asarray(x) for x in primals]
    for x in xs:
        if x.dtype not in dtypes.INEXACT:
            raise DtypeError(
                "jet: an argument without derivative", got=x.type, expected="floats", fix="x.astype(float)"
            )
    curves = [_curve(x, terms, factorial_scaled) for x, terms in zip(xs, series, strict=True)]

    def along(t: Any) -> tuple[Any, ...]:
        return (fun(*(curve(t) for curve in curves)),)

    for _n in range(len(series[0]) if series else 0):
        along = _and_slope(along)
    y, *slopes = along(0.0)
    leaves, treedef = tree.flatten(y)
    terms = [tree.leaves(slope) for slope in slopes]
    if not factorial_scaled:
        terms = [[leaf / math.factorial(n) for leaf in term] for n, term in enumerate(terms, 1)]
    return y, tree.unflatten(treedef, [[term[i] for term in terms] for i in range(len(leaves))])


def _curve(x: Array, given: Sequence[Any], factorial_scaled: bool) -> Callable[[Any], Array]:
    """The polynomial in t with these derivatives at 0, or these coefficients."""
    terms = [asarray(term).astype(x.dtype) for term in given]
    for term in terms:
        if term.shape != x.shape:
            raise ShapeError("jet: a term of another shape than its argument", got=term.type, expected=x.type)

    def at(t: Any) -> Array:
        y: Any = 0
        for n in range(len(terms), 0, -1):
            y = (terms[n - 1] / (math.factorial(n) if factorial_scaled else 1) + y) * t
        return x + y

    return at


def _and_slope(f: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], tuple[Any, ...]]:
    """``f``, and the derivative of its last result."""

    def g(t: Any) -> tuple[Any, ...]:
        y, slopes = jvp(f, (t,), (1.0,))
        return (*y, slopes[-1])

    return g
