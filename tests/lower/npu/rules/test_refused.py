"""What has no NPU instruction is refused with advice that holds."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax

X = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(1, 8)


@pytest.mark.parametrize("name", ["lgamma", "erf_inv", "bessel_i0e", "asin", "atan", "atanh"])
def test_functions_that_quantization_makes_tables_of_say_so(name: str):
    f = lambda x: getattr(lax, name)(x)
    with pytest.raises(nx.errors.UnsupportedOpsError, match="makes a table of it"):
        nx.compile(f, target="tflite")(X)
    qf = nx.quantize(f, "int8", calibrate=[(X,)])
    artifact = nx.compile(qf, target="tflite")(X)
    assert artifact.deviation.exact
    np.testing.assert_array_equal(artifact.run(X), qf(X))


@pytest.mark.parametrize(
    ("f", "word"),
    [
        (lambda x: lax.atan2(x, x), "polynomial"),
        (lambda x: nx.numpy.fft.fft(x).real, "constant matrix"),
        (lambda x: nx.numpy.take(x, nx.numpy.array([0, 9]), 1, fill_value=3), "pad the array"),
    ],
    ids=["atan2", "fft", "take"],
)
def test_others_name_what_to_do_instead(f, word: str):
    with pytest.raises(nx.errors.UnsupportedOpsError, match=word):
        nx.compile(f, target="tflite")(X)
