"""Artifacts on disk: where the files of one go, and that a failure at any moment leaves what was there before."""

import os
import stat
from pathlib import Path

import pytest

from nxjax.deploy import files
from nxjax.deploy.files import save
from nxjax.errors import ParameterError

PACKAGE = {"f.mlpackage/Manifest.json": b"{}", "f.mlpackage/Data/model.mlmodel": b"model"}
MODEL = {"f_vela.tflite": b"compiled", "f.tflite": b"source", "f_vela_layers.csv": b"csv"}
PAIR = {"f.xml": b"<net/>", "f.bin": b"123"}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder; nothing temporary may be among them."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_single_file_has_the_name_it_is_given(tmp_path):
    assert save({"f.tflite": b"x"}, tmp_path / "a" / "b" / "net.bin") == tmp_path / "a" / "b" / "net.bin"
    assert save({"f.tflite": b"y"}, tmp_path / "a") == tmp_path / "a" / "f.tflite"
    assert tree(tmp_path) == {"a/b/net.bin": b"x", "a/f.tflite": b"y"}


def test_several_files_go_into_a_folder_or_beside_the_main_one(tmp_path):
    assert save(MODEL, tmp_path / "out") == tmp_path / "out"
    assert tree(tmp_path / "out") == MODEL
    assert save(PAIR, str(tmp_path / "net.xml")) == tmp_path / "net.xml"
    assert (tmp_path / "net.xml").read_bytes() == b"<net/>" and (tmp_path / "net.bin").read_bytes() == b"123"
    assert save(MODEL, tmp_path / "kws" / "kws.tflite") == tmp_path / "kws" / "kws.tflite"
    expected = {"kws.tflite": b"compiled", "f.tflite": b"source", "kws_layers.csv": b"csv"}
    assert tree(tmp_path / "kws") == expected


def test_files_of_one_name_do_not_overwrite_each_other(tmp_path):
    save(MODEL, tmp_path / "f.tflite")
    assert tree(tmp_path) == {"f.tflite": b"compiled", "f_2.tflite": b"source", "f_layers.csv": b"csv"}


def test_a_package_is_one_thing_and_is_replaced_as_one(tmp_path):
    goal = tmp_path / "net.mlpackage"
    assert save({**PACKAGE, "f.mlpackage/old": b"old"}, goal) == goal
    assert save(PACKAGE, goal) == goal
    assert tree(tmp_path) == {"net.mlpackage/Manifest.json": b"{}", "net.mlpackage/Data/model.mlmodel": b"model"}
    assert save(PACKAGE, tmp_path / "out") == tmp_path / "out" / "f.mlpackage"
    assert tree(tmp_path / "out") == PACKAGE


def test_modes_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    save(PAIR, tmp_path / "net.xml")
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize(
    "contents", [{"f.tflite": b"x"}, MODEL, PAIR, PACKAGE], ids=["one", "three", "pair", "package"]
)
@pytest.mark.parametrize("name", ["write", "move"])
@pytest.mark.parametrize("moment", [1, 2])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, contents, name, moment):
    """Each step fails in turn, while it writes and before it moves; also where nothing was."""
    main = next(iter(contents)).partition("/")[0]
    place = tmp_path / "there" / f"net{Path(main).suffix}"
    save(dict.fromkeys(contents, b"before"), place)
    before, steps, real = tree(tmp_path), [], os.fsync

    def failing(*args):
        steps.append(args)
        if len(steps) == moment:
            raise OSError(28, "No space left on device")
        return real(*args)

    if name == "write":
        monkeypatch.setattr(files.os, "fsync", failing)
        moment = min(moment, len(contents))
    else:
        # A package is moved as one.
        moment = min(moment, len({n.partition("/")[0] for n in contents}))
        move = files._move

        def failing(*args, **how):
            steps.append(args)
            if len(steps) == moment:
                raise OSError(28, "No space left on device")
            return move(*args, **how)

        monkeypatch.setattr(files, "_move", failing)
    for goal in (place, tmp_path / "new" / "deeper"):
        steps.clear()
        with pytest.raises(OSError, match="No space left"):
            save(contents, goal)
        assert tree(tmp_path) == before
    assert {p.name for p in tmp_path.iterdir()} == {"there"}


def test_a_package_that_cannot_be_moved_comes_back(tmp_path, monkeypatch):
    goal = tmp_path / "net.mlpackage"
    save({"f.mlpackage/a": b"before"}, goal)
    real = Path.replace

    def failing(self, target):
        if Path(target) == goal and not self.name.endswith(".old"):
            raise PermissionError("no")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(PermissionError):
        save(PACKAGE, goal)
    assert tree(tmp_path) == {"net.mlpackage/a": b"before"}


def test_files_that_cannot_all_be_moved_come_back(tmp_path, monkeypatch):
    """As where another program has one of them open."""
    goal = tmp_path / f"net{Path(next(iter(PAIR))).suffix}"
    save(dict.fromkeys(PAIR, b"before"), goal)
    before, real = tree(tmp_path), Path.replace
    for locked in list(before):

        def failing(self, target, locked=locked):
            if Path(target).name == locked and not self.name.endswith(".old"):
                raise PermissionError("in use")
            return real(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(PermissionError):
            save(PAIR, goal)
        assert tree(tmp_path) == before


def test_a_package_that_another_process_puts_there_meanwhile_is_replaced(tmp_path, monkeypatch):
    goal, real, came = tmp_path / "net.mlpackage", Path.replace, []
    save({"f.mlpackage/a": b"before"}, goal)

    def late(self, target):
        if Path(target) == goal and not came:
            came.append(self)
            goal.mkdir()
            (goal / "b").write_bytes(b"another's")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", late)
    save({"f.mlpackage/a": b"after"}, goal)
    assert came and tree(tmp_path) == {"net.mlpackage/a": b"after"}


def test_a_folder_in_the_way_of_a_file_is_an_error_that_changes_nothing(tmp_path):
    (tmp_path / "out" / "f.bin").mkdir(parents=True)
    with pytest.raises(ParameterError, match="a file and a folder"):
        save(PAIR, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["f.bin"]
    (tmp_path / "net.mlpackage").write_bytes(b"file")
    with pytest.raises(ParameterError, match=r"net\.mlpackage"):
        save(PACKAGE, tmp_path / "net.mlpackage")


@pytest.mark.parametrize("name", ["../f", "/f", "a/../../f", "..", "", "a//b", "C:f", "a\\b", "f\0"])
def test_names_stay_in_their_folder(tmp_path, name):
    with pytest.raises(ParameterError, match="leads outside its folder"):
        save({"main.bin": b"x", name: b"y"}, tmp_path / "out")
    assert tree(tmp_path) == {}
