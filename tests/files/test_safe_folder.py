"""A folder is there with all of its files, or what was there before is."""

from pathlib import Path

import pytest

from nxjax.errors import ParameterError
from nxjax.files.safe_folder import replacing_folder


def test_a_failure_leaves_what_was_there(tmp_path: Path):
    place = tmp_path / "model"
    for text in ("one", "two"):
        with replacing_folder(place, "save", lambda folder: (folder / "a").exists(), "its own") as made:
            (made / "a").write_text(text)

    def failing() -> None:
        with replacing_folder(place, "save", lambda folder: True, "its own") as made:
            (made / "a").write_text("three")
            raise OSError

    with pytest.raises(OSError):
        failing()
    assert (place / "a").read_text() == "two" and [p.name for p in tmp_path.iterdir()] == ["model"]
    with (
        pytest.raises(ParameterError, match="something else"),
        replacing_folder(place, "save", lambda _: False, "none"),
    ):
        pass
