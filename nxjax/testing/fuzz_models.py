"""Models and weights that other projects write, small ones of each kind, for `nxjax.testing.fuzz_files` to damage.

A model is not only read: where a damaged file still says small inputs, it is called, since graphs say sizes too.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.deploy.compile import compile as compile_
from nxjax.errors import NxError
from nxjax.interop import from_onnx, from_tflite, from_torch, load_gguf, load_npz, load_safetensors, load_torch
from nxjax.interop.onnx.graph import package
from nxjax.nn import relu, softmax
from nxjax.quant.function import quantize
from nxjax.trace.array import wrap
from nxjax.trace.program import Program
from nxjax.transforms.shapes import make_jaxpr

# No input of more elements is made for a damaged model.
_LARGEST: Final = 4096
# Nor is one called that computes values of more elements: a damaged one may pad to gigabytes, and takes its time.
_MUCH: Final = 1 << 24
_W: Final = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def overwritten(data: bytes, rng: np.random.Generator) -> bytes:
    """``data`` with other numbers in a few places, and nothing moved."""
    b = bytearray(data)
    for _ in range(1 + int(rng.integers(3))):
        size = int(rng.choice([1, 1, 2, 4, 8]))
        at = int(rng.integers(max(1, len(b) - size)))
        old = int.from_bytes(b[at : at + size], "little")
        new = [old ^ 1 << int(rng.integers(8 * size)), old + int(rng.integers(-3, 4)), int(rng.integers(12)), -1]
        b[at : at + size] = (new[int(rng.integers(4))] % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(b)


def repacked(data: bytes, rng: np.random.Generator) -> bytes:
    """A zip file with damage in one of its members, and right checksums."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        names = old.namelist()
        chosen = names[int(rng.integers(len(names)))]
        for name in names:
            text = old.read(name)
            new.writestr(name, overwritten(text, rng) if name == chosen else text)
    return file.getvalue()


def other_fields(data: bytes, rng: np.random.Generator) -> bytes:
    """An ONNX model with other numbers, names and counts in some of its fields."""

    model = package().ModelProto()
    model.ParseFromString(data)
    for _ in range(1 + int(rng.integers(2))):
        message: Any = model.graph
        while True:
            fields = message.ListFields()
            if not fields:
                break
            field, held = fields[int(rng.integers(len(fields)))]
            repeated = hasattr(held, "append") or hasattr(held, "add")
            if field.message_type is not None and (not repeated or (len(held) and rng.integers(6))):
                message = held[int(rng.integers(len(held)))] if repeated else held
                continue
            _changed(message, field, held, repeated, rng)
            break
    return model.SerializeToString()


def _changed(message: Any, field: Any, held: Any, repeated: bool, rng: np.random.Generator) -> None:
    """Another value in one field of a protocol buffer."""
    if field.message_type is not None:
        if rng.integers(2):
            del held[int(rng.integers(len(held))) :]
        else:
            held.append(held[int(rng.integers(len(held)))])
        return
    old = held[int(rng.integers(len(held)))] if repeated else held
    new: Any = old
    if isinstance(old, str):
        new = rng.choice(["", "x", "y", "w", "h", old + "1", "Loop", "Reshape", "Conv", "Expand", "Range", "Tile"])
    elif isinstance(old, bytes):
        new = overwritten(old, rng) if rng.integers(2) and old else old[: int(rng.integers(1 + len(old)))]
    elif isinstance(old, float):
        new = float(rng.choice([0.0, -1.0, 1e38, math.inf, math.nan]))
    else:
        new = int(rng.choice([0, 1, 2, 3, 7, 16, -1, -2, old + 1, 2**31 - 1]))
    try:
        if not repeated:
            setattr(message, field.name, new)
        elif rng.integers(3):
            held[int(rng.integers(len(held)))] = new
        elif rng.integers(2):
            held.append(new)
        else:
            del held[:]
    except (ValueError, TypeError):
        # No value of this field's type, or of its enumeration.
        message.ClearField(field.name)


def _called(f: Any) -> None:
    """Call an imported function with zeros, if it says small inputs."""
    xs: list[Any] = []
    for p in f.inputs:
        dims = [d if isinstance(d, int) else 2 for d in p.dims or ()]
        if p.dtype is None or p.dtype == object or p.dims is None or math.prod(dims) > _LARGEST:
            return
        xs.append(np.zeros(dims, p.dtype))
    first = [f.params, *([] if f.state is None else [f.state])]
    try:
        program = make_jaxpr(f)(*first, *xs)
        if _most(program) <= _MUCH:
            f(*first, *xs)
    except RuntimeError as error:
        if not isinstance(error, NxError):
            raise


def _most(program: Program) -> int:
    """The elements of the largest value in a program."""
    made = [v.type.size for e in program.equations for v in e.outputs]
    held = [_most(p) for e in program.equations for p in e.programs()]
    return max([*made, *held], default=0)


def onnx_model(data: bytes) -> None:
    _called(from_onnx(data))


@cache
def onnx_models() -> Sequence[bytes]:
    """A network with a loop, a branch and computed shapes, and a quantized one."""
    onnx = package()
    TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

    node = lambda kind, x, y, **a: helper.make_node(kind, x.split(), y.split(), **a)
    port = lambda name, shape, kind=TensorProto.FLOAT: helper.make_tensor_value_info(name, kind, shape)
    tensor = lambda name, x: numpy_helper.from_array(np.asarray(x), name)

    def model(nodes: Any, x: Any, y: Any, stored: Mapping[str, Any]) -> bytes:
        graph = helper.make_graph(nodes, "net", [x], [y], [tensor(k, v) for k, v in stored.items()])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()

    branch = lambda name, kind: helper.make_graph([node(kind, "g", name)], name, [], [port(name, ["n", 3])])
    body = helper.make_graph(
        [node("Add", "c c", "d"), node("Identity", "go", "on")],
        "body",
        [port("i", [], TensorProto.INT64), port("go", [], TensorProto.BOOL), port("c", ["n", 3])],
        [port("on", [], TensorProto.BOOL), port("d", ["n", 3])],
    )
    floats = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Concat", "n three", "to", axis=0),
        node("Gemm", "x w b", "h", alpha=0.5),
        node("Reshape", "h to", "g"),
        node("Pad", "g around", "p"),
        node("Slice", "p first last along", "q"),
        node("ReduceMean", "q", "m", axes=[0, 1], keepdims=0),
        node("Greater", "m limit", "yes"),
        node("If", "yes", "r", then_branch=branch("r1", "Relu"), else_branch=branch("r2", "Gelu")),
        node("Loop", "steps always r", "y", body=body),
    ]
    stored = {
        "w": _W, "b": np.zeros(3, np.float32), "zero": np.int64([0]), "three": np.int64([3]), "limit": np.float32(0.0),
        "around": np.int64([0, 1, 0, 1]), "first": np.int64([1]), "last": np.int64([4]), "along": np.int64([1]),
        "steps": np.int64(3), "always": np.bool_(True),
    }  # fmt: skip
    quantized = [
        node("QuantizeLinear", "x s z", "a"),
        node("DequantizeLinear", "a s z", "c"),
        node("DequantizeLinear", "w t", "v", axis=1),
        node("MatMul", "c v", "h"),
        node("QuantizeLinear", "h s z", "q"),
        node("DequantizeLinear", "q s z", "y"),
    ]
    grids = {
        "s": np.float32(0.05), "z": np.int8(3), "t": np.float32([0.01, 0.02, 0.03]),
        "w": np.int8(np.round(_W * 40)),
    }  # fmt: skip
    x, y = port("x", ["n", 4]), port("y", ["n", 3])
    return [model(floats, x, y, stored), model(quantized, x, y, grids)]


def tflite_model(data: bytes) -> None:
    _called(from_tflite(data))


@cache
def tflite_models() -> Sequence[bytes]:
    """A float network, an integer one, and one that moves elements about."""
    x = wrap(np.ones((1, 4), np.float32))
    float_ = lambda x: softmax(relu(x @ _W).reshape(3, 1), 0)[::2]
    whole = quantize(lambda x: relu(x @ _W) + 1, "int8", calibrate=[(x,)])
    unrolled = lambda x: jnp.concatenate([x.reshape(2, 2), jnp.tanh(x[:, :2])]).T @ jnp.pad(x, ((1, 1), (0, 0)))
    return [compile_(f, target="tflite")(x).bytes for f in (float_, whole, unrolled)]


def _read(load: Callable[[Path], Mapping[str, Any]], name: str) -> Callable[[bytes], None]:
    """Every tensor of a file of weights."""

    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            found = load(path)
            for key in found:
                found[key]

    return read


gguf = _read(load_gguf, "weights.gguf")
npz = _read(load_npz, "weights.npz")
safetensors = _read(load_safetensors, "weights.safetensors")
torch = _read(load_torch, "weights.pt")


@cache
def ggufs() -> Sequence[bytes]:
    """A number, a text, a list, and tensors in floats, in blocks of 32 and in blocks of 256."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    keys = text("name") + struct.pack("<I", 8) + text("tiny") + text("layers") + struct.pack("<II", 4, 2)
    keys += text("list") + struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, -2, 3)
    tensors = {"w": ((3, 4), 0, 48), "half": ((8,), 1, 16), "q8": ((2, 32), 8, 68), "q4": ((32,), 2, 18),
               "k4": ((1, 256), 12, 144)}  # fmt: skip
    head, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 3) + keys, 0
    for name, (shape, kind, size) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, at)
        at += -(-size // 32) * 32
    return [head + bytes(-len(head) % 32) + bytes(at)]


@cache
def torches() -> Sequence[bytes]:
    """What PyTorch writes for a dict of two tensors."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0ctQ"
    made = lambda at, shape, strides: (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + pickle.dumps(at, 2)[2:-1] + pickle.dumps(shape, 2)[2:-1]
        + pickle.dumps(strides, 2)[2:-1] + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip
    text = lambda s: b"X" + struct.pack("<I", len(s)) + s
    tree = b"\x80\x02}q\x00(" + text(b"w") + made(0, (3, 4), (4, 1)) + text(b"t") + made(1, (2, 2), (1, 4)) + b"u."
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", tree)
        archive.writestr("archive/data/0", np.arange(12, dtype=np.float32).tobytes())
    return [file.getvalue()]


# --- programs of torch.export ---

# Values and names of the format, which random numbers hardly ever make.
_VALUES: Final[tuple[Any, ...]] = (
    0, 1, 2, -1, 7, 13, 99, 2**31, 2**63 - 1, -(2**63), 1.5, True, None, "", "x", "y", "w", "h", "NaN", "inf", [], {},
    "Symbol('s', positive=True)", "Mul(Integer(2), Symbol('s'))", "1/0", "9**9**9", "torch.ops.aten.reshape.default",
    "torch.ops.aten.expand.default", "torch.ops.aten.arange.default", "torch.ops.aten.new_zeros.default",
    "_operator.pow",
)  # fmt: skip


def other_values(data: bytes, rng: np.random.Generator) -> bytes:
    """A program of `torch.export` with other values, keys and counts in its graph or in the shapes of its tensors."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    texts = [name for name in members if name.endswith(".json")]
    chosen = texts[-1] if rng.integers(4) else texts[int(rng.integers(len(texts)))]
    tree = json.loads(members[chosen])
    for _ in range(1 + int(rng.integers(3))):
        _other_value(tree, rng)
    members[chosen] = json.dumps(tree).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for name, text in members.items():
            new.writestr(name, text)
    return file.getvalue()


def _other_value(tree: Any, rng: np.random.Generator) -> None:
    """One change in a tree of JSON: a value, a key, an entry that is missing, doubled or taken from elsewhere."""
    places = _places(tree)
    if not places:
        return
    held, key = places[int(rng.integers(len(places)))]
    kind = int(rng.integers(8))
    if kind == 0:
        del held[key]
    elif kind == 1 and isinstance(held, list):
        held.insert(key, held[key])
    elif kind == 1:
        held[str(_VALUES[int(rng.integers(len(_VALUES)))])] = held.pop(key)
    elif kind == 2:
        other, at = places[int(rng.integers(len(places)))]
        # A copy: what holds itself has no text.
        held[key] = json.loads(json.dumps(other[at]))
    elif kind == 3:
        held[key] = [held[key]] * int(rng.integers(4))
    elif kind == 4 and type(held[key]) is int:
        held[key] += int(rng.integers(-3, 4))
    else:
        held[key] = _VALUES[int(rng.integers(len(_VALUES)))]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every entry of the containers in a tree of JSON: the container, and the entry's key."""
    items: list[Any] = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
    inner = (p for _, v in items if isinstance(v, (dict, list)) for p in _places(v))
    return [*((tree, k) for k, _ in items), *inner]


def torch_program(data: bytes) -> None:
    _called(from_torch(data))


@cache
def torch_programs() -> Sequence[bytes]:
    """What PyTorch writes for a small network with a symbolic size, a branch, a list and a buffer that it counts in."""
    tensor = lambda name: {"as_tensor": {"name": name}}
    number = lambda n: {"as_int": n}
    size = {"as_expr": {"expr_str": "Symbol('s', positive=True, integer=True)", "hint": number(2)}}
    sizes = lambda dims: [d if isinstance(d, dict) else number(d) for d in dims]
    meta = lambda dims, dtype=7: {
        "dtype": dtype, "sizes": sizes(dims), "requires_grad": False, "device": {"type": "cpu", "index": None},
        "strides": [number(math.prod(dims[i + 1 :])) for i in range(len(dims))] if size not in dims else sizes(dims),
        "storage_offset": number(0), "layout": 7,
    }  # fmt: skip

    def node(target: str, *args: Any, to: Any) -> dict[str, Any]:
        given = [{"name": "self" if i == 0 else f"arg{i}", "arg": a, "kind": 1} for i, a in enumerate(args)]
        outputs = [to if isinstance(to, dict) else tensor(to)]
        return {"target": f"torch.ops.{target}", "inputs": given, "outputs": outputs, "metadata": {}}

    def graph(inputs: Any, nodes: Any, outputs: Any, values: Any) -> dict[str, Any]:
        return {
            "inputs": inputs, "outputs": outputs, "nodes": nodes, "tensor_values": values, "sym_int_values": {},
            "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {}, "is_single_tensor_return": False,
        }  # fmt: skip

    branch = lambda *nodes: {"as_graph": {"name": "g", "graph": graph([tensor("h")], nodes, [tensor("r")], {})}}
    ints = lambda *v: {"as_sym_ints": [{"as_name": n} if isinstance(n, str) else number(n) for n in v]}
    nodes = [
        node("aten.sym_size.int", tensor("x"), number(0), to={"as_sym_int": {"as_name": "n"}}),
        node("aten.linear.default", tensor("x"), tensor("p_w"), tensor("p_b"), to="l"),
        node("aten.reshape.default", tensor("l"), ints("n", 3), to="s"),
        node("aten.slice.Tensor", tensor("s"), number(1), number(0), number(2), to="c"),
        node("aten.cat.default", {"as_tensors": [{"name": "c"}, {"name": "x"}]}, number(1), to="h"),
        node("aten.sum.dim_IntList", tensor("h"), {"as_ints": [0, 1]}, to="t"),
        node("aten.gt.Scalar", tensor("t"), {"as_float": 0.5}, to="g"),
        node(
            "higher_order.cond", tensor("g"), branch(node("aten.relu.default", tensor("h"), to="r")),
            branch(node("aten.mul.Tensor", tensor("h"), number(2), to="r")), {"as_tensors": [{"name": "h"}]}, to="y",
        ),
        node("aten.add_.Tensor", tensor("b_n"), number(1), to="m"),
    ]  # fmt: skip
    inputs = [tensor(k) for k in ("p_w", "p_b", "b_n", "x")]
    values = {"p_w": meta([3, 4]), "p_b": meta([3]), "b_n": meta([], 5), "x": meta([size, 4]), "y": meta([size, 6])}
    leaf = {"type": None, "context": None, "children_spec": []}
    tuple_ = lambda *inner: {"type": "builtins.tuple", "context": "null", "children_spec": list(inner)}
    empty = {"type": "builtins.dict", "context": "[]", "children_spec": []}
    call = {"in_spec": json.dumps([1, tuple_(tuple_(leaf), empty)]), "out_spec": json.dumps([1, tuple_(leaf)])}
    specs = [
        {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
        {"parameter": {"arg": {"name": "p_b"}, "parameter_name": "b"}},
        {"buffer": {"arg": {"name": "b_n"}, "buffer_name": "n", "persistent": True}},
        {"user_input": {"arg": tensor("x")}},
    ]
    model = {
        "graph_module": {
            "graph": graph(inputs, nodes, [tensor("y")], values),
            "signature": {"input_specs": specs, "output_specs": [{"user_output": {"arg": tensor("y")}}]},
            "module_call_graph": [{"fqn": "", "signature": {**call, "forward_arg_names": ["x"]}}],
        },
        "schema_version": {"major": 8, "minor": 1},
        "range_constraints": {"s": {"min_val": 0, "max_val": None}},
    }  # fmt: skip
    arrays = {"w": _W.T.copy(), "b": np.zeros(3, np.float32), "n": np.zeros((), np.int64)}
    row = lambda i, x: {
        "path_name": f"weight_{i}", "is_param": True, "use_pickle": False,
        "tensor_meta": meta(list(x.shape), 5 if x.dtype == np.int64 else 7),
    }  # fmt: skip
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i, x in enumerate(arrays.values()):
            archive.writestr(f"m/data/weights/weight_{i}", x.tobytes())
        config = {k: row(i, x) for i, (k, x) in enumerate(arrays.items())}
        archive.writestr("m/data/weights/model_weights_config.json", json.dumps({"config": config}))
        archive.writestr("m/models/model.json", json.dumps(model))
    return [file.getvalue()]
