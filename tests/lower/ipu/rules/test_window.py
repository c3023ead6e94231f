"""Gradients of pools: whole windows in one vertex where that keeps the chip busy, else elementwise work."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.ipu.model import CycleModel
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Execute
from tests.lower.ipu.cases import WHOLE, check, normal

lax = nx.lax
POOL = {"window_dimensions": (1, 3, 3, 1), "window_strides": (1, 2, 2, 1), "padding": "SAME"}
gradient = nx.grad(lambda x: nx.sum(lax.reduce_window(x, -np.inf, lax.max, **POOL) ** 2))


@pytest.mark.parametrize(("shape", "whole"), [((256, 6, 6, 64), True), ((1, 112, 112, 64), False)], ids=str)
def test_gradients_of_pools_use_the_chip(shape: tuple[int, ...], whole: bool):
    made = lower(nx.make_jaxpr(gradient)(nx.ShapeDtypeStruct(shape, np.float32)), WHOLE)
    names = {g.codelet.name for s in made.walk() if isinstance(s, Execute) for g in s.groups}
    assert any("Scatter" in n for n in names) == whole
    model = CycleModel(made)
    assert model.cycles.device < 100_000 and model.memory.per_tile.max() < 2 * model.memory.per_tile.mean()


@pytest.mark.parametrize("shape", [(200, 5, 5, 12), (1, 17, 13, 3)], ids=str)
def test_both_ways_are_right(shape: tuple[int, ...]):
    check(gradient, normal(*shape), system=WHOLE)
