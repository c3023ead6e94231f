"""`Partial`: a function with bound arguments as a tree. Knows nothing of what is called with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from nxjax.trace.tree_nodes import register_pytree_node


class _NestedPartial:
    """A `functools.partial` as a plain function, which another one would open and take the arguments of."""

    def __init__(self, partial: functools.partial[Any]) -> None:
        self.partial = partial

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.partial(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NestedPartial) and self.partial == other.partial

    def __hash__(self) -> int:
        return hash(self.partial)

    def __repr__(self) -> str:
        return repr(self.partial)


class Partial(functools.partial[Any]):
    """`functools.partial` whose bound arguments are leaves and whose function is part of the structure.

    A partial as ``func`` is part of the structure, with everything that it binds.

    >>> nx.tree.leaves(Partial(pow, 2)), Partial(pow, 2)(3)
    ([2], 8)
    """

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Self:
        if isinstance(func, functools.partial):
            func = _NestedPartial(func)  # pyright: ignore[reportUnknownArgumentType]
        return super().__new__(cls, func, *args, **kwargs)


register_pytree_node(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
