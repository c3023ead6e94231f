"""Recurrent layers: all steps of one direction in one node, as ONNX, OpenVINO and TFLite have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.lower.npu.attributes import FLAG, TEXT
from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops.base import NpuOp, agree, need, op, shape_of
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.ops.base import NDArray
from nxjax.ops.elementary import logistic
from nxjax.trace.types import Shape

# Of a plain layer.
FUNCTIONS: Final[dict[str, Callable[[NDArray], NDArray]]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, np.float32(0)),
}


class NpuRecurrent(NpuOp):
    """x [steps, batch, i], weights [gates * n, i] and [gates * n, n], bias, and the states before the first step.

    Results are those of all steps [steps, batch, n] and the states after the last: with ``reverse`` the first of x.
    """

    attributes = {"reverse": FLAG(False)}
    roles = ("x", "weights", "recurrent_weights", "bias", "state", "cell")
    gates: ClassVar[tuple[str, ...]]
    # Biases beyond one per gate, and states.
    more_biases: ClassVar[int] = 0
    states: ClassVar[int] = 1

    def shape(self, node: Node) -> Shape:
        return self.shapes(node)[0]

    def shapes(self, node: Node) -> list[Shape]:
        x, w, r, b, *states = (shape_of(node, i) for i in range(4 + self.states))
        n, count = r[-1], len(self.gates)
        need(len(x) == 3 and w == (count * n, x[2]) and r == (count * n, n), f"{node.op}: operands {x}, {w} and {r}")
        need(b == ((count + self.more_biases) * n,), f"{node.op}: bias of shape {b}")
        need(all(s == (x[1], n) for s in states), f"{node.op}: states {states}")
        return [(*x[:2], n), *states]

    def check_types(self, node: Node) -> None:
        agree(node, all(t.grid is None and t.dtype == np.float32 for t in [*node.operands, *node.outputs]))

    def macs(self, node: Node) -> int:
        steps, batch, _ = node.operand().shape
        return steps * batch * (node.operand(1).size + node.operand(2).size)

    def eval(self, run: NodeRun, x: NDArray, w: NDArray, r: NDArray, b: NDArray, *states: NDArray) -> list[NDArray]:
        """Step by step in float32; the products with x are one."""
        given = x @ w.T + b[: len(w)]
        rows: list[NDArray] = []
        now = list(states)
        for row in given[::-1] if run.attrs["reverse"] else given:
            now = self.step(run, row, r, b[len(w) :], now)
            rows.append(now[0])
        return [np.stack(rows[::-1] if run.attrs["reverse"] else rows), *now]

    def step(self, run: NodeRun, row: NDArray, r: NDArray, more: NDArray, states: list[NDArray]) -> list[NDArray]:
        """The states after a step, the result first."""
        raise NotImplementedError


@final
@op("lstm")
class NpuLstm(NpuRecurrent):
    """Gates i, f, g, o: ``c = f * c + i * g`` with g = tanh(..), ``h = o * tanh(c)``."""

    gates = ("input", "forget", "cell", "output")
    states = 2

    def step(self, run: NodeRun, row: NDArray, r: NDArray, more: NDArray, states: list[NDArray]) -> list[NDArray]:
        h, c = states
        i, f, g, o = np.split(row + h @ r.T, 4, -1)
        c = logistic.eval(f) * c + logistic.eval(i) * np.tanh(g)
        return [logistic.eval(o) * np.tanh(c), c]


@final
@op("gru")
class NpuGru(NpuRecurrent):
    """Gates z, r, n: ``h = (1 - z) * n + z * h``, with n = tanh(x' + (r * h)') or, ``reset_after``, tanh(x' + r * h').

    The bias has one more part: of h' in the latter, which r reaches.
    """

    attributes = {**NpuRecurrent.attributes, "reset_after": FLAG(False)}
    gates = ("update", "reset", "new")
    more_biases = 1

    def step(self, run: NodeRun, row: NDArray, r: NDArray, more: NDArray, states: list[NDArray]) -> list[NDArray]:
        (h,) = states
        n = h.shape[-1]
        z, reset = (logistic.eval(v) for v in np.split(row[..., : 2 * n] + h @ r[: 2 * n].T, 2, -1))
        after = run.attrs["reset_after"]
        inner = reset * (h @ r[2 * n :].T + more) if after else (reset * h) @ r[2 * n :].T + more
        return [(1 - z) * np.tanh(row[..., 2 * n :] + inner) + z * h]


@final
@op("rnn")
class NpuRnn(NpuRecurrent):
    """One gate: ``h = function(..)``, tanh or relu."""

    attributes: ClassVar[dict[str, Any]] = {**NpuRecurrent.attributes, "function": TEXT("tanh")}
    gates = ("new",)

    def step(self, run: NodeRun, row: NDArray, r: NDArray, more: NDArray, states: list[NDArray]) -> list[NDArray]:
        return [FUNCTIONS[run.attrs["function"]](row + states[0] @ r.T)]
