"""Compile StableHLO text and call the result, on one device or on several. Knows text and types, not ops."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.backends.base import Executable, ProgramPlacement
from nxjax.backends.registry import default
from nxjax.backends.tpu.hlo import HloModule
from nxjax.backends.tpu.loops import HloLoops
from nxjax.backends.xla import accounting
from nxjax.backends.xla.buffers import ShardedBuffer, XlaBuffer, waiting
from nxjax.backends.xla.callbacks import take_error
from nxjax.backends.xla.client import Client, client
from nxjax.backends.xla.layouts import sharding_of
from nxjax.errors import ExecutionError, LoweringError, ProcessLostError
from nxjax.trace.array import DeviceArray
from nxjax.trace.program import Program, Var
from nxjax.trace.sharding import Sharding, SingleDeviceSharding
from nxjax.trace.types import ArrayType


def compile_text(
    text: str,
    callbacks: Sequence[Callable[..., Any]] = (),
    c: Client | None = None,
    placement: ProgramPlacement | None = None,
) -> Any:
    """jaxlib's loaded executable for a StableHLO module that calls ``callbacks`` by position.

    On the default device of client ``c`` (by default the CPU's), or on the devices of ``placement``.
    """
    c = c or client()
    devices = c.devices if placement is None else c.device_list(placement.devices)
    options = compile_options(c, placement)
    try:
        if not callbacks:
            return c.raw.compile_and_load(text, devices, options)
        return c.raw.compile_and_load(parse(text), devices, options, list(callbacks))
    except c.xla_client.XlaRuntimeError as error:
        raise LoweringError("xla: the compiler refused the program", got=str(error)[:2000]) from None


def compile_options(c: Client, placement: ProgramPlacement | None) -> Any:
    """What the compiler has to know besides the text: devices, and that one program is cut over all of them."""
    options = c.xla_client.CompileOptions()
    overrides: list[tuple[str, str]] = []
    if joined_timeout:
        overrides.append(("xla_cpu_collective_timeout_seconds", str(joined_timeout[0])))
    if placement is not None and len(placement.devices) > 1:
        # XLA ends the process when a thread is this late, which a busy machine makes it: 40 s by default.
        overrides.append(("xla_cpu_collective_call_terminate_timeout_seconds", str(_LATEST)))
    if overrides:
        options.env_option_overrides = overrides
    if placement is None:
        if joined_timeout:  # several processes: device 0 of the world need not be ours
            options.device_assignment = c.xla_client.DeviceAssignment.create(np.array([[c.device.id]]))
        return options
    ids = [d.id for d in placement.devices]
    assignment = c.xla_client.DeviceAssignment.create(np.array([ids]))
    options.num_replicas, options.num_partitions = 1, len(ids)
    options.device_assignment = assignment
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, len(ids)
    build.device_assignment = assignment
    if len(ids) > 1:
        build.use_spmd_partitioning = True
        build.use_shardy_partitioner = True
        build.allow_spmd_sharding_propagation_to_parameters = [s is None for s in placement.ins]
        build.allow_spmd_sharding_propagation_to_output = [s is None for s in placement.outs]
    return options


# Seconds that one device of this process waits for another.
_LATEST: Final = 600
# Seconds that a collective waits for other processes; set when this process has joined some.
joined_timeout: list[int] = []
# Called before a program that all processes run together: with its text the first time, later with nothing.
together: list[Callable[[str], None]] = []


def parse(text: str) -> Any:
    """The text as a module object, the only form in which jaxlib takes callbacks."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo  # type: ignore[import-not-found]

    context: Any = ir.Context()
    dialects: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(context)
    return ir.Module.parse(text, context)


_next_call = itertools.count(1).__next__
_left = accounting.left


def result_bytes(types: Sequence[ArrayType]) -> int:
    """About how much memory results take."""
    return sum(t.size * t.dtype.itemsize for t in types)


def run(execute: Callable[..., Any], buffers: list[Any], wait: bool) -> Any:
    """One call of compiled code. ``wait``: it calls back, and what a callback raises shows only when waited for."""
    try:
        if not wait:
            return execute(buffers)
        results = execute(buffers, True)
        results.consume_token().block_until_ready()
        return results
    except Exception as error:
        raised = take_error()
        if raised is not None and not isinstance(raised, Exception):
            raise raised from None  # Ctrl-C, or the end of the program
        if raised is not None:
            what = "xla: a callback of the compiled program failed"
            raise ExecutionError(what, got=f"{type(raised).__name__}: {raised}") from raised
        raise ExecutionError("xla: the compiled program failed", got=str(error)[:2000]) from None


def _given_away(
    args: Sequence[DeviceArray], buffers: list[Any], donate: Sequence[int], copied: Callable[[int], Any]
) -> None:
    """Put copies among ``buffers`` for those that XLA may write over and that have another user: an array, a view."""
    for i in donate:
        array: Any = args[i]
        # The attribute's reference and `getrefcount`'s own; a raw buffer is in the list, too.
        shared = array.buffer is not None and sys.getrefcount(array.buffer) > 2
        if shared or sys.getrefcount(buffers[i]) > 3:
            buffers[i] = copied(i)


class _Compiled(Executable):
    """What can be asked of any program that XLA has compiled."""

    __slots__ = ("raw",)
    raw: Any

    @property
    def text(self) -> str:
        """The HLO after XLA's own optimization."""
        return self.raw.hlo_modules()[0].to_string()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's counts. The body of a loop counts as often as it goes round, where that is known, else once."""
        found: Any = self.raw.cost_analysis()
        return HloLoops(HloModule(self.text)).totals(dict(found[0] if isinstance(found, (list, tuple)) else found))

    def memory_analysis(self) -> Any:
        return self.raw.get_compiled_memory_stats()


@final
class XlaExecutable(_Compiled):
    """A program compiled by XLA for the host CPU.

    The fast path does no work per argument but to look for its buffer: one that is already on the device is passed as
    it is; NumPy memory is lent to XLA without a copy, and the buffer kept with the array.
    """

    __slots__ = (
        "_bytes", "_callbacks", "_collect", "_donate", "_execute", "_handlers", "_put", "out_types", "stablehlo",
    )  # fmt: skip

    def __init__(
        self,
        raw: Any,
        stablehlo: str,
        out_types: Sequence[ArrayType],
        callbacks: Sequence[Callable[..., Any]] = (),
        donate: tuple[int, ...] = (),
    ) -> None:
        c = client()
        self.raw = raw
        self.stablehlo = stablehlo
        self.out_types = tuple(out_types)
        self._callbacks = tuple(callbacks)  # the compiled code holds their addresses
        self._donate = donate
        self._handlers = [c.handler(t) for t in out_types]
        self._execute = raw.execute_sharded
        self._put = c.put
        self._collect = c.jaxlib.collect_garbage
        self._bytes = result_bytes(out_types)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        buffers: list[Any] = []
        for x in args:
            held = x.buffer
            if type(held) is not XlaBuffer:
                held = x.buffer = XlaBuffer(self._put(x.numpy(), x.type), x.type)
            buffers.append(held.raw)
        if self._donate:
            held = None
            # NumPy memory that is lent is never written over.
            _given_away(args, buffers, self._donate, lambda i: self._put(args[i].numpy(), args[i].type))
        results = run(self._execute, buffers, bool(self._callbacks))
        raws = results.consume_with_handlers(self._handlers)
        if not _next_call() % 1024:
            # jaxlib queues objects that it drops, and frees them only when asked.
            self._collect()
        _left[0] -= self._bytes
        if _left[0] < 0:
            accounting.sample(client())
        return [DeviceArray(None, t, XlaBuffer(raw, t)) for raw, t in zip(raws, self.out_types, strict=True)]


# A result of the last program over several CPU devices.
_last: list[Any] = []
_one_at_a_time = threading.Lock()


def _finish_last() -> None:
    """Wait for the last program over several CPU devices.

    Each device's part takes a thread of one pool while it waits for the others in a collective, so parts of two
    programs could keep each other's from starting, for ever.
    """
    if not _last:
        return
    raw = _last.pop()
    try:
        if waiting:
            waiting[0](raw)
        else:
            raw.block_until_ready()
    except ProcessLostError:
        raise
    except Exception:
        # Donated meanwhile, or failed: whoever looks at the results will see that.
        return


@final
class PlacedExecutable(_Compiled):
    """A program compiled by XLA for given devices: one, or several that each run a part of it.

    Attributes:
        input_shardings, output_shardings: where arguments have to be and results are; what was left open at
            compilation is what the compiler chose.
    """

    __slots__ = (
        "_bytes",
        "_callbacks",
        "_client",
        "_donate",
        "_execute",
        "_handlers",
        "_said",
        "_several",
        "_shared",
        "_smallest",
        "input_shardings",
        "out_types",
        "output_shardings",
        "placement",
        "stablehlo",
    )  # fmt: skip

    def __init__(
        self,
        raw: Any,
        stablehlo: str,
        in_types: Sequence[ArrayType],
        out_types: Sequence[ArrayType],
        placement: ProgramPlacement,
        c: Client,
        callbacks: Sequence[Callable[..., Any]] = (),
        donate: tuple[int, ...] = (),
    ) -> None:
        self.raw = raw
        self.stablehlo = stablehlo
        self.placement = placement
        self._donate = donate
        self.out_types = tuple(out_types)
        self._client = c
        self._callbacks = tuple(callbacks)  # the compiled code holds their addresses
        self._several = len(placement.devices) > 1
        self._shared = len({d.process_index for d in placement.devices}) > 1
        self._said = False
        ins: list[Any] = raw.get_parameter_shardings() or [] if None in placement.ins and self._several else []
        outs: list[Any] = raw.get_output_shardings() or [] if None in placement.outs and self._several else []
        self.input_shardings = self._answers(placement.ins, ins, in_types)
        self.output_shardings = self._answers(placement.outs, outs, out_types)
        self._handlers = [c.place_handler(t, s) for t, s in zip(out_types, self.output_shardings, strict=True)]
        self._execute = raw.execute_sharded
        self._bytes = result_bytes(out_types)
        self._smallest = min(range(len(out_types)), key=lambda i: out_types[i].size, default=0)

    def _answers(
        self, wanted: Sequence[Sharding | None], found: list[Any], types: Sequence[ArrayType]
    ) -> tuple[Sharding, ...]:
        if not self._several:
            return (SingleDeviceSharding(self.placement.devices[0]),) * len(types)
        mesh = self.placement.mesh
        if found and len(found) != len(types):  # XLA says it once where all are alike
            found = found * len(types)
        return tuple(
            s if s is not None else sharding_of(self._client.xla_client, a, mesh, len(t.shape))
            for s, a, t in zip(wanted, found or [None] * len(types), types, strict=True)
        )

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        buffers: list[Any] = []
        for x, s in zip(args, self.input_shardings, strict=True):
            held = x.buffer
            if x.place is None or held is None or (x.place is not s and x.place != s):
                held = moved(self._client, x, s)
            buffers.append(held.raw)  # pyright: ignore[reportAttributeAccessIssue]
        held = None
        if self._several and self._client.platform == "cpu":
            with _one_at_a_time:
                _finish_last()
                self._apart(args, buffers)
                if self._shared and together:
                    together[0]("" if self._said else self.stablehlo)
                    self._said = True
                raws = run(self._execute, buffers, bool(self._callbacks)).consume_with_handlers(self._handlers)
                _last[:] = raws[self._smallest : self._smallest + 1]
        else:
            self._apart(args, buffers)
            raws = run(self._execute, buffers, bool(self._callbacks)).consume_with_handlers(self._handlers)
        if not _next_call() % 1024:
            self._client.jaxlib.collect_garbage()
        _left[0] -= self._bytes
        if _left[0] < 0 and self._client.platform == "cpu":
            accounting.sample(self._client)
        made = zip(raws, self.out_types, self.output_shardings, strict=True)
        return [DeviceArray(None, t, self._buffer(raw, t, s), s) for raw, t, s in made]

    def _apart(self, args: Sequence[DeviceArray], buffers: list[Any]) -> None:
        def copied(i: int) -> Any:
            return self._client.copied(buffers[i], self.input_shardings[i], args[i].ndim, always=True)

        if self._donate:
            _given_away(args, buffers, self._donate, copied)

    def _buffer(self, raw: Any, type: ArrayType, sharding: Sharding) -> XlaBuffer | ShardedBuffer:
        if sharding.num_devices == 1:
            return XlaBuffer(raw, type)
        return ShardedBuffer(raw, type, sharding, self._client)


# --- moving arrays ---


def moved(c: Client, x: DeviceArray, sharding: Sharding) -> XlaBuffer | ShardedBuffer:
    """The elements of ``x`` where ``sharding`` says; buffers that are there already are shared.

    From device to device where it can be: block by block if the cut stays, else by a compiled identity; the host's own
    memory is the way between CPU devices of one process, and from elsewhere.
    """
    t, held = x.type, x.buffer
    ndim = len(t.shape)
    raw = getattr(held, "raw", None)
    if raw is not None:
        old = _default(c) if x.place is None else x.place
        same_client = isinstance(held, (XlaBuffer, ShardedBuffer)) and _at(c, old)
        same_number = same_client and old.num_devices == sharding.num_devices
        if same_number and _alike(old, sharding, ndim):
            if old.device_set == sharding.device_set:
                return _held(c, raw, t, sharding)
            return _held(c, c.copied(raw, sharding, ndim), t, sharding)
        on_host = old.is_fully_addressable and c.platform == "cpu"
        if same_client and not on_host and old.device_set == sharding.device_set:
            return _resharded(c, x, old, sharding)
    data = x.numpy()
    here = sharding.addressable_devices_indices_map(t.shape).values()
    blocks = [np.asarray(data[index], order="C") for index in here]
    return _held(c, c.put_blocks(blocks, t, sharding), t, sharding)


def _alike(a: Sharding, b: Sharding, ndim: int) -> bool:
    """Whether the n-th device of both has the same block."""
    return a.tiles(ndim) == b.tiles(ndim) and np.array_equal(_blocks(a, ndim), _blocks(b, ndim))


def _blocks(sharding: Sharding, ndim: int) -> Any:
    """Which block each device has, devices in order."""
    order = np.argsort([d.id for d in sharding.device_list])
    return sharding.blocks(ndim)[order]


def _default(c: Client) -> Sharding:
    return SingleDeviceSharding(default().devices()[0])


def _at(c: Client, sharding: Sharding) -> bool:
    return all(d.platform == c.platform for d in sharding.device_list)


def _held(c: Client, raw: Any, type: ArrayType, sharding: Sharding) -> XlaBuffer | ShardedBuffer:
    return XlaBuffer(raw, type) if sharding.num_devices == 1 else ShardedBuffer(raw, type, sharding, c)


_identities: dict[Any, Callable[[list[DeviceArray]], Any]] = {}


def _resharded(c: Client, x: DeviceArray, old: Sharding, new: Sharding) -> XlaBuffer | ShardedBuffer:
    """By a compiled program that does nothing but move."""
    key = (x.type, old, new)
    found = _identities.get(key)
    if found is None:
        from nxjax.backends.xla.backend import compile_placed

        v = Var(x.type)
        placement = ProgramPlacement(old.device_list, (old,), (new,))
        found = _identities[key] = compile_placed(c, Program([v], [], (v,), name="reshard"), (), placement)
    moved_there: Any = found([x])[0].buffer
    return moved_there
