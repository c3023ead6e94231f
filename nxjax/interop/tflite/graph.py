"""A ``.tflite`` file as plain data: graphs of operators, their tensors with grids, the constants as NumPy arrays.

Bytes are not trusted: every number is checked before it is used (`nxjax.lower.npu.formats.tflite_file`). Constants are
views of the file. Knows the format; knows no operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax.config.forks import cached_property
from nxjax.errors import InvalidFileError, NxError
from nxjax.interop.graphs.values import Refused, ValueInfo
from nxjax.lower.npu.formats.tflite_file import TFLiteModel, subgraph, tables
from nxjax.lower.npu.formats.tflite_schema import TENSOR_TYPES
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]

# Types that nxjax's NPU graphs do not have; object: texts, handles of variables.
_OTHERS: Final[dict[int, Any]] = {5: object, 8: np.complex64, 13: object, 14: object}
_RANK: Final = 32
# Elements that variables and sparse tensors may have beyond 64 for each byte of the file.
_UNSTORED: Final = 1 << 26
_LARGEST: Final = 1 << 58
# The largest stored integer whose real value in float32 leads back to it.
REVERSIBLE: Final = 1 << 22
# Dtypes of weights whose grids end at the same distance on both sides of 0.
_WEIGHTS: Final = (dtypes.int4, dtypes.int8)


def invalid(what: str, got: object) -> InvalidFileError:
    """The error for a file that is damaged or hostile."""
    return InvalidFileError(f"from_tflite: {what}", got=str(got)[:300])


def dtype_of(number: int) -> Any:
    """The NumPy dtype of a TensorType.

    Raises:
        Refused: a type that nxjax does not have.
    """
    found = TENSOR_TYPES.get(number, _OTHERS.get(number))
    if found is None:
        raise Refused("from_tflite: tensors cannot have this element type", got=f"type {number}")
    return np.dtype(found)


@final
@dataclass(frozen=True, eq=False)
class Quantization:
    """Where the values of a tensor lie: ``real = (stored - zero) * scale``, per tensor or per slice of one axis."""

    dtype: Any
    scales: NDArray
    zeros: NDArray
    axis: int

    @property
    def per_tensor(self) -> bool:
        return self.scales.size == 1

    @cached_property
    def grid(self) -> Grid:
        """The grid of the whole tensor.

        Raises:
            Refused: slices have grids of their own, or the dtype is none of values between operators.
        """
        try:
            if self.per_tensor:
                return Grid(self.dtype, float(self.scales[0]), int(self.zeros[0]))
        except NxError as error:
            raise Refused(f"from_tflite: {error.what}", got=error.got, expected=error.expected) from error
        raise Refused("from_tflite: a value with one grid per channel", got=f"{self.scales.size} scales")

    def spread(self, v: NDArray, rank: int) -> NDArray:
        """Scales or zeros, so that they broadcast against a tensor of ``rank`` dimensions."""
        return v.reshape(()) if v.size == 1 else v.reshape([-1 if i == self.axis else 1 for i in range(rank)])

    def scale_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of the scales with ``rank`` dimensions."""
        return tuple(self.scales.size if i == self.axis and not self.per_tensor else 1 for i in range(rank))

    def dequantize(self, q: NDArray) -> NDArray:
        """The real values of stored integers, in float32."""
        shifted = q.astype(np.int64) - self.spread(self.zeros, q.ndim)
        return np.asarray(shifted.astype(np.float32) * self.spread(self.scales, q.ndim))

    def same(self, other: Quantization | None) -> bool:
        return other is not None and (
            self is other
            or (
                (self.dtype == other.dtype and np.array_equal(self.scales, other.scales))
                and np.array_equal(self.zeros, other.zeros)
            )
        )


@final
@dataclass(frozen=True, eq=False)
class TFLiteTensor:
    """A tensor of a graph.

    Attributes:
        name: as in the file; made unique for constants.
        dims: its dimensions, a name for each that a call decides.
        grid: where its values lie, if they are quantized.
        data: its elements, if they are stored in the file.
        variable: it keeps its elements from call to call: what no operator writes before it is read.
        places: of a sparse tensor, which element of ``data`` each stored one is.
    """

    name: str
    dtype: Any
    dims: tuple[int | str, ...]
    grid: Quantization | None
    data: NDArray | None
    variable: bool
    places: NDArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else 1 for d in self.dims)

    @cached_property
    def symmetric(self) -> bool:
        """Whether it is stored as weights are: around 0, without the integer that has no negative."""
        grid, data = self.grid, self.data
        if grid is None or data is None or grid.dtype not in _WEIGHTS or grid.zeros.any():
            return False
        last = int(dtypes.integer_info(grid.dtype).max)
        return data.size == 0 or int(data.min()) >= -last

    @property
    def real(self) -> NDArray:
        """The floats that a constant is, or that its integers stand for."""
        assert self.data is not None
        return self.data if self.grid is None else self.grid.dequantize(self.data)

    @property
    def trained(self) -> bool:
        """Whether it is a parameter: floats, or integers that real numbers lead back to."""
        data = self.data
        if data is None or self.grid is None:
            return data is not None and self.dtype in dtypes.FLOAT
        return data.size == 0 or max(abs(int(data.min())), abs(int(data.max()))) < REVERSIBLE

    def port(self, name: str, real: bool) -> ValueInfo:
        dtype = np.dtype(np.float32) if real and self.grid is not None else self.dtype
        return ValueInfo(
            name, dtype, tuple(d if isinstance(d, int) else f"{name}.{i}" for i, d in enumerate(self.dims))
        )


@final
@dataclass(frozen=True, eq=False)
class TFLiteNode:
    """One operator.

    Attributes:
        kind: its name; of a custom one ``CUSTOM name``.
        inputs, outputs: tensors, None where one is left out.
        options: by the names of the schema.
        intermediates: tensors whose grids are those of values inside it.
    """

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    options: Mapping[str, Any]
    place: int
    results: tuple[TFLiteTensor | None, ...]
    operands: tuple[TFLiteTensor | None, ...]
    intermediates: tuple[TFLiteTensor | None, ...]

    @property
    def out(self) -> TFLiteTensor:
        found = self.results[0] if self.results else None
        if found is None:
            raise invalid(f"a {self.kind} without a result", self)
        return found

    def __str__(self) -> str:
        names = ", ".join(t.name for t in self.results if t is not None)
        return f"{self.kind} (operator {self.place}) -> {names or 'nothing'}"[:160]


@final
@dataclass(frozen=True, eq=False)
class TFLiteGraph:
    """Operators in an order in which they can run."""

    name: str
    tensors: tuple[TFLiteTensor, ...]
    nodes: tuple[TFLiteNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@final
@dataclass(frozen=True, eq=False)
class TFLiteSignature:
    """Names for inputs and results of a graph."""

    key: str
    graph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@final
@dataclass(frozen=True, eq=False)
class TFLiteFile:
    """All graphs of a file, the first one being the model, and its signatures."""

    graphs: tuple[TFLiteGraph, ...]
    signatures: tuple[TFLiteSignature, ...]


def read(data: bytes | memoryview) -> TFLiteFile:
    """The graphs of a ``.tflite`` file.

    Raises:
        InvalidFileError: no such file, or a damaged one.
        Refused: a type of tensors that nxjax does not have.
    """
    view = memoryview(data).cast("B")
    root = tables(view)
    _check_unstored(root, len(view))
    names: set[str] = set()
    graphs = tuple(_graph(subgraph(root, g, view), names) for g in root["subgraphs"])
    return TFLiteFile(graphs, tuple(_signature(s, graphs) for s in root["signature_defs"] or []))


def _check_unstored(root: dict[str, Any], size: int) -> None:
    """Raise if tensors that a file stores in part, or not at all, are too large for one of its size."""
    rows = [t for g in root["subgraphs"] for t in g["tensors"] or [] if t["is_variable"] or t["sparsity"] is not None]
    shapes = [() if t["shape"] is None else tuple(int(n) for n in t["shape"][:_RANK]) for t in rows]
    if sum(math.prod(max(n, 1) for n in shape) for shape in shapes) > _UNSTORED + 64 * size:
        raise invalid("variables and sparse tensors that are too large", max(shapes, key=math.prod))


def _signature(row: dict[str, Any], graphs: tuple[TFLiteGraph, ...]) -> TFLiteSignature:
    index = row["subgraph_index"]
    if index >= len(graphs):
        raise invalid("a signature of a graph that is not there", index)

    def pairs(rows: Any) -> tuple[tuple[str, int], ...]:
        found = tuple((r["name"] or "", int(r["tensor_index"])) for r in rows or [])
        if any(i >= len(graphs[index].tensors) for _, i in found):
            raise invalid("a signature of a tensor that is not there", found)
        return found

    return TFLiteSignature(row["signature_key"] or "", index, pairs(row["inputs"]), pairs(row["outputs"]))


def _graph(model: TFLiteModel, names: set[str]) -> TFLiteGraph:
    tensors = tuple(_tensor(model, row, i, names) for i, row in enumerate(model.tensors))
    written = _written_first(model)
    tensors = tuple(replace(t, variable=False) if i in written else t for i, t in enumerate(tensors))
    # Each value has one maker.
    made = {*model.inputs, *(i for i, t in enumerate(tensors) if t.data is not None and t.data.size)}
    for o in model.operators:
        for i in o.outputs:
            if i in made:
                raise invalid(f"a {o.name} makes a value that is there already", tensors[i].name)
            if i >= 0:
                made.add(i)
    at = lambda numbers: tuple(None if i < 0 else i for i in numbers)
    of = lambda numbers: tuple(None if i < 0 else tensors[i] for i in numbers)
    nodes = tuple(
        TFLiteNode(
            f"CUSTOM {o.custom}" if o.custom else o.name, at(o.inputs), at(o.outputs), o.options, i, of(o.outputs),
            of(o.inputs), of(o.intermediates),
        )
        for i, o in enumerate(model.operators)
    )  # fmt: skip
    return TFLiteGraph(model.name, tensors, nodes, tuple(model.inputs), tuple(model.outputs))


def _written_first(model: TFLiteModel) -> set[int]:
    """The tensors that an operator makes before one reads them."""
    read: set[int] = set()
    found: set[int] = set()
    for o in model.operators:
        read.update(o.inputs)
        found.update(i for i in o.outputs if i not in read)
    return found


def _tensor(model: TFLiteModel, row: dict[str, Any], number: int, names: set[str]) -> TFLiteTensor:
    name = row["name"] or f"tensor_{number}"
    dtype = dtype_of(row["type"])
    shape = () if row["shape"] is None else tuple(int(n) for n in row["shape"])
    # NumPy counts the elements of an array without any as if the empty dimension were 1.
    if len(shape) > _RANK or any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) > _LARGEST:
        raise invalid(f"a tensor {name!r} of impossible shape", shape)
    signature = shape if row["shape_signature"] is None else tuple(int(n) for n in row["shape_signature"])
    signature = signature if len(signature) == len(shape) else shape
    dims = tuple(n if n >= 0 else f"{name}.{i}" for i, n in enumerate(signature))
    data, places = (None, None) if dtype.kind == "O" else _stored(model, row, name, dtype, shape)
    if data is not None or row["is_variable"]:
        # Parameters and variables go by their names.
        own = name
        while name in names:
            name = f"{own}:{number}" if name == own else f"{own}:{number}:{len(names)}"
            number += name in names
        names.add(name)
        dims = shape
    return TFLiteTensor(name, dtype, dims, _grid(row, name, dtype, shape), data, bool(row["is_variable"]), places)


def _stored(
    model: TFLiteModel, row: dict[str, Any], name: str, dtype: Any, shape: tuple[int, ...]
) -> tuple[NDArray | None, NDArray | None]:
    """The elements of a tensor, and the places of those of a sparse one."""
    if row["sparsity"] is None:
        found = model.content(row["buffer"], name, dtype, shape)
        return (None if found is None else found.reshape(shape)), None
    if row["buffer"] >= len(model.buffers):
        raise invalid(f"a tensor {name!r} whose buffer is out of range", row["buffer"])
    stored = model.stored(row["buffer"], name)
    if stored is None or dtypes.bit_width(dtype) < 8 or len(stored) % dtype.itemsize:
        raise invalid(f"a sparse tensor {name!r} without elements", dtype)
    values = np.frombuffer(stored, dtype)
    places = _places(values.size, shape, row["sparsity"], name)
    dense = np.zeros(math.prod(shape), dtype)
    dense[places] = values
    return dense.reshape(shape), places


def _places(size: int, shape: tuple[int, ...], sparsity: dict[str, Any], name: str) -> NDArray:
    """Which element of a sparse tensor each stored one is: levels are walked in the order of the file, blocks within
    their dimension.
    """
    fail = lambda why: invalid(f"a sparse tensor {name!r} that does not hold together", why)
    order, levels = sparsity["traversal_order"], sparsity["dim_metadata"] or []
    blocks = [] if sparsity["block_map"] is None else [int(b) for b in sparsity["block_map"]]
    rank = len(shape)
    order = [] if order is None else [int(d) for d in order]
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise fail(f"order {order} of {len(levels)} levels")
    if not all(0 <= b < rank for b in blocks):
        raise fail(f"blocks {blocks} of {shape}")
    # Each place is an element, or has an entry in the level after it.
    segments = [level["array_segments"] and level["array_segments"][1].get("values") for level in levels]
    most = max([size, *(len(ends) for ends in segments if ends is not None)])
    at = np.zeros(1, np.int64)
    places = np.zeros((1, len(order)), np.int64)
    sizes = dict[int, int]()
    for d, level in zip(order, levels, strict=True):
        if level["format"] == 0:
            n = int(level["dense_size"])
            if n < 0 or at.size * n > most:
                raise fail(f"a level of {n}")
            sizes[d] = n
            inner = np.tile(np.arange(n), at.size)
            rows = np.repeat(np.arange(at.size), n)
            at = np.repeat(at, n) * n + inner
        else:
            ends, index = (level[k] and level[k][1].get("values") for k in ("array_segments", "array_indices"))
            if ends is None or index is None or len(ends) < int(at.max(initial=0)) + 2:
                raise fail("a level without indices")
            ends, index = np.asarray(ends, np.int64), np.asarray(index, np.int64)
            start, stop = ends[at], ends[at + 1]
            if (stop < start).any() or (start < 0).any() or (stop > index.size).any():
                raise fail("indices that end outside")
            if (stop - start).sum() > max(size, 1):
                raise fail("more indices than elements")
            rows = np.repeat(np.arange(at.size), stop - start)
            at = np.concatenate([np.arange(a, b) for a, b in zip(start, stop, strict=True)] or [at[:0]])
            inner = index[at]
        places = places[rows]
        places[:, d] = inner
    for i, b in enumerate(blocks):
        places[:, b] = places[:, b] * sizes.get(rank + i, 1) + places[:, rank + i]
    spots = tuple(places[:, d] for d in range(rank))
    inside = all((p >= 0).all() and (p < n).all() for p, n in zip(spots, shape, strict=True))
    if at.size != size or not inside or not np.array_equal(np.sort(at), np.arange(size)):
        raise fail(f"{at.size} places for {size} elements")
    found = np.empty(size, np.int64)
    found[at] = np.ravel_multi_index(spots, shape) if shape else 0
    return found


def _grid(row: dict[str, Any], name: str, dtype: Any, shape: tuple[int, ...]) -> Quantization | None:
    q = row["quantization"]
    if q is not None and q["details"] is not None:  # such as scales per block, which lie in a tensor of their own
        raise Refused(
            f"from_tflite: tensor {name!r} is quantized in a way of its own",
            got=q["details"][0],
            expected="one scale, or one per slice of an axis",
        )
    if q is None or q["scale"] is None or not len(q["scale"]) or dtype not in dtypes.INTEGER:
        return None
    scales = np.asarray(q["scale"], np.float32)
    if not scales.any():
        return None
    given = q["zero_point"]
    zeros = np.zeros(1, np.int64) if given is None or not len(given) else np.asarray(given, np.int64)
    axis = int(q["quantized_dimension"])
    if not np.isfinite(scales).all() or (scales <= 0).any():
        raise invalid(f"a tensor {name!r} whose scales are not positive numbers", scales)
    fits = scales.size == 1 or (0 <= axis < len(shape) and shape[axis] == scales.size)
    if not fits or zeros.size not in (1, scales.size):
        raise invalid(f"a tensor {name!r} whose scales do not fit its shape", f"{scales.size} for {shape}")
    info = dtypes.integer_info(dtype)
    if (zeros < int(info.min)).any() or (zeros > int(info.max)).any():
        raise invalid(f"a tensor {name!r} whose zero point is not on its grid", zeros)
    return Quantization(dtype, scales, np.broadcast_to(zeros, scales.shape), axis)
