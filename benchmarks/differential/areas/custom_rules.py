"""``custom_jvp``, ``custom_vjp``, ``custom_derivatives`` and functions closed over: rules of a program's own."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from benchmarks.differential.areas.transforms import program_case
from benchmarks.differential.case import MODES, Case
from benchmarks.differential.inputs import FLOATS, Inputs

ALL = MODES


def cases(inputs: Inputs) -> Iterator[Case]:
    for dtype in FLOATS:
        x, y = inputs.array((3,), dtype), inputs.array((3,), dtype)
        for program in JVP:
            yield program_case("custom_jvp", program, x, y, modes=ALL)
        for program in VJP:
            yield program_case("custom_vjp", program, x, y, modes=ALL)
    x, y = inputs.array((2, 3), "float32"), inputs.array((3,), "float32")
    for program in (*JVP, *VJP):
        name = "custom_jvp" if program in JVP else "custom_vjp"
        yield program_case(name, program, x, y, modes=("call", "jit", "vjp"))
        twice = lambda lib, x, y, p=program: lib.grad(
            lambda x: lib.numpy.sum(lib.grad(lambda x: p(lib, x, y).sum())(x))
        )(x)
        yield program_case(name, twice, x, y, modes=("call",))
    for name, programs in OTHERS.items():
        for program in programs:
            yield program_case(name, program, x, y, modes=ALL)


def _jvps(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return lib.numpy.sin(x) * y

    f.defjvps(lambda t, out, x, y: 2 * t * x, lambda t, out, x, y: t + out)
    return f(x, y)


def _jvps_with_none(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvps(None, lambda t, out, x, y: 3 * t)
    return f(x, y)


def _jvp(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (t, u) = primals, tangents
        return x * y, t * 5 + u * x

    return f(x, y)


def _jvp_of_names(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any, scale: float = 2.0) -> Any:
        return x * y * scale

    f.defjvp(lambda p, t: (p[0] * p[1] * p[2], t[0] * p[1] * 7))
    return f(x, y=y)


def _jvp_static(lib: ModuleType, x: Any, y: Any) -> Any:
    def f(apply: Any, x: Any, n: int) -> Any:
        return apply(x) * n

    f = lib.custom_jvp(f, nondiff_argnums=(0, 2))

    @f.defjvp
    def rule(apply: Any, n: int, primals: Any, tangents: Any) -> Any:
        return f(apply, primals[0], n), tangents[0] * n * lib.numpy.cos(primals[0])

    return f(lib.numpy.sin, x, 3) + y


def _jvp_tree(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(d: Any) -> Any:
        return {"s": d["x"] + d["y"], "p": (d["x"] * d["y"],)}

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (d,), (t,) = primals, tangents
        return f(d), {"s": t["x"], "p": (t["y"] * 2,)}

    out = f({"x": x, "y": y})
    return out["s"] * out["p"][0]


def _jvp_symbolic(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    def rule(primals: Any, tangents: Any) -> Any:
        x, y = primals
        zero = [type(t) is lib.custom_derivatives.SymbolicZero for t in tangents]
        t = x * 0 if zero[0] else tangents[0] * y
        return x * y, t + (100 if zero[1] else 10)

    f.defjvp(rule, symbolic_zeros=True)
    return f(x, lib.lax.stop_gradient(y))


def _vjp(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return lib.numpy.sin(x) * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * r[1] * 2, ct + r[0]))
    return f(x, y)


def _vjp_none(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, None), lambda r, ct: (ct, None))
    return f(x, y)


def _vjp_static(lib: ModuleType, x: Any, y: Any) -> Any:
    def f(n: int, x: Any, apply: Any, y: Any) -> Any:
        return apply(x) * n + y

    f = lib.custom_vjp(f, nondiff_argnums=(0, 2))
    f.defvjp(lambda n, x, apply, y: (f(n, x, apply, y), x), lambda n, apply, r, ct: (ct * apply(r) * n, ct))
    return f(3, x, lib.numpy.cos, y)


def _vjp_names(lib: ModuleType, x: Any, y: Any) -> Any:
    def f(x: Any, y: Any, n: int) -> Any:
        return x * y * n

    f = lib.custom_vjp(f, nondiff_argnames=("n",))
    f.defvjp(lambda x, y, n: (x * y * n, (x, y)), lambda n, r, ct: (ct * r[1] * n * 2, ct * r[0]))
    return f(x, y, n=2)


def _vjp_tree(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(d: Any, k: Any) -> Any:
        return {"a": d["x"] * k[0], "b": d["y"]}

    f.defvjp(lambda d, k: (f(d, k), d), lambda d, ct: ({"x": ct["a"] * 3, "y": ct["b"] + d["x"]}, [ct["a"].sum()]))
    out = f({"x": x, "y": x * y}, [2.0])
    return out["a"] + out["b"]


def _vjp_symbolic(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    def forward(x: Any, y: Any) -> Any:
        return x.value * y.value, (x.value, y.value, lib.numpy.float32(x.perturbed), lib.numpy.float32(y.perturbed))

    def back(r: Any, ct: Any) -> Any:
        x, y, p, q = r
        return (ct * y * (1 + p)).astype(x.dtype), (ct * x * (1 + q)).astype(y.dtype)

    f.defvjp(forward, back, symbolic_zeros=True)
    return f(x, lib.lax.stop_gradient(y))


def _vjp_vmapped(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, y), lambda y, ct: (ct * y * 4, ct))
    return lib.vmap(f, (0, None))(x, y[0])


def _vjp_wrong(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defvjp(lambda x, y: (x * y, None), lambda r, ct: (ct,))
    return f(x, y)


def _closure_convert(lib: ModuleType, x: Any, y: Any) -> Any:
    f, hoisted = lib.closure_convert(lambda z: lib.numpy.sin(z) * y, x)
    return f(x, *hoisted)


def _custom_gradient(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_gradient
    def f(x: Any, y: Any) -> Any:
        return x * y, lambda ct: (ct * 2, ct + x)

    return f(x, y)


def _one_gradient(lib: ModuleType, x: Any, y: Any) -> Any:
    @lib.custom_gradient
    def f(x: Any) -> Any:
        return x * x, lambda ct: ct * 9

    return f(x) + y


def _linear_call(lib: ModuleType, x: Any, y: Any) -> Any:
    return lib.custom_derivatives.linear_call(lambda r, t: r * t, lambda r, ct: 2 * r * ct, y, x)


def _zeros(lib: ModuleType, x: Any, y: Any) -> Any:
    return lib.numpy.zeros_like(lib.custom_derivatives.zero_from_primal(x)) + y


def _primals(lib: ModuleType, x: Any, y: Any) -> Any:
    wrap = lib.custom_derivatives.CustomVJPPrimal
    a, b = lib.custom_derivatives.custom_vjp_primal_tree_values((wrap(x, True), wrap(y, False)))
    return a * b


JVP = (_jvp, _jvps, _jvps_with_none, _jvp_of_names, _jvp_static, _jvp_tree, _jvp_symbolic)
VJP = (_vjp, _vjp_none, _vjp_static, _vjp_names, _vjp_tree, _vjp_symbolic, _vjp_vmapped, _vjp_wrong)
OTHERS = {
    "closure_convert": (_closure_convert,),
    "custom_gradient": (_custom_gradient, _one_gradient),
    "custom_derivatives.linear_call": (_linear_call,),
    "custom_derivatives.zero_from_primal": (_zeros,),
    "custom_derivatives.custom_vjp_primal_tree_values": (_primals,),
}
