"""Resize beside ONNX Runtime: every way to find a place, and versions before 11."""

import itertools

import numpy as np
import pytest

from tests.interop.onnx.onnx_models import compare

X = np.random.default_rng(0).normal(size=(1, 2, 4, 5)).astype(np.float32)
PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
)  # fmt: skip
SIZES = ((1, 2, 7, 5), (1, 2, 2, 9), (1, 2, 1, 1), (1, 2, 8, 10))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_to_sizes_and_by_scales(mode: str):
    for place, size in itertools.product(PLACES, SIZES):
        if place == "tf_crop_and_resize" and size[3] == X.shape[3]:
            continue  # ONNX Runtime does not crop such an axis
        roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32) if place == "tf_crop_and_resize" else None
        more = {"mode": mode, "coordinate_transformation_mode": place}
        compare("Resize", {"x": X, "roi": roi, "scales": None, "sizes": np.array(size)}, **more)
        scales = np.array([1, 1, size[2] / 4 + 0.03, size[3] / 5 + 0.01], np.float32)
        compare("Resize", {"x": X, "roi": roi, "scales": scales}, **more)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_scale_that_keeps_the_shape_keeps_the_elements(mode: str):
    given = {"x": X, "roi": None, "scales": np.array([1, 1, 1.03, 1.1], np.float32)}
    for place in PLACES[:-1]:
        compare("Resize", given, mode=mode, coordinate_transformation_mode=place)


def test_before_version_11_a_smaller_result_takes_the_next_element():
    for scales in itertools.product((0.6, 0.25, 1.7), (0.5, 2.3)):
        given = {"x": X, "scales": np.array([1, 1, *scales], np.float32)}
        compare("Resize", given, opset=10, mode="nearest")
        compare("Resize", given, opset=10, mode="linear")
