"""Which backends there are, which one is chosen, and what is said of those that are missing."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

import nxjax as nx
from nxjax.backends import registry
from nxjax.backends.base import Backend, Device
from nxjax.backends.evidence import LABELS
from nxjax.backends.reference.backend import ReferenceBackend
from nxjax.config import config
from nxjax.errors import ParameterError


class Absent(Backend):
    """A backend for a chip that is not here."""

    name = "absent"
    platform = "npu"
    label = "hardware"

    def available(self):
        return False, "no such chip in this machine"

    def devices(self):
        return []

    def compile(self, program, donate=()):
        raise AssertionError

    def lower(self, program, donate=()):
        raise AssertionError


@pytest.fixture
def announced(monkeypatch):
    """An entry point of group ``nxjax.backends``, as a package would bring it."""
    point = EntryPoint("absent", f"{__name__}:Absent", "nxjax.backends")
    for cached in (registry._paths, registry.get, registry._best):
        cached.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    monkeypatch.setattr(registry, "load", _module(registry.load))
    yield
    for cached in (registry._paths, registry.get, registry._best):
        cached.cache_clear()


def _module(real):
    import sys

    return lambda name: sys.modules[__name__] if name == __name__ else real(name)


def test_built_in_backends_come_first():
    assert registry.names()[:3] == ["reference", "cpu", "xla"]
    assert isinstance(registry.get("reference"), ReferenceBackend)
    assert all(registry.get(n).label in LABELS for n in registry.names())


def test_entry_points_are_found_and_missing_hardware_says_why(announced):
    assert "absent" in registry.names()
    with pytest.raises(ParameterError, match="no such chip in this machine"):
        registry.for_device("npu")
    assert all(d.platform == "cpu" for d in registry.devices())


WRONG_BACKENDS = {
    "import": ("1 / 0", "ZeroDivisionError"),
    "end": ("raise SystemExit(1)", "SystemExit"),
    "no backend": ("Chip = dict", "dict is no Backend"),
    "abstract": ("del Chip.devices; Chip.__abstractmethods__ = frozenset(['devices'])", "TypeError"),
    "no name": ("del Chip.name", "has no attribute 'name'"),
    "number as a platform": ("Chip.platform = 3", "words"),
    "available raises": ("Chip.available = lambda self: 1 / 0", "ZeroDivisionError"),
    "available ends": ("Chip.available = lambda self: sys.exit(1)", "SystemExit"),
    "available gives nothing": ("Chip.available = lambda self: None", "TypeError"),
    "devices raise": ("Chip.devices = lambda self: 1 / 0", "devices of chip are left out: ZeroDivisionError"),
    "no devices": ("Chip.devices = lambda self: None", "devices of chip are left out: TypeError"),
    "words as devices": ("Chip.devices = lambda self: ['npu:0']", "'npu:0' is no Device"),
}


@pytest.mark.parametrize(("change", "says"), WRONG_BACKENDS.values(), ids=WRONG_BACKENDS.keys())
def test_a_package_that_is_broken_takes_no_other_backend_with_it(tmp_path, change, says):
    (tmp_path / "chip.py").write_text(f"""
import sys
from nxjax.backends.base import Backend, Device

class Chip(Backend):
    name, platform, label = "chip", "npu", "hardware"

    def available(self):
        return True, "here"

    def devices(self):
        return [Device("npu", 0, self)]

    def compile(self, program, donate=()):
        raise AssertionError

    def lower(self, program, donate=()):
        raise AssertionError

{change}
""")
    package = tmp_path / "chip-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: chip\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[nxjax.backends]\nchip = chip:Chip\n")
    code = f"""
import sys, warnings
sys.path.insert(0, {str(tmp_path)!r})
import nxjax as nx
from nxjax.commands import info
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert nx.jit(lambda x: x * 2)(nx.numpy.ones(3)).tolist() == [2, 2, 2]
    assert {{d.platform for d in nx.devices()}} == {{"cpu"}}
    info._targets = dict  # none of these is in question
    print(info.text(), *(w.message for w in caught))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_a_first_call_imports_no_other_backend():
    code = """
import sys
import nxjax as nx
nx.config.update("executor", "")
before = set(sys.modules)
nx.jit(lambda x: x + 1)(nx.zeros(2))
print(sorted({"importlib.metadata", "nxjax.backends.xla.backend", "tempfile"} & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n", done.stderr


def test_the_default_is_the_best_available_or_the_one_asked_for():
    with config.using(executor="reference"):
        assert registry.default().name == "reference"
        assert nx.devices()[0].backend.name == "reference"
    available = [b for b in map(registry.get, registry.names()) if b.platform == "cpu" and b.available()[0]]
    with config.using(executor=""):
        assert registry.default().priority == max(b.priority for b in available)
    order = [registry.get(n).priority for n in registry._FOR_CPU]
    assert order == sorted(order, reverse=True)
    assert set(registry._FOR_CPU) == {n for n in registry._BUILT_IN if registry.get(n).platform == "cpu"}


def test_unknown_names_are_refused():
    with pytest.raises(ParameterError, match="no backend 'nonsense'"):
        registry.get("nonsense")
    with pytest.raises(ParameterError, match="nothing here runs on 'tpu9'"):
        nx.jit(lambda x: x, device="tpu9")(1.0)


def test_devices_compare_by_what_they_are():
    one, two = registry.get("reference").devices()[0], Device("cpu", 0, registry.get("reference"))
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == "cpu:0"
    assert one.is_available()
