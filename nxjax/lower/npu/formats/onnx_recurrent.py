"""Recurrent layers in ONNX's LSTM, GRU and RNN: weights by direction, one bias for each of the two products."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.npu.blocks import BlockedWeights
from nxjax.lower.npu.formats.onnx_build import WIDE_QDQ, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_reader import LayoutView, OnnxReader, name_at, refuse
from nxjax.lower.npu.formats.recurrent_parts import blocks, known, zero
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.rewrite import constant
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# Where ONNX's gates stand in ours: input, output, forget, cell; update, reset, new.
_ORDER: Final = {"lstm": (0, 3, 1, 2), "gru": (0, 1, 2), "rnn": (0,)}
_FUNCTIONS: Final = {"tanh": "Tanh", "relu": "Relu"}
# The directions of a layer, by what ONNX calls them.
_WAYS: Final = {"forward": ("forward",), "reverse": ("reverse",), "bidirectional": ("forward", "reverse")}
# The functions with which ours have a meaning, as a file may name them.
_KNOWN: Final = {"lstm": [["sigmoid", "tanh", "tanh"]], "gru": [["sigmoid", "tanh"]], "rnn": [["tanh"], ["relu"]]}


def write_recurrent(b: OnnxBuilder, n: Node) -> None:
    """All gates' weights as one constant, which every layer with the same ones shares."""
    order, bias, count = _ORDER[n.op], known(n, 3), n.operand(1).shape[0]
    width = n.operand(2).shape[1]
    weights = [_weights(b, n, i, width) for i in (1, 2)]
    gates, more = bias[:count], bias[count:]
    second = np.concatenate([np.zeros(count - len(more), np.float32), more])
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


def _weights(b: OnnxBuilder, n: Node, place: int, width: int) -> str:
    """The weights of all gates in ONNX's order, with a dimension of directions; stored as integers where they are."""
    order, stored = _ORDER[n.op], b.matrices.get(n.operand(place))
    if stored is None:
        return _constant(b, np.concatenate(blocks(known(n, place), width, order))[None], "weights")
    w = stored.rows(order, width)
    if b.options.style == "float" or (w.scales.shape[1] > 1 and b.opset < WIDE_QDQ):
        return _constant(b, w.real[None], "weights")
    if w.scales.shape[1] > 1:
        return b.in_blocks("weights", BlockedWeights(w.data[None], w.scales[None]), identity(3))
    scales = tuple(map(float, w.scales[:, 0]))
    grid, _ = b.stored_grid(Grid(w.data.dtype, scales, 0, 1), weight=True)
    return b.dequantize(b.constant(w.data[None], grid.dtype, "weights"), grid, identity(3))


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


def read_recurrent(r: OnnxReader, n: Any) -> None:
    """A layer of one direction or of both, with the functions that it has where none are named."""
    a, op = r.attributes(n), n.op_type.lower()
    x = r.tensor(n.input[0], real=True)
    functions = [name.decode().lower() for name in a.get("activations", ())]
    ways = _WAYS.get(a.get("direction", b"forward").decode(), ())
    more = [key for key in ("clip", "input_forget", "layout") if a.get(key)] + [i for i in (4, 7) if name_at(n, i)]
    if more or not ways or functions not in ([], *(known * len(ways) for known in _KNOWN[op])):
        raise refuse(n, "with lengths, peepholes, clipping or other functions")
    function = functions[0] if functions else "tanh"
    layers = [_read_way(r, n, x, k, way, a, function) for k, way in enumerate(ways)]
    for i, name in enumerate(n.output):
        if name:
            # A dimension of directions: before the batch of all steps, in front of a state.
            single = len(layers) == 1
            parts = [_under(r, x[i], name if single else f"{name}/{k}", i == 0) for k, x in enumerate(layers)]
            held = parts[0]
            if not single:
                held = Tensor(name, r.shape(name), dtypes.float32)
                axis = 1 if i == 0 else 0
                made = Node("concatenation", tuple(parts), (held,), {"axis": axis}, name=f"{name}/concatenation")
                r.nodes.append(made)
            r.views[name] = LayoutView(held, identity(len(held.shape)))


def _under(r: OnnxReader, t: Tensor, name: str, rows: bool) -> Tensor:
    """A result of one direction, with a dimension for that."""
    shape = (*t.shape[:rows], 1, *t.shape[rows:])
    made = Tensor(name, shape, dtypes.float32)
    r.nodes.append(Node("reshape", (t,), (made,), {"shape": shape}, name=f"{name}/reshape"))
    return made


def _read_way(
    r: OnnxReader, n: Any, x: Tensor, place: int, way: str, a: dict[str, Any], function: str
) -> tuple[Tensor, ...]:
    """The results of one direction: those of all steps, and the last states."""
    op, (steps, batch, _) = n.op_type.lower(), x.shape
    w, rec = (r.meant(n.input[i])[place] for i in (1, 2))
    width, count = rec.shape[1], len(w)
    both = np.zeros(2 * count, np.float32) if name_at(n, 3) is None else r.meant(n.input[3])[place]
    back = [_ORDER[op].index(i) for i in range(len(_ORDER[op]))]
    inner, outer = (blocks(part, width, back) for part in (both[:count], both[count:]))
    # What the reset gate of a GRU lets through is apart; all other biases are one.
    apart = op == "gru"
    biases = [v + u for v, u in zip(inner, outer, strict=True)]
    biases = [*biases[:-1], inner[-1], outer[-1]] if apart else biases
    stored = [*(np.concatenate(blocks(v, width, back)) for v in (w, rec)), np.concatenate(biases)]
    states = [_read_state(r, n, 5 + k, place, (batch, width)) for k in range(2 if op == "lstm" else 1)]
    attrs: dict[str, Any] = {"reverse": way == "reverse"}
    if apart:
        attrs["reset_after"] = bool(a.get("linear_before_reset"))
    if op == "rnn":
        attrs["function"] = function
    shapes = [(steps, batch, width), *[(batch, width)] * len(states)]
    name = f"{n.name or op}/{way}"
    made = tuple(Tensor(f"{name}/{i}", shape, dtypes.float32) for i, shape in enumerate(shapes))
    r.nodes.append(Node(op, (x, *map(constant, stored), *states), made, attrs, name=name))
    return made


def _read_state(r: OnnxReader, n: Any, operand: int, place: int, shape: Shape) -> Tensor:
    """A state of one direction, of a tensor with a dimension of them."""
    name = name_at(n, operand)
    if name is None:
        return constant(np.zeros(shape, np.float32))
    if r.is_constant(name):
        return constant(r.meant(name)[place].reshape(shape))
    t = r.tensor(name, real=True)
    part, label = t, f"{n.name}/state_{operand}_{place}"
    if t.shape[0] > 1:
        begin, size = (place, *(0 for _ in shape)), (1, *shape)
        part = Tensor(f"{label}_part", size, dtypes.float32)
        r.nodes.append(Node("slice", (t,), (part,), {"begin": begin, "size": size}, name=part.name))
    flat = Tensor(label, shape, dtypes.float32)
    r.nodes.append(Node("reshape", (part,), (flat,), {"shape": shape}, name=flat.name))
    return flat
