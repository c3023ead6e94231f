"""The comparison with JAX finds what differs, and nothing where nothing does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from benchmarks.differential.areas import AREAS, cases
from benchmarks.differential.case import MODES, Case, Weak
from benchmarks.differential.run import verdicts

X = np.linspace(-1.0, 2.0, 4, dtype=np.float32)


def kinds(case: Case) -> dict[str, str]:
    return {verdict.mode: verdict.kind for verdict in verdicts([case])}


def test_the_same_function_is_the_same_in_every_mode() -> None:
    assert kinds(Case("numpy.sin", (X,))) == dict.fromkeys(MODES, "same")
    assert kinds(Case("numpy.power", (X, Weak(2)))) == dict.fromkeys(MODES, "same")


@pytest.mark.parametrize(
    ("expected", "ours"),
    [
        ("value", lambda lib, x: x + 1e-3),
        ("dtype", lambda lib, x: x.astype(lib.numpy.float16)),
        ("shape", lambda lib, x: x[:2]),
        ("structure", lambda lib, x: (x, x)),
        ("refuses", lambda lib, x: lib.numpy.reshape(x, (3,))),
    ],
)
def test_a_difference_is_named(expected: str, ours: Any) -> None:
    def make(library: Any) -> Any:
        return (lambda x: ours(library, x)) if library.__name__ == "nxjax" else lambda x: x

    assert set(kinds(Case("mine", (X,), make=make)).values()) == {expected}


def test_a_value_nearer_to_the_exact_one_is_right() -> None:
    def make(library: Any) -> Any:  # in float32 the one is lost beside the other
        return lambda x: x * 0 if library.__name__ == "nxjax" else (x + 1e9) - 1e9 - x

    assert kinds(Case("mine", (X,), make=make, modes=("call",))) == {"call": "nearer"}


def test_areas_draw_the_same_cases_again() -> None:
    for area in AREAS:
        assert cases(area, 1), area
    for area in AREAS[::6]:
        first, second = (Counter(map(str, cases(area, 1))) for _ in range(2))
        assert first == second
