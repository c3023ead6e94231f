"""Compile StableHLO text and call the result. Knows text and types, not ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.backends.base import Executable
from nxjax.backends.xla.callbacks import take_error
from nxjax.backends.xla.client import XlaBuffer, client
from nxjax.errors import ExecutionError, LoweringError
from nxjax.trace.array import DeviceArray
from nxjax.trace.types import ArrayType


def compile_text(text: str, callbacks: Sequence[Callable[..., Any]] = ()) -> Any:
    """jaxlib's loaded executable for a StableHLO module that calls ``callbacks`` by position."""
    c = client()
    options = c.xla_client.CompileOptions()
    try:
        if not callbacks:
            return c.raw.compile_and_load(text, c.devices, options)
        return c.raw.compile_and_load(parse(text), c.devices, options, list(callbacks))
    except c.xla_client.XlaRuntimeError as error:
        raise LoweringError("xla: the compiler refused the program", got=str(error)[:2000]) from None


def parse(text: str) -> Any:
    """The text as a module object, the only form in which jaxlib takes callbacks."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import chlo, stablehlo  # type: ignore[import-not-found]

    context: Any = ir.Context()
    dialects: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    for dialect in (chlo, stablehlo):
        dialect.register_dialect(context)
    return ir.Module.parse(text, context)


_next_call = itertools.count(1).__next__


@final
class XlaExecutable(Executable):
    """A program compiled by XLA for the host CPU.

    The fast path does no work per argument but to look for its buffer: one that is already on the device is passed as
    it is; NumPy memory is lent to XLA without a copy, and the buffer kept with the array.
    """

    __slots__ = ("_callbacks", "_collect", "_execute", "_handlers", "_put", "out_types", "raw", "stablehlo")

    def __init__(
        self, raw: Any, stablehlo: str, out_types: Sequence[ArrayType], callbacks: Sequence[Callable[..., Any]] = ()
    ) -> None:
        c = client()
        self.raw = raw
        self.stablehlo = stablehlo
        self.out_types = tuple(out_types)
        self._callbacks = tuple(callbacks)  # the compiled code holds their addresses
        self._handlers = [c.handler(t) for t in out_types]
        self._execute = raw.execute_sharded
        self._put = c.put
        self._collect = c.jaxlib.collect_garbage

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        buffers: list[Any] = []
        for x in args:
            held = x.buffer
            if type(held) is not XlaBuffer:
                held = x.buffer = XlaBuffer(self._put(x.numpy(), x.type), x.type)
            buffers.append(held.raw)
        try:
            if self._callbacks:
                # What a callback raises shows only when the call is waited for.
                results = self._execute(buffers, True)
                results.consume_token().block_until_ready()
            else:
                results = self._execute(buffers)
        except Exception as error:
            raised = take_error()
            if raised is not None:
                what = "xla: a callback of the compiled program failed"
                raise ExecutionError(what, got=f"{type(raised).__name__}: {raised}") from raised
            raise ExecutionError("xla: the compiled program failed", got=str(error)[:2000]) from None
        raws = results.consume_with_handlers(self._handlers)
        if not _next_call() % 1024:
            # jaxlib queues objects that it drops, and frees them only when asked.
            self._collect()
        return [DeviceArray(None, t, XlaBuffer(raw, t)) for raw, t in zip(raws, self.out_types, strict=True)]

    @property
    def text(self) -> str:
        """The HLO after XLA's own optimization."""
        return self.raw.hlo_modules()[0].to_string()

    def cost_analysis(self) -> dict[str, float]:
        found: Any = self.raw.cost_analysis()
        return dict(found[0] if isinstance(found, (list, tuple)) else found)

    def memory_analysis(self) -> Any:
        return self.raw.get_compiled_memory_stats()
