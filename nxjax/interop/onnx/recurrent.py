"""Rules of LSTM, GRU and RNN: one `scan` for each direction.

Formulas: ONNX's operator definitions. Gates stand in the order of the file: i, o, f, c for LSTM; z, r, h for GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, bounded
from nxjax.interop.onnx.walk import rule

Function = Callable[[Any], Any]
_ACTIVATIONS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "relu": lambda x, a, b: nn.relu(x),
    "tanh": lambda x, a, b: jnp.tanh(x),
    "sigmoid": lambda x, a, b: nn.sigmoid(x),
    "affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: jnp.where(x < 0, (0.01 if a is None else a) * x, x),
    "thresholdedrelu": lambda x, a, b: jnp.where(x > (1.0 if a is None else a), x, 0),
    "scaledtanh": lambda x, a, b: (1.0 if a is None else a) * jnp.tanh((1.0 if b is None else b) * x),
    "hardsigmoid": lambda x, a, b: bounded((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "elu": lambda x, a, b: jnp.where(x < 0, (1.0 if a is None else a) * jnp.expm1(jnp.where(x < 0, x, 0)), x),
    "softsign": lambda x, a, b: nn.soft_sign(x),
    "softplus": lambda x, a, b: nn.softplus(x),
}


def activation(name: str, alpha: float | None, beta: float | None) -> Function:
    """The function of this name, with its numbers where the file gives them."""
    key = name.lower()
    if key not in _ACTIVATIONS:
        raise Refused("from_onnx: an activation that nxjax does not know", got=name, expected=", ".join(_ACTIVATIONS))
    return lambda x: _ACTIVATIONS[key](x, alpha, beta)


# Activations that take one or two numbers, in the order of the lists of numbers.
_ALPHA: Final = frozenset(("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"))
_BETA: Final = frozenset(("affine", "scaledtanh", "hardsigmoid"))


def _activations(names: Sequence[str], alphas: Any, betas: Any, clip: float | None) -> list[Function]:
    alpha, beta = iter(alphas or ()), iter(betas or ())
    found: list[Function] = []
    for name in names:
        key = name.lower()
        a = next(alpha, None) if key in _ALPHA else None
        b = next(beta, None) if key in _BETA else None
        bounded = (lambda x: x) if clip is None else (lambda x: jnp.clip(x, -clip, clip))
        found.append(lambda x, f=activation(name, a, b), bounded=bounded: f(bounded(x)))
    return found


def _lengths_mask(lengths: Any, steps: int) -> Any:
    return None if lengths is None else jnp.arange(steps)[:, None] < lengths.astype(jnp.int64)[None, :]


def _reversed(x: Any, lengths: Any) -> Any:
    """Steps in the other order, those of each sequence within its own length."""
    steps = jnp.arange(x.shape[0])[:, None]
    n = lengths.astype(steps.dtype)[None, :]
    places = jnp.where(steps < n, n - 1 - steps, steps)
    return jnp.take_along_axis(x, places.reshape(places.shape + (1,) * (x.ndim - 2)), axis=0)


def _run(
    cell: Callable[[Any, Any], tuple[Any, Any]], x: Any, start: tuple[Any, ...], lengths: Any, backward: bool
) -> tuple[Any, tuple[Any, ...]]:
    """All steps of one direction: results [steps, batch, hidden] and the last state."""
    turned = backward and lengths is not None
    x = _reversed(x, lengths) if turned else x
    mask = _lengths_mask(lengths, x.shape[0])

    def step(state: Any, row: Any) -> Any:
        if mask is None:
            new = cell(state, row)
            return new, new[0]
        value, inside = row
        new = cell(state, value)
        kept = tuple(jnp.where(inside[:, None], n, s) for n, s in zip(new, state, strict=True))
        return kept, jnp.where(inside[:, None], new[0], 0)

    last, ys = lax.scan(step, start, x if mask is None else (x, mask), reverse=backward and not turned)
    return (_reversed(ys, lengths) if turned else ys), last


def _recurrent(
    x: Any, w: Any, r: Any, b: Any, lengths: Any, starts: Sequence[Any], layout: int, direction: str, hidden: int,
    gates: int, cell: Callable[[int, Any, Any, Any, Any], Callable[[Any, Any], Any]],
) -> Any:  # fmt: skip
    """Results of all directions; ``cell(direction, wx, r, wb, rb)`` gives one step."""
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Refused("from_onnx: a direction that ONNX does not have", got=direction)
    if layout:
        x, starts = x.swapaxes(0, 1), [None if s is None else s.swapaxes(0, 1) for s in starts]
    batch = x.shape[1]
    made: list[Any] = []
    ends: list[tuple[Any, ...]] = []
    for d in range(w.shape[0]):
        first = tuple(jnp.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in starts)
        wb, rb = (0, 0) if b is None else (b[d, : gates * hidden], b[d, gates * hidden :])
        backward = direction == "reverse" or d == 1
        # Products with the input do not depend on the state: one for all steps.
        ys, last = _run(cell(d, w[d], r[d], wb, rb), jnp.matmul(x, w[d].T) + wb, first, lengths, backward)
        made.append(ys)
        ends.append(last)
    y = jnp.stack(made, 1)
    states = [jnp.stack(s) for s in zip(*ends, strict=True)]
    if layout:
        return (y.transpose((2, 0, 1, 3)), *(s.swapaxes(0, 1) for s in states))
    return (y, *states)


def _parts(x: Any, count: int) -> list[Any]:
    return jnp.split(x, count, axis=-1)


@rule("RNN")
def _rnn(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *, hidden_size: int = 0,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None, clip: float | None = None,
    direction: str = "forward", layout: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ("Tanh",) * w.shape[0]
    functions = _activations(names, activation_alpha, activation_beta, clip)

    def cell(d: int, _w: Any, r: Any, _wb: Any, rb: Any) -> Any:
        return lambda s, wx: (functions[d](wx + s[0] @ r.T + rb),)

    return _recurrent(x, w, r, b, lengths, [h], layout, direction, r.shape[-1], 1, cell)


@rule("GRU")
def _gru(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *, hidden_size: int = 0,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None, clip: float | None = None,
    direction: str = "forward", layout: int = 0, linear_before_reset: int = 0, output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ("Sigmoid", "Tanh") * w.shape[0]
    functions = _activations(names, activation_alpha, activation_beta, clip)
    n = r.shape[-1]

    def cell(d: int, _w: Any, r: Any, _wb: Any, rb: Any) -> Any:
        f, g = functions[2 * d : 2 * d + 2]
        bz, br, bh = _parts(rb, 3) if b is not None else (0, 0, 0)

        def step(s: Any, wx: Any) -> Any:
            (h,) = s
            xz, xr, xh = _parts(wx, 3)
            z = f(xz + h @ r[:n].T + bz)
            reset = f(xr + h @ r[n : 2 * n].T + br)
            if linear_before_reset:
                new = g(xh + reset * (h @ r[2 * n :].T + bh))
            else:
                new = g(xh + (reset * h) @ r[2 * n :].T + bh)
            return ((1 - z) * new + z * h,)

        return step

    return _recurrent(x, w, r, b, lengths, [h], layout, direction, n, 3, cell)


@rule("LSTM")
def lstm(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None,
    *, hidden_size: int = 0, activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, direction: str = "forward", input_forget: int = 0, layout: int = 0,
    output_sequence: int = 0,
) -> Any:  # fmt: skip
    names = activations or ("Sigmoid", "Tanh", "Tanh") * w.shape[0]
    functions = _activations(names, activation_alpha, activation_beta, clip)
    # ONNX Runtime clips what goes into the gates, and not the cell that goes into the result.
    functions[2::3] = _activations(names, activation_alpha, activation_beta, None)[2::3]
    n = r.shape[-1]

    def cell(d: int, _w: Any, r: Any, _wb: Any, rb: Any) -> Any:
        f, g, out = functions[3 * d : 3 * d + 3]
        pi, po, pf = _parts(p[d], 3) if p is not None else (0, 0, 0)

        def step(s: Any, wx: Any) -> Any:
            h, c = s
            i, o, forget, new = _parts(wx + h @ r.T + rb, 4)
            i = f(i + pi * c)
            forget = 1 - i if input_forget else f(forget + pf * c)
            c = forget * c + i * g(new)
            return f(o + po * c) * out(c), c

        return step

    return _recurrent(x, w, r, b, lengths, [h, c], layout, direction, n, 4, cell)
