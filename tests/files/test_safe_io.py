"""Files are whole or not there, whatever goes wrong."""

import json
import os
import subprocess
import sys

import pytest

import nxjax as nx
from nxjax.errors import InvalidFileError
from nxjax.files import safe_io


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    place = tmp_path / "file.bin"
    safe_io.write(place, b"old")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:

            def full(*args, **kwargs):
                raise OSError("no space left")

            patched.setattr(os, name, full)
            with pytest.raises(OSError, match="no space"):
                safe_io.write(place, b"new and longer")
        assert place.read_bytes() == b"old" and os.listdir(tmp_path) == ["file.bin"]
    safe_io.write(place, b"new")
    assert place.read_bytes() == b"new"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        safe_io.write(tmp_path / "none" / "file", b"")


def test_pipes_and_devices_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", os.devnull):
        with pytest.raises(InvalidFileError, match="not a file"):
            safe_io.opened(place)
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert safe_io.read(tmp_path / "link", 1) == b"1"
    with pytest.raises(IsADirectoryError):
        safe_io.read(tmp_path, 10)


def test_no_more_is_read_than_is_expected(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(InvalidFileError, match="5 bytes"):
        safe_io.read(tmp_path / "file", 4)
    os.truncate(tmp_path / "file", 2**42)
    for read in (safe_io.described, nx.export.load, nx.quant.load, nx.deploy.load, nx.predict.load):
        with pytest.raises(InvalidFileError, match="larger than a file of its kind"):
            read(tmp_path / "file")


@pytest.mark.parametrize("text", [b"{", b"[" * 200_000, b"\xff\xfe\x00", b"9" * 5000, b""])
def test_what_is_no_json(tmp_path, text):
    (tmp_path / "file").write_bytes(text)
    for read in (safe_io.described, nx.predict.load):
        with pytest.raises(InvalidFileError):
            read(tmp_path / "file")


def test_readers_of_files_do_not_wait_for_pipes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (nx.export.load, nx.quant.load, nx.load, nx.deploy.load, nx.predict.load, nx.generation.Tokenizer.load):
        with pytest.raises(InvalidFileError):
            read(tmp_path / "pipe")


@pytest.mark.parametrize("text", ["[" * 901 + "]" * 901, '{"a":' * 901 + "1" + "}" * 901])
def test_json_is_nested_only_so_deep(monkeypatch, text):
    """Wherever the recursion limit is: programs that are nested deep raise it."""
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(ValueError, match="nested more than 900"):
        safe_io.parsed(text)


def test_brackets_in_texts_are_no_nesting():
    value = ["[" * 2000, '\\"[{' * 500, {"]": "{" * 2000}]
    assert safe_io.parsed(json.dumps(value)) == value


def test_processes_that_are_dead_and_whose_death_cannot_be_told(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", ""])
    assert not safe_io.is_dead(os.getpid()) and not safe_io.is_dead(child.pid)
    child.wait()
    assert safe_io.is_dead(child.pid) and safe_io.is_dead(2**70)
    monkeypatch.setattr(os, "name", "nt")
    assert not safe_io.is_dead(child.pid)
