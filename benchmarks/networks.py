"""Whole networks at batch one, in int8 and float32, with one and two threads, beside every runtime that is installed.

Each runtime gets the file that suits it: LiteRT the TFLite file that nxjax writes and that of ai-edge-quantizer, ONNX
Runtime a QDQ file of its own quantizer, OpenVINO what NNCF makes of the float file. XNNPACK is LiteRT's default. Of
two files of one runtime the faster counts. ``python -m benchmarks networks``; NXJAX_NETWORKS names some of them.

A row in int8 also has our own float32 among its peers: int8 may never be slower.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.convolutions import closed
from benchmarks.models import MODELS
from benchmarks.peers import Row, Work, all_measured
from benchmarks.quantizers import quiet
from benchmarks.runner import Figure

NAMES = ("resnet18", "mobilenet_v2", "ds_cnn", "vit", "encoder")
CALIBRATED = 4
OWN = "our float32"


def figures() -> Iterator[Figure]:
    return all_measured(rows())


def rows() -> Iterator[Row]:
    for name in os.environ.get("NXJAX_NETWORKS", ",".join(NAMES)).split(","):
        network = Network(name)
        for threads in (1, 2):
            yield Row(f"{name} int8, {threads} threads", lambda n=network, t=threads: n.int8(t), rounds=9)
            yield Row(f"{name} float32, {threads} threads", lambda n=network, t=threads: n.float32(t), rounds=9)


class Network:
    """One model, its files made once; the works of all runtimes for a number of threads."""

    def __init__(self, name: str) -> None:
        model = MODELS[name]
        self.apply, self.params = model.apply, nx.device_put(model.init(0))
        self.images = [model.example(i) for i in range(CALIBRATED)]
        self.x = self.images[0]
        calls = [(self.params, x) for x in self.images]
        self.quantized = nx.quantize(self.apply, "int8", calibrate=calls, progress=False)
        self._files: dict[str, bytes] = {}

    def int8(self, threads: int) -> tuple[Work, dict[str, Work]]:
        peers: dict[str, Work] = {OWN: _with_threads(closed(self.apply, self.params, self.x), threads)}
        for called, make in (
            ("LiteRT", lambda: _litert(self.file("tflite", self._tflite), self.x, threads)),
            ("LiteRT, ai-edge-quantizer", lambda: _litert(self.file("edge", self._edge), self.x, threads)),
            ("ONNX Runtime", lambda: _onnxruntime(self.file("qdq", self._qdq), self.x, threads)),
            ("OpenVINO", lambda: self._openvino(threads, True)),
        ):
            _add(peers, called, make)
        return _with_threads(closed(self.quantized, self.params, self.x), threads), peers

    def float32(self, threads: int) -> tuple[Work, dict[str, Work]]:
        peers: dict[str, Work] = {}
        _add(peers, "ONNX Runtime", lambda: _onnxruntime(self.file("onnx", self._onnx), self.x, threads))
        _add(peers, "OpenVINO", lambda: self._openvino(threads, False))
        _add(peers, "LiteRT", lambda: _litert(self.file("float", self._float), self.x, threads))
        return _with_threads(closed(self.apply, self.params, self.x), threads), peers

    def file(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._files:
            with quiet():
                self._files[name] = make()
        return self._files[name]

    def _tflite(self) -> bytes:
        function = lambda x: self.quantized(self.params, x)
        return nx.compile(function, target="tflite", verify=False)(self.x).bytes

    def _float(self) -> bytes:
        return nx.compile(lambda x: self.apply(self.params, x), target="tflite", verify=False)(self.x).bytes

    def _onnx(self) -> bytes:
        from nxjax.deploy.trace import BoundFunction
        from nxjax.lower.npu.formats import onnx_writer

        graph = BoundFunction(self.apply, (self.params, self.x), {}, None).graph("float", 0)
        return onnx_writer.write(graph, style="float")

    def _edge(self) -> bytes:
        from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]
        from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found]

        source = self.file("float", self._float)
        tool = quantizer.Quantizer(source, recipe.static_wi8_ai8())
        (signature, described), *_ = Interpreter(model_content=source).get_signature_list().items()
        (given,) = described["inputs"]
        seen = tool.calibrate({signature: [{given: np.asarray(x)} for x in self.images]})
        return bytes(tool.quantize(seen).quantized_model)

    def _qdq(self) -> bytes:
        import onnx  # type: ignore[import-not-found]
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quant_pre_process, quantize_static

        class Reader(CalibrationDataReader):
            def __init__(self, name: str, images: list[Any]) -> None:
                self.rest = iter([{name: x} for x in images])

            def get_next(self) -> Any:
                return next(self.rest, None)

        logging.getLogger().setLevel(logging.ERROR)
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
            source.write_bytes(self.file("onnx", self._onnx))
            quant_pre_process(str(source), str(source), skip_symbolic_shape=True)
            given = onnx.load(str(source)).graph.input[0].name
            quantize_static(source, made, Reader(given, self.images), quant_format=QuantFormat.QDQ, per_channel=True)
            return made.read_bytes()

    def _openvino(self, threads: int, int8: bool) -> Work:
        import openvino  # type: ignore[import-not-found]

        core = openvino.Core()
        model = core.read_model(self.file("onnx", self._onnx), b"")
        if int8:
            import nncf  # type: ignore[import-not-found]

            nncf.set_log_level(logging.ERROR)
            with quiet():
                samples = nncf.Dataset([{0: x} for x in self.images])
                model = nncf.quantize(model, samples, subset_size=len(self.images))
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        return lambda: request.infer({0: self.x})


def _add(peers: dict[str, Work], called: str, make: Callable[[], Work]) -> None:
    """A peer's work, unless its package is missing; its failure is said."""
    try:
        work = make()
        work()
    except ImportError:
        return
    except Exception as error:
        print(f"{called} failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:90]}", flush=True)
        return
    peers[called] = work


def _with_threads(work: Work, threads: int) -> Work:
    """Our work with so many threads: the setting belongs to the process, so each call of the work sets it."""

    def run() -> object:
        if nx.config.num_threads != threads:
            nx.config.num_threads = threads
        return work()

    return run


def _onnxruntime(data: bytes, x: Any, threads: int) -> Work:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})


def _litert(data: bytes, x: Any, threads: int) -> Work:
    from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]

    interpreter = Interpreter(model_content=data, num_threads=threads)
    interpreter.allocate_tensors()
    described = interpreter.get_input_details()[0]
    out = interpreter.get_output_details()[0]["index"]
    scale, zero = described["quantization"]
    if scale:
        info = np.iinfo(described["dtype"])
        x = np.clip(np.rint(x / scale) + zero, info.min, info.max)
    x = np.asarray(x, described["dtype"])

    def run() -> object:
        interpreter.set_tensor(described["index"], x)
        interpreter.invoke()
        return interpreter.get_tensor(out)

    return run
