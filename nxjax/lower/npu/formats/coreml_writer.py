"""A graph as a Core ML package (``.mlpackage``), op by op through coremltools' MIL builder.

Knows how a graph is walked, where grids, fused activations and names go, what lies at the program's ends, and how a
package is read back; what an op becomes is `coreml_ops`'s. It knows no chip and runs nothing: Core ML is macOS only.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import struct
import tempfile
import uuid
import warnings
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.files.safe_io import parsed
from nxjax.lower.npu.blocks import compact
from nxjax.lower.npu.formats.channels_first import Value
from nxjax.lower.npu.formats.coreml_net import MAX_RANK, REALS, CoremlNet, clean, node_names, port_names
from nxjax.lower.npu.formats.coreml_ops import write_node
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType, short_name
from nxjax.trace.types import Shape

_ROOT: Final = "Data/com.apple.CoreML"
_MODEL: Final = f"{_ROOT}/model.mlmodel"
_WEIGHTS: Final = f"{_ROOT}/weights/weight.bin"
# The mark that each entry of a weight file starts with (coremltools' MILBlob format), and how its types are counted.
_SENTINEL: Final = 0xDEADBEEF
# Bits of an element of a blob, by the name of its type in the program.
_BITS: Final = {"FLOAT16": 16, "FLOAT32": 32, "INT8": 8, "UINT8": 8, "INT16": 16, "UINT16": 16, "INT4": 4, "INT32": 32}


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """coremltools without its talk: parts that only macOS has, progress bars, folders left to the collector."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def port(t: Tensor) -> str:
    """The type of a program's input or result: float32 for reals, int32 for everything else."""
    if len(t.shape) > MAX_RANK:
        raise LoweringError(
            "coreml: too many dimensions", got=f"{t.name}: {t.shape}", expected=f"at most {MAX_RANK}",
            fix="merge dimensions with reshape",
        )  # fmt: skip
    if t.grid is None and t.dtype in REALS - {dtypes.bfloat16}:
        return "fp32"
    if t.dtype in (dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32):
        return "int32"
    raise LoweringError(
        "coreml: the type of an input or result",
        got=f"{short_name(t.dtype)} ({t.name})",
        expected="float16, float32, bool, or integers up to int32",
        fix="cast to float32 or int32",
    )


def opened(net: CoremlNet, t: Tensor, value: Value) -> Value:
    """What an input means: stored integers become reals."""
    if t.grid is None:
        kind = net.kind(t.dtype)
        return value if kind == port(t) else net.op.cast(x=value, dtype=kind)
    meant = net.meant(value, t.grid)
    # They lie on the grid; what float16 cannot hold would be rounded to another place on it.
    return meant if net.unscalable(np.asarray(t.grid.scale, np.float32)) else net.on_grid(meant, t.grid, t.name)


def closed(net: CoremlNet, t: Tensor, name: str) -> Value:
    """A result under its name: stored integers where the tensor has a grid."""
    value = net.get(t)
    if t.grid is None:
        kind = port(t)
        return net.op.identity(x=value, name=name) if kind == net.kind(t.dtype) else net.op.cast(
            x=value, dtype=kind, name=name
        )  # fmt: skip
    port(t)
    return net.op.identity(x=net.numbers(value, t.grid), name=name)


@final
@dataclass(frozen=True)
class Package:
    """A package in memory: its files by path inside it, and what could not be said exactly."""

    files: dict[str, bytes]
    notes: tuple[str, ...] = ()


def write(graph: NpuGraph, real: DType = dtypes.float16) -> dict[str, bytes]:
    """The files of a graph's ``.mlpackage``, as ``name.mlpackage/path``; see `author`."""
    stem = f"{clean(graph.name or 'model')}.mlpackage"
    return {f"{stem}/{path}": data for path, data in author(graph, real).files.items()}


def author(graph: NpuGraph, real: DType = dtypes.float16) -> Package:
    """The package of a graph: an ML program for iOS 17 / macOS 14, or iOS 18 / macOS 15 if weights have four
    bits or a scale per block.

    Inputs and results have the tensors' own shapes (inputs without dimensions one of 1) and names; reals are
    float32 there and ``real`` inside, integers and truth values are int32 there. The node called ``n`` is the operation
    ``n``, helpers are ``n_op1``, ``n_op2``.
    The bytes are the same whenever it is called.

    Raises:
        LoweringError: an op, a type or a rank that Core ML cannot say; weights that are not constant.
    """
    with quiet():
        import coremltools as ct
        from coremltools.converters.mil import Builder as make
        from coremltools.converters.mil.mil import Function, Program

        graph.check()
        net = CoremlNet(real)
        version: Any = ct.target.iOS18 if compact(graph) else ct.target.iOS17
        inputs, outputs = port_names(graph)
        ports = {
            name: make.placeholder(t.shape or (1,), getattr(net.types, port(t)), name=name)
            for t, name in zip(graph.inputs, inputs, strict=True)
        }
        with Function(ports, version) as main:
            for t, (name, value) in zip(graph.inputs, main.inputs.items(), strict=True):
                net.op.start(name)
                net.put(t, opened(net, t, value if t.shape else net.shaped(value, ())), False)
            for node, name in zip(graph.nodes, node_names(graph), strict=True):
                write_node(net, node, name)
            results: list[Value] = []
            for t, name in zip(graph.outputs, outputs, strict=True):
                net.op.start(f"{name}_out")
                results.append(closed(net, t, name))
            main.set_outputs(results)
        built = Program()
        built.add_function("main", main)
        return Package(converted(ct, built, version), tuple(net.notes))


def converted(ct: Any, built: Any, version: Any) -> dict[str, bytes]:
    """The files that coremltools makes of a program; no pass of its own changes what was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.mlpackage")
        model = ct.convert(
            built, source="milinternal", convert_to="mlprogram", minimum_deployment_target=version,
            compute_units=ct.ComputeUnit.CPU_AND_NE, pass_pipeline=ct.PassPipeline.EMPTY, skip_model_load=True,
            package_dir=path,
        )  # fmt: skip
        del model
        files: dict[str, bytes] = {}
        for base, _, names in os.walk(path):
            for name in names:
                full = os.path.join(base, name)
                with open(full, "rb") as file:
                    files[os.path.relpath(full, path).replace(os.sep, "/")] = file.read()
    files["Manifest.json"] = manifest(files["Manifest.json"])
    files[_MODEL] = undated(ct, files[_MODEL])
    return {"Manifest.json": files.pop("Manifest.json")} | dict(sorted(files.items()))


def manifest(data: bytes) -> bytes:
    """A package's table of contents with identifiers that follow from the paths, not from chance."""
    table = parsed(data)
    renamed = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, item["path"])) for old, item in table["itemInfoEntries"].items()}
    table["itemInfoEntries"] = {renamed[old]: item for old, item in sorted(table["itemInfoEntries"].items(), key=path)}
    table["rootModelIdentifier"] = renamed[table["rootModelIdentifier"]]
    return json.dumps(table, indent=4).encode()


def path(entry: tuple[str, Mapping[str, str]]) -> str:
    return entry[1]["path"]


def undated(ct: Any, data: bytes) -> bytes:
    """The model without the day it was made, its maps in order."""
    spec = ct.proto.Model_pb2.Model()
    spec.ParseFromString(data)
    spec.description.metadata.userDefined.pop("com.github.apple.coremltools.conversion_date", None)
    return spec.SerializeToString(deterministic=True)


@final
@dataclass(frozen=True)
class PackageOperation:
    """One operation of a package that was read back: its type, name, and the shapes and types of its results."""

    type: str
    name: str
    results: tuple[tuple[str, Shape, str], ...]


@final
@dataclass(frozen=True)
class Contents:
    """What a package holds, read from its files alone.

    Attributes:
        version: the operation set, such as "CoreML7".
        inputs: name, shape and type of each; likewise ``outputs``.
        operations: in order, constants included.
        weights: bytes of each constant in the weight file, by the operation's name.
    """

    version: str
    inputs: tuple[tuple[str, Shape, str], ...]
    outputs: tuple[tuple[str, Shape, str], ...]
    operations: tuple[PackageOperation, ...]
    weights: dict[str, int]


def read(files: Mapping[str, bytes]) -> Contents:
    """Read a package back from its files (paths inside the package) and check its weight file.

    Raises:
        LoweringError: the files are not a package, or a constant points outside of the weight file.
    """
    with quiet():
        import coremltools as ct

        spec: Any = ct.proto.Model_pb2.Model()
        try:
            table = parsed(files["Manifest.json"])
            root = table["itemInfoEntries"][table["rootModelIdentifier"]]["path"]
            spec.ParseFromString(files[f"Data/{root}"])
            function = spec.mlProgram.functions["main"]
            block = function.block_specializations[function.opset]
        except Exception as error:  # protobuf's own errors have no stable home
            raise LoweringError("coreml: not a Core ML package", got=error) from error
        kinds: Any = ct.proto.MIL_pb2.DataType
        operations: list[PackageOperation] = []
        weights: dict[str, int] = {}
        for o in block.operations:
            results = tuple((r.name, *tensor_type(r.type, kinds)) for r in o.outputs)
            operations.append(
                PackageOperation(o.type, o.attributes["name"].immediateValue.tensor.strings.values[0], results)
            )
            for key, value in [*o.attributes.items(), *literals(o)]:
                if value.WhichOneof("value") == "blobFileValue":
                    size = blob(files.get(_WEIGHTS, b""), value, kinds)
                    weights[f"{operations[-1].name}.{key}" if key != "val" else operations[-1].name] = size
        ends = [
            tuple((f.name, tuple(f.type.multiArrayType.shape), array_type(ct, f)) for f in part)
            for part in (spec.description.input, spec.description.output)
        ]
        return Contents(function.opset, ends[0], ends[1], tuple(operations), weights)


def literals(operation: Any) -> list[tuple[str, Any]]:
    """Constants that are given in place as arguments."""
    return [
        (key, binding.value)
        for key, argument in operation.inputs.items()
        for binding in argument.arguments
        if binding.WhichOneof("binding") == "value"
    ]


def array_type(ct: Any, feature: Any) -> str:
    kinds = ct.proto.FeatureTypes_pb2.ArrayFeatureType.ArrayDataType
    return str(kinds.Name(feature.type.multiArrayType.dataType))


def tensor_type(value_type: Any, kinds: Any) -> tuple[Shape, str]:
    t = value_type.tensorType
    return tuple(int(d.constant.size) for d in t.dimensions), str(kinds.Name(t.dataType))


def blob(data: bytes, value: Any, kinds: Any) -> int:
    """The bytes of one constant in the weight file, held against its type."""
    offset = int(value.blobFileValue.offset)
    shape, kind = tensor_type(value.type, kinds)
    if offset + 24 > len(data):
        raise LoweringError("coreml: a constant points outside of the weight file", got=offset, expected=len(data))
    mark, _, size, start = struct.unpack_from("<IIQQ", data, offset)
    expected = (int(np.prod(shape, dtype=np.int64)) * _BITS[kind] + 7) // 8
    if mark != _SENTINEL or start + size > len(data) or size != expected:
        raise LoweringError("coreml: an entry of the weight file is damaged", got=(hex(mark), size), expected=expected)
    return int(size)
