import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nxjax.ops.dimension_numbers import GatherScatterMode, ScatterDimensionNumbers
from nxjax.ops.scatter import scatter, scatter_add, scatter_max, scatter_min, scatter_mul, scatter_sub
from nxjax.trace import dtypes
from tests.lower.cpu.rules.equal import ISAS, numbers, same
from tests.lower.cpu.rules.test_gather import cases

OPS = [scatter, scatter_add, scatter_sub, scatter_mul, scatter_max, scatter_min]
MODES = [GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS]
NUMBERS = [np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
MOVED = [np.bool_, ml_dtypes.int4, ml_dtypes.float8_e5m2, dtypes.key, np.complex64, np.complex128]
ELEMENTS = ScatterDimensionNumbers((), (0,), (0,))
ROWS = ScatterDimensionNumbers((1,), (0,), (0,))


@pytest.mark.parametrize("name", ISAS)
@settings(max_examples=60, deadline=None)
@given(case=cases(), mode=st.sampled_from(MODES), data=st.data())
def test_any_dimension_numbers(name, case, mode, data):
    shape, indices, n, sizes = case
    op = data.draw(st.sampled_from(OPS))
    dtype = data.draw(st.sampled_from([*NUMBERS, *MOVED] if op is scatter else NUMBERS))
    m = ScatterDimensionNumbers(
        n.offset_dims, n.collapsed_slice_dims, n.start_index_map, n.operand_batching_dims, n.start_indices_batching_dims
    )
    window = iter(sizes[d] for d in m.window(len(shape)))
    batch = iter(indices.shape[:-1])
    rank = len(m.window(len(shape))) + indices.ndim - 1
    updates = tuple(next(window) if d in n.offset_dims else next(batch) for d in range(rank))
    x, u = numbers(shape, dtype), numbers(updates, dtype, 1)
    assume(x.size)
    same(op, x, indices, u, name=name, dimension_numbers=m, mode=mode)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: np.dtype(d).name)
def test_many_updates_of_few_elements(name, op, dtype):
    """Sums of floats depend on the order, which is NumPy's."""
    rng = np.random.default_rng(0)
    x, u = numbers((13,), dtype), numbers((1001,), dtype, 1)
    i = rng.integers(-2, 15, (1001, 1)).astype(np.int32)
    same(op, x, i, u, name=name, dimension_numbers=ELEMENTS, mode=GatherScatterMode.FILL_OR_DROP)


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("width", [1, 3, 16, 100, 257])
def test_rows(name, width):
    rng = np.random.default_rng(0)
    x, u = numbers((40, width), np.float32), numbers((300, width), np.float32, 1)
    i = rng.integers(-5, 45, (300, 1)).astype(np.int32)
    for op in (scatter_add, scatter):
        same(op, x, i, u, name=name, dimension_numbers=ROWS, mode=GatherScatterMode.FILL_OR_DROP)
