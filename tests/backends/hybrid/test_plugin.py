"""A plug-in's process as a unit of `nx.Hybrid`: it computes, dies, lies and refuses, and the numbers are the same."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.hybrid.plugin import Plugin
from nxjax.errors import ParameterError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a system without memfd")

FOLDER = Path(__file__).parents[1] / "children"
VENDOR = str(FOLDER / "program_vendor.py")
W = np.arange(12, dtype=np.int32).reshape(4, 3)
X = np.arange(8, dtype=np.int32).reshape(2, 4)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def f(x: nx.Array) -> nx.Array:
    return nx.max(x @ W * 3 + 1, axis=1)


@pytest.mark.parametrize("fault", ["none", "dies", "lies"])
def test_the_numbers_are_those_of_the_host(fault: str, tmp_path: Path):
    options = {"flag": str(tmp_path / "flag"), **({} if fault == "none" else {fault: 3})}
    chip = Plugin(VENDOR, "chip", options=options)
    assert chip.label == "vendor-simulator" and chip.exact
    policy = nx.hybrid.FaultPolicy(verify=1.0 if fault == "lies" else 0.0, backoff=0.05)
    hybrid = nx.Hybrid(chip, "cpu", policy=policy, measure=False)

    @nx.jit(device=hybrid)
    def g(x: nx.Array) -> nx.Array:
        with nx.hybrid.device_scope("chip"):
            y = x @ W * 3 + 1
        return nx.max(y, axis=1)

    try:
        for n in range(6):
            y = g(X + n)
            assert y.dtype == np.int32 and y.tolist() == np.max((X + n) @ W * 3 + 1, axis=1).tolist()
        outs = [e for e in hybrid.events if e.kind == "out" and e.unit == "chip"]
        assert bool(outs) == (fault != "none"), hybrid.events
        if fault == "lies":  # probes know the answer
            until(lambda: any(e.text.startswith("stays out: gave a wrong answer") for e in hybrid.events))
            assert hybrid.health()["chip"].state in ("out", "probing")
        if fault == "none":
            assert hybrid.health()["chip"].answers == 6
    finally:
        hybrid.close()
        chip.close()


def test_what_a_plug_in_cannot_do_goes_to_the_host_and_what_it_cannot_be_is_said(tmp_path: Path):
    chip = Plugin(VENDOR, "chip", options={"flag": str(tmp_path / "flag"), "form": "stablehlo"})
    hybrid = nx.Hybrid(chip, "cpu", measure=False)
    try:
        assert nx.jit(f, device=hybrid)(X).tolist() == np.max(X @ W * 3 + 1, axis=1).tolist()
        assert "no compiler" in str(hybrid.plan(f)(X)) or hybrid.health()["cpu"].state == "ok"
    finally:
        hybrid.close()
        chip.close()
    liar = Plugin(VENDOR, "liar", options={"flag": str(tmp_path / "flag"), "lies": 0})
    hybrid = nx.Hybrid(liar, "cpu", measure=False)
    try:
        assert nx.jit(f, device=hybrid)(X).tolist() == np.max(X @ W * 3 + 1, axis=1).tolist()
        assert set(hybrid.plan(f)(X).assignment) == {"cpu"}
    finally:
        hybrid.close()
        liar.close()
    broken = Plugin(str(FOLDER / "fake_vendor.py"), "broken", options={"start": "exit"})
    assert not broken.available()[0] and "ended" in broken.available()[1]
    assert dict(nx.Hybrid(broken, "cpu").missing)["broken"]
    (tmp_path / "bad.py").write_text(BAD)
    with pytest.raises(ParameterError, match="platform"):
        Plugin(str(tmp_path / "bad.py"), "bad")


BAD = """
class Bad:
    def describe(self):
        return {"platform": "toaster"}

def connect(options):
    return Bad()
"""
