"""Files are whole or not there, whatever goes wrong."""

import os

import pytest

from nxjax import whole


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    place = tmp_path / "file.bin"
    whole.write(place, b"old")
    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:

            def full(*args, **kwargs):
                raise OSError("no space left")

            patched.setattr(os, name, full)
            with pytest.raises(OSError, match="no space"):
                whole.write(place, b"new and longer")
        assert place.read_bytes() == b"old" and os.listdir(tmp_path) == ["file.bin"]
    whole.write(place, b"new")
    assert place.read_bytes() == b"new"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        whole.write(tmp_path / "none" / "file", b"")
