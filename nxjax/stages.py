"""`jax.stages`: the types of `jit(f)`, ``.trace()``, ``.lower()`` and ``.compile()``, for annotations."""

from typing import Any, NamedTuple, TypeAlias

from nxjax.trace.types import ArrayType
from nxjax.transforms.jit import Jitted as Wrapped
from nxjax.transforms.jit_stages import Compiled, Lowered, Traced

CompilerOptions: TypeAlias = dict[str, str | bool]


class ArgInfo(NamedTuple):
    """An argument of a staged function: its type, and whether it is donated.

    >>> ArgInfo(nx.typeof(nx.ones((2, 3))), donated=False).shape
    (2, 3)
    """

    aval: ArrayType
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype


__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
