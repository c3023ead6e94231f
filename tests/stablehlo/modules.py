"""Modules written out, and what XLA computes from them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.backends.xla.portable import legalized
from nxjax.interop import from_stablehlo
from nxjax.vendors.stablehlo import host


def T(*shape: int, e: str = "f32") -> str:
    """``T(3, 4)`` is ``tensor<3x4xf32>``."""
    return "tensor<" + "".join(f"{n}x" for n in shape) + e + ">"


def main(body: str, ins: Sequence[str], outs: Sequence[str]) -> str:
    arguments = ", ".join(f"%arg{i}: {t}" for i, t in enumerate(ins))
    return f"func.func public @main({arguments}) -> ({', '.join(outs)}) {{\n{body}\n}}"


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: str = "int32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def agree(text: str, *args: Any, tolerance: float = 1e-5) -> Any:
    """The imported function gives XLA's numbers; gives the function."""
    f = from_stablehlo(text, trusted=True)
    ys = [y.numpy() for y in f.flat(args)]
    expected = host(str(legalized(text)), f.program)(args)
    assert len(ys) == len(expected)
    for y, z in zip(ys, expected, strict=True):
        assert y.dtype == z.dtype and y.shape == z.shape
        if y.dtype.kind in "biu":
            np.testing.assert_array_equal(y, z)
        else:
            np.testing.assert_allclose(y.astype(np.float64), z.astype(np.float64), tolerance, tolerance)
    return f


def ops_of(f: Any) -> list[str]:
    """Names of all ops in a function's program, those in programs it holds included."""

    def walk(program: Any) -> list[str]:
        return [n for e in program.equations for n in (e.op.name, *(m for p in e.programs() for m in walk(p)))]

    return walk(f.program)
