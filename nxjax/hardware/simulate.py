"""`nx.simulate`: a chip's simulator in the chip's place, where a program asks for a chip that is not there.

The simulator of NPUs is exact: it runs the graph that nxjax would write for a chip, bit for bit, where the chip's rules
take every node of it. What it gives is labelled ``simulator`` only then, else ``host``; never ``hardware``. A chip
whose vendor does not specify its integers has no simulator here: nothing is labelled as its.
"""

from __future__ import annotations

import threading
from typing import Any, Final, final

from nxjax.errors import ParameterError

KINDS: Final = ("npu",)

_lock = threading.Lock()
_active: list[simulate] = []


@final
class simulate:
    """Turns a simulator on: from the call on, or, in a ``with`` statement, inside it.

    Args:
        kind: ``"npu"``; None turns all simulators off.
        target: the target of `nx.compile` whose rules decide what the simulated chip takes (``"ethos-u55"``,
            ...); by default every instruction of an NPU graph.

    Process-wide, so that threads and cells of a notebook see it alike.

    >>> with simulate("npu"):
    ...     simulated("npu") is not None
    True
    >>> simulated("npu") is None
    True
    """

    def __init__(self, kind: str | None = "npu", target: str | None = None) -> None:
        if kind is not None and kind not in KINDS:
            raise ParameterError("simulate: no simulator of this", got=repr(kind), expected=", ".join(map(repr, KINDS)))
        if target is not None:
            from nxjax.backends import target_registry as registry

            registry.npu(target, "simulate")
        self.kind = kind
        self.target = target
        with _lock:
            self._before = list(_active)
            if kind is None:
                _active.clear()
            else:
                _active.append(self)

    def __enter__(self) -> simulate:
        return self

    def __exit__(self, *exc: Any) -> None:
        with _lock:
            _active[:] = self._before

    def __repr__(self) -> str:
        if self.kind is None:
            return "simulators off"
        return f"{self.kind} simulator{f' of {self.target}' if self.target else ''}"


def simulated(kind: str) -> simulate | None:
    """The simulator of ``kind`` that is on, or None."""
    return next((s for s in reversed(_active) if s.kind == kind), None)
