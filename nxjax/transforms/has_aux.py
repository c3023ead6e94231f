"""Functions of trees as functions of flat values: what staging, derivatives and batching take.

What a function hands through beside its result (``has_aux``): arrays leave its trace, all else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.errors import TreeError, described
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


@final
class FlatFunction:
    """``function`` on the leaves of its arguments, whose structure is ``in_def``, giving the leaves of its result.

    With ``has_aux`` it gives a pair; the arrays of the second entry come last.

    Attributes:
        out_def: the structure of the result of the last call.
        count: how many leaves it has.
        aux: the second entry, from the arrays in it.
    """

    out_def: tree.TreeDef
    aux: Callable[[Arrays], Any]

    def __init__(self, function: Callable[..., Any], in_def: tree.TreeDef, has_aux: bool = False) -> None:
        self.function = function
        self.in_def = in_def
        self.has_aux = has_aux
        self.count = 0

    def __call__(self, *leaves: Array) -> Sequence[Any]:
        y = self.function(*tree.unflatten(self.in_def, leaves))
        arrays: list[Array] = []
        if self.has_aux:
            y, aux = y
            arrays, self.aux = split_aux(aux)
        ys, self.out_def = tree.flatten(y)
        self.count = len(ys)
        return [*ys, *arrays]


def check_pair(where: str, found: Any, expected: str, fix: str | None = None) -> tuple[Any, Any]:
    """The two that a user's function gave."""
    if not (isinstance(found, (tuple, list)) and len(found) == 2):  # pyright: ignore[reportUnknownArgumentType]
        raise TreeError(f"{where} must give a pair", got=described(found), expected=expected, fix=fix)
    return found[0], found[1]  # pyright: ignore[reportUnknownVariableType]
