"""What the Array API standard asks a namespace about itself: capabilities, devices, dtypes. Knows no array."""

from __future__ import annotations

from typing import Any

from nxjax.errors import ParameterError, Shown
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

# The standard's dtypes; bfloat16, float8 and int4 are nxjax's own and no part of the answer.
_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    "unsigned integer": (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    "real floating": (dtypes.float32, dtypes.float64),
    "complex floating": (dtypes.complex64, dtypes.complex128),
}
_UNIONS: dict[str, tuple[str, ...]] = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


def _of_kind(kind: Any) -> tuple[DType, ...]:
    if kind is None:
        return _of_kind(tuple(_KINDS))
    if isinstance(kind, tuple):
        return tuple(dtype for k in kind for dtype in _of_kind(k))
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _UNIONS:
        return _of_kind(_UNIONS[kind])
    raise ParameterError("dtypes: unknown kind", got=repr(kind), expected=", ".join((*_KINDS, *_UNIONS)))


class ArrayNamespaceInfo(Shown):
    """What arrays of this namespace can do, as the Array API standard asks.

    >>> jnp.__array_namespace_info__().capabilities()["boolean indexing"]
    True
    """

    def capabilities(self) -> dict[str, Any]:
        """What is there outside of transformations: inside of `jit` shapes are fixed, so neither of the first two is.

        >>> ArrayNamespaceInfo().capabilities()["max dimensions"]
        64
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """None: an array that was put nowhere goes where it is used.

        >>> ArrayNamespaceInfo().default_device() in ArrayNamespaceInfo().devices()
        True
        """
        return None

    def devices(self) -> list[Any]:
        """What ``device=`` takes: None, and each of `nx.devices()`.

        >>> ArrayNamespaceInfo().devices()[:2]
        [None, cpu:0]
        """
        from nxjax.runtime import devices

        return [None, *devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes that input takes which names none; the same on all devices.

        >>> ArrayNamespaceInfo().default_dtypes()["real floating"].name
        'float32'
        """
        wide = {
            "real floating": dtypes.float64,
            "complex floating": dtypes.complex128,
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }
        return {kind: dtypes.canonical(dtype) for kind, dtype in wide.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's dtypes of a kind (``"bool"``, ``"real floating"``, ...) or of several, by name.

        Raises:
            ParameterError: no kind of this name.

        >>> list(ArrayNamespaceInfo().dtypes(kind="complex floating"))
        ['complex64', 'complex128']
        """
        return {dtype.name: dtype for dtype in _of_kind(kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The namespace's answers to the Array API standard's questions.

    >>> __array_namespace_info__().default_dtypes()["integral"].name
    'int32'
    """
    return ArrayNamespaceInfo()
