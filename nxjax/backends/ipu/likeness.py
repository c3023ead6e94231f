"""Steps that are alike: the same vertices on the same tiles, reading and writing places that lie alike.

Layers of a network repeat each other; what moves and what it takes is found once for steps of one key. Knows where
things lie, not what is counted.
"""

from __future__ import annotations

import hashlib
from typing import final

import numpy as np

from nxjax.lower.ipu.program import Boxes, Copy, Execute, NDArray, Variable, VariableView


@final
class Likeness:
    """Keys of variables and steps; equal keys mean equal places, sizes and work."""

    def __init__(self) -> None:
        # With the variable, so that its identity stays its own.
        self._layouts: dict[int, tuple[Variable, bytes]] = {}
        self._arrays: dict[int, tuple[NDArray, bytes]] = {}

    def layout(self, v: Variable) -> bytes:
        """Of where a variable's elements lie, and how long they are."""
        found = self._layouts.get(id(v))
        if found is None:
            parts = [repr((v.size, v.dtype.itemsize)).encode()]
            for p in v.pieces:
                parts += [self._boxes(p.boxes), self._array(p.tiles)]
            found = self._layouts[id(v)] = (v, _digest(parts))
        return found[1]

    def step(self, step: Execute | Copy) -> bytes:
        """Of what a step does where, whatever its variables are called."""
        slots: dict[int, int] = {}
        slot = lambda v: slots.setdefault(id(v), len(slots))
        parts: list[bytes] = [type(step).__name__.encode()]
        if isinstance(step, Execute):
            for g in step.groups:
                parts += [g.codelet.name.encode(), self._array(g.tiles)]
                for name, e in g.edges.items():
                    parts += [f"{name} {slot(e.variable)}".encode(), self.layout(e.variable), self._boxes(e.boxes)]
                for name, value in g.attributes.items():
                    data = np.asarray(value)
                    parts += [f"{name} {data.dtype} {data.shape}".encode(), data.tobytes()]
        else:
            for pair in step.pairs:
                for view in pair:
                    parts += [_view(view, slot(view.variable)), self.layout(view.variable)]
        return _digest(parts)

    def _boxes(self, b: Boxes) -> bytes:
        return repr((b.sizes, b.strides)).encode() + self._array(b.offsets)

    def _array(self, x: NDArray) -> bytes:
        """Of an array that nobody writes to."""
        found = self._arrays.get(id(x))
        if found is None:
            found = self._arrays[id(x)] = (x, _digest([repr((x.shape, x.dtype.str)).encode(), x.tobytes()]))
        return found[1]


def _view(view: VariableView, slot: int) -> bytes:
    return repr((slot, view.offset, view.shape, view.strides)).encode()


def _digest(parts: list[bytes]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        # With its length, so that no two lists of parts are one text.
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()
