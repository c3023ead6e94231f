"""Windows of a tile's box: C++ against the meaning and against the ops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.window import ReduceWindow, SelectAndScatterAdd
from nxjax.ops import window as ops

from .vertices import both, same, warnings_of

RNG = np.random.default_rng(8)
REDUCE = {(k, d): ReduceWindow(k, d) for k in ("add", "max", "min") for d in ("float32", "float16", "int32", "uint8")}
SCATTER = {(g, d): SelectAndScatterAdd(g, d) for g in (True, False) for d in ("float32", "float16", "int32")}
OPS = {"add": ops.reduce_window_sum, "max": ops.reduce_window_max, "min": ops.reduce_window_min}
NAMES = ("id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw", "dd", "dh", "dw", "pd", "ph", "pw")


@pytest.fixture(scope="module")
def library():
    return Library([*REDUCE.values(), *SCATTER.values()], workers=6)


@st.composite
def windows(draw):
    """Attributes of a vertex and parameters of the op."""
    three = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(3))
    box, kernel, steps, holes, low, high = (
        three(1, 6),
        three(1, 3),
        three(1, 3),
        three(1, 2),
        three(-1, 2),
        three(-1, 2),
    )
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, holes, strict=True)]
    # Enough to hold one window.
    high = tuple(max(h, r - n - l) for h, r, n, l in zip(high, reach, box, low, strict=True))
    out = tuple((n + l + h - r) // s + 1 for n, l, h, r, s in zip(box, low, high, reach, steps, strict=True))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 20))
    attributes = dict(zip(NAMES, (*box, *out, *kernel, *steps, *holes, *low), strict=True))
    attributes |= {"batch": batch, "channels": channels}
    params = {
        "window_dimensions": (1, *kernel, 1),
        "window_strides": (1, *steps, 1),
        "padding": ((0, 0), *zip(low, high, strict=True), (0, 0)),
        "base_dilation": (1,) * 5,
        "window_dilation": (1, *holes, 1),
    }
    return (batch, *box, channels), (batch, *out, channels), attributes, params


def numbers(dtype, shape):
    if np.dtype(dtype).kind == "f":
        x = RNG.choice(np.array([-np.inf, 0, 1, 1.5, -2, 3], dtype), shape)
        x[RNG.random(shape) < 0.02] = np.nan
        return x
    return RNG.integers(0, 9, shape).astype(dtype)


@settings(max_examples=30)
@given(case=windows(), key=st.sampled_from(list(REDUCE)))
def test_reduce_window(library, case, key):
    shape, out, attributes, params = case
    x = numbers(key[1], (1, *shape))
    got, want = both(library, REDUCE[key], {"x": x}, attributes, {"y": out})
    same(got["y"], want["y"])
    with np.errstate(all="ignore"):
        same(got["y"][0], OPS[key[0]].eval(x[0], **params))


@settings(max_examples=30)
@given(case=windows(), key=st.sampled_from(list(SCATTER)))
def test_select_and_scatter_add(library, case, key):
    shape, out, attributes, params = case
    x = numbers(key[1], (1, *shape))
    source = RNG.integers(-5, 5, (1, *out)).astype(key[1])  # sums of them are exact in any order
    got, want = both(library, SCATTER[key], {"x": x, "source": source}, attributes, {"y": shape})
    same(got["y"], want["y"])
    exact = ops.select_and_scatter_add.eval(source[0], x[0], select_prim="ge" if key[0] else "le", **params)
    same(got["y"][0].astype(key[1]), exact)


def test_padding_differs_per_vertex(library):
    """Three tiles of a row of eight that overlap: the same class at both edges and in the middle."""
    x = np.arange(8, dtype=np.float32)
    parts = np.stack([x[0:4], x[2:6], x[4:8]]).reshape(3, 1, 1, 1, 4, 1)
    attributes = dict.fromkeys(NAMES, 1) | {"iw": 4, "ow": 3, "kw": 3, "pd": 0, "ph": 0, "channels": 1, "batch": 1}
    attributes["pw"] = np.array([1, 0, 0])
    got, want = both(library, REDUCE["add", "float32"], {"x": parts}, attributes, {"y": (1, 1, 1, 3, 1)})
    same(got["y"], want["y"])
    assert got["y"].reshape(3, 3)[:, :2].tolist() == [[1, 3], [9, 12], [15, 18]]


def test_cycles_and_sources():
    attributes = dict.fromkeys(NAMES, 1) | {"kh": 2, "kw": 2}
    codelet = REDUCE["max", "float32"]
    assert codelet.cycles({"y": (1, 1, 3, 4, 8)}, attributes, BOW) == 6 * (60 + 2 * (20 + 4 * (12 + 2 * 4))) + 11
    assert warnings_of([*REDUCE.values(), *SCATTER.values()]) == ""
