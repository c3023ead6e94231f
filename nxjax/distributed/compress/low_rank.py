"""`power_sgd`: matrices of gradients by two thin ones, one step of the power method at a time.

Vogels, Karimireddy and Jaggi (NeurIPS 2019), algorithm 1 and 2: with M the gradients of a device and what it has
remembered, P = mean(M Q), orthonormal; Q = mean(M' P); all get P Q', and a device remembers M - P P' M.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from nxjax import lax, random
from nxjax import numpy as jnp
from nxjax.distributed.blocks import Packing, checked, packing
from nxjax.distributed.compress.base import Compressor, check_memory
from nxjax.trace import tree


@final
class PowerSGD(Compressor):
    """See `power_sgd`."""

    def __init__(self, axis_name: Any, rank: int, error_feedback: bool, warm_start: bool, seed: int) -> None:
        super().__init__(axis_name)
        self.rank = checked("compress.power_sgd: rank", rank, 1)
        self.error_feedback = error_feedback
        self.warm_start = warm_start
        self.seed = seed

    def start(self, grads: Any, devices: int) -> tuple[Any, Any]:
        p = packing("compress.power_sgd", grads)
        chosen = self._chosen(p)
        own: Any = ()
        if self.error_feedback:
            own = {str(i): jnp.zeros(p.shapes[i], p.dtype) for i in chosen}
        key = random.PRNGKey(self.seed)
        return own, {"q": self._drawn(p, chosen, key)} if self.warm_start else {"key": key}

    def _chosen(self, p: Packing) -> list[int]:
        """The leaves for which two thin matrices are less than one: the others are sent as they are."""
        sizes = [(i, *_matrix(s)) for i, s in enumerate(p.shapes) if len(s) > 1]
        return [i for i, rows, columns in sizes if self.rank * (rows + columns) < rows * columns]

    def _drawn(self, p: Packing, chosen: Sequence[int], key: Any) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        for i in chosen:
            drawn[str(i)] = random.normal(random.fold_in(key, i), (_matrix(p.shapes[i])[1], self.rank), p.dtype)
        return drawn

    def mean(self, grads: Any, own: Any, shared: Any) -> tuple[Any, Any, Any]:
        p = packing("compress.power_sgd", grads)
        chosen = self._chosen(p)
        leaves = [jnp.asarray(x) for x in tree.leaves(grads)]
        matrices: dict[str, Any] = {}
        for i in chosen:
            full = leaves[i].astype(p.dtype)
            if self.error_feedback:
                check_memory("compress.power_sgd", own.get(str(i)), p.shapes[i])
                full = full + own[str(i)]
            matrices[str(i)] = full.reshape(_matrix(p.shapes[i]))
        if self.warm_start:
            right = shared["q"]
        else:
            following, key = random.split(shared["key"])
            right, shared = self._drawn(p, chosen, key), {"key": following}
        rest = {str(i): x for i, x in enumerate(leaves) if i not in chosen}
        # Two all-reduces: all left factors together with the leaves that are sent as they are, then all right factors.
        left, whole = self._mean(({k: m @ right[k] for k, m in matrices.items()}, rest))
        left = {k: jnp.linalg.qr(m)[0] for k, m in left.items()}
        mine = {k: m.T @ left[k] for k, m in matrices.items()}
        right = self._mean(mine)
        found = [
            (left[str(i)] @ right[str(i)].T).reshape(shape).astype(dtype) if i in chosen else whole[str(i)]
            for i, (shape, dtype) in enumerate(zip(p.shapes, p.dtypes, strict=True))
        ]
        if self.error_feedback:
            own = {str(i): (matrices[str(i)] - left[str(i)] @ mine[str(i)].T).reshape(p.shapes[i]) for i in chosen}
        if self.warm_start:
            shared = {"q": right}
        return tree.unflatten(p.treedef, found), own, shared

    def _mean(self, values: Any) -> Any:
        """`lax.pmean` as one message."""
        p = packing("compress.power_sgd", values)
        return p.unpack(lax.pmean(p.pack(values), self.axis_name)) if p.size else values


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """The last dimension (outputs, in this library's kernels) by all the others."""
    return math.prod(shape[:-1]), shape[-1]


def power_sgd(
    axis_name: Any, rank: int = 2, *, error_feedback: bool = True, warm_start: bool = True, seed: int = 0
) -> Compressor:
    """Matrices of m by n numbers in ``rank (m + n)``: an approximation of low rank that is found while training.

    Leaves of two and more dimensions are matrices of their last dimension by the others. Vectors, and matrices that
    would not get smaller, are sent unchanged. Everything is summed by all-reduce, so bytes do not grow with the number
    of devices.

    Args:
        axis_name: name or names of mesh axes.
        rank: columns of the two factors.
        error_feedback: keep what the factors miss.
        warm_start: start each step with the last step's factor, else with random numbers.
        seed: of those.

    Raises:
        ParameterError: ``rank`` is not a whole number from 1.

    >>> compressor = nx.distributed.compress.power_sgd("i", 1)
    >>> grads = jnp.outer(jnp.arange(4.0), jnp.arange(5.0)) * jnp.array([1.0, 3.0])[:, None, None]
    >>> mean = nx.vmap(lambda g: compressor(g, compressor.init(g))[0], axis_name="i")(grads)
    >>> bool(jnp.allclose(mean[0], 2 * grads[0], atol=1e-5))      # of rank one: exact
    True
    """
    return PowerSGD(axis_name, rank, error_feedback, warm_start, seed)
