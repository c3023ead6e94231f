"""`nx.simulate`: a simulator in place of a missing chip.

The simulator of NPUs is exact: it runs the graph that nxjax would write for a chip, bit for bit, if the chip's rules
allow every node of it. Only then the label is ``own-model``, else ``host``; never ``hardware``. A chip whose vendor
does not specify its integers has no simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Label
from nxjax.backends.target import Build, NpuTarget, Runner, file_name, only
from nxjax.config.forks import fork_lock
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import MemoryLimitError, ParameterError, UnsupportedOpsError
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret, interpret_all
from nxjax.lower.npu.lower import UNROLL
from nxjax.lower.npu.memory import check_limit, plan
from nxjax.lower.placement import YES, Verdict
from nxjax.ops.base import NDArray
from nxjax.quant.function import quantize
from nxjax.trace import dtypes, tree
from nxjax.trace.core import Array
from nxjax.transforms.shapes import eval_shape

KINDS: Final = ("npu",)
# Nodes whose integer results may be beyond their operands' types.
GROWING: Final = frozenset(
    ("add", "sub", "mul", "squared_difference", "sum", "neg", "abs", "square", "reduce_prod", "cumsum")
)

_lock: Final = fork_lock()
_active: list[simulate] = []


@final
class simulate:
    """Turn a simulator on: from now on, or inside a ``with`` statement.

    Args:
        kind: ``"npu"``; None turns all simulators off.
        target: the target of `nx.compile` whose rules the simulated chip follows (``"ethos-u55"``, ...); by default it
            supports every instruction of an NPU graph.

    It applies to the whole process, so threads and cells of a notebook share it.

    >>> with simulate("npu"):
    ...     simulated("npu") is not None
    True
    >>> simulated("npu") is None
    True
    """

    def __init__(self, kind: str | None = "npu", target: str | None = None) -> None:
        if kind is not None and kind not in KINDS:
            raise ParameterError("simulate: no simulator of this", got=repr(kind), expected=", ".join(map(repr, KINDS)))
        if target is not None:
            registry.npu(target, "simulate")
        self.kind = kind
        self.target = target
        with _lock:
            self._before = list(_active)
            if kind is None:
                _active.clear()
            else:
                _active.append(self)

    def __enter__(self) -> simulate:
        return self

    def __exit__(self, *exc: Any) -> None:
        with _lock:
            _active[:] = self._before

    def __repr__(self) -> str:
        if self.kind is None:
            return "simulators off"
        return f"{self.kind} simulator{f' of {self.target}' if self.target else ''}"


def simulated(kind: str) -> simulate | None:
    """The simulator of ``kind`` that is on, or None."""
    return next((s for s in reversed(_active) if s.kind == kind), None)


@final
class AnyNpu(NpuTarget):
    """An NPU of no particular make: it takes every instruction of a graph whose tensors are whole numbers."""

    name: ClassVar[str] = "npu"
    title: ClassVar[str] = "NPU simulator"
    format: ClassVar[str] = ""
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8")
    exact: ClassVar[bool] = True

    def available(self) -> tuple[Label, str]:
        return "own-model", "this is no chip in particular"

    def supports(self, node: Node) -> Verdict:
        floats = _floats(node)
        if not floats or _on_edge(node):
            return YES
        why = f"{floats[0].dtype} is not what an NPU computes in"
        return Verdict(False, why, "quantize it: precision='int8', or 'int16'")

    def build(self, subject: NpuGraph, options: dict[str, object]) -> Build:
        only(self.name, options, ())
        files = {file_name(subject.name, "txt"): str(subject).encode()}
        return Build(files, self.placed(subject), runner=Runner(partial(interpret, subject), self.title, "own-model"))


ANY: Final = AnyNpu()


@final
@dataclass(frozen=True)
class Run:
    """Where an operation ran: its name, the honest label, and why it was the host if it was."""

    op: str
    label: Label
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.op}: {self.label}{f' ({self.reason})' if self.reason else ''}"


def simulated_run(
    name: str, f: Callable[..., Any], args: Sequence[Array], policy: str | None, target: NpuTarget, limit: int | None
) -> tuple[Any, Run]:
    """``f(*args)`` in the exact integer arithmetic of an NPU graph, and where it comes from.

    What is labelled "own-model" is what `interpret` made of the graph, and nothing else. Float, what ``target``
    refuses, and all of a target whose vendor does not specify its integers bit for bit, run on the host.

    Args:
        policy: floats are put on grids by it (`nx.quantize`), that their own values span; None computes in float.
        limit: bytes that activations may take, or None.
    """
    inputs = [np.asarray(x.numpy()) for x in args]
    whole = all(x.dtype in dtypes.INTEGER for x in args)
    chosen = f if whole else on_grids(f, policy, args)
    bound = BoundFunction(chosen, tuple(args), {}, ())
    try:
        graph = bound.graph("float", UNROLL)
    except UnsupportedOpsError as error:
        _bounded(name, f, args, limit)
        first = error.rows[0] if error.rows else None
        return chosen(*args), Run(name, "host", str(getattr(first, "reason", error.what)))
    if limit is not None:
        check_limit(plan(graph), limit)
    why = _refused(graph, whole, policy, target) or (_too_wide(inputs) if whole else "")
    if not why:
        values = interpret_all(graph, inputs)
        if not _overflown(graph, values):
            return bound.result(graph.outputs, [values[t] for t in graph.outputs]), Run(name, "own-model")
        why = "a result is beyond its integers, where chips differ"
    return chosen(*args), Run(name, "host", why)


def on_grids(f: Callable[..., Any], policy: str | None, args: Sequence[Any]) -> Callable[..., Any]:
    """``f`` quantized for these arguments; itself where the policy is None."""
    return f if policy is None else quantize(f, policy, calibrate=[tuple(args)], params=(), progress=False)


def _refused(graph: NpuGraph, whole: bool, policy: str | None, target: NpuTarget) -> str:
    """Why a graph is not the simulator's; empty if it is."""
    if not whole and policy is None and "float32" not in target.precision:
        kind = next((t.dtype for t in graph.inputs), "float32")
        return f"{kind} is not what this NPU computes in; give precision='int8'"
    if target.host:
        return f"{target.name} is computed on the host"
    if not target.simulated:
        return f"what {target.name} computes is not specified bit for bit, so that nothing here simulates it"
    if all(map(_on_edge, graph.nodes)):
        return "nothing of it is left for an NPU to compute"
    rows = zip(graph.nodes, target.placed(graph), strict=True)
    return next((f"{p.op}: {p.reason}" for n, p in rows if not p.on_chip and not _on_edge(n)), "")


def _floats(node: Node) -> list[Tensor]:
    return [t for t in (*node.operands, *node.outputs) if t.grid is None and t.dtype in dtypes.FLOAT]


def _on_edge(node: Node) -> bool:
    """Whether a node only brings floats onto a grid or off it: the edge of the chip. From grid to grid is its work."""
    return node.op in ("quantize", "dequantize") and bool(_floats(node))


def _bounded(name: str, f: Callable[..., Any], args: Sequence[Array], limit: int | None) -> None:
    """The limit where there is no graph to plan: operands and results at once. Nothing has run yet."""
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
