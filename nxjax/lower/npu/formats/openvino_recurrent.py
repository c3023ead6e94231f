"""Recurrent layers in OpenVINO's LSTMSequence, GRUSequence and RNNSequence, whose batch comes first."""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.lower.npu.formats.channels_first import Value
from nxjax.lower.npu.formats.openvino_net import OpenvinoNet
from nxjax.lower.npu.formats.recurrent_parts import blocks, known
from nxjax.lower.npu.graph import Node

# Where OpenVINO's gates stand in ours: forget, input, cell, output; update, reset, new.
_ORDER: Final = {"lstm": (1, 0, 2, 3), "gru": (0, 1, 2), "rnn": (0,)}


def _weights(net: OpenvinoNet, node: Node, place: int, width: int) -> Value:
    """The weights of all gates in OpenVINO's order, with one of directions; stored as integers where they are."""
    order = _ORDER[node.op]
    stored = net.matrix(node.operand(place))
    if stored is not None:
        w = stored.rows(order, width)
        return net.in_blocks(w.data[None], w.scales[None], 2)
    return net.constant(np.concatenate(blocks(known(node, place), width, order))[None])


def write_recurrent(net: OpenvinoNet, node: Node) -> list[Value]:
    order, bias, count = _ORDER[node.op], known(node, 3), node.operand(1).shape[0]
    steps, batch, features = node.operand().shape
    width = node.operand(2).shape[1]
    arranged = [_weights(net, node, i, width) for i in (1, 2)]
    gates, after = blocks(bias, width, order), node.attrs.get("reset_after", False)
    more = [bias[count:]] if after else []
    if node.op == "gru" and not after:
        # The two biases of the new gate are one where the reset gate reaches neither.
        gates[-1] = gates[-1] + bias[count:]
    x = net.get(node.operand())
    x = net.transposed(x, (1, 0, 2)) if batch > 1 else net.reshaped(x, (1, steps, features))
    states = [net.reshaped(net.get(t), (batch, 1, width)) for t in node.operands[4:]]
    lengths = net.constant(np.full(batch, steps, np.int32))
    operands = [x, *states, lengths, *arranged, net.constant(np.concatenate([*gates, *more])[None])]
    way = "reverse" if node.attrs["reverse"] else "forward"
    if node.op == "lstm":
        made = net.op.lstm_sequence(*operands, width, way)
    elif node.op == "gru":
        made = net.op.gru_sequence(*operands, width, way, linear_before_reset=after)
    else:
        made = net.op.rnn_sequence(*operands, width, way, activations=[node.attrs["function"]])
    net.main(made)
    ys = made.output(0)
    ys = net.transposed(ys, (2, 0, 1, 3)) if batch > 1 else ys
    return [net.reshaped(y, t.shape) for y, t in zip([ys, *made.outputs()[1:]], node.outputs, strict=True)]
