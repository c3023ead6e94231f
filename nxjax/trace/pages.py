"""Pages and pictures of values and programs, which a room above draws: `install_pages` says which. Knows none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_home: list[str] = []


def install_pages(module: str) -> None:
    """Have the functions of ``module`` draw."""
    _home[:] = [module]


def render(name: str, *what: Any) -> str:
    """What the function ``name`` of that module draws of ``what``."""
    return getattr(import_module(_home[0]), name)(*what)
