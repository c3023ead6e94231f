"""Which plan is the fastest by the cycle model (`cycles`), of those that hold every limit.

Tile sizes are multiples of the matrix instruction's. A plan says why it was taken; where nothing fits, or tile sizes
that were asked for do not, the error names the limit. Knows no text and no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from nxjax.errors import LoweringError
from nxjax.kernels.aie.chip import CORE_ROWS, LIMITS, STACK, AieArray
from nxjax.kernels.aie.matmul import best_blocks
from nxjax.lower.aie.cycles import elementwise_cycles, matmul_cycles
from nxjax.lower.aie.plan import DEPTH, TABLES, ElementwisePlan, MatmulPlan, MatmulProblem


def matmul_plan(
    problem: MatmulProblem,
    array: AieArray,
    *,
    columns: int | None = None,
    tile: tuple[int, int, int] | None = None,
) -> MatmulPlan:
    """The fastest plan by the cycle model.

    Args:
        problem: what is computed.
        array: the generation.
        columns: use so many, not any number.
        tile: (m, k, n) of a core's tiles, not the planner's.

    Raises:
        LoweringError: no plan holds every limit; the message names the limit.
        ParameterError: more columns than there are.

    >>> from nxjax.kernels.aie.chip import NPU1
    >>> print(matmul_plan(MatmulProblem(512, 512, 512), NPU1, tile=(64, 64, 64)))
    [512, 512] x [512, 512] i8 to i32: 4 columns of 4 cores, tiles 64 x 64 x 64
    """
    if columns is not None:
        array.device_name(columns)
    return _planned(problem, array, columns, tile)


@lru_cache(512)
def _planned(
    problem: MatmulProblem, array: AieArray, columns: int | None, tile: tuple[int, int, int] | None
) -> MatmulPlan:
    best: MatmulPlan | None = None
    least, considered, refused = float("inf"), 0, (-1, "no tile size to try")
    by_columns: dict[int, float] = {}
    for plan in _candidates(problem, array, columns, tile):
        considered += 1
        why = plan.broken()
        if why[1]:
            # The plan that came furthest tells most.
            refused = max(refused, why, key=lambda w: w[0])
            continue
        cycles = matmul_cycles(plan).total
        by_columns[plan.columns] = min(by_columns.get(plan.columns, float("inf")), cycles)
        if cycles < least:
            best, least = plan, cycles
    if best is None:
        raise LoweringError(
            f"AIE matmul: [{problem.m}, {problem.k}] x [{problem.k}, {problem.n}] breaks a limit of {array.title}",
            got=refused[1],
            fix="other tile sizes, or without tile= and columns= the planner's" if tile or columns else
            "cut the product into smaller ones",
        )  # fmt: skip
    return MatmulPlan(
        problem, array, best.columns, best.rows, best.m, best.k, best.n, considered, _why(best, least, by_columns)
    )


def _why(best: MatmulPlan, least: float, by_columns: dict[int, float]) -> tuple[str, ...]:
    c = matmul_cycles(best)
    core, mem = LIMITS["core"].memory, LIMITS["mem"].memory
    m, k, n = best.padded
    p = best.problem
    lines = [
        str(best),
        f"bound by {c.bound}: " + ", ".join(f"{name} {value:,.0f} cycles" for name, value in c.parts().items()),
        f"memory: {best.core_bytes:,} of {core:,} bytes of a core, {best.mem_bytes:,} of {mem:,} of a memory tile",
    ]
    if (m, k, n) != (p.m, p.k, p.n):
        lines.append(f"padded to [{m}, {k}] x [{k}, {n}]: {p.m * p.k * p.n / (m * k * n):.0%} of the work is asked for")
    others = [f"{count}: {cycles:,.0f}" for count, cycles in sorted(by_columns.items())]
    if len(others) > 1:
        lines.append(f"cycles of the best plan by columns: {'; '.join(others)}")
    return tuple(lines)


def _candidates(
    p: MatmulProblem, array: AieArray, columns: int | None, tile: tuple[int, int, int] | None
) -> Iterator[MatmulPlan]:
    um, uk, un = best_blocks(array.intrinsics[p.element])
    for c in (columns,) if columns else range(1, array.columns + 1):
        for rows in range(1, CORE_ROWS + 1):
            if tile:
                yield MatmulPlan(p, array, c, rows, *tile)
                continue
            for m in _sizes(-(-p.m // rows), um, 160):
                for n in _sizes(-(-p.n // c), un, 160):
                    room = MatmulPlan(p, array, c, rows, m, uk, n)
                    most = (LIMITS["core"].memory - room.core_bytes) // (DEPTH * (m + n) * p.width) + uk
                    most = min(most, (4 << LIMITS["shim"].wrap_bits) // p.width - 4) // uk * uk
                    steps = -(-p.k // max(most, uk))
                    for count in (steps, steps + 1):
                        yield MatmulPlan(p, array, c, rows, m, _up(-(-p.k // count), uk), n)


def _sizes(extent: int, unit: int, most: int) -> list[int]:
    """Multiples of ``unit`` that cut ``extent`` with the least rest, for every number of cuts.

    >>> _sizes(40, 8, 160)
    [40, 24, 16, 8]
    """
    cuts = range(-(-extent // most), -(-extent // unit) + 1)
    return list(dict.fromkeys(_up(-(-extent // cut), unit) for cut in cuts))


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


def elementwise_plan(
    elements: int,
    operands: int,
    width: int,
    array: AieArray,
    cycles: Callable[[int], int],
    *,
    columns: int | None = None,
) -> ElementwisePlan:
    """The fastest plan by the cycle model, for a kernel that takes ``cycles(size)`` for so many elements.

    Two operands are dealt to two cores of a column, since a memory tile has six outgoing channels.

    >>> from nxjax.kernels.aie.chip import NPU1
    >>> plan = elementwise_plan(100_000, 1, 1, NPU1, lambda size: 24 + 4 * size)
    >>> plan.columns, plan.rows, plan.padded >= 100_000
    (4, 4, True)
    """
    rows = CORE_ROWS if operands == 1 else 2
    if columns is not None:
        array.device_name(columns)
    plans = [
        ElementwisePlan(elements, operands, width, array, count, rows, size)
        for count in ((columns,) if columns else range(1, array.columns + 1))
        for size in (4096, 2048, 1024, 512, 256, 128, 64)
        if DEPTH * (operands + 1) * size * width + STACK + TABLES <= LIMITS["core"].memory
    ]
    return min(plans, key=lambda p: elementwise_cycles(p, cycles(p.size)).total)
