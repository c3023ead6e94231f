"""OpenVINO's Python package, imported without the message that it would send home."""

from __future__ import annotations

import sys
from typing import Any, Final

# Importing OpenVINO starts a process that reports the import over the network, unless this package is missing.
_REPORTER: Final = "openvino_telemetry"


def package() -> Any:
    """The module ``openvino``.

    Raises:
        ImportError: it is not installed.
    """
    quiet: dict[str, Any] = sys.modules  # None for a module means: not to be found
    silenced = "openvino" not in quiet and _REPORTER not in quiet
    if silenced:
        quiet[_REPORTER] = None
    try:
        import openvino
    finally:
        if silenced:
            quiet.pop(_REPORTER, None)
    return openvino
