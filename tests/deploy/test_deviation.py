"""Deviations: differences to the exact reference in steps of the result's grid, or in numbers where there is none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
from nxjax.deploy.deviation import Deviation, cancelled, measured
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.graph import Tensor
from nxjax.ops.quant_grid import Grid
from tests.deploy.nets import IMAGE, PARAMS, convnet, quantized

GRID = Grid(np.dtype("int8"), 0.5, 3)
Q, F = Tensor("q", (4,), "int8", GRID), Tensor("f", (4,), "float32")


def test_equal_bits_are_exact():
    x = np.int8([-128, 0, 5, 127])
    found = measured("somewhere", [Q], [x], [x.copy()])
    assert found.exact and found.histogram == {0: 4} and found.max_lsb == 0
    assert found.max_error == found.rms_error == 0 and found.scale == GRID.dequantize(x).__abs__().max()
    assert str(found) == repr(found)
    assert "on somewhere" in str(found) and "+0 LSB  100.00%" in str(found)


def test_differences_are_counted_in_steps():
    found = measured("chip", [Q], [np.int8([1, 2, 3, 127])], [np.int8([1, 1, 5, -128])])
    assert found.histogram == {0: 1, 1: 1, -2: 1, 255: 1} and found.max_lsb == 255 and not found.exact
    assert found.max_error == 127.5
    assert found.rms_error == pytest.approx(np.sqrt((0.25 + 1 + 127.5**2) / 4))
    rows = str(found).splitlines()[1:]
    assert [r.split()[0] for r in rows] == ["-2", "+0", "+1", "+255"]
    assert all("25.00%" in r and "#" in r for r in rows)


def test_floats_have_no_steps():
    a, b = np.float32([1, 2, 3, 4]), np.float32([1, 2, 3.5, 4])
    found = measured("chip", [F], [b], [a])
    assert found.histogram == {} and found.max_lsb is None and not found.exact
    assert found.max_error == 0.5 and found.scale == 4 and found.rms_error == 0.25
    assert "LSB" not in str(found) and "0.5" in str(found) and "chip" in str(found)
    same = measured("chip", [F], [a], [a])
    assert same.exact and "at most 0" in str(same)


def test_infinities_and_nans_that_agree_are_no_difference():
    x = np.float32([np.inf, -np.inf, np.nan, 1])
    same = measured("chip", [F], [x], [x.copy()])
    assert same.exact and same.scale == 1
    for got in (
        [np.inf, np.inf, np.nan, 1],
        [np.inf, -np.inf, 0, 1],
        [np.inf, -np.inf, np.nan, np.nan],
        [3e38, -3e38, np.nan, 1],
    ):
        other = measured("chip", [F], [np.float32(got)], [x])
        assert not other.exact and other.max_error == np.inf


def test_several_results_add_up():
    x, y = np.int8([0, 0, 0, 0]), np.float32([1, 1, 1, 1])
    found = measured("chip", [Q, F, Q], [x, y, x + np.int8(1)], [x, y + np.float32(2), x])
    assert found.histogram == {0: 4, 1: 4} and found.max_error == 2 and found.max_lsb == 1


def test_no_elements_is_no_difference():
    empty = Tensor("e", (0,), "int8", GRID)
    assert measured("chip", [empty], [np.zeros(0, np.int8)], [np.zeros(0, np.int8)]).exact
    assert measured("chip", [], [], []).exact


def test_booleans_and_integers_are_compared_as_numbers():
    b, i = Tensor("b", (2,), "bool"), Tensor("i", (2,), "int32")
    assert measured("chip", [b], [np.array([True, False])], [np.array([True, False])]).exact
    found = measured("chip", [i], [np.int32([5, 2**31 - 1])], [np.int32([5, -(2**31)])])
    assert found.max_error == 2**32 - 1 and found.histogram == {}
    assert found.max_lsb is None and not found.exact and found.integers == {0: 1, 2**32 - 1: 1}
    assert str(found) == f"1 of 2 integers differ, by at most {2**32 - 1} on chip" and found.short == "1 of 2 integers"


def test_one_label_of_64_that_differs_is_said():
    labels, wanted = np.arange(64, dtype=np.int32) % 10, np.arange(64, dtype=np.int32) % 10
    labels[7] += 1
    found = measured("chip", [Tensor("i", (64,), "int32")], [labels], [wanted])
    assert (found.unequal, found.max_lsb, found.exact, found.floats) == (1, None, False, 0)
    assert "1 of 64 integers differ, by at most 1" in str(found) and "float" not in str(found)
    both = measured(
        "chip", [Q, Tensor("i", (64,), "int32")], [np.int8([1, 2, 3, 4]), labels], [np.int8([1, 2, 3, 4]), wanted]
    )
    assert both.max_lsb == 0 and not both.exact and both.short == "0 LSB, 1 of 64 integers"


def test_integers_that_floats_cannot_tell_apart_differ():
    wide = Tensor("i", (2,), "int64")
    found = measured("chip", [wide], [np.int64([2**53 + 1, 5])], [np.int64([2**53, 5])])
    assert not found.exact and found.unequal == 1 and found.integers == {0: 1, 1: 1}
    unsigned = measured("chip", [wide], [np.uint64([2**64 - 1, 0])], [np.uint64([0, 2**64 - 1])])
    assert unsigned.integers == {2**64 - 1: 1, 1 - 2**64: 1}


def test_complex_results_differ_in_their_imaginary_part():
    c = Tensor("c", (1,), "complex64")
    found = measured("chip", [c], [np.complex64([1 + 2j])], [np.complex64([1 + 0j])])
    assert found.max_error == 2 and not found.exact and found.floats == 1


@pytest.mark.parametrize("got", [[], [np.int8([0])], [np.int8([0] * 4)] * 2, [np.zeros((1, 4), np.int8)]])
def test_results_of_other_shapes_are_no_results(got):
    with pytest.raises(ExecutionError, match="other shapes"):
        measured("chip", [Q], got, [np.int8([0] * 4)])


@given(st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=1, max_size=50))
def test_the_histogram_is_a_count_of_differences(pairs):
    a, b = (np.array(v, np.int8) for v in zip(*pairs, strict=True))
    found = measured("chip", [Tensor("q", a.shape, "int8", GRID)], [a], [b])
    assert sum(found.histogram.values()) == len(pairs)
    assert found.histogram == {k: sum(x - y == k for x, y in pairs) for k in {x - y for x, y in pairs}}
    assert found.max_lsb == max(abs(x - y) for x, y in pairs)
    assert found.max_error == pytest.approx(found.max_lsb * 0.5)
    assert found.exact == (found.max_lsb == 0)


def test_compilation_measures_what_it_runs():
    exact = nx.compile(quantized(), target="tflite")(PARAMS, IMAGE).deviation
    assert exact.exact and exact.runs_on.startswith("LiteRT") and exact.histogram == {0: 5}
    floats = nx.compile(convnet, target="onnx")(PARAMS, IMAGE).deviation
    assert floats.histogram == {} and floats.max_error < 1e-5 * floats.scale and "ONNX Runtime" in floats.runs_on
    # AMD's powers of two are coarser grids: the deviation is said, and it is the difference of the results.
    artifact = nx.compile(quantized(), target="amd-xdna")(PARAMS, IMAGE)
    assert not artifact.deviation.exact and artifact.deviation.max_lsb >= 1
    error = np.abs(np.asarray(artifact.run(IMAGE) - artifact.reference(IMAGE))).max()
    assert error == pytest.approx(artifact.deviation.max_error, rel=1e-6)


def test_many_differences_are_shown_in_ranges_that_lose_none():
    histogram = {k: abs(k) + 1 for k in (*range(-900, -100, 7), -4, -3, 0, 1, 3, 5, 6, 7, 8, 300)}
    shown = str(Deviation("somewhere", histogram, 1.0, 1.0, 1.0))
    lines = shown.splitlines()[1:]
    assert len(lines) < 17
    assert sum(float(line.partition("LSB")[2].split("%")[0]) for line in lines) == pytest.approx(100, abs=0.2)
    assert "+4 to +7 LSB" in shown
    assert "-3 LSB" in shown
    assert "-1023 to -512 LSB" in shown
    few = dict.fromkeys(range(-8, 9), 1)
    assert len(str(Deviation("somewhere", few, 1.0, 1.0, 1.0)).splitlines()) == 18


def test_signal_to_noise_is_of_real_numbers_alone():
    y = np.float32([3, 0, 0, 4])
    found = measured("chip", [F], [y + np.float32([0, 0.5, 0, 0])], [y])
    assert found.sqnr == pytest.approx(20.0) and "20 dB" in found.short and "20.0 dB" in str(found)
    stored = np.int8([3, 5, 3, 3])
    assert measured("chip", [Q], [stored], [stored]).sqnr == np.inf
    assert measured("chip", [Q], [stored + np.int8(1)], [np.int8([3, 3, 3, 3])]).sqnr == -np.inf
    whole = Tensor("i", (4,), "int32")
    labels = np.int32([1, 2, 3, 4])
    assert measured("chip", [whole], [labels], [labels + 1]).sqnr is None
    both = measured("chip", [whole, F], [labels, y + np.float32(0.25)], [labels + 7, y])
    assert both.sqnr == pytest.approx(20.0)
    assert measured("chip", [F], [np.float32([np.nan, 0, 0, 4])], [y]).sqnr == -np.inf


def test_results_that_have_nothing_of_the_reference():
    y = np.float32([3, 0, -2, 4])
    assert not measured("chip", [F], [y * np.float32(0.9)], [y]).unrelated
    # A chip that computes nothing gives zeros or another constant, also where a network's results are small.
    for scale in (1.0, 1e-5):
        for constant in (0, scale, y.mean() * scale):
            assert measured("chip", [F], [np.full(4, constant, np.float32)], [y * np.float32(scale)]).unrelated
    assert measured("chip", [F], [-y], [y]).unrelated
    # A coarse grid rounds to zeros.
    small = np.int8([2, 2, 4, 3])
    assert not measured("chip", [Q], [np.int8([3, 3, 3, 3])], [small]).unrelated
    # A narrow float's range is left by some results, and by all of them only where they are none.
    assert not measured("chip", [F], [np.float32([np.inf, 0, -2, 4])], [y]).unrelated
    assert measured("chip", [F], [np.float32([np.nan] * 4)], [y]).unrelated
    # As far off as the results are large, and still rounding.
    tiny = np.float32([1e-7, 0, 0, 0])
    assert not measured("chip", [F], [tiny], [-tiny], rounding=[1e-6]).unrelated
    assert measured("chip", [F], [tiny], [-tiny]).unrelated
    stored = np.int8([3, 3, 4, 3])
    assert not measured("chip", [Q], [stored + np.int8(2)], [stored]).unrelated
    assert measured("chip", [Q], [stored + np.int8(90)], [stored]).unrelated
    whole = Tensor("i", (4,), "int32")
    labels = np.int32([1, 2, 3, 4])
    assert measured("chip", [whole], [labels + 1], [labels]).unrelated
    one = Tensor("i", (1,), "int32")
    assert measured("chip", [one], [labels[:1] + 1], [labels[:1]]).unrelated
    # A constant is right once, too.
    assert measured("chip", [whole], [np.int32([9, 9, 9, 4])], [labels]).unrelated
    assert not measured("chip", [whole], [np.int32([1, 2, 9, 9])], [labels]).unrelated
    # One result of several is enough.
    assert measured("chip", [F, F], [y, -y / 100 - 1], [y, y / 100]).unrelated


def test_the_kernels_of_a_phone_stand_beside_the_reference_kernels():
    """LiteRT's XNNPACK may round otherwise than its reference kernels: a user sees by how much."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(16, 4)).astype(np.float32), rng.normal(size=(8, 16)).astype(np.float32)
    f = nx.quantize(lambda x: nx.nn.relu(x @ w), "int8", calibrate=[(x,)], params=())
    artifact = nx.compile(f, target="tflite")(x)
    (phone,) = artifact.others
    assert artifact.deviation.exact and "XNNPACK" in phone.runs_on and phone.max_lsb <= 1
    assert f"{phone.runs_on}: {phone.short}" in str(artifact)
    assert nx.compile(f, target="tflite", kernels="default")(x).others == []


def test_a_metric_of_the_task_is_of_the_artifact_and_the_reference():
    artifact = nx.compile(lambda x: x * 2, target="tflite")(np.ones((2, 3), np.float32))
    share = lambda y, target: np.mean(np.asarray(y) == target)
    batches = [((np.ones((2, 3), np.float32),), 2.0), ((np.zeros((2, 3), np.float32),), 1.0)]
    assert artifact.score(share, batches) == (0.5, 0.5)
    with pytest.raises(ParameterError, match="no batches"):
        artifact.score(share, [])


@pytest.mark.parametrize("scale", [1e-3, 1e-9, 1e-25])
def test_zeros_are_no_answer_of_a_network_with_small_results(scale):
    """What rounding may come to is found by the network's own inputs, whatever the size of its results."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(16, 4)).astype(np.float32), rng.normal(size=(2, 16)).astype(np.float32)
    small = lambda xs: [xs[0] @ w * np.float32(scale)]
    wanted, allowed = small([x]), cancelled(small, [x])
    out = Tensor("y", (2, 4), "float32")
    assert measured("chip", [out], [wanted[0] * 0], wanted, rounding=allowed).unrelated
    assert not measured("chip", [out], [wanted[0] * np.float32(1.01)], wanted, rounding=allowed).unrelated
    # Large parts that cancel leave what their rounding is.
    cancel = lambda xs: [(xs[0] + np.float32(1000)) - np.float32(1000) - xs[0]]
    found = cancel([x])
    assert measured("chip", [Tensor("z", x.shape, "float32")], [found[0] * 0], found).unrelated
    assert not measured(
        "chip", [Tensor("z", x.shape, "float32")], [found[0] * 0], found, rounding=cancelled(cancel, [x])
    ).unrelated


def test_places_of_equal_elements_stand_in_any_order():
    """A tool that takes the largest elements may say equal ones in another order; other places are another function."""
    places = np.array([[26, 2, 16, 30, 36], [1, 2, 3, 4, 5]], np.int32)
    port = Tensor("places", places.shape, "int32")
    found = measured("chip", [port], [np.roll(places, 1, -1)], [places])
    assert found.unequal == 10 and not found.unrelated
    assert measured("chip", [port], [places + 50], [places]).unrelated
    constant = np.stack([places[0], np.full(5, 2, np.int32)])
    assert measured("chip", [port], [constant[[1, 1]]], [places[[0, 0]]]).unrelated
    row = Tensor("labels", (5,), "int32")
    assert measured("chip", [row], [np.roll(places[0], 1)], [places[0]]).unrelated
    none = places[:, :0]
    assert not measured("chip", [Tensor("none", (2, 0), "int32")], [none], [none]).unrelated
