"""Derivatives and ``vmap`` in all their forms, and ``custom_batching``.

Each case is a small program of both libraries, called as it stands and where that has a meaning under ``jit`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import FLOATS, NUMBERS, Inputs

Program = Callable[..., Any]
BOTH = ("call", "jit")


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _derivatives(inputs)
    yield from _jacobians(inputs)
    yield from _vmap(inputs)


def program_case(name: str, program: Program, *args: Any, modes: tuple[str, ...] = BOTH, **more: Any) -> Case:
    """``program`` is given the library and the arguments."""
    return Case(name, args, make=lambda lib: lambda *given: program(lib, *given), modes=modes, **more)


def _square(lib: ModuleType) -> Any:
    return lambda v: {"y": v * v, "z": lib.numpy.real(v)}


def _with_aux(v: Any) -> Any:
    return v * v, v


def _f(lib: ModuleType, x: Any, y: Any) -> Any:
    return (lib.numpy.sin(x) * y).sum()


def _derivatives(inputs: Inputs) -> Iterator[Case]:
    x, y = inputs.array((2, 3), "float32"), inputs.array((3,), "float32")
    tree = {"a": x, "b": (y, None)}
    of_tree = lambda lib, t: lib.numpy.sum(t["a"] * t["b"][0])
    for name in ("grad", "value_and_grad"):
        take = lambda lib, n=name: getattr(lib, n)
        for argnums in (0, 1, (0, 1), (1, 0), (0,), -1, [0, 1], 2, (0, 0), "x"):
            yield program_case(
                name, lambda lib, x, y, t=take, a=argnums: t(lib)(lambda x, y: _f(lib, x, y), argnums=a)(x, y), x, y
            )
        aux = lambda lib, x, y, t=take: t(lib)(lambda x, y: (_f(lib, x, y), {"k": x + 1, "n": 3}), has_aux=True)(x, y)
        yield program_case(name, aux, x, y)
        yield program_case(name, lambda lib, t, g=take: g(lib)(lambda t: of_tree(lib, t))(t), tree)
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: x)(x), x)
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x, *, k: (x * k).sum())(x, k=2.0), x)
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: 3.0)(x), x)
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: (x.sum(), 1))(x), x)
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: lib.numpy.sum(x) > 0)(x), x)
        for dtype in NUMBERS:
            z = inputs.array((), dtype)
            yield program_case(name, lambda lib, z, t=take: t(lib)(lambda z: z * 2)(z), z)
        z = inputs.array((), "complex64")
        yield program_case(name, lambda lib, z, t=take: t(lib)(lambda z: z * z, holomorphic=True)(z), z)
        yield program_case(name, lambda lib, z, t=take: t(lib)(lambda z: abs(z) ** 2)(z), z)
        i = inputs.array((3,), "int32")
        yield program_case(name, lambda lib, i, t=take: t(lib)(lambda i: (i * 1.5).sum(), allow_int=True)(i), i)
        yield program_case(name, lambda lib, i, t=take: t(lib)(lambda i: (i * 1.5).sum())(i), i)
        yield program_case(name, lambda lib, t=take: t(lib)(lambda x: x**3)(2.0))
        yield program_case(name, lambda lib, t=take: t(lib)(lambda x: x**3)(2))
        yield program_case(name, lambda lib, t=take: t(lib)(lib.grad(lambda x: x**3))(2.0))
    for dtype in (*FLOATS, "complex64"):
        v, t = inputs.array((3,), dtype), inputs.array((3,), dtype)
        yield program_case("jvp", lambda lib, v, t: lib.jvp(_square(lib), (v,), (t,)), v, t)
        forward = lambda lib, v, t: lib.jvp(_with_aux, (v,), (t,), has_aux=True)
        yield program_case("jvp", forward, v, t)
        yield program_case("vjp", lambda lib, v, t: lib.vjp(lib.numpy.square, v)[1](t), v, t)
        yield program_case(
            "vjp",
            lambda lib, v, t: (lambda y, f, a: (y, f(t), a))(*lib.vjp(_with_aux, v, has_aux=True)),
            v,
            t,
        )
        yield program_case(
            "linearize", lambda lib, v, t: (lambda y, f: (y, f(t), f(2 * t)))(*lib.linearize(_square(lib), v)), v, t
        )
        yield program_case(
            "linearize",
            lambda lib, v, t: (lambda y, f, a: (y, f(t), a))(*lib.linearize(_with_aux, v, has_aux=True)),
            v,
            t,
        )
        yield program_case(
            "linear_transpose", lambda lib, v, t: lib.linear_transpose(lambda v: v * 3 + v[::-1], v)(t), v, t
        )
        yield program_case(
            "fwd_and_bwd",
            lambda lib, v, t: (lambda f, b: (lambda y, r: b(r, t))(*f(v)))(*lib.fwd_and_bwd(lambda v: v * v, 0)),
            v,
            t,
        )
    wrong = (
        lambda lib, x, y: lib.jvp(lambda x: x, (x,), (y,)),
        lambda lib, x, y: lib.jvp(lambda x: x, x, x),
        lambda lib, x, y: lib.jvp(lambda x: x, (x,), (x, x)),
        lambda lib, x, y: lib.vjp(lambda x: x, x)[1](y),
        lambda lib, x, y: lib.linear_transpose(lambda x: x * x, x)(x),
        lambda lib, x, y: lib.linearize(lambda x: x, x)[1](y),
        lambda lib, x, y: lib.grad(3)(x),
    )
    for name, program in zip(("jvp", "jvp", "jvp", "vjp", "linear_transpose", "linearize", "grad"), wrong, strict=True):
        yield program_case(name, program, x, y, modes=("call",))
    int_tangent = lambda lib, i: lib.jvp(lambda i: (i, i * 2.0), (i,), (np.zeros((3,), lib.dtypes.float0),))
    yield program_case("jvp", int_tangent, inputs.array((3,), "int32"))


def _vector(lib: ModuleType, x: Any, y: Any) -> Any:
    return lib.numpy.sin(x).sum() * y


def _tree_of(d: Any) -> Any:
    return {"u": d["x"].sum() * d["y"], "v": d["x"] ** 2}


def _scalar(lib: ModuleType, x: Any, y: Any) -> Any:
    return (lib.numpy.sin(x).sum() * y**2).sum()


def _jacobians(inputs: Inputs) -> Iterator[Case]:
    x, y = inputs.array((3,), "float32"), inputs.array((2,), "float32")
    for name in ("jacfwd", "jacrev", "jacobian", "hessian"):
        take = lambda lib, n=name: getattr(lib, n)
        out = _scalar if name == "hessian" else _vector
        for argnums in (0, 1, (0, 1), -1, (1,)):
            yield program_case(
                name, lambda lib, x, y, t=take, a=argnums, o=out: t(lib)(lambda *w: o(lib, *w), a)(x, y), x, y
            )
        trees = lambda lib, x, y, t=take: t(lib)(_tree_of)({"x": x, "y": y})
        yield program_case(name, trees, x, y)
        aux = lambda lib, x, t=take: t(lib)(lambda x: (x**2, {"aux": x.sum()}), has_aux=True)(x)
        yield program_case(name, aux, x)
        z = inputs.array((2,), "complex64")
        yield program_case(name, lambda lib, z, t=take: t(lib)(lambda z: z**2, holomorphic=True)(z), z)
        yield program_case(name, lambda lib, z, t=take: t(lib)(lambda w: w**2)(z), z)
        yield program_case(name, lambda lib, i, t=take: t(lib)(lambda i: i * 2.0)(i), inputs.array((2,), "int32"))
        yield program_case(name, lambda lib, i, t=take: t(lib)(lambda i: i.astype("int32"))(i), x)
        yield program_case(name, lambda lib, t=take: t(lib)(lambda x: x**3)(2.0))
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: x * 2)(x), inputs.array((0,), "float32"))
        yield program_case(name, lambda lib, x, t=take: t(lib)(lambda x: x**2)(x), inputs.array((2, 2), "bfloat16"))


def _vmap(inputs: Inputs) -> Iterator[Case]:
    a, b = inputs.array((3, 4), "float32"), inputs.array((4, 3), "float32")
    for ins, outs in (
        ((0, 1), 0),
        ((0, 1), 1),
        ((0, None), -1),
        ((None, 1), 0),
        ((-1, 0), -1),
        ([0, 1], 0),
        (0, 0),
        ((1, 0), 1),
    ):
        both = lambda lib, a, b, i=ins, o=outs: lib.vmap(lambda x, y: (x.sum() * y, y), in_axes=i, out_axes=o)(a, b)
        yield program_case("vmap", both, a, b)
    one = lambda f: lambda lib, a, b: f(lib, lib.vmap, a, b)
    programs = (
        one(lambda lib, v, a, b: v(lambda d: d["x"] + d["y"][0], ({"x": 0, "y": [1]},))({"x": a, "y": [b]})),
        one(lambda lib, v, a, b: v(lambda d: d["x"] + d["y"], ({"x": 0, "y": None},))({"x": a, "y": 1.0})),
        one(lambda lib, v, a, b: v(lambda x: (x, 1.0, {"k": x[0]}), out_axes=(1, None, {"k": 0}))(a)),
        one(lambda lib, v, a, b: v(lambda x: x, out_axes=None)(a)),
        one(lambda lib, v, a, b: v(lambda x: 3.0, out_axes=None)(a)),
        one(lambda lib, v, a, b: v(lambda x: 3)(a)),
        one(lambda lib, v, a, b: v(lambda: 2.0, axis_size=3)()),
        one(lambda lib, v, a, b: v(lambda x: x, in_axes=None, axis_size=2)(a)),
        one(lambda lib, v, a, b: v(lambda x: x, axis_size=2)(a)),
        one(lambda lib, v, a, b: v(lambda x: x, in_axes=None)(a)),
        one(lambda lib, v, a, b: v(lambda x, y: x + y)(a, b)),
        one(lambda lib, v, a, b: v(lambda x: x, in_axes=2)(a)),
        one(lambda lib, v, a, b: v(lambda x: x, in_axes=1.0)(a)),
        one(lambda lib, v, a, b: v(lambda x: x, in_axes=(0, 0))(a)),
        one(lambda lib, v, a, b: v(lambda x: x)(3.0)),
        one(lambda lib, v, a, b: v(lambda x: x)()),
        one(lambda lib, v, a, b: v(lambda x, *, k: x * k)(a, k=a)),
        one(lambda lib, v, a, b: v(lambda x, k: x * k, in_axes=(0, None))(a, 2)),
        one(lambda lib, v, a, b: v(v(lambda x, y: x * y), in_axes=(0, 1))(a, b)),
        one(lambda lib, v, a, b: v(lambda x: x - lib.lax.pmean(x, "i"), axis_name="i")(a)),
        one(lambda lib, v, a, b: v(lambda x: (lib.lax.axis_index("i"), lib.lax.axis_size("i")), axis_name="i")(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.lax.all_gather(x, "i"), axis_name="i", out_axes=None)(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.lax.psum(x, "i"), axis_name="i", out_axes=None)(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.lax.psum(1, "i") + lib.lax.pmax(x, "i"), axis_name="i")(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(a)),
        one(
            lambda lib, v, a, b: v(lambda x: lib.lax.pshuffle(x, "i", [1, 2, 0]), axis_name="i", spmd_axis_name="q")(a)
        ),
        one(lambda lib, v, a, b: v(lambda x: lib.lax.psum(x, "missing"))(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.nn.one_hot(x, 3, axis="i"), axis_name="i")(lib.numpy.arange(3))),
        one(lambda lib, v, a, b: v(lib.grad(lambda x: (x**2).sum()))(a)),
        one(lambda lib, v, a, b: lib.grad(lambda a: v(lambda x: x**2, 1, 1)(a).sum())(a)),
        one(lambda lib, v, a, b: v(lambda x: lib.numpy.where(x[0] > 0, x, -x))(a)),
        one(lambda lib, v, a, b: v(lambda x: x[:0])(a)),
        one(lambda lib, v, a, b: v(lambda x: x.sum())(a[:0])),
    )
    for program in programs:
        yield program_case("vmap", program, a, b)
    custom = lambda lib, a, sequential: (
        _batched_by_hand(lib, a)
        if not sequential
        else lib.vmap(lib.custom_batching.sequential_vmap(lambda x: lib.numpy.sin(x).sum()))(a)
    )
    for name, sequential in (("custom_vmap", False), ("sequential_vmap", True)):
        for x in (a, a[:0] if sequential else a):
            yield program_case(f"custom_batching.{name}", lambda lib, a, s=sequential: custom(lib, a, s), x)
    partly = lambda lib, a, b: _mixed(lib, a, b)
    yield program_case("custom_batching.custom_vmap", partly, a, b)


def _batched_by_hand(lib: ModuleType, a: Any) -> Any:
    @lib.custom_batching.custom_vmap
    def f(x: Any) -> Any:
        return lib.numpy.sin(x)

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any) -> Any:
        return x * axis_size, in_batched[0]

    return f(a), lib.vmap(f)(a), lib.vmap(f, 1)(a)


def _mixed(lib: ModuleType, a: Any, b: Any) -> Any:
    @lib.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return x + y, y

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        return (x * 10 + y, y), (True, in_batched[1])

    return lib.vmap(f, (0, None))(a, b[:, 0]), f(a, a)
