"""The lock under which programs are compiled, code is loaded and what a process has once is made.

One for all of that, so that no two can wait for each other, and a fork waits for it: a child finds nothing half made,
and no lock that a thread holds which is not there any more. What runs programs takes no lock of Python's.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from nxjax.kernels.cpu.llvm_thread import after_fork, before_fork

COMPILING: Final = threading.RLock()


def _before() -> None:
    COMPILING.acquire()
    before_fork()  # second: who compiles may wait for the helper


def _after(*, child: bool) -> None:
    after_fork(child=child)
    COMPILING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(child=False),
        after_in_child=lambda: _after(child=True),
    )
