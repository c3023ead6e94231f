"""Packages of which only the compiled part is loaded until a program asks for more.

The compiled part of optree flattens trees and builds them, that of ml_dtypes has the dtypes. The Python around them
(paths and registries, tables of limits) may take several times as long to import. It is loaded when one of its names is
first used, by nxjax or by anybody else.
"""

from __future__ import annotations

import sys
from _frozen_importlib import module_from_spec  # `importlib.util` has it from there, and more that nobody needs
from collections.abc import Collection
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from nxjax.config.forks import fork_lock


def install(name: str, part: str, names: Collection[str] = ()) -> None:
    """Let ``import name`` give the package as described; one that is loaded already stays as it is.

    Args:
        part: its compiled module.
        names: what the package has from there; all that has a name of its own, if none is said.
    """
    spec = None if name in sys.modules else PathFinder.find_spec(name)
    inner = PathFinder.find_spec(f"{name}.{part}", spec.submodule_search_locations) if spec is not None else None
    if spec is None or inner is None:
        return  # the import gives it all, or says what is missing
    compiled, package = _loaded(inner), module_from_spec(spec)
    given = {n: x for n, x in vars(compiled).items() if (n in names if names else n[0] != "_")}
    vars(package).update(given, **{part: compiled, "__getattr__": _rest(package, spec)})
    sys.modules[name] = package


def _loaded(spec: ModuleSpec) -> Any:
    module = sys.modules[spec.name] = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def _rest(package: ModuleType, spec: ModuleSpec) -> Any:
    """``__getattr__`` of ``package``, which loads it."""
    lock, names = fork_lock(), vars(package)
    loading = False

    def find(name: str) -> Any:
        nonlocal loading
        with lock:
            if loading:  # its own files ask for each other
                raise AttributeError(f"module {spec.name!r} has no attribute {name!r}")
            if names.get("__getattr__") is find:
                loading = True
                assert spec.loader is not None
                try:
                    spec.loader.exec_module(package)
                finally:
                    loading = False
                del names["__getattr__"]
        return getattr(package, name)

    return find
