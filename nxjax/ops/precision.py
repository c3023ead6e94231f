"""How exactly products of float32 are computed: a wish (`Precision`), or passes of bfloat16 (`DotAlgorithmPreset`).

A float32 number is a sum of three bfloat16 numbers of 8 bits each, ``x = x0 + x1 + x2``: ``x0`` is ``x`` rounded,
``x1`` what is left, rounded, and ``x2`` the rest. The product of two is the sum of ``xi * yj``, each about 2^-8(i + j)
of the first. Products of bfloat16 are exact in float32. With one pass, ``x0 * y0``, the error is about 2^-8; with the
three of ``i + j < 2`` it is 2^-16, with the six of ``i + j < 3`` 2^-23, and nine are all there are.

Knows no matrices: a product is any function of two operands that is linear in each.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from nxjax.config import current_settings
from nxjax.errors import ParameterError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.ops.convert import cast
from nxjax.trace import dtypes
from nxjax.trace.annotations import DTypeLike
from nxjax.trace.core import Array
from nxjax.trace.params import param_class


@final
@param_class
class Precision(enum.Enum):
    """How exactly a device that multiplies in short floats has to work; CPUs always compute in full precision.

    >>> x = jnp.array([1.0, 2.0])
    >>> lax.Precision("tensorfloat32")
    <Precision.HIGH: 1>
    >>> lax.dot(x, x, precision=lax.Precision.HIGHEST)
    Array(5., dtype=float32)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        if isinstance(value, str):
            return _PRECISIONS.get(value.lower())
        # A pair may leave one out; other packages' members go by their names.
        return cls.DEFAULT if value is None else cls.__members__.get(getattr(value, "name", ""))


_PRECISIONS: Final = {
    "default": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}
_NAMED = {"F16": dtypes.float16, "BF16": dtypes.bfloat16, "F64": dtypes.float64}


@final
@param_class
class DotAlgorithmPreset(enum.Enum):
    """`DotAlgorithm`s by name: ``LHS_RHS_ACCUMULATOR``.

    ``BF16_BF16_F32`` rounds float32 operands to bfloat16. With ``_X3``, ``_X6`` and ``_X9`` they are split into two or
    three bfloat16 numbers, and so many products are made and added in float32: results then have about 16, 23 and 24
    right bits. All others are met by the precision of the operands.

    >>> str(DotAlgorithmPreset.BF16_BF16_F32), DotAlgorithmPreset.BF16_BF16_F32.accumulation_type.name
    ('BF16_BF16_F32', 'float32')
    """

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def supported_lhs_types(self) -> tuple[dtypes.DType, ...] | None:
        """The dtypes of operands that it is for; None is any."""
        if self.name == "DEFAULT" or self.name.startswith("ANY"):
            return None
        if self.name in ("BF16_BF16_BF16", "BF16_BF16_F32"):
            return (dtypes.bfloat16, dtypes.float32)
        # With X3, X6 and X9, float32 operands are split.
        return (dtypes.float32 if "_X" in self.name else _NAMED.get(self.name.partition("_")[0], dtypes.float32),)

    @property
    def supported_rhs_types(self) -> tuple[dtypes.DType, ...] | None:
        """As `supported_lhs_types`."""
        return self.supported_lhs_types

    @property
    def accumulation_type(self) -> dtypes.DType | None:
        """The dtype that products are added up in; None is that of the result."""
        if self.name == "DEFAULT" or self.name.startswith("ANY_F8_ANY_F8_ANY"):
            return None
        return dtypes.float32 if self.name.startswith("ANY") else _NAMED.get(self.name.split("_")[2], dtypes.float32)


PrecisionPair: TypeAlias = tuple[Precision, Precision] | DotAlgorithmPreset | None
# What users give as ``precision=``: a member, its name, a `lax.DotAlgorithmPreset`, or one for each operand.
PrecisionLike: TypeAlias = str | enum.Enum | Sequence[object] | None
# The parts of both operands that are multiplied, the smallest products first.
_PASSES: Final = {
    DotAlgorithmPreset.BF16_BF16_F32: ((0, 0),),
    DotAlgorithmPreset.BF16_BF16_F32_X3: ((1, 0), (0, 1), (0, 0)),
    DotAlgorithmPreset.BF16_BF16_F32_X6: ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)),
    DotAlgorithmPreset.BF16_BF16_F32_X9: (
        (2, 2), (2, 1), (1, 2), (1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0),
    ),
}  # fmt: skip
_BY_COUNT: Final = {len(pairs): preset for preset, pairs in _PASSES.items()}
# Names of a precision that say how many passes.
_ASKING: Final = {"bfloat16": _BY_COUNT[1], "bfloat16_3x": _BY_COUNT[3]} | {p.name.lower(): p for p in _PASSES}


def algorithm(lhs: DTypeLike, rhs: DTypeLike, accumulation: DTypeLike, count: int) -> DotAlgorithmPreset | None:
    """The one of ``count`` products of so rounded operands; None: the operands' own precision meets it.

    >>> algorithm("bfloat16", "bfloat16", "float32", 3)
    DotAlgorithmPreset.BF16_BF16_F32_X3
    """
    wanted = [dtypes.as_dtype(d) for d in (lhs, rhs, accumulation)]
    return _BY_COUNT.get(count) if wanted == [dtypes.bfloat16, dtypes.bfloat16, dtypes.float32] else None


def canonical_precision(precision: Any) -> PrecisionPair:
    """What users give as ``precision=`` (None, a member, its name, or a pair of them) as ops take it.

    None is what `nx.config.default_matmul_precision` says. ``"bfloat16"`` and ``"bfloat16_3x"`` are one and three
    passes.

    >>> canonical_precision("highest") == (Precision.HIGHEST, Precision.HIGHEST)
    True
    >>> canonical_precision("bfloat16_3x")
    DotAlgorithmPreset.BF16_BF16_F32_X3
    """
    if precision is None:
        precision = current_settings().default_matmul_precision
        if precision is None:
            return None
    if isinstance(precision, str):
        if found := _ASKING.get(precision.lower()):
            return found
        if precision.lower() not in _PRECISIONS and precision in DotAlgorithmPreset.__members__:
            return None
    elif isinstance(precision, enum.Enum) and hasattr(precision, "accumulation_type"):
        return _ASKING.get(precision.name.lower())
    elif hasattr(precision, "accumulation_type"):
        p: Any = precision
        kinds = p.lhs_precision_type, p.rhs_precision_type, p.accumulation_type
        return algorithm(*kinds, p.num_primitive_operations)
    pair: Any = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    try:
        first, second = map(Precision, pair)
    except (ValueError, TypeError):
        raise ParameterError(
            "precision: not understood",
            got=repr(precision),
            expected=f"None, a Precision, a DotAlgorithmPreset, one of {', '.join(_PRECISIONS)}, or a pair of them",
        ) from None
    return first, second


def flipped(precision: PrecisionPair) -> PrecisionPair:
    """The precision of a product whose operands change places."""
    return (precision[1], precision[0]) if isinstance(precision, tuple) else precision


def in_passes(precision: PrecisionPair, *operands: Any) -> bool:
    """Whether the product of ``operands``, which have a dtype, is a sum of products of bfloat16."""
    return isinstance(precision, DotAlgorithmPreset) and all(x.dtype == dtypes.float32 for x in operands)


def passes(product: Callable[..., Array]) -> Callable[..., Array]:
    """``product``, an op with ``precision`` and ``preferred_element_type``, as the sum that its precision asks for."""

    def summed(x: Array, y: Array, /, **params: Any) -> Array:
        pairs = _PASSES[params.pop("precision")]
        out = params.pop("preferred_element_type", None) or dtypes.float32
        xs, ys = (_parts(v, 1 + max(map(max, pairs))) for v in (x, y))
        found = [product(xs[i], ys[j], preferred_element_type=dtypes.float32, **params) for i, j in pairs]
        total = found.pop()
        if found:
            rest = functools.reduce(ops.add, found)
            # An infinite operand times a part of the other may be of another sign, or NaN: the first parts say what is.
            total = ops.add(ops.select_n(ops.is_finite(rest), like(rest, 0), rest), total)
        return cast(total, out)

    return summed


def _parts(x: Array, count: int) -> list[Array]:
    """``count`` bfloat16 arrays whose sum is about ``x``; what is infinite or NaN is in the first alone."""
    found: list[Array] = []
    most = float(dtypes.float_info(dtypes.bfloat16).max)
    while True:
        # Beside others, the first part of what would round to infinity is the largest that there is.
        near = (
            x if found or count == 1 else ops.select_n(ops.is_finite(x), x, ops.clamp(like(x, -most), x, like(x, most)))
        )
        part = cast(near, dtypes.bfloat16)
        found.append(part)
        if len(found) == count:
            return found
        rounded = cast(part, dtypes.float32)
        x = ops.select_n(ops.is_finite(rounded), like(x, 0), ops.sub(x, rounded))


def precision_text(precision: PrecisionPair) -> str:
    """The attributes of StableHLO's products: ``precision_config``, and ``algorithm`` if there is one."""
    pair = precision if isinstance(precision, tuple) else (Precision.DEFAULT, Precision.DEFAULT)
    text = f"precision_config = [{', '.join(f'#stablehlo<precision {p.name}>' for p in pair)}]"
    if not isinstance(precision, DotAlgorithmPreset):
        return text
    return (
        f"{text}, algorithm = #stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, "
        "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
        f"num_primitive_operations = {len(_PASSES[precision])}, allow_imprecise_accumulation = false>"
    )
