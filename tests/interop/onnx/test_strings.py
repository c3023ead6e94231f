"""Operators of ONNX that move texts, beside ONNX Runtime, and numbers as texts."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import LoweringError
from tests.interop.onnx.onnx_models import compare, made, one

X = np.array([["a", "b"], ["cc", "d"]], object)


@pytest.mark.parametrize(
    ("kind", "given", "attributes"),
    [
        ("Expand", {"x": X[:1], "shape": [3, 2]}, {}),
        ("Tile", {"x": X, "repeats": [1, 2]}, {}),
        ("ScatterElements", {"x": X, "index": [[0, -1]], "updates": np.array([["z", "y"]], object)}, {}),
        ("ScatterND", {"x": X, "index": [[0, 1]], "updates": np.array(["z"], object)}, {}),
        ("Split", {"x": X, "sizes": [1, 1]}, {"axis": 1, "results": 2}),
        ("Compress", {"x": X, "condition": [False, True]}, {"axis": 0}),
        ("Compress", {"x": X, "condition": [False, True, True]}, {}),
        ("Unique", {"x": np.array(["b", "a", "b"], object)}, {"results": 4}),
        ("ReverseSequence", {"x": X, "lengths": [2, 1]}, {}),
        ("OneHot", {"index": [0, 2], "depth": [3], "values": np.array(["off", "on"], object)}, {}),
        ("GatherND", {"x": X, "index": [[0, -1]]}, {}),
        ("GatherElements", {"x": X, "index": [[0, -1]]}, {}),
    ],
)
def test_texts_are_moved(kind: str, given: Any, attributes: Any):
    compare(kind, given, **attributes)


def test_texts_at_traced_places_are_an_error():
    f = nx.interop.from_onnx(one("GatherElements", {"x": X, "index": np.array([[0, 1]])}), closed=True)
    with pytest.raises(LoweringError, match="elements that are traced"):
        nx.jit(lambda i: f(X, i))(jnp.array([[0, 1]]))


def test_numbers_are_written_as_onnx_runtime_writes_them():
    for x in (
        np.array([1.5, -3, 1e10, 1e-7, 0.1, 123456.789, 3e-5, 123456789, 1.1e11, np.inf, -np.inf, np.nan], np.float32),
        np.array([1.5, 0.1, 1e300, 1 / 3, 100000.0, 1e5 + 0.5, 1234e20]),
        np.array([True, False]),
        np.array([-3, 2**62]),
    ):
        compare("Cast", {"x": x}, to=8)


def test_parts_of_a_negative_size_are_an_error():
    given = {"x": np.ones(6, np.float32), "sizes": np.array([8, -2])}
    with pytest.raises(nx.errors.NxError, match="the parts are"):
        made(one("Split", given, 2), given)
