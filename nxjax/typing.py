"""Types for annotations, as `jax.typing`: what is accepted where an array, a dtype, a shape or a tree is asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from nxjax.trace.core import Array

ArrayLike: TypeAlias = Array | np.ndarray[Any, np.dtype[Any]] | np.generic | bool | int | float | complex
# A scalar type (`nx.float32`) is a `type`.
DTypeLike: TypeAlias = str | type | np.dtype[Any]
Shape: TypeAlias = Sequence[int]
# Any nesting of tuples, lists, dicts and registered nodes, with arrays or other values as leaves.
PyTree: TypeAlias = Any

if TYPE_CHECKING:

    class UnaryUfunc(Protocol):
        """A function of one array with a ufunc's methods: `nx.numpy.negative`."""

        nin: int
        nout: int
        nargs: int
        identity: Any
        __name__: str

        def __call__(self, x: ArrayLike, /, *, out: None = None, where: None = None) -> Array: ...
        def at(self, a: ArrayLike, indices: Any, b: None = None, /, *, inplace: bool = True) -> Array: ...

    class BinaryUfunc(Protocol):
        """A function of two arrays with a ufunc's methods, such as `nx.add`."""

        nin: int
        nout: int
        nargs: int
        identity: Any
        __name__: str

        def __call__(self, x: ArrayLike, y: ArrayLike, /) -> Array: ...
        def reduce(
            self,
            a: ArrayLike,
            axis: int | None = 0,
            dtype: DTypeLike | None = None,
            out: None = None,
            keepdims: bool = False,
            initial: ArrayLike | None = None,
            where: ArrayLike | None = None,
        ) -> Array: ...
        def accumulate(
            self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
        ) -> Array: ...
        def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array: ...
        def at(self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, /, *, inplace: bool = True) -> Array: ...
        def reduceat(
            self, a: ArrayLike, indices: Any, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
        ) -> Array: ...


__all__ = ["ArrayLike", "DTypeLike", "PyTree", "Shape"]
