"""What runs when nothing is being traced: an op on arrays, or a whole compiled program.

`execute` is the hook of the outermost trace, `Dispatcher` the compiler of `jit`; both are installed by the package's
``__init__``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final
from weakref import WeakValueDictionary

import numpy as np

from nxjax.backends import placing, registry
from nxjax.backends.base import Backend, Executable, ProgramPlacement
from nxjax.backends.quiet import quiet
from nxjax.config import config, current_settings
from nxjax.config.forks import fork_lock
from nxjax.trace.array import LARGE, DeviceArray, place_of
from nxjax.trace.core import Op, Tracer, escaped_tracer_error
from nxjax.trace.program import Program, check_sizes
from nxjax.trace.sharding import Sharding, SingleDeviceSharding


def execute(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """One op, now: by its NumPy meaning, or compiled as a whole if it holds programs."""
    if op.nested:
        for x in args:
            if isinstance(x, Tracer):
                raise escaped_tracer_error(x, op.name)
        return _nested(op, args, params)
    for x in args:
        if type(x) is not DeviceArray or x.place is not None:
            return placing.execute(compiler, op, args, params)
    types = [x.type for x in args]
    out = op.infer(*types, **params)
    if current_settings().reproducible:
        from nxjax.lower.reproducible import by_numpy

        if not by_numpy(op, [t.dtype for t in (*types, *(out if op.multi else (out,)))]):
            return _alone(op, args, params)
    if op.host_only and (config.executor == "cpu" or registry.default().name == "cpu"):
        return _alone(op, args, params)  # LAPACK's vectors, as under `jit`: which of equal ones are taken is free
    xs = [x.numpy() if x._data is None else x._data for x in args]
    if not op.multi and max([x.size for x in xs], default=0) >= LARGE:
        from nxjax.backends import eager_kernels

        if eager_kernels.applies(op, types) and (y := eager_kernels.run(op, args, params, out)) is not None:
            return y
    with quiet():
        y = op.eval(*xs, **params)
    if op.multi:
        return tuple([DeviceArray(np.asarray(v), t) for v, t in zip(y, out, strict=True)])
    # NumPy gives scalars where it could give arrays without dimensions.
    return DeviceArray(y if type(y) is np.ndarray else np.asarray(y), out)


# Executables of single ops, where NumPy may not compute them: by op, types and parameters.
_alone_known: Final[dict[Any, Executable]] = {}
_MOST: Final = 4096


def _alone(op: Op, args: Sequence[DeviceArray], params: dict[str, Any]) -> Any:
    """One op as a program of its own."""
    try:
        key = (op, tuple([x.type for x in args]), placing.hashable(params), current_settings().executor, _code())
        known = _alone_known.get(key)
    except TypeError:  # a parameter that cannot be hashed
        key, known = None, None
    if known is None:
        known = compiler.compile(placing.one_equation(op, args, params))
        if key is not None:
            if len(_alone_known) >= _MOST:
                _alone_known.clear()
            _alone_known[key] = known
    results = known(args)
    return tuple(results) if op.multi else results[0]


def _nested(op: Op, args: Sequence[DeviceArray], params: dict[str, Any]) -> tuple[DeviceArray, ...]:
    found = op.called(*args, **params) if op.plain_call else None
    program, args = found or (placing.one_equation(op, args, params), args)
    if found is None and not compiler.has(program):
        from nxjax.backends.numbers import with_arguments

        program, numbers = with_arguments(program)
        args = (*numbers, *args)
    return tuple(compiler.call(program, args))


def _check_promise(program: Program, backend: Backend) -> None:
    """Raise where the same bits everywhere cannot be promised."""
    from nxjax.lower.reproducible import check_program, refused

    if not backend.reproducible:
        raise refused(backend.name)
    check_program(program)


def _code() -> Any:
    """The settings that an executable is made for."""
    settings = current_settings()
    return settings.cpu_isa, settings.fast_calls, settings.reproducible


# Executables that are kept for programs that come again, without one that holds them: a function is made anew, and
# jitted, in each turn of a loop.
_RECENT: Final = 256


@final
class Dispatcher:
    """Compiles on the backend of a device; executables are kept with their program and, by content, across programs."""

    def __init__(self) -> None:
        self._by_content: WeakValueDictionary[Any, Executable] = WeakValueDictionary()
        self._recent: dict[Any, Executable] = {}
        self._lock = fork_lock()  # threads compile at once, and the oldest is found by iterating

    def compile(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> Executable:
        backend = registry.for_device(device)
        return program.derive(
            ("executable", backend.name, _code(), donate), lambda: self._by_fingerprint(program, backend, donate)
        )

    def _by_fingerprint(self, program: Program, backend: Any, donate: tuple[int, ...]) -> Executable:
        check_sizes(program)
        if current_settings().reproducible:
            _check_promise(program, backend)
        key = (backend.name, _code(), program.fingerprint, donate)
        return self._known(key, lambda: backend.compile(program, donate))

    def has(self, program: Program) -> bool:
        """Whether ``program`` is compiled for the default device."""
        return (registry.for_device(None).name, _code(), program.fingerprint, ()) in self._by_content

    def _known(self, key: Any, make: Callable[[], Executable]) -> Executable:
        found = self._by_content.get(key)
        if found is None:
            found = self._by_content[key] = make()
        with self._lock:
            self._recent.pop(key, None)
            self._recent[key] = found
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
        return found

    def lower(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> str:
        return registry.for_device(device).lower(program, donate)

    def text(self, program: Program, dialect: str, *, device: Any = None, donate: tuple[int, ...] = ()) -> str:
        return registry.for_device(device).text(program, donate, dialect)

    # --- places ---

    def call(self, program: Program, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        """The results of ``program``, where its arguments and its own meshes say."""
        if all(type(x) is DeviceArray and x.place is None for x in args) and not placing.is_placed(program):
            return self.compile(program)(args)
        return self.placed(program, args)

    def placed(
        self,
        program: Program,
        args: Sequence[DeviceArray],
        *,
        device: Any = None,
        ins: Sequence[Sharding | None] = (),
        outs: Sequence[Sharding | None] = (),
        donate: tuple[int, ...] = (),
        names: Sequence[str] = (),
    ) -> list[DeviceArray]:
        """As `call`, with shardings that were asked for (None: not), and names of arguments for errors."""
        placement = placing.resolve(program, [*map(place_of, args)], device, ins, outs, names)
        return self.compile_placed(program, placement, donate)(args)

    def place(
        self,
        program: Program,
        shardings: Sequence[Sharding | None],
        *,
        device: Any = None,
        ins: Sequence[Sharding | None] = (),
        outs: Sequence[Sharding | None] = (),
        names: Sequence[str] = (),
    ) -> ProgramPlacement:
        """Where a program runs whose arguments lie as ``shardings`` says (None: anywhere)."""
        return placing.resolve(program, shardings, device, ins, outs, names)

    def is_placed(self, program: Program, device: Any = None) -> bool:
        """Whether a call takes place elsewhere than on the default device: because of the program, or of ``device``."""
        elsewhere = placing.is_moved() if device is None else placing.is_elsewhere(device)
        return elsewhere or placing.is_placed(program)

    def default_sharding(self) -> Sharding:
        """Where results are that were put nowhere."""
        return SingleDeviceSharding(placing.default_device())

    def compile_placed(self, program: Program, placement: ProgramPlacement, donate: tuple[int, ...] = ()) -> Executable:
        return program.derive(("placed", _code(), placement, donate), lambda: self._placed(program, placement, donate))

    def _placed(self, program: Program, placement: ProgramPlacement, donate: tuple[int, ...]) -> Executable:
        check_sizes(program)

        def make() -> Executable:
            backend = placement.devices[0].backend
            if current_settings().reproducible:
                _check_promise(program, backend)
            made = backend.compile_placed(program, donate, placement)
            return placing.at_place(made, placement)

        return self._known(("placed", _code(), program.fingerprint, placement, donate), make)

    def lower_placed(self, program: Program, placement: ProgramPlacement, donate: tuple[int, ...] = ()) -> str:
        return placement.devices[0].backend.lower_placed(program, donate, placement)

    def clear(self) -> None:
        """Forget executables that no program holds, and give back memory that is kept for later calls."""
        self._by_content.clear()
        with self._lock:
            self._recent.clear()
        for backend in registry.made():
            backend.clear()


compiler = Dispatcher()
