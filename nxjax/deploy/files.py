"""Artifacts on disk: the place of each file. All files are written or none.

Knows names and bytes, nothing of targets.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nxjax.errors import ParameterError

# What is to be at a path: a file's bytes, or the files of a folder that is replaced as a whole.
Content = bytes | dict[str, bytes]
# How often a package is put in its place while other processes do so too.
_TRIES: Final = 100
# The end of the name of a file that names the others.
_PLAN: Final = Path(".parts.json")


def save(files: Mapping[str, bytes], path: str | os.PathLike[str]) -> Path:
    """Write an artifact's files and return its path.

    Everything is first written next to its place and moved there at the end. A failure leaves existing files unchanged.

    Args:
        files: file name to bytes, the main one first. Names that share a folder (``m.mlpackage/...``) are a package.
        path: of the main file or package, if it has its extension; the other files then go next to it under its name.
            Otherwise of a folder for all files. A single file may have any name.

    Raises:
        ParameterError: a folder is in place of a file, or a file in place of a package; a name leads elsewhere.
        OSError: the disk is full, or a similar problem.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> save({"f.xml": b"<net/>", "f.bin": b"123"}, folder / "digits.xml").name
    'digits.xml'
    >>> sorted(p.name for p in folder.iterdir())
    ['digits.bin', 'digits.xml']
    """
    outside = [name for name in files if not inside(name)]
    if outside:
        raise ParameterError("save: a file's name leads outside its folder", got=", ".join(map(repr, outside)))
    goal, contents = _planned(files, Path(path))
    blocked = [str(p) for p, content in contents.items() if p.exists() and p.is_dir() != isinstance(content, dict)]
    if blocked:
        raise ParameterError(
            "save: a file and a folder have one name", got=", ".join(blocked), fix="remove it, or save elsewhere"
        )
    made = [folder for place in contents for folder in _folders(place.parent)]
    staged: list[tuple[Path, Path]] = []
    moved: list[Path] = []
    try:
        for place, content in contents.items():
            staged.append((place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}"), place))
            _write(staged[-1][0], content)
        for temporary, place in staged:
            # What fails at the last file has changed none but those before it.
            _move(temporary, place, keep=place.is_dir() or place != staged[-1][1])
            moved.append(place)
    except BaseException:
        for place in moved[: len(staged) - 1]:
            _remove(place)
        for temporary, place in staged:
            _remove(temporary)
            if (aside := _aside(temporary)).exists():
                # Where another process has put its own meanwhile, that stays.
                with contextlib.suppress(OSError):
                    aside.replace(place)
                _remove(aside)
        for folder in reversed(made):
            # One that something else has been put into stays.
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    for temporary, _ in staged:
        _remove(_aside(temporary))
    return goal


def inside(name: str) -> bool:
    """Whether a name stays in the folder that it is put in, on any system."""
    return not set("\\:\0") & set(name) and all(part not in ("", ".", "..") for part in name.split("/"))


def safe_name(text: str, otherwise: str) -> str:
    """A file's stem for a function's or a graph's name, which may be anything, or come from a file that is not trusted.

    >>> safe_name("../../etc/passwd", "model"), safe_name("<lambda>", "model"), safe_name("..", "model")
    ('etc_passwd', 'lambda', 'model')
    """
    return re.sub(r"[^\w.-]+", "_", text).strip("._-")[:100] or otherwise


def _planned(files: Mapping[str, bytes], path: Path) -> tuple[Path, dict[Path, Content]]:
    names = list(files)
    main = names[0]
    tops = {name.partition("/")[0] for name in names}
    if len(tops) == 1 and all("/" in name for name in names):
        top = tops.pop()
        goal = path if path.suffix and path.suffix == Path(top).suffix else path / top
        return goal, {goal: {name.removeprefix(f"{top}/"): data for name, data in files.items()}}
    if path.is_dir() or (len(names) > 1 and path.suffix != Path(main).suffix):
        goal = path if len(names) > 1 else path / main
        return goal, {path / name: data for name, data in files.items()}
    contents: dict[Path, Content] = {path: files[main]}
    stem, own = (p.stem.removesuffix(_PLAN.stem) for p in (Path(main), path))
    plan = files[main] if main.endswith(_PLAN.name) else b""
    for name in names[1:]:
        place = path.parent / (own + name.removeprefix(stem) if name.startswith(stem) else name)
        number = 1
        while place in contents:
            number += 1
            place = path.with_name(f"{Path(name).stem}_{number}{Path(name).suffix}")
        contents[place] = files[name]
        plan = plan.replace(json.dumps(name).encode(), json.dumps(place.relative_to(path.parent).as_posix()).encode())
    if plan:
        contents[path] = plan
    return path, contents


def _folders(folder: Path) -> list[Path]:
    """Make a folder with its parents; those that were not there."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
    return missing[::-1]


def _write(place: Path, content: Content) -> None:
    if isinstance(content, dict):
        place.mkdir()
        for name, data in content.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            _write(place / name, data)
        return
    with place.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _aside(temporary: Path) -> Path:
    """Where what was in a file's place lies until all are in theirs."""
    return temporary.with_name(f"{temporary.name}.old")


def _move(temporary: Path, place: Path, keep: bool) -> None:
    """Put what was written in its place; what was there goes aside if it is to be kept."""
    for tries in range(_TRIES):
        if keep:
            _remove(_aside(temporary))
            with contextlib.suppress(FileNotFoundError):
                place.replace(_aside(temporary))
        try:
            temporary.replace(place)
        except OSError as error:
            # Another process has put its own package there.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or tries == _TRIES - 1:
                raise
            keep = True
        else:
            return


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)
