"""Default int8 of nxjax beside other quantizers: networks with trained weights, the same calibration and test data.

Each quantizer gets the float network and the same calibration samples, and is asked for 8-bit weights and activations
with its own defaults. Its results are compared with those of the float network on the test data. What is not installed
is left out, and said. ``python -m benchmarks quantizers``: it takes minutes, and is asked for by name only.

What 8 bits ruin may leave them: nxjax says which share of the multiply-accumulates stays, and stands a second time with
all in 8 bits. The others leave in float what they have no integers for. Activations with the ranges of each call
("dynamic") are figures of their own.

The last networks are `unseen`: nothing was tuned on them.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
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
Quantizer = Callable[[Pretrained, Calls], Runner]


def figures() -> list[Figure]:
    """A figure for each network that is installed; the names of others can be given in NXJAX_QUANTIZERS."""
    names = os.environ.get("NXJAX_QUANTIZERS", ",".join((*NETWORKS, *UNSEEN))).split(",")
    found: list[Figure] = []
    for name in names:
        network = (PRETRAINED | UNSEEN)[name]
        if network.missing():
            print(f"{name}: left out, not installed: {', '.join(network.missing())}", flush=True)
            continue
        for what, quantizers in (("int8", STATIC), ("dynamic int8", DYNAMIC)):
            found.append(measured(network, what, quantizers))
            print(found[-1].note, flush=True)
    return found


def measured(network: Pretrained, what: str, quantizers: dict[str, Quantizer]) -> Figure:
    """The noise of every quantizer on one network, as a share of the signal; dB and metric are in the note."""
    original = runners.original(network)
    expected, recorded = runners.calls(network, original, test=True)
    tested = recorded[:: -(-len(recorded) // TESTED)]
    _, recorded = runners.calls(network, original, test=False)
    data = [xs for xs, _ in recorded[:: max(1, len(recorded) // CALIBRATED)]]
    noise: dict[str, float] = {}
    said: list[str] = []
    for name, quantizer in quantizers.items():
        try:
            run = quantizer(network, data)
            db, metric = sqnr(run, tested), network.evaluate(run, True)
        except ImportError as error:
            said.append(f"{name} is not installed ({error.name})")
        except Exception as error:  # a peer's own failure is a result
            if name.startswith(OURS):
                raise
            said.append(f"{name} failed ({type(error).__name__}: {str(error).strip().splitlines()[0][:60]})")
        else:
            noise[name] = 10 ** (-db / 20)
            said.append(f"{name} {db:.1f} dB {metric:.3f}{kept(run)}")
    ours = noise[OURS]
    others = {name: share for name, share in noise.items() if not name.startswith(OURS)}
    best = min(others, key=others.__getitem__, default=None)
    note = f"{network.name}, {what}, {network.metric} {expected:.3f} in float: {', '.join(said)}"
    peer = None if best is None else 1e3 * others[best]
    return Figure(
        f"noise of {what}, {network.name}", 1e3 * ours, peer, best or "", 1.0, note, "per mille of the signal",
        {name: 1e3 * value for name, value in noise.items() if name != OURS},
    )  # fmt: skip


def kept(run: Runner) -> str:
    """Which share of the multiply-accumulates stays in 8 bits, where some may leave them."""
    share = getattr(run, "share", None)
    return "" if share is None else f" ({share:.0%} of the products in int8)"


def sqnr(run: Runner, calls: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> float:
    """Signal to noise in dB of all results of a runner, on the arguments of recorded calls."""
    signal = error = 0.0
    for xs, ys in calls:
        for y, z in zip(ys, run(*xs), strict=True):
            signal += float((y.astype(np.float64) ** 2).sum())
            error += float(((y.astype(np.float64) - z) ** 2).sum())
    return 10 * float(np.log10(signal / max(error, 1e-300)))


def nxjax(policy: str | None) -> Quantizer:
    def quantizer(network: Pretrained, data: Calls) -> Runner:
        import nxjax as nx

        made = nx.quantize(runners.function(network), policy, calibrate=[tuple(map(nx.array, xs)) for xs in data])
        run = runners.Nxjax(made)
        if policy is None:
            best = max(made.trials, key=lambda t: t.found, default=None)
            run.share = 1.0 if best is None else best.share
        return run

    return quantizer


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
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(data)

        def get_next(self) -> Any:
            xs = next(self.rest, None)
            return None if xs is None else dict(zip(names, xs, strict=True))

    names = inputs(network)
    with prepared(network) as (source, made):
        quantize_static(source, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
        return runners.OnnxRuntime(made)


def onnxruntime_dynamic(network: Pretrained, data: Calls) -> Runner:
    """``quantize_dynamic``, weights per channel."""
    from onnxruntime.quantization import quantize_dynamic

    with prepared(network) as (source, made):
        quantize_dynamic(source, made, per_channel=True)
        return runners.OnnxRuntime(made)


@contextmanager
def prepared(network: Pretrained) -> Generator[tuple[Path, Path]]:
    """The network's file as ONNX Runtime's quantizers want it, and a place for what they make of it."""
    import onnx  # type: ignore[import-not-found]
    import onnx.version_converter  # type: ignore[import-not-found]
    from onnxruntime.quantization import quant_pre_process

    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, quiet():
        source = Path(folder) / "prepared.onnx"
        # Scales per channel came with version 13.
        model = onnx.load(str(network.path))
        if model.opset_import[0].version < 13:
            model = onnx.version_converter.convert_version(model, 17)
        onnx.save(model, str(source))
        quant_pre_process(str(source), str(source), skip_symbolic_shape=True)
        yield source, Path(folder) / "int8.onnx"


def ai_edge_quantizer(network: Pretrained, data: Calls, name: str = "static_wi8_ai8") -> Runner:
    """Its recipe ``name`` on the float TFLite file that nxjax writes, run by LiteRT."""
    from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found]

    import nxjax as nx

    function = runners.function(network)
    with quiet():
        source = nx.compile(function, target="tflite", verify=False)(*map(nx.array, data[0])).bytes
        tool = quantizer.Quantizer(source, getattr(recipe, name)())
        from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]

        (signature, described), *_ = Interpreter(model_content=source).get_signature_list().items()
        names = described["inputs"]
        samples = [dict(zip(names, map(np.asarray, xs), strict=True)) for xs in data]
        seen = tool.calibrate({signature: samples}) if tool.need_calibration else None
        made = tool.quantize(seen).quantized_model
    return Signature(bytes(made), names)


def ai_edge_quantizer_dynamic(network: Pretrained, data: Calls) -> Runner:
    return ai_edge_quantizer(network, data, "dynamic_wi8_afp32")


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
STATIC: dict[str, Quantizer] = {
    OURS: nxjax(None),
    f"{OURS} int8": nxjax("int8"),
    "NNCF": nncf,
    "ONNX Runtime": onnxruntime,
    "ai-edge-quantizer": ai_edge_quantizer,
}
DYNAMIC: dict[str, Quantizer] = {
    OURS: nxjax("dynamic-int8"),
    "ONNX Runtime": onnxruntime_dynamic,
    "ai-edge-quantizer": ai_edge_quantizer_dynamic,
}
