"""Text from tokens as they come: never half a character, never a part of what ends the text.

Knows the bytes of tokens, nothing of models.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import final

from nxjax.errors import ParameterError, Shown


@final
class TextStream(Shown):
    """Takes the tokens of one text one at a time, and returns text as soon as it is final.

    A character with bytes in several tokens appears with the last of them. A possible beginning of a stop sequence is
    held back until it is decided. A stop sequence and everything after it are dropped.

    Args:
        bytes_of: the bytes of a token.
        stop: texts that end the text.

    Attributes:
        text: all returned text.
        stopped: a stop sequence was found.

    >>> stream = TextStream(lambda token: "größe. END".encode()[token : token + 1], stop=("END",))
    >>> [stream.put(i) for i in range(4)]
    ['g', 'r', '', 'ö']
    >>> "".join(stream.put(i) for i in range(4, 12)) + stream.close(), stream.text, stream.stopped
    ('ße. ', 'größe. ', True)
    """

    def __init__(self, bytes_of: Callable[[int], bytes], stop: Sequence[str] = ()) -> None:
        if isinstance(stop, str) or any(not isinstance(s, str) or not s for s in stop):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ParameterError("stop sequences", got=stop, expected="a sequence of texts that are not empty")
        self._bytes_of = bytes_of
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.text = ""
        self.stopped = False

    def put(self, token: int) -> str:
        """Add a token; return the text that is now final, which may be empty."""
        return self._take(self._decoder.decode(self._bytes_of(token)))

    def close(self) -> str:
        """End the text; return what was held back."""
        piece = self._take(self._decoder.decode(b"", final=True))
        if self.stopped:
            return piece
        rest, self._held = self._held, ""
        self.text += rest
        return piece + rest

    def _take(self, piece: str) -> str:
        if self.stopped:
            return ""
        self._held += piece
        found = min((i for s in self._stop if (i := self._held.find(s)) >= 0), default=-1)
        if found >= 0:
            self.stopped = True
            ready, self._held = self._held[:found], ""
        else:
            keep = self._doubtful()
            ready, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        self.text += ready
        return ready

    def _doubtful(self) -> int:
        """How many of the last characters may begin a stop sequence."""
        ends = (n for s in self._stop for n in range(len(s) - 1, 0, -1) if self._held.endswith(s[:n]))
        return max(ends, default=0)
