"""Rules of LSTM, GRU and RNN over whole sequences: one `scan` for each layer and direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.torch.walk import rule

Cell = Callable[[tuple[Any, ...], Any], tuple[Any, ...]]


def _parts(x: Any, count: int) -> list[Any]:
    return jnp.split(x, count, axis=-1)


def _lstm_cell(weight: Any, bias: Any, out: Any) -> Cell:
    def step(state: tuple[Any, ...], row: Any) -> tuple[Any, ...]:
        h, c = state
        i, f, g, o = _parts(row + h @ weight.T + bias, 4)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h if out is None else h @ out.T), c

    return step


def _gru_cell(weight: Any, bias: Any, out: Any) -> Cell:
    def step(state: tuple[Any, ...], row: Any) -> tuple[Any, ...]:
        (h,) = state
        xr, xz, xn = _parts(row, 3)
        hr, hz, hn = _parts(h @ weight.T + bias, 3)
        reset, keep = nn.sigmoid(xr + hr), nn.sigmoid(xz + hz)
        new = jnp.tanh(xn + reset * hn)
        return ((1 - keep) * new + keep * h,)

    return step


def _plain_cell(function: Any) -> Any:
    def cell(weight: Any, bias: Any, out: Any) -> Cell:
        return lambda state, row: (function(row + state[0] @ weight.T + bias),)

    return cell


def _run(
    cell: Any, count: int, x: Any, starts: list[Any], params: Any, biases: bool, layers: int, dropout: float,
    train: bool, both: bool, batch_first: bool,
) -> Any:  # fmt: skip
    """All layers: results of the last one, and the last states [layers * directions, batch, hidden]."""
    if dropout and train and layers > 1:
        raise Refused("from_torch: a recurrent module with dropout", got=f"{dropout}", fix="export it after .eval()")
    batched = x.ndim == 3
    if not batched:
        x, starts = x[:, None], [s[:, None] for s in starts]
    elif batch_first:
        x = x.swapaxes(0, 1)
    directions = 2 if both else 1
    each = len(params) // (layers * directions)
    ends: list[tuple[Any, ...]] = []
    for layer in range(layers):
        made: list[Any] = []
        for d in range(directions):
            k = layer * directions + d
            w, r, *more = params[k * each : (k + 1) * each]
            b, rb = more[:2] if biases else (0, 0)
            out = more[-1] if len(more) == (3 if biases else 1) else None
            # Products with the input do not depend on the state: one for all steps.
            rows = jnp.matmul(x, w.T) + b
            step = cell(r, rb, out)

            def turn(state: Any, row: Any, step: Any = step) -> Any:
                new = step(state, row)
                return new, new[0]

            last, ys = lax.scan(turn, tuple(s[k] for s in starts), rows, reverse=d == 1)
            made.append(ys)
            ends.append(last)
        x = jnp.concatenate(made, -1) if both else made[0]
    states = [jnp.stack(s) for s in zip(*ends, strict=True)]
    assert len(states) == count
    if not batched:
        return (x[:, 0], *(s[:, 0] for s in states))
    return (x.swapaxes(0, 1) if batch_first else x, *states)


@rule("lstm.input")
def _lstm(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    return _run(
        _lstm_cell, 2, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )  # fmt: skip


def _one_state(name: str, cell: Any) -> None:
    def run(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        return _run(cell, 1, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional, batch_first)

    rule(name)(run)


_one_state("gru.input", _gru_cell)
_one_state("rnn_tanh.input", _plain_cell(jnp.tanh))
_one_state("rnn_relu.input", _plain_cell(nn.relu))


def _bias(bias: Any) -> Any:
    return 0 if bias is None else bias


@rule("lstm_cell")
def _lstm_step(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return _lstm_cell(w_hh, _bias(b_hh), None)(tuple(hx), input @ w_ih.T + _bias(b_ih))


@rule("gru_cell")
def _gru_step(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return _gru_cell(w_hh, _bias(b_hh), None)((hx,), input @ w_ih.T + _bias(b_ih))[0]


for _name, _function in {"rnn_tanh_cell": jnp.tanh, "rnn_relu_cell": nn.relu}.items():

    def _plain_step(
        input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, _f: Any = _function
    ) -> Any:
        return _f(input @ w_ih.T + _bias(b_ih) + hx @ w_hh.T + _bias(b_hh))

    rule(_name)(_plain_step)
