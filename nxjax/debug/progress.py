"""`progress_bar`: the progress of a loop on the device, as a bar that a callback moves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final, ParamSpec, TypeVar, final, overload

import numpy as np

from nxjax.errors import MissingExtraError, ParameterError, described
from nxjax.trace.boundary import entry
from nxjax.transforms.callback import debug_callback

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_UPDATES: Final = 100  # how often a bar moves, if nothing else is said


@final
class _Progress:
    """The host's side: one bar per run of the loop. A run begins at index 0, also after one that was interrupted."""

    def __init__(self, length: int, desc: str, make: Callable[..., Any]) -> None:
        self.length = length
        self.desc = desc
        self.make = make
        self.bar: Any = None
        self.done = 0

    def __call__(self, index: Any) -> None:
        i = int(np.asarray(index).max())
        if self.bar is None or i + 1 <= self.done:
            self.close()
            self.bar = self.make(total=self.length, desc=self.desc)
        self.bar.update(i + 1 - self.done)
        self.done = i + 1
        if self.done >= self.length:
            self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        self.bar, self.done = None, 0


def _tqdm(**options: Any) -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError(
            "progress_bar: needs tqdm", got="no module 'tqdm'", fix="pip install 'nxjax[demo]', or give bar="
        ) from None
    return tqdm(**options)


def _watched(values: Iterable[T], make: Callable[..., Any], desc: str) -> Iterator[T]:
    bar = make(total=len(values) if isinstance(values, Sized) else None, desc=desc)
    try:
        for value in values:
            yield value
            bar.update(1)
    finally:
        bar.close()


@overload
def progress_bar(
    length: int,
    *,
    scan: bool = False,
    desc: str = "",
    every: int | None = None,
    bar: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def progress_bar(length: Iterable[T], *, desc: str = "", bar: Callable[..., Any] | None = None) -> Iterator[T]: ...
@entry
def progress_bar(
    length: Any,
    *,
    scan: bool = False,
    desc: str = "",
    every: int | None = None,
    bar: Callable[..., Any] | None = None,
) -> Any:
    """Decorator for a loop body: shows a progress bar under `jit`, `grad` and on any executor.

    For an iterable, a progress bar of a Python loop: ``for i in progress_bar(range(3))``.

    Args:
        length: the number of steps, or the iterable of a Python loop.
        scan: False: ``body(i, carry)`` of a `fori_loop` from 0. True: ``body(carry, x)`` of a `scan` in which ``x`` is
            the index, or a tuple that begins with it: ``scan(body, init, (nx.arange(length), xs))``.
        desc: the text before the bar.
        every: steps between two updates of the bar; by default a hundredth of all.
        bar: called as ``bar(total=..., desc=...)`` in place of tqdm; returns an object with ``update(n)`` and
            ``close()``.

    Raises:
        ParameterError: the body's arguments have no index.
        MissingExtraError: no tqdm, and no ``bar``.

    >>> class Stars:
    ...     def __init__(self, total, desc): pass
    ...     def update(self, n): print("*" * n, end="")
    ...     def close(self): print(" done")
    >>> @nx.debug.progress_bar(6, every=2, bar=Stars)
    ... def body(i, c):
    ...     return c + i
    >>> total = nx.lax.fori_loop(0, 6, body, 0)
    ****** done
    >>> sum(nx.debug.progress_bar(range(6), bar=Stars))
    ****** done
    15
    """
    if isinstance(length, Iterable) and not isinstance(length, str) and getattr(length, "ndim", 1):
        if scan or every is not None:
            raise ParameterError("progress_bar: scan and every are for loops on the device", got=described(length))
        return _watched(length, bar or _tqdm, desc)
    if length < 1 or (every is not None and every < 1):
        raise ParameterError("progress_bar: counts are positive", got=f"length={length}, every={every}")
    step = every or max(1, length // _UPDATES)

    def decorate(body: Callable[P, R]) -> Callable[P, R]:
        progress = _Progress(length, desc, bar or _tqdm)

        @functools.wraps(body)
        def shown(*args: P.args, **kwargs: P.kwargs) -> R:
            _tick(progress, _index(args, scan), step, length)
            return body(*args, **kwargs)

        return shown

    return decorate


def _tick(progress: _Progress, index: Any, step: int, length: int) -> None:
    from nxjax.lax import cond

    def move(i: Any) -> None:
        debug_callback(progress, i, ordered=True)

    cond((index % step == step - 1) | (index == length - 1), move, lambda i: None, index)


def _index(args: tuple[Any, ...], scan: bool) -> Any:
    """The step's number."""
    x = args[min(int(scan), len(args) - 1)] if args else None
    x = x[0] if scan and isinstance(x, (tuple, list)) and x else x
    if isinstance(x, int) or (hasattr(x, "dtype") and x.dtype.kind in "iu" and x.shape == ()):
        return x
    raise ParameterError(
        "progress_bar: the body has no index",
        got=str(getattr(x, "type", type(x).__name__)),
        expected="body(carry, i) or body(carry, (i, ...)) of scan" if scan else "body(i, carry) of fori_loop",
        fix="scan over (nx.arange(length), xs)" if scan else "progress_bar(length, scan=True) for the body of a scan",
    )
