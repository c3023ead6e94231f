"""Advice on a program for TPUs, from the compiler's own answer: each sentence says what was found and what to write.

Knows the analysis alone; what it does not say is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nxjax.backends.tpu.analysis import HloBuffer, TpuAnalysis

# Less than this is not worth a user's time.
_SHARE: Final = 0.1
_BYTES: Final = 16 * 1024
_MOST: Final = 6
# What only hands a value on: random keys are 64-bit words that are cut in two at once.
_PASSED: Final = ("parameter", "tuple", "get-tuple-element", "bitcast", "bitcast-convert", "copy")
_WIDE: Final = {"f64": "float32", "c128": "complex64", "s64": "int32", "u64": "uint32"}


def advice(a: TpuAnalysis) -> list[str]:
    """Every finding that is worth acting on, the dearest first of its kind."""
    return [*_padding(a), *_wide(a), *_convolutions(a), *_copies(a), *_loops(a), *_bound(a)]


def _padding(a: TpuAnalysis) -> Iterator[str]:
    wasted = lambda b: b.padded - b.logical
    found = [b for b in a.arguments + a.results if b.waste >= _SHARE and wasted(b) >= _BYTES]
    for b in sorted(found, key=lambda b: -wasted(b))[:_MOST]:
        yield (
            f"{b.name} {b.shape.type}: {wasted(b):,} of {b.padded:,} bytes ({b.waste:.0%}) fill up tiles of "
            f"{'x'.join(map(str, b.shape.tiles[0]))}; {_rounding(b)}"
        )


def _rounding(b: HloBuffer) -> str:
    s = b.shape
    words: list[str] = []
    for d in s.order[: len(s.tiles[0])]:
        tile, size = s.tile_of(d), s.dims[d]
        rest = size % tile
        if not rest:
            continue
        up, down = size + tile - rest, size - rest
        if 2 * size <= tile:
            words.append(
                f"dimension {d} of {size} takes {tile}: join it with another one, or put a longer one in its place"
            )
        else:
            words.append(f"dimension {d} of {size} takes {up}: make it {up}" + (f" or {down}" if down else ""))
    return "; ".join(words) or "its dimensions are short: join some"


def _wide(a: TpuAnalysis) -> Iterator[str]:
    used: dict[str, int] = {}
    places: dict[str, str] = {}
    for i in a.module.everything():
        for s in i.results:
            if s.dtype in _WIDE and i.opcode not in _PASSED:
                used[s.dtype] = used.get(s.dtype, 0) + 1
                if i.at and s.dtype not in places:
                    places[s.dtype] = f", first at {i.at[0].rsplit('/', 1)[-1]}:{i.at[1]}"
    for dtype, n in sorted(used.items()):
        how = (
            "as pairs of float32: many times slower, with 48 bits of precision at most and float32's range"
            if dtype in ("f64", "c128")
            else "as pairs of 32-bit integers"
        )
        yield (
            f"{dtype} in {n} instruction{'s' if n > 1 else ''}{places.get(dtype, '')}: a TPU has no 64-bit arithmetic, "
            f"the compiler emulates it {how}; use {_WIDE[dtype]} unless the precision is needed"
        )


def _convolutions(a: TpuAnalysis) -> Iterator[str]:
    for source, layout in a.image_layouts:
        moved = [p for p in a.copies if p.rank >= 4]
        if not moved:
            continue
        size = sum(p.bytes for p in moved)
        yield (
            f"the convolution{source} has its image as {layout}, and the compiler copies {len(moved)} arrays of four "
            f"or more dimensions into other layouts ({size:,} bytes): NHWC images with HWIO weights need fewest"
        )
        return


def _copies(a: TpuAnalysis) -> Iterator[str]:
    size = sum(p.bytes for p in a.copies)
    moved = a.counts.get("bytes accessed", 0.0)
    if moved and size >= _SHARE * moved and size >= _BYTES:
        first = a.copies[0]
        yield (
            f"copies into other layouts move {size:,} of {moved:,.0f} bytes ({size / moved:.0%}), the largest is "
            f"{first}: keep one order of dimensions from end to end, or contract over dimensions where they lie"
        )


def _loops(a: TpuAnalysis) -> Iterator[str]:
    written = a.loops_written
    if len(a.loops) > written:
        own = [p for p in a.loops if p.scope][:3]
        names = f" (of {', '.join(sorted({p.scope.rsplit('/', 1)[-1] for p in own}))})" if own else ""
        yield (
            f"{len(a.loops)} loops where the program has {written}: some ops became loops{names}, which run step by "
            "step on a TPU; sorting, factorizations and scatters of unsorted indices are such ops"
        )


def _bound(a: TpuAnalysis) -> Iterator[str]:
    r = a.roofline
    if not r.flops or not r.bytes:
        return
    if r.bound == "memory" and r.intensity < r.ridge / 4 and sum(a.products.values()):
        yield (
            f"bound by memory: {r.intensity:.1f} FLOP per byte where {r.ridge:.0f} keep the matrix unit busy; larger "
            "batches, bfloat16 and fewer, larger products raise it"
        )
