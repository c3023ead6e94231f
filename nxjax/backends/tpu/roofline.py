"""A program against a chip's roof: what its arithmetic and its memory allow, beside what the compiler expects.

The model is Williams, Waterman and Patterson's (Communications of the ACM 52(4), 2009). Knows figures, no program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from nxjax.backends.tpu.chips import Generation
from nxjax.backends.tpu.picture import roofline


@final
@dataclass(frozen=True)
class Roofline:
    """One device's roof and where a program lies under it.

    Attributes:
        generation: whose published peaks these are.
        integer: whether its products are of int8.
        flops, bytes: of one run on one device, as the compiler counts them.
        estimate: seconds by the compiler's own static estimate; None where it has none.
    """

    generation: Generation
    integer: bool
    flops: float
    bytes: float
    estimate: float | None

    @property
    def peak(self) -> float:
        """FLOP/s of one device: of bfloat16, or int8 where the program's products are."""
        return self.generation.peak(self.integer)

    @property
    def bandwidth(self) -> float:
        """Bytes per second of one device's HBM."""
        return self.generation.bandwidth / self.generation.cores

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic is what limits."""
        return self.peak / self.bandwidth

    @property
    def seconds(self) -> float:
        """The least time: the larger one of the arithmetic's and the memory's."""
        return max(self.flops / self.peak, self.bytes / self.bandwidth)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        return "compute" if self.flops / self.peak >= self.bytes / self.bandwidth else "memory"

    @property
    def achieved(self) -> float | None:
        """FLOP/s at the compiler's estimate."""
        return self.flops / self.estimate if self.estimate else None

    def lines(self) -> list[str]:
        g, kind = self.generation, "int8" if self.integer and self.generation.int8 else "bfloat16"
        per = "chip" if g.cores == 1 else "core"
        found = [
            f"roofline of one {per} ({g.title}; {g.source}): peak {self.peak / 1e12:,.0f} "
            f"{'TOP' if kind == 'int8' else 'TFLOP'}/s {kind}, {self.bandwidth / 1e9:,.0f} GB/s of HBM",
            f"  {self.flops:,.0f} FLOP over {self.bytes:,.0f} bytes accessed = {self.intensity:,.1f} FLOP/byte; bound "
            f"by {self.bound} (ridge at {self.ridge:,.0f}); at best {_time(self.seconds)}",
        ]
        if self.achieved is not None and self.estimate:
            found.append(
                f"  the compiler's static estimate: {_time(self.estimate)}, {self.achieved / 1e12:,.3f} TFLOP/s, "
                f"{self.achieved / self.peak:.1%} of the peak (an estimate, not a measurement)"
            )
        else:
            found.append("  the compiler has no time estimate for this program")
        return found

    def to_dict(self) -> dict[str, object]:
        return {
            "peak": self.peak, "bandwidth": self.bandwidth, "flops": self.flops, "bytes": self.bytes,
            "intensity": self.intensity, "bound": self.bound, "seconds_at_best": self.seconds,
            "compiler_estimate": self.estimate, "source": self.generation.source,
        }  # fmt: skip

    def svg(self) -> str:
        """The roof and the program's place, as an SVG drawing."""
        return roofline(self)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:,.3g} {unit}"
    return f"{seconds * 1e9:,.3g} ns"
