"""The lock under which programs are compiled, code is loaded and what a process has once is made.

One for all of that, so that no two can wait for each other. What runs programs takes no lock of Python's.
"""

from __future__ import annotations

from typing import Any, Final

from nxjax.config.forks import fork_lock

COMPILING: Final[Any] = fork_lock()
