"""TFLite files of a few operators, written table by table, and LiteRT's reference kernels to run them on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.lower.npu.formats import flatbuffer
from nxjax.lower.npu.formats.tflite_schema import BUILTIN_NAMES, IDENTIFIER, OPTIONS, SCHEMA, TYPE_NUMBERS

NUMBERS = {name: code for code, name in BUILTIN_NAMES.items()}
_TYPES = {**TYPE_NUMBERS, np.dtype(object): 13, np.dtype(np.complex64): 8}


@dataclass
class T:
    """A tensor: its shape and dtype; scale and zero point where it is on a grid; its elements if it is a constant."""

    shape: Sequence[int]
    dtype: Any = "float32"
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    details: Any = None
    data: Any = None
    variable: bool = False
    signature: Any = None
    name: str = ""


def const(x: Any, dtype: Any = None, **grid: Any) -> T:
    x = np.asarray(x, dtype)
    return T(x.shape, x.dtype, data=x, **grid)


@dataclass
class Operator:
    """An operator: options by the names of the schema."""

    kind: str
    inputs: Sequence[T | None]
    outputs: Sequence[T | None]
    options: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    intermediates: Sequence[T] = ()


@dataclass
class G:
    """A graph."""

    inputs: Sequence[T]
    outputs: Sequence[T]
    operators: Sequence[Operator]


def _packed(x: np.ndarray) -> bytes:
    if x.dtype.name in ("int4", "uint4"):
        flat = np.append(x.reshape(-1).astype(np.int8), np.zeros(x.size % 2, np.int8)) & 0xF
        return (flat[0::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
    return np.ascontiguousarray(x).tobytes()


def written(*graphs: G, signatures: Any = None) -> bytes:
    """The bytes of a file."""
    buffers: list[dict[str, Any]] = [{}]
    codes: list[tuple[int, int, str]] = []
    rows: list[dict[str, Any]] = []
    for graph in graphs:
        tensors: list[T] = []

        def at(t: T | None, tensors: list[T] = tensors) -> int:
            if t is None:
                return -1
            for i, known in enumerate(tensors):
                if known is t:
                    return i
            tensors.append(t)
            return len(tensors) - 1

        ends = [[at(t) for t in g] for g in (graph.inputs, graph.outputs)]
        operators: list[dict[str, Any]] = []
        for o in graph.operators:
            number = NUMBERS.get(o.kind, 32)
            code = (number, o.version, "" if o.kind in NUMBERS else o.kind)
            if code not in codes:
                codes.append(code)
            row: dict[str, Any] = {
                "opcode_index": codes.index(code), "inputs": [at(t) for t in o.inputs],
                "outputs": [at(t) for t in o.outputs],
            }  # fmt: skip
            if o.intermediates:
                row["intermediates"] = [at(t) for t in o.intermediates]
            table = OPTIONS.get(o.kind)
            if table:
                second = table in SCHEMA.unions["BuiltinOptions2"]
                row["builtin_options_2" if second else "builtin_options"] = (table, o.options)
            operators.append(row)
        listed: list[dict[str, Any]] = []
        for i, t in enumerate(tensors):
            number = 0
            if t.data is not None:
                buffers.append({"data": _packed(np.asarray(t.data))})
                number = len(buffers) - 1
            row = {
                "shape": list(t.shape), "type": _TYPES[np.dtype(t.dtype)], "buffer": number, "name": t.name or f"t{i}",
                "is_variable": t.variable, "has_rank": True,
            }  # fmt: skip
            if t.signature is not None:
                row["shape_signature"] = list(t.signature)
            if t.scale is not None:
                scale = np.atleast_1d(np.asarray(t.scale, np.float32))
                zero = np.broadcast_to(np.asarray(t.zero, np.int64), scale.shape)
                row["quantization"] = {"scale": scale, "zero_point": zero, "quantized_dimension": t.axis}
            if t.details is not None:
                row["quantization"] = {"details": t.details}
            listed.append(row)
        rows.append({"tensors": listed, "inputs": ends[0], "outputs": ends[1], "operators": operators, "name": "main"})
    table = [
        {"deprecated_builtin_code": min(n, 127), "builtin_code": n, "version": v, **({"custom_code": c} if c else {})}
        for n, v, c in codes
    ]
    root = {"version": 3, "operator_codes": table, "subgraphs": rows, "buffers": buffers, "description": "test"}
    if signatures:
        root["signature_defs"] = signatures
    return flatbuffer.write(SCHEMA, "Model", root, IDENTIFIER)


def litert(data: bytes, *calls: Sequence[np.ndarray], reference: bool = True) -> list[list[np.ndarray]]:
    """The results of LiteRT for a sequence of calls; with its reference kernels, or its optimized ones."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    optimized = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    kind = OpResolverType.BUILTIN_REF if reference else optimized
    try:
        runtime: Any = Interpreter(model_content=data, experimental_op_resolver_type=kind)
    except ValueError:
        # Some operators have no reference kernel.
        runtime = Interpreter(model_content=data, experimental_op_resolver_type=optimized)
    runtime.allocate_tensors()
    found: list[list[np.ndarray]] = []
    for inputs in calls:
        for place, x in zip(runtime.get_input_details(), inputs, strict=True):
            runtime.set_tensor(place["index"], x)
        runtime.invoke()
        found.append([runtime.get_tensor(place["index"]).copy() for place in runtime.get_output_details()])
    return found


def imported(data: bytes, *calls: Sequence[np.ndarray], **options: Any) -> list[list[np.ndarray]]:
    """The results of `nx.interop.from_tflite` for a sequence of calls."""
    f = nx.interop.from_tflite(data, **options)
    state, found = f.state, []
    for inputs in calls:
        if state is None:
            ys = f(f.params, *inputs)
        else:
            state, ys = f(f.params, state, *inputs)
        found.append([np.asarray(y) for y in (ys if isinstance(ys, tuple) else (ys,))])
    return found


def same(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-6) -> None:
    """Integers bit for bit, floats to a part of the largest."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
    if want.dtype.kind in "fc":
        largest = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
        np.testing.assert_allclose(got, want, rtol=10 * tolerance, atol=float(largest) * tolerance)
    else:
        wrong = np.argwhere(got != want)
        first = tuple(wrong[0]) if len(wrong) else ()
        assert not len(wrong), f"{len(wrong)} of {want.size} differ, first {got[first]} for {want[first]} at {first}"


def agree(
    data: bytes, *calls: Sequence[np.ndarray], reference: bool = True, tolerance: float = 1e-6, **options: Any
) -> None:
    """LiteRT and the imported function give the same."""
    for got, want in zip(imported(data, *calls, **options), litert(data, *calls, reference=reference), strict=True):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, tolerance)


def one(kind: str, operands: Sequence[Any], *outs: T, version: int = 1, **options: Any) -> tuple[bytes, list[Any]]:
    """A file of one operator, and its inputs: operands are constants (`T` with data) or (tensor, elements)."""
    tensors = [o[0] if isinstance(o, tuple) else o for o in operands]
    values = [o[1] for o in operands if isinstance(o, tuple)]
    graph = G([o[0] for o in operands if isinstance(o, tuple)], outs, [Operator(kind, tensors, outs, options, version)])
    return written(graph), values
