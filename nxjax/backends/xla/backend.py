"""The XLA executor: StableHLO text through jaxlib's CPU client, with the on-disk cache in front."""

from __future__ import annotations

from functools import lru_cache
from typing import final

from nxjax.backends import cache
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.xla import client, serialize
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.lower.stablehlo.builder import Row, lower
from nxjax.trace.program import Program

# How many programs this process has compiled; a process that finds everything in the cache leaves it at zero.
compilations = 0


@lru_cache(1)
def _rows() -> dict[str, Row]:
    from nxjax.backends.xla.rows import ROWS

    return ROWS


@final
class XlaBackend(Backend):
    name = "xla"
    platform = "cpu"
    label = "hardware"
    priority = 10

    def available(self) -> tuple[bool, str]:
        return client.available()

    def devices(self) -> list[Device]:
        return [Device("cpu", 0, self)]

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        global compilations
        text, callbacks = lower(program, rows=_rows(), donate=donate)
        key = cache.key_of("xla", serialize.fingerprint(), text)
        # Code that calls back into this process holds its addresses and cannot be kept.
        stored = None if callbacks else cache.load(key)
        raw = serialize.load(stored) if stored is not None else None
        if raw is None:
            compilations += 1
            raw = compile_text(text, callbacks)
            if not callbacks:
                cache.store(key, serialize.dump(raw))
        return XlaExecutable(raw, text, program.out_types, callbacks)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return lower(program, rows=_rows(), donate=donate)[0]
