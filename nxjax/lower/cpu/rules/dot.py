"""dot_general: any contraction as a batch of matrix products over strided views; nothing is transposed in memory.

Dimensions that are one run in all views are joined. What is left is (batch, rows, depth, columns): further free
dimensions are batches in which the other operand stands still. Rows and columns change places where the rows of the
result lie side by side. What follows elementwise is computed before results are stored (`LazyProduct`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, gemv, isa, knobs, tiny
from nxjax.kernels.cpu.epilogue import Epilogue, Operand, plain
from nxjax.kernels.cpu.expression import Expression, identity
from nxjax.kernels.cpu.gemm import BatchAxis
from nxjax.kernels.cpu.gemm_plan import NARROW_DEPTH, Matrix, plan, sums_of
from nxjax.kernels.cpu.move import Move
from nxjax.kernels.cpu.nest_emit import NEAR
from nxjax.kernels.cpu.pack import panels_of
from nxjax.lower.cpu.builder import Builder, rule
from nxjax.lower.cpu.lazy import FIXED, Affine, Lazy, LazyLeaf, LazyProduct, LazyReduce, Map, converted_from, indexed
from nxjax.lower.cpu.lower import inline_expansion
from nxjax.lower.cpu.rules.dot_complex import parts, real_numbers, squares
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.lower.cpu.tape import Buffer, Ref
from nxjax.lower.cpu.view import NoKernel, View, dense_strides
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dot import DOT_PASSES, Axes, DotDimensionNumbers, free
from nxjax.ops.precision import in_passes
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]
BYTES: Final = (dtypes.int8, dtypes.uint8)
NARROW: Final = (*BYTES, dtypes.bfloat16)
SUMS: Final = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
LEAST: Final = 64  # results, or matrices: fewer fill no vectors
FEW_ROWS: Final = 16  # that are neighbours: fewer fill no vectors
SHORT, LONG = 8, 512  # terms of sums that are made by elements: of rows of many matrices, of pairs of vectors


@rule("dot_general")
def dot_general(b: Builder, e: Equation, x: Any, y: Any) -> Sequence[Any]:
    out = e.outputs[0].type
    numbers: DotDimensionNumbers = e.params["dimension_numbers"]
    if in_passes(e.params.get("precision"), *(a.type for a in e.inputs)):
        return inline_expansion(b, e, (x, y), DOT_PASSES)
    if all(a.type.dtype in dtypes.COMPLEX for a in e.inputs):
        return [_complex(b, b.view(x), b.view(y), numbers, out)]
    check(e.inputs[0].type.dtype, e.inputs[1].type.dtype, out.dtype)
    (xc, yc), (xb, yb) = numbers
    for operand, contracted, batch in ((x, xc, xb), (y, yc, yb)):
        _lay(operand, contracted, batch)
    left = b.view(x)
    if (kernel := _tiny(b, left, y, numbers, out)) is not None:
        products = b.new(out)
        b.call(kernel, [left, b.view(y)], [products])
        return [products]
    if _by_elements(e.inputs[0].type, e.inputs[1].type, numbers, out):
        return [_elements(b, left, b.view(y), numbers, out)]
    right = known(y) or _narrow(b, y, numbers, left) or b.view(y)

    def emit(expression: Expression, operands: Sequence[View], outs: Sequence[View]) -> None:
        contraction(b, left, right, numbers, out.dtype, expression, operands, outs)

    y = LazyProduct(out.shape, out.dtype, emit)
    y.equation = e
    return [y]


def _lay(x: Any, contracted: Axes, batch: Axes) -> None:
    """What is not computed yet gets no memory in which the elements of one matrix lie apart from each other.

    So they do where a dimension of the batch is innermost, or a short one of the rows, of which others lie outside of
    the depth.
    """
    if not isinstance(x, Lazy) or x.view is not None or x.order is not None or not contracted:
        return
    last = len(x.shape) - 1
    free = [d for d in range(last + 1) if d not in contracted and d not in batch]
    short = last in free and x.shape[last] < FEW_ROWS and any(d < max(contracted) for d in free)
    if last in batch or short:
        x.order = (*batch, *free, *contracted)


def _tiny(b: Builder, left: View, y: Any, numbers: DotDimensionNumbers, out: ArrayType) -> tiny.TinyProducts | None:
    """The kernel of many matrices that vectors hold, if these are such."""
    (xc, _), (xb, _) = numbers
    batch = math.prod(left.shape[i] for i in xb)
    if len(xc) > 1 or batch < LEAST or not 2 <= out.size // batch <= tiny.LANES or isa.current().reproducible:
        return None
    right = b.view(y)
    if left.dtype not in tiny.DTYPES or not left.dtype == right.dtype == out.dtype:
        return None
    s = space(left, right, numbers, [])
    if max(map(len, (s.batch, s.rows, s.columns))) > 1 or not s.batch:
        return None
    one = ContractionDim(1, 0, 0, ())
    (side,), (m,), (n,) = s.batch, s.rows or [one], s.columns or [one]
    by = (side.left, m.left, s.depth.left), (side.right, s.depth.right, n.right)
    size = left.dtype.itemsize
    deep = s.depth.size > NEAR and 1 in (m.size, n.size)
    if deep or any(k % size for strides in by for k in strides):
        return None
    first, second = ((a // size, c // size, d // size) for a, c, d in by)
    kernel = tiny.TinyProducts(left.dtype, batch, m.size, s.depth.size, n.size, first, second)
    return kernel if kernel.group else None


def _by_elements(x: ArrayType, y: ArrayType, numbers: DotDimensionNumbers, out: ArrayType) -> bool:
    """Whether many sums have few terms each, and one operand is a vector for each matrix of the other.

    A kernel for products would spend most of its time on the begins and ends of sums. As operations on elements they
    fill vectors and become part of what follows.
    """
    (xc, _), (xb, _) = numbers
    batch, depth = (math.prod(x.shape[i] for i in axes) for axes in (xb, xc))
    if batch * depth not in (x.size, y.size) or out.size < LEAST or isa.current().reproducible:
        return False
    most = NEAR if batch < LEAST else SHORT if out.size > batch else LONG
    return 1 < depth <= most and all(a.dtype in SUMS for a in (x, y, out))


def _elements(b: Builder, left: View, right: View, numbers: DotDimensionNumbers, out: ArrayType) -> Lazy:
    """The sums of products of elements; sums of few are written out."""
    (xc, yc), (xb, yb) = numbers
    xf, yf = free(len(left.shape), xc, xb), free(len(right.shape), yc, yb)
    deep = tuple(left.shape[i] for i in xc)
    sums = sums_of(left.dtype, right.dtype, out.dtype, math.prod(deep))
    whole = math.prod(deep) > NEAR
    shape = (*out.shape, *deep) if whole else out.shape

    def converted(x: Lazy, dtype: DType) -> Lazy:
        params = (("dtype", dtype),)
        return x if x.dtype == dtype else Map(convert_element_type, params, (x,), x.shape, dtype)

    def elements(v: View, batch: Axes, own: Axes, first: int, contracted: Axes, at: Sequence[Affine]) -> Lazy:
        places: list[Affine] = [FIXED] * len(v.shape)
        for to, d in [*enumerate(batch), *enumerate(own, first)]:
            places[d] = (0, ((to, 1),))
        for d, place in zip(contracted, at, strict=True):
            places[d] = place
        return converted(indexed(LazyLeaf(v), shape, tuple(places)), sums)

    def term(at: Sequence[Affine]) -> Lazy:
        n, m = len(xb), len(xb) + len(xf)
        return Map(mul, (), (elements(left, xb, xf, n, xc, at), elements(right, yb, yf, m, yc, at)), shape, sums)

    if whole:
        axes = tuple(range(len(out.shape), len(shape)))
        total: Lazy = LazyReduce("add", term([(0, ((d, 1),)) for d in axes]), axes, bytes(sums.itemsize))
    else:
        first, *rest = (term([(k, ()) for k in at]) for at in np.ndindex(*deep))
        total = reduce(lambda y, x: Map(add, (), (y, x), shape, sums), rest, first)
    return lowered(b, converted(total, out.dtype))


def _narrow(b: Builder, y: Any, numbers: DotDimensionNumbers, left: View) -> View | None:
    """A right operand that is narrower numbers converted to float32: as these, where kernels convert what they read.

    A matrix that is read once for a few rows takes the time of its bytes, and there are fewer of them.
    """
    narrow = converted_from(y)
    if narrow is None or y.dtype != dtypes.float32:
        return None
    (xc, yc), (xb, yb) = numbers
    rows = math.prod(left.shape[i] for i in free(len(left.shape), xc, xb))
    if narrow.dtype not in NARROW or left.dtype != dtypes.float32 or not 1 <= rows <= max(gemv.MOST.values()):
        return None
    if isa.current().reproducible:
        return None
    columns = free(len(y.shape), yc, yb)
    if len(columns) != 1 or len(yc) != 1:
        return None
    v = b.view(narrow)
    size = v.dtype.itemsize
    lies = "columns" if v.strides[columns[0]] == size else "depth" if v.strides[yc[0]] == size else None
    return v if lies and rows <= gemv.MOST[lies] else None


def _complex(b: Builder, x: View, y: View, numbers: DotDimensionNumbers, type: ArrayType) -> View:
    out = b.new(type)
    part = dtypes.real_part(type.dtype)
    real = real_numbers(numbers, len(x.shape))
    contraction(b, parts(x), squares(b, y, numbers), real, part, identity(part), [], [parts(out)])
    return out


def check(left: DType, right: DType, out: DType) -> None:
    """Raise `NoKernel` for dtypes whose products have no kernel."""
    for d in (left, right, out):
        if d in dtypes.COMPLEX or d == dtypes.bool_ or not convert.known(d):
            raise NoKernel(f"no products of {d.name}")


@final
@dataclass(frozen=True, slots=True)
class PackedOperand:
    """A right operand whose numbers are known, dense: it may be packed now, and need not be stored as it is."""

    array: NDArray

    def view(self, b: Builder) -> View:
        return b.const(self.array)

    @property
    def outline(self) -> View:
        """A view that names no memory yet."""
        a = self.array
        return View(Ref(Buffer(a.nbytes, "const")), a.shape, dense_strides(a.shape, a.dtype), a.dtype)


def known(x: Any) -> PackedOperand | None:
    """What is known when the program is lowered."""
    return PackedOperand(np.asarray(x, order="C")) if isinstance(x, np.ndarray | np.generic) else None


@final
@dataclass(frozen=True, slots=True)
class ContractionDim:
    """A dimension of a contraction: its size, and bytes in left, right, then the others; 0 where it is not there."""

    size: int
    left: int
    right: int
    others: tuple[int, ...]

    @property
    def strides(self) -> tuple[int, ...]:
        return (self.left, self.right, *self.others)

    @property
    def flipped(self) -> ContractionDim:
        return ContractionDim(self.size, self.right, self.left, self.others)


def joined(dims: Sequence[ContractionDim]) -> list[ContractionDim]:
    """Neighbours that are one run in all views as one dimension; sizes of 1 vanish."""
    found: list[ContractionDim] = []
    for d in dims:
        if d.size == 1:
            continue
        if found and all(a == s * d.size for a, s in zip(found[-1].strides, d.strides, strict=True)):
            found[-1] = ContractionDim(found[-1].size * d.size, d.left, d.right, d.others)
        else:
            found.append(d)
    return found


@final
@dataclass(frozen=True, slots=True)
class ContractionSpace:
    """A contraction's dimensions, joined: several of each kind are left where views do not allow fewer."""

    batch: list[ContractionDim]
    rows: list[ContractionDim]
    columns: list[ContractionDim]
    depth: ContractionDim

    @property
    def flipped(self) -> ContractionSpace:
        """With the operands in the other order."""
        turned = lambda dims: [d.flipped for d in dims]
        return ContractionSpace(turned(self.batch), turned(self.columns), turned(self.rows), self.depth.flipped)


def space(left: View, right: View, numbers: DotDimensionNumbers, others: Sequence[View]) -> ContractionSpace:
    """``others`` are views of the product's shape; contracted dimensions are one run in each operand."""
    (xc, yc), (xb, yb) = numbers
    xf, yf = free(len(left.shape), xc, xb), free(len(right.shape), yc, yb)
    n, m = len(xb), len(xf)

    def dim(size: int, x: int | None, y: int | None, place: int) -> ContractionDim:
        rest = tuple(v.strides[place] for v in others)
        return ContractionDim(size, 0 if x is None else left.strides[x], 0 if y is None else right.strides[y], rest)

    none = (0,) * len(others)
    deep = joined(
        [ContractionDim(left.shape[i], left.strides[i], right.strides[j], none) for i, j in zip(xc, yc, strict=True)]
    )
    flat = ContractionDim(math.prod(left.shape[i] for i in xc), left.dtype.itemsize, right.dtype.itemsize, none)
    return ContractionSpace(
        joined([dim(left.shape[i], i, j, p) for p, (i, j) in enumerate(zip(xb, yb, strict=True))]),
        joined([dim(left.shape[i], i, None, n + p) for p, i in enumerate(xf)]),
        joined([dim(right.shape[j], None, j, n + m + p) for p, j in enumerate(yf)]),
        deep[0] if deep and flat.size else flat,
    )


def contraction(
    b: Builder,
    left: View,
    right: View | PackedOperand,
    numbers: DotDimensionNumbers,
    product: DType,
    expression: Expression,
    operands: Sequence[View],
    outs: Sequence[View],
    *,
    narrow: bool = False,
) -> None:
    """Add the kernels that compute ``expression`` of the product and ``operands`` into ``outs``.

    ``product`` is the dtype of a sum of products; ``operands`` and ``outs`` are views of the product's shape.
    ``narrow``: integers of 16 bits are differences of bytes.
    """
    if not outs[0].size:
        return
    (xc, yc), (xb, yb) = numbers
    left = _one_run(b, left, xc, xb)
    if isinstance(right, PackedOperand) and len(_run(right.outline, yc)) > 1:
        right = right.view(b)
    right = right if isinstance(right, PackedOperand) else _one_run(b, right, yc, yb)

    def again(operands: Sequence[View], outs: Sequence[View]) -> None:
        contraction(b, left, right, numbers, product, expression, operands, outs, narrow=narrow)

    outline = right.outline if isinstance(right, PackedOperand) else right
    s = space(left, outline, numbers, [*operands, *outs])
    _Products(b, product, expression, operands, outs, again, narrow).write(left, right, s)


def _run(x: View, axes: Axes) -> list[ContractionDim]:
    return joined([ContractionDim(x.shape[i], x.strides[i], 0, ()) for i in axes])


def _one_run(b: Builder, x: View, contracted: Axes, batch: Axes) -> View:
    """``x`` such that its contracted dimensions, in order, are one run; copied if need be."""
    if len(_run(x, contracted)) <= 1:
        return x
    order = (*batch, *free(len(x.shape), contracted, batch), *contracted)
    dense = b.dense(View(x.ref, tuple(x.shape[i] for i in order), tuple(x.strides[i] for i in order), x.dtype))
    return View(dense.ref, x.shape, tuple(dense.strides[order.index(i)] for i in range(len(order))), x.dtype)


@final
@dataclass(frozen=True, slots=True)
class MatrixProducts:
    """A batch of products of matrices: the operands, one dimension of each kind, and what follows.

    Attributes:
        batch: dimensions along which products are side by side.
        m, n, depth: rows, columns, and what is summed over.
    """

    left: View
    right: View | PackedOperand
    batch: list[ContractionDim]
    m: ContractionDim
    n: ContractionDim
    depth: ContractionDim
    end: Epilogue

    @property
    def dtype(self) -> DType:
        """Of the right operand."""
        return self.right.array.dtype if isinstance(self.right, PackedOperand) else self.right.dtype

    @property
    def sums(self) -> DType:
        return sums_of(self.left.dtype, self.dtype, self.end.product, self.depth.size)

    def stored(self, b: Builder) -> View:
        """The right operand in memory."""
        return self.right.view(b) if isinstance(self.right, PackedOperand) else self.right


@final
class _Products:
    """Writes the kernels of one contraction; ``again`` writes it for other operands and results of the epilogue.

    ``part``: the sums are of a part of the depth.
    """

    def __init__(
        self,
        b: Builder,
        product: DType,
        expression: Expression,
        operands: Sequence[View],
        outs: Sequence[View],
        again: Callable[[Sequence[View], Sequence[View]], None],
        narrow: bool,
        part: bool = False,
    ) -> None:
        self.b, self.product, self.expression = b, product, expression
        self.operands, self.outs, self.again, self.narrow = operands, outs, again, narrow
        self.part = part
        self.nothing = ContractionDim(1, 0, 0, (0,) * (len(operands) + len(outs)))

    def beside(self, d: ContractionDim) -> bool:
        """Whether results lie side by side along ``d``."""
        strides = d.others[len(self.operands) :]
        return all(s == v.dtype.itemsize for s, v in zip(strides, self.outs, strict=True))

    def packed_before(self, right: View | PackedOperand) -> bool:
        """Whether packing an operand takes no time when the program runs."""
        return isinstance(right, PackedOperand) or self.b.is_held(right)

    def write(self, left: View, right: View | PackedOperand, s: ContractionSpace) -> None:
        if not any(map(self.beside, s.columns)):
            if any(map(self.beside, s.rows)):
                right = right.view(self.b) if isinstance(right, PackedOperand) else right
                self.cut(right, left, s.flipped)
                return
            if s.rows or s.columns:
                self.by_copy()
                return
        self.cut(left, right, s)

    def cut(self, left: View, right: View | PackedOperand, s: ContractionSpace) -> None:
        """One dimension of each kind, all others in the batch."""
        rows, columns = list(s.rows) or [self.nothing], list(s.columns) or [self.nothing]
        n = max(columns, key=lambda d: (self.beside(d), d.size))
        m = max(rows, key=lambda d: d.size)
        columns.remove(n)
        rows.remove(m)
        kept: list[Operand] = []
        for v, stride in zip(self.operands, n.others[: len(self.operands)], strict=True):
            if stride not in (0, v.dtype.itemsize):
                self.by_copy()
                return
            kept.append(Operand(v.dtype, stride != 0))
        end = Epilogue(self.product, self.expression, tuple(kept))
        self.one(MatrixProducts(left, right, [*s.batch, *rows, *columns], m, n, s.depth, end))

    def one(self, p: MatrixProducts) -> None:
        """A batch of products of matrices, by the kernel for so many rows."""
        # Integers give the same in any order, and pairs of them take fewer instructions.
        whole = self.narrow and self.packed_before(p.right)
        # Where sums must not hang on how many rows there are, all products are summed by one kind of kernel.
        few = not whole and not isa.current().reproducible
        if not few or not self.few_rows(p):
            self.matrices(p)

    def by_copy(self) -> None:
        """Operands as dense copies, results into dense memory and moved."""
        b = self.b
        made = [b.new(ArrayType(v.shape, v.dtype)) for v in self.outs]
        self.again([b.dense(v) for v in self.operands], made)
        for v, out in zip(made, self.outs, strict=True):
            b.call(Move(v.shape, v.strides, out.strides, v.dtype.itemsize), [v], [out])

    def matrices(self, p: MatrixProducts) -> None:
        b, m, n, depth = self.b, p.m, p.n, p.depth
        made = plan(
            isa.current(),
            m.size,
            n.size,
            depth.size,
            Matrix(p.left.dtype, m.left, depth.left),
            Matrix(p.dtype, n.right, depth.right),
            p.end,
            m.others,
            [BatchAxis(d.size, d.left, d.right, d.others) for d in p.batch],
            constant=self.packed_before(p.right),
            narrow=self.narrow,
            again=b.inside > 0,  # what no turn changes is packed before the loop (`lower.cpu.invariant`)
        )
        pieces = gemv.parts_of(depth.size, knobs.GEMM_DEPTH() or NARROW_DEPTH, p.sums)
        if not (self.part or isa.current().reproducible):
            pieces = max(pieces, made.pieces)
        if pieces > 1:
            self.in_pieces(p, pieces)
            return
        right = p.right
        if made.pack is None:
            right = p.stored(b)
        elif isinstance(right, PackedOperand):
            dims = [*(d for d in p.batch if d.right), depth, n]
            sizes, strides = [d.size for d in dims], [d.right for d in dims]
            right = b.const(panels_of(np.lib.stride_tricks.as_strided(right.array, sizes, strides), made.pack))
        else:
            packed = b.new(ArrayType((made.bytes,), dtypes.uint8))
            b.call(made.pack, [right], [packed])
            right = packed
        b.call(made.product, [p.left, right, *self.operands], self.outs)

    def few_rows(self, p: MatrixProducts) -> bool:
        """A product with few rows by `gemv`, if its matrix lies right for that."""
        b, left, m, n, depth, dtype, sums = self.b, p.left, p.m, p.n, p.depth, p.dtype, p.sums
        along = "columns" if n.right == dtype.itemsize else "depth" if depth.right == dtype.itemsize else None
        small = p.batch and depth.size * n.size <= 1 << 16 and dtype not in BYTES
        if along is None or (along == "columns" and small) or m.size > gemv.MOST[along]:
            return False
        pieces = gemv.pieces_for(along, depth.size, n.size * dtype.itemsize, sums, bool(p.batch))
        if pieces > 1:
            self.in_pieces(p, pieces)
            return True
        few, steps, row = left, [d.left for d in p.batch], m.left
        if depth.left != left.dtype.itemsize:
            sizes = (*(d.size if d.left else 1 for d in p.batch), m.size, depth.size)
            few = b.dense(View(left.ref, sizes, (*steps, m.left, depth.left), left.dtype))
            steps = [s if d.left else 0 for s, d in zip(few.strides, p.batch, strict=False)]
            row = few.strides[-2]
        kernel = gemv.Gemv(
            m.size,
            left.dtype,
            dtype,
            sums,
            along,
            n.size,
            depth.size,
            gemv.block_for(along, n.size, depth.size, self.part),
            row,
            n.right if along == "depth" else depth.right,
            m.others,
            p.end,
            tuple((d.size, s, d.right, *d.others) for d, s in zip(p.batch, steps, strict=True)),
        )
        b.call(kernel, [few, p.stored(b), *self.operands], self.outs)
        return True

    def in_pieces(self, p: MatrixProducts, pieces: int) -> None:
        """Products of ``pieces`` of the depth, and the sum of those.

        Long sums lose digits. Memory gives long runs much faster than short ones, and this leaves rows of a large
        matrix whole for any number of threads.
        """
        b, right, sums, m, n, depth = self.b, p.stored(self.b), p.sums, p.m, p.n, p.depth
        deep = -(-depth.size // pieces)
        whole, rest = divmod(depth.size, deep)
        shape = (whole + (rest > 0), *(d.size for d in p.batch), m.size, n.size)
        parts = b.new(ArrayType(shape, sums))
        part = _Products(b, sums, identity(sums), [], [parts], self.again, self.narrow, True)
        steps = (deep * depth.left, deep * depth.right, parts.strides[0])
        *inner, row, column = (
            ContractionDim(d.size, d.left, d.right, (step,))
            for d, step in zip((*p.batch, m, n), parts.strides[1:], strict=True)
        )
        for first, times, size in ((0, whole, deep), (whole, 1, rest)):
            if size:
                x, y, out = (_after(v, first * step) for v, step in zip((p.left, right, parts), steps, strict=True))
                part.outs = [out]
                turns = [ContractionDim(times, steps[0], steps[1], steps[2:])] if times > 1 else []
                sizes = ContractionDim(size, depth.left, depth.right, ())
                part.one(MatrixProducts(x, y, [*turns, *inner], row, column, sizes, plain(sums)))
        # The sum of the parts: each row of the result is ones times the parts of that row.
        kernel = gemv.Gemv(
            1,
            sums,
            sums,
            sums,
            "columns",
            n.size,
            shape[0],
            gemv.block_for("columns", n.size, shape[0], True),
            0,
            parts.strides[0],
            (0,) * len(m.others),
            p.end,
            tuple((d.size, 0, step, *d.others) for d, step in zip((*p.batch, m), parts.strides[1:-1], strict=True)),
        )
        b.call(kernel, [b.const(np.ones(shape[0], sums)), parts, *self.operands], self.outs)


def _after(v: View, offset: int) -> View:
    """``v`` so many bytes further on."""
    return View(Ref(v.ref.buffer, v.ref.offset + offset, v.ref.moves), v.shape, v.strides, v.dtype)
