"""What users see of a traceback: their own frames and the function they called. Knows errors and settings only."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, ParamSpec, TypeVar

import numpy as np
import optree

from nxjax.config import config
from nxjax.errors import NxError, ParameterError, described, is_internal

P = ParamSpec("P")
R = TypeVar("R")


def api_boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions that call user code: errors of nxjax leave without the frames inside nxjax.

    ``nx.config.update("traceback_filtering", False)`` shows them all. Other exceptions pass as they are.
    """

    @functools.wraps(function)
    def bounded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NxError as error:
            if config.traceback_filtering:
                error.__traceback__ = _without_inner_frames(error.__traceback__)
            raise

    return bounded


# The errors that wrong arguments raise if no check has refused them before.
_RAW: Final = (TypeError, ValueError, AttributeError, LookupError, AssertionError)
# Folders of libraries: a traceback that ends there does not end in a user's function.
_LIBRARIES: Final = tuple(os.path.dirname(str(m.__file__)) + os.sep for m in (os, np, optree))


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions: wrong arguments raise a `ParameterError` with the user's line.

    For functions that are not called often. Errors from a user's own function pass unchanged.
    """

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NxError:
            raise
        except _RAW as error:
            if not _without_user(error.__traceback__):
                raise
            raise _refused(function, args, kwargs, error) from error

    return asked


def _refused(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object], error: BaseException
) -> ParameterError:
    """What was given, how the function is called, and what to write."""
    signature = inspect.signature(function)
    shown = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    method = bool(shown) and shown[0].name == "self"
    title = function.__qualname__.removesuffix(".__init__").removesuffix(".__post_init__")
    given = [*map(described, args[method:]), *(f"{k}={described(x)}" for k, x in kwargs.items())]
    needed = [p for p in shown[method:] if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    call = f"{title}({', '.join(f'{p.name}=...' if p.kind is p.KEYWORD_ONLY else p.name for p in needed)})"
    curried = str(signature.return_annotation).startswith("Callable")
    instead = (
        f"it gives a function, which takes the arguments: {call}(x)"
        if curried
        else None
        if shown
        else f"it takes none: {call}"
    )
    return ParameterError(
        f"{title}: cannot take these arguments",
        got=", ".join(given) or "none",
        expected=f"{title}{signature.replace(parameters=shown[method:], return_annotation=signature.empty)}",
        fix=_nearest(signature, kwargs) or instead,
        more=[
            ("because", f"{type(error).__name__}: {str(error)[:200]}"),
            *_missing(function, needed, kwargs),
        ],
    )


def _nearest(signature: inspect.Signature, given: Mapping[str, object]) -> str | None:
    """The parameters that were meant by names that there are not, where they are alike."""
    known = signature.parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return None
    import difflib

    near = [difflib.get_close_matches(name, known, 1) for name in given if name not in known]
    return f"did you mean {' and '.join(f'{n}=' for found in near for n in found)}?" if any(near) else None


def _missing(
    function: Callable[..., object], needed: Sequence[inspect.Parameter], given: Mapping[str, object]
) -> list[tuple[str, str]]:
    """What the docstring says of keywords that must be given and are not."""
    names = [p.name for p in needed if p.kind is p.KEYWORD_ONLY and p.name not in given]
    said = ((n, re.search(rf"^ +{n}: (.+)$", function.__doc__ or "", re.MULTILINE)) for n in names)
    return [(n, found[1]) for n, found in said if found]


def _without_user(traceback: TracebackType | None) -> bool:
    """Whether all frames are nxjax's, or those of libraries that it calls."""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        library = file.startswith(_LIBRARIES) and "site-packages" not in file.removeprefix(_LIBRARIES[0])
        if not (is_internal(file) or library or file.startswith(_LIBRARIES[1:])):
            return False
        traceback = traceback.tb_next
    return True


def _without_inner_frames(traceback: TracebackType | None) -> TracebackType | None:
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
