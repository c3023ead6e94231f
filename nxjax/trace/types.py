"""The type of a value: shape, dtype and weakness; inside `shard_map` also along which mesh axes it varies.

Knows no value, op or trace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.errors import ParameterError, ProgramError, ShapeError
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

Shape = tuple[int, ...]
NOWHERE: Final[frozenset[Any]] = frozenset()


@final
class ArrayType:
    """Shape, dtype and ``weak``: whether the dtype came from Python scalars only and yields in promotion.

    ``vma`` (varying manual axes) is empty but for values inside a checked `nx.shard_map`: the mesh axes along which
    devices may hold different values.

    >>> ArrayType((3, 4), dtypes.float32)
    f32[3,4]
    """

    __slots__ = ("_hash", "dtype", "shape", "vma", "weak")

    def __init__(self, shape: Shape, dtype: DType, weak: bool = False, vma: frozenset[Any] = NOWHERE) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak = weak
        self.vma = vma
        self._hash = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def weak_type(self) -> bool:
        return self.weak

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, ArrayType)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.weak == other.weak
            and (self.vma is other.vma or self.vma == other.vma)
        )

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash((self.shape, self.dtype, self.weak, self.vma))
        return self._hash

    def __repr__(self) -> str:
        text = f"{dtypes.short_name(self.dtype)}[{','.join(map(str, self.shape))}]{'*' if self.weak else ''}"
        return f"{text}{{V:{','.join(sorted(map(str, self.vma)))}}}" if self.vma else text

    def with_shape(self, shape: Shape) -> ArrayType:
        return ArrayType(shape, self.dtype, self.weak, self.vma)

    def without_dim(self, dim: int | None) -> ArrayType:
        """The type of one element along dimension ``dim``; itself where ``dim`` is None."""
        return self if dim is None else self.with_shape(self.shape[:dim] + self.shape[dim + 1 :])

    def with_dtype(self, dtype: DType) -> ArrayType:
        return ArrayType(self.shape, dtype, False, self.vma)

    # JAX's names.

    def update(self, **changes: Any) -> ArrayType:
        """This type with another ``shape``, ``dtype`` or ``weak_type``."""
        shape, dtype = tuple(changes.get("shape", self.shape)), dtypes.as_dtype(changes.get("dtype", self.dtype))
        return ArrayType(shape, dtype, bool(changes.get("weak_type", self.weak)), self.vma)

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        """The type in a few letters; with the dtype's whole name unless ``short_dtypes``."""
        name = dtypes.short_name(self.dtype) if short_dtypes else self.dtype.name
        return f"{name}[{','.join(map(str, self.shape))}]"

    @property
    def sharding(self) -> Any:
        """A sharding over an empty mesh, of the same rank: a type does not say where its values are."""
        from nxjax.trace.mesh import AbstractMesh
        from nxjax.trace.partition import PartitionSpec
        from nxjax.trace.sharding import NamedSharding

        return NamedSharding(AbstractMesh((), ()), PartitionSpec(*(None,) * len(self.shape)))

    def to_tangent_aval(self) -> ArrayType:
        """The type of tangents: the value's own, or float0 for what has none."""
        return ArrayType(self.shape, self.dtype if dtypes.is_differentiable(self.dtype) else dtypes.float0)

    def strip_weak_type(self) -> ArrayType:
        return self.strong()

    def strong(self) -> ArrayType:
        return ArrayType(self.shape, self.dtype, False, self.vma) if self.weak else self

    def with_vma(self, vma: frozenset[Any]) -> ArrayType:
        """The type of values that vary along the mesh axes ``vma`` and no others."""
        return self if vma == self.vma else ArrayType(self.shape, self.dtype, self.weak, vma)

    def typematch(self, other: ArrayType) -> bool:
        """Equal shape and dtype."""
        return self.shape == other.shape and self.dtype == other.dtype


_TYPE: Final = r"([a-z0-9_]+(?:<fry>)?)\[([0-9,]*)\](\*?)(?:\{V:([^}]*)\})?"


def parse_type(text: str) -> ArrayType:
    """The inverse of ``repr``.

    >>> parse_type("f32[3,4]*").weak
    True
    """
    match = re.fullmatch(_TYPE, text)
    if match is None:
        raise ProgramError("program text: not a type", got=repr(text), expected="for example f32[3,4]")
    name, shape, weak, vma = match.groups()
    sizes = tuple(int(n) for n in shape.split(",") if n)
    return ArrayType(sizes, dtypes.from_short_name(name), bool(weak), frozenset(vma.split(",")) if vma else NOWHERE)


@final
class ShapeDtypeStruct:
    """A shape and a dtype without data, in place of an array in `eval_shape`, `jit(f).trace` and `make_jaxpr`.

    ``sharding`` is that of the argument when the compiled function is called; None: any.

    Raises:
        ShapeError: a size that is no integer.
        ParameterError: ``is_ref``: arrays are never written to.

    >>> nx.eval_shape(nx.sin, ShapeDtypeStruct((2, 3), nx.float32))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str | type | DType,
        *,
        sharding: object = None,
        weak_type: bool = False,
        manual_axis_type: object = None,
        is_ref: bool = False,
    ) -> None:
        if is_ref:
            raise ParameterError("ShapeDtypeStruct: there are no mutable references", got="is_ref=True")
        self.sharding: Any = sharding
        try:
            self.shape: Shape = tuple(int(n) for n in shape)
        except TypeError:
            raise ShapeError(
                "ShapeDtypeStruct: a size that is no number",
                got=shape,
                expected="integers: every shape is known when a function is traced",
                fix="make the function nx.bucketed, which has a few fixed sizes for any",
            ) from None
        self.dtype = dtypes.as_dtype(dtype)
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.shape, self.dtype, self.weak_type)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self.type == other.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"
