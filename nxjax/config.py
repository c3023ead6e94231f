"""The few settings, each mirrored by an ``NXJAX_*`` environment variable read once at import.

Knows nothing but the environment. A setting that changes the meaning of a program does not belong here, with one
exception that JAX programs need: ``enable_x64`` moves the *default* dtypes to 64 bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, final

from nxjax.errors import ParameterError


def _flag(name: str, default: bool) -> bool:
    return os.environ.get(name, "1" if default else "0").lower() not in ("0", "false", "no", "")


# Per setting, who has to know when it changes.
_watchers: dict[str, list[Callable[[Any], None]]] = {}


def watch(name: str, told: Callable[[Any], None]) -> None:
    """``told`` is called with each new value of a setting, before it is set; what it raises refuses the value."""
    _watchers.setdefault(name, []).append(told)


@final
class Config:
    """Process-wide settings; ``nx.config.update(name, value)`` changes one.

    Attributes:
        enable_x64: Python scalars and 64-bit NumPy input keep 64 bits by default.
        executor: name of the executor that `jit` uses; empty means the best one available.
        cache_dir: folder of the on-disk executable cache; empty switches it off.
        check: run `Program.check()` after every staging and every pass.
        default_device: where `jit` computes of arguments that were put nowhere; see `nx.default_device`. None: on the
            first device.
        disable_jit: `jit` calls the function eagerly.
        num_cpu_devices: how many devices the CPU is; 0: as ``XLA_FLAGS`` says, else one. Set before the first use.
        platforms: the platforms that `jit` runs on by default, such as "tpu,cpu": the first that is here; empty: cpu.
        ipu_model: the IPU system that ``device="ipu"`` models, such as "bow" or "m2000"; naming one lists its devices.
        cpu_isa: the instruction set that the CPU compiler emits: avx512, avx2, neon, portable; empty: the best here.
        num_threads: how many threads the CPU executor uses; 0: as many as the process may run on.
        compile_first: the CPU executor makes machine code before a program's first run; else it may wait for the second
            where NumPy gives the same numbers sooner.
        cpu_pool_bytes: how much free memory the CPU executor keeps for its next results.
        traceback_filtering: errors of nxjax leave its transforms without the frames inside nxjax.
    """

    __slots__ = (
        "cache_dir", "check", "compile_first", "cpu_isa", "cpu_pool_bytes", "default_device", "disable_jit",
        "enable_x64", "executor", "ipu_model", "num_cpu_devices", "num_threads", "platforms", "traceback_filtering",
    )  # fmt: skip

    def __init__(self) -> None:
        self.enable_x64 = _flag("NXJAX_ENABLE_X64", False)
        self.executor = os.environ.get("NXJAX_EXECUTOR", "")
        default_cache = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "nxjax")
        self.cache_dir = os.environ.get("NXJAX_CACHE_DIR", default_cache)
        self.check = _flag("NXJAX_CHECK", False)
        self.default_device: Any = None
        self.disable_jit = _flag("NXJAX_DISABLE_JIT", False)
        self.num_cpu_devices = int(os.environ.get("NXJAX_NUM_CPU_DEVICES") or 0)
        self.platforms = os.environ.get("NXJAX_PLATFORMS", "")
        self.ipu_model = os.environ.get("NXJAX_IPU_MODEL", "")
        self.compile_first = _flag("NXJAX_COMPILE_FIRST", False)
        self.cpu_isa = os.environ.get("NXJAX_CPU_ISA", "")
        self.num_threads = int(os.environ.get("NXJAX_NUM_THREADS") or 0)
        self.cpu_pool_bytes = int(os.environ.get("NXJAX_CPU_POOL_BYTES") or 2**30)
        self.traceback_filtering = _flag("NXJAX_TRACEBACK_FILTERING", True)

    def __setattr__(self, name: str, value: Any) -> None:
        for told in _watchers.get(name, ()):
            told(value)
        object.__setattr__(self, name, value)

    def update(self, name: str, value: Any) -> None:
        """Set one setting; JAX's ``jax_`` prefix is accepted.

        >>> config.update("jax_enable_x64", False)
        """
        attribute = name.removeprefix("jax_")
        if attribute not in self.__slots__:
            raise ParameterError(f"config: no setting {name!r}", expected=", ".join(self.__slots__))
        if attribute == "platforms" and value is None:
            value = ""
        if attribute == "num_cpu_devices" and (not isinstance(value, int) or value < 0):
            raise ParameterError("config: num_cpu_devices", got=repr(value), expected="a number of devices, or 0")
        if attribute == "default_device" and not (value is None or hasattr(value, "platform")):
            raise ParameterError("config: default_device", got=repr(value), expected="one of nx.devices(), or None")
        setattr(self, attribute, value)

    @contextmanager
    def using(self, **values: Any) -> Generator[None]:
        """Change settings inside a ``with`` block."""
        before = {name: getattr(self, name) for name in values}
        try:
            for name, value in values.items():
                self.update(name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


config = Config()
