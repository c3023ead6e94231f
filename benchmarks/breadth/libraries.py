"""The libraries that programs are written for, each under the names that programs use. Knows no program."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.breadth.program import Program
from benchmarks.peers import THREADS, Work, package

# What `import jax` and `import scipy` alone do not bring.
_LATER = {
    "jax": ("scipy.stats", "scipy.special", "scipy.linalg", "scipy.signal", "scipy.ndimage", "image", "nn"),
    "scipy": ("stats", "special", "linalg", "signal", "ndimage"),
}
# NumPy's names of PyTorch's functions that have another.
_TORCH = {"concatenate": "cat", "asarray": "as_tensor"}


class _TorchNames:
    """PyTorch's functions by NumPy's names; a name that it has not raises AttributeError."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, _TORCH.get(name, name))


@contextmanager
def wide(on: bool) -> Iterator[None]:
    """float64 and int64 as they are given, in nxjax and in JAX where it is installed."""
    with ExitStack() as stack:
        stack.enter_context(nx.enable_x64(on))
        jax = package("jax")
        if jax is not None:
            stack.enter_context(jax.enable_x64(on))
        yield


def _loaded(name: str) -> Any:
    found = package(name)
    if found is not None:
        for module in _LATER[name]:
            importlib.import_module(f"{name}.{module}")
    return found


def nxjax_work(program: Program, arrays: Sequence[np.ndarray]) -> Work:
    f, xs = nx.jit(program.of(nx)), [nx.numpy.asarray(x) for x in arrays]
    return lambda: nx.block_until_ready(f(*xs))


def jax_work(program: Program, arrays: Sequence[np.ndarray]) -> Work | None:
    jax = _loaded("jax")
    if jax is None:
        return None
    f, xs = jax.jit(program.of(jax)), [jax.numpy.asarray(x) for x in arrays]
    return lambda: jax.block_until_ready(f(*xs))


def numpy_work(program: Program, arrays: Sequence[np.ndarray]) -> Work | None:
    """None where an array's dtype is not one of NumPy's own."""
    if any(x.dtype.kind == "V" for x in arrays):
        return None
    f = program.of(SimpleNamespace(numpy=np, scipy=_loaded("scipy")))

    def run() -> object:
        with np.errstate(all="ignore"):
            return f(*arrays)

    return run


def torch_work(program: Program, arrays: Sequence[np.ndarray], *, compiled: bool = False) -> Work | None:
    torch = package("torch")
    if torch is None or any(x.dtype.kind == "V" for x in arrays):
        return None
    torch.set_num_threads(THREADS)
    scipy = SimpleNamespace(special=torch.special)
    f, xs = (
        program.of(SimpleNamespace(numpy=_TorchNames(torch), scipy=scipy, nn=torch.nn.functional)),
        [torch.from_numpy(x) for x in arrays],
    )
    f = torch.compile(f) if compiled else f

    def run() -> object:
        with torch.no_grad():
            return f(*xs)

    return run


# How each peer runs a program; those after JAX have only some of the programs' names.
PEERS: dict[str, Callable[[Program, Sequence[np.ndarray]], Work | None]] = {
    "jax": jax_work,
    "numpy": numpy_work,
    "torch": torch_work,
    "torch.compile": lambda program, arrays: torch_work(program, arrays, compiled=True),
}
QUICK = ("jax", "numpy", "torch")
