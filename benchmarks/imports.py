"""How long `import nxjax` takes, beside `import numpy`. The bar is NumPy's time plus 0.15 s."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.runner import Figure, interleaved


def _import(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


def figures() -> list[Figure]:
    ours, numpy = interleaved(lambda: _import("nxjax, nxjax.numpy"), lambda: _import("numpy"), rounds=7)
    _, jax = interleaved(lambda: _import("numpy"), lambda: _import("jax"), rounds=3)
    return [
        Figure("import nxjax", ours, numpy, "NumPy", (numpy + 0.15) / numpy, "interpreter start included"),
        Figure("import nxjax", ours, jax, "JAX", None, "interpreter start included"),
    ]
