"""What formats' recurrent operators have in common: gates in another order, and states that are zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.base import NDArray


def known(node: Node, place: int) -> NDArray:
    """The weights or biases of a layer, which are constant."""
    data = node.operand(place).data
    assert data is not None
    return data


def blocks(array: NDArray, width: int, order: Sequence[int]) -> list[NDArray]:
    """The parts of ``width`` rows that belong to gates, those in ``order``.

    >>> [part.tolist() for part in blocks(np.arange(6), 2, (2, 0))]
    [[4, 5], [0, 1]]
    """
    return [array[i * width : (i + 1) * width] for i in order]


def zero(t: Tensor) -> bool:
    """Whether a state is known to be zero."""
    return t.data is not None and not np.any(t.data)
