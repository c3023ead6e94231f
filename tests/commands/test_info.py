"""``nxjax info`` and its fellows, as a user calls them."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from nxjax import __version__
from nxjax.__main__ import main
from nxjax.commands import info
from nxjax.config import config


def test_info_names_versions_devices_targets_and_extras(capsys):
    assert main(["info", "--all"]) == 0
    out = capsys.readouterr().out
    for word in (
        f"nxjax {__version__}",
        "numpy",
        "cpu:0",
        "hardware",
        "reference",
        "xla",
        "demo",
        "targets",
        "ethos-u55",
        "NXJAX_CACHE_DIR",
    ):
        assert word in out


def test_ten_lines_say_what_is_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("NXJAX_VERIFY", "1")
    with config.using(cache_dir=str(tmp_path)):
        assert main([]) == main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:10] == lines[10:] and max(map(len, lines)) < 200
    said = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[:10]}
    assert list(said) == [
        "nxjax", "python", "machine", "devices", "backends", "targets", "extras", "cache", "settings", "more",
    ]  # fmt: skip
    assert said["nxjax"] == __version__ and "cpu:0 (hardware)" in said["devices"] and "emitted" in said["targets"]
    assert "NXJAX_VERIFY" in said["settings"] and "nxjax info --all" in said["more"]


def test_ten_lines_name_the_extras_that_are_missing(monkeypatch):
    monkeypatch.setattr(info, "_version", lambda p: None if p in ("matplotlib", "llvmlite") else "1.0")
    assert "missing: demo, quant, " in info.brief() and "llvmlite missing" in info.brief()


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    real = info._version
    monkeypatch.setattr(info, "_version", lambda p: None if p == "matplotlib" else real(p))
    assert 'missing matplotlib; pip install "nxjax[demo]"' in info.text()


def test_an_extra_that_names_others_is_missing_what_they_miss(monkeypatch):
    assert {"onnxruntime", "ai-edge-litert"} <= set(info.extras()["npu"]) and "nxjax" not in info.extras()["npu"]
    monkeypatch.setattr(info, "_version", lambda p: None)
    assert info.extras()["npu"]["onnx"] is None


def test_a_copy_that_is_not_installed_has_no_extras(monkeypatch):
    def requires(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(info, "requires", requires)
    assert info.extras() == {} and "extras    0 complete; missing: none" in info.brief()


def test_settings_are_those_that_can_be_set():
    settings = info.text().split("\nsettings\n")[1].splitlines()
    names = [line.split()[0] for line in settings]
    assert "executor" in names and "mode" not in names and "_idle" not in names
    assert max(map(len, settings)) < 160


def test_the_cache_can_be_measured_and_cleared(tmp_path, capsys):
    from nxjax.backends import cache

    with config.using(cache_dir=str(tmp_path)):
        cache.store("k", b"1234")
        main(["cache", "size"])
        main(["cache", "clear"])
        main(["cache", "size"])
    assert capsys.readouterr().out.split("\n")[:3] == [
        "1 executables, 36 bytes",
        "removed 1 executables",
        "0 executables, 0 bytes",
    ]


def test_version_and_module_entry():
    done = subprocess.run([sys.executable, "-m", "nxjax", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_an_unknown_command_is_refused():
    with pytest.raises(SystemExit):
        main(["nonsense"])
