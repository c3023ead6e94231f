"""Random convolutions, windows and quantized ops, run through the CPU compiler for each instruction set."""

import ml_dtypes
import numpy as np

from nxjax.config import config
from nxjax.errors import NxError
from nxjax.kernels.cpu import isa
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.quant_grid import Grid
from nxjax.trace.types import ArrayType
from tests.lower.cpu.rules.equal import results

# AVX-512 without VNNI is a path of its own for products of bytes.
NAMES = (*isa.possible(), *(["avx512-base"] if "avx512" in isa.possible() else []))
DTYPES = (
    np.float32, np.float64, np.int8, np.int32, ml_dtypes.bfloat16, np.float16, np.int16, np.uint8, np.int64
)  # fmt: skip
TOLERANCE = {2: (2e-2, 0.1), 4: (1e-5, 1e-4), 8: (1e-12, 1e-11)}


def compiled(op, *xs, name, **params):
    """The one result of machine code, or None where the op refuses the case."""
    try:
        op.infer(*(ArrayType(x.shape, x.dtype) for x in xs), **params)
    except NxError:
        return None
    with config.using(cpu_isa=name):
        return results(op, *xs, name=name, **params)[0]


def close(y, wanted, exact):
    """Integers are equal; floats as near as the order of a sum allows."""
    assert y.shape == wanted.shape
    assert y.dtype == wanted.dtype
    if exact or wanted.dtype.kind in "iu":
        np.testing.assert_array_equal(y, wanted)
    else:
        rtol, atol = TOLERANCE[wanted.dtype.itemsize]
        np.testing.assert_allclose(y.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)


def numbers(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(-120 if dtype.kind == "i" else 0, 120, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def placed(values, spec):
    """``values`` where ``spec`` puts them."""
    found = [0] * len(spec)
    for v, i in zip(values, spec, strict=True):
        found[i] = int(v)
    return tuple(found)


def geometry(rng, dims):
    """Strides, padding, dilations of ``dims`` spatial dimensions."""
    return {
        "window_strides": tuple(map(int, rng.integers(1, 4, dims))),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (dims, 2))),
        "lhs_dilation": tuple(map(int, rng.choice([1, 1, 1, 2, 3], dims))),
        "rhs_dilation": tuple(map(int, rng.choice([1, 1, 2, 3], dims))),
    }


def layouts(rng, dims):
    """Channels last as often as any other order."""
    if rng.random() < 0.5:
        last = (0, dims + 1, *range(1, dims + 1))
        return ConvDimensionNumbers(last, (dims + 1, dims, *range(dims)), last)
    return ConvDimensionNumbers(*(tuple(map(int, rng.permutation(dims + 2))) for _ in range(3)))


def convolution(rng, dtype):
    """Operands and parameters of any convolution."""
    dims, groups, batches = int(rng.integers(0, 4)), int(rng.choice([1, 1, 1, 2, 3])), 1
    if groups == 1:
        batches = int(rng.choice([1, 1, 2]))
    inputs = int(rng.choice([1, 2, 3, 5, 8, 20]))
    outputs = int(rng.choice([1, 2, 3, 16, 24, 33])) * groups * batches
    numbers_ = layouts(rng, dims)
    x = placed([int(rng.integers(1, 4)) * batches, inputs * groups, *rng.integers(1, 9, dims)], numbers_.lhs_spec)
    w = placed([outputs, inputs, *rng.integers(1, 5, dims)], numbers_.rhs_spec)
    params = {"feature_group_count": groups, "batch_group_count": batches, "dimension_numbers": numbers_}
    return numbers(rng, x, dtype), numbers(rng, w, dtype), {**geometry(rng, dims), **params}


def grid(rng, low=-8, high=0):
    dtype = np.dtype(rng.choice(["int8", "int8", "uint8"]))
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return Grid(dtype, float(np.float32(2.0 ** rng.uniform(low, high))), int(rng.integers(least, most + 1)))


def on_grid(rng, shape, grid):
    """Values on the grid, or any others."""
    least, most = grid.limits
    if rng.random() < 0.7:
        return grid.dequantize(rng.integers(least, most + 1, shape).astype(grid.dtype))
    return (rng.normal(size=shape) * grid.scale * 60).astype(np.float32)


def clamp(rng, grid):
    least, most = grid.limits
    if rng.random() < 0.5:
        return {"lo": least, "hi": most}
    lo, hi = sorted(map(int, rng.integers(least, most + 1, 2)))
    return {"lo": lo, "hi": hi}
