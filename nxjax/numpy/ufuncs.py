"""Ufuncs: binary functions with `reduce`, `accumulate`, `outer`, `at` and `reduceat`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax.numpy import reductions
from nxjax.numpy.creation import full
from nxjax.numpy.functional import vectorize
from nxjax.numpy.joining import concatenate
from nxjax.numpy.methods import concrete_value
from nxjax.numpy.promotion import as_axes, as_axis, as_operand, concrete_or_error, convert, reject_out
from nxjax.numpy.ranges import iota
from nxjax.numpy.selection import where as _where
from nxjax.numpy.shapes import broadcast_to, moveaxis, ravel
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Tracer
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import fori_loop
from nxjax.transforms.shapes import eval_shape


@final
class ufunc:
    """A function of ``nin`` scalars with ``nout`` results, applied element by element with broadcasting.

    Args:
        func: traceable function of scalars; or, with ``call``, only its name.
        identity: the value that changes nothing, for `reduce` of nothing.
        call, reduce, accumulate: faster ways of doing the same.

    >>> jnp.add.reduce(jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    >>> jnp.multiply.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    >>> larger = jnp.ufunc(lambda x, y: jnp.where(x > y, x, y), 2, 1)
    >>> larger.accumulate(jnp.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int32)
    """

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: object = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ) -> None:
        self.func = func
        self.nin = operator.index(nin)
        self.nout = operator.index(nout)
        self.nargs = operator.index(nargs or nin)
        self.identity = identity
        self.__name__ = name or getattr(func, "__name__", "ufunc")
        self.__doc__ = func.__doc__
        self._call = call or vectorize(func)
        self._reduce = reduce
        self._accumulate = accumulate

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __call__(self, *args: Any) -> Any:
        if len(args) != self.nin:
            raise TypeError(f"{self.__name__}: takes {self.nin} arguments, got {len(args)}")
        return self._call(*args)

    def _binary(self, method: str) -> None:
        if self.nin != 2 or self.nout != 1:
            raise ValueError(f"{method} only supported for functions of two arguments with one result")

    def reduce(
        self,
        a: Any,
        /,
        *,
        axis: Any = 0,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        """All elements along ``axis`` combined; None takes all axes.

        Raises:
            ValueError: not a function of two arguments, or no identity for nothing or ``where``.

        >>> jnp.multiply.reduce(jnp.array([[1, 2], [3, 4]]), axis=1)
        Array([ 2, 12], dtype=int32)
        """
        self._binary("reduce")
        reject_out(f"{self.__name__}.reduce", out)
        if self._reduce is not None:
            return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        x = as_operand(a, self.__name__)
        x = convert(x, self._result(x) if dtype is None else dtypes.as_dtype(dtype))
        axes = as_axes(self.__name__, axis, x.ndim)
        if len(axes) > 1 and self.identity is None:
            raise ValueError(f"reduction operation {self.__name__!r} is not reorderable: at most one axis may be given")
        if where is not None and self.identity is None and initial is None:
            raise ValueError("reduction operation has no identity: to use a where mask one has to specify 'initial'")
        shape = x.shape
        rest = tuple(i for i in range(x.ndim) if i not in axes)
        flat = ops.transpose(x, permutation=(*axes, *rest))
        n = int(np.prod([shape[i] for i in axes], dtype=int))
        flat = ops.reshape(flat, shape=(n, *(shape[i] for i in rest)))
        start = self.identity if initial is None else initial
        if where is not None:
            m = ops.reshape(ops.transpose(broadcast_to(where, shape), permutation=(*axes, *rest)), shape=flat.shape)
        else:
            m = None
        if start is None:
            if n == 0:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
            total, first = flat[0], 1
        else:
            total, first = full(flat.shape[1:], start, x.dtype), 0
        total = self._folded(total, flat[first:], None if m is None else m[first:])
        return (
            ops.reshape(total, shape=tuple(1 if i in axes else s for i, s in enumerate(shape))) if keepdims else total
        )

    def _result(self, x: Array) -> Any:
        """The dtype of the function of two elements of ``x``."""
        element = ShapeDtypeStruct((), x.dtype)
        return dtypes.as_dtype(eval_shape(self._call, element, element).dtype)

    def _folded(self, total: Array, rows: Array, mask: Any) -> Array:
        if not rows.shape[0]:
            return total
        if self.__name__ in _ASSOCIATIVE and self._call is self.func:
            return self._paired(
                total, rows if mask is None else _where(mask, rows, full((), self.identity, rows.dtype))
            )

        def step(carry: Any, row: Any) -> Any:
            v, m = row if mask is not None else (row, None)
            y = convert(self._call(carry, v), carry.dtype)
            return (y if m is None else _where(m, y, carry)), None

        return scan(step, total, rows if mask is None else (rows, mask))[0]

    def _paired(self, total: Array, rows: Array) -> Array:
        """As `_folded`, in any order: halves are combined, so that errors grow with the logarithm of the length."""
        while (n := rows.shape[0]) > 1:
            half = n // 2
            pairs = convert(self._call(rows[:half], rows[half : 2 * half]), rows.dtype)
            rows = concatenate([pairs, rows[2 * half :]]) if n % 2 else pairs
        return convert(self._call(total, rows[0]), total.dtype)

    def accumulate(self, a: Any, /, *, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """The combinations of the first element, the first two, the first three, ... along ``axis``.

        >>> jnp.maximum.accumulate(jnp.array([1, 3, 2, 5]))
        Array([1, 3, 3, 5], dtype=int32)
        """
        self._binary("accumulate")
        reject_out(f"{self.__name__}.accumulate", out)
        if self._accumulate is not None:
            return self._accumulate(a, axis=axis, dtype=dtype)

        x = as_operand(a, self.__name__)
        x = convert(x, self._result(x) if dtype is None else dtypes.as_dtype(dtype))
        i = as_axis(self.__name__, axis, x.ndim)
        rows = moveaxis(x, i, 0)
        if rows.shape[0] == 0:
            return x

        def step(carry: Any, row: Any) -> Any:
            y = convert(self._call(carry, row), carry.dtype)
            return y, y

        _, rest = scan(step, rows[0], rows[1:])
        return moveaxis(concatenate([rows[:1], rest]), 0, i)

    def outer(self, a: Any, b: Any, /) -> Array:
        """Every element of ``a`` with every element of ``b``.

        >>> jnp.subtract.outer(jnp.array([1, 2]), jnp.array([1, 2]))
        Array([[ 0, -1],
               [ 1,  0]], dtype=int32)
        """
        self._binary("outer")
        x, y = as_operand(a, self.__name__), as_operand(b, self.__name__)
        return self._call(ops.reshape(x, shape=x.shape + (1,) * y.ndim), y)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Array:
        """``a`` with ``b`` combined into the elements at ``indices``, one after the other; needs ``inplace=False``.

        Raises:
            NotImplementedError: without ``inplace=False``.

        >>> jnp.add.at(jnp.zeros(3), jnp.array([0, 0, 2]), 1.0, inplace=False)
        Array([2., 0., 1.], dtype=float32)
        """
        if inplace:
            raise NotImplementedError("ufunc.at: arrays are immutable, so inplace=False is needed")
        x = as_operand(a, self.__name__)
        if not x.size:  # every index is outside
            return x
        if self.nin == 1:
            return x.at[indices].apply(self._call)

        # What is outside is left out, as by `x.at`.
        spots = ops.reshape(iota(x.size, dtypes.int32), shape=x.shape).at[indices].get(mode="fill", fill_value=x.size)
        y = ravel(broadcast_to(b, spots.shape))
        flat = ravel(x)
        places = ravel(spots)
        if not places.size:
            return x

        def step(k: Any, v: Any) -> Any:
            at = places[k]
            return v.at[at].set(convert(self._call(v[at], y[k]), v.dtype))

        return ops.reshape(fori_loop(0, places.size, step, flat), shape=x.shape)

    def reduceat(self, a: Any, indices: Any, *, axis: int = 0, dtype: Any = None, out: None = None) -> Array:
        """The reductions of the pieces that begin at ``indices`` and end before the next one, in the dtype of ``a``.

        Negative indices count from the end. A piece that begins outside is NaN, or the smallest integer.

        >>> jnp.add.reduceat(jnp.arange(6), jnp.array([0, 4]))
        Array([6, 9], dtype=int32)
        """
        self._binary("reduceat")
        reject_out(f"{self.__name__}.reduceat", out)

        x = as_operand(a, self.__name__)
        x = x if dtype is None else convert(x, dtypes.as_dtype(dtype))
        i = as_axis(self.__name__, axis, x.ndim)
        starts = as_operand(indices if isinstance(indices, Array) else np.asarray(indices), "reduceat")
        rows = moveaxis(x, i, 0)
        n = rows.shape[0]
        starts = _where(starts < 0, starts + n, starts)
        starts = _where((starts < 0) | (starts > n), n, starts)
        ends = concatenate([starts[1:], np.full(1, n, np.int32)])

        def step(k: Any, y: Array) -> Array:
            at = starts + k
            inside = ops.reshape(at < ends, shape=(*starts.shape, *(1,) * (rows.ndim - 1)))
            return _where(inside, convert(self._call(y, rows[at]), y.dtype), y)

        longest = n
        if not isinstance(concrete_value(starts), Tracer) and starts.size:
            longest = int(np.max(np.diff(np.append(concrete_or_error("reduceat", starts), n))))
        # Of all pieces their second elements, then their third ones, ...
        first = rows.at[starts].get(mode="fill")
        return moveaxis(fori_loop(1, max(longest, 1), step, first), 0, i)


# Functions without a reduction of their own that may combine elements in any order.
_ASSOCIATIVE = ("logaddexp", "logaddexp2", "bitwise_and", "bitwise_or", "bitwise_xor")


@functools.lru_cache(None)
def ufunc_of(function: Any, identity: Any) -> ufunc:
    """The ufunc of a function of the face; known reductions are taken instead of a scan."""
    name = function.__name__
    reduce = {"add": reductions.sum, "multiply": reductions.prod}.get(name)
    accumulate = {"add": reductions.cumsum, "multiply": reductions.cumprod}.get(name)
    plain = {
        "maximum": reductions.max,
        "minimum": reductions.min,
        "logical_and": reductions.all,
        "logical_or": reductions.any,
    }.get(name)
    if plain is not None:
        reduce = _without_dtype(plain, name.startswith("logical"))
    return ufunc(function, function.nin, 1, identity=identity, call=function, reduce=reduce, accumulate=accumulate)


def _without_dtype(function: Callable[..., Any], boolean: bool) -> Callable[..., Any]:
    def reduce(a: Any, *, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Any:
        x = a if dtype is None else convert(as_operand(a, "reduce"), dtypes.as_dtype(dtype))
        if boolean:
            return function(x, axis, keepdims=keepdims, where=where)
        return function(x, axis, keepdims=keepdims, initial=initial, where=where)

    return reduce
