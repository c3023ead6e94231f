"""Machine code: kernels -> object code -> addresses, kept in the process and on disk.

The only file of this backend that imports llvmlite. Object code is stored by its kernels, the instruction set and
LLVM's version, so that a second process compiles nothing. Code is unloaded when nobody holds an address of it any more
and it was not asked for lately: who runs code holds its address until it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, final
from weakref import WeakValueDictionary

from nxjax.backends import cache
from nxjax.backends.cpu import earlier
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native.loading import Address, LoadedCode, Unlinkable, keep, room
from nxjax.config.digest import digest_of_files
from nxjax.errors import LoweringError
from nxjax.kernels.cpu.base import Code
from nxjax.kernels.cpu.intrinsics import needed
from nxjax.kernels.cpu.ir import INLINED, LlvmModule
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.llvm_thread import LlvmHandle, apart
from nxjax.lower.reproducible import check_rounding
from nxjax.trace.lazy import load

_T = TypeVar("_T")

# The emitters, and the packages whose tables and rules they take over: constants of polynomials, dtypes, rounding.
WRITERS: Final = ("kernels/cpu", "ops", "trace")


@lru_cache(1)
def _emitters() -> str:
    """Which sources wrote the code: a kernel's key names all that its code depends on but they."""
    return digest_of_files((e.path for e in earlier.sources(WRITERS)), earlier.ROOT).hex()


def _is_object(data: bytes) -> bool:
    """Whether ``data`` is an object file as long as it says itself: LLVM ends the process on others."""
    if len(data) < 64 or data[:4] != b"\x7fELF":
        return False
    start, size, count = (int.from_bytes(data[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62)))
    return start + size * count <= len(data)


# What LLVM does to a module that has functions to inline, in this order. Not `simplify_cfg`: it would compute what is
# for rare lanes always.
_PASSES: Final = (
    *("always_inliner", "instruction_combine", "sroa", "loop_rotate", "sccp", "instruction_combine", "sroa"),
    *("new_gvn", "dead_store_elimination", "instruction_combine"),
)
# Objects that an engine keeps without a user.
_RECENT: Final = 256


@final
class KernelCache:
    """Compiles and holds the kernels of one instruction set.

    Args:
        level: how much LLVM's code generator tries: 2, or 0 for code that is made in a third of the time. The numbers
            that come out are the same: neither may change what an instruction says.
    """

    def __init__(self, isa: Isa, level: int = 2) -> None:
        self.isa = isa
        self._llvm = load("llvmlite.binding")
        self._version = f"{_emitters()} {load('llvmlite').__version__} {isa.name} {isa.cpu} {isa.features} {level}"
        self._level = level
        self._machine = apart(lambda: LlvmHandle(self._new_machine()))
        # Where functions of the process are that code has asked for.
        self._outside: dict[str, int] = {}
        # Of each symbol, while somebody holds it.
        self._code: WeakValueDictionary[str, LoadedCode] = WeakValueDictionary()
        # What was asked for last stays: functions that are made anew in a loop have most of their kernels in common.
        self._recent: dict[LoadedCode, None] = {}
        # How many modules this process has compiled; one that finds everything in the cache leaves it at zero.
        self.compilations = 0

    def _new_machine(self) -> Any:
        self._llvm.initialize_native_target()
        self._llvm.initialize_native_asmprinter()
        return self._llvm.Target.from_default_triple().create_target_machine(
            cpu=self.isa.cpu, features=self.isa.features, opt=self._level, jit=True, codemodel="jitdefault"
        )

    def addresses(self, kernels: Iterable[Code]) -> list[Address]:
        """Where the code of each kernel begins; compiles those that are new, all in one module, or two.

        Those that have others' code in them are in the second, for which LLVM takes longer.

        The code is there as long as these numbers are: keep them until it has run for the last time.
        """
        wanted = list(kernels)
        symbols = [k.symbol for k in wanted]
        unique = dict(zip(symbols, wanted, strict=True))
        with COMPILING:
            held = {s: code for s in unique if (code := self._code.get(s)) is not None}
            if len(held) < len(unique):
                # Another process may have met the same kernels in other programs first, and so in other files.
                listing = cache.key_of("cpu-program", self._version, *unique)
                self._load_listed(listing, unique, held)
                new = {s: k for s, k in unique.items() if s not in held}
                for inlines in (False, True) if new else ():
                    part = {s: k for s, k in new.items() if k.inlines == inlines}
                    if part:
                        self._load_file(self._compiled(part), unique, held)
                if new:
                    cache.store(listing, "\n".join(dict.fromkeys(held[s].file for s in unique)).encode())
            for code in held.values():
                self._recent.pop(code, None)
                self._recent[code] = None
            while len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            return [Address.of(held[s], s) for s in symbols]

    def clear(self) -> None:
        """Keep no code but what is in use."""
        with COMPILING:
            self._recent.clear()

    def has(self, kernels: Iterable[Code]) -> bool:
        """Whether `addresses` would compile nothing."""
        unique = dict.fromkeys(k.symbol for k in kernels)
        if all(s in self._code for s in unique):
            return True
        return cache.load(cache.key_of("cpu-program", self._version, *unique)) is not None

    def texts(self, kernels: Sequence[Code]) -> str:
        """The LLVM IR of kernels."""
        check_rounding()
        module = LlvmModule()
        for kernel in dict.fromkeys(kernels):
            kernel.emit(module, self.isa)
        for symbol in module.declarations:
            feature = needed(symbol)
            if feature and not self.isa.has(feature):
                raise LoweringError(
                    f"cpu: {symbol} is no instruction of {self.isa.name}", got=self.isa.cpu, expected=feature
                )
        if self.isa.reproducible:
            # `fmuladd` may round twice where the processor has no such instruction; `fma` rounds once everywhere.
            return module.text.replace("@llvm.fmuladd.", "@llvm.fma.")
        return module.text

    def assembly(self, kernels: Sequence[Code]) -> str:
        """The machine code of kernels, as text."""
        return self._translated(self.texts(kernels), self._machine.held.emit_assembly)

    def module_file(self, text: str) -> str:
        """The file of the cache that has the code of a module given as text, once `module` was called."""
        return cache.key_of("cpu-module", self._version, text)

    def module(self, text: str, symbols: Sequence[str]) -> list[int]:
        """Addresses of ``symbols`` in a module given as text, which stays for good."""
        with COMPILING:
            key = self.module_file(text)
            data = cache.load(key)
            if data is None or not _is_object(data):
                data = self.emitted(text)
                cache.store(key, data)
            code = self._loaded(data, symbols)
            keep(code)
            return [code.addresses[s] for s in symbols]

    def _load_listed(self, listing: str, wanted: Container[str], held: dict[str, LoadedCode]) -> None:
        """Load the files that an earlier process found a program's kernels in, as far as they are still there."""
        for key in (cache.load(listing) or b"").decode(errors="replace").split():
            data = cache.load(key)
            if data is not None and _is_object(data.partition(b"\n")[2]):
                self._load_file((key, data), wanted, held)

    def _compiled(self, kernels: dict[str, Code]) -> tuple[str, bytes]:
        """A file of the cache with the code of ``kernels``: a line of symbols, then the object."""
        key = cache.key_of("cpu", self._version, *kernels)
        data = cache.load(key)
        if data is None or not _is_object(data.partition(b"\n")[2]):
            head = " ".join(kernels).encode() + b"\n"
            data = head + self.emitted(self.texts(list(kernels.values())))
            cache.store(key, data)
        return key, data

    def _load_file(self, file: tuple[str, bytes], wanted: Container[str], held: dict[str, LoadedCode]) -> None:
        """Add what a file has of the symbols ``wanted`` to ``held``, as far as it is not there."""
        key, data = file
        head, _, object_ = data.partition(b"\n")
        symbols = head.decode().split()
        new = [s for s in symbols if s in wanted and s not in held]
        if new:
            code = self._loaded(object_, symbols)
            code.file = key
            held.update(dict.fromkeys(new, code))
            self._code.update(dict.fromkeys([s for s in symbols if s not in self._code], code))

    def _translated(self, text: str, emit: Callable[[Any], _T]) -> _T:
        """What ``emit`` makes of a module that is given as text."""

        def work() -> _T:
            # What LLVM notes of types and constants goes with the module.
            module = self._llvm.parse_assembly(text, self._llvm.create_context())
            # LLVM's code generator takes what it is given for right, and ends the process where it is not.
            module.verify()
            if INLINED in text:
                self._inlined(module)
            return emit(module)

        try:
            return apart(work)
        except RuntimeError as error:
            raise LoweringError("cpu: LLVM refused a kernel", got=str(error)[:2000]) from None

    def _inlined(self, module: Any) -> None:
        """Calls become code, and what this code left in memory for itself becomes registers; no number changes."""
        passes = self._llvm.create_new_module_pass_manager()
        for name in _PASSES:
            getattr(passes, f"add_{name}_pass")()
        machine = self._machine.held
        passes.run(module, self._llvm.create_pass_builder(machine, self._llvm.create_pipeline_tuning_options()))

    def emitted(self, text: str) -> bytes:
        """The object code of a module given as text."""
        self.compilations += 1
        place = room()
        if place is not None:
            place.check()
        return self._translated(text, self._machine.held.emit_object)

    def _loaded(self, data: bytes, symbols: Sequence[str]) -> LoadedCode:
        """An object file in memory."""
        place = room()
        if place is not None:
            try:
                code = place.place(data, self._symbol)
                if all(s in code.addresses for s in symbols):
                    return code
            except Unlinkable:
                pass
        return apart(lambda: self._loaded_by_llvm(data, symbols))

    def _symbol(self, name: str) -> int | None:
        """Where a function of the process is; None for none."""
        found = self._outside.get(name)
        if found is None:
            found = apart(lambda: self._llvm.address_of_symbol(name))
            if found:
                self._outside[name] = found
        return found

    def _loaded_by_llvm(self, data: bytes, symbols: Sequence[str]) -> LoadedCode:
        """LLVM's own loader takes every kind of object, and a few mappings for each."""
        loader: Any = self._llvm.create_mcjit_compiler(self._llvm.parse_assembly(""), self._new_machine())
        held = LlvmHandle(loader)
        loader.add_object_file(self._llvm.ObjectFileRef.from_data(data))
        loader.finalize_object()
        return LoadedCode({s: loader.get_function_address(s) for s in symbols}, held)


_engines: dict[tuple[str, int], KernelCache] = {}


def engine(isa: Isa, level: int = 2) -> KernelCache:
    """The engine for ``isa``; one per process and level."""
    key = (isa.name, level)
    found = _engines.get(key)
    if found is None:
        with COMPILING:
            found = _engines.get(key) or _engines.setdefault(key, KernelCache(isa, level))
    return found


def clear() -> None:
    """Give back code that nobody uses."""
    for found in list(_engines.values()):
        found.clear()
    place = room()
    if place is not None:
        place.settle()
