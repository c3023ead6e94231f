"""Default int8 of nxjax beside other quantizers: networks with trained weights, the same calibration and test data.

Each quantizer gets the float network and the same calibration samples, and is asked for 8-bit weights and activations
with its own defaults. Its results are compared with those of the float network on the test data. What is not installed
is left out, and said. ``python -m benchmarks quantizers``: it takes minutes, and is asked for by name only.

The last networks are `unseen`: nothing was tuned on them.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import runners
from benchmarks.models.pretrained import PRETRAINED, Pretrained, Runner
from benchmarks.models.unseen import UNSEEN
from benchmarks.runner import Figure

# The networks whose files are float.
NETWORKS = ("ppocr-det", "ppocr-rec", "ppocr-cls", "magika", "silero-vad", "basic-pitch")
# Calls of a network on its calibration data, and on its test data, that are taken.
CALIBRATED, TESTED = 16, 24
Calls = Sequence[tuple[Any, ...]]


def figures() -> list[Figure]:
    """A figure for each network that is installed; the names of others can be given in NXJAX_QUANTIZERS."""
    names = os.environ.get("NXJAX_QUANTIZERS", ",".join((*NETWORKS, *UNSEEN))).split(",")
    found: list[Figure] = []
    for name in names:
        network = (PRETRAINED | UNSEEN)[name]
        if network.missing():
            print(f"{name}: left out, not installed: {', '.join(network.missing())}", flush=True)
            continue
        found.append(measured(network))
        print(found[-1].note, flush=True)
    return found


def measured(network: Pretrained) -> Figure:
    """The noise of every quantizer on one network, as a share of the signal; dB and metric are in the note."""
    original = runners.original(network)
    expected, recorded = runners.calls(network, original, test=True)
    tested = recorded[:: -(-len(recorded) // TESTED)]
    _, recorded = runners.calls(network, original, test=False)
    data = [xs for xs, _ in recorded[:: max(1, len(recorded) // CALIBRATED)]]
    noise: dict[str, float] = {}
    said: list[str] = []
    for name, quantizer in QUANTIZERS.items():
        try:
            run = quantizer(network, data)
            db, metric = sqnr(run, tested), network.evaluate(run, True)
        except ImportError as error:
            said.append(f"{name} is not installed ({error.name})")
        except Exception as error:  # a peer's own failure is a result
            if name == OURS:
                raise
            said.append(f"{name} failed ({type(error).__name__}: {str(error).strip().splitlines()[0][:60]})")
        else:
            noise[name] = 10 ** (-db / 20)
            said.append(f"{name} {db:.1f} dB {metric:.3f}")
    ours, others = noise.pop(OURS), noise
    best = min(others, key=others.__getitem__, default=None)
    note = f"{network.name}, {network.metric} {expected:.3f} in float: {', '.join(said)}"
    peer = None if best is None else 1e3 * others[best]
    return Figure(
        f"noise of int8, {network.name}", 1e3 * ours, peer, best or "", 1.0, note, "per mille of the signal",
        {name: 1e3 * value for name, value in others.items()},
    )  # fmt: skip


def sqnr(run: Runner, calls: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> float:
    """Signal to noise in dB of all results of a runner, on the arguments of recorded calls."""
    signal = error = 0.0
    for xs, ys in calls:
        for y, z in zip(ys, run(*xs), strict=True):
            signal += float((y.astype(np.float64) ** 2).sum())
            error += float(((y.astype(np.float64) - z) ** 2).sum())
    return 10 * float(np.log10(signal / max(error, 1e-300)))


def nxjax(network: Pretrained, data: Calls) -> Runner:
    import nxjax as nx

    function = runners.function(network)
    return runners.Nxjax(nx.quantize(function, "int8", calibrate=[tuple(map(nx.array, xs)) for xs in data]))


def nncf(network: Pretrained, data: Calls) -> Runner:
    """NNCF's default preset on OpenVINO's form of the file, run by OpenVINO."""
    import nncf as peer  # type: ignore[import-not-found]
    import openvino  # type: ignore[import-not-found]

    peer.set_log_level(logging.ERROR)
    core = openvino.Core()
    model = core.read_model(str(network.path))
    model.reshape({i.any_name: list(x.shape) for i, x in zip(model.inputs, data[0], strict=True)})
    samples = peer.Dataset([dict(enumerate(xs)) for xs in data])
    with quiet():
        quantized = peer.quantize(model, samples, subset_size=len(data))
    return OpenVINO(core, quantized)


class OpenVINO:
    """A model on the CPU in float32, so that its integers are those that it names, whatever the processor."""

    def __init__(self, core: Any, model: Any) -> None:
        self._core, self._model = core, model
        self._compiled: dict[Any, Any] = {}

    def reset(self) -> None:
        """Such networks hold no state."""

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        shapes = tuple(x.shape for x in xs)
        if shapes not in self._compiled:
            self._model.reshape({i.any_name: list(s) for i, s in zip(self._model.inputs, shapes, strict=True)})
            self._compiled[shapes] = self._core.compile_model(self._model, "CPU")
        made = self._compiled[shapes](list(xs))
        return tuple(made[i] for i in range(len(self._model.outputs)))


def onnxruntime(network: Pretrained, data: Calls) -> Runner:
    """``quantize_static`` in the QDQ format after its own preparation of the file, run by ONNX Runtime."""
    import onnx  # type: ignore[import-not-found]
    import onnx.version_converter  # type: ignore[import-not-found]
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(data)

        def get_next(self) -> Any:
            xs = next(self.rest, None)
            return None if xs is None else dict(zip(names, xs, strict=True))

    names = inputs(network)
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, quiet():
        prepared, made = Path(folder) / "prepared.onnx", Path(folder) / "int8.onnx"
        # Scales per channel came with version 13.
        source = onnx.load(str(network.path))
        if source.opset_import[0].version < 13:
            source = onnx.version_converter.convert_version(source, 17)
        onnx.save(source, str(prepared))
        quant_pre_process(str(prepared), str(prepared), skip_symbolic_shape=True)
        quantize_static(prepared, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
        return runners.OnnxRuntime(made)


def ai_edge_quantizer(network: Pretrained, data: Calls) -> Runner:
    """Its recipe for static int8 on the float TFLite file that nxjax writes, run by LiteRT."""
    from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found]

    import nxjax as nx

    function = runners.function(network)
    with quiet():
        source = nx.compile(function, target="tflite", verify=False)(*map(nx.array, data[0])).bytes
        tool = quantizer.Quantizer(source, recipe.static_wi8_ai8())
        from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]

        (signature, described), *_ = Interpreter(model_content=source).get_signature_list().items()
        names = described["inputs"]
        samples = [dict(zip(names, map(np.asarray, xs), strict=True)) for xs in data]
        made = tool.quantize(tool.calibrate({signature: samples})).quantized_model
    return Signature(bytes(made), names)


class Signature:
    """A TFLite file's one signature, its arguments in the order of ``names``."""

    def __init__(self, made: bytes, names: Sequence[str]) -> None:
        from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]

        self._interpreter = Interpreter(model_content=made)
        self._runner = self._interpreter.get_signature_runner()
        self._names, self._results = names, self._runner.get_output_details()
        self._inputs = self._runner.get_input_details()

    def reset(self) -> None:
        """Such networks hold no state."""

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        given = {k: self._stored(np.asarray(x), k) for k, x in zip(self._names, xs, strict=True)}
        made = self._runner(**given)
        return tuple(self._real(made[k], self._results[k]) for k in sorted(self._results))

    def _stored(self, x: Any, name: str) -> Any:
        described = self._inputs[name]
        scale, zero = described["quantization"]
        if not scale:
            return x
        info = np.iinfo(described["dtype"])
        return np.clip(np.rint(x / scale) + zero, info.min, info.max).astype(described["dtype"])

    def _real(self, y: Any, described: Any) -> Any:
        scale, zero = described["quantization"]
        return np.float32(scale) * (y.astype(np.float32) - zero) if scale else y


def inputs(network: Pretrained) -> list[str]:
    import onnx  # type: ignore[import-not-found]

    return [i.name for i in onnx.load(str(network.path)).graph.input]


class quiet:
    """Without what peers print about their progress."""

    def __enter__(self) -> None:
        self._null = open(os.devnull, "w")
        self._all = redirect_stdout(self._null), redirect_stderr(self._null)
        for each in self._all:
            each.__enter__()

    def __exit__(self, *error: object) -> None:
        for each in self._all:
            each.__exit__(None, None, None)
        self._null.close()


OURS = "nxjax"
QUANTIZERS: dict[str, Callable[[Pretrained, Calls], Runner]] = {
    OURS: nxjax,
    "NNCF": nncf,
    "ONNX Runtime": onnxruntime,
    "ai-edge-quantizer": ai_edge_quantizer,
}
