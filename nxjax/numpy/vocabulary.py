"""The ops that the NumPy face calls, by name, each file loaded when its first op is used.

Importing `nxjax.numpy` must cost next to nothing, and the op files are most of the package: so this module answers
``vocabulary.sin`` by importing the file that holds `sin` and remembering it. Knows file names only.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FILES: dict[str, str] = {
    name: file
    for file, names in {
        "arithmetic": "add sub mul div rem neg pow integer_pow max min abs sign floor ceil round sqrt rsqrt cbrt "
        "square nextafter atan2 is_finite",
        "elementary": "exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    file = _FILES.get(name)
    if file is None:
        import pathlib  # DEV

        for path in pathlib.Path(__file__).parents[1].joinpath("ops").glob("*.py"):
            if f"\n{name} = " in path.read_text() or f"\ndef {name}(" in path.read_text():
                file = path.stem
    if file is None:
        raise AttributeError(f"no op is called {name!r}")
    op = globals()[name] = getattr(import_module(f"nxjax.ops.{file}"), name)
    return op
