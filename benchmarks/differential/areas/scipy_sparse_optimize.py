"""``scipy.sparse.linalg``, ``scipy.optimize``, ``scipy.fft``, ``scipy.integrate`` and ``experimental.ode``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import FLOATS, NUMBERS, Inputs

SOLVERS = ("cg", "bicgstab", "gmres")
ORTHO = (None, "ortho")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _solvers(inputs)
    yield from _minimize(inputs)
    yield from _cosines(inputs)
    yield from _integrals(inputs)


def _definite(inputs: Inputs, dtype: str, n: int = 4) -> np.ndarray:
    x = inputs.array((n, n), dtype, low=-1, high=1)
    return (x @ np.conj(x.T) + n * np.eye(n)).astype(x.dtype)


def _by_function(name: str, **kwargs: Any) -> Callable[[ModuleType], Any]:
    """The matrix as a function of vectors, of vectors in a tree and with the diagonal as preconditioner."""

    def make(lib: ModuleType) -> Any:
        solve = getattr(lib.scipy.sparse.linalg, name)

        def f(a: Any, b: Any) -> Any:
            diagonal = lib.numpy.diagonal(a)
            plain = solve(lambda v: a @ v, b, M=lambda v: v / diagonal, **kwargs)
            tree = solve(lambda t: {"x": a @ t["x"], "y": (a @ t["y"][0],)}, {"x": b, "y": (2 * b,)}, **kwargs)
            return plain, tree

        return f

    return make


def _solvers(inputs: Inputs) -> Iterator[Case]:
    for name in SOLVERS:
        path = f"scipy.sparse.linalg.{name}"
        for dtype in ("float32", "complex64", "float32"):
            a, b = _definite(inputs, dtype), inputs.array((4,), dtype)
            # Iterations stop at an error of 1e-5 of the right side; derivatives are solutions of another system.
            yield Case(path, (a, b), {"tol": 1e-6}, tolerance=30)
            yield Case(path, (a, b), make=_by_function(name, tol=1e-6), modes=("call", "jit", "vjp"), tolerance=30)
        x0 = inputs.array((4,), "float32")
        yield Case(path, (a, b), {"x0": x0, "maxiter": 2, "tol": 0.0}, modes=("call", "jit"), tolerance=30)
        yield Case(path, (a, b), {"x0": x0, "atol": 1e-3}, modes=("call",), tolerance=300)
        yield Case(path, (a, b * 0), modes=("call", "jit"))
        yield Case(path, (a, b), {"M": np.eye(4, dtype="float32")}, modes=("call",), tolerance=30)
        yield Case(path, (a.astype("int32"), np.arange(4, dtype="int32")), modes=("call",), tolerance=30)
        yield Case(path, (a, b[:3]), modes=("call",))
        yield Case(path, (a, b), {"x0": x0[:3]}, modes=("call",))
        yield Case(path, (a[:3], b), modes=("call",))
        yield Case(path, (a[None], b), modes=("call",))
    a, b = _definite(inputs, "float32") + inputs.array((4, 4), "float32"), inputs.array((4,), "float32")
    for kwargs in ({"solve_method": "incremental"}, {"restart": 2, "maxiter": 20}, {"restart": 1, "maxiter": 50}):
        yield Case("scipy.sparse.linalg.gmres", (a, b), {"tol": 1e-6, **kwargs}, modes=("call", "jit"), tolerance=30)
    yield Case("scipy.sparse.linalg.gmres", (a, b), {"solve_method": "nothing"}, modes=("call",))
    yield Case("scipy.sparse.linalg.bicgstab", (a, b), {"tol": 1e-6}, modes=("call", "jit", "jvp"), tolerance=30)


def _bowl(lib: ModuleType, x: Any, *args: Any) -> Any:
    return (lib.numpy.arange(1.0, 4.0) * (x - 0.5) ** 2).sum() + sum(args) * x.sum()


def _rosenbrock(lib: ModuleType, x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _minimize(inputs: Inputs) -> Iterator[Case]:
    def made(f: Callable[..., Any], fields: tuple[str, ...], **kwargs: Any) -> Callable[[ModuleType], Any]:
        def make(lib: ModuleType) -> Any:
            def run(x: Any) -> Any:
                found = lib.scipy.optimize.minimize(lambda *args: f(lib, *args), x, **kwargs)
                return tuple(getattr(found, field) for field in fields)

            return run

        return make

    for fields, kwargs in (
        (("x", "success", "status", "fun"), {"method": "BFGS"}),
        (("x", "fun"), {"method": "BFGS", "args": (0.5, 0.25)}),
        (("x", "fun"), {"method": "BFGS", "tol": 1e-3, "options": {"maxiter": 50}}),
        (("x", "nit", "nfev", "njev"), {"method": "BFGS", "options": {"maxiter": 1}}),
        (("hess_inv",), {"method": "BFGS", "options": {"gtol": 1e-2}}),
        (("x",), {"method": "l-bfgs-experimental-do-not-rely-on-this"}),
        (("x",), {"method": "nothing"}),
        (("x",), {"method": "BFGS", "options": {"nothing": 1}}),
    ):
        make = made(_bowl, fields, **kwargs)
        # A minimum in float32 is known to the root of its error only
        yield Case("scipy.optimize.minimize", (inputs.array((3,), "float32"),), {}, make, ("call", "jit"), 100)
    make = made(_rosenbrock, ("x",), method="BFGS")
    yield Case("scipy.optimize.minimize", (np.asarray([-1.2, 1.0], "float32"),), {}, make, ("call",), 300)
    yield Case("scipy.optimize.minimize", (inputs.array((), "float32"),), {}, make, ("call",))
    names = lambda lib: lambda: list(lib.scipy.optimize.OptimizeResults._fields)
    yield Case("scipy.optimize.OptimizeResults", (), {}, names, ("call",))


def _cosines(inputs: Inputs) -> Iterator[Case]:
    for name in ("dct", "idct", "dctn", "idctn"):
        several = name.endswith("n")
        for dtype in NUMBERS:
            x = inputs.array(inputs.choice(((4,), (3, 4), (2, 3, 2), (1,))), dtype)
            sizes = (
                {}
                if inputs.chance(0.6)
                else {"s": tuple(n + 1 for n in x.shape)}
                if several
                else {"n": inputs.choice((2, 5))}
            )
            where = {} if inputs.chance(0.5) else {"axes": (-1,)} if several else {"axis": inputs.axis(x.ndim)}
            if several and len(sizes.get("s", ())) > len(where.get("axes", x.shape)):
                sizes = {}
            modes = ("call", "jit", "jvp", "vjp", "vmap") if dtype in FLOATS else ("call",)
            yield Case(
                f"scipy.fft.{name}", (x,), {**sizes, **where, "norm": inputs.choice(ORTHO)}, modes=modes, tolerance=4
            )
        x = inputs.array((3, 4), "float32")
        for kind in (1, 2, 3, 4):
            yield Case(f"scipy.fft.{name}", (x,), {"type": kind}, modes=("call",), tolerance=4)
        yield Case(f"scipy.fft.{name}", (inputs.array((0,), "float32"),), modes=("call",))
        yield Case(f"scipy.fft.{name}", (inputs.array((), "float32"),), modes=("call",))
        yield Case(f"scipy.fft.{name}", (x,), {"norm": "forward"}, modes=("call",))
        yield Case(f"scipy.fft.{name}", (x,), {"axes": (0, 2)} if several else {"axis": 2}, modes=("call",))


def _integrals(inputs: Inputs) -> Iterator[Case]:
    path = "scipy.integrate.trapezoid"
    for dtype in NUMBERS:
        y = inputs.array(inputs.choice(((4,), (3, 4), (2, 0, 3), (1,))), dtype)
        yield Case(path, (y,), {"axis": inputs.axis(y.ndim), "dx": inputs.choice((1.0, 0.5, 2))})
        x = inputs.array(y.shape[-1:], inputs.choice(("float32", dtype)))
        yield Case(path, (y, x), modes=("call", "jit", "vjp"))
    yield Case(path, (inputs.array((3, 4), "float32"), inputs.array((3,), "float32")), {"axis": 0})
    yield Case(path, (inputs.array((3, 4), "float32"), inputs.array((3,), "float32")))
    yield Case(path, ([1, 2, 4],))

    def ode(**kwargs: Any) -> Callable[[ModuleType], Any]:
        def make(lib: ModuleType) -> Any:
            solve = _odeint(lib)
            return lambda y, t, k: solve(lambda y, t, k: -k * y + lib.numpy.sin(t), y, t, k, **kwargs)

        return make

    y, t, k = inputs.array((2,), "float32"), np.linspace(0, 1, 3, dtype="float32"), np.float32([0.7, 1.5])
    # Steps are chosen by an error of 1e-8 that float32 cannot have
    yield Case("experimental.ode.odeint", (y, t, k), {}, ode(), ("call", "jit", "vjp"), 30)
    yield Case("experimental.ode.odeint", (y, t, k), {}, ode(rtol=1e-5, atol=1e-5), ("call", "vmap"), 30)


def _odeint(lib: ModuleType) -> Any:
    return importlib.import_module(f"{lib.__name__}.experimental.ode").odeint
