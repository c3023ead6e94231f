"""Vendors' tools as processes: started in a folder, ended when they take too long, and what came of it.

Nothing that a tool does is an error here: an answer says whether it could be started, how it ended and what it printed.
Knows no vendor.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Final, final

from nxjax.errors import ExecutionError

# Seconds; the largest networks take vendors' compilers minutes.
TIMEOUT: Final = 1800.0
# Bytes of each stream that are kept, and those after which a tool is ended.
_PRINTED: Final = 4 << 20
ENDLESS: Final = 1 << 30
# Bytes of a file that is read; what no compiled network has.
LARGEST: Final = 8 << 30
# Seconds between looks at how much was printed.
_LOOK: Final = 0.5
# Words about the machine that a tool runs on, which say nothing against a model.
_MACHINE: Final = re.compile(
    r"bad[_ ]alloc|allocate memory|out of memory|memoryerror|no space left|disk (is )?full|quota exceeded"
    r"|too many open files|permission denied",
    re.IGNORECASE,
)
# Bytes that are a file of no format.
NO_MODEL: Final = b"\xff" * 64


@final
@dataclass(frozen=True)
class ToolAnswer:
    """How a tool ended.

    Attributes:
        command: what was run, without the folder's own path.
        status: its exit status, negative for a signal; None if it could not be started or did not end in time.
        out: what it printed.
        err: what it printed on standard error.
        trouble: why it has no status, or which signal or status it ended with; empty if it ended well.
    """

    command: str
    status: int | None
    out: str
    err: str
    trouble: str

    @property
    def said(self) -> str:
        """All that it printed."""
        return self.out + self.err

    def error(self, what: str, got: object = None, *, refused: bool = False) -> ExecutionError:
        """An error about this call; ``got`` is by default how it ended and the end of what it printed.

        With ``refused`` it is the tool's refusal of a model, if its words are (`refuses`) and no signal ended it.
        """
        said = (
            "".join(c if c.isprintable() or c == "\n" else " " for c in self.said.strip()[-2000:]) or "without a word"
        )
        made = ExecutionError(what, got=f"{self.trouble}: {said}" if got is None else got)
        made.refused = refused and self.status is not None and self.status >= 0 and refuses(str(made.got))
        made.command, made.status = self.command, self.status
        return made


def refuses(words: str) -> bool:
    """Whether a tool's words can be said against a model, and not of the machine that it runs on.

    >>> refuses("no kernel for Softmax"), refuses("std::bad_alloc"), refuses("")
    (True, False, False)
    """
    return bool(words.strip()) and not _MACHINE.search(words)


def ask(
    command: Sequence[str],
    folder: str | os.PathLike[str],
    seconds: float | None = None,
    env: Mapping[str, str] | None = None,
) -> ToolAnswer:
    """Run a tool in ``folder``; it and all that it started end after ``seconds``, by default `TIMEOUT`, and where it
    prints more than `ENDLESS`.

    >>> import sys, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     answer = ask([sys.executable, "-c", "raise SystemExit(3)"], folder)
    >>> answer.status, answer.trouble
    (3, 'it ended with status 3')
    """
    shown = shlex.join(Path(command[0]).name if i == 0 else word for i, word in enumerate(command))
    shown = shown.replace(f"{os.fspath(folder)}/", "").replace(os.fspath(folder), ".")
    seconds = TIMEOUT if seconds is None else seconds
    # Files instead of pipes: what a tool leaves running in the background may keep a pipe open for ever.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except (OSError, ValueError) as error:
            return ToolAnswer(shown, None, "", "", f"it cannot be started: {error}")
        try:
            code, trouble = _ended(process, seconds, (out, err))
        finally:
            _end(process)
        said = _tail(out), _tail(err)
    if code is None:
        return ToolAnswer(shown, None, *said, trouble)
    if not code:
        return ToolAnswer(shown, code, *said, "")
    return ToolAnswer(shown, code, *said, f"it ended with {_how(code)}")


def _ended(process: subprocess.Popen[bytes], seconds: float, printed: Sequence[IO[bytes]]) -> tuple[int | None, str]:
    """The status that a process ends with; None where it goes on for too long or prints too much, and which."""
    stop = time.monotonic() + seconds
    while (left := stop - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, _LOOK)), ""
        if any(os.fstat(file.fileno()).st_size > ENDLESS for file in printed):
            return None, f"it printed more than {ENDLESS >> 20:,} MiB"
    return None, f"it took longer than {seconds:g} s"


def _how(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"status {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _tail(file: IO[bytes]) -> str:
    """The end of what was printed: a tool may print without end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _PRINTED))
    return file.read().decode(errors="replace")


def read(path: str | os.PathLike[str]) -> bytes:
    """A file that a tool was asked to leave.

    Raises:
        OSError: there is none, it is not a regular file (a link, a pipe or a device), or it is
            larger than `LARGEST`.
    """
    name = Path(path).name
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(f"{name} is not a regular file")
    # What is another kind by now is not waited for.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{name} is not a regular file")
        if found.st_size > LARGEST:
            raise OSError(f"{name} has {found.st_size:,} bytes, more than {LARGEST:,}")
        return file.read(LARGEST)


# What `doubt` checks, for the record of a compilation.
CHECKED: Final = "no file of no model, another of another model"


@final
@dataclass(frozen=True)
class _Question:
    """What asks a tool for a file besides; questions about the same files of a tool are the same."""

    key: tuple[object, ...]
    ask: Callable[[], bytes] = field(compare=False)


@lru_cache(8)
def _answer(question: _Question) -> bytes:
    with contextlib.suppress(OSError, ExecutionError):
        return question.ask()
    return b""


def doubt(
    made: bytes,
    given: Iterable[bytes],
    of_no_model: Callable[[], bytes],
    *files: str,
    settings: str = "",
    of_another: Callable[[], bytes] = lambda: b"",
) -> str:
    """Why what a tool left is not its work on the files that it was given; empty where nothing speaks against it.

    What a compiled file holds is seldom published. That a tool reads what it is given shows in what it makes no file
    of, and in what it makes of another model.

    Args:
        made: what it left.
        given: the files that it was given.
        of_no_model: asks the tool for a file of `NO_MODEL` in the model's place; no bytes, or an error, where it makes
            none.
        of_another: asks it for a file of another model that is sound; as ``of_no_model``.
        files: the tool's own: it is asked once for these and for its settings, and again when one of them changes.

    >>> doubt(b"made", [b"model"], lambda: b""), doubt(b"model", [b"model"], lambda: b"")
    ('', 'it left a file that it was given')
    """
    if not made:
        return "it left an empty file"
    if made in given:
        return "it left a file that it was given"
    key = (settings, *((file, os.stat(file).st_mtime_ns) for file in files))
    answer = _answer if files else _answer.__wrapped__
    if answer(_Question(("none", *key), of_no_model)):
        return "it makes a file of one that is no model too"
    if answer(_Question(("another", *key), of_another)) == made:
        return "it makes the same file of another model"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started, where the system has groups of processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
