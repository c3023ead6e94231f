"""What an array can do besides operators: conversion to Python and NumPy, indexing, printing, and NumPy's methods.

`attach` gives them to `Array` once, when `nxjax.numpy` is imported. Most methods are functions of the face that take
the array first; the face is loaded when the first one is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import (
    ConcretizationTypeError,
    ImmutableArrayError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from nxjax.numpy import array_functions, placement
from nxjax.numpy.documented import shown
from nxjax.numpy.operators import operators
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray, copied, readonly, readonly_view, wrap
from nxjax.trace.core import Array, Tracer
from nxjax.trace.lazy import replacement_hint
from nxjax.trace.pages import render

# --- Python scalars ---

_STATIC = "nx.jit(f, static_argnums=...)"


def _traced(error: type[ConcretizationTypeError], x: Tracer, what: str, fix: str) -> ConcretizationTypeError:
    return error(what, got=f"{x.type} {x.origin()}", expected="a concrete value", fix=fix)


def concrete_value(x: Any) -> Any:
    """The concrete array behind tracers that carry one, as those of `grad` outside of `jit` do."""
    while isinstance(x, Tracer):
        inner = getattr(x, "primal", None)
        if inner is None:
            return x
        x = inner
    return x


def _bool(self: Any) -> bool:
    self = concrete_value(self)
    if isinstance(self, Tracer):
        raise _traced(
            TracerBoolConversionError,
            self,
            "a traced value has no truth value: `if`, `while`, `and`, `or`, `not` and `assert` need a concrete one",
            f"nx.where(condition, x, y) or nx.lax.cond(condition, f, g, ...); or mark the argument static: {_STATIC}",
        )
    data = self.numpy()
    if data.size != 1:
        which = "an empty array" if data.size == 0 else "an array with more than one element"
        more = "Use `array.size > 0`" if data.size == 0 else "Use a.any() or a.all()"
        raise ValueError(f"The truth value of {which} is ambiguous. {more}")
    return bool(data.reshape(())[()])


def _scalar(kind: Callable[[Any], Any]) -> Any:
    name = kind.__name__

    def method(self: Any) -> Any:
        # A value that is being differentiated would lose its tangent, and the gradient be silently 0.
        if isinstance(self, Tracer):
            raise _traced(
                ConcretizationTypeError,
                self,
                f"{name}() of a traced value",
                f"x.astype({name}) to change the dtype; or mark the argument static: {_STATIC}",
            )
        if self.type.shape:
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.ndim}")
        return kind(self.numpy()[()])

    return method


def _index(self: Any) -> int:
    self = concrete_value(self)
    if isinstance(self, Tracer):
        raise _traced(
            TracerIntegerConversionError,
            self,
            "a traced value cannot be a Python index or size (range, list index, shape)",
            f"index an nx array, use nx.lax.fori_loop, or mark the argument static: {_STATIC}",
        )
    if self.type.shape or self.dtype not in dtypes.INTEGER:
        raise TypeError(f"Only integer scalar arrays can be converted to a scalar index; got {self.type}")
    return int(self.numpy()[()])


def _elements(self: Any, what: str) -> np.ndarray[Any, Any]:
    if isinstance(self, Tracer):
        raise _traced(ConcretizationTypeError, self, f"{what} a traced value", "return it from the function")
    return self.numpy()


@shown("jnp.array([[5]]).item(), jnp.array([1.5, 2.5]).item(1)", "(5, 2.5)")
def _item(self: Any, *args: int) -> Any:
    """One element as a Python number: the only one, or the one at the given place.

    Raises:
        ConcretizationTypeError: traced.
        ValueError: more than one element, and no place.
    """
    return _elements(self, "item() of").item(*args)


@shown("jnp.array([[1, 2], [3, 4]]).tolist(), jnp.array(5).tolist()", "([[1, 2], [3, 4]], 5)")
def _tolist(self: Any) -> Any:
    """The elements as nested lists of Python numbers, or a number if the array has no axes.

    Raises:
        ConcretizationTypeError: traced.
    """
    return _elements(self, "tolist() of").tolist()


def _round(self: Any, ndigits: int | None = None) -> Any:
    out = jnp.round(self, ndigits or 0)
    return out if ndigits is not None else out.astype(int)


def _len(self: Any) -> int:
    if not self.type.shape:
        raise TypeError("len() of unsized object")
    return self.type.shape[0]


def _iter(self: Any) -> Iterator[Any]:
    if not self.type.shape:
        raise TypeError("iteration over a 0-d array")
    if type(self) is DeviceArray and self.place is None:
        weak = self.type.weak
        return iter([wrap(np.asarray(row), weak) for row in self.numpy()])
    return (self[i] for i in range(self.type.shape[0]))


def _contains(self: Any, x: Any) -> bool:
    return bool((self == x).any())


def _complex(x: Any) -> complex:
    return complex(x)


_complex.__name__ = "complex"

# --- other libraries ---


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    if isinstance(self, Tracer):
        raise _traced(
            TracerArrayConversionError,
            self,
            "a traced value cannot become a NumPy array",
            "use the nx.numpy function in place of NumPy's, or call it through nx.pure_callback",
        )
    data = self.numpy()
    if self.type.dtype == dtypes.key:
        raise TypeError(
            "an array of random keys cannot become a NumPy array; nx.random.key_data(keys) gives their words"
        )
    if dtype is not None and np.dtype(dtype) != data.dtype:
        return data.astype(dtype)
    return data.copy() if copy else readonly_view(data)


def _dlpack(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
    data = _array(self)
    if max_version is None or max_version < (1, 0):  # the old protocol cannot say "read-only"
        return data.copy().__dlpack__()
    return data.__dlpack__(max_version=max_version, copy=copy)


def _dlpack_device(self: Any) -> tuple[int, int]:
    return (1, 0)


def _array_namespace(self: Any, /, *, api_version: str | None = None) -> Any:
    from nxjax.numpy.standard import VERSIONS

    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"__array_namespace__: unknown version {api_version!r}")
    return jnp


def _rebuild(data: np.ndarray[Any, Any], weak: bool) -> DeviceArray:
    return wrap(readonly(data), weak)


def _reduce(self: Any) -> Any:
    return _rebuild, (readonly_view(_elements(self, "pickling")), self.type.weak)


def _copy(self: Any) -> Any:
    return copied(self)


def _deepcopy(self: Any, memo: Any) -> Any:
    return copied(self)


# --- printing ---


def _repr(self: Any) -> str:
    if isinstance(self, Tracer):
        return f"Traced<{self.type}>({self.origin()})"
    if self.is_deleted():
        return f"Array(deleted, {self.type})"
    data = self.numpy()
    if self.dtype == dtypes.key:
        return f"Array({self.shape}, dtype=key<fry>) overlaying:\n{np.asarray(data['threefry'])}"
    end = f"dtype={self.dtype.name}" + (", weak_type=True" if self.type.weak else "") + ")"
    if data.size == 0:
        return f"Array([], shape={self.shape}, {end}"
    head = f"Array({np.array2string(data, separator=', ', prefix='Array(', suffix=',')},"
    last = len(head) - (head.rfind("\n") + 1)
    wide = last + 1 + len(end) > np.get_printoptions()["linewidth"]
    return f"{head}{chr(10) + ' ' * 6 if wide else ' '}{end}"


def _str(self: Any) -> str:
    if isinstance(self, Tracer) or self.is_deleted() or self.dtype == dtypes.key:
        return _repr(self)
    return str(self.numpy())


def _repr_html(self: Any) -> str:
    return render("array_page", self)


def _format(self: Any, spec: str) -> str:
    if isinstance(self, Tracer):
        if not spec or spec[-1] == "s":
            return format(_repr(self), spec)
        raise _traced(
            ConcretizationTypeError,
            self,
            f"format {spec!r}: a traced value has no digits to be printed",
            f'nx.debug.print("{{x:{spec}}}", x=x) prints values when the function runs',
        )
    if not self.type.shape and self.dtype != dtypes.key:
        return format(self.numpy()[()], spec)
    if spec and spec[-1] != "s":
        raise TypeError(
            f"format {spec!r} is for scalars, got {self.type}; np.array2string(x, precision=2) prints arrays"
        )
    return format(_str(self), spec)


# --- indexing ---


def _getitem(self: Any, index: Any) -> Any:
    from nxjax.numpy.subscripts import getitem

    return getitem(self, index)


def _setitem(self: Any, index: Any, x: Any) -> None:
    raise ImmutableArrayError(
        "arrays are immutable and do not support item assignment",
        got=self.type,
        fix="x = x.at[index].set(value), or another method of x.at[index]",
    )


def _at(self: Any) -> Any:
    from nxjax.numpy.at import At

    return At(self)


# --- NumPy's methods ---


@shown("jnp.array([0.5, 2.0]).astype(int)", "Array([0, 2], dtype=int32)")
def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """The values in another dtype."""
    return jnp.astype(self, dtype, copy=copy, device=device)


@shown("jnp.arange(4).reshape(2, -1)", "Array([[0, 1],\n       [2, 3]], dtype=int32)")
def _reshape(self: Any, *args: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The same elements in another shape: ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
    shape = args[0] if len(args) == 1 else args
    return jnp.reshape(self, shape, order)


@shown("jnp.zeros((2, 3, 4)).transpose(1, 0, 2).shape", "(3, 2, 4)")
def _transpose(self: Any, *args: Any) -> Any:
    """Axes reversed, or in the order given."""
    axes = None if not args else args[0] if len(args) == 1 else args
    return jnp.transpose(self, (axes,) if isinstance(axes, int) else axes)


@shown('jnp.array([[1, 2], [3, 4]]).flatten(order="F")', "Array([1, 3, 2, 4], dtype=int32)")
def _flatten(self: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """One-dimensional: rows one after the other, or columns with ``order="F"``."""
    return jnp.ravel(self, order)


@shown("jnp.arange(2).copy()", "Array([0, 1], dtype=int32)")
def _copy_method(self: Any) -> Any:
    """A copy."""
    return jnp.copy(self)


@shown(
    "jnp.array([1.0]).view(jnp.uint32)",
    "Array([1065353216], dtype=uint32)",
    "jnp.array([1], jnp.int32).view(jnp.uint8)",
    "Array([1, 0, 0, 0], dtype=uint8)",
    raises="ValueError: the last axis does not divide into elements of the new width.",
)
def _view(self: Any, dtype: Any = None, type: None = None) -> Any:
    """The same bits in another dtype; the last axis grows or shrinks with the width."""
    from nxjax.numpy.integers import view

    return view(self, dtype)


@shown("jnp.array([1, 256], jnp.int16).byteswap()", "Array([256,   1], dtype=int16)")
def _byteswap(self: Any) -> Any:
    """The same dtype, with the bytes of each element in the other order."""
    from nxjax.numpy.integers import view

    if self.dtype in dtypes.COMPLEX:
        from nxjax.ops.complex import complex

        return complex(_byteswap(self.real), _byteswap(self.imag))
    swapped = view(self[..., None], np.uint8)[..., ::-1] if self.dtype.itemsize > 1 else self
    return view(swapped, self.dtype).reshape(self.shape)


@shown("jnp.array([1, 2], jnp.uint8).tobytes()", "b'\\x01\\x02'", raises="ConcretizationTypeError: traced.")
def _tobytes(self: Any, order: str = "C") -> bytes:
    """The elements as bytes, in row-major ``order`` unless another is given."""
    return _elements(self, "tobytes() of").tobytes(order)


def _property(name: str, doc: str) -> property:
    return property(lambda self: getattr(jnp, name)(self), doc=doc)


def _itemsize(self: Any) -> int:
    return self.dtype.itemsize


def _nbytes(self: Any) -> int:
    return self.type.size * self.dtype.itemsize


# --- devices ---


def _to_device(self: Any, device: Any, *, stream: Any = None) -> Any:
    """The array on another device.

    >>> jnp.arange(2).to_device(nx.devices()[0])
    Array([0, 1], dtype=int32)
    """
    from nxjax.runtime import device_put

    return device_put(self, device)


def _unhashable(self: Any) -> int:
    raise TypeError("unhashable type: 'Array'")


def _hash(self: Any) -> int:
    raise _traced(
        ConcretizationTypeError,
        self,
        "unhashable type: a traced value is no key of a dict, no element of a set and no static argument",
        f"key by what is known when the function is traced, such as a name or a position; or mark it static: {_STATIC}",
    )


# --- what other libraries' arrays have ---


class _MissingAttribute:
    """A name that arrays have not, since they have another way: asking for it says which. `hasattr` finds nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: Any = None) -> Any:
        raise AttributeError(f"'Array' object has no attribute {self.name!r}{replacement_hint(f'x.{self.name}')}")


# The rows of docs/coming_from_pytorch.md. Not by `__getattr__`, which would make every attribute of arrays slower.
_ELSEWHERE = (
    *("abs", "cos", "exp", "log", "relu", "sigmoid", "sin", "softmax", "sqrt", "tanh", "bmm", "matmul", "mm"),
    *("bfloat16", "bool", "cast", "double", "float", "half", "int", "long", "cpu", "cuda", "gpu", "to"),
    *("contiguous", "dim", "expand", "expand_as", "masked_fill", "numel", "permute", "t", "unsqueeze"),
    *("add_", "append", "copy_", "fill", "fill_", "mul_", "sub_", "zero_"),
    *("backward", "detach", "grad", "requires_grad", "requires_grad_"),
)


def _dir(self: Any) -> list[str]:
    return [name for name in object.__dir__(self) if name not in _ELSEWHERE]


# By their names: `_len` is ``__len__``, and `_item` is ``item``.
_SPECIAL = (
    *(_bool, _index, _round, _len, _iter, _contains, _array, _dlpack, _dlpack_device, _array_namespace, _reduce),
    *(_copy, _deepcopy, _repr, _str, _format, _getitem, _setitem, _dir),
)
_PLAIN = (_astype, _reshape, _transpose, _flatten, _tobytes, _view, _byteswap, _item, _tolist, _to_device)


def attach() -> None:
    """Give `Array` its operators and methods."""
    members: dict[str, Any] = {
        **operators(),
        **array_functions.members(),
        **{f"_{f.__name__}__": f for f in _SPECIAL},
        **{f.__name__[1:]: f for f in _PLAIN},
        "__int__": _scalar(int),
        "__float__": _scalar(float),
        "__complex__": _scalar(_complex),
        "_repr_html_": _repr_html,
        "at": property(_at, doc="Indexed updates: ``x.at[index].set(value)`` gives a new array."),
        "T": _property("transpose", "Axes reversed."),
        "mT": _property("matrix_transpose", "The last two axes swapped."),
        "real": _property("real", "The real part."),
        "imag": _property("imag", "The imaginary part."),
        "flat": _property("ravel", "One-dimensional."),
        "itemsize": property(_itemsize, doc="Bytes per element."),
        "nbytes": property(_nbytes, doc="Bytes of all elements."),
        "copy": _copy_method,
        "clone": _copy_method,
        **placement.members(),
    }
    members.update((name, _MissingAttribute(name)) for name in _ELSEWHERE)
    for name, member in members.items():
        setattr(Array, name, member)
    Array.__hash__ = object.__hash__  # type: ignore[method-assign]
    Tracer.__hash__ = _hash  # type: ignore[method-assign]
    DeviceArray.__hash__ = _unhashable  # type: ignore[method-assign]
