"""StableHLO modules in any form (text, bytecode, portable artifact) as the plain tree that importers walk.

Knows jaxlib's MLIR bindings and types, no op. Input that nobody vouches for is read by a process of its own first (see
`read_child`): MLIR's readers of bytecode end the process on damaged input.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from nxjax.backends.xla.client import available
from nxjax.backends.xla.read_child import BYTECODE, read_module
from nxjax.errors import DtypeError, InvalidFileError, LoweringError, MissingExtraError, ShapeError
from nxjax.lower.stablehlo.module import (
    Block,
    FunctionDef,
    Kind,
    Opaque,
    Operation,
    Splat,
    StablehloModule,
    TupleOf,
    Value,
)
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType

# To begin with, and per byte: MLIR does not come back from some damaged bytecode.
SECONDS: Final = (30.0, 2e-5)
_ELEMENTS: Final[dict[str, dtypes.DType]] = {
    "i1": dtypes.bool_,
    **{f"{sign}{n}": dtypes.as_dtype(f"int{n}") for n in (4, 8, 16, 32, 64) for sign in ("i", "si")},
    **{f"ui{n}": dtypes.as_dtype(f"uint{n}") for n in (4, 8, 16, 32, 64)},
    "index": dtypes.int64,
    "f16": dtypes.float16,
    "bf16": dtypes.bfloat16,
    "f32": dtypes.float32,
    "f64": dtypes.float64,
    "f8E4M3FN": dtypes.float8_e4m3fn,
    "f8E4M3B11FNUZ": dtypes.float8_e4m3b11fnuz,
    "f8E4M3FNUZ": dtypes.float8_e4m3fnuz,
    "f8E5M2": dtypes.float8_e5m2,
    "f8E5M2FNUZ": dtypes.float8_e5m2fnuz,
    "complex<f32>": dtypes.complex64,
    "complex<f64>": dtypes.complex128,
}


def read(data: bytes | str, trusted: bool = False) -> StablehloModule:
    """The module of ``data``.

    Args:
        data: MLIR text, MLIR bytecode or a portable artifact.
        trusted: made in this process or otherwise known to be sound, and read without a process of its own.

    Raises:
        MissingExtraError: jaxlib is not installed.
        InvalidFileError: not a module.
        DtypeError, ShapeError: it has types that nxjax has none for.
    """
    ok, reason = available()
    if not ok:
        raise MissingExtraError("stablehlo: the reader is not available", got=reason, fix='pip install "nxjax[xla]"')
    from jaxlib.mlir import ir  # type: ignore[import-not-found]

    data = data.encode() if isinstance(data, str) else bytes(data)
    if not data.strip():
        raise InvalidFileError("stablehlo: there is nothing to read", got=f"{len(data)} bytes")
    try:
        if not trusted:
            data = _checked(data)
        return ModuleReader().module(read_module(data))
    except (ir.MLIRError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        if isinstance(error, (InvalidFileError, DtypeError, ShapeError, LoweringError)):
            raise
        raise InvalidFileError(
            "stablehlo: not a module that can be read",
            got=f"{_what(data)}: {str(error)[:1000]}",
            expected="MLIR text, MLIR bytecode or a portable artifact of StableHLO",
        ) from None


def read_parsed(module: Any) -> StablehloModule:
    """The tree of a module that MLIR's bindings hold already.

    Raises:
        DtypeError, ShapeError, LoweringError: as `read`.
    """
    return ModuleReader().module(module)


def _what(data: bytes) -> str:
    if data.startswith(BYTECODE):
        return f"{len(data)} bytes of MLIR bytecode"
    return f"{len(data)} bytes that begin with {data[:16]!r}"


def _checked(data: bytes) -> bytes:
    """``data`` as bytecode that a process of its own has written."""
    limit = SECONDS[0] + SECONDS[1] * len(data)
    child = Path(__file__).with_name("read_child.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(child)], input=data, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidFileError(
            "stablehlo: reading the module takes too long", got=_what(data), expected=f"at most {limit:.0f} s"
        ) from None
    if done.returncode == 0:
        return done.stdout
    reason = done.stderr.decode(errors="replace").strip()
    raise InvalidFileError(
        "stablehlo: not a module that can be read",
        got=f"{_what(data)}: {reason or f'MLIR ended its process, status {done.returncode}'}",
        expected="MLIR text, MLIR bytecode or a portable artifact of StableHLO",
    )


class ModuleReader:
    """One module's values and types by their MLIR counterparts."""

    def __init__(self) -> None:
        from jaxlib.mlir import ir  # type: ignore[import-not-found]
        from jaxlib.mlir.dialects import stablehlo  # type: ignore[import-not-found]

        self.ir: Any = ir
        known: Any = stablehlo
        self.structured: tuple[Any, ...] = (
            known.DotDimensionNumbers,
            known.ConvDimensionNumbers,
            known.GatherDimensionNumbers,
            known.ScatterDimensionNumbers,
            known.DotAlgorithm,
        )
        self.types: dict[Any, Kind] = {}
        self.values: dict[Any, Value] = {}

    def module(self, module: Any) -> StablehloModule:
        name = module.operation.attributes["sym_name"].value if "sym_name" in module.operation.attributes else ""
        made = StablehloModule(name)
        for op in module.body.operations:
            if op.operation.name == "func.func":
                function = self.function(op.operation)
                made.functions[function.name] = function
            elif op.operation.name == "sdy.mesh":
                said = re.findall(r'"([^"]*)"=(\d+)', str(op.operation.attributes["mesh"]))
                made.meshes[op.operation.attributes["sym_name"].value] = tuple((n, int(size)) for n, size in said)
            elif not op.operation.name.startswith("sdy."):
                raise LoweringError(
                    f"stablehlo: {op.operation.name} at the top of a module",
                    got=str(op.operation.location)[:300],
                    expected="functions",
                )
        return made

    def function(self, op: Any) -> FunctionDef:
        attributes = op.attributes
        name = attributes["sym_name"].value
        public = "sym_visibility" not in attributes or attributes["sym_visibility"].value == "public"
        if not len(op.regions[0].blocks):
            raise LoweringError(f"stablehlo: function {name} is declared and not defined")
        block = op.regions[0].blocks[0]
        names = tuple(_argument_name(str(a.location)) for a in block.arguments)
        return FunctionDef(name, self.block(op.regions[0]), public, names)

    def block(self, region: Any) -> Block:
        if len(region.blocks) != 1:
            raise LoweringError("stablehlo: a region of several blocks", got=f"{len(region.blocks)} blocks")
        block = region.blocks[0]
        arguments = [self.value(a) for a in block.arguments]
        *ops, last = [op.operation for op in block.operations]
        operations = [self.operation(op) for op in ops]
        return Block(arguments, operations, [self.values[v] for v in last.operands])

    def value(self, v: Any) -> Value:
        made = self.values[v] = Value(self.kind(v.type))
        return made

    def operation(self, op: Any) -> Operation:
        location = str(op.location)
        operands = [self.values[v] for v in op.operands]
        attributes = self.attributes(op)
        regions = [self.block(r) for r in op.regions if len(r.blocks)]
        results = [self.value(v) for v in op.results]
        return Operation(
            op.name, operands, results, attributes, regions, _short_location(location), _scope_of(location)
        )

    def kind(self, t: Any) -> Kind:
        found = self.types.get(t)
        if found is None:
            found = self.types[t] = self._kind(t)
        return found

    def _kind(self, t: Any) -> Kind:
        ir = self.ir
        if isinstance(t, ir.RankedTensorType):
            element = str(t.element_type)
            dtype = _ELEMENTS.get(element)
            if dtype is None:
                raise DtypeError(
                    "stablehlo: elements of a type that arrays here cannot hold",
                    got=str(t)[:300],
                    expected=", ".join(_ELEMENTS),
                )
            if not t.has_static_shape:
                raise ShapeError(
                    "stablehlo: a shape that is not known when the program is read",
                    got=str(t)[:300],
                    expected="static shapes",
                    fix="export the function with concrete shapes, or refine the module's shapes first",
                )
            return ArrayType(tuple(t.shape), dtype)
        if isinstance(t, ir.TupleType):
            return TupleOf(tuple(self.kind(t.get_type(i)) for i in range(t.num_types)))
        text = str(t)
        dtype = _ELEMENTS.get(text)
        return ArrayType((), dtype) if dtype is not None else Opaque(text)

    def attributes(self, op: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if op.name.endswith("stablehlo.constant"):
            return {"value": self.constant(op)}
        for item in op.attributes:
            name, attribute = (item, op.attributes[item]) if isinstance(item, str) else (item.name, item.attr)
            found[name] = self.attribute(attribute)
        return found

    def constant(self, op: Any) -> np.ndarray[Any, Any] | Splat:
        t = self.kind(op.results[0].type)
        assert isinstance(t, ArrayType)
        try:
            attribute = op.attributes["value"]
        except TypeError:  # the bindings have no class for complex elements
            return dense_text(str(op), t)
        return self.elements(attribute, t)

    def elements(self, attribute: Any, t: ArrayType) -> np.ndarray[Any, Any] | Splat:
        """The elements of a dense attribute."""
        ir = self.ir
        if not isinstance(attribute, ir.DenseElementsAttr):
            return self.resource(attribute, t)
        # The bindings lend the memory of the dtypes they know.
        known = t.dtype.isbuiltin == 1 and t.dtype not in dtypes.COMPLEX
        if not known:
            return dense_text(str(attribute), t)
        data = np.asarray(attribute)
        if attribute.is_splat and data.size:
            return Splat(np.array(data.flat[0], t.dtype), t.shape)
        return np.array(data, t.dtype, order="C").reshape(t.shape)

    def resource(self, attribute: Any, t: ArrayType) -> np.ndarray[Any, Any]:
        """Elements that stand at the end of the module."""
        try:
            data = np.frombuffer(memoryview(self.ir.DenseResourceElementsAttr(attribute)), np.uint8)
        except (ValueError, TypeError, BufferError) as error:
            raise InvalidFileError(
                "stablehlo: a constant whose elements cannot be read", got=f"{str(attribute)[:200]}: {error}"
            ) from None
        if len(data) != t.size * t.dtype.itemsize:
            raise InvalidFileError(
                "stablehlo: a constant of another size than its type", got=f"{len(data)} bytes", expected=t
            )
        return data.view(t.dtype).reshape(t.shape).copy()

    def attribute(self, a: Any) -> Any:
        """An attribute as Python numbers, strings, tuples, dictionaries and NumPy arrays."""
        ir = self.ir
        if isinstance(a, (ir.BoolAttr, ir.IntegerAttr, ir.StringAttr, ir.FlatSymbolRefAttr)):
            return a.value
        if isinstance(a, ir.FloatAttr):
            return float(a.value)
        if isinstance(
            a,
            (
                ir.DenseI64ArrayAttr,
                ir.DenseI32ArrayAttr,
                ir.DenseBoolArrayAttr,
                ir.DenseF32ArrayAttr,
                ir.DenseF64ArrayAttr,
            ),
        ):
            return tuple(a)
        if isinstance(a, ir.ArrayAttr):
            return tuple(self.attribute(x) for x in a)
        if isinstance(a, ir.DictAttr):
            return {a[i].name: self.attribute(a[i].attr) for i in range(len(a))}
        if isinstance(a, ir.DenseElementsAttr):
            t = self.kind(a.type)
            assert isinstance(t, ArrayType)
            found = self.elements(a, t)
            return np.broadcast_to(found.value, found.shape) if isinstance(found, Splat) else found
        if isinstance(a, ir.UnitAttr):
            return True
        for kind in self.structured:
            if kind.isinstance(a):
                cast = kind(a)
                return {n: _plain(getattr(cast, n)) for n in dir(cast) if n in _FIELDS}
        text = str(a)
        enum = re.fullmatch(r"#(?:stablehlo|chlo)<\w+ (\w+)>", text)
        return enum.group(1) if enum else text


# What the attributes of dimension numbers are asked for.
_FIELDS: Final = frozenset(
    [
        "lhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_batching_dimensions",
        "rhs_contracting_dimensions",
        "input_batch_dimension",
        "input_feature_dimension",
        "input_spatial_dimensions",
        "kernel_input_feature_dimension",
        "kernel_output_feature_dimension",
        "kernel_spatial_dimensions",
        "output_batch_dimension",
        "output_feature_dimension",
        "output_spatial_dimensions",
        "collapsed_slice_dims",
        "index_vector_dim",
        "offset_dims",
        "operand_batching_dims",
        "start_index_map",
        "start_indices_batching_dims",
        "input_batching_dims",
        "inserted_window_dims",
        "scatter_indices_batching_dims",
        "scattered_dims_to_operand_dims",
        "update_window_dims",
        "lhs_precision_type",
        "rhs_precision_type",
        "accumulation_type",
        "num_primitive_operations",
    ]
)


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return tuple(int(v) for v in value) if isinstance(value, (list, tuple)) else str(value)


_NAME: Final = re.compile(r'loc\("([^"]*)"')


def _argument_name(location: str) -> str:
    """The name an argument's location gives it; files and call sites are none."""
    match = re.fullmatch(r'loc\("([^"]*)"(?:\(.*\))?\)', location)
    return match.group(1) if match else ""


def _short_location(location: str) -> str:
    """The operation's name and the innermost line it comes from."""
    name = _NAME.match(location)
    at = re.search(r'"([^"]*)":(\d+):\d+', location)
    parts = [name.group(1) if name and not (at and name.group(1) == at.group(1)) else ""]
    parts.append(f"{at.group(1).rsplit('/', 1)[-1]}:{at.group(2)}" if at else "")
    return " at ".join(p for p in parts if p)


def _scope_of(location: str) -> str:
    """The named scopes in a location such as ``jit(f)/encoder/dense/dot_general``."""
    match = _NAME.match(location)
    if match is None or "/" not in match.group(1) or match.group(1).startswith("/"):
        return ""
    parts = match.group(1).split("/")[:-1]
    return "/".join(p for p in parts if p and not re.fullmatch(r"(jit|pjit)\(.*\)|jit|pjit|main", p))


_DENSE: Final = re.compile(r"dense<(.*)>\s*:\s*tensor", re.DOTALL)


def dense_text(text: str, t: ArrayType) -> np.ndarray[Any, Any] | Splat:
    """The elements in the text of a dense attribute, for the element types that the bindings do not lend."""
    match = _DENSE.search(text)
    if match is None:
        raise InvalidFileError("stablehlo: a constant whose elements cannot be read", got=text[:200])
    body = match.group(1).strip()
    if body.startswith('"'):
        return _from_hex(body.strip('"'), t)
    tokens = re.findall(r"[^\s,\[\]()]+", body)
    if t.dtype in dtypes.COMPLEX:
        part = dtypes.real_part(t.dtype)
        flat: np.ndarray[Any, Any] = np.array([_number(x, part) for x in tokens], part).view(t.dtype)
    else:
        flat = np.array([_number(x, t.dtype) for x in tokens], t.dtype)
    if flat.size == 1 and t.size != 1:
        return Splat(flat.reshape(()), t.shape)
    return flat.reshape(t.shape)


def _number(token: str, dtype: dtypes.DType) -> Any:
    if token in ("true", "false"):
        return np.array(token == "true", dtype)[()]
    if dtype in dtypes.FLOAT and token.startswith("0x"):
        return np.frombuffer(bytes.fromhex(token[2:].zfill(2 * dtype.itemsize))[::-1], dtype)[0]
    return np.array(int(token) if dtype in dtypes.INTEGER else float(token)).astype(dtype)[()]


def _from_hex(text: str, t: ArrayType) -> np.ndarray[Any, Any] | Splat:
    """Elements written as the bytes of memory; 4-bit ones have a byte each."""
    data = np.frombuffer(bytes.fromhex(text.removeprefix("0x")), np.uint8)
    if dtypes.bit_width(t.dtype) < 8:
        flat = (data.view(np.int8) if t.dtype in dtypes.SIGNED else data).astype(t.dtype)
    else:
        flat = data.view(t.dtype)
    if flat.size == 1 and t.size != 1:
        return Splat(flat.reshape(()).copy(), t.shape)
    return flat.reshape(t.shape).copy()
