"""The tool that runs other libraries' suites, on a suite of four tests."""

import json

import pytest

from tools import suites

FEW = """
import sys
import pytest

def test_both():
    pass

def test_on_jax_alone():
    assert "jax" not in sys.modules, "jax is there"  # nothing imports it but the alias

def test_neither():
    raise ValueError("never")

@pytest.mark.skip
def test_skipped():
    pass
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_few.py").write_text(FEW)
    (tmp_path / "tests" / "test_ends.py").write_text("import os\nos._exit(7)\n")
    (tmp_path / "tests" / "test_other.py").write_text("assert False, 'excluded'\n")
    few = suites.Suite("nowhere", "v1", ("tests",), {"test_other.py": "is another subject"})
    monkeypatch.setitem(suites.SUITES, "equinox", few)
    return tmp_path


def test_the_rate_is_of_what_passes_on_jax(source, capsys):
    record = source / "record.json"
    assert suites.main(["equinox", str(source), "--record", str(record)]) == 0
    said = capsys.readouterr().out
    assert "tests/test_few.py: 1 of 2 that pass on JAX" in said
    assert "all: 1 of 2, 50.0 %" in said
    assert "    1 AssertionError: jax is there" in said
    assert "never" not in said  # it does not pass on JAX either
    assert "tests/test_ends.py: 0 of 0 that pass on JAX (jax: ended with 7" in said
    assert "test_other.py did not run: is another subject" in said
    outcomes = json.loads(record.read_text())["tests/test_few.py"]["jax"]["outcomes"]
    assert sorted(outcomes.values()) == ["ValueError: never", "passed", "passed", "skipped"]


def test_one_of_both_and_some_files(source, capsys):
    suites.main(["equinox", str(source), "--on", "nxjax", "--only", "test_few.py"])
    said = capsys.readouterr().out
    assert "tests/test_few.py: 1 of 4 pass" in said
    assert "test_ends.py" not in said
    assert "    1 ValueError: never" in said


def test_what_takes_too_long_has_no_test_that_passes(source):
    file = source / "tests" / "test_few.py"
    ran = suites.run(file, source, "jax", limit=0.0)
    assert (ran.outcomes, ran.ended) == ({}, "ran longer than 0 s")
