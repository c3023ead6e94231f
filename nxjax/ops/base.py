"""Families of ops: what elementwise, linear and composite ops have in common, and the checks their `infer` shares.

An op file holds final classes and their single instances; this file holds the abstract classes they derive from.
Names no transform, target or backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import AxisError, DtypeError, NxError, ParameterError, ProgramError, ShapeError
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import EVAL, Array, Arrays, Dims, Op, Tangents, UndefinedPrimal, current_trace, use
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape

NDArray = np.ndarray[Any, Any]
Tangent = Callable[[Array], Array]


# --- checks that infer rules share ---


def equal_shapes(op: Op, *types: ArrayType) -> Shape:
    """The one shape of all operands."""
    first = types[0].shape
    if any(t.shape != first for t in types):
        raise ShapeError(
            f"{op.name}: operands differ in shape",
            got=", ".join(map(repr, types)),
            expected="equal shapes",
            fix="broadcast first, or use the nx.numpy function, which broadcasts",
        )
    return first


def equal_dtypes(op: Op, *types: ArrayType) -> DType:
    """The one dtype of all operands."""
    first = types[0].dtype
    if any(t.dtype != first for t in types):
        raise DtypeError(
            f"{op.name}: operands differ in dtype",
            got=", ".join(map(repr, types)),
            expected="equal dtypes",
            fix="cast with x.astype(...), or use the nx.numpy function, which promotes",
        )
    return first


def check_dtype(op: Op, allowed: frozenset[DType], *types: ArrayType) -> None:
    """Refuse operands whose dtype the op has no meaning for."""
    for t in types:
        if t.dtype not in allowed:
            kinds = {dtypes.FLOAT: "float", dtypes.INEXACT: "float or complex", dtypes.BITS: "integer or bool"}
            expected = kinds.get(allowed) or ", ".join(sorted(dtypes.short_name(d) for d in allowed))
            bools = allowed == dtypes.NUMBER and t.dtype == dtypes.bool_
            raise DtypeError(
                f"{op.name}: does not take this dtype",
                got=t,
                expected="integer, float or complex" if allowed == dtypes.NUMBER else expected,
                fix="x.astype(int) counts with 0 and 1; ~x, x & y, x | y and x ^ y are logic" if bools else None,
            )


def all_weak(*types: ArrayType) -> bool:
    return all(t.weak for t in types)


def check_axis(op: Op | str, axis: int, ndim: int) -> int:
    """``axis`` counted from the front."""
    if not -ndim <= axis < ndim:
        wanted = f"{-ndim} <= axis < {ndim}" if ndim else "no axis, as the array is a scalar"
        raise AxisError(f"{op}: axis is out of range", got=axis, expected=wanted)
    return axis + ndim if axis < 0 else axis


def check_axes(op: Op | str, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Distinct axes, each counted from the front."""
    found = tuple(check_axis(op, a, ndim) for a in axes)
    if len(set(found)) != len(found):
        raise AxisError(f"{op}: an axis is named twice", got=tuple(axes))
    return found


def check_counted_axis(op: Op | str, axis: int, ndim: int) -> int:
    """``axis``, which an op takes counted from the front: code is made from it as it stands."""
    if not 0 <= axis < ndim:
        raise AxisError(
            f"{op}: axis is out of range",
            got=axis,
            expected=f"0 <= axis < {ndim}" if ndim else "no axis, as the array is a scalar",
            fix="the functions of nx.lax and nx.numpy count negative axes from the end" if -ndim <= axis < 0 else None,
        )
    return axis


def check_counted_axes(op: Op | str, axes: Sequence[int], ndim: int) -> Sequence[int]:
    """Distinct axes, each counted from the front."""
    for axis in axes:
        check_counted_axis(op, axis, ndim)
    if len(set(axes)) != len(axes):
        raise AxisError(f"{op}: an axis is named twice", got=tuple(axes))
    return axes


def check_shape(op: Op | str, shape: Sequence[int], what: str = "shape") -> None:
    """Sizes, none of them negative."""
    if shape and min(shape) < 0:
        raise ShapeError(f"{op}: a size is negative", got=f"{what}={tuple(shape)}", expected="0 or more")


def check_operands(op: Op | str, types: Sequence[ArrayType], program: Program, what: str = "program") -> None:
    """Operands that a program held by an op takes."""
    wanted = program.in_types
    if len(types) != len(wanted) or not all(a.typematch(b) for a, b in zip(types, wanted, strict=True)):
        raise ProgramError(f"{op}: operands do not fit the {what}", got=tuple(types), expected=wanted)


def check_carry(op: Op | str, before: Sequence[ArrayType], after: Sequence[ArrayType]) -> None:
    """A step of a loop gives the types that the next step takes."""
    if len(before) != len(after) or not all(a.typematch(b) for a, b in zip(before, after, strict=True)):
        raise ProgramError(f"{op}: the carry changes its types", got=tuple(after), expected=tuple(before))


def check_count(op: Op | str, what: str, count: int, most: int) -> int:
    """How many of ``most`` operands or results are of a kind."""
    if not 0 <= count <= most:
        raise ParameterError(f"{op}: {what}", got=count, expected=f"0 to {most}")
    return count


def require(
    op: Op | str, condition: bool, what: str, got: object = None, expected: object = None, fix: str | None = None
) -> None:
    """A `ParameterError` naming the op unless ``condition``."""
    if not condition:
        raise ParameterError(f"{op}: {what}", got=got, expected=expected, fix=fix)


# --- batching helpers ---


def move_batch(x: Array, dim: int | None, size: int, to: int = 0) -> Array:
    """``x`` with its batch at dimension ``to``; repeated there if it has none."""
    if dim is None:
        shape = (*x.shape[:to], size, *x.shape[to:])
        kept = tuple(i for i in range(len(shape)) if i != to)
        return ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=kept)
    if dim == to:
        return x
    order = [i for i in range(x.ndim) if i != dim]
    order.insert(to, dim)
    return ops.transpose(x, permutation=tuple(order))


def constant(value: Any, dtype: DType, shape: Shape = ()) -> Array:
    """``value`` of ``dtype``, repeated over ``shape``: one literal and one broadcast."""
    x = wrap(dtypes.cast(np.asarray(value), dtype))
    return ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=()) if shape else x


def like(x: Array | UndefinedPrimal | ArrayType, value: Any) -> Array:
    """``value`` in the shape and dtype of ``x``."""
    return constant(value, x.dtype, x.shape)


def zeros(type: ArrayType) -> Array:
    return constant(0, type.dtype, type.shape)


# --- families ---


class Face(NamedTuple):
    """A public function that is an op: its names, its own first; what it says; and a call with what that prints.

    What is left out is the op's: the first line of its docstring, its example. ``outside``: results outside the domain.
    """

    names: str
    line: str = ""
    example: tuple[str, str] | None = None
    outside: str = ""


class Elementwise(Op):
    """Works element by element: operands of one shape, result of that shape.

    Python scalars among the operands take the dtype and shape of the array operands. Public functions are made from
    these attributes. An op with an example has a function in `nxjax.lax`.

    Attributes:
        allowed: dtypes that the operands may have.
        arguments: names of the operands in public functions.
        gives: describes the result, if its dtype is not that of the operands.
        accuracy: whether JAX's function has a keyword of that name.
        example: the arguments of a call, and the text that its result prints.
        lax: the function in `nxjax.lax`, if its name differs from the op's.
        numpy: the function in `nxjax.numpy`, which converts integers to floats.
        scipy: the function in `nxjax.scipy.special`.
    """

    has_faces = True
    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER
    arguments: ClassVar[str] = "x"
    gives: ClassVar[str] = ""
    accuracy: ClassVar[bool] = False
    example: ClassVar[tuple[str, str] | None] = None
    lax: ClassVar[Face | None] = None
    numpy: ClassVar[Face | None] = None
    scipy: ClassVar[Face | None] = None

    def __init__(self) -> None:
        super().__init__()
        for module, face in self.public().items():
            ops.FUNCTIONS.setdefault(module, {}).update(dict.fromkeys(face.names.split(), self.name))

    def public(self) -> dict[str, Face]:
        """Module below `nxjax` -> the function there, with all that it says."""
        lax = self.lax or (Face(self.name) if self.example else None)
        line = (type(self).__doc__ or "").split("\n")[0]
        return {
            module: Face(face.names, face.line or line, face.example or self.example, face.outside)
            for module, face in {"lax": lax, "numpy": self.numpy, "scipy.special": self.scipy}.items()
            if face is not None
        }

    def __call__(self, *args: Any, **params: Any) -> Any:
        for x in args:
            if not isinstance(x, Array):
                return super().__call__(*self._filled(args), **params)
        return current_trace().process(self, args, params)

    def _filled(self, args: Sequence[Any]) -> Arrays:
        """The operands with Python scalars in the shape and dtype of the arrays among them."""
        first = next((x for x in args if isinstance(x, Array)), None)
        filled: list[Array] = []
        for x in args:
            if first is not None and isinstance(x, (bool, int, float, complex)):
                filled.append(like(first, x))
            else:
                filled.append(as_value(x, self.name))
        return filled

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        first = next(d for d in dims if d is not None)
        moved = (move_batch(x, d, size, first) if d != first else x for x, d in zip(args, dims, strict=True))
        y = self(*moved, **params)
        return y, (first,) * len(y) if self.multi else first


class Differentiable(Op):
    """Forward mode from one linear map per operand, summed.

    `tangents(y, *xs, **params)` gives, for each operand, the map from its tangent to the result's tangent, or None
    where the result does not depend on it differentiably. Only maps of operands that have a tangent are called.
    """

    @abstractmethod
    def tangents(self, y: Any, *xs: Array, **params: Any) -> Sequence[Tangent | None]: ...

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        y = self(*primals, **params)
        total: Array | None = None
        for push, t in zip(self.tangents(y, *primals, **params), tangents, strict=True):
            if push is not None and t is not None:
                part = push(t)
                total = part if total is None else ops.add(total, part)
        return y, total


class Contraction(Differentiable):
    """Sums of products of two operands, as of matrices or in convolutions."""


class RoundedDerivative(Differentiable):
    """The derivatives at narrow floats are computed in float32 and rounded once, like the function itself.

    In the narrow dtype, differences cancel, and squares overflow where the derivative does not.
    """

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        dtype = primals[0].dtype
        if dtype not in dtypes.NARROW:
            return super().jvp(primals, tangents, **params)
        wide = [ops.convert_element_type(x, dtype=dtypes.float32) for x in primals]
        y = self(*wide, **params)
        total: Array | None = None
        for x, push, t in zip(wide, self.tangents(y, *wide, **params), tangents, strict=True):
            if push is not None and t is not None:
                part = ops.mul(t, ops.convert_element_type(push(like(x, 1)), dtype=dtype))
                total = part if total is None else ops.add(total, part)
        return ops.convert_element_type(y, dtype=dtype), total


class DataMovement(Op):
    """Gives elements of the operands ``moved`` as they are; the other operands say which, and where they go."""

    makes_nan = False
    moved: ClassVar[slice] = slice(None)


class Combining(Op):
    """Combines elements in any order: along axes, in windows, one after another, or with what is there."""

    combiner: ClassVar[Op | None] = None  # what makes one element of two
    start: ClassVar[Callable[[DType], Any]] = staticmethod(lambda dtype: 0)  # gives `identity`

    def identity(self, dtype: DType) -> Any:
        """The value that changes nothing: the result for no elements, and what padding holds."""
        return type(self).start(dtype)


class KeepsAxis(Op):
    """Of one operand, along ``axis``, which every result has too."""

    def batch(self, size: int, args: Arrays, dims: Dims, *, axis: int, **params: Any) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        y = self(args[0], axis=axis + (axis >= d), **params)
        return y, (d,) * len(y) if self.multi else d


class RemovesAxes(Op):
    """Of one operand, along ``axes``, which the result lacks."""

    def batch(self, size: int, args: Arrays, dims: Dims, *, axes: tuple[int, ...], **params: Any) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        moved = tuple(a + (a >= d) for a in axes)
        return self(args[0], axes=moved, **params), d - sum(a < d for a in moved)


class LastAxes(Op):
    """Of the last axes of its operands; the others are a batch."""

    @abstractmethod
    def core_ndim(self, **params: Any) -> int:
        """How many of the first operand's axes these are."""


class LinearOp(Op):
    """Linear in all its operands together: the tangent is the op itself applied to tangents (zeros filled in)."""

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        y = self(*primals, **params)
        if all(t is None for t in tangents):
            return y, None
        filled = (zeros(x.type) if t is None else t for x, t in zip(primals, tangents, strict=True))
        return y, self(*filled, **params)


class Nondifferentiable(Op):
    """Piecewise constant or integer: the tangent is zero."""

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        y = self(*primals, **params)
        return y, (None,) * len(y) if self.multi else None


E = TypeVar("E", bound=Op)


def define_op(family: type[E], name: str, doc: str, **attributes: Any) -> E:
    """The op of ``family`` that differs from the others in ``attributes`` alone, which the family has.

    Args:
        doc: its docstring.
    """
    assert all(hasattr(family, a) for a in attributes), f"{name}: {family.__name__} has no such attribute"
    cls: Any = type(name, (family,), {"name": name, "__doc__": doc, "__module__": family.__module__, **attributes})
    return cls()


class SameType(Elementwise):
    """Operands of one type; result of that type.

    ``hlo`` is the StableHLO name, ``chlo`` that of an operation which XLA expands itself.
    """

    hlo: ClassVar[str] = ""
    chlo: ClassVar[str] = ""
    ufunc: ClassVar[Callable[..., Any] | None] = None

    def __init__(self) -> None:
        if type(self).stablehlo is SameType.stablehlo and not (self.hlo or self.chlo or self.has("expand")):
            raise NxError(
                f"{self.name}: no compiler could compute this op",
                got=f"a {type(self).__name__} that only NumPy computes",
                expected="its operation in StableHLO, or the smaller ops that it is made of",
                fix="set hlo= or chlo=, or derive from Composed of nxjax.ops.base and write `composed`",
            )
        super().__init__()

    def infer(self, *types: ArrayType, **params: Any) -> ArrayType:
        names = self.arguments.split()
        if len(types) != len(names):
            raise ProgramError(f"{self.name}: wrong number of operands", got=len(types), expected=", ".join(names))
        equal_shapes(self, *types)
        equal_dtypes(self, *types)
        check_dtype(self, self.allowed, types[0])
        return next((t for t in types if not t.weak), types[0])

    def eval(self, *xs: NDArray, **params: Any) -> NDArray:
        function = type(self).ufunc
        if function is None:
            return eval_by_expand(self, xs, params)
        return np.asarray(function(*xs), xs[0].dtype)

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any, **params: Any) -> Any:
        if self.chlo:
            return b.op(f"chlo.{self.chlo}", xs, out)
        return b.simple(self.hlo, xs, out) if self.hlo else b.inline(self.expand, xs, params)


class Unary(SameType):
    """One operand."""

    def infer(self, x: ArrayType, /, **params: Any) -> ArrayType:
        check_dtype(self, self.allowed, x)
        return x


class Binary(SameType):
    """Two operands."""

    arguments = "x y"

    def infer(self, x: ArrayType, y: ArrayType, /, **params: Any) -> ArrayType:
        if x.shape != y.shape:
            equal_shapes(self, x, y)
        if x.dtype != y.dtype:
            equal_dtypes(self, x, y)
        if x.dtype not in self.allowed:
            check_dtype(self, self.allowed, x)
        return x if not x.weak or y.weak else y


class Composed(SameType):
    """A function of inexact ``arguments`` by its decomposition into others; a rule that is not written follows from it.

    Narrow floats are computed with in float32, as they would lose their digits half way.
    """

    allowed = dtypes.INEXACT

    @abstractmethod
    def composed(self, *xs: Array, **params: Any) -> Array:
        """The function in smaller ones."""

    def expand(self, *xs: Array, **params: Any) -> Array:
        dtype = xs[0].dtype
        if dtype not in dtypes.NARROW:
            return self.composed(*xs, **params)
        wide = [ops.convert_element_type(x, dtype=dtypes.float32) for x in xs]
        return ops.convert_element_type(self.composed(*wide, **params), dtype=dtype)


class CompositeOp(Op):
    """Known by its `expand` alone, and still one equation: a device may match it whole.

    `infer`, `eval` and the portable lowering follow from the expansion; forward mode and batching of one that defines
    none are those of the expansion, which the transforms see to.
    """

    def infer(self, *types: ArrayType, **params: Any) -> Any:
        return infer_by_expand(self, types, params)

    def eval(self, *xs: NDArray, **params: Any) -> Any:
        return eval_by_expand(self, xs, params)

    def stablehlo(self, b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        return b.inline(self.expand, xs, params)

    @abstractmethod
    def expand(self, *xs: Array, **params: Any) -> Any: ...


def expansion(
    op: Op, types: Sequence[ArrayType], params: Mapping[str, Any], expand: Callable[..., Any] | None = None
) -> Program:
    """The program of ``op.expand`` (or of ``expand``) for operands of ``types``; staged once for equal ones."""
    expand = op.expand if expand is None else expand
    try:
        # Equal as keys and not the same are 0.0 and -0.0, 1 and True.
        exact = tuple([(type(v), repr(v)) for v in params.values() if isinstance(v, (int, float, complex))])
        return _expansion(op, tuple(types), tuple(params.items()), exact, expand)
    except TypeError:  # parameters that do not hash
        return _staged(op, types, params, expand)


@lru_cache(4096)
def _expansion(
    op: Op, types: tuple[ArrayType, ...], params: tuple[tuple[str, Any], ...], exact: Any, expand: Callable[..., Any]
) -> Program:
    return _staged(op, types, dict(params), expand)


def _staged(op: Op, types: Sequence[ArrayType], params: Mapping[str, Any], expand: Callable[..., Any]) -> Program:
    def flat(*xs: Array) -> Arrays:
        y = expand(*xs, **params)
        return y if op.multi else [y]

    return stage(flat, types, op.name)


def infer_by_expand(op: Op, types: Sequence[ArrayType], params: Mapping[str, Any]) -> Any:
    """The type(s) that the expansion of ``op`` gives."""
    out = expansion(op, types, params).out_types
    return out if op.multi else out[0]


def eval_by_expand(
    op: Op, xs: Sequence[NDArray], params: dict[str, Any], expand: Callable[..., Any] | None = None
) -> Any:
    """The meaning of ``op`` as NumPy runs its expansion, or ``expand``."""
    with use(EVAL):
        y: Any = (op.expand if expand is None else expand)(*(wrap(x) for x in xs), **params)
    return tuple(v.numpy() for v in y) if op.multi else y.numpy()
