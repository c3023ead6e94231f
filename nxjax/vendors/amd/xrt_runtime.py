"""An NPU of AMD opened through pyxrt: its hardware contexts, and the memory of programs in them.

A context is scarce: the chip has 6 or 16 for all processes together, so the one that was used least recently gives way
to a program that needs one. A context in which a run failed is never used again. One in which a run hangs is kept, with
all the run touches, until the chip is done with it: XRT ends the process when a run is let go that has not ended
(xrt_kernel.cpp of github.com/Xilinx/XRT). How a run goes is `xrt_program`'s business.
"""

from __future__ import annotations

import atexit
import ctypes
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from nxjax.config.weak_registry import WeakRegistry
from nxjax.errors import ExecutionError, ParameterError
from nxjax.ops.base import NDArray
from nxjax.vendors.amd.xrt import Npu, devices, first_line, memlock, package, unavailable
from nxjax.vendors.amd.xrt_artifact import LEADING, XrtArtifact

if TYPE_CHECKING:
    from nxjax.vendors.amd.xrt_program import XrtProgram


@final
@dataclass(eq=False)
class Buffers:
    """One set of a program's buffers: pyxrt's objects, and the memory of each as an array of bytes."""

    objects: list[Any]
    memory: list[NDArray]


@final
@dataclass(eq=False)
class Loaded:
    """A program in a context: its kernel, its instructions on the chip, and sets of buffers that nobody uses."""

    artifact: XrtArtifact
    kernel: Any
    insts: Any
    free: list[Buffers] = field(default_factory=list[Buffers])


@final
@dataclass(eq=False)
class XrtContext:
    """A hardware context and the programs in it, all of which go when it goes."""

    xclbin: Any
    hardware: Any
    loaded: dict[int, Loaded] = field(default_factory=dict[int, Loaded])
    users: int = 0


@final
@dataclass(eq=False)
class Buried:
    """What must not be let go before the chip is done with it, and how to see whether it is."""

    ended: Callable[[], bool]
    keeps: tuple[Any, ...]


@final
class XrtRuntime:
    """One NPU, opened. A context manager: leaving it gives the hardware contexts back.

    Args:
        npu: a device of `xrt.devices`; the first one without it.
        contexts: at most so many hardware contexts at once; as many as the chip has without it.
        module: stands for the package ``pyxrt``.

    Raises:
        MissingExtraError: ``pyxrt`` is not installed.
        ExecutionError: there is no such NPU, or it cannot be opened; the message says what is missing.
    """

    def __init__(self, npu: Npu | None = None, *, contexts: int | None = None, module: Any = None) -> None:
        if contexts is not None and contexts < 1:
            raise ParameterError("xrt: contexts", got=contexts, expected="1 or more")
        self.pyxrt = module if module is not None else package()
        if npu is None:
            found = devices(module=self.pyxrt)
            if not found:
                raise ExecutionError("xrt: no NPU", got=unavailable() or "XRT lists no NPU")
            npu = found[0]
        self.npu = npu
        self.limit = min(contexts or npu.contexts, npu.contexts)
        try:
            self.device = self.pyxrt.device(npu.index)
        except Exception as error:
            raise ExecutionError(f"xrt: {npu.name} cannot be opened", got=first_line(error), fix=memlock()) from error
        self.change = threading.Condition()
        self._contexts: OrderedDict[str, XrtContext] = OrderedDict()
        # Every context that exists: also one that has been retired, as long as anything of it is in use.
        self._alive: WeakRegistry[XrtContext] = WeakRegistry()
        self._buried: list[Buried] = []
        self._closed = False
        _RUNTIMES.add(self)

    @property
    def held(self) -> int:
        """How many hardware contexts this object holds, those of runs that hang among them."""
        with self.change:
            self.sweep()
        return len(self._alive)

    @property
    def hanging(self) -> int:
        """How many runs have been given up that the chip has not ended."""
        with self.change:
            self.sweep()
            return len(self._buried)

    def open(self, artifact: XrtArtifact) -> XrtProgram:
        """The program, ready to be called; its context is made with the first call.

        Raises:
            ParameterError: it was compiled for another generation.
        """
        from nxjax.vendors.amd.xrt_program import XrtProgram

        if artifact.chip and artifact.chip != self.npu.chip:
            got = f"{self.npu.name} ({self.npu.chip})"
            raise ParameterError("xrt: a program for another NPU", got=got, expected=artifact.chip)
        return XrtProgram(self, artifact)

    def close(self) -> None:
        """Give the contexts back. Runs that hang keep theirs until the chip is done with them."""
        with self.change:
            self._closed = True
            self._contexts.clear()
            self.sweep()
            self.change.notify_all()

    def __enter__(self) -> XrtRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what programs call ---

    def sweep(self) -> None:
        """Let go of runs that have ended after all."""
        self._buried = [b for b in self._buried if not b.ended()]
        if not self._buried:
            _KEPT.discard(self)

    def bury(self, ended: Callable[[], bool], *keeps: Any) -> None:
        """Keep what a run that hangs touches until it has ended."""
        with self.change:
            self._buried.append(Buried(ended, keeps))
            _KEPT.add(self)

    def retire(self, context: XrtContext) -> None:
        """Never use a context again: the next call of its programs makes a new one."""
        with self.change:
            for key in [k for k, c in self._contexts.items() if c is context]:
                del self._contexts[key]
            self.change.notify_all()

    def enter(self, artifact: XrtArtifact, until: float) -> tuple[XrtContext, Loaded]:
        """The context of a program, made if need be, and the program in it; nobody takes it away before `leave`.

        Raises:
            ExecutionError: every context is busy until the time ``until``, or there is none to be had.
        """
        with self.change:
            while True:
                if self._closed:
                    raise ExecutionError(f"xrt: {self.npu.name} has been closed", fix="open the runtime again")
                self.sweep()
                context = self._contexts.get(artifact.key)
                if context is None and (len(self._alive) < self.limit or self._evict()):
                    context = self._contexts[artifact.key] = self._made(artifact)
                if context is not None:
                    break
                if not self.change.wait(timeout=max(until - time.monotonic(), 0.0)):
                    raise ExecutionError(
                        f"xrt: every hardware context of {self.npu.name} is busy",
                        got=f"{len(self._alive)} of {self.limit}, {len(self._buried)} runs hang",
                        fix="run fewer different programs at once",
                    )
            self._contexts.move_to_end(artifact.key)
            loaded = context.loaded.get(id(artifact))
            if loaded is None:
                loaded = context.loaded[id(artifact)] = self._load(context, artifact)
            context.users += 1
            return context, loaded

    def leave(self, context: XrtContext) -> None:
        """The other end of `enter`."""
        with self.change:
            context.users -= 1
            self.change.notify_all()

    def take(self, loaded: Loaded) -> Buffers:
        """A set of a program's buffers; it goes back with `give`."""
        with self.change:
            if loaded.free:
                return loaded.free.pop()
        buffers = loaded.artifact.buffers
        flags = self.pyxrt.bo.host_only
        objects = [
            self._buffer(b.nbytes, flags, int(loaded.kernel.group_id(LEADING + i)), f"buffer {b.name}")
            for i, b in enumerate(buffers)
        ]
        memory = [np.frombuffer(o.map(), np.uint8)[: b.nbytes] for o, b in zip(objects, buffers, strict=True)]
        return Buffers(objects, memory)

    def give(self, loaded: Loaded, buffers: Buffers) -> None:
        with self.change:
            loaded.free.append(buffers)

    # --- making and unmaking ---

    def _evict(self) -> bool:
        """Let the context go that was used least recently of those that nobody uses."""
        for key, context in self._contexts.items():
            if not context.users:
                del self._contexts[key]
                return True
        return False

    def _made(self, artifact: XrtArtifact) -> XrtContext:
        with tempfile.TemporaryDirectory(prefix="nxjax_xrt_") as folder:
            # The package takes a file by its name, and reads it whole.
            path = Path(folder, "final.xclbin")
            path.write_bytes(artifact.xclbin)
            try:
                xclbin = self.pyxrt.xclbin(str(path))
                self.device.register_xclbin(xclbin)
            except Exception as error:
                raise ExecutionError(f"xrt: {self.npu.name} does not take the xclbin", got=first_line(error)) from error
        while True:
            try:
                made = XrtContext(xclbin, self.pyxrt.hw_context(self.device, xclbin.get_uuid()))
            except Exception as error:
                # Other processes have contexts too: fewer may be left than the chip has.
                if self._evict():
                    continue
                raise ExecutionError(
                    f"xrt: {self.npu.name} gives no hardware context",
                    got=first_line(error),
                    expected=f"one of the chip's {self.npu.contexts}, which all processes share",
                    fix="end other programs on the NPU (xrt-smi examine -r aie-partitions lists them)",
                ) from error
            self._alive.add(made)
            return made

    def _load(self, context: XrtContext, artifact: XrtArtifact) -> Loaded:
        kernels = {str(k.get_name()): k for k in context.xclbin.get_kernels()}
        name = artifact.kernel or next(iter(kernels), "")
        if name not in kernels:
            raise ParameterError("xrt: no such kernel in the xclbin", got=name or "none", expected=", ".join(kernels))
        # XRT crashes on buffers beyond those that the kernel declares.
        most = int(kernels[name].get_num_args()) - LEADING
        if len(artifact.buffers) > most:
            raise ParameterError(
                f"xrt: buffers of kernel {name}", got=len(artifact.buffers), expected=f"at most {most}"
            )
        try:
            kernel = self.pyxrt.kernel(context.hardware, name)
        except Exception as error:
            raise ExecutionError(f"xrt: kernel {name} on {self.npu.name}", got=first_line(error)) from error
        insts = self._buffer(len(artifact.insts), self.pyxrt.bo.cacheable, int(kernel.group_id(1)), "instructions")
        insts.write(artifact.insts, 0)
        insts.sync(self.pyxrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE)
        return Loaded(artifact, kernel, insts)

    def _buffer(self, nbytes: int, flags: Any, group: int, what: str) -> Any:
        try:
            # A buffer of no bytes is refused.
            return self.pyxrt.bo(self.device, max(nbytes, 4), flags, group)
        except Exception as error:
            raise ExecutionError(
                f"xrt: no memory for {what}", got=f"{nbytes} bytes: {first_line(error)}", fix=memlock() or None
            ) from error


_RUNTIMES: Final[WeakRegistry[XrtRuntime]] = WeakRegistry()


# Those with runs that hang: they live until these have ended, whoever lets go of them.
_KEPT: Final[set[XrtRuntime]] = set()
# Seconds that the process waits at its end: longer than the driver's own watch over a command.
_LAST: Final = 3.0


@atexit.register
def leave_nothing_running(seconds: float = _LAST) -> None:
    """Wait for runs that hang; those that still do are never let go, since that would abort the process."""
    until = time.monotonic() + seconds
    for runtime in list(_KEPT):
        while runtime.hanging and time.monotonic() < until:
            time.sleep(0.01)
        if runtime.hanging:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(runtime))


_SHARED: Final[dict[int, XrtRuntime]] = {}
_SHARING: Final = threading.Lock()


def shared(npu: Npu) -> XrtRuntime:
    """The process's one runtime of an NPU, opened when it is first asked for, or again after `close_shared`.

    What is compiled runs in it, so that all of it shares the chip's contexts.
    """
    with _SHARING:
        if npu.index not in _SHARED:
            _SHARED[npu.index] = XrtRuntime(npu)
        return _SHARED[npu.index]


def close_shared() -> None:
    """Give back the contexts of what was compiled; the next call takes them again. Turbo has to be set in between."""
    with _SHARING:
        for runtime in _SHARED.values():
            runtime.close()
        _SHARED.clear()


def open_contexts() -> int:
    """How many hardware contexts this process holds."""
    return sum(r.held for r in _RUNTIMES)
