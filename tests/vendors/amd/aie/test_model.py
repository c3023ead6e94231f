"""The model of the array runs designs from their text: the values of the meaning, and cycles like the closed form's."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import ShapeError
from nxjax.kernels.aie.chip import ARRAYS, NPU1, NPU2
from nxjax.kernels.aie.elementwise import Bfloat, Lookup
from nxjax.lower.aie.build import elementwise_design
from nxjax.lower.aie.cycles import elementwise_cycles
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.planner import elementwise_plan
from nxjax.lower.aie.text import mlir
from nxjax.lower.aie.verify import verify
from nxjax.vendors.amd.aie.model import run
from nxjax.vendors.amd.aie.product import matmul

SIZES = st.tuples(*[st.integers(1, 150)] * 3)


@settings(max_examples=10, deadline=None)
@given(SIZES, st.sampled_from(sorted(ARRAYS)), st.integers(0, 8), st.integers(0, 99))
def test_integer_products_are_exact(shape, array, columns, seed):
    rng = np.random.default_rng(seed)
    m, k, n = shape
    design = matmul(m, k, n, array=array, columns=min(columns, ARRAYS[array].columns) or None)
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    np.testing.assert_array_equal(design.run(a, b), a.astype(np.int32) @ b.astype(np.int32))
    assert 0 < design.trace.utilization <= 1


@pytest.mark.parametrize("array", ["npu1", "npu2"])
def test_batches_of_rows_and_columns_take_turns_with_descriptors(array):
    rng = np.random.default_rng(0)
    design = matmul(320, 40, 200, array=array, columns=2, tile=(16, 16, 32))
    assert design.plan.row_blocks >= 5 and design.mlir.count("dma_wait") >= 6
    a, b = rng.integers(-128, 128, (320, 40)).astype(np.int8), rng.integers(-128, 128, (40, 200)).astype(np.int8)
    np.testing.assert_array_equal(design.run(a, b), a.astype(np.int32) @ b.astype(np.int32))


def rounded_product(a, b, step, tile):
    """bfloat16 products: float32 sums of ``step`` exact products each, rounded after every ``tile`` of them."""
    k = -(-a.shape[1] // tile) * tile
    a, b = np.pad(a, ((0, 0), (0, k - a.shape[1]))), np.pad(b, ((0, k - b.shape[0]), (0, 0)))
    c = np.zeros((a.shape[0], b.shape[1]), ml_dtypes.bfloat16)
    for t in range(0, k, tile):
        total = c.astype(np.float32)
        for i in range(t, t + tile, step):
            total = (total + a[:, i : i + step].astype(float) @ b[i : i + step].astype(float)).astype(np.float32)
        c = total.astype(ml_dtypes.bfloat16)
    return c


@pytest.mark.parametrize(("array", "tile"), [("npu1", (16, 16, 16)), ("npu1", None), ("npu2", (16, 64, 32))])
@pytest.mark.parametrize("relu", [False, True])
def test_bfloat16_products_are_rounded_after_each_tile(array, tile, relu):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(40, 90)).astype(ml_dtypes.bfloat16)
    b = rng.normal(size=(90, 50)).astype(ml_dtypes.bfloat16)
    design = matmul(40, 90, 50, array=array, dtype="bfloat16", relu=relu, tile=tile)
    wanted = rounded_product(a, b, 8, design.plan.k)
    wanted = np.maximum(wanted, ml_dtypes.bfloat16(0)) if relu else wanted
    np.testing.assert_array_equal(design.run(a, b), wanted)


def test_more_of_k_in_a_tile_rounds_less():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(32, 512)), rng.normal(size=(512, 32))
    exact = a.astype(ml_dtypes.bfloat16).astype(float) @ b.astype(ml_dtypes.bfloat16).astype(float)
    errors = [
        np.abs(matmul(32, 512, 32, dtype="bfloat16", tile=(8, k, 16)).run(a, b).astype(float) - exact).mean()
        for k in (8, 256)
    ]
    assert errors[1] < errors[0] / 2


@pytest.mark.parametrize("shape", [(256, 256, 256), (64, 512, 64), (300, 100, 40), (8, 1024, 256)])
@pytest.mark.parametrize("array", ["npu1", "npu2"])
def test_the_closed_form_is_near_what_running_counts(shape, array):
    design = matmul(*shape, array=array)
    parsed = parse(design.mlir)
    buffers = {name: np.zeros(t.size, t.dtype) for name, t in parsed.sequence.arguments}
    trace = run(parsed, buffers, values=False)
    assert 0.7 < design.cycles.total / trace.cycles < 1.5
    assert trace.host_bytes >= sum(n * m for n, m in ((shape[0], shape[1]), (shape[1], shape[2])))


@pytest.mark.parametrize("array", [NPU1, NPU2])
@pytest.mark.parametrize("count", [1, 1000, 5000])
def test_elementwise_functions_go_over_all_cores(array, count):
    rng = np.random.default_rng(count)
    table = rng.permutation(256).astype(np.uint8).view(np.int8)
    plan = elementwise_plan(count, 1, 1, array, lambda size: Lookup(size).cycles(array))
    kernel = Lookup(plan.size)
    design = verify(parse(mlir(elementwise_design(plan, kernel, table.tobytes()))))
    x = rng.integers(-128, 128, plan.padded).astype(np.int8)
    buffers = {"x": x, "z": np.zeros_like(x)}
    trace = run(design, buffers)
    np.testing.assert_array_equal(buffers["z"], table[x.astype(int) + 128])
    assert 0.5 < elementwise_cycles(plan, kernel.cycles(array)).total / trace.cycles < 2


def test_two_operands_meet_in_bfloat16():
    rng = np.random.default_rng(0)
    plan = elementwise_plan(700, 2, 2, NPU2, lambda size: Bfloat("add", size).cycles(NPU2))
    design = verify(parse(mlir(elementwise_design(plan, Bfloat("add", plan.size)))))
    x, y = (rng.normal(size=plan.padded).astype(ml_dtypes.bfloat16) for _ in range(2))
    buffers = {"x": x, "y": y, "z": np.zeros_like(x)}
    run(design, buffers)
    np.testing.assert_array_equal(buffers["z"], (x.astype(np.float32) + y.astype(np.float32)).astype(x.dtype))


def test_arguments_of_other_types_are_refused():
    design = matmul(16, 16, 16)
    with pytest.raises(ShapeError, match="operands"):
        design.run(np.zeros((16, 8), np.int8), np.zeros((16, 16), np.int8))
    with pytest.raises(ShapeError, match="argument 'a'"):
        run(parse(design.mlir), {"a": np.zeros(3, np.int8)})
