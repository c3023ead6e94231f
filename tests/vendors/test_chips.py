"""Which NPUs a machine has, on file trees as drivers make them."""

import pytest

import nxjax as nx
from nxjax.backends import target_registry as registry
from nxjax.errors import ParameterError
from nxjax.hardware.npu import is_npu_available, npu_unavailable_reason
from nxjax.vendors import chips
from nxjax.vendors.onnx import genai
from nxjax.vendors.onnx.target import OnnxTarget


def accel(root, index, driver):
    """A device of the accel subsystem that ``driver`` registered."""
    device = root / f"sys/class/accel/accel{index}/device"
    device.mkdir(parents=True)
    made = root / f"sys/bus/pci/drivers/{driver}"
    made.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(made)


def usb(root, name, vendor, product):
    entry = root / f"sys/bus/usb/devices/{name}"
    entry.mkdir(parents=True)
    (entry / "idVendor").write_text(f"{vendor}\n")
    (entry / "idProduct").write_text(f"{product}\n")


def node(root, name):
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev" / name).write_bytes(b"")


def test_nothing_there(tmp_path):
    assert chips.find(tmp_path) == []
    reason = chips.why_none(tmp_path)
    assert "no NPU found" in reason
    assert "Edge TPU" in (only := chips.why_none(tmp_path, "edgetpu")) and "Hexagon" in reason and "Hexagon" not in only
    for kind in chips.kinds():
        assert kind.name in reason


@pytest.mark.parametrize(
    ("make", "title", "place"),
    [
        (lambda r: accel(r, 0, "intel_vpu"), "Intel NPU", "/dev/accel/accel0"),
        (lambda r: accel(r, 3, "amdxdna"), "AMD XDNA", "/dev/accel/accel3"),
        (lambda r: node(r, "fastrpc-cdsp"), "Qualcomm Hexagon", "/dev/fastrpc-cdsp"),
        (lambda r: node(r, "apex_0"), "Google Edge TPU", "/dev/apex_0"),
        (lambda r: usb(r, "1-2", "18d1", "9302"), "Google Edge TPU", "usb 1-2"),
        (lambda r: node(r, "ethosu0"), "Arm Ethos-U", "/dev/ethosu0"),
        (lambda r: accel(r, 0, "habanalabs"), "Habana Gaudi", "/dev/accel/accel0"),
        (lambda r: accel(r, 0, "rocket"), "Rockchip RKNPU", "/dev/accel/accel0"),
    ],
)
def test_each_family(tmp_path, make, title, place):
    make(tmp_path)
    (chip,) = chips.find(tmp_path)
    assert (chip.title, chip.place) == (title, place)


def test_a_chip_without_a_target_is_not_said_to_be_compiled_for(tmp_path):
    nobodys = chips.Kind("Nobody", "NPU", drivers=("nobody",))
    assert chips._missing(nobodys) == "nxjax has neither a target nor a runtime for Nobody NPU"
    for kind in chips.kinds():
        # What is said to be written can be written.
        assert not kind.target or kind.target in registry.names()
    accel(tmp_path, 0, "rocket")
    assert "target='rockchip') writes a file" in chips.why_none(tmp_path)
    accel(tmp_path, 1, "habanalabs")
    assert "target='habana-gaudi') writes a file" in chips.why_none(tmp_path)


def test_others_devices_are_not_npus(tmp_path):
    accel(tmp_path, 0, "some_gpu")
    usb(tmp_path, "1-1", "1d6b", "0002")
    node(tmp_path, "null")
    assert chips.find(tmp_path) == []


def test_a_chip_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(chips, "installed", lambda module: False)
    accel(tmp_path, 0, "intel_vpu")
    (chip,) = chips.find(tmp_path)
    assert not chip.usable
    assert "pip install 'nxjax[openvino]'" in chips.why_none(tmp_path)


def test_a_target_of_another_package_brings_its_chips_and_its_provider(tmp_path, monkeypatch):
    class Elsewhere(OnnxTarget):
        name = "elsewhere"
        chips = (chips.Kind("Elsewhere", "E1", drivers=("e_one",), target="elsewhere"),)
        providers = {"E": {"fast": "1"}}

    with pytest.raises(ParameterError, match="genai: provider"):
        genai.provider_options("E", None)
    monkeypatch.setitem(registry._classes(), "elsewhere", Elsewhere)
    accel(tmp_path, 0, "e_one")
    (chip,) = chips.find(tmp_path)
    assert (chip.title, chip.place) == ("Elsewhere E1", "/dev/accel/accel0")
    assert "target='elsewhere') writes a file" in chip.reason
    assert genai.provider_options("E", {"slow": "0"}) == [{"E": {"fast": "1", "slow": "0"}}]


class Answer:
    """A target by what it says of this machine."""

    def __init__(self, label, reason=""):
        self.here = lambda: (label, reason)


@pytest.fixture
def says(monkeypatch):
    """``says(label, reason)``: all targets answer so."""

    def all_targets(label, reason=""):
        monkeypatch.setattr(registry, "names", lambda: [k.target for k in chips.kinds()])
        monkeypatch.setattr(registry, "get", lambda name: Answer(label, reason))

    return all_targets


def test_a_chip_that_its_target_cannot_reach(tmp_path, monkeypatch, says):
    monkeypatch.setattr(chips, "installed", lambda module: True)
    accel(tmp_path, 0, "amdxdna")
    says("emitted", "the Vitis AI provider is not installed")
    assert "the Vitis AI provider is not installed" in chips.why_none(tmp_path)
    says("hardware")
    assert chips.why_none(tmp_path) == ""
    monkeypatch.setattr(registry, "names", list)
    assert "no target 'amd-xdna'" in chips.why_none(tmp_path)


def test_a_chip_with_its_package_can_be_used(tmp_path, monkeypatch, says):
    monkeypatch.setattr(chips, "installed", lambda module: module == "openvino")
    says("hardware")
    accel(tmp_path, 0, "amdxdna")
    accel(tmp_path, 1, "intel_vpu")
    accel(tmp_path, 2, "habanalabs")
    found = chips.find(tmp_path)
    assert [c.usable for c in found] == [True, False, False]
    assert found[0].title == "Intel NPU"
    assert chips.why_none(tmp_path) == ""


def test_this_machine_answers_without_pretending():
    assert is_npu_available() == (npu_unavailable_reason() == "")
    if not is_npu_available():
        with pytest.raises(RuntimeError, match=r"nx\.simulate"):
            nx.hardware.npu.NPUBackend()
