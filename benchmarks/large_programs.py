"""How long programs of 1,000, 3,000 and 10,000 equations take: ``python -m benchmarks.large_programs [--compile]``.

Straight-line programs of random operands, so that nothing repeats. What takes time per equation shows the same
microseconds in each column; a column that grows shows work that is more than linear. Prints no bars.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nxjax as nx

SIZES = (1_000, 3_000, 10_000)
X = np.linspace(-1, 1, 8, dtype=np.float32)


def straight(n: int, np_: Any = nx) -> Callable[..., Any]:
    """A function of ``n`` ops of a library, each of the last value and one of the forty before it."""
    rng = np.random.default_rng(0)
    kinds, back = rng.integers(0, 5, n), rng.integers(1, 40, n)

    def f(x: Any) -> Any:
        values = [x]
        for kind, k in zip(kinds, back, strict=True):
            a, b = values[-1], values[max(0, len(values) - int(k))]
            if kind < 2:
                values.append(np_.sin(a) if kind else np_.tanh(a))
            else:
                values.append(a * b if kind == 2 else a + b if kind == 3 else np_.maximum(a, b))
        return values[-1].sum()

    return f


def main(arguments: list[str]) -> None:
    ways: dict[str, Callable[[Any], Any]] = {
        "trace": lambda f: nx.make_jaxpr(f)(X),
        "print": lambda f: str(nx.make_jaxpr(f)(X)),
        "print and parse": lambda f: nx.parse_program(str(nx.make_jaxpr(f)(X))),
        "check": lambda f: nx.make_jaxpr(f)(X).check(),
        "jvp": lambda f: nx.make_jaxpr(lambda x: nx.jvp(f, (x,), (x,)))(X),
        "grad": lambda f: nx.make_jaxpr(nx.grad(f))(X),
        "grad of grad": lambda f: nx.make_jaxpr(nx.grad(lambda x: nx.grad(f)(x).sum()))(X),
        "vmap": lambda f: nx.make_jaxpr(nx.vmap(f))(X[None]),
        "stablehlo": lambda f: nx.jit(f).lower(X).as_text(dialect="stablehlo"),
    }
    if "--compile" in arguments:
        ways["jit on cpu"] = lambda f: nx.jit(f, device="cpu")(X)
        ways["jit of grad on cpu"] = lambda f: nx.jit(nx.grad(f), device="cpu")(X)
        nx.config.update("compile_first", True)
        nx.config.update("cache_dir", "")
    print(f"{'us per equation':20s}" + "".join(f"{n:>10,}" for n in SIZES))
    for name, way in ways.items():
        row: list[str] = []
        for n in SIZES:
            f = straight(n)
            start = time.perf_counter()
            way(f)
            row.append(f"{(time.perf_counter() - start) / n * 1e6:10.1f}")
        print(f"{name:20s}" + "".join(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
