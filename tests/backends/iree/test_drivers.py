"""Vulkan drivers are found as the loader finds them: by manifests, in its folders and variables."""

import json

import pytest

from nxjax.backends.iree import drivers


def manifest(folder, name, library="libvulkan_test.so"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library}}))
    return str(path)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A machine whose only folders are below ``tmp_path``."""
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(drivers, "folders", lambda: [str(tmp_path / "a"), str(tmp_path / "b")])
    return tmp_path


def test_manifests_are_found_in_order_and_broken_ones_left_out(alone):
    first, second = manifest(alone / "a", "radeon"), manifest(alone / "b", "lvp", "/lib/lvp.so")
    (alone / "a" / "broken.json").write_text("{")
    assert drivers.installed() == [(first, "libvulkan_test.so"), (second, "/lib/lvp.so")]


def test_variables_name_drivers_instead_or_besides(alone, monkeypatch):
    usual, other = manifest(alone / "a", "usual"), manifest(alone / "elsewhere", "other")
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", str(alone / "elsewhere"))
    assert [d.manifest for d in drivers.installed()] == [other, usual]
    before = drivers.fingerprint()
    monkeypatch.setenv("VK_ICD_FILENAMES", other)
    assert [d.manifest for d in drivers.installed()] == [other]
    assert drivers.fingerprint() != before


def test_folders_are_those_of_the_loader(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_DATA_HOME", "/d")
    monkeypatch.setenv("XDG_DATA_DIRS", "/s:/usr/share")
    monkeypatch.delenv("XDG_CONFIG_DIRS", raising=False)
    found = drivers.folders()
    wanted = [f"{root}/vulkan/icd.d" for root in ("/c", "/etc/xdg", "/usr/local/etc", "/etc", "/d", "/s", "/usr/share")]
    assert found == wanted


def test_a_gpu_is_seen_by_its_device_file(tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "can_be_listed", lambda: True)
    monkeypatch.setattr(drivers, "_GPU_FILES", (str(tmp_path / "renderD*"),))
    assert not drivers.gpu_seen()
    (tmp_path / "renderD128").write_text("")
    assert drivers.gpu_seen()
