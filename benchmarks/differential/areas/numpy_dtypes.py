"""``numpy``: what dtypes are and become, scalar types, classes of dtypes and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import COMPLEX, FLOATS, INTS, NUMBERS, Inputs, dtype

DTYPES = (*NUMBERS, "int4", "uint4", "float8_e4m3fn", "int64", "float64", "complex128", "uint64")
SMALL_FLOATS = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu")
MORE_FLOATS = ("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "bfloat16")
SCALAR_TYPES = (
    *("bool_", "int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("bfloat16", "float32", "float64", "complex64", "complex128", "int_", "uint", "float_", "single", "double"),
    *("csingle", "cdouble", "complex_", "bool"),
)
CLASSES = (
    *("number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating", "generic"),
    *("flexible", "character", "object_"),
)
CONSTANTS = ("pi", "e", "euler_gamma", "inf", "nan", "newaxis")

Maker = Callable[[ModuleType], Callable[..., Any]]


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _dtypes(inputs)
    yield from _names(inputs)


def _made(name: str, make: Maker, modes: tuple[str, ...] = ("call", "jit")) -> Case:
    return Case(name, make=make, modes=modes)


def _dtypes(inputs: Inputs) -> Iterator[Case]:
    for kind in DTYPES:
        for other in inputs.random.permutation(DTYPES)[:6]:
            for name in ("promote_types", "can_cast", "issubdtype"):
                yield Case(f"numpy.{name}", (kind, str(other)), modes=("call",))
            if not {kind, str(other)} & {"int64", "uint64", "float64", "complex128"}:  # JAX has them not, unless asked
                yield Case("numpy.result_type", (kind, str(other)), modes=("call",))
        for other in inputs.random.permutation(CLASSES)[:5]:
            made = lambda lib, k=kind, c=str(other): lambda: lib.numpy.issubdtype(k, getattr(lib.numpy, c))
            yield _made(f"numpy.issubdtype({kind}, {other})", made, modes=("call",))
        group = inputs.choice(("bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric"))
        yield Case("numpy.isdtype", (dtype(kind), group), modes=("call",))
        yield Case("numpy.isdtype", (dtype(kind), (group, "complex floating", "float32")), modes=("call",))
        casting = inputs.choice(("safe", "same_kind", "no", "equiv", "unsafe"))
        yield Case("numpy.can_cast", (kind, inputs.choice(DTYPES)), {"casting": casting}, modes=("call",))
    for kind in NUMBERS:
        x = inputs.array((2,), kind)
        for scalar in (2, 2.5, 1j, True, Weak(3), Weak(1.5), inputs.array((), NUMBERS), "bfloat16", int, float):
            yield Case("numpy.result_type", (x, scalar), modes=("call",))
    for args in ((2, 2.5), (2,), (True, 1), (1j, "float16"), (2, "int8", 1.5), ("int8", "uint8", "float16"), ()):
        yield Case("numpy.result_type", args, modes=("call",))
    fields = ("bits", "eps", "epsneg", "iexp", "machep", "max", "maxexp", "min", "minexp", "negep", "nexp", "nmant")
    for kind in (*FLOATS, "float64", *COMPLEX, *MORE_FLOATS, *SMALL_FLOATS, "int32"):
        for field in (*fields, "precision", "resolution", "tiny", "smallest_normal", "smallest_subnormal", "dtype"):
            made = lambda lib, k=kind, f=field: lambda: _number(getattr(lib.numpy.finfo(dtype(k)), f))
            yield _made(f"numpy.finfo({kind}).{field}", made, modes=("call",))
    for kind in (*INTS, "int64", "uint64", "int4", "uint4", "int2", "uint2", "float32", "int1", "bool"):
        for field in ("bits", "max", "min", "dtype", "kind"):
            made = lambda lib, k=kind, f=field: lambda: _number(getattr(lib.numpy.iinfo(dtype(k)), f))
            yield _made(f"numpy.iinfo({kind}).{field}", made, modes=("call",))


def _number(x: Any) -> Any:
    return float(x) if isinstance(x, np.generic) or hasattr(x, "astype") else x


def _names(inputs: Inputs) -> Iterator[Case]:
    for name in SCALAR_TYPES:
        made = lambda lib, n=name: lambda: np.dtype(getattr(lib.numpy, n))
        yield _made(f"dtype of numpy.{name}", made, modes=("call",))
        if name in ("int64", "uint64", "float64", "complex128", "double", "cdouble"):
            continue  # JAX makes them of half the width
        for value in (2, 1.5, True, [1, 0], Weak(1), inputs.array((2,), ("int32", "float32", "bool"))):
            yield Case(f"numpy.{name}", (value,))
        made = lambda lib, n=name: lambda: lib.numpy.zeros(2, getattr(lib.numpy, n))
        yield _made(f"zeros of numpy.{name}", made)
    for name in (*MORE_FLOATS, *SMALL_FLOATS, "int1", "int2", "uint1", "uint2"):
        made = lambda lib, n=name: lambda: lib.numpy.dtype(getattr(lib.numpy, n)).name
        yield _made(f"name of numpy.{name}", made, modes=("call",))
    for name in CLASSES:
        made = lambda lib, n=name: lambda: getattr(lib.numpy, n) is getattr(np, n)
        yield _made(f"numpy.{name}", made, modes=("call",))
    for name in CONSTANTS:
        yield _made(f"numpy.{name}", lambda lib, n=name: lambda: getattr(lib.numpy, n), modes=("call",))
    for key in ("1:2", "x"):
        yield _made(f"numpy.s_ {key}", lambda lib: lambda: str(lib.numpy.s_[1:2, ..., None]), modes=("call",))
