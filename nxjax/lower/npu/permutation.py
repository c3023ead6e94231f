"""Permutations of dimensions, as transposes have them. Knows no graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from nxjax.trace.types import Shape

Perm = tuple[int, ...]


def inverse(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def composed(first: Sequence[int], second: Sequence[int]) -> Perm:
    """The permutation of ``transpose(transpose(x, first), second)``."""
    return tuple(first[i] for i in second)


def trivial(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether a transpose only moves dimensions of size 1."""
    kept = [i for i in perm if shape[i] != 1]
    return kept == sorted(kept)


def back(values: Sequence[Any], perm: Perm) -> tuple[Any, ...]:
    """Entries per dimension of ``transpose(x, perm)`` as entries per dimension of ``x``."""
    return tuple(values[i] for i in inverse(perm))


def without(perm: Perm, gone: Collection[int]) -> Perm:
    """The permutation that is left when the dimensions ``gone`` of what is transposed are dropped.

    >>> without((0, 2, 3, 1), [1])
    (0, 1, 2)
    """
    left = [i for i in perm if i not in gone]
    return tuple(sorted(left).index(i) for i in left)
