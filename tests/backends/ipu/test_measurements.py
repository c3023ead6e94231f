"""What a user reads of a product on all tiles of a Bow IPU, against published measurements of it."""

from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.ipu.chip import BOW

MEASURED = np.loadtxt(Path(__file__).parents[2] / "kernels/ipu/bow_amp_fp16.csv", delimiter=",", skiprows=1)


@pytest.mark.parametrize("row", [0, 1, 3, 20, 63, 127])
def test_a_product_of_halves_on_every_tile(row: int):
    rows, tflops = int(MEASURED[row, 0]), MEASURED[row, 1]
    x = nx.ShapeDtypeStruct((BOW.tiles, rows, 16), np.float16)
    y = nx.ShapeDtypeStruct((BOW.tiles, 16, 16), np.float16)
    artifact = nx.compile(lambda a, b: a @ b, target="ipu-bow", partials="half", compile_only=True)(x, y)
    measured = 2 * rows * 16 * 16 * BOW.tiles * BOW.clock / (tflops * 1e12)
    assert abs(artifact.analysis.cycles.compute - measured) < 0.03 * measured
