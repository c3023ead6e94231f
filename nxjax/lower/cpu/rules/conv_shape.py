"""A convolution's dimension numbers as strides: one `Setup`, and the plain convolutions that it falls into.

Dilation of the input (``lhs_dilation``) puts holes between its elements. No product with a hole is made: outputs whose
windows meet the elements at the same taps form a phase, and a phase is a convolution without holes, of every so many
taps, that writes every so many outputs. Along one dimension, with input dilation L, stride S, window dilation D and low
padding p, output o sees by tap k the dilated place ``o S + k D - p``, which is element ``place / L`` if L divides it:

    o = r + t R    with R = L / gcd(L, S): all outputs of a phase r meet the same taps
    k = k0 + j K   with K = L / gcd(L, D), where k0 is the first tap that fits r; none may
    element = t (R S / L) + j (K D / L) + (r S + k0 D - p) / L

Knows strides, no kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.lower.cpu.builder import View


@final
@dataclass(frozen=True, slots=True)
class SpatialDim:
    """A spatial dimension of a convolution; ``x``, ``w``, ``y`` and ``more`` are strides in bytes.

    Output o sees, by tap k, input ``o * step + k * dilation - low``, which counts as zero outside of [0, size).
    """

    size: int
    outputs: int
    taps: int
    step: int
    dilation: int
    low: int
    x: int
    w: int
    y: int
    more: tuple[int, ...] = ()

    @property
    def padded(self) -> bool:
        last = (self.outputs - 1) * self.step + (self.taps - 1) * self.dilation - self.low
        return self.outputs > 0 and self.taps > 0 and (self.low > 0 or last >= self.size)

    @property
    def trivial(self) -> bool:
        """One output and one tap, which is the first element."""
        return self.outputs == 1 and self.taps == 1 and self.low == 0 and self.size >= 1


@final
@dataclass(frozen=True, slots=True)
class Setup:
    """A convolution of views; the offsets move the first element of each, in bytes.

    Attributes:
        batch, groups, inputs, outputs: sizes; inputs and outputs are those of a group.
        dims: spatial dimensions.
        x_n, x_c, x_group, w_c, w_o, w_group, y_n, y_group: strides.
        odd: inputs are pairs, and the last one is one feature and what lies behind it.
        more_n, more_group, more_offset: of what else has an element for each of the result.
    """

    batch: int
    groups: int
    inputs: int
    outputs: int
    dims: tuple[SpatialDim, ...]
    x_n: int
    x_c: int
    x_group: int
    w_c: int
    w_o: int
    w_group: int
    y_n: int
    y_group: int
    x_offset: int = 0
    w_offset: int = 0
    y_offset: int = 0
    more_n: tuple[int, ...] = ()
    more_group: tuple[int, ...] = ()
    more_offset: tuple[int, ...] = ()
    odd: bool = False

    @property
    def padded(self) -> bool:
        return any(d.padded for d in self.dims)

    @property
    def pixels(self) -> int:
        return self.batch * math.prod(d.outputs for d in self.dims)

    @property
    def depthwise(self) -> bool:
        """Every channel has a window of its own."""
        return self.inputs == self.outputs == 1 and self.groups > 1


def setup(
    x: View,
    w: View,
    y: View,
    specs: Sequence[Sequence[int]],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    more: Sequence[View] = (),
) -> list[Setup]:
    """The phases of a convolution of ``x`` and ``w`` that writes all of ``y``; ``more`` are views of its shape."""
    lhs, rhs, out = specs
    xs, ws, ys = x.strides, w.strides, y.strides
    groups = feature_group_count * batch_group_count
    inputs, outputs = w.shape[rhs[1]], w.shape[rhs[0]] // groups
    batch = x.shape[lhs[0]] // batch_group_count
    whole = Setup(
        batch, groups, inputs, outputs, (),
        xs[lhs[0]], xs[lhs[1]], batch * xs[lhs[0]] if batch_group_count > 1 else inputs * xs[lhs[1]],
        ws[rhs[1]], ws[rhs[0]], outputs * ws[rhs[0]], ys[out[0]], outputs * ys[out[1]],
        more_n=tuple(v.strides[out[0]] for v in more), more_group=tuple(outputs * v.strides[out[1]] for v in more),
    )  # fmt: skip
    choices: list[list[tuple[SpatialDim, int, int, tuple[int, ...]]]] = []
    for i in range(len(lhs) - 2):
        l, k, o = lhs[i + 2], rhs[i + 2], out[i + 2]
        dim = SpatialDim(
            x.shape[l], y.shape[o], w.shape[k], window_strides[i], rhs_dilation[i], padding[i][0], xs[l], ws[k], ys[o],
            tuple(v.strides[o] for v in more),
        )  # fmt: skip
        choices.append(list(phases(dim, lhs_dilation[i])))
    found: list[Setup] = []
    for chosen in itertools.product(*choices):
        dims = tuple(c[0] for c in chosen)
        w_at, y_at = sum(c[1] for c in chosen), sum(c[2] for c in chosen)
        others = tuple(sum(c[3][i] for c in chosen) for i in range(len(more)))
        found.append(replace(whole, dims=dims, w_offset=w_at, y_offset=y_at, more_offset=others))
    return found


def phases(d: SpatialDim, holes: int) -> Iterator[tuple[SpatialDim, int, int, tuple[int, ...]]]:
    """The phases of a dimension whose input is dilated by ``holes``, with bytes to their first tap and output.

    The last are the bytes to what else belongs to the first output.
    """
    every, apart = holes // math.gcd(holes, d.step), holes // math.gcd(holes, d.dilation)
    for r in range(min(every, d.outputs)):
        outputs = -(-(d.outputs - r) // every)
        fit = (k for k in range(min(apart, d.taps)) if (r * d.step + k * d.dilation - d.low) % holes == 0)
        first = next(fit, None)
        taps = 0 if first is None else -(-(d.taps - first) // apart)
        first = first or 0
        low = -((r * d.step + first * d.dilation - d.low) // holes)
        yield (
            SpatialDim(
                d.size, outputs, taps, every * d.step // holes, apart * d.dilation // holes, low,
                d.x, apart * d.w, every * d.y, tuple(every * m for m in d.more),
            ),
            first * d.w,
            r * d.y,
            tuple(r * m for m in d.more),
        )  # fmt: skip


def simplified(s: Setup) -> Setup:
    """Dimensions that do nothing left out, the others joined where they are one run of pixels."""
    dims = [d for d in s.dims if not d.trivial]
    joined: list[SpatialDim] = []
    for d in dims:
        last = joined[-1] if joined else None
        plain = lambda v: v.taps == 1 and v.low == 0 and v.outputs * v.step <= v.size + v.step - 1 and not v.padded
        if (
            last is not None
            and plain(last)
            and plain(d)
            and last.step * last.x == d.outputs * d.step * d.x
            and last.y == d.outputs * d.y
            and last.more == tuple(d.outputs * m for m in d.more)
        ):
            n = last.outputs * d.outputs
            joined[-1] = SpatialDim(n * d.step, n, 1, d.step, 1, 0, d.x, d.w, d.y, d.more)
        else:
            joined.append(d)
    s = replace(s, dims=tuple(joined))
    if len(joined) == 1 and (d := joined[0]).taps == 1 and not d.padded and d.low == 0:
        step, n = d.step * d.x, s.batch * d.outputs
        same = s.more_n == tuple(d.outputs * m for m in d.more)
        if s.x_n == d.outputs * step and s.y_n == d.outputs * d.y and same:
            s = replace(s, batch=1, dims=(SpatialDim(n * d.step, n, 1, d.step, 1, 0, d.x, d.w, d.y, d.more),))
    return s
