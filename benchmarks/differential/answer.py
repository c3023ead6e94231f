"""What a library answers to a case in one mode, as NumPy arrays and plain values; and whether two answers are the same.

The libraries are given as modules, so this file imports neither.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import optree

from benchmarks.differential.case import Case, Weak

Array = np.ndarray[Any, Any]
# relative error that is still the same answer: a few units in the last place of results of some hundred operations
ERROR = {"float64": 1e-11, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 3e-5, "complex128": 1e-11}


class Refused(Exception):
    """The library raised; the reason is its error."""


def answer(case: Case, mode: str, library: ModuleType, *, wide: bool = False) -> list[Any]:
    """Leaves of the result of ``case`` in ``mode``; raises Refused from the library's own error.

    ``wide``: with inputs of twice the width, to be asked where 64-bit dtypes are on.
    """
    leaves, tree = optree.tree_flatten((case.args, dict(case.kwargs)), none_is_leaf=True)
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (np.ndarray, Weak))]
    given = [_widened(leaves[i]) if wide else leaves[i] for i in where]
    function = case.function(library)

    def called(*arrays: Any) -> Any:
        filled = list(leaves)
        for i, array in zip(where, arrays, strict=True):
            filled[i] = array
        args, kwargs = optree.tree_unflatten(tree, filled)
        return function(*args, **kwargs)

    def arrays(values: Sequence[Any]) -> list[Any]:
        return [x.value if isinstance(x, Weak) else library.numpy.asarray(x) for x in values]

    try:
        return [_plain(leaf) for leaf in _leaves(_MODES[mode](case, library, called, given, arrays))]
    except Exception as error:
        raise Refused from error


def _call(case: Case, library: ModuleType, called: Callable[..., Any], given: list[Any], arrays: Any) -> Any:
    return called(*arrays(given))


def _jit(case: Case, library: ModuleType, called: Callable[..., Any], given: list[Any], arrays: Any) -> Any:
    return library.jit(called)(*arrays(given))


def _split(given: list[Any], called: Callable[..., Any], arrays: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The function of what can be differentiated, and those inputs; Refused where there is none."""
    whole = arrays(given)
    inner = [i for i, x in enumerate(given) if isinstance(x, np.ndarray) and _inexact(x.dtype)]
    if not inner:
        raise Nothing

    def function(*some: Any) -> Any:
        filled = list(whole)
        for i, x in zip(inner, some, strict=True):
            filled[i] = x
        return called(*filled)

    return function, [given[i] for i in inner]


class Nothing(Exception):
    """The mode has no meaning for the case: nothing to differentiate, nothing to map over."""


def _jvp(case: Case, library: ModuleType, called: Callable[..., Any], given: list[Any], arrays: Any) -> Any:
    function, primals = _split(given, called, arrays)
    tangents = [_noise(case, i, x.shape, x.dtype) for i, x in enumerate(primals)]
    return library.jvp(function, tuple(arrays(primals)), tuple(arrays(tangents)))[1]


def _vjp(case: Case, library: ModuleType, called: Callable[..., Any], given: list[Any], arrays: Any) -> Any:
    function, primals = _split(given, called, arrays)
    y, pull = library.vjp(function, *arrays(primals))

    def cotangent(i: int, leaf: Any) -> Any:
        dtype = np.dtype(leaf.dtype)
        if not _inexact(dtype):
            return np.zeros(leaf.shape, library.dtypes.float0)
        return library.numpy.asarray(_noise(case, 100 + i, leaf.shape, dtype))

    flat, tree = library.tree.flatten(y)
    return pull(library.tree.unflatten(tree, [cotangent(i, leaf) for i, leaf in enumerate(flat)]))


def _vmap(case: Case, library: ModuleType, called: Callable[..., Any], given: list[Any], arrays: Any) -> Any:
    mapped = [isinstance(x, np.ndarray) for x in given]
    if not any(mapped):
        raise Nothing
    stacked = [np.stack([x, x.reshape(-1)[::-1].reshape(x.shape)]) if m else x for x, m in zip(given, mapped)]
    return library.vmap(called, in_axes=tuple(0 if m else None for m in mapped))(*arrays(stacked))


_MODES: dict[str, Callable[..., Any]] = {"call": _call, "jit": _jit, "jvp": _jvp, "vjp": _vjp, "vmap": _vmap}


def _inexact(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name and dtype.itemsize > 0)


def _noise(case: Case, i: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers that hang on the case alone, in both libraries and at both widths the same."""
    draw = np.random.default_rng(zlib.crc32(f"{case.name} {i} {shape}".encode()))
    values = draw.normal(size=shape)
    if dtype.kind == "c":
        values = values + 1j * draw.normal(size=shape)
    return np.asarray(values).astype(np.complex64 if dtype.kind == "c" else np.float16).astype(dtype)


def _widened(x: Any) -> Any:
    if not isinstance(x, np.ndarray) or not _inexact(x.dtype):
        return x
    with np.errstate(all="ignore"):
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _leaves(result: Any) -> list[Any]:
    """Leaves in order, with what stands for each container's kind between them."""
    if result is None:
        return [None]
    if isinstance(result, dict):
        return [
            "dict",
            *sorted(map(str, result)),
            *(leaf for key in sorted(result, key=str) for leaf in _leaves(result[key])),
        ]
    if isinstance(result, tuple):
        names = getattr(result, "_fields", ())
        return [f"tuple of {len(result)}", *names, *(leaf for x in result for leaf in _leaves(x))]
    if isinstance(result, list):
        return [f"list of {len(result)}", *(leaf for x in result for leaf in _leaves(x))]
    return [result]


class Answer:
    """An array of a result: its values in NumPy, its dtype's name and whether it is weak."""

    def __init__(self, array: Array, weak: bool | None) -> None:
        self.array, self.weak = array, weak

    def __repr__(self) -> str:
        values = np.array2string(self.array.reshape(-1)[:6], max_line_width=10_000)
        return f"{self.array.dtype}{list(self.array.shape)}{' weak' if self.weak else ''} {values}"


def _plain(leaf: Any) -> Any:
    if hasattr(leaf, "dtype") and hasattr(leaf, "shape") and not isinstance(leaf, np.dtype):
        if "key<" in str(leaf.dtype) or leaf.dtype.fields:
            return f"keys{list(leaf.shape)}"
        weak = None if isinstance(leaf, (np.ndarray, np.generic)) else bool(leaf.weak_type)
        return Answer(np.asarray(leaf), weak)
    return leaf if isinstance(leaf, (bool, int, float, complex, str, np.dtype)) else _kind(leaf)


def _kind(leaf: Any) -> str:
    return getattr(leaf, "__name__", None) or f"a {type(leaf).__name__}"


def differs(ours: list[Any], peers: list[Any], tolerance: float) -> str:
    """Why two answers are not the same, or the empty text: "structure", "shape", "dtype", "weak" or "value"."""
    if len(ours) != len(peers):
        return "structure"
    for a, b in zip(ours, peers, strict=True):
        if isinstance(a, Answer) and isinstance(b, Answer):
            if found := _differs(a, b, tolerance):
                return found
        elif isinstance(a, Answer) or isinstance(b, Answer):
            return "structure"
        elif type(a) is not type(b) or not (a == b or a != a):
            return "value"
    return ""


def _differs(a: Answer, b: Answer, tolerance: float) -> str:
    if a.array.shape != b.array.shape:
        return "shape"
    if a.array.dtype != b.array.dtype:
        return "dtype"
    # A boolean's weakness shows nowhere: promotion takes weak and strong ones alike.
    if a.weak is not None and b.weak is not None and a.weak != b.weak and a.array.dtype != bool:
        return "weak"
    return "" if bool(np.all(near(a.array, b.array, tolerance))) else "value"


def near(a: Array, b: Array, tolerance: float) -> Array:
    """Per element: the same number to the dtype's error (relative to it, or 1/8 of that to the largest one)."""
    if not _inexact(a.dtype):
        return np.asarray(a == b)
    error = ERROR.get(a.dtype.name, 0.2) * tolerance
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        size = np.abs(b)
        largest = float(np.max(size, where=np.isfinite(size), initial=0.0))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= error * (size + largest / 8))
        return np.asarray(np.where(np.isfinite(b), np.isfinite(a) & same, same))


def nearer(ours: list[Any], peers: list[Any], truth: list[Any], tolerance: float) -> bool:
    """Where ours are not near the peer's, ours are at least as near as theirs to the truth (both as numbers)."""
    if not len(ours) == len(peers) == len(truth):
        return False
    for a, b, t in zip(ours, peers, truth, strict=True):
        if not isinstance(a, Answer):
            if type(a) is not type(b) or not (a == b or a != a):
                return False
            continue
        if not (isinstance(b, Answer) and isinstance(t, Answer)) or a.array.shape != t.array.shape:
            return False
        with np.errstate(all="ignore"):
            rounded = t.array.astype(a.array.dtype)
            off, theirs = _distance(a.array, rounded), _distance(b.array, rounded)
        right = near(a.array, b.array, tolerance) | near(a.array, rounded, tolerance) | (off <= theirs)
        if not bool(np.all(right)):
            return False
    return True


def _distance(a: Array, b: Array) -> Array:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    if a.dtype.name in ml_dtypes.__dict__ or a.dtype.kind in "fciub":
        a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
