"""Instruction sets that this processor may not have: their instructions as functions that all processors know."""

import re
import zlib
from dataclasses import replace

from nxjax.backends.cpu.engine import KernelCache
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import Function, LlvmModule
from tests.kernels.cpu import tiles

# What ARM's instruction does.
SDOT = "\n".join(
    [
        "define <4 x i32> @sdot(<4 x i32> %sum0, <16 x i8> %x, <16 x i8> %y) {",
        "%a = sext <16 x i8> %x to <16 x i32>",
        "%b = sext <16 x i8> %y to <16 x i32>",
        "%c = mul <16 x i32> %a, %b",
        *(
            f"%d{i} = shufflevector <16 x i32> %c, <16 x i32> poison, <4 x i32> "
            f"<i32 {i}, i32 {i + 4}, i32 {i + 8}, i32 {i + 12}>\n%sum{i + 1} = add <4 x i32> %sum{i}, %d{i}"
            for i in range(4)
        ),
        "ret <4 x i32> %sum4",
        "}",
    ]
)


def words(name, lanes, bits, signs):
    """A function that adds products of the parts of ``bits`` of words of 32 bits, signed or not."""
    type = f"<{lanes} x i32>"
    f = Function(name, [type] * 3, type, linkage="internal")
    total, *xs = f.arguments
    for start in range(0, 32, bits):
        moved = [x << (32 - bits - start) for x in xs]
        x, y = (v >> (32 - bits) if signed else v.lshr(32 - bits) for v, signed in zip(moved, signs, strict=True))
        total = total + x * y
    f.ret(total)
    return f.text


def brains(name):
    """A function that adds products of two bfloat16, the upper ones first."""
    f = Function(name, ["<16 x float>", "<16 x i32>", "<16 x i32>"], "<16 x float>", linkage="internal")
    total, *xs = f.arguments
    for words in ([x & -0x10000 for x in xs], [x << 16 for x in xs]):
        x, y = (tiles.normal(f, w.bitcast("<16 x float>")) for w in words)
        operands = ", ".join(f"{v.type} {v.name}" for v in (x, y, tiles.normal(f, total)))
        total = tiles.normal(f, f.emit(total.type, f"call {total.type} @llvm.fma.v16f32({operands})"))
    f.ret(total)
    return f"{f.text}\ndeclare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)"


# How each differs from the portable one, and its instructions.
OTHERS = {
    "dots": ({"registers": 32, "dots": True}, {"aarch64.neon.sdot.v4i32.v16i8": SDOT}),
    "AVX-VNNI": (
        {"bits": 256, "vnni": True},
        {
            "x86.avx512.vpdpbusd.256": words("vpdpbusd", 8, 8, (False, True)),
            "x86.avx512.vpdpwssd.256": words("vpdpwssd", 8, 16, (True, True)),
        },
    ),
    "AVX512-VNNI": (
        {"bits": 512, "registers": 32, "vnni": True},
        {
            "x86.avx512.vpdpbusd.512": words("vpdpbusd", 16, 8, (False, True)),
            "x86.avx512.vpdpwssd.512": words("vpdpwssd", 16, 16, (True, True)),
        },
    ),
    "AVX512-BF16": (
        {"bits": 512, "registers": 32, "bf16": True},
        {"x86.avx512bf16.dpbf16ps.512": brains("dpbf16ps")},
    ),
}


def install(monkeypatch, name, called=""):
    """From here on there is the instruction set ``name`` of `OTHERS`, whichever processor this is; its name then."""
    called = called or name
    changes, functions = OTHERS[name]
    version = zlib.crc32(repr(OTHERS[name]).encode())
    found = replace(isa.named("portable"), name=f"{name} {version}", **changes)
    named, texts = isa.named, KernelCache.texts

    def defined(engine, kernels):
        if engine.isa.name != found.name:
            return texts(engine, kernels)
        module = LlvmModule()
        for kernel in dict.fromkeys(kernels):
            kernel.emit(module, engine.isa)
        lines = module.text.splitlines()
        for symbol, text in functions.items():
            lines = [x for x in lines if not (x.startswith("declare") and f"@llvm.{symbol}(" in x)]
            function = re.search(r"@([^(]*)\(", text)[1]
            lines = [x.replace(f"@llvm.{symbol}(", f"@{function}(") for x in lines] + [text]
        return "\n".join(lines)

    monkeypatch.setattr(isa, "named", lambda n: found if n == called else named(n))
    monkeypatch.setattr(KernelCache, "texts", defined)
    return called
