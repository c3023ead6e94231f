"""Operators of classical models beside ONNX Runtime: features, encoders, linear models, support vector machines."""

import itertools
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import LoweringError
from tests.interop.onnx.onnx_models import compare, made, one

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3)).astype(np.float32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def numbers(*shape: int) -> list[float]:
    return RNG.normal(size=shape).ravel().tolist()


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Scaler", {"offset": [0.5, 1.0, -2.0], "scale": [2.0, 0.1, 3.0]}),
        ("Scaler", {"offset": [0.5], "scale": [2.0]}),
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Binarizer", {"threshold": 0.3}),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float(X[2, 1])}),
        ("Imputer", {"imputed_value_floats": [5.0], "replaced_value_float": float("nan")}),
        ("LinearRegressor", {"coefficients": numbers(3), "intercepts": [0.5]}),
        ("LinearRegressor", {"coefficients": numbers(2, 3), "intercepts": [0.5, 1.0], "targets": 2}),
        ("LinearRegressor", {"coefficients": numbers(2, 3), "targets": 2}),
    ],
)
def test_numbers_of_features(kind: str, attributes: Any):
    x = X.copy()
    x[0], x[3, 2] = 0, np.nan if kind == "Imputer" else 1
    compare(kind, {"x": x}, domain=ML, **attributes)


def test_features_of_other_types():
    compare("Scaler", {"x": np.arange(6).reshape(2, 3)}, domain=ML, offset=[1.0], scale=[0.5])
    given = {"x": np.array([[1, -1, 3]])}
    compare("Imputer", given, domain=ML, imputed_value_int64s=[7], replaced_value_int64=-1)
    compare("ArrayFeatureExtractor", {"x": X, "index": np.array([2, 0])}, domain=ML)
    compare("ArrayFeatureExtractor", {"x": np.array([["a", "b"]], object), "index": np.array([1])}, domain=ML)
    compare("FeatureVectorizer", {"a": X, "b": X[:, :1]}, domain=ML, inputdimensions=[3, 1])


def test_encoders():
    for x in (np.array([3, 1, 9]), np.array([[1, 3], [9, 2]]), np.array([1.0, 9.0], np.float32)):
        compare("OneHotEncoder", {"x": x}, domain=ML, cats_int64s=[1, 3, 2], zeros=1)
    compare("OneHotEncoder", {"x": np.array(["a", "?"], object)}, domain=ML, cats_strings=["b", "a"], zeros=1)
    whole, texts = np.array([[3, 1], [9, 1]]), np.array(["b", "?"], object)
    compare("LabelEncoder", {"x": whole}, domain=ML, keys_int64s=[1, 3], values_floats=[0.5, 1.5], default_float=-2.0)
    compare("LabelEncoder", {"x": whole}, domain=ML, keys_int64s=[1, 3], values_int64s=[7, 8])
    compare("LabelEncoder", {"x": whole}, domain=ML, keys_int64s=[1, 3], values_strings=["x", "y"])
    compare("LabelEncoder", {"x": texts}, domain=ML, keys_strings=["a", "b"], values_int64s=[7, 8])
    x = np.array([np.nan, 1.5, 4], np.float32)
    compare("LabelEncoder", {"x": x[1:]}, domain=ML, keys_floats=[1.5, 2.5], values_int64s=[7, 8])
    # As ONNX says; ONNX Runtime does not find NaN.
    data = one("LabelEncoder", {"x": x}, domain=ML, keys_floats=[1.5, float("nan")], values_int64s=[7, 8])
    assert np.asarray(made(data, {"x": x})[0]).tolist() == [8, 7, -1]
    f = nx.interop.from_onnx(one("LabelEncoder", {"x": whole}, domain=ML, keys_int64s=[3, 1], values_int64s=[7, 8]))
    assert nx.jit(f)({}, whole).tolist() == [[7, 8], [-1, 8]]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifiers(transform: str):
    for labels in ({"classlabels_ints": [4, 2, 9]}, {"classlabels_strings": ["a", "b", "c"]}):
        more = {"coefficients": numbers(3, 3), "intercepts": numbers(3), "post_transform": transform}
        compare("LinearClassifier", {"x": X}, 2, domain=ML, **labels, **more)
    for labels in ({"classlabels_ints": [4, 2]}, {"classlabels_strings": ["a", "b"]}):
        for rows in (1, 2):
            more = {"coefficients": numbers(rows, 3), "intercepts": numbers(rows), "post_transform": transform}
            compare("LinearClassifier", {"x": X}, 2, domain=ML, **labels, **more)


KERNELS = (("LINEAR", [0.3, 0.0, 3.0]), ("RBF", [0.3, 0.0, 3.0]), ("POLY", [0.3, 0.5, 3.0]), ("SIGMOID", [0.3, 0.1, 3]))


@pytest.mark.parametrize(("kernel", "params"), KERNELS)
def test_support_vector_machines(kernel: str, params: list[float]):
    svm: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [float(v) for v in params]}
    more = {"coefficients": numbers(5), "support_vectors": numbers(5, 3), "n_supports": 5, "rho": [0.2]}
    compare("SVMRegressor", {"x": X}, domain=ML, **svm, **more)
    compare("SVMRegressor", {"x": X}, domain=ML, one_class=1, **svm, **more)
    for counts, labels in itertools.product(([2, 3], [2, 1, 3], [2, 1, 1, 2]), (False, True)):
        classes, pairs = len(counts), len(counts) * (len(counts) - 1) // 2
        ints, texts = {"classlabels_ints": [*range(5, 5 + classes)]}, {"classlabels_strings": list("abcd"[:classes])}
        more = {
            "coefficients": numbers(classes - 1, sum(counts)), "support_vectors": numbers(sum(counts), 3),
            "vectors_per_class": counts, "rho": numbers(pairs), **(texts if labels else ints),
        }  # fmt: skip
        compare("SVMClassifier", {"x": X}, 2, domain=ML, **svm, **more)
        more |= {"prob_a": [-abs(v) for v in numbers(pairs)], "prob_b": numbers(pairs)}
        compare("SVMClassifier", {"x": X}, 2, domain=ML, **svm, **more)


def test_linear_support_vector_machines():
    linear = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    compare("SVMRegressor", {"x": X}, domain=ML, coefficients=numbers(3), rho=[0.5], **linear)
    more = {"coefficients": numbers(3, 3), "rho": [0.5], "classlabels_ints": [4, 2, 9], **linear}
    compare("SVMClassifier", {"x": X}, 2, domain=ML, **more)


def test_they_have_derivatives_and_a_batch():
    counts = [2, 3, 2]
    data = one(
        "SVMClassifier", {"x": X}, 2, domain=ML, coefficients=numbers(2, 7), support_vectors=numbers(7, 3),
        vectors_per_class=counts, rho=numbers(3), prob_a=[-1.0, -1.5, -2.0], prob_b=numbers(3), kernel_type="RBF",
        kernel_params=[0.3, 0.0, 3.0], classlabels_ints=[0, 1, 2],
    )  # fmt: skip
    f = nx.interop.from_onnx(data, closed=True)
    w = RNG.normal(size=(7, 3)).astype(np.float32)
    loss = lambda x: (f(x)[1] * w).sum()
    grad, h = np.asarray(nx.grad(loss)(X)), 1e-2
    for at in ((0, 0), (3, 2), (6, 1)):
        step = np.zeros_like(X)
        step[at] = h
        np.testing.assert_allclose(grad[at], float(loss(X + step) - loss(X - step)) / (2 * h), rtol=2e-2, atol=1e-3)
    y = nx.vmap(lambda x: f(x)[1])(np.stack([X, 2 * X]))
    np.testing.assert_allclose(y[1], f(2 * X)[1], rtol=1e-5)


def test_a_list_of_dicts_is_refused():
    data = one("ZipMap", {"x": X}, domain=ML, classlabels_int64s=[0, 1, 2])
    with pytest.raises(LoweringError, match="ZipMap makes a list of dicts") as caught:
        made(data, {"x": X})
    assert "zipmap" in str(caught.value)
