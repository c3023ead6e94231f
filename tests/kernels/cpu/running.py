"""Runs a kernel's machine code on NumPy arrays, cut into items in several ways, between pages that may not be touched.

Every kernel is run twice. All memory ends at such a page the first time and begins at one the second, which has other
bytes wherever the kernel says that it reads none: in outputs, in scratch memory, and between and around the elements of
its inputs. Its results may not change, and what it says it writes, and nothing else, has to be written
(`Kernel.touches`). Nor may it compute with those bytes and drop the result: they are numbers below the normal range.
Processors take many times as long with such numbers, and leave a mark (`subnormals_seen`).
"""

import ctypes
import itertools
import platform

import numpy as np

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.guard import GuardedMemory, address_of, reported
from nxjax.config import config
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.tape import ALIGN

ISAS = isa.possible()
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


_NAN = b"\xff"
_SUBNORMAL = b"\x01\x00"  # in every float format of 16 bits and more
_X86 = platform.machine() in ("x86_64", "AMD64") and platform.libc_ver()[0] == "glibc"
_C = ctypes.CDLL(None)


def subnormals_seen():
    """Whether this thread computed with a number below the normal range since it was asked last; None: unknown here."""
    if not _X86:
        return None
    words = (ctypes.c_uint32 * 8)()  # glibc's fenv_t, whose last word is MXCSR
    _C.fegetenv(words)
    seen = bool(words[7] & 2)
    words[7] &= ~2
    _C.fesetenv(words)
    return seen


def filled(nbytes, fill):
    """So many bytes of a pattern."""
    return np.resize(np.frombuffer(fill, np.uint8), nbytes)


def guarded(nbytes, fill, name, align=1):
    """Memory at such a page, and its bytes."""
    piece = GuardedMemory(nbytes, name, align)
    raw = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(piece.address), np.uint8)
    raw[...] = filled(nbytes, fill)
    return piece, raw


def run(kernel, *xs, name=None, cuts=None, strided=False):
    """The outputs of the machine code of ``kernel`` for ``xs``; raises where it touches what it says it does not.

    ``strided``: the arrays are passed as they lie in memory; otherwise they are made dense first.
    """
    e = engine(isa.named(name) if name else isa.current())
    xs = [x if strided else np.ascontiguousarray(x) for x in xs]
    with np.errstate(all="ignore"):
        wanted = [np.asarray(y) for y in kernel.meaning(*xs)]
    (address,) = e.addresses([kernel])
    cuts = [0, kernel.items] if cuts is None else [0, *cuts, kernel.items]
    call = lambda places, fill: _called(address, kernel, places, wanted, cuts, fill)
    copies = [_elsewhere(x, None) for x in xs]
    outs, seen = call([place for place, _ in copies], _NAN)
    touched = kernel.touches()
    if touched is not None:
        with config.using(guard="begin"):
            others = [_elsewhere(x, boxes) for x, boxes in zip(xs, touched.ins, strict=True)]
            again, then = call([place for place, _ in others], _SUBNORMAL)
        assert seen or not then, "computes with what it does not read, though it drops the result"
        for first, second, written in zip(outs, again, touched.outs, strict=False):
            _check(first, second, written)
    return [o.view(y.dtype).reshape(y.shape) for o, y in zip(outs, wanted, strict=True)]


def _called(address, kernel, places, wanted, cuts, fill):
    """The bytes of the outputs, whose memory and scratch are filled with ``fill``, and `subnormals_seen`."""
    outs = [guarded(y.nbytes, fill, f"output {i}") for i, y in enumerate(wanted)]
    scratch, _ = guarded(kernel.scratch, fill, "scratch memory", ALIGN)
    words = [*places, *(o.address for o, _ in outs), *kernel.integers]
    words = np.array([w & 0xFFFFFFFFFFFFFFFF for w in words] or [0], np.uint64)
    text = kernel.key.encode()
    with reported(address_of(text)):
        subnormals_seen()
        for lo, hi in itertools.pairwise(cuts):
            _TYPE(address)(words.ctypes.data, lo, hi, scratch.address)
        seen = subnormals_seen()
    for piece in (*(o for o, _ in outs), scratch):
        piece.check()
    return [raw.copy() for _, raw in outs], seen


def bytes_of(boxes, low, high):
    """Which of the bytes from ``low`` to ``high`` lie in ``boxes``; raises where one of them lies outside."""
    found = np.zeros(high - low, np.bool_)
    for box in boxes:
        first, length, repeats = box.runs
        last = first + length + sum((n - 1) * s for n, s in repeats)
        if not length:
            continue
        assert low <= first and last <= high, f"{box} is not within {low} ... {high}"
        shape, strides = (*(n for n, _ in repeats), length), (*(s for _, s in repeats), 1)
        np.lib.stride_tricks.as_strided(found[first - low :], shape, strides)[...] = True
    return found


def _elsewhere(x, boxes):
    """A copy of the memory of ``x`` in which all bytes are others that are not in ``boxes``: its place, and it."""
    low = min(0, sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s < 0)) if x.size else 0
    high = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s > 0) + x.itemsize if x.size else 0
    piece, raw = guarded(high - low, _NAN, "an operand")
    ctypes.memmove(piece.address, x.ctypes.data + low, high - low)
    if boxes is not None:
        raw[~bytes_of([b for b in boxes if not b.idle], low, high)] ^= 0x5A
    piece.seal()
    return piece.address - low, piece


def _check(first, second, written):
    """What is ``written`` is the same in both; what is not was left as it was."""
    touched = bytes_of(written.boxes, 0, len(first))
    for y, fill in ((first, _NAN), (second, _SUBNORMAL)):
        assert (y == filled(len(y), fill))[~touched].all(), "wrote what it does not say"
    if written.how == "all":
        differs = np.flatnonzero(first[touched] != second[touched])
        assert not len(differs), f"byte {differs[:5]} of what it writes depends on what it does not read, or is missing"
