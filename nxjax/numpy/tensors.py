"""`nx.Tensor`: another name for arrays, for programs that build and test them under this one."""

from __future__ import annotations

from typing import Any, final

from nxjax import numpy as jnp
from nxjax.trace.annotations import ArrayLike, DeviceLike, DTypeLike
from nxjax.trace.core import Array


class _TensorType(type):
    """Calling the class makes an array; every array is an instance of it."""

    def __call__(cls, data: ArrayLike, dtype: DTypeLike | None = None, *, device: DeviceLike = None) -> Array:
        return jnp.array(data, dtype=dtype, device=device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Array)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Array)


@final
class Tensor(Array, metaclass=_TensorType):
    """An array from nested lists, a NumPy array or another array: `nx.array` on ``device``.

    Raises:
        ExecutionError: the device is not here; the message says why.

    >>> t = nx.Tensor([[1, 2], [3, 4]])
    >>> isinstance(t, nx.Tensor), isinstance(t, nx.Array), t.shape
    (True, True, (2, 2))
    """

    __slots__ = ()
