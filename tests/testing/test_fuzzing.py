"""The fuzzer finds nothing in a short run, and finds what is put there for it."""

import math

import numpy as np
import pytest

from nxjax.__main__ import main
from nxjax.errors import MissingExtraError, NxError, ParameterError
from nxjax.testing import fuzz, fuzz_files
from nxjax.testing.fuzz_files import FileReader
from nxjax.testing.fuzz_programs import ProgramOutcome
from nxjax.testing.fuzzing import Fuzzed, _without


def test_a_short_run_finds_nothing():
    found = fuzz(600, seed=1, what="programs", cases=1)
    assert not found.failures, found
    assert found.tried == {"programs": 10, "quantized programs": 2}
    assert found.features["on cpu"] == 10 and "of these with" in str(found)


@pytest.mark.parametrize("name", sorted({r.name for r in fuzz_files.readers().values()} - {"stablehlo"}))
def test_readers_take_or_refuse(name):
    found = fuzz(600, seed=2, what=name, cases=3)
    assert not found.failures, found


def test_a_reader_that_leaks_an_error_is_found():
    reader = FileReader("wrong", lambda data: data[100], lambda: [bytes(range(50))])
    assert "IndexError" in fuzz_files.one(reader, 0)
    assert any(fuzz_files.mutated(b"abc" * 9, np.random.default_rng(s)) != b"abc" * 9 for s in range(3))


def test_half_of_the_models_are_damaged_inside_their_structure():
    for name, reader in fuzz_files.readers().items():
        if reader.damaged is None:
            continue
        whole = reader.valid()[0]
        other = [reader.damaged(whole, np.random.default_rng(s)) for s in range(60)]
        assert len(set(other)) > 30, name
        read = 0
        for data in other:
            try:
                reader.read(data)
            except NxError:
                continue
            read += 1
        assert read > 5, (name, read)


def test_failures_are_told_once_and_written(monkeypatch, tmp_path):
    told = iter(["x = 1\n# seed 3\n# wrong value: 0.25", "x = 2\n# seed 4\n# wrong value: 0.75", "", "y\n# other bits"])
    tries = {"programs": (4, lambda seed, begun: ProgramOutcome(next(told), frozenset({"scan"})))}
    monkeypatch.setattr("nxjax.testing.fuzzing.targets", lambda what: tries)
    found = fuzz(600, seed=3, cases=1, out=tmp_path)
    assert len(found.failures) == 2 and found.features == {"scan": 4} and "2 failures, in 3 cases" in str(found)
    assert sorted(p.read_text()[0] for p in tmp_path.iterdir()) == ["x", "y"]


def test_failures_of_other_functions_are_other_failures(monkeypatch):
    text = "text = '''\ndef f(x0):\n    v1 = {}\n    return v1,\n'''\ncheck(text)\n# seed {}\n# wrong value: {}"
    lines = ("jnp.sort(x0)", "lax.cumsum(x0, 0)", "jnp.sort(jnp.sin(x0))", "x0.sum()", "x0.max()")
    told = iter(["import numpy\n" + text.format(line, 90 + k, k / 7) for k, line in enumerate(lines)])
    tries = {"programs": (5, lambda seed, begun: ProgramOutcome(next(told)))}
    monkeypatch.setattr("nxjax.testing.fuzzing.targets", lambda what: tries)
    found = fuzz(cases=1)
    assert found.failed == 5
    assert [next(n for n in lines if n in f) for f in found.failures] == [*lines[:2], *lines[3:]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0},
        {"seconds": -3},
        {"seconds": math.nan},
        {"cases": 0},
        {"cases": -1},
        {"jobs": -1},
        {"jobs": 10**6},
        {"seed": -1},
    ],
    ids=repr,
)
def test_what_tries_nothing_or_never_ends_is_refused(wrong, capsys):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        fuzz(what="type", **wrong)
    name, value = next(iter(wrong.items()))
    assert main(["fuzz", "--what", "type", f"--{name}={value}"]) == 2
    told = capsys.readouterr()
    assert f"fuzz: {name}" in told.err and not told.out
    assert str(Fuzzed({"type": 0})).endswith("nothing was tried")


def test_a_folder_that_cannot_be_written_into_is_refused_before_the_night(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(ParameterError, match="nothing can be written"):
            fuzz(what="type", out=out)
    assert fuzz(what="type", cases=1, out=tmp_path / "a" / "b").tried == {"type": 5}
    assert not list((tmp_path / "a" / "b").iterdir())


def test_what_is_not_installed_is_said(monkeypatch, capsys):
    there = fuzz_files._there
    monkeypatch.setattr(fuzz_files, "_there", lambda r: r.name != "onnx" and there(r))
    monkeypatch.setattr("nxjax.testing.fuzzing.has_jax", lambda: False)
    monkeypatch.setattr("nxjax.testing.fuzzing.executors", lambda: ("reference", "cpu"))
    fuzz_files.readers.cache_clear()
    try:
        assert fuzz_files.missing() == ["onnx"] and "onnx" not in fuzz_files.readers()
        assert _without("all") == ["xla", "jax", "onnx"] and _without("type") == []
        assert "left out: xla, jax" in str(Fuzzed({"programs": 1}, without=["xla", "jax"]))
        missing = FileReader("onnx", _no_package, lambda: [b""], 1)
        monkeypatch.setattr(fuzz_files, "_all", lambda: (missing,))
        fuzz_files.readers.cache_clear()
        with pytest.raises(MissingExtraError, match="not installed"):
            fuzz(what="onnx")
        assert main(["fuzz", "--what", "onnx"]) == 2 and "not installed" in capsys.readouterr().err
    finally:
        fuzz_files.readers.cache_clear()


def _no_package(data: bytes) -> None:
    raise MissingExtraError("onnx is not installed")


def test_ctrl_c_ends_a_run_with_what_was_found(monkeypatch):
    def interrupted(seed, begun):
        if seed == 2:
            raise KeyboardInterrupt
        return ProgramOutcome()

    monkeypatch.setattr("nxjax.testing.fuzzing.targets", lambda what: {"programs": (10, interrupted)})
    assert fuzz(600, cases=1).tried == {"programs": 2}


def test_the_command(capsys):
    assert main(["fuzz", "--seconds", "0.05", "--what", "type", "--seed", "3", "--jobs", "0"]) == 0
    assert "seed 3" in (told := capsys.readouterr().out) and "no failure" in told
    with pytest.raises(ParameterError, match="'exported function, hash renewed'"):
        fuzz(1, what="nothing")
    assert main(["fuzz", "--what", "nothing"]) == 2
    told = capsys.readouterr()
    assert "fuzz: what is to be tried" in told.err and not told.out
    assert str(Fuzzed({"type": 1}, ["x"], failed=1)).splitlines()[1] == "1 failure, in 1 case"
    assert str(Fuzzed()) == "nothing was tried" and "no failure" in str(Fuzzed({"type": 1}))
