"""Where output pixels and the inputs that their windows see lie: address arithmetic in vectors, a lane per pixel.

Shared by the kernels of convolutions and windows. A pixel's number is taken apart into its places along the batch and
the spatial dimensions by products with reciprocals, which are exact: a quotient of whole numbers below 2^31, taken half
a step up, is never rounded over the next whole number. Dimensions that do nothing take no instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value


@final
@dataclass(frozen=True, slots=True)
class Words:
    """A spatial dimension as machine code reads it; see `conv.ConvAxis`."""

    size: Value
    outputs: Value
    taps: Value
    step: Value
    dilation: Value
    low: Value
    x: Value
    w: Value
    y: Value


@final
class Pixels:
    """A block of pixels.

    Args:
        f: the function that is being written.
        axes: the dimensions that do something; ``used`` says which of the three they are.
        count: how many pixels there are in all.
        wide: lanes, at least as many as a block has pixels.
        batched: there is more than one element in the batch.
    """

    def __init__(
        self, f: Function, axes: Sequence[Words], used: Sequence[int], count: Value, wide: int, batched: bool
    ) -> None:
        self.f = f
        self.wide = wide
        self.axes = axes
        self._used = used
        self._count = count
        self._batched = batched
        self._reciprocals = [1.0 / a.outputs.convert("double") for a in axes]
        self.taps = reduce(lambda a, b: a * b, [a.taps for a in axes])

    def splat(self, x: Value) -> Value:
        return self.f.splat(x, self.wide)

    def begin(self, first: Value) -> None:
        """The block of pixels from number ``first`` on; lanes beyond the last pixel repeat it."""
        f, wide = self.f, self.wide
        ints, doubles = f"<{wide} x i32>", f"<{wide} x double>"
        short = lambda v: self.splat(v.convert("i32"))
        index = f.intrinsic(
            "smin", ints, f.constants("i32", range(wide)) + short(first), short(self._count - 1)
        )  # fmt: skip
        place: list[Value] = []
        for i in reversed(range(len(self.axes))):
            if not i and not self._batched:
                place.insert(0, index)
                break
            middle = index.convert(doubles) + 0.5
            quotient = (middle * self.splat(self._reciprocals[i])).convert(ints)
            place.insert(0, index - quotient * short(self.axes[i].outputs))
            index = quotient
        self._batch = index
        self._place = place
        self._inputs = [i * short(a.step) - short(a.low) for i, a in zip(place, self.axes, strict=True)]

    def places(self, base: Value, strides: Sequence[Value]) -> Value:
        """Addresses of what belongs to each pixel: ``strides`` of the batch and of three dimensions, in bytes."""
        return self._addresses(base, strides[0], [strides[1 + i] for i in self._used], self._place)

    def windows(self, base: Value, n: Value) -> Value:
        """Addresses of the inputs that the first tap of each pixel sees; they may lie outside."""
        return self._addresses(base, n, [a.x for a in self.axes], self._inputs)

    def _addresses(self, base: Value, n: Value, strides: Sequence[Value], at: Sequence[Value]) -> Value:
        longs = f"<{self.wide} x i64>"
        total = self.splat(self.f.cast("ptrtoint", base, "i64"))
        if self._batched:
            total = total + self._batch.convert(longs) * self.splat(n)
        for i, s in zip(at, strides, strict=True):
            total = total + i.convert(longs) * self.splat(s)
        return total

    # --- taps ---

    def first_tap(self) -> list[Value]:
        return [self.f.constant("i64", 0)] * len(self.axes)

    def next_tap(self, now: Sequence[Value]) -> list[Value]:
        """The tap after ``now`` in row-major order."""
        found: list[Value] = []
        carry = self.f.constant("i1", True)
        for i, a in reversed([*zip(now, self.axes, strict=True)]):
            ahead = self.f.select(carry, i + 1, i)
            carry = ahead.eq(a.taps)
            found.insert(0, self.f.select(carry, 0, ahead))
        return found

    def weights(self, now: Sequence[Value]) -> Value:
        """Bytes to the weights of a tap."""
        return reduce(lambda a, b: a + b, [i * a.w for i, a in zip(now, self.axes, strict=True)])

    def offset(self, now: Sequence[Value]) -> Value:
        """Bytes from the input that the first tap sees to that of a tap."""
        return reduce(lambda a, b: a + b, [i * a.dilation * a.x for i, a in zip(now, self.axes, strict=True)])

    def tap(self, start: Value, now: Sequence[Value]) -> tuple[Value, Value]:
        """Addresses of the inputs that a tap sees, from those of the first tap; and which of them lie inside."""
        steps = [i * a.dilation for i, a in zip(now, self.axes, strict=True)]
        inside: Value | None = None
        for i, s, a in zip(self._inputs, steps, self.axes, strict=True):
            fits = (i + self.splat(s.convert("i32"))).ult(self.splat(a.size.convert("i32")))
            inside = fits if inside is None else inside & fits
        assert inside is not None
        return start + self.splat(self.offset(now)), inside
