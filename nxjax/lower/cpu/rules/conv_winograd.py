"""Convolutions with 3x3 windows by fewer products: when, and in which blocks."""

from __future__ import annotations

from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.conv_blocks import Kind, RegisterBlock
from nxjax.kernels.cpu.conv_problem import NONE, ConvAxis, ConvProblem
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.winograd import FEATURES, Weights, Winograd
from nxjax.lower.cpu.builder import Builder, View
from nxjax.lower.cpu.layout import ordered
from nxjax.lower.cpu.rules.conv_shape import Setup
from nxjax.lower.cpu.rules.conv_tail import Tail, at
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType


def tiles_of(s: Setup) -> int:
    """How many blocks of 2x2 outputs there are."""
    n = s.batch
    for d in s.dims:
        n *= -(-d.outputs // 2)
    return n


def pays(b: Builder, s: Setup, w: View, kind: Kind) -> bool:
    """Whether the kernel exists for ``s`` and takes less time than the plain one.

    In units of what a plain product takes, by measurement; the last is for the transformation of weights,
    which those that are held do not take in every call.
    """
    lanes = isa.current().lanes(4)
    how = knobs.CONV_WINOGRAD()
    if kind == "f32" and isa.current().reproducible:
        return False  # whether it pays hangs on how many images there are
    if how == 0 or s.groups != 1 or len(s.dims) != 2 or s.x_c != 4 or s.inputs % lanes or s.outputs % lanes:
        return False
    if kind == "pairs" and s.inputs > FEATURES:
        return False
    if s.inputs < 16 or s.outputs < 16 or any(d.taps != 3 or d.step != 1 or d.dilation != 1 for d in s.dims):
        return False
    return how == 2 or 9 * s.pixels > 18 * tiles_of(s) + (40 if b.is_held(w) else 160)


def block_for(kind: Kind, target: Isa, tiles: int, outputs: int) -> RegisterBlock:
    """The widest panel that outputs are whole panels of, as high as registers allow; the fewest empty rows."""
    lanes = target.lanes(4)
    most = 4 if target.registers >= 32 else 2
    vectors = next(v for v in range(most, 0, -1) if outputs % (v * lanes) == 0)
    high = min((target.registers - vectors - (1 if target.fma and kind == "f32" else 2)) // vectors, 12)
    rows = min(range(max(1, high // 2), high + 1), key=lambda h: (-(-tiles // h) * (h * vectors + 0.5), -h))
    return RegisterBlock(rows, vectors, lanes)


def winograd(b: Builder, s: Setup, x: View, w: View, t: Tail, kind: Kind, dtype: DType) -> None:
    """Two calls: weights are transformed, and then used. Outputs of the weights are neighbours in memory."""
    tiles = tiles_of(s)
    block = block_for(kind, isa.current(), tiles, s.outputs)
    panels = s.outputs // block.channels
    room = max(1, knobs.WINOGRAD_ROOM() // ((s.inputs + block.channels) * 64))
    run = max(block.pixels, room // block.pixels * block.pixels)
    runs = -(-tiles // run)
    # Equal runs, and enough items: first panels are shared among them, which costs transforming inputs again.
    share = panels
    while runs * -(-panels // share) < knobs.CONV_ITEMS() and share > 1:
        share = -(-share // 2)
    groups = -(-panels // share)
    runs = max(runs, min(-(-knobs.CONV_ITEMS() // groups), tiles // (4 * block.pixels)))
    run = -(-tiles // (runs * block.pixels)) * block.pixels
    high, wide = s.dims
    axes = [ConvAxis(d.size, d.outputs, d.taps, d.step, d.dilation, d.low, d.x, d.w, d.y) for d in (high, wide)]
    problem = ConvProblem(
        s.batch, 1, s.inputs, s.outputs, (NONE, axes[0], axes[1]), s.x_n, s.x_c, 0, s.w_c, block.channels * 4, 0,
        s.y_n, 0, s.odd,
    )  # fmt: skip
    source = at(w, s.w_offset)
    first = Weights(kind, s.inputs, s.outputs, (s.w_c, high.w, wide.w), block.vectors, block.lanes)
    shape = (panels, 16, s.inputs, block.channels)
    u = ordered(shape, dtypes.float32, range(4))
    b.call(first, [source], [u])
    extras, more, ins, outs = t.extras(s)
    kernel = Winograd(kind, problem, block, run, share, dtype, t.expression, extras, more)
    b.call(kernel, [at(x, s.x_offset), source, u, *ins], outs)
