"""``lax``: dtypes of values, the FFT, and primitives that are bound by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import NUMBERS, Inputs

Made = Callable[[ModuleType], Any]
ENUMS = (
    "AccuracyMode",
    "DotAlgorithmPreset",
    "FftType",
    "GatherScatterMode",
    "Precision",
    "RandomAlgorithm",
    "RoundingMethod",
)
BOUND: dict[str, tuple[Any, ...]] = {
    "float32": (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "cos"),
        *("cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "is_finite", "lgamma", "log"),
        *("log1p", "logistic", "neg", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "copy"),
    ),
    "int32": ("clz", "not", "population_count"),
    "complex64": ("conj", "imag", "real"),
}
# Primitives that need no parameters with what they take; those of `BOUND` take one operand, these two.
PAIRS: dict[str, tuple[str, ...]] = {
    "float32": (
        *("add", "atan2", "complex", "div", "eq", "ge", "gt", "igamma", "igammac", "le", "lt", "max", "min", "mul"),
        *("ne", "nextafter", "polygamma", "pow", "rem", "sub", "zeta", "igamma_grad_a", "eq_to", "le_to", "lt_to"),
    ),
    "int32": ("and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical", "mulhi"),
}
ACCURATE = ("cbrt", "cos", "exp", "exp2", "expm1", "log", "log1p", "logistic", "rsqrt", "sin", "sqrt", "tan", "tanh")
# Name -> shapes, dtype and parameters.
WITH: tuple[tuple[str, tuple[tuple[int, ...], ...], str, dict[str, Any]], ...] = (
    ("broadcast_in_dim", ((3,),), "float32", {"shape": (2, 3), "broadcast_dimensions": (1,), "sharding": None}),
    ("reshape", ((2, 3),), "float32", {"new_sizes": (3, 2), "dimensions": None, "sharding": None}),
    ("transpose", ((2, 3),), "float32", {"permutation": (1, 0)}),
    ("rev", ((2, 3),), "float32", {"dimensions": (0,)}),
    ("squeeze", ((1, 3),), "float32", {"dimensions": (0,)}),
    ("slice", ((4,),), "float32", {"start_indices": (1,), "limit_indices": (3,), "strides": None}),
    ("pad", ((3,), ()), "float32", {"padding_config": ((1, 0, 1),)}),
    ("concatenate", ((2,), (3,)), "float32", {"dimension": 0}),
    ("reduce_sum", ((2, 3),), "float32", {"axes": (0,), "out_sharding": None}),
    ("reduce_prod", ((2, 3),), "float32", {"axes": (1,), "out_sharding": None}),
    ("reduce_max", ((2, 3),), "float32", {"axes": (0,), "out_sharding": None}),
    ("reduce_min", ((2, 3),), "float32", {"axes": (0, 1), "out_sharding": None}),
    ("reduce_and", ((2, 3),), "int32", {"axes": (0,), "out_sharding": None}),
    ("reduce_or", ((2, 3),), "int32", {"axes": (0,), "out_sharding": None}),
    ("reduce_xor", ((2, 3),), "int32", {"axes": (0,), "out_sharding": None}),
    ("argmax", ((2, 3),), "float32", {"axes": (0,), "index_dtype": np.dtype("int32")}),
    ("argmin", ((2, 3),), "float32", {"axes": (1,), "index_dtype": np.dtype("int32")}),
    ("cumsum", ((3,),), "float32", {"axis": 0, "reverse": False}),
    ("cumprod", ((3,),), "float32", {"axis": 0, "reverse": True}),
    ("cummax", ((3,),), "float32", {"axis": 0, "reverse": False}),
    ("cummin", ((3,),), "float32", {"axis": 0, "reverse": False}),
    ("cumlogsumexp", ((3,),), "float32", {"axis": 0, "reverse": False}),
    ("sort", ((4,),), "float32", {"dimension": 0, "is_stable": True, "num_keys": 1}),
    ("top_k", ((4,),), "float32", {"k": 2, "axis": 0}),
    ("integer_pow", ((3,),), "float32", {"y": 3}),
    ("reduce_precision", ((3,),), "float32", {"exponent_bits": 5, "mantissa_bits": 4}),
    ("clamp", ((), (3,), ()), "float32", {}),
    ("regularized_incomplete_beta", ((3,), (3,), (3,)), "float32", {}),
    (
        "convert_element_type",
        ((3,),),
        "float32",
        {"new_dtype": np.dtype("int32"), "weak_type": False, "sharding": None},
    ),
    ("bitcast_convert_type", ((3,),), "float32", {"new_dtype": np.dtype("int32")}),
    ("iota", (), "float32", {"dtype": np.dtype("int32"), "shape": (2, 3), "dimension": 1, "sharding": None}),
    ("split", ((5,),), "float32", {"sizes": (2, 3), "axis": 0}),
    ("tile", ((2,),), "float32", {"reps": (3,)}),
    ("optimization_barrier", ((2,), (3,)), "float32", {}),
    ("stop_gradient", ((2,),), "float32", {}),
)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _dtypes(inputs)
    yield from _transforms(inputs)
    yield from _bound(inputs)
    yield from _enums(inputs)


def _dtypes(inputs: Inputs) -> Iterator[Case]:
    for kind in NUMBERS:
        yield Case("lax.dtype", (inputs.array((2,), kind),), modes=("call",))
    for value in (
        True,
        1,
        1.5,
        1j,
        int,
        float,
        "int8",
        np.float32,
        np.float32(2),
        np.dtype("uint8"),
        bool,
        complex,
        None,
    ):
        yield Case("lax.dtype", (value,), modes=("call",))
    yield Case("lax.dtype", (Weak(2.0),), modes=("call",))


def _fft(name: str, n: int) -> Made:
    return lambda lib: lambda x: lib.lax.fft(x, getattr(lib.lax.FftType, name), (n,))


def _transforms(inputs: Inputs) -> Iterator[Case]:
    for _ in range(3):
        for kind in ("complex64", "float32", "int32"):
            x = inputs.array(inputs.choice(((4,), (2, 3), (2, 5))), kind)
            n = x.shape[-1]
            for name in ("FFT", "IFFT", "fft"):
                yield Case("lax.fft", (x, name, (n,)))
            yield Case("lax.fft", (x, "RFFT", (n,)))
            yield Case("lax.fft", (x, "IRFFT", (2 * (n - 1),)))
        y = inputs.array((3, 4), "complex64")
        yield Case("lax.fft", (y, "FFT", (3, 4)))
        yield Case("lax.fft", (y, "IFFT", (3, 4)))
        yield Case("lax.fft", (y.real.copy(), "RFFT", (3, 4)))
        yield Case("lax.fft", (y, "IRFFT", (3, 6)))
        yield Case("lax.fft", (y, "IRFFT", (3, 7)))
    yield Case("lax.fft", (y, "FFT", (3,)))
    yield Case("lax.fft", (y[:0], "FFT", (4,)))
    yield Case("lax.fft", (y[:, :0], "FFT", (0,)))
    yield Case("lax.fft", (inputs.array((4,), "bfloat16"), "RFFT", (4,)))
    yield Case("lax.fft", (Weak(1.0), "FFT", ()))
    kinds = ("FFT", "IFFT", "RFFT", "IRFFT")
    for name in kinds:
        x = inputs.array((4,), "float32" if name == "RFFT" else "complex64")
        yield Case(f"lax.fft {name}", (x,), make=_fft(name, 6 if name == "IRFFT" else 4))


def _bind(name: str, **params: Any) -> Made:
    return lambda lib: lambda *xs: getattr(lib.lax, f"{name}_p").bind(*xs, **params)


def _bound(inputs: Inputs) -> Iterator[Case]:
    for kind, names in BOUND.items():
        for name in names:
            x = inputs.array((3,), kind, low=1.1 if name == "acosh" else 0.1, high=0.9 if name != "acosh" else 3)
            params = {"accuracy": None} if name in ACCURATE else {}
            yield Case(f"lax.{name}_p", (x,), make=_bind(name, **params))
    for kind, names in PAIRS.items():
        for name in names:
            pair = tuple(inputs.array((3,), kind, low=1, high=3) for _ in range(2))
            pair = (np.floor(pair[0]), pair[1]) if name == "polygamma" else pair
            yield Case(
                f"lax.{name}_p",
                pair,
                make=_bind(name),
                tolerance=20 if name in ("igamma_grad_a", "zeta", "polygamma") else 1,
            )
    for name, shapes, kind, params in WITH:
        low, high = (0.1, 0.9) if name == "regularized_incomplete_beta" else (None, None)
        args = tuple(inputs.array(shape, kind, low=low, high=high) for shape in shapes)
        yield Case(f"lax.{name}_p", args, make=_bind(name, **params))
    x = inputs.array((3,), "float32")
    yield Case("lax.select_n_p", (inputs.array((3,), "bool"), x, x + 1), make=_bind("select_n"))
    yield Case(
        "lax.round_p",
        (x,),
        make=lambda lib: lambda x: lib.lax.round_p.bind(x, rounding_method=lib.lax.RoundingMethod.TO_NEAREST_EVEN),
    )
    yield Case(
        "lax.dynamic_slice_p",
        (inputs.array((4,), "float32"), np.int32(1)),
        make=_bind("dynamic_slice", slice_sizes=(2,)),
    )
    yield Case(
        "lax.dynamic_update_slice_p",
        (inputs.array((4,), "float32"), x, np.int32(1)),
        make=_bind("dynamic_update_slice"),
    )
    dot = {
        "dimension_numbers": (((0,), (0,)), ((), ())),
        "precision": None,
        "preferred_element_type": np.dtype("float32"),
        "out_sharding": None,
    }
    yield Case("lax.dot_general_p", (x, x), make=_bind("dot_general", **dot))
    named = lambda lib: (
        lambda x: [
            lib.lax.sin_p.name,
            str(lib.lax.add_p),
            lib.lax.sort_p.multiple_results,
            lib.lax.mul_p.multiple_results,
        ]
    )
    yield Case("lax.sin_p name", (x,), make=named, modes=("call",))


def _enums(inputs: Inputs) -> Iterator[Case]:
    for name in ENUMS:
        members = lambda lib, name=name: lambda: sorted(m.name for m in getattr(lib.lax, name))
        yield Case(f"lax.{name}", (), make=members, modes=("call",))
    records: dict[str, tuple[Any, ...]] = {
        "ConvDimensionNumbers": ((0, 1), (0, 1), (0, 1)),
        "GatherDimensionNumbers": ((1,), (0,), (0,)),
        "ScatterDimensionNumbers": ((1,), (0,), (0,)),
        "RaggedDotDimensionNumbers": ((((1,), (1,)), ((), ())), (0,), (0,)),
        "Tolerance": (0.1, 0.2, 3),
        "DotAlgorithm": (np.dtype("float32"), np.dtype("float32"), np.dtype("float32"), 1, 1, 1, False),
    }
    for name, fields in records.items():
        made = lambda lib, name=name, fields=fields: lambda: _held(getattr(lib.lax, name)(*fields))
        yield Case(f"lax.{name}", (), make=made, modes=("call",))


def _held(record: Any) -> list[str]:
    names = getattr(record, "_fields", None) or getattr(type(record), "__dataclass_fields__", None) or vars(record)
    return sorted(f"{name}={getattr(record, name)}" for name in names)
