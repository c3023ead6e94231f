"""Elementwise ops on registers: which there are for which dtypes, and the code of one.

An op is a primitive, or has an emitter of its own for a reason (see `nxjax.ops.primitives`), or is emitted as its
decomposition. An emitter is registered by the op's name, in a file that `op_files` names::

    @op("add", NUMERIC)
    def add(s: EmitContext) -> Value: ...

It gets the operands as registers hold them (see `convert`) and gives the result in the result's register type. Where
the result is of a narrow float or a 4-bit type it may leave that to `convert.settle`, which is called for it. Emitters
work on scalars and on vectors of any length. Knows no memory, loop or program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.ir import Function, Value, lanes_of, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.op_files import COMPLEX, MODULES
from nxjax.ops.primitives import DECOMPOSED, decomposition, replayed
from nxjax.trace import dtypes
from nxjax.trace.lazy import load
from nxjax.trace.program import Equation

DType = np.dtype[Any]
NAMES: Final = DECOMPOSED.union(*MODULES.values())


@final
@dataclass(frozen=True, slots=True)
class EmitContext:
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


Emitter = Callable[[EmitContext], Value]
Formula = Callable[..., Value]
Refusal = Callable[[Mapping[str, Any], Sequence[DType], DType], str]


@final
@dataclass(frozen=True, slots=True)
class EmitRule:
    """An emitter, the dtypes of the last operand that it takes, and what else it refuses."""

    emitter: Emitter
    allowed: frozenset[DType]
    refuses: Refusal | None
    exact: bool


_entries: dict[str, list[EmitRule]] = {}
_complete: set[tuple[str, bool]] = set()  # ops whose files have been imported; those for real numbers alone


def _home(emitter: Callable[..., Value]) -> tuple[str, str]:
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

    if name not in NAMES:
        raise AssertionError(f"MODULES does not say where {name} has code")

    def add(emitter: Emitter) -> Emitter:
        entry = EmitRule(emitter, frozenset(allowed), refuses, exact)
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
        def emitter(s: EmitContext) -> Value:
            if not wide or s.dtype == dtypes.float64:
                return function(s.f, s.isa, *s.xs)
            xs = (x.convert(with_element(x.type, "double")) for x in s.xs)
            return function(s.f, s.isa, *xs).convert(s.xs[0].type)

        emitter.__module__, emitter.__qualname__ = _home(function)
        op(name, dtypes.FLOAT)(emitter)
        return function

    return add


def entries(name: str, *, real: bool = False) -> list[EmitRule]:
    """The emitters of an op, for different dtypes; none for one that has no elementwise code.

    Args:
        real: those for complex numbers need not be among them.
    """
    if (name, real) not in _complete:
        modules = [module for module, names in MODULES.items() if name in names]
        if real and len(modules) > 1:
            modules = [module for module in modules if module not in COMPLEX]
        for module in modules:
            load(f"nxjax.kernels.cpu.{module}")
        _complete.add((name, real))
    return _entries.get(name, [])


def supported(name: str, params: Mapping[str, Any], in_dtypes: Sequence[DType], out_dtype: DType) -> str:
    """Why there is no code for an op, or the empty string where there is."""
    if name not in NAMES:
        return "no elementwise code"
    if all(map(convert.known, (*in_dtypes, out_dtype))):
        entry = _entry(name, in_dtypes[-1])
        if entry is not None:
            return entry.refuses(params, in_dtypes, out_dtype) if entry.refuses else ""
        parts = decomposition(name, in_dtypes, params)
        if parts is not None:
            return next(filter(None, (supported(e.op.name, e.params, *_types(e)) for e in parts.equations)), "")
    return f"no code for {', '.join(map(dtypes.short_name, in_dtypes))}"


def _entry(name: str, last: DType) -> EmitRule | None:
    return next((e for e in entries(name, real=last not in dtypes.COMPLEX) if last in e.allowed), None)


def _types(e: Equation) -> tuple[list[DType], DType]:
    return [a.type.dtype for a in e.inputs], e.outputs[0].type.dtype


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
    if entry is None:
        parts = decomposition(name, in_dtypes, params)
        assert parts is not None, name
        return replayed(
            parts,
            values,
            lambda e, xs: emit(f, isa, e.op.name, e.params, *_types(e), xs),
            lambda a: convert.constant(f, a.type.dtype, a.value.numpy(), lanes_of(values[0].type)),
        )
    y = entry.emitter(EmitContext(f, isa, params, tuple(in_dtypes), out_dtype, tuple(values)))
    if not entry.exact:
        return convert.settle(f, isa, out_dtype, y)
    # The word of -0 is NaN in some formats.
    return y + 0.0 if out_dtype in convert.UNSIGNED_ZERO else y
