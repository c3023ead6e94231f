"""``lax``: scans, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import Inputs

ALL = ("call", "jit", "jvp", "vjp", "vmap")
FORWARD = ("call", "jit", "jvp", "vmap")
KINDS = ("float32", "bfloat16", "int32", "complex64")
Made = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    for part in (_scans, _loops, _branches):
        yield from part(inputs)


def _scan(body: Made, **kwargs: Any) -> Made:
    return lambda lib: lambda init, xs: lib.lax.scan(body(lib), init, xs, **kwargs)


def _add(lib: ModuleType) -> Any:
    return lambda c, x: (c + x, c * x)


def _tree(lib: ModuleType) -> Any:
    def body(c: Any, x: Any) -> Any:
        a, b = c["a"] + x[0], c["b"] * lib.numpy.cos(x[1])
        return {"a": a, "b": b}, (a, {"s": lib.numpy.sum(b)}, None)

    return body


def _count(lib: ModuleType) -> Any:
    return lambda c, _: (c * 2 + 1, c)


def _weak(lib: ModuleType) -> Any:
    return lambda c, x: (c + 1, x * 2.0)


def _matrix(lib: ModuleType) -> Any:
    return lambda c, x: (lib.numpy.tanh(c @ x), lib.numpy.sum(c))


def _scans(inputs: Inputs) -> Iterator[Case]:
    options: tuple[dict[str, Any], ...] = (
        {},
        {"reverse": True},
        {"unroll": 2},
        {"unroll": 4, "reverse": True},
        {"unroll": True},
        {"length": 5},
        {"length": 4},
        {"_split_transpose": True},
    )
    for kind in KINDS:
        for option in options:
            args = (inputs.array((2,), kind), inputs.array((5, 2), kind))
            yield Case(f"lax.scan {option}", args, make=_scan(_add, **option))
    for n in (0, 1, 3):
        yield Case(
            f"lax.scan of {n}", (inputs.array((2,), "float32"), inputs.array((n, 2), "float32")), make=_scan(_add)
        )
        tree = {"a": inputs.array((2,), "float32"), "b": inputs.array((), "float32")}
        xs = (inputs.array((n, 2), "float32"), inputs.array((n,), "float32"))
        yield Case(f"lax.scan tree {n}", (tree, xs), make=_scan(_tree))
        reverse = inputs.chance(0.5)
        yield Case(
            f"lax.scan count {n} {reverse}",
            (inputs.array((2,), "float32"), None),
            make=_scan(_count, length=n, reverse=reverse),
        )
        yield Case(f"lax.scan weak {n}", (Weak(0), inputs.array((n,), "float32")), make=_scan(_weak))
        yield Case(f"lax.scan number {n}", (0, inputs.array((n,), "bfloat16")), make=_scan(_weak))
    args = (inputs.array((2, 2), "float32"), inputs.array((4, 2, 2), "float32"))
    yield Case("lax.scan matrix", args, make=_scan(_matrix))
    yield Case("lax.scan weak carry", (Weak(0.0), inputs.array((3,), "float32")), make=_scan(_add))
    yield Case("lax.scan dtype", (np.float32(0), inputs.array((3,), "int32")), make=_scan(_add))
    yield Case("lax.scan wrong dtype", (np.int32(0), inputs.array((3,), "float32")), make=_scan(_add))
    yield Case("lax.scan wrong shape", (np.zeros((), "float32"), inputs.array((3, 2), "float32")), make=_scan(_add))
    yield Case("lax.scan no length", (inputs.array((2,), "float32"), None), make=_scan(_count))
    yield Case(
        "lax.scan two lengths",
        (inputs.array((2,), "float32"), inputs.array((5, 2), "float32")),
        make=_scan(_add, length=3),
    )
    yield Case("lax.scan complex", (inputs.array((), "complex64"), inputs.array((3,), "float32")), make=_scan(_add))


def _for(lower: Any, upper: Any, **kwargs: Any) -> Made:
    return lambda lib: lambda x: lib.lax.fori_loop(lower, upper, lambda i, v: v * 0.5 + i, x, **kwargs)


def _loops(inputs: Inputs) -> Iterator[Case]:
    for kind in ("float32", "bfloat16", "complex64"):
        x = inputs.array((2,), kind)
        for lower, upper in ((0, 3), (2, 5), (3, 1), (-2, 2), (0, 0), (np.int32(0), 3), (np.int8(1), np.int8(4))):
            yield Case(f"lax.fori_loop {lower!r} {upper!r}", (x,), make=_for(lower, upper))
        for unroll in (1, 2, True, False):
            yield Case(f"lax.fori_loop unroll {unroll}", (x,), make=_for(0, 4, unroll=unroll))

    def upto(lib: ModuleType) -> Any:
        return lambda n, x: lib.lax.fori_loop(0, n, lambda i, v: lib.numpy.sin(v) + i, x)

    for kind in ("int32", "uint8", "int8"):
        yield Case(
            "lax.fori_loop traced",
            (inputs.array((), kind, low=0, high=5), inputs.array((2,), "float32")),
            make=upto,
            modes=FORWARD,
        )
    yield Case("lax.fori_loop floats", (np.float32(2), inputs.array((2,), "float32")), make=upto, modes=FORWARD)
    yield Case("lax.fori_loop weak", (Weak(3), Weak(1.5)), make=upto, modes=FORWARD)
    yield Case("lax.fori_loop int", (np.int32(1),), make=_for(0, 3))

    def tree(lib: ModuleType) -> Any:
        step = lambda i, c: {"a": c["a"] + i, "b": (c["b"][0] * 2, None)}
        return lambda c: lib.lax.fori_loop(0, 3, step, c)

    yield Case(
        "lax.fori_loop tree", ({"a": inputs.array((), "int32"), "b": (inputs.array((2,), "float32"), None)},), make=tree
    )

    def halved(lib: ModuleType) -> Any:
        return lambda x: lib.lax.while_loop(lambda v: lib.numpy.sum(v * v) > 1.0, lambda v: v * 0.5, x)

    def counted(lib: ModuleType) -> Any:
        return lambda x: lib.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, lib.numpy.cos(c[1])), (0, x))

    def never(lib: ModuleType) -> Any:
        return lambda x: lib.lax.while_loop(lambda v: False, lambda v: v + 1, x)

    def wrong(lib: ModuleType) -> Any:
        return lambda x: lib.lax.while_loop(lambda v: v, lambda v: v + 1, x)

    for kind in ("float32", "bfloat16", "float16"):
        yield Case("lax.while_loop halved", (inputs.array((3,), kind, low=1, high=9),), make=halved, modes=FORWARD)
        yield Case("lax.while_loop counted", (inputs.array((2,), kind),), make=counted, modes=FORWARD)
        yield Case("lax.while_loop never", (inputs.array((2,), kind),), make=never, modes=FORWARD)
    yield Case("lax.while_loop weak", (Weak(5.0),), make=halved, modes=("call", "jit"))
    yield Case("lax.while_loop reverse", (inputs.array((2,), "float32"),), make=counted, modes=("vjp",))
    yield Case("lax.while_loop no bool", (inputs.array((), "float32"),), make=wrong, modes=FORWARD)
    yield Case(
        "lax.while_loop number",
        (3,),
        make=lambda lib: lambda x: lib.lax.while_loop(lambda v: v < 10, lambda v: v * 2, x),
    )


def _cond(*functions: str) -> Made:
    def made(lib: ModuleType) -> Any:
        table = {
            "sin": lib.numpy.sin,
            "double": lambda *xs: xs[0] * 2,
            "one": lambda *xs: 1.0,
            "ones": lambda *xs: lib.numpy.ones_like(xs[0]),
            "tree": lambda *xs: {"a": xs[0], "b": (xs[-1], None)},
            "twice": lambda *xs: {"a": xs[0] * 2, "b": (xs[-1] + 1, None)},
            "int": lambda *xs: lib.numpy.asarray(xs[0], "int32"),
        }
        chosen = [table[f] for f in functions]
        return lambda p, *xs: lib.lax.cond(p, *chosen, *xs)

    return made


def _branches(inputs: Inputs) -> Iterator[Case]:
    for kind in KINDS:
        x = inputs.array((2, 2), kind)
        for p in (np.asarray(True), np.asarray(False), True, np.int32(2), np.float32(0)):
            names = ("sin" if kind != "int32" else "double", "double")
            yield Case(f"lax.cond {p!r}", (p, x), make=_cond(*names))
        yield Case(
            "lax.cond trees", (inputs.array((), "bool"), x, inputs.array((3,), "float32")), make=_cond("tree", "twice")
        )
    x = inputs.array((), "float32")
    for pair in (("one", "double"), ("one", "one"), ("ones", "one"), ("int", "double"), ("tree", "double")):
        yield Case(f"lax.cond {pair}", (inputs.array((), "bool"), x), make=_cond(*pair))
    yield Case("lax.cond weak", (inputs.array((), "bool"), Weak(2.0)), make=_cond("double", "ones"))
    yield Case("lax.cond row", (inputs.array((2,), "bool"), x), make=_cond("sin", "double"))
    yield Case(
        "lax.cond operand",
        (inputs.array((), "bool"), x),
        make=lambda lib: lambda p, x: lib.lax.cond(p, lib.numpy.sin, lib.numpy.cos, operand=x),
    )
    yield Case(
        "lax.cond closure",
        (inputs.array((), "bool"), x),
        make=lambda lib: lambda p, x: lib.lax.cond(p, lambda: x * x, lambda: lib.numpy.exp(x)),
    )

    def switch(lib: ModuleType) -> Any:
        branches = [lib.numpy.sin, lambda v: v * 2, lambda v: lib.numpy.zeros_like(v)]
        return lambda i, x: lib.lax.switch(i, branches, x)

    for kind in ("float32", "bfloat16", "complex64"):
        for index in (0, np.int32(1), np.int32(-3), np.int32(7), np.uint8(2), 2):
            yield Case(
                "lax.switch",
                (np.asarray(index) if not isinstance(index, int) else index, inputs.array((2,), kind)),
                make=switch,
            )
    yield Case("lax.switch", (Weak(1), inputs.array((2,), "float32")), make=switch)
    yield Case("lax.switch", (np.float32(1), inputs.array((2,), "float32")), make=switch)
    yield Case("lax.switch one", (np.int32(1), x), make=lambda lib: lambda i, x: lib.lax.switch(i, [lib.numpy.sin], x))
    yield Case("lax.switch none", (np.int32(1), x), make=lambda lib: lambda i, x: lib.lax.switch(i, [], x))

    def platform(lib: ModuleType) -> Any:
        return lambda x: lib.lax.platform_dependent(x, cpu=lib.numpy.sin, default=lib.numpy.cos)

    yield Case("lax.platform_dependent", (x,), make=platform)
