"""The table of bits that every machine has to give: `tools/bits.py check` has more programs and threads."""

import json
import random

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.cpu import isa
from tools import bits

PROGRAMS = 20  # of the table's


@pytest.fixture(autouse=True)
def reproducible():
    with nx.config.using(reproducible=True, enable_x64=True):
        yield


@pytest.mark.parametrize("which", isa.possible())
def test_this_machine_gives_the_bits_of_the_table(which):
    table = json.loads(bits.TABLE.read_text())
    begins = range(0, bits.EACH * len(table["programs"]), bits.EACH)
    first = random.SystemRandom().choice(begins)  # others each time: all of them are promised, and the message names it
    with nx.config.using(cpu_isa=which, num_threads=2):
        wrong = bits.compare(table, PROGRAMS, first, show=False)
    assert not wrong, "\n".join((*wrong, "where this is meant: python tools/bits.py write --programs ..."))


def test_another_bit_is_seen():
    table = json.loads(bits.TABLE.read_text())
    with nx.config.using(reproducible=False):
        assert bits.network() != table["network"]
    x = np.ones(3, np.float32)
    assert bits.hashed(x) != bits.hashed(np.nextafter(x, np.float32(2)))
    assert bits.hashed(np.float32("nan")) == bits.hashed(-np.float32("nan")) != bits.hashed(np.float32(0))


def test_an_element_of_a_batch_is_what_it_is_alone(monkeypatch):
    total = nx.custom_batching.custom_vmap(lambda x: x.sum())
    wrong = total.def_vmap(lambda size, batched, x: (x.sum(1) + 1, True))
    assert wrong is not None
    numbers = bits.numbers(random.Random(0), (8, 99))
    monkeypatch.setattr(bits, "program", lambda seed: (lambda x: x.sum(), numbers))
    assert bits.one(2)
    monkeypatch.setattr(bits, "program", lambda seed: (total, numbers))
    with pytest.raises(AssertionError, match=r"element [07] of a batch of 8"):
        bits.one(2)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--programs", "0"],
        ["--programs", "-1"],
        ["--programs", "61"],
        ["--isa"],
        ["--isa", "nonsense"],
        ["--threads", "0"],
        ["--first", "10"],
        ["--first", "40", "--programs", "21"],
    ],
    ids=" ".join,
)
def test_what_would_check_less_than_it_says_is_refused(wrong, capsys, tmp_path):
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"each": bits.EACH, "programs": 3 * ["0"], "network": []}))
    with pytest.raises(SystemExit):
        bits.main(["check", "--table", str(table), *wrong])
    assert "error" in capsys.readouterr().err


def test_as_many_programs_are_told_as_ran(monkeypatch, capsys, tmp_path):
    """Whole lines of them, also where fewer were asked for; all of the table where nothing was."""
    ran = []
    monkeypatch.setattr(bits, "one", lambda seed, alone: ran.append(seed) or "")
    monkeypatch.setattr(bits, "network", list)
    table, which = str(tmp_path / "table.json"), ["--isa", isa.possible()[0], "--threads", "1"]
    for asked, wanted in ((["--programs", "50"], 60), ([], 200)):
        ran.clear()
        assert bits.main(["write", "--table", table, *asked]) == 0
        assert f"{wanted} programs written" in capsys.readouterr().out and len(ran) == wanted
    for asked, wanted in (([], 200), (["--programs", "2"], 20), (["--programs", "200"], 200)):
        ran.clear()
        assert bits.main(["check", "--table", table, *which, *asked]) == 0
        assert f"1 threads: {wanted} programs" in capsys.readouterr().out and len(ran) == wanted
    ran.clear()
    assert bits.main(["check", "--table", table, *which, "--first", "160", "--programs", "20"]) == 0
    assert ran == list(range(160, 180)) and "20 programs from 160 on" in capsys.readouterr().out


def test_without_batches_the_hashes_are_the_same():
    assert [bits.one(seed, only_alone=True) for seed in range(4)] == [bits.one(seed) for seed in range(4)]
