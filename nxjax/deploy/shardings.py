"""Shardings and donations of a compilation, from trees of a user's arguments to one entry per input of the program.

Knows how arguments become inputs, no target; a target that is for one device refuses these options by itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from nxjax.deploy.trace import BoundFunction
from nxjax.errors import ParameterError, ShardingError, TreeError
from nxjax.trace import tree
from nxjax.trace.sharding import PartitionSpec, Sharding, as_sharding
from nxjax.trace.types import ShapeDtypeStruct

SPREAD: Final = ("in_shardings", "out_shardings", "donate_argnums")


def spread(fun: Callable[..., Any], bound: BoundFunction, options: dict[str, Any]) -> dict[str, Any]:
    """``options`` with its shardings and donations flat: what `nx.jit` would understand of them.

    Args:
        fun: whose own ``in_shardings`` and ``out_shardings``, if it is jitted with some, hold where none are given.
        bound: it, traced.
        options: ``in_shardings`` and ``out_shardings`` are tree prefixes of the arguments and of the result, holding
            shardings, specs on the current mesh, or None; ``donate_argnums`` positions of arguments.

    Raises:
        ShardingError: a sharding that does not fit its argument. TreeError: a prefix that is none.
    """
    given = {k: v for k, v in options.items() if k not in SPREAD}
    own = {k: getattr(fun, k, None) for k in ("in_shardings", "out_shardings")}
    wanted = {k: options.get(k) if options.get(k) is not None else own[k] for k in own}
    free = [n for n in range(len(bound.args)) if n not in bound.constants]
    ins: list[Sharding | None] = []
    if wanted["in_shardings"] is not None:
        ins = _per_argument(wanted["in_shardings"], bound, free)
    elif any(_own(x) is not None for n in free for x in bound.in_trees[n][0]):
        ins = [_own(x) for n in free for x in bound.in_trees[n][0]]
    if any(s is not None for s in ins):
        given["in_shardings"] = ins
    if wanted["out_shardings"] is not None:
        whole = tree.unflatten(bound.out_tree, bound.program.outputs)
        given["out_shardings"] = _flat(wanted["out_shardings"], whole, "compile: out_shardings")
    if options.get("donate_argnums") is not None:
        given["donate"] = _donated(options["donate_argnums"], bound, free)
    return given


def _own(x: Any) -> Sharding | None:
    """Where a type says that its argument will lie."""
    return getattr(x, "sharding", None) if isinstance(x, ShapeDtypeStruct) else None


def _per_argument(prefix: Any, bound: BoundFunction, free: list[int]) -> list[Sharding | None]:
    where = "compile: in_shardings"
    if isinstance(prefix, (tuple, list)):
        if len(prefix) not in (len(bound.args), len(free)):
            raise ShardingError(
                f"{where}: needs one entry per argument",
                got=f"{len(prefix)} entries",
                expected=f"{len(bound.args)}, or {len(free)} for those that are inputs",
            )
        chosen = [prefix[n] for n in free] if len(prefix) == len(bound.args) else list(prefix)
    else:
        chosen = [prefix] * len(free)
    found: list[Sharding | None] = []
    for n, part in zip(free, chosen, strict=True):
        leaves, structure = bound.in_trees[n]
        found += _flat(part, tree.unflatten(structure, leaves), f"{where} of argument {n}")
    return found


def _is_sharding(s: Any) -> bool:
    return s is None or isinstance(s, (Sharding, PartitionSpec))


def _flat(prefix: Any, full: Any, where: str) -> list[Sharding | None]:
    if _is_sharding(prefix):
        found = [prefix] * len(tree.leaves(full))
    else:
        try:
            found = tree.broadcast_leaves(prefix, full, where, is_leaf=_is_sharding)
        except TreeError as error:
            raise ShardingError(f"{where} does not fit: {error.what}", got=error.got, expected=error.expected) from None
    return [None if s is None else as_sharding(s, where) for s in found]


def _donated(given: Any, bound: BoundFunction, free: list[int]) -> tuple[int, ...]:
    """Inputs of the program that belong to the donated arguments."""
    try:
        chosen = {operator.index(i) for i in (given if isinstance(given, (tuple, list)) else (given,))}
    except TypeError:
        raise ParameterError("compile: donate_argnums", got=given, expected="positions of arguments") from None
    wrong = sorted(i for i in chosen if i not in free)
    if wrong:
        raise ParameterError(
            "compile: donate_argnums name no input", got=wrong, expected=f"among {free}, which are not constants"
        )
    found: list[int] = []
    at = 0
    for n in free:
        size = len(bound.in_trees[n][0])
        found += range(at, at + size) if n in chosen else ()
        at += size
    return tuple(found)


def input_names(bound: BoundFunction) -> list[str]:
    """What each input of the program is called in the user's own arguments, such as ``argument 0['w']``."""
    free = [n for n in range(len(bound.args)) if n not in bound.constants]
    return [name for n in free for name in tree.path_names(bound.args[n], f"argument {n}")]


def output_names(bound: BoundFunction) -> list[str]:
    """What each result of the program is called in what the function gives."""
    whole = tree.unflatten(bound.out_tree, list(range(bound.out_tree.num_leaves)))
    return tree.path_names(whole, "result")
