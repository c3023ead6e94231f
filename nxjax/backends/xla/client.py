"""jaxlib's clients: whether they can be used, the one client of each platform, and buffers in.

Importing this file imports nothing of jaxlib. The `jax` package is never imported either (it costs a second): in
jaxlib 0.10 buffers made by `batched_device_put`, results taken through `array_result_handler` and elements read through
the buffer protocol do not need it, while jaxlib's DLPack and NumPy conversions would import it. Taking an array of
several devices apart looks for two functions of `jax`, and finds ours instead (`without_jax`).
"""

from __future__ import annotations

import _imp
import importlib
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, Final, final

import numpy as np

from nxjax.backends.xla.layouts import hlo_sharding, in_order
from nxjax.config import config
from nxjax.errors import MissingExtraError, ParameterError
from nxjax.trace import dtypes
from nxjax.trace.sharding import Sharding
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]

# jaxlib's Python interface changes from one minor release to the next.
SUPPORTED: Final = ((0, 10), (0, 11))


@lru_cache(1)
def available() -> tuple[bool, str]:
    """Whether a supported jaxlib is installed, and which, or why not. Reads metadata only."""
    try:
        found = version("jaxlib")
    except PackageNotFoundError:
        return False, 'jaxlib is not installed; pip install "nxjax[xla]"'
    numbers = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in found.split(".")[:2])
    low, high = SUPPORTED
    if not low <= numbers < high:
        wanted = f">={low[0]}.{low[1]},<{high[0]}.{high[1]}"
        return False, f'jaxlib {found} is installed, {wanted} is needed; pip install "jaxlib{wanted}"'
    return True, f"jaxlib {found}"


def jaxlib_version() -> str:
    return version("jaxlib")


def need_jaxlib() -> tuple[Any, Any]:
    """jaxlib's extension module and its client module.

    Raises:
        MissingExtraError: no supported jaxlib is installed.
    """
    ok, reason = available()
    if not ok:
        raise MissingExtraError("xla: the executor is not available", got=reason, fix='pip install "nxjax[xla]"')
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    from jaxlib import _jax, xla_client  # type: ignore[import-not-found]

    return _jax, xla_client


@final
class Aval:
    """Shape and dtype as jaxlib asks for them."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[int, ...], dtype: Any, weak_type: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type


def physical(type: ArrayType) -> tuple[tuple[int, ...], dtypes.DType]:
    """Shape and NumPy dtype of the buffer that holds a value: keys are 64-bit words, float0 is nothing but False."""
    if type.dtype == dtypes.key:
        return type.shape, dtypes.uint64
    if type.dtype == dtypes.float0:
        return type.shape, dtypes.bool_
    return type.shape, type.dtype


def _words(data: NDArray, type: ArrayType) -> NDArray:
    """The elements as the buffer's dtype has them."""
    shape, dtype = physical(type)
    if dtype == data.dtype:
        return data
    data = np.ascontiguousarray(data).view(dtype) if type.dtype == dtypes.key else np.zeros(shape, dtype)
    return data.reshape(shape)


@final
class Client:
    """A PJRT client with what every call needs at hand.

    Attributes:
        platform: ``cpu``, ``gpu``, ``tpu`` or the plugin's own name.
        raw: jaxlib's client.
        device, devices, sharding: the first device of this process, alone: where programs go that name no place.
    """

    def __init__(self, raw: Any, platform: str) -> None:
        self.jaxlib, self.xla_client = need_jaxlib()
        self.platform = platform
        self.raw: Any = raw
        _jax = self.jaxlib
        self.by_id: dict[int, Any] = {d.id: d for d in raw.devices()}
        self.device: Any = raw.local_devices()[0]
        self.devices: Any = _jax.DeviceList((self.device,))
        replicated: Any = self.xla_client.HloSharding.replicate()

        class Single(_jax.SingleDeviceSharding):  # type: ignore[misc,name-defined]
            """One device, the whole array, its default memory: the answers that `batched_device_put` asks for."""

            memory_kind = None

            def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
                return replicated

        class Several(_jax.GSPMDSharding):  # type: ignore[misc,name-defined]
            """Several devices and the compiler's own description of the cut."""

            memory_kind = None

            def __init__(self, devices: Any, hlo: Any) -> None:
                super().__init__(devices, hlo)
                self._hlo = hlo

            def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
                return self._hlo

        self.single: Any = Single
        self._several: Any = Several
        self.sharding: Any = Single(self.device)
        self._put: Any = _jax.batched_device_put
        self._semantics: Any = _jax.HostBufferSemantics.ZERO_COPY
        self._shardings: dict[Any, Any] = {}
        self._lists: dict[Any, Any] = {}

    # --- the default device ---

    def put(self, data: NDArray, type: ArrayType) -> Any:
        """A buffer on ``data``'s own memory where alignment allows, else on a copy. ``data`` must not change."""
        shape, dtype = physical(type)
        if dtype != data.dtype:
            data = _words(data, type)
        return self._put(Aval(shape, dtype), self.sharding, [data], [self.device], True, False, self._semantics, True)

    def handler(self, type: ArrayType) -> Any:
        """What turns one result of a call into a buffer object."""
        shape, dtype = physical(type)
        return self.jaxlib.array_result_handler(Aval(shape, dtype), self.sharding, True, True)

    # --- any place ---

    def device_list(self, devices: Sequence[Any]) -> Any:
        """jaxlib's list of these devices, in order."""
        key = tuple(d.id for d in in_order(devices))
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = self.jaxlib.DeviceList(tuple(self.by_id[i] for i in key))
        return found

    def raw_sharding(self, sharding: Sharding, ndim: int) -> Any:
        """jaxlib's object for ``sharding`` of an array of rank ``ndim``."""
        key = (sharding, ndim)
        found = self._shardings.get(key)
        if found is None:
            devices = sharding.device_list
            if len(devices) == 1:
                found = self.single(self.by_id[devices[0].id])
            else:
                hlo = hlo_sharding(self.xla_client, sharding, ndim)
                found = self._several(self.device_list(devices), hlo)
            if len(self._shardings) >= 4096:
                self._shardings.clear()
            self._shardings[key] = found
        return found

    def aval(self, type: ArrayType, several: bool) -> Aval:
        # Weak, so that jaxlib keeps the types of our shards apart from those of a jax in the same process.
        return Aval(*physical(type), several)

    def put_blocks(self, blocks: Sequence[Any], type: ArrayType, sharding: Sharding) -> Any:
        """An array over ``sharding`` from one block (NumPy, or a buffer already there) per device of this process."""
        here = [d for d in sharding.device_list if d.process_index == self.raw.process_index()]
        known = dict(zip(here, blocks, strict=True))
        local = [self.by_id[d.id] for d in in_order(here)]
        ready = [known[d] for d in in_order(here)]
        data = [_words(x, ArrayType(x.shape, type.dtype)) if isinstance(x, np.ndarray) else x for x in ready]
        several = sharding.num_devices > 1
        raw = self.raw_sharding(sharding, len(type.shape))
        return self._put(self.aval(type, several), raw, data, local, True, False, self._semantics, True)

    def place_handler(self, type: ArrayType, sharding: Sharding) -> Any:
        """As `handler`, for a result over ``sharding``."""
        aval = self.aval(type, sharding.num_devices > 1)
        return self.jaxlib.array_result_handler(aval, self.raw_sharding(sharding, len(type.shape)), True, True)

    def copied(self, raw: Any, sharding: Sharding, ndim: int, always: bool = False) -> Any:
        """The buffers on other devices, block by block: as many devices as before, the same cut."""
        semantics = self.jaxlib.ArrayCopySemantics
        how = semantics.ALWAYS_COPY if always else semantics.REUSE_INPUT
        target = self.raw_sharding(sharding, ndim)
        devices = self.device_list(sharding.device_list)
        return self.jaxlib.batched_copy_array_to_devices_with_sharding([raw], [devices], [target], [how])[0]


# --- what jaxlib asks jax for ---


def _aval(shape: tuple[int, ...], dtype: Any, weak_type: bool = False) -> Any:
    """jax's own type object if a program has imported jax meanwhile: jaxlib asks for this function once, for good."""
    core = sys.modules.get("jax._src.core")
    kind = getattr(core, "ShapedArray", None)
    return kind(shape, dtype, weak_type) if kind is not None else Aval(shape, dtype, weak_type)


@final
class _Stand(ModuleType):
    """In the place of jax for a moment: who asks for anything gets it from jax itself, imported then."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get("jax") is self:
            del sys.modules["jax"]
        return getattr(importlib.import_module("jax"), name)


@contextmanager
def without_jax(client: Client) -> Generator[None]:
    """jaxlib looks for two functions of `jax` when it makes single-device arrays, and would import the whole package.

    Where the program has not imported jax itself, it finds ours instead. The import lock is held meanwhile, and what
    stands in jax's place passes everybody else on, so that another thread may import jax at any time.
    """
    before = sys.modules.get("jax")
    if before is not None and before.__name__ == "jax":  # itself, and not what may stand in its place
        yield
        return
    core, shardings = ModuleType("jax.core"), ModuleType("jax._src.sharding_impls")
    vars(core)["ShapedArray"] = _aval
    vars(shardings)["make_single_device_sharding"] = lambda device, memory_kind=None: client.single(device)
    ours = {"jax": _Stand("jax"), "jax.core": core, "jax._src.sharding_impls": shardings}
    _imp.acquire_lock()
    others = {name: sys.modules[name] for name in ours if name in sys.modules}
    try:
        sys.modules.update(ours)
        yield
    finally:
        for name, module in ours.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
                sys.modules.update({name: others[name]} if name in others else {})
        _imp.release_lock()


# --- the CPU client ---

_FORCED: Final = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def cpu_device_count() -> int:
    """How many CPU devices this process asks for: the setting, else XLA's own flag, else one."""
    if config.num_cpu_devices > 0:
        return config.num_cpu_devices
    forced = _FORCED.findall(os.environ.get("XLA_FLAGS", ""))
    return max(int(forced[-1]), 1) if forced else 1


_made: dict[str, Client] = {}
# What `distributed.initialize` leaves for the CPU client: node, number of nodes, runtime client, collectives.
joined: dict[str, Any] = {}
# And who waits while the client is made, which needs all the others: calls its argument.
making: list[Callable[[Callable[[], Any]], Any]] = []


@contextmanager
def _enough_threads(devices: int) -> Generator[None]:
    """The client that is made inside has threads for several collectives of each device at once.

    XLA's CPU client has a pool of as many threads as devices, or as the variable NPROC says if that is more.
    Collectives of one device that do not depend on each other wait in threads of their own, so with one for each device
    some device may find none left: all wait for it, until XLA ends the process.
    """
    before = os.environ.get("NPROC")
    if devices > 1:
        os.environ["NPROC"] = str(max(_THREADS * devices, os.cpu_count() or 1, int(before or 0)))
    try:
        yield
    finally:
        if devices > 1:
            if before is None:
                del os.environ["NPROC"]
            else:
                os.environ["NPROC"] = before


_THREADS: Final = 16  # for each device


def client() -> Client:
    """The CPU client of the process, made at first use.

    Raises:
        ParameterError: ``num_cpu_devices`` was changed after the client was made.
    """
    found = _made.get("cpu")
    if found is None:
        _, xla_client = need_jaxlib()
        count = cpu_device_count()

        def make() -> Any:
            with _enough_threads(count):
                return xla_client.make_cpu_client(num_devices=count, **joined)

        found = _made["cpu"] = Client(making[0](make) if making else make(), "cpu")
        found_count[0] = count
    return found


# The number of devices the CPU client was made with; 0 before that.
found_count: Final = [0]


def check_count() -> int:
    """The number of CPU devices of this process, which cannot change once the client is made."""
    count = cpu_device_count()
    if found_count[0] and count != found_count[0]:
        raise ParameterError(
            "config: num_cpu_devices was changed after the first device was used",
            got=f"{count}, and there are {found_count[0]}",
            fix="set it first of all: nx.config.update('num_cpu_devices', 8), or NXJAX_NUM_CPU_DEVICES",
        )
    return count


def is_made(platform: str = "cpu") -> bool:
    """Whether the client of a platform exists already."""
    return platform in _made


def made(platform: str) -> Client | None:
    """The client of a platform, if it exists already."""
    return _made.get(platform)


def made_clients() -> dict[str, Client]:
    """The clients that the process has made so far, by platform."""
    return dict(_made)


def client_for(platform: str) -> Client:
    """The client of a platform: the CPU's, or a plugin's."""
    if platform == "cpu":
        return client()
    found = _made.get(platform)
    if found is None:
        from nxjax.backends.xla.plugins import make_client

        found = _made[platform] = Client(make_client(platform), platform)
    return found


def client_of(raw: Any) -> Client:
    """The client whose buffer this is."""
    return next(c for c in _made.values() if c.platform == raw.platform() or c.raw.platform == raw.platform())
