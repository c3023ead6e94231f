"""Composites: functions that a module names and spells out. Those of known names become the op of that name."""

from __future__ import annotations

from typing import Any

from nxjax.stablehlo.elementwise import RECOGNIZED
from nxjax.stablehlo.sorting import top_k
from nxjax.stablehlo.walk import Operation, result
from nxjax.trace.core import Array


def recognized(op: Operation, *xs: Any) -> Any | None:
    """The result of a composite by its name alone, or None where its decomposition has to say."""
    name = op.attributes["name"]
    attributes = op.attributes.get("composite_attributes") or {}
    if name == "chlo.top_k" and len(xs) == 1:
        k = attributes.get("k")
        return top_k(op, xs[0], int(k) if k is not None else result(op).shape[-1], True)
    function = RECOGNIZED.get(name)
    if function is not None and all(isinstance(x, Array) for x in xs) and not attributes:
        return function(*xs)
    return None
