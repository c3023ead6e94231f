"""Devices, and moving data to and from them; process-wide switches. All of it public in `nxjax` itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nxjax.backends import registry
from nxjax.backends.base import Device
from nxjax.config import config
from nxjax.errors import DtypeError, ExecutionError, ParameterError
from nxjax.trace import dtypes, tree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.core import EVAL, Array, Tracer, use


def devices(backend: str | None = None) -> list[Device]:
    """Devices that can execute now, the default one first.

    Args:
        backend: a platform (``"cpu"``, ``"gpu"``, ``"npu"``, ...) or the name of an executor; all platforms by default.

    Raises:
        ExecutionError: nothing here runs on ``backend``.

    >>> devices("cpu")[0].platform
    'cpu'
    """
    try:
        return registry.devices(backend)
    except ParameterError as error:
        raise ExecutionError(f"devices: no {backend!r} device here", got=error.got, expected=error.expected) from None


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """As `devices`: there is one process."""
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """How many devices of the default platform, or of ``backend``, there are."""
    return len(devices(backend or default_backend()))


def local_device_count(backend: str | None = None) -> int:
    """As `device_count`: there is one process."""
    return device_count(backend)


def default_backend() -> str:
    """The platform of the default executor."""
    return registry.default().platform


def process_index(backend: str | None = None) -> int:
    """Always 0."""
    return 0


def process_count(backend: str | None = None) -> int:
    """Always 1."""
    return 1


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False, may_alias: Any = None) -> Any:
    """A tree of numbers and arrays as arrays on ``device``; traced values pass through.

    Args:
        x: tree of arrays, NumPy arrays and numbers.
        device: a device or a platform, or a tree prefix of them; None leaves arrays where they are.
        src, donate, may_alias: accepted for JAX programs; copies are made only where they are needed.
    """
    leaves, treedef = tree.flatten(x)
    if device is None or isinstance(device, (Device, str)):
        wanted = [device] * len(leaves)
    else:
        wanted = tree.broadcast_leaves(device, x, "device_put: device", is_leaf=lambda d: d is None)
    return tree.unflatten(treedef, [_put(leaf, d) for leaf, d in zip(leaves, wanted, strict=True)])


def _put(x: Any, device: Any) -> Array:
    value = as_value(x, "device_put")
    if device is None or not isinstance(value, DeviceArray):
        return value
    place = device if isinstance(device, Device) else _first(device)
    return DeviceArray(value._data, value.type, value.buffer, place)


def _first(device: Any) -> Device:
    place = getattr(device, "device", device)
    if isinstance(place, Device):
        return place
    if not isinstance(place, str):
        raise ParameterError("device_put: not a device", got=repr(device)[:60], expected="one of nx.devices()")
    return devices(place)[0]


def device_get(x: Any) -> Any:
    """A tree of arrays as NumPy arrays; leaves that are not arrays stay as they are.

    >>> import nxjax as nx
    >>> type(device_get({"a": nx.ones(2)})["a"]).__name__
    'ndarray'
    """

    def fetch(leaf: Any) -> Any:
        if isinstance(leaf, Tracer):
            return np.asarray(leaf)  # the array's own error says what to do
        if isinstance(leaf, Array):
            return leaf if leaf.dtype == dtypes.key else leaf.numpy()
        return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf

    return tree.map(fetch, x)


def block_until_ready(x: Any) -> Any:
    """Wait until every array of the tree is computed; gives the tree back."""
    for leaf in tree.leaves(x):
        if isinstance(leaf, DeviceArray):
            raw = getattr(leaf.buffer, "raw", None)
            if raw is not None:
                raw.block_until_ready()
            elif leaf.buffer is not None:
                leaf.numpy()
        elif callable(wait := getattr(leaf, "block_until_ready", None)) and not isinstance(leaf, Tracer):
            wait()
    return x


def clear_caches() -> None:
    """Forget compiled executables that no function holds. Each jitted function has its own `clear_cache`."""
    from nxjax.backends.dispatch import compiler

    compiler.clear()


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Inside, `jit` calls functions as they are: prints and breakpoints see values."""
    with config.using(disable_jit=disable):
        yield


@contextmanager
def enable_x64(new_val: bool = True) -> Iterator[None]:
    """Inside, Python numbers and 64-bit NumPy input keep 64 bits."""
    if not isinstance(new_val, (bool, np.bool_)):
        raise DtypeError("enable_x64: needs a bool", got=repr(new_val))
    with config.using(enable_x64=bool(new_val)):
        yield


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside, operations on concrete values are computed at once, also while a function is traced."""
    with use(EVAL):
        yield
