"""Parts of complex numbers."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import neg
from nxjax.ops.base import Elementwise, LinearOp, NDArray, check_dtype, equal_dtypes, equal_shapes, zeros
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType


class _Part(LinearOp, Elementwise):
    makes_nan = False
    allowed = dtypes.COMPLEX
    gives = " (giving floats)"

    def infer(self, x: ArrayType, /) -> ArrayType:
        check_dtype(self, self.allowed, x)
        return ArrayType(x.shape, dtypes.real_part(x.dtype), x.weak)


@final
class Real(_Part):
    """Real part of a complex number"""

    name = "real"
    example = "jnp.array([1 + 2j, 3 - 4j])", "Array([1., 3.], dtype=float32)"

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(x.real)

    def transpose(self, ct: Array, x: UndefinedPrimal, /) -> Tangents:
        return (complex(ct, zeros(ct.type)),)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        return b.op("stablehlo.real", (x,), out)


@final
class Imag(_Part):
    """Imaginary part of a complex number"""

    name = "imag"
    example = "jnp.array([1 + 2j, 3 - 4j])", "Array([ 2., -4.], dtype=float32)"

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(x.imag)

    def transpose(self, ct: Array, x: UndefinedPrimal, /) -> Tangents:
        # Transposes are with respect to the bilinear pairing, without conjugation: Im(z) = Re(-i z).
        return (complex(zeros(ct.type), neg(ct)),)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        return b.op("stablehlo.imag", (x,), out)


@final
class Complex(LinearOp, Elementwise):
    """x + iy of two real operands"""

    name = "complex"
    makes_nan = False
    allowed = frozenset((dtypes.float32, dtypes.float64))
    arguments = "x y"
    gives = " (giving complex numbers)"
    example = "jnp.array([1.0, 2.0]), jnp.array([-1.0, 0.0])", "Array([1.-1.j, 2.+0.j], dtype=complex64)"

    def infer(self, x: ArrayType, y: ArrayType, /) -> ArrayType:
        equal_shapes(self, x, y)
        equal_dtypes(self, x, y)
        check_dtype(self, frozenset((dtypes.float32, dtypes.float64)), x)
        return ArrayType(x.shape, dtypes.complex_of(x.dtype), x.weak and y.weak)

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        out = np.empty(x.shape, dtypes.complex_of(x.dtype))
        out.real, out.imag = x, y
        return out

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Tangents:
        return (
            real(ct) if isinstance(x, UndefinedPrimal) else None,
            neg(imag(ct)) if isinstance(y, UndefinedPrimal) else None,
        )

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        return b.op("stablehlo.complex", (x, y), out)


@final
class Conj(LinearOp, Elementwise):
    """Complex conjugate; of a real operand, the complex number itself. Linear over the reals."""

    name = "conj"
    makes_nan = False
    allowed = dtypes.COMPLEX | {dtypes.float32, dtypes.float64}
    gives = " (giving complex numbers)"
    example = "jnp.array([1 + 2j, 3 - 4j])", "Array([1.-2.j, 3.+4.j], dtype=complex64)"

    def infer(self, x: ArrayType, /) -> ArrayType:
        check_dtype(self, self.allowed, x)
        return ArrayType(x.shape, dtypes.complex_of(x.dtype), x.weak)

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(np.conj(x)).astype(dtypes.complex_of(x.dtype))

    def transpose(self, ct: Array, x: UndefinedPrimal, /) -> Tangents:
        return (real(ct),) if x.dtype in dtypes.FLOAT else (conj(ct),)

    def expand(self, x: Array, /) -> Array:
        return complex(x, zeros(x.type)) if x.dtype in dtypes.FLOAT else complex(real(x), neg(imag(x)))


real = Real()
imag = Imag()
complex = Complex()
conj = Conj()
