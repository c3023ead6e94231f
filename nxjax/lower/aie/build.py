"""Designs from plans: a matrix product over rows and columns of cores, an elementwise function over all of them.

The product: tiles of the first operand are broadcast along a row of cores, tiles of the second along a column; the
memory tiles' DMAs put both into the matrix instruction's blocks, join the results of a column and put them back in
rows. The sequence sends batches of rows of tiles, one in flight while the next is queued. Knows plans, no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from nxjax.kernels.aie.chip import FIRST_CORE_ROW, FOREVER, ITERATIONS, LIMITS, MEM_ROW, SHIM_ROW, STACK
from nxjax.kernels.aie.spec import CoreKernel, MemRef
from nxjax.lower.aie.cycles import matmul_kernels
from nxjax.lower.aie.design import (
    AcquireOp,
    BufferOp,
    CallOp,
    CoreOp,
    Design,
    Dimensions,
    DmaMemcpyOp,
    DmaWaitOp,
    ForOp,
    FuncOp,
    ObjectFifoLinkOp,
    ObjectFifoOp,
    ReleaseOp,
    RuntimeSequenceOp,
    Statement,
    TileOp,
)
from nxjax.lower.aie.plan import DEPTH, PIECES, ElementwisePlan, MatmulPlan

# Shim BDs of a batch that is in flight, and of the next one.
_HALF: Final = 8


def tiles_of(columns: int, rows: int) -> tuple[TileOp, ...]:
    """Shims, memory tiles and ``rows`` of cores of the first columns, named as mlir-aie names them."""
    found = [TileOp(f"shim_noc_tile_{c}_0", c, SHIM_ROW) for c in range(columns)]
    found += [TileOp(f"mem_tile_{c}_1", c, MEM_ROW) for c in range(columns)]
    cores = ((c, FIRST_CORE_ROW + r) for r in range(rows) for c in range(columns))
    return tuple(found + [TileOp(f"tile_{c}_{row}", c, row) for c, row in cores])


def core_name(column: int, row: int) -> str:
    """The tile of the ``row``-th row of cores."""
    return f"tile_{column}_{FIRST_CORE_ROW + row}"


def matmul_design(plan: MatmulPlan, object_file: str = "kernels.o") -> Design:
    """The design of a product: ``a [M, K]`` in rows, ``b`` in rows or packed (`pack`), ``c [M, N]`` in rows."""
    p = plan.problem
    kernels = matmul_kernels(p.element, p.result, p.relu, plan.m, plan.k, plan.n, plan.array)
    i = plan.array.intrinsics[p.element]
    m, k, n = plan.m, plan.k, plan.n
    a_type, b_type = kernels[1].arguments[:2]
    c_type = kernels[-1].arguments[-1]
    fifos: list[ObjectFifoOp] = []
    links: list[ObjectFifoLinkOp] = []
    for column, rows in enumerate(plan.a_columns):
        if not rows:
            continue
        whole = MemRef((len(rows) * a_type.size,), a_type.element)
        fifos.append(ObjectFifoOp(f"a_in_{column}", _shim(column), (_mem(column),), DEPTH, whole))
        blocks = _blocks(m, k, i.m, i.k)
        for row in rows:
            along = tuple(core_name(c, row) for c in range(plan.columns))
            fifos.append(ObjectFifoOp(f"a_{row}", _mem(column), along, DEPTH, a_type, blocks))
        offsets = tuple(a_type.size * j for j in range(len(rows))) if len(rows) > 1 else ()
        links.append(ObjectFifoLinkOp((f"a_in_{column}",), tuple(f"a_{r}" for r in rows), (), offsets))
    for column in range(plan.columns):
        down = tuple(core_name(column, r) for r in range(plan.rows))
        blocks = () if p.packed else _blocks(k, n, i.k, i.n)
        fifos.append(ObjectFifoOp(f"b_in_{column}", _shim(column), (_mem(column),), DEPTH, b_type))
        fifos.append(ObjectFifoOp(f"b_{column}", _mem(column), down, DEPTH, b_type, blocks))
        links.append(ObjectFifoLinkOp((f"b_in_{column}",), (f"b_{column}",)))
    for column in range(plan.columns):
        parts = [f"c_{column}_{r}" for r in range(plan.rows)]
        fifos += [ObjectFifoOp(f, core_name(column, r), (_mem(column),), DEPTH, c_type) for r, f in enumerate(parts)]
        whole = MemRef((plan.rows * c_type.size,), c_type.element)
        back: Dimensions = ((plan.rows * m // i.m, i.m * n), (i.m, i.n), (n // i.n, i.m * i.n), (i.n, 1))
        fifos.append(ObjectFifoOp(f"c_out_{column}", _mem(column), (_shim(column),), DEPTH, whole, back))
        offsets = tuple(c_type.size * r for r in range(plan.rows)) if plan.rows > 1 else ()
        links.append(ObjectFifoLinkOp(tuple(parts), (f"c_out_{column}",), offsets, ()))
    buffers: list[BufferOp] = []
    cores: list[CoreOp] = []
    for row in range(plan.rows):
        for column in range(plan.columns):
            tile = core_name(column, row)
            sums = f"sums_{column}_{FIRST_CORE_ROW + row}"
            if p.finish:
                buffers.append(BufferOp(sums, tile, kernels[1].arguments[2]))
            cores.append(CoreOp(tile, (ForOp(FOREVER, _product(plan, kernels, row, column, sums)),), STACK))
    mp, kp, np_ = plan.padded
    b_size = plan.columns * plan.column_blocks * plan.steps * b_type.size if p.packed else kp * np_
    arguments = (
        ("a", MemRef((mp * kp,), a_type.element)),
        ("b", MemRef((b_size,), b_type.element)),
        ("c", MemRef((mp * np_,), c_type.element)),
    )
    return Design(
        plan.array.device_name(plan.columns),
        _functions(kernels, object_file),
        tiles_of(plan.columns, plan.rows),
        tuple(buffers),
        tuple(fifos),
        tuple(links),
        tuple(cores),
        RuntimeSequenceOp("sequence", arguments, tuple(_copies(plan, b_type.size))),
    )


def _shim(column: int) -> str:
    return f"shim_noc_tile_{column}_0"


def _mem(column: int) -> str:
    return f"mem_tile_{column}_1"


def _functions(kernels: Sequence[CoreKernel], object_file: str) -> tuple[FuncOp, ...]:
    return tuple(FuncOp(k.name, k.arguments, object_file) for k in dict.fromkeys(kernels))


def _blocks(rows: int, columns: int, r: int, c: int) -> Dimensions:
    """A matrix in rows sent as blocks of [r, c]."""
    return ((rows // r, r * columns), (columns // c, c), (r, columns), (c, 1))


def _product(
    plan: MatmulPlan, kernels: Sequence[CoreKernel], row: int, column: int, sums: str
) -> tuple[Statement, ...]:
    """What a core does for one tile of the result."""
    zero, product, *finish = (kernel.name for kernel in kernels)
    a, b, c = f"a_{row}", f"b_{column}", f"c_{column}_{row}"
    take: tuple[Statement, ...] = (AcquireOp("a", a, "Consume"), AcquireOp("b", b, "Consume"))
    give: tuple[Statement, ...] = (ReleaseOp(a, "Consume"), ReleaseOp(b, "Consume"))
    into = sums if finish else "c"
    step = CallOp(product, ("a", "b", into))
    if not finish:
        steps = _repeated(plan.steps, (*take, step, *give))
        return (AcquireOp("c", c, "Produce"), CallOp(zero, ("c",)), *steps, ReleaseOp(c, "Produce"))
    arguments = (sums, "b_last", "c") if plan.problem.result == "i8" else (sums, "c")
    # The numbers that the result is requantized by come with the last tile of weights.
    return (
        CallOp(zero, (sums,)),
        *_repeated(plan.steps - 1, (*take, step, *give)),
        AcquireOp("a_last", a, "Consume"),
        AcquireOp("b_last", b, "Consume"),
        CallOp(product, ("a_last", "b_last", into)),
        AcquireOp("c", c, "Produce"),
        CallOp(finish[0], arguments),
        *give,
        ReleaseOp(c, "Produce"),
    )


def _repeated(count: int, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """A loop only where there is more than one turn: older lowerings of object fifos do not take others."""
    return (ForOp(count, body),) if count > 1 else body * count


def _copies(plan: MatmulPlan, b_tile: int) -> Iterator[DmaMemcpyOp | DmaWaitOp]:
    """Batches of rows of tiles; a batch's BDs are used again when its results are back."""
    p = plan.problem
    wide = plan.padded[2]
    limit = 1 << LIMITS["shim"].step_bits
    far = plan.rows * plan.m * wide * p.result_width // 4 > limit
    batch = 1 if plan.pieces > 1 or far or plan.row_blocks == 1 else PIECES
    waiting = 0
    for number, first in enumerate(range(0, plan.row_blocks, batch)):
        blocks = min(batch, plan.row_blocks - first)
        base = number % 2 * _HALF
        for column in range(plan.columns):
            yield from _batch(plan, b_tile, column, first, blocks, base)
        if waiting:
            yield from (DmaWaitOp(f"c_out_{column}") for column in range(plan.columns))
            waiting -= 1
        waiting += 1
    for _ in range(waiting):
        yield from (DmaWaitOp(f"c_out_{column}") for column in range(plan.columns))


def _batch(plan: MatmulPlan, b_tile: int, column: int, first: int, blocks: int, base: int) -> Iterator[DmaMemcpyOp]:
    _, deep, wide = plan.padded
    m, k, n, down = plan.m, plan.k, plan.n, plan.rows * plan.m
    across = plan.column_blocks
    yield DmaMemcpyOp(
        "c",
        (0, 0, 0, first * down * wide + column * n),
        (blocks, across, down, n),
        (down * wide, n * plan.columns, wide, 1),
        f"c_out_{column}",
        base,
        True,
    )
    id_ = base + 1
    rows = plan.a_columns[column]
    for block in range(first, first + blocks):
        start = (block * plan.rows + (rows[0] if rows else 0)) * m * deep
        for piece in range(0, across if rows else 0, ITERATIONS):
            again = min(ITERATIONS, across - piece)
            yield DmaMemcpyOp("a", (0, 0, 0, start), (again, plan.steps, len(rows) * m, k), (0, k, deep, 1),
                       f"a_in_{column}", id_)  # fmt: skip
            id_ += 1
    if plan.problem.packed:
        size = across * plan.steps * b_tile
        yield DmaMemcpyOp("b", (0, 0, 0, column * size), (blocks, 1, 1, size), (0, 0, 0, 1), f"b_in_{column}", id_)
        return
    for _ in range(blocks):
        for piece in range(0, across, ITERATIONS):
            count = min(ITERATIONS, across - piece)
            start = (piece * plan.columns + column) * n
            yield DmaMemcpyOp("b", (0, 0, 0, start), (count, plan.steps, k, n), (n * plan.columns, k * wide, wide, 1),
                       f"b_in_{column}", id_)  # fmt: skip
            id_ += 1


def elementwise_design(
    plan: ElementwisePlan, kernel: CoreKernel, constants: bytes | None = None, object_file: str = "kernels.o"
) -> Design:
    """The design of a function: operands ``x`` (and ``y``), result ``z``, flat.

    Args:
        kernel: whose arguments are the operands' pieces, the constants if there are any, and the result's piece.
        constants: what every core's buffer of constants holds.
    """
    arguments = kernel.arguments
    piece, result = arguments[0], arguments[-1]
    names = ("x", "y")[: plan.operands]
    whole = MemRef((plan.rows * piece.size,), piece.element)
    offsets = tuple(piece.size * r for r in range(plan.rows)) if plan.rows > 1 else ()
    fifos: list[ObjectFifoOp] = []
    links: list[ObjectFifoLinkOp] = []
    copies: list[DmaMemcpyOp] = []
    waits: list[DmaWaitOp] = []
    buffers: list[BufferOp] = []
    cores: list[CoreOp] = []
    share = plan.rounds * plan.rows * plan.size
    for column in range(plan.columns):
        for id_, name in enumerate(names):
            parts = [f"{name}_{column}_{r}" for r in range(plan.rows)]
            fifos.append(ObjectFifoOp(f"{name}_in_{column}", _shim(column), (_mem(column),), DEPTH, whole))
            fifos += [ObjectFifoOp(f, _mem(column), (core_name(column, r),), DEPTH, piece) for r, f in enumerate(parts)]
            links.append(ObjectFifoLinkOp((f"{name}_in_{column}",), tuple(parts), (), offsets))
            copies.append(_share(name, column, share, f"{name}_in_{column}", id_ + 1, False))
        parts = [f"z_{column}_{r}" for r in range(plan.rows)]
        fifos += [ObjectFifoOp(f, core_name(column, r), (_mem(column),), DEPTH, result) for r, f in enumerate(parts)]
        fifos.append(ObjectFifoOp(f"z_out_{column}", _mem(column), (_shim(column),), DEPTH, whole))
        links.append(ObjectFifoLinkOp(tuple(parts), (f"z_out_{column}",), offsets, ()))
        copies.append(_share("z", column, share, f"z_out_{column}", 0, True))
        waits.append(DmaWaitOp(f"z_out_{column}"))
        for row in range(plan.rows):
            tile, held = core_name(column, row), f"constants_{column}_{FIRST_CORE_ROW + row}"
            if constants is not None:
                buffers.append(BufferOp(held, tile, arguments[plan.operands], constants))
            ends: list[tuple[str, str]] = [(n, f"{n}_{column}_{row}") for n in names]
            given = (*names, *((held,) if constants is not None else ()), "z")
            body: tuple[Statement, ...] = (
                *(AcquireOp(n, f, "Consume") for n, f in ends),
                AcquireOp("z", f"z_{column}_{row}", "Produce"),
                CallOp(kernel.name, given),
                *(ReleaseOp(f, "Consume") for _, f in ends),
                ReleaseOp(f"z_{column}_{row}", "Produce"),
            )
            cores.append(CoreOp(tile, (ForOp(FOREVER, body),), STACK))
    flat = MemRef((plan.padded,), piece.element)
    return Design(
        plan.array.device_name(plan.columns),
        _functions([kernel], object_file),
        tiles_of(plan.columns, plan.rows),
        tuple(buffers),
        tuple(fifos),
        tuple(links),
        tuple(cores),
        RuntimeSequenceOp("sequence", tuple((n, flat) for n in (*names, "z")), (*copies, *waits)),
    )


def _share(name: str, column: int, share: int, fifo: str, id_: int, token: bool) -> DmaMemcpyOp:
    return DmaMemcpyOp(name, (0, 0, 0, column * share), (1, 1, 1, share), (0, 0, 0, 1), fifo, id_, token)
