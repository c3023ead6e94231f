"""A Vulkan device for tests: Mesa's rasteriser, where IREE and it are installed."""

import pytest

from nxjax.backends import registry
from nxjax.backends.iree import drivers


@pytest.fixture(scope="session")
def rasteriser():
    """The manifest of a software driver of Vulkan."""
    pytest.importorskip("iree.runtime")
    pytest.importorskip("iree.compiler")
    found = [d.manifest for d in drivers.installed() if "lvp" in d.library or "lavapipe" in d.library]
    if not found:
        pytest.skip("no software Vulkan driver is installed (Mesa's lavapipe)")
    return found[0]


@pytest.fixture
def vulkan(rasteriser, monkeypatch):
    """The backend, with the rasteriser for its only device."""
    for name in ("VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES", "NXJAX_VULKAN_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VK_ICD_FILENAMES", rasteriser)
    backend = registry.get("vulkan")
    monkeypatch.setattr(backend, "_devices", None)
    if not backend.available()[0]:
        pytest.skip(f"the rasteriser does not start: {backend.available()[1]}")
    return backend
