"""What the machine code of a nest is planned with: its passes, what waits between them, how long and how wide sums are.

Knows no instruction: `nest_emit` writes what is planned here, and `nest_plan` looks whether it is right.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.ir import bits_of
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.nest import ACCUMULATORS, BLOCK, Nest, Reduction
from nxjax.kernels.cpu.nest_plan import TILE, NestPlan, Pass, SavedValue
from nxjax.kernels.cpu.op_files import DEAR

SAVED: Final = 192 << 10  # bytes of a row's values that are kept for the next pass rather than computed again
CHUNK: Final = 128  # vectors that are summed one after the other before their sum joins the others
COLUMN_CHUNK: Final = 32  # rows likewise, of columns: they have no lanes among which a sum is dealt out


# --- values that are kept from one pass to the next ---


def saved(nest: Nest) -> list[int]:
    """Values of the whole space that later passes read back from scratch memory: those that are dear to make."""
    facts = nest.facts
    if nest.sweeps <= 1:
        return []
    uses: dict[int, set[int]] = {}
    for p in range(facts.passes):
        for i in needed(nest, p, ()):
            uses.setdefault(i, set()).add(p)
    n, found, room = len(nest.inputs), list[int](), SAVED
    covered: set[int] = set()
    for i in reversed(range(n, n + len(nest.nodes))):
        node = nest.nodes[i - n]
        if isinstance(node, ExpressionNode) and len(uses.get(i, ())) > 1 and i not in covered:
            below = _below(nest, i)
            if sum(DEAR.get(m.op.name, 0) for k in below if isinstance(m := nest.nodes[k - n], ExpressionNode)) >= 8:
                size = slot_bytes(nest, i)
                if size <= room:
                    room -= size
                    found.append(i)
                    covered |= below
    return found


def _below(nest: Nest, index: int) -> set[int]:
    """The nodes of the whole space from which a value is made, itself included."""
    n, facts, found, todo = len(nest.inputs), nest.facts, set[int](), [index]
    while todo:
        i = todo.pop()
        if i >= n and i not in found and facts.full[i]:
            found.add(i)
            node = nest.nodes[i - n]
            todo += node.args if isinstance(node, ExpressionNode) else ()
    return found


def slot_bytes(nest: Nest, index: int) -> int:
    size = nest.dtype_of(index).itemsize * (1 if nest.rows else TILE)
    for n in nest.sizes[nest.kept :]:
        size *= n
    return -(-size // 64) * 64


def last_reads(nest: Nest) -> list[int]:
    """For each input the last pass that reads it; -1 for what is read before all passes."""
    last = [-1] * len(nest.inputs)
    for p, one in enumerate(nest.plan.passes):
        for i in one.values:
            if i < len(last):
                last[i] = p
    return last


def scratch_sizes(nest: Nest) -> list[int]:
    """Bytes of what lies in scratch memory: saved values, or the accumulators of rows that are read whole."""
    if nest.whole:
        room = -(-min(nest.sizes[nest.lane], nest.block) // BLOCK) * BLOCK  # whole tiles
        sizes = [room * m.accumulator.itemsize for m in nest.nodes if isinstance(m, Reduction)]
        return sizes * (1 + sum(map(len, parts(nest, 1))))
    return [s.nbytes for s in nest.plan.slots]


def needed(nest: Nest, number: int, have: Collection[int]) -> list[int]:
    """The values of the whole space that pass ``number`` takes, in order; those of ``have`` are there already."""
    facts, n = nest.facts, len(nest.inputs)
    todo = [m.arg for m in nest.nodes if isinstance(m, Reduction) and facts.level[m.arg] == number]
    todo += [y.value for y in nest.outputs if nest.inside(y) and facts.level[y.value] == number]
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in found or not facts.full[i]:
            continue
        found.add(i)
        if i >= n and i not in have:
            node = nest.nodes[i - n]
            todo += node.args if isinstance(node, ExpressionNode) else ()
    return sorted(found)


def passes(nest: Nest, keep: Collection[int]) -> list[Pass]:
    """The passes, where the values of ``keep`` are saved.

    The first pass that takes such a value makes and saves it. That may come later than the pass in which it could be
    had: ``cos(x)`` in ``(sum(x) * cos(x)).sum()`` is first needed in the second one.
    """
    found: list[Pass] = []
    have: set[int] = set()
    for p in range(nest.facts.passes):
        values = needed(nest, p, have)
        found.append(Pass(values, frozenset(have.intersection(values))))
        have |= {i for i in values if i in keep}
    return found


def planned(nest: Nest) -> NestPlan:
    """The passes, and where saved values lie in scratch memory."""
    keep = saved(nest)
    slots: list[SavedValue] = []
    offset = 0
    for i in keep:
        nbytes = slot_bytes(nest, i)
        slots.append(SavedValue(i, offset, nbytes, _slot_strides(nest, i)))
        offset += nbytes
    return NestPlan(tuple(passes(nest, keep)), tuple(slots))


def _slot_strides(nest: Nest, index: int) -> tuple[int, ...]:
    found: list[int] = []
    step = nest.dtype_of(index).itemsize * (1 if nest.rows else TILE)
    for n in reversed(nest.sizes[nest.kept :]):
        found.append(step)
        step *= n
    strides = [*([0] * nest.kept), *reversed(found)]
    if not nest.rows:
        strides[nest.lane] = nest.dtype_of(index).itemsize
    return tuple(strides)


# --- how long ---


def parts(nest: Nest, lanes: int, masks: bool = True) -> list[list[int]]:
    """For each reduced dimension the lengths of the parts that a sum along it is cut in, the shortest first.

    No sum is one long chain of additions, whose error grows with its length: a part is a chain from the start, and so
    are the sums of the parts. The part of a dimension inside counts as what it adds to the chain. ``lanes``: of rows,
    whose last dimension goes by vectors, and without ``masks`` element by element where less than one is left.
    """
    # Accumulators in memory are dearer to add than those in registers.
    chunk = CHUNK if nest.rows or nest.fixed else COLUMN_CHUNK * (1 + nest.whole)
    unit = ACCUMULATORS if nest.fixed else lanes if nest.rows else 1
    found: list[list[int]] = []
    links = 1
    for n in reversed(nest.sizes[nest.kept :]):
        turns, step, lengths = n // unit, 1, list[int]()
        if n * links > 2 * chunk * unit:
            step = max(chunk // links, 1)
            lengths.append(step * unit)
            links = 1
            while -(-turns // step) > 2 * chunk:
                step *= chunk
                lengths.append(step * unit)
        links *= max(-(-turns // step), 1 if masks else n % unit, 1)
        unit = 1
        found.append(lengths)
    return found[::-1]


# --- how wide ---


def register_bytes(nest: Nest) -> int:
    """Of the largest element among the vectors."""
    found = [1]
    for i, wide in enumerate(nest.facts.wide):
        if wide:
            found.append(bits_of(convert.register_type(nest.dtype_of(i))) // 8)
    return max(found)


def widths(nest: Nest, isa: Isa) -> tuple[int, int]:
    """Lanes of one register, and of the vectors that the code is written in: some registers, independent chains."""
    one = max(isa.lanes(register_bytes(nest)), 1)
    if nest.fixed and nest.rows:
        return min(one, ACCUMULATORS), ACCUMULATORS
    count = sum(isinstance(m, Reduction) for m in nest.nodes)
    if nest.columns and nest.sweeps == 1 and nest.weight <= 8 and not nest.whole and not nest.fixed:
        many = max(isa.registers // 2 // max(count, 1), 1)
    else:
        many = 4 if nest.weight <= 10 else 2 if nest.weight <= 100 else 1
    many = 1 << (many.bit_length() - 1)
    n = nest.sizes[nest.lane] if nest.sizes else 1
    lanes = one * many
    if nest.columns and nest.sweeps > 1:
        lanes = min(lanes, TILE)
    if nest.blocks > 1:
        lanes = min(lanes, BLOCK)  # a block ends where a vector does
    while lanes > 1 and lanes >= 2 * n:
        lanes //= 2
    return min(one, lanes), lanes
