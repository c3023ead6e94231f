"""Every device has code for the primitives; what else it has a row of its own for, it has for a reason."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.ipu import expression_ops
from nxjax.ops import vocabulary
from nxjax.ops.base import Elementwise
from nxjax.ops.primitives import DECOMPOSED, PRIMITIVES, decomposition
from nxjax.ops.quant_base import QuantizedOp
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

# Why an op has a row of its own in the table of some device, and is not made of primitives there.
OWN = {
    # One instruction or vertex, one sum of powers, or a loop that ends when the digits are there.
    "faster": """
        bessel_i0e bessel_i1e ceil clz copy population_count random_fold_in random_seed reduce_precision tan
        igamma igamma_grad_a igammac polygamma random_gamma_grad regularized_incomplete_beta zeta""",
    # In one piece nothing cancels, overflows or is rounded half way.
    "more accurate": """
        acos acosh asin asinh atan atanh cbrt cosh digamma erf erf_inv erfc exp2 lgamma logistic sinh tanh""",
    # Parts; and of two squares that are too large, the difference.
    "complex numbers": "complex imag real square",
}
REASONS = {name: reason for reason, names in OWN.items() for name in names.split()}
# Steps of quantized programs.
QUANTIZED = {name for file in ("ops_quant", "ops_quant_dot", "ops_quant_rows") for name in ops.MODULES[file]}
CPU = frozenset().union(*ops.MODULES.values()) - QUANTIZED - {"threefry"}
IPU = frozenset(expression_ops.RULES)
EVERY = vocabulary.every()
REAL = sorted(dtypes.NUMERIC - dtypes.COMPLEX, key=str)
PARAMS = {"round": {"rounding_method": 1}, "integer_pow": {"y": 3}, "power": {"y": 2.5}}
CONVERSIONS = ("convert_element_type", "bitcast_convert_type")


def calls(names, known):
    """Of every op and dtype that it takes: name, parameters, operands' dtypes and the result's."""
    for name in sorted(names):
        op = EVERY[name]
        for dtype in filter(known, REAL):
            params = {"dtype": dtype} if name in CONVERSIONS else PARAMS.get(name, {})
            for ins in ((dtype,), (dtype,) * 2, (dtypes.bool_, dtype, dtype), (dtype,) * 3):
                try:
                    out = op.infer(*(ArrayType((3,), d) for d in ins), **params).dtype
                except (TypeError, nx.errors.NxError):
                    continue
                yield name, params, ins, out
                break


def test_there_are_few():
    assert len(PRIMITIVES) <= 40
    assert not PRIMITIVES & DECOMPOSED
    assert not [name for name in PRIMITIVES if EVERY[name].has("expand")]


def test_the_cpu_has_all():
    assert {call[0] for call in calls(PRIMITIVES, convert.known)} == PRIMITIVES
    for name, params, ins, out in calls(PRIMITIVES | DECOMPOSED, convert.known):
        assert not ops.supported(name, params, ins, out), (name, ins)


def test_tiles_have_all():
    held = lambda dtype: dtype.name in expression_ops.TYPES
    for name, params, ins, out in calls(PRIMITIVES | DECOMPOSED, held):
        assert expression_ops.supported(name, ins, out, params) == held(out), (name, ins)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_stablehlo_has_all(name):
    """Each in a few operations: integers are guarded, and a sign is put back."""
    for _, params, ins, _ in calls({name}, lambda dtype: True):
        xs = [nx.ShapeDtypeStruct((3,), d) for d in ins]
        text = nx.jit(lambda *xs, p=params: EVERY[name](*xs, **p)).lower(*xs).as_text(dialect="stablehlo")
        assert text.count(" = stablehlo.") <= 7, text


def test_rows_of_a_device_have_a_reason():
    assert set(REASONS) == (CPU | IPU) - PRIMITIVES
    assert not {*REASONS} & PRIMITIVES


def test_every_other_op_is_made_of_them():
    """By its decomposition, or by rows where there is none."""
    for name, op in EVERY.items():
        if isinstance(op, Elementwise) and not isinstance(op, QuantizedOp) and name not in PRIMITIVES:
            assert op.has("expand") or name in REASONS, name


def test_decompositions_end_in_primitives():
    def leaves(name, ins, params):
        parts = decomposition(name, ins, params)
        if parts is None:
            return {name}
        return set().union(*(leaves(e.op.name, [a.type.dtype for a in e.inputs], e.params) for e in parts.equations))

    for name, params, ins, _ in calls(DECOMPOSED, lambda dtype: True):
        assert leaves(name, ins, params) <= PRIMITIVES | {"complex", "imag", "real"}, name


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_one_step_of_a_program(dtype):
    """They are one in texts, and one vertex."""
    f = lambda x: nx.lax.clamp(dtype(-1), nx.numpy.square(x), dtype(2))
    x = np.array([-3, 0, 1, 2], dtype)
    text = nx.jit(f).lower(x).as_text(dialect="tape")
    assert "square" in text and "clamp" in text
    model = nx.compile(f, target="ipu-bow")(x)
    np.testing.assert_array_equal(model(x), f(x))
