"""Models of other frameworks beside the runtimes that they were made for: opening a file, the first result, a call.

Networks are those of installed packages (extra ``models``). Opening is `from_onnx` or `from_tflite` beside a session;
the first result is opening, compiling and one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import nxjax as nx
from benchmarks.models.pretrained import PRETRAINED, Pretrained
from benchmarks.models.runners import Nxjax, calls, function, original
from benchmarks.peers import Row, Work, all_measured, package
from benchmarks.runner import Figure

# The package that runs files of a suffix.
_RUNTIMES: Final = {".onnx": ("onnxruntime", "ONNX Runtime"), ".tflite": ("ai_edge_litert", "LiteRT")}


def _row(name: str, network: Pretrained, work: Callable[[Callable[[], Any]], Work], cold: bool) -> Row:
    """``work`` of what opens the network: nxjax's function, or a session of its runtime."""
    runtime, called = _RUNTIMES[network.path.suffix]

    def opened() -> Any:
        f = function(network)
        return Nxjax(f, f.state)

    def works() -> tuple[Work, dict[str, Work]]:
        peers = {} if package(runtime) is None else {called: work(lambda: original(network))}
        return work(opened), peers

    return Row(f"{network.name}: {name}", works, None, cold=cold, rounds=3)


def rows() -> Iterator[Row]:
    """Three rows for each network that is installed."""
    for network in PRETRAINED.values():
        if network.missing():
            continue
        if package(_RUNTIMES[network.path.suffix][0]) is None:
            continue
        _, recorded = calls(network, original(network), True, 1)
        ((xs, _),) = recorded

        def first(open: Callable[[], Any], xs: Any = xs) -> Work:
            def work() -> object:
                nx.clear_caches()  # no kernels of the call before
                return open()(*xs)

            return work

        def again(open: Callable[[], Any], xs: Any = xs) -> Work:
            runner = open()
            return lambda: runner(*xs)

        yield _row("open", network, lambda open: open, False)
        yield _row("open, first result", network, first, True)
        yield _row("a call", network, again, False)


def _small() -> Row:
    """A product of 2x4 and 4x3: what a call costs besides the work."""

    def works() -> tuple[Work, dict[str, Work]]:
        from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-untyped]

        port = lambda name, n: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", n])
        w = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "small", [port("x", 4)],
                                  [port("y", 3)], [w])  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
        f, x = nx.interop.from_onnx(model, closed=True), np.ones((2, 4), np.float32)
        y = nx.numpy.asarray(x)
        runtime = package("onnxruntime")
        if runtime is None:
            return lambda: f(y), {}
        session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
        return lambda: f(y), {"ONNX Runtime": lambda: session.run(None, {"x": x})}

    return Row("ONNX, 2x4 by 4x3: a call", works, None)


def figures() -> Iterator[Figure]:
    if package("onnx") is not None:
        yield from all_measured(iter([_small()]))
    yield from all_measured(rows())
