"""Instruction sets: the best first, each with what it says it has; what does not run here is refused."""

import re
from pathlib import Path

import pytest

import nxjax as nx
from nxjax.config.table import ISAS
from nxjax.errors import ParameterError
from nxjax.kernels.cpu import isa


@pytest.fixture
def processor(monkeypatch):
    """Pretends another processor."""

    def pretend(triple, *features):
        monkeypatch.setattr(isa, "host", lambda: ("some", dict.fromkeys(features, True), triple))
        isa.named.cache_clear()

    yield pretend
    isa.named.cache_clear()


AVX2 = ("avx2", "fma", "f16c", "bmi2")
AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")


def test_the_portable_one_is_always_possible():
    assert isa.possible()[-1] == "portable"
    assert set(isa.possible()) <= set(ISAS)
    assert isa.named("portable").bits == 128


@pytest.mark.parametrize(
    ("triple", "features", "expected"),
    [
        ("x86_64-unknown-linux-gnu", (), ("portable",)),
        ("x86_64-unknown-linux-gnu", AVX2, ("avx2", "portable")),
        ("x86_64-unknown-linux-gnu", AVX2[:2], ("portable",)),
        ("x86_64-unknown-linux-gnu", (*AVX2, *AVX512), ("avx512", "avx2", "portable")),
        ("x86_64-unknown-linux-gnu", (*AVX2, *AVX512[:3]), ("avx2", "portable")),
        ("aarch64-unknown-linux-gnu", ("neon",), ("neon", "portable")),
        ("arm64-apple-darwin", ("neon",), ("neon", "portable")),
        ("riscv64-unknown-linux-gnu", (), ("portable",)),
    ],
)
def test_what_is_possible_follows_from_features(processor, triple, features, expected):
    processor(triple, *features)
    assert isa.possible() == expected
    assert isa.named("portable").x86 is triple.startswith("x86_64")


def test_byte_products_are_used_only_where_they_are(processor):
    processor("x86_64-unknown-linux-gnu", *AVX2, *AVX512)
    assert not isa.named("avx512").vnni
    processor("x86_64-unknown-linux-gnu", *AVX2, *AVX512, "avx512vnni", "avx512bf16")
    assert isa.named("avx512").vnni
    assert isa.named("avx512").bf16
    base = isa.named("avx512-base")
    # Where there is arithmetic of 16 bits, too, two multiply-adds take half as long.
    processor("x86_64-unknown-linux-gnu", *AVX2, *AVX512, "avx512vnni", "avx512bf16", "avx512fp16")
    assert isa.named("avx512").vnni
    assert not isa.named("avx512").bf16
    assert not base.vnni
    assert "-avx512vnni" in base.features
    assert "-avx512f" in isa.named("avx2").features
    for features in (("neon",), ("neon", "dotprod")):
        processor("aarch64-unknown-linux-gnu", *features)
        assert isa.named("neon").dots == ("dotprod" in features)
        assert not isa.named("neon").vnni
        assert not isa.named("portable").dots


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="no Linux")
def test_byte_products_are_those_that_linux_says():
    said = re.search(r"^Features\t*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    _, has, _ = isa.host()
    assert bool(has.get("dotprod")) == (said is not None and "asimddp" in said[1].split())


def test_what_is_said_last_of_a_feature_counts(processor):
    processor("x86_64-unknown-linux-gnu", *AVX2, *AVX512, "avx512vnni")
    assert not isa.named("portable").has("avx512vnni or avxvnni")
    assert isa.named("avx512").has("avx512vnni or avxvnni")
    assert not isa.named("avx512-base").has("avx512vnni")


def test_a_name_that_does_not_run_here_is_refused(processor):
    processor("x86_64-unknown-linux-gnu", *AVX2)
    for name in ("neon", "avx512", "avx512-base", "sse2"):
        with pytest.raises(ParameterError, match="avx2, portable"):
            isa.named(name)


def test_a_setting_chooses():
    with nx.config.using(cpu_isa="portable"):
        assert isa.current().name == "portable"
    with nx.config.using(cpu_isa=""):
        assert isa.current().name == isa.possible()[0]
    assert isa.named("portable").lanes(4) == 4
