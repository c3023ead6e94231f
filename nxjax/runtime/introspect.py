"""`jax`'s functions that look at values and the process: types, live arrays, versions, and waiting for effects."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

from nxjax import runtime
from nxjax.commands import info
from nxjax.errors import DtypeError
from nxjax.trace import tree
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import DeviceArray, type_of
from nxjax.trace.boundary import entry
from nxjax.trace.types import ArrayType
from nxjax.transforms.grad import vjp
from nxjax.transforms.jit import jit


def typeof(x: ArrayLike) -> ArrayType:
    """The type of an array, a tracer or a number: its shape, dtype, weakness and varying axes.

    Raises:
        DtypeError: ``x`` is none.

    >>> import numpy as np
    >>> typeof(np.zeros((2, 3), np.int8)), typeof(1.0)
    (i8[2,3], f32[]*)
    """
    if isinstance(x, ArrayType):
        raise DtypeError("typeof: already a type", got=x)
    return type_of(x, "typeof")


@entry
def live_arrays(platform: str | None = None) -> list[DeviceArray]:
    """The live arrays of the process, from the garbage collector's lists; of ``platform``, or of all.

    >>> x = [nx.numpy.ones(3)]
    >>> any(y is x[0] for y in live_arrays())
    True
    """
    found: dict[int, DeviceArray] = {}
    for holder in gc.get_objects():
        inside = holder.values() if type(holder) is dict else holder if type(holder) in (list, tuple, set) else ()
        try:
            found.update((id(x), x) for x in inside if isinstance(x, DeviceArray))
        except RuntimeError:  # changed by another thread meanwhile
            continue
    arrays = list(found.values())
    places = lambda x: {d.platform for d in x.sharding.device_set}
    return arrays if platform is None else [x for x in arrays if places(x) == {platform}]


def copy_to_host_async(x: ArrayLike) -> None:
    """Start to copy the arrays of a pytree to the host. They are there already, or are copied on first use.

    >>> copy_to_host_async([nx.numpy.ones(2)])
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, DeviceArray):
            leaf.numpy()


def effects_barrier() -> None:
    """Wait until prints and callbacks of all calls have run. They have run when a call returns.

    >>> effects_barrier()
    """


def host_id(backend: str | None = None) -> int:
    """The old name of `process_index`.

    >>> host_id()
    0
    """
    return runtime.process_index(backend)


def host_count(backend: str | None = None) -> int:
    """The old name of `process_count`.

    >>> host_count()
    1
    """
    return runtime.process_count(backend)


def host_ids(backend: str | None = None) -> list[int]:
    """The old name of `process_indices`.

    >>> host_ids()
    [0]
    """
    return runtime.process_indices(backend)


@entry
def print_environment_info(return_string: bool = False) -> str | None:
    """Print what is installed and what can run here, as ``nxjax info --all`` does.

    Args:
        return_string: return the text instead of printing it.

    >>> "numpy" in print_environment_info(return_string=True).lower()
    True
    """
    text = info.text()
    if return_string:
        return text
    print(text)
    return None


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`vjp` as two functions, each compiled once: ``fwd(*args) -> (y, residuals)``, ``bwd(residuals, ct) -> cts``.

    Args:
        fun: function of arrays.
        argnums: the arguments that ``bwd`` returns cotangents of, a tuple.
        has_aux: ``fun`` returns ``(y, aux)``, and ``fwd`` returns ``(y, residuals, aux)``.
        jitted: compile both.

    The residuals are the arguments. ``bwd`` recomputes what it needs of the function.

    >>> fwd, bwd = fwd_and_bwd(lambda x, w: x * w, argnums=(0, 1))
    >>> y, residuals = fwd(2.0, 3.0)
    >>> [float(ct) for ct in bwd(residuals, 1.0)]
    [3.0, 2.0]
    """
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def fwd(*args: Any) -> Any:
        found = fun(*args)
        return (found[0], args, found[1]) if has_aux else (found, args)

    def bwd(residuals: Any, ct: Any) -> Any:
        def of(*varied: Any) -> Any:
            given = dict(enumerate(residuals)) | dict(zip(wanted, varied, strict=True))
            return fun(*given.values())

        return vjp(of, *(residuals[i] for i in wanted), has_aux=has_aux)[1](ct)

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)


__all__ = [
    "copy_to_host_async", "effects_barrier", "fwd_and_bwd", "host_count", "host_id", "host_ids", "live_arrays",
    "print_environment_info", "typeof",
]  # fmt: skip
