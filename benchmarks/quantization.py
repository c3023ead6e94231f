"""Calibration beside plain inference, and a float MobileNetV2 to an int8 file beside ONNX Runtime's own quantizer."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import MODELS
from benchmarks.runner import Figure, interleaved

# Calibration may take so much longer than inference: a throughput of 0.7.
CALIBRATION_BAR = 1 / 0.7
IMAGES = 8


def figures() -> list[Figure]:
    return [*map(calibration, ("mobilenet_v2", "ds_cnn")), conversion()]


def calibration(name: str) -> Figure:
    """One batch through the function with the ranges of all values, and through the function alone; both compiled."""
    import nxjax as nx

    model = MODELS[name]
    params = nx.device_put(model.init(0))
    batch = np.concatenate([model.example(i) for i in range(4 if name == "mobilenet_v2" else 32)])
    plain, observed = nx.jit(model.apply), nx.jit(lambda p, x: nx.calibrate(model.apply)(p, x)[1])
    times = interleaved(
        lambda: nx.block_until_ready(observed(params, batch)),
        lambda: nx.block_until_ready(plain(params, batch)),
        rounds=9,
    )
    return Figure(f"calibration pass, {name}", *times, "jit inference", CALIBRATION_BAR)


def conversion() -> Figure:
    """Calibrate on eight images, quantize, lower, write; and ``quantize_static`` on the same network and images."""
    import nxjax as nx
    from nxjax.deploy.trace import BoundFunction
    from nxjax.lower.npu.formats import onnx_writer

    model = MODELS["mobilenet_v2"]
    params = model.init(0)
    images = [model.example(i) for i in range(IMAGES)]
    graph = BoundFunction(model.apply, (params, images[0]), {}, None).graph("float", 0)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "float.onnx"
        source.write_bytes(onnx_writer.write(graph, style="float"))

        def ours() -> Any:
            quantized = nx.quantize(model.apply, "int8", calibrate=[(params, x) for x in images], progress=False)
            return nx.compile(quantized, target="tflite", verify=False)(params, images[0]).bytes

        times = interleaved(ours, lambda: _peer(source, graph.inputs[0].name, images), rounds=2)
    return Figure("MobileNetV2 to int8 file", *times, "ONNX Runtime quantize_static", None, f"{IMAGES} images")


def _peer(source: Path, name: str, images: list[Any]) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(images)

        def get_next(self) -> Any:
            image = next(self.rest, None)
            return None if image is None else {name: image}

    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(source, source.with_name("int8.onnx"), Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
