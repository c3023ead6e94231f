"""Ops whose portable rule is a few loops around ops: that rule, run on views instead of StableHLO.

`PortableWriter` understands what these rules say: constants, comparisons, `while` with two regions, functions written
in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.lower.ipu.builder import Builder, UnsupportedEquation
from nxjax.lower.ipu.program import VariableView, While
from nxjax.lower.ipu.rules.carry import assign, kept
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops import arithmetic, bitwise, compare, reduce
from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.linalg_base import along_columns, column, diagonal, loop, position_mask, row, t, tril, where, with_row
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

_SIMPLE: Final[dict[str, Any]] = {
    "add": arithmetic.add,
    "subtract": arithmetic.sub,
    "multiply": arithmetic.mul,
    "and": bitwise.and_,
    "or": bitwise.or_,
}
_COMPARE: Final[dict[str, Any]] = {
    "LT": compare.lt,
    "LE": compare.le,
    "GT": compare.gt,
    "GE": compare.ge,
    "EQ": compare.eq,
    "NE": compare.ne,
}


@final
class TypedView:
    """A view with its type."""

    __slots__ = ("type", "view")

    def __init__(self, view: VariableView) -> None:
        self.view = view
        self.type = ArrayType(view.shape, view.dtype)


@final
class PortableWriter:
    """What a portable rule is given as ``b``."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def constant(self, value: Any, type: ArrayType) -> TypedView:
        return TypedView(self.b.constant(np.broadcast_to(np.asarray(value).astype(type.dtype), type.shape)))

    def inline(
        self,
        function: Callable[..., Any],
        xs: Sequence[TypedView],
        params: dict[str, Any] | None = None,
        multi: Any = None,
    ) -> Any:
        y = self.b.inline(function, [x.view for x in xs], **(params or {}))
        return tuple(map(TypedView, y)) if isinstance(y, tuple) else TypedView(y)

    def simple(self, name: str, xs: Sequence[TypedView], out: ArrayType) -> TypedView:
        return self.inline(_SIMPLE[name], xs)

    def compare(self, direction: str, x: TypedView, y: TypedView, out: ArrayType) -> TypedView:
        return self.inline(_COMPARE[direction], (x, y))

    def convert(self, x: TypedView, dtype: Any) -> TypedView:
        return x if x.type.dtype == dtype else self.inline(lambda v: convert_element_type(v, dtype=dtype), (x,))

    def broadcast(self, x: TypedView, shape: tuple[int, ...], dims: Sequence[int] = ()) -> TypedView:
        return self.inline(lambda v: broadcast_in_dim(v, shape=shape, broadcast_dimensions=tuple(dims)), (x,))

    def reduce(self, hlo: str, x: TypedView, init: TypedView, axes: Sequence[int], out: ArrayType) -> TypedView:
        assert hlo == "or", hlo
        return self.inline(lambda v: reduce.reduce_or(v, axes=tuple(axes)), (x,))

    def op(
        self, name: str, xs: Sequence[TypedView], out: Any, attrs: str = "", regions: Sequence[tuple[Any, Any]] = ()
    ) -> Any:
        if name != "stablehlo.while":
            raise UnsupportedEquation(f"tiles have no {name.split('.')[-1]}")
        b = self.b
        (_, test), (_, turn) = regions
        carry = [kept(b, x.view) for x in xs]
        refs = [TypedView(c) for c in carry]
        predicate = b.variable((1,), np.bool_, None, b.fresh("predicate"))
        with b.block() as condition:
            assign(b, [b.reshaped(test(self, *refs).view, (1,))], [predicate.view()])
        with b.block() as body:
            assign(b, [y.view for y in turn(self, *refs)], carry)
        b.steps.append(While(tuple(condition), predicate, tuple(body), b.source))
        return tuple(refs)


def portable(b: Builder, e: Equation, *xs: VariableView) -> Any:
    out = tuple(v.type for v in e.outputs) if e.op.multi else e.outputs[0].type
    y = e.op.stablehlo(PortableWriter(b), out, *map(TypedView, xs), **e.params)
    return tuple(r.view for r in y) if e.op.multi else y.view


# --- what StableHLO has as one operation ---


def cholesky(b: Builder, e: Equation, x: VariableView) -> VariableView:
    """Column by column: the rest of the matrix less the column's product with itself."""
    n = x.shape[-1]
    if not x.size:
        return x

    def step(i: Array, a: Array, l: Array) -> Sequence[Array]:
        c = column(a, i)
        here = position_mask(i, c.shape, c.ndim - 1)
        d = reduce.reduce_sum(where(here, c, zero_like(c)), axes=(c.ndim - 1,))
        root = arithmetic.sqrt(d)
        c = arithmetic.div(c, along_columns(root, c.shape))
        below = compare.ge(positions(c), broadcast_in_dim(i, shape=c.shape, broadcast_dimensions=()))
        c = where(below, c, zero_like(c))
        wide = along_columns(c, a.shape)
        tall = broadcast_in_dim(c, shape=a.shape, broadcast_dimensions=(*range(a.ndim - 2), a.ndim - 1))
        at_i = position_mask(i, a.shape, a.ndim - 1)
        return arithmetic.sub(a, arithmetic.mul(wide, tall)), where(at_i, wide, l)

    w = PortableWriter(b)
    start = b.constant(np.zeros(x.shape, x.dtype))
    _, l = loop(w, n, step, TypedView(x), TypedView(start))

    def finish(l: Array) -> Array:
        # A matrix that is not positive has no factor at all.
        d = diagonal(l)
        total = reduce.reduce_sum(d, axes=(d.ndim - 1,))
        bad = broadcast_in_dim(compare.ne(total, total), shape=l.shape, broadcast_dimensions=tuple(range(l.ndim - 2)))
        return tril(where(bad, constant(np.nan, l.dtype, l.shape), l))

    return b.inline(finish, [l.view])


def positions(c: Array) -> Array:
    return iota(dtype=dtypes.int32, shape=c.shape, dimension=c.ndim - 1)


def zero_like(x: Array) -> Array:
    return constant(0, x.dtype, x.shape)


def triangular_solve(b: Builder, e: Equation, a: VariableView, y: VariableView) -> VariableView:
    """Row by row of the unknown: what the rows before it leave, divided by the diagonal."""
    p = e.params
    n = a.shape[-1]
    if not y.size or not n:
        return y
    lower = p["lower"] != p["transpose_a"]

    def prepare(a: Array, y: Array) -> Sequence[Array]:
        if p["transpose_a"]:
            a = t(a)
        if not p["left_side"]:
            a, y = t(a), t(y)
        return a, y, constant(0, y.dtype, y.shape)

    forward = lower == p["left_side"]
    a, y, x = b.inline(prepare, [a, y])

    def step(i: Array, a: Array, y: Array, x: Array) -> Sequence[Array]:
        k = i if forward else arithmetic.sub(constant(n - 1, i.dtype), i)
        r = row(a, k)
        here = position_mask(k, r.shape, r.ndim - 1)
        d = reduce.reduce_sum(where(here, r, zero_like(r)), axes=(r.ndim - 1,))
        # Rows that come later are still zero.
        products = arithmetic.mul(along_columns(r, x.shape), x)
        found = arithmetic.sub(row(y, k), reduce.reduce_sum(products, axes=(x.ndim - 2,)))
        if not p["unit_diagonal"]:
            found = arithmetic.div(found, along_columns(d, found.shape))
        return a, y, with_row(x, k, found)

    _, _, x = (r.view for r in loop(PortableWriter(b), n, step, TypedView(a), TypedView(y), TypedView(x)))
    return x if p["left_side"] else b.inline(t, [x])


RULES: Final = {
    **dict.fromkeys(
        (
            "lu",
            "lu_pivots_to_permutation",
            "geqrf",
            "householder_product",
            "eigh",
            "svd",
            "igamma",
            "igammac",
            "igamma_grad_a",
            "random_gamma_grad",
            "regularized_incomplete_beta",
        ),
        Rule(portable),
    ),
    "cholesky": Rule(cholesky),
    "triangular_solve": Rule(triangular_solve),
}
