"""How a matrix product or an elementwise function is cut over the array: tiles, columns, rows, under its limits.

A planner goes through tile sizes that are multiples of the matrix instruction's and through numbers of columns, leaves
out what breaks a limit, and takes what the cycle model (`cycles`) says is fastest. A plan says why it was taken; where
nothing fits, or tile sizes that were asked for do not, the error names the limit. Knows no text and no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, final

from nxjax.errors import LoweringError, ParameterError
from nxjax.kernels.aie.chip import CORE_ROWS, ITERATIONS, LIMITS, STACK, AieArray
from nxjax.kernels.aie.matmul import best_blocks, parameters
from nxjax.kernels.aie.spec import DTYPES

Result = Literal["i8", "i32", "bf16"]
# Objects at each end of a fifo: one is worked on while the next one arrives.
DEPTH: Final = 2
# Bytes that are kept for a function's constants.
TABLES: Final = 4096
# Pieces of a row of tiles that one BD's iterations cannot hold; two batches of them may wait in a channel's queue.
PIECES: Final = 2


@final
@dataclass(frozen=True)
class MatmulProblem:
    """[m, k] times [k, n].

    Attributes:
        element: of the operands.
        result: "i32" or "bf16" as the products are, "i8" requantized per column.
        packed: whether the second operand is a constant that is laid out as it is streamed. "i8" results need it.
        relu: of a bfloat16 result.
    """

    m: int
    k: int
    n: int
    element: Literal["i8", "bf16"] = "i8"
    result: Result = "i32"
    packed: bool = False
    relu: bool = False

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 1:
            raise ParameterError("AIE matmul: sizes", got=(self.m, self.k, self.n), expected="at least 1 each")
        if (self.element == "bf16") != (self.result == "bf16") or (self.result == "i8" and not self.packed):
            raise ParameterError(
                "AIE matmul: a result that no kernel has",
                got=f"{self.element} to {self.result}, packed={self.packed}",
                expected="i8 to i32; i8 to i8 with packed weights; bf16 to bf16",
            )
        if self.relu and self.result != "bf16":
            raise ParameterError("AIE matmul: relu of an integer result is its clamp", got=self.result)

    @property
    def width(self) -> int:
        """Bytes of an operand's element."""
        return DTYPES[self.element].itemsize

    @property
    def result_width(self) -> int:
        return DTYPES[self.result].itemsize

    @property
    def finish(self) -> bool:
        """Whether a second kernel makes the result of the sums, which then have a buffer of their own."""
        return self.result == "i8" or self.relu


@final
@dataclass(frozen=True, eq=False)
class MatmulPlan:
    """A product cut into tiles.

    Attributes:
        columns, rows: cores that compute, ``columns * rows`` of them; a column's cores share tiles of the second
            operand, a row's those of the first.
        m, k, n: tile sizes.
        considered: how many plans were compared.
        why: what the planner has to say, one line each.
    """

    problem: MatmulProblem
    array: AieArray
    columns: int
    rows: int
    m: int
    k: int
    n: int
    considered: int = 1
    why: tuple[str, ...] = ()

    @property
    def tail(self) -> int:
        """Bytes of requantization behind each tile of weights."""
        return parameters(self.n) if self.problem.result == "i8" else 0

    @property
    def row_blocks(self) -> int:
        """How often the rows of cores go down the first operand."""
        return -(-self.problem.m // (self.m * self.rows))

    @property
    def column_blocks(self) -> int:
        """How often the columns of cores go across the second operand."""
        return -(-self.problem.n // (self.n * self.columns))

    @property
    def steps(self) -> int:
        """Tiles along the dimension that is summed over."""
        return -(-self.problem.k // self.k)

    @property
    def padded(self) -> tuple[int, int, int]:
        """M, K and N in whole tiles."""
        return self.row_blocks * self.m * self.rows, self.steps * self.k, self.column_blocks * self.n * self.columns

    @property
    def a_bytes(self) -> int:
        return self.m * self.k * self.problem.width

    @property
    def b_bytes(self) -> int:
        """Of a tile with its tail."""
        return self.k * self.n * self.problem.width + self.tail

    @property
    def c_bytes(self) -> int:
        return self.m * self.n * self.problem.result_width

    @property
    def sums_bytes(self) -> int:
        """Of the buffer that holds sums, where a second kernel makes the result of them."""
        return self.m * self.n * (4 if self.problem.element == "i8" else 2) if self.problem.finish else 0

    @property
    def a_columns(self) -> tuple[tuple[int, ...], ...]:
        """The rows of cores whose tiles come in through each column that has a shim for the first operand.

        >>> from nxjax.kernels.aie.chip import NPU2
        >>> MatmulPlan(MatmulProblem(64, 64, 64), NPU2, 8, 4, 16, 64, 16).a_columns[:3]
        ((0,), (), (1,))
        """
        found: list[list[int]] = [[] for _ in range(self.columns)]
        for row in range(self.rows):
            found[row * self.columns // self.rows].append(row)
        return tuple(map(tuple, found))

    @property
    def pieces(self) -> int:
        """Copies that a row of tiles of the first operand takes, which is sent once for every block of columns."""
        return -(-self.column_blocks // ITERATIONS)

    @property
    def core_bytes(self) -> int:
        return DEPTH * (self.a_bytes + self.b_bytes + self.c_bytes) + self.sums_bytes + STACK

    @property
    def mem_bytes(self) -> int:
        """Of the fullest memory tile."""
        rows = max(map(len, self.a_columns))
        return DEPTH * (rows * self.a_bytes + self.b_bytes + self.rows * self.c_bytes)

    def broken(self) -> tuple[int, str]:
        """The first limit that does not hold: its number, and in words. All hold: the words are empty."""
        core, mem, shim = LIMITS["core"], LIMITS["mem"], LIMITS["shim"]
        p, (_, deep, wide) = self.problem, self.padded
        words = (1 << shim.wrap_bits) - 1
        step = 1 << shim.step_bits
        unit = best_blocks(self.array.intrinsics[p.element])
        if any(x % u or x < u for x, u in zip((self.m, self.k, self.n), unit, strict=True)):
            tile = (self.m, self.k, self.n)
            return 0, f"tiles {tile}, which are not multiples of {unit}, the matrix instruction two by two"
        innermost, second = "words of a shim BD's innermost size", "rows of a shim BD's second size"
        stride = "words of a shim BD's stride"
        limits = (
            ("bytes of a core's data memory", self.core_bytes, core.memory),
            ("bytes of a memory tile", self.mem_bytes, mem.memory),
            (innermost, max(self.k * p.width, self.n * p.result_width) // 4, words),
            (innermost, 0 if p.packed else self.n * p.width // 4, words),
            (second, self.m * self.rows, words),
            (second, 0 if p.packed else self.k, words),
            (stride, max(deep * p.width, wide * p.result_width) // 4, step),
            (stride, 0 if p.packed else self.k * wide * p.width // 4, step),
            ("blocks of columns, which shim BDs iterate over", self.column_blocks, PIECES * ITERATIONS),
        )
        for number, (name, got, most) in enumerate(limits, 1):
            if got > most:
                return number, f"{name}: {got:,}, and there are {most:,}"
        return len(limits) + 1, ""

    def __str__(self) -> str:
        p = self.problem
        return (
            f"[{p.m}, {p.k}] x [{p.k}, {p.n}] {p.element} to {p.result}: {self.columns} columns of {self.rows} cores, "
            f"tiles {self.m} x {self.k} x {self.n}"
        )


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
    from nxjax.lower.aie.cycles import matmul_cycles

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
    from nxjax.lower.aie.cycles import matmul_cycles

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


@final
@dataclass(frozen=True, eq=False)
class ElementwisePlan:
    """A function of one or two buffers cut over the array: every core takes ``size`` elements at a time.

    Attributes:
        operands: 1 or 2.
        width: bytes of an element.
        rounds: how often each core does so.
    """

    elements: int
    operands: int
    width: int
    array: AieArray
    columns: int
    rows: int
    size: int

    @property
    def rounds(self) -> int:
        return -(-self.elements // (self.columns * self.rows * self.size))

    @property
    def padded(self) -> int:
        return self.rounds * self.columns * self.rows * self.size

    @property
    def why(self) -> tuple[str, ...]:
        return (
            f"{self.elements} elements: {self.columns} columns of {self.rows} cores, {self.size} elements a time, "
            f"{self.rounds} times",
        )


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
    from nxjax.lower.aie.cycles import elementwise_cycles

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
