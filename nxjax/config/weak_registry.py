"""A registry of objects by weak references: it reaches all that are alive, and keeps none of them alive.

`weakref.WeakSet` may not be walked while another thread drops one of its objects: its callback tests whether
somebody iterates, and a thread switch may come between the test and the removal. Here each loop goes over a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, final
from weakref import ref

T = TypeVar("T")


@final
class WeakRegistry(Generic[T]):
    """A set of weak references.

    >>> class Thing: ...
    >>> things, one = WeakRegistry(), Thing()
    >>> things.add(one)
    >>> len(things), list(things) == [one]
    (1, True)
    >>> del one
    >>> len(things)
    0
    """

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: set[ref[T]] = set()

    def add(self, x: T) -> None:
        """Keep track of ``x`` for as long as somebody has it."""
        self._refs.add(ref(x, self._refs.discard))

    def discard(self, x: T) -> None:
        """Forget ``x``."""
        self._refs.discard(ref(x))

    def __iter__(self) -> Iterator[T]:
        return iter([x for r in tuple(self._refs) if (x := r()) is not None])

    def __len__(self) -> int:
        return len(self._refs)
