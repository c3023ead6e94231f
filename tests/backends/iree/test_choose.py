"""The first target that computes what NumPy does is taken, remembered, and asked about dtypes one at a time."""

import numpy as np
import pytest

from nxjax.backends.iree import choose, selftest
from nxjax.backends.iree.facts import parse
from nxjax.config import config
from nxjax.errors import ExecutionError
from nxjax.trace import dtypes
from tests.backends.iree.devices import RADEON


class Chip:
    """A GPU that computes what a self-test asks, except for targets and functions that it gets wrong."""

    def __init__(self, wrong):
        self.wrong = wrong
        self.compiled, self.runs = [], 0

    def compile(self, text, flags):
        target = flags[-1].rpartition("=")[2] if flags else "alone" if "subgroup = none" in text else "described"
        self.compiled.append(target)
        return f"{target} {text.split()[1]}".encode()

    def run(self, driver, device, modules, calls):
        self.runs += 1
        answers = {t.name: t.expected for t in selftest.tests()}
        given = []
        for module, function, _, _ in calls:
            target = modules[module].decode().split()[0]
            y = answers[function].copy()
            if function in self.wrong.get(target, ()):
                y = np.logical_not(y) if y.dtype == bool else y + np.asarray(3, y.dtype)
            given.append(y)
        return given


@pytest.fixture
def machine(monkeypatch, tmp_path):
    def made(wrong):
        chip = Chip(wrong)
        monkeypatch.setattr(choose.compiler, "version", lambda: "test")
        monkeypatch.setattr(choose.compiler, "compile_text", chip.compile)
        monkeypatch.setattr(choose.child, "run", chip.run)
        for cached in (choose._choice, choose._refusal, choose._found):
            cached.cache_clear()
        return chip

    with config.using(cache_dir=str(tmp_path / "cache")):
        yield made
    for cached in (choose._choice, choose._refusal, choose._found):
        cached.cache_clear()


def test_a_target_that_gets_int8_products_wrong_is_passed_over(machine):
    chip = machine({"rdna3": ["int8_matmul", "sum"]})
    f = parse("", "p", RADEON)
    found = choose.choice(f)
    assert found.spec.name.startswith("described: subgroups of 64")
    assert found.tried == ("rdna3: int8_matmul: 6144 of 6144 elements are wrong; sum: off by 3",)
    assert chip.compiled == ["rdna3", "described"]
    choose._choice.cache_clear()  # as the next process finds it
    assert choose.choice(f) == found
    assert chip.runs == 2
    # Another driver is another device.
    choose.choice(parse("", "p", RADEON.replace("24.0.5", "24.1.0")))
    assert chip.runs == 4


def test_without_a_target_the_device_is_no_device(machine):
    machine({name: ["less"] for name in ("rdna3", "described", "alone")})
    with pytest.raises(ExecutionError) as caught:
        choose.choice(parse("", "p", RADEON))
    assert "rdna3: less: 185 of 185 elements are wrong; described: subgroups" in str(caught.value)
    assert "update the device's driver" in str(caught.value)


def test_dtypes_are_tested_when_they_are_asked_for(machine):
    chip = machine({"rdna3": ["bfloat16"]})
    found = choose.choice(parse("", "p", RADEON))
    assert chip.runs == 1
    assert found.refusal(dtypes.int8) == ""
    assert chip.runs == 1
    assert found.refusal(dtypes.float64) == ""
    assert found.refusal(dtypes.bfloat16).startswith("bfloat16: off by")
    assert found.refusal(dtypes.bfloat16).startswith("bfloat16: off by")
    assert chip.runs == 3
    assert found.refusal(dtypes.key) == ""  # 64-bit words
    assert found.refusal(dtypes.float8_e5m2) == "IREE has no code for it"


def test_the_self_test_is_the_meaning_of_its_programs():
    """NumPy's answers are XLA's of the same texts, and an error that a chip makes is seen."""
    from nxjax.backends.xla.executable import XlaExecutable, compile_text
    from nxjax.trace.array import wrap
    from nxjax.trace.types import ArrayType

    tests = selftest.tests()
    assert {t.module for t in tests} == {"base", *selftest.TRIED}
    for t in tests:
        (function,) = [f for f in selftest._TEXTS[t.module] if f"@{t.name}(" in f]
        text = f"module @m {{\n{function}}}\n".replace(f"@{t.name}(", "@main(")
        out = [ArrayType(t.expected.shape, t.expected.dtype)]
        (y,) = XlaExecutable(compile_text(text), text, out)([wrap(x) for x in t.inputs])
        assert t.judge(y.numpy()) == ""
        assert t.judge(np.zeros_like(t.expected)) != ""
        assert t.judge(None) == f"{t.name}: no answer"


def test_a_rasteriser_is_left_out_where_there_is_a_gpu(machine, monkeypatch):
    machine({})
    listed = [
        {"name": "llvmpipe", "path": "a", "facts": "name: llvmpipe\ntype: cpu"},
        {"name": "Radeon", "path": "b", "facts": RADEON},
    ]
    asked = []
    monkeypatch.setattr(choose.child, "devices", lambda driver: asked.append(driver) or listed)
    monkeypatch.setattr(choose.drivers, "fingerprint", lambda: "both")
    assert [f.path for f in choose.devices()[0]] == ["b"]
    choose._found.cache_clear()
    assert [f.path for f in choose.devices()[0]] == ["b"]
    assert asked == ["vulkan"]  # once: the answer is kept on disk
    monkeypatch.setattr(choose.drivers, "fingerprint", lambda: "one")
    del listed[1]
    assert [f.label for f in choose.devices()[0]] == ["host"]
