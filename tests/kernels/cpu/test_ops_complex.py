"""Complex numbers in kernels: bit for bit as `eval` where NumPy rounds one way, within last places elsewhere."""

import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.ops import complex as complex_ops
from nxjax.trace import dtypes
from tests.kernels.cpu.elementwise import grid
from tests.kernels.cpu.running import ISAS, run
from tests.kernels.cpu.test_ops import BINARY, REAL, check, kernel_of, result

assert complex_ops.real  # its ops are known by name
COMPLEX_CASES = ["add", "sub", "mul", "div", "neg", "square", "eq", "ne", "real", "imag", "conj", "copy"]


@pytest.mark.parametrize("isa_name", ISAS)
def test_complex(isa_name):
    rng = np.random.default_rng(4)
    for dtype, part in ((dtypes.complex64, dtypes.float32), (dtypes.complex128, dtypes.float64)):
        x, y = ((rng.standard_normal(500) + 1j * rng.standard_normal(500)).astype(dtype) for _ in range(2))
        y[::5] = y[::5].real
        y[1::5] = 1j * y[1::5].imag
        y[7], y[8] = 0, x[8]
        for name in COMPLEX_CASES:
            xs = [x, y] if name in BINARY else [x]
            if name in ("mul", "square") and not isa.named(isa_name).fma:
                continue  # NumPy's products here have a fused multiplication
            check(name, (dtype,) * len(xs), result(name, (dtype,) * len(xs), {}), {}, xs, isa_name)
        check("complex", (part, part), dtype, {}, [x.real.copy(), y.real.copy()], isa_name)
        check("conj", (part,), dtype, {}, [x.real.copy()], isa_name)
        check("select_n", (dtypes.bool_, dtype, dtype), dtype, {}, [x.real > 0, x, y], isa_name)
        for new in (*REAL, *dtypes.COMPLEX):
            check("convert_element_type", (dtype,), new, {"dtype": new}, [grid((dtype,))[0]], isa_name)
            check("convert_element_type", (new,), dtype, {"dtype": dtype}, grid((new,), 200), isa_name)


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", dtypes.COMPLEX, ids=str)
def test_quotients_of_numbers_without_a_size(isa_name, dtype):
    """Zeros, infinities and NaN in any part of both; bit for bit, but for what NaN is."""
    parts = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]
    numbers = np.array([complex(a, b) for a in parts for b in parts], dtype)
    x, y = (v.ravel().copy() for v in np.meshgrid(numbers, numbers))
    check("div", (dtype,) * 2, dtype, {}, [x, y], isa_name)


@pytest.mark.parametrize("isa_name", ISAS)
def test_complex_within_last_places(isa_name):
    rng = np.random.default_rng(5)
    for dtype in (dtypes.complex64, dtypes.complex128):
        x = (rng.standard_normal(500) + 1j * rng.standard_normal(500)).astype(dtype)
        x = np.concatenate([x * 30, x, np.array([0, 1j, -1, complex(0, -0.0), 1e-30, complex(np.inf, 1)], dtype)])
        x = np.append(x, np.array([complex(np.nan, np.inf), complex(-np.inf, np.nan), complex(1, np.nan)], dtype))
        for name in ("abs", "exp", "mul", "square"):
            xs = [x, x[::-1].copy()] if name == "mul" else [x]
            out = result(name, (dtype,) * len(xs), {})
            kernel = kernel_of(name, (dtype,) * len(xs), out, {}, isa_name, len(x))
            with np.errstate(all="ignore"):
                (got,), (want,) = run(kernel, *xs, name=isa_name), kernel.meaning(*xs)
            eps = float(np.finfo(dtype).eps)
            finite = np.isfinite(want)
            bound = 8 * eps * np.maximum(np.abs(want[finite]), 1e-3)
            assert (np.abs(got[finite] - want[finite]) <= bound).all(), name
            if name in ("abs", "exp"):
                assert (np.isinf(got) == np.isinf(want)).all() and (np.isnan(got) == np.isnan(want)).all(), name


@pytest.mark.parametrize("isa_name", ISAS)
def test_exp_where_one_part_has_an_end(isa_name):
    """e^a may be infinite, and its product with a small sine is not."""
    for dtype, most, wider in ((dtypes.complex64, 88, np.complex128), (dtypes.complex128, 709, np.clongdouble)):
        part = dtypes.real_part(dtype)
        b = np.concatenate([v * 10.0 ** np.arange(-330 if most > 88 else -46, 1, 3) for v in (1, -1.3)]).astype(part)
        a = np.array([most - 0.5, most + 0.5, most + 0.9, most + 10, 1.5 * most, 2 * most, 3 * most, np.inf], part)
        x = np.empty((a.size, b.size), dtype)
        x.real, x.imag = a[:, None], b
        x = x.reshape(-1)
        kernel = kernel_of("exp", (dtype,), dtype, {}, isa_name, len(x))
        with np.errstate(all="ignore"):
            (got,) = run(kernel, x, name=isa_name)
            want = np.exp(x.astype(wider))
            for y, w in ((got.real, want.real), (got.imag, want.imag)):
                rounded = w.astype(part)
                same = np.isinf(y) & np.isinf(rounded) & (np.sign(y) == np.sign(rounded))
                assert (same | (np.abs(y - rounded) <= 8 * np.spacing(np.abs(rounded)))).all()
