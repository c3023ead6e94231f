"""Compiled code that calls a Python function: the custom call, and the error that the function raised.

Knows no op: `rows` says which ops call back. jaxlib passes NumPy views to the function and takes NumPy arrays from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.backends.xla.client import physical
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
Host = Callable[..., Sequence[NDArray]]

# The last error of each callback run, for the call that fails because of it.
_errors: list[BaseException] = []


def take_error() -> BaseException | None:
    """The error that made the last call fail, if a callback raised it."""
    found = _errors[-1] if _errors else None
    _errors.clear()
    return found


def emit_callback(b: Any, host: Host, xs: Sequence[Any], out: tuple[ArrayType, ...]) -> tuple[Any, ...]:
    """Call ``host`` with the values of ``xs``; it gives one array per type in ``out``.

    The call is never dropped or merged with another one. In a program over several devices the first one calls, with
    whole arrays, and the results go where they are needed; inside `shard_map` each device calls with its own.
    """
    in_types = tuple(x.type for x in xs)

    def call(*arrays: Any) -> tuple[NDArray, ...]:
        try:
            results = host(*(_inward(np.asarray(a), t) for a, t in zip(arrays, in_types, strict=True)))
            return tuple(_outward(np.asarray(y), t) for y, t in zip(results, out, strict=True))
        except BaseException as error:
            _errors.append(error)
            raise

    b.module.callbacks.append(call)
    index = len(b.module.callbacks) - 1
    attrs = (
        'call_target_name = "xla_ffi_python_cpu_callback", has_side_effect = true, api_version = 4 : i32, '
        f"backend_config = {{index = {index} : ui64}}"
    )
    if b.module.partitioning.size > 1 and b.manual is None:
        attrs = f"{attrs}, {b.module.partitioning.on_first(len(out))}"
    return b.op("stablehlo.custom_call", xs, out, attrs)


def _inward(data: NDArray, type: ArrayType) -> NDArray:
    # The view is on memory that XLA takes back after the call.
    data = data.copy()
    return data.view(dtypes.key).reshape(type.shape) if type.dtype == dtypes.key else data


def _outward(data: NDArray, type: ArrayType) -> NDArray:
    shape, dtype = physical(type)
    data = np.asarray(data, order="C")
    return data.view(dtype).reshape(shape) if type.dtype == dtypes.key else data
