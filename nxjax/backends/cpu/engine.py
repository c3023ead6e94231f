"""Machine code: kernels -> object code -> addresses, kept in the process and on disk.

The only file of this backend that imports llvmlite. Object code is stored by its kernels, the instruction set and
LLVM's version, so that a second process compiles nothing. Code is never unloaded: a kernel may be running in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

from nxjax.backends import cache
from nxjax.errors import LoweringError
from nxjax.kernels import cpu as kernels
from nxjax.kernels.cpu.base import Kernel
from nxjax.kernels.cpu.ir import Module
from nxjax.kernels.cpu.isa import Isa


def _emitters() -> str:
    """Which emitters wrote the code: a kernel's key names all that its code depends on but they."""
    folder = Path(kernels.__file__).parent
    files = sorted((p.name, p.stat()) for p in folder.glob("*.py"))
    return cache.key_of(*(f"{name} {s.st_size} {s.st_mtime_ns}" for name, s in files))


@final
class Engine:
    """Compiles and holds the kernels of one instruction set."""

    def __init__(self, isa: Isa) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        self.isa = isa
        self._llvm: Any = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._version = f"{_emitters()} {llvmlite.__version__} {isa.name} {isa.cpu} {isa.features}"
        self._machine: Any = llvm.Target.from_default_triple().create_target_machine(
            cpu=isa.cpu, features=isa.features, opt=2, jit=True, codemodel="jitdefault"
        )
        self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        self._addresses: dict[str, int] = {}
        self._lock = threading.RLock()

    def addresses(self, kernels: Iterable[Kernel]) -> list[int]:
        """Where the code of each kernel begins; compiles those that are new, all in one module."""
        wanted = list(kernels)
        with self._lock:
            new = {k.symbol: k for k in wanted if k.symbol not in self._addresses}
            if new:
                self._load(self._object(list(new.values())), list(new))
            return [self._addresses[k.symbol] for k in wanted]

    def texts(self, kernels: Sequence[Kernel]) -> str:
        """The LLVM IR of kernels."""
        module = Module()
        for kernel in dict.fromkeys(kernels):
            kernel.emit(module, self.isa)
        return module.text

    def assembly(self, kernels: Sequence[Kernel]) -> str:
        """The machine code of kernels, as text."""
        return self._machine.emit_assembly(self._parsed(self.texts(kernels)))

    def module(self, text: str, symbols: Sequence[str]) -> list[int]:
        """Addresses of ``symbols`` in a module given as text."""
        with self._lock:
            key = cache.key_of("cpu-module", self._version, text)
            data = cache.load(key)
            if data is None:
                data = self._emitted(text)
                cache.store(key, data)
            self._load(data, symbols)
            return [self._addresses[s] for s in symbols]

    def _object(self, kernels: list[Kernel]) -> bytes:
        key = cache.key_of("cpu", self._version, *(k.key for k in kernels))
        data = cache.load(key)
        if data is None:
            data = self._emitted(self.texts(kernels))
            cache.store(key, data)
        return data

    def _parsed(self, text: str) -> Any:
        try:
            return self._llvm.parse_assembly(text)
        except RuntimeError as error:
            raise LoweringError("cpu: LLVM refused a kernel", got=str(error)[:2000]) from None

    def _emitted(self, text: str) -> bytes:
        return self._machine.emit_object(self._parsed(text))

    def _load(self, data: bytes, symbols: Sequence[str]) -> None:
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()
        for symbol in symbols:
            self._addresses[symbol] = self._engine.get_function_address(symbol)


_engines: dict[str, Engine] = {}
_lock = threading.Lock()


def engine(isa: Isa) -> Engine:
    """The engine for ``isa``; one per process."""
    found = _engines.get(isa.name)
    if found is None:
        with _lock:
            found = _engines.get(isa.name) or _engines.setdefault(isa.name, Engine(isa))
    return found
