"""Blocks of ggml as whole numbers and scales: the same floats."""

import numpy as np
import pytest

from nxjax.interop.ggml import BLOCKS, INTEGERS, dequantized, integers


@pytest.mark.parametrize("kind", INTEGERS)
def test_whole_numbers_times_scales_are_the_floats(kind):
    elements, size = BLOCKS[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (50, size)).astype(np.uint8)
    # Scales, and least numbers where there are some, are float16 numbers that are finite.
    least = {3: 2, 7: 2, 12: 2, 13: 2}.get(kind)
    for at in [208 if kind == 14 else 0] + ([least] if least else []):
        blocks[:, at : at + 2] = np.linspace(-2, 3, 50).astype(np.float16)[:, None].view(np.uint8)
    values, scale, low = integers(blocks.reshape(-1), kind)
    bound = 1 << INTEGERS[kind] - 1
    assert values.shape == (50, elements) and values.dtype == np.int8 and (low is None) == (least is None)
    assert -bound <= values.min() <= 0 < values.max() < bound and (values.min() < 0) == (least is None)
    made = values.reshape(*scale.shape, -1) * scale[..., None] + (0 if low is None else low[..., None])
    np.testing.assert_array_equal(made.reshape(-1), dequantized(blocks.reshape(-1), kind, np.float32))
