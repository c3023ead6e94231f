"""Convolutions, pools and networks of them, float and int8, beside ONNX Runtime, OpenVINO, PyTorch and JAX.

Peers get a network as an ONNX file with its weights as constants; so does nxjax, by closing over them: every side may
prepare them before it is measured. Single layers and gradients take them as arguments, as in training.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.models import MODELS
from benchmarks.models.layers import conv, conv_init, dense, dense_init, mean_pool
from benchmarks.peers import THREADS, Row, Work, all_measured, package, without_vnni
from benchmarks.runner import Figure


def compiled(f: Callable[..., Any], params: Any, x: Any) -> Work:
    """A call of the jitted function, its arguments on the device."""
    g = nx.jit(f)
    params, x = nx.device_put(params), nx.device_put(x)
    return lambda: nx.block_until_ready(g(params, x))


def closed(f: Callable[..., Any], params: Any, x: Any) -> Work:
    """A call of the function jitted with its weights as constants."""
    params = nx.device_put(params)
    g, x = nx.jit(lambda x: f(params, x)), nx.device_put(x)
    return lambda: nx.block_until_ready(g(x))


def with_onnx(f: Callable[..., Any], params: Any, x: Any) -> dict[str, Work]:
    """The same network by ONNX Runtime and by OpenVINO."""
    runtime, openvino = package("onnxruntime"), package("openvino")
    if runtime is None and openvino is None:
        return {}
    from nxjax.deploy.trace import BoundFunction
    from nxjax.lower.npu.formats import onnx_writer

    graph = BoundFunction(f, (params, x), {}, None).graph("float", 0)
    data, name = onnx_writer.write(graph, style="float"), graph.inputs[0].name
    found: dict[str, Work] = {}
    if runtime is not None:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = THREADS
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        found["ONNX Runtime"] = lambda: session.run(None, {name: x})
    if openvino is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            path.write_bytes(data)
            core = openvino.Core()
            net = core.compile_model(
                core.read_model(path), "CPU", {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
            )
        request = net.create_infer_request()
        found["OpenVINO"] = lambda: request.infer({0: x})
    return found


def with_torch(x: np.ndarray, w: np.ndarray, groups: int = 1) -> dict[str, Work]:
    """A 3x3 convolution of NHWC ``x`` with HWIO ``w``."""
    torch = package("torch")
    if torch is None:
        return {}
    torch.set_num_threads(THREADS)
    values = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w).permute(3, 2, 0, 1)

    def run(order: Any) -> Work:
        a, b = (v.contiguous(memory_format=order) for v in values)

        def call() -> object:
            with torch.no_grad():
                return torch.nn.functional.conv2d(a, b, padding=1, groups=groups)

        return call

    return {"torch": run(torch.contiguous_format), "torch channels last": run(torch.channels_last)}


def with_jax(x: np.ndarray, w: np.ndarray, groups: int = 1) -> dict[str, Work]:
    jax = package("jax")
    if jax is None:
        return {}

    def f(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups)

    g, a, b = jax.jit(f), jax.numpy.asarray(x), jax.numpy.asarray(w)
    return {"jax": lambda: jax.block_until_ready(g(a, b))}


def single(rng: np.random.Generator) -> Iterator[Row]:
    x = rng.normal(size=(8, 56, 56, 64)).astype(np.float32)
    for name, groups in (("conv 3x3 64-64 56x56 b8", 1), ("depthwise 3x3 64 56x56 b8", 64)):
        w = (rng.normal(size=(3, 3, 64 // groups, 64)) / 24).astype(np.float32)
        f = lambda p, x, groups=groups: conv(p, x, groups=groups)
        params = {"w": w, "b": np.zeros(64, np.float32)}
        works = lambda f=f, params=params, w=w, groups=groups: (
            compiled(f, params, x),
            {**with_onnx(f, params, x), **with_torch(x, w, groups), **with_jax(x, w, groups)},
        )
        yield Row(name, works, flops=2.0 * x.size * w.size / 64)


def gradient(rng: np.random.Generator) -> Iterator[Row]:
    """Input and kernel gradient of one convolution."""
    x = rng.normal(size=(8, 56, 56, 64)).astype(np.float32)
    w = (rng.normal(size=(3, 3, 64, 64)) / 24).astype(np.float32)

    def f(lax: Any, grad: Any) -> Callable[..., Any]:
        def loss(w: Any, x: Any) -> Any:
            y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            return (y * y).sum()

        return grad(loss, (0, 1))

    def works() -> tuple[Work, dict[str, Work]]:
        peers: dict[str, Work] = {}
        jax = package("jax")
        if jax is not None:
            g, a, b = jax.jit(f(jax.lax, jax.grad)), jax.numpy.asarray(w), jax.numpy.asarray(x)
            peers["jax"] = lambda: jax.block_until_ready(g(a, b))
        torch = package("torch")
        if torch is not None:
            torch.set_num_threads(THREADS)
            tx = torch.from_numpy(x).permute(0, 3, 1, 2).requires_grad_()
            tw = torch.from_numpy(w).permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last).requires_grad_()

            def torch_step() -> object:
                y = torch.nn.functional.conv2d(tx, tw, padding=1)
                return torch.autograd.grad((y * y).sum(), (tw, tx))

            peers["torch"] = torch_step
        return compiled(f(nx.lax, nx.grad), w, x), peers

    yield Row("grad of conv 3x3 64-64 56x56 b8", works, flops=3 * 2.0 * x.size * w.size / 64)


def small_resnet(rng: np.random.Generator) -> tuple[Callable[..., Any], Any, Any]:
    """Nine convolutions of 16, 32 and 64 channels on a 32x32 image, as for CIFAR."""
    blocks: list[Any] = []
    inputs = 16
    for channels in (16, 32, 64):
        blocks.append(
            {
                "first": conv_init(rng, 3, 3, inputs, channels),
                "second": conv_init(rng, 3, 3, channels, channels, gain=0.7),
                "shortcut": conv_init(rng, 1, 1, inputs, channels, gain=1.0),
            }
        )
        inputs = channels
    params = {"stem": conv_init(rng, 3, 3, 3, 16), "blocks": blocks, "classes": dense_init(rng, 64, 10)}

    def apply(params: Any, x: Any) -> Any:
        x = nx.nn.relu(conv(params["stem"], x))
        for i, p in enumerate(params["blocks"]):
            stride = 1 if i == 0 else 2
            y = conv(p["second"], nx.nn.relu(conv(p["first"], x, stride)))
            x = nx.nn.relu(y + conv(p["shortcut"], x, stride))
        return dense(params["classes"], mean_pool(x))

    return apply, params, rng.normal(size=(1, 32, 32, 3)).astype(np.float32)


def networks(rng: np.random.Generator) -> Iterator[Row]:
    def row(name: str, make: Callable[[], tuple[Callable[..., Any], Any, Any]]) -> Row:
        def works() -> tuple[Work, dict[str, Work]]:
            f, params, x = make()
            return closed(f, params, x), with_onnx(f, params, x)

        return Row(name, works)

    yield row("small ResNet b1", lambda: small_resnet(rng))
    for name in ("mobilenet_v2", "resnet18"):
        model = MODELS[name]
        yield row(f"{name} b1", lambda model=model: (model.apply, model.init(0), model.example(1)))


def quantized(rng: np.random.Generator) -> Iterator[Row]:
    """int8 beside our own float32; the bar is for processors without VNNI."""
    layer = {"w": (rng.normal(size=(3, 3, 64, 64)) / 24).astype(np.float32), "b": np.zeros(64, np.float32)}
    image = rng.normal(size=(8, 56, 56, 64)).astype(np.float32)
    model = MODELS["mobilenet_v2"]
    for name, f, params, x in (
        ("int8 conv 3x3 64-64 56x56 b8", conv, layer, image),
        ("int8 mobilenet_v2 b1", model.apply, model.init(0), model.example(1)),
    ):

        def works(f: Any = f, params: Any = params, x: Any = x) -> tuple[Work, dict[str, Work]]:
            q = nx.quantize(f, "int8", calibrate=[(params, x)], progress=False)
            return closed(q, params, x), {"our float32": closed(f, params, x)}

        yield Row(name, works, None)
        yield Row(f"{name}, no VNNI", works, 1.3, isa=without_vnni())


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    yield from single(rng)
    yield from gradient(rng)
    yield from networks(rng)
    yield from quantized(rng)


def figures() -> Iterator[Figure]:
    return all_measured(rows())
