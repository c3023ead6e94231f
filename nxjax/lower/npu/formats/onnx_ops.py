"""The NPU vocabulary in ONNX's operators, both ways: a row per op, with how it is written and what is read as it.

Writers read real values, write operators, and hand the result over; readers name operands, their order, and attributes.
Semantics: the ONNX operator specification (onnx.ai/onnx/operators). Where ONNX lacks an operator it is spelled out in
others; what the specification allows and a graph cannot say (computed shapes, ceil_mode, ...) is refused by name.
Layouts and grids are the builder's and the reader's business. Here are elementwise ops and those along axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.attributes import ACTIVATIONS
from nxjax.lower.npu.formats.onnx_build import Layout, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_control import read_if, read_loop, write_if, write_while
from nxjax.lower.npu.formats.onnx_moves import MOVES, read_alias, read_constant
from nxjax.lower.npu.formats.onnx_parts import (
    Emit,
    OnnxRow,
    bounds,
    clip,
    element,
    finish,
    fused,
    number,
    on_grid,
    operand,
)
from nxjax.lower.npu.formats.onnx_products import PRODUCTS
from nxjax.lower.npu.formats.onnx_reader import (
    LayoutView,
    OnnxReader,
    Rule,
    invalid,
    name_at,
    numbers,
    own_layout,
    refuse,
)
from nxjax.lower.npu.formats.onnx_recurrent import read_recurrent, write_recurrent
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.permutation import inverse, without
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

# Elementwise.


def elementwise(formula: Callable[..., str]) -> Emit:
    """``formula(b, n, *values)`` of the operands' real values, which broadcast, in the layout at hand."""

    def emit(b: OnnxBuilder, n: Node) -> None:
        layout = b.agree(n.operands, len(n.output.shape))
        finish(b, n, formula(b, n, *(operand(b, t, layout) for t in n.operands)), layout)

    return emit


def plain(kind: str, since: int = 0, **attrs: str) -> Emit:
    """An operator, which there is since an opset; ``attrs`` names those of the graph's attributes that it takes."""

    def formula(b: OnnxBuilder, n: Node, *xs: str) -> str:
        taken: dict[str, Any] = {k: float(n.attrs[v]) for k, v in attrs.items()}
        return b.op(kind, xs, **taken)

    return from_opset(since, elementwise(formula))


def from_opset(opset: int, emit: Emit) -> Emit:
    """An operator that older operator sets do not have."""

    def checked(b: OnnxBuilder, n: Node) -> None:
        if b.opset < opset:
            raise b.refuse(f"{n.op} before opset {opset}", "compute it on the host, or write a newer opset")
        emit(b, n)

    return checked


def read_elementwise(op: str, activated: bool = False) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        kind, out = fused(r, n.output[0]) if activated else (None, n.output[0])
        rank = len(r.shape(out))
        layout = r.layout(n.input, rank)
        operands: list[tuple[str, Layout | None] | None] = []
        for name in n.input:
            full = r.is_constant(name) or len(r.shape(name)) == rank
            operands.append((name, layout if full else None))
        r.emit(op, operands, [out], layout, {"activation": kind} if activated else {})

    return rule


def read_extreme(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        if len(n.input) != 2:
            raise refuse(n, f"of {len(n.input)} operands")
        read_elementwise(op)(r, n)

    return rule


def read_unary(op: str, attributes: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        layout = own_layout(r, n.input[0])
        attrs = {} if attributes is None else attributes(r.attributes(n))
        r.emit(op, [(n.input[0], layout)], [n.output[0]], layout, attrs)

    return rule


# The grids on which Qualcomm's NPU gives 16-bit sigmoids and tangents, whatever grid the file asks for.
FIXED: Final = {"logistic": Grid(dtypes.uint16, 1 / 65536, 0), "tanh": Grid(dtypes.uint16, 1 / 32768, 32768)}


def squashing(kind: str) -> Emit:
    """Sigmoid and Tanh: 16-bit results go over the fixed grid, if that is not theirs."""

    def formula(b: OnnxBuilder, n: Node, x: str) -> str:
        value, grid, fixed = b.op(kind, [x]), b.grid(n.output), FIXED[n.op]
        if grid is None or not b.options.unsigned or grid.dtype != dtypes.int16 or b.stored_grid(grid)[0] == fixed:
            return value
        return on_grid(b, value, fixed, (), "fixed")

    return elementwise(formula)


def hard_swish(b: OnnxBuilder, n: Node, x: str) -> str:
    if b.opset >= 14:
        return b.op("HardSwish", [x])
    return b.op("Mul", [x, b.op("HardSigmoid", [x], "gate", alpha=1 / 6, beta=0.5)])


def gelu(b: OnnxBuilder, n: Node, x: str) -> str:
    approximate = n.attrs["approximate"]
    if b.opset >= 20:
        return b.op("Gelu", [x], approximate="tanh" if approximate else "none")
    if approximate:
        # 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016.
        cube = b.op("Mul", [b.op("Mul", [x, x], "square"), x], "cube")
        inner = b.op("Add", [x, b.op("Mul", [cube, number(b, n, 0.044715)], "small")], "sum")
        curve = b.op("Tanh", [b.op("Mul", [inner, number(b, n, math.sqrt(2 / math.pi))], "scaled")], "tanh")
    else:
        curve = b.op("Erf", [b.op("Mul", [x, number(b, n, math.sqrt(0.5))], "scaled")], "erf")
    weight = b.op("Mul", [b.op("Add", [curve, number(b, n, 1.0)], "plus"), number(b, n, 0.5)], "half")
    return b.op("Mul", [x, weight])


def activation(kind: str) -> Emit:
    return elementwise(lambda b, n, x: clip(b, x, ACTIVATIONS[kind], n.output))


def read_clip(r: OnnxReader, n: Any) -> None:
    found = bounds(r, n)
    if found is None:
        raise refuse(n, "with computed limits")
    kind = next((k for k, wanted in ACTIVATIONS.items() if wanted == found), None)
    layout = own_layout(r, n.input[0])
    if kind is not None:
        r.emit(kind, [(n.input[0], layout)], [n.output[0]], layout)
        return
    view, grid = r.view(n.input[0]), r.next_grid(n.output[0])[0]
    if view is None or math.isfinite(found[0]) == math.isfinite(found[1]):
        raise refuse(n, f"to {found}")
    op, limit = ("maximum", found[0]) if math.isfinite(found[0]) else ("minimum", found[1])
    value = np.asarray(limit, np.float32 if view.tensor.grid is not None else view.tensor.dtype)
    name = f"{n.name}/limit"
    r.constants[name] = value
    if grid is not None and view.tensor.grid == grid:
        t = Tensor(name, (), grid.dtype, grid, grid.quantize(value))
        r.views[name] = LayoutView(t, ())
    r.emit(op, [(n.input[0], layout), (name, layout)], [n.output[0]], layout)


def read_elu(r: OnnxReader, n: Any) -> None:
    if r.attributes(n).get("alpha", 1.0) != 1.0:
        raise refuse(n, "with another alpha than 1")
    read_unary("elu")(r, n)


def read_square_root(r: OnnxReader, n: Any) -> None:
    inverse = r.sole_reader(n.output[0], "Reciprocal")
    layout = own_layout(r, n.input[0])
    if inverse is None:
        r.emit("sqrt", [(n.input[0], layout)], [n.output[0]], layout)
        return
    r.done.add(id(inverse))
    r.emit("rsqrt", [(n.input[0], layout)], [inverse.output[0]], layout)


def read_reciprocal(r: OnnxReader, n: Any) -> None:
    one, layout = f"{n.name}/one", own_layout(r, n.input[0])
    r.constants[one] = np.ones((), r.dtype(n.output[0]))
    r.emit("div", [(one, None), (n.input[0], layout)], [n.output[0]], layout, {"activation": None})


def compare(kind: str, opposite: str, since: int) -> Emit:
    """A comparison, by its opposite where the operator set does not have it yet (which is true of NaN)."""

    def formula(b: OnnxBuilder, n: Node, *xs: str) -> str:
        return b.op(kind, xs) if b.opset >= since else b.op("Not", [b.op(opposite, xs, opposite.lower())])

    return elementwise(formula)


def equal(b: OnnxBuilder, n: Node, *xs: str) -> str:
    """Whether operands are equal. Floats have no Equal before opset 11: neither less nor greater, nor NaN."""
    if b.opset >= 11 or not any(t.dtype in dtypes.FLOAT or t.grid is not None for t in n.operands):
        return b.op("Equal", xs, "equal")
    apart = b.op("Or", [b.op("Less", xs, "less"), b.op("Greater", xs, "greater")], "apart")
    unordered = b.op("Or", [b.op("IsNaN", [x], "nan") for x in xs], "unordered")
    return b.op("Not", [b.op("Or", [apart, unordered], "other")], "equal")


def squared_difference(b: OnnxBuilder, n: Node, *xs: str) -> str:
    value = b.op("Sub", xs, "difference")
    return b.op("Mul", [value, value])


def table(b: OnnxBuilder, n: Node) -> None:
    """A lookup: the stored integers, moved to start at 0, index the stored outputs."""
    x, y = n.operand(), n.output
    if b.options.style == "float":
        raise b.refuse("a table of stored integers in a float file", "write it with style='qdq'")
    layout = b.agree([x], len(x.shape))
    values = b.scratch(f"{b.names[y]}_table", np.asarray(n.attrs["values"], y.dtype).reshape(256), y.grid)
    index = b.op("Cast", [b.stored(x, layout)], "cast", to=element(b, dtypes.int32))
    offset = 128 - b.stored_dtype(x)[1]
    if offset:
        index = b.op("Add", [index, b.constant(offset, np.int32, "first")], "index")
    b.result(y, b.op("Gather", [b.real(values), index], axis=0), layout)


def read_add(r: OnnxReader, n: Any) -> None:
    view = r.view(n.input[0])
    if view is None or not view.stored:
        read_elementwise("add", activated=True)(r, n)
        return
    by: NDArray = r.constant(n.input[1])
    if by.size != 1:
        raise refuse(n, "of stored integers and several numbers")
    moved = view.offset + int(by.reshape(-1)[0])
    r.views[n.output[0]] = LayoutView(view.tensor, view.layout, stored=True, offset=moved)


def cast(b: OnnxBuilder, n: Node) -> None:
    """Of a tensor on a grid its stored integers, as TFLite's CAST takes them, which knows no scales."""
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    if x.grid is not None:
        if b.grid(x) is None or n.output.grid is not None:
            raise b.refuse("a cast of stored integers in a float file, or to a grid", "write it with style='qdq'")
        value = b.op("Cast", [b.stored(x, layout)], "stored", to=element(b, dtypes.int32))
        offset = b.stored_dtype(x)[1]
        if offset:
            value = b.op("Sub", [value, b.constant(offset, np.int32, "first")], "signed")
        if n.output.dtype != dtypes.int32:
            value = b.op("Cast", [value], to=element(b, n.output.dtype))
        return b.result(n.output, value, layout)
    b.result(n.output, b.op("Cast", [b.real(x, layout)], to=element(b, n.output.dtype)), layout)


def read_cast(r: OnnxReader, n: Any) -> None:
    view, out = r.view(n.input[0]), n.output[0]
    if view is None or not view.stored:
        read_unary("cast")(r, n)
        return
    if r.dtype(out) != dtypes.int32:
        raise refuse(n, "of stored integers to another dtype than int32")
    offset = 128 if r.dtype(n.input[0]) == dtypes.uint8 else 0
    r.views[out] = LayoutView(view.tensor, view.layout, stored=True, offset=offset)


def convert(b: OnnxBuilder, n: Node) -> None:
    """quantize, dequantize: reading gives real values, holding puts them on the result's grid."""
    if n.output not in b.read:
        # Rows of weights in blocks.
        return
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    grid_in, grid_out = b.grid(x), b.grid(n.output)
    if grid_in is None and grid_out is None:
        return b.result(n.output, b.op("Identity", [b.real(x, layout)]), layout)
    if grid_out is not None:
        stored, _ = b.stored_grid(grid_out)
        return b.hold(n.output, b.quantize(b.real(x, layout), stored, layout, ""), layout)
    assert grid_in is not None
    stored, _ = b.stored_grid(grid_in)
    return b.hold(n.output, b.dequantize(b.stored(x, layout), stored, layout, ""), layout)


def read_dequantize(r: OnnxReader, n: Any) -> None:
    if r.attributes(n).get("block_size", 0):
        return _read_blocks(r, n)
    name, grid = n.input[0], r.grid(n)
    if name in r.constants:
        data = r.signed(r.constants[name])
        if data.dtype != grid.dtype:
            raise refuse(n, "of a constant of another dtype than its zero point's")
        t = Tensor(name, data.shape, data.dtype, grid, data)
        r.views[n.output[0]] = LayoutView(t, identity(data.ndim))
        return
    view = r.view(name)
    if view is None or not view.stored or view.offset or view.tensor.grid != grid:
        raise refuse(n, "on another grid than its operand's")
    r.views[n.output[0]] = LayoutView(view.tensor, view.layout)


def _read_blocks(r: OnnxReader, n: Any) -> None:
    """Constants in blocks, as rows that are taken off their grid: see `nxjax.lower.npu.blocks`."""
    stored, scales = (r.constant(name) for name in n.input[:2])
    a, zero = r.attributes(n), name_at(n, 2)
    data, rank, length = r.signed(stored), stored.ndim, int(a["block_size"])
    axis = int(a.get("axis", 1)) % max(rank, 1)
    wanted = tuple(size // length if i == axis else size for i, size in enumerate(data.shape))
    if not rank or length < 1 or data.shape[axis] % length or scales.shape != wanted or not data.size:
        raise invalid("scales that do not cut a constant into blocks", n.name)
    if zero is not None and r.signed(r.constant(zero)).any():
        raise refuse(n, "of blocks with zero points other than 0")
    last = (*(i for i in range(rank) if i != axis), axis)
    rows = data.transpose(last).reshape(-1, length)
    grid = Grid(data.dtype, tuple(map(float, scales.transpose(last).reshape(-1))), 0, 0)
    t = Tensor(n.input[0], rows.shape, data.dtype, grid, rows)
    r.known(t, tuple(data.shape[i] for i in last), n.output[0], inverse(last))


def read_quantize(r: OnnxReader, n: Any) -> None:
    """A quantizer that ends no operator: of an input, from one grid to another, or of something only moved."""
    grid, name = r.grid(n), n.input[0]
    if r.is_constant(name):
        raise refuse(n, "of a constant")
    view = r.view(name)
    if view is None or view.stored:
        raise refuse(n, "of stored integers")
    if view.tensor.grid == grid:
        r.views[n.output[0]] = LayoutView(view.tensor, view.layout, stored=True)
        return
    t = Tensor(n.output[0], view.tensor.shape, grid.dtype, grid)
    r.nodes.append(Node("quantize", (view.tensor,), (t,), name=n.name))
    r.views[n.output[0]] = LayoutView(t, view.layout, stored=True)


# Along axes.


def softmax(b: OnnxBuilder, n: Node) -> None:
    x = n.operand()
    # Older softmaxes go over the given dimension and all behind it.
    layout = b.agree([x], len(x.shape)) if b.opset >= 13 else identity(len(x.shape))
    value, beta = b.real(x, layout), n.attrs.get("beta", 1.0)
    if beta != 1.0:
        value = b.op("Mul", [value, number(b, n, beta)], "beta")
    axis = layout.index(len(x.shape) - 1)
    b.result(n.output, b.op("LogSoftmax" if n.op == "log_softmax" else "Softmax", [value], axis=axis), layout)


def read_softmax(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        if r.opset < 13:
            raise refuse(n, "before opset 13, which flattens")
        rank = len(r.shape(n.input[0]))
        axis = int(r.attributes(n).get("axis", -1)) % rank
        layout = own_layout(r, n.input[0])
        if layout[axis] != rank - 1:
            order = list(identity(rank))
            order[axis], order[-1] = order[-1], order[axis]
            layout = tuple(order)
        r.emit(op, [(n.input[0], layout)], [n.output[0]], layout, {"beta": 1.0} if op == "softmax" else {})

    return rule


def reduction(kind: str, axes_are_input_since: int) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x = n.operand()
        rank = len(x.shape)
        axes = set(n.attrs["axes"])
        keep = n.attrs["keepdims"]
        layout = b.agree([x], rank)
        where = sorted(layout.index(a) for a in axes)
        if not where:
            return b.result(n.output, b.op("Identity", [b.real(x, layout)]), layout)
        if b.opset >= axes_are_input_since:
            value = b.op(kind, [b.real(x, layout), b.constant(where)], keepdims=int(keep))
        else:
            value = b.op(kind, [b.real(x, layout)], axes=where, keepdims=int(keep))
        return b.result(n.output, value, layout if keep else without(layout, axes))

    return emit


def read_reduction(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        rank = len(r.shape(n.input[0]))
        axes = numbers(r, n, 1, "axes")
        a = r.attributes(n)
        if not axes:
            if a.get("noop_with_empty_axes", 0):
                raise refuse(n, "over no axes")
            axes = list(range(rank))
        layout, keep = own_layout(r, n.input[0]), bool(a.get("keepdims", 1))
        over = sorted({layout[x % rank] for x in axes})
        after = layout if keep else without(layout, set(over))
        r.emit(op, [(n.input[0], layout)], [n.output[0]], after, {"axes": tuple(over), "keepdims": keep})

    return rule


def arg(kind: str) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x = n.operand()
        axis = n.attrs["axis"]
        layout = b.agree([x], len(x.shape))
        value = b.op(kind, [b.real(x, layout)], axis=layout.index(axis), keepdims=0)
        b.result(n.output, b.op("Cast", [value], "cast", to=element(b, n.output.dtype)), without(layout, {axis}))

    return emit


def read_arg(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        a = r.attributes(n)
        to = r.sole_reader(n.output[0], "Cast")
        if a.get("keepdims", 1) or a.get("select_last_index", 0) or to is None or r.dtype(to.output[0]) != dtypes.int32:
            raise refuse(n, "other than one that drops the axis and is cast to int32")
        layout = own_layout(r, n.input[0])
        axis = layout[int(a.get("axis", 0)) % len(layout)]
        r.done.add(id(to))
        after = without(layout, {axis})
        r.emit(op, [(n.input[0], layout)], [to.output[0]], after, {"axis": axis}, dtypes.int32)

    return rule


def topk(b: OnnxBuilder, n: Node) -> None:
    x, (values, places) = n.operand(), n.outputs
    rank, largest = len(x.shape), n.attrs["largest"]
    layout = b.agree([x], rank)
    if b.opset < 11 and not largest:
        raise b.refuse("the least elements before opset 11", "write a newer opset")
    more: dict[str, Any] = {"largest": int(largest), "sorted": 1} if b.opset >= 11 else {}
    found, where = b.ops(
        "TopK", [b.real(x, layout), b.constant([n.attrs["k"]])], 2, axis=layout.index(rank - 1), **more
    )
    b.result(values, found, layout)
    b.result(places, b.op("Cast", [where], "cast", to=element(b, places.dtype)), layout)


def read_topk(r: OnnxReader, n: Any) -> None:
    a, layout = r.attributes(n), own_layout(r, n.input[0])
    to = r.sole_reader(n.output[1], "Cast")
    if layout[int(a.get("axis", -1)) % len(layout)] != len(layout) - 1 or not a.get("sorted", 1):
        raise refuse(n, "along another axis than the last, or in no order")
    if to is None or r.dtype(to.output[0]) != dtypes.int32:
        raise refuse(n, "whose places are not cast to int32")
    r.done.add(id(to))
    (k,) = numbers(r, n, 1, "k") or [0]
    attrs = {"k": k, "largest": bool(a.get("largest", 1))}
    r.emit("top_k", [(n.input[0], layout)], [n.output[0], to.output[0]], layout, attrs)


def cumsum(b: OnnxBuilder, n: Node) -> None:
    x = n.operand()
    layout = b.agree([x], len(x.shape))
    axis = b.constant(layout.index(n.attrs["axis"]), np.int64, "axis")
    value = b.op(
        "CumSum", [b.real(x, layout), axis], exclusive=int(n.attrs["exclusive"]), reverse=int(n.attrs["reverse"])
    )
    b.result(n.output, value, layout)


def read_cumsum(r: OnnxReader, n: Any) -> None:
    a, layout = r.attributes(n), own_layout(r, n.input[0])
    axis = layout[int(r.constant(n.input[1]).reshape(-1)[0]) % len(layout)]
    attrs = {"axis": axis, "exclusive": bool(a.get("exclusive", 0)), "reverse": bool(a.get("reverse", 0))}
    r.emit("cumsum", [(n.input[0], layout)], [n.output[0]], layout, attrs)


def _write(b: OnnxBuilder, n: Node) -> None:
    EMIT[n.op](b, n)


def _both(op: str, kind: str, activated: bool = False) -> OnnxRow:
    """An operator of operands that broadcast."""
    return OnnxRow(op, plain(kind), kind, read_elementwise(op, activated))


def _one(op: str, kind: str, opset: int = 0) -> OnnxRow:
    """An operator of one operand, which there is since ``opset``."""
    return OnnxRow(op, plain(kind, opset), kind, read_unary(op))


def _reduced(op: str, kind: str, axes_are_input_since: int) -> OnnxRow:
    return OnnxRow(op, reduction(kind, axes_are_input_since), kind, read_reduction(op))


_leaky: Final = read_unary("leaky_relu", lambda a: {"alpha": float(a.get("alpha", 0.01))})
_gelu: Final = read_unary("gelu", lambda a: {"approximate": a.get("approximate", b"none") == b"tanh"})
ROWS: Final = [
    *PRODUCTS,
    *MOVES,
    OnnxRow("add", plain("Add"), "Add", read_add),
    *(_both(op, op.title(), activated=True) for op in ("sub", "mul", "div")),
    *(_both(op, op.title()) for op in ("pow", "less", "greater")),
    *(_both(op, kind) for op, kind in (("logical_and", "And"), ("logical_or", "Or"), ("prelu", "PRelu"))),
    OnnxRow("maximum", plain("Max"), "Max", read_extreme("maximum")),
    OnnxRow("minimum", plain("Min"), "Min", read_extreme("minimum")),
    OnnxRow("less_equal", compare("LessOrEqual", "Greater", 12), "LessOrEqual", read_elementwise("less_equal")),
    OnnxRow(
        "greater_equal", compare("GreaterOrEqual", "Less", 12), "GreaterOrEqual", read_elementwise("greater_equal")
    ),
    OnnxRow("equal", elementwise(equal), "Equal", read_elementwise("equal")),
    OnnxRow("not_equal", elementwise(lambda b, n, *xs: b.op("Not", [equal(b, n, *xs)]))),
    OnnxRow("squared_difference", elementwise(squared_difference)),
    _both("select", "Where"),
    *(_one(op, op.title()) for op in ("exp", "log", "abs", "neg", "sin", "cos", "floor", "ceil", "sign", "erf")),
    _one("logical_not", "Not"),
    _one("round", "Round", 11),
    OnnxRow("elu", plain("Elu"), "Elu", read_elu),
    OnnxRow("sqrt", plain("Sqrt"), "Sqrt", read_square_root),
    OnnxRow(
        "rsqrt", elementwise(lambda b, n, x: b.op("Reciprocal", [b.op("Sqrt", [x])])), "Reciprocal", read_reciprocal
    ),
    OnnxRow("square", elementwise(lambda b, n, x: b.op("Mul", [x, x]))),
    OnnxRow("logistic", squashing("Sigmoid"), "Sigmoid", read_unary("logistic")),
    OnnxRow("tanh", squashing("Tanh"), "Tanh", read_unary("tanh")),
    OnnxRow("relu", activation("relu"), "Relu", read_unary("relu")),
    OnnxRow("relu6", activation("relu6"), "Clip", read_clip),
    OnnxRow("relu_n1_to_1", activation("relu_n1_to_1")),
    OnnxRow("hard_swish", elementwise(hard_swish), "HardSwish", read_unary("hard_swish")),
    OnnxRow("leaky_relu", plain("LeakyRelu", alpha="alpha"), "LeakyRelu", _leaky),
    OnnxRow("gelu", elementwise(gelu), "Gelu", _gelu),
    OnnxRow("table", table),
    OnnxRow("cast", cast, "Cast", read_cast),
    OnnxRow("quantize", convert, "QuantizeLinear", read_quantize),
    OnnxRow("dequantize", convert, "DequantizeLinear", read_dequantize),
    OnnxRow("softmax", softmax, "Softmax", read_softmax("softmax")),
    OnnxRow("log_softmax", softmax, "LogSoftmax", read_softmax("log_softmax")),
    _reduced("mean", "ReduceMean", 18),
    _reduced("sum", "ReduceSum", 13),
    _reduced("reduce_max", "ReduceMax", 18),
    _reduced("reduce_min", "ReduceMin", 18),
    _reduced("reduce_prod", "ReduceProd", 18),
    OnnxRow("argmax", arg("ArgMax"), "ArgMax", read_arg("argmax")),
    OnnxRow("argmin", arg("ArgMin"), "ArgMin", read_arg("argmin")),
    OnnxRow("if", from_opset(11, lambda b, n: write_if(b, n, _write)), "If", read_if),
    OnnxRow("while", from_opset(11, lambda b, n: write_while(b, n, _write)), "Loop", read_loop),
    *(OnnxRow(op, write_recurrent, op.upper(), read_recurrent) for op in ("lstm", "gru", "rnn")),
    OnnxRow("top_k", topk, "TopK", read_topk),
    OnnxRow("cumsum", from_opset(11, cumsum), "CumSum", read_cumsum),
]
EMIT: Final[dict[str, Emit]] = {row.op: row.write for row in ROWS}
READ: Final[dict[str, Rule]] = {
    "Identity": read_alias,
    "Constant": read_constant,
    **{kind: row.read for row in ROWS for kind in row.operators.split() if row.read is not None},
}
