"""The areas. A module here has the programs of one: each is written once, for every library that has its names."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.breadth.program import Program

AREAS = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def programs(area: str) -> list[Program]:
    """The programs of an area, in the order of its file."""
    names = vars(importlib.import_module(f"{__name__}.{area}"))
    return [value for value in names.values() if isinstance(value, Program)]
