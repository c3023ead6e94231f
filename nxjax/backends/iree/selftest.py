"""What a target has to compute correctly before anybody is given a result of it, and which dtypes it turns out to have.

Small programs of the kinds that come out wrong for a wrong subgroup size or a wrong dot product instruction: int8
products, sums across rows, columns and everything, convolutions, comparisons, reductions of two kinds in one kernel.
NumPy's answers are the measure. Knows StableHLO's text, no compiler and no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Test:
    """A function of a module, its arguments, and what it has to give.

    Attributes:
        module: which text it stands in: ``base``, or the dtype that it is about.
        inputs: its arguments.
        expected: NumPy's answer.
        tolerance: absolute; 0: bit for bit.
    """

    name: str
    module: str
    inputs: tuple[NDArray, ...]
    expected: NDArray
    tolerance: float = 0.0

    def judge(self, given: NDArray | None) -> str:
        """What is wrong with an answer; empty where it is right."""
        if given is None:
            return f"{self.name}: no answer"
        if given.shape != self.expected.shape:
            return f"{self.name}: shape {given.shape}"
        a, b = np.asarray(given), self.expected
        if self.tolerance == 0.0:
            wrong = int(np.count_nonzero(a != b))
            return f"{self.name}: {wrong} of {b.size} elements are wrong" if wrong else ""
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        error = float(np.abs(a.astype(wide) - b.astype(wide)).max()) if b.size else 0.0
        return "" if error <= self.tolerance else f"{self.name}: off by {error:.3g}"


def _function(name: str, arguments: tuple[str, ...], body: str, result: str) -> str:
    given = ", ".join(f"%arg{i}: tensor<{t}>" for i, t in enumerate(arguments))
    return f"  func.func public @{name}({given}) -> tensor<{result}> {{\n{body}    return %y : tensor<{result}>\n  }}\n"


def _dot(a: str, b: str, y: str) -> str:
    return (
        f"    %y = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] "
        f": (tensor<{a}>, tensor<{b}>) -> tensor<{y}>\n"
    )


def _reduce(op: str, init: str, shape: str, dims: str, y: str, element: str) -> str:
    return (
        f"    %c = stablehlo.constant dense<{init}> : tensor<{element}>\n"
        f"    %y = stablehlo.reduce(%arg0 init: %c) applies stablehlo.{op} across dimensions = [{dims}] "
        f": (tensor<{shape}>, tensor<{element}>) -> tensor<{y}>\n"
    )


def _line(op: str, x: str, y: str, operands: str = "%arg0, %arg1") -> str:
    return f"    %y = stablehlo.{op} {operands} : (tensor<{x}>, tensor<{x}>) -> tensor<{y}>\n"


_CONV: Final = (
    "    %y = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
    "window = {stride = [2, 2], pad = [[0, 1], [0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
    ": (tensor<1x16x16x8xf32>, tensor<3x3x8x16xf32>) -> tensor<1x8x8x16xf32>\n"
)


def _matmul(name: str, a: str, b: str, y: str) -> str:
    return _function(name, (a, b), _dot(a, b, y), y)


def _reduced(name: str, op: str, init: str, x: str, dims: str, y: str) -> str:
    return _function(name, (x,), _reduce(op, init, x, dims, y, x.rpartition("x")[2]), y)


def _elementwise(name: str, op: str, x: str, y: str = "") -> str:
    return _function(name, (x, x), _line(op, x, y or x), y or x)


def _argmax(name: str, x: str, dims: str, axis: int, y: str) -> str:
    """The first of the largest along the last axis: reductions of floats and of integers in one kernel."""
    mask, places, value, index = f"{x}xi1", f"{x}xi32", f"{y}xf32", f"{y}xi32"
    body = (
        "    %low = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
        f"    %m = stablehlo.reduce(%arg0 init: %low) applies stablehlo.maximum across dimensions = [{axis}] "
        f": (tensor<{x}xf32>, tensor<f32>) -> tensor<{value}>\n"
        f"    %b = stablehlo.broadcast_in_dim %m, dims = [{dims}] : (tensor<{value}>) -> tensor<{x}xf32>\n"
        f"    %e = stablehlo.compare EQ, %arg0, %b, FLOAT : (tensor<{x}xf32>, tensor<{x}xf32>) -> tensor<{mask}>\n"
        f"    %i = stablehlo.iota dim = {axis} : tensor<{places}>\n"
        f"    %none = stablehlo.constant dense<99> : tensor<{places}>\n"
        f"    %s = stablehlo.select %e, %i, %none : tensor<{mask}>, tensor<{places}>\n"
        "    %high = stablehlo.constant dense<2147483647> : tensor<i32>\n"
        f"    %y = stablehlo.reduce(%s init: %high) applies stablehlo.minimum across dimensions = [{axis}] "
        f": (tensor<{places}>, tensor<i32>) -> tensor<{index}>\n"
    )
    return _function(name, (f"{x}xf32",), body, index)


_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "base": (
        _matmul("int8_matmul", "96x160xi8", "160x64xi8", "96x64xi32"),
        _matmul("int8_row", "1x160xi8", "160x64xi8", "1x64xi32"),
        _matmul("matmul", "64x96xf32", "96x48xf32", "64x48xf32"),
        _matmul("row", "1x512xf32", "512x256xf32", "1x256xf32"),
        _reduced("sum", "add", "0.0", "50000xf32", "0", "f32"),
        _reduced("row_sums", "add", "0.0", "64x256xf32", "1", "64xf32"),
        _reduced("column_sums", "add", "0.0", "64x32xf32", "0", "32xf32"),
        _reduced("largest", "maximum", "-2147483648", "33x70xi32", "1", "33xi32"),
        _function("convolution", ("1x16x16x8xf32", "3x3x8x16xf32"), _CONV, "1x8x8x16xf32"),
        _elementwise("less", "compare LT,", "37x5xf32", "37x5xi1"),
        _argmax("argmax", "5x24", "0", 1, "5"),
        _argmax("argmax_of_three", "3x7x16", "0, 1", 2, "3x7"),
    ),
    "float64": (_elementwise("float64", "divide", "65xf64"),),
    "int64": (_elementwise("int64", "multiply", "65xi64"),),
    "uint64": (_elementwise("uint64", "multiply", "65xui64"),),
    "float16": (_matmul("float16", "32x48xf16", "48x16xf16", "32x16xf16"),),
    "bfloat16": (_elementwise("bfloat16", "add", "65xbf16"),),
    "complex64": (_elementwise("complex64", "multiply", "65xcomplex<f32>"),),
}

# Dtypes that a target has if it passes the base; the others have a test of their own.
CORE: Final = frozenset(
    (
        dtypes.bool_,
        dtypes.int8,
        dtypes.int16,
        dtypes.int32,
        dtypes.uint8,
        dtypes.uint16,
        dtypes.uint32,
        dtypes.float32,
    )
)
TRIED: Final = tuple(name for name in _TEXTS if name != "base")


def text(module: str) -> str:
    """The StableHLO module of the base, or of a dtype's test."""
    return f"module @{module} {{\n{''.join(_TEXTS[module])}}}\n"


def _conv(x: NDArray, k: NDArray) -> NDArray:
    padded = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    return np.einsum("bhwcij,ijco->bhwo", windows.astype(np.float64), k.astype(np.float64)).astype(np.float32)


def tests() -> list[Test]:
    """All of them, on numbers from a fixed seed."""
    r = np.random.default_rng(7)
    real = lambda *shape: r.standard_normal(shape).astype(np.float32)
    byte = lambda *shape: r.integers(-128, 128, shape).astype(np.int8)
    product = lambda a, b: (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    exact = lambda a: a.astype(np.float64)
    a8, b8 = byte(96, 160), byte(160, 64)
    a, b, v, w = real(64, 96), real(96, 48), real(1, 512), real(512, 256)
    s, rows, columns = real(50000), real(64, 256), real(64, 32)
    whole = r.integers(-(2**31), 2**31, (33, 70)).astype(np.int32)
    image, kernel, p, q = real(1, 16, 16, 8), real(3, 3, 8, 16), real(37, 5), real(37, 5)
    lines, cube = real(5, 24), real(3, 7, 16)
    f64 = r.standard_normal((2, 65))
    i64 = r.integers(-(2**31), 2**31, (2, 65))
    u64 = r.integers(0, 2**64, (2, 65), np.uint64)
    f16 = (real(32, 48).astype(np.float16), real(48, 16).astype(np.float16))
    bf16 = real(2, 65).astype(dtypes.bfloat16)
    c64 = (real(2, 65) + 1j * real(2, 65)).astype(np.complex64)
    single = lambda x: x.astype(np.float32)
    half = (exact(f16[0]) @ exact(f16[1])).astype(np.float16)
    return [
        Test("int8_matmul", "base", (a8, b8), product(a8, b8)),
        Test("int8_row", "base", (a8[:1], b8), product(a8[:1], b8)),
        Test("matmul", "base", (a, b), single(exact(a) @ exact(b)), 2e-4),
        Test("row", "base", (v, w), single(exact(v) @ exact(w)), 5e-4),
        Test("sum", "base", (s,), single(exact(s).sum()), 5e-2),
        Test("row_sums", "base", (rows,), single(exact(rows).sum(1)), 2e-4),
        Test("column_sums", "base", (columns,), single(exact(columns).sum(0)), 1e-4),
        Test("largest", "base", (whole,), whole.max(1)),
        Test("convolution", "base", (image, kernel), _conv(image, kernel), 2e-4),
        Test("less", "base", (p, q), p < q),
        Test("argmax", "base", (lines,), lines.argmax(1).astype(np.int32)),
        Test("argmax_of_three", "base", (cube,), cube.argmax(2).astype(np.int32)),
        Test("float64", "float64", (f64[0], f64[1]), f64[0] / f64[1], 1e-10 * float(np.abs(f64[0] / f64[1]).max())),
        Test("int64", "int64", (i64[0], i64[1]), i64[0] * i64[1]),
        Test("uint64", "uint64", (u64[0], u64[1]), u64[0] * u64[1]),
        Test("float16", "float16", f16, half, 0.1),
        Test("bfloat16", "bfloat16", (bf16[0], bf16[1]), bf16[0] + bf16[1], 0.04),
        Test("complex64", "complex64", (c64[0], c64[1]), c64[0] * c64[1], 1e-4),
    ]
