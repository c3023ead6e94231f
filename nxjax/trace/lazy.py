"""Packages that load each public name when it is first used. Knows no package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def homes(files: Mapping[str, str]) -> dict[str, str]:
    """Name -> file, from file -> names."""
    return {name: file for file, names in files.items() for name in names.split()}


def lazy(
    package: str, names: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        names: public name -> the file that defines it, below the package, or anywhere by its full name.
        modules: files and packages below it that are public themselves.
    """

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in names:
            # By its arguments Python says "Did you mean".
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        home = names[name]
        found = getattr(import_module(home if home.startswith("nxjax.") else f"{package}.{home}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted({*names, *modules})
