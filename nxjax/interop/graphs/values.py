"""What a graph of another format holds while it is walked: values that are known, values that are traced, refusals.

Knows no format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax import custom_jvp, jvp, lax
from nxjax import numpy as jnp
from nxjax.errors import InvalidFileError, LoweringError, MemoryLimitError, NxError, ProgramError
from nxjax.interop.graphs.mapped import held
from nxjax.runtime import ensure_compile_time_eval
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.trace.scope import named_scope


class NeedsValue(LoweringError):
    """A value decides shapes or which nodes run, and it is traced."""


class Refused(LoweringError):
    """An operator, or a use of one, that no rule covers."""


@final
@dataclass(frozen=True)
class ValueInfo:
    """An input or a result: its name, dtype (None where it is no array or unknown) and dimensions, if declared."""

    name: str
    dtype: Any
    dims: tuple[int | str, ...] | None
    is_array: bool = True

    def __str__(self) -> str:
        dims = "" if self.dims is None else f"[{','.join(map(str, self.dims))}]"
        return f"{self.name}: {'any' if self.dtype is None else np.dtype(self.dtype).name}{dims}"


def concrete(x: Any) -> bool:
    """Whether a value is known while the graph is walked."""
    if isinstance(x, (list, tuple)):
        return all(map(concrete, x))
    return not isinstance(x, Array) or isinstance(x, DeviceArray)


def as_numpy(x: Any) -> Any:
    """The elements of a known value."""
    if isinstance(x, DeviceArray):
        return x.numpy()
    return [as_numpy(v) for v in x] if isinstance(x, (list, tuple)) else x


def value(x: Any) -> Any:
    """An array of a file as a value: strings stay NumPy arrays of objects."""
    if not isinstance(x, np.ndarray) or x.dtype == object:
        return x
    if x.dtype not in dtypes.NUMERIC:
        raise Refused("arrays cannot have this element type", got=x.dtype)
    return held(x)


def constant(x: Any) -> Any:
    """What a caller gives for good: an array, or a list of them."""
    if isinstance(x, (list, tuple)) and any(isinstance(v, (list, tuple, np.ndarray, Array)) for v in x):
        return [constant(v) for v in x]
    return x if isinstance(x, Array) or x is None else value(np.asarray(x))


def applied(
    door: str, kind: str, node: object, name: str, xs: Sequence[Any], rule: Callable[[], Any]
) -> tuple[Any, ...]:
    """The results of a rule for one operator; its errors name the operator, its node and its operands.

    Equations have ``name``, that of the node, as their scope. What depends on no argument is computed at once.
    """
    try:
        if all(map(concrete, xs)):
            with ensure_compile_time_eval():
                out = rule()
        else:
            with named_scope(name.strip("/")):
                out = rule()
    except (NeedsValue, Refused, InvalidFileError):
        raise
    except NxError as error:
        told = f"{door}: {_shown(node, xs)}: {error.what}"
        raise type(error)(told, got=error.got, expected=error.expected) from error
    except MemoryError as error:
        raise MemoryLimitError(f"{door}: {_shown(node, xs)}: more memory than there is", got=error) from error
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
        raise ProgramError(
            f"{door}: {kind} is not well formed", got=f"{_shown(node, xs)}: {type(error).__name__}: {error}"
        ) from error
    return out if isinstance(out, tuple) else (out,)


def _shown(node: object, xs: Sequence[Any]) -> str:
    types = ", ".join(str(x.type) if isinstance(x, Array) else type(x).__name__ for x in xs)
    return f"{node}({types})"


def bounded(x: Any, low: float, high: float) -> Any:
    """Floats within two bounds; the derivative on a bound is 0, as that of ReLU6 and of its relatives is."""
    return lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype))


def straight_through(exact: Callable[..., Any], smooth: Callable[..., Any], *xs: Any) -> Any:
    """``exact(*xs)`` with the derivative of ``smooth``."""
    run = custom_jvp(exact)

    def rule(primals: Any, tangents: Any) -> Any:
        return run(*primals), jvp(smooth, primals, tangents)[1]

    run.defjvp(rule)
    return run(*xs)
