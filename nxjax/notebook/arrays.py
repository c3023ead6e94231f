"""An array as a notebook shows it: what it is, where it lies, what is in it, a small picture, its text.

The work is bounded: of large arrays, a sample is looked at, and the page says so.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.display import charts, page
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array, Tracer

NDArray = np.ndarray[Any, Any]
_WHOLE: Final = 1 << 22  # elements up to which all are looked at
_CELLS: Final = 64  # rows and columns of the picture
_BARS: Final = 32
_FEW: Final = 16


def array_page(x: Array) -> str:
    """The page of an array or a tracer."""
    if isinstance(x, Tracer):
        return page.page(page.heading("Traced value", ("", x.type), ("", x.origin())))
    assert isinstance(x, DeviceArray)
    facts: list[tuple[str, object]] = [("", x.dtype.name if x.dtype != dtypes.key else "random key"), ("", x.shape)]
    if x.type.weak:
        facts.append(("", "weak type"))
    if x.is_deleted():
        return page.page(page.heading("Array", *facts, ("", "deleted: it was donated to a call")))
    if x.ndim:
        facts.append(("", f"{x.nbytes:,} bytes"))
    if x.place is not None:
        facts.append(("on", x.place if x.place.num_devices > 1 else x.place.device_list[0]))
        if not x.place.is_fully_addressable:
            return page.page(page.heading("Array", *facts), page.paragraph("Parts of it are with other processes."))
    body = page.text(repr(x), most=4000)
    if x.dtype == dtypes.key or x.dtype == dtypes.float0 or not x.size:
        return page.page(page.heading("Array", *facts), body)
    if not x.ndim:
        return page.page(page.heading("Array", *facts, ("value", x.numpy()[()])))
    data = x.numpy()
    parts = [page.heading("Array", *facts), *_contents(data)]
    return page.page(*parts, page.details("values", body, opened=x.size <= 100))


def _contents(data: NDArray) -> list[str]:
    """Statistics and pictures."""
    flat = data.reshape(-1)
    step = -(-flat.size // _WHOLE)
    seen = flat[::step] if step > 1 else flat
    sample = f"of a sample of {seen.size:,}" if step > 1 else ""
    if data.dtype == np.bool_:
        trues = int(np.count_nonzero(seen))
        share = trues / seen.size
        facts = page.heading("", ("true", f"{trues:,}"), ("false", f"{seen.size - trues:,}"), ("share", f"{share:.1%}"))
        return [facts, page.paragraph(sample) if sample else "", page.row(_picture(data)) if data.size >= _FEW else ""]
    what = "|x| " if data.dtype.kind == "c" else ""
    numbers = _real(seen)
    good = np.isfinite(numbers)
    nans, infinite = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    finite = numbers[good] if nans or infinite else numbers
    shown: list[tuple[str, object]] = []
    if finite.size:
        with np.errstate(all="ignore"):
            low, mean, high = finite.min(), finite.mean(dtype=np.float64), finite.max()
        shown += [(f"{what}min", _short(low)), (f"{what}mean", _short(mean)), (f"{what}max", _short(high))]
    shown += [(name, f"{n:,}") for name, n in (("NaN", nans), ("infinite", infinite)) if n]
    shown += [("", sample)] if sample else []
    # A few numbers are best read.
    return [page.heading("", *shown), page.row(_picture(data), _histogram(finite)) if data.size >= _FEW else ""]


def _real(data: NDArray) -> NDArray:
    """As numbers that NumPy computes with; magnitudes of complex ones."""
    if data.dtype.kind == "c":
        return np.abs(data)
    return data if data.dtype.kind in "iu" and data.dtype.isbuiltin else data.astype(np.float64)


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, (float, np.floating)) else f"{value:,}"


def _picture(data: NDArray) -> str:
    """The last two axes as colours, of the first element along the others; rows and columns left out evenly."""
    if data.ndim < 2:
        return ""
    matrix = data[(0,) * (data.ndim - 2)]
    rows, columns = (np.unique(np.linspace(0, n - 1, min(n, _CELLS)).astype(int)) for n in matrix.shape)
    index = ", ".join("0" * (data.ndim - 2))
    title = f"x[{index}], {matrix.shape[0]} x {matrix.shape[1]}" if index else f"{matrix.shape[0]} x {matrix.shape[1]}"
    return charts.heat(_real(matrix[np.ix_(rows, columns)]), title)


def _histogram(values: NDArray) -> str:
    if values.size < _FEW:
        return ""
    low, high = values.min(), values.max()
    if low == high or not np.isfinite(float(high) - float(low)):
        return ""
    counts = np.histogram(values.astype(np.float64), _BARS)[0]
    return charts.histogram([int(n) for n in counts], _short(low), _short(high))
