"""``numpy``: methods, attributes and Python's own functions of arrays."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import FLOATS, INTS, NUMBERS, REAL, Inputs

REDUCTIONS = ("all", "any", "max", "mean", "min", "prod", "std", "sum", "var", "ptp")
ARG_REDUCTIONS = ("argmax", "argmin")
CUMULATIVE = ("cumsum", "cumprod")
ORDERS = ("argpartition", "argsort", "sort")
PROPERTIES = ("T", "mT", "real", "imag", "flat")
ATTRIBUTES = ("dtype", "itemsize", "nbytes", "ndim", "shape", "size", "weak_type", "aval", "sharding")
ON_DEVICE = ("committed", "is_fully_addressable", "is_fully_replicated")
# What is left of an array as a plain value; raises under jit.
CONCRETE: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    *(("bool", bool), ("int", int), ("float", float), ("complex", complex), ("index", operator.index), ("len", len)),
    *(("item()", lambda x: x.item()), ("item(-1)", lambda x: x.item(-1)), ("tolist", lambda x: x.tolist())),
    *(("list", list), ("np.asarray", np.asarray), ("np.array float64", lambda x: np.array(x, np.float64))),
    *(("hash", hash), ("repr", repr), ("str", str), ("math.floor", math.floor), ("math.trunc", math.trunc)),
    *(
        ("format", lambda x: f"{x:.2f}"),
        ("plain format", lambda x: f"{x}"),
        ("range", range),
        ("tobytes", lambda x: x.tobytes()),
    ),
    *(
        ("pickle", lambda x: pickle.loads(pickle.dumps(x))),
        ("hex", hex),
        ("round", round),
        ("reversed", lambda x: list(reversed(x))),
    ),
    *(("in", lambda x: 1 in x), ("is_ready", lambda x: x.is_ready()), ("is_deleted", lambda x: x.is_deleted())),
    *(("copy.copy", copy.copy), ("copy.deepcopy", copy.deepcopy)),
    *(("np.sin", np.sin), ("np.add", lambda x: np.add(x, 1)), ("np.sum", np.sum), ("math.sqrt", math.sqrt)),
    *(
        ("devices", lambda x: len(x.devices())),
        ("shards", lambda x: len(x.addressable_shards)),
        ("np.from_dlpack", np.from_dlpack),
    ),
    *(("shard data", lambda x: x.addressable_shards[0].data), ("addressable_data", lambda x: x.addressable_data(0))),
    *(
        ("setitem", lambda x: operator.setitem(x, 0, 1)),
        ("iadd", lambda x: operator.iadd(x, 1)),
        ("bytes in memory", lambda x: x.on_device_size_in_bytes()),
    ),
    *(
        ("delete", lambda x: (x.delete(), x.is_deleted())),
        ("namespace", lambda x: x.__array_namespace__().__name__.split(".")[-1]),
    ),
    *(("global shards", lambda x: len(x.global_shards)), ("copy_to_host_async", lambda x: x.copy_to_host_async())),
    *(("if", lambda x: 1 if x else 2), ("dlpack device", lambda x: tuple(int(n) for n in x.__dlpack_device__()))),
)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _reductions(inputs)
    yield from _attributes(inputs)
    yield from _shapes(inputs)
    yield from _values(inputs)
    yield from _concrete(inputs)


def _method(name: str, x: np.ndarray, *args: Any, modes: tuple[str, ...] | None = None, **kwargs: Any) -> Case:
    text = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
    call = lambda lib: lambda x: getattr(x, name)(*args, **kwargs)
    return Case(f"x.{name}({text})", (x,), make=call, modes=modes or ("call", "jit", "jvp", "vjp", "vmap"))


def _axes(inputs: Inputs, ndim: int) -> Any:
    return inputs.choice((None, inputs.axis(ndim), tuple(range(ndim)), (), -1, (0, -1) if ndim > 1 else 0))


def _reductions(inputs: Inputs) -> Iterator[Case]:
    for name in REDUCTIONS + ARG_REDUCTIONS:
        for kind in NUMBERS:
            x = inputs.array(dtypes=kind, odd=0.1 * inputs.chance(0.3))
            yield _method(name, x)
            axis = inputs.choice((None, inputs.axis(x.ndim))) if name in ARG_REDUCTIONS else _axes(inputs, x.ndim)
            yield _method(name, x, axis=axis, keepdims=inputs.chance(0.5))
        if name in ("sum", "prod", "mean", "std", "var"):
            for kind in ("int8", "bool", "float16", "float32", "complex64"):
                wanted = ("float32", "bfloat16", "complex64", *(() if name in ("std", "var") else ("int32", "int16")))
                out = inputs.choice(wanted)
                yield _method(name, inputs.array((2, 3), kind), 0, out)
        if name not in ARG_REDUCTIONS:
            for kind in ("float32", "int32", "bool"):
                mask = inputs.array((2, 3), "bool")
                options = {"initial": 1} if name in ("max", "min", "prod") else {}  # JAX's method sum forgets it
                call = lambda lib, n=name, o=options: lambda v, m: getattr(v, n)(where=m, **o)
                yield Case(f"x.{name}(where=m, {options})", (inputs.array((2, 3), kind), mask), make=call)
        if name in ("std", "var"):
            for kind in FLOATS:
                yield _method(name, inputs.array((2, 3), kind), axis=0, ddof=1)
                yield _method(name, inputs.array((2, 3), kind), correction=inputs.choice((1, 0, 2, 0.5)))
    for name in CUMULATIVE:
        for kind in NUMBERS:
            x = inputs.array(dtypes=kind)
            yield _method(name, x)
            yield _method(name, x, axis=inputs.choice((None, inputs.axis(x.ndim))), dtype=inputs.choice(NUMBERS))
    for name in ORDERS:
        for kind in NUMBERS:
            x = inputs.array((3, 4), kind, odd=0.2)
            args = (inputs.choice((0, 2, -1)),) if name == "argpartition" else ()
            modes = ("call", "jit", "vmap") if name == "argpartition" else None
            if name == "argpartition":
                x = np.asarray([[3, 1, 2, 4], [2, 1, 4, 3], [9, 8, 5, 6]]).astype(x.dtype)[:, :2]
                args = (inputs.choice((0, 1)),)
            yield _method(name, x, *args, modes=modes)
            yield _method(name, x, *args, axis=inputs.choice((0, 1, -1, None) if not args else (1, -1)), modes=modes)
            if not args:
                yield _method(name, x, descending=True, stable=inputs.chance(0.8))


def _attributes(inputs: Inputs) -> Iterator[Case]:
    for kind in (*NUMBERS, "int4"):
        for name in PROPERTIES:
            call = lambda lib, n=name: lambda x: getattr(x, n)
            if name != "flat":
                yield Case(f"x.{name}", (inputs.array(dtypes=kind),), make=call)
        for name in ATTRIBUTES[:-2]:
            call = lambda lib, n=name: lambda x: getattr(x, n)
            yield Case(f"x.{name}", (inputs.array(dtypes=kind),), make=call, modes=("call", "jit"))
    x = inputs.array((2, 3), "float32")
    for name in (*ON_DEVICE, "aval"):
        call = lambda lib, n=name: lambda x: str(getattr(x, n))
        yield Case(f"str(x.{name})", (x,), make=call, modes=("call",))
    for name in ("shape", "dtype", "weak_type", "ndim", "size"):
        call = lambda lib, n=name: lambda x: getattr(x.aval, n)
        yield Case(f"x.aval.{name}", (x,), make=call, modes=("call", "jit"))
    call = lambda lib: lambda x: [float(v) for v in x.flat]
    yield Case("x.flat", (x,), make=call, modes=("call",))
    yield Case(
        "x.device == devices()[0]", (x,), make=lambda lib: lambda x: x.device == lib.devices()[0], modes=("call",)
    )
    yield Case("isinstance", (x,), make=lambda lib: lambda x: isinstance(x, lib.Array), modes=("call", "jit", "vmap"))
    yield Case("isinstance of jnp.ndarray", (x,), make=lambda lib: lambda x: isinstance(x, lib.numpy.ndarray))


def _shapes(inputs: Inputs) -> Iterator[Case]:
    for kind in inputs.random.permutation(NUMBERS)[:5]:
        x = inputs.array((2, 3, 4), str(kind))
        for args in ((6, 4), (-1,), ((4, 6),), (2, -1), ([3, 8],), (5, 5), (), (np.int32(24),)):
            yield _method("reshape", x, *args)
        yield _method("reshape", x, (4, 6), order="F")
        for args in ((), ((2, 0, 1),), (1, 0, 2), (None,), (0, -1, 1), (0, 1), (0, 0, 1)):
            yield _method("transpose", x, *args)
        for name in ("flatten", "ravel"):
            for order in ("C", "F"):
                yield _method(name, x, order)
        yield _method("swapaxes", x, inputs.axis(3), inputs.axis(3))
        yield _method("squeeze", x[:1])
        yield _method("squeeze", x[:1], axis=inputs.choice((0, -3, (0,), 1)))
        yield _method("repeat", x, 2)
        yield _method("repeat", x, 2, axis=inputs.axis(3))
        yield _method("repeat", x, np.asarray([1, 0, 2]), axis=1)
        yield _method("repeat", x, np.asarray([1, 2, 0, 1]), axis=-1, total_repeat_length=inputs.choice((4, 6, 2)))
        for name in ("diagonal", "trace"):
            yield _method(name, x)
            yield _method(name, x, offset=inputs.choice((1, -1)), axis1=inputs.choice((0, -1)), axis2=1)
        call = lambda lib: lambda v: [part * 2 for part in v]
        yield Case("[part * 2 for part in x]", (x,), make=call)
        call = lambda lib: lambda v: (len(v), list(enumerate(v))[1])
        yield Case("enumerate(x)", (x,), make=call)
        call = lambda lib: lambda v: [*reversed(v)]
        yield Case("reversed(x)", (x,), make=call)


def _values(inputs: Inputs) -> Iterator[Case]:
    for kind in (*NUMBERS, "int4"):
        x = inputs.array(dtypes=kind, odd=0.2)
        yield _method("astype", x, inputs.choice(NUMBERS))
        yield _method("astype", x, inputs.choice((int, float, complex, bool, np.float16, "i2", "f4", None)))
        yield _method("astype", x, dtype=inputs.choice(NUMBERS), copy=True)
        x = inputs.array(dtypes=kind)
        for name in ("conj", "conjugate", "copy", "nonzero", "block_until_ready", "byteswap", "clone"):
            few = ("call",) if name in ("nonzero", "block_until_ready", "byteswap", "clone") else None
            yield _method(name, x, modes=few)
        yield _method("nonzero", inputs.array((3,), kind), size=2, fill_value=-1)
        yield _method("clip", x, inputs.choice((None, -1, 0.5)), inputs.choice((2, None, 1)))
        yield _method("clip", x, min=0, max=inputs.choice((3, 2.5)))
        yield _method("round", x)
        yield _method("round", x, inputs.choice((1, -1, 0)))
        y = inputs.array((4, 3), kind)
        call = lambda lib: lambda a, b: a.dot(b)
        yield Case("x.dot(y)", (inputs.array((2, 4), REAL), y), make=call)
        call = lambda lib: lambda a, b: a @ b
        yield Case("x @ y", (inputs.array(inputs.choice(((2, 4), (4,), (2, 2, 4))), kind), y), make=call)
        yield _method(
            "take", y, [0, -1, 9], axis=inputs.choice((None, 0, 1)), mode=inputs.choice((None, "clip", "wrap"))
        )
        yield _method(
            "compress", y, np.asarray([True, False, True]), axis=inputs.choice((None, 0, 1)), modes=("call", "vjp")
        )
        v = inputs.array((5,), kind)
        yield _method("searchsorted", np.sort(v), inputs.choice((1, 0.5, -2)), side=inputs.choice(("left", "right")))
        index = np.asarray([[0, 2], [1, 0]])
        yield _method("view", y, inputs.choice(("int8", "uint8", "float32", "uint16", "int32", "bfloat16")))
        yield _method("view", y, inputs.choice(("uint32", "float16", "complex64", "bool")))
        yield _method("to_device", y, inputs.choice((None, "x")), modes=("call",))
        if kind in INTS:
            call = lambda lib: lambda i, a: i.choose([a, 7, a * 2], mode="wrap")
            yield Case("i.choose([a, 7, a * 2])", (index.astype(kind), inputs.array((2,), kind)), make=call)


def _concrete(inputs: Inputs) -> Iterator[Case]:
    for text, call in CONCRETE:
        for kind in inputs.random.permutation(NUMBERS)[:5]:
            shape = (
                inputs.choice(((), (1,), (3,), (2, 3), (0,))) if text not in ("float", "int", "bool", "index") else ()
            )
            made = lambda lib, f=call: lambda x: _kept(f(x))
            yield Case(f"{text} of x", (inputs.array(shape, str(kind), odd=0.1),), make=made, modes=("call",))
    for text, call in CONCRETE[:10]:
        made = lambda lib, f=call: lambda x: _kept(f(x))
        yield Case(f"{text} of a vector", (inputs.array((2,)),), make=made, modes=("call", "jit"))
        yield Case(f"{text} of one in two axes", (inputs.array((1, 1)),), make=made, modes=("call", "jit"))
    for kind in FLOATS:
        call = lambda lib: lambda x: np.asarray(x, copy=None)
        yield Case("np.asarray(copy=None)", (inputs.array((2,), kind),), make=call, modes=("call", "jit"))


def _kept(x: Any) -> Any:
    """Plain values in place of what lists hold."""
    if isinstance(x, (range, bytes)):
        return str(x)
    return x
