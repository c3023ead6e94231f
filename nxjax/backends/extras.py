"""Vendor packages, imported when a target needs them; a missing one is an error that names the extra to install."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from typing import Any

from nxjax.errors import MissingExtraError


def installed(module: str) -> bool:
    """Whether ``module`` could be imported; its parents are, it is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def version(distribution: str) -> str:
    """The installed version of a distribution, or an empty string; imports nothing of it."""
    # Imported here: it takes as long as the rest of a first `jit` that compiles.
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return ""


def need(module: str, extra: str, what: str) -> Any:
    """Import ``module``, or raise `MissingExtraError` that names the extra.

    >>> need("json", "litert", "the LiteRT runtime").__name__
    'json'
    """
    if not installed(module):
        raise MissingExtraError(
            f"{what} needs a package that is not installed",
            got=f"no module {module!r}",
            expected=f"the extra {extra!r}",
            fix=f"pip install 'nxjax[{extra}]'",
        )
    return importlib.import_module(module)
