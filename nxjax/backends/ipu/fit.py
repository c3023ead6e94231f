"""A program on as few IPUs of a system as hold it: one if its tiles have the memory, else two, four and so on.

On several IPUs, all their tiles are mapped as those of one large chip; what crosses the links between them costs more,
which the model counts. Knows memory, no op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nxjax.backends.ipu.model import CycleModel
from nxjax.errors import TileMemoryError
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.ipu.lower import lower
from nxjax.trace.program import Program


def fitted(
    program: Program, system: IpuSystem, options: IpuOptions, donate: Sequence[int] = (), name: str = ""
) -> tuple[CycleModel, int]:
    """The program for a system, and how many of its IPUs hold it.

    What the program itself spreads (`nx.shard_map` over as many devices as there are IPUs) stays as it is spread, if it
    fits.

    Raises:
        TileMemoryError: it does not fit all of them.
        UnsupportedOpsError: tiles cannot run it.
    """
    refused: TileMemoryError | None = None
    for ipus in _counts(system.ipus):
        chip = replace(system.chip, tiles=system.chip.tiles * ipus)
        whole = system if ipus == 1 else replace(system, chip=chip, ipus=1)
        made = lower(program, whole, options, donate, name)
        made.system = system
        try:
            model = CycleModel(made)
            model.memory.check()
        except TileMemoryError as error:
            refused = error
            continue
        return model, ipus
    assert refused is not None
    raise refused


def _counts(ipus: int) -> Iterator[int]:
    """1, 2, 4 and so on, and all.

    >>> list(_counts(6))
    [1, 2, 4, 6]
    """
    n = 1
    while n < ipus:
        yield n
        n *= 2
    yield ipus
