"""Compile StableHLO text and call the result. Knows text and types, not ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.backends.base import Executable
from nxjax.backends.xla.client import XlaBuffer, client
from nxjax.errors import ExecutionError, LoweringError
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType


def compile_text(text: str) -> Any:
    """jaxlib's loaded executable for a StableHLO module."""
    c = client()
    try:
        return c.raw.compile_and_load(text, c.devices, c.xla_client.CompileOptions())
    except c.xla_client.XlaRuntimeError as error:
        raise LoweringError("xla: the compiler refused the program", got=str(error)[:2000]) from None


@final
class XlaExecutable(Executable):
    """A program compiled by XLA for the host CPU.

    The fast path does no work per argument but to look for its buffer: one that is already on the device is passed as
    it is; NumPy memory is lent to XLA without a copy, and the buffer kept with the array.
    """

    __slots__ = ("_execute", "_handlers", "_kept", "_put", "hlo", "out_types", "raw", "stablehlo")

    def __init__(self, raw: Any, stablehlo: str, out_types: Sequence[ArrayType], kept: Sequence[Any] = ()) -> None:
        c = client()
        self.raw = raw
        self.stablehlo = stablehlo
        self.out_types = tuple(out_types)
        self._kept = tuple(kept)  # callbacks the compiled code calls
        self._handlers = [c.handler(t) for t in out_types]
        self._execute = raw.execute_sharded
        self._put = c.put

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        buffers: list[Any] = []
        for x in args:
            held = x.buffer
            if type(held) is not XlaBuffer:
                held = x.buffer = XlaBuffer(self._put(x.numpy(), x.type), x.type)
            buffers.append(held.raw)
        try:
            results = self._execute(buffers)
        except Exception as error:
            raise self._failed(error) from error
        raws = results.consume_with_handlers(self._handlers)
        return [DeviceArray(None, t, XlaBuffer(raw, t)) for raw, t in zip(raws, self.out_types, strict=True)]

    def _failed(self, error: Exception) -> Exception:
        return ExecutionError("xla: the compiled program failed", got=str(error)[:2000])

    @property
    def text(self) -> str:
        """The HLO after XLA's own optimization."""
        return self.raw.hlo_modules()[0].to_string()

    def cost_analysis(self) -> dict[str, float]:
        found: Any = self.raw.cost_analysis()
        return dict(found[0] if isinstance(found, (list, tuple)) else found)

    def memory_analysis(self) -> Any:
        return self.raw.get_compiled_memory_stats()
