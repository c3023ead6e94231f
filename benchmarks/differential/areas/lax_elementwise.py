"""``lax``: functions of each element. Nothing is promoted here, so what yields and what is refused counts, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import COMPLEX, FLOATS, INTS, NUMBERS, REAL, SIGNED, Inputs, dtype

INEXACT = (*FLOATS, *COMPLEX)
# Name -> dtypes that it takes.
UNARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("neg", "sign", "abs", "square"), (*INTS, *INEXACT)),
    **dict.fromkeys(
        ("sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos"), INEXACT
    ),
    **dict.fromkeys(("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "logistic", "reciprocal"), INEXACT),
    **dict.fromkeys(("cbrt", "erf", "erfc", "erf_inv", "lgamma", "digamma", "bessel_i0e", "bessel_i1e"), FLOATS),
    **dict.fromkeys(("floor", "ceil", "round", "is_finite"), FLOATS),
    **dict.fromkeys(("bitwise_not",), ("bool", *INTS)),
    **dict.fromkeys(("population_count", "clz"), INTS),
    **dict.fromkeys(("real", "imag"), COMPLEX),
    "conj": ("float32", "complex64"),
}
WITH_ACCURACY = (
    "cbrt",
    "cos",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "rsqrt",
    "sin",
    "sqrt",
    "tan",
    "tanh",
)
BINARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "sub", "mul", "div"), (*INTS, *INEXACT)),
    "rem": (*INTS, *FLOATS),
    **dict.fromkeys(("max", "min", "eq", "ne"), NUMBERS),
    **dict.fromkeys(("lt", "le", "gt", "ge"), REAL),
    **dict.fromkeys(("atan2", "pow"), INEXACT),
    "nextafter": FLOATS,
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTS)),
    **dict.fromkeys(("shift_left", "shift_right_arithmetic", "shift_right_logical", "mulhi"), INTS),
    "complex": ("float32",),
}
# Name -> bounds of each operand in which it has a finite value.
SPECIAL = {
    "igamma": ((0.2, 6), (0.1, 8)),
    "igammac": ((0.2, 6), (0.1, 8)),
    "igamma_grad_a": ((0.2, 6), (0.1, 8)),
    "random_gamma_grad": ((0.2, 6), (0.1, 8)),
    "zeta": ((1.2, 6), (0.2, 6)),
    "polygamma": ((0, 5), (0.2, 6)),
    "betainc": ((0.3, 5), (0.3, 5), (0, 1)),
}


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _unary(inputs)
    yield from _binary(inputs)
    yield from _special(inputs)
    yield from _powers(inputs)
    yield from _conversions(inputs)
    yield from _choices(inputs)


def _scalar(inputs: Inputs, kind: str) -> Any:
    """A Python number that a function of ``kind`` takes."""
    return {"b": True, "i": 3, "u": 3, "c": 1.5 - 0.5j}.get(dtype(kind).kind, inputs.choice((0.5, 0.25, 1.75)))


def _unary(inputs: Inputs) -> Iterator[Case]:
    for name, kinds in UNARY.items():
        for kind in kinds:
            shape = inputs.choice(((), (3,), (2, 3), (0, 2), (2, 1, 3), (1,)))
            yield Case(
                f"lax.{name}", (inputs.array(shape, kind, odd=inputs.choice((0, 0.3)) if kind in FLOATS else 0.1),)
            )
        for kind in ("float32", "complex64", "bfloat16"):
            if kind in kinds:
                yield Case(f"lax.{name}", (inputs.array((5,), kind, odd=0.5),))
        for kind in ("float32", "complex64"):
            if kind in kinds:
                yield Case(f"lax.{name}", (inputs.array((4,), kind, low=-60, high=60),))
                yield Case(f"lax.{name}", (inputs.array((4,), kind, low=-0.95, high=0.95),))
        scalar = _scalar(
            inputs, kinds[0] if kinds[0] in ("bool", "int8", "complex64") and name != "conj" else "float32"
        )
        yield Case(f"lax.{name}", (Weak(scalar),))
        yield Case(f"lax.{name}", (scalar,))
        yield Case(f"lax.{name}", (inputs.array((2,), tuple(set(NUMBERS) - set(kinds)) or "bool"),))
    for name in WITH_ACCURACY:
        yield Case(f"lax.{name}", (inputs.array((3,), "float32", low=0.1, high=3),), {"accuracy": None})
    for kind in FLOATS:
        for method in (0, 1):
            yield Case("lax.round", (np.asarray([-2.5, -0.5, 0.5, 1.5, 2.4], dtype(kind)), method))
    yield Case("lax.round", (inputs.array((4,), "float32"),), make=_rounding("TO_NEAREST_EVEN"))
    yield Case("lax.round", (inputs.array((4,), "float32"),), make=_rounding("AWAY_FROM_ZERO"))


def _rounding(method: str) -> Callable[[ModuleType], Any]:
    return lambda lib: lambda x: lib.lax.round(x, getattr(lib.lax.RoundingMethod, method))


def _binary(inputs: Inputs) -> Iterator[Case]:
    for name, kinds in BINARY.items():
        for kind in kinds:
            shape = inputs.shape()
            x, y = inputs.array(shape, kind, odd=0.15), inputs.array(shape, kind, odd=0.15)
            yield Case(f"lax.{name}", (x, y))
            small = dtype(kind).kind not in "iu" or name not in ("shift_left", "mulhi")
            scalar = _scalar(inputs, kind) if small else 2
            if inputs.chance(0.5):
                yield Case(f"lax.{name}", (x, Weak(scalar)) if inputs.chance(0.5) else (Weak(scalar), x))
        for kind in ("float32", "int32", "complex64", "bool"):
            if kind not in kinds:
                continue
            x, y = inputs.array((2, 3), kind), inputs.array((), kind)
            yield Case(f"lax.{name}", (x, y))
            scalar = _scalar(inputs, kind)
            yield Case(f"lax.{name}", (x, scalar) if inputs.chance(0.5) else (scalar, x))
            yield Case(
                f"lax.{name}", inputs.choice(((y, x), (x, inputs.array((1, 3), kind)), (x, x[0]), (x[:0], x[:0])))
            )
            yield Case(f"lax.{name}", (Weak(_scalar(inputs, kind)), Weak(_scalar(inputs, kind))))
        first = kinds[0]
        yield Case(f"lax.{name}", (inputs.array((3,), first), inputs.array((3,), kinds[-1])))
        yield Case(f"lax.{name}", (inputs.array((3,), "float32"), Weak(2)))
        yield Case(f"lax.{name}", (Weak(0.5), inputs.array((3,), "int32")))
        yield Case(f"lax.{name}", (Weak(0.5), Weak(2)))
        yield Case(f"lax.{name}", (inputs.array((3,), "bool"), Weak(2)))
    for kind in SIGNED:
        x = inputs.array((5,), kind, odd=0.4)
        for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
            yield Case(f"lax.{name}", (x, inputs.array((5,), kind, low=0, high=40)))
        for name in ("div", "rem"):
            yield Case(f"lax.{name}", (x, np.asarray([0, -1, 2, -3, 1], kind)))
    x = inputs.array((3,), "int8")
    for out in ("int32", "float32", "int8"):
        yield Case("lax.mul", (x, x), {"out_dtype": out})


def _special(inputs: Inputs) -> Iterator[Case]:
    for name, bounds in SPECIAL.items():
        # Series and continued fractions of some hundred terms, and derivatives through them.
        within = {"tolerance": 30.0}
        for kind in FLOATS:
            shape = inputs.shape()
            for odd in (0.0, 0.3):
                args = [inputs.array(shape, kind, low=l, high=h, odd=odd) for l, h in bounds]
                if name == "polygamma":
                    args[0] = np.floor(np.abs(args[0].astype("float32"))).astype(args[0].dtype)
                yield Case(f"lax.{name}", tuple(args), **within)
        arrays = [inputs.array((3,), "float32", low=l, high=h) for l, h in bounds]
        if name == "polygamma":
            arrays[0] = np.floor(arrays[0])
        for i in range(len(bounds)):
            yield Case(f"lax.{name}", tuple(Weak(1.0) if j == i else a for j, a in enumerate(arrays)), **within)
            yield Case(f"lax.{name}", tuple(np.float32(1) if j == i else a for j, a in enumerate(arrays)), **within)
        yield Case(f"lax.{name}", tuple(Weak(0.5) for _ in bounds), **within)
        yield Case(f"lax.{name}", tuple(inputs.array((3,), "int32") for _ in bounds))
        yield Case(f"lax.{name}", tuple(np.zeros((0, 2), "float32") for _ in bounds))
        for first in (0.0, np.inf, np.nan, -1.0, 1.0):
            for second in (0.0, np.inf, np.nan, -1.0, 2.0):
                rest = [np.asarray(0.5, "float32")] * (len(bounds) - 2)
                args = (np.asarray(first, "float32"), np.asarray(second, "float32"), *rest)
                yield Case(f"lax.{name}", args, modes=("call", "jit"), **within)
        wide = [inputs.array((6,), "float32", low=l, high=h * (10 if h > 1 else 1)) for l, h in bounds]
        if name != "polygamma":
            yield Case(f"lax.{name}", tuple(wide), **within)


def _powers(inputs: Inputs) -> Iterator[Case]:
    for kind in (*INTS, *INEXACT, "bool"):
        for power in (0, 1, 2, 3, 7, -1, -2):
            x = inputs.array(dtypes=kind, odd=0.1)
            yield Case("lax.integer_pow", (x, power), modes=("call", "jit", "jvp"))
        yield Case("lax.integer_pow", (inputs.array((2, 2), kind), 2))
    yield Case("lax.integer_pow", (Weak(2.0), 3))
    yield Case("lax.integer_pow", (Weak(3), 2))
    for kind in INEXACT:
        shape = inputs.shape()
        for whole in ("int32", "int8", "uint8"):
            yield Case("lax.pow", (inputs.array(shape, kind), inputs.array(shape, whole, low=-2, high=4)))
        yield Case("lax.pow", (inputs.array(shape, kind), Weak(inputs.choice((2, -1, 0, 0.5)))))
        yield Case("lax.pow", (inputs.array(shape, kind, low=0.1, high=3), inputs.array(shape, kind)))
    yield Case("lax.pow", (inputs.array((3,), "int32"), inputs.array((3,), "int32", low=0, high=3)))
    yield Case(
        "lax.pow", (np.asarray([0, -0.0, 1, np.inf, -np.inf, np.nan], "float32"), np.asarray([0.0] * 6, "float32"))
    )


def _conversions(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        for out in ("bool", "int8", "uint8", "int32", "uint32", "float32", "float16", "bfloat16", "complex64"):
            modes = ("call", "jit", "vjp") if dtype(kind).kind not in "iub" else ("call",)
            yield Case("lax.convert_element_type", (inputs.array((4,), kind, odd=0.3), out), modes=modes)
        for bits in ("int8", "uint8", "int16", "uint32", "float32", "bfloat16", "int32", "bool", "complex64"):
            shape = inputs.choice(((3, 4), (4,), (2, 2), ()))
            yield Case("lax.bitcast_convert_type", (inputs.array(shape, kind), bits), modes=("call", "jit", "vmap"))
    for value in (0.5, 2, True, 1j):
        for out in ("int32", "float32", "bool", int, float, "bfloat16"):
            yield Case("lax.convert_element_type", (Weak(value), out), modes=("call", "jit"))
        yield Case("lax.convert_element_type", (value, float))
        yield Case("lax.bitcast_convert_type", (Weak(value), "int32"), modes=("call", "jit"))
    for kind in ("float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        yield Case("lax.convert_element_type", (inputs.array((6,), "float32", low=-9, high=9), kind))
        yield Case("lax.convert_element_type", (inputs.array((6,), "int32", low=-9, high=9), kind))
    for kind in FLOATS:
        for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (8, 23), (5, 2), (8, 0), (2, 1)):
            x = inputs.array((6,), kind, odd=0.3)
            yield Case("lax.reduce_precision", (x, exponent, mantissa))
    yield Case("lax.reduce_precision", (Weak(0.1), 5, 10))
    yield Case("lax.reduce_precision", (inputs.array((2,), "int32"), 5, 10))
    yield Case("lax.reduce_precision", (inputs.array((2,), "float32"),), {"exponent_bits": 5, "mantissa_bits": 4})


def _choices(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        shape = inputs.shape()
        a, b, c = (inputs.array(shape, kind, odd=0.1) for _ in range(3))
        yield Case("lax.select", (inputs.array(shape, "bool"), a, b))
        yield Case("lax.select", (inputs.array((), "bool"), a, b))
        yield Case("lax.select_n", (inputs.array(shape, "bool"), a, b))
        yield Case("lax.select_n", (inputs.array(shape, "int32", low=0, high=3), a, b, c))
        yield Case("lax.select_n", (inputs.array((), "int32", low=0, high=3), a, b, c))
        yield Case("lax.clamp", (a, b, c))
        low, high = inputs.array((), kind), inputs.array((), kind)
        yield Case("lax.clamp", (low, b, high))
        yield Case("lax.clamp", (_scalar(inputs, kind), b, high))
        yield Case("lax.clamp", (Weak(_scalar(inputs, kind)), b, _scalar(inputs, kind)))
        yield Case("lax.clamp", (low, b, c))
    x = inputs.array((3,), "float32")
    yield Case("lax.select_n", (inputs.array((3,), "bool"), x))
    yield Case("lax.select_n", (inputs.array((3,), "int32", low=0, high=1), x))
    yield Case("lax.select_n", (np.asarray([-1, 5, 1], "int32"), x, x + 1))
    yield Case("lax.select_n", (inputs.array((3,), "bool"), x, x, x))
    yield Case("lax.select_n", (inputs.array((3,), "uint8", low=0, high=2), x, x))
    yield Case("lax.select", (inputs.array((3,), "bool"), x, Weak(1.0)))
    yield Case("lax.select", (inputs.array((3,), "bool"), Weak(1.0), Weak(2.0)))
    yield Case("lax.select", (inputs.array((), "bool"), Weak(1.0), Weak(2.0)))
    yield Case("lax.select", (inputs.array((1,), "bool"), x, x))
    yield Case("lax.clamp", (Weak(0), x, Weak(1)))
    yield Case("lax.clamp", (Weak(0.0), inputs.array((3,), "int32"), Weak(1.0)))
    yield Case("lax.clamp", (np.asarray([0.0], "float32"), x, Weak(1.0)))
