"""Rules of LSTM, RNN and SVDF: one `scan` for each direction, with the state that the file keeps from call to call.

Formulas: Hochreiter and Schmidhuber 1997 with forget gates, peepholes and a projection (Sak et al. 2014); layer
normalization of the gates (Ba et al. 2016); SVDF: Nakkiran et al. 2015.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.elementwise import activated
from nxjax.interop.tflite.graph import TFLiteNode
from nxjax.interop.tflite.held import GridValue, grid_of
from nxjax.interop.tflite.quantized_products import dense_with_bytes
from nxjax.interop.tflite.recurrent_integers import IntegerLstm
from nxjax.interop.tflite.walk import TFLiteScope, on_grid_of, rule
from nxjax.ops.fixed.elementwise import scale_of
from nxjax.ops.quant_traced import rescale_static, wrap_int32


class _Cells:
    """The operands of a recurrent operator, and what it does with weights."""

    def __init__(self, xs: Sequence[Any], node: TFLiteNode, scope: TFLiteScope, asymmetric: bool) -> None:
        self.xs, self.node, self.scope, self.asymmetric = xs, node, scope, asymmetric
        if isinstance(xs[0], GridValue):
            raise Refused(f"from_tflite: no rule for {node.kind} of quantized values", got=node)

    def at(self, i: int) -> Any:
        return self.xs[i] if i < len(self.xs) else None

    def real(self, i: int) -> Any:
        """An operand as floats; None if it is left out."""
        x = self.at(i)
        return x.real if isinstance(x, GridValue) else x

    def product(self, x: Any, i: int) -> Any:
        """Rows of ``x`` with the weights at place ``i``: stored ones take bytes, a row of weights is a diagonal."""
        w = self.at(i)
        if isinstance(w, GridValue):
            return dense_with_bytes(x, w, self.asymmetric)
        return x * w if w.ndim == 1 else jnp.matmul(x, w.T)

    def keep(self, i: int, x: Any) -> None:
        """The state at place ``i`` for what reads it next, here or in the next call."""
        t, place = self.node.operands[i], self.node.inputs[i]
        if t is not None and place is not None and t.data is None:
            self.scope.values[place] = on_grid_of(t, x)
            if t.variable:
                self.scope.walker.state[t.name] = x


def _over_time(x: Any, time_major: bool) -> Any:
    return x if time_major or x is None else x.swapaxes(0, 1)


def _scanned(step: Callable[[Any, Any], Any], start: Any, rows: Sequence[Any], backward: bool) -> tuple[Any, Any]:
    """All steps of one direction: the last state, and a row for each step."""
    given = tuple(r for r in rows if r is not None)
    places = [i for i, r in enumerate(rows) if r is not None]

    def run(state: Any, row: Any) -> Any:
        every: list[Any] = [None] * len(rows)
        for i, r in zip(places, row, strict=True):
            every[i] = r
        new = step(state, every)
        return new, new[0]

    last, ys = lax.scan(run, start, given, reverse=backward)
    return last, ys


class _Lstm:
    """One direction of an LSTM: where its operands begin, and its numbers.

    Args:
        gates: where the weights of the gates begin: of inputs, of the state, of the cell, biases, of the projection.
        aux: where the weights of a second input begin; None: there is none.
        norm: where the coefficients of layer normalization begin; None: there are none.
    """

    def __init__(
        self, cells: _Cells, gates: int, aux: int | None, norm: int | None, act: int, clip: float, proj_clip: float
    ) -> None:
        self.c, self.w, self.aux, self.norm = cells, gates, aux, norm
        self.act, self.clip, self.proj_clip = act, clip, proj_clip
        self.coupled = cells.at(gates) is None

    def gate(self, k: int, x: Any, more: Any, h: Any, cell: Any) -> Any:
        """Gate ``k`` of input, forget, cell and output, before its activation."""
        c, w = self.c, self.w
        y = c.product(x, w + k) + c.product(h, w + 4 + k)
        if more is not None and self.aux is not None and c.at(self.aux + k) is not None:
            y = y + c.product(more, self.aux + k)
        peep = None if k == 2 else c.real(w + 8 + (k if k < 2 else 2))
        y = y if peep is None else y + cell * peep
        scale = None if self.norm is None else c.real(self.norm + k)
        if scale is not None:
            centred = y - jnp.mean(y, -1, keepdims=True)
            y = centred * lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + np.float32(1e-8)) * scale
        bias = c.real(w + 11 + k)
        return y if bias is None else y + bias

    def step(self, state: Any, row: Any) -> Any:
        (h, cell), (x, more) = state, row
        f = nn.sigmoid(self.gate(1, x, more, h, cell))
        i = 1 - f if self.coupled else nn.sigmoid(self.gate(0, x, more, h, cell))
        new = f * cell + i * activated(self.gate(2, x, more, h, cell), self.act)
        new = jnp.clip(new, -self.clip, self.clip) if self.clip > 0 else new
        y = nn.sigmoid(self.gate(3, x, more, h, new)) * activated(new, self.act)
        if self.c.at(self.w + 15) is not None:
            y = self.c.product(y, self.w + 15)
            bias = self.c.real(self.w + 16)
            y = y if bias is None else y + bias
            y = jnp.clip(y, -self.proj_clip, self.proj_clip) if self.proj_clip > 0 else y
        return y, new

    def run(self, x: Any, more: Any, at: int, backward: bool = False) -> Any:
        """Rows of results; the states are the operands at ``at`` and after."""
        c = self.c
        (h, cell), ys = _scanned(self.step, (c.real(at), c.real(at + 1)), (x, more), backward)
        c.keep(at, h)
        c.keep(at + 1, cell)
        return ys


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM", on_grids="held")
def _sequence_lstm(
    *xs: Any, fused_activation_function: int, cell_clip: float, proj_clip: float, time_major: bool,
    asymmetric_quantize_inputs: bool, node: TFLiteNode, scope: TFLiteScope,
) -> Any:  # fmt: skip
    if isinstance(xs[0], GridValue):
        keep = _Cells((None,), node, scope, False).keep
        return IntegerLstm(xs, node, cell_clip, proj_clip).run(time_major, keep)
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    one = _Lstm(cells, 1, None, 20, fused_activation_function, cell_clip, proj_clip)
    return _over_time(one.run(_over_time(xs[0], time_major), None, 18), time_major)


@rule("LSTM", on_grids="held")
def _lstm(
    *xs: Any, fused_activation_function: int, cell_clip: float, proj_clip: float, kernel_type: int,
    asymmetric_quantize_inputs: bool, node: TFLiteNode, scope: TFLiteScope,
) -> Any:  # fmt: skip
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    if kernel_type == 1:
        return _basic_lstm(*xs)
    one = _Lstm(cells, 1, None, 20, fused_activation_function, cell_clip, proj_clip)
    return one.run(xs[0][None], None, 18)[0]


def _basic_lstm(x: Any, h: Any, w: Any, b: Any, cell: Any) -> Any:
    """All gates in one product: input, new input, forget, output."""
    joined = jnp.concatenate([x, h], -1)
    gates = jnp.matmul(joined, w.T) + b
    i, g, f, o = jnp.split(gates, 4, -1)
    new = nn.sigmoid(i) * jnp.tanh(g) + nn.sigmoid(f) * cell
    return nn.sigmoid(o) * jnp.tanh(new), new, joined, gates


def _both(forward: Any, backward: Any, merged: bool) -> Any:
    return jnp.concatenate([forward, backward], -1) if merged else (forward, backward)


@rule("BIDIRECTIONAL_SEQUENCE_LSTM", on_grids="held")
def _bidirectional_lstm(
    *xs: Any, fused_activation_function: int, cell_clip: float, proj_clip: float, merge_outputs: bool,
    time_major: bool, asymmetric_quantize_inputs: bool, node: TFLiteNode, scope: TFLiteScope,
) -> Any:  # fmt: skip
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    x, more = (_over_time(cells.at(i), time_major) for i in (0, 39))
    # A second input without weights of its own is that of the backward direction.
    apart = more is not None and cells.at(41) is None
    numbers = (fused_activation_function, cell_clip, proj_clip)
    forward = _Lstm(cells, 1, 40, None, *numbers).run(x, None if apart else more, 35)
    backward = _Lstm(cells, 18, 44, None, *numbers).run(more if apart else x, None if apart else more, 37, True)
    return _both(_over_time(forward, time_major), _over_time(backward, time_major), merge_outputs)


def _rnn(cells: _Cells, x: Any, more: Any, at: int, aux: int | None, act: int, backward: bool = False) -> Any:
    """One direction of an RNN whose weights begin at ``at``: of inputs, of the state, the bias, and the state."""

    def step(state: Any, row: Any) -> Any:
        y = cells.product(row[0], at) + cells.product(state[0], at + 1) + cells.real(at + 2)
        if row[1] is not None and aux is not None:
            y = y + cells.product(row[1], aux)
        return (activated(y, act),)

    (h,), ys = _scanned(step, (cells.real(at + 3),), (x, more), backward)
    cells.keep(at + 3, h)
    return ys


@rule("RNN", on_grids="held")
def _simple_rnn(
    *xs: Any, fused_activation_function: int, asymmetric_quantize_inputs: bool, node: TFLiteNode, scope: TFLiteScope
) -> Any:
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    return _rnn(cells, xs[0][None], None, 1, None, fused_activation_function)[0]


@rule("UNIDIRECTIONAL_SEQUENCE_RNN", on_grids="held")
def _sequence_rnn(
    *xs: Any, time_major: bool, fused_activation_function: int, asymmetric_quantize_inputs: bool, node: TFLiteNode,
    scope: TFLiteScope,
) -> Any:  # fmt: skip
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    ys = _rnn(cells, _over_time(xs[0], time_major), None, 1, None, fused_activation_function)
    return _over_time(ys, time_major)


@rule("BIDIRECTIONAL_SEQUENCE_RNN", on_grids="held")
def _bidirectional_rnn(
    *xs: Any, time_major: bool, fused_activation_function: int, merge_outputs: bool,
    asymmetric_quantize_inputs: bool, node: TFLiteNode, scope: TFLiteScope,
) -> Any:  # fmt: skip
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    x, more = (_over_time(cells.at(i), time_major) for i in (0, 9))
    apart = more is not None and cells.at(10) is None
    beside = None if apart else more
    forward = _rnn(cells, x, beside, 1, 10, fused_activation_function)
    backward = _rnn(cells, more if apart else x, beside, 5, 11, fused_activation_function, True)
    return _both(_over_time(forward, time_major), _over_time(backward, time_major), merge_outputs)


@rule("SVDF", on_grids="held")
def _svdf(
    *xs: Any, rank: int, fused_activation_function: int, asymmetric_quantize_inputs: bool, node: TFLiteNode,
    scope: TFLiteScope,
) -> Any:  # fmt: skip
    if isinstance(xs[0], GridValue):
        return _svdf_of_integers(*xs, rank=rank, node=node, scope=scope)
    cells = _Cells(xs, node, scope, asymmetric_quantize_inputs)
    times, bias, state = (cells.real(i) for i in (2, 3, 4))
    filters, memory = times.shape
    rows = state.reshape(-1, filters, memory)
    rows = jnp.concatenate([rows[:, :, 1:], cells.product(xs[0], 1)[:, :, None]], 2)
    cells.keep(4, rows.reshape(state.shape))
    y = jnp.sum(rows * times, 2).reshape(-1, filters // rank, rank).sum(2)
    return activated(y if bias is None else y + bias, fused_activation_function)


def _svdf_of_integers(
    x: GridValue, w: GridValue, times: GridValue, bias: GridValue | None, state: GridValue, *, rank: int,
    node: TFLiteNode, scope: TFLiteScope,
) -> Any:  # fmt: skip
    out = grid_of(node.out).grid
    filters, memory = times.shape
    scale = lambda a, b, c: np.float64(scale_of(a)) * np.float64(scale_of(b)) / np.float64(scale_of(c))
    dot = jnp.matmul(x.centred(), w.stored.astype(jnp.int32).T).astype(jnp.int64)
    newest = jnp.clip(rescale_static(dot, scale(x.grid, w.grid, state.grid), "double"), -32768, 32767)
    rows = state.stored.reshape(-1, filters, memory)
    rows = jnp.concatenate([rows[:, :, 1:], newest.astype(jnp.int16)[:, :, None]], 2)
    _Cells((None,), node, scope, False).keep(4, rows.reshape(state.shape))
    total = jnp.sum(rows.astype(jnp.int64) * times.stored.astype(jnp.int64), 2)
    total = total.reshape(-1, filters // rank, rank).sum(2)
    total = total if bias is None else total + bias.stored.astype(jnp.int64)
    y = rescale_static(wrap_int32(total), scale(state.grid, times.grid, out), "double")
    low, high = out.limits
    return jnp.clip(y + out.zero_point, low, high).astype(out.dtype)
