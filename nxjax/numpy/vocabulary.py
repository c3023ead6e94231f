"""The ops that the NumPy face calls, by name, each file loaded when its first op is used.

Importing `nxjax.numpy` must cost next to nothing, and the op files are most of the package: so this module answers
``vocabulary.sin`` by importing the file that holds `sin` and remembering it. Knows file names only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FILES: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    file = _FILES.get(name)
    if file is None:
        import pathlib  # DEV
        import re

        for path in pathlib.Path(__file__).parents[1].joinpath("ops").glob("*.py"):
            if re.search(rf"^{name}(: \w+)? = ", path.read_text(), re.M):
                file = path.stem
    if file is None:
        raise AttributeError(f"no op is called {name!r}")
    op = globals()[name] = getattr(import_module(f"nxjax.ops.{file}"), name)
    return op
