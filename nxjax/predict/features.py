"""What a program's time is predicted from: its work by kind, as the target's graph or the CPU's kernels have it.

Every feature is a sum over nodes or kernels, so that a time that is a sum is linear in them: multiply-accumulates,
bytes and counts. Knows no times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.backends import target_registry
from nxjax.backends.tpu import chips
from nxjax.deploy.compile import compile
from nxjax.errors import ParameterError
from nxjax.lower.npu.chips import CHIPS
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.ops import op_of
from nxjax.profiling.rows import Profile
from nxjax.quant.function import Quantized, quantize
from nxjax.runtime import disable_jit
from nxjax.trace import tree

_PRODUCTS: Final = {
    "conv_2d": "conv",
    "transpose_conv": "conv",
    "depthwise_conv_2d": "depthwise",
    "fully_connected": "dense",
    "batch_matmul": "dense",
}
_FREE: Final = frozenset(["reshape"])
# How names of the CPU's kernels of products begin.
_KERNELS: Final = (("conv", "conv"), ("pool_dot", "depthwise"), ("gem", "dense"), ("dot", "dense"))
_TPU_LANES: Final = 128
_LANES: Final = 16  # what arrays of multipliers are filled by, in inputs and in outputs


def is_host(target: str) -> bool:
    """Whether the target is this machine's CPU, by nxjax's own compiler."""
    return target == "cpu"


def takes_floats(target: str) -> bool:
    """Whether programs run there as they are, in floats."""
    return is_host(target) or target_registry.get(target).precision[0] != "int8"


def deployed(target: str, fun: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """``fun`` in the numbers that the target takes: quantized on random ones, since any weights take as long."""
    if takes_floats(target) or isinstance(fun, Quantized):
        return fun
    random = np.random.default_rng(0)
    batch = tree.map(lambda x: random.standard_normal(np.shape(x)).astype(np.asarray(x).dtype), args)
    with disable_jit():
        return quantize(fun, "int8", calibrate=[batch])


def open_loops(fun: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """The loops whose number of turns, and so their time on the CPU, is not known."""
    return _cost(fun, args).open_loops


def features(target: str, fun: Callable[..., Any]) -> Callable[..., tuple[dict[str, float], float | None]]:
    """The features of a program on a target, and its time by nxjax's model of the target.

    Args:
        target: "cpu", or a name from `nx.targets`.
        fun: a pure function. It is quantized for targets that compute on integers.

    Returns:
        A callable of ``fun``'s arguments that returns the features by name, and seconds by the roofline model of
        `nx.cost` or of the target's chip, or None.

    Raises:
        ParameterError: no such target; or a loop whose number of turns is not known (`"cpu"`).

    >>> found, seconds = features("cpu", lambda x: nx.numpy.tanh(x @ x))(nx.ones((32, 32)))
    >>> found["macs of dense"], seconds > 0
    (32768.0, True)
    """

    def found(*args: Any) -> tuple[dict[str, float], float | None]:
        if is_host(target):
            return _of_kernels(fun, args)
        made = compile(deployed(target, fun, args), target="tflite", verify=False, progress=False)(*args)
        if made.graph is None:
            raise ParameterError(f"predict: {target} has no graph of this program", got="none from the tflite target")
        y = of_graph(made.graph, _TPU_LANES if target.startswith("tpu-") else _LANES)
        return y, _roofline(target, y) if target.startswith("tpu-") else _modelled(target, made.graph)

    return found


def of_graph(graph: NpuGraph, lanes: int = _LANES) -> dict[str, float]:
    """Features of a graph: work and bytes by kind of node; ``filled``: with channels in whole groups of ``lanes``."""
    y = dict.fromkeys(
        (
            "runs", "nodes", "macs of conv", "macs of depthwise", "macs of dense", "filled macs of conv",
            "filled macs of depthwise", "filled macs of dense", "filled bytes of results", "bytes of results",
            "bytes of weights", "bytes read", "bytes of inputs and results",
        ),
        0.0,
    )  # fmt: skip
    y["runs"] = 1.0
    y["bytes of inputs and results"] = float(sum(t.nbytes for t in [*graph.inputs, *graph.outputs]))
    y["bytes of weights"] = float(graph.weights)
    for n in graph.nodes:
        if n.op in _FREE:
            continue
        y["nodes"] += 1
        kind = _PRODUCTS.get(n.op)
        if kind is None:
            name = f"bytes of {n.op}"
            y[name] = y.get(name, 0.0) + sum(t.nbytes for t in n.outputs)
        else:
            y[f"macs of {kind}"] += op_of(n).macs(n)
            y[f"filled macs of {kind}"] += op_of(n).macs(n) / _filled(n, lanes)
        y["bytes of results"] += sum(t.nbytes for t in n.outputs)
        y["filled bytes of results"] += sum(t.nbytes / _share(t.shape[-1], lanes) for t in n.outputs if t.shape)
        y["bytes read"] += sum(t.nbytes for t in dict.fromkeys(n.operands) if not t.constant)
    return y


def _filled(n: Node, lanes: int) -> float:
    """The share of an array of multipliers that a node's channels fill."""
    out = _share(n.output.shape[-1], lanes)
    return out if n.op == "depthwise_conv_2d" else out * _share(n.operand(0).shape[-1], lanes)


def _share(channels: int, lanes: int) -> float:
    """What is left of whole groups of lanes."""
    return channels / (-(-channels // lanes) * lanes)


def _modelled(target: str, graph: NpuGraph) -> float | None:
    found = target_registry.get(target)
    # A series without a size has the one that its compiler takes.
    name = target if target in CHIPS else f"ethos-{getattr(found, 'series', '')}-{getattr(found, 'size', '')}"
    if name not in CHIPS:
        return None
    time = estimate(graph, name).time
    return time[1].value if time is not None else None


def _roofline(target: str, y: dict[str, float]) -> float | None:
    """The least time that a TPU's published peaks allow."""
    on = chips.parsed(target.removeprefix("tpu-")).generation
    flops = 2 * sum(v for k, v in y.items() if k.startswith("macs of "))
    moved = y["bytes read"] + y["bytes of results"] + y["bytes of weights"]
    return max(flops / on.peak(False), moved / (on.bandwidth / on.cores))


def _cost(fun: Callable[..., Any], args: tuple[Any, ...]) -> Profile:
    from nxjax.profiling.measure import cost

    return cost(fun)(*args)


def _of_kernels(fun: Callable[..., Any], args: tuple[Any, ...]) -> tuple[dict[str, float], float | None]:
    found = _cost(fun, args)
    if found.open_loops:
        raise ParameterError(
            "predict: unknown: loop",
            got="; ".join(found.open_loops),
            expected="loops whose number of turns is known: scan, map, or fori_loop and while_loop with plain bounds",
            fix="predict the loop's body, and multiply by its turns",
        )
    kinds = ("conv", "depthwise", "dense")
    y = {f"{what} of {kind}": 0.0 for kind in kinds for what in ("macs", "bytes")}
    y |= dict.fromkeys(("operations", "bytes", "host steps", "largest result"), 0.0)
    y |= {"runs": 1.0, "kernels": float(sum(r.calls for r in found.rows))}
    for r in found.rows:
        head = r.name.split("+")[0]
        kind = next((k for start, k in _KERNELS if head.startswith(start)), "")
        y["largest result"] = max(y["largest result"], r.written / max(r.calls, 1))
        if r.name.startswith("host "):
            y["host steps"] += r.calls
        if kind:
            y[f"macs of {kind}"] += r.flops / 2
            y[f"bytes of {kind}"] += r.nbytes
        else:
            y["operations"] += r.flops
            y["bytes"] += r.nbytes
    return y, found.seconds
