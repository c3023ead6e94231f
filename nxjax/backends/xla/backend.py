"""The XLA executors: StableHLO text through a jaxlib client, with the on-disk cache in front; one adapter for all.

`XlaBackend` is the host's CPU. What plugins bring (TPU, CUDA, ...) is a subclass each, in `plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, final

from nxjax.backends import cache
from nxjax.backends.base import Backend, Device, Executable, ProgramPlacement
from nxjax.backends.evidence import Label
from nxjax.backends.xla import accounting, client, serialize
from nxjax.backends.xla.buffers import ShardedBuffer, XlaBuffer
from nxjax.backends.xla.client import Client
from nxjax.backends.xla.executable import PlacedExecutable, XlaExecutable, compile_text, moved
from nxjax.backends.xla.rows import ROWS
from nxjax.lower.stablehlo.builder import Row, lower
from nxjax.trace.array import DeviceArray, DeviceBuffer
from nxjax.trace.program import Program
from nxjax.trace.sharding import Sharding
from nxjax.trace.types import ArrayType

# How many programs this process has compiled; a process that finds everything in the cache leaves it at zero.
compilations = 0


@lru_cache(1)
def _cpu_rows() -> dict[str, Row]:
    return ROWS


def rows_for(platform: str) -> dict[str, Row]:
    """What a platform answers in its own way: LAPACK and callbacks are the host's."""
    return _cpu_rows() if platform == "cpu" else {}


def _loaded(c: Client, text: str, callbacks: Sequence[Callable[..., Any]], placement: ProgramPlacement | None) -> Any:
    """The executable of a text: from the cache, or compiled and kept there."""
    global compilations
    if placement is None and c.device.id == 0:
        key = cache.key_of("xla", serialize.fingerprint(c.platform), text)
    else:
        ids = (c.device.id,) if placement is None else tuple(d.id for d in placement.devices)
        free = "" if placement is None else "".join("01"[s is None] for s in (*placement.ins, *placement.outs))
        key = cache.key_of("xla", serialize.fingerprint(c.platform), text, repr(ids), free)
    # Code that calls back into this process holds its addresses and cannot be kept.
    keep = not callbacks and not client.joined
    stored = cache.load(key) if keep else None
    raw = serialize.load(stored, c, placement) if stored is not None else None
    if raw is None:
        compilations += 1
        raw = compile_text(text, callbacks, c, placement)
        if keep:
            cache.store(key, serialize.dump(raw, c))
    return raw


def _lowered(
    c_platform: str, program: Program, donate: tuple[int, ...], placement: ProgramPlacement | None
) -> tuple[str, list[Callable[..., Any]]]:
    if placement is None or len(placement.devices) == 1:
        return lower(program, rows=rows_for(c_platform), donate=donate, devices=(None,))
    return lower(
        program,
        rows=rows_for(c_platform),
        donate=donate,
        in_shardings=placement.ins,
        out_shardings=placement.outs,
        devices=placement.devices,
    )


def compile_placed(
    c: Client, program: Program, donate: tuple[int, ...], placement: ProgramPlacement
) -> PlacedExecutable:
    """A program for the devices of ``placement``, which are of client ``c``."""
    text, callbacks = _lowered(c.platform, program, donate, placement)
    raw = _loaded(c, text, callbacks, placement)
    return PlacedExecutable(raw, text, program.in_types, program.out_types, placement, c, callbacks, donate)


class ClientBackend(Backend):
    """A backend on one of jaxlib's clients. Subclasses say which, and whether it is here."""

    label: ClassVar[Label] = "hardware"
    places: ClassVar[bool] = True

    @property
    def _client(self) -> Client:
        return client.client_for(self.platform)

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        placement = ProgramPlacement(
            tuple(self.devices()[:1]), (None,) * len(program.inputs), (None,) * len(program.outputs)
        )
        return compile_placed(self._client, program, donate, placement)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        return _lowered(self.platform, program, donate, None)[0]

    def compile_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> Executable:
        return compile_placed(self._client, program, donate, placement)

    def lower_placed(self, program: Program, donate: tuple[int, ...], placement: ProgramPlacement) -> str:
        return _lowered(self.platform, program, donate, placement)[0]

    def put(self, x: DeviceArray, sharding: Sharding) -> DeviceBuffer | None:
        return moved(self._client, x, sharding)

    def assemble(self, blocks: Sequence[Any], type: ArrayType, sharding: Sharding) -> DeviceBuffer:
        raws = [b.raw if isinstance(b, XlaBuffer) else b for b in blocks]
        c = self._client
        raw = c.put_blocks(raws, type, sharding)
        return XlaBuffer(raw, type) if sharding.num_devices == 1 else ShardedBuffer(raw, type, sharding, c)

    def blocks(self, buffer: DeviceBuffer) -> list[DeviceBuffer]:
        return list(buffer.shards()) if isinstance(buffer, ShardedBuffer) else [buffer]

    def memory_stats(self, device: Device) -> dict[str, Any] | None:
        return accounting.memory_stats(self._client, device.id) if client.is_made(self.platform) else None

    def _device(self, id: int, process: int) -> Device:
        return Device(self.platform, id, self, process, lambda: self._client.by_id[id])


@final
class XlaBackend(ClientBackend):
    name = "xla"
    platform = "cpu"
    priority = 10

    def __init__(self) -> None:
        self._devices: dict[Any, list[Device]] = {}

    def available(self) -> tuple[bool, str]:
        return client.available()

    def devices(self) -> list[Device]:
        """The CPU's devices in all processes. The client is not made for it, unless there are other processes."""
        count = client.check_count()
        key = (count, bool(client.joined))
        found = self._devices.get(key)
        if found is None:
            if client.joined:
                found = [self._device(d.id, d.process_index) for d in self._client.raw.devices()]
            else:
                found = [self._device(i, 0) for i in range(count)]
            self._devices[key] = found
        return list(found)

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        text, callbacks = _lowered("cpu", program, donate, None)
        c = self._client
        return XlaExecutable(_loaded(c, text, callbacks, None), text, program.out_types, callbacks, donate)
