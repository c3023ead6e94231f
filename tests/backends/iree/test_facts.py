"""What a driver says of a device is read, and a rasteriser is never taken for a GPU."""

from nxjax.backends.iree.facts import DeviceProperties, parse
from tests.backends.iree.devices import BARE, LAVAPIPE, RADEON


def test_facts_are_read_from_the_drivers_words():
    f = parse("listed", "GPU-6d65", LAVAPIPE)
    assert (f.name, f.kind, f.vendor_name, f.api) == ("llvmpipe (LLVM 15.0.6, 256 bits)", "cpu", "Mesa", "1.3.230")
    assert (f.driver, f.subgroup, f.heaps) == ("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", (8, 8, 8), (2**31,))
    assert f.has("shaderInt8")
    assert not f.has("cooperativeMatrix")
    assert f.shuffles
    g = parse("listed", "p", RADEON)
    assert (g.kind, g.vendor_name, g.subgroup, g.heaps) == ("integrated", "AMD", (32, 64, 64), (2**33, 2**34))


def test_labels_are_honest():
    assert parse("", "", LAVAPIPE).label == "host"
    # What does not say that it is a GPU is not taken for one.
    assert parse("g", "p", "").label == parse("g", "p", "type: other").label == "host"
    assert parse("", "", RADEON).label == "hardware"
    # One that calls itself something else is known by its name.
    assert DeviceProperties("SwiftShader Device (Subzero)", "", "other").label == "host"


def test_words_that_are_missing_stay_unknown():
    f = parse("listed", "p", "error: the driver is broken")
    assert (f.name, f.kind, f.subgroup, f.heaps) == ("listed", "other", (0, 0, 0), ())
    assert parse("", "", BARE).subgroup == (16, 16, 16)
    assert not parse("", "", BARE).shuffles
