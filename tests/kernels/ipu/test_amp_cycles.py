"""The AMP unit's cycles against published measurements on a Bow IPU."""

from pathlib import Path

import numpy as np
import pytest

from nxjax.kernels.ipu import amp_cycles
from nxjax.kernels.ipu.chip import BOW, GC200

# [N, 16] @ [16, 16] in half precision on all 1,472 tiles of a Bow IPU at 1.85 GHz, N = 16 to 2048, as published with
# tessellate-ipu's notebook on peak FLOP/s: TFLOP/s of each run.
MEASURED = np.loadtxt(Path(__file__).parent / "bow_amp_fp16.csv", delimiter=",", skiprows=1)


def test_products_are_within_the_published_measurements():
    rows, tflops = MEASURED[:, 0].astype(int), MEASURED[:, 1]
    assert len(rows) == 128
    measured = 2 * rows * 16 * 16 * BOW.tiles * BOW.clock / (tflops * 1e12)
    ours = amp_cycles.product(rows, 1, 1, 1, True, True, BOW)
    error = np.abs(ours - measured) / measured
    assert error.mean() < 0.01 and error.max() < 0.03


def test_peak_rates():
    """Long products approach 64, 32 and 16 multiply-accumulates a cycle and tile."""
    for halves, half_partials, rate in [(True, True, 64), (True, False, 32), (False, False, 16)]:
        n, k = amp_cycles.units(BOW, halves, half_partials), amp_cycles.depth(halves)
        cycles = amp_cycles.product(60_000, 1, 1, 1, halves, half_partials, BOW)
        if halves:
            assert 60_000 * n * k / cycles == pytest.approx(rate, rel=0.01)
        else:
            # Float partials are zeroed by themselves before the first pass; later ones run at the full rate.
            more = amp_cycles.product(60_000, 2, 1, 1, halves, half_partials, BOW) - cycles
            assert 60_000 * n * k / more == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(("halves", "half_partials"), [(True, True), (True, False), (False, False)])
def test_more_work_takes_more_cycles(halves: bool, half_partials: bool):
    base = {"rows": 40, "in_groups": 2, "out_groups": 3, "groups": 1}
    cycles = amp_cycles.product(**base, halves=halves, half_partials=half_partials, chip=GC200)
    for name in base:
        more = {**base, name: base[name] + 6}
        assert amp_cycles.product(**more, halves=halves, half_partials=half_partials, chip=GC200) > cycles
    wide = {"rows": 12, "width": 10, "kernel": 9, "kernel_rows": 3, "in_groups": 2, "out_groups": 1, "groups": 1}
    cycles = amp_cycles.convolution(**wide, halves=halves, half_partials=half_partials, chip=GC200)
    for name in wide:
        more = {**wide, name: wide[name] + 6}
        assert amp_cycles.convolution(**more, halves=halves, half_partials=half_partials, chip=GC200) > cycles


def test_arrays_are_answered_at_once():
    rows = np.arange(1, 50)
    together = amp_cycles.product(rows, 2, 1, 1, True, False, BOW)
    assert together.tolist() == [int(amp_cycles.product(r, 2, 1, 1, True, False, BOW)) for r in rows]
