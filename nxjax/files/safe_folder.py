"""Folders of users, written whole or not at all. Apart from `safe_io`, which a first call of a function needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

from nxjax.errors import ParameterError


@contextlib.contextmanager
def replacing_folder(
    path: str | os.PathLike[str], where: str, own: Callable[[Path], bool], expected: str
) -> Generator[Path, None, None]:
    """A new folder to write files to, which is at ``path`` afterwards; a failure leaves what was there before.

    Args:
        where: what writes, for errors.
        own: whether a folder that is at ``path`` may be replaced.
        expected: which ones may, for errors.

    Raises:
        ParameterError: something else is at ``path``.

    >>> import tempfile
    >>> place = os.path.join(tempfile.mkdtemp(), "model")
    >>> with replacing_folder(place, "example", lambda folder: False, "nothing") as folder:
    ...     size = (folder / "numbers.bin").write_bytes(b"one")
    >>> os.listdir(place)
    ['numbers.bin']
    """
    target = Path(path)
    if target.exists() and not (target.is_dir() and own(target)):
        raise ParameterError(f"{where}: something else is at this path", got=target.name, expected=expected)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        made.chmod(0o755)
        yield made
        old = None
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)) / "old"
            os.replace(target, old)
        os.replace(made, target)
        if old is not None:
            shutil.rmtree(old.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
