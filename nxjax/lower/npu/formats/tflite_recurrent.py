"""Recurrent layers in TFLite's UNIDIRECTIONAL_SEQUENCE_LSTM and UNIDIRECTIONAL_SEQUENCE_RNN.

Their states are variables of the file, which an interpreter keeps from call to call. So that a call depends on no call
before it, a SLICE writes the states into the variables first. The state of an LSTM's cells is none of its results: the
variable is read behind one of them, so that no delegate may read it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nxjax.lower.npu.formats.recurrent_parts import blocks, known
from nxjax.lower.npu.formats.tflite_build import VARIABLES, TFLiteWriter
from nxjax.lower.npu.formats.tflite_file import OperatorUse, TFLiteReader, bad
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.rewrite import constant
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

# Numbers of the schema's activations.
_FUNCTIONS: Final = {"relu": 1, "tanh": 4}


def write_recurrent(w: TFLiteWriter, node: Node) -> None:
    x, (ys, *ends) = node.operand(), node.outputs
    width, backward = node.operand(2).shape[1], node.attrs["reverse"]
    variables = [_variable(w, t, end) for t, end in zip(node.operands[4:], ends, strict=True)]
    along = w.constant([0])
    if backward:
        turned = w.between(x, x.shape, "reversed")
        w.emit("REVERSE_V2", [x, along], [turned])
        x = turned
    made = w.between(ys, ys.shape, "backward") if backward else ys
    if node.op == "lstm":
        weights, states, biases = (_parts(w, node, i, width, 4) for i in (1, 2, 3))
        operands: list[Tensor | None] = [x, *weights, *states, None, None, None, *biases, None, None, *variables]
        w.emit(
            "UNIDIRECTIONAL_SEQUENCE_LSTM", [*operands, None, None, None, None], [made],
            fused_activation_function=_FUNCTIONS["tanh"], cell_clip=0.0, proj_clip=0.0, time_major=True,
            asymmetric_quantize_inputs=False, diagonal_recurrent_tensors=False,
        )  # fmt: skip
    else:
        stored = [part for i in (1, 2, 3) for part in _parts(w, node, i, width, 1)]
        function = _FUNCTIONS[node.attrs["function"]]
        w.emit(
            "UNIDIRECTIONAL_SEQUENCE_RNN", [x, *stored, *variables], [made],
            time_major=True, fused_activation_function=function, asymmetric_quantize_inputs=False,
        )  # fmt: skip
    if backward:
        w.emit("REVERSE_V2", [made, along], [ys])
    _ends(w, made, variables, ends)


def _parts(w: TFLiteWriter, node: Node, place: int, width: int, gates: int) -> list[Tensor]:
    """The weights or biases of each gate."""
    t = node.operand(place)
    stored = w.matrices.get(t)
    if stored is None:
        return [w.constant(part, dtypes.float32) for part in blocks(known(node, place), width, range(gates))]
    return [w.meant(t, i, stored.rows((i,), width)) for i in range(gates)]


def _variable(w: TFLiteWriter, state: Tensor, end: Tensor) -> Tensor:
    """A variable that holds ``state`` at each call."""
    found = Tensor(f"{end.name}/variable", state.shape, state.dtype)
    # LiteRT computes an ADD in its operand's place, also where that is no variable, and folds what else only copies.
    w.emit("SLICE", [state, w.constant([0] * len(state.shape)), w.constant(state.shape)], [found])
    return found


def _ends(w: TFLiteWriter, made: Tensor, variables: Sequence[Tensor], ends: Sequence[Tensor]) -> None:
    """The states after the last step, those that are read."""
    (batch, width), steps = ends[0].shape, made.shape[0]
    if not w.read.intersection(ends):
        return
    last = w.between(ends[0], (1, batch, width), "last")
    w.emit("SLICE", [made, w.constant([steps - 1, 0, 0]), w.constant(last.shape)], [last])
    w.emit("RESHAPE", [last, w.constant(ends[0].shape)], [ends[0]], new_shape=ends[0].shape)
    for variable, end in zip(variables[1:], ends[1:], strict=True):
        both = w.between(end, (batch, 2 * width), "behind")
        w.emit("CONCATENATION", [ends[0], variable], [both], axis=1, fused_activation_function=0)
        w.emit("SLICE", [both, w.constant([0, width]), w.constant(end.shape)], [end])


def read_recurrent(r: TFLiteReader, u: OperatorUse) -> None:
    """A layer whose variables operators have written; what reads them next reads the states after the last step."""
    lstm, o = u.name == "UNIDIRECTIONAL_SEQUENCE_LSTM", u.options
    places = VARIABLES[u.name]
    left_out = (*range(9, 12), 16, 17, *range(20, len(u.inputs))) if lstm else ()
    plain = not any(map(u.maybe, left_out)) and not any(o.get(k) for k in ("cell_clip", "proj_clip"))
    function = {n: name for name, n in _FUNCTIONS.items()}.get(o["fused_activation_function"])
    if not plain or not o["time_major"] or function is None or (lstm and function != "tanh"):
        raise bad(f"a {u.name} with more than its gates", "peepholes, a projection, clipping, or another order")
    groups = (range(1, 5), range(5, 9), range(12, 16)) if lstm else ((1,), (2,), (3,))
    stored = [[_floats(r, u, i) for i in group] for group in groups]
    weights = [constant(np.concatenate(group)) for group in stored]
    states = [u.operand(i) for i in places]
    ends = [Tensor(f"{t.name}/after", t.shape, t.dtype) for t in states]
    attrs = {} if lstm else {"function": function}
    r.node("lstm" if lstm else "rnn", [u.operand(0), *weights, *states], [u.output, *ends], **attrs)
    for place, end in zip(places, ends, strict=True):
        r.tensors[u.numbers[place]] = end


def _floats(r: TFLiteReader, u: OperatorUse, i: int) -> NDArray:
    """Weights of a gate: floats, or what stored integers mean."""
    t = u.operand(i)
    made = {n.output: n for n in r.nodes}
    way: list[Node] = []
    while t in made and made[t].op in ("dequantize", "mul", "reshape"):
        way.append(made[t])
        t = next((x for x in made[t].operands if not x.constant), made[t].operand())
    if way and t.data is not None:
        return interpret(NpuGraph("weights", [], [u.operand(i)], way[::-1]), [])[0]
    if t.data is None or t.dtype != dtypes.float32:
        raise bad(f"a {u.name} whose operand {i} is no constant of floats")
    return t.data
