"""Which backends there are. Built-in ones by module path, others by the entry point group ``nxjax.backends``, and those
that PJRT plugins bring.

Lazy: a backend's module is imported when it is first asked for, a vendor's package later still.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, Final, final

from nxjax.backends.base import Backend, Device, Executable
from nxjax.config import config
from nxjax.errors import ExecutionError, ParameterError
from nxjax.trace.lazy import load
from nxjax.trace.program import Program

_BUILT_IN: Final = {
    "reference": "nxjax.backends.reference.backend:ReferenceBackend",
    "cpu": "nxjax.backends.cpu.backend:CpuBackend",
    "xla": "nxjax.backends.xla.backend:XlaBackend",
    "tpu": "nxjax.backends.xla.plugins:TpuBackend",
    "gpu": "nxjax.backends.xla.plugins:GpuBackend",
    "ipu": "nxjax.backends.ipu.backend:IpuBackend",
    "vulkan": "nxjax.backends.iree.backend:VulkanBackend",
    "openvino-gpu": "nxjax.vendors.intel.openvino_device:OpenVinoGpuBackend",
}
# Those for the CPU, by priority: the first that is available keeps the others from being imported.
_FOR_CPU: Final = ("cpu", "xla", "reference")
_GROUP: Final = "nxjax.backends"
_PLUGINS: Final = "nxjax.backends.xla.plugins"
# Names that programs use for a platform.
ALIASES: Final = {"cuda": "gpu", "rocm": "gpu"}


_made: dict[str, Backend] = {}


@lru_cache(1)
def _paths() -> dict[str, str]:
    from importlib.metadata import entry_points  # takes as long to import as all that a first call runs

    return {**{e.name: e.value for e in entry_points(group=_GROUP)}, **_BUILT_IN}


@lru_cache(1)
def _plugins() -> tuple[str, ...]:
    """Platforms of installed plugins that are not built in."""
    return tuple(n for n in load(_PLUGINS).other_names() if n not in _paths())


def names() -> list[str]:
    """Every known backend, built-in first."""
    return [*_BUILT_IN, *sorted(_paths().keys() - _BUILT_IN.keys()), *_plugins()]


@lru_cache(None)
def get(name: str) -> Backend:
    """The backend called ``name``."""
    path = _BUILT_IN.get(name) or _paths().get(name)
    if path is None and name in _plugins():
        return load(_PLUGINS).backend_for(name)
    if path is None:
        raise ParameterError(f"backends: no backend {name!r}", expected=", ".join(names()))
    found = _loaded(path) if name in _BUILT_IN else _announced(name, path)
    _made[name] = found
    return found


def _loaded(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(load(module), attribute)()


def _announced(name: str, path: str) -> Backend:
    """The backend of a package; where the package is at fault, one that is missing for that reason: no other backend
    depends on it."""
    try:
        found = _loaded(path)
        if not isinstance(found, Backend):
            raise TypeError(f"{type(found).__name__} is no Backend")
        for word in (found.name, found.platform):
            if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError("its name and its platform are words")
        _here, _why = found.available()
    except (Exception, SystemExit) as error:
        return _Faulty(name, f"entry point {name!r}: {path}: {type(error).__name__}: {error}")
    return found


@final
class _Faulty(Backend):
    """What stands for the backend of a package that cannot be loaded, or cannot say whether it is here."""

    platform, label = "unknown", "host"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def available(self) -> tuple[bool, str]:
        return False, self._why

    def devices(self) -> list[Device]:
        return []

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        raise self._error()

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        raise self._error()

    def _error(self) -> ExecutionError:
        fix = "repair the package that brings it, or uninstall it"
        return ExecutionError(f"backends: {self.name} cannot be used", got=self._why, fix=fix)


def _devices(backend: Backend) -> list[Device]:
    """A backend's devices; none where a package's backend fails to say them, with a warning."""
    try:
        found = list(backend.devices())
        if wrong := [d for d in found if not isinstance(d, Device)]:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{wrong[0]!r} is no Device")
        return found
    except (Exception, SystemExit) as error:
        if type(backend).__module__.startswith("nxjax."):
            raise
        why = f"{type(error).__name__}: {error}"
        warnings.warn(f"the devices of {backend.name} are left out: {why}", RuntimeWarning, stacklevel=3)
        return []


def made() -> list[Backend]:
    """The built-in backends that anybody has asked for so far."""
    return list(_made.values())


@lru_cache(None)
def _best(platform: str) -> Backend | None:
    if platform == "cpu":
        # Those of packages have to be named: to look for them takes long.
        return next((b for b in map(get, _FOR_CPU) if b.available()[0]), None)
    # What only stands in for a chip of the platform has to be named itself.
    usable = [b for b in map(get, names()) if b.platform == platform and (b.listed or b.name == platform)]
    found = [b for b in usable if b.available()[0]]
    return max(found, key=lambda b: b.priority, default=None)


def default() -> Backend:
    """The executor of `jit`: the one that ``config.executor`` names, else the first platform of ``config.platforms``
    that is here, else the best one for the CPU.

    Raises:
        ExecutionError: platforms were named, and none of them is here.
    """
    if config.executor:
        return get(config.executor)
    return _chosen(config.platforms) if config.platforms else host()


def host() -> Backend:
    """The executor for the CPU."""
    if config.executor and get(config.executor).platform == "cpu":
        return get(config.executor)
    return _best("cpu") or get("reference")


@lru_cache(None)
def _chosen(platforms: str) -> Backend:
    wanted = [ALIASES.get(p.strip(), p.strip()) for p in platforms.split(",")]
    for platform in wanted:
        found = host() if platform == "cpu" else _best(platform)
        if found is not None:
            return found
    reasons = [f"{n}: {get(n).available()[1]}" for n in names() if get(n).platform in wanted]
    raise ExecutionError(
        f"config: none of the platforms {platforms!r} is here",
        got="; ".join(reasons) or "no backend for them",
        fix="leave NXJAX_PLATFORMS empty, or name cpu last",
    )


def for_device(device: Any) -> Backend:
    """The backend for a `Device`, a platform name (``"cpu"``, ``"tpu"``), a backend name, or None (the default)."""
    if device is None:
        return default()
    device = getattr(device, "device", device)  # `nx.Device`, which names one
    if isinstance(device, Device):
        return device.backend
    device = ALIASES.get(device, device)
    if device == "cpu":
        return host()
    if device in _paths() and get(device).platform != device:
        return get(device)
    found = _best(str(device))
    if found is None:
        reasons = "; ".join(f"{n}: {get(n).available()[1]}" for n in names() if get(n).platform == device)
        raise ParameterError(
            f"device: nothing here runs on {device!r}",
            got=reasons or "no backend for it",
            expected=", ".join(map(str, devices())),
        )
    return found


def devices(platform: str | None = None) -> list[Device]:
    """Devices that can execute now; the default one first. A model of a chip is listed only where it was asked for."""
    if platform is not None and platform != "cpu":
        return for_device(platform).devices()
    if platform == "cpu":
        return host().devices()
    best = default()
    others = [b for b in map(get, names()) if b.platform != "cpu" and b.listed and b.available()[0]]
    ordered = dict.fromkeys((best, *others, host()))
    return [d for b in ordered for d in _devices(b)]
