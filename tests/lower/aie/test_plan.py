"""Plans hold every limit of the array, say why, and refuse with the limit's name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import LoweringError, ParameterError
from nxjax.kernels.aie.chip import ARRAYS, NPU1, NPU2
from nxjax.lower.aie.build import matmul_design
from nxjax.lower.aie.calibrate import held_out, reference, residuals
from nxjax.lower.aie.cycles import matmul_cycles
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.plan import MatmulProblem
from nxjax.lower.aie.planner import matmul_plan
from nxjax.lower.aie.text import mlir
from nxjax.lower.aie.verify import verify

KINDS = [("i8", "i32", False), ("i8", "i8", True), ("bf16", "bf16", False), ("bf16", "bf16", True)]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(ARRAYS)),
    st.sampled_from(KINDS),
    st.tuples(*[st.sampled_from([1, 7, 64, 200, 1000, 3000])] * 3),
    st.integers(0, 8),
)
def test_every_plan_is_a_design_that_the_verifier_takes(name, kind, shape, columns):
    array = ARRAYS[name]
    problem = MatmulProblem(*shape, *kind)
    plan = matmul_plan(problem, array, columns=min(columns, array.columns) or None)
    assert plan.broken()[1] == ""
    assert all(p >= s for p, s in zip(plan.padded, shape, strict=True))
    design = matmul_design(plan)
    assert verify(parse(mlir(design))) == design
    assert parse(mlir(design, legacy=True)) == design


def test_the_planner_takes_the_fastest_and_says_what_bounds_it():
    problem = MatmulProblem(512, 512, 512)
    best = matmul_plan(problem, NPU1)
    for columns in range(1, 5):
        assert matmul_cycles(best).total <= matmul_cycles(matmul_plan(problem, NPU1, columns=columns)).total
    by_hand = matmul_plan(problem, NPU1, tile=(16, 32, 16))
    assert matmul_cycles(best).total < matmul_cycles(by_hand).total
    assert any("bound by" in line for line in best.why) and any("by columns" in line for line in best.why)
    assert best.considered > 100


@pytest.mark.parametrize(
    ("shape", "how", "words"),
    [
        ((64, 64, 64), {"tile": (128, 128, 128)}, "bytes of a core's data memory"),
        ((64, 64, 64), {"tile": (10, 64, 64)}, "multiples of"),
        ((64, 8192, 64), {"tile": (8, 1024, 16), "columns": 1}, "second size"),
        ((64, 64, 30000), {"columns": 1}, "blocks of columns"),
    ],
)
def test_what_breaks_a_limit_is_refused_by_its_name(shape, how, words):
    with pytest.raises(LoweringError, match="breaks a limit") as caught:
        matmul_plan(MatmulProblem(*shape), NPU1, **how)
    assert words in str(caught.value.got)


def test_problems_that_no_kernel_has_are_refused():
    with pytest.raises(ParameterError, match="result"):
        MatmulProblem(8, 8, 8, "i8", "i8")
    with pytest.raises(ParameterError, match="columns"):
        matmul_plan(MatmulProblem(8, 8, 8), NPU1, columns=5)


def test_the_fitted_model_is_near_what_was_published():
    assert all(abs(r - 1) < 0.1 for r in residuals().values())
    assert all(abs(ours / theirs - 1) < 0.12 for ours, theirs in held_out().values())
    # What was published is bound by memory: more of it is faster.
    assert reference(NPU2, "i8", 2 * NPU2.memory).throughput > 1.1 * reference(NPU2, "i8").throughput
