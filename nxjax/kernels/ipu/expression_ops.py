"""Each elementwise op as C++: an expression of its operands' names, or the statements of its decomposition.

Halves are computed with as floats and rounded after every op, as a tile's half instructions give them. Integers wrap,
divide by zero as the op says, and shift out all bits beyond their width. Knows no loop and no vertex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu.expression_cycles import LIBRARY
from nxjax.kernels.ipu.spec import CTYPES
from nxjax.ops.primitives import decomposition, replayed
from nxjax.trace.program import Equation

DType = np.dtype[Any]
# Types of temporaries; those of 64 bits have no place in tile memory.
TYPES: Final = {**CTYPES, "int64": "long long", "uint64": "unsigned long long"}


@final
class Emitter:
    """Collects statements, and the helpers that they call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.helpers: dict[str, None] = {}
        self._count = 0

    def call(self, helper: str, *args: str, types: str = "") -> str:
        self.helpers[helper] = None
        return f"{helper}{types}({', '.join(args)})"

    def value(self, text: str, dtype: DType) -> str:
        """A new temporary; its name."""
        self._count += 1
        name = f"t{self._count}"
        self.lines.append(f"const {TYPES[dtype.name]} {name} = {held(text, dtype)};")
        return name


def held(text: str, dtype: DType) -> str:
    """``text`` converted to the type that the dtype is held in."""
    return f"half({text})" if dtype.name == "float16" else f"static_cast<{TYPES[dtype.name]}>({text})"


def read(name: str, dtype: DType) -> str:
    """The operand as it is computed with."""
    return f"float({name})" if dtype.name == "float16" else name


def number(value: Any, dtype: DType) -> str:
    """A literal of the dtype's computing type.

    >>> number(1.5, np.dtype("float32")), number(-(2**31), np.dtype("int32"))
    ('0x1.8000000000000p+0f', '(-2147483647 - 1)')
    """
    if dtype.kind == "f":
        x = float(np.asarray(value).astype(dtype))
        if math.isnan(x):
            return '__builtin_nanf("")'
        if math.isinf(x):
            return "__builtin_inff()" if x > 0 else "-__builtin_inff()"
        return f"{x.hex()}f" if x >= 0 and not math.copysign(1, x) < 0 else f"({x.hex()}f)"
    if dtype.kind == "b":
        return "true" if value else "false"
    n = int(value)
    suffix = {"int64": "ll", "uint64": "ull", "uint32": "u"}.get(dtype.name, "")
    if n < 0 and n == -(2 ** (8 * dtype.itemsize - 1)) and dtype.itemsize >= 4:
        return f"(-{-n - 1}{suffix} - 1)"
    return f"{n}{suffix}" if n >= 0 else f"({n}{suffix})"


def _unsigned(dtype: DType) -> str:
    """A cast to the unsigned type of the same width."""
    return f"static_cast<{TYPES[f'uint{8 * dtype.itemsize}']}>"


def _signed(dtype: DType) -> str:
    return f"static_cast<{TYPES[f'int{8 * dtype.itemsize}']}>"


def _modular(dtype: DType) -> str:
    """A conversion to an unsigned type in which arithmetic wraps and nothing is promoted."""
    return f"static_cast<{TYPES['uint64' if dtype.itemsize == 8 else 'uint32']}>"


Args = Sequence[str]
Types = Sequence[DType]
# (emitter, operands, their dtypes, dtype of the result, params) -> C++ expression
Rule = Callable[[Emitter, Args, Types, DType, Mapping[str, Any]], str]


def _arithmetic(sign: str, boolean: str = "") -> Rule:
    def rule(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
        if out.kind == "f":
            return f"{a[0]} {sign} {a[1]}"
        if out.kind == "b":
            return f"{a[0]} {boolean} {a[1]}"
        m = _modular(out)
        return f"{m}({a[0]}) {sign} {m}({a[1]})"

    return rule


def _neg(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    return f"-{a[0]}" if out.kind == "f" else f"{_modular(out)}(0) - {_modular(out)}({a[0]})"


def _div(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    x, y = a
    if out.kind == "f":
        return f"{x} / {y}"
    if out.kind == "u":
        return f"{y} == 0 ? {_unsigned(out)}(-1) : {_unsigned(out)}({x} / ({y} == 0 ? 1 : {y}))"
    m = _modular(out)
    return f"{y} == 0 ? {m}(-1) : {y} == -1 ? {m}(0) - {m}({x}) : {m}({x} / {y})"


def _rem(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    x, y = a
    if out.kind == "f":
        return f"std::fmod({x}, {y})"
    if out.kind == "u":
        return f"{y} == 0 ? {x} : {x} % {y}"
    return f"{y} == 0 ? {x} : {y} == -1 ? 0 : {x} % {y}"


def _std(name: str) -> Rule:
    return lambda e, a, types, out, params: f"std::{name}({', '.join(a)})"


def _helper(name: str) -> Rule:
    return lambda e, a, types, out, params: e.call(name, *a)


def _extremum(name: str) -> Rule:
    def rule(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
        kind = "float" if out.kind == "f" else TYPES[out.name]
        return e.call(name, *a, types=f"<{kind}>")

    return rule


def _abs(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    if out.kind == "f":
        return f"std::fabs({a[0]})"
    m = _modular(out)
    return a[0] if out.kind == "u" else f"{a[0]} < 0 ? {m}(0) - {m}({a[0]}) : {m}({a[0]})"


def _sign(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    if out.kind == "f":
        return e.call("signOf", a[0])
    return f"{a[0]} > 0" if out.kind == "u" else f"({a[0]} > 0) - ({a[0]} < 0)"


def _round(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    return f"std::rint({a[0]})" if params["rounding_method"] == 1 else e.call("awayFromZero", a[0])


def _reduce_precision(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    exponent, mantissa = int(params["exponent_bits"]), int(params["mantissa_bits"])
    bias = 2 ** (exponent - 1) - 1
    # Beyond the range of floats the format has no edge that a float could meet.
    smallest = math.ldexp(1.0, max(1 - bias, -149)) if 1 - bias > -149 else 0.0
    largest = math.ldexp(2 - 2.0 ** -min(mantissa, 23), bias) if bias < 128 else math.inf
    f32 = np.dtype("float32")
    edges = number(smallest, f32), number(largest, f32)
    return e.call("reducePrecision", a[0], str(min(mantissa, 23)), *edges)


def _bits(sign: str, boolean: str) -> Rule:
    def rule(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
        return f"{a[0]} {boolean if out.kind == 'b' else sign} {a[1]}"

    return rule


def _not(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    return f"!{a[0]}" if out.kind == "b" else f"~{a[0]}"


def _shift(sign: str) -> Rule:
    def rule(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
        u, width, m = _unsigned(out), 8 * out.itemsize, _modular(out)
        return f"{u}({a[1]}) < {width} ? {m}({u}({a[0]})) {sign} ({a[1]} & {width - 1}) : {m}(0)"

    return rule


def _shift_arithmetic(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    u, width = _unsigned(out), 8 * out.itemsize
    return f"{_signed(out)}({a[0]}) >> ({u}({a[1]}) < {width} ? int({a[1]}) : {width - 1})"


def _population_count(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    return f"__builtin_popcount{'ll' if out.itemsize == 8 else ''}({_unsigned(out)}({a[0]}))"


def _clz(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    u, width = f"{_unsigned(out)}({a[0]})", 8 * out.itemsize
    if width == 64:
        return f"{u} == 0 ? 64 : __builtin_clzll({u})"
    return f"{u} == 0 ? {width} : __builtin_clz({u}) - {32 - width}"


def _compare(sign: str) -> Rule:
    return lambda e, a, types, out, params: f"{a[0]} {sign} {a[1]}"


def _convert(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    source = types[0]
    if out.kind == "b":
        return a[0] if source.kind == "b" else f"{a[0]} != 0"
    if source.kind == "f" and out.kind in "iu":
        info, f32 = np.iinfo(out), np.dtype("float32")
        # The largest integers are no floats: at the next one, all is out of range.
        edges = number(info.min, f32), number(float(info.max), f32)
        return e.call(
            "toInteger", a[0], *edges, number(info.min, out), number(info.max, out), types=f"<{TYPES[out.name]}>"
        )
    if out.kind == "f" and source.kind != "f":
        return f"static_cast<float>({a[0]})"
    return a[0]


def _select(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    which, *cases = a
    if len(cases) == 1:
        return cases[0]
    if len(cases) == 2:
        return f"{which} ? {cases[1]} : {cases[0]}"
    text = cases[-1]
    for i in range(len(cases) - 2, -1, -1):
        text = f"({which} {'<=' if i == 0 else '=='} {i} ? {cases[i]} : {text})"
    return text


def _bitcast(e: Emitter, a: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    source = types[0]
    if source == out:
        return a[0]
    return e.call("bitsOf", held(a[0], source), types=f"<{TYPES[out.name]}>")


def _flagged(name: str, flag: bool) -> Rule:
    return lambda e, a, types, out, params: e.call(name, *a, str(flag).lower())


RULES: Final[dict[str, Rule]] = {
    **{name: _std(name) for name in LIBRARY},
    "neg": _neg,
    "add": _arithmetic("+", "||"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*", "&&"),
    "div": _div,
    "rem": _rem,
    "max": _extremum("larger"),
    "min": _extremum("smaller"),
    "abs": _abs,
    "sign": _sign,
    "erf_inv": _helper("errorInverse"),
    "lgamma": _helper("logGamma"),
    "digamma": _helper("digamma"),
    "zeta": _helper("hurwitzZeta"),
    "polygamma": _helper("polygamma"),
    "igamma": _flagged("incompleteGamma", False),
    "igammac": _flagged("incompleteGamma", True),
    "igamma_grad_a": _flagged("gammaSlope", False),
    "random_gamma_grad": _flagged("gammaSlope", True),
    "regularized_incomplete_beta": _helper("incompleteBeta"),
    "round": _round,
    "reduce_precision": _reduce_precision,
    "and": _bits("&", "&&"),
    "or": _bits("|", "||"),
    "xor": _bits("^", "!="),
    "not": _not,
    "shift_left": _shift("<<"),
    "shift_right_logical": _shift(">>"),
    "shift_right_arithmetic": _shift_arithmetic,
    "population_count": _population_count,
    "clz": _clz,
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "convert_element_type": _convert,
    "select_n": _select,
    "bitcast_convert_type": _bitcast,
}


def supported(name: str, types: Sequence[Any], out: Any, params: Mapping[str, Any]) -> bool:
    """Whether a vertex computes this op on operands of these dtypes."""
    if name == "bitcast_convert_type" and types[0].itemsize != out.itemsize:
        return False
    if not all(t.name in TYPES for t in (*types, out)):
        return False
    if name in RULES:
        return True
    parts = decomposition(name, types, params)
    return parts is not None and all(supported(e.op.name, *_types(e), e.params) for e in parts.equations)


def _types(e: Equation) -> tuple[list[DType], DType]:
    return [a.type.dtype for a in e.inputs], e.outputs[0].type.dtype


def written(e: Emitter, name: str, names: Args, types: Types, out: DType, params: Mapping[str, Any]) -> str:
    """The name of a new temporary: the op of values of these names."""
    parts = None if name in RULES else decomposition(name, types, params)
    if parts is None:
        return e.value(RULES[name](e, list(map(read, names, types)), types, out, params), out)
    return replayed(
        parts,
        names,
        lambda q, xs: written(e, q.op.name, xs, *_types(q), q.params),
        lambda a: held(number(a.value.numpy(), a.type.dtype), a.type.dtype),
    )
