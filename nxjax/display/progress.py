"""Bars for what takes long on the host: who is watching, tqdm if it is here, the phases of one long call.

Knows nothing of what is done. Bars of loops on a device are `nxjax.debug.progress_bar`.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, final

from nxjax.config import config
from nxjax.errors import MissingExtraError

# Seconds before a bar appears that nobody asked for, and between two looks at the clock.
DELAY: Final = 1.0
_TICK: Final = 0.5


def interactive() -> bool:
    """Whether somebody watches: a terminal, or a notebook, whose shell has a kernel."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return sys.stderr.isatty() or getattr(shell, "kernel", None) is not None


def bars(asked: bool | None, what: str, worthwhile: bool = True) -> Callable[..., Any] | None:
    """What makes a bar (tqdm), or None where none is to be shown.

    Args:
        asked: True: a bar. False: none. None: one if worthwhile, somebody watches, and ``config.progress`` allows.
        what: who shows it, for the error.
        worthwhile: whether a bar is of any use that nobody asked for.

    Raises:
        MissingExtraError: a bar was asked for, and there is no tqdm.
    """
    if asked is False or (asked is None and not (worthwhile and config.progress and interactive())):
        return None
    try:
        with warnings.catch_warnings():
            # A notebook without widgets gets the bar as text, which needs no warning.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        if asked:
            raise MissingExtraError(
                f"{what}: progress=True needs tqdm", got="no module 'tqdm'", fix="pip install 'nxjax[demo]'"
            ) from None
        return None
    return tqdm


@final
class Phases:
    """``with Phases("compiling", ("tracing", "lowering"), None, "compile") as phase: phase("tracing")``.

    A bar of one step for each phase, with the name of the one that runs and the time since the first. What nobody asked
    for appears after a second, and goes when all is done.
    """

    def __init__(self, title: str, phases: Sequence[str], asked: bool | None, what: str) -> None:
        self._make = bars(asked, what)
        self._title, self._phases = title, tuple(phases)
        self._asked = bool(asked)
        self._phase = self._phases[0]
        self._bar: Any = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, phase: str) -> None:
        """``phase`` begins."""
        if self._make is not None:
            with self._lock:
                self._phase = phase
                self._show()

    def __enter__(self) -> Phases:
        if self._make is not None:
            if self._asked:
                self._open()
            # A phase may be one long call of somebody's compiler: another thread keeps the clock going.
            self._thread = threading.Thread(target=self._watch, name="nxjax-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        if self._bar is not None:
            if error is None:
                self._bar.update(len(self._phases) - self._bar.n)
            self._bar.close()

    def _watch(self) -> None:
        wait = _TICK if self._asked else DELAY
        while not self._ended.wait(wait):
            with self._lock:
                if self._bar is None:
                    self._open()
                self._show()
            wait = _TICK

    def _open(self) -> None:
        assert self._make is not None
        self._bar = self._make(total=len(self._phases), desc=self._title, unit="phase", leave=self._asked)

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.n = self._phases.index(self._phase)
            self._bar.set_postfix_str(self._phase)
