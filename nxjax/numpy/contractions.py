"""Sums of products: dot, matmul, tensordot, einsum, inner, outer, kron, trace, cross. All by `dot_general`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.config import config
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.documented import example
from nxjax.numpy.eager import product
from nxjax.numpy.promotion import as_axis, broadcast_shape, broadcast_to_shape, convert, promote, reject_out, static_int
from nxjax.ops import vocabulary as ops
from nxjax.ops.precision import PrecisionLike, canonical_precision
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType


def _preferred(preferred: Any) -> DType | None:
    return None if preferred is None else dtypes.as_dtype(preferred)


def of_other_kind(x: Array, y: Array, preferred: DType | None) -> tuple[Array, Array, DType | None]:
    """Operands for sums in a dtype of another kind, and that dtype; None where the result is to be converted to it.

    Booleans are summed as what is preferred; sums of floats are floats first, even where integers are preferred.
    """
    if preferred is None or preferred not in dtypes.NUMERIC:
        return x, y, preferred
    if x.dtype == dtypes.bool_ and preferred != x.dtype:
        return convert(x, preferred), convert(y, preferred), preferred
    fits = preferred in dtypes.COMPLEX if x.dtype in dtypes.COMPLEX else preferred in dtypes.INEXACT
    return x, y, preferred if fits or x.dtype not in dtypes.INEXACT else None


def _operands(where: str, a: Any, b: Any) -> tuple[Array, Array]:
    x, y = promote(where, a, b)
    if x.dtype not in dtypes.NUMERIC:
        raise DtypeError(f"{where}: does not take this dtype", got=x.type)
    return x, y


def _dot(
    x: Array,
    y: Array,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    precision: Any = None,
    preferred: DType | None = None,
    where: str = "dot",
) -> Array:
    (xc, yc), (xb, yb) = contract, batch
    if [x.shape[i] for i in xc] != [y.shape[i] for i in yc]:
        raise ShapeError(
            f"{where}: contracting dimensions differ in size",
            got=f"{x.type} over {tuple(xc)} and {y.type} over {tuple(yc)}",
            expected="equal sizes",
            fix="transpose or reshape one operand",
        )
    x, y, sums = of_other_kind(x, y, preferred)
    out = ops.dot_general(
        x,
        y,
        dimension_numbers=((tuple(xc), tuple(yc)), (tuple(xb), tuple(yb))),
        precision=canonical_precision(precision),
        preferred_element_type=sums,
    )
    return out if preferred is None else convert(out, preferred)


def _product(x: Array, y: Array, preferred: DType | None) -> Array:
    out = jnp.multiply(x, y)
    return out if preferred is None else convert(out, preferred)


@example(
    "jnp.array([1, 2]), jnp.array([3, 4])",
    "Array(11, dtype=int32)",
    "jnp.array([100, 100], jnp.int8), jnp.array([100, 100], jnp.int8), preferred_element_type=jnp.int32",
    "Array(20000, dtype=int32)",
    raises="ShapeError: the contracted axes differ in size.",
)
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Sum of products over the last axis of ``a`` and the last but one (or only) axis of ``b``.

    Args:
        a: array; a scalar multiplies.
        b: array; both promote to one numeric dtype.
        precision: None, ``"default"``, ``"high"``, ``"highest"``, or a pair of them. ``"bfloat16"``,
            ``"bfloat16_3x"`` or a `lax.DotAlgorithmPreset`: float32 products are made of bfloat16 ones.
        preferred_element_type: dtype of sums and result.
        out_sharding: has no effect here.
    """
    preferred = _preferred(preferred_element_type)
    x, y = _operands("dot", a, b)
    if not x.ndim or not y.ndim:
        return _product(x, y, preferred)
    return _dot(x, y, ((x.ndim - 1,), (max(0, y.ndim - 2),)), ((), ()), precision, preferred)


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Matrix product over the last two axes; leading axes broadcast, a vector is a row or a column.

    ``precision`` and ``preferred_element_type`` are as for `dot`.

    Raises:
        ShapeError: a scalar, contracted axes of different sizes, or leading axes that do not broadcast.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    >>> jnp.matmul(jnp.ones((5, 1, 2, 3)), jnp.ones((4, 3, 2))).shape
    (5, 4, 2, 2)
    """
    quick = product(a, b) if precision is None and preferred_element_type is None else None
    if quick is not None:
        return quick
    preferred = _preferred(preferred_element_type)
    x, y = _operands("matmul", a, b)
    if not x.ndim or not y.ndim:
        raise ShapeError(
            "matmul: operands have at least one axis", got=f"{x.type} and {y.type}", fix="use * for scalars"
        )
    inner = (x.ndim - 1, max(0, y.ndim - 2))
    if y.ndim <= 2:
        # One matrix for the whole batch: no broadcasting needed.
        return _dot(x, y, ((inner[0],), (inner[1],)), ((), ()), precision, preferred, "matmul")
    if x.shape[-1] != y.shape[inner[1]]:
        _dot(x, y, ((inner[0],), (inner[1],)), where="matmul")
    lead = broadcast_shape("matmul", x.shape[:-2], y.shape[:-2])
    if x.ndim == 1:
        return _dot(y, x, ((y.ndim - 2,), (0,)), ((), ()), precision, preferred, "matmul")
    x = broadcast_to_shape(x, (*lead, *x.shape[-2:]))
    y = broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    n = len(lead)
    batch = tuple(range(n))
    return _dot(x, y, ((n + 1,), (n,)), (batch, batch), precision, preferred, "matmul")


@example("jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [0, 1]])", "Array([[1, 3],\n       [2, 4]], dtype=int32)")
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Matrices ``x1`` (..., m, n) times vectors ``x2`` (..., n); leading axes broadcast.

    Raises:
        ShapeError: too few axes, or sizes that do not fit.
    """
    x, y = _operands("matvec", x1, x2)
    if x.ndim < 2 or y.ndim < 1:
        raise ShapeError("matvec: needs a matrix and a vector", got=f"{x.type} and {y.type}")
    out = matmul(x, ops.reshape(y, shape=(*y.shape, 1)))
    return ops.reshape(out, shape=out.shape[:-1])


@example("jnp.array([1j, 1]), jnp.array([[1, 2], [3, 4]])", "Array([3.-1.j, 4.-2.j], dtype=complex64)")
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Conjugated vectors ``x1`` (..., m) times matrices ``x2`` (..., m, n); leading axes broadcast.

    Raises:
        ShapeError: too few axes, or sizes that do not fit.
    """
    x, y = _operands("vecmat", x1, x2)
    if x.ndim < 1 or y.ndim < 2:
        raise ShapeError("vecmat: needs a vector and a matrix", got=f"{x.type} and {y.type}")
    out = matmul(ops.reshape(jnp.conjugate(x), shape=(*x.shape[:-1], 1, x.shape[-1])), y)
    return ops.reshape(out, shape=(*out.shape[:-2], out.shape[-1]))


@example("jnp.array([1j, 2]), jnp.array([1j, 3])", "Array(7.+0.j, dtype=complex64)")
def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Sum of conj(a) * b over all elements of the flattened operands.

    Args:
        a, b: arrays of as many elements; they promote.
        precision, preferred_element_type: as for `dot`.

    Raises:
        ShapeError: they differ in size.
    """
    return dot(
        jnp.conjugate(jnp.ravel(a)), jnp.ravel(b), precision=precision, preferred_element_type=preferred_element_type
    )


@example("jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1])", "Array([12, 34], dtype=int32)")
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Sum of conj(x1) * x2 along ``axis``; the other axes broadcast.

    Raises:
        ShapeError: the axis differs in size, or the others do not broadcast.
    """
    x, y = _operands("vecdot", x1, x2)
    i, j = as_axis("vecdot", axis, x.ndim), as_axis("vecdot", axis, y.ndim)
    if x.shape[i] != y.shape[j]:
        raise ShapeError("vecdot: the axis differs in size", got=f"{x.type} and {y.type} along {axis}")
    x, y = jnp.moveaxis(x, i, -1), jnp.moveaxis(y, j, -1)
    lead = broadcast_shape("vecdot", x.shape[:-1], y.shape[:-1])
    n = len(lead)
    x = broadcast_to_shape(jnp.conjugate(x), (*lead, x.shape[-1]))
    y = broadcast_to_shape(y, (*lead, y.shape[-1]))
    batch = tuple(range(n))
    return _dot(x, y, ((n,), (n,)), (batch, batch), precision, _preferred(preferred_element_type), "vecdot")


@example("jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1])", "Array([12, 34], dtype=int32)")
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Sum of products over the last axis of both; without conjugation.

    Args:
        a, b: arrays [..., n]; the result has the other axes of both.
        precision, preferred_element_type: as for `dot`.

    Raises:
        ShapeError: the last axes differ in size.
    """
    preferred = _preferred(preferred_element_type)
    x, y = _operands("inner", a, b)
    if not x.ndim or not y.ndim:
        return _product(x, y, preferred)
    return _dot(x, y, ((x.ndim - 1,), (y.ndim - 1,)), ((), ()), precision, preferred, "inner")


@example("jnp.array([1, 2]), jnp.array([3, 4, 5])", "Array([[ 3,  4,  5],\n       [ 6,  8, 10]], dtype=int32)")
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Products of all pairs of elements of the flattened operands."""
    reject_out("outer", out)
    x, y = promote("outer", jnp.ravel(a), jnp.ravel(b))
    return jnp.multiply(ops.reshape(x, shape=(x.size, 1)), ops.reshape(y, shape=(1, y.size)))


def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Sum of products over ``axes``: how many trailing and leading axes, or a list of them for each operand.

    Raises:
        TypeError: ``axes`` does not fit the operands.
        ShapeError: the contracted axes differ in size.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    >>> jnp.tensordot(jnp.array([1, 2]), jnp.array([3, 4]), axes=0)
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    x, y = _operands("tensordot", a, b)
    if isinstance(axes, (tuple, list)) or np.ndim(axes):
        if len(axes) != 2:
            raise TypeError(f"tensordot axes tuple/list must have length 2, got {len(axes)}")
        left, right = ((tuple(s) if isinstance(s, (tuple, list, np.ndarray)) else (s,)) for s in axes)
        xc = tuple(as_axis("tensordot", i, x.ndim) for i in left)
        yc = tuple(as_axis("tensordot", i, y.ndim) for i in right)
        if len(xc) != len(yc):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes}")
    else:
        n = static_int("tensordot", axes)
        if n > min(x.ndim, y.ndim):
            raise TypeError(f"Number of tensordot axes (axes {n}) exceeds input ranks ({x.ndim} and {y.ndim})")
        xc, yc = tuple(range(x.ndim - n, x.ndim)), tuple(range(n))
    return _dot(x, y, (xc, yc), ((), ()), precision, _preferred(preferred_element_type), "tensordot")


@example("jnp.array([1, 10]), jnp.array([1, 2, 3])", "Array([ 1,  2,  3, 10, 20, 30], dtype=int32)")
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Kronecker product: a block of ``b`` for every element of ``a``."""
    x, y = promote("kron", a, b)
    rank = max(x.ndim, y.ndim)
    xs, ys = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    left = ops.reshape(x, shape=tuple(n for m in xs for n in (m, 1)))
    right = ops.reshape(y, shape=tuple(n for m in ys for n in (1, m)))
    out = jnp.multiply(left, right)
    return ops.reshape(out, shape=tuple(m * n for m, n in zip(xs, ys, strict=True)))


def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: None = None
) -> Array:
    """Sum of a diagonal, of the planes along ``axis1`` and ``axis2``; ``offset`` is counted above the main one.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]])), jnp.trace(jnp.array([[1, 2], [3, 4]]), offset=1)
    (Array(5, dtype=int32), Array(2, dtype=int32))
    """
    reject_out("trace", out)
    return jnp.sum(jnp.diagonal(a, offset, axis1, axis2), -1, dtype)


@example(
    "jnp.array([1, 0, 0]), jnp.array([0, 1, 0])",
    "Array([0, 0, 1], dtype=int32)",
    "jnp.array([1, 0]), jnp.array([0, 1])",
    "Array(1, dtype=int32)",
    raises="ShapeError: vectors of other lengths.",
)
def cross(
    a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Cross product of vectors with two or three components; if both have two, only its third component.

    Args:
        a: array whose ``axisa`` has the components.
        b: array whose ``axisb`` has them; the other axes broadcast.
        axisc: where the components of the result are.
        axis: sets ``axisa``, ``axisb`` and ``axisc`` together.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote("cross", a, b)
    x, y = jnp.moveaxis(x, axisa, -1), jnp.moveaxis(y, axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise ShapeError("cross: vectors have 2 or 3 components", got=f"{x.type} and {y.type}")
    a0, a1, b0, b1 = x[..., 0], x[..., 1], y[..., 0], y[..., 1]
    third = a0 * b1 - a1 * b0
    if x.shape[-1] == y.shape[-1] == 2:
        return third
    zero_a, zero_b = a0 * 0, b0 * 0
    a2 = x[..., 2] if x.shape[-1] == 3 else zero_a
    b2 = y[..., 2] if y.shape[-1] == 3 else zero_b
    parts = jnp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, third], -1)
    return jnp.moveaxis(convert(parts, parts.dtype), -1, axisc)


# --- einsum ---


def einsum_path(
    subscripts: str | ArrayLike,
    /,
    *operands: ArrayLike | Sequence[ArrayLike | int],
    optimize: str | bool | Sequence[Any] = "auto",
) -> tuple[list[Any], str]:
    """The order of contractions and a report of its cost, by opt_einsum.

    Returns:
        A list of tuples, which operands to contract next (the result comes last), and a printable report.

    >>> path, report = jnp.einsum_path("ij,jk,k->i", jnp.ones((9, 9)), jnp.ones((9, 9)), jnp.ones(9))
    >>> path
    [(1, 2), (0, 1)]
    """
    import opt_einsum

    optimize = "optimal" if optimize is True else "greedy" if optimize is False else optimize
    return opt_einsum.contract_path(subscripts, *(_shaped(x) for x in operands), optimize=optimize)


def _shaped(x: Any) -> Any:
    return np.broadcast_to(np.float32(0), x.shape) if isinstance(x, Array) else x


def einsum(
    subscripts: str | ArrayLike,
    /,
    *operands: ArrayLike | Sequence[ArrayLike | int],
    out: None = None,
    optimize: str | bool | Sequence[Any] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Array] | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """Einstein's summation: indices named in ``subscripts`` that the result lacks are summed over.

    Several operands are contracted two by two in the order that opt_einsum finds (``optimize``). A repeated index takes
    a diagonal, ``...`` stands for axes that broadcast; ``precision`` and ``preferred_element_type`` are as for `dot`.

    Raises:
        ParameterError: subscripts that do not fit the operands.
        ShapeError: an index with two sizes.

    >>> jnp.einsum("ij,jk->ik", jnp.ones((2, 3)), jnp.ones((3, 4))).shape
    (2, 4)
    >>> jnp.einsum("ii->i", jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    reject_out("einsum", out)
    import opt_einsum

    preferred = _preferred(preferred_element_type)
    if not isinstance(subscripts, str):
        flat = (subscripts, *operands)
        subscripts, _ = opt_einsum.parser.convert_interleaved_input([_shaped(x) for x in flat])
        operands = tuple(flat[0 : 2 * (len(flat) // 2) : 2])
    xs = promote("einsum", *operands) if operands else []
    if not xs:
        raise ParameterError("einsum: needs operands", got=subscripts)
    inputs, output, xs = _parsed(subscripts.replace(" ", ""), xs)
    names = list(inputs)
    sample, _, sums = of_other_kind(xs[0], xs[0], preferred)
    xs = xs if sample is xs[0] else [convert(x, sample.dtype) for x in xs]
    if len(xs) <= 2:
        path: Any = [tuple(range(len(xs)))]
    elif config.reproducible and optimize == "auto":
        path = _by_subscripts(names, output)
    else:
        choice = "optimal" if optimize is True else "greedy" if optimize is False else optimize
        text = f"{','.join(names)}->{output}"
        path, _ = opt_einsum.contract_path(text, *(x.shape for x in xs), optimize=choice, shapes=True)
    for step in path:
        picked = sorted(step, reverse=True)
        terms = [(names.pop(i), xs.pop(i)) for i in picked][::-1]
        later = set(output).union(*names)
        while len(terms) > 1:
            kept = later.union(*(n for n, _ in terms[2:]))
            terms[:2] = [_contract(terms[0], terms[1], kept, precision, sums)]
        names.append(terms[0][0])
        xs.append(terms[0][1])
    name, x = _summed(names[0], xs[0], set(output))
    x = ops.transpose(x, permutation=tuple(name.index(c) for c in output)) if name != output else x
    return x if preferred is None else convert(x, preferred)


def _parsed(text: str, xs: list[Array]) -> tuple[list[str], str, list[Array]]:
    """Subscripts of operands and result with the ellipsis written out, sizes checked, diagonals taken."""
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ParameterError("einsum: subscripts and operands differ in number", got=f"{text!r} for {len(xs)} operands")
    used = set(text)
    spare = [c for c in map(chr, [*range(65, 91), *range(97, 123), *range(0x3B1, 0x3B1 + 200)]) if c not in used]
    widths = [x.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, xs, strict=True)]
    dots = "".join(spare[: max(widths, default=0)])
    full: list[str] = []
    for t, x, w in zip(terms, xs, widths, strict=True):
        name = t.replace("...", dots[len(dots) - w :]) if w >= 0 else t
        if len(name) != x.ndim or "." in name:
            raise ParameterError(
                "einsum: subscripts do not fit the operand",
                got=f"{t!r} for {x.type}",
                expected=f"{x.ndim} letters, and ... for any number of axes",
                fix='write one letter per axis and "->" before the result, such as "ij,jk->ik"',
            )
        if any(c.isascii() and not c.isalnum() for c in name):
            raise ParameterError(
                "einsum: an index is a letter or a digit", got=f"{t!r} in {text!r}", expected="letters, digits and ..."
            )
        full.append(name)
    if arrow:
        output = right.replace("...", dots)
    else:
        joined = "".join(full)
        output = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in dots))
    known = set().union(*full)
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ParameterError("einsum: the result names an index twice, or one that no operand has", got=repr(text))
    sizes: dict[str, int] = {}
    for name, x in zip(full, xs, strict=True):
        for c, n in zip(name, x.shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise ShapeError(
                    f"einsum: index {c!r} has two sizes",
                    got=f"{sizes[c]} and {n} in {text!r} of {', '.join(str(v.type) for v in xs)}",
                    expected="one size per index",
                    fix="transpose an operand, or swap its letters",
                )
            sizes[c] = max(sizes.get(c, 1), n) if n != 0 else 0
    out_x: list[Array] = []
    for k, (name, x) in enumerate(zip(full, xs, strict=True)):
        # An axis of size 1 that others stretch carries no index of its own.
        squeezed = [i for i, c in enumerate(name) if x.shape[i] == 1 and sizes[c] != 1]
        if squeezed:
            x = ops.reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in squeezed))
            name = "".join(c for i, c in enumerate(name) if i not in squeezed)
        while len(set(name)) != len(name):
            name, x = _diagonal_of(name, x)
        full[k] = name
        out_x.append(x)
    return full, output, out_x


def _diagonal_of(name: str, x: Array) -> tuple[str, Array]:
    """One repeated index made single."""
    c = next(c for c in name if name.count(c) > 1)
    i = name.index(c)
    j = name.index(c, i + 1)
    rest = "".join(d for k, d in enumerate(name) if k not in (i, j))
    return rest + c, jnp.diagonal(x, 0, i, j)


def _summed(name: str, x: Array, kept: set[str]) -> tuple[str, Array]:
    """Without the indices that nothing else needs."""
    axes = tuple(i for i, c in enumerate(name) if c not in kept)
    if not axes:
        return name, x
    if x.dtype == dtypes.bool_:
        x = convert(ops.reduce_or(x, axes=axes), dtypes.bool_)
    else:
        x = ops.reduce_sum(x, axes=axes)
    return "".join(c for c in name if c in kept), x


def _by_subscripts(names: Sequence[str], output: str) -> list[tuple[int, int]]:
    """An order of contractions that no size changes, so not a batch's: each next one has the fewest indices.

    >>> _by_subscripts(["ij", "kl", "jk"], "il")
    [(0, 2), (0, 1)]
    """
    left = [set(n) for n in names]
    path: list[tuple[int, int]] = []

    def made(i: int, j: int) -> set[str]:
        return (left[i] | left[j]).intersection(set(output).union(*(s for k, s in enumerate(left) if k not in (i, j))))

    while len(left) > 1:
        pairs = itertools.combinations(range(len(left)), 2)
        i, j = min(pairs, key=lambda p: (len(left[p[0]] | left[p[1]]), len(made(*p)), p))
        path.append((i, j))
        left = [*(s for k, s in enumerate(left) if k not in (i, j)), made(i, j)]
    return path


def _contract(
    left: tuple[str, Array], right: tuple[str, Array], kept: set[str], precision: Any, preferred: DType | None
) -> tuple[str, Array]:
    """Two operands into one: shared indices are batched if needed later, else contracted."""
    (a, x), (b, y) = left, right
    a, x = _summed(a, x, kept | set(b))
    b, y = _summed(b, y, kept | set(a))
    shared = [c for c in a if c in b]
    batch = [c for c in shared if c in kept]
    contract = [c for c in shared if c not in kept]
    for c in shared:
        if x.shape[a.index(c)] != y.shape[b.index(c)]:
            raise ShapeError(
                f"einsum: index {c!r} has two sizes", got=f"{x.shape[a.index(c)]} and {y.shape[b.index(c)]}"
            )
    wanted = preferred if preferred is not None and x.dtype in dtypes.NUMERIC else None
    if wanted is not None and x.dtype != y.dtype:
        x, y = promote("einsum", x, y)
    out = _dot(
        x,
        y,
        (tuple(a.index(c) for c in contract), tuple(b.index(c) for c in contract)),
        (tuple(a.index(c) for c in batch), tuple(b.index(c) for c in batch)),
        precision,
        wanted,
        "einsum",
    )
    name = "".join([*batch, *(c for c in a if c not in shared), *(c for c in b if c not in shared)])
    return name, out
