"""A decoder-only transformer as an ONNX graph with ONNX Runtime's fused operators: what its text generation expects.

Operators of the domain com.microsoft: GroupQueryAttention (rotary positions and the cache inside it),
SkipSimplifiedLayerNormalization, MatMulNBits and GatherBlockQuantized for weights in few bits
(github.com/microsoft/onnxruntime, docs/ContribOperators.md). Weights lie in a file beside the model. Knows no
folder, no tokenizer and no runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.onnx_build import package
from nxjax.ops.base import NDArray
from nxjax.quant.qarray import QArray
from nxjax.trace import dtypes

DOMAIN: Final = "com.microsoft"
OPSET: Final = 21
IR: Final = 10
# Weights per scale that MatMulNBits has kernels for.
BLOCKS: Final = (256, 128, 64, 32, 16)
# Initializers of fewer bytes stay in the model, where shapes are looked up; offsets are as ONNX asks for mapped files.
SMALL: Final = 1024
ALIGNMENT: Final = 4096


class Sizes(Protocol):
    """What is asked of a decoder's description; see `nxjax.generation.DecoderConfig`."""

    @property
    def vocabulary(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_size(self) -> int: ...
    @property
    def epsilon(self) -> float: ...


@final
@dataclass(frozen=True)
class Decoder:
    """A model and the file of its weights.

    Attributes:
        model: bytes of the ONNX file.
        data: bytes of the file beside it, under the name that the model has for it.
        notes: what is stored otherwise than it was given.
    """

    model: bytes
    data: bytes
    notes: tuple[str, ...]


def write(
    params: Mapping[str, Any], sizes: Sizes, cos: NDArray, sin: NDArray, data_name: str = "model.onnx.data"
) -> Decoder:
    """The graph: tokens, a mask and the past in, logits of all positions and the present out.

    Inputs ``input_ids`` int64 [batch, t], ``attention_mask`` int64 [batch, past + t], ``past_key_values.N.key`` and
    ``.value`` float32 [batch, kv_heads, past, head_size]; outputs ``logits`` [batch, t, vocabulary + 1] and
    ``present.N.key``, ``.value``. Shorter sequences are padded to the right, where the mask is 0, with a token of
    their own, number ``vocabulary``, whose logit is the least there is: the runtime takes every token of that number
    for padding, so that it may be none of the text's.

    Args:
        params: as `nxjax.generation.init` has them: float32 arrays, or `QArray`s of int8 or int4.
        sizes: of the decoder.
        cos, sin: of the rotation's angles, float32 [positions, head_size / 2].
        data_name: what the file of weights will be called.

    Raises:
        LoweringError: a head size that GroupQueryAttention does not take, or weights of another kind.
    """
    if sizes.head_size % 16:
        raise LoweringError(
            "onnx: GroupQueryAttention takes heads whose size is a multiple of 16",
            got=sizes.head_size,
            fix="a decoder with head_size=16, 32, 48, ...",
        )
    return _Graph(sizes, data_name).written(params, cos, sin)


@final
class _Graph:
    """The graph while it is written."""

    def __init__(self, sizes: Sizes, data_name: str) -> None:
        self.onnx = package()
        self.sizes, self.data_name = sizes, data_name
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.data = bytearray()
        self.notes: list[str] = []

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        name: str,
        domain: str = "",
        outputs: Sequence[str] | None = None,
        **attrs: Any,
    ) -> str:
        """One node; its first output is called as the node, unless ``outputs`` says otherwise."""
        given = list(outputs) if outputs else [name]
        made = self.onnx.helper.make_node(kind, list(inputs), given, name=name, domain=domain, **attrs)
        self.nodes.append(made)
        return given[0]

    def constant(self, x: NDArray, name: str) -> str:
        """An initializer, in the file beside the model if it is not small."""
        x = np.ascontiguousarray(x)
        if x.nbytes < SMALL:
            self.initializers.append(self.onnx.numpy_helper.from_array(x, name))
            return name
        self.data += bytes(-len(self.data) % ALIGNMENT)
        made = self.onnx.TensorProto(name=name, dims=x.shape)
        made.data_type = self.onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        made.data_location = self.onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.data_name), ("offset", len(self.data)), ("length", x.nbytes)):
            made.external_data.add(key=key, value=str(value))
        self.data += x.tobytes()
        self.initializers.append(made)
        return name

    def linear(self, x: str, w: Any, name: str) -> str:
        """``x @ w`` of weights [inputs, outputs]."""
        if isinstance(w, QArray) and w.least is not None:
            self.notes.append(f"{name}: numbers with a least one; stored in float32")
        elif isinstance(w, QArray):
            packed = blocked(np.asarray(w.values).T, np.asarray(w.scale).T)
            if packed is not None:
                b = self.constant(packed.values, f"{name}.weight")
                scales = self.constant(packed.scales.reshape(-1), f"{name}.scales")
                return self._few_bits(x, b, scales, name, packed, *w.shape)
            self.notes.append(f"{name}: blocks that MatMulNBits has not; stored in float32")
        return self.node("MatMul", [x, self.constant(_float(w), f"{name}.weight")], name)

    def _few_bits(self, x: str, b: str, scales: str, name: str, packed: Blocked, depth: int, columns: int) -> str:
        # Level 1: float32 activations. Unset, a runtime may take 8 bits.
        return self.node(
            "MatMulNBits", [x, b, scales], name, DOMAIN,
            K=depth, N=columns, bits=packed.bits, block_size=packed.block, accuracy_level=1,
        )  # fmt: skip

    def ends(self, params: Mapping[str, Any]) -> tuple[str, Any]:
        """Embedded tokens, and what writes the logits of ``x``: both from one table where they are tied."""
        table, tied = params["embedding"], "head" not in params
        head = lambda x: self.linear(x, params["head"], "head")
        if isinstance(table, QArray) and table.least is None:
            packed = blocked(np.asarray(table.values), np.asarray(table.scale))
            if packed is not None and packed.whole:
                flat = packed.values.reshape(packed.values.shape[0], -1)
                data = self.constant(flat, "embedding.weight")
                scales = self.constant(packed.scales, "embedding.scales")
                x = self.node(
                    "GatherBlockQuantized", [data, "tokens", scales], "embedded", DOMAIN,
                    bits=packed.bits, block_size=packed.block, gather_axis=0, quantize_axis=1,
                )  # fmt: skip
                columns, depth = table.shape

                def same(x: str) -> str:
                    shape = self.constant(np.array(packed.values.shape, np.int64), "head.shape")
                    b = self.node("Reshape", [data, shape], "head.weight")
                    flat = self.constant(np.array([-1], np.int64), "head.flat")
                    rows = self.node("Reshape", [scales, flat], "head.scales")
                    return self._few_bits(x, b, rows, "head", packed, depth, columns)

                return x, same if tied else head
            self.notes.append("embedding: blocks that GatherBlockQuantized has not; stored in float32")
        data = self.constant(_float(table), "embedding.weight")

        def turned(x: str) -> str:
            return self.node("MatMul", [x, self.node("Transpose", [data], "head.weight", perm=[1, 0])], "head")

        return self.node("Gather", [data, "tokens"], "embedded"), turned if tied else head

    def norm(self, x: str, skip: str | None, scale: Any, name: str) -> tuple[str, str]:
        """The norm of ``x``, or of ``x + skip``; and the sum itself, on which the rest is added."""
        gain, epsilon = self.constant(_float(scale), f"{name}.scale"), float(self.sizes.epsilon)
        if skip is None:
            kind = "SimplifiedLayerNormalization"
            return self.node(kind, [x, gain], name, axis=-1, epsilon=epsilon, stash_type=1), x
        outputs = [name, "", "", f"{name}.sum"]
        kind = "SkipSimplifiedLayerNormalization"
        return self.node(kind, [x, skip, gain], name, DOMAIN, outputs, epsilon=epsilon), outputs[3]

    def written(self, params: Mapping[str, Any], cos: NDArray, sin: NDArray) -> Decoder:
        s, layers = self.sizes, params["layers"]
        last = self.constant(np.array(s.vocabulary - 1, np.int64), "last_token")
        self.node("Min", ["input_ids", last], "tokens")
        embedded, head = self.ends(params)
        rotations = [self.constant(cos, "cos_cache"), self.constant(sin, "sin_cache")]
        lengths = self._lengths()
        add: str | None = None
        x = embedded
        for i, p in enumerate(layers):
            at = f"layers.{i}"
            h, x = self.norm(x, add, p["attention"]["norm"], f"{at}.attention.norm")
            qkv = self.linear(h, p["attention"]["qkv"], f"{at}.attention.qkv")
            past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
            name = f"{at}.attention"
            outputs = [name, f"present.{i}.key", f"present.{i}.value"]
            read = self.node(
                "GroupQueryAttention", [qkv, "", "", *past, *lengths, *rotations], name, DOMAIN, outputs,
                num_heads=s.heads, kv_num_heads=s.kv_heads, do_rotary=1, rotary_interleaved=0,
                scale=1.0 / float(np.sqrt(s.head_size)),
            )  # fmt: skip
            add = self.linear(read, p["attention"]["out"], f"{at}.attention.out")
            h, x = self.norm(x, add, p["mlp"]["norm"], f"{at}.mlp.norm")
            both = self.linear(h, p["mlp"]["gate_up"], f"{at}.mlp.gate_up")
            halves = [f"{at}.mlp.gate", f"{at}.mlp.up"]
            gate = self.node("Split", [both], f"{at}.mlp.split", outputs=halves, axis=-1, num_outputs=2)
            curve = self.node("Sigmoid", [gate], f"{at}.mlp.sigmoid")
            gate = self.node("Mul", [gate, curve], f"{at}.mlp.silu")
            up = self.node("Mul", [gate, halves[1]], f"{at}.mlp.gated")
            add = self.linear(up, p["mlp"]["down"], f"{at}.mlp.down")
        y, _ = self.norm(x, add, params["norm"], "norm")
        beside = self.constant(np.array([0, 0, 0, 0, 0, 1], np.int64), "padding.places")
        least = self.constant(np.array(np.finfo(np.float32).min, np.float32), "padding.logit")
        self.node("Pad", [head(y), beside, least], "logits")
        return Decoder(self._model(len(layers)).SerializeToString(), bytes(self.data), tuple(self.notes))

    def _lengths(self) -> list[str]:
        """Tokens of each sequence less one, and of the longest: int32, as the attention wants them."""
        axis, one = (self.constant(np.array([n], np.int64), f"one.{i}") for i, n in enumerate((1, 1)))
        count = self.node("ReduceSum", ["attention_mask", axis], "lengths.sum", keepdims=0)
        to = self.onnx.TensorProto.INT32
        each = self.node("Cast", [self.node("Sub", [count, one], "lengths.last")], "lengths", to=to)
        shape = self.node("Shape", ["attention_mask"], "total.shape", start=1, end=2)
        nothing = self.constant(np.array([0], np.int64), "zero")
        whole = self.node("Squeeze", [shape, nothing], "total.scalar")
        return [each, self.node("Cast", [whole], "total", to=to)]

    def _model(self, layers: int) -> Any:
        helper, kinds, s = self.onnx.helper, self.onnx.TensorProto, self.sizes
        value = helper.make_tensor_value_info
        past = ["batch", s.kv_heads, "past", s.head_size]
        present = ["batch", s.kv_heads, "total", s.head_size]
        inputs = [value("input_ids", kinds.INT64, ["batch", "t"])]
        inputs.append(value("attention_mask", kinds.INT64, ["batch", "total"]))
        outputs = [value("logits", kinds.FLOAT, ["batch", "t", s.vocabulary + 1])]
        for i in range(layers):
            for part in ("key", "value"):
                inputs.append(value(f"past_key_values.{i}.{part}", kinds.FLOAT, past))
                outputs.append(value(f"present.{i}.{part}", kinds.FLOAT, present))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.initializers)
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=IR, producer_name="nxjax")


def _float(w: Any) -> NDArray:
    return np.asarray(w, np.float32)


@final
@dataclass(frozen=True)
class Blocked:
    """Weights as the operators for few bits have them.

    Attributes:
        values: uint8 [rows, blocks, block * bits / 8], the integers plus 2^(bits-1); of 4 bits the first in the low
            half.
        scales: float32 [rows, blocks].
        bits, block: of a weight, and weights per scale.
        whole: the blocks are full.
    """

    values: NDArray
    scales: NDArray
    bits: int
    block: int
    whole: bool


def blocked(values: NDArray, scales: NDArray) -> Blocked | None:
    """Integers [rows, depth] and scales [rows, groups], in blocks; None where no block fits into the groups.

    >>> found = blocked(np.arange(-8, 8, dtype=np.int8)[None].astype(dtypes.int4), np.ones((1, 1), np.float32))
    >>> found.values.tolist(), found.block
    ([[[16, 50, 84, 118, 152, 186, 220, 254]]], 16)
    """
    if values.dtype not in (dtypes.int4, dtypes.int8):
        raise LoweringError("onnx: weights in few bits", got=values.dtype, expected="int8 or int4")
    bits = dtypes.bit_width(values.dtype)
    (rows, depth), groups = values.shape, scales.shape[1]
    if scales.shape[0] != rows:
        scales = np.broadcast_to(scales, (rows, groups))
    block = next((b for b in BLOCKS if (depth // groups) % b == 0), BLOCKS[-1] if groups == 1 else 0)
    if not block:
        return None
    count = -(-depth // block)
    moved = np.zeros((rows, count * block), np.uint8) + np.uint8(1 << (bits - 1))
    moved[:, :depth] = values.astype(np.int16) + (1 << (bits - 1))
    moved = moved.reshape(rows, count, block)
    if bits == 4:
        moved = moved[..., 0::2] | moved[..., 1::2] << 4
    spread = np.repeat(scales, max(depth // groups // block, 1) if groups > 1 else count, axis=1)
    return Blocked(moved, np.ascontiguousarray(spread, np.float32), bits, block, depth == count * block)
