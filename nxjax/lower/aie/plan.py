"""How a matrix product or an elementwise function is cut over the array: tiles, columns, rows, under its limits.

A plan says what it takes and which limit it breaks; `planner` chooses one. Knows no cycles, no text and no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

from nxjax.errors import ParameterError
from nxjax.kernels.aie.chip import ITERATIONS, LIMITS, STACK, AieArray
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
