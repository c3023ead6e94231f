"""Blocks of ggml as whole numbers and scales: the same floats."""

import numpy as np
import pytest

from nxjax.interop.ggml import BLOCKS, INTEGERS, dequantized, integers


@pytest.mark.parametrize("kind", INTEGERS)
def test_whole_numbers_times_scales_are_the_floats(kind):
    elements, size = BLOCKS[kind]
    blocks = np.random.default_rng(kind).integers(0, 256, (50, size)).astype(np.uint8)
    at = 208 if kind == 14 else 0
    blocks[:, at : at + 2] = np.linspace(-2, 3, 50).astype(np.float16)[:, None].view(np.uint8)
    values, scale = integers(blocks.reshape(-1), kind)
    bound = 1 << INTEGERS[kind] - 1
    assert values.shape == (50, elements) and values.dtype == np.int8
    assert -bound <= values.min() < 0 < values.max() < bound
    made = values.reshape(*scale.shape, -1) * scale[..., None]
    np.testing.assert_array_equal(made.reshape(-1), dequantized(blocks.reshape(-1), kind, np.float32))
