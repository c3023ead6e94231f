"""What a function hands through beside its result (``has_aux``): arrays leave its trace, all else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax.trace import tree
from nxjax.trace.core import Array, Arrays

_HOLE: Final = object()


def split_aux(aux: Any) -> tuple[list[Array], Callable[[Arrays], Any]]:
    """The arrays in a tree, and the function that makes the tree of other arrays in their places."""
    leaves, treedef = tree.flatten(aux)
    arrays = [x for x in leaves if isinstance(x, Array)]
    kept = [_HOLE if isinstance(x, Array) else x for x in leaves]  # not the arrays, which would hold their trace

    def rebuilt(values: Arrays) -> Any:
        left = iter(values)
        return tree.unflatten(treedef, [next(left) if x is _HOLE else x for x in kept])

    return arrays, rebuilt
