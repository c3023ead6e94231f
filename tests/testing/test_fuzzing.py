"""The fuzzer finds nothing in a short run, and finds what is put there for it."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.__main__ import main
from nxjax.errors import ParameterError
from nxjax.testing import fuzz, fuzz_files, fuzz_programs
from nxjax.testing.fuzz_files import Reader


def test_a_short_run_finds_nothing():
    found = fuzz(600, seed=1, what="programs", cases=1)
    assert not found.failures, found
    assert found.tried == {"programs": 10, "quantized networks": 1}


@pytest.mark.parametrize("name", sorted({r.name for r in fuzz_files.readers().values()} - {"stablehlo"}))
def test_readers_take_or_refuse(name):
    found = fuzz(600, seed=2, what=name, cases=3)
    assert not found.failures, found


def test_a_wrong_transform_is_found_and_made_small(monkeypatch):
    """A vmap that gives sin the wrong sign: the report is a short program that does it again."""

    def wrong(f, *xs):
        return nx.vmap(f)(*(x[None] for x in xs))[0] * (1 - 2 * ("sin" in str(nx.make_jaxpr(f)(*xs))))

    monkeypatch.setitem(fuzz_programs.WAYS, "vmap", wrong)
    text = next(filter(None, map(fuzz_programs.one, range(100))))
    assert "fuzz_programs import compare" in text and text.count(" = ") <= 8 and "'vmap'" in text, text
    with pytest.raises(AssertionError):
        exec(text, {})


def test_a_reader_that_leaks_an_error_is_found():
    reader = Reader("wrong", lambda data: data[100], lambda: [bytes(range(50))])
    assert "IndexError" in fuzz_files.one(reader, 0)
    assert any(fuzz_files.mutated(b"abc" * 9, np.random.default_rng(s)) != b"abc" * 9 for s in range(3))


def test_the_command(capsys):
    assert main(["fuzz", "--seconds", "0.05", "--what", "type", "--seed", "3"]) == 0
    assert "no failure" in capsys.readouterr().out
    with pytest.raises(ParameterError, match="program text"):
        fuzz(1, what="nothing")
