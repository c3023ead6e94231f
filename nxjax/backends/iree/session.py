"""One device of IREE's runtime: modules, buffers, calls. Also a program that lists devices and tries modules.

Loading a graphics driver, and running code that a compiler made for the wrong chip, can end a process. So drivers are
first met, and targets first tried, by a child that runs this file; the user's process loads what has passed. Imports
nothing of nxjax: `IreeSession` is shared, the rest is the child's.

A request is a folder with ``request.json``: ``driver``, and ``device`` (its path) with ``tests``. Each test has a
module's file, its function, and of its inputs the names in ``arrays.npz`` and the element types. ``answer.json`` gets
the devices, or the state of each test; ``results.npz`` what tests gave.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

# An element type of IREE is the kind of number, how it is held, and its bits.
_KINDS: Final = {"b": 0x13, "i": 0x11, "u": 0x12, "f": 0x21, "c": 0x23}
_BFLOAT: Final = 0x22000010


def element_type(dtype: np.dtype[Any]) -> int:
    """IREE's number for an element type."""
    if dtype.name == "bfloat16":
        return _BFLOAT
    return (_KINDS[dtype.kind] << 24) | (8 * dtype.itemsize)


def devices(driver: str) -> list[dict[str, Any]]:
    """What a driver has: ``name``, ``path``, and ``facts``, the driver's own words."""
    import iree.runtime as runtime  # type: ignore[import-not-found]

    known: Any = runtime.get_driver(driver)
    found: list[dict[str, Any]] = []
    for d in known.query_available_devices():
        try:
            facts = str(known.dump_device_info(d["device_id"]))
        except Exception as error:
            facts = f"error: {error}"
        found.append({"name": str(d["name"]), "path": str(d["path"]), "facts": facts})
    return found


class IreeSession:
    """A device with its memory. Calls wait for one another.

    Args:
        driver: IREE's name, ``vulkan`` or ``local-task``.
        path: of the device, as `devices` says; the first one where it is empty.

    Raises:
        RuntimeError: the driver has no such device, or does not start.
    """

    def __init__(self, driver: str, path: str = "") -> None:
        import iree.runtime as runtime  # type: ignore[import-not-found]

        self.runtime: Any = runtime
        known: Any = runtime.get_driver(driver)
        listed = known.query_available_devices()
        ids = [d["device_id"] for d in listed if not path or d["path"] == path]
        if not ids:
            raise RuntimeError(f"the {driver} driver has no device {path or 'at all'}; it has {len(listed)}")
        self.device: Any = known.create_device(ids[0])
        self.allocator: Any = self.device.allocator
        self.instance: Any = runtime.VmInstance()
        self.hal: Any = runtime.create_hal_module(self.instance, self.device)
        self.lock = threading.Lock()
        kinds, usage = runtime.MemoryType, runtime.BufferUsage
        self._local = int(kinds.DEVICE_LOCAL)
        self._usage = int(usage.DEFAULT)
        self._staging = int(kinds.HOST_LOCAL) | int(kinds.DEVICE_VISIBLE)
        self._mapped = int(usage.TRANSFER_TARGET) | int(usage.MAPPING_SCOPED) | int(usage.MAPPING_PERSISTENT)

    def load(self, module: bytes) -> Any:
        """A compiled module, ready to be called: its context, and the module for its functions."""
        loaded = self.runtime.VmModule.copy_buffer(self.instance, module)
        return self.runtime.VmContext(self.instance, [self.hal, loaded]), loaded

    def put(self, data: np.ndarray[Any, Any], element: int) -> Any:
        """A copy of ``data`` in the device's memory, as a view with its shape and ``element`` type."""
        with self.lock:
            return self.allocator.allocate_buffer_copy(
                memory_type=self._local,
                allowed_usage=self._usage,
                device=self.device,
                buffer=carried(data),
                element_type=self.runtime.HalElementType(element),
            )

    def call(self, module: Any, function: str, views: Sequence[Any], count: int) -> list[Any]:
        """Run a function; its ``count`` results stay on the device. Gives back when they are computed."""
        context, loaded = module
        arguments = self.runtime.VmVariantList(len(views))
        for v in views:
            arguments.push_ref(v)
        results = self.runtime.VmVariantList(count)
        with self.lock:
            context.invoke(loaded.lookup_function(function), arguments, results)
        return [results.get_as_object(i, self.runtime.HalBufferView) for i in range(count)]

    def fetch(self, view: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A result in the host's memory.

        Through a staging buffer of the device's own: a driver imports the host's memory only at page boundaries
        (``minImportedHostPointerAlignment``), where NumPy's arrays are not.
        """
        source = view.get_buffer()
        if not source.byte_length():
            return np.zeros(tuple(shape), dtype)
        with self.lock:
            staging = self.allocator.allocate_buffer(
                memory_type=self._staging, allowed_usage=self._mapped, allocation_size=source.byte_length()
            )
            done = self.device.create_semaphore(0)
            fence = self.runtime.HalFence.create_at
            begin, end = fence(done, 0), fence(done, 1)
            self.device.queue_copy(source, staging, wait_semaphores=begin, signal_semaphores=end)
            end.wait()
            mapped = staging.map()
            data: np.ndarray[Any, Any] = mapped.asarray(tuple(shape), _carrier(dtype)).copy()
        return data if data.dtype == dtype else data.view(dtype)

    def statistics(self) -> dict[str, int]:
        """Bytes of the device's memory by the allocator's own count; empty where it does not count."""
        return dict(self.allocator.statistics) if self.allocator.has_statistics else {}


def _carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of the same bits that the buffer protocol has a letter for."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind in "Vb" or dtype.isbuiltin != 1 else dtype


def carried(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``data`` in one piece, under a dtype that every reader of buffers and files knows."""
    whole = np.asarray(data, order="C")
    return whole if _carrier(whole.dtype) == whole.dtype else whole.view(_carrier(whole.dtype))


def tried(place: Path, request: dict[str, Any]) -> list[dict[str, str]]:
    """Run the tests of a request; what is known is written after each, as the next may end the process."""
    arrays = dict(np.load(place / "arrays.npz"))
    session = IreeSession(request["driver"], request["device"])
    results: dict[str, np.ndarray[Any, Any]] = {}
    states: list[dict[str, str]] = []
    modules: dict[str, Any] = {}
    for number, test in enumerate(request["tests"]):
        try:
            file = test["module"]
            if file not in modules:
                modules[file] = session.load((place / file).read_bytes())
            views = [session.put(arrays[name], element) for name, element in test["inputs"]]
            given = session.call(modules[file], test["function"], views, 1)[0]
            results[str(number)] = session.fetch(given, test["shape"], np.dtype(test["dtype"]))
            states.append({"state": "ran"})
        except Exception as error:
            states.append({"state": "failed", "reason": f"{type(error).__name__}: {str(error).strip()[:400]}"})
        np.savez(place / "partial.npz", **results)  # pyright: ignore[reportArgumentType]
        (place / "partial.npz").replace(place / "results.npz")
        _answer(place, {"tests": states})
    return states


def _answer(place: Path, answer: dict[str, Any]) -> None:
    """Written whole or not at all: this process may be ended at any time."""
    (place / "partial.json").write_text(json.dumps(answer))
    (place / "partial.json").replace(place / "answer.json")


def main(folder: str) -> None:
    """Answer the request in ``folder``."""
    place = Path(folder)
    request: dict[str, Any] = json.loads((place / "request.json").read_text())
    sys.path[:0] = request["path"]
    if "tests" in request:
        tried(place, request)
        return
    try:
        answer: dict[str, Any] = {"devices": devices(request["driver"])}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {str(error).strip()[:600]}"}
    _answer(place, answer)


if __name__ == "__main__":
    main(sys.argv[1])
