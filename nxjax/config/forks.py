"""What a fork waits for, so that a child finds nothing half made, and no lock of a thread that it does not have.

Must not know what the locks are for. The lock of one object needs none of this unless children use that object.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

_T = TypeVar("_T")

# A child would wait for ever for a module that another thread was importing. Imports of these end soon; one of the
# user's may be the whole program.
_ROOTS: Final = {"nxjax", "numpy", "ml_dtypes", "optree", "opt_einsum", "llvmlite", *sys.stdlib_module_names}
# Seconds that a fork waits for them at most, as one may wait for the thread that forks; and between two looks.
_MOST, _TURN = 5.0, 0.001

_locks: Final[list[Any]] = []
_releases: Final[list[Callable[[], None]]] = []  # of what the thread holds that forks


def fork_lock() -> Any:
    """A new reentrant lock that only the thread that forks holds while it forks: parent and child find it free."""
    _locks.append(threading.RLock())
    return _locks[-1]


def _before() -> None:
    """Take all locks. It holds no other while it waits for one: so other threads may take them in any order."""
    end = time.monotonic() + _MOST
    refused = threading.RLock()
    while True:
        refused.acquire()
        held = [refused.release]
        for lock in _locks:
            if not lock.acquire(blocking=False):
                refused = lock
                break
            held.append(lock.release)
        else:
            _imp.acquire_lock()  # no import begins
            held.append(_imp.release_lock)
            if not _is_importing() or time.monotonic() > end:
                _releases.extend(held)
                return
            refused = threading.RLock()
        for release in held:
            release()
        time.sleep(_TURN)


def _is_importing() -> bool:
    """Whether another thread imports one of those modules."""
    here, locks = threading.get_ident(), getattr(_frozen_importlib, "_module_locks", {})
    found = [(lock(), name.partition(".")[0]) for name, lock in tuple(locks.items())]
    return any(lock is not None and lock.owner != here and root in _ROOTS for lock, root in found)


def _after() -> None:
    held = [*_releases]
    _releases.clear()
    for release in held:
        release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property[_T]):
        """As of Python 3.12: without a lock that all objects of a class share."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))
