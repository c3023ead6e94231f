"""One call that both libraries are asked to make. Knows neither of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

MODES = ("call", "jit", "jvp", "vjp", "vmap")


@dataclass(frozen=True)
class Weak:
    """A Python number that transforms trace as they trace arrays; other numbers are part of the function."""

    value: complex


@dataclass(frozen=True)
class Case:
    """``name`` called with ``args`` and ``kwargs``.

    NumPy arrays in them become arrays of the library and are what ``jit`` traces, ``jvp`` and ``vjp`` differentiate and
    ``vmap`` maps over; all else is part of the function.

    Attributes:
        name: the path of a function below ``jax`` and ``nxjax`` (``"numpy.linalg.qr"``), or any text where ``make``
            is given.
        make: gives the function from the library (``nxjax`` or ``jax``).
        modes: which of MODES to compare.
        tolerance: how many times the usual error of the dtype is still the same answer, for what is ill-conditioned.
        truth: the function of each element, of NumPy arrays in float64, where JAX may be wrong in 64 bits, too.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    make: Callable[[ModuleType], Callable[..., Any]] | None = None
    modes: tuple[str, ...] = MODES
    tolerance: float = 1.0
    truth: Callable[..., Any] | None = None

    def function(self, library: ModuleType) -> Callable[..., Any]:
        if self.make is not None:
            return self.make(library)
        found: Any = library
        for part in self.name.split("."):
            found = getattr(found, part)
        return found

    def __str__(self) -> str:
        shown = [_shown(x) for x in self.args] + [f"{key}={_shown(value)}" for key, value in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def in_some_modes(cases: Iterable[Case], random: np.random.Generator, count: int = 2) -> Iterator[Case]:
    """The cases called as they stand, and in ``count`` of their other modes: others with another seed."""
    for case in cases:
        rest = [mode for mode in case.modes if mode != "call"]
        drawn = {rest[int(i)] for i in random.permutation(len(rest))[:count]}
        yield replace(case, modes=tuple(mode for mode in case.modes if mode == "call" or mode in drawn))


def _shown(x: Any) -> str:
    if isinstance(x, np.ndarray):
        values = f" {np.array2string(x, max_line_width=10_000)}" if x.size <= 8 else ""
        return f"{x.dtype}{list(x.shape)}{values}".replace("\n", "")
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(map(_shown, x))}]"  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    return repr(x)
