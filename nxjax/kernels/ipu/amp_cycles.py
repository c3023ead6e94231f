"""Cycles of the accumulating (AMP) unit's vertices, by the formulas that Graphcore's poplibs publishes.

Source: poplibs, ``lib/poplin/PerformanceEstimation.hpp`` (``getConvPartial1x1...`` and ``getConvPartialnx1...``, half
and float). Every argument may be an array, so that a planner can ask for all candidates at once. Knows no codelet.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip

# What a vertex takes beyond poplibs' estimate: launch and sync of its compute set, as the difference to 128 published
# measurements on a Bow IPU (half products on all tiles) says; with it the mean error over them is 0.06 %.
LAUNCH: Final = 37

Count = Any  # int or integer array


def units(chip: IpuChip, halves: bool, half_partials: bool) -> int:
    """Output channels that one pass computes: of halves with float partials 8, else all that the chip has.

    >>> from nxjax.kernels.ipu.chip import BOW, GC2
    >>> units(BOW, True, True), units(BOW, True, False), units(BOW, False, False), units(GC2, True, True)
    (16, 8, 16, 8)
    """
    return 8 if halves and not half_partials else chip.conv_units


def depth(halves: bool) -> int:
    """Input channels of one pass: the unit holds 32 bytes of weights per output channel."""
    return 16 if halves else 8


def _load_cycles(passes_units: int) -> int:
    # 32 bytes per output channel, by 128-bit loads.
    return passes_units * 32 // 16


def _inner_1x1(rows: Count, zeroing: bool, halves: bool, half_partials: bool, n: int, chip: IpuChip) -> Count:
    """All workers' passes over ``rows`` positions for one group of input and of output channels."""
    common = (halves and n == 16) or not half_partials
    zero = 8 if not halves and n == 16 else 2 if half_partials else 4
    core = 4 if halves else 8

    def worker(p: Count) -> Count:
        if not halves:
            fixed = [24, 47, 46]
            more = 46 + (p - 3) * core
            by_zeroing = (2 + zero * p) * zeroing * (p > 0)
        elif common:
            extra = 0 if zeroing else 1
            fixed = [21 + extra, 32 + extra, 41 + extra]
            more = 37 + extra + (p - 3) * core
            by_zeroing = 0
        else:
            fixed = [24, 39, 40]
            more = 41 + (p - 3) * core
            by_zeroing = (2 + zero * p) * zeroing * (p > 0)
        cycles = np.where(p >= 3, more, np.asarray(fixed)[np.minimum(p, 2)])
        return cycles + by_zeroing - _saved(halves, half_partials, n)[0]

    rows = np.asarray(rows)
    # Short passes are not the fastest ones: two positions take longer than three.
    busiest, idlest = worker(-(-rows // chip.workers)), worker(rows // chip.workers)
    slow, fast = np.maximum(busiest, idlest), np.minimum(busiest, idlest)
    return np.maximum(chip.workers * slow, chip.workers * fast + 14)


def _saved(halves: bool, half_partials: bool, n: int) -> tuple[int, int]:
    """Cycles per worker that are saved by what it keeps from one pass to the next: (all, those of input channels)."""
    return (7, 3) if halves and (not half_partials or n == 16) else (0, 0)


def product(
    rows: Count, in_groups: Count, out_groups: Count, groups: Count, halves: bool, half_partials: bool, chip: IpuChip
) -> Count:
    """Cycles of a tile for ``rows`` positions times all of its channels: ``poplin::ConvPartial1x1Out``.

    Args:
        rows: positions (rows of the left operand).
        in_groups, out_groups: groups of `depth` input and of `units` output channels.
        groups: independent products (batch of matrices).

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> int(product(64, 1, 1, 1, True, True, BOW))  # measured: 584
    582
    """
    n = units(chip, halves, half_partials)
    common = (halves and n == 16) or not half_partials
    first = _inner_1x1(rows, True, halves, half_partials, n, chip)
    later = _inner_1x1(rows, False, halves, half_partials, n, chip)
    load = _load_cycles(n)
    saved, by_input = _saved(halves, half_partials, n)
    return (
        LAUNCH
        + 50
        + chip.workers * (saved + by_input * (np.asarray(in_groups) * groups - 1))
        + np.asarray(groups)
        * (
            12
            + common
            + (np.asarray(in_groups) - 1) * (15 - common + 1 + np.asarray(out_groups) * (19 + 6 + load + later))
            + 11
            + np.asarray(out_groups) * (19 - common + 7 + load + first)
        )
    )


def convolution(
    rows: Count,
    width: Count,
    kernel: Count,
    kernel_rows: Count,
    in_groups: Count,
    out_groups: Count,
    groups: Count,
    halves: bool,
    half_partials: bool,
    chip: IpuChip,
) -> Count:
    """Cycles of a tile for a convolution with a kernel of several elements or strides: ``poplin::ConvPartialnx1``.

    Args:
        rows: output rows of the tile (all dimensions but the last, the batch included).
        width: positions of a row.
        kernel: elements of the kernel.
        kernel_rows: those in all dimensions but the last.
    """
    n = units(chip, halves, half_partials)
    rows, width = np.asarray(rows), np.asarray(width)
    special = halves and ((half_partials and n == 16) or (not half_partials and n == 8))

    def entry(p: Count) -> Count:
        fixed = [17, 29 if halves else 33, (33 + special) if halves else 44]
        more = 34 + (p - 3) * 4 if halves else 45 + (p - 3) * 8
        return 3 + np.where(p >= 3, more, np.asarray(fixed)[np.minimum(p, 2)]) - 9

    # Rows are dealt to the workers whole while there are enough of them, and cut where there are fewer.
    entries = np.maximum(-(-rows // chip.workers), 1)
    elements = np.where(rows >= chip.workers, width, -(-rows * width // chip.workers))
    fewest = rows // chip.workers
    most = 17 + half_partials + entries * entry(elements)
    least = 17 + half_partials + fewest * entry(elements)
    turn = np.maximum(chip.workers * most, chip.workers * least + 9)
    inner = (
        np.asarray(kernel_rows) * 14 + np.asarray(kernel) * (12 + _load_cycles(n) + 15 + 3) + np.asarray(kernel) * turn
    )
    zero_saved = 10 if half_partials else 9
    lanes = 4 if half_partials else 2
    per_worker = -(-rows * width * n // chip.workers)
    zero = (-(-per_worker // lanes) + (15 if half_partials else 14) - zero_saved) * chip.workers * out_groups * groups
    return (
        LAUNCH
        + 109
        + chip.workers * (9 + zero_saved)
        + np.asarray(groups) * (np.asarray(out_groups) * 17 + (np.asarray(out_groups) - 1) * 6 + 1)
        + (np.asarray(groups) - 1) * 6
        + 1
        + np.asarray(groups) * (16 + np.asarray(in_groups) * (14 + np.asarray(out_groups) * (14 + inner)))
        + zero
    )


def depthwise(positions: Count, channels: Count, kernel: Count, halves: bool, chip: IpuChip) -> Count:
    """Cycles of a tile whose outputs each sum ``kernel`` products of their own channel, on the vector unit.

    After poplibs' vertical multiply-accumulate vertex (``getConvPartialVerticalMac...``), which is for halves: 61 + 14
    + 25 cycles once, per group of channels that fill 64 bits two cycles of a worker per element of the kernel, and 12
    around them. Floats, for which poplibs has no such vertex, are counted likewise with half as many to a group.
    """
    lanes = 4 if halves else 2
    vectors = -(-np.asarray(positions) * -(-np.asarray(channels) // lanes) // chip.workers)
    return LAUNCH + 100 + chip.workers * (19 + vectors * (12 + 2 * np.asarray(kernel)))


def integer(products_: Count, outputs: Count, chip: IpuChip) -> Count:
    """Cycles of a tile for ``products_`` integer multiply-accumulates: there is no unit for them.

    A worker takes four instructions each (two loads, a product, a sum) and eight around each output.
    """
    each = -(-np.asarray(products_) * 4 // chip.workers) + -(-np.asarray(outputs) * 8 // chip.workers)
    return LAUNCH + 50 + chip.workers * (20 + each)
