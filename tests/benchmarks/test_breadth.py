"""The programs of the breadth benchmark trace, and their results are NumPy's or JAX's."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import nxjax as nx
from benchmarks.breadth import WrongResult, libraries, works
from benchmarks.breadth.areas import AREAS, programs
from benchmarks.breadth.compare import differs
from benchmarks.breadth.libraries import jax_work, numpy_work, wide
from benchmarks.breadth.program import Inputs, Program
from benchmarks.breadth.table import PREFIX, history, mean, sparkline, table
from benchmarks.runner import Figure

SAMPLED = 2  # programs of each area whose results are compared


def test_there_are_many_programs() -> None:
    counts = {area: len(programs(area)) for area in AREAS}
    assert all(12 <= n <= 24 for n in counts.values()), counts
    assert sum(counts.values()) >= 150
    names = [f"{p.area}.{p.name}" for area in AREAS for p in programs(area)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("area", AREAS)
def test_every_program_traces(area: str) -> None:
    for program in programs(area):
        inputs = program.rows[0].tiny()
        nx.eval_shape(program.of(nx), *program.arrays(inputs))


@pytest.mark.parametrize("area", AREAS)
def test_results_are_those_of_numpy_or_jax(area: str) -> None:
    found = programs(area)
    for at in np.random.default_rng(len(area)).permutation(len(found))[:SAMPLED]:
        program = found[int(at)]
        inputs = program.rows[0].tiny("float64")
        with wide(True):
            arrays = program.arrays(inputs)
            result = nx.jit(program.of(nx))(*map(nx.numpy.asarray, arrays))
            try:
                work = numpy_work(program, arrays)
                expected = None if work is None else work()
            except AttributeError:  # NumPy has not all of the program's names
                work = jax_work(program, arrays)
                expected = None if work is None else work()
            if expected is not None:
                assert differs(result, expected, dtype="float64", tolerance=1e3) == "", program.title(inputs)


def _times_two(factor: dict[str, float]) -> Program:
    """Doubles, but in the libraries named in ``factor``."""
    double = lambda lib, x: factor.get(getattr(lib, "__name__", ""), 2.0) * x
    return Program("area", "double", double, ("n",), (Inputs({"n": 3}),))


def test_a_wrong_result_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = _times_two({"nxjax": 3.0})
    jax = lambda program, arrays: lambda: program.function(np, *arrays)
    monkeypatch.setitem(libraries.PEERS, "jax", jax)
    with pytest.raises(WrongResult, match=r"array 0\[\d\]"):
        works(other, other.rows[0], ("jax",))
    assert set(works(_times_two({}), other.rows[0], ("jax", "numpy"))) == {"nxjax", "jax", "numpy"}


def test_a_peer_with_other_meanings_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    other = _times_two({})
    monkeypatch.setitem(libraries.PEERS, "torch", lambda program, arrays: lambda: arrays[0])
    monkeypatch.setitem(libraries.PEERS, "numpy", lambda program, arrays: lambda: SimpleNamespace().sum)
    assert set(works(other, other.rows[0], ("torch", "numpy"))) == {"nxjax"}


def test_differences_are_told() -> None:
    x = np.asarray([1.0, 2.0, np.nan], np.float32)
    assert differs((x, x), (x, x * (1 + 1e-5)), dtype="float32") == ""
    assert "expected" in differs(x, x * 1.01, dtype="float32")
    assert differs(x, x * 1.01, dtype="bfloat16") == ""
    assert differs(x, x[:2], dtype="float32") == "array 0: shape (3,), expected (2,)"
    assert differs(x, np.nan_to_num(x), dtype="float32") == "array 0: other elements are finite"


def test_the_table_is_sorted_and_remembers(tmp_path) -> None:
    fast = Figure(PREFIX + "fast", 1.0, 4.0, "jax", None, peers={"jax": 4.0})
    slow = Figure(PREFIX + "slow", 1.0, 0.5, "torch", None, peers={"jax": 1.0, "torch": 0.5})
    alone = Figure(PREFIX + "alone", 1.0, None, "", None)
    record = {"when": "20250101-000000", "figures": [{"name": fast.name, "ours": 1.0, "peers": {"jax": 1.0}}]}
    (tmp_path / "0.9.json").write_text(json.dumps(record))
    later = {"when": "20260101-000000", "figures": [{"name": fast.name, "ours": 1.0, "peers": {"jax": 8.0}}]}
    (tmp_path / "0.10.json").write_text(json.dumps(later))
    lines = table([fast, slow, alone], history(tmp_path)).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["slow", "fast", "alone"]
    assert lines[2].endswith(sparkline([1.0, 8.0, 4.0]))
    assert lines[4] == "to JAX: geometric mean 2.00, 0 of 2 under 1.0"
    assert lines[5].endswith("1 of 2 under 1.0")
    assert mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert sparkline([0.01, 1.0, 1e6]) == "▁▃█"


def test_inputs_are_written_in_a_line() -> None:
    inputs = Inputs.parsed("n=100 d=3 float64")
    assert inputs == Inputs({"n": 100, "d": 3}, "float64")
    assert inputs.wide
    assert str(inputs.tiny()) == "n=12 d=3 float32"
    random = np.random.default_rng(0)
    index = inputs.array("n d: below d", random)
    assert index.shape == (100, 3)
    assert index.max() == 2
    assert inputs.array("d: normal complex", random).dtype == np.complex128
    assert np.linalg.eigvalsh(replace(inputs, dtype="float32").array("d d: spd", random)).min() > 0.9
