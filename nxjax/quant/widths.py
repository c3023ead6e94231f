"""What a search for layers that have to leave 8 bits measured, as a table. Knows nothing of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from nxjax.display import page
from nxjax.display.columns import columns


@final
@dataclass(frozen=True)
class WidthTrial:
    """One choice that was measured.

    Attributes:
        sixteen: how many layers compute in 16 bits.
        floats: how many compute in float.
        share: of all multiply-accumulates, those in 8 bits, 0 to 1.
        found: what the choice gives, in ``unit``.
        unit: "dB", of the worst result, or "metric".
    """

    sixteen: int
    floats: int
    share: float
    found: float
    unit: str


@final
class WidthTrials(tuple[WidthTrial, ...]):
    """What was measured, in order; the first is int8 as it is. Prints as a table.

    >>> WidthTrials([WidthTrial(0, 0, 1.0, 2.0, "dB"), WidthTrial(3, 1, 0.9, 21.5, "dB")])
    in 16 bits  in float  products in 8 bits  dB
    0           0         100.0%              2
    3           1         90.0%               21.5
    """

    __slots__ = ()

    @property
    def best(self) -> float:
        """The best that was found, in the unit of the last."""
        return max((t.found for t in self if t.unit == self[-1].unit), default=float("inf"))

    def judged(self, metric: float) -> WidthTrials:
        """With the metric of what was best."""
        best = max(self, key=lambda t: t.found)
        return WidthTrials([*self, replace(best, found=metric, unit="metric")])

    def _rows(self) -> list[tuple[str, ...]]:
        units = {t.unit for t in self}
        shown: Callable[[WidthTrial], str] = lambda t: f"{t.found:.4g}" + (f" {t.unit}" if len(units) > 1 else "")
        return [(str(t.sixteen), str(t.floats), f"{t.share:.1%}", shown(t)) for t in self]

    def _head(self) -> tuple[str, ...]:
        units = dict.fromkeys(t.unit for t in self) or ("dB",)
        return "in 16 bits", "in float", "products in 8 bits", " or ".join(units)

    def __repr__(self) -> str:
        return "\n".join(columns([self._head(), *self._rows()]))

    def _repr_html_(self) -> str:
        return page.page(page.table(self._head(), self._rows()))
