"""What a region computes, found out: the one operation that it is, or how it orders its arguments.

Bodies that only compare, select and combine truth values do the same for all arguments that compare in the same way, so
a table of values that covers every way to compare decides what they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.stablehlo.module import Splat
from nxjax.ops.arithmetic import add
from nxjax.ops.base import like
from nxjax.ops.compare import ne
from nxjax.ops.complex import imag, real
from nxjax.ops.convert import convert_element_type
from nxjax.ops.select import select_n
from nxjax.stablehlo.bits import descending, order_bits
from nxjax.stablehlo.walk import Block, Operation, Scope
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import EVAL, Array, use
from nxjax.trace.types import ArrayType
from nxjax.transforms.vmap import vmap

MONOIDS: Final = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def monoid(block: Block) -> str | None:
    """The operation of a body that is one, of its two arguments in order or, where that is no difference, swapped."""
    if len(block.arguments) != 2 or len(block.operations) != 1 or len(block.results) != 1:
        return None
    (op,) = block.operations
    name = op.name.removeprefix("stablehlo.")
    if name not in MONOIDS or op.results[0] is not block.results[0]:
        return None
    if op.operands == block.arguments:
        return name
    return name if op.operands == block.arguments[::-1] else None


def monoids(block: Block) -> list[str] | None:
    """For n pairs of arguments (all of the first, then all of the second): the operation of each pair, if it is one."""
    n = len(block.results)
    if len(block.arguments) != 2 * n or any(
        op.name.removeprefix("stablehlo.") not in MONOIDS for op in block.operations
    ):
        return None
    made = {op.results[0]: op for op in block.operations}
    if len(block.operations) != n:
        return None
    found: list[str] = []
    for i, v in enumerate(block.results):
        op = made.get(v)
        if op is None:
            return None
        name, pair = op.name.removeprefix("stablehlo."), [block.arguments[i], block.arguments[n + i]]
        if op.operands not in (pair, pair[::-1]):
            return None
        found.append(name)
    return found


def gives_argument(block: Block, i: int) -> bool:
    """Whether the body has one result, its argument ``i``."""
    return len(block.results) == 1 and block.results[0] is block.arguments[i]


_ORDERING: Final = frozenset(
    f"stablehlo.{name}" for name in ("compare", "select", "and", "or", "not", "xor", "constant", "real", "imag")
)


def _operations(block: Block) -> Iterator[Operation]:
    for op in block.operations:
        yield op
        for region in op.regions:
            yield from _operations(region)


def only_orders(block: Block) -> bool:
    """Whether the body only compares and selects; values from outside are none of its business."""
    inside = {v for op in block.operations for v in op.results} | set(block.arguments)
    return all(op.name in _ORDERING and all(v in inside for v in op.operands) for op in block.operations)


def probes(block: Block, dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """Values of a dtype that lie on, below, above and between the constants of a body and the ends of the dtype."""
    found: list[Any] = [0, 1, 2]
    for op in _operations(block):
        if op.name == "stablehlo.constant":
            data = op.attributes["value"]
            data = data.value if isinstance(data, Splat) else data
            if data.dtype == dtype:
                found += data.reshape(-1)[:8].tolist()
    if dtype == dtypes.bool_:
        return np.array([False, True])
    if dtype in dtypes.COMPLEX:
        part = probes(Block([], [], []), dtypes.real_part(dtype))
        return np.array([complex(a, b) for a, b in itertools.product(part[[0, 1, 3, -1]], repeat=2)], dtype)
    if dtype in dtypes.FLOAT:
        values = np.array([*found, -1, -0.0, 0.5, -2, np.inf, -np.inf, np.nan], np.float64).astype(dtype)
        return np.unique(values.view(f"u{dtype.itemsize}")).view(dtype)
    info = dtypes.integer_info(dtype)
    values = [v for v in (*found, -1, -2, 3, int(info.min), int(info.max)) if int(info.min) <= v <= int(info.max)]
    return np.unique(np.array(values, np.int64 if info.min < 0 else np.uint64)).astype(dtype)


def evaluated(scope: Scope, block: Block, columns: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The body of each row of ``columns``, computed now."""
    with use(EVAL):
        function: Any = vmap(lambda *xs: tuple(scope.function(block)(*xs)))
        return [y.numpy() for y in function(*(wrap(c) for c in columns))]


def _rows(tables: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Every combination of entries, a column per table."""
    grid = np.meshgrid(*tables, indexing="ij")
    return [np.ascontiguousarray(g.reshape(-1)) for g in grid]


class ComparedKey:
    """A sort key: an operand, how its values are ordered, and whether from the top."""

    def __init__(self, operand: int, mode: str, down: bool) -> None:
        self.operand = operand
        self.mode = mode
        self.down = down

    def columns(self, x: Array) -> list[Array]:
        """The operand as keys for nxjax's `sort`, which are compared in turn."""
        if x.dtype in dtypes.COMPLEX:
            return [c for part in (real(x), imag(x)) for c in self.columns(part)]
        if x.dtype == dtypes.bool_:
            x = convert_element_type(x, dtype=dtypes.int32)
        if x.dtype in dtypes.FLOAT:
            if self.mode == "total" or self.down:
                if self.mode != "total":
                    x = _canonical(x)
                x = order_bits(x)
            else:
                return [x]
        return [descending(x)] if self.down else [x]


def _canonical(x: Array) -> Array:
    """One NaN, above all, and one zero."""
    x = add(x, like(x, 0))
    return select_n(ne(x, x), x, like(x, np.nan))


def sort_keys(scope: Scope, block: Block) -> list[ComparedKey] | None:
    """The keys of a sort comparator (arguments in pairs, one per operand), or None if it is no such order."""
    pairs = len(block.arguments) // 2
    if not only_orders(block) or len(block.results) != 1:
        return None
    used = {v for op in block.operations for v in op.operands}
    read = [i for i in range(pairs) if block.arguments[2 * i] in used or block.arguments[2 * i + 1] in used]
    if not read or len(read) > 4:
        return None
    types: Any = [block.arguments[2 * i].type for i in read]
    tables = [probes(block, t.dtype) for t in types]
    limit = {1: 64, 2: 14, 3: 6, 4: 4}[len(read)]
    rng = np.random.default_rng(0)
    tables = [t if len(t) <= limit else _thinned(t, limit, rng) for t in tables]
    columns = _rows([t for t in tables for _ in (0, 1)])
    given: list[np.ndarray[Any, Any]] = []
    for i in range(pairs):
        t = block.arguments[2 * i].type
        assert isinstance(t, ArrayType)
        for side in (0, 1):
            j = read.index(i) if i in read else None
            given.append(columns[2 * j + side] if j is not None else np.zeros(len(columns[0]), t.dtype))
    truth = evaluated(scope, block, given)[0]
    nan = np.zeros(len(truth), np.bool_)
    for c in columns:
        if c.dtype in dtypes.INEXACT:
            nan |= np.asarray(c != c)
    for count in range(1, len(read) + 1):
        for order in itertools.permutations(range(len(read)), count):
            for down, mode in itertools.product((False, True), ("float", "total", "loose")):
                keys = [ComparedKey(read[i], "total" if mode == "total" else "float", down) for i in order]
                expected = _less(keys, order, columns)
                agree = truth == expected
                if bool(np.all(agree | nan) if mode == "loose" else np.all(agree)):
                    return keys
    return None


def _thinned(table: np.ndarray[Any, Any], n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Some of the values: zeros of both signs and a NaN among them, where there are any."""
    if table.dtype not in dtypes.FLOAT:
        return table[np.sort(rng.choice(len(table), n, replace=False))]
    wanted = np.array([0.0, -0.0, np.nan, 1.0, -1.0, np.inf][:n]).astype(table.dtype)
    return wanted


def _less(
    keys: Sequence[ComparedKey], order: Sequence[int], columns: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """Whether the first of each pair comes before the second, by these keys in turn."""
    n = len(columns[0])
    less, equal = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    for key, i in zip(keys, order, strict=True):
        with use(EVAL):
            left, right = (key.columns(wrap(columns[2 * i + side])) for side in (0, 1))
        for a, b in zip(left, right, strict=True):
            p, q = (_ranked(v.numpy()) for v in (a, b))
            less |= equal & (p < q)
            equal &= p == q
    return less


def _ranked(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers in the order of nxjax's `sort`: NaNs last and equal."""
    if x.dtype not in dtypes.FLOAT:
        return x
    wide = x.astype(np.float64)
    return np.where(np.isnan(wide), 2.0, np.where(np.isinf(wide), np.sign(wide) * 1.5, np.arctan(wide) / 2))


def extremum(scope: Scope, block: Block, order: tuple[int, int] = (0, 1)) -> str | None:
    """``argmax`` or ``argmin`` for a body that keeps the first extremum of (value, index) pairs; NaN is extreme."""
    if len(block.arguments) != 4 or len(block.results) != 2 or not only_orders(block):
        return None
    value, index = (block.arguments[i].type for i in order)
    assert isinstance(value, ArrayType) and isinstance(index, ArrayType)
    if index.dtype not in dtypes.INTEGER or value.dtype in dtypes.COMPLEX:
        return None
    xs, places = probes(block, value.dtype), np.array([0, 1, 2], index.dtype)
    # Equal elements have different indices, or are one.
    a, i, b, j = _rows([xs, places, xs, places])
    given = [a, i] if order == (0, 1) else [i, a]
    given += [b, j] if order == (0, 1) else [j, b]
    ys = evaluated(scope, block, given)
    y, k = ys[order[0]], ys[order[1]]
    wide_a, wide_b = (v.astype(np.float64) if v.dtype in dtypes.FLOAT else v for v in (a, b))
    float_ = value.dtype in dtypes.FLOAT
    nan_a, nan_b = (np.isnan(v) if float_ else np.zeros(len(a), np.bool_) for v in (wide_a, wide_b))
    for name, better in (("argmax", wide_a > wide_b), ("argmin", wide_a < wide_b)):
        equal = (wide_a == wide_b) | (nan_a & nan_b)
        first = np.where(nan_a & ~nan_b, True, np.where(nan_b & ~nan_a, False, better | (equal & (i <= j))))
        # Which of two NaNs it was, a body need not mind.
        index_ok = bool(np.all((k == np.where(first, i, j)) | (nan_a & nan_b)))
        chosen = np.where(first, wide_a, wide_b)
        got = y.astype(np.float64) if float_ else y
        if index_ok and bool(np.all((got == chosen) | ((got != got) & (chosen != chosen)))):
            return name
    return None
