"""What follows a convolution or a window in the same kernel: an expression of its results, stored where they go."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.conv_problem import Extra
from nxjax.kernels.cpu.expression import Expression
from nxjax.lower.cpu.builder import Builder, View
from nxjax.lower.cpu.layout import channels_last, copy, shifted
from nxjax.lower.cpu.rules.conv_shape import Setup


@dataclass(frozen=True, slots=True)
class Tail:
    """What a kernel does with its results: an expression of them and of ``operands``, and where its values go."""

    expression: Expression
    operands: tuple[View, ...]
    outputs: tuple[View, ...]
    channel: int

    @property
    def more(self) -> tuple[View, ...]:
        """Operands, and outputs after the first."""
        return (*self.operands, *self.outputs[1:])

    def extras(self, s: Setup) -> tuple[list[Extra], list[Extra], list[View], list[View]]:
        """Operands and further outputs as a kernel takes them, with the places of operands and of all outputs."""
        found: list[Extra] = []
        places: list[View] = []
        for i, v in enumerate(self.more):
            steps = [0] * (3 - len(s.dims)) + [d.more[i] for d in s.dims]
            channels = i >= len(self.operands) or v.strides[self.channel] != 0
            found.append(Extra(v.dtype, s.more_n[i], (steps[0], steps[1], steps[2]), s.more_group[i], channels))
            places.append(at(v, s.more_offset[i]))
        n = len(self.operands)
        return found[:n], found[n:], places[:n], [at(self.outputs[0], s.y_offset), *places[n:]]


@contextmanager
def tail(
    b: Builder, expression: Expression, operands: Sequence[View], outputs: Sequence[View], channel: int
) -> Generator[Tail]:
    """Operands and outputs whose channels are neighbours in memory; copies where they are not."""
    near = lambda v: v.shape[channel] == 1 or v.strides[channel] == v.dtype.itemsize
    ins: list[View] = []
    for v in operands:
        # One channel counts as repeated.
        one_ = tuple(0 if i == channel and v.shape[i] == 1 else step for i, step in enumerate(v.strides))
        v = View(v.ref, v.shape, one_, v.dtype)
        if v.strides[channel] not in (0, v.dtype.itemsize):
            moving = tuple(n if step else 1 for n, step in zip(v.shape, v.strides, strict=True))
            least = unit(b, View(v.ref, moving, v.strides, v.dtype), channel)
            steps = tuple(k if step else 0 for k, step in zip(least.strides, v.strides, strict=True))
            v = View(least.ref, v.shape, steps, v.dtype)
        ins.append(v)
    outs = [v if near(v) else channels_last(v.shape, v.dtype, channel) for v in outputs]
    yield Tail(expression, tuple(ins), tuple(outs), channel)
    for made, wanted in zip(outs, outputs, strict=True):
        if made is not wanted:
            copy(b, made, wanted)


def unit(b: Builder, v: View, last: int) -> View:
    """``v``, or a copy of it, with the elements of dimension ``last`` adjacent."""
    if v.shape[last] == 1 or v.strides[last] == v.dtype.itemsize:
        return v
    out = channels_last(v.shape, v.dtype, last, 64)
    copy(b, v, out)
    return out


def at(v: View, offset: int) -> View:
    """The memory of ``v`` from ``offset`` bytes on."""
    return shifted(v, offset, v.shape, v.strides)
