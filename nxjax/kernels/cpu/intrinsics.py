"""LLVM's intrinsics that emitters may call: the symbol and the signature of each, in one table.

A module that declares one intrinsic in two ways, or in a way that LLVM does not know, ends the process. So nothing else
spells an intrinsic's name or its signature. Knows LLVM's language and no kernel.

Signatures are the oldest ones that the releases of LLVM in use share: a newer one converts them as it reads a module
(masked reads with their alignment as an operand, VNNI's words of 32 bits).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from nxjax.errors import LoweringError


@lru_cache(None)
def element(type: str) -> str:
    """The scalar type of a vector, or the type itself."""
    return type[1:-1].split(" x ")[1] if type.startswith("<") else type


@lru_cache(None)
def lanes_of(type: str) -> int:
    """How many elements a vector type has; 0 for a scalar type."""
    return int(type[1:-1].split(" x ")[0]) if type.startswith("<") else 0


@lru_cache(None)
def vector(scalar: str, lanes: int) -> str:
    """``lanes`` of ``scalar``; the scalar itself for 0."""
    return f"<{lanes} x {scalar}>" if lanes else scalar


@lru_cache(None)
def mangled(type: str) -> str:
    """A type in the name of an overloaded intrinsic."""
    scalar = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}.get(
        element(type), element(type)
    )
    lanes = lanes_of(type)
    return f"v{lanes}{scalar}" if lanes else scalar


# Endings of the symbol, result, operands. T is the type that an intrinsic is overloaded by, E its element, M and P as
# many i1 and pointers.
_SIGNATURES: Final[dict[str, tuple[str, str, str]]] = {
    **dict.fromkeys(("fabs", "sqrt", "trunc", "floor", "ceil", "rint", "roundeven", "sin", "cos"), ("T", "T", "T")),
    **dict.fromkeys(("copysign", "smin", "smax", "umin", "umax"), ("T", "T", "T, T")),
    **dict.fromkeys(("fmuladd", "fshl"), ("T", "T", "T, T, T")),
    "ctpop": ("T", "T", "T"),
    "ctlz": ("T", "T", "T, i1"),
    "vector.reduce.or": ("T", "E", "T"),
    "vector.reduce.fadd": ("T", "E", "E, T"),
    "masked.load": ("T p0", "T", "ptr, i32, M, T"),
    "masked.store": ("T p0", "void", "T, ptr, i32, M"),
    "masked.gather": ("T P", "T", "P, i32, M, T"),
    "masked.scatter": ("T P", "void", "T, P, i32, M"),
    "prefetch": ("p0", "void", "ptr, i32, i32, i32"),
    "aarch64.hint": ("", "void", "i32"),
    "aarch64.get.fpcr": ("", "i64", ""),
    "aarch64.set.fpcr": ("", "void", "i64"),
    "aarch64.neon.sdot.v4i32.v16i8": ("", "<4 x i32>", "<4 x i32>, <16 x i8>, <16 x i8>"),
    "x86.sse.stmxcsr": ("", "void", "ptr"),
    "x86.sse.ldmxcsr": ("", "void", "ptr"),
    "x86.sse.sfence": ("", "void", ""),
    "x86.sse2.pause": ("", "void", ""),
    "x86.sse2.pmadd.wd": ("", "<4 x i32>", "<8 x i16>, <8 x i16>"),
    "x86.avx2.pmadd.wd": ("", "<8 x i32>", "<16 x i16>, <16 x i16>"),
    "x86.avx2.pmadd.ub.sw": ("", "<16 x i16>", "<32 x i8>, <32 x i8>"),
    "x86.avx2.psign.b": ("", "<32 x i8>", "<32 x i8>, <32 x i8>"),
    "x86.avx512.vpdpbusd.256": ("", "<8 x i32>", "<8 x i32>, <8 x i32>, <8 x i32>"),
    "x86.avx512.vpdpwssd.256": ("", "<8 x i32>", "<8 x i32>, <8 x i32>, <8 x i32>"),
    "x86.avx512bf16.dpbf16ps.512": ("", "<16 x float>", "<16 x float>, <16 x i32>, <16 x i32>"),
    "x86.avx512.pmaddw.d.512": ("", "<16 x i32>", "<32 x i16>, <32 x i16>"),
    "x86.avx512.vpdpwssd.512": ("", "<16 x i32>", "<16 x i32>, <16 x i32>, <16 x i32>"),
    "x86.avx512.vpdpbusd.512": ("", "<16 x i32>", "<16 x i32>, <16 x i32>, <16 x i32>"),
    "x86.avx512.mask.scalef.ps.512": ("", "<16 x float>", "<16 x float>, <16 x float>, <16 x float>, i16, i32"),
    "x86.avx512.mask.scalef.pd.512": ("", "<8 x double>", "<8 x double>, <8 x double>, <8 x double>, i8, i32"),
    "x86.ldtilecfg": ("", "void", "ptr"),
    "x86.tilerelease": ("", "void", ""),
    "x86.tilezero": ("", "void", "i8"),
    **dict.fromkeys(("x86.tileloadd64", "x86.tileloaddt164", "x86.tilestored64"), ("", "void", "i8, ptr, i64")),
    **dict.fromkeys(("x86.tdpbssd", "x86.tdpbsud", "x86.tdpbusd", "x86.tdpbuud"), ("", "void", "i8, i8, i8")),
    "x86.tdpbf16ps": ("", "void", "i8, i8, i8"),
}
# The processor's feature that an intrinsic is an instruction of, or those of which one is enough: LLVM ends the process
# where it is missing.
_NEEDS: Final = {
    "aarch64.neon.sdot.v4i32.v16i8": "dotprod",
    **dict.fromkeys(("x86.avx2.pmadd.wd", "x86.avx2.pmadd.ub.sw", "x86.avx2.psign.b"), "avx2"),
    **dict.fromkeys(("x86.avx512.vpdpbusd.256", "x86.avx512.vpdpwssd.256"), "avx512vnni or avxvnni"),
    "x86.avx512bf16.dpbf16ps.512": "avx512bf16",
    "x86.avx512.pmaddw.d.512": "avx512bw",
    "x86.avx512.vpdpwssd.512": "avx512vnni",
    "x86.avx512.vpdpbusd.512": "avx512vnni",
    "x86.avx512.mask.scalef.ps.512": "avx512f",
    "x86.avx512.mask.scalef.pd.512": "avx512f",
    **dict.fromkeys(("x86.ldtilecfg", "x86.tilerelease", "x86.tilezero"), "amx-tile"),
    **dict.fromkeys(("x86.tileloadd64", "x86.tileloaddt164", "x86.tilestored64"), "amx-tile"),
    **dict.fromkeys(("x86.tdpbssd", "x86.tdpbsud", "x86.tdpbusd", "x86.tdpbuud"), "amx-int8"),
    "x86.tdpbf16ps": "amx-bf16",
}


@lru_cache(None)
def signature(name: str, over: str) -> tuple[str, str, tuple[str, ...]]:
    """Symbol, result and operands of ``llvm.<name>``, overloaded by the type ``over`` if it is overloaded at all.

    Raises:
        LoweringError: the table has no such intrinsic.
    """
    known = _SIGNATURES.get(name)
    if known is None:
        raise LoweringError("cpu: an intrinsic that no emitter may call", got=name, expected=", ".join(_SIGNATURES))
    lanes = lanes_of(over)
    types = {"T": over, "E": element(over), "M": vector("i1", lanes), "P": vector("ptr", lanes)}

    ending, result, operands = known
    parts = [mangled(types[word]) if word in types else word for word in ending.split()]
    spelled = tuple(types.get(word, word) for word in operands.split(", ") if word)
    return ".".join(["llvm", name, *parts]), types.get(result, result), spelled


def needed(symbol: str) -> str:
    """The processor's feature that ``symbol`` (such as ``llvm.x86.…``) asks for, for `Isa.has`; empty if for none."""
    return _NEEDS.get(symbol.removeprefix("llvm."), "")
