"""PJRT plugins: how they are found, that nothing is loaded without a chip, and what is said of broken ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends import placing, registry
from nxjax.backends.xla import client, plugins
from nxjax.errors import InvalidFileError

FAKE = """
#include <stddef.h>
struct version { size_t struct_size; void* extension; int major; int minor; };
struct api { size_t struct_size; void* extension; struct version version; void* functions[256]; };
static struct api api = { sizeof(struct api), 0, { sizeof(struct version), 0, MAJOR, 1 } };
void* GetPjrtApi(void) { return RESULT; }
"""
compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def library(folder: Path, major: int = 0, result: str = "&api", source: str = FAKE) -> Path:
    """A shared library that looks like a plugin."""
    path = folder / f"pjrt_plugin_{major}_{len(result)}_{len(source)}.so"
    code = folder / "fake.c"
    code.write_text(source)
    flags = ["-shared", "-fPIC", f"-DMAJOR={major}", f"-DRESULT={result}"]
    subprocess.run(["cc", *flags, str(code), "-o", str(path)], check=True)
    return path


def named(monkeypatch: pytest.MonkeyPatch, path: Path, name: str = "mychip") -> plugins.PjrtPlugin:
    monkeypatch.setenv("PJRT_NAMES_AND_LIBRARY_PATHS", f"{name}:{path}")
    return next(p for p in plugins.find() if p.name == name)


def test_plugins_of_the_environment_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PJRT_NAMES_AND_LIBRARY_PATHS", f"tpu:{tmp_path}/a.so, other:{tmp_path}/b.so,broken")
    found = plugins.find()
    assert [(p.name, Path(p.path).name, p.platform) for p in found[:2]] == [
        ("tpu", "a.so", "tpu"),
        ("other", "b.so", "other"),
    ]
    assert not [p for p in found if p.name == "broken"]
    assert plugins.backend_for("other").name == "other"


def test_a_package_is_found_by_its_folder_and_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "jax_plugins" / "xla_cuda12"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "other.so").write_bytes(b"\x7fELF nothing")
    (folder / "xla_cuda_plugin.so").write_bytes(b"\x7fELF ... GetPjrtApi ...")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PJRT_NAMES_AND_LIBRARY_PATHS", raising=False)
    found = next(p for p in plugins.find() if p.name == "cuda")
    assert found.platform == "gpu"
    assert found.path.endswith("xla_cuda_plugin.so")


def test_a_chip_that_is_not_here_is_not_looked_for_by_its_library() -> None:
    if plugins.tpu_chips():
        pytest.skip("a TPU is here")
    code = (
        "import sys, nxjax as nx\n"
        "try: nx.devices('tpu')\n"
        "except RuntimeError as error: print(error)\n"
        "print('loaded', 'jaxlib' in sys.modules)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert "no 'tpu' device here" in out
    assert "no TPU on this machine" in out or "libtpu is not installed" in out
    assert "loaded False" in out


def test_names_of_vendors_mean_the_platform() -> None:
    if registry.get("gpu").available()[0]:
        pytest.skip("a GPU is here")
    for name in ("gpu", "cuda", "rocm"):
        with pytest.raises(RuntimeError, match=f"no '{name}' device here"):
            nx.devices(name)


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin = named(monkeypatch, tmp_path / "gone.so")
    with pytest.raises(InvalidFileError, match=r"(?s)plugin 'mychip': there is no such file.*gone\.so.*PJRT_NAMES"):
        plugins.load(plugin)
    backend = plugins.backend_for("mychip")
    assert backend.available() == (False, f"plugin 'mychip': there is no such file: {tmp_path}/gone.so")
    assert backend.devices() == []


@compiler
def test_a_library_that_is_no_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin = named(monkeypatch, library(tmp_path, source="void nothing(void) {}"))
    with pytest.raises(InvalidFileError, match="has no function GetPjrtApi"):
        plugins.load(plugin)
    text = tmp_path / "text.so"
    text.write_text("GetPjrtApi")
    with pytest.raises(InvalidFileError, match=r"(?s)cannot be loaded.*text\.so"):
        plugins.load(named(monkeypatch, text))
    with pytest.raises(InvalidFileError, match="has no interface"):
        plugins.load(named(monkeypatch, library(tmp_path, result="0")))


@compiler
def test_a_plugin_of_another_version(tmp_path: Path) -> None:
    # In a process of its own: jaxlib keeps a plugin that it has loaded.
    path = library(tmp_path, major=99)
    code = "import nxjax as nx\ntry: nx.devices('mychip')\nexcept RuntimeError as error: print(error)"
    env = {"PJRT_NAMES_AND_LIBRARY_PATHS": f"mychip:{path}", "PATH": "/usr/bin:/bin"}
    out = subprocess.check_output([sys.executable, "-c", code], text=True, env=env, timeout=60)
    assert "does not work with jaxlib" in out
    assert str(path) in out
    assert "99" in out


def test_a_cuda_plugin_of_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "jax-cuda12-pjrt":
            return "0.4.30"
        raise plugins.PackageNotFoundError

    monkeypatch.setattr(plugins, "version", version)
    plugin = plugins.PjrtPlugin("cuda", "x.so", "xla_cuda12")
    assert "jax-cuda12-pjrt 0.4.30 does not fit jaxlib" in plugins.mismatch(plugin)
    assert plugins.mismatch(plugins.PjrtPlugin("tpu", "x.so", "libtpu")) == ""


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NXJAX_PJRT_CLIENT_OPTIONS", "a:1; b : text;nothing")
    assert plugins._options() == {"a": 1, "b": "text"}


# --- the adapter, with a second CPU client in the place of a plugin's ---


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    _, xla_client = client.need_jaxlib()
    monkeypatch.setattr(plugins, "make_client", lambda platform: xla_client.make_cpu_client(num_devices=2))
    monkeypatch.setattr(plugins, "find", lambda: [plugins.PjrtPlugin("double", "double.so", "a test")])
    yield plugins.backend_for("double")
    client._made.pop("double", None)


def test_arrays_go_to_a_plugin_and_back(double: Any) -> None:
    assert double.available()[0]
    first, second = double.devices()
    assert (first.platform, second.id, first.device_kind) == ("double", 1, "cpu")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    there = nx.device_put(x, second)
    assert there.devices() == {second}
    y = nx.jit(lambda x: nx.sin(x).sum(0))(there)
    assert y.devices() == {second}
    np.testing.assert_allclose(y, np.sin(x).sum(0), rtol=1e-6)
    assert (there + 1).devices() == {second}  # compiled: its memory is not the host's
    back = nx.device_put(there, nx.devices("cpu")[1])
    assert back.devices() == {nx.devices("cpu")[1]}
    np.testing.assert_array_equal(back, x)
    again = nx.device_put(nx.jit(lambda x: x * 2)(x), first)
    np.testing.assert_array_equal(again, x * 2)
    with pytest.raises(nx.errors.ShardingError, match="different devices"):
        nx.jit(lambda a, b: a + b)(there, back)
    assert nx.jit(lambda x: x + 1, device=first)(1.0).devices() == {first}
    assert second.memory_stats()["bytes_in_use"] > 0


def test_a_plugins_devices_make_a_mesh(double: Any) -> None:
    mesh = nx.sharding.Mesh(double.devices(), ("x",))
    x = nx.device_put(np.arange(8.0, dtype=np.float32), nx.sharding.NamedSharding(mesh, nx.P("x")))
    y = nx.jit(lambda x: (x, x.sum()))(x)
    assert y[0].sharding == x.sharding
    assert float(y[1]) == 28.0
    assert placing.sharding_of(y[1]).is_fully_replicated


def test_a_platform_is_made_the_default(double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    get = registry.get
    names = [*registry.names(), "double"]
    monkeypatch.setattr(registry, "names", lambda: names)
    monkeypatch.setattr(registry, "get", lambda name: double if name == "double" else get(name))
    registry._best.cache_clear()
    with nx.config.using(platforms="nowhere,double"):
        assert nx.default_backend() == "double"
        assert nx.devices()[0] == double.devices()[0]
        assert nx.devices("cpu")[0].platform == "cpu"
        assert {d.platform for d in nx.devices()} == {"cpu", "double"}
        assert nx.jit(lambda x: x * 3 - 1)(2.0).devices() == {double.devices()[0]}
    registry._best.cache_clear()
    with nx.config.using(platforms="nowhere"), pytest.raises(RuntimeError, match="none of the platforms"):
        nx.default_backend()
    with nx.config.using(platforms="cpu"):
        assert nx.default_backend() == "cpu"


def test_memory_that_is_not_the_hosts_is_copied(double: Any) -> None:
    y = nx.jit(lambda x: x * 2)(nx.device_put(np.arange(3, dtype=np.float32), double.devices()[0]))
    np.testing.assert_array_equal(y.buffer._copied(np.dtype(np.float32)), [0, 2, 4])
