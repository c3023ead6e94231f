"""``numpy``: functions and operators of each element, of operands that broadcast; methods of ufuncs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import FLOATS, INTS, NUMBERS, REAL, Inputs

SMALL = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")
UNARY = (
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "square", "abs", "fabs", "sign"),
    *("signbit", "floor", "ceil", "trunc", "rint", "negative", "positive", "reciprocal", "isnan", "isinf", "isfinite"),
    *("isneginf", "isposinf", "iscomplex", "isreal", "conj", "real", "imag", "angle", "sinc", "i0", "deg2rad"),
    *("rad2deg", "logical_not", "invert", "bitwise_count", "spacing", "modf", "frexp", "nan_to_num", "round", "unwrap"),
    *("iscomplexobj", "isrealobj", "isscalar"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "fmod", "divmod", "power", "float_power"),
    *("maximum", "minimum", "fmax", "fmin", "arctan2", "hypot", "logaddexp", "logaddexp2", "copysign", "nextafter"),
    *("heaviside", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and"),
    *("logical_or", "logical_xor", "isclose", "allclose", "array_equal", "array_equiv"),
)
OF_INTS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "gcd", "lcm")
OTHER_NAMES = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "absolute", "conjugate", "degrees", "radians"),
    *("bitwise_not", "bitwise_invert", "around"),
)
OTHER_NAMES_OF_TWO = ("true_divide", "remainder", "pow", "atan2", "bitwise_left_shift", "bitwise_right_shift")
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge")
OPERATORS_OF_INTS = ("and_", "or_", "xor", "lshift", "rshift")
UFUNCS = ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "bitwise_xor", "subtract", "power")
SCALARS = (2, 0.5, -1, 1j, True, 0, -2.5)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _unary(inputs)
    yield from _binary(inputs)
    yield from _clipped(inputs)
    yield from _chosen(inputs)
    yield from _operators(inputs)
    yield from _ufuncs(inputs)


def _unary(inputs: Inputs) -> Iterator[Case]:
    for name in UNARY:
        for dtype in ("bool", *FLOATS, "complex64", *inputs.random.permutation(INTS)[:2]):
            yield Case(f"numpy.{name}", (inputs.array(dtypes=str(dtype), odd=inputs.choice((0, 0.3))),))
        yield Case(f"numpy.{name}", (inputs.array((2,), inputs.choice(SMALL)),), modes=("call", "jit"))
        yield Case(f"numpy.{name}", (Weak(inputs.choice(SCALARS)),))
        yield Case(f"numpy.{name}", (inputs.choice(SCALARS),))
    for name in OTHER_NAMES:
        yield Case(f"numpy.{name}", (inputs.array(),))
    for name in ("round", "around"):
        for dtype in ("float32", "float16", "bfloat16", "int32", "complex64"):
            yield Case(f"numpy.{name}", (inputs.array(dtypes=dtype), inputs.choice((-1, 1, 2, 0))))
    for dtype in ("float32", "bfloat16", "complex64", "int32"):
        x = inputs.array((2, 3), dtype, odd=0.6)
        yield Case("numpy.nan_to_num", (x,), {"nan": 1.5, "posinf": 7, "neginf": inputs.choice((-2.0, None))})
        yield Case("numpy.angle", (x,), {"deg": True})
        yield Case("numpy.unwrap", (inputs.array((2, 4), dtype, low=-9, high=9),), {"axis": inputs.axis(2)})
    for dtype in ("float32", "int32", "float16"):
        yield Case("numpy.unwrap", (inputs.array((3, 4), dtype), 1.5, 0), {"period": inputs.choice((4, 3, 2.5))})


def _binary(inputs: Inputs) -> Iterator[Case]:
    for name in BINARY:
        few = name in ("allclose", "array_equal", "array_equiv")
        for dtype in inputs.random.permutation(NUMBERS)[: 2 if few else 5]:
            first, second = inputs.broadcastable(2)
            yield Case(f"numpy.{name}", (inputs.array(first, str(dtype), odd=0.1), inputs.array(second, odd=0.1)))
        for dtype in inputs.random.permutation(NUMBERS)[:3]:
            scalar = Weak(inputs.choice(SCALARS)) if inputs.chance(0.5) else inputs.choice(SCALARS)
            x = inputs.array(dtypes=str(dtype))
            yield Case(f"numpy.{name}", (x, scalar) if inputs.chance(0.6) else (scalar, x))
        yield Case(f"numpy.{name}", (Weak(inputs.choice(SCALARS)), Weak(inputs.choice(SCALARS))))
        small = inputs.choice(SMALL)
        yield Case(f"numpy.{name}", (inputs.array((3,), small), inputs.array((3,), small)), modes=("call", "jit"))
        shape = inputs.shape()
        yield Case(f"numpy.{name}", (inputs.array(shape, FLOATS, odd=0.4), inputs.array(shape, "float32", odd=0.4)))
    for name in OF_INTS:
        for dtype in inputs.random.permutation(("bool", *INTS))[:4].tolist():
            first, second = inputs.broadcastable(2)
            low = 0 if "shift" in name else None
            yield Case(f"numpy.{name}", (inputs.array(first, dtype), inputs.array(second, ("bool", *INTS), low=low)))
            yield Case(f"numpy.{name}", (inputs.array(dtypes=dtype, odd=0.2), inputs.choice((2, -1, 1, True, 33, 7))))
        yield Case(f"numpy.{name}", (inputs.array((3,), "float32"), 1))
        yield Case(f"numpy.{name}", (inputs.array((3,), "int4"), inputs.array((3,), "int4", low=0)))
        yield Case(f"numpy.{name}", (Weak(7), inputs.array((3,), INTS)))
    for name in OTHER_NAMES_OF_TWO:
        kinds = INTS if "shift" in name else NUMBERS
        yield Case(f"numpy.{name}", (inputs.array((2, 3), kinds), inputs.array((3,), kinds, low=0)))
    for dtype in (*INTS, "float32", "bool", "bfloat16"):
        x = inputs.array(dtypes=dtype)
        yield Case("numpy.ldexp", (x, inputs.array(x.shape, inputs.choice(("int32", "int8", "uint16")))))
        yield Case("numpy.power", (x, inputs.choice((2, 3, -1, 0, 0.5, -2))))
        yield Case("numpy.ldexp", (x, inputs.choice((3, -2, 200))))
    for dtype in ("float32", "float16", "int32", "complex64", "bool"):
        x = inputs.array((4,), dtype, odd=0.3)
        same = x.copy()
        for name in ("isclose", "allclose"):
            yield Case(f"numpy.{name}", (x, same), {"rtol": 0.5, "atol": 0.1, "equal_nan": inputs.chance(0.5)})
        yield Case("numpy.array_equal", (x, same), {"equal_nan": inputs.chance(0.5)})
        yield Case("numpy.array_equal", (x, same[:2]))


def _clipped(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(dtypes=dtype, odd=0.1)
        yield Case("numpy.clip", (x, inputs.choice((-1, 0.5, None, 1)), inputs.choice((2, 3.5, None))))
        first, second, third = inputs.broadcastable(3)
        yield Case("numpy.clip", (inputs.array(first, dtype), inputs.array(second, REAL), inputs.array(third, REAL)))
        yield Case("numpy.clip", (x,), {"max": inputs.choice((2, 1000)), "min": inputs.choice((None, -1000))})
    yield Case("numpy.clip", (np.asarray([3, 1, 2], "int32"), 5, 2))
    yield Case("numpy.clip", (np.asarray([1.0, 2.0, 3.0], "float32"), 1.0, 3.0))
    yield Case("numpy.clip", (Weak(3.5), 0, 1))
    yield Case("numpy.clip", (5, 0, Weak(1)))


def _chosen(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        first, second, third = inputs.broadcastable(3)
        condition = inputs.array(first, ("bool", "bool", "int32", "float32"))
        yield Case("numpy.where", (condition, inputs.array(second, dtype), inputs.array(third)))
        yield Case("numpy.where", (condition, inputs.array(first, dtype), inputs.choice(SCALARS)))
        yield Case("numpy.where", (condition, inputs.choice(SCALARS), Weak(inputs.choice(SCALARS))))
        options = [inputs.array((2, 3), dtype), inputs.array((3,), NUMBERS), inputs.array((1,), NUMBERS)]
        conditions = [inputs.array((2, 3), "bool"), inputs.array((3,), "bool"), inputs.array((), "bool")]
        yield Case("numpy.select", (conditions, options), {"default": inputs.choice((0, 7, 0.5))})
        yield Case("numpy.select", (conditions[:1], options[:1]))
        x = inputs.array((4,), dtype)
        yield Case(f"numpy.piecewise of {dtype}", (x,), make=_piecewise(inputs.choice((0, 1)), inputs.choice((2, 0.5))))
        index = inputs.array(inputs.choice(((2, 3), (3,), ())), "int32", low=-4, high=5)
        mode = inputs.choice(("clip", "wrap"))
        yield Case("numpy.choose", (index, options), {"mode": mode})
    for shape in ((3,), (2, 3), (), (0,)):
        x = inputs.array(shape, ("bool", "int32", "float32"))
        if shape:
            yield Case("numpy.where", (x,), modes=("call",))
        yield Case("numpy.where", (x,), {"size": 3, "fill_value": inputs.choice((None, 7))})
    yield Case("numpy.choose", (np.asarray([0, 5], "int32"), [1, 2]), modes=("call",))
    yield Case("numpy.select", ([], []))


def _piecewise(low: float, value: float) -> Callable[[ModuleType], Callable[..., Any]]:
    def make(lib: ModuleType) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            return lib.numpy.piecewise(x, [x.real < -1, x.real > low], [lambda v: -v, value, lambda v: v * v])

        return f

    return make


def _operators(inputs: Inputs) -> Iterator[Case]:
    for name in OPERATORS + OPERATORS_OF_INTS:
        kinds = ("bool", *INTS) if name in OPERATORS_OF_INTS else NUMBERS
        low = 0 if "shift" in name else None
        f = getattr(operator, name)

        def both(lib: ModuleType, f: Callable[..., Any] = f) -> Callable[..., Any]:
            return f

        def reflected(lib: ModuleType, f: Callable[..., Any] = f, y: Any = None) -> Callable[..., Any]:
            return lambda v: f(y, v)

        for dtype in inputs.random.permutation(kinds)[:2]:
            x, y = (inputs.array(shape, kinds, low=low) for shape in inputs.broadcastable(2))
            yield Case(f"x {name} y", (x, y), make=both)
            yield Case(f"x {name} y", (inputs.array(dtypes=str(dtype)), inputs.choice((2, 3, 1))), make=both)
            scalar = inputs.choice((2, True, 3, np.int8(2), np.uint32(3), *(() if low == 0 else SCALARS)))
            made = lambda lib, y=scalar, r=reflected: r(lib, y=y)
            yield Case(f"{scalar!r} {name} x", (inputs.array(dtypes=str(dtype), low=low),), make=made)
        for array in (np.asarray([2, 1, 3]), np.asarray([[1.5], [2.0]], np.float32), np.float64(1.5)):
            made = lambda lib, y=array, r=reflected: r(lib, y=y)
            yield Case(f"NumPy's {array.dtype}{array.shape} {name} x", (inputs.array((3,), kinds, low=low),), make=made)
    for name in ("neg", "pos", "abs", "invert"):
        for dtype in inputs.random.permutation(NUMBERS)[:6]:
            x = inputs.array(dtypes=str(dtype))
            yield Case(f"{name} x", (x,), make=lambda lib, f=getattr(operator, name): f)
    for dtype in REAL:
        x, y = (inputs.array(shape, dtype) for shape in inputs.broadcastable(2))
        yield Case("divmod(x, y)", (x, y), make=lambda lib: divmod)
        yield Case("round(x, 1)", (x,), make=lambda lib: lambda v: round(v, 1))
        yield Case("divmod(7, x)", (y,), make=lambda lib: lambda v: divmod(7, v))


def _ufuncs(inputs: Inputs) -> Iterator[Case]:
    for name in UFUNCS:
        kind = {"logical_and": "bool", "logical_or": "bool", "bitwise_xor": INTS}.get(name, ("float32", "int32"))
        x = inputs.array((3, 4), kind)
        y = inputs.array((2,), kind)
        some = np.asarray([0, 2, 1, 3], "int32")
        if name == "power":
            x, y = abs(x).astype("float32"), y.astype("float32")
        reduces = name not in ("subtract", "power")
        calls: list[tuple[str, Callable[[Any, Any], Any]]] = [
            ("accumulate", lambda u, x, y: u.accumulate(x, axis=-1)),
            ("outer", lambda u, x, y: u.outer(x, y)),
            ("at", lambda u, x, y: u.at(x, np.asarray([1, 0]), y[:, None], inplace=False)),
        ]
        if reduces:
            calls += [
                ("reduce", lambda u, x, y: u.reduce(x, axis=None)),
                ("reduce along 1", lambda u, x, y: u.reduce(x, axis=-1, keepdims=True)),
            ]
        if name != "subtract":
            calls.append(("reduceat", lambda u, x, y, some=some: u.reduceat(x, some, axis=1)))
        for text, call in calls:
            made = lambda lib, c=call, n=name: lambda v, w: c(getattr(lib.numpy, n), v, w)
            yield Case(f"numpy.{name}.{text}", (x, y), make=made)
        for attribute in ("nin", "nout", "nargs", "identity", "__name__"):
            made = lambda lib, n=name, a=attribute: lambda: getattr(getattr(lib.numpy, n), a)
            yield Case(f"numpy.{name}.{attribute}", make=made, modes=("call",))
    where = np.asarray([[True, False, True, True]])
    for kwargs in ({"where": where}, {"where": where, "initial": 2}, {"dtype": "float32"}, {"initial": 1}):
        made = lambda lib, k=kwargs: lambda x: lib.numpy.add.reduce(x, axis=1, **k)
        yield Case(f"numpy.add.reduce of {sorted(kwargs)}", (inputs.array((3, 4), "int32"),), make=made)
