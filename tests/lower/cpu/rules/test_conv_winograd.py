import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.winograd import Weights, Winograd
from nxjax.lower.cpu.lower import lower, lower_parts
from nxjax.lower.cpu.rules.conv_winograd import block_for
from nxjax.lower.cpu.tape import CallStep, HostStep, walk
from tests.lower.cpu.rules.windows import NAMES

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def program(function, *xs):
    found = lower(nx.make_jaxpr(function)(*(nx.ShapeDtypeStruct(x.shape, x.dtype) for x in xs)))
    assert not [s for s in walk(found.steps) if isinstance(s, HostStep)], str(found)
    return found


def count(found):
    return sum(isinstance(s, CallStep) and isinstance(s.kernel, Winograd) for s in walk(found.steps))


def conv(x, w, padding="SAME", numbers=NHWC, strides=(1, 1), **more):
    return nx.lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=numbers, **more)


def drawn(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


def compare(f, xs, times, name, exact=False):
    with nx.config.using(cpu_isa=name):
        found = program(f, *xs)
        assert count(found) == times, str(found)
        ys = TapeInterpreter(found, engine(isa.current()))(list(xs))
    with nx.config.using(executor="reference"):
        wanted = f(*map(nx.numpy.asarray, xs))
    for y, z in zip(ys, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        if exact:
            np.testing.assert_array_equal(y, np.asarray(z))
        else:
            np.testing.assert_allclose(y, np.asarray(z), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("numbers", [NHWC, NCHW])
@pytest.mark.parametrize(
    "case", [(2, 15, 14, 48, 80, "SAME"), (1, 13, 20, 16, 128, "VALID"), (1, 24, 9, 32, 16, ((2, 0), (0, 3)))]
)
def test_against_the_reference(name, numbers, case):
    n, h, w, inputs, outputs, padding = case
    shapes = ((n, h, w, inputs), (3, 3, inputs, outputs))
    if numbers == NCHW:
        shapes = ((n, inputs, h, w), (outputs, inputs, 3, 3))
    compare(lambda x, w: conv(x, w, padding, numbers), drawn(*shapes), 1, name)


@pytest.mark.parametrize("name", isa.possible())
def test_layer_and_its_gradient(name):
    """Bias, activation and residual in the kernel; the gradient of the input is such a convolution too."""

    def layer(x, w, b, z):
        return nx.nn.relu(conv(x, w) + b) + z

    def loss(x, w, b, z):
        return (layer(x, w, b, z) ** 2).sum() / 1000

    xs = drawn((1, 16, 18, 16), (3, 3, 16, 32), (32,), (1, 16, 18, 32))
    xs[1] /= 12
    compare(layer, xs, 1, name)
    compare(lambda *xs: nx.grad(loss, (0, 1, 2))(*xs), xs, 2, name)


@pytest.mark.parametrize(
    "case",
    [
        ((1, 20, 20, 16), (3, 3, 16, 32), {"strides": (2, 2)}),
        ((1, 20, 20, 16), (3, 3, 16, 32), {"rhs_dilation": (1, 2)}),
        ((1, 20, 20, 16), (5, 3, 16, 32), {}),
        ((1, 20, 20, 32), (3, 3, 16, 32), {"feature_group_count": 2}),
        ((1, 20, 20, 3), (3, 3, 3, 32), {}),
        ((1, 2, 2, 64), (3, 3, 64, 64), {}),
    ],
)
def test_other_convolutions_are_plain(case):
    x, w, more = case
    assert count(program(lambda x, w: conv(x, w, **more), *drawn(x, w))) == 0


def test_which_dtypes_are_computed_so():
    """Float32 and what is converted to it; bytes in pairs, but no integers whose sums 16 bits do not hold."""
    for dtype, wanted in (("bfloat16", 1), ("float64", 0), ("int32", 0), ("int16", 0), ("int8", 1), ("uint8", 1)):
        xs = [np.ones(s, nx.numpy.dtype(dtype)) for s in ((1, 20, 20, 32), (3, 3, 32, 32))]
        preferred = "float32" if dtype == "bfloat16" else None if dtype == "float64" else "int32"
        assert count(program(lambda x, w, p=preferred: conv(x, w, preferred_element_type=p), *xs)) == wanted, dtype


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_are_exact(name, dtype):
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    info = np.iinfo(dtype)
    w = rng.integers(info.min, info.max + 1, (3, 3, 64, 64)).astype(dtype)
    for x in (rng.integers(info.min, info.max + 1, (1, 15, 16, 64)), np.full((1, 15, 16, 64), info.min)):
        compare(lambda x, w: conv(x, w, preferred_element_type="int32"), [x.astype(dtype), w], 1, name, exact=True)


def test_blocks_fit_the_registers():
    for name in isa.possible():
        target = isa.named(name)
        for tiles in (1, 4, 16, 49, 1000):
            for outputs in range(16, 257, 16):
                b = block_for("f32", target, tiles, outputs)
                assert outputs % b.channels == 0
                assert b.pixels * b.vectors + b.vectors < target.registers


def test_held_weights_are_transformed_once():
    """Weights that are the same in every call cost no transformation: fewer tiles are enough."""
    x, w = drawn((1, 7, 7, 64), (3, 3, 64, 64))
    traced = nx.make_jaxpr(lambda w, x: conv(x, w))(*(nx.ShapeDtypeStruct(v.shape, v.dtype) for v in (w, x)))
    parts = lower_parts(traced, 1)
    assert count(lower(traced)) == 0
    assert count(parts.main) == 1
    kinds = [
        [type(s.kernel) for s in walk(p.steps) if isinstance(s, CallStep)] for p in (parts.preparation, parts.main)
    ]
    assert Weights in kinds[0]
    assert Weights not in kinds[1]


@pytest.mark.parametrize("room", [0, 1, 10**9])
def test_an_item_has_tiles_however_little_room_there_is(room):
    with knobs.using({"conv.winograd_room": room}):
        compare(conv, drawn((1, 13, 20, 16), (3, 3, 16, 128)), 1, isa.possible()[0])
