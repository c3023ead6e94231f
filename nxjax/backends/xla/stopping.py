"""All processes stop at one step: when one of them is asked to end, they agree on a step that none has passed.

A computation over several processes needs them all, and so does a checkpoint: who stops earlier than the others leaves
them waiting. So each says the last step that it has passed, in a thread beside the one that computes (which may be in
the middle of a step that waits for the others), and all stop at the next one after the latest. Knows no signal.
"""

from __future__ import annotations

import threading
from typing import Any, Final, final

_ASKED: Final = "nxjax/stop/asked"
_PASSED: Final = "nxjax/stop/passed"


@final
class Stop:
    """What one process knows of the end.

    Attributes:
        wanted: somebody has asked this process to end.
        last: the step to stop at, once all have said where they are.
    """

    def __init__(self, processes: int, process: int) -> None:
        self.processes = processes
        self.process = process
        self.wanted = False
        self.last: int | None = None
        self._lock = threading.Lock()
        self._passed = -1
        self._said = self._frozen = False

    def look(self, raw: Any) -> None:
        """Tell the others and hear them; called now and then by the thread that watches them."""
        if self.last is not None:
            return
        if self.wanted and not self._said:
            raw.key_value_set(f"{_ASKED}/{self.process}", "1", allow_overwrite=True)
            self._said = True
        if not self._frozen and raw.key_value_dir_get(_ASKED):
            with self._lock:  # from now on this process passes no step until all have said theirs
                self._frozen = True
                passed = self._passed
            raw.key_value_set(f"{_PASSED}/{self.process}", str(passed), allow_overwrite=True)
        if self._frozen:
            found = raw.key_value_dir_get(_PASSED)
            if len(found) == self.processes:
                self.last = max(int(value) for _, value in found) + 1

    def passes(self, step: int) -> bool:
        """Whether this process goes on after ``step`` without asking; if not, `last` is to be waited for."""
        with self._lock:
            if not self._frozen:
                self._passed = step
            return not self._frozen
