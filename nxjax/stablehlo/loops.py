"""Loops of a known number of steps, found in StableHLO's `while`.

A carried integer that starts at a constant, grows by one and is compared with a constant counts the steps. Operands
that such a loop reads one row per step, and results that it writes one row per step, are the sequences of a `scan`:
what JAX's own scans become, found again. Everything else stays carried, which is always right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.ops.shape import reshape, rev
from nxjax.stablehlo.walk import Block, Operation, Scope, Value, array_type
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.stage import stage
from nxjax.transforms.control.scan import scan_program

# Row t of a sequence is read or written in step t, or from the other end.
FORWARDS: Final = 1
BACKWARDS: Final = -1


@final
@dataclass(frozen=True)
class Steps:
    """Carried value ``counter`` goes from ``start`` by ``step``, ``length`` times."""

    counter: int
    start: int
    step: int
    length: int


def _constant(scope: Scope, block: Block, v: Value) -> int | None:
    """An integer scalar that is known: written in the block or outside of it."""
    if not (array_type(v).shape == () and array_type(v).dtype in dtypes.INTEGER):
        return None
    for op in block.operations:
        if v in op.results:
            if op.name == "stablehlo.constant":
                data = op.attributes["value"]
                return int(np.asarray(getattr(data, "value", data)))
            if op.name in ("stablehlo.convert", "stablehlo.reshape"):
                return _constant(scope, block, op.operands[0])
            return None
    if v in block.arguments:
        return None
    data = scope.known(v)
    return None if data is None else int(data)


def _maker(block: Block, v: Value) -> Operation | None:
    return next((op for op in block.operations if v in op.results), None)


def steps(scope: Scope, op: Operation) -> Steps | None:
    """How often a loop runs, if that can be read off."""
    test, body = op.regions
    compared = _maker(test, test.results[0])
    if compared is None or compared.name != "stablehlo.compare":
        return None
    direction, (left, right) = compared.attributes["comparison_direction"], compared.operands
    if direction in ("GT", "GE"):
        direction, left, right = {"GT": "LT", "GE": "LE"}[direction], right, left
    if direction not in ("LT", "LE", "NE") or left not in test.arguments:
        return None
    counter = test.arguments.index(left)
    if array_type(left).dtype not in dtypes.INTEGER or array_type(left).shape:
        return None
    if right in test.arguments:
        j = test.arguments.index(right)
        limit = _constant(scope, Block([], [], []), op.operands[j]) if _invariant(body, j) else None
    else:
        limit = _constant(scope, test, right)
    start = _constant(scope, Block([], [], []), op.operands[counter])
    turn = _maker(body, body.results[counter])
    if limit is None or start is None or turn is None or turn.name != "stablehlo.add":
        return None
    own = body.arguments[counter]
    others = [v for v in turn.operands if v is not own]
    step = _constant(scope, body, others[0]) if len(others) == 1 else None
    if step is None or step <= 0:
        return None
    end = limit + (direction == "LE")
    length = max(0, -(-(end - start) // step))
    if direction == "NE" and (limit < start or (limit - start) % step):
        return None
    if start + length * step > int(dtypes.integer_info(array_type(own).dtype).max):
        return None
    return Steps(counter, start, step, length)


def _invariant(body: Block, j: int) -> bool:
    return body.results[j] is body.arguments[j]


@final
class LoopBody:
    """A loop body that is asked which rows it reads and writes."""

    def __init__(self, scope: Scope, block: Block, found: Steps) -> None:
        self.scope = scope
        self.block = block
        self.steps = found
        self.uses: dict[Value, list[Operation | None]] = {}
        self._note(block)
        for v in block.results:
            self.uses.setdefault(v, []).append(None)

    def _note(self, block: Block) -> None:
        for op in block.operations:
            for v in op.operands:
                self.uses.setdefault(v, []).append(op)
            for region in op.regions:
                self._note(region)
                for v in region.results:
                    self.uses.setdefault(v, []).append(op)

    def affine(self, v: Value) -> tuple[int, int] | None:
        """(a, b) where ``v`` is a times the step number plus b."""
        if v is self.block.arguments[self.steps.counter]:
            return self.steps.step, self.steps.start
        known = _constant(self.scope, self.block, v)
        if known is not None:
            return 0, known
        op = _maker(self.block, v)
        if op is None:
            return None
        if op.name in ("stablehlo.convert", "stablehlo.reshape") and not array_type(op.operands[0]).shape:
            return self.affine(op.operands[0]) if array_type(op.operands[0]).dtype in dtypes.INTEGER else None
        if op.name in ("stablehlo.add", "stablehlo.subtract"):
            left, right = (self.affine(x) for x in op.operands)
            if left is None or right is None:
                return None
            sign = 1 if op.name == "stablehlo.add" else -1
            return left[0] + sign * right[0], left[1] + sign * right[1]
        if op.name == "stablehlo.select":
            return self._wrapped(op)
        return None

    def _wrapped(self, op: Operation) -> tuple[int, int] | None:
        """``select(i < 0, i + n, i)`` is i where i is never negative."""
        test, plain = _maker(self.block, op.operands[0]), self.affine(op.operands[2])
        if test is None or plain is None or test.name != "stablehlo.compare":
            return None
        low = min(plain[1], plain[1] + plain[0] * (self.steps.length - 1))
        same = self.affine(test.operands[0]) == plain and self.affine(test.operands[1]) == (0, 0)
        return plain if same and low >= 0 and test.attributes["comparison_direction"] == "LT" else None

    def direction(self, index: Value, rows: int) -> int | None:
        """How an index walks along ``rows`` rows, if it takes each once and in order."""
        found = self.affine(index)
        if rows != self.steps.length:
            return None
        return {(1, 0): FORWARDS, (-1, rows - 1): BACKWARDS}.get(found) if found is not None else None

    def read(self, op: Operation) -> tuple[Value, int] | None:
        """The operand of which ``op`` takes one row per step, and the direction."""
        inner, given = op, list(op.operands)
        if op.name == "func.call":
            inner, given = self._only(op, "stablehlo.dynamic_slice")
            if inner is None:
                return None
        elif op.name != "stablehlo.dynamic_slice":
            return None
        table, index, *rest = given
        shape = array_type(table).shape
        if not shape or tuple(inner.attributes["slice_sizes"]) != (1, *shape[1:]):
            return None
        block = self._block(op)
        if any(_constant(self.scope, block, v) != 0 for v in rest):
            return None
        inside = any(table is v for o in self.block.operations for v in o.results)
        if inside or (table in self.block.arguments and not _invariant(self.block, self.block.arguments.index(table))):
            return None
        way = self.direction(index, shape[0])
        return (table, way) if way is not None else None

    def written(self, j: int) -> tuple[Operation, Value, int] | None:
        """The operation that writes a row of carried value ``j`` in every step, the row, and the direction."""
        op = _maker(self.block, self.block.results[j])
        own = self.block.arguments[j]
        if op is None or len(op.results) != 1:
            return None
        inner, given = op, list(op.operands)
        if op.name == "func.call":
            inner, given = self._only(op, "stablehlo.dynamic_update_slice")
            if inner is None:
                return None
        elif op.name != "stablehlo.dynamic_update_slice":
            return None
        table, row, index, *rest = given
        shape = array_type(own).shape
        if table is not own or self.uses.get(own) != [op] or self.uses.get(op.results[0]) != [None]:
            return None
        size = int(np.prod(shape[1:], dtype=np.int64))
        written = array_type(inner.operands[1]).shape
        if not shape or written != (1, *shape[1:]) or array_type(row).size != size:
            return None
        if any(_constant(self.scope, self._block(op), v) != 0 for v in rest):
            return None
        way = self.direction(index, shape[0])
        return (op, row, way) if way is not None else None

    def _block(self, op: Operation) -> Block:
        if op.name == "func.call":
            return self.scope.importer.function(op.attributes["callee"]).body
        return self.block

    def _only(self, call: Operation, name: str) -> tuple[Any, list[Value]]:
        """The one operation of that name in a function that does nothing else but reshape, and its operands here.

        Operands that are the function's own constants stay as they are.
        """
        function = self.scope.importer.function(call.attributes["callee"])
        block, plain = function.body, ("stablehlo.constant", "stablehlo.reshape", "stablehlo.broadcast_in_dim", name)
        found = [op for op in block.operations if op.name == name]
        if len(found) != 1 or len(block.results) != 1 or any(op.name not in plain for op in block.operations):
            return None, []
        given: list[Value] = []
        for v in found[0].operands:
            given.append(self._outside(block, call, v))
        v = block.results[0]
        while v is not found[0].results[0]:
            made = _maker(block, v)
            if made is None or made.name != "stablehlo.reshape":
                return None, []
            v = made.operands[0]
        return found[0], given

    def _outside(self, block: Block, call: Operation, v: Value) -> Value:
        """The caller's value for one inside; rows may have been given a leading dimension."""
        inner = v
        while True:
            if inner in block.arguments:
                return call.operands[block.arguments.index(inner)]
            made = _maker(block, inner)
            if made is None or made.name == "stablehlo.constant" or not made.operands:
                return v
            source, out = array_type(made.operands[0]), array_type(made.results[0])
            if made.name == "stablehlo.broadcast_in_dim":
                dims = tuple(made.attributes["broadcast_dimensions"])
                if source.size != out.size or dims != tuple(range(1, len(out.shape))):
                    return v
            inner = made.operands[0]


def counted(scope: Scope, op: Operation, xs: Sequence[Array]) -> Sequence[Array] | None:
    """The loop as a `scan`, or None where the number of its steps is not known."""
    found = steps(scope, op)
    if found is None:
        return None
    if not found.length:
        return tuple(xs)
    block = op.regions[1]
    body = LoopBody(scope, block, found)
    n = len(xs)
    reads = {o: r for o in block.operations if (r := body.read(o)) is not None}
    writes = {j: w for j in range(n) if j != found.counter and (w := body.written(j)) is not None}
    constant = [j for j in range(n) if _invariant(block, j)]
    carried = [j for j in range(n) if j not in constant and j not in writes]
    ways = [way for _, way in reads.values()] + [way for _, _, way in writes.values()]
    reverse = bool(ways) and all(way == BACKWARDS for way in ways)

    def walked(x: Array, way: int) -> Array:
        return x if (way == BACKWARDS) == reverse else rev(x, dimensions=(0,))

    tables = [(xs[block.arguments.index(v)] if v in block.arguments else scope[v], way) for v, way in reads.values()]
    sequences = [walked(x, way) for x, way in tables]
    fixed = {j: xs[j] for j in constant}

    def turn(*values: Array) -> Sequence[Array]:
        state, rows = values[: len(carried)], values[len(carried) :]
        args: list[Any] = [None] * n
        for j, x in (*fixed.items(), *zip(carried, state, strict=True)):
            args[j] = x
        # What is written row by row is not read: its place is held by a row of it.
        for j in writes:
            args[j] = xs[j]
        inner = Scope(scope.importer, block, args, scope)
        for o, row in zip(reads, rows, strict=True):
            inner.given[o] = reshape(row, shape=array_type(o.results[0]).shape)
        for j, (o, _, _) in writes.items():
            inner.given[o] = xs[j]
        results = inner.results()
        made = [inner[row] for _, row, _ in writes.values()]
        ys = [reshape(y, shape=xs[j].shape[1:]) for j, y in zip(writes, made, strict=True)]
        return [*(results[j] for j in carried), *ys]

    types = [*(xs[j].type for j in carried), *(s.type.with_shape(s.shape[1:]) for s in sequences)]
    program = stage(turn, types, "scan")
    out = scan_program(program, (), [xs[j] for j in carried], sequences, length=found.length, reverse=reverse)
    results: list[Any] = [fixed.get(j) for j in range(n)]
    for j, y in zip(carried, out, strict=False):
        results[j] = y
    for (j, (_, _, way)), y in zip(writes.items(), out[len(carried) :], strict=True):
        results[j] = walked(y, way)
    return tuple(results)
