"""Arrays in a device's memory, and compiled modules that take and give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.backends.base import Executable
from nxjax.backends.iree.session import IreeSession, element_type
from nxjax.errors import DeviceMemoryError, ExecutionError
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]


def physical(t: ArrayType) -> dtypes.DType:
    """The dtype of the memory of a value: keys are 64-bit words, float0 is nothing but False."""
    if t.dtype == dtypes.key:
        return dtypes.uint64
    return dtypes.bool_ if t.dtype == dtypes.float0 else t.dtype


def failure(name: str, what: str, error: Exception, nbytes: int = 0) -> ExecutionError | DeviceMemoryError:
    """The error for what a runtime raised."""
    said = str(error).strip()[:800]
    if "RESOURCE_EXHAUSTED" in said or "OUT_OF_DEVICE_MEMORY" in said or "OUT_OF_HOST_MEMORY" in said:
        found = DeviceMemoryError(
            f"{name}: the device has no memory for {what}",
            got=said,
            fix="delete arrays that are on it (x.delete()), donate arguments (donate_argnums), or pass smaller batches",
        )
        found.required = nbytes or None
        return found
    return ExecutionError(f"{name}: {what} failed on the device", got=said)


@final
class IreeBuffer:
    """An array on a device."""

    __slots__ = ("name", "session", "type", "view")

    def __init__(self, view: Any, type: ArrayType, session: IreeSession, name: str) -> None:
        self.view = view
        self.type = type
        self.session = session
        self.name = name

    def wait(self) -> None:
        """Until it is computed, which it is."""

    def to_numpy(self) -> NDArray:
        """A copy in the host's memory."""
        t = self.type
        if not t.size:
            return np.zeros(t.shape, t.dtype)
        try:
            data = self.session.fetch(self.view, t.shape, physical(t))
        except Exception as error:
            raise failure(self.name, "fetching an array", error) from None
        if t.dtype == dtypes.key:
            data = data.view(dtypes.key).reshape(t.shape)
        elif t.dtype == dtypes.float0:
            data = np.zeros(t.shape, dtypes.float0)
        data.flags.writeable = False
        return data


def held(x: DeviceArray, session: IreeSession, name: str) -> IreeBuffer:
    """The array on the device of ``session``: where it is already, or copied there.

    Raises:
        DeviceMemoryError: the device has no room for it.
    """
    buffer = x.buffer
    if type(buffer) is IreeBuffer and buffer.session is session:
        return buffer
    t, data = x.type, x.numpy()
    if t.dtype == dtypes.key:
        data = np.ascontiguousarray(data).view(dtypes.uint64).reshape(t.shape)
    elif t.dtype == dtypes.float0:
        data = np.zeros(t.shape, np.bool_)
    try:
        return IreeBuffer(session.put(data, element_type(physical(t))), t, session, name)
    except Exception as error:
        raise failure(name, f"an array {t}", error, data.nbytes) from None


@final
class IreeExecutable(Executable):
    """A module on one device.

    An argument that is there already is passed as it is; one that was put nowhere is copied once, and the copy kept
    with the array, so that weights travel with the first call only.

    Args:
        module: compiled.
        stablehlo: what it was compiled from.
        target: for which GPU.
    """

    def __init__(
        self,
        module: bytes,
        stablehlo: str,
        target: str,
        out_types: Sequence[ArrayType],
        session: IreeSession,
        name: str,
    ) -> None:
        self.stablehlo = stablehlo
        self.target = target
        self.module = module
        self.out_types = tuple(out_types)
        self.session = session
        self.name = name
        try:
            self._loaded = session.load(module)
        except Exception as error:
            raise failure(name, "loading a program", error) from None

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        session, name = self.session, self.name
        views: list[Any] = []
        for x in args:
            buffer = x.buffer
            if type(buffer) is not IreeBuffer or buffer.session is not session:
                buffer = held(x, session, name)
                if x.place is None:
                    x.buffer = buffer
            views.append(buffer.view)
        try:
            given = session.call(self._loaded, "main", views, len(self.out_types))
        except Exception as error:
            raise failure(name, "the compiled program", error) from None
        return [
            DeviceArray(None, t, IreeBuffer(v, t, session, name)) for v, t in zip(given, self.out_types, strict=True)
        ]

    @property
    def text(self) -> str:
        """The StableHLO that was compiled, under the name of the target."""
        return f"// {self.target}\n{self.stablehlo}"

    def memory_analysis(self) -> dict[str, int]:
        """``generated_code_size_in_bytes``, ``output_size_in_bytes``."""
        return {
            "generated_code_size_in_bytes": len(self.module),
            "output_size_in_bytes": sum(t.size * t.dtype.itemsize for t in self.out_types),
        }
