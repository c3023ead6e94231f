"""Ways to run a pretrained network: the runtime that it was made for, and nxjax; and what a run had in and out."""

from __future__ import annotations

from typing import Any, final

import numpy as np

import nxjax as nx
from benchmarks.models.pretrained import Pretrained, Runner


@final
class OnnxRuntime:
    """ONNX Runtime's CPU provider."""

    def __init__(self, path: Any) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [i.name for i in self._session.get_inputs()]

    def reset(self) -> None:
        """Such networks hold no state."""

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        return tuple(self._session.run(None, dict(zip(self._names, xs, strict=True))))


@final
class LiteRT:
    """LiteRT's interpreter: its reference kernels, or those that it takes by itself."""

    def __init__(self, path: Any, reference: bool = False) -> None:
        self._path, self._reference = str(path), reference
        self.reset()

    def reset(self) -> None:
        """Only a new interpreter has variables as they are at first: `reset_all_variables` leaves resources alone."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

        kind = OpResolverType.BUILTIN_REF if self._reference else OpResolverType.AUTO
        self._interpreter = Interpreter(self._path, experimental_op_resolver_type=kind)
        self._signature = self._interpreter.get_signature_runner()
        # Signatures name their results; `from_tflite` has them in the order of the names.
        self._results = sorted(self._signature.get_output_details())
        (self._input,) = self._signature.get_input_details()

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        made = self._signature(**{self._input: xs[0]})
        return tuple(made[k] for k in self._results)


@final
class Nxjax:
    """A function of a network, closed over its parameters; ``state`` is what it holds at first.

    Attributes:
        share: of the multiply-accumulates in 8 bits, where a choice of ours says so.
    """

    share: float | None = None

    def __init__(self, function: Any, state: Any = None) -> None:
        self._function, self._first = nx.jit(function), state
        self.reset()

    def reset(self) -> None:
        self._state = self._first

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        if self._first is None:
            y = self._function(*xs)
        else:
            self._state, y = self._function(self._state, *xs)
        return tuple(map(np.asarray, y if isinstance(y, tuple) else (y,)))


class Enough(Exception):
    """A recorder has as many calls as it was asked for."""


@final
class Recorded:
    """Another runner, and the arguments and results of its first calls."""

    def __init__(self, runner: Runner, most: int | None = None) -> None:
        self._runner, self._most = runner, most
        self.calls: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []

    def reset(self) -> None:
        self._runner.reset()

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        if len(self.calls) == self._most:
            raise Enough
        ys = self._runner(*xs)
        self.calls.append((xs, ys))
        return ys


def original(network: Pretrained, reference: bool = False) -> Runner:
    """The runtime that the file is for."""
    path = network.path
    return LiteRT(path, reference) if path.suffix == ".tflite" else OnnxRuntime(path)


def function(network: Pretrained, closed: bool = True, **options: Any) -> Any:
    """The network as a function of nxjax."""
    path = network.path
    load = nx.interop.from_tflite if path.suffix == ".tflite" else nx.interop.from_onnx
    return load(path, closed=closed, **options)


def calls(network: Pretrained, runner: Runner, test: bool, most: int | None = None) -> tuple[float, list[Any]]:
    """The metric of a runner on its data, and each call's arguments and results; no metric where ``most`` ends it."""
    recorded = Recorded(runner, most)
    try:
        return network.evaluate(recorded, test), recorded.calls
    except Enough:
        return float("nan"), recorded.calls
