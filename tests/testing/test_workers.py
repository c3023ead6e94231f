"""Cases in processes of their own: answers come back, and so does the case that ended its process or never ended."""

import itertools

import pytest

from nxjax.testing import fuzz, workers
from nxjax.testing.workers import Workers

CHILD = """
import os, time
from nxjax.testing.fuzz_programs import ProgramOutcome
from nxjax.testing.workers import serve

def attempt(seed, begun):
    print("noise of a library")
    begun(None if seed == 7 else f"text of {seed}")
    if seed in (3, 6, 7):
        os.abort()
    if seed == 5:
        time.sleep(1000)
    return ProgramOutcome(f"wrong {seed}" if seed == 1 else "", frozenset({"odd"} if seed % 2 else ()))

serve({"number": attempt}, {"number": lambda seed: "less" if seed == 6 else ""})
"""


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(workers, "LIMIT", 4.0)


def test_crashes_and_hangs_are_failures_with_their_text(short):
    told = []
    cases = (("number", k) for k in range(8))
    Workers(CHILD, 1).run(cases, lambda name, found: told.append(found))
    assert len(told) == 8
    assert told[1].failure == "wrong 1" and told[1].features == {"odd"}
    assert told[3].failure.startswith("text of 3\n# the process ended with status -6: number, seed 3")
    assert "Fatal Python error: Aborted" in told[3].failure
    assert told[5].failure.startswith("text of 5\n# no end after 4 s: number, seed 5")
    assert told[6].failure.startswith("less\n# the process ended with status -6")
    assert not any(told[k].failure for k in (0, 2, 4, 7))


def test_ctrl_c_ends_the_processes():
    def stop(name, found):
        raise KeyboardInterrupt

    work = Workers(CHILD, 2)
    with pytest.raises(KeyboardInterrupt):
        work.run((("number", k) for k in itertools.count(8)), stop)
    assert not work._running


def test_a_process_that_cannot_be_made_is_an_error(monkeypatch):
    def none(*args, **options):
        raise OSError("no more processes")

    monkeypatch.setattr(workers.subprocess, "Popen", none)
    with pytest.raises(OSError, match="no more"):
        Workers(CHILD, 2).run((("number", k) for k in range(8)), lambda name, found: None)


def test_programs_in_a_process():
    found = fuzz(600, seed=11, what="programs", cases=1, jobs=1)
    assert found.tried == {"programs": 10, "quantized programs": 2} and not found.failures, found
