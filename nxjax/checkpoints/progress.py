"""A bar for long transfers. Knows bytes and whether somebody is looking."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, final

from nxjax.display.progress import bars

# Less is done before anybody could read the bar.
_BIG: Final = 256 * 2**20


@final
class Progress:
    """``with Progress("saving", total, None) as done: done(n)``: a bar if asked for, or for much that is watched."""

    def __init__(self, what: str, total: int, asked: bool | None) -> None:
        make = bars(asked, "checkpoint", total >= _BIG)
        self.bar: Any = None if make is None else make(total=total, desc=what, unit="B", unit_scale=True)

    def __call__(self, amount: int) -> None:
        """So many bytes more."""
        if self.bar is not None:
            self.bar.update(amount)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.close()
