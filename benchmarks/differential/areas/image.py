"""``image``: resize by all methods, larger and smaller, and scale_and_translate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import FLOATS, INTS, Inputs

METHODS = (
    "nearest",
    "linear",
    "bilinear",
    "trilinear",
    "triangle",
    "cubic",
    "bicubic",
    "tricubic",
    "lanczos3",
    "lanczos5",
)
KERNELS = METHODS[1:]
MEMBERS = ("NEAREST", "LINEAR", "LANCZOS3", "LANCZOS5", "CUBIC")
DTYPES = (*FLOATS, "int32", "uint8", "bool")


def _by_member(name: str) -> Callable[[ModuleType], Any]:
    return lambda lib: lambda x, shape: lib.image.resize(x, shape, getattr(lib.image.ResizeMethod, name))


def cases(inputs: Inputs) -> Iterator[Case]:
    for method in METHODS:
        for shape, larger in (((4, 5), True), ((6, 5), False), ((3, 4, 2), True), ((5,), inputs.chance(0.5))):
            dtype = "float32" if inputs.chance(0.6) else inputs.choice(DTYPES)
            new = tuple(max(1, n + int(inputs.random.integers(0, 4)) * (1 if larger else -1)) for n in shape)
            kwargs = {} if inputs.chance(0.5) else {"antialias": inputs.chance(0.5)}
            yield Case("image.resize", (inputs.array(shape, dtype), new, method), kwargs)
        yield Case("image.resize", (inputs.array((2, 3), "float32"), (2, 3), method), modes=("call", "jit"))
    for member in MEMBERS:
        x = inputs.array((3, 4), inputs.choice(FLOATS))
        yield Case(
            "image.resize",
            (x, (5, 2)),
            make=_by_member(member),
            modes=("call", "jit"),
        )
        yield Case(
            "image.ResizeMethod",
            (member.lower(),),
            make=lambda lib: lambda name: lib.image.ResizeMethod.from_string(name).name,
            modes=("call",),
        )
    for dtype in (*INTS, *FLOATS, "complex64", "bool"):
        x = inputs.array((3, 4), dtype)
        yield Case("image.resize", (x, (5, 3), inputs.choice(METHODS)), modes=("call", "jit"))
    for shape, new in (
        ((0, 3), (0, 5)),
        ((0, 3), (2, 3)),
        ((2, 3), (0, 3)),
        ((1, 1), (3, 3)),
        ((), ()),
        ((2, 3), (4,)),
    ):
        yield Case("image.resize", (inputs.array(shape, "float32"), new, inputs.choice(("nearest", "linear"))))
    yield Case("image.resize", (inputs.array((3, 3), "float32", odd=0.3), (5, 5), "linear"))
    yield Case("image.resize", (inputs.array((3, 3), "float32"), (5, 5), "nothing"), modes=("call",))
    yield Case("image.resize", (inputs.array((3, 3), "float32"), (5, 5), "linear", True, "high"), modes=("call",))
    for i in range(24):
        dtype = "float32" if inputs.chance(0.7) else inputs.choice(DTYPES)
        shape = inputs.choice(((4, 5), (3, 4, 2), (6,)))
        dims = [int(n) for n in inputs.random.permutation(len(shape))[: int(inputs.random.integers(1, len(shape) + 1))]]
        dims = tuple(d - len(shape) if inputs.chance(0.2) else d for d in dims)
        new = tuple(
            int(inputs.random.integers(1, 7)) if d in [e % len(shape) for e in dims] else n for d, n in enumerate(shape)
        )
        scale = inputs.array((len(dims),), "float32", low=0.4, high=2.2)
        move = inputs.array((len(dims),), "float32", low=-2, high=2)
        kwargs = {} if inputs.chance(0.5) else {"antialias": inputs.chance(0.5)}
        modes = ("call", "jit", "jvp", "vjp", "vmap") if i % 2 else ("call", "vjp")
        x = inputs.array(shape, dtype)
        # Weights turn by the rounding of a scale and a translation that cut an element
        yield Case(
            "image.scale_and_translate", (x, new, dims, scale, move, KERNELS[i % len(KERNELS)]), kwargs, None, modes, 8
        )
    x = inputs.array((3, 3), "float32")
    one, none = np.ones(2, "float32"), np.zeros(2, "float32")
    yield Case("image.scale_and_translate", (x, (3, 3), (0, 1), one, none, "nearest"), modes=("call",))
    yield Case("image.scale_and_translate", (x, (3, 3), (0, 1), one, none, "linear"))
    yield Case("image.scale_and_translate", (x, (3, 3), (), one[:0], none[:0], "linear"))
    yield Case("image.scale_and_translate", (x, (3,), (0, 1), one, none, "linear"), modes=("call",))
    yield Case("image.scale_and_translate", (x, (3, 3), (0, 1), [1.0, 2.0], [0.5, 0.0], "cubic"), modes=("call",))
