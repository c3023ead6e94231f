"""The two generations of AMD's AI Engine array in Ryzen processors: geometry, limits and rates, with their sources.

Knows no design and no program. Geometry, counts of buffer descriptors, locks and channels: `AIETargetModel` of the
mlir-aie project and AMD's UG1603. Rates of the matrix instructions: AMD's driver (multiply-accumulates a cycle of a
column of four cores), AM020, and "Hello XDNA" of the University of Jena.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, final

from nxjax.errors import ParameterError

TileKind = Literal["shim", "mem", "core"]

# Rows of every array of these generations: one of shims to the host's memory, one of memory tiles, four of cores.
SHIM_ROW: Final = 0
MEM_ROW: Final = 1
FIRST_CORE_ROW: Final = 2
CORE_ROWS: Final = 4

# Shim BDs that wait in a channel's queue beside the one that runs (AM020, DMA task queue).
QUEUE: Final = 4
# What `scf.for` counts to in a core that runs for ever.
FOREVER: Final = 4294967295
# Bytes that one stream moves a cycle: 32-bit AXI4 streams (UG1603).
STREAM: Final = 4
# Stack that a core's kernels get, as mlir-aie's matrix products take it; the default of `aie.core` is 1024.
STACK: Final = 3328


@final
@dataclass(frozen=True)
class TileLimits:
    """What a tile of one kind has.

    Attributes:
        memory: bytes of data memory.
        descriptors: buffer descriptors (BDs).
        locks: semaphore locks.
        incoming: S2MM DMA channels, streams that end here.
        outgoing: MM2S DMA channels, streams that begin here.
        dimensions: of a BD's addresses.
        wrap_bits: of a dimension's size, in 32-bit words for the innermost.
        step_bits: of a dimension's stride in 32-bit words.
    """

    memory: int
    descriptors: int
    locks: int
    incoming: int
    outgoing: int
    dimensions: int
    wrap_bits: int
    step_bits: int


LIMITS: Final[dict[TileKind, TileLimits]] = {
    "shim": TileLimits(0, 16, 16, 2, 2, 3, 10, 20),
    "mem": TileLimits(512 << 10, 48, 64, 6, 6, 4, 10, 17),
    "core": TileLimits(64 << 10, 16, 16, 2, 2, 3, 8, 13),
}
# A shim BD is gone through at most so often, each time further on or again (the fourth size of `dma_memcpy_nd`).
ITERATIONS: Final = 64


@final
@dataclass(frozen=True)
class Intrinsic:
    """A matrix instruction: [m, k] times [k, n] into an accumulator, and multiply-accumulates done a cycle."""

    m: int
    k: int
    n: int
    macs: int


@final
@dataclass(frozen=True, eq=False)
class AieArray:
    """One generation.

    Attributes:
        name: of the MLIR device, "npu1" or "npu2"; with fewer columns it is called ``name_Ncol``.
        title: for people.
        columns: those with a shim DMA.
        clock: cycles a second of the array at the highest DPM level (AMD's driver).
        intrinsics: by operand dtype, "i8" or "bf16".
        load: bytes that a core loads a cycle.
        store: bytes that a core stores a cycle.
        memory: bytes a second between the array and the host's memory: fitted, see `nxjax.lower.aie.calibrate`.
        triple: of the compiler for cores.
        device: what runs it, as xrt-smi calls it.
    """

    name: str
    title: str
    columns: int
    clock: float
    intrinsics: MappingProxyType[str, Intrinsic]
    load: int
    store: int
    memory: float
    triple: str
    device: str

    def device_name(self, columns: int) -> str:
        """The MLIR device of the first ``columns`` columns.

        >>> NPU1.device_name(4), NPU2.device_name(2)
        ('npu1', 'npu2_2col')
        """
        if not 1 <= columns <= self.columns:
            raise ParameterError(f"{self.name}: columns", got=columns, expected=f"1 to {self.columns}")
        return self.name if columns == self.columns else f"{self.name}_{columns}col"

    @property
    def macs(self) -> int:
        """Multiply-accumulates of int8 that all cores do a cycle."""
        return self.columns * CORE_ROWS * self.intrinsics["i8"].macs


NPU1: Final = AieArray(
    "npu1",
    "AMD XDNA (Phoenix, Hawk Point)",
    4,
    1.6e9,
    MappingProxyType({"i8": Intrinsic(4, 8, 8, 256), "bf16": Intrinsic(4, 8, 4, 128)}),
    64,
    32,
    11.9e9,
    "aie2-none-unknown-elf",
    "NPU Phoenix",
)
NPU2: Final = AieArray(
    "npu2",
    "AMD XDNA 2 (Strix, Strix Halo, Krackan)",
    8,
    1.8e9,
    MappingProxyType({"i8": Intrinsic(8, 8, 8, 512), "bf16": Intrinsic(4, 8, 8, 256)}),
    128,
    64,
    43.8e9,
    "aie2p-none-unknown-elf",
    "NPU Strix",
)
ARRAYS: Final = {a.name: a for a in (NPU1, NPU2)}


def of_device(name: str) -> tuple[AieArray, int]:
    """The array and how many of its columns an MLIR device has.

    >>> of_device("npu2_3col")[1]
    3
    """
    head, _, tail = name.partition("_")
    array = ARRAYS.get(head)
    columns = int(tail[:-3]) if tail.endswith("col") and tail[:-3].isdigit() else 0
    if array is None or (tail and not 1 <= columns < array.columns):
        known = ", ".join(f"{a.name}, {a.name}_1col to {a.name}_{a.columns - 1}col" for a in ARRAYS.values())
        raise ParameterError("AIE MLIR: a device that is not known", got=name, expected=known)
    return array, columns or array.columns


def kind_of(row: int) -> TileKind:
    """What stands in a row: 0 shims, 1 memory tiles, then cores.

    >>> [kind_of(row) for row in range(4)]
    ['shim', 'mem', 'core', 'core']
    """
    return "shim" if row == SHIM_ROW else "mem" if row == MEM_ROW else "core"
