"""``lax``: maps, associative scans, solvers that are differentiated through their equation, what keeps or stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import Inputs

ALL = ("call", "jit", "jvp", "vjp", "vmap")
FORWARD = ("call", "jit", "jvp", "vmap")
KINDS = ("float32", "bfloat16", "int32", "complex64")
Made = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    for part in (_maps, _associative, _solvers, _identities):
        yield from part(inputs)


def _maps(inputs: Inputs) -> Iterator[Case]:
    def mapped(**kwargs: Any) -> Made:
        return lambda lib: lambda xs: lib.lax.map(lambda v: (lib.numpy.sum(v * v), v[0]), xs, **kwargs)

    for kind in KINDS:
        for kwargs in ({}, {"batch_size": 2}, {"batch_size": 5}, {"batch_size": 9}):
            yield Case(f"lax.map {kwargs}", (inputs.array((5, 2), kind),), make=mapped(**kwargs))
    yield Case("lax.map empty", (inputs.array((0, 2), "float32"),), make=mapped())
    yield Case("lax.map empty batches", (inputs.array((0, 2), "float32"),), make=mapped(batch_size=2))

    def pair(lib: ModuleType) -> Any:
        return lambda xs, ys: lib.lax.map(lambda p: p[0] * p[1], (xs, ys))

    yield Case("lax.map pair", (inputs.array((3,), "float32"), inputs.array((3, 2), "float32")), make=pair)
    yield Case("lax.map lengths", (inputs.array((3,), "float32"), inputs.array((2, 2), "float32")), make=pair)


def _associative(inputs: Inputs) -> Iterator[Case]:
    def by(name: str, **kwargs: Any) -> Made:
        return lambda lib: lambda x: lib.lax.associative_scan(getattr(lib.numpy, name), x, **kwargs)

    def affine(lib: ModuleType) -> Any:
        return lambda a, b: lib.lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b))

    for name in ("add", "multiply", "maximum", "logaddexp"):
        for kwargs in ({}, {"reverse": True}, {"axis": 1}, {"axis": -1, "reverse": True}):
            for kind in ("float32", inputs.choice(("bfloat16", "float16", "float32"))):
                yield Case(
                    f"lax.associative_scan {name} {kwargs}", (inputs.array((5, 3), kind),), make=by(name, **kwargs)
                )
    yield Case("lax.associative_scan add", (inputs.array((6,), "int8"),), make=by("add"))
    for n in (0, 1, 2, 7):
        yield Case(f"lax.associative_scan of {n}", (inputs.array((n,), "float32"),), make=by("add"))
    yield Case("lax.associative_scan pair", (inputs.array((6,), "float32"), inputs.array((6,), "float32")), make=affine)
    yield Case("lax.associative_scan axis", (inputs.array((6,), "float32"),), make=by("add", axis=1))
    yield Case("lax.associative_scan number", (Weak(1.0),), make=by("add"))


def _solvers(inputs: Inputs) -> Iterator[Case]:
    def root(aux: bool) -> Made:
        def made(lib: ModuleType) -> Any:
            def solve(f: Any, x: Any) -> Any:
                found = lib.lax.fori_loop(0, 30, lambda _, v: v - f(v) / (3 * v * v), x)
                return (found, lib.numpy.sum(found)) if aux else found

            tangent = lambda g, y: y / g(lib.numpy.ones_like(y))
            return lambda a: lib.lax.custom_root(
                lambda v: v**3 - a, lib.numpy.ones_like(a), solve, tangent, has_aux=aux
            )

        return made

    def linear(aux: bool, **kwargs: Any) -> Made:
        def made(lib: ModuleType) -> Any:
            def called(a: Any, b: Any) -> Any:
                m = a @ a.T + 3 * lib.numpy.eye(2, dtype=a.dtype)

                def solve(matvec: Any, v: Any) -> Any:
                    x = lib.numpy.linalg.solve(m, v)
                    return (x, lib.numpy.sum(x)) if aux else x

                return lib.lax.custom_linear_solve(lambda v: m @ v, b, solve, has_aux=aux, **kwargs)

            return called

        return made

    for aux in (False, True):
        for kind in ("float32", "float32", "complex64"):
            low = {"low": 0.5, "high": 4}
            yield Case(
                f"lax.custom_root {aux}",
                (inputs.array((3,), kind, **low),),
                make=root(aux),
                modes=("call", "jit", "vmap") if kind == "complex64" else ALL,
                tolerance=4,
            )
        args = (inputs.array((2, 2), "float32"), inputs.array((2,), "float32"))
        yield Case(
            f"lax.custom_linear_solve {aux}", args, make=linear(aux, symmetric=True), tolerance=8
        )  # conditions of 10
        yield Case(f"lax.custom_linear_solve forward {aux}", args, make=linear(aux), modes=FORWARD, tolerance=8)


def _identities(inputs: Inputs) -> Iterator[Case]:
    for kind in (*KINDS, "bool"):
        x = inputs.array((2,), kind)
        yield Case("lax.stop_gradient", (x,))
        yield Case("lax.stop_gradient", ({"a": x, "b": (x, None)},))
        yield Case("lax.optimization_barrier", (x,))
        yield Case("lax.optimization_barrier", ((x, {"a": x}),))
        yield Case("lax.stage", (x,))

    def partly(lib: ModuleType) -> Any:
        return lambda x: x * lib.lax.stop_gradient(x) + lib.lax.optimization_barrier(x)

    def kept(lib: ModuleType) -> Any:
        def f(x: Any) -> Any:
            lib.lax.dce_sink(x * 2)
            return x + 1

        return f

    def unit(lib: ModuleType) -> Any:
        return lib.lax.composite(lambda x, *, k: x * k, "some.product", version=1)

    x = inputs.array((3,), "float32")
    yield Case("lax.stop_gradient partly", (x,), make=partly)
    yield Case("lax.dce_sink", (x,), make=kept, modes=("call", "jit", "vmap"))
    yield Case("lax.composite", (x,), {"k": 3}, make=unit, modes=("call", "jit", "vmap"))
    yield Case("lax.composite", (Weak(2.0),), {"k": 3}, make=unit, modes=("call", "jit"))
    tokens = lambda lib: (
        lambda x: (type(lib.lax.after_all(lib.lax.create_token(), lib.lax.create_token())).__name__, x)[1]
    )
    yield Case("lax.after_all", (x,), make=tokens, modes=("call",))
