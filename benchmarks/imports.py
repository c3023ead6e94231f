"""How long `import nxjax` takes, beside `import numpy`. The bar is NumPy's time plus 0.15 s."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.peers import package
from benchmarks.runner import Figure, interleaved

ALLOWED = 0.15  # seconds beyond NumPy's


def _import(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


def beside_numpy() -> Figure:
    ours, numpy = interleaved(lambda: _import("nxjax, nxjax.numpy"), lambda: _import("numpy"), rounds=7)
    note = f"NumPy's time + {ALLOWED} s; interpreter start included"
    return Figure("import nxjax", ours, numpy, "numpy", (numpy + ALLOWED) / numpy, note)


def figures() -> Iterator[Figure]:
    yield (figure := beside_numpy())
    if package("jax") is not None:
        _, jax = interleaved(lambda: _import("numpy"), lambda: _import("jax"), rounds=3)
        yield Figure("import nxjax", figure.ours, jax, "jax", None, "interpreter start included")
