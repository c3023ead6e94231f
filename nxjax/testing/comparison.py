"""When two results are the same, and between whom the comparison is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.backends import registry
from nxjax.trace import dtypes
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]


class LawBroken(AssertionError):
    """A law does not hold; the message names it."""


def executors() -> list[str]:
    """The executors of this machine's CPU.

    >>> "reference" in executors()
    True
    """
    found = [registry.get(n) for n in registry.names()]
    return [b.name for b in found if b.platform == "cpu" and b.available()[0]]


def tolerance(dtype: Any) -> float:
    """The relative error by which two right implementations may differ in ``dtype``.

    >>> tolerance("float32"), tolerance("int8")
    (2e-05, 0.0)
    """
    d = dtypes.real_part(np.dtype(dtype))
    if d not in dtypes.FLOAT:
        return 0.0
    return {1: 0.3, 2: 2e-2, 4: 2e-5, 8: 1e-10}[d.itemsize]


def broken(name: str, what: str, detail: str = "") -> LawBroken:
    """The error for law ``name`` of ``what``."""
    return LawBroken(f"{what}: {name} does not hold{': ' + detail if detail else ''}")


def assert_close(
    law: str, what: str, got: Any, expected: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Equal shapes and dtypes, and values within tolerance; else `LawBroken` naming ``law``.

    >>> try:
    ...     assert_close("jit = eager", "f", np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    ... except LawBroken as error:
    ...     print(str(error).splitlines()[0])
    f: jit = eager does not hold: element [1]: got 2.0, expected 3.0
    """
    a, b = np.asarray(numpy_of(got)), np.asarray(numpy_of(expected))
    if a.shape != b.shape or a.dtype != b.dtype:
        raise broken(law, what, f"got {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}")
    if a.dtype in (dtypes.key, dtypes.float0):
        if a.tobytes() != b.tobytes():
            raise broken(law, what, "other bits")
        return
    r = tolerance(a.dtype) if rtol is None else rtol
    wide = np.complex128 if a.dtype in dtypes.COMPLEX else np.float64 if a.dtype in dtypes.FLOAT else a.dtype
    try:
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=r, atol=r if atol is None else atol)
    except AssertionError as error:
        place = first_difference(a.astype(wide), b.astype(wide), r, r if atol is None else atol)
        raise broken(law, what, f"{place}\n{error}") from None


def first_difference(got: NDArray, expected: NDArray, rtol: float, atol: float) -> str:
    """The first element, in C order, that is further off than allowed; empty if there is none.

    >>> first_difference(np.array([1.0, 2.0]), np.array([1.0, 3.0]), 0, 0)
    'element [1]: got 2.0, expected 3.0'
    """
    with np.errstate(all="ignore"):
        same = np.isclose(got, expected, rtol, atol, equal_nan=True)
    if same.all():
        return ""
    place = np.unravel_index(int(np.argmin(same)), same.shape)
    return f"element {[int(i) for i in place]}: got {got[place]}, expected {expected[place]}"


def numpy_of(x: Any) -> Any:
    """The elements of an array; anything else as it is."""
    return x.numpy() if isinstance(x, Array) else x


def many(y: Any) -> tuple[Any, ...]:
    """Several results, or the one."""
    return tuple(y) if isinstance(y, (tuple, list)) else (y,)


def directions(points: Sequence[NDArray], seed: int) -> list[NDArray]:
    """Random tangents of ``points``."""
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=p.shape) + (1j * rng.normal(size=p.shape) if p.dtype in dtypes.COMPLEX else 0)).astype(p.dtype)
        for p in points
    ]


def pairing(ct: NDArray, t: NDArray) -> float:
    """The pairing without conjugation that transposes are taken in; its real part."""
    return float(np.real(np.sum(ct * t)))
