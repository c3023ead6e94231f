"""The tensor operations of an NPU backend, one function each, and where and how one of them runs.

`Engine` decides: a chip runs what `nx.compile` makes of the operation; a simulator computes integers and grids exactly
as NPUs do, and what they do not compute runs on the host, which the label says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax import nn
from nxjax import numpy as jnp
from nxjax.backends.base import Label
from nxjax.errors import ParameterError, UnsupportedOpsError
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.lower import lower
from nxjax.lower.npu.memory import MemoryLimitError, check_limit, plan
from nxjax.lower.npu.placement import YES, Placement, Verdict, place
from nxjax.nn.modules.base import pair
from nxjax.nn.modules.convolution import conv2d as _conv2d
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
# Nodes that only bring values onto a grid or off it: the edge of the chip, not its work.
EDGES: Final = frozenset(("quantize", "dequantize"))


def on_integers(node: Node) -> Verdict:
    """What an NPU of no particular make takes: every instruction of a graph whose tensors are whole numbers."""
    floats = [t for t in (*node.operands, *node.outputs) if t.grid is None and t.dtype in dtypes.FLOAT]
    if not floats or node.op in EDGES:
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


class Engine(ABC):
    """What carries out a function of arrays for a backend. Abstract."""

    @abstractmethod
    def run(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        """The results of ``f(*args)`` and where they come from; ``policy`` None is float."""


@final
class Simulator(Engine):
    """The exact integer arithmetic of an NPU graph; float and what ``target`` refuses run on the host.

    Args:
        target: whose rules decide; None takes every instruction of an NPU graph.
        limit: gives the bytes that activations may take, or None.
    """

    def __init__(self, target: Any, limit: Callable[[], int | None]) -> None:
        self.target = target
        self.limit = limit

    def run(self, name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None) -> tuple[Any, Run]:
        if all(x.dtype in dtypes.INTEGER for x in args):
            return self._integers(name, f, args)
        chosen = f if policy is None else quantize(f, policy, calibrate=[tuple(args)], params=(), progress=False)
        try:
            graph = lower(make_jaxpr(chosen)(*args), name)
        except UnsupportedOpsError as error:
            self._bounded(name, f, args)
            return chosen(*args), Run(name, "host", error.what)
        limit = self.limit()
        if limit is not None:
            check_limit(plan(graph), limit)
        return chosen(*args), Run(name, *self._placed(graph, policy))

    def _placed(self, graph: NpuGraph, policy: str | None) -> tuple[Label, str]:
        """The label of a graph, and why it is not the simulator's if it is not."""
        if policy is None and (self.target is None or "float32" not in self.target.precision):
            kind = next((t.dtype for t in graph.inputs), "float32")
            return "host", f"{kind} is not what this NPU computes in; give precision='int8'"
        rows: list[Placement] = place(graph, on_integers) if self.target is None else self.target.placed(graph)
        refused = [p for p in rows if p.device == "host" and p.op not in EDGES]
        return ("host", f"{refused[0].op}: {refused[0].reason}") if refused else ("simulator", "")

    def _integers(self, name: str, f: Callable[..., Any], args: Sequence[Array]) -> tuple[Any, Run]:
        """Integers as they are: 8- and 16-bit values, 32-bit accumulators and no rounding."""
        self._bounded(name, f, args)
        y = f(*args)
        widest = max((int(np.abs(x.numpy().astype(np.int64)).max(initial=0)) for x in args), default=0)
        results = [v for v in tree.leaves(y) if v.dtype in dtypes.INTEGER]
        if widest > 2**15 - 1:
            return y, Run(name, "host", f"operands reach {widest}, more than 16 bits")
        if len(results) < len(tree.leaves(y)):
            return y, Run(name, "host", "the result of these integers is float")
        return y, Run(name, "simulator")

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


@final
class Chip(Engine):
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


class TensorOperations(ABC):
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
