"""Types of custom ops in words: ``"float[n,k], float[k] -> float[n]"``. Parses, infers, and draws samples.

A word is a dtype (``f32``, ``i8``, ``bool``, ...) or a class of them: ``float``, ``int``, ``number``, each one and the
same dtype everywhere in a signature. Dimensions are numbers or letters; a letter is one size everywhere. ``...`` first
stands for any leading dimensions, the same ones everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType

_CLASSES: Final = {
    "float": (dtypes.FLOAT, dtypes.float32),
    "int": (dtypes.INTEGER, dtypes.int32),
    "number": (dtypes.NUMBER, dtypes.float32),
}
_TYPE: Final = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(?:\[([^\]]*)\])?\s*")


@final
@dataclass(frozen=True)
class OperandPattern:
    """One operand or result: a dtype word, dimensions, and whether others may stand before them."""

    word: str
    dims: tuple[str, ...]
    leading: bool

    @classmethod
    def parse(cls, text: str, where: str) -> OperandPattern:
        match = _TYPE.fullmatch(text)
        if match is None:
            raise ParameterError(f"{where}: type", got=repr(text), expected="such as 'float[n,k]'")
        word, inside = match[1], match[2] or ""
        if word not in _CLASSES:
            dtypes.from_short_name(word)
        dims = [d.strip() for d in inside.split(",") if d.strip()]
        leading = bool(dims) and dims[0] == "..."
        dims = dims[leading:]
        if not all(re.fullmatch(r"\d+|[A-Za-z]\w*", d) for d in dims):
            raise ParameterError(f"{where}: dimensions", got=repr(text), expected="numbers, letters, '...' first")
        return cls(word, tuple(dims), leading)

    def __str__(self) -> str:
        return f"{self.word}[{','.join((*(('...',) if self.leading else ()), *self.dims))}]"


@final
@dataclass(frozen=True)
class OperatorSignature:
    """Patterns of operands and results. Called with types, gives the types of the results.

    >>> s = OperatorSignature.parse("float[n,k], float[k] -> float[n]", "product")
    >>> s(ArrayType((2, 3), np.dtype("float32")), ArrayType((3,), np.dtype("float32")))
    f32[2]
    """

    op: str
    operands: tuple[OperandPattern, ...]
    results: tuple[OperandPattern, ...]

    @classmethod
    def parse(cls, text: str, op: str) -> OperatorSignature:
        sides = text.split("->")
        if len(sides) != 2:
            raise ParameterError(f"custom_op {op}: type", got=repr(text), expected="'operands -> results'")
        parts = [re.split(r",(?![^\[]*\])", side) for side in sides]
        left, right = (tuple(OperandPattern.parse(p, f"custom_op {op}") for p in side) for side in parts)
        bound = {d for p in left for d in p.dims}
        words = {p.word for p in left}
        for p in right:
            free = [d for d in p.dims if not d.isdigit() and d not in bound]
            unknown = p.leading and not any(q.leading for q in left)
            if free or unknown or (p.word in _CLASSES and p.word not in words):
                raise ParameterError(f"custom_op {op}: the type of a result does not follow", got=str(p), expected=text)
        return cls(op, left, right)

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.operands))} -> {', '.join(map(str, self.results))}"

    def __call__(self, *types: ArrayType, **settings: Any) -> Any:
        if len(types) != len(self.operands):
            raise ShapeError(f"{self.op}: number of operands", got=len(types), expected=str(self))
        sizes: dict[str, int] = {}
        kinds: dict[str, DType] = {}
        leading: tuple[int, ...] | None = None
        for t, p in zip(types, self.operands, strict=True):
            self._bind_dtype(t, p, kinds)
            extra = len(t.shape) - len(p.dims)
            if extra < 0 or (extra and not p.leading):
                raise self._unfit(t, p)
            if p.leading:
                if leading is not None and t.shape[:extra] != leading:
                    raise self._unfit(t, p)
                leading = t.shape[:extra]
            for d, n in zip(p.dims, t.shape[extra:], strict=True):
                if (int(d) if d.isdigit() else sizes.setdefault(d, n)) != n:
                    raise self._unfit(t, p, f"{d} = {sizes.get(d, d)}")
        out = [
            ArrayType(
                (*((leading or ()) if p.leading else ()), *(int(d) if d.isdigit() else sizes[d] for d in p.dims)),
                kinds.get(p.word) or dtypes.from_short_name(p.word),
            )
            for p in self.results
        ]
        return tuple(out) if len(out) > 1 else out[0]

    def _bind_dtype(self, t: ArrayType, p: OperandPattern, kinds: dict[str, DType]) -> None:
        fits = t.dtype in _CLASSES[p.word][0] if p.word in _CLASSES else t.dtype == dtypes.from_short_name(p.word)
        if not fits or kinds.setdefault(p.word, t.dtype) != t.dtype:
            raise DtypeError(f"{self.op}: dtype of an operand", got=t, expected=str(self))

    def _unfit(self, t: ArrayType, p: OperandPattern, why: str = "") -> ShapeError:
        return ShapeError(
            f"{self.op}: shape of an operand", got=f"{t} for {p}{', where ' + why if why else ''}", expected=str(self)
        )

    def samples(self, rng: np.random.Generator) -> list[tuple[np.ndarray[Any, Any], ...]]:
        """Operands that fit: small and larger sizes, values around zero and far from it."""
        letters = list(dict.fromkeys(d for p in self.operands for d in p.dims if not d.isdigit()))
        found: list[tuple[np.ndarray[Any, Any], ...]] = []
        for scale, sizes, leading in ((1.0, (2, 3, 4, 5), (2,)), (6.0, (5, 1, 3, 2), ())):
            size = {d: sizes[i % 4] for i, d in enumerate(letters)}
            shapes = [
                (*(leading if p.leading else ()), *(int(d) if d.isdigit() else size[d] for d in p.dims))
                for p in self.operands
            ]
            found.append(tuple(draw(rng, s, _dtype(p.word), scale) for s, p in zip(shapes, self.operands, strict=True)))
        return found


def _dtype(word: str) -> DType:
    return _CLASSES[word][1] if word in _CLASSES else dtypes.from_short_name(word)


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: DType, scale: float) -> np.ndarray[Any, Any]:
    """Random values of a dtype, floats normal with deviation ``scale``.

    >>> draw(np.random.default_rng(0), (2,), np.dtype("bool"), 1.0).dtype.name
    'bool'
    """
    if dtype in dtypes.BOOL:
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype in dtypes.INTEGER:
        info = dtypes.integer_info(dtype)
        return rng.integers(max(int(info.min), -9), min(int(info.max), 9), shape, endpoint=True).astype(dtype)
    values = rng.normal(size=tuple(shape)) * scale
    if dtype in dtypes.COMPLEX:
        values = values + 1j * rng.normal(size=tuple(shape)) * scale
    return values.astype(dtype)
