"""The backend ``cpu``: nxjax's own compiler.

Must not import the compiler itself: a program that never compiles, as its functions run once, starts without it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from typing import Any, ClassVar, Final, final

from nxjax.backends import registry
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.cpu.first_run import FirstByMeaning, simple_as_it_stands, simplified
from nxjax.config import config
from nxjax.trace.lazy import load
from nxjax.trace.program import Program
from nxjax.trace.shortcuts import is_allowed


@final
class CpuBackend(Backend):
    name = "cpu"
    platform = "cpu"
    label = "hardware"
    priority = 20
    reproducible = True
    dialects: ClassVar[tuple[str, ...]] = ("simplified", "tape", "llvm", "asm")

    def __init__(self, knobs: Mapping[str, int] | None = None) -> None:
        """``knobs``: choices of the compiler that differ from the usual; see `kernels.cpu.knobs`."""
        self._knobs = dict(knobs or {})
        if self._knobs:
            # What was compiled otherwise is kept apart.
            self.name = "cpu " + ",".join(f"{k}={v}" for k, v in sorted(self._knobs.items()))
        self._device = Device("cpu", 0, self)

    @property
    def device(self) -> Device:
        """The one that is this backend's own, with its choices."""
        return self._device

    @property
    def _choices(self) -> Mapping[str, int]:
        # Choices may change the order of sums.
        return {} if config.reproducible else self._knobs

    def available(self) -> tuple[bool, str]:
        if PathFinder.find_spec("llvmlite") is None:
            from importlib.util import find_spec  # not in a folder: asks whoever finds modules

            if find_spec("llvmlite") is None:
                return False, "llvmlite is not installed"
        return True, "LLVM"

    def devices(self) -> list[Device]:
        """One; where more were asked for or other processes were joined, those of the executor that has several."""
        several = registry.get("xla")
        if several.available()[0]:
            found = several.devices()
            if len(found) > 1:
                return found
        return [self._device]

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        # What is made later is made as the settings are now.
        kept = {"cpu_isa": config.cpu_isa, "reproducible": config.reproducible}

        def make(*, hurry: bool) -> Executable:
            with config.using(**kept):
                return _compiler().executable(program, donate, self._choices, hurry=hurry)

        def found() -> Executable | None:
            """As an earlier process has compiled it."""
            with config.using(**kept):
                return _stored().load(program, donate, self._choices, lambda: make(hurry=False))

        # Which of two zeros NumPy takes for the larger one is up to the processor.
        by_meaning = is_allowed("first run") and not config.reproducible
        if by_meaning and simple_as_it_stands(program):
            return FirstByMeaning(program, program, lambda: found() or make(hurry=False))
        if (earlier := found()) is not None:
            return earlier
        form = simplified(program) if by_meaning else None
        # What is called a second time will be called often.
        if form is None:
            return make(hurry=is_allowed("hurried code"))
        return FirstByMeaning(program, form, lambda: make(hurry=False))

    def lowered(self, program: Program, donate: tuple[int, ...] = ()) -> Any:
        """The steps that compute a program, with this backend's choices: a `CpuProgram`."""
        return _compiler().lowered(program, donate, self._choices)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return str(self.lowered(program, donate))

    def text(self, program: Program, donate: tuple[int, ...], dialect: str) -> str:
        found = _compiler().text(program, donate, self._choices, dialect)
        return super().text(program, donate, dialect) if found is None else found

    def memory_stats(self, device: Device) -> dict[str, Any] | None:
        """What arrays, and programs that run, hold; what is kept for the next ones; how often that served."""
        counts = load(_RUNTIME).runtime().statistics()
        return {
            "bytes_in_use": counts["in_use"],
            "peak_bytes_in_use": counts["peak"],
            "num_allocs": counts["blocks"],
            "pool_bytes": counts["kept"],
            "pool_limit": counts["limit"],
            "pool_hits": counts["hits"],
            "pool_misses": counts["misses"],
            "accounting": "runtime",
        }

    def trim(self, device: Device, nbytes: int) -> None:
        # The pool of a process that never loaded the compiler, too. Another thread may just be importing it.
        if _RUNTIME in sys.modules and (found := load(_RUNTIME).loaded()) is not None:
            found.trim(nbytes)
        # What NumPy, Python and the compiler had, as far as the C library says how.
        heap: Any = getattr(ctypes.pythonapi, "malloc_trim", None)
        if heap is not None:
            heap(ctypes.c_size_t(0))

    def clear(self) -> None:
        # What was never loaded keeps nothing.
        if _COMPILER in sys.modules:
            _compiler().clear()
        self.trim(self._device, 0)


_COMPILER: Final = "nxjax.backends.cpu.compiling"
_RUNTIME: Final = "nxjax.backends.cpu.native.runtime"


def _compiler() -> Any:
    if _COMPILER not in sys.modules:
        load("nxjax.kernels.cpu.llvm_thread").fetch()
    return load(_COMPILER)


def _stored() -> Any:
    return load("nxjax.backends.cpu.stored")
