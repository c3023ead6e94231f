"""IPU chips and systems as data: tiles, memory, clock, exchange. Knows no program.

Figures are published ones (data sheets, Poplar's programmer's guide and libraries, Jia et al., arXiv:1912.03413);
where a figure is a model's assumption instead of a publication, its comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from nxjax.errors import ParameterError


@final
@dataclass(frozen=True)
class IpuChip:
    """One kind of IPU.

    Attributes:
        name: short, as in a target's name.
        title: for people.
        version: Poplar's name of the architecture: "ipu1", "ipu2".
        tiles: tiles per IPU.
        memory: bytes of memory per tile.
        clock: cycles a second of a tile.
        workers: worker threads per tile, issued in turn.
        conv_units: accumulating (AMP) units that work on half-precision partials; with float partials half as many, at
            most 8.
        exchange_bytes: bytes that a tile receives per cycle.
        sync_cycles: what one exchange phase costs besides its data: the sync of all tiles.
        link_bandwidth: bytes a second between two neighbouring IPUs, one direction.
        host_bandwidth: bytes a second between the host and one IPU.
        source: where the figures are from.
    """

    name: str
    title: str
    version: str
    tiles: int
    memory: int
    clock: float
    workers: int = 6
    conv_units: int = 16
    exchange_bytes: int = 4
    # A conservative figure for a global sync (ipu-stack's cost model); a sync within one chip is shorter.
    sync_cycles: int = 600
    link_bandwidth: float = 64e9
    host_bandwidth: float = 32e9
    source: str = ""


GC2: Final = IpuChip(
    "gc2",
    "Graphcore Colossus Mk1 GC2 (C2 card)",
    "ipu1",
    1216,
    256 * 1024,
    1.6e9,
    # Mk1 multiplies halves with float partials only, at the rate of 8 units.
    conv_units=8,
    host_bandwidth=16e9,
    source="Jia et al., arXiv:1912.03413",
)
GC200: Final = IpuChip(
    "gc200",
    "Graphcore Colossus Mk2 GC200 (IPU-M2000)",
    "ipu2",
    1472,
    624 * 1024,
    1.325e9,
    source="IPU-M2000 data sheet; poplibs' planner",
)
BOW: Final = IpuChip(
    "bow",
    "Graphcore Bow (Bow-2000)",
    "ipu2",
    1472,
    624 * 1024,
    1.85e9,
    source="Bow-2000 data sheet; poplibs' planner",
)
CHIPS: Final = {c.name: c for c in (GC2, GC200, BOW)}


@final
@dataclass(frozen=True)
class IpuSystem:
    """Several equal IPUs: a card, a machine or a rack.

    Attributes:
        name: as in ``target="ipu-..."``.
        title: for people.
        chip: what it is made of.
        ipus: how many.
    """

    name: str
    title: str
    chip: IpuChip
    ipus: int


SYSTEMS: Final = {
    s.name: s
    for s in (
        IpuSystem("gc2", "one GC2 IPU", GC2, 1),
        IpuSystem("c2", "Graphcore C2 card, two GC2 IPUs", GC2, 2),
        IpuSystem("gc200", "one GC200 IPU", GC200, 1),
        IpuSystem("m2000", "IPU-M2000, four GC200 IPUs", GC200, 4),
        IpuSystem("pod4", "IPU-POD4, four GC200 IPUs", GC200, 4),
        IpuSystem("pod16", "IPU-POD16, sixteen GC200 IPUs", GC200, 16),
        IpuSystem("pod64", "IPU-POD64, sixty-four GC200 IPUs", GC200, 64),
        IpuSystem("bow", "one Bow IPU", BOW, 1),
        IpuSystem("bow2000", "Bow-2000, four Bow IPUs", BOW, 4),
        IpuSystem("bow-pod16", "Bow Pod16, sixteen Bow IPUs", BOW, 16),
        IpuSystem("bow-pod64", "Bow Pod64, sixty-four Bow IPUs", BOW, 64),
    )
}


def system(name: str) -> IpuSystem:
    """The system called ``name``, with or without the prefix ``ipu-``.

    Raises:
        ParameterError: there is none.

    >>> system("ipu-bow").chip.tiles
    1472
    """
    found = SYSTEMS.get(str(name).lower().removeprefix("ipu-"))
    if found is None:
        raise ParameterError("ipu: no such system", got=repr(name), expected=", ".join(SYSTEMS))
    return found
