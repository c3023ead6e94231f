"""Triangular systems: right-hand sides are shared out over tiles."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.ipu.model import CycleModel
from nxjax.lower.ipu.lower import lower
from tests.lower.ipu.cases import TINY, WHOLE, check, normal

lax = nx.lax


@pytest.mark.parametrize("batch", [(), (2,), (3, 4)], ids=str)
@pytest.mark.parametrize("sides", [1, 3, 11])
@pytest.mark.parametrize("left", [True, False])
def test_any_number_of_sides(batch: tuple[int, ...], sides: int, left: bool):
    a = normal(*batch, 5, 5) + 5 * np.eye(5, dtype=np.float32)
    x = normal(*batch, 5, sides) if left else normal(*batch, sides, 5)
    for lower_, transpose, unit in ((True, False, False), (False, True, False), (True, True, True)):
        kinds = {"left_side": left, "lower": lower_, "transpose_a": transpose, "unit_diagonal": unit}
        check(lambda a, b, k=kinds: lax.linalg.triangular_solve(a, b, **k), a, x, system=TINY, rtol=1e-4)


def test_sides_are_solved_side_by_side():
    types = nx.ShapeDtypeStruct((64, 64), np.float32), nx.ShapeDtypeStruct((64, 200), np.float32)
    solve = lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True)
    made = lower(nx.make_jaxpr(solve)(*types), WHOLE)
    (step,) = (s for s in made.steps if hasattr(s, "groups"))
    assert sum(len(g.tiles) for g in step.groups) == 200
    assert CycleModel(made).cycles.device < 200_000
