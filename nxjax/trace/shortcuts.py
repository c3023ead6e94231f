"""The shortcuts of calls. Each gives the same bits as the general way, faster. ``nx.config.fast_calls`` removes them.

The general way of a jitted call: read the settings, flatten the arguments, find the program for their types, run the
executable that the backend compiled. A shortcut skips some of these. This file contains no shortcut: code that has one
calls `is_allowed` before it makes or takes it.
"""

from __future__ import annotations

from typing import Final

from nxjax.config import current_settings

# By name: where it is, and what it leaves out.
SHORTCUTS: Final = {
    "eager ufunc": "numpy/eager.py: an op on concrete arrays of one dtype is NumPy's function, without a trace",
    "eager kernel": "backends/eager_kernels.py: an op on large arrays is a kernel where that gives NumPy's bits",
    "recent entry": "transforms/jit.py: a call of arrays by position of the types of the last one looks nothing up",
    "held arguments": "transforms/jit_entry.py: what depends on closed-over arrays alone is computed once",
    "plan": "backends/cpu/call.py: machine code recognizes the arguments of a repeated call and runs it without Python",
    "first run": "backends/cpu/first_run.py: a small program's first run is NumPy's, op by op, before it is compiled",
    "stored program": "backends/cpu/stored.py: a program that an earlier process compiled runs without the compiler",
    "hurried code": "backends/cpu/executable.py: the first code of a short program is made quickly, and replaced later",
}


def is_allowed(name: str) -> bool:
    """Whether the settings of this thread allow the shortcut ``name``."""
    assert name in SHORTCUTS
    return current_settings().fast_calls
