"""The compiler is told of a GPU that it knows by name, or of what the device says of itself; never of another."""

import pytest

from nxjax.backends.iree import spec
from nxjax.backends.iree.facts import DeviceProperties, parse
from nxjax.errors import ParameterError
from tests.backends.iree.devices import BARE, LAVAPIPE, RADEON

TEXT = "module @f {\n  func.func public @main() {\n    return\n  }\n}\n"


def test_a_description_has_the_devices_own_subgroup_and_dtypes():
    whole, alone, plain = spec.candidates(parse("", "", LAVAPIPE))
    assert "compute = fp64|fp32|int32|fp16|int16|int8, storage = b64|b32|b16|b8" in whole.attribute
    assert "subgroup = shuffle|arithmetic, dot = dp4xi8toi32, subgroup_size_choices = [8]" in whole.attribute
    assert "subgroup = none, dot = dp4xi8toi32, subgroup_size_choices = [8]" in alone.attribute
    assert "subgroup = none, subgroup_size_choices = [8]" in plain.attribute
    (bare,) = spec.candidates(parse("", "", BARE))
    assert 'features = "spirv:v1.3,cap:Shader"' in bare.attribute
    assert (
        "compute = fp64|fp32|int32, storage = b64|b32, subgroup = none, subgroup_size_choices = [16]" in bare.attribute
    )


def test_a_description_goes_into_the_module():
    described, *_ = spec.candidates(parse("", "", LAVAPIPE))
    written = described.applied(TEXT)
    assert written.startswith("module @f attributes {hal.device.targets = [#hal.device.target<")
    assert written.endswith("{\n  func.func public @main() {\n    return\n  }\n}\n")
    assert described.flags == ()
    assert spec.named("rdna3").applied(TEXT) == TEXT


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("AMD Radeon 780M (RADV PHOENIX)", "rdna3"),
        ("AMD Radeon RX 9070 XT (RADV GFX1201)", "rdna4"),
        ("AMD Radeon RX 6800 (RADV NAVI21)", "rdna2"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "ada"),
        ("NVIDIA A100-SXM4-40GB", "ampere"),
        ("Tesla T4", "turing"),
        ("Adreno (TM) 740", "adreno"),
        ("Mali-G710", "valhall1"),
        ("Intel(R) Iris(R) Xe Graphics (TGL GT2)", ""),
    ],
)
def test_devices_are_known_by_name(device, name):
    assert spec.architecture(DeviceProperties(device, "")) == name
    assert not name or name in spec.NAMES


def test_candidates_begin_with_the_name_and_end_with_the_least():
    names = [s.name for s in spec.candidates(parse("", "", RADEON))]
    usual = "described: subgroups of 64 (32 to 64)"
    assert names == ["rdna3", usual, f"{usual}, each alone", f"{usual}, each alone, no dot product"]


def test_a_name_that_would_end_the_compiler_is_refused_before(monkeypatch):
    monkeypatch.setenv(spec.VARIABLE, "ampere")
    assert spec.candidates(parse("", "", LAVAPIPE)) == [spec.named("ampere")]
    monkeypatch.setenv(spec.VARIABLE, "nosuch")
    with pytest.raises(ParameterError, match="nosuch") as caught:
        spec.candidates(parse("", "", LAVAPIPE))
    assert "rdna3" in str(caught.value)
