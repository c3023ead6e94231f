"""``numpy``: arrays made of shapes, ranges, lists and other arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import COMPLEX, FLOATS, NUMBERS, REAL, Inputs

DTYPES = (*NUMBERS, "int4", "uint4", "float8_e4m3fn")
SHAPE_ARGUMENTS = ((), 3, (2, 3), (0,), [2, 0], (1, 2, 3))
LISTS = (
    *(
        [],
        [1, 2],
        [1, 2.5],
        [True, False],
        [1j, 2],
        [[1, 2], [3, 4]],
        [[], []],
        [True, 2],
        3,
        2.5,
        True,
        1j,
        (1, (2.0)),
    ),
    *(
        [np.float32(1), 2],
        [np.int8(1), np.int8(2)],
        [np.int8(1), 2.0],
        np.arange(3),
        np.float64(2.5),
        np.int64(3),
        range(4),
    ),
    *([np.arange(2), np.ones(2, np.float32)], [[1, 2], (3.5, 4)], 2**31, [2**31], -(2**31), [np.nan, None, 1], "text"),
    *([[1, 2], [3]], [[1], 2], [np.uint8(255), -1], [2**40], np.asarray([2**40]), 1e300, None, [[True], [2.5]], {1: 2}),
)
WINDOWS = ("bartlett", "blackman", "hamming", "hanning")

Maker = Callable[[ModuleType], Callable[..., Any]]


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _filled(inputs)
    yield from _ranges(inputs)
    yield from _grids(inputs)
    yield from _from_values(inputs)
    yield from _of_a_list(inputs)


def _plain(name: str, *args: Any, **kwargs: Any) -> Case:
    """A call without arrays: under jit it is traced all the same."""
    return Case(f"numpy.{name}", args, kwargs, modes=("call", "jit"))


def _filled(inputs: Inputs) -> Iterator[Case]:
    for name in ("zeros", "ones", "empty"):
        for shape in SHAPE_ARGUMENTS:
            yield _plain(name, shape)
            if name != "empty":
                yield _plain(name, shape, inputs.choice(DTYPES))
    for name in ("zeros_like", "ones_like", "empty_like"):
        for kind in NUMBERS:
            x = inputs.array(dtypes=kind)
            yield Case(f"numpy.{name}", (x,))
            yield Case(f"numpy.{name}", (x,), {"dtype": inputs.choice(DTYPES), "shape": inputs.choice((None, 3, ()))})
        yield Case(f"numpy.{name}", (Weak(1.5),))
        yield Case(f"numpy.{name}", (inputs.choice((2, True, 1j)),))
    for shape in SHAPE_ARGUMENTS:
        for value in (2, 1.5, True, 1j, np.float16(2), Weak(3), inputs.array((), NUMBERS)):
            yield Case("numpy.full", (shape, value))
        yield Case("numpy.full", (shape, inputs.choice((2.5, 300, -1)), inputs.choice(DTYPES)))
    yield Case("numpy.full", ((2, 3), inputs.array((3,), NUMBERS)))
    for kind in NUMBERS:
        x = inputs.array(dtypes=kind)
        yield Case("numpy.full_like", (x, inputs.choice((2, 1.5, True, -1))))
        yield Case("numpy.full_like", (x, Weak(2.5)), {"dtype": inputs.choice(NUMBERS), "shape": (2,)})
        yield Case("numpy.full_like", (inputs.array((2, 3), kind), inputs.array((3,), REAL)))
    for args in ((3,), (2, 3), (3, None, 1), (3, 4, -1), (0,), (2, 2, 5)):
        yield _plain("eye", *args)
        yield _plain("eye", *args, dtype=inputs.choice(DTYPES))
        yield _plain("tri", *args)
        yield _plain("tri", *args, dtype=inputs.choice(DTYPES))
    for n in (0, 1, 3):
        yield _plain("identity", n)
        yield _plain("identity", n, inputs.choice(DTYPES))
    for name in WINDOWS:
        for n in (0, 1, 2, 7, -1):
            yield _plain(name, n)
    for n, beta in ((0, 1.0), (1, 2.0), (5, 14.0), (4, 0)):
        yield _plain("kaiser", n, beta)


def _ranges(inputs: Inputs) -> Iterator[Case]:
    for args in (
        (3,),
        (0,),
        (-2,),
        (1, 4),
        (4, 1, -1),
        (0, 1, 0.25),
        (2.5,),
        (1, 2.5),
        (5, 0, -2),
        (True,),
        (0, 3, -1),
    ):
        yield _plain("arange", *args)
        yield _plain("arange", *args, dtype=inputs.choice(DTYPES[1:]))
    for args in ((np.int8(3),), (np.float32(1), 3), (1, np.uint8(4)), (0, 5, np.int16(2)), (1j,), (0, 1, 0)):
        yield _plain("arange", *args)
    yield _plain("arange", step=2, start=0, stop=5)
    for args in (
        (0, 1),
        (0, 1, 5),
        (1, 1, 3),
        (0, 5, 0),
        (5, 0, 4),
        (0, 1j, 3),
        (True, 2, 4),
        (-1.5, 2.5, 1),
        (1, 9, 3),
    ):
        yield _plain("linspace", *args)
        options = {"endpoint": inputs.chance(0.5), "retstep": inputs.chance(0.5)}
        yield _plain("linspace", *args, **options)
        yield _plain("linspace", *args, dtype=inputs.choice(DTYPES[1:]))
    for name, low in (("linspace", None), ("logspace", None), ("geomspace", 1.0)):
        for kind in (*FLOATS, "int32", "uint8", *COMPLEX):
            start, stop = (inputs.array((), kind, low=low, high=low and 9) for _ in range(2))
            yield Case(f"numpy.{name}", (start, stop, inputs.choice((4, 1))), {"endpoint": inputs.chance(0.6)})
            start = inputs.array((2, 1), kind, low=low, high=low and 5)
            stop = inputs.array((3,), REAL[1:], low=low, high=low and 5)
            yield Case(f"numpy.{name}", (start, stop, 4), {"axis": int(inputs.random.integers(-3, 3))})
            yield Case(f"numpy.{name}", (start, stop, 3), {"dtype": inputs.choice(("float32", "int32", "bfloat16"))})
    for args in ((0, 2, 3), (1, 3), (0.5, 1, 0), (0, 1j, 3)):
        yield _plain("logspace", *args)
        yield _plain("logspace", *args[:2], 4, base=inputs.choice((2, 0.5, 3.0)))
    for args in (
        (1, 1000, 4),
        (-1, -8, 4),
        (1, 8, 4, False),
        (2, 2, 2),
        (1, 256),
        (8, 1, 4),
        (1, 1j, 3),
        (0, 1, 3),
        (1, 5, 0),
    ):
        yield _plain("geomspace", *args)


def _grids(inputs: Inputs) -> Iterator[Case]:
    for options in ({}, {"indexing": "ij"}, {"sparse": True}, {"indexing": "ij", "sparse": True}, {"indexing": "no"}):
        for count in (1, 2, 3):
            arrays = tuple(inputs.array((inputs.choice((2, 3, 0, 1)),)) for _ in range(count))
            yield Case("numpy.meshgrid", arrays, options)
        yield Case("numpy.meshgrid", (inputs.array((), "float32"), inputs.array((2,), "int8")), options)
    yield _plain("meshgrid")
    keys = (
        *(np.s_[0:3], np.s_[0:2, 0:3], np.s_[0:1:3j], np.s_[0:1:3j, 0:2], np.s_[0:1:0.25], np.s_[2:0:-1, 0:2.5]),
        *(np.s_[-1:1:5j], np.s_[:3], np.s_[0:0]),
    )
    for name in ("mgrid", "ogrid"):
        for key in keys:
            yield _made(f"numpy.{name}[{key}]", lambda lib, n=name, k=key: lambda: getattr(lib.numpy, n)[k])
    for key in (np.s_[1:4], np.s_[0:1:3j], np.s_[1, 2, 3], np.s_[1:3, 5, 0.5], np.s_["0,2", 1:3, 4:6], np.s_["r", 1:3]):
        for name in ("r_", "c_"):
            yield _made(f"numpy.{name}[{key}]", lambda lib, n=name, k=key: lambda: getattr(lib.numpy, n)[k])
    x, y = inputs.array((3,)), inputs.array((3,))
    for name in ("r_", "c_"):
        made = lambda lib, n=name: lambda v, w: getattr(lib.numpy, n)[v, w]
        yield Case(f"numpy.{name}[x, y]", (x, y), make=made)
        made = lambda lib, n=name: lambda v: getattr(lib.numpy, n)[v, 0, 1.5]
        yield Case(f"numpy.{name}[x, 0, 1.5]", (x,), make=made)
    made = lambda lib: lambda x, y: lib.numpy.r_["-1", x[None], y[None]]
    yield Case("numpy.r_['-1', x, y]", (x, y), make=made)
    for dimensions in ((2, 3), (3,), (), (0, 2)):
        yield _plain("indices", dimensions)
        yield _plain("indices", dimensions, sparse=True)
        yield _plain("indices", dimensions, dtype=inputs.choice(("int8", "float32", "uint16", "complex64")))
        made = lambda lib, d=dimensions: lambda: lib.numpy.fromfunction(lambda *i: sum(i) * 2, d)
        yield _made(f"numpy.fromfunction of {dimensions}", made)
    made = lambda lib: lambda: lib.numpy.fromfunction(lambda i, j: i == j, (2, 3), dtype=int)
    yield _made("numpy.fromfunction of int", made)
    made = lambda lib: lambda: lib.numpy.fromfunction(lambda i, p: i**p, (3,), dtype="float16", p=2)
    yield _made("numpy.fromfunction with p", made)
    for k in (0, 1, -1, 4):
        for name in ("tril", "triu"):
            for shape in ((3, 3), (2, 3), (2, 3, 2), (0, 2), (3,)):
                yield Case(f"numpy.{name}", (inputs.array(shape), k))
            yield _plain(f"{name}_indices", 3, k)
            yield _plain(f"{name}_indices", 3, k, 2)
            yield Case(f"numpy.{name}_indices_from", (inputs.array((3, 4)), k), modes=("call", "jit"))
            made = lambda lib, n=name, k=k: lambda: lib.numpy.mask_indices(3, getattr(lib.numpy, n), k)
            yield _made(f"numpy.mask_indices of {name} {k}", made, modes=("call",))
        for shape in ((3,), (2, 3), (0,), (3, 3)):
            yield Case("numpy.diag", (inputs.array(shape), k))
            yield Case("numpy.diagflat", (inputs.array(shape), k))
    yield Case("numpy.diagflat", (Weak(2),))
    yield Case("numpy.diag", (inputs.array((2, 2, 2)),))
    for args in ((3,), (2, 3), (0,), (3, 1)):
        yield _plain("diag_indices", *args)
    yield Case("numpy.diag_indices_from", (inputs.array((3, 3)),), modes=("call", "jit"))
    yield Case("numpy.diag_indices_from", (inputs.array((2, 3)),), modes=("call", "jit"))
    for n in (None, 0, 2, 5):
        for kind in inputs.random.permutation(NUMBERS)[:4]:
            x = inputs.array((3,), str(kind))
            yield Case("numpy.vander", (x,), {"N": n, "increasing": inputs.chance(0.5)})


def _made(name: str, make: Maker, modes: tuple[str, ...] = ("call", "jit")) -> Case:
    return Case(name, make=make, modes=modes)


def _from_values(inputs: Inputs) -> Iterator[Case]:
    for value in LISTS:
        for name in ("array", "asarray"):
            made = lambda lib, n=name, v=value: lambda: getattr(lib.numpy, n)(v)
            yield _made(f"numpy.{name} of {value!r}", made)
        kind = inputs.choice(DTYPES)
        made = lambda lib, v=value, k=kind: lambda: lib.numpy.array(v, dtype=k)
        yield _made(f"numpy.array of {value!r} as {kind}", made)
    for kind in (*NUMBERS, "int4", "float8_e4m3fn"):
        x = inputs.array(dtypes=kind, odd=0.3)
        for other in inputs.random.permutation(DTYPES)[:4]:
            yield Case("numpy.astype", (x, str(other)))
        yield Case("numpy.array", (x, inputs.choice(DTYPES)), {"ndmin": inputs.choice((0, 2, 3))})
        yield Case("numpy.asarray", (x,), {"dtype": inputs.choice((None, int, float, complex, bool)), "copy": True})
        yield Case("numpy.copy", (x,))
        made = lambda lib: lambda v: lib.numpy.array([v, 1, v])
        yield Case("numpy.array of [x, 1, x]", (x,), make=made)
        made = lambda lib: lambda v: lib.numpy.asarray([[v, v], [v, v * 2.5]])
        yield Case("numpy.asarray of nested lists", (inputs.array((2,), kind),), make=made)
    for value in (2, 2.5, True, 1j):
        for name in ("array", "asarray", "copy"):
            yield Case(f"numpy.{name}", (Weak(value),))
        made = lambda lib: lambda v: lib.numpy.array([v, 2])
        yield Case("numpy.array of [weak, 2]", (Weak(value),), make=made)
        made = lambda lib: lambda v: lib.numpy.array([v, lib.numpy.int8(1)])
        yield Case("numpy.array of [weak, int8]", (Weak(value),), make=made)
        yield Case("numpy.asarray", (Weak(value), inputs.choice(NUMBERS)))
    for order in ("C", "F", "K", "A", "x"):
        yield Case("numpy.array", (inputs.array((2, 3), "float32"),), {"order": order})
    made = lambda lib: lambda: lib.numpy.from_dlpack(np.arange(6, dtype=np.float32).reshape(2, 3))
    yield _made("numpy.from_dlpack", made, modes=("call",))


def _of_a_list(inputs: Inputs) -> Iterator[Case]:
    data = np.arange(4, dtype=np.int16).tobytes()
    for kwargs in ({"dtype": "int16"}, {"dtype": "uint8", "count": 3}, {"dtype": "int16", "offset": 2}, {}):
        yield _made(f"numpy.frombuffer {kwargs}", lambda lib, k=kwargs: lambda: lib.numpy.frombuffer(data, **k))
    for kwargs in ({"dtype": int}, {"dtype": "float32", "count": 2}, {"dtype": bool}):
        made = lambda lib, k=kwargs: lambda: lib.numpy.fromiter(iter([1, 2, 0]), **k)
        yield _made(f"numpy.fromiter {kwargs}", made)
    for text, kwargs in (
        ("1 2 3", {"sep": " "}),
        ("1,2", {"sep": ",", "dtype": int}),
        ("4;5;6", {"sep": ";", "count": 2}),
    ):
        made = lambda lib, t=text, k=kwargs: lambda: lib.numpy.fromstring(t, **k)
        yield _made(f"numpy.fromstring {text} {kwargs}", made)
    for value in (np.arange(6.0).reshape(2, 3), np.float32(2), 3, [1, 2]):
        for name in ("ndim", "shape", "size", "iterable", "isscalar", "iscomplexobj", "isrealobj"):
            made = lambda lib, n=name, v=value: lambda: getattr(lib.numpy, n)(v)
            yield _made(f"numpy.{name} of {value!r}", made, modes=("call",))
    x = inputs.array((2, 3))
    for name in ("ndim", "shape", "size", "iterable"):
        yield Case(f"numpy.{name}", (x,), modes=("call", "jit"))
    yield Case("numpy.size", (x, 1), modes=("call", "jit"))
    yield Case("numpy.size", (x, (0, 1)), modes=("call", "jit"))
