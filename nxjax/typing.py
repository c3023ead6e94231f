"""Types for annotations, as `jax.typing`: what is accepted where an array, a dtype, a shape or a tree is asked for."""

from typing import TYPE_CHECKING, Any, Protocol

from nxjax.ops.dimension_numbers import ConvNumbersLike, ModeLike
from nxjax.ops.dot import DotNumbersLike
from nxjax.ops.precision import PrecisionLike
from nxjax.trace.annotations import AccuracyLike, ArrayLike, DeviceLike, DTypeLike, PyTree, Shape, ShardingLike
from nxjax.trace.core import Array

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


__all__ = [
    "AccuracyLike", "ArrayLike", "ConvNumbersLike", "DTypeLike", "DeviceLike", "DotNumbersLike", "ModeLike",
    "PrecisionLike", "PyTree", "Shape", "ShardingLike",
]  # fmt: skip
