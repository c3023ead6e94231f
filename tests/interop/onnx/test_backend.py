"""ONNX's own tests of operators, all that the package ships: each gives what ONNX says, or is refused for a reason."""

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import LoweringError

onnx: Any = pytest.importorskip("onnx")

# Parts of a test's name, and why nxjax refuses what it is about.
REFUSED = {
    "E2M1": "arrays of 4-bit floats",
    "float4e2m1": "arrays of 4-bit floats",
    "INT2": "arrays of 2-bit integers",
    "int2": "arrays of 2-bit integers",
    "e8m0": "arrays of powers of two",
    "image_decoder": "pictures in files: an image library reads them",
    "gradient_of": "an operator for gradients: `nx.grad` takes them",
}
# Parts of a test's name whose results nxjax has otherwise, and why.
OTHERWISE = {
    "resize_downsample_scales_linear_align_corners": "the size is rounded first, as in ONNX Runtime and PyTorch",
    "resize_downsample_scales_cubic_align_corners": "the size is rounded first, as in ONNX Runtime and PyTorch",
}
# From a float to 4 bits: ONNX leaves open what becomes of numbers beyond the range, and its own answer has changed.
FOUR_BITS = re.compile("cast.*FLOAT(16)?_to_U?INT4")
# Sums of large values: the noise of float32 is that of the largest, in ONNX's numbers as in nxjax's.
SUMS = ("test_dft",)
# Results are random, so ONNX's numbers are those of one generator.
RANDOM = ("bernoulli", "training_dropout")
PARTS = 24


def arrays(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [arrays(v) for v in x]
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def stored(folder: Path, kind: str, values: Any) -> list[Any]:
    read: list[Any] = []
    for i, _ in enumerate(values):
        path = folder / f"{kind}_{i}.pb"
        if path.exists():
            tensor = onnx.TensorProto()
            tensor.ParseFromString(path.read_bytes())
            read.append(tensor)
    return read


@cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ONNX computes its expectations with
        found = [(c.name, c.model, c.data_sets, c.rtol, c.atol) for c in collect_testcases(None)]  # pyright: ignore
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for c in load_model_tests(kind=kind):
            folder = Path(c.model_dir)
            model = onnx.load(folder / "model.onnx")
            sets = [
                (stored(f, "input", model.graph.input), stored(f, "output", model.graph.output))
                for f in sorted(folder.glob("test_data_set_*"))
            ]
            found.append((c.name, model, sets, c.rtol, c.atol))
    return found


def compare(y: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, (list, tuple)):
        assert len(y) == len(expected)
        for a, b in zip(y, expected, strict=True):
            compare(a, b, rtol, atol)
        return
    if expected is None:
        assert y is None
        return
    y, expected = np.asarray(y), np.asarray(expected)
    assert y.shape == expected.shape
    if expected.dtype.kind in "OUS":
        assert (y.astype(str) == expected.astype(str)).all()
        return
    assert y.dtype == expected.dtype
    rtol = max(rtol, 2.0**-6) if y.dtype.name == "bfloat16" else rtol
    exact = y.dtype.kind in "fc"
    y, expected = (y, expected) if exact else (y.astype(np.float64), expected.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_onnx_says(part: int):
    for name, model, sets, rtol, atol in cases()[part::PARTS]:
        reason = next((why for key, why in REFUSED.items() if key in name), None)
        f = nx.interop.from_onnx(model.SerializeToString())
        for xs, ys in sets:
            given = [arrays(x) for x in (xs.values() if isinstance(xs, dict) else xs)]
            if reason:
                with pytest.raises(LoweringError):
                    f(f.params, *given)
                continue
            got = f(f.params, *given)
            got = got if isinstance(got, tuple) else (got,)
            assert len(got) == len(ys), name
            if any(word in name for word in RANDOM) and "zero_ratio" not in name and "expanded" not in name:
                assert [np.shape(y) for y in got] == [np.shape(arrays(y)) for y in ys]
                continue
            if "bernoulli" in name:
                continue
            if any(key in name for key in OTHERWISE):
                assert [np.shape(y) for y in got] == [np.shape(arrays(y)) for y in ys]
                continue
            try:
                for y, expected in zip(got, map(arrays, ys), strict=True):
                    if FOUR_BITS.search(name):
                        low, high = (-8, 7) if "_INT4" in name else (0, 15)
                        inside = (given[0] >= low) & (given[0] <= high)
                        assert inside.sum() > 10
                        y, expected = np.asarray(y)[inside], expected[inside]
                    noise = 4 * np.finfo(np.float32).eps * np.abs(expected).max() if name.startswith(SUMS) else 0.0
                    compare(y, expected, rtol, max(atol, noise))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


def test_more_than_95_percent_of_all_are_right():
    refused = [name for name, *_ in cases() if any(key in name for key in (*REFUSED, *OTHERWISE, *RANDOM))]
    assert len(cases()) > 1900 and len(refused) < 0.05 * len(cases())
