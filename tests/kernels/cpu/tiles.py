"""A processor with a matrix unit: this one if it has one; else its instructions as functions, one by one.

The functions do what Intel's manual says of each instruction, on registers in the memory of the kernel that runs. A
kernel that uses a register without a shape, in another shape than an instruction takes, or after it gave the unit back,
gets what was never computed.
"""

import re
import zlib
from dataclasses import replace
from pathlib import Path

from nxjax.backends.cpu.engine import KernelCache
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.ir import Function, LlvmModule

NAME = "avx512-amx"
_SHAPES = 8 * 1024  # where the shapes are, behind the registers
_STATE = _SHAPES + 64
# Machine code that an earlier run has left is of what this file said then.
_VERSION = zlib.crc32(Path(__file__).read_bytes())


def emulates():
    """Whether the instructions are functions here."""
    return NAME not in isa.possible()


def install(monkeypatch):
    """From here on there is an instruction set with a matrix unit, by the name of the real one."""
    if not emulates():
        return
    found = replace(isa.named(isa.possible()[0]), name=f"emulated tiles {_VERSION}", tiles=True)
    named, texts = isa.named, KernelCache.texts

    def with_functions(engine, kernels):
        if engine.isa.name != found.name:
            return texts(engine, kernels)
        module = LlvmModule()
        for kernel in dict.fromkeys(kernels):
            kernel.emit(module, engine.isa)
        return emulated(module.text)

    monkeypatch.setattr(isa, "named", lambda name: found if name == NAME else named(name))
    monkeypatch.setattr(KernelCache, "texts", with_functions)


def emulated(text):
    """A module in which the instructions are calls of functions; each function that uses them has its own registers."""
    lines = [x for x in text.splitlines() if not re.match(r"declare .*@llvm\.x86\.(tile|ldtile|tdp)", x)]
    parts = re.split(r"(?=^define )", "\n".join(lines), flags=re.MULTILINE)
    for i, part in enumerate(parts):
        part, count = re.subn(r"@llvm\.x86\.(tile\w+|ldtilecfg|tdp\w+)\(", r"@emulated.\1(ptr %tiles, ", part)
        part = part.replace("ptr %tiles, )", "ptr %tiles)")
        if count:
            assert part.count("@emulated.ldtilecfg") == part.count("@emulated.tilerelease")
            begin = (
                f"entry:\n  %tiles = alloca [{_STATE} x i8], align 64\n  call void @emulated.tilerelease(ptr %tiles)"
            )
            parts[i] = part.replace("entry:", begin, 1)
    return "\n".join([*parts, *(f.text for f in _functions()), "declare <16 x float> @llvm.fma.v16f32(<16 x float>, "
                      "<16 x float>, <16 x float>)"])  # fmt: skip


_LINE = "<16 x i32>"


def _at(f, state, number):
    return f.at(state, number.convert("i64", signed=False), 1024)


def _shape(f, state, number):
    """Rows and bytes of a register's row, as i64."""
    n = number.convert("i64", signed=False)
    rows = f.load("i8", f.at(f.at(state, _SHAPES + 48), n))
    return rows.convert("i64", signed=False), f.load("i16", f.at(f.at(state, _SHAPES + 16), n, 2)).convert("i64")


def _bytes(f, count, source, target):
    with f.loop(0, count, 4) as loop:
        f.store(f.load("i32", f.at(source, loop.index), 1), f.at(target, loop.index), 1)


def _fill(f, target, count, word):
    with f.loop(0, count, 4) as loop:
        f.store(f.constant("i32", word), f.at(target, loop.index), 4)


def _functions():
    made = []

    def function(name, *parameters):
        f = Function(f"emulated.{name}", ("ptr", *parameters), linkage="internal")
        made.append(f)
        return f, *f.arguments

    f, state, source = function("ldtilecfg", "ptr")
    _fill(f, state, _SHAPES, 0)
    _bytes(f, 64, source, f.at(state, _SHAPES))
    f.ret()
    f, state = function("tilerelease")
    _fill(f, state, _SHAPES, 0x7FA57FA5)
    _fill(f, f.at(state, _SHAPES), 64, 0)
    f.ret()
    f, state, n = function("tilezero", "i8")
    with f.if_(_shape(f, state, n)[0].gt(0)):
        _fill(f, _at(f, state, n), 1024, 0)
    f.ret()
    for name in ("tileloadd64", "tileloaddt164", "tilestored64"):
        f, state, n, place, stride = function(name, "i8", "ptr", "i64")
        rows, width = _shape(f, state, n)
        if name.startswith("tileload"):
            with f.if_(rows.gt(0)):
                _fill(f, _at(f, state, n), 1024, 0)
        with f.loop(0, rows) as row:
            pair = f.at(place, row.index * stride), f.at(_at(f, state, n), row.index, 64)
            _bytes(f, width, *(pair if name.startswith("tileload") else pair[::-1]))
        f.ret()
    for name in ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "tdpbf16ps"):
        f, state, c, a, b = function(name, "i8", "i8", "i8")
        (rows, width), (left_rows, left_width), (right_rows, right_width) = (_shape(f, state, n) for n in (c, a, b))
        fits = rows.eq(left_rows) & width.eq(right_width) & left_width.eq(right_rows * 4)
        with f.if_(fits), f.loop(0, rows) as row:
            at = f.at(_at(f, state, c), row.index, 64)
            left = f.at(_at(f, state, a), row.index, 64)
            (_brain if name == "tdpbf16ps" else _bytewise)(f, name, at, left, _at(f, state, b), right_rows)
        f.ret()
    return made


def _bytewise(f, name, at, left, right, depth):
    first, second = (c == "s" for c in name[4:6])
    with f.loop(0, depth, carry=[f.load(_LINE, at)]) as loop:
        total = loop.carried[0]
        x = f.splat(f.load("i32", f.at(left, loop.index, 4)), 16)
        y = f.load(_LINE, f.at(right, loop.index, 64))
        for byte in range(4):
            p, q = (
                (v << (24 - 8 * byte)) >> 24 if signed else (v << (24 - 8 * byte)).lshr(24)
                for v, signed in ((x, first), (y, second))
            )
            total = total + p * q
        loop.next(total)
    f.store(loop.results[0], at)


def normal(f, x):
    """Zero, with its sign, for what is below the normal numbers."""
    bits = x.bitcast(_LINE)
    return f.select((bits & 0x7F800000).eq(0), bits & -0x80000000, bits).bitcast("<16 x float>")


def _brain(f, name, at, left, right, depth):
    zero = f.constant("<16 x float>", 0)
    with f.loop(0, depth, carry=[zero, zero]) as loop:
        x = f.splat(f.load("i32", f.at(left, loop.index, 4)), 16)
        y = f.load(_LINE, f.at(right, loop.index, 64))
        pairs = [[normal(f, v.bitcast("<16 x float>")) for v in (x << 16, y << 16)]]
        pairs.append([normal(f, (v & -0x10000).bitcast("<16 x float>")) for v in (x, y)])
        sums = []
        for (p, q), total in zip(pairs, loop.carried, strict=True):
            text = f"call <16 x float> @llvm.fma.v16f32(<16 x float> {p.name}, <16 x float> {q.name}, "
            sums.append(normal(f, f.emit("<16 x float>", f"{text}<16 x float> {total.name})")))
        loop.next(*sums)
    even, odd = loop.results
    total = normal(f, f.load("<16 x float>", at)) + normal(f, even + odd)
    f.store(normal(f, total), at)
