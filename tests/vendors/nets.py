"""Small quantized networks as graphs, for the tests of targets. Not a test."""

import numpy as np

from nxjax.errors import user_source
from nxjax.lower.npu.formats import flatbuffer
from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.quant_grid import Grid

INT8, INT32, FLOAT = np.dtype("int8"), np.dtype("int32"), np.dtype("float32")


class Net:
    """A chain of int8 layers with random weights; every node names the line that made it."""

    def __init__(self, *shape, dtype=INT8, name="net"):
        self.rng = np.random.default_rng(0)
        self.name = name
        self.dtype = dtype
        self.input = self.x = self.tensor("x", shape)
        self.nodes = []

    def tensor(self, name, shape, scale=0.05, zero=3):
        return Tensor(name, shape, self.dtype, Grid(self.dtype, scale, zero) if self.dtype == INT8 else None)

    def add(self, op, shape, *operands, result=None, **attrs):
        y = result or self.tensor(f"t{len(self.nodes)}", shape)
        self.nodes.append(Node(op, (self.x, *operands), (y,), attrs, user_source(), name=f"{op}_{len(self.nodes)}"))
        self.x = y
        return self

    def weights(self, *shape, axis=0):
        if self.dtype == FLOAT:
            return Tensor("w", shape, FLOAT, None, self.rng.normal(size=shape).astype(np.float32))
        scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.001, 0.01, shape[axis]))
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        return Tensor("w", shape, INT8, Grid(INT8, scales, 0, axis), data)

    def bias(self, n):
        kind = INT32 if self.dtype == INT8 else FLOAT
        return Tensor("b", (n,), kind, None, self.rng.integers(-500, 500, n).astype(kind))

    def conv(self, out, size=3, stride=1, activation="relu6"):
        n, h, w, c = self.x.shape
        pads = tuple(max((-(-m // stride) - 1) * stride + size - m, 0) for m in (h, w))
        padding = tuple((p // 2, p - p // 2) for p in pads)
        shape = (n, -(-h // stride), -(-w // stride), out)
        attrs = {"strides": (stride, stride), "dilations": (1, 1), "padding": padding, "groups": 1}
        return self.add(
            "conv_2d", shape, self.weights(out, size, size, c), self.bias(out), activation=activation, **attrs
        )

    def mean(self):
        n, _, _, c = self.x.shape
        return self.add("mean", (n, c), axes=(1, 2), keepdims=False)

    def dense(self, out):
        return self.add(
            "fully_connected", (1, out), self.weights(out, self.x.shape[-1]), self.bias(out), activation=None
        )

    def unary(self, op, **attrs):
        return self.add(op, self.x.shape, **attrs)

    def quantize(self):
        return self.add("quantize", self.x.shape, result=Tensor("q", self.x.shape, INT8, Grid(INT8, 0.05, 3)))

    def dequantize(self):
        return self.add("dequantize", self.x.shape, result=Tensor("f", self.x.shape, FLOAT))

    def graph(self):
        return NpuGraph(self.name, [self.input], [self.x], self.nodes).check()

    def data(self):
        if self.dtype == FLOAT:
            return self.rng.normal(size=self.input.shape).astype(np.float32)
        return self.rng.integers(-128, 128, self.input.shape).astype(np.int8)


def cnn():
    """Convolutions, a mean and a dense layer: all of it fits every NPU."""
    return Net(1, 16, 16, 3, name="cnn").conv(8).conv(16, stride=2).mean().dense(10)


def dispatched(data: bytes, custom: str) -> bytes:
    """A compiled file of a network with these inputs and results: one operator of a vendor's takes all of it."""
    model = flatbuffer.read(SCHEMA, "Model", data, IDENTIFIER)
    graph, codes = model["subgraphs"][0], model["operator_codes"]
    codes.append(dict(codes[0], builtin_code=32, deprecated_builtin_code=32, custom_code=custom, version=1))
    graph["operators"] = [{"opcode_index": len(codes) - 1, "inputs": graph["inputs"], "outputs": graph["outputs"]}]
    return flatbuffer.write(SCHEMA, "Model", model, IDENTIFIER)
