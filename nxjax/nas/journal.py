"""The journal of a search: one line of JSON for each architecture, so that a search that was cut off goes on.

Knows no space and no strategy; a search replays itself and finds here what it has already paid for.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, final

from nxjax.errors import ParameterError
from nxjax.files.safe_io import TEXT, parsed, read, write

FORMAT: Final = "nxjax search 1"


@final
class Journal:
    """What is known of each architecture, in a file if there is a path.

    Args:
        path: of the file; made if it is not there, read and gone on with if it is.
        about: what has to be the same for its numbers to hold: the space, the seed, the caller's own words.

    Raises:
        ParameterError: the file is of another search, or no journal.
    """

    def __init__(self, path: str | os.PathLike[str] | None, about: dict[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.known: dict[str, dict[str, Any]] = {}
        self._about = {"format": FORMAT, **about}
        if self.path is None:
            return
        if self.path.exists():
            self._read(self.path)
        else:
            self._write_whole()

    def _read(self, path: Path) -> None:
        lines = read(path, TEXT).split(b"\n")
        # A line that was being written when the machine went down has no end.
        whole, rest = lines[:-1], lines[-1]
        try:
            header: Any = parsed(whole[0]) if whole else None
            rows: list[Any] = [parsed(line) for line in whole[1:]]
            keys = [str(row["key"]) for row in rows]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ParameterError(
                "nas: this file is not a journal of a search", got=path, fix="give another path, or remove the file"
            ) from error
        if header != self._about:
            found = header if isinstance(header, dict) else {}
            other = [k for k in self._about if found.get(k) != self._about[k]]
            raise ParameterError(
                f"nas: the journal {path.name} is of another search",
                got=", ".join(f"{k}={found.get(k)!r}" for k in other) or "other entries",
                expected=", ".join(f"{k}={self._about[k]!r}" for k in other) or "none",
                fix="give another path, or remove the file",
            )
        self.known.update(zip(keys, rows, strict=True))
        if rest:
            self._write_whole()

    def _write_whole(self) -> None:
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = (self._about, *self.known.values())
        write(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def add(self, row: dict[str, Any]) -> None:
        """Know one architecture, and have it on disk when this returns."""
        self.known[str(row["key"])] = row
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
