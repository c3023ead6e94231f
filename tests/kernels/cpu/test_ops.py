"""Every exact elementwise op on every dtype and instruction set gives what its `eval` gives, bit for bit."""

import warnings

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa, ops
from nxjax.ops import identity, select
from nxjax.trace import core, dtypes
from nxjax.trace.types import ArrayType
from tests.kernels.cpu.elementwise import OpKernel, grid, same
from tests.kernels.cpu.running import ISAS, run

# Imported so that their ops are known by name.
assert identity.copy and select.clamp
REAL = [d for d in dtypes._SHORT if d in dtypes.NUMERIC - dtypes.COMPLEX]
UNARY = ["neg", "square", "abs", "sign", "sqrt", "rsqrt", "floor", "ceil", "is_finite", "not", "population_count"]
UNARY += ["clz", "copy"]
BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "nextafter", "and", "or"]
BINARY += ["xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"]
CASES = [
    *((n, 1, {}) for n in UNARY),
    *((n, 2, {}) for n in BINARY),
    ("clamp", 3, {}),
    *(("round", 1, {"rounding_method": m}) for m in (0, 1)),
    *(("integer_pow", 1, {"y": y}) for y in (-3, -1, 0, 1, 2, 3, 7, 10)),
    *(("reduce_precision", 1, {"exponent_bits": e, "mantissa_bits": m}) for e, m in ((5, 2), (8, 7), (11, 52), (8, 0))),
]
IDS = [f"{n}-{'-'.join(map(str, p.values()))}" for n, _, p in CASES]


def result(name, ins, params):
    """The op's result dtype, or None where the op has no meaning for ``ins``."""
    try:
        return core.get_op(name).infer(*(ArrayType((2,), d) for d in ins), **params).dtype
    except Exception:
        return None


def kernel_of(name, ins, out, params, isa_name, n=0):
    return OpKernel(name, ins, out, n, isa.named(isa_name).lanes(4), **params)


def prepare(cases, isa_name):
    """Compile many at once, which is quicker than one by one."""
    engine(isa.named(isa_name)).addresses([kernel_of(*case, isa_name) for case in cases])


def check(name, ins, out, params, xs, isa_name):
    assert not ops.supported(name, params, ins, out), (name, ins)
    n = len(xs[0])
    kernel = kernel_of(name, ins, out, params, isa_name, n)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (got,) = run(kernel, *xs, name=isa_name, cuts=[min(n, 5)])
        (want,) = kernel.meaning(*xs)
    if not same(got, want):
        where = [i for i in range(n) if not same(got[i : i + 1], want[i : i + 1])][:8]
        listed = [([str(x[i]) for x in xs], str(got[i]), str(want[i])) for i in where]
        raise AssertionError((name, [d.name for d in ins], params, listed))


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize(("name", "arity", "params"), CASES, ids=IDS)
def test_equals_eval(name, arity, params, isa_name):
    cases = [((d,) * arity, out) for d in REAL if (out := result(name, (d,) * arity, params)) is not None]
    assert cases
    prepare([(name, ins, out, params) for ins, out in cases], isa_name)
    for ins, out in cases:
        check(name, ins, out, params, grid(ins, 1000), isa_name)


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("old", sorted(REAL, key=lambda d: d.name), ids=lambda d: d.name)
def test_conversion_equals_eval(old, isa_name):
    xs = grid((old,))
    prepare([("convert_element_type", (old,), new, {"dtype": new}) for new in REAL], isa_name)
    for new in REAL:
        check("convert_element_type", (old,), new, {"dtype": new}, xs, isa_name)
        if dtypes.bit_width(old) == dtypes.bit_width(new) and result("bitcast_convert_type", (old,), {"dtype": new}):
            check("bitcast_convert_type", (old,), new, {"dtype": new}, xs, isa_name)


@pytest.mark.parametrize("isa_name", ISAS)
def test_select(isa_name):
    prepare([("select_n", (dtypes.bool_, d, d), d, {}) for d in REAL], isa_name)
    prepare([("select_n", (dtypes.int32, d, d, d), d, {}) for d in REAL], isa_name)
    for dtype in REAL:
        check("select_n", (dtypes.bool_, dtype, dtype), dtype, {}, grid((dtypes.bool_, dtype, dtype), 500), isa_name)
        check("select_n", (dtypes.int32, *(dtype,) * 3), dtype, {}, grid((dtypes.int32, *(dtype,) * 3), 500), isa_name)


@pytest.mark.parametrize("isa_name", ISAS)
def test_division_near_whole_quotients(isa_name):
    """Quotients next to whole numbers, where a rounded one would be one too large."""
    rng = np.random.default_rng(3)
    for dtype in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.int64):
        info = dtypes.integer_info(dtype)
        y = (2.0 ** rng.uniform(0, info.bits - 1, 4000)).astype(np.int64)
        x = (int(info.max) // 2 // y * rng.integers(0, 3, 4000)) * y + rng.integers(-2, 3, 4000)
        x, y = x.astype(dtype), y.astype(dtype)
        x[::7] = info.max if dtype in dtypes.UNSIGNED else info.min
        for name in ("div", "rem"):
            check(name, (dtype, dtype), dtype, {}, [x, y], isa_name)
            check(name, (dtype, dtype), dtype, {}, [x, (0 - y).astype(dtype)], isa_name)
    for dtype in (dtypes.float16, dtypes.float32, dtypes.float64):
        y = np.exp(rng.uniform(-9, 9, 4000)).astype(dtype)
        with np.errstate(all="ignore"):
            x = (y * np.exp(rng.uniform(-1, 30, 4000)).round()).astype(dtype)
            x[1::2] = np.nextafter(x[1::2], dtype.type(0))
            x[2::4] *= -1
        check("rem", (dtype, dtype), dtype, {}, [x, y], isa_name)


def test_what_is_not_supported_says_why():
    assert "no elementwise code" in ops.supported("sort", {}, (dtypes.float32,), dtypes.float32)
    assert "no code for" in ops.supported("and", {}, (dtypes.float32,) * 2, dtypes.float32)
    params = {"dtype": dtypes.int8}
    assert "width" in ops.supported("bitcast_convert_type", params, (dtypes.float32,), dtypes.int8)


DIVISORS = (255.0, 3.0, -7.0, 0.1, 1e-3, 1e17, 1e-17, 1e-30, 64.0, 1.9999999, 0.99999994, -0.0, float("inf"))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_quotients_of_whole_numbers_and_constants(name, dtype):
    """They are made by products where there is fused multiply-add, and have the bits of a division."""
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, 4096, dtype, endpoint=True)
    x[:3] = info.min, 0, info.max
    with nx.config.using(cpu_isa=name, compile_first=True), np.errstate(all="ignore"):
        for d in DIVISORS:
            y = np.asarray(nx.jit(lambda x, d=d: x.astype(np.float32) / np.float32(d))(x))
            assert same(y, x.astype(np.float32) / np.float32(d)), d


@pytest.mark.parametrize("name", ISAS)
def test_quotients_of_float16_and_constants(name):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with nx.config.using(cpu_isa=name, compile_first=True), np.errstate(all="ignore"):
        for d in map(np.float16, (*DIVISORS[:5], 6e-8, 65504, *DIVISORS[-2:])):
            assert same(np.asarray(nx.jit(lambda x, d=d: x / d)(x)), x / d), d
