"""The fuzzer finds nothing in a short run, and finds what is put there for it."""

import numpy as np
import pytest

from nxjax.__main__ import main
from nxjax.errors import ParameterError
from nxjax.testing import fuzz, fuzz_files
from nxjax.testing.fuzz_files import Reader
from nxjax.testing.fuzz_programs import Attempt
from nxjax.testing.fuzzing import Fuzzed


def test_a_short_run_finds_nothing():
    found = fuzz(600, seed=1, what="programs", cases=1)
    assert not found.failures, found
    assert found.tried == {"programs": 10, "quantized networks": 1}
    assert found.features["on cpu"] == 10 and "of these with" in str(found)


@pytest.mark.parametrize("name", sorted({r.name for r in fuzz_files.readers().values()} - {"stablehlo"}))
def test_readers_take_or_refuse(name):
    found = fuzz(600, seed=2, what=name, cases=3)
    assert not found.failures, found


def test_a_reader_that_leaks_an_error_is_found():
    reader = Reader("wrong", lambda data: data[100], lambda: [bytes(range(50))])
    assert "IndexError" in fuzz_files.one(reader, 0)
    assert any(fuzz_files.mutated(b"abc" * 9, np.random.default_rng(s)) != b"abc" * 9 for s in range(3))


def test_failures_are_told_once_and_written(monkeypatch, tmp_path):
    told = iter(["x = 1\n# seed 3\n# wrong value: 0.25", "x = 2\n# seed 4\n# wrong value: 0.75", "", "y\n# other bits"])
    tries = {"programs": (4, lambda seed, begun: Attempt(next(told), frozenset({"scan"})))}
    monkeypatch.setattr("nxjax.testing.fuzzing.targets", lambda what: tries)
    found = fuzz(600, seed=3, cases=1, out=tmp_path)
    assert len(found.failures) == 2 and found.features == {"scan": 4} and "2 failures" in str(found)
    assert sorted(p.read_text()[0] for p in tmp_path.iterdir()) == ["x", "y"]


def test_ctrl_c_ends_a_run_with_what_was_found(monkeypatch):
    def interrupted(seed, begun):
        if seed == 2:
            raise KeyboardInterrupt
        return Attempt()

    monkeypatch.setattr("nxjax.testing.fuzzing.targets", lambda what: {"programs": (10, interrupted)})
    assert fuzz(600, cases=1).tried == {"programs": 2}


def test_the_command(capsys):
    assert main(["fuzz", "--seconds", "0.05", "--what", "type", "--seed", "3", "--jobs", "0"]) == 0
    assert "seed 3" in (told := capsys.readouterr().out) and "no failure" in told
    with pytest.raises(ParameterError, match="program text"):
        fuzz(1, what="nothing")
    assert "no failure" in str(Fuzzed())
