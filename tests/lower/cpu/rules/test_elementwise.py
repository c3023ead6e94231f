"""Rules of elementwise ops: exact ones bit by bit, at sizes with and without remainders."""

import numpy as np
import pytest

from nxjax.kernels.cpu import ops
from nxjax.lower.cpu.registry import rule_of
from nxjax.ops import vocabulary
from nxjax.ops.arithmetic import add, div, max, mul, sqrt
from nxjax.ops.compare import lt
from nxjax.ops.convert import convert_element_type
from nxjax.ops.primitives import DECOMPOSED
from nxjax.ops.select import clamp, select_n
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, hosted, same, tape

DTYPES = [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int8, dtypes.uint32, dtypes.int64]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-60, 60, shape).astype(dtype)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (65,), (0, 4), (7, 33)], ids=str)
def test_exact(isa, dtype, shape):
    x, y = numbers(shape, dtype), numbers(shape, dtype, 1)
    for op in (add, mul, div, max, lt):
        same(op, x, y, name=isa)
    same(select_n, x < y, x, y, name=isa)
    same(clamp, np.asarray(-3).astype(dtype), x, np.asarray(5).astype(dtype), name=isa)
    for other in DTYPES:
        same(convert_element_type, x, dtype=other, name=isa)


@pytest.mark.parametrize("isa", ISAS)
def test_special_numbers(isa):
    x = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, 1])
    a, b = (v.ravel().copy() for v in np.meshgrid(x, x))
    for op in (add, mul, div, max, lt):
        same(op, a, b, name=isa)
    same(sqrt, a, name=isa)


def test_every_op_with_code_has_a_rule():
    for name in ops.NAMES & vocabulary.every().keys():
        assert (ops.entries(name) or name in DECOMPOSED) and rule_of(name) is not None, name


def test_what_registers_do_not_hold_runs_by_its_meaning():
    x = np.ones(3, np.complex64)
    program = tape(add, x, x)
    assert hosted(program) in ([], ["add"])
