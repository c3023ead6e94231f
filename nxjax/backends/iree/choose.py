"""Which devices there are, and for which target code is made on each: found by children, tested, remembered on disk.

What a process finds is kept with the executables, under a key of drivers and releases, so that the next asks nobody.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from nxjax.backends import cache
from nxjax.backends.iree import child, compiler, drivers, selftest, spec
from nxjax.backends.iree.facts import DeviceProperties, parse
from nxjax.backends.iree.spec import Spec
from nxjax.errors import ExecutionError
from nxjax.trace import dtypes

DRIVER: Final = "vulkan"
_LOCK: Final = threading.RLock()


@final
@dataclass(frozen=True)
class Choice:
    """The target that a device has passed the self-test with.

    Attributes:
        device: its facts.
        spec: what the compiler is told.
        tried: targets before it, and what they got wrong.
    """

    device: DeviceProperties
    spec: Spec
    tried: tuple[str, ...] = ()

    def refusal(self, dtype: dtypes.DType) -> str:
        """Why the device does not compute in a dtype; empty where it does. The first question about one is a test."""
        if dtype in selftest.CORE:
            return ""
        name = "int64" if dtype == dtypes.key else dtype.name
        if name not in selftest.TRIED:
            return "IREE has no code for it"
        with _LOCK:
            return _refusal(self.device, self.spec, name)


@lru_cache(4)
def _found(fingerprint: str) -> tuple[list[DeviceProperties], str]:
    """Devices and why there are none. Only what was found is kept on disk: a driver may be mended meanwhile."""
    key = cache.key_of("vulkan devices", compiler.version(), fingerprint)
    stored = cache.load(key)
    listed: list[dict[str, str]] | None = None if stored is None else json.loads(stored)
    if listed is None:
        try:
            listed = child.devices(DRIVER)
        except ExecutionError as error:
            return [], f"{error.got}"
        if listed:
            cache.store(key, json.dumps(listed).encode())
    facts = [parse(d["name"], d["path"], d["facts"]) for d in listed]
    real = [f for f in facts if not f.is_software]
    # A rasteriser is a device where there is no other: it stands in for none that is here.
    return real or facts, "" if facts else "the drivers find no device"


def devices() -> tuple[list[DeviceProperties], str]:
    """Vulkan's devices on this machine, and why there are none."""
    with _LOCK:
        return _found(drivers.fingerprint())


def choice(f: DeviceProperties) -> Choice:
    """The target for a device: the first candidate that computes what NumPy does.

    Raises:
        ExecutionError: none does; what each got wrong is in the message.
        MissingExtraError: IREE is not installed.
        ParameterError: ``NXJAX_VULKAN_TARGET`` names no target.
    """
    wanted = tuple(spec.candidates(f))
    with _LOCK:
        return _choice(f, wanted)


def _key(what: str, f: DeviceProperties, *specs: Spec) -> str:
    # The driver's words say which shaders it runs, the descriptions all that the compiler is told.
    return cache.key_of(f"vulkan {what}", compiler.version(), f.path, f.text, *map(repr, specs))


@lru_cache(16)
def _choice(f: DeviceProperties, wanted: tuple[Spec, ...]) -> Choice:
    key = _key("target", f, *wanted)
    stored = cache.load(key)
    if stored is not None:
        index, known = json.loads(stored)
        return Choice(f, wanted[index], tuple(known))
    tried: list[str] = []
    for index, s in enumerate(wanted):
        wrong = wrongs(f, s, "base")
        if not wrong:
            cache.store(key, json.dumps((index, tried)).encode())
            return Choice(f, s, tuple(tried))
        tried.append(f"{s.name}: {wrong}")
    raise ExecutionError(
        f"vulkan: {f.name} computes wrong results with every target",
        got="; ".join(tried),
        expected="what NumPy computes, in a self-test of twelve small programs",
        fix="update the device's driver; until then use another device",
    )


@lru_cache(64)
def _refusal(f: DeviceProperties, s: Spec, name: str) -> str:
    key = _key(f"dtype {name}", f, s)
    stored = cache.load(key)
    if stored is None:
        stored = wrongs(f, s, name).encode()
        cache.store(key, stored)
    return stored.decode()


def wrongs(f: DeviceProperties, s: Spec, module: str) -> str:
    """What one module of the self-test gets wrong on a device with a target; empty where it is right."""
    try:
        made = compiler.compile_text(s.applied(selftest.text(module)), s.flags)
    except compiler.CompilationFailed as error:
        return f"the compiler says: {error.reason}"
    tests = [t for t in selftest.tests() if t.module == module]
    given = child.run(DRIVER, f.path, {module: made}, [(module, t.name, t.inputs, t.expected) for t in tests])
    found = [y if isinstance(y, str) else t.judge(y) for t, y in zip(tests, given, strict=True)]
    return "; ".join(filter(None, found))
