"""Devices, and moving data to and from them; switches. All of it public in `nxjax` itself.

`device` names devices that may not be there, `global_arrays` makes arrays over several from their parts, `pmap` runs
one copy of a function on each, `introspect` looks at values and the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nxjax.backends import placing, registry
from nxjax.backends.base import Device
from nxjax.config import Override, config
from nxjax.errors import DtypeError, ExecutionError, ParameterError
from nxjax.ops.sharding import sharding_constraint
from nxjax.runtime.layout import Format
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, DeviceLike, PyTree
from nxjax.trace.array import DeviceArray, as_value, copied, readonly_view, wrap
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array, Tracer
from nxjax.trace.mesh import process_index as _process_index
from nxjax.trace.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding, as_sharding
from nxjax.trace.stage import evaluating_eagerly


@entry
def devices(backend: str | None = None) -> list[Device]:
    """The available devices, the default one first.

    Args:
        backend: a platform (``"cpu"``, ``"gpu"``, ``"npu"``, ...) or the name of an executor; all platforms by default.

    Raises:
        ExecutionError: nothing here runs on ``backend``.

    >>> devices("cpu")[0].platform
    'cpu'
    """
    if backend is None:
        return registry.devices()
    try:
        found = registry.devices(backend)
    except ParameterError as error:
        raise ExecutionError(f"devices: no {backend!r} device here", got=error.got, expected=error.expected) from None
    if not found:
        raise ExecutionError(f"devices: no {backend!r} device here", got=registry.for_device(backend).available()[1])
    return found


@entry
def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """As `devices`, but only of this process, or of another one; ``host_id`` is the old name of its index.

    Raises:
        ExecutionError: nothing here runs on ``backend``.

    >>> local_devices(backend="cpu")[0].platform
    'cpu'
    """
    asked = host_id if process_index is None else process_index
    wanted = _process_index() if asked is None else asked
    return [d for d in devices(backend) if d.process_index == wanted]


@entry
def device_count(backend: str | None = None) -> int:
    """The number of devices of the default platform, or of ``backend``, in all processes.

    >>> device_count("cpu") == len(devices("cpu"))
    True
    """
    return len(devices(backend or default_backend()))


@entry
def local_device_count(backend: str | None = None) -> int:
    """As `device_count`, in this process.

    >>> local_device_count() <= device_count()
    True
    """
    return len(local_devices(backend=backend or default_backend()))


def default_backend() -> str:
    """The platform of the default executor.

    >>> default_backend()
    'cpu'
    """
    return registry.default().platform


def default_device(device: DeviceLike) -> Override:
    """In ``with nx.default_device(device):`` `jit` runs there if no argument was put on a device. Its results stay
    there.

    Eager operations on one CPU device are NumPy's.

    Args:
        device: one of `devices`, a platform's name for its first, or None for the usual one.

    Raises:
        ParameterError: no device.

    >>> with nx.default_device(nx.devices("cpu")[-1]):
    ...     nx.jit(nx.sin)(0.0).device == nx.devices("cpu")[-1]
    True
    """
    return config.using(default_device=None if device is None else placing.device_of(device, "default_device"))


def process_index(backend: str | None = None) -> int:
    """The index of this process among those of `nx.distributed.initialize`; 0 without it.

    >>> process_index()
    0
    """
    return _process_index()


def process_count(backend: str | None = None) -> int:
    """The number of processes of `nx.distributed.initialize`; 1 without it.

    >>> process_count()
    1
    """
    return max((d.process_index for d in registry.default().devices()), default=0) + 1


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    >>> process_indices()
    [0]
    """
    return list(range(process_count(backend)))


def device_put(
    x: ArrayLike, device: DeviceLike = None, *, src: DeviceLike = None, donate: PyTree = False, may_alias: PyTree = None
) -> PyTree:
    """A tree of numbers and arrays, put on a device. It stays there, and so do results computed from it.

    Args:
        x: tree of arrays, NumPy arrays and numbers. Traced values are constrained to a named sharding, or pass through.
        device: a device, a platform, a sharding or a bare spec (on the current mesh), or a tree prefix of them. None
            leaves arrays where they are.
        src: accepted for JAX programs.
        donate: you do not use the given arrays afterwards. They are deleted if their data was moved.
        may_alias: False copies arrays that are there already.

    Raises:
        ShardingError: a shape cannot be split as the sharding says.
        ParameterError: ``device`` is none of these.

    >>> nx.device_put(nx.ones(2), nx.devices("cpu")[0]).device
    cpu:0
    """
    leaves, treedef = tree.flatten(x)
    if _is_place(device):
        wanted = [_place(device)] * len(leaves)
    else:
        full = tree.broadcast_leaves(device, x, "device_put: device", is_leaf=_is_place)
        wanted = [_place(d) for d in full]
    made = [_put(leaf, d, may_alias) for leaf, d in zip(leaves, wanted, strict=True)]
    if donate is True or isinstance(donate, (tuple, list, dict)):
        given = tree.broadcast_leaves(donate, x, "device_put: donate")
        for old, new, gone in zip(leaves, made, given, strict=True):
            if gone and isinstance(old, DeviceArray) and new is not old:
                old.delete()
    return tree.unflatten(treedef, made)


def _is_place(d: Any) -> bool:
    return d is None or isinstance(d, (Device, str, Sharding, PartitionSpec)) or hasattr(d, "platform")


def _place(device: Any) -> Sharding | None:
    if isinstance(device, Format):
        device = device.sharding
    if device is None:
        return None
    if isinstance(device, (Sharding, PartitionSpec)):
        return as_sharding(device, "device_put")
    try:
        return SingleDeviceSharding(placing.device_of(device, "device_put"))
    except ParameterError as error:
        if not isinstance(device, str):
            raise
        raise ExecutionError(f"device_put: no {device!r} device here", got=error.got, expected=error.expected) from None


def _put(x: Any, place: Sharding | None, may_alias: Any) -> Array:
    value = as_value(x, "device_put")
    if place is None:
        return copied(value) if may_alias is False else value
    if not isinstance(value, DeviceArray):
        return sharding_constraint(value, sharding=place) if isinstance(place, NamedSharding) else value
    if may_alias is False:
        value = value.with_type(value.type)
        if place == value.place:
            value = wrap(value.numpy().copy(), value.weak_type)
    return placing.put(value, place)


def device_get(x: ArrayLike) -> PyTree:
    """A tree of arrays as NumPy arrays; leaves that are not arrays stay as they are.

    >>> type(device_get({"a": nx.ones(2)})["a"]).__name__
    'ndarray'
    """

    def fetch(leaf: Any) -> Any:
        if isinstance(leaf, Tracer):
            return np.asarray(leaf)  # the array's own error says what to do
        if isinstance(leaf, Array):
            return leaf if leaf.dtype == dtypes.key else readonly_view(leaf.numpy())
        return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf

    return tree.map(fetch, x)


def block_until_ready(x: ArrayLike) -> PyTree:
    """Wait until every array of the tree is computed, and return the tree.

    Raises:
        RuntimeError: an array was deleted.
        ExecutionError: a computation failed.

    >>> block_until_ready({"x": nx.ones(2)})
    {'x': Array([1., 1.], dtype=float32)}
    """
    # Taking one array for a tree takes longer than a small program runs.
    for leaf in (x,) if type(x) is DeviceArray else tree.leaves(x):
        if isinstance(leaf, DeviceArray):
            wait_for(leaf)
        elif callable(wait := getattr(leaf, "block_until_ready", None)) and not isinstance(leaf, Tracer):
            wait()
    return x


def wait_for(x: DeviceArray) -> None:
    """Wait until the array is computed. Its elements are not fetched.

    Raises:
        RuntimeError: it was deleted.
        ExecutionError: its computation failed, such as in another process.

    >>> wait_for(nx.numpy.ones(3))
    """
    if x.buffer is None:
        x.numpy()  # says what is wrong with a deleted one
    elif (wait := getattr(x.buffer, "wait", None)) is not None:
        wait()
    else:
        x.numpy()


def sharding_of(x: DeviceArray) -> Sharding:
    """Where an array is.

    >>> len(sharding_of(nx.numpy.ones(3)).device_list)
    1
    """
    return placing.sharding_of(x)


def clear_caches() -> None:
    """Delete compiled executables that no function uses, and free memory kept for later results.

    Each jitted function has its own `clear_cache`.

    >>> clear_caches()
    """
    from nxjax.backends.dispatch import compiler

    compiler.clear()


def disable_jit(disable: bool = True) -> Override:
    """Inside, `jit` calls functions as they are: prints and breakpoints see values.

    >>> with disable_jit():
    ...     nx.jit(lambda x: 2 * x if x > 1 else x)(3.0)
    6.0
    """
    return config.using(disable_jit=disable)


def enable_x64(new_val: bool = True) -> Override:
    """Inside, Python numbers and 64-bit NumPy input keep 64 bits.

    Raises:
        DtypeError: not a bool.

    >>> with enable_x64():
    ...     nx.numpy.arange(2).dtype.name
    'int64'
    >>> nx.numpy.arange(2).dtype.name
    'int32'
    """
    if not isinstance(new_val, (bool, np.bool_)):
        raise DtypeError("enable_x64: needs a bool", got=repr(new_val))
    return config.using(enable_x64=bool(new_val))


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Inside, operations on concrete values run at once, also while a function is traced.

    Operations on traced values are traced as usual.

    >>> @nx.jit
    ... def f(x):
    ...     with ensure_compile_time_eval():
    ...         n = int(nx.numpy.ones(3).sum())
    ...     return x * n
    >>> f(2.0)
    Array(6., dtype=float32, weak_type=True)
    """
    with evaluating_eagerly():
        yield
