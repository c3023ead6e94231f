"""What runs when nothing is being traced: an op on arrays, or a whole compiled program.

`execute` is the hook of the outermost trace, `Dispatcher` the compiler of `jit`; both are installed by the package's
``__init__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.backends import registry
from nxjax.backends.base import Executable
from nxjax.backends.reference.quiet import quiet
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Op, Tracer, escaped
from nxjax.trace.program import Equation, Program, Var


def execute(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """One op, now: by its NumPy meaning, or compiled as a whole if it holds programs."""
    if op.nested:
        for x in args:
            if isinstance(x, Tracer):
                raise escaped(x, op.name)
        return _nested(op, args, params)
    types = [x.type for x in args]
    out = op.infer(*types, **params)
    xs = [x.numpy() for x in args]
    with quiet():
        y = op.eval(*xs, **params)
    if op.multi:
        return tuple([DeviceArray(np.asarray(v), t) for v, t in zip(y, out, strict=True)])
    # NumPy gives scalars where it could give arrays without dimensions.
    return DeviceArray(y if type(y) is np.ndarray else np.asarray(y), out)


def _nested(op: Op, args: Sequence[DeviceArray], params: dict[str, Any]) -> tuple[DeviceArray, ...]:
    program: Program | None = params.get("program") if op.name == "jit" else None
    if program is None:
        program = _one_equation(op, args, params)
    return tuple(compiler.compile(program)(args))


def _one_equation(op: Op, args: Sequence[DeviceArray], params: dict[str, Any]) -> Program:
    inputs = [Var(x.type) for x in args]
    outputs = tuple(Var(t) for t in op.infer(*(v.type for v in inputs), **params))
    return Program(inputs, [Equation(op, tuple(inputs), outputs, params)], outputs, name=op.name)


@final
class Dispatcher:
    """Compiles on the backend of a device; executables are kept with their program and, by content, across programs."""

    def __init__(self) -> None:
        self._by_content: dict[Any, Executable] = {}

    def compile(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> Executable:
        backend = registry.for_device(device)
        return program.derive(
            ("executable", backend.name, donate), lambda: self._by_fingerprint(program, backend, donate)
        )

    def _by_fingerprint(self, program: Program, backend: Any, donate: tuple[int, ...]) -> Executable:
        key = (backend.name, program.fingerprint, donate)
        found = self._by_content.get(key)
        if found is None:
            if len(self._by_content) >= 4096:
                self._by_content.pop(next(iter(self._by_content)))
            found = self._by_content[key] = backend.compile(program, donate)
        return found

    def lower(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> str:
        return registry.for_device(device).lower(program, donate)

    def clear(self) -> None:
        """Forget executables that no program holds."""
        self._by_content.clear()


compiler = Dispatcher()
