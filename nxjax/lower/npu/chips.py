"""Figures of chips that our cost model reckons with, as data: peaks, bandwidths, memories, and who says so.

Announced peaks count a multiply and an add as two operations; here a multiply-accumulate is one. Where a published
measurement shows what share of the peak products reach, ``share`` is that share; it is 1 where none was found. Where
what a run costs whatever it computes is not published, ``launch`` is None: the estimate is then the time on the chip,
and is called so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, final

from nxjax.errors import ParameterError

# USB 3 as the Edge TPU reaches it: from the two largest rows of the published table, VGG16 and VGG19, whose time is
# nearly all parameters sent anew in every run.
_EDGE_LINK: Final = 0.455e9
_MIB: Final = 1 << 20
# A run of AMD's that computes nothing: ``xrt-smi validate --run latency`` on a Strix in performance mode, as the manual
# of Ryzen AI Software shows it. It shows none of a Phoenix, for which the same is taken.
_XDNA_LAUNCH: Final = 84.2e-6


@final
@dataclass(frozen=True)
class ChipLimits:
    """What a roofline needs to know.

    Attributes:
        name: short, as in a target's name.
        title: for people.
        macs: multiply-accumulates a second at the peak, by precision: "int8", "int16", "float16", "float32".
        bandwidth: bytes a second between the chip and the memory that weights and large activations lie in.
        inside: bytes a second between that array of multipliers and the memory on the chip.
        on_chip: bytes of memory on the chip that activations can stay in.
        cache: bytes of parameters that stay on the chip from run to run.
        link: bytes a second of inputs and results, where the host's memory is not shared.
        lanes: terms and outputs that the array of multipliers takes at once; the rest of a last, partly filled block
            is wasted.
        share: of the peak, what products reach in published measurements.
        launch: seconds per run, whatever the graph; None where nobody says.
        per_node: seconds per node.
        source: where the figures are from.
    """

    name: str
    title: str
    macs: dict[str, float] = field(hash=False)
    bandwidth: float = math.inf
    inside: float = math.inf
    on_chip: int = 0
    cache: int = 0
    link: float = math.inf
    lanes: tuple[int, int] = (1, 1)
    share: float = 1.0
    launch: float | None = None
    per_node: float = 0.0
    source: str = ""


def _ethos(series: str, size: int, clock: float, bandwidth: float, where: str) -> ChipLimits:
    return ChipLimits(
        f"ethos-{series}-{size}",
        f"Arm Ethos-{series.upper()}-{size}",
        {"int8": size * clock, "int16": size * clock / 2},
        bandwidth,
        # A port to SRAM of 64 bits a cycle on the U55, of 128 on the others.
        inside=(8 if series == "u55" else 16) * clock,
        on_chip=384 * 1024,
        source=f"{size} MACs a cycle by its name; clock and memories of Vela's system configuration {where}",
    )


_CHIPS: Final = [
    ChipLimits(
        "edgetpu", "Google Edge TPU on USB 3", {"int8": 2e12}, _EDGE_LINK,
        on_chip=8 * _MIB, cache=7 * _MIB, link=_EDGE_LINK, lanes=(64, 64), launch=1.2e-3,
        source="coral.ai/docs/edgetpu/benchmarks and compiler: 4 TOPS, 8 MB on the chip of which 7 MiB for parameters "
        "in the compiler's logs; link from the published VGG16 and VGG19, time per run from the published SqueezeNet",
    ),
    ChipLimits(
        "xdna1", "AMD XDNA (Phoenix, Hawk Point)",
        {"int8": 4 * 1024 * 1.6e9, "float16": 4 * 512 * 1.6e9}, 4 * 2 * 4 * 1.6e9, inside=4 * 6 * 4 * 1.6e9,
        on_chip=4 * 512 * 1024, lanes=(8, 8), share=0.52, launch=_XDNA_LAUNCH,
        source="Linux driver amdxdna: 2048 int8 operations per column and cycle, 4 columns with memory, 1.6 GHz; "
        "two 32-bit streams per column to memory, six from its memory tile; share from 6.76 TOPS of int8 products "
        "measured in arXiv 2512.13282; launch from the manual of Ryzen AI Software (Strix)",
    ),
    ChipLimits(
        "xdna2", "AMD XDNA 2 (Strix, Krackan)",
        {"int8": 8 * 2048 * 1.8e9, "float16": 8 * 1024 * 1.8e9}, 8 * 2 * 4 * 1.8e9, inside=8 * 6 * 4 * 1.8e9,
        on_chip=8 * 512 * 1024, lanes=(8, 8), share=0.645, launch=_XDNA_LAUNCH,
        source="Linux driver amdxdna: 4096 int8 operations per column and cycle, 8 columns, 1.8 GHz; two 32-bit "
        "streams per column to memory, six from its memory tile; share from 38.05 TOPS of int8 products measured in "
        "arXiv 2512.13282; launch from the manual of Ryzen AI Software",
    ),
    ChipLimits(
        "hexagon-x-elite", "Qualcomm Hexagon (Snapdragon X Elite)", {"int8": 22.5e12}, 135e9,
        source="announced: 45 TOPS int8, 135 GB/s of memory shared with the processor",
    ),
    ChipLimits(
        "intel-npu-3720", "Intel NPU 3 (Meteor Lake)",
        {"int8": 2 * 2048 * 1.4e9, "float16": 2 * 1024 * 1.4e9}, 120e9, on_chip=4 * _MIB,
        source="announced: 2 engines of 2048 int8 MACs a cycle, 11.5 TOPS; memory LPDDR5x-7467 on 128 bits",
    ),
    ChipLimits(
        "intel-npu-4000", "Intel NPU 4 (Lunar Lake)",
        {"int8": 6 * 2048 * 1.95e9, "float16": 6 * 1024 * 1.95e9}, 136e9, on_chip=9 * _MIB,
        source="announced: 6 engines of 2048 int8 MACs a cycle, 48 TOPS; memory LPDDR5x-8533 on 128 bits",
    ),
    ChipLimits(
        "ane-m1", "Apple Neural Engine (M1)", {"float16": 5.5e12, "int8": 5.5e12}, 68.25e9,
        source="announced: 11 trillion operations a second, 68.25 GB/s of memory shared with the processor",
    ),
    ChipLimits(
        "ane-m4", "Apple Neural Engine (M4)", {"float16": 9.5e12, "int8": 19e12}, 120e9,
        source="announced: 38 trillion operations a second (int8; half of it taken for float16), 120 GB/s of memory",
    ),
    *(_ethos("u55", n, 500e6, 0.5e9, "Ethos_U55_High_End_Embedded") for n in (32, 64, 128, 256)),
    *(_ethos("u65", n, 1e9, 12e9, "Ethos_U65_Client_Server") for n in (256, 512)),
    *(_ethos("u85", n, 1e9, 12e9, "Ethos_U85_SYS_DRAM_Mid") for n in (128, 256, 512, 1024, 2048)),
]  # fmt: skip
CHIPS: Final = {c.name: c for c in _CHIPS}


def chip(name: str) -> ChipLimits:
    """The chip of that name.

    Raises:
        ParameterError: if there are no figures for it; the message lists the names.

    >>> chip("edgetpu").cache
    7340032
    """
    if name not in CHIPS:
        raise ParameterError("cost model: no figures for this chip", got=name, expected=", ".join(sorted(CHIPS)))
    return CHIPS[name]
