"""Products of a tile: C++ against the NumPy meaning, and what half partials round."""

import numpy as np
import pytest

from nxjax.kernels.ipu.amp import Amp, Depthwise
from nxjax.kernels.ipu.host import Library

from .vertices import both, same, warnings_of

RNG = np.random.default_rng(4)
AMPS = [
    Amp("float32", "float32", 16, 8),
    Amp("float32", "float32", 8, 8),
    Amp("float16", "float16", 16, 16),
    Amp("float16", "float32", 8, 16),
    Amp("int8", "int32", 8, 16),
    Amp("int32", "int32", 8, 8),
]
DEPTHWISE = [Depthwise("float32", "float32"), Depthwise("float16", "float16"), Depthwise("int8", "int32")]


@pytest.fixture(scope="module")
def library():
    return Library([*AMPS, *DEPTHWISE], workers=6)


def numbers(dtype, shape):
    if np.dtype(dtype).kind == "f":
        return RNG.normal(size=shape).astype(dtype)
    return RNG.integers(-100, 100, shape).astype(dtype)


def box(kernel, out, steps, holes):
    return tuple((n - 1) * s + (k - 1) * d + 1 for k, n, s, d in zip(kernel, out, steps, holes, strict=True))


CASES = [
    (1, 3, 2, 1, (1, 1, 1), (1, 1, 7), (1, 1, 1), (1, 1, 1)),
    (2, 1, 1, 3, (1, 1, 1), (1, 2, 3), (1, 1, 1), (1, 1, 1)),
    (1, 2, 1, 2, (1, 3, 2), (1, 3, 4), (1, 2, 1), (1, 1, 2)),
    (1, 1, 1, 1, (2, 1, 3), (2, 1, 5), (1, 1, 2), (2, 1, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("codelet", AMPS, ids=repr)
def test_amp(library, codelet, case):
    groups, inputs, outputs, batch, kernel, out, steps, holes = case
    size = box(kernel, out, steps, holes)
    x = numbers(codelet.dtype, (2, groups, inputs, batch, *size, codelet.depth))
    w = numbers(codelet.dtype, (2, groups, outputs, inputs, *kernel, codelet.units, codelet.depth))
    names = ("id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw", "dd", "dh", "dw")
    attributes = dict(zip(names, (*size, *out, *kernel, *steps, *holes), strict=True))
    attributes |= {"groups": groups, "inGroups": inputs, "outGroups": outputs, "batch": batch}
    y = (groups, outputs, batch, *out, codelet.units)
    got, want = both(library, codelet, {"x": x, "w": w}, attributes, {"y": y})
    if codelet.integer:
        same(got["y"], want["y"])
        return
    # The order in which a block is summed up is the unit's own: a unit or two in the last place of partial sums.
    eps = 1e-2 if codelet.partials == "float16" else 1e-5
    np.testing.assert_allclose(got["y"].astype(np.float64), want["y"].astype(np.float64), rtol=eps, atol=8 * eps)


@pytest.mark.parametrize("codelet", DEPTHWISE, ids=repr)
def test_depthwise(library, codelet):
    kernel, out, steps, holes, batch, channels = (1, 3, 2), (1, 3, 4), (1, 2, 1), (1, 1, 2), 2, 5
    size = box(kernel, out, steps, holes)
    x, w = numbers(codelet.dtype, (2, batch, *size, channels)), numbers(codelet.dtype, (2, *kernel, channels))
    names = ("id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw", "dd", "dh", "dw")
    attributes = dict(zip(names, (*size, *out, *kernel, *steps, *holes), strict=True))
    attributes |= {"channels": channels, "batch": batch}
    got, want = both(library, codelet, {"x": x, "w": w}, attributes, {"y": (batch, *out, channels)})
    np.testing.assert_allclose(got["y"].astype(np.float64), want["y"].astype(np.float64), rtol=2e-3, atol=1e-5)


def test_half_partials_round_once_per_block(library):
    """1 + 2048 + 2048 (in the next block) is 4096 in half partials and 4097 with float ones, each rounded once."""
    x, w = np.zeros((1, 1, 2, 1, 1, 1, 1, 16)), np.zeros((1, 1, 1, 2, 1, 1, 1, 16, 16))
    x[..., 0, 0, 0, 0, 0, :2], x[0, 0, 1, 0, 0, 0, 0, 0] = (1, 2048), 2048
    x[0, 0, 0, 0, 0, 0, 0, :2] = (1, 2048)
    x[0, 0, 1, 0, 0, 0, 0, :2] = (2048, 0)
    w[..., :] = 1
    names = (a.name for a in AMPS[2].attributes)
    one = dict.fromkeys(names, 1)
    found = {}
    for codelet in (AMPS[2], AMPS[3]):
        units = w[..., : codelet.units, :]
        y = (1, 1, 1, 1, 1, 1, codelet.units)
        got, want = both(library, codelet, {"x": x, "w": units}, {**one, "inGroups": 2}, {"y": y})
        same(got["y"], want["y"])
        found[codelet.partials] = float(got["y"].ravel()[0])
    assert found == {"float16": 4096.0, "float32": 4097.0}


def test_sources_compile_without_warnings():
    assert warnings_of([*AMPS, *DEPTHWISE]) == ""
