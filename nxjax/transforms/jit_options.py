"""The options of `jit`: which parameters are static or donated, where arguments and results are to be.

Knows how they are written, and nothing of how a function is traced or run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, Final

import numpy as np

from nxjax.errors import StaticArgumentError
from nxjax.trace import tree
from nxjax.trace.array import as_value, place_of
from nxjax.trace.sharding import NamedSharding, PartitionSpec, Sharding, as_sharding
from nxjax.trace.types import ShapeDtypeStruct

# What `jit` takes.
OPTIONS: Final = (
    "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "device", "backend",
    "inline", "in_shardings", "out_shardings",
)  # fmt: skip


def static_key(value: Any) -> Any:
    """What tells equal static arguments apart: 1, 1.0 and True are different programs, 0.0 and -0.0, and in tuples."""
    kind = type(value)
    if isinstance(value, (float, np.floating)):
        return (kind, math.copysign(1, value)) if not value else kind
    if isinstance(value, (complex, np.complexfloating)):
        return kind, static_key(value.real), static_key(value.imag)
    if isinstance(value, tuple):
        return (kind, *map(static_key, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, frozenset):
        return kind, frozenset((x, static_key(x)) for x in value)  # pyright: ignore[reportUnknownVariableType]
    return kind


def _is_sharding(s: Any) -> bool:
    return s is None or isinstance(s, (Sharding, PartitionSpec))


def shardings_of(prefix: Any, full: Any, where: str) -> list[Sharding | None]:
    """One entry per leaf of ``full`` from a tree prefix of shardings, specs (on the current mesh), devices and None."""
    if prefix is None:
        return []
    if _is_sharding(prefix) or hasattr(prefix, "platform"):
        found = [prefix] * len(tree.leaves(full))
    else:
        found = tree.broadcast_leaves(prefix, full, where, is_leaf=_is_sharding)
    return [None if s is None else as_sharding(s, where) for s in found]


def given_sharding(x: Any) -> Sharding | None:
    """Where an argument of `trace` was put or will be: an array's own sharding, or a type's."""
    if isinstance(x, ShapeDtypeStruct):
        return x.sharding
    return place_of(x)


def with_sharding(x: Any, sharding: Sharding | None) -> Any:
    """``x`` with its layout written into the program, where other transforms will find it."""
    if not isinstance(sharding, NamedSharding):
        return x
    from nxjax.ops.sharding import sharding_constraint

    value = as_value(x, "jit")
    sharding.check(value.shape, "jit: out_shardings")
    return sharding_constraint(value, sharding=sharding)


def _ints(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, Integral) else tuple(value)


def _names(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def resolve_argnums(
    fun: Callable[..., Any], nums: Any, names: Any, what: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same parameters: naming one way, the other left out, names both, as in JAX."""
    try:
        positions, words = _ints(nums), _names(names)
    except TypeError:
        positions, words = (nums,), ()
    if not all(isinstance(i, Integral) for i in positions) or not all(isinstance(w, str) for w in words):
        raise StaticArgumentError(
            f"jit: {what}_argnums and {what}_argnames are of other types", got=f"{nums!r} and {names!r}",
            expected="integers and strings", fix=f'{what}_argnums=0 is a position, {what}_argnames="x" a name',
        )  # fmt: skip
    if not positions and not words:
        return (), ()
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return positions, words
    ordered = list(parameters)
    positional = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for i in positions:
        if not variadic and not -len(positional) <= i < len(positional):
            raise StaticArgumentError(
                f"jit: {what}_argnums names no parameter", got=i, expected=f"an index into {positional}"
            )
    for word in words:
        if not keywords and word not in ordered:
            raise StaticArgumentError(
                f"jit: {what}_argnames names no parameter", got=repr(word), expected=f"one of {ordered}"
            )
    if nums is not None and names is not None:
        return positions, words
    more_words = [
        positional[i]
        for i in positions
        if -len(positional) <= i < len(positional)
        and parameters[positional[i]].kind is not inspect.Parameter.POSITIONAL_ONLY
    ]
    more_positions = [positional.index(w) for w in words if w in positional]
    return tuple(dict.fromkeys((*positions, *more_positions))), tuple(dict.fromkeys((*words, *more_words)))
