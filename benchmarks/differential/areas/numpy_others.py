"""``numpy``: what is left: grids by index, functions as ufuncs, bits, bytes, counts and text."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import INTS, NUMBERS, Inputs

UFUNCS = ("add", "multiply", "maximum", "minimum", "bitwise_and", "bitwise_or", "logical_and", "logical_or", "subtract")
GRIDS = (slice(0, 3), slice(1, 4, 0.5), slice(0, 1, 5j), slice(3), slice(4, 0, -1), slice(-1, 1, 3j), slice(0, 0))
SINGLE = ("call", "jit")
FLOATS_OF_A_BYTE = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random)


def _cases(inputs: Inputs) -> Iterator[Case]:
    yield from _grids(inputs)
    yield from _counts(inputs)
    yield from _bits(inputs)
    yield from _functions(inputs)
    yield from _ufuncs(inputs)
    yield from _texts(inputs)


def _taken(name: str, index: Any) -> Any:
    return lambda lib: lambda *arrays: getattr(lib.numpy, name)[arrays or index]


def _grids(inputs: Inputs) -> Iterator[Case]:
    for name in ("mgrid", "ogrid"):
        for index in (*GRIDS, (GRIDS[0], GRIDS[1]), (GRIDS[2], GRIDS[3]), (GRIDS[0],), (GRIDS[0], GRIDS[4], GRIDS[2])):
            yield Case(f"numpy.{name}[{index}]", (), make=_taken(name, index), modes=SINGLE)
    for name in ("r_", "c_"):
        for index in (*GRIDS, (1, 2, 3), (GRIDS[0], 5, GRIDS[2]), ("-1", [1, 2]), ("0,2", [1, 2], [3, 4]), 2.5):
            yield Case(f"numpy.{name}[{index}]", (), make=_taken(name, index), modes=SINGLE)
        for dtype in NUMBERS:
            shape = inputs.choice(((3,), (2, 3), (0,)))
            arrays = (inputs.array(shape, dtype), inputs.array(shape))
            yield Case(f"numpy.{name}", arrays, make=_taken(name, None))
        yield Case(f"numpy.{name}", (inputs.array((2,), "int8"), Weak(2.0)), make=_taken(name, None))
        for text in ("r", "c", "1,2,0", "0,3,-1", "x"):
            index = (text, [1, 2, 3], [4, 5, 6])
            yield Case(f"numpy.{name}[{index}]", (), make=_taken(name, index), modes=SINGLE)
    x = inputs.array((4, 3), "float32")
    yield Case("numpy.s_", (x,), make=lambda lib: lambda x: x[lib.numpy.s_[1:3, ::-1]])
    yield Case("numpy.index_exp", (x,), make=lambda lib: lambda x: x[lib.numpy.index_exp[..., 0]])
    for k in (0, 1, -1):
        yield Case("numpy.mask_indices", (), make=_masked(k), modes=SINGLE)


def _masked(k: int) -> Any:
    def make(lib: ModuleType) -> Any:
        return lambda: (
            *lib.numpy.mask_indices(3, lib.numpy.triu, k),
            *lib.numpy.mask_indices(4, lib.numpy.tril, k, size=5),
        )

    return make


def _counts(inputs: Inputs) -> Iterator[Case]:
    for dtype in (*INTS, "bool"):
        x = inputs.array(inputs.choice(((5,), (1,), (0,))), dtype, low=-1, high=5)
        yield Case("numpy.bincount", (x,), modes=("call",))
        yield Case("numpy.bincount", (x,), {"length": inputs.choice((1, 3, 8)), "minlength": inputs.choice((0, 4))})
        weights = inputs.array(x.shape)
        yield Case("numpy.bincount", (x, weights), {"length": 4})
    for x, kwargs in (
        ([1, 2, 2], {}),
        ([], {}),
        (np.asarray([0.5]), {}),
        (np.ones((2, 2), int), {}),
        ([1], {"minlength": 5}),
        ([1], {"length": 0}),
        ([1], {"minlength": -1}),
    ):
        yield Case("numpy.bincount", (x,), kwargs, modes=("call",))
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((3, 4), (2, 3, 3), (0, 3), (3, 0))), dtype)
        offset = inputs.choice((0, 1, -1, 5))
        yield Case("numpy.trace", (x, offset))
        yield Case("numpy.trace", (x,), {"axis1": -1, "axis2": 0, "dtype": inputs.choice(("float32", "int8", None))})
    yield Case("numpy.trace", (inputs.array((3,), "float32"),))


def _bits(inputs: Inputs) -> Iterator[Case]:
    for dtype in ("bool", *INTS, "float32"):
        x = inputs.array(inputs.choice(((10,), (2, 9), (3, 2), (0,), (8, 1), ())), dtype)
        for order in ("big", "little"):
            axis = inputs.axis(x.ndim) if x.ndim and inputs.chance(0.7) else None
            yield Case("numpy.packbits", (x, axis, order))
    for shape in ((2,), (2, 3), (0,), (1, 2), ()):
        x = inputs.array(shape, "uint8", low=0, high=255)
        for order in ("big", "little"):
            axis = inputs.axis(x.ndim) if x.ndim and inputs.chance(0.6) else None
            count = inputs.choice((None, 3, 20, -2, 0))
            yield Case("numpy.unpackbits", (x, axis, count, order))
    yield Case("numpy.unpackbits", (inputs.array((2,), "int8"),))
    yield Case("numpy.packbits", (inputs.array((3,), "uint8"),), {"bitorder": "other"})
    data = np.arange(6, dtype="float32").tobytes()
    for kwargs in ({"dtype": "float32"}, {"dtype": "int8", "count": 3}, {"dtype": "int16", "offset": 4}, {}):
        yield Case("numpy.frombuffer", (data,), kwargs, modes=SINGLE)
    for name in ("fromfile", "fromiter"):  # JAX has them only to say that it does not
        yield Case(f"numpy.{name}", ([1, 2],), modes=("call",))
    for kwargs in ({"sep": " "}, {"sep": " ", "dtype": int}, {"sep": " ", "count": 2, "dtype": "float16"}):
        yield Case("numpy.fromstring", ("1 2 3",), kwargs, modes=SINGLE)


def _functions(inputs: Inputs) -> Iterator[Case]:
    def of_index(kwargs: Any) -> Any:
        return lambda lib: lambda shape: lib.numpy.fromfunction(lambda *i: sum(i, start=1), shape, **kwargs)

    for shape in ((2, 3), (3,), (), (0, 2)):
        for kwargs in ({}, {"dtype": int}, {"dtype": "bfloat16"}):
            yield Case("numpy.fromfunction", (shape,), make=of_index(kwargs), modes=SINGLE)

    def piecewise(lib: ModuleType) -> Any:
        def called(x: Any, default: Any = None) -> Any:
            functions = [lambda x: x * 2, lambda x: x.sum() * 0 + 1, *([] if default is None else [default])]
            return lib.numpy.piecewise(x, [x > 1, x < 0], functions)

        return called

    for dtype in ("float32", "int32", "bfloat16", "uint8"):
        for default in (None, 3, 0.5):
            yield Case("numpy.piecewise", (inputs.array(dtypes=dtype),), {"default": default}, make=piecewise)
    x = inputs.array((4,), "float32")
    yield Case("numpy.piecewise", (x, [x > 0], [1, 2]))
    yield Case("numpy.piecewise", (x, [x > 0, x < 0], [1.5, -1]))
    yield Case("numpy.piecewise", (x, x > 0, [1, 2, 3]))
    yield Case("numpy.piecewise", (x, [x > 0], [1, 2, 3]))


def _ufuncs(inputs: Inputs) -> Iterator[Case]:
    def method(name: str, which: str, **kwargs: Any) -> Any:
        def make(lib: ModuleType) -> Any:
            own = lib.numpy.frompyfunc(lambda a, b: a * b + 1, 2, 1) if name == "own" else getattr(lib.numpy, name)
            return lambda *args: getattr(own, which)(*args, **kwargs)

        return make

    for name in (*UFUNCS, "own"):
        kinds = INTS if name.startswith("bit") else NUMBERS
        for dtype in kinds:
            x = inputs.array((2, 3), dtype)
            axis = inputs.choice((0, 1, -1))
            for which, kwargs in (
                ("reduce", {"axis": inputs.choice((None, axis)), "keepdims": inputs.chance(0.4)}),
                ("accumulate", {"axis": axis}),
            ):
                given = {**kwargs, "axis": axis} if name in ("own", "subtract") else kwargs
                label = f"numpy.ufunc.{name}.{which}({given})"
                yield Case(label, (x,), make=method(name, which, **given), modes=("call", "jit"))
        x, y = inputs.array((3,), kinds), inputs.array((2, 2), kinds)
        yield Case(f"numpy.ufunc.{name}.outer", (x, y), make=method(name, "outer"))
        at = np.asarray([0, 1, 1, -1])
        yield Case(f"numpy.ufunc.{name}.at", (x, at, x[at]), make=method(name, "at", inplace=False), modes=SINGLE)
        cut = np.asarray([0, 2, 1, 3])
        x = inputs.array((5,), kinds)
        yield Case(f"numpy.ufunc.{name}.reduceat", (x, cut), make=method(name, "reduceat"), modes=SINGLE)
        empty = np.zeros((0, 2), x.dtype)
        yield Case(f"numpy.ufunc.{name}.reduce", (empty,), make=method(name, "reduce", axis=0), modes=SINGLE)
        for which in ("nin", "nout", "nargs", "identity"):
            yield Case(f"numpy.ufunc.{name}.{which}", (), make=_attribute(name, which), modes=("call",))
    where = {"where": np.asarray([[True, False, True]]), "initial": 2}
    for name in ("add", "multiply", "maximum", "minimum"):
        x = inputs.array((2, 3), "float32")
        yield Case(f"numpy.ufunc.{name}.reduce", (x,), make=method(name, "reduce", axis=1, **where), modes=SINGLE)


def _attribute(name: str, which: str) -> Any:
    return lambda lib: (
        lambda: getattr(
            lib.numpy.frompyfunc(max, 2, 1, identity=3) if name == "own" else getattr(lib.numpy, name), which
        )
    )


def _stored(lib: ModuleType) -> Any:
    def called(x: Any, *, several: bool) -> Any:
        file = io.BytesIO()
        if several:
            lib.numpy.savez(file, first=x, second=x + 1)
        else:
            lib.numpy.save(file, x)
        file.seek(0)
        found = lib.numpy.load(file)
        return {name: found[name] for name in found.files} if several else found

    return called


def _printed(lib: ModuleType) -> Any:
    def called(x: Any, precision: int) -> str:
        with lib.numpy.printoptions(precision=precision):
            return f"{x} {lib.numpy.get_printoptions()['precision']}"

    return called


def _text(name: str) -> Any:
    """Without the class, which has an inner name, and the spaces below it."""
    return lambda lib: lambda x, **kwargs: getattr(lib.numpy, name)(x, **kwargs).rpartition("(")[2].split()


def _texts(inputs: Inputs) -> Iterator[Case]:
    for dtype in ("float32", "int8", "bool", "bfloat16", "complex64"):
        x = inputs.array(inputs.choice(((2, 3), (3,), (), (0,))), dtype)
        for name in ("array_repr", "array_str"):
            yield Case(f"numpy.{name}", (x,), make=_text(name), modes=("call",))
            yield Case(f"numpy.{name}", (x,), {"precision": 2}, make=_text(name), modes=("call",))
        yield Case("numpy.printoptions", (x, 3), make=_printed, modes=("call",))
        if dtype != "bfloat16":  # NumPy's files do not know it
            yield Case("numpy.save", (x,), {"several": False}, make=_stored, modes=("call",))
            yield Case("numpy.savez", (x,), {"several": True}, make=_stored, modes=("call",))
        yield Case("Array.repr", (x,), make=lambda _: repr, modes=("call",))
        yield Case("Array.str", (x,), make=lambda _: str, modes=("call",))
    for dtype in ("float16", "int8", "uint4", *FLOATS_OF_A_BYTE):
        yield Case(f"numpy.{dtype}", (2.5,))
        yield Case("numpy.dtype", (dtype if dtype[0] in "ui" and dtype != "uint4" else "float16",), modes=("call",))
