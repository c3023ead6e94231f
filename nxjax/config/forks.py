"""What a fork waits for, so that a child finds nothing half made, and no lock of a thread that it does not have.

Must not know what the locks are for. The lock of one object needs none of this unless children use that object.
"""

from __future__ import annotations

import _frozen_importlib
import _imp
import _thread
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

_T = TypeVar("_T")

# A child would wait for ever for a module that another thread was importing. Imports of these end soon; one of the
# user's may be the whole program.
_ROOTS: Final = {"nxjax", "numpy", "ml_dtypes", "optree", "opt_einsum", "llvmlite", *sys.stdlib_module_names}
# Seconds that a fork waits for them at most, as one may wait for the thread that forks; and between two looks.
_MOST, _TURN = 5.0, 0.001

_locks: Final[list[Any]] = []


class _Here(threading.local):
    """What a thread that forks has taken, or is about to take: what a signal's handler raises must not lose it."""

    locks: Sequence[Any] = ()
    imports = False
    interrupted = 0  # by Ctrl-C: the process


_here: Final = _Here()


def fork_lock() -> Any:
    """A new reentrant lock that only the thread that forks holds while it forks: parent and child find it free."""
    _locks.append(threading.RLock())
    return _locks[-1]


def _take() -> None:
    """Take all locks. It holds no other while it waits for one: so other threads may take them in any order."""
    left, refused, wanted = _MOST, None, []
    while not _has_all():
        _give_back()
        _release(wanted)
        while left > 0 and _is_importing():
            begun = time.monotonic()
            time.sleep(_TURN)
            left -= time.monotonic() - begun
        _here.locks = wanted = [lock for lock in _locks if not lock._is_owned()]
        if refused is not None:
            refused.acquire()
        refused = next((x for x in wanted if not x._is_owned() and not x.acquire(blocking=False)), None)
        if refused is None and _here.locks is wanted:  # a handler that has forked meanwhile has given all back
            _hold_imports(left <= 0)


def _has_all() -> bool:
    return _here.imports and all(lock._is_owned() for lock in _locks)


def _hold_imports(anyway: bool) -> None:
    """Let no import begin, if none is under way or ``anyway``."""
    _here.imports = True
    _imp.acquire_lock()
    if not _here.imports or (_is_importing() and not anyway):
        _release_imports()


def _release_imports() -> None:
    with suppress(RuntimeError):  # it was not taken yet
        _imp.release_lock()
    _here.imports = False


def _release(locks: Iterable[Any]) -> None:
    for lock in locks:
        if lock._is_owned():
            lock.release()


def _give_back() -> None:
    """Give back what this thread has taken; once more does no harm."""
    if _here.imports:
        _release_imports()
    _release(_here.locks)
    _here.locks = ()


def _is_importing() -> bool:
    """Whether another thread imports one of those modules."""
    here, locks = threading.get_ident(), getattr(_frozen_importlib, "_module_locks", {})
    found = [(lock(), name.partition(".")[0]) for name, lock in tuple(locks.items())]
    return any(lock is not None and lock.owner != here and root in _ROOTS for lock, root in found)


def _to_its_end(work: Callable[[], None]) -> None:
    """Do ``work()``, which may be done again: Ctrl-C waits for its end. What a hook of a fork raises is lost."""
    while True:
        try:
            return work()
        except KeyboardInterrupt:
            _here.interrupted = os.getpid()


def _interrupt_again() -> None:
    if _here.interrupted == os.getpid():
        _here.interrupted = 0
        # Another thread does it some time after this: in a hook, it would be lost. A signal also ends what waits.
        import signal

        _thread.start_new_thread(signal.pthread_kill, (threading.get_ident(), signal.SIGINT))


if hasattr(os, "register_at_fork"):
    _back = functools.partial(_to_its_end, _give_back)
    # Twice: what a handler raises at the very beginning of a hook ends it.
    for _ in range(2):
        os.register_at_fork(before=functools.partial(_to_its_end, _take), after_in_parent=_back, after_in_child=_back)
    os.register_at_fork(after_in_parent=_interrupt_again)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property[_T]):
        """As of Python 3.12: without a lock that all objects of a class share."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))
