"""What the host's processor can do, as far as emitters choose by it. Knows no kernel."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Final, final

from nxjax.config import config
from nxjax.config.dataclass import dataclass
from nxjax.errors import ParameterError
from nxjax.kernels.cpu import permission
from nxjax.kernels.cpu.llvm_thread import apart
from nxjax.trace.lazy import load


@final
@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set that kernels are emitted for.

    Attributes:
        name: ``avx512-amx``, ``avx512``, ``avx2``, ``neon`` or ``portable``.
        bits: width of the vectors that kernels use.
        registers: how many vector registers there are.
        fma: fused multiply-add exists; otherwise ``f.fma`` rounds twice.
        vnni: products of four bytes are summed in 32 bits by one instruction (AVX512-VNNI or AVX-VNNI).
        dots: the same of four signed bytes by four (ARM's dot products).
        bf16: products of two bfloat16 are summed in float32 by one instruction (AVX512-BF16), in less time than by two.
        f16c: float16 converts to float32 and back by an instruction.
        cpu, features: what LLVM is told.
        reproducible: a description that all processors share, see `shared`.
        tiles: a matrix unit multiplies tiles of bytes, and of bfloat16 (AMX).
    """

    name: str
    bits: int
    registers: int
    fma: bool
    vnni: bool
    dots: bool
    bf16: bool
    f16c: bool
    cpu: str
    features: str
    reproducible: bool = False
    tiles: bool = False

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in a vector."""
        return self.bits // (8 * itemsize)

    def has(self, feature: str) -> bool:
        """Whether LLVM is told of ``feature``, by LLVM's name of it, or of one of "this or that".

        What is said last counts.
        """
        said = {word[1:]: word[:1] for word in self.features.split(",")}
        return any(said.get(name) == "+" for name in feature.split(" or "))

    @property
    def x86(self) -> bool:
        """Whether LLVM's intrinsics for x86 exist."""
        return not self.reproducible and host()[2].startswith(("x86_64", "amd64"))


_AVX2: Final = ("avx2", "fma", "f16c", "bmi2")
_AVX512: Final = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_AMX: Final = ("amx-tile", "amx-int8", "amx-bf16")
# Linux' word of an ARM's abilities, and the bits in it of features, by LLVM's names.
_AT_HWCAP: Final = 16
_HWCAP: Final = {"dotprod": 20}


@lru_cache(1)
def host() -> tuple[str, dict[str, bool], str]:
    """LLVM's name of the processor, its features, and the triple."""
    binding = load("llvmlite.binding")
    name, features, triple = apart(
        lambda: (binding.get_host_cpu_name(), dict(binding.get_host_cpu_features()), binding.get_process_triple())
    )
    return name, {**features, **_from_linux(triple)}, triple


def _from_linux(triple: str) -> dict[str, bool]:
    """What Linux says of an ARM where LLVM does not ask."""
    if not (triple.startswith("aarch64") and "linux" in triple):
        return {}
    ask = ctypes.CDLL(None).getauxval
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    word = ask(_AT_HWCAP)
    return {name: bool(word >> bit & 1) for name, bit in _HWCAP.items()}


def possible() -> tuple[str, ...]:
    """The instruction sets that run here, best first; asks the system for the matrix unit, if there is one."""
    _, has, _ = host()
    found = _without_asking()
    tiles = "avx512" in found and all(has.get(n) for n in _AMX) and permission.has_tiles()
    return ("avx512-amx", *found) if tiles else found


def _without_asking() -> tuple[str, ...]:
    _, has, triple = host()
    if triple.startswith(("aarch64", "arm64")):
        return ("neon", "portable")
    if not triple.startswith(("x86_64", "amd64")):
        return ("portable",)
    found = ["portable"]
    if all(has.get(n) for n in _AVX2):
        found.insert(0, "avx2")
        if all(has.get(n) for n in _AVX512):
            found.insert(0, "avx512")
    return tuple(found)


@lru_cache(None)
def named(name: str) -> Isa:
    """The instruction set called ``name``, as this processor has it.

    ``avx512-base`` leaves out VNNI and bf16; only ``avx512-amx`` has the matrix unit.

    Raises:
        ParameterError: there is none of that name, or it does not run here.
    """
    known = possible() if name == "avx512-amx" else _without_asking()
    if name.removesuffix("-base" if name == "avx512-base" else "") not in known:
        raise ParameterError(
            f"config: no instruction set {name!r} here",
            got=repr(name),
            expected=", ".join(possible()),
            fix="leave NXJAX_CPU_ISA empty for the best one",
        )
    cpu, has, triple = host()
    everything = ",".join(("+" if on and not n.startswith("amx-") else "-") + n for n, on in sorted(has.items()))
    if name == "avx512-base":
        off = "".join(f",-{n}" for n in sorted(has) if n in ("avx512vnni", "avxvnni", "avx512bf16"))
        return Isa(name, 512, 32, True, False, False, False, True, cpu, f"{everything},-prefer-256-bit{off}")
    if name in ("avx512", "avx512-amx"):
        vnni, tiles = bool(has.get("avx512vnni")), name == "avx512-amx"
        # Intel's cores from Sapphire Rapids on, those with AVX512-FP16, take four times as long for it as for a
        # multiply-add (measured: a product of matrices takes 1.8 times as long as after conversion to float32).
        bf16 = bool(has.get("avx512bf16")) and not has.get("avx512fp16")
        on = "".join(f",+{n}" for n in _AMX) if tiles else ""
        # 512-bit vectors are asked for by type; LLVM would cut them in two otherwise.
        return Isa(name, 512, 32, True, vnni, False, bf16, True, cpu, f"{everything},-prefer-256-bit{on}", tiles=tiles)
    if name == "avx2":
        off = ",".join(f"-{n}" for n in sorted(has) if n.startswith("avx512") or n == "evex512")
        return Isa(name, 256, 16, True, bool(has.get("avxvnni")), False, False, True, cpu, f"{everything},{off}")
    if name == "neon":
        return Isa(name, 128, 32, True, False, bool(has.get("dotprod")), False, True, cpu, everything)
    generic = "x86-64" if triple.startswith(("x86_64", "amd64")) else "generic"
    return Isa(name, 128, 16, False, False, False, False, False, generic, "")


@lru_cache(None)
def shared(name: str) -> Isa:
    """What emitters take for the instruction set ``name`` where every processor has to give the same bits.

    One description of a machine, so that they write one text; only LLVM is told what the processor can do. LLVM's IR
    without fast-math has one exact meaning, so equal texts are equal bits. Vectors of 256 bits and 16 registers cost
    least on the whole: wider and narrower machines take one or two of theirs for each.
    """
    real = named(name)
    return Isa(f"shared {name}", 256, 16, True, False, False, False, False, real.cpu, real.features, True)


def current() -> Isa:
    """The instruction set that kernels are made for: ``config.cpu_isa``, or the best one here."""
    name = config.cpu_isa or possible()[0]
    return shared(name) if config.reproducible else named(name)
