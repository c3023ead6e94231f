"""The concrete array: an immutable handle on a buffer on a device; and the one way that other data becomes one.

Knows no op. A buffer that an executor left on its device is fetched to NumPy only when somebody looks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Final, Protocol, final

import numpy as np

from nxjax.config import current_settings
from nxjax.errors import DtypeError, GradientError, ParameterError
from nxjax.trace import dtypes
from nxjax.trace.core import Array, UndefinedPrimal
from nxjax.trace.sharding import Sharding
from nxjax.trace.types import ArrayType, ShapeDtypeStruct

NDArray = np.ndarray[Any, Any]
# Elements of an operand from which on an eager op may be compiled, instead of run by NumPy.
LARGE: Final = 1 << 18
# Products that a sum in NumPy adds up in one go.
DEEP: Final = 1 << 13


class DeviceBuffer(Protocol):
    """What an executor leaves behind: an opaque handle that can become NumPy."""

    def to_numpy(self) -> NDArray: ...


@final
class DeviceArray(Array):
    """A concrete array. Made by `as_value`, `wrap` and executors; users write `nx.array` and `nx.asarray`.

    If ``place`` is None, the array has no fixed place: it is in the host's memory or on the default device, and is
    moved when needed. Otherwise it was put there, on a device or cut over several. It stays there, and so do results
    computed from it; ``buffer`` holds its elements, or the NumPy array if the backend uses the host's memory.
    """

    __slots__ = ("_data", "buffer", "place", "type")
    _data: NDArray | None
    buffer: DeviceBuffer | None
    place: Sharding | None

    def __init__(
        self, data: NDArray | None, type: ArrayType, buffer: DeviceBuffer | None = None, place: Sharding | None = None
    ) -> None:
        self._data = data
        self.type = type
        self.buffer = buffer
        self.place = place

    def with_type(self, type: ArrayType) -> DeviceArray:
        """The same elements in a type that differs in strength only."""
        return DeviceArray(self._data, type, self.buffer, self.place)

    def numpy(self) -> NDArray:
        """The elements, as a NumPy array that must not be written to."""
        data = self._data
        if data is None:
            buffer = self.buffer
            if buffer is None:
                raise RuntimeError(
                    f"Array has been deleted with shape={self.type}: it was donated to a jitted call; "
                    "use what the call returned, or leave the argument out of donate_argnums"
                )
            data = buffer.to_numpy()
            if self.buffer is buffer:  # another thread may have deleted the array meanwhile
                self._data = data
        elif data.flags.writeable:
            readonly_view(data)
        return data

    def delete(self) -> None:
        """Drop the elements; any later use is an error."""
        self._data = self.buffer = None

    def is_deleted(self) -> bool:
        return self._data is None and self.buffer is None


def place_of(x: Any) -> Sharding | None:
    """Where an array was put; None for one that was put nowhere, and for all else."""
    return x.place if isinstance(x, DeviceArray) else None


def copied(x: Array) -> Array:
    """The same elements in an array of their own, which stays when ``x`` is deleted or donated; a tracer as it is."""
    return x.with_type(x.type) if isinstance(x, DeviceArray) else x


# Members of the class, as functions of C's.
_FIELDS: Final = tuple(
    (member.__get__, member.__set__) for member in (DeviceArray.__dict__["_data"], DeviceArray.__dict__["buffer"])
)


def donate_arrays(arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Delete ``arrays``; others in their place have their elements.

    All or none, whatever else goes on: the elements are taken by one call of a function of C's, in which no signal's
    handler and no other thread runs.

    Raises:
        RuntimeError: one was deleted before.
    """
    n, nothing = len(arrays), repeat(None)
    held: list[Any] = list(
        chain(*[map(get, arrays) for get, _ in _FIELDS], *[map(put, arrays, nothing) for _, put in _FIELDS])
    )
    data, buffers = held[:n], held[n : 2 * n]
    found: list[DeviceArray] = []
    for x, d, b in zip(arrays, data, buffers, strict=True):
        if d is None and b is None:
            deque(chain(*[map(put, arrays, old) for (_, put), old in zip(_FIELDS, (data, buffers), strict=True)]), 0)
            x.numpy()  # says so
        made = x.with_type(x.type)
        made._data, made.buffer = d, b
        found.append(made)
    return found


def donate_arguments(inputs: Sequence[Any], donate: Sequence[int]) -> list[Any]:
    """What a call runs with: arguments that are given away are gone from here on, also if it fails.

    Raises:
        RuntimeError: an argument was deleted before; then none is gone.
    """
    for x in inputs:
        if x.is_deleted():
            x.numpy()
    gone = {id(x): x for x in (inputs[i] for i in donate)}
    fresh = dict(zip(gone, donate_arrays([*gone.values()]), strict=True))
    return [fresh.get(id(x), x) for x in inputs]


def wrap(data: Any, weak: bool = False) -> DeviceArray:
    """A NumPy array as it is: no copy, no change of dtype."""
    array: NDArray = data if isinstance(data, np.ndarray) else np.asarray(data)
    return DeviceArray(array, ArrayType(array.shape, array.dtype, weak))


_LINE: Final = 64  # bytes
_MUCH: Final = 1024  # bytes from which on it matters where they begin
# Classes of objects with memory that is never written to; executors add those of their results.
UNCHANGING: Final[set[type]] = {bytes}


def readonly(data: NDArray) -> NDArray:
    """``data`` if its elements are aligned and nothing can write to its memory, else a copy.

    All data from outside enters an array this way.

    A read-only view is no guarantee: its base may be writable, its owner may make it writable again, and a mapped file
    changes when another process writes to it.
    """
    return data if unchanging(data) and data.flags.aligned else fresh_data(data, data.dtype)


def fresh_data(data: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """A row-major copy as ``dtype``; much data begins with a cache line, of which no vector then reads two."""
    if data.nbytes < _MUCH:
        return np.array(data, dtype, order="C")
    raw = np.empty(data.size * dtype.itemsize + _LINE, np.uint8)
    found = np.ndarray(data.shape, dtype, raw, -raw.__array_interface__["data"][0] % _LINE)
    np.copyto(found, data, casting="unsafe")
    return found


def unchanging(data: NDArray) -> bool:
    """Whether nothing can write to the memory of ``data``."""
    owner: Any = data
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base  # pyright: ignore[reportUnknownMemberType]
    while type(owner) is memoryview:
        owner = owner.obj
    return type(owner) in UNCHANGING


def readonly_view(data: NDArray) -> NDArray:
    """An array's elements for others to read: a view that cannot be made writable. ``data`` is read-only then."""
    owner: Any = data
    while isinstance(owner, np.ndarray):
        # NumPy allows a view what one of the arrays that it is a view of allows.
        if owner.flags.writeable:
            owner.flags.writeable = False
        owner = owner.base  # pyright: ignore[reportUnknownMemberType]
    return data.view()


_WEAK_SCALARS: Final = (bool, int, float, complex)
# What scalars are made of, not arrays: those can be deleted.
_scalars: dict[tuple[type, object, bool], tuple[NDArray, ArrayType]] = {}


def scalar(x: bool | int | float | complex) -> DeviceArray:
    """A Python scalar: default dtype of its kind, weak unless bool."""
    kind = type(x)
    x64 = current_settings().enable_x64
    # 0.0 == -0.0 and 1 == True, hence the type in the key and the exclusion of zeros.
    known = _scalars.get((kind, x, x64)) if x else None
    if known is not None:
        return DeviceArray(*known)
    dtype = dtypes.as_dtype(
        bool if kind is bool else int if isinstance(x, int) else complex if isinstance(x, complex) else float
    )
    if dtype in dtypes.INTEGER:
        info = np.iinfo(dtype)
        if not info.min <= x <= info.max:  # pyright: ignore[reportOperatorIssue]
            raise OverflowError(
                f"Python integer {x} does not fit {dtype.name}; name a dtype: nx.array({x}, dtype='uint64')"
            )
    data = np.asarray(x, dtype)
    data.flags.writeable = False
    type_ = ArrayType((), dtype, kind is not bool)
    if x and kind in _WEAK_SCALARS and len(_scalars) < 1024:
        _scalars[kind, x, x64] = data, type_
    return DeviceArray(data, type_)


def as_value(x: Any, where: str = "array") -> Array:
    """Array, NumPy array or scalar, Python scalar, or anything with ``__array__``, as a value of the language.

    64-bit NumPy input takes the 32-bit default (see `dtypes.canonical`). Lists and other containers are refused: an
    op's operand is never converted element by element in silence.
    """
    if isinstance(x, Array):
        return x
    if isinstance(x, _WEAK_SCALARS) and not isinstance(x, np.generic):
        return scalar(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return from_numpy(x, where)
    convert = getattr(x, "__nx_array__", None) or getattr(x, "__jax_array__", None)
    if convert is not None:
        return as_value(convert(), where)
    if hasattr(x, "__array__") and not isinstance(x, type):
        return from_numpy(np.asanyarray(x), where)
    if isinstance(x, UndefinedPrimal):
        raise GradientError(
            f"{where}: both operands depend on a linear argument, so the function is not linear",
            got=x.type,
            fix="nx.linear_transpose takes functions that are linear in all their arguments: use nx.vjp",
        )
    raise DtypeError(
        f"{where}: not an array",
        got=f"{type(x).__name__}: {str(x)[:60]}",
        expected="an array or a number",
        fix=_RETURN if where.startswith("result of ") else _suggestion(x),
    )


_RETURN: Final = "give arrays, numbers or None, or tuples, lists and dicts of them"


def _suggestion(x: Any) -> str | None:
    if x is None:
        return "give a value: None stands for no array"
    if isinstance(x, (list, tuple)):
        return "convert lists and tuples with nx.array(...)"
    if isinstance(x, str):
        return "a string is no data: mark the argument as static (static_argnames of nx.jit), or close over it"
    if isinstance(x, (set, frozenset)) or hasattr(x, "__next__"):
        return "it has no order or no length: make a list or a tuple of it"
    if callable(x):
        return "a function is no data: mark the argument as static (static_argnames of nx.jit), or close over it"
    if type(x).__module__ not in ("builtins", "numpy") and not hasattr(x, "dtype"):
        return "make its class a pytree with nx.tree_util.register_dataclass, or mark the argument as static"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return "this is a type: give a value of it, such as nx.numpy.zeros(x.shape, x.dtype)"
    return None


def check_unmasked(x: Any, where: str) -> None:
    """Raise for a masked array: taken as it lies, its masked elements would be numbers like others."""
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
        raise ParameterError(
            f"{where}: arrays have no masks", got="a masked array", fix="give x.filled(value), or its data and its mask"
        )


def check_items(items: list[Any], where: str) -> None:
    """The same for each of many items: NumPy makes a plain array of a list of masked ones."""
    plain = (np.generic, Array)
    arrays = {k for k in set(map(type, items)) if hasattr(k, "__array__") and not issubclass(k, plain)} - {np.ndarray}
    for item in items if arrays else ():
        if type(item) in arrays:
            check_unmasked(np.asanyarray(item), where)


def as_numpy(x: Any, where: str) -> NDArray:
    """``x`` as a NumPy array. Masked arrays are refused, and objects whose ``__array__`` gives one."""
    if type(x) is np.ndarray:
        return x
    data = np.asanyarray(x)
    check_unmasked(data, where)
    return np.asarray(data)


def from_numpy(x: Any, where: str = "array") -> DeviceArray:
    """NumPy data in its canonical dtype. Memory that somebody could write to is copied, since arrays are immutable."""
    data = as_numpy(x, where)
    if data.dtype not in dtypes.NUMERIC and data.dtype not in (dtypes.key, dtypes.float0):
        if data.dtype.newbyteorder("=") not in dtypes.NUMERIC:
            raise DtypeError(f"{where}: arrays cannot hold this", got=f"NumPy array of dtype {data.dtype}")
        data = data.astype(data.dtype.type)
    elif data.dtype.isbuiltin == 0 and data.dtype in dtypes.NUMERIC:
        data = data.view(data.dtype.type)  # an equal dtype of its own, as `newbyteorder` makes them
    dtype = dtypes.canonical(data.dtype)
    if dtype != data.dtype:
        with np.errstate(all="ignore"):
            data = fresh_data(data, dtype)
    elif isinstance(x, np.ndarray):
        data = readonly(data)
    return wrap(data)


def type_of(x: Any, where: str = "array") -> ArrayType:
    """The type `as_value` would give, without making a value of a `ShapeDtypeStruct`."""
    if isinstance(x, Array):
        return x.type
    if isinstance(x, (ArrayType, ShapeDtypeStruct)):
        return x if isinstance(x, ArrayType) else x.type
    return as_value(x, where).type
