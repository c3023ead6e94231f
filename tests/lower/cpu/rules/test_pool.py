import itertools

import numpy as np
import pytest

from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.pool import Pool
from nxjax.lower.cpu.lower import lower
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.window import reduce_window_max, reduce_window_min, reduce_window_sum
from nxjax.transforms.jit import jit
from tests.lower.cpu.rules.windows import DTYPES, close, compiled, numbers

OPS = {"sum": reduce_window_sum, "max": reduce_window_max, "min": reduce_window_min}
LAST = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("which", list(OPS))
def test_any_window(name, which):
    rng = np.random.default_rng([isa.possible().index(name), list(OPS).index(which)])
    op = OPS[which]
    for dtype, _ in itertools.product(DTYPES[:8], range(3)):
        dims = int(rng.integers(1, 5))
        x = numbers(rng, tuple(map(int, rng.integers(1, 20 if dims < 3 else 9, dims))), dtype)
        sliding = rng.permutation(dims)[:3]
        pick = lambda values, plain, dims=dims, sliding=sliding: tuple(
            int(rng.choice(values)) if i in sliding else plain for i in range(dims)
        )
        params = {
            "window_dimensions": pick([1, 2, 3], 1),
            "window_strides": pick([1, 1, 2, 3], 1),
            "padding": tuple((int(rng.integers(-1, 3)), 1) if i in sliding[:2] else (0, 0) for i in range(dims)),
            "base_dilation": pick([1, 1, 2], 1),
            "window_dilation": pick([1, 1, 2], 1),
        }
        y = compiled(op, x, name=name, **params)
        if y is not None:
            close(y, op.eval(x, **params), which != "sum")


# Shapes, windows, window dilations and padding of the last two dimensions that have some.
LINES = (
    ((300,), (7,), (1,), ((0, 0),)),
    ((300,), (70,), (1,), ((40, 3),)),
    ((9, 65), (3, 5), (2, 2), ((1, 1), (4, 0))),
    ((9, 65), (1, 5), (1, 1), ((0, 0), (2, 2))),
    ((4, 9, 30), (1, 3, 3), (1, 1, 1), ((0, 0), (1, 1), (1, 1))),
    ((12, 20, 3), (5, 5, 1), (1, 2, 1), ((2, 2), (2, 2), (0, 0))),
    ((3, 12, 20, 2), (1, 5, 3, 1), (1, 1, 1, 1), ((0, 0), (2, 2), (0, 1), (0, 0))),
)


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("which", list(OPS))
@pytest.mark.parametrize("line", LINES)
def test_windows_of_few_channels_fill_vectors(name, which, line):
    shape, windows, spread, padding = line
    ones = (1,) * len(shape)
    params = {"window_dimensions": windows, "window_strides": ones, "padding": padding}
    params |= {"base_dilation": ones, "window_dilation": spread}
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.int8, np.float64):
        x = numbers(rng, shape, dtype)
        close(compiled(OPS[which], x, name=name, **params), OPS[which].eval(x, **params), which != "sum")
    with config.using(cpu_isa=name):
        program = lower(jit(lambda x: OPS[which](x, **params)).trace(np.ones(shape, np.float32)).program)
    (pool,) = (c.kernel for c in program.calls() if isinstance(c.kernel, Pool))
    assert pool.problem.groups >= 16


@pytest.mark.parametrize("name", isa.possible())
def test_not_a_number_is_kept(name):
    x = np.arange(5 * 7 * 33, dtype=np.float32).reshape(1, 5, 7, 33)
    x[0, 2, 3, 20] = np.nan
    ones = (1, 1, 1, 1)
    params = {"window_dimensions": (1, 3, 3, 1), "window_strides": ones, "padding": ((0, 0), (1, 1), (1, 1), (0, 0))}
    params |= {"base_dilation": ones, "window_dilation": ones}
    for op in (reduce_window_max, reduce_window_min):
        y = compiled(op, x, name=name, **params)
        np.testing.assert_array_equal(y, op.eval(x, **params))
        assert np.isnan(y).sum() == 9


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("kernel", [1, 3, 9])
def test_depthwise(name, kernel):
    """Nine by nine is more taps than the table holds."""
    rng = np.random.default_rng(kernel)
    for channels, dtype, batched in itertools.product((2, 16, 20, 33), (np.float32, np.int32), (False, True)):
        x = numbers(rng, (2, 12, 11, channels), dtype)
        w = numbers(rng, (kernel, kernel, 2 if batched else 1, channels), dtype)
        # Gradients of kernels group the batch: the channels are its groups, images are summed.
        spec = ConvDimensionNumbers((3, 0, 1, 2), *LAST[1:]) if batched else LAST
        params = {
            "window_strides": (1, 2), "padding": ((kernel // 2, 1), (0, kernel // 2)), "lhs_dilation": (1, 1),
            "rhs_dilation": (1, 1), "feature_group_count": 1 if batched else channels,
            "batch_group_count": channels if batched else 1, "dimension_numbers": spec,
        }  # fmt: skip
        y = compiled(conv_general_dilated, x, w, name=name, **params)
        close(y, conv_general_dilated.eval(x, w, **params), False)
