"""What programs make of held arrays before they run, held once for all programs that make the same of the same arrays.

A network's weights are packed once, for prompts of all lengths. Knows no kernel.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from nxjax.lower.cpu.held import Origin
from nxjax.trace.array import DeviceArray

Origins = tuple[Origin | None, ...]
Key = tuple[Any, ...]
# What was made -> references to it and to what it was made of. An array of another time may have an old one's identity.
_KNOWN: dict[Key, tuple[weakref.ref[DeviceArray], tuple[weakref.ref[Any], ...]]] = {}


def shared(
    prepare: Callable[[Sequence[DeviceArray]], list[DeviceArray]], made_of: Origins, held: Sequence[DeviceArray]
) -> list[DeviceArray]:
    """The results of ``prepare(held)``; those that exist already, as far as there are some.

    Args:
        made_of: what each result is made of.
    """
    keys = [None if o is None else (o.digest, *(id(held[i].numpy()) for i in o.inputs)) for o in made_of]
    found = [None if o is None else _found(k or (), o, held) for o, k in zip(made_of, keys, strict=True)]
    if all(x is not None for x in found):
        return [x for x in found if x is not None]
    results: list[DeviceArray] = []
    for origin, key, old, new in zip(made_of, keys, found, prepare(held), strict=True):
        results.append(new if old is None else old)
        if origin is not None and key is not None and old is None:
            sources = tuple(weakref.ref(held[i].numpy()) for i in origin.inputs)
            _KNOWN[key] = (weakref.ref(new, lambda gone, key=key: _forget(key, gone)), sources)
    return results


def _found(key: Key, origin: Origin, held: Sequence[DeviceArray]) -> DeviceArray | None:
    made, sources = _KNOWN.get(key, (lambda: None, ()))
    same = all(ref() is held[i].numpy() for ref, i in zip(sources, origin.inputs, strict=False))
    return made() if same else None


def _forget(key: Key, gone: weakref.ref[DeviceArray]) -> None:
    if key in _KNOWN and _KNOWN[key][0] is gone:
        del _KNOWN[key]
