"""Packages that load each public name when it is first used. Knows no package."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, NoReturn


def load(module: str) -> Any:
    """The module of that name. What an import makes stays: looking through it for garbage takes a tenth of the time."""
    if module in sys.modules or not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        settle()
        gc.enable()


def settle() -> None:
    """Let all objects count as old, as if they had just been looked through for garbage."""
    if not gc.get_freeze_count():  # what somebody has frozen stays so
        gc.freeze()
        gc.unfreeze()


def module_of_name(files: Mapping[str, str]) -> dict[str, str]:
    """Name -> file, from file -> names."""
    return {name: file for file, names in files.items() for name in names.split()}


def replacement_hint(name: str) -> str:
    """What the documentation says of a name that is not here, as the rest of a message; mostly nothing.

    The pages are loaded when one is first asked for.
    """
    return "" if name.rpartition(".")[2].startswith("_") else import_module("nxjax.display.pages").absent(name)


def add_hint(error: TypeError, given: Collection[str]) -> None:
    """Add to Python's error about a keyword argument what to write instead, where the documentation says it."""
    found = re.search(r"\(\) got an unexpected keyword argument '(\w+)'$", str(error))
    if found and found[1] in given and (more := replacement_hint(f"{found[1]}=")):
        error.args = (f"{error}{more}",)


def missing_attribute(module: str, name: str) -> AttributeError:
    """What a module raises for a name that it has not: with what to write instead, where the documentation says it."""
    said = f"module {module!r} has no attribute {name!r}"
    more = replacement_hint(f"{module}.{name}".removeprefix("nxjax."))
    # By its arguments Python says "Did you mean".
    return AttributeError(said + more) if more else AttributeError(said, name=name, obj=sys.modules[module])


def getattr_with_hints(module: str) -> Any:
    """``__getattr__`` of a module that has all its names, and lacks some that JAX has. Type checkers need not know."""

    def find(name: str) -> NoReturn:
        raise missing_attribute(module, name)

    return find


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
            return load(f"{package}.{name}")
        if name not in names:
            raise missing_attribute(package, name)
        home = names[name]
        found = getattr(load(home if home.startswith("nxjax.") else f"{package}.{home}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted({*names, *modules})
