"""Elementwise ops on registers: which there are for which dtypes, and the code of one.

An emitter is registered by the op's name (`ops_*`, `math_*`, `threefry`)::

    @op("add", NUMERIC)
    def add(s: Site) -> Value: ...

It gets the operands as registers hold them (see `convert`) and gives the result in the result's register type. Where
the result is of a narrow float or a 4-bit type it may leave that to `convert.settle`, which is called for it. Emitters
work on scalars and on vectors of any length. Knows no memory, loop or program.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.ir import Function, Value, lanes_of, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes

DType = np.dtype[Any]
_MODULES: Final = (
    "ops_arithmetic",
    "ops_bits",
    "ops_complex",
    "math_exp",
    "math_log",
    "math_power",
    "math_trig",
    "math_special",
    "ops_quant",
    "threefry",
)


@final
@dataclass(frozen=True, slots=True)
class Site:
    """Where an op is emitted.

    Attributes:
        f, isa: the function that is being written, and for what processor.
        params: of the op.
        ins, out: dtypes of the operands and of the result.
        xs: the operands.
    """

    f: Function
    isa: Isa
    params: Mapping[str, Any]
    ins: tuple[DType, ...]
    out: DType
    xs: tuple[Value, ...]

    @property
    def dtype(self) -> DType:
        """Of the first operand."""
        return self.ins[0]

    @property
    def lanes(self) -> int:
        """0 for scalars."""
        return lanes_of(self.xs[0].type)

    def settle(self, x: Value) -> Value:
        """An intermediate value rounded as the result is."""
        return convert.settle(self.f, self.isa, self.out, x)

    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        """A number of the first operand's dtype in every lane."""
        return convert.constant(self.f, dtype or self.dtype, value, self.lanes)


Emitter = Callable[[Site], Value]
Formula = Callable[..., Value]
Refusal = Callable[[Mapping[str, Any], Sequence[DType], DType], str]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """An emitter, the dtypes of the last operand that it takes, and what else it refuses."""

    emitter: Emitter
    allowed: frozenset[DType]
    refuses: Refusal | None
    exact: bool


_entries: dict[str, list[Entry]] = {}
_complete: list[bool] = []  # whether all modules have been imported


def _home(emitter: Emitter) -> tuple[str, str]:
    return emitter.__module__, emitter.__qualname__


def op(
    name: str, allowed: Collection[DType], *, refuses: Refusal | None = None, exact: bool = False
) -> Callable[[Emitter], Emitter]:
    """Register the emitter of the op ``name``.

    Args:
        allowed: dtypes that its last operand may have.
        refuses: why the emitter does not do a case, or the empty string; asked after ``allowed``.
        exact: the result needs no rounding to its dtype.
    """

    def add(emitter: Emitter) -> Emitter:
        entry = Entry(emitter, frozenset(allowed), refuses, exact)
        others = _entries.get(name, [])
        same = [e for e in others if entry.allowed & e.allowed]
        # An import that Ctrl-C ends is done again, with functions of the same places.
        if any(_home(e.emitter) != _home(emitter) for e in same):
            raise AssertionError(f"two emitters for {name} of one dtype")
        _entries[name] = [*(e for e in others if e not in same), entry]
        return emitter

    return add


def formula(name: str, *, wide: bool = False) -> Callable[[Formula], Formula]:
    """Register a real function of ``float`` and ``double`` as the emitter of the op ``name``.

    Args:
        wide: for ``double`` only; floats are computed in it and rounded.
    """

    def add(function: Formula) -> Formula:
        def emitter(s: Site) -> Value:
            if not wide or s.dtype == dtypes.float64:
                return function(s.f, s.isa, *s.xs)
            xs = (x.convert(with_element(x.type, "double")) for x in s.xs)
            return function(s.f, s.isa, *xs).convert(s.xs[0].type)

        op(name, dtypes.FLOAT)(emitter)
        return function

    return add


def entries() -> dict[str, list[Entry]]:
    """All emitters by op name; those of one op are for different dtypes."""
    if not _complete:
        for module in _MODULES:
            importlib.import_module(f"nxjax.kernels.cpu.{module}")
        _complete.append(True)
    return _entries


def supported(name: str, params: Mapping[str, Any], in_dtypes: Sequence[DType], out_dtype: DType) -> str:
    """Why there is no code for an op, or the empty string where there is."""
    if name not in entries():
        return "no elementwise code"
    entry = _entry(name, in_dtypes[-1])
    if entry is None or any(not convert.known(d) for d in (*in_dtypes, out_dtype)):
        return f"no code for {', '.join(map(dtypes.short_name, in_dtypes))}"
    return entry.refuses(params, in_dtypes, out_dtype) if entry.refuses else ""


def _entry(name: str, last: DType) -> Entry | None:
    return next((e for e in entries()[name] if last in e.allowed), None)


def emit(
    f: Function,
    isa: Isa,
    name: str,
    params: Mapping[str, Any],
    in_dtypes: Sequence[DType],
    out_dtype: DType,
    values: Sequence[Value],
) -> Value:
    """The op on registers; `supported` has said the empty string."""
    entry = _entry(name, in_dtypes[-1])
    assert entry is not None, name
    y = entry.emitter(Site(f, isa, params, tuple(in_dtypes), out_dtype, tuple(values)))
    if not entry.exact:
        return convert.settle(f, isa, out_dtype, y)
    # The word of -0 is NaN in some formats.
    return y + 0.0 if out_dtype in convert.UNSIGNED_ZERO else y
