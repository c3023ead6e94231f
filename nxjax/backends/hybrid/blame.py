"""Whose fault an exception is: the program's, which every unit would raise, or that of the unit it was raised on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from nxjax.errors import (
    ExecutionError,
    InvalidFileError,
    LoweringError,
    MemoryLimitError,
    MissingExtraError,
    NxError,
    PlacementError,
)

# Errors of nxjax that say something about a unit. All others are about the program, wherever it runs.
_UNITS: Final = (
    ExecutionError,
    InvalidFileError,
    LoweringError,
    MemoryLimitError,
    MissingExtraError,
    PlacementError,
)
# Of these, those that say nothing about other jobs on the same unit.
_ONE_JOB: Final = (LoweringError, MemoryLimitError, MissingExtraError, PlacementError, MemoryError)

# Functions of the user that a program calls are called from here.
_CALLBACKS: Final = os.path.join("nxjax", "transforms", "callback.py")
# Numbers in messages (addresses, handles, times) differ from unit to unit.
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and what it was raised from."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def through_callback(error: BaseException) -> bool:
    """Whether a function of the user that the program calls raised it."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(_CALLBACKS):
            return True
        trace = trace.tb_next
    return False


def is_programs(error: BaseException) -> bool:
    """Whether any unit would raise it: an error about the program, or of a callback.

    >>> from nxjax.errors import ShapeError
    >>> is_programs(ShapeError("matmul: shapes do not fit")), is_programs(ExecutionError("the device is lost"))
    (True, False)
    """
    return any(getattr(e, "__nxjax_program__", False) or through_callback(e) for e in chain(error)) or (
        isinstance(error, NxError) and not isinstance(error, _UNITS)
    )


def about_one_job(error: BaseException) -> bool:
    """Whether it says that a unit cannot take this job, and nothing about others: no memory, no kernel."""
    return isinstance(error, _ONE_JOB)


def line(error: BaseException) -> str:
    """An exception in one line."""
    what = error.what if isinstance(error, NxError) else str(error)
    text = what.strip().splitlines()[0] if what.strip() else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def same(a: BaseException, b: BaseException) -> bool:
    """Whether two units failed in the same way: class and message, whatever numbers are in it.

    >>> same(ValueError("bad value 3 at 0x7f"), ValueError("bad value 4 at 0x81"))
    True
    """
    return type(a) is type(b) and _NUMBERS.sub("#", str(a)) == _NUMBERS.sub("#", str(b))
