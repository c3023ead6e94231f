"""Objects of another processor, laid out here: where its instructions would go, by an interpreter of a few of them."""

import ctypes
import struct

import llvmlite.binding as llvm
import pytest

from nxjax.backends.cpu.native.loading import Unlinkable, _Linked
from nxjax.backends.cpu.native.relocations import PROCESSORS, RelocationKind

ARM = PROCESSORS["aarch64"]
TEXT = """
@table = internal constant [4 x i64] [i64 11, i64 22, i64 33, i64 44]
@place = internal global i64 0
declare void @far()
define internal i64 @near() noinline { ret i64 5 }
define ptr @constant() { ret ptr getelementptr (i64, ptr @table, i64 2) }
define ptr @variable() { ret ptr @place }
define ptr @function() { ret ptr @far }
define i64 @within() { %1 = call i64 @near()
  %2 = add i64 %1, 1
  ret i64 %2 }
define void @outside() { call void @far()
  ret void }
"""
# Numbers of 2, 8 and 16 bytes: their type, how LLVM spells them, and what is read.
CONSTANTS = {
    "two": ("half", "0xH3C66", bytes.fromhex("663c")),
    "eight": ("<2 x float>", "<float 1.5, float 2.5>", struct.pack("<2f", 1.5, 2.5)),
    "sixteen": ("<4 x i32>", "<i32 1, i32 2, i32 3, i32 -4>", struct.pack("<4i", 1, 2, 3, -4)),
}
FAR, HERE = 0x7654_3210_FEDC_BA98, 0x5500_1234_5000


def made(text, level):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="generic", opt=level, jit=True, codemodel="jitdefault")
    return machine.emit_object(llvm.parse_assembly(text))


@pytest.fixture(scope="module")
def linked():
    return made(TEXT, 2), lambda name: FAR if name == "far" else None


def test_names_take_no_memory():
    """The tables of symbols are for the loader alone."""
    short, long = (made(f"define i64 @{name}() {{ ret i64 5 }}", 2) for name in ("f", "f" * 5000))
    assert len(long) - len(short) >= 4000
    assert len({_Linked(data, lambda name: None, ARM).size for data in (short, long)}) == 1


def signed(x, bits):
    return x - (1 << bits) if x >> bits - 1 else x


def followed(image, start):
    """Runs straight on from an address: gives where the first branch goes, or x0 at a return."""
    x, pc = [0] * 32, start
    read = lambda address, form: struct.unpack_from(form, image, address - HERE)[0]
    for _ in range(100):
        i = read(pc, "<I")
        d, n = i & 31, i >> 5 & 31
        if i >> 23 == 0b110100101:  # movz
            x[d] = (i >> 5 & 0xFFFF) << 16 * (i >> 21 & 3)
        elif i >> 23 == 0b111100101:  # movk
            at = 16 * (i >> 21 & 3)
            x[d] = x[d] & ~(0xFFFF << at) | (i >> 5 & 0xFFFF) << at
        elif i >> 31 and i >> 24 & 31 == 0b10000:  # adrp
            x[d] = (pc & -4096) + (signed((i >> 5 & 0x7FFFF) << 2 | i >> 29 & 3, 21) << 12)
        elif i >> 22 == 0b1111100101:  # ldr from an address and an offset
            x[d] = read(x[n] + 8 * (i >> 10 & 0xFFF), "<Q")
        elif i >> 24 & 63 == 0b111101 and i >> 22 & 1:  # ldr of 1 to 16 bytes for numbers
            size = 16 if i >> 23 & 1 else 1 << (i >> 30)
            start = x[n] + size * (i >> 10 & 0xFFF) - HERE
            x[d] = bytes(image[start : start + size])
        elif i >> 24 == 0b01011000:  # ldr from beside the instruction
            x[d] = read(pc + 4 * signed(i >> 5 & 0x7FFFF, 19), "<Q")
        elif i >> 26 in (0b100101, 0b000101):  # bl, b
            return pc + 4 * signed(i & 0x3FFFFFF, 26)
        elif i & ~0x3E0 == 0xD61F0000:  # br
            return x[n]
        elif i == 0xD65F03C0:  # ret
            return x[0]
        pc += 4
    raise AssertionError("no branch")


def test_instructions_of_arm_reach_what_they_name(linked):
    data, outside = linked
    image, at, memory = _Linked(data, outside, ARM).at(HERE)
    table = followed(image, at["constant"]) - 16
    assert struct.unpack_from("<4Q", image, table - HERE) == (11, 22, 33, 44)
    start = followed(image, at["variable"])
    assert 0 <= start - ctypes.addressof(memory) < len(memory)
    assert followed(image, at["function"]) == FAR
    assert followed(image, at["within"]) == at["near"]
    # What is too far for the instruction is reached by one that is near.
    near = followed(image, at["outside"])
    assert HERE <= near < HERE + len(image) and followed(image, near) == FAR


@pytest.mark.parametrize("level", [0, 2])
def test_constants_are_read_where_they_are(level):
    text = "".join(f"define {type} @{name}() {{ ret {type} {x} }}\n" for name, (type, x, _) in CONSTANTS.items())
    image, at, _ = _Linked(made(text, level), lambda name: None, ARM).at(HERE)
    for name, (_, _, held) in CONSTANTS.items():
        assert followed(image, at[name]) == held, name


def test_a_place_that_is_too_far_away_is_refused():
    call = ARM.kinds[283]
    assert call.number(HERE + 4, HERE) == 4
    assert call.number(HERE + (1 << 27), HERE) is None and call.number(HERE - (1 << 27), HERE) is not None


def test_an_object_of_another_processor_is_refused(linked):
    data, outside = linked
    with pytest.raises(Unlinkable, match="this processor"):
        _Linked(data, outside, PROCESSORS["x86_64"])
    for cut in range(0, len(data) - 1, 61):
        with pytest.raises(Unlinkable):
            _Linked(data[:cut], outside, ARM)


def test_the_rest_of_an_instruction_stays():
    for kind in (k for p in PROCESSORS.values() for k in p.kinds.values()):
        word = kind.written((1 << 8 * kind.size) - 1, 0)
        covered = sum(((1 << bits) - 1) << at for _, bits, at in kind.parts)
        assert word == ((1 << 8 * kind.size) - 1) & ~covered
        assert kind.written(word, -1) == (1 << 8 * kind.size) - 1
    assert RelocationKind(4, ((3, 9, 10),)).written(0, 0xFF8) == 0x1FF << 10
