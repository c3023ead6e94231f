"""How long `import nxjax` takes, beside `import numpy`: NumPy's time plus 0.15 s is the bar. And how long a process
takes to the first results of small functions, with what earlier processes left in the cache and without, beside
JAX's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
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


# Seconds beyond NumPy's import to a first result: with what earlier processes left, and with an empty cache.
WARM, COLD = 0.06, 0.15
# Small functions: one that NumPy computes the first time, one with a function, with a product and a sum, and a softmax.
FIRST = {
    "element-wise": "lambda x: np.where(x > 1, x * 2 + 1, -x)",
    "tanh": "lambda x: np.tanh(x) * 3",
    "product and sum": "lambda x: (x[:, None] @ x[None]).sum(0)",
    "softmax": "lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum()",
}


def _first(module: str, numpy: str, function: str, cold: bool = False) -> None:
    code = f"import numpy, {module} as nx, {numpy} as np; numpy.asarray(nx.jit({function})(numpy.ones(4, 'f4')))"
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "NXJAX_CACHE_DIR": empty} if cold else None
        subprocess.run([sys.executable, "-c", code], env=env, check=True)


def first_results() -> Iterator[Figure]:
    """A process that imports, traces, compiles or finds what was compiled, and runs."""
    for name, function in FIRST.items():
        for state, allowed in (("warm", WARM), ("cold", COLD)):
            what = f"process to first result, {state}: {name}"
            ours = lambda function=function, state=state: _first("nxjax", "nxjax.numpy", function, state == "cold")
            ours()
            mine, numpy = interleaved(ours, lambda: _import("numpy"), rounds=7)
            note = f"NumPy's import + {1e3 * allowed:.0f} ms; it takes {1e3 * numpy:.0f} ms here"
            yield Figure(what, mine, numpy, "numpy", (numpy + allowed) / numpy, note)
            if package("jax") is not None:
                mine, jax = interleaved(ours, lambda function=function: _first("jax", "jax.numpy", function), rounds=3)
                yield Figure(what, mine, jax, "jax", 1.0, "the same process with JAX")


def figures() -> Iterator[Figure]:
    yield (figure := beside_numpy())
    yield from first_results()
    if package("jax") is not None:
        _, jax = interleaved(lambda: _import("numpy"), lambda: _import("jax"), rounds=3)
        yield Figure("import nxjax", figure.ours, jax, "jax", None, "interpreter start included")
