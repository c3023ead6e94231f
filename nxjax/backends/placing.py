"""Where a computation takes place: settled from its arguments, what was asked for, and the program's own meshes.

JAX's rules: what was put somewhere stays there and decides; all of it must agree on one set of devices; what was put
nowhere goes where the rest is. Knows no op and no client; backends do the moving (`Backend.put`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

import numpy as np

from nxjax.backends import registry
from nxjax.backends.base import Backend, Device, Executable, ProgramPlacement
from nxjax.backends.quiet import quiet
from nxjax.config import config
from nxjax.errors import ParameterError, ShardingError
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Op, Tracer, escaped_tracer_error
from nxjax.trace.layouts import program_layouts
from nxjax.trace.mesh import BaseMesh, Mesh, process_index
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.sharding import NamedSharding, Sharding, SingleDeviceSharding


class PlacedCompiler(Protocol):
    def compile_placed(
        self, program: Program, placement: ProgramPlacement, donate: tuple[int, ...] = ()
    ) -> Executable: ...


def sharding_of(x: DeviceArray) -> Sharding:
    """Where an array is."""
    return SingleDeviceSharding(default_device()) if x.place is None else x.place


def default_device() -> Device:
    """Where goes what was put nowhere: as `nx.default_device` says, else the first device of this process."""
    return config.default_device or first_device()


def first_device() -> Device:
    """The first device of this process."""
    here = process_index()
    return next(d for d in registry.default().devices() if d.process_index == here)


def is_placed(program: Program) -> bool:
    """Whether a program names devices itself: a constraint or a `shard_map` over a mesh with devices."""
    return any(isinstance(x.mesh if isinstance(x, NamedSharding) else x, Mesh) for x in program_layouts(program))


def device_of(x: Any, where: str) -> Device:
    """One device: a `Device`, `nx.Device`, or the first of a platform.

    Raises:
        ParameterError: something else, or nothing here is of that platform.
    """
    place = getattr(x, "device", x)
    if isinstance(place, Device):
        return place
    if not isinstance(place, str):
        raise ParameterError(f"{where}: not a device", got=repr(x)[:60], expected="one of nx.devices()")
    found = registry.for_device(place).devices()
    if not found:
        raise ParameterError(f"{where}: nothing here runs on {place!r}", got=registry.for_device(place).available()[1])
    return found[0]


def is_elsewhere(device: Any) -> bool:
    """Whether ``device`` names a device of a backend with several, other than the default one."""
    place = getattr(device, "device", device)
    if not isinstance(place, Device):
        place = next(iter(registry.for_device(place).devices()), None)
    return place is not None and place.backend.places and place != first_device()


def is_moved() -> bool:
    """Whether `nx.default_device` names another device than the first."""
    return config.default_device is not None and config.default_device != first_device()


# --- deciding ---


def resolve(
    program: Program,
    given: Sequence[Sharding | None],
    device: Any = None,
    ins: Sequence[Sharding | None] = (),
    outs: Sequence[Sharding | None] = (),
    names: Sequence[str] = (),
) -> ProgramPlacement:
    """The devices and shardings of a call.

    Args:
        given: where each argument was put, or None.
        device: the ``device`` that `jit` was given.
        ins, outs: shardings that were asked for; None or left out: not.
        names: of the arguments, for errors.

    Raises:
        ShardingError: they do not agree on one set of devices, or a shape cannot be cut.
    """
    types = program.in_types
    ins = tuple(ins) or (None,) * len(types)
    outs = tuple(outs) or (None,) * len(program.outputs)
    if device is not None:
        place = SingleDeviceSharding(device_of(device, "jit"))
        return ProgramPlacement((place.device,), (place,) * len(types), (place,) * len(program.outputs))
    for i, (s, t) in enumerate(zip(ins, types, strict=True)):
        if s is not None:
            s.check(t.shape, f"jit: in_shardings of {_name(names, i)}")
    for i, (s, t) in enumerate(zip(outs, program.out_types, strict=True)):
        if s is not None:
            s.check(t.shape, f"jit: out_shardings of result {i}")
    devices, first = _devices(program, given, ins, outs, names)
    settled: list[Sharding | None] = []
    for i, (asked, there, t) in enumerate(zip(ins, given, types, strict=True)):
        if there is not None and set(there.device_list) != set(devices):
            raise ShardingError(
                "jit: arguments are on different devices",
                got=f"{_name(names, i)} on {_where(there)}, {first}",
                expected="one set of devices for all arguments that were put somewhere",
                fix="nx.device_put(x, sharding) moves an array; in_shardings alone do not",
            )
        if asked is not None and there is not None and not there.is_equivalent_to(asked, len(t.shape)):
            raise ShardingError(
                f"jit: {_name(names, i)} was put elsewhere than in_shardings says",
                got=f"{there} for shape {t.shape}",
                expected=asked,
                fix="nx.device_put(x, sharding) first, or leave its entry of in_shardings None",
            )
        settled.append(asked if asked is not None else there)
    if len(devices) == 1:
        only = SingleDeviceSharding(devices[0])
        return ProgramPlacement(devices, (only,) * len(types), (only,) * len(program.outputs))
    over = _own_mesh(program, devices) or Mesh(list(devices), ("devices",))
    copies = NamedSharding(over, PartitionSpec())
    # An array of another kind of sharding (one device of one) has to be said as a named one.
    ready = [s if s is None or isinstance(s, NamedSharding) else copies for s in settled]
    # Small things that were put nowhere are copied; the compiler chooses for the rest.
    ready = [copies if s is None and not t.shape else s for s, t in zip(ready, types, strict=True)]
    return ProgramPlacement(devices, ready, outs, over)


def _own_mesh(program: Program, devices: Sequence[Device]) -> Mesh | None:
    """The mesh over these devices that the program itself names first."""
    meshes = (x.mesh if isinstance(x, NamedSharding) else x for x in program_layouts(program))
    return next((m for m in meshes if isinstance(m, Mesh) and set(m.device_list) == set(devices)), None)


def _name(names: Sequence[str], i: int) -> str:
    return f"argument {names[i]}" if i < len(names) else f"argument {i}"


def _where(s: Sharding) -> str:
    devices = list(map(str, s.device_list))
    return f"{len(devices)} devices {devices[0]}..{devices[-1]}" if len(devices) > 4 else ", ".join(devices)


def _devices(
    program: Program,
    given: Sequence[Sharding | None],
    ins: Sequence[Sharding | None],
    outs: Sequence[Sharding | None],
    names: Sequence[str],
) -> tuple[tuple[Device, ...], str]:
    """The devices, in the order of whoever named them first: in_shardings, arguments, the program, out_shardings."""
    for what, shardings in (("in_shardings", ins), ("", given)):
        for i, s in enumerate(shardings):
            if s is not None:
                said = f"in_shardings of {_name(names, i)}" if what else _name(names, i)
                return s.device_list, f"{said} on {_where(s)}"
    from nxjax.lower.stablehlo.sharding import partitioning

    part = partitioning(program, (), outs)
    if part.devices is not None:
        return tuple(part.devices), "the program's own mesh"
    if part.size > 1 or any(isinstance(x, BaseMesh) for x in program_layouts(program)):
        if part.size > len(registry.default().devices()):
            raise ShardingError(
                "jit: the program is for more devices than there are",
                got=f"a mesh of {part.size} devices without devices of its own",
                expected=f"at most {len(registry.default().devices())}",
                fix="nx.config.update('num_cpu_devices', n) before the first use, or a Mesh over nx.devices()",
            )
        return tuple(registry.default().devices()[: part.size]), "the program's own mesh"
    return (default_device(),), "the default device"


# --- doing ---


def put(x: DeviceArray, sharding: Sharding) -> DeviceArray:
    """``x`` where ``sharding`` says. What is there already is shared, not copied.

    Raises:
        ShardingError: its shape cannot be cut so.
    """
    if x.place == sharding:
        return x
    sharding.check(x.type.shape, "device_put")
    buffer = backend_of(sharding).put(x, sharding)
    return DeviceArray(x.numpy() if buffer is None else None, x.type, buffer, sharding)


def backend_of(sharding: Sharding) -> Backend:
    """Who drives the devices of a sharding.

    Raises:
        ShardingError: they are of several platforms.
    """
    devices = sharding.device_list
    backend = devices[0].backend
    if any(d.backend is not backend for d in devices):
        raise ShardingError("sharding: its devices are of several platforms", got=", ".join(map(str, devices)))
    return backend


@final
class CommittedExecutable(Executable):
    """An executable that knows one place, with its results put there by name."""

    __slots__ = ("input_shardings", "made", "output_shardings")

    def __init__(self, made: Executable, placement: ProgramPlacement) -> None:
        self.made = made
        only = SingleDeviceSharding(placement.devices[0])
        self.input_shardings = (only,) * len(placement.ins)
        self.output_shardings = (only,) * len(placement.outs)

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        out = zip(self.made(args), self.output_shardings, strict=True)
        return [DeviceArray(y._data, y.type, y.buffer, s) for y, s in out]

    @property
    def text(self) -> str:
        return self.made.text

    def cost_analysis(self) -> dict[str, float]:
        return self.made.cost_analysis()

    def memory_analysis(self) -> Any:
        return self.made.memory_analysis()


def at_place(made: Executable, placement: ProgramPlacement) -> Executable:
    """``made``, with results that say where they are."""
    return made if made.output_shardings or not placement.outs else CommittedExecutable(made, placement)


# Executables of single ops, by op, types, places and parameters.
_eager: dict[Any, Executable] = {}


def hashable(params: dict[str, Any]) -> tuple[Any, ...]:
    """Parameters as a key."""
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return tuple([(k, type(v), repr(v) if type(v) is float else v) for k, v in params.items()])


def execute(compiler: PlacedCompiler, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """One op on arrays that were put somewhere: in NumPy on one CPU device, compiled for all others."""
    from nxjax.lower.reproducible import by_numpy

    for x in args:
        if isinstance(x, Tracer):
            raise escaped_tracer_error(x, op.name)
    found = {x.place for x in args if x.place is not None}
    alone = next(iter(found)) if len(found) == 1 else None
    one_cpu = isinstance(alone, SingleDeviceSharding) and alone.device.platform == "cpu" and alone.is_fully_addressable
    if one_cpu or (alone is not None and op.has("host")):  # Python called eagerly takes what is on the host
        types = [x.type for x in args]
        out = op.infer(*types, **params)
        if not config.reproducible or by_numpy(op, [t.dtype for t in (*types, *(out if op.multi else (out,)))]):
            with quiet():
                y = op.eval(*[x.numpy() for x in args], **params)
            pairs = zip(y, out, strict=True) if op.multi else ((y, out),)
            made = tuple(DeviceArray(np.asarray(v), t, None, alone if one_cpu else None) for v, t in pairs)
            return made if op.multi else made[0]
    where, how = tuple([x.place for x in args]), (config.reproducible, config.cpu_isa)
    key = (op, tuple([x.type for x in args]), where, hashable(params), how)
    try:
        known = _eager.get(key)
    except TypeError:  # a parameter that cannot be hashed
        key, known = None, None
    if known is None:
        program = one_equation(op, args, params)
        placement = resolve(program, where, names=[f"{i} of {op.name}" for i in range(len(args))])
        known = compiler.compile_placed(program, placement)
        if key is not None:
            if len(_eager) >= 4096:
                _eager.clear()
            _eager[key] = known
    results = known(args)
    return tuple(results) if op.multi else results[0]


def one_equation(op: Op, args: Sequence[DeviceArray], params: dict[str, Any]) -> Program:
    inputs = [Var(x.type) for x in args]
    out = op.infer(*(v.type for v in inputs), **params)
    outputs = tuple(Var(t) for t in (out if op.multi else (out,)))
    return Program(inputs, [Equation(op, tuple(inputs), outputs, params)], outputs, name=op.name)
