"""Advice and pictures from the compiler's answer: what wastes is named with what to write, what does not is not."""

import xml.etree.ElementTree as ET

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.tpu.chips import parsed
from nxjax.backends.tpu.roofline import Roofline

S = nx.ShapeDtypeStruct


def advice(f, *args, target="tpu-v5e"):
    return nx.explain(f, target=target)(*args).analysis


@pytest.mark.usefixtures("libtpu")
def test_padding_is_named_with_the_sizes_to_take():
    a = advice(lambda x: x + 1, S((130, 130), "float32"))
    (words,) = [w for w in a.advice if w.startswith("argument 0")]
    b = a.arguments[0]
    assert f"{b.padded - b.logical:,} of {b.padded:,} bytes" in words
    # Whichever dimension the compiler has laid across the lanes.
    fast = b.shape.order[0]
    size = b.shape.dims[fast]
    up = -(-size // 128) * 128
    assert f"dimension {fast} of {size} takes {up}: make it {up} or {up - 128}" in words
    assert not [w for w in advice(lambda x: x + 1, S((1024, 256), "float32")).advice if "fill up" in w]


@pytest.mark.usefixtures("libtpu")
def test_short_dimensions_are_to_be_joined():
    a = advice(lambda x: jnp.cumsum(x, 1), S((64, 50, 2, 3), "bfloat16"))
    assert any("join" in w for w in a.advice), a.advice


@pytest.mark.usefixtures("libtpu")
def test_int64_is_emulated_and_said_to_be():
    a = advice(lambda x: x * x, jnp.arange(4096, dtype="int64"))
    assert any(w.startswith("s64 in ") and "int32" in w for w in a.advice)
    assert not any("emulates" in w for w in advice(lambda x: x * x, jnp.arange(4096)).advice)
    # A random key is a 64-bit word, which nobody computes with.
    assert not any("emulates" in w for w in advice(lambda k: nx.random.normal(k, (999,)), nx.random.key(0)).advice)


@pytest.mark.usefixtures("libtpu")
def test_loops_that_nobody_wrote_are_counted():
    def factor(x):
        return jnp.linalg.cholesky(x @ x.T + jnp.eye(64))

    a = advice(factor, S((64, 64), "float32"))
    assert a.loops_written == 0
    if a.loops:
        assert any("loops where the program has 0" in w for w in a.advice)
    written = advice(lambda x: nx.lax.fori_loop(0, 9, lambda i, c: jnp.tanh(c @ x), x), S((128, 128), "float32"))
    assert written.loops_written == 1 and len(written.loops) <= 1
    assert not any("loops where" in w for w in written.advice)


@pytest.mark.usefixtures("libtpu")
def test_images_with_channels_first_are_told_apart():
    def conv(layout):
        spec = (layout, "HWIO", layout)
        return lambda x, w: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=spec)

    w = S((3, 3, 16, 32), "float32")
    first = advice(conv("NCHW"), S((8, 16, 32, 32), "float32"), w)
    last = advice(conv("NHWC"), S((8, 32, 32, 16), "float32"), w)
    assert [layout for _, layout in first.image_layouts] == ["NCHW"] and last.image_layouts == []
    assert not any("NHWC" in w for w in last.advice)
    # Advice on it only where the compiler did copy.
    assert any("NHWC" in w for w in first.advice) == any(p.rank >= 4 for p in first.copies)


@pytest.mark.usefixtures("libtpu")
def test_pictures_are_svg_with_the_users_names():
    report = nx.explain(lambda p, x: x @ p["w"], target="tpu-v5e")(
        {"w": S((300, 70), "float32")}, S((1000, 300), "float32")
    )
    root = ET.fromstring(report.svg())
    text = " ".join(root.itertext())
    assert root.tag.endswith("svg") and "argument 0['w']" in text and "GB/s" in text and "FLOP/s" in text
    assert ET.fromstring(report.analysis.roofline.svg()).tag.endswith("svg")
    with pytest.raises(nx.errors.ParameterError, match="no picture"):
        nx.explain(lambda x: x + 1, target="tflite")(jnp.ones(3)).svg()


@pytest.mark.parametrize(
    "case", [(1e12, 1e9, 1e-2), (1e6, 1e9, 2e-3), (0.0, 1e6, None), (1e9, 0.0, None), (5.0, 1e9, 1)]
)
def test_rooflines(case):
    flops, size, estimate = case
    r = Roofline(parsed("v5e").generation, False, flops, size, estimate)
    assert r.seconds == max(flops / 197e12, size / 819e9)
    assert r.bound == ("compute" if flops / 197e12 >= size / 819e9 else "memory")
    assert ET.fromstring(r.svg()).tag.endswith("svg")
    assert ("static estimate" in "\n".join(r.lines())) == (estimate is not None)
