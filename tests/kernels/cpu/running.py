"""Runs a kernel's machine code on NumPy arrays, cut into items in several ways, between guard bytes."""

import ctypes
import itertools

import numpy as np

from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa

ISAS = isa.possible()
GUARD = 192
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def guarded(nbytes):
    """Memory between guard bytes; what is read of it before it is written is NaN, or -1."""
    raw = np.full(nbytes + 2 * GUARD + 64, 0xA5, np.uint8)
    start = GUARD + -(raw.ctypes.data + GUARD) % 64
    raw[start : start + nbytes] = 0xFF
    return raw, start


def run(kernel, *xs, name=None, integers=(), cuts=None, strided=False):
    """The outputs of the machine code of ``kernel`` for ``xs``; raises where it writes outside of them.

    ``strided``: the arrays are passed as they lie in memory; otherwise they are made dense first.
    """
    e = engine(isa.named(name) if name else isa.current())
    xs = [x if strided else np.ascontiguousarray(x) for x in xs]
    with np.errstate(all="ignore"):
        wanted = [np.asarray(y) for y in kernel.meaning(*xs)]
    raws = [guarded(y.nbytes) for y in wanted]
    outs = [raw[s : s + y.nbytes] for (raw, s), y in zip(raws, wanted, strict=True)]
    words = [x.ctypes.data for x in xs] + [o.ctypes.data for o in outs] + list(integers)
    words = np.array([w & 0xFFFFFFFFFFFFFFFF for w in words] or [0], np.uint64)
    scratch, s = guarded(kernel.scratch)
    (address,) = e.addresses([kernel])
    cuts = [0, kernel.items] if cuts is None else [0, *cuts, kernel.items]
    for lo, hi in itertools.pairwise(cuts):
        _TYPE(address)(words.ctypes.data, lo, hi, scratch[s:].ctypes.data)
    for (raw, start), y in [*zip(raws, wanted, strict=True), ((scratch, s), np.empty(kernel.scratch, np.uint8))]:
        assert (raw[:start] == 0xA5).all(), "wrote before its memory"
        assert (raw[start + y.nbytes :] == 0xA5).all(), "wrote after its memory"
    return [o.view(y.dtype).reshape(y.shape) for o, y in zip(outs, wanted, strict=True)]
