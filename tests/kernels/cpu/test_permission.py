"""Whether the system gives tile registers: asked once, and a refusal is no error."""

import ctypes

import pytest

from nxjax.backends.cpu import earlier
from nxjax.config import config
from nxjax.kernels.cpu import isa, permission


@pytest.fixture
def system(monkeypatch):
    """Pretends a system that answers a request, and then a question, so."""
    asked = []

    def pretend(request, question, word):
        def call(number, what, place):
            assert number.value == permission._ARCH_PRCTL
            asked.append(what.value)
            if what.value == permission._ASK_PERMISSION:
                assert place.value == permission._TILES
                return request
            ctypes.cast(place, ctypes.POINTER(ctypes.c_uint64))[0] = word
            return question

        monkeypatch.setattr(permission, "_asks", lambda: call)
        permission.has_tiles.cache_clear()
        return asked

    yield pretend
    permission.has_tiles.cache_clear()


@pytest.mark.parametrize(
    ("request_", "question", "word", "expected"),
    [(0, 0, 1 << 18 | 7, True), (-1, 0, 1 << 18, False), (0, -1, 1 << 18, False), (0, 0, 1 << 17, False)],
)
def test_answers(system, request_, question, word, expected):
    asked = system(request_, question, word)
    assert permission.has_tiles() is permission.has_tiles() is expected
    assert asked in ([0x1023, 0x1022], [0x1023])


def test_other_systems_are_not_asked(monkeypatch):
    monkeypatch.setattr(permission.sys, "platform", "darwin")
    assert permission._asks() is None


HAS = ("avx2", "fma", "f16c", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
AMX = ("amx-tile", "amx-int8", "amx-bf16")


@pytest.fixture
def processor(monkeypatch):
    def pretend(*features):
        given = "some", dict.fromkeys(features, True), "x86_64-unknown-linux-gnu"
        monkeypatch.setattr(isa, "host", lambda: given)
        isa.named.cache_clear()

    yield pretend
    isa.named.cache_clear()


def test_only_a_processor_with_all_of_it_is_asked_for(system, processor):
    for features in ((), HAS, (*HAS, *AMX[:2]), (*HAS[:4], *AMX)):
        asked = system(0, 0, 1 << 18)
        processor(*features)
        assert "avx512-amx" not in isa.possible()
        assert not asked


def test_only_one_instruction_set_has_it_and_settings_choose_another(system, processor):
    processor(*HAS, *AMX)
    asked = system(0, 0, 1 << 18)
    for name in ("avx512", "avx512-base", "avx2", "portable"):
        with config.using(cpu_isa=name):
            found = isa.current()
        assert not found.tiles
        assert not any(found.has(n) for n in AMX)
    assert not asked
    assert isa.possible()[0] == "avx512-amx"
    found = isa.named("avx512-amx")
    assert found.tiles
    assert all(found.has(n) for n in AMX)
    assert not isa.shared("avx512-amx").tiles
    system(-1, 0, 0)
    assert isa.possible()[0] == "avx512"


def test_records_of_programs_are_for_processes_that_have_it(system, monkeypatch, tmp_path):
    """Code that an earlier process made runs without the compiler: the system is asked before."""
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(earlier, "_CPUINFO", str(info))
    keys = set()
    for flags, word in (("avx2", 0), ("avx2 amx_tile", 0), ("avx2 amx_tile", 1 << 18)):
        info.write_text(f"flags\t\t: {flags}\n")
        asked = system(0, 0, word)
        earlier._good_for.cache_clear()
        keys.add(earlier._key(["a program"]))
        assert bool(asked) == ("amx_tile" in flags)
    earlier._good_for.cache_clear()
    assert len(keys) == 3
