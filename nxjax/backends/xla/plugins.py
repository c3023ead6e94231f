"""PJRT plugins: which are installed, whether their chip is here, and how their client is made. Never imports `jax`.

Plugins are found as JAX finds them: ``PJRT_NAMES_AND_LIBRARY_PATHS`` (``name:path,name:path``), the entry points and
the namespace package ``jax_plugins``, and libtpu. A plugin package's own ``initialize()`` imports jax; its shared
library does not, so that alone is looked for and loaded. Nothing is loaded before a chip was seen: libtpu without a TPU
would look for one over the network for minutes, and end the process.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, ClassVar, Final, final

from nxjax.backends.base import Device
from nxjax.backends.xla import client
from nxjax.backends.xla.backend import ClientBackend
from nxjax.errors import ExecutionError, InvalidFileError, MissingExtraError

# The C entry point of every plugin.
_SYMBOL: Final = b"GetPjrtApi"
# Platform -> names of plugins that drive it, best first.
_PLATFORMS: Final = {"gpu": ("cuda", "rocm", "oneapi"), "tpu": ("tpu",)}
# Where the libraries that the CUDA plugin links to lie, inside the packages named nvidia-*.
_NVIDIA: Final = (
    "libcudart.so.1[23]", "libnvrtc.so.1[23]", "libcublas.so.1[23]", "libcublasLt.so.1[23]", "libnccl.so.2",
    "libcupti.so.1[23]", "libcusparse.so.12", "libcusolver.so.1[12]", "libcufft.so.1[12]", "libnvshmem_host.so.3",
    "libcudnn.so.9",
)  # fmt: skip


@final
class PjrtPlugin:
    """A plugin that is installed or named.

    Attributes:
        name: as it registers: ``tpu``, ``cuda``, ...
        path: its shared library.
        origin: what named it: a variable, a package.
    """

    def __init__(self, name: str, path: str, origin: str) -> None:
        self.name = name
        self.path = path
        self.origin = origin

    @property
    def platform(self) -> str:
        return next((p for p, names in _PLATFORMS.items() if self.name in names), self.name)

    def __repr__(self) -> str:
        return f"{self.name} ({self.path}, from {self.origin})"


def find() -> list[PjrtPlugin]:
    """Plugins on this machine, those of the environment first; one per name."""
    found: dict[str, PjrtPlugin] = {}
    for plugin in (*_named(), *_libtpu(), *_packages()):
        found.setdefault(plugin.name, plugin)
    return list(found.values())


def _named() -> Iterator[PjrtPlugin]:
    for part in os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").split(","):
        name, _, path = part.strip().partition(":")
        if name and path:
            yield PjrtPlugin(name, path, "PJRT_NAMES_AND_LIBRARY_PATHS")


def _libtpu() -> Iterator[PjrtPlugin]:
    given = os.environ.get("TPU_LIBRARY_PATH", "")
    if given:
        yield PjrtPlugin("tpu", given, "TPU_LIBRARY_PATH")
    spec = importlib.util.find_spec("libtpu")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield PjrtPlugin("tpu", os.path.join(folder, "libtpu.so"), "libtpu")


def _packages() -> Iterator[PjrtPlugin]:
    """Libraries in packages that register with JAX; the packages themselves are not imported."""
    folders: dict[str, str] = {}
    for entry in entry_points(group="jax_plugins"):
        folder = _folder(entry.value.partition(":")[0])
        if folder is not None:
            folders.setdefault(folder, entry.name)
    try:
        namespace = importlib.util.find_spec("jax_plugins")
    except (ImportError, ValueError):
        namespace = None
    for root in (namespace.submodule_search_locations or ()) if namespace is not None else ():
        for child in sorted(Path(root).glob("*/")):
            folders.setdefault(str(child), child.name)
    for folder, origin in folders.items():
        library = _library(Path(folder))
        if library is not None:
            yield PjrtPlugin(_plugin_name(origin, library), str(library), origin)


def _folder(module: str) -> str | None:
    """Where a module lies, found without running it or anything above it."""
    head, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for root in spec.submodule_search_locations or ():
        folder = Path(root, *rest)
        if folder.is_dir():
            return str(folder)
        if folder.with_suffix(".py").exists():
            return str(folder.parent)
    return None


def _library(folder: Path) -> Path | None:
    """The plugin's library among the shared libraries of its package: the one that has the entry point."""
    candidates = sorted(p for p in folder.rglob("*.so*") if p.is_file())
    likely = [p for p in candidates if "pjrt" in p.name.lower() or "plugin" in p.name.lower()]
    for path in (*likely, *(p for p in candidates if p not in likely)):
        if _has_symbol(path):
            return path
    return None


@lru_cache(None)
def _has_symbol(path: Path) -> bool:
    """Whether the name of the entry point is in the file: found by reading, as loading runs a library's code."""
    tail = b""
    try:
        with path.open("rb") as file:
            while chunk := file.read(2**22):
                if _SYMBOL in tail + chunk:
                    return True
                tail = chunk[-len(_SYMBOL) :]
    except OSError:
        pass
    return False


def _plugin_name(origin: str, library: Path) -> str:
    text = f"{origin} {library.name}".lower()
    return next((n for names in _PLATFORMS.values() for n in names if n in text), origin.rpartition(".")[2])


# --- is the chip here? ---


def tpu_chips() -> int:
    """TPU chips that this machine shows: PCI functions of Google's, or the driver's device files."""
    known = 0
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        try:
            ours = Path(vendor).read_text().strip() == "0x1ae0"
            device = Path(vendor).with_name("device").read_text().strip() if ours else ""
        except OSError:
            continue
        # v2 and v3, v4, v5p, v5e, v6e, 7x; other functions of this vendor are network cards and disks.
        known += device in ("0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")
    return known or len(glob.glob("/dev/accel[0-9]*"))


def _absent(name: str) -> str:
    """Why a plugin has nothing to drive here; empty where it has, or where nobody can tell before trying."""
    if name == "tpu":
        return (
            ""
            if tpu_chips() or os.environ.get("NXJAX_FORCE_TPU")
            else "no TPU on this machine (no /dev/accel*, no PCI function of one)"
        )
    if name == "cuda":
        seen = any(map(os.path.exists, ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg")))
        return "" if seen else "no NVIDIA GPU on this machine (no /dev/nvidia0)"
    if name == "rocm":
        return "" if os.path.exists("/dev/kfd") else "no AMD GPU on this machine (no /dev/kfd)"
    return ""


def mismatch(plugin: PjrtPlugin) -> str:
    """Why a CUDA plugin's version does not fit jaxlib's; empty where it does or does not say."""
    if plugin.name != "cuda":
        return ""
    for package in ("jax-cuda13-pjrt", "jax-cuda12-pjrt"):
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        wanted = client.jaxlib_version()
        if found.split("+")[0].split(".")[:3] != wanted.split(".")[:3]:
            return f'{package} {found} does not fit jaxlib {wanted}; pip install "{package}=={wanted}"'
        return ""
    return ""


# --- loading ---


def load(plugin: PjrtPlugin) -> None:
    """Load the library of ``plugin`` and check that jaxlib can speak to it.

    Raises:
        InvalidFileError: there is no such file, it is no shared library, or it is no plugin.
        ExecutionError: it does not initialize: another version of the interface, a broken driver.
    """
    _jax, xla_client = client.need_jaxlib()
    if xla_client.pjrt_plugin_loaded(plugin.name):
        return
    what = f"plugin {plugin.name!r}"
    path = Path(plugin.path)
    if not path.exists():
        raise InvalidFileError(
            f"{what}: there is no such file", got=plugin.path, expected="a PJRT plugin", fix=f"correct {plugin.origin}"
        )
    if not _has_symbol(path):
        raise InvalidFileError(
            f"{what}: the file is not a PJRT plugin",
            got=f"{plugin.path} has no function GetPjrtApi",
            expected="a shared library that has it",
            fix=f"correct {plugin.origin}",
        )
    if plugin.name == "cuda":
        _load_nvidia()
    _ask(plugin, what)
    try:
        _jax.load_pjrt_plugin(plugin.name, plugin.path, c_api=None)
        if not xla_client.pjrt_plugin_initialized(plugin.name):
            xla_client.initialize_pjrt_plugin(plugin.name)
    except _jax.JaxRuntimeError as error:
        text = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ExecutionError(
            f"{what}: does not work with jaxlib {client.jaxlib_version()}",
            got=f"{plugin.path}: {text[:400]}",
            fix="install versions of the plugin and of jaxlib that were released together",
        ) from None


def _ask(plugin: PjrtPlugin, what: str) -> None:
    """Load the library and see that it gives an interface: jaxlib would follow a null pointer."""
    try:
        function: Any = ctypes.CDLL(plugin.path).GetPjrtApi
    except (OSError, AttributeError) as error:
        raise InvalidFileError(
            f"{what}: the library cannot be loaded", got=f"{plugin.path}: {str(error)[:400]}", fix="reinstall it"
        ) from None
    function.restype = ctypes.c_void_p
    if not function():
        raise InvalidFileError(f"{what}: the library has no interface", got=plugin.path, fix="reinstall it")


def _load_nvidia() -> None:
    """CUDA's libraries from the nvidia-* packages, so that the plugin finds them; those of the system otherwise."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for pattern in _NVIDIA:
            for path in sorted(glob.glob(os.path.join(root, "*", "lib", pattern))):
                try:
                    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                except OSError:
                    continue


def make_client(platform: str) -> Any:
    """jaxlib's client of a platform that a plugin drives.

    Raises:
        MissingExtraError: no plugin for it is installed.
        InvalidFileError, ExecutionError: see `load`; or the plugin finds no device.
    """
    plugin = next((p for p in find() if p.platform == platform), None)
    if plugin is None:
        raise MissingExtraError(
            f"{platform}: no PJRT plugin for it is installed",
            fix={"tpu": "pip install 'nxjax[tpu]'", "gpu": "pip install jax-cuda12-plugin"}.get(platform),
        )
    load(plugin)
    _jax, xla_client = client.need_jaxlib()
    options: dict[str, Any] = xla_client.generate_pjrt_gpu_plugin_options() if plugin.name == "cuda" else {}
    options |= _options()
    runtime = client.joined.get("distributed_client")
    if runtime is not None and plugin.name != "tpu":
        options |= {"node_id": client.joined["node_id"], "num_nodes": client.joined["num_nodes"]}
    try:
        raw = xla_client.make_c_api_client(plugin.name, options, runtime)
    except _jax.JaxRuntimeError as error:
        raise ExecutionError(
            f"plugin {plugin.name!r}: finds no usable device",
            got=f"{plugin.path}: {str(error)[:800]}",
            fix="see that the chip's driver works and that no other process holds the chip",
        ) from None
    return raw


def _options() -> dict[str, Any]:
    """``NXJAX_PJRT_CLIENT_OPTIONS`` (``key:value;key:value``), as plugins define them."""
    found: dict[str, Any] = {}
    for part in os.environ.get("NXJAX_PJRT_CLIENT_OPTIONS", "").split(";"):
        key, colon, value = part.partition(":")
        if colon:
            found[key.strip()] = int(value) if value.strip().lstrip("-").isdigit() else value.strip()
    return found


# --- backends ---


class PluginBackend(ClientBackend):
    """Devices of one platform that a plugin drives."""

    def __init__(self) -> None:
        self._found: list[Device] | None = None
        self._verdict: tuple[bool, str] | None = None

    def plugin(self) -> PjrtPlugin | None:
        """What would drive this platform."""
        return next((p for p in find() if p.platform == self.platform), None)

    def available(self) -> tuple[bool, str]:
        """Whether its devices can be used, and why not. The library is loaded only where a chip was seen."""
        if self._verdict is None:
            self._verdict = self._available()
        return self._verdict

    def _available(self) -> tuple[bool, str]:
        ok, reason = client.available()
        if not ok:
            return False, reason
        plugin = self.plugin()
        if plugin is None:
            return False, _HINTS.get(self.platform, "no PJRT plugin for it is installed")
        reason = _absent(plugin.name) or mismatch(plugin)
        if reason:
            return False, f"{plugin.origin} is installed, {reason}"
        try:
            c = client.client_for(self.platform)
        except (InvalidFileError, ExecutionError, MissingExtraError) as error:
            return False, f"{error.what}: {error.got}"
        return True, f"{plugin.origin}: {c.raw.platform_version.splitlines()[0]}"

    def devices(self) -> list[Device]:
        if not self.available()[0]:
            return []
        if self._found is None:
            self._found = [self._device(d.id, d.process_index) for d in self._client.raw.devices()]
        return list(self._found)


_HINTS: Final = {
    "tpu": "libtpu is not installed; pip install 'nxjax[tpu]'",
    "gpu": "no CUDA plugin is installed; pip install jax-cuda12-plugin (or jax-cuda13-plugin)",
}


@final
class TpuBackend(PluginBackend):
    name = "tpu"
    platform: ClassVar[str] = "tpu"
    priority: ClassVar[int] = 10


@final
class GpuBackend(PluginBackend):
    name = "gpu"
    platform: ClassVar[str] = "gpu"
    priority: ClassVar[int] = 10


def other_names() -> list[str]:
    """Platforms of installed plugins that have no class here."""
    return [p.platform for p in find() if p.platform not in _PLATFORMS]


def backend_for(platform: str) -> PluginBackend:
    """The backend of any plugin: TPU's and GPU's own, or one made for the name that the plugin has."""
    kinds: dict[str, type[PluginBackend]] = {"tpu": TpuBackend, "gpu": GpuBackend}
    kind = kinds.get(platform) or type(
        f"{platform.title()}Backend", (PluginBackend,), {"name": platform, "platform": platform}
    )
    return kind()
