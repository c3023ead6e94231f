"""Names of generations and topologies, and what is published of them."""

import pytest

from nxjax.backends.tpu.chips import GENERATIONS, parsed
from nxjax.backends.tpu.compiler import devices_of
from nxjax.errors import ParameterError


@pytest.mark.parametrize(
    ("name", "is_"),
    [
        ("v4:2x2x1", "tpu-v4:2x2x1"),
        ("tpu-v4:2x2x1", "tpu-v4:2x2x1"),
        ("TPU-V5E:4x4", "tpu-v5e:4x4"),
        ("v5e", "tpu-v5e:1x1"),
        ("tpu7x:2x2x1", "tpu-v7x:2x2x1"),
        ("tpu-v7x", "tpu-v7x:1x1x1"),
        ("7x", "tpu-v7x:1x1x1"),
    ],
)
def test_one_topology_has_many_names(name, is_):
    assert str(parsed(name)) == is_


@pytest.mark.parametrize("name", ["v1", "", "h100", "v4:2x2", "v5e:2x2x1", "v5e:0x1", "v5e:x", "v5e:17x17", "v5e:"])
def test_what_is_none_is_answered_with_what_there_is(name):
    with pytest.raises(ParameterError, match="no such") as caught:
        parsed(name)
    assert "v5e:1x1" in str(caught.value) or "1x1x1" in str(caught.value) or "1x1" in str(caught.value)


def test_peaks_are_per_device():
    v4, v5e = parsed("v4").generation, parsed("v5e").generation
    assert v4.peak(False) == 275e12 / 2 and v4.peak(True) == 275e12 / 2
    assert v5e.peak(False) == 197e12 and v5e.peak(True) == 394e12
    assert parsed("v4:2x2x1").devices == 8 and parsed("v5p:2x2x1").devices == 4
    assert all(g.source and g.topologies and g.bandwidth > 5e11 for g in GENERATIONS)


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda g: g.name)
def test_the_compiler_takes_what_is_listed_and_counts_as_many_devices(generation):
    for form in (generation.topologies[0], generation.topologies[2], generation.topologies[-1]):
        topology = generation.topology(form)
        found = devices_of(topology)
        assert len(found) == topology.devices
        assert sorted(d["id"] for d in found) == list(range(len(found)))
        assert max(d["core"] for d in found) == generation.cores - 1
