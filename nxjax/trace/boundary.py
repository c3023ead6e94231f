"""What users see of a traceback: their own frames and the function they called. Knows errors and settings only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from nxjax.config import config
from nxjax.errors import NxError, is_internal

P = ParamSpec("P")
R = TypeVar("R")


def boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions that call user code: errors of nxjax leave without the frames inside nxjax.

    ``nx.config.update("traceback_filtering", False)`` shows them all. Other exceptions pass as they are.
    """

    @functools.wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NxError as error:
            if config.traceback_filtering:
                error.__traceback__ = _outside(error.__traceback__)
            raise

    return bounded


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without frames of nxjax's own files."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if not is_internal(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    shown: TracebackType | None = None
    for tb in reversed(kept):
        shown = TracebackType(shown, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return shown
