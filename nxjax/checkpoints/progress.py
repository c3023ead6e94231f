"""A bar for long transfers. Knows bytes and whether somebody is looking."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Any, Final, final

from nxjax.errors import MissingExtraError

# Less is done before anybody could read the bar.
_BIG: Final = 256 * 2**20


@final
class Progress:
    """``with Progress("saving", total, None) as done: done(n)``: a bar if asked for, or on a terminal for much data."""

    def __init__(self, what: str, total: int, asked: bool | None) -> None:
        self.bar: Any = None
        if asked is False or (asked is None and (total < _BIG or not sys.stderr.isatty())):
            return
        try:
            with warnings.catch_warnings():
                # A notebook without widgets gets the bar as text, which needs no warning.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            if asked:
                raise MissingExtraError(
                    "checkpoint: progress=True needs tqdm", got="no module 'tqdm'", fix="pip install 'nxjax[demo]'"
                ) from None
            return
        self.bar = tqdm(total=total, desc=what, unit="B", unit_scale=True)

    def __call__(self, amount: int) -> None:
        """So many bytes more."""
        if self.bar is not None:
            self.bar.update(amount)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()
