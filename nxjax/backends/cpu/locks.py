"""The lock under which programs are compiled, code is loaded and what a process has once is made.

One for all of that, so that no two can wait for each other, and a fork waits for it: a child finds nothing half made,
and no lock that a thread holds which is not there any more. What runs programs takes no lock of Python's.
"""

from __future__ import annotations

import os
import threading
from typing import Final

COMPILING: Final = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=COMPILING.acquire, after_in_parent=COMPILING.release, after_in_child=COMPILING.release)
