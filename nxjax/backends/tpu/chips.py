"""Generations of Cloud TPUs: peaks, memories, topologies, and how each is called. Published figures; knows no compiler.

Peaks and bandwidths are per chip, of Google's "TPU architecture" pages (cloud.google.com/tpu/docs, one page a
generation); those of v2 and v3 are of Jouppi et al., "A domain-specific supercomputer for training deep neural
networks", Communications of the ACM 63(7), 2020.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, final

from nxjax.errors import ParameterError

PAGE: Final = "cloud.google.com/tpu/docs"
PAPER: Final = "Jouppi et al., CACM 63(7), 2020"


@final
@dataclass(frozen=True)
class Generation:
    """One generation.

    Attributes:
        name: as Google sells it: "v5e".
        compiler_name: as its compiler calls it.
        cores: devices of a chip, for the compiler.
        flops: peak of bfloat16 products with float32 sums per chip, FLOP/s.
        int8: peak of int8 products per chip, operations per second; None where there are no faster ones.
        bandwidth: of a chip's HBM, bytes per second.
        hbm: capacity of a chip's HBM, bytes.
        pod: the largest topology, in chips along each dimension.
        topologies: the usual ones, the smallest first.
        source: of the figures.
    """

    name: str
    compiler_name: str
    cores: int
    flops: float
    int8: float | None
    bandwidth: float
    hbm: float
    pod: tuple[int, ...]
    topologies: tuple[str, ...]
    source: str = PAGE

    @property
    def title(self) -> str:
        return f"Google TPU {self.name}"

    def peak(self, integer: bool) -> float:
        """FLOP/s, or integer operations per second, of one device as the compiler counts them."""
        return (self.int8 if integer and self.int8 else self.flops) / self.cores

    def topology(self, text: str) -> Topology:
        """The topology ``text``, such as "2x2x1".

        Raises:
            ParameterError: it has another number of dimensions, is larger than a pod, or is not one of numbers.
        """
        found = re.fullmatch(r"\d{1,5}(x\d{1,5})*", text.strip().lower())
        shape = tuple(int(n) for n in text.lower().split("x")) if found else ()
        if len(shape) != len(self.pod) or 0 in shape or math.prod(shape) > math.prod(self.pod):
            raise self.refused(text, f"{len(self.pod)} numbers, of at most {math.prod(self.pod):,} chips")
        return Topology(self, shape)

    def refused(self, text: str, why: str) -> ParameterError:
        """The error for a topology that is none."""
        return ParameterError(
            f"tpu-{self.name}: no such topology",
            got=repr(text),
            expected=f"{', '.join(self.topologies)}, or another of {why}" if why else ", ".join(self.topologies),
            fix=f'nx.compile(f, target="tpu-{self.name}:{self.topologies[0]}")',
        )


@final
@dataclass(frozen=True)
class Topology:
    """Chips of one generation, so many along each dimension."""

    generation: Generation
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)

    @property
    def devices(self) -> int:
        """Devices as the compiler counts them: cores where a chip's cores work apart."""
        return self.chips * self.generation.cores

    @property
    def form(self) -> str:
        return "x".join(map(str, self.shape))

    @property
    def compiler_name(self) -> str:
        return f"{self.generation.compiler_name}:{self.form}"

    def __str__(self) -> str:
        return f"tpu-{self.generation.name}:{self.form}"


_GIB: Final = 2.0**30
_FLAT: Final = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_OLD: Final = ("1x1", "2x2", "4x4", "8x8", "16x16")
_DEEP: Final = ("1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")

GENERATIONS: Final = (
    Generation("v2", "v2", 2, 46e12, None, 700e9, 16 * _GIB, (16, 16), _OLD, PAPER),
    Generation("v3", "v3", 2, 123e12, None, 900e9, 32 * _GIB, (32, 32), (*_OLD, "32x32"), PAPER),
    Generation("v4", "v4", 2, 275e12, None, 1228e9, 32 * _GIB, (16, 16, 16), (*_DEEP, "16x16x16")),
    Generation("v5e", "v5e", 1, 197e12, 394e12, 819e9, 16 * _GIB, (16, 16), _FLAT),
    Generation("v5p", "v5p", 1, 459e12, 918e12, 2765e9, 95 * _GIB, (16, 20, 28), (*_DEEP, "16x16x24")),
    Generation("v6e", "v6e", 1, 918e12, 1836e12, 1638e9, 32 * _GIB, (16, 16), _FLAT),
    Generation("v7x", "tpu7x", 2, 2307e12, None, 7380e9, 192 * _GIB, (16, 24, 24), (*_DEEP, "16x16x16")),
)


def parsed(name: str) -> Topology:
    """A topology by any of its names: "v5e:2x2", "tpu-v4:2x2x1", "tpu7x:2x2x1", "v6e" for its smallest.

    Raises:
        ParameterError: no such generation, or no such topology of it.

    >>> str(parsed("v5e:2x2")), str(parsed("tpu7x")), parsed("v4:2x2x1").devices
    ('tpu-v5e:2x2', 'tpu-v7x:1x1x1', 8)
    """
    kind, colon, form = str(name).partition(":")
    plain = kind.strip().lower().removeprefix("tpu").strip("-_ ")
    found = next((g for g in GENERATIONS if plain in (g.name, g.name.removeprefix("v"), g.compiler_name)), None)
    if found is None:
        raise ParameterError(
            "tpu: no such generation",
            got=repr(name),
            expected=", ".join(f"{g.name}:{g.topologies[0]}" for g in GENERATIONS),
        )
    return found.topology(form if colon else found.topologies[0])
