"""``numpy.fft``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import NUMBERS, Inputs

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
TWO = ("fft2", "ifft2", "rfft2", "irfft2")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
NORMS = (None, "backward", "ortho", "forward")
EDGE = ("float8_e4m3fn", "float64", "int4", "complex128")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random)


def _cases(inputs: Inputs) -> Iterator[Case]:
    for name in ONE:
        yield from _one(inputs, name)
    for name in (*TWO, *MANY):
        yield from _many(inputs, name, free=name in MANY)
    yield from _rest(inputs)


def _one(inputs: Inputs, name: str) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((4,), (5, 3), (2, 3, 4), (2,), (1, 3))), dtype)
        yield Case(f"numpy.fft.{name}", (x,))
        kwargs: dict[str, Any] = {"n": inputs.choice((None, 1, 2, 3, 7, 8)), "axis": inputs.axis(x.ndim)}
        yield Case(f"numpy.fft.{name}", (x,), {**kwargs, "norm": inputs.choice(NORMS)})
    for norm in NORMS:
        for n in (None, 3, 6):
            yield Case(f"numpy.fft.{name}", (inputs.array((5, 4), ("float32", "complex64")), n, 0, norm))
    x = inputs.array((6,), "float32")
    for kwargs in ({"n": 0}, {"n": -1}, {"axis": 1}, {"norm": "other"}, {"axis": (0,)}, {"n": 2.0}):
        yield Case(f"numpy.fft.{name}", (x,), kwargs, modes=("call",))
    for y in (np.zeros((0,), "float32"), np.zeros((0, 3), "complex64"), [1, 2, 3], [1j, 2.0], Weak(2.0), 3):
        yield Case(f"numpy.fft.{name}", (y,))
    for dtype in EDGE:
        yield Case(f"numpy.fft.{name}", (inputs.array((4,), dtype),), modes=("call",))
    yield Case(f"numpy.fft.{name}", (np.asarray([1, np.nan, 2, np.inf], "float32"),), modes=("call", "jit"))
    yield Case(f"numpy.fft.{name}", (inputs.array((1,), "float32"),))
    yield Case(f"numpy.fft.{name}", (inputs.array((3, 301), "float32"),), modes=("call", "vjp"))


def _many(inputs: Inputs, name: str, *, free: bool) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((3, 4), (2, 3, 4), (4, 2), (2, 2, 2), (1, 3))), dtype)
        yield Case(f"numpy.fft.{name}", (x,))
        axes = tuple(int(i) - x.ndim * int(inputs.chance(0.5)) for i in inputs.random.permutation(x.ndim))
        axes = axes[: int(inputs.random.integers(1, x.ndim + 1))] if free else axes[:2]
        sizes = tuple(inputs.choice((1, 2, 3, 5)) for _ in axes) if inputs.chance(0.6) else None
        kwargs = {"s": sizes, "axes": axes, "norm": inputs.choice(NORMS)}
        yield Case(f"numpy.fft.{name}", (x,), kwargs)
    x = inputs.array((2, 3, 4), ("float32", "complex64"))
    for sizes in ((2, 2), (4, 5), (3,), (2, 3, 4), (-1, 2), (0, 2), ()):
        yield Case(f"numpy.fft.{name}", (x, sizes))
    for axes in ((0, 1), (0, 0), (1,), (), (0, 3), (2, 1, 0), 0):
        yield Case(f"numpy.fft.{name}", (x,), {"axes": axes}, modes=("call", "jit"))
    for y in (
        inputs.array((3,), "float32"),
        inputs.array((), "float32"),
        np.zeros((0, 2), "float32"),
        [[1, 2], [3, 4]],
    ):
        yield Case(f"numpy.fft.{name}", (y,))
    for norm in NORMS:
        yield Case(f"numpy.fft.{name}", (inputs.array((2, 5, 4), "complex64"),), {"norm": norm})
    yield Case(f"numpy.fft.{name}", (inputs.array((2, 2, 3, 2), "float32"),))


def _rest(inputs: Inputs) -> Iterator[Case]:
    for name in ("fftfreq", "rfftfreq"):
        for n in (1, 2, 5, 8, 0, -1, 3.0):
            yield Case(f"numpy.fft.{name}", (n,))
            yield Case(
                f"numpy.fft.{name}", (n,), {"d": inputs.choice((0.5, 2, np.asarray(0.25, "float32"), Weak(4.0)))}
            )
            yield Case(
                f"numpy.fft.{name}", (n,), {"dtype": inputs.choice(("float16", "bfloat16", "complex64", "int32"))}
            )
        yield Case(f"numpy.fft.{name}", (4, [1.0, 2.0]))
    for name in ("fftshift", "ifftshift"):
        for dtype in NUMBERS:
            x = inputs.array(dtypes=dtype)
            yield Case(
                f"numpy.fft.{name}", (x,), {"axes": inputs.axis(x.ndim) if x.ndim and inputs.chance(0.5) else None}
            )
        for axes in ((0, 1), (0, -1), (), 0, -2, 5, [0]):
            yield Case(f"numpy.fft.{name}", (inputs.array((2, 3, 5), "float32"), axes))
        for x in ([1, 2, 3], Weak(2)):
            yield Case(f"numpy.fft.{name}", (x,))
