"""Recurrent layers in ONNX's LSTM, GRU and RNN: weights by direction, one bias for each of the two products."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.onnx_build import OnnxBuilder
from nxjax.lower.npu.formats.recurrent_parts import blocks, known, zero
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# Where ONNX's gates stand in ours: input, output, forget, cell; update, reset, new.
_ORDER: Final = {"lstm": (0, 3, 1, 2), "gru": (0, 1, 2), "rnn": (0,)}
_FUNCTIONS: Final = {"tanh": "Tanh", "relu": "Relu"}


def write_recurrent(b: OnnxBuilder, n: Node) -> None:
    """All gates' weights as one constant, which every layer with the same ones shares."""
    order, (w, r, bias) = _ORDER[n.op], (known(n, i) for i in (1, 2, 3))
    width = r.shape[1]
    weights = [_constant(b, np.concatenate(blocks(x, width, order))[None], "weights") for x in (w, r)]
    gates, more = bias[: len(w)], bias[len(w) :]
    second = np.concatenate([np.zeros(len(w) - len(more), np.float32), more])
    both = np.concatenate([np.concatenate(blocks(gates, width, order)), second])[None]
    states = [_state(b, t) for t in n.operands[4:]]
    attrs: dict[str, Any] = {"hidden_size": width, "direction": "reverse" if n.attrs["reverse"] else "forward"}
    if n.attrs.get("reset_after"):
        attrs["linear_before_reset"] = 1
    if "function" in n.attrs:
        attrs["activations"] = [_FUNCTIONS[n.attrs["function"]]]
    operands = [b.real(n.operand()), *weights, _constant(b, both, "bias"), "", *states]
    while not operands[-1]:
        operands.pop()
    found = b.ops(n.op.upper(), operands, len(n.outputs), **attrs)
    for t, value in zip(n.outputs, found, strict=True):
        if t in b.read:
            b.result(t, _shaped(b, value, t.shape))


def _constant(b: OnnxBuilder, x: NDArray, name: str) -> str:
    return b.constant(x, np.float32, name)


def _state(b: OnnxBuilder, t: Tensor) -> str:
    """A state with a dimension of directions; left out where it is zero."""
    if zero(t):
        return ""
    if t.data is not None:
        return _constant(b, t.data[None], "state")
    return _shaped(b, b.real(t), (1, *t.shape))


def _shaped(b: OnnxBuilder, value: str, shape: Shape) -> str:
    return b.op("Reshape", [value, b.constant(shape, dtypes.int64, "shape")], "reshape")
