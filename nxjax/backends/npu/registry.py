"""Which targets there are: built-in ones by module, others by the entry point group ``nxjax.targets``.

Each module lists its classes in ``TARGETS``; vendors' packages are imported only when a target is built.
"""

from __future__ import annotations

import difflib
import importlib
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final

from nxjax.backends.npu.base import NpuTarget
from nxjax.errors import ParameterError

MODULES: Final = ("litert", "ethosu", "edgetpu", "qnn", "litert_aot", "intel", "apple", "vitisai", "onnx_emit")
GROUP: Final = "nxjax.targets"


def register(cls: type[NpuTarget]) -> type[NpuTarget]:
    """Class decorator: make a target known in this process. Packages use the entry point instead."""
    _classes()[_checked(cls, cls).name] = cls
    get.cache_clear()
    return cls


def _checked(cls: object, where: object) -> type[NpuTarget]:
    if not (isinstance(cls, type) and issubclass(cls, NpuTarget)):
        raise ParameterError("targets: no target", got=where, expected="a class derived from NpuTarget")
    return cls


@lru_cache(1)
def _classes() -> dict[str, type[NpuTarget]]:
    found: dict[str, type[NpuTarget]] = {}
    for name in MODULES:
        module = importlib.import_module(f"nxjax.backends.npu.{name}")
        targets: tuple[type[NpuTarget], ...] = module.TARGETS
        found.update((cls.name, cls) for cls in targets)
    for entry in entry_points(group=GROUP):
        loaded = _checked(entry.load(), f"entry point {entry.name!r}: {entry.value}")
        found[loaded.name] = loaded
    return found


def names() -> list[str]:
    """Every known target, in the order of the vendors."""
    return list(_classes())


def _spelled(name: str) -> type[NpuTarget] | None:
    """The target whose name is ``name`` but for case, hyphens and underscores: ``edge-tpu``, ``EthosU55``."""
    plain = lambda n: str(n).lower().replace("-", "").replace("_", "")
    return next((cls for known, cls in _classes().items() if plain(known) == plain(name)), None)


@lru_cache(None)
def get(name: str) -> NpuTarget:
    """The target called ``name``."""
    found = _classes().get(name) or _spelled(name)
    if found is None:
        near = difflib.get_close_matches(str(name), _classes(), 3, 0.5)
        raise ParameterError(
            "compile: no such target",
            got=repr(name),
            expected=", ".join(names()),
            fix=f"did you mean {' or '.join(map(repr, near))}?" if near else "nx.targets() lists them",
        )
    return found()
