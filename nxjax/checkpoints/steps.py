"""Folders of steps: their names, which are complete, what is left over, and removing them.

A step is the folder ``<directory>/<step>`` with an ``index.json``, which is there from the first moment that the folder
has this name. Everything else has another name: while it is written, while it is replaced, while it is removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import time
from pathlib import Path
from typing import Final

from nxjax.checkpoints import processes
from nxjax.checkpoints.disk import disk
from nxjax.errors import ParameterError
from nxjax.files import safe_io
from nxjax.trace.boundary import entry

INDEX: Final = "index.json"
_STEP: Final = re.compile(r"[0-9]{1,18}")
# <step>.nxjax-<what>-<host>-<process id>-<number>
_OTHER: Final = re.compile(r"([0-9]{1,18})\.nxjax-(tmp|old|gone)-(.*)-([0-9]+)-([0-9]+)")
# What a process that failed leaves for the others, beside the folder of the step.
_NOTE: Final = re.compile(r"[0-9]{1,18}\.nxjax-tmp-all-0-0-failed-.*")
_count = itertools.count().__next__
# A leftover of another machine, which cannot be asked whether its writer lives.
_OLD: Final = 24 * 3600.0
# How often a step is looked for while another process or thread writes.
_LOOKS: Final = 50


def checked_step(step: object, where: str) -> int:
    """A step's number, or an error."""
    number = int(step) if hasattr(step, "__index__") else -1  # type: ignore[call-overload]
    if isinstance(step, bool) or not 0 <= number < 10**18:
        raise ParameterError(f"{where}: a step is a whole number from 0", got=repr(step)[:60])
    return number


def other_name(step: int, what: str) -> str:
    """A name for a folder that is no step: one of this process, or one that all processes know."""
    if processes.count() > 1:
        return f"{step}.nxjax-{what}-all-0-0"
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    return f"{step}.nxjax-{what}-{host}-{os.getpid()}-{_count()}"


def note_name(folder: str, turn: str, process: int) -> str:
    """The file in which a process says that it has failed."""
    return f"{folder}-failed-{turn}-{process}"


@entry
def all_steps(directory: str | os.PathLike[str]) -> list[int]:
    """The steps that can be restored, in ascending order. A missing folder has none.

    >>> all_steps("/no/such/folder")
    []
    """
    return sorted(_found(Path(directory)))


@entry
def latest_step(directory: str | os.PathLike[str]) -> int | None:
    """The last step that can be restored, or None.

    >>> import nxjax as nx, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> latest_step(folder) is None
    True
    >>> _ = nx.checkpoints.save(folder, {"w": nx.ones(2)}, step=3)
    >>> latest_step(folder)
    3
    """
    return max(_found(Path(directory)), default=None)


def folder_of(directory: Path, step: int | None, where: str) -> tuple[int, Path]:
    """The folder of a step, of the last one by default.

    Raises:
        ParameterError: there is none.
    """
    found = _found(directory)
    for _ in range(_LOOKS):
        if (found if step is None else step in found) or not _is_written_to(directory):
            break
        # Between two names, one that is being replaced may be seen under neither.
        time.sleep(0.002)
        found = _found(directory)
    if step is None and found:
        step = max(found)
    if step is None or step not in found:
        raise ParameterError(
            f"{where}: no checkpoint" + ("" if step is None else f" of step {step}") + f" in {directory}",
            got=f"steps {sorted(found)[-10:]}" if found else "no complete step",
            fix="save one first, or name another directory or step",
        )
    return step, found[step]


def _is_written_to(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(map(_OTHER.fullmatch, os.listdir(directory)))
    return False


def is_step(place: Path) -> bool:
    """Whether a folder is a complete step."""
    return (place / INDEX).is_file()


def _found(directory: Path) -> dict[int, Path]:
    """Complete steps. One that was being replaced when its writer died is found where it was put aside."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[int, Path] = {}
    for name in names:
        aside = _OTHER.fullmatch(name)
        if aside and aside.group(2) == "old" and is_step(directory / name):
            found[int(aside.group(1))] = directory / name
    for name in names:
        if _STEP.fullmatch(name) and str(int(name)) == name and is_step(directory / name):
            found[int(name)] = directory / name
    return found


def remove(directory: Path, step: int) -> None:
    """Remove a step: first its name, so that no half of it is ever found."""
    aside = directory / other_name(step, "gone")
    disk().rename(directory / str(step), aside)
    disk().remove_folder(aside)


def clean(directory: Path) -> None:
    """Remove what writers that are no more have left behind. Failures to remove are no errors.

    What a process of this machine was writing is left over when that process is gone; what several wrote together, when
    several are here to write again; anything else when it is a day old.
    """
    writing = processes.count() > 1
    try:
        names = os.listdir(directory)
    except OSError:
        return
    complete = {int(n) for n in names if _STEP.fullmatch(n) and is_step(directory / n)}
    for name in names:
        if writing and _NOTE.fullmatch(name):
            with contextlib.suppress(OSError):
                (directory / name).unlink()
        match = _OTHER.fullmatch(name)
        if match is None:
            continue
        step, what, host, process = int(match.group(1)), match.group(2), match.group(3), int(match.group(4))
        if what == "old" and step not in complete:
            if _dead(directory / name, host, process):
                with contextlib.suppress(OSError):
                    disk().rename(directory / name, directory / str(step))
        elif (host == "all" and writing) or _dead(directory / name, host, process):
            with contextlib.suppress(OSError):
                disk().remove_folder(directory / name)


def _dead(path: Path, host: str, process: int) -> bool:
    if host == re.sub(r"[^\w.]", "_", socket.gethostname()):
        return process != os.getpid() and safe_io.is_dead(process)
    try:
        return time.time() - path.stat().st_mtime > _OLD
    except OSError:
        return False
