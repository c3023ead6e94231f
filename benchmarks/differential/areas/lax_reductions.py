"""``lax``: reductions by name, of any function and of windows; running ones; indices of extrema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import COMPLEX, FLOATS, INTS, NUMBERS, REAL, SHAPES, Inputs, dtype

# Name -> dtypes that it takes.
OVER: dict[str, tuple[str, ...]] = {
    "reduce_sum": (*INTS, *FLOATS, *COMPLEX),
    "reduce_prod": (*INTS, *FLOATS, *COMPLEX),
    "reduce_max": NUMBERS,
    "reduce_min": NUMBERS,
    "reduce_and": ("bool", *INTS),
    "reduce_or": ("bool", *INTS),
    "reduce_xor": ("bool", *INTS),
}
RUNNING: dict[str, tuple[str, ...]] = {
    "cumsum": (*INTS, *FLOATS, *COMPLEX),
    "cumprod": (*INTS, *FLOATS, *COMPLEX),
    "cummax": NUMBERS,
    "cummin": NUMBERS,
    "cumlogsumexp": (*FLOATS, *COMPLEX),
}
Function = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _over(inputs)
    yield from _running(inputs)
    yield from _indices(inputs)
    yield from _reduce(inputs)
    yield from _windows(inputs)


def _axes(inputs: Inputs, ndim: int) -> tuple[int, ...]:
    count = int(inputs.random.integers(ndim + 1))
    return tuple(int(d) for d in inputs.random.permutation(ndim)[:count])


def _over(inputs: Inputs) -> Iterator[Case]:
    for name, kinds in OVER.items():
        for kind in kinds:
            x = inputs.array(dtypes=kind, odd=inputs.choice((0, 0.15)))
            yield Case(f"lax.{name}", (x, _axes(inputs, x.ndim)))
        for kind in {kinds[0], "float32", "bfloat16", "complex64"} & set(kinds):
            for shape in ((2, 3), (2, 1, 3), (0,), (2, 0, 3)):
                yield Case(f"lax.{name}", (inputs.array(shape, kind), _axes(inputs, len(shape))))
            x = inputs.array((2, 3), kind)
            for axes in ((), (0, 1), [1], (-1,), (0, -1), (0, 0), (2,)):
                yield Case(f"lax.{name}", (x, axes))
        scalar = 0.5 if "float32" in kinds else 3
        yield Case(f"lax.{name}", (Weak(scalar), ()))
        yield Case(f"lax.{name}", (scalar, ()))
        yield Case(f"lax.{name}", (inputs.array((2,), tuple(set(NUMBERS) - set(kinds)) or "bool"), (0,)))
    # Where several elements are the extremum, each takes its share.
    for name in ("reduce_max", "reduce_min"):
        yield Case(f"lax.{name}", (np.asarray([[1, 2, 2], [3, 3, 3]], "float32"), (1,)))
        yield Case(f"lax.{name}", (np.asarray([0.0, -0.0, np.nan], "float32"), (0,)))
    for zeros in ([0, 2, 3], [0, 0, 3], [1, 2, 3]):
        yield Case("lax.reduce_prod", (np.asarray(zeros, "float32"), (0,)))


def _running(inputs: Inputs) -> Iterator[Case]:
    for name, kinds in RUNNING.items():
        for kind in kinds:
            for shape in ((2, 3), inputs.choice([s for s in SHAPES if s])):
                x = inputs.array(shape, kind, odd=inputs.choice((0, 0.15)) if kind in FLOATS else 0)
                axis = int(inputs.random.integers(len(shape)))
                yield Case(f"lax.{name}", (x,), {"axis": axis, "reverse": inputs.chance(0.5)})
        x = inputs.array((2, 3), "float32")
        for rest in ((), (1,), (0, True), (-1,), (2,)):
            yield Case(f"lax.{name}", (x, *rest))
        yield Case(f"lax.{name}", (np.asarray([2, 2, 0, 0, 3, 3], "float32"),))
        yield Case(f"lax.{name}", (np.asarray([1, np.nan, 2, np.inf, -np.inf], "float32"),))
        yield Case(f"lax.{name}", (np.asarray([-np.inf, -np.inf, 1, np.inf], "float32"), 0, True))
        yield Case(f"lax.{name}", (inputs.array((3,), "bool"),))
        yield Case(f"lax.{name}", (Weak(1.0),))
        yield Case(f"lax.{name}", (inputs.array((40,), "float32"),))


def _indices(inputs: Inputs) -> Iterator[Case]:
    for name in ("argmax", "argmin"):
        for kind in REAL:
            x = inputs.array(inputs.choice(((2, 3), (3,), (2, 1, 3), (4, 2))), kind, odd=0.2)
            index = inputs.choice(("int32", "uint8", "int8", "uint32", "int16"))
            yield Case(f"lax.{name}", (x, int(inputs.random.integers(x.ndim)), index))
        x = inputs.array((2, 3), "float32")
        yield Case(f"lax.{name}", (x,), {"axis": 1, "index_dtype": int})
        for axis in (-1, 2):
            yield Case(f"lax.{name}", (x, axis, "int32"))
        for index in ("float32", "bool"):
            yield Case(f"lax.{name}", (x, 0, index))
        yield Case(f"lax.{name}", (np.zeros((2, 0), "float32"), 1, "int32"))
        yield Case(f"lax.{name}", (np.zeros((2, 0), "float32"), 0, "int32"))
        yield Case(f"lax.{name}", (inputs.array((3,), "complex64"), 0, "int32"))
        yield Case(f"lax.{name}", (np.asarray([np.nan, 1, np.nan], "float32"), 0, "int32"))


def _named(name: str) -> Function:
    return lambda lib: getattr(lib.lax, name)


def _product(lib: ModuleType) -> Any:
    return lambda a, b: a * b


def _smooth(lib: ModuleType) -> Any:
    return lambda a, b: lib.lax.log(lib.lax.exp(a) + lib.lax.exp(b))


def _by(name: str, computation: Function, *rest: Any, **kwargs: Any) -> Function:
    def made(lib: ModuleType) -> Any:
        return lambda x, init: getattr(lib.lax, name)(x, init, computation(lib), *rest, **kwargs)

    return made


def _from(name: str, computation: Function, init: Any, *rest: Any, **kwargs: Any) -> Function:
    """As `_by`, with an initial value that is part of the function."""
    return lambda lib: lambda x: getattr(lib.lax, name)(x, init, computation(lib), *rest, **kwargs)


# Computation, its identity, dtypes.
MONOIDS: dict[str, tuple[Function, Any, tuple[str, ...]]] = {
    "add": (_named("add"), 0, (*INTS, *FLOATS, *COMPLEX)),
    "mul": (_named("mul"), 1, (*INTS, *FLOATS)),
    "max": (_named("max"), -np.inf, (*INTS, *FLOATS, "bool")),
    "min": (_named("min"), np.inf, (*INTS, *FLOATS)),
    "bitwise_and": (_named("bitwise_and"), -1, ("int8", "bool")),
    "bitwise_or": (_named("bitwise_or"), 0, ("uint16", "bool")),
    "bitwise_xor": (_named("bitwise_xor"), 0, ("int32", "bool")),
    "product": (_product, 1, ("float32", "int32")),
    "smooth": (_smooth, -np.inf, ("float32",)),
}


def _identity(value: Any, kind: str) -> Any:
    name = dtype(kind)
    if kind == "bool":
        return np.asarray(value > 0 or value == -1)
    if name.kind in "iu":
        info = np.iinfo(name)
        return np.asarray({np.inf: info.max, -np.inf: info.min}.get(value, value), "int64").astype(name)
    return np.asarray(value, name)


def _reduce(inputs: Inputs) -> Iterator[Case]:
    def both(lib: ModuleType) -> Any:
        def larger(a: Any, b: Any) -> Any:
            first = a[0] >= b[0]
            return lib.numpy.where(first, a[0], b[0]), lib.numpy.where(first, a[1], b[1])

        return larger

    for text, (computation, identity, kinds) in MONOIDS.items():
        for kind in kinds:
            x = inputs.array(inputs.choice(((3,), (2, 3), (2, 1, 3), (0, 3))), kind)
            modes = ("call", "jit", "vmap") if text in ("product", "smooth") else ("call", "jit", "jvp", "vjp", "vmap")
            make = _by("reduce", computation, _axes(inputs, x.ndim))
            yield Case(f"lax.reduce {text}", (x, _identity(identity, kind)), make=make, modes=modes)
        x = inputs.array((2, 3), kinds[0])
        fixed = _from("reduce", computation, _identity(identity, kinds[0]), (0,))
        yield Case(f"lax.reduce {text} fixed", (x,), make=fixed, modes=("call", "jit", "vmap"))
    x = inputs.array((2, 3), "float32")
    for init in (0, 0.0, 2.5, Weak(1.0), np.int32(1)):
        yield Case("lax.reduce add", (x, init), make=_by("reduce", _named("add"), (1,)), modes=("call", "jit", "vmap"))
    for axes in ((-1,), (0, 0), (2,), ()):
        yield Case(f"lax.reduce add {axes}", (x, 0.0), make=_by("reduce", _named("add"), axes), modes=("call", "jit"))
    for axes in ((0,), (1,), (0, 1)):
        pair = (inputs.array((2, 3), "float32"), inputs.array((2, 3), "int32"))
        start = (np.asarray(-np.inf, "float32"), np.asarray(0, "int32"))
        yield Case(
            f"lax.reduce pair {axes}", (pair, start), make=_by("reduce", both, axes), modes=("call", "jit", "vmap")
        )


def _windows(inputs: Inputs) -> Iterator[Case]:
    for text, (computation, identity, kinds) in MONOIDS.items():
        for kind in (*kinds, *(("float32",) * 6 if text in ("add", "max", "min") else ())):
            x = inputs.array((4, 5), kind)
            kwargs: dict[str, Any] = {}
            window = inputs.choice(((2, 2), (1, 3), (3, 2), (4, 1)))
            if inputs.chance(0.5):
                kwargs["window_strides"] = inputs.choice(((2, 1), (1, 2), (2, 3)))
            if inputs.chance(0.7):
                kwargs["padding"] = inputs.choice(("SAME", "VALID", "SAME_LOWER", ((1, 0), (1, 1)), ((0, 2), (0, 0))))
            if inputs.chance(0.3):
                kwargs["base_dilation"] = inputs.choice(((2, 1), (1, 3)))
            if inputs.chance(0.3):
                kwargs["window_dilation"] = inputs.choice(((2, 1), (1, 2)))
            derivatives = text in ("add", "max", "min") and dtype(kind).kind not in "iub"

            fixed = _from("reduce_window", computation, _identity(identity, kind), window, **kwargs)
            modes = ("call", "jit", "jvp", "vjp", "vmap") if derivatives else ("call", "jit", "vmap")
            name = f"lax.reduce_window {text} {window} {kwargs}"
            yield Case(name, (x,), make=fixed, modes=modes)
        start = _identity(1, kinds[0])
        window = ((2, 2), (1, 2), "SAME")
        make = _by("reduce_window", computation, *window)
        yield Case(
            f"lax.reduce_window {text} from 1",
            (inputs.array((3, 4), kinds[0]), start),
            make=make,
            modes=("call", "jit"),
        )
    x = inputs.array((3, 4), "float32")
    for init, window in ((0.0, (2, 2)), (0, (2, 2)), (0.0, (2,)), (0.0, (5, 5)), (0.0, (0, 1)), (Weak(0.0), (1, 4))):
        make = _by("reduce_window", _named("add"), window)
        yield Case(f"lax.reduce_window add {window}", (x, init), make=make, modes=("call", "jit"))
    for shape in ((0, 4), (0,), ()):
        make = _by("reduce_window", _named("max"), (1,) * len(shape))
        yield Case(
            "lax.reduce_window max empty", (inputs.array(shape, "float32"), -np.inf), make=make, modes=("call", "jit")
        )
    for args in (
        ((4, 5), (2, 2), (1, 2), ((0, 0), (1, 1))),
        ((4,), (3,), (2,), ((0, 1),), (2,), (2,)),
        ((1,), (2,), (1,), ((0, 0),)),
    ):
        yield Case("lax.reduce_window_shape_tuple", args, modes=("call",))
