"""What the special functions share: operands, docstrings, narrow floats, and derivatives by their own recurrences."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, NxError, ParameterError
from nxjax.numpy.promotion import convert, inexact_operands, promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp
from nxjax.transforms.jvp import jvp_flat
from nxjax.transforms.symbolic_zero import SymbolicZero

F = TypeVar("F", bound=Callable[..., Array])


def described(args: str, shown: str, *, takes: str = "real", gives: str = "", digits: int = 4) -> Callable[[F], F]:
    """Decorator for functions of numbers: what they have in common comes behind the first line of their docstrings.

    Args:
        args: what stands between the parentheses of the call that the example shows.
        shown: what the example prints, which is the result rounded to ``digits``.
        takes: of which numbers.
        gives: what more there is to say of the result, and how it goes on.
    """

    def complete(function: F) -> F:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        several = "arrays, which broadcast" if len(names) > 1 else "array of any shape"
        text = described_text(function.__doc__ or "", names, f"{takes} {several}", gives)
        example = f">>> print(round(float({function.__name__}({args})), {digits}))\n{shown}\n"
        function.__doc__ = f"{text}\n\n{example}"
        return function

    return complete


def described_text(doc: str, names: Sequence[str], takes: str, gives: str) -> str:
    """A docstring with its operands and its result."""
    first, _, rest = inspect.cleandoc(doc).partition("\n\n")
    shape = "common shape" if len(names) > 1 else f"shape of ``{names[0]}``"
    operands = f"Args:\n    {', '.join(names)}: {takes}; integers become float."
    result = f"Returns:\n    Array of the {shape} and float dtype{gives}."
    return "\n\n".join(filter(None, (first, operands, result, rest)))


def real(name: str, x: Any) -> Array:
    """An operand as floats; complex ones are refused."""
    (v,) = promote_inexact(name, x)
    if v.dtype in dtypes.COMPLEX:
        raise DtypeError(f"{name}: does not take complex input", got=v.type, expected="float")
    return v


def reals(name: str, *xs: Any, error: type[NxError] = ParameterError) -> list[Array]:
    """Operands as floats of one dtype, broadcast; complex ones are refused with ``error``."""
    found = promote_alike(name, *xs)
    if found[0].dtype in dtypes.COMPLEX:
        raise error(f"{name}: does not take complex input", got=found[0].type, expected="float")
    return found


def promote_alike(name: str, *xs: Any) -> list[Array]:
    """Operands as floats or complex numbers of one dtype, broadcast; all of them strong where one is.

    Where an operand only decides, the result is that of the others: they must not yield when it does not.
    """
    found = inexact_operands(name, *xs)
    return found if all(x.weak_type for x in found) else [strip_weak_type(x) for x in found]


def strip_weak_type(x: Array) -> Array:
    """``x`` without a weak type, so that its dtype is not narrowed to that of the other operands."""
    return convert(x, x.dtype)


def at_least_float32(function: Callable[..., Any], *xs: Array) -> Any:
    """``function`` in float32 at least: half floats have too few bits for what is in between."""
    kind = xs[0].dtype
    if kind.itemsize >= 4:
        return function(*xs)
    found = function(*(x.astype(dtypes.float32) for x in xs))
    return tuple(y.astype(kind) for y in found) if isinstance(found, tuple) else found.astype(kind)


def widening(value: Callable[..., Any], *slopes: Callable[..., Any] | None) -> Callable[..., Any]:
    """``value`` in float32 at least, with the slopes that `custom_jvp.defjvps` takes."""

    @custom_jvp
    @functools.wraps(value)
    def function(*xs: Array) -> Any:
        return at_least_float32(value, *xs)

    function.defjvps(*slopes)
    return function


def eps(x: Array) -> float:
    """The distance from 1 to the next float of the dtype of ``x``."""
    return float(dtypes.float_info(x.dtype).eps)


def slope_of(function: Callable[..., Array], i: int) -> Callable[..., Array]:
    """The derivative of ``function`` in operand ``i``, itself `differentiable`."""

    def slope(*xs: Array) -> Array:
        directions = [jnp.ones_like(x) if i == j else None for j, x in enumerate(xs)]
        _, (found,) = jvp_flat(lambda *v: [function(*v)], xs, directions)
        return jnp.zeros_like(xs[0]) if found is None else found

    return differentiable(slope)


def differentiable(
    function: Callable[..., Array], slopes: Mapping[int, Callable[..., Array]] | None = None
) -> Callable[..., Array]:
    """``function`` of real operands, whose slopes are carried through its loops.

    The slope in an operand is again such a function, so every order is there in forward and in reverse mode, where a
    loop of unknown length alone has forward mode only. ``slopes`` gives those that have a closed form, by operand.
    """
    known = dict(slopes or {})

    @functools.wraps(function)
    def plain(*xs: Array) -> Array:
        return function(*xs)

    outer = custom_jvp(plain)

    @functools.lru_cache(None)
    def slope(i: int) -> Callable[..., Array]:
        return known[i] if i in known else slope_of(function, i)

    def rule(primals: Any, tangents: Any) -> Any:
        total: Any = None
        for i, t in enumerate(tangents):
            # An operand that is not differentiated costs nothing, and its slope may be infinite.
            if not isinstance(t, SymbolicZero):
                term = t * slope(i)(*primals)
                total = term if total is None else total + term
        y = outer(*primals)
        return y, y * 0 if total is None else total

    outer.defjvp(rule, symbolic_zeros=True)

    return outer


def chebyshev(table: tuple[float, ...], t: Array) -> Array:
    """The Chebyshev series with coefficients ``table`` at ``t`` in [-1, 1], by Clenshaw's recurrence (DLMF 3.11.16)."""
    top = max(map(abs, table))
    few = [k for k, c in enumerate(table) if abs(c) > 0.1 * eps(t) * top][-1]
    twice = t + t
    last, one = t * 0 + table[few], None
    for c in reversed(table[1:few]):
        last, one = twice * last + c if one is None else twice * last - one + c, last
    return t * last + table[0] if one is None else t * last - one + table[0]


def chebyshev_rows(rows: tuple[tuple[float, ...], ...], row: Array, t: Array) -> Array:
    """`chebyshev` with the coefficients of that row of ``rows`` which the integer array ``row`` names."""
    columns = np.asarray(rows, t.dtype).T
    keep = [k for k, c in enumerate(columns) if np.max(np.abs(c)) > 0.1 * eps(t)][-1]
    pick = lambda k: jnp.take(jnp.asarray(columns[k], t.dtype), row, axis=0)
    twice = t + t
    last, one = pick(keep), t * 0
    for k in range(keep - 1, 0, -1):
        last, one = twice * last - one + pick(k), last
    return t * last - one + pick(0)
