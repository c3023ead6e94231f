"""Types of custom ops in words: what they accept, what follows, what is drawn from them."""

import numpy as np
import pytest

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.trace.types import ArrayType
from nxjax.transforms.custom_signature import OperatorSignature, draw


def t(dtype, *shape):
    return ArrayType(shape, np.dtype(dtype))


@pytest.mark.parametrize(
    ("text", "types", "result"),
    [
        ("float[n] -> float[n]", [t("float32", 3)], "f32[3]"),
        ("float[n] -> float[]", [t("float16", 3)], "f16[]"),
        ("float[n,k], float[k,m] -> float[n,m]", [t("float64", 2, 3), t("float64", 3, 4)], "f64[2,4]"),
        ("float[...,n], float[n] -> float[...]", [t("float32", 5, 2, 3), t("float32", 3)], "f32[5,2]"),
        ("float[...,n] -> float[...]", [t("float32", 3)], "f32[]"),
        ("float[...], i32[...] -> bool[...]", [t("float32", 2), t("int32", 2)], "bool[2]"),
        ("i8[4,n] -> i32[n]", [t("int8", 4, 2)], "i32[2]"),
        ("number[2] -> number[2,2]", [t("int16", 2)], "i16[2,2]"),
    ],
)
def test_what_follows(text, types, result):
    signature = OperatorSignature.parse(text, "op")
    assert str(signature) == text
    assert repr(signature(*types)) == result


def test_several_results():
    first, second = OperatorSignature.parse("float[n,m] -> float[n], i32[m]", "op")(t("float32", 2, 3))
    assert (repr(first), repr(second)) == ("f32[2]", "i32[3]")


@pytest.mark.parametrize(
    ("text", "types", "error", "says"),
    [
        ("float[n], float[n] -> float[n]", [t("float32", 2), t("float32", 3)], ShapeError, "n = 2"),
        ("float[n], float[n] -> float[n]", [t("float32", 2), t("float64", 2)], DtypeError, "dtype"),
        ("float[n] -> float[n]", [t("int32", 2)], DtypeError, "dtype"),
        ("f32[n] -> f32[n]", [t("float64", 2)], DtypeError, "dtype"),
        ("float[4] -> float[4]", [t("float32", 3)], ShapeError, r"float\[4\]"),
        ("float[n] -> float[n]", [t("float32", 2, 2)], ShapeError, "shape"),
        ("float[n] -> float[n]", [], ShapeError, "number of operands"),
        ("float[...,n], float[...] -> float[n]", [t("float32", 2, 3), t("float32", 3)], ShapeError, "shape"),
    ],
)
def test_what_does_not_fit(text, types, error, says):
    with pytest.raises(error, match=says) as caught:
        OperatorSignature.parse(text, "some_op")(*types)
    assert "some_op" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "float[n]",
        "float[n] -> float[n] -> float[n]",
        "float[n] -> float[m]",
        "float[n] -> int[n]",
        "float[n] -> float[...]",
        "float[n+1] -> float[]",
        "float[n,...] -> float[n]",
        " -> float[]",
    ],
)
def test_what_is_no_signature(text):
    with pytest.raises(ParameterError, match="custom_op some_op"):
        OperatorSignature.parse(text, "some_op")


def test_unknown_dtypes():
    with pytest.raises(DtypeError, match="no dtype"):
        OperatorSignature.parse("f31[n] -> f31[n]", "op")


@pytest.mark.parametrize(
    "text",
    ["float[n,k], float[k] -> float[n]", "float[...,n], i32[...] -> float[...]", "bool[3], c64[n,n] -> c64[n]"],
)
def test_samples_fit(text):
    signature = OperatorSignature.parse(text, "op")
    drawn = signature.samples(np.random.default_rng(0))
    assert len(drawn) >= 2
    for xs in drawn:
        signature(*(t(x.dtype, *x.shape) for x in xs))
    assert {x.shape for x in drawn[0]} != {x.shape for x in drawn[1]}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "float32", "complex64"])
def test_draws(dtype):
    x = draw(np.random.default_rng(0), (100,), np.dtype(dtype), 2.0)
    assert x.dtype == dtype
    assert len(np.unique(x)) > 1
    assert np.array_equal(x, draw(np.random.default_rng(0), (100,), np.dtype(dtype), 2.0))
