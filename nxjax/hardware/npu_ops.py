"""The tensor operations of an NPU backend, one function each, and where and how one of them runs.

`OpsEngine` decides: a chip runs what `nx.compile` makes of the operation; a simulator runs the graph that would be
written for it, integers and grids exactly as NPUs do, once the target has been asked for every node of it. What they do
not compute runs on the host, which the label says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.backends.evidence import Label
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import ParameterError, Shown, UnsupportedOpsError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret, interpret_all
from nxjax.lower.npu.lower import UNROLL, lower
from nxjax.lower.npu.memory import MemoryLimitError, check_limit, plan
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.nn.modules.base import pair
from nxjax.nn.modules.convolution import conv2d as _conv2d
from nxjax.ops.base import NDArray
from nxjax.quant.function import quantize
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.transforms.shapes import eval_shape, make_jaxpr

# Users' words for precisions, and the policy of `nx.quantize` for each; None computes in float.
PRECISIONS: Final[dict[str, str | None]] = {
    "float32": None, "fp32": None,
    "int8": "int8", "int16": "int16x8", "int16x8": "int16x8", "dynamic-int8": "dynamic-int8",
}  # fmt: skip
# Nodes whose integer results may be beyond their operands' types.
GROWING: Final = frozenset(
    ("add", "sub", "mul", "squared_difference", "sum", "neg", "abs", "square", "reduce_prod", "cumsum")
)


def _floats(node: Node) -> list[Tensor]:
    return [t for t in (*node.operands, *node.outputs) if t.grid is None and t.dtype in dtypes.FLOAT]


def _on_edge(node: Node) -> bool:
    """Whether a node only brings floats onto a grid or off it: the edge of the chip. From grid to grid is its work."""
    return node.op in ("quantize", "dequantize") and bool(_floats(node))


def on_integers(node: Node) -> Verdict:
    """What an NPU of no particular make takes: every instruction of a graph whose tensors are whole numbers."""
    floats = _floats(node)
    if not floats or _on_edge(node):
        return YES
    why = f"{floats[0].dtype} is not what an NPU computes in"
    return Verdict(False, why, "quantize it: precision='int8', or 'int16'")


@final
@dataclass(frozen=True)
class Run:
    """Where an operation ran: its name, the honest label, and why it was the host if it was."""

    op: str
    label: Label
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.op}: {self.label}{f' ({self.reason})' if self.reason else ''}"


class OpsEngine(ABC):
    """What carries out a function of arrays for a backend. Abstract."""

    @abstractmethod
    def run(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        """The results of ``f(*args)`` and where they come from; ``policy`` None is float."""


@final
class Simulator(OpsEngine):
    """The exact integer arithmetic of an NPU graph; float and what ``target`` refuses run on the host.

    What it labels "own-model" is what `interpret` made of the graph, and nothing else. Of a target whose vendor does
    not specify its integers bit for bit there is no simulator here, and all runs on the host.

    Args:
        target: whose rules decide; None takes every instruction of an NPU graph.
        limit: gives the bytes that activations may take, or None.
    """

    def __init__(self, target: Any, limit: Callable[[], int | None]) -> None:
        self.target = target
        self.limit = limit

    def run(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        inputs = [np.asarray(x.numpy()) for x in args]
        whole = all(x.dtype in dtypes.INTEGER for x in args)
        as_is = whole or policy is None
        chosen = f if as_is else quantize(f, policy, calibrate=[tuple(args)], params=(), progress=False)
        bound = BoundFunction(chosen, tuple(args), {}, ())
        try:
            graph = bound.graph("float", UNROLL)
        except UnsupportedOpsError as error:
            self._bounded(name, f, args)
            first = error.rows[0] if error.rows else None
            return chosen(*args), Run(name, "host", str(getattr(first, "reason", error.what)))
        limit = self.limit()
        if limit is not None:
            check_limit(plan(graph), limit)
        why = self._refused(graph, whole, policy) or (_too_wide(inputs) if whole else "")
        if why:
            return chosen(*args), Run(name, "host", why)
        values = interpret_all(graph, inputs)
        if _overflown(graph, values):
            return chosen(*args), Run(name, "host", "a result is beyond its integers, where chips differ")
        return bound.result(graph.outputs, [values[t] for t in graph.outputs]), Run(name, "own-model")

    def _refused(self, graph: NpuGraph, whole: bool, policy: str | None) -> str:
        """Why a graph is not the simulator's; empty if it is."""
        if not whole and policy is None and (self.target is None or "float32" not in self.target.precision):
            kind = next((t.dtype for t in graph.inputs), "float32")
            return f"{kind} is not what this NPU computes in; give precision='int8'"
        if self.target is not None and self.target.host:
            return f"{self.target.name} is computed on the host"
        if self.target is not None and not self.target.simulated:
            return f"what {self.target.name} computes is not specified bit for bit, so that nothing here simulates it"
        if all(map(_on_edge, graph.nodes)):
            return "nothing of it is left for an NPU to compute"
        rows: list[Placement] = place(graph, on_integers) if self.target is None else self.target.placed(graph)
        refused = [p for n, p in zip(graph.nodes, rows, strict=True) if not p.on_chip and not _on_edge(n)]
        return f"{refused[0].op}: {refused[0].reason}" if refused else ""

    def _bounded(self, name: str, f: Callable[..., Any], args: Sequence[Array]) -> None:
        """The limit where there is no graph to plan: operands and results at once. Nothing has run yet."""
        limit = self.limit()
        if limit is None:
            return
        total = sum(v.size * v.dtype.itemsize for v in (*args, *tree.leaves(eval_shape(f, *args))))
        if total > limit:
            raise MemoryLimitError(
                f"memory: {name} does not fit its memory limit",
                got=f"{total} bytes of operands and results",
                expected=f"at most {limit} bytes",
                fix="smaller operands, or a higher limit",
            )


def _too_wide(inputs: Sequence[NDArray]) -> str:
    """Why plain integers are too large for an NPU's multipliers; empty if they are not."""
    widest = max((int(np.abs(x.astype(np.int64)).max(initial=0)) for x in inputs), default=0)
    return f"operands reach {widest}, more than 16 bits" if widest > 2**15 - 1 else ""


def _overflown(graph: NpuGraph, values: dict[Tensor, NDArray]) -> bool:
    """Whether a plain integer of a graph is not the number that exact arithmetic gives for its node.

    Each node is done again on its operands in float64, which is exact where they are of 16 bits; integers that wrap or
    saturate then differ.
    """
    for n in graph.nodes:
        plain = [t for t in (*n.operands, *n.outputs) if t.grid is None and t.dtype in dtypes.INTEGER]
        if len(plain) < len(n.operands) + len(n.outputs) or n.op not in GROWING:
            continue
        wide = {t: Tensor(t.name, t.shape, dtypes.float64, None, None) for t in plain}
        operands = list(dict.fromkeys(n.operands))
        inputs, outputs = [wide[t] for t in operands], [wide[t] for t in n.outputs]
        exactly = replace(n, inputs=tuple(t and wide[t] for t in n.inputs), outputs=tuple(outputs))
        again = NpuGraph("", inputs, outputs, [exactly])
        given = [(values[t] if t.data is None else t.data).astype(np.float64) for t in operands]
        for t, exact in zip(n.outputs, interpret(again, given), strict=True):
            if not np.array_equal(exact, values[t].astype(np.float64)):
                return True
    return False


@final
class Chip(OpsEngine):
    """A real chip: operations are compiled for its target and run by the vendor's runtime.

    Args:
        target: name of the target.
        limit: as of `Simulator`.
    """

    def __init__(self, target: str, limit: Callable[[], int | None]) -> None:
        self.target = target
        self.limit = limit

    def run(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        from nxjax.deploy.compile import compile

        chosen = f if policy is None else quantize(f, policy, calibrate=[tuple(args)], params=(), progress=False)
        limit = self.limit()
        if limit is not None:
            check_limit(plan(lower(make_jaxpr(chosen)(*args), name)), limit)
        artifact = compile(chosen, target=self.target)(*args)
        reason = "" if artifact.label == "hardware" else "; ".join(artifact.notes)
        return artifact.run(*args), Run(name, artifact.label, reason)


def policy_of(where: str, precision: str) -> str | None:
    """The policy of `nx.quantize` for a precision by a user's word."""
    if precision not in PRECISIONS:
        raise ParameterError(f"{where}: precision", got=repr(precision), expected=", ".join(PRECISIONS))
    return PRECISIONS[precision]


class TensorOperations(Shown, ABC):
    """The operations that a backend offers on tensors; each gives an array and notes where it ran. Abstract."""

    @abstractmethod
    def _run(self, name: str, f: Callable[..., Any], *args: Any) -> Array: ...

    def matmul(self, a: Any, b: Any) -> Array:
        """Matrix product, as `nx.matmul`."""
        return self._run("matmul", jnp.matmul, a, b)

    def add(self, a: Any, b: Any) -> Array:
        """a + b, with NumPy's broadcasting."""
        return self._run("add", jnp.add, a, b)

    def sub(self, a: Any, b: Any) -> Array:
        """a - b"""
        return self._run("sub", jnp.subtract, a, b)

    def mul(self, a: Any, b: Any) -> Array:
        """a * b"""
        return self._run("mul", jnp.multiply, a, b)

    def maximum(self, a: Any, b: Any) -> Array:
        """The greater of a and b."""
        return self._run("maximum", jnp.maximum, a, b)

    def minimum(self, a: Any, b: Any) -> Array:
        """The lesser of a and b."""
        return self._run("minimum", jnp.minimum, a, b)

    def relu(self, x: Any) -> Array:
        """max(x, 0)"""
        return self._run("relu", nn.relu, x)

    def relu6(self, x: Any) -> Array:
        """min(max(x, 0), 6)"""
        return self._run("relu6", nn.relu6, x)

    def sigmoid(self, x: Any) -> Array:
        """1 / (1 + exp(-x))"""
        return self._run("sigmoid", nn.sigmoid, x)

    def tanh(self, x: Any) -> Array:
        """Hyperbolic tangent."""
        return self._run("tanh", nn.tanh, x)

    def gelu(self, x: Any) -> Array:
        """x times the normal distribution function of x."""
        return self._run("gelu", lambda v: nn.gelu(v, approximate=False), x)

    def silu(self, x: Any) -> Array:
        """x * sigmoid(x)"""
        return self._run("silu", nn.silu, x)

    def softmax(self, x: Any, axis: int = -1) -> Array:
        """exp(x) / sum(exp(x)) along ``axis``."""
        return self._run("softmax", lambda v: nn.softmax(v, axis=axis), x)

    def conv2d(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Array:
        """Convolution of ``x`` ``[n, i, h, w]`` with ``weight`` ``[o, i / groups, rows, columns]``, as `nn.Conv2d`."""
        steps = [pair("conv2d", n, v) for n, v in (("stride", stride), ("dilation", dilation))]
        around = padding.upper() if isinstance(padding, str) else pair("conv2d", "padding", padding, 0)
        w, b = as_value(weight, "conv2d"), None if bias is None else as_value(bias, "conv2d")
        return self._run("conv2d", lambda v: _conv2d(v, w, b, steps[0], around, steps[1], groups), x)

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Array:
        """``x @ weight.T + bias``, as `nn.Linear`."""
        w = as_value(weight, "linear")
        layer = lambda v: jnp.matmul(v, jnp.swapaxes(w, 0, 1))
        return self._run("linear", layer if bias is None else (lambda v: layer(v) + as_value(bias, "linear")), x)

    def max_pool2d(self, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
        """The greatest element of each window, as `nn.MaxPool2d`."""
        return self._run("max_pool2d", nn.MaxPool2d(kernel_size, stride, padding), x)

    def avg_pool2d(self, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
        """The mean of each window, as `nn.AvgPool2d`; padding does not count."""
        return self._run("avg_pool2d", nn.AvgPool2d(kernel_size, stride, padding, count_include_pad=False), x)

    def mean(self, x: Any, axis: Any = None, keepdims: bool = False) -> Array:
        """Mean along ``axis``."""
        return self._run("mean", lambda v: jnp.mean(v, axis=axis, keepdims=keepdims), x)

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Array:
        """Sum along ``axis``."""
        return self._run("sum", lambda v: jnp.sum(v, axis=axis, keepdims=keepdims), x)

    def reshape(self, x: Any, shape: Sequence[int]) -> Array:
        """The same elements in another shape."""
        return self._run("reshape", lambda v: jnp.reshape(v, shape), x)

    def transpose(self, x: Any, axes: Sequence[int] | None = None) -> Array:
        """Dimensions in another order."""
        return self._run("transpose", lambda v: jnp.transpose(v, axes), x)

    def concatenate(self, tensors: Sequence[Any], axis: int = 0) -> Array:
        """Tensors one after the other along ``axis``."""
        return self._run("concatenate", lambda *vs: jnp.concatenate(vs, axis), *tensors)
