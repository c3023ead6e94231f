import math

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter
from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.move import Move
from nxjax.lower.cpu.lower import lower, lower_parts
from nxjax.lower.cpu.tape import CallStep, HostStep, walk
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from tests.lower.cpu.rules.windows import DTYPES, NAMES, close, compiled, convolution, numbers

LAST = ("NHWC", "HWIO", "NHWC")


def program(function, *xs):
    return lower(nx.make_jaxpr(function)(*(nx.ShapeDtypeStruct(x.shape, x.dtype) for x in xs)))


def ran(found, *xs):
    assert not [s for s in walk(found.steps) if isinstance(s, HostStep)], str(found)
    return TapeInterpreter(found, engine(isa.current()))(list(xs))


def kernels(found):
    return [s.kernel for s in walk(found.steps) if isinstance(s, CallStep)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_any_convolution(name, seed):
    rng = np.random.default_rng([seed, NAMES.index(name)])
    for dtype in DTYPES:
        for _ in range(2):
            x, w, params = convolution(rng, dtype)
            y = compiled(conv_general_dilated, x, w, name=name, **params)
            if y is not None:
                close(y, conv_general_dilated.eval(x, w, **params), False)


@pytest.mark.parametrize(
    ("dtype", "preferred"),
    [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("int8", "float32"), ("bfloat16", "float32"),
     ("int8", "int64"), ("float32", "float64")],
)  # fmt: skip
def test_other_result_dtypes(dtype, preferred):
    rng = np.random.default_rng(0)
    x, w = (numbers(rng, s, nx.numpy.dtype(dtype)) for s in ((2, 9, 7, 5), (3, 3, 5, 20)))
    params = {
        "window_strides": (1, 2), "padding": ((1, 1), (0, 2)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
        "feature_group_count": 1, "batch_group_count": 1,
        "dimension_numbers": ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
        "preferred_element_type": np.dtype(preferred),
    }  # fmt: skip
    y = compiled(conv_general_dilated, x, w, name=isa.possible()[0], **params)
    close(y, conv_general_dilated.eval(x, w, **params), False)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_never_saturate(name):
    """Products of the largest bytes, summed deep: what vpmaddubsw would cut off."""
    x = np.full((1, 4, 4, 512), 127, np.int8)
    w = np.where(np.arange(512)[:, None] % 2, -128, 127).astype(np.int8) * np.ones((1, 1, 1, 32), np.int8)
    for left in (x, (-128 * np.ones_like(x, np.int16)).astype(np.int8)):
        for right in (w, np.full_like(w, -128), np.full_like(w, 127)):
            params = {
                "window_strides": (1, 1), "padding": ((0, 0), (0, 0)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1),
                "feature_group_count": 1, "batch_group_count": 1, "preferred_element_type": np.dtype("int32"),
                "dimension_numbers": ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
            }  # fmt: skip
            y = compiled(conv_general_dilated, left, right, name=name, **params)
            np.testing.assert_array_equal(y, conv_general_dilated.eval(left, right, **params))


@pytest.mark.parametrize("name", NAMES[:-1] if "avx512-base" in NAMES else NAMES)
@pytest.mark.parametrize(("channels", "groups"), [(16, 1), (24, 24)])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients(name, channels, groups, stride):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 13, 17, channels)).astype(np.float32)
    w = rng.normal(size=(3, 3, channels // groups, channels)).astype(np.float32) / 10

    def loss(x, w):
        y = nx.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=LAST, feature_group_count=groups
        )
        return (y * y).sum()

    with nx.config.using(cpu_isa=name):
        found = ran(program(nx.grad(loss, (0, 1)), x, w), x, w)
    with nx.config.using(executor="reference"):
        wanted = nx.grad(loss, (0, 1))(x, w)
    for y, z in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, np.asarray(z), rtol=2e-5, atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [22, 24])
def test_bias_activation_and_shortcut_are_one_kernel(name, channels):
    rng = np.random.default_rng(0)
    x, w, b, z = (
        rng.normal(size=s).astype(np.float32)
        for s in ((2, 7, 9, 16), (3, 3, 16, channels), (channels,), (2, 7, 9, channels))
    )

    def f(x, w, b, z):
        y = nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST)
        return nx.nn.relu6(y + b) + z

    with nx.config.using(cpu_isa=name):
        found = program(f, x, w, b, z)
        y = ran(found, x, w, b, z)[0]
    # Vectors that outputs are whole ones of take fewer products.
    assert sum(k.key.split("(")[0] in ("conv", "winograd") for k in kernels(found)) == 1
    assert not [k for k in kernels(found) if k.key.startswith(("add", "max", "min"))], str(found)
    with nx.config.using(executor="reference"):
        wanted = f(*map(nx.numpy.asarray, (x, w, b, z)))
    np.testing.assert_allclose(y, np.asarray(wanted), rtol=1e-5, atol=1e-5)


def test_a_chain_in_nchw_is_transposed_at_its_ends_only():
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, 16, 20, 20), (16, 16, 3, 3)))

    def f(x, w):
        for _ in range(3):
            x = nx.nn.relu(nx.lax.conv_general_dilated(x, w, (1, 1), "SAME"))
            x = nx.lax.reduce_window(x, -float("inf"), nx.lax.max, (1, 1, 3, 3), (1, 1, 1, 1), "SAME")
        return x

    found = program(f, x, w)
    moves = [k for k in kernels(found) if k.key.startswith("move") and k.cost().written >= 16 * 20 * 20 * 4]
    assert len(moves) <= 2, str(found)
    with nx.config.using(executor="reference"):
        wanted = f(nx.numpy.asarray(x), nx.numpy.asarray(w))
    np.testing.assert_allclose(ran(found, x, w)[0], np.asarray(wanted), rtol=1e-4, atol=1e-4)


def test_layers_of_one_kind_share_their_code():
    rng = np.random.default_rng(0)
    shapes = [(1, 1, 16, 32), (1, 1, 32, 64), (1, 1, 64, 32)]
    ws = [rng.normal(size=s).astype(np.float32) / 8 for s in shapes]

    def f(x, *ws):
        for w in ws:
            x = nx.nn.relu(nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST))
        return x

    found = program(f, rng.normal(size=(1, 14, 14, 16)).astype(np.float32), *ws)
    assert len({k.symbol for k in kernels(found)}) == 1


@pytest.mark.parametrize("shape", [(0, 5, 5, 3), (1, 1, 1, 3)])
def test_nothing_and_one(shape):
    w = np.ones((3, 3, 3, 4), np.float32)
    f = lambda x, w: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST)
    (y,) = ran(program(f, np.ones(shape, np.float32), w), np.ones(shape, np.float32), w)
    assert y.shape == (*shape[:3], 4)
    np.testing.assert_array_equal(y, np.full(y.shape, 3.0))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("outputs", [2, 4])
def test_no_features(groups, window, outputs):
    x, w = np.ones((2, 3, 3, 0), np.float32), np.ones((window, window, 0, outputs), np.float32)
    f = lambda x, w: nx.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=LAST, feature_group_count=groups
    )
    (y,) = ran(program(f, x, w), x, w)
    np.testing.assert_array_equal(y, np.zeros((2, 3, 3, outputs)))


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "groups"), [(14, 70, 256, 1), (9, 150, 160, 1), (8, 128, 128, 2)]
)
def test_large_weights_are_laid_together(name, size, inputs, outputs, groups):
    """Small whole numbers: every sum is exact, in whatever order."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, size, size, inputs)).astype(np.float32)
    w = rng.integers(-3, 4, (3, 3, inputs // groups, outputs)).astype(np.float32)

    def f(x, w):
        return nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST, feature_group_count=groups)

    with nx.config.using(cpu_isa=name):
        found = program(f, x, w)
        (y,) = ran(found, x, w)
    if name == "avx512" and groups == 1:
        assert any("packing" in k.key for k in kernels(found)), str(found)
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))


@pytest.mark.parametrize("name", isa.possible())
def test_weights_laid_together_beside_features_that_lie_apart(name):
    """There is no row of zeros before them then, and they end where the room for them does."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (1, 5, 20, 21)).astype(np.float32)
    w = rng.integers(-3, 4, (96, 5, 4, 3)).astype(np.float32)

    def f(x, w):
        return nx.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NHWC"))

    choices = {"conv.pack": 0, "conv.items": 1}
    with nx.config.using(cpu_isa=name, guard="end"), knobs.using(choices):
        found = program(f, x, w)
        (y,) = ran(found, x, w)
    assert any("strided packing" in k.key for k in kernels(found)), str(found)
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("window", [(1, 1), (3, 3), (8, 8), (5, 13)], ids=str)
def test_any_number_of_taps_laid_together_or_not(name, dtype, window):
    """Windows of one tap, of as many as have their addresses made ahead, and of more. Small whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 13, 15, 20)).astype(dtype)
    w = rng.integers(-3, 4, (*window, 20, 100)).astype(dtype)
    packing = set()
    for padding, steps, pack in (
        ("SAME", (1, 1), 0),
        ("SAME", (2, 1), 0),
        ("VALID", (1, 1), 0),
        ("SAME", (1, 2), knobs.NEVER),
    ):

        def f(x, w, padding=padding, steps=steps):
            return nx.lax.conv_general_dilated(x, w, steps, padding, dimension_numbers=LAST)

        choices = {"conv.pack": pack, "conv.winograd": 0, "conv.items": 1}
        with nx.config.using(cpu_isa=name, enable_x64=True), knobs.using(choices):
            found = program(f, x, w)
            (y,) = ran(found, x, w)
        packing |= {("packing" in k.key, "table" in k.key) for k in kernels(found) if k.key.startswith("conv(")}
        with nx.config.using(executor="reference", enable_x64=True):
            np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))
    assert {table for _, table in packing} == {1 < math.prod(window) <= 64}
    assert {p for p, _ in packing} == {False, True}


@pytest.mark.parametrize("inputs", [1, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("taps", [1, 2, 8, 9, 16, 17, 18])
@pytest.mark.parametrize("nd", [1, 2, 3])
def test_few_features_and_long_windows(inputs, taps, nd):
    """Short loops over features become longer ones over a row of the window, or the other way round."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, *(2,) * (nd - 1), 20, inputs)).astype(np.float32)
    w = rng.integers(-3, 4, (*(2,) * (nd - 1), taps, inputs, 5)).astype(np.float32)
    letters = "DHW"[3 - nd :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    for padding, dilation in (("VALID", 1), ("SAME", 1), ("SAME", 2)):

        def f(x, w, padding=padding, dilation=dilation):
            return nx.lax.conv_general_dilated(
                x, w, (1,) * nd, padding, rhs_dilation=(*(1,) * (nd - 1), dilation), dimension_numbers=numbers
            )

        (y,) = ran(program(f, x, w), x, w)
        with nx.config.using(executor="reference"):
            np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))


@pytest.mark.parametrize("name", isa.possible())
def test_the_loop_is_over_a_window_that_is_long_in_its_last_dimension(name):
    """In another dimension the loop is over features, as for any window."""
    numbers = ("NHWC", "HWIO", "NHWC")
    f = lambda x, w: nx.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=numbers)
    found = []
    with nx.config.using(cpu_isa=name):
        for window in ((2, 18), (2, 19), (18, 2), (2, 2)):
            x, w = (np.zeros(s, np.float32) for s in ((2, 40, 40, 1), (*window, 1, 5)))
            found.append({k.key for k in kernels(program(f, x, w)) if k.key.startswith("conv(")})
    assert found[0] == found[1] != found[2] == found[3]


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize(("size", "window"), [((52, 260), (50, 250)), ((6100,), (6090,))])
def test_windows_that_no_cache_holds_are_summed_in_parts(name, size, window):
    """As gradients of kernels of large pictures have them. Small whole numbers: every sum is exact."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, *size, 2)).astype(np.float32)
    w = rng.integers(-3, 4, (*window, 2, 8)).astype(np.float32)
    numbers = ("NHWC", "HWIO", "NHWC") if len(size) == 2 else ("NWC", "WIO", "NWC")

    def f(x, w):
        return nx.lax.conv_general_dilated(x, w, (1,) * len(size), "VALID", dimension_numbers=numbers)

    with nx.config.using(cpu_isa=name):
        found = program(f, x, w)
        (y,) = ran(found, x, w)
    assert sum("conv" in k.key for k in kernels(found)) > 1, str(found)
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))


@pytest.mark.parametrize("inputs", [2, 9])
@pytest.mark.parametrize("window", [(1, 3), (2, 3), (2, 9)])
@pytest.mark.parametrize("outputs", [1, 5])
def test_where_no_tap_falls_on_an_element_nothing_is_read(inputs, window, outputs):
    """Between the elements of a dilated image; of a scalar there is only one element."""
    f = lambda x, w: nx.lax.conv_general_dilated(
        nx.numpy.broadcast_to(x, (2, 3, 5, inputs)),
        nx.numpy.broadcast_to(w, (*window, inputs, outputs)),
        (1, 1), ((2, 0), (1, 2)), (2, 1), (2, 1), dimension_numbers=LAST,
    )  # fmt: skip
    x, w = np.float32(2), np.float32(3)
    (y,) = ran(program(f, x, w), x, w)
    with nx.config.using(executor="reference"):
        np.testing.assert_array_equal(y, np.asarray(f(nx.asarray(x), nx.asarray(w))))


@pytest.mark.parametrize(
    ("nd", "inputs", "own"), [(1, 1, True), (2, 1, True), (3, 1, True), (2, 2, True), (3, 2, False)]
)
def test_which_convolutions_of_groups_have_a_kernel_of_their_own(nd, inputs, own):
    """One output for each group: as many loops as the kernel has, features included."""
    letters = "DHW"[3 - nd :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    x, w = np.ones((1, *(5,) * nd, 16 * inputs), np.float32), np.ones((*(3,) * nd, inputs, 16), np.float32)
    f = lambda x, w: nx.lax.conv_general_dilated(
        x, w, (1,) * nd, "SAME", dimension_numbers=numbers, feature_group_count=16
    )
    assert own != any(k.key.startswith("conv(") for k in kernels(program(f, x, w)))


@pytest.mark.parametrize(
    ("x", "w", "spec", "params"),
    [
        ((2, 1, 70), (1, 1, 33), ("NCH", "OIH", "NCH"), {"padding": [(16, 16)]}),
        ((3, 40, 1), (5, 1, 1), ("NHC", "HIO", "NHC"), {"padding": [(-2, 9)], "rhs_dilation": (3,)}),
        ((2, 9, 24, 1), (3, 5, 1, 1), ("NHWC", "HWIO", "NHWC"), {"padding": "SAME", "window_strides": (2, 1)}),
        ((1, 24, 5, 2), (1, 1, 3, 4), ("CWHN", "OIHW", "WNHC"), {"padding": "VALID", "rhs_dilation": (1, 2)}),
        ((2, 1, 3, 4, 20), (1, 1, 2, 3, 4), ("NCDHW", "OIDHW", "NCDHW"), {"padding": "SAME"}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_filter_of_one_feature_is_part_of_what_follows(x, w, spec, params, dtype):
    def f(x, w):
        params_ = {"window_strides": (1,) * (x.ndim - 2), **params}
        return nx.numpy.abs(nx.lax.conv_general_dilated(x, w, dimension_numbers=spec, **params_)) + 1

    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 10, s).astype(dtype) for s in (x, w))
    x.flat[0] = np.inf  # spoils the results whose windows hold it, and no others
    with nx.enable_x64(True):
        found = program(f, x, w)
        assert {k.key.split("(")[0] for k in kernels(found)} <= {"move", "mul+add", "mul+add+abs+add"}
        (y,) = ran(found, x, w)
        with nx.config.using(executor="reference"):
            np.testing.assert_array_equal(y, np.asarray(f(nx.numpy.asarray(x), nx.numpy.asarray(w))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("held", [False, True])
def test_packed_weights_have_no_lanes_that_are_left_as_they_were(name, held):
    """What lies there may be below the normal range, and products of that take a hundred times as long."""
    shape, window = (1, 8, 8, 32), (3, 3, 32, 37)
    f = nx.make_jaxpr(lambda w, x: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAST))
    with nx.config.using(cpu_isa=name):
        jaxpr = f(*(nx.ShapeDtypeStruct(s, np.float32) for s in (window, shape)))
        parts = lower_parts(jaxpr, 1)
        found = parts.preparation if held else lower(jaxpr)
    moves = [s for s in found.steps if isinstance(s, CallStep) and isinstance(s.kernel, Move)]
    written = {}
    for step in moves:
        (to,) = step.writes()
        written[to.buffer] = written.get(to.buffer, 0) + math.prod(step.kernel.shape) * step.kernel.size
    assert moves
    for buffer, count in written.items():
        assert count == buffer.nbytes
