"""`jax.experimental.sparse`: matrices that keep the elements that are not zero. `BCOO` alone, without batch dimensions.

Everything is a function of the kept elements, so `jit`, `grad` and `vmap` work on them; the places are constants to
derivatives. Knows dense arrays; no op here is special to any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.trace.core import Array
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.tree_util import register_pytree_node_class

__all__ = ["BCOO", "bcoo_fromdense", "bcoo_todense", "todense"]
__getattr__ = _refusing(__name__)


@final
@register_pytree_node_class
class BCOO:
    """An array as a list of its elements: ``data[k]`` lies at ``indices[k]``; equal places are added.

    Args:
        args: ``(data, indices)``: the elements, ``[nse]``, and their places, ``[nse, ndim]`` of an integer dtype.
            Places outside of the shape count for nothing.
        shape: of the array.
        indices_sorted, unique_indices: what is known of the places; nothing depends on it.

    Raises:
        ShapeError: ``data``, ``indices`` and ``shape`` do not fit.

    >>> from nxjax import numpy as jnp
    >>> A = BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> A.nse, (A @ jnp.array([1.0, 10.0])).tolist(), A.T.todense().tolist()
    (2, [20.0, 3.0], [[0.0, 3.0], [2.0, 0.0]])
    """

    def __init__(
        self, args: Sequence[Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = args
        self.shape = tuple(shape)
        self.indices_sorted = indices_sorted
        self.unique_indices = unique_indices
        data, indices = np.shape(self.data), np.shape(self.indices)
        if indices[-1:] != (len(self.shape),) or data != indices[:-1] or len(data) != 1:
            raise ShapeError(
                "BCOO: elements and places",
                got=f"data {data}, indices {indices}, shape {self.shape}",
                expected=f"data (n,), indices (n, {len(self.shape)})",
                fix="batch dimensions are not supported: use nx.vmap over a BCOO's data",
            )

    @property
    def nse(self) -> int:
        """How many elements are kept."""
        return self.data.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements of the whole array."""
        return int(np.prod(self.shape))

    n_batch = 0
    n_dense = 0

    @property
    def n_sparse(self) -> int:
        """Dimensions that places are of: all."""
        return self.ndim

    def __repr__(self) -> str:
        return f"BCOO({self.dtype}{list(self.shape)}, nse={self.nse})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return (self.data, self.indices), (self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Sequence[Any]) -> BCOO:
        made = object.__new__(cls)  # children may be no arrays
        made.data, made.indices = children
        made.shape, made.indices_sorted, made.unique_indices = aux
        return made

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, **_: Any) -> BCOO:
        """The elements of a dense array that are not zero.

        Args:
            mat: array.
            nse: how many to keep, which ``jit`` needs to know; more than there are is filled with places outside.
            index_dtype: of the places.
        """
        x = jnp.asarray(mat)
        found = jnp.nonzero(lax.stop_gradient(x), size=nse, fill_value=x.shape)
        indices = jnp.stack(found, axis=-1).astype(index_dtype)
        data = x.at[found].get(mode="fill", fill_value=0)
        return cls((data, indices), shape=x.shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = np.int32, **_: Any) -> BCOO:
        """The elements that a sparse matrix of SciPy keeps."""
        coo = mat.tocoo()
        indices = jnp.asarray(np.stack([coo.row, coo.col], axis=-1).astype(index_dtype))
        return cls((jnp.asarray(coo.data), indices), shape=coo.shape)

    def todense(self) -> Array:
        """The array with its zeros."""
        return (
            jnp.zeros(self.shape, self.dtype).at[tuple(jnp.moveaxis(self.indices, -1, 0))].add(self.data, mode="drop")
        )

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with its dimensions in another order, by default the reverse one."""
        order = tuple(range(self.ndim))[::-1] if axes is None else tuple(axes)
        return BCOO((self.data, self.indices[:, np.array(order)]), shape=[self.shape[i] for i in order])

    @property
    def T(self) -> BCOO:
        return self.transpose()

    def astype(self, dtype: Any) -> BCOO:
        """With elements of another dtype."""
        return self._with(self.data.astype(dtype))

    def sum(self, axis: int | None = None) -> Any:
        """The sum of all elements, or along a dimension, which is a dense array."""
        return jnp.sum(self.data) if axis is None else jnp.sum(self.todense(), axis=axis)

    def __matmul__(self, other: Any) -> Array:
        """A matrix times a dense vector, matrix or stack of matrices, as `jnp.matmul`."""
        if isinstance(other, BCOO):
            other = other.todense()
        x = jnp.asarray(other)
        if self.ndim != 2 or not x.ndim or x.shape[-2 if x.ndim > 1 else 0] != self.shape[1]:
            raise ShapeError("BCOO @ dense", got=f"{self.shape} @ {x.shape}", expected="(m, n) @ (..., n, k) or (n,)")
        if x.ndim == 1:
            return (self @ x[:, None])[:, 0]
        row, column = self.indices[:, 0], self.indices[:, 1]
        taken = jnp.moveaxis(x, -2, 0).at[column].get(mode="fill", fill_value=0)
        terms = taken * self.data.reshape(-1, *(1,) * (x.ndim - 1))
        out = jnp.zeros((self.shape[0], *taken.shape[1:]), terms.dtype).at[row].add(terms, mode="drop")
        return jnp.moveaxis(out, 0, -2)

    def __rmatmul__(self, other: Any) -> Array:
        x = jnp.asarray(other)
        y = self.T @ (x if x.ndim == 1 else jnp.swapaxes(x, -1, -2))
        return y if x.ndim == 1 else jnp.swapaxes(y, -1, -2)

    def __mul__(self, other: Any) -> BCOO:
        """Every element times a number, or by that of a dense array of this shape."""
        x = jnp.asarray(other)
        if not x.ndim:
            return self._with(self.data * x)
        whole = jnp.broadcast_to(x, self.shape)
        return self._with(self.data * whole.at[tuple(jnp.moveaxis(self.indices, -1, 0))].get(mode="fill", fill_value=0))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCOO:
        return self._with(self.data / other)

    def __neg__(self) -> BCOO:
        return self._with(-self.data)

    def __add__(self, other: Any) -> Any:
        """A `BCOO` plus a `BCOO` keeps the elements of both; plus a dense array it is dense."""
        if not isinstance(other, BCOO):
            return self.todense() + other
        if self.shape != other.shape:
            raise ParameterError("BCOO + BCOO: shapes", got=f"{self.shape} and {other.shape}", expected="equal ones")
        parts = [jnp.concatenate(pair) for pair in ((self.data, other.data), (self.indices, other.indices))]
        return BCOO(parts, shape=self.shape)

    __radd__ = __add__

    def _with(self, data: Any) -> BCOO:
        return BCOO(
            (data, self.indices),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )


def bcoo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> BCOO:
    """See `BCOO.fromdense`."""
    return BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def bcoo_todense(mat: BCOO) -> Array:
    """See `BCOO.todense`."""
    return mat.todense()


def todense(arr: Any) -> Any:
    """``arr`` as a dense array; as it is if it is one."""
    return arr.todense() if isinstance(arr, BCOO) else arr
