"""The on-disk cache keeps bytes, shares them and survives damage."""

import os
from pathlib import Path

import pytest

from nxjax.backends import cache
from nxjax.config import config


@pytest.fixture
def folder(tmp_path: Path):
    with config.using(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def test_what_is_stored_is_loaded(folder: Path):
    assert cache.load("k") is None
    cache.store("k", b"payload")
    assert cache.load("k") == b"payload"
    assert cache.size() == (1, len(b"payload") + 32)


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"\0" + data[1:], lambda data: b""])
def test_a_damaged_file_is_dropped(folder: Path, damage):
    cache.store("k", b"payload")
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load("k") is None
    assert list(folder.iterdir()) == []


def test_keys_separate_their_parts():
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")
    assert cache.key_of("ab", b"c") == cache.key_of("ab", "c")


def test_an_unwritable_folder_is_no_error(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with config.using(cache_dir=str(blocked / "cache")):
        cache.store("k", b"payload")
        assert cache.load("k") is None


def test_no_folder_switches_it_off():
    with config.using(cache_dir=""):
        cache.store("k", b"payload")
        assert cache.load("k") is None
        assert cache.size() == (0, 0)


def test_the_least_recently_used_go_first(folder: Path):
    with config.using(cache_bytes=150):
        for i, key in enumerate("abc"):
            cache.store(key, bytes(18))
            os.utime(folder / f"{key}.nxc", (i, i))
        assert cache.load("a") == bytes(18)  # now used last
        cache.store("d", b"")
    assert cache.load("b") is None
    assert cache.load("a") == cache.load("c") == bytes(18)
    assert cache.clear() == 3
