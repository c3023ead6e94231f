"""An executable that runs without its program's own machine code at first, and compiles the program when it has to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.backends.base import Executable
from nxjax.trace.array import DeviceArray


class CompiledLater(Executable):
    """What the compiled program is asked, it compiles for.

    Args:
        make: compiles the program.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    @property
    def compiled(self) -> Any:
        """The program, compiled now if it was not."""
        if self._made is None:
            from nxjax.backends.cpu.locks import COMPILING

            with COMPILING:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def bind_leading(self, held: Sequence[DeviceArray]) -> tuple[Executable, list[DeviceArray]] | None:
        return self.compiled.bind_leading(held)

    @property
    def text(self) -> str:
        return self.compiled.text

    def cost_analysis(self) -> dict[str, float]:
        return self.compiled.cost_analysis()

    def memory_analysis(self) -> Any:
        return self.compiled.memory_analysis()
