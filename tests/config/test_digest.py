"""The digest of files: of their paths below a folder, and of what is in them."""

from pathlib import Path

from nxjax.config.digest import digest_of_files


def _digest(folder: Path, files: dict[str, str]) -> bytes:
    paths = [folder / name for name in files]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path.relative_to(folder).as_posix()])
    return digest_of_files(map(str, paths), str(folder))


def test_what_differs_has_another_digest(tmp_path):
    trees = [
        {"a": "x", "b": "y"},
        {"b": "y", "a": "x"},
        {"a": "xb", "b": "y"},
        {"a": "x", "c": "y"},
        {"a": "x"},
        {"ax": "", "b": "y"},
        {"d/a": "x", "b": "y"},
        {},
    ]
    found = [_digest(tmp_path / str(i), tree) for i, tree in enumerate(trees)]
    assert len(set(found)) == len(trees)


def test_where_the_folder_is_makes_no_difference(tmp_path):
    tree = {"a": "x", "d/b": "y"}
    assert _digest(tmp_path / "here", tree) == _digest(tmp_path / "there" / "below", tree)
