"""The graph in the making: what a lowering rule is given as ``b``.

A `LogicalTensor` is what an operand of an equation has become: a tensor of the graph, or a constant. It may have size 1
where its logical shape is larger, so that broadcasts cost nothing before an elementwise node; every other node gets it
in full. Constants stay NumPy arrays until a node reads them: moving one moves data, not nodes. A value on a grid holds
integers of the grid; `GraphBuilder.real` and `GraphBuilder.on` take it off and put it on.

Names no op of the language but those of `rules`, which are handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import NxError, Source
from nxjax.lower.npu.blocks import IN_FLOAT, WeightBlocks
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor, TensorKind
from nxjax.lower.npu.recurrent.loops import kept
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.fold import FoldedValue, evaluated
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape
from nxjax.transforms.inline import inlined

# rule(b, out, *xs, **params): the value(s) of an equation, or None to pass it on to the op's expansion.
Rule = Callable[..., Any]

ALLOWED: Final = frozenset(
    (
        dtypes.float32, dtypes.float16, dtypes.bool_, dtypes.int4, dtypes.int8, dtypes.uint8, dtypes.int16,
        dtypes.int32,
    )
)  # fmt: skip


class Unsupported(Exception):
    """Raised by a rule: why an equation has no place in the graph, and what to write instead.

    ``mistake`` says that not the op is the reason, but what it is given, which the user would want to know.
    """

    def __init__(self, reason: str, suggestion: str = "", mistake: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.suggestion = suggestion
        self.mistake = mistake


def check_dtype(dtype: DType) -> None:
    """Refuse a dtype that no NPU format holds."""
    if dtype in ALLOWED:
        return
    name = dtypes.short_name(dtype)
    if dtype == dtypes.key:
        raise Unsupported("random keys do not exist on an NPU", "draw random numbers outside and pass them in")
    if dtype in dtypes.COMPLEX:
        raise Unsupported(f"{name} does not exist on an NPU", "compute with real and imaginary parts")
    if dtype in dtypes.FLOAT:
        raise Unsupported(f"{name} does not exist on an NPU", "cast to float32: x.astype(nx.float32)")
    raise Unsupported(f"{name} does not exist on an NPU", "cast to int32: x.astype(nx.int32)")


@final
class LogicalTensor:
    """A tensor or a constant with its logical shape; size 1 stands for any size.

    ``blocks`` are the scales that a real constant is made of, which a product may store it with.
    """

    __slots__ = ("blocks", "data", "grid", "shape", "tensor")

    def __init__(
        self,
        shape: Shape,
        tensor: Tensor | None = None,
        data: NDArray | None = None,
        grid: Grid | None = None,
        blocks: WeightBlocks | None = None,
    ) -> None:
        self.shape = shape
        self.tensor = tensor
        self.data = data
        self.grid = grid if tensor is None else tensor.grid
        self.blocks = blocks

    @property
    def constant(self) -> bool:
        return self.data is not None

    @property
    def small(self) -> Shape:
        """The shape that is stored."""
        if self.data is not None:
            return self.data.shape
        assert self.tensor is not None
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """The dtype that is stored."""
        if self.data is not None:
            return self.data.dtype
        assert self.tensor is not None
        return self.tensor.dtype

    @property
    def kind(self) -> TensorKind:
        """What another tensor of the same meaning would be made with."""
        return self.grid or self.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def known(self) -> FoldedValue | None:
        """The real value, if it is a constant."""
        if self.data is None:
            return None
        data = self.data if self.grid is None else self.grid.dequantize(self.data)
        return FoldedValue(data, self.shape)

    def full(self) -> NDArray:
        """All elements of a constant as they are stored."""
        assert self.data is not None
        return np.broadcast_to(self.data, self.shape)

    def scalar(self) -> float | None:
        """The one real number that a constant consists of, or None."""
        known = self.known
        return float(known.data.reshape(())) if known is not None and known.data.size == 1 else None


Operands = Sequence[LogicalTensor | None]


def broadcast_shape(values: Sequence[LogicalTensor]) -> Shape:
    """The shape in which an elementwise node on these stores its result."""
    return tuple(int(n) for n in np.broadcast_shapes(*(v.small for v in values)))


@final
class GraphBuilder:
    """Appends nodes; every node carries the source line and scope of the equation being lowered.

    Loops of at most ``unroll`` steps are written out. ``nested`` says whether nodes may hold graphs, and ``recurrent``
    which layers have nodes of their own.
    """

    def __init__(
        self, rules: dict[str, Rule], unroll: int = 0, nested: bool = True, recurrent: frozenset[str] = frozenset()
    ) -> None:
        self.rules = rules
        self.unroll = unroll
        self.nested = nested
        self.recurrent = recurrent
        self.nodes: list[Node] = []
        self.source: Source | None = None
        self.scope = ""
        self.roundings: set[Rounding] = set()
        # Each once, in order.
        self.notes: dict[str, None] = {}
        self._constants: dict[tuple[int, Grid | None, Shape], tuple[NDArray, Tensor]] = {}
        self._snapped: dict[tuple[Tensor, Grid | None], LogicalTensor] = {}

    # --- nodes ---

    def emit(
        self, op: str, xs: Operands, shape: Shape, kind: TensorKind, stretch: bool = False, /, **attrs: Any
    ) -> LogicalTensor:
        """A node with one result of ``shape``; operands in full unless it broadcasts (``stretch``)."""
        return self.emit_many(op, xs, [shape], kind, stretch, **attrs)[0]

    def emit_many(
        self,
        op: str,
        xs: Operands,
        shapes: Sequence[Shape],
        kind: TensorKind | Sequence[TensorKind],
        stretch: bool = False,
        /,
        **attrs: Any,
    ) -> list[LogicalTensor]:
        """A node with several results, of one dtype or grid, or each of its own."""
        inputs = tuple(None if x is None else self.tensor(x if stretch else self.full(x), stretch) for x in xs)
        kinds = kind if isinstance(kind, Sequence) else [kind] * len(shapes)
        outs = tuple(_empty(s, k) for s, k in zip(shapes, kinds, strict=True))
        self.nodes.append(Node(op, inputs, outs, attrs, self.source, self.scope))
        return [LogicalTensor(s, t) for s, t in zip(shapes, outs, strict=True)]

    def elementwise(self, op: str, xs: Sequence[LogicalTensor], kind: TensorKind, **attrs: Any) -> LogicalTensor:
        """A node that works element by element, with NumPy's broadcasting."""
        y = self.emit(op, xs, broadcast_shape(xs), kind, True, **attrs)
        return LogicalTensor(xs[0].shape, y.tensor)

    def tensor(self, x: LogicalTensor, stretch: bool = False) -> Tensor:
        """The tensor of a value as it is stored; a single constant for operands that broadcast has no dimensions."""
        if x.tensor is not None:
            return x.tensor
        data = x.data
        assert data is not None
        scalar = stretch and data.size == 1 and (x.grid is None or x.grid.axis is None)
        shape = () if scalar else data.shape
        key = (id(data), x.grid, shape)
        found = self._constants.get(key)
        if found is None:
            stored = data.reshape(shape) if x.grid is not None else stored_constant(data.reshape(shape))
            tensor = Tensor("", shape, stored.dtype, x.grid, np.ascontiguousarray(stored).reshape(shape))
            found = self._constants[key] = (data, tensor)  # holding data keeps its id from being reused
        return found[1]

    # --- values ---

    def constant(self, array: Any, dtype: DType | None = None, grid: Grid | None = None) -> LogicalTensor:
        data = np.asarray(array, dtype)
        return LogicalTensor(data.shape, data=data, grid=grid)

    def fill(self, shape: Shape, value: Any, dtype: DType) -> LogicalTensor:
        """One number, repeated."""
        return LogicalTensor(shape, data=np.full((1,) * len(shape), value, dtype))

    def full(self, x: LogicalTensor) -> LogicalTensor:
        """The value with all its elements stored."""
        if x.small == x.shape:
            return x
        if x.data is not None:
            return LogicalTensor(x.shape, data=np.ascontiguousarray(x.full()), grid=x.grid)
        return self.emit("broadcast_to", [LogicalTensor(x.small, x.tensor)], x.shape, x.kind, shape=x.shape)

    def real(self, x: LogicalTensor) -> LogicalTensor:
        """The value off its grid, as float32."""
        if x.blocks is not None:
            return self._of_blocks(x, x.blocks)
        if x.grid is None:
            return x
        t = self.tensor(x)
        found = self._snapped.get((t, None))
        if found is None:
            found = self._snapped[t, None] = self.emit(
                "dequantize", [LogicalTensor(t.shape, t)], t.shape, dtypes.float32
            )
        return LogicalTensor(x.shape, found.tensor)

    def _of_blocks(self, x: LogicalTensor, blocks: WeightBlocks) -> LogicalTensor:
        """A constant made of stored integers, a row for each of its blocks."""
        assert x.data is not None
        rows = blocks.rows(x.full())
        if rows is None:
            self.notes[IN_FLOAT] = None
            return LogicalTensor(x.shape, data=x.data)
        stored, grid = rows
        y = self.emit("dequantize", [self.constant(stored, grid=grid)], stored.shape, dtypes.float32)
        return self.reshape(y, x.shape)

    def on(self, x: LogicalTensor, grid: Grid) -> LogicalTensor:
        """The value on ``grid``, as `Grid.quantize` puts it there."""
        if x.grid == grid:
            return x
        if x.data is not None:
            known = x.known
            assert known is not None
            return LogicalTensor(x.shape, data=grid.quantize(known.data), grid=grid)
        t = self.real(x).tensor
        assert t is not None
        found = self._snapped.get((t, grid))
        if found is None:
            found = self._snapped[t, grid] = self.emit("quantize", [LogicalTensor(t.shape, t)], t.shape, grid)
        return LogicalTensor(x.shape, found.tensor)

    def fits(self, x: LogicalTensor, grid: Grid) -> bool:
        """Whether a value lies on ``grid`` already, so that `on` changes nothing."""
        if x.grid == grid:
            return True
        known = x.known
        return known is not None and np.array_equal(grid.dequantize(grid.quantize(known.data)), known.data)

    # --- movement, which constants answer at once ---

    def reshape(self, x: LogicalTensor, shape: Shape) -> LogicalTensor:
        if x.shape == shape:
            return x
        small = _stretched_shape(x, shape)
        if small is None:
            return self.reshape(self.full(x), shape)
        if x.data is not None:
            grid = _reshaped_grid(x.grid, x.data.shape, small)
            if grid is None and x.grid is not None:
                return self.reshape(self.real(x), shape)
            blocks = None if x.blocks is None else x.blocks.reshaped(x.small, small)
            if x.blocks is not None and blocks is None:
                self.notes[IN_FLOAT] = None
            return LogicalTensor(shape, data=x.data.reshape(small), grid=grid, blocks=blocks)
        if small == x.small:
            return LogicalTensor(shape, x.tensor)
        y = self.emit("reshape", [LogicalTensor(x.small, x.tensor)], small, x.kind, shape=small)
        return LogicalTensor(shape, y.tensor)

    def transpose(self, x: LogicalTensor, permutation: Sequence[int]) -> LogicalTensor:
        perm = tuple(permutation)
        if perm == tuple(range(len(perm))):
            return x
        shape, small = tuple(x.shape[i] for i in perm), tuple(x.small[i] for i in perm)
        if x.data is not None:
            grid = x.grid
            if grid is not None and grid.axis is not None:
                grid = Grid(grid.dtype, grid.scale, 0, perm.index(grid.axis))
            blocks = None if x.blocks is None else x.blocks.transposed(perm)
            return LogicalTensor(shape, data=x.data.transpose(perm), grid=grid, blocks=blocks)
        y = self.emit("transpose", [LogicalTensor(x.small, x.tensor)], small, x.kind, permutation=perm)
        return LogicalTensor(shape, y.tensor)

    def pad(self, x: LogicalTensor, padding: Sequence[tuple[int, int]], value: float | None = None) -> LogicalTensor:
        """Elements of ``value`` (None: zero) around; negative amounts cut off."""
        cut = [(max(-l, 0), n - max(-h, 0)) for n, (l, h) in zip(x.shape, padding, strict=True)]
        x = self.slice(x, [c[0] for c in cut], [c[1] for c in cut])
        widths = tuple((max(l, 0), max(h, 0)) for l, h in padding)
        if not any(map(any, widths)):
            return x
        shape = tuple(n + l + h for n, (l, h) in zip(x.shape, widths, strict=True))
        return self.emit("pad", [x], shape, x.kind, padding=widths, value=value)

    def slice(
        self, x: LogicalTensor, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
    ) -> LogicalTensor:
        steps = tuple(strides or (1,) * x.ndim)
        shape = tuple(-(-(e - s) // k) for s, e, k in zip(begin, end, steps, strict=True))
        if shape == x.shape:
            return x
        if x.data is not None and (x.grid is None or x.grid.axis is None):
            parts = tuple(
                slice(None) if m == 1 else slice(s, e, k) for s, e, k, m in zip(begin, end, steps, x.small, strict=True)
            )
            return LogicalTensor(shape, data=x.data[parts], grid=x.grid)
        if x.small != x.shape:
            # Where the value repeats, only the logical shape changes.
            parts = [(0, 1, 1) if m == 1 else p for p, m in zip(zip(begin, end, steps), x.small, strict=True)]
            y = self.slice(LogicalTensor(x.small, x.tensor), *(list(c) for c in zip(*parts, strict=True)))
            return LogicalTensor(shape, y.tensor)
        if all(k == 1 for k in steps):
            return self.emit("slice", [x], shape, x.kind, begin=tuple(begin), size=shape)
        attrs = {"begin": tuple(begin), "end": tuple(end), "strides": steps}
        return self.emit("strided_slice", [x], shape, x.kind, **attrs)

    def concatenate(self, xs: Sequence[LogicalTensor], axis: int) -> LogicalTensor:
        """Values of one kind, one after the other."""
        if len(xs) == 1:
            return xs[0]
        n = sum(x.shape[axis] for x in xs)
        shape = (*xs[0].shape[:axis], n, *xs[0].shape[axis + 1 :])
        return self.emit("concatenation", xs, shape, xs[0].kind, axis=axis)

    def cast(self, x: LogicalTensor, dtype: DType) -> LogicalTensor:
        if x.grid is None and x.dtype == dtype:
            return x
        return self.elementwise("cast", [self.real(x)], dtype)

    # --- programs ---

    def apply(
        self, op: Op, xs: Sequence[LogicalTensor], params: dict[str, Any], types: Sequence[ArrayType]
    ) -> list[LogicalTensor]:
        """One op: computed now if all operands are known, else by its rule, else by its expansion."""
        scaled = any(x.blocks is not None or (x.grid is not None and x.grid.axis is not None) for x in xs)
        if all(x.constant for x in xs) and not scaled:
            known = evaluated(op, [k for x in xs if (k := x.known) is not None], params, types)
            if known is not None:
                return [LogicalTensor(k.shape, data=k.data) for k in known]
        rule = self.rules.get(op.name)
        if rule is not None:
            out = tuple(types) if op.multi else types[0]
            result: Any = rule(self, out, *xs, **params)
            if result is not None:
                return list(result) if op.multi else [result]
        if not op.has("expand") or op.nested:
            raise Unsupported(f"no NPU instruction computes {op.name}")
        return self._expanded(op, xs, params)

    def _expanded(self, op: Op, xs: Sequence[LogicalTensor], params: dict[str, Any]) -> list[LogicalTensor]:
        def flat(*values: Any) -> Sequence[Any]:
            y: Any = op.expand(*values, **params)
            return y if op.multi else [y]

        types = [ArrayType(x.shape, dtypes.float32 if x.grid is not None else x.dtype) for x in xs]
        try:
            with replaying(self.scope, self.source):
                program = stage(flat, types, op.name)
            return self.program(program, xs)
        except Unsupported as inner:
            raise Unsupported(f"{inner.reason} (a part of {op.name})", inner.suggestion, inner.mistake) from None
        except (NotImplementedError, NxError) as error:
            raise Unsupported(f"its expansion fails: {str(error).splitlines()[0]}") from error

    def inline(self, function: Callable[..., Any], *xs: LogicalTensor) -> LogicalTensor:
        """A function of arrays in ops, in place of an op that has no instruction."""
        types = [ArrayType(x.shape, dtypes.float32 if x.grid is not None else x.dtype) for x in xs]
        with replaying(self.scope, self.source):
            program = stage(lambda *values: [function(*values)], types)
        return self.program(program, xs)[0]

    def graph(
        self, make: Callable[[GraphBuilder, list[LogicalTensor]], Operands], args: Sequence[LogicalTensor]
    ) -> NpuGraph:
        """What ``make`` makes of ``args`` as a graph of its own; those that are constant are built in.

        The others are its inputs, in order, off their grids and with all their elements, as `taken` gives them.
        """
        inner = GraphBuilder(self.rules, self.unroll, recurrent=self.recurrent)
        inner.notes = self.notes
        inner.source, inner.scope, inner.roundings = self.source, self.scope, self.roundings
        inputs, values = list[Tensor](), list[LogicalTensor]()
        for x in args:
            if not x.constant:
                inputs.append(Tensor("", x.shape, dtypes.float32 if x.grid is not None else x.dtype))
            values.append(x if x.constant else LogicalTensor(x.shape, inputs[-1]))
        made = [y for y in make(inner, values) if y is not None]
        outputs = [inner.tensor(inner.real(inner.full(y))) for y in made]
        return NpuGraph("part", inputs, outputs, inner.nodes)

    def taken(self, args: Sequence[LogicalTensor]) -> list[LogicalTensor]:
        """The operands of a node whose graphs were made of ``args`` by `graph`."""
        return [self.real(self.full(x)) for x in args if not x.constant]

    def program(self, program: Program, args: Sequence[LogicalTensor]) -> list[LogicalTensor]:
        """The equations of a program; raises at the first that is not supported."""
        program = dead_code_eliminated(inlined(program, self.unroll, keep=kept(self.recurrent)))
        env: dict[Var, LogicalTensor] = dict(zip(program.inputs, args, strict=True))
        env.update(known_consts(program))
        for e in program.equations:
            found = self.apply(e.op, [value_of(a, env) for a in e.inputs], e.params, [v.type for v in e.outputs])
            env.update(zip(e.outputs, found, strict=True))
        return [value_of(a, env) for a in program.outputs]


def _empty(shape: Shape, kind: TensorKind) -> Tensor:
    """A tensor of a grid or a dtype, which formats must hold."""
    if isinstance(kind, Grid):
        return Tensor("", shape, kind.dtype, kind)
    check_dtype(kind)
    return Tensor("", shape, kind)


def known_consts(program: Program) -> dict[Var, LogicalTensor]:
    """The consts of a program as values."""
    pairs = zip(program.constvars, program.values, strict=True)
    return {v: LogicalTensor(v.type.shape, data=x.numpy()) for v, x in pairs}  # pyright: ignore[reportAttributeAccessIssue]


def value_of(a: Atom, env: dict[Var, LogicalTensor]) -> LogicalTensor:
    return env[a] if isinstance(a, Var) else LogicalTensor((), data=a.value.numpy())


def stored_constant(data: NDArray) -> NDArray:
    """A constant in a dtype that formats hold: wide integers as int32 where they fit."""
    if data.dtype in (dtypes.int64, dtypes.uint32, dtypes.uint64):
        info = np.iinfo(np.int32)
        if not data.size or (data.min() >= info.min and data.max() <= info.max):
            return data.astype(np.int32)
    check_dtype(data.dtype)
    return data


def _stretched_shape(x: LogicalTensor, shape: Shape) -> Shape | None:
    """What `x.small` becomes when `x.shape` becomes ``shape``; None if repeated elements have to be stored for it."""
    if x.small == x.shape:
        return shape
    if math.prod(x.small) == 1:
        return (1,) * len(shape)
    if [n for n in shape if n != 1] != [n for n in x.shape if n != 1]:
        return None
    rest = iter(m for m, n in zip(x.small, x.shape, strict=True) if n != 1)
    return tuple(1 if n == 1 else next(rest) for n in shape)


def _reshaped_grid(grid: Grid | None, old: Shape, new: Shape) -> Grid | None:
    """The grid of a reshaped constant, or None if its slices are no longer slices of one axis."""
    if grid is None or grid.axis is None:
        return grid
    before, n = math.prod(old[: grid.axis]), old[grid.axis]
    for axis in range(len(new)):
        if new[axis] == n and math.prod(new[:axis]) == before:
            return Grid(grid.dtype, grid.scale, 0, axis)
    return None
