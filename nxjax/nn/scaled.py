"""Products of block-scaled operands: `scaled_matmul`, and `scaled_dot_general`, which quantizes its operands itself.

The format is one of the OCP Microscaling specification: mxfp8 has a power of two for 32 elements of float8_e4m3fn.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import ml_dtypes
import numpy

from nxjax import numpy as np
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lax.algebra import dot_general
from nxjax.lax.products import block_scaled
from nxjax.numpy.documented import example
from nxjax.ops.dot import DotNumbersLike
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.transforms.custom_vjp import custom_vjp

_LARGEST: Final = float(ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max)


@dataclass(frozen=True)
class BlockScaleConfig:
    """How one operand of `scaled_dot_general` is quantized; `get_scaled_dot_general_config` makes one."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any = None
    infer_only: bool = False


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike | None = np.float32,
) -> Array:
    """Batched products over the last dimension of both operands, each element times the scale of its block.

    Args:
        lhs: ``[b, m, k]``.
        rhs: ``[b, n, k]``.
        lhs_scales: ``[b, m, k / block]``.
        rhs_scales: ``[b, n, k / block]``.
        preferred_element_type: of the result ``[b, m, n]``.

    Raises:
        ShapeError: the operands do not fit.

    >>> one = nx.ones((1, 1, 1))
    >>> scaled_matmul(nx.array([[[1, 2, 3]]]), nx.array([[[4, 5, 6]]]), one / 2, one / 2).tolist()
    [[[8.0]]]
    """
    given = (lhs, rhs, lhs_scales, rhs_scales)
    shapes = [numpy.shape(x) for x in given]
    if any(len(s) != 3 for s in shapes):
        raise ShapeError("scaled_matmul: operands and scales have 3 dimensions", got=shapes)
    a, b, s, t = shapes
    if a[0] != b[0] or a[2] != b[2] or s[:2] != a[:2] or t[:2] != b[:2] or s[2] != t[2] or not s[2] or a[2] % s[2]:
        raise ShapeError(
            "scaled_matmul: operands do not fit",
            got=shapes,
            expected="[b, m, k], [b, n, k], [b, m, k / block] and [b, n, k / block]",
        )
    x = block_scaled(as_value(lhs, "scaled_matmul"), lhs_scales, (2,), "float32")
    y = block_scaled(as_value(rhs, "scaled_matmul"), rhs_scales, (2,), "float32")
    return dot_general(x, y, (((2,), (2,)), ((0,), (0,)))).astype(preferred_element_type)


@example('"mxfp8"', "32", then=".block_size", raises="ParameterError: another mode.")
def get_scaled_dot_general_config(
    mode: Literal["nvfp4", "mxfp8"], global_scale: ArrayLike | None = None
) -> BlockScaleConfig:
    """How `scaled_dot_general` quantizes an operand.

    Args:
        mode: "mxfp8". JAX's "nvfp4" needs 4-bit floats, which arrays here do not have.
        global_scale: of "nvfp4".
    """
    if mode != "mxfp8":
        raise ParameterError("get_scaled_dot_general_config: mode", got=repr(mode), expected="'mxfp8'")
    return BlockScaleConfig("mxfp8", 32, dtypes.float8_e4m3fn, numpy.dtype(ml_dtypes.float8_e8m0fnu))


def _quantized(x: Array, config: BlockScaleConfig) -> tuple[Array, Array]:
    """float8 elements of ``[b, m, k]``, and their scales: powers of two in float32, rounded up."""
    block = config.block_size
    if x.shape[-1] < block or x.shape[-1] % block:
        raise ShapeError("scaled_dot_general: what is contracted has whole blocks", got=x.type, expected=f"{block}s")
    blocks = x.reshape((*x.shape[:-1], x.shape[-1] // block, block))
    wanted = (np.max(np.abs(blocks), -1) / _LARGEST).astype("float32")
    mantissa, exponent = np.frexp(np.maximum(wanted, 2.0**-126))
    scale = np.ldexp(np.float32(1), np.where(mantissa == 0.5, exponent - 1, exponent))
    scale = np.where(wanted == 0, np.float32(2.0**-127), scale)
    shared = scale.astype(x.dtype)[..., None]
    cut = np.clip(blocks / shared, -_LARGEST, _LARGEST).astype(config.data_type)
    return cut.reshape(x.shape), scale


def _flat(x: Array, contract: Sequence[int], batch: Sequence[int]) -> tuple[Array, tuple[int, ...]]:
    """``x`` as [batch, free, contracted], and the free sizes."""
    free = [d for d in range(x.ndim) if d not in (*contract, *batch)]
    sizes = tuple(x.shape[d] for d in free)
    count = [int(numpy.prod([x.shape[d] for d in dims], dtype=int)) for dims in (batch, free, contract)]
    return np.transpose(x, (*batch, *free, *contract)).reshape(count), sizes


def _product(x: Array, y: Array, numbers: Any, out: Any, configs: Sequence[BlockScaleConfig]) -> Array:
    (xc, yc), (xb, yb) = numbers
    (a, free_x), (b, free_y) = _flat(x, xc, xb), _flat(y, yc, yb)
    (qa, sa), (qb, sb) = _quantized(a, configs[0]), _quantized(b, configs[1])
    shape = (*(x.shape[d] for d in xb), *free_x, *free_y)
    return scaled_matmul(qa, qb, sa, sb, out).reshape(shape)


def scaled_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotNumbersLike,
    preferred_element_type: DTypeLike | None = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: Literal["cudnn"] | None = None,
) -> Array:
    """`lax.dot_general` of operands that are quantized block by block; so are those of its gradients.

    Args:
        lhs, rhs: float arrays.
        dimension_numbers: as in `lax.dot_general`.
        preferred_element_type: float32, bfloat16 or float16.
        configs: of ``lhs``, ``rhs`` and cotangents; None does not quantize.
        implementation: JAX's, deprecated there.

    Raises:
        ShapeError: contracted elements do not fill whole blocks.
        DtypeError: another ``preferred_element_type``.

    >>> configs = [get_scaled_dot_general_config("mxfp8")] * 3
    >>> float(scaled_dot_general(nx.ones((1, 32)), nx.ones((1, 32)), (((1,), (1,)), ((), ())), configs=configs)[0, 0])
    32.0
    """
    if implementation is not None:
        warnings.warn("scaled_dot_general: implementation is ignored", DeprecationWarning, stacklevel=2)
    (lc, rc), (lb, rb) = dimension_numbers
    numbers = ((tuple(lc), tuple(rc)), (tuple(lb), tuple(rb)))
    if configs is None:
        return dot_general(lhs, rhs, numbers, preferred_element_type=preferred_element_type)
    out = dtypes.as_dtype(preferred_element_type)
    if out not in (dtypes.float32, dtypes.bfloat16, dtypes.float16):
        raise DtypeError("scaled_dot_general: preferred_element_type", got=out, expected="f32, bf16 or f16")
    x, y = as_value(lhs, "scaled_dot_general"), as_value(rhs, "scaled_dot_general")
    return _scaled(x, y, numbers, out, tuple(configs))


_scaled: Any = custom_vjp(_product, nondiff_argnums=(2, 3, 4))


def _forward(x: Array, y: Array, numbers: Any, out: Any, configs: Any) -> tuple[Array, Any]:
    return _product(x, y, numbers, out, configs), (x, y)


def _backward(numbers: Any, out: Any, configs: Any, kept: Any, ct: Array) -> tuple[Array, Array]:
    x, y = kept
    (xc, yc), (xb, yb) = numbers
    n, free_x, free_y = len(xb), x.ndim - len(xb) - len(xc), y.ndim - len(yb) - len(yc)
    batch, rows = tuple(range(n)), tuple(range(n, n + free_x))
    columns = tuple(range(n + free_x, n + free_x + free_y))

    def one(u: Array, v: Array, uc: Any, ub: Any, vc: Any, vb: Any, over: Any, config: Any) -> Array:
        kept_v = [d for d in range(v.ndim) if d not in (*vc, *vb)]
        found = _product(ct, v, ((over, kept_v), (batch, vb)), out, (configs[2], config))
        free = [d for d in range(u.ndim) if d not in (*uc, *ub)]
        order = [*ub, *free, *(uc[i] for i in sorted(range(len(vc)), key=lambda i: vc[i]))]
        return np.transpose(found, tuple(int(i) for i in numpy.argsort(order))).astype(u.dtype)

    return one(x, y, xc, xb, yc, yb, columns, configs[1]), one(y, x, yc, yb, xc, xb, rows, configs[0])


_scaled.defvjp(_forward, _backward)
