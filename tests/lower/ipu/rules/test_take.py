"""Look-ups in tables of every length, cut over tiles; the work is spread."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.backends.ipu.model import CycleModel
from nxjax.lower.ipu.lower import lower
from tests.lower.ipu.cases import CRAMPED, WHOLE, check, integers, normal


@pytest.mark.parametrize("rows", [500, 701, 997, 1000])
def test_tables_cut_by_rows_of_any_number(rows: int):
    """Parts of one length but for the last: otherwise two parts write one place."""
    check(lambda t, i: t[i], normal(rows), integers(-rows, rows, (30,)), system=CRAMPED)


def test_tables_cut_into_many_parts():
    found = check(
        lambda t, i, j: t[i, j], normal(2997, 3), integers(0, 2997, (37,)), integers(0, 3, (37,)), system=CRAMPED
    )
    assert max(v.shape[0] for v in found.variables() if len(v.shape) == 4) > 16


def test_a_choice_of_many():
    xs = [normal(5) + i for i in range(40)]
    check(lambda i, *xs: nx.lax.select_n(i + 1, *(x * 2 for x in xs)), integers(0, 39, (5,)), *xs)


@settings(max_examples=15, deadline=None)
@given(st.integers(400, 1200), st.integers(1, 40))
def test_places_outside_of_long_tables(rows: int, count: int):
    f = lambda t, i: (t.at[i].get(mode="fill", fill_value=7.0), t.at[i].get(mode="clip"))
    check(f, nx.asarray(normal(rows)), integers(-2 * rows, 2 * rows, (count,)), system=CRAMPED)


@pytest.mark.parametrize(("rows", "width", "count"), [(5000, 128, 4096), (500_000, 1, 100_000)])
def test_look_ups_are_spread_over_the_chip(rows: int, width: int, count: int):
    types = nx.ShapeDtypeStruct((rows, width), np.float32), nx.ShapeDtypeStruct((count,), np.int32)
    model = CycleModel(lower(nx.make_jaxpr(lambda t, i: t[i])(*types), WHOLE))
    used = model.memory.per_tile
    assert model.memory.fits and used.max() < 2 * used.mean()
