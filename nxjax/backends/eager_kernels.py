"""Eager ops on large arrays by compiled kernels, where the CPU's own executor is the default one.

Where NumPy is as quick, NumPy it is: for what takes no more time than its memory takes to read and write, and for the
functions that it has vector code for. Kernels compute what it has none for, sums and extremes, and 16- and 8-bit
floats, in several threads and in memory that the pool has kept. An op whose NumPy meaning is the kernel's to the bit is
compiled when it comes a second time; one that rounds otherwise at once, so that it always gives what `jit` gives.
Arguments that repeat their elements (broadcasts) are passed without the repetition. Knows ops by name and nothing of
how they are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.backends import registry
from nxjax.backends.base import Executable
from nxjax.config import config, current_settings
from nxjax.ops.base import RoundedDerivative
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Op, get_op
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.shortcuts import is_allowed
from nxjax.trace.types import ArrayType

# Rounded once or not at all: NumPy and kernels agree.
_SAME: Final = frozenset((
    "abs", "add", "clamp", "convert_element_type", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne",
    "neg", "select_n", "sqrt", "square", "sub",
))  # fmt: skip
# Rounded as the algorithm has it. For the first NumPy takes longer in any dtype (measured), for the others in narrow
# floats, which it computes one by one.
_QUICK: Final = frozenset((
    "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2",
    "lgamma", "log_softmax", "logistic", "logsumexp", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "rsqrt",
    "softmax",
))  # fmt: skip
_OTHERS: Final = frozenset(("atan2", "pow"))  # and functions of one operand
_NARROW: Final = dtypes.FLOAT - {dtypes.float32, dtypes.float64}
_KNOWN: Final = 1024
# By op, parameters, types, which dimensions are repeated, and settings: an executable; None: NumPy; 1: seen once.
_found: dict[Any, Executable | int | None] = {}


def applies(op: Op, types: Sequence[ArrayType]) -> bool:
    """Whether a large call of ``op`` may be compiled now."""
    if op.name not in _QUICK:
        known = op.name in _SAME or op.name in _OTHERS or isinstance(op, RoundedDerivative)
        if not known or not any(t.dtype in _NARROW for t in types):
            return False
    return config.executor == "cpu" or registry.default().name == "cpu"


def run(op: Op, args: Sequence[DeviceArray], params: dict[str, Any], out: ArrayType) -> DeviceArray | None:
    """The result of type ``out``; None: by NumPy, please."""
    same = op.name in _SAME
    arrays, repeated = [x._data for x in args], list[tuple[int, ...]]()
    for a in arrays:
        dims = () if a is None else _repeated(a)
        if dims is None and same:
            return None  # NumPy walks any strides; a kernel would want a copy
        repeated.append(dims or ())
    try:
        types = tuple([x.type for x in args])
        key = (op, types, tuple(sorted(params.items())), tuple(repeated), current_settings().call)
        known = _found.get(key, 0)
    except TypeError:
        return None
    if same and not is_allowed("eager kernel"):
        return None
    if known == 0 and same:
        _remember(key, 1)
        return None
    if known in (0, 1):
        known = _compiled(op, args, params, repeated, out)
        _remember(key, known)
    if known is None:
        return None
    assert isinstance(known, Executable)
    values = [_once(x, dims) if dims else x for x, dims in zip(args, repeated, strict=True)]
    return known(values)[0]


def _remember(key: Any, value: Executable | int | None) -> None:
    if len(_found) >= _KNOWN:
        _found.pop(next(iter(_found)))
    _found[key] = value


def _repeated(a: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """The dimensions along which elements are repeated; None: strides that are not dense even without them."""
    if a.flags.c_contiguous:
        return ()
    dims = tuple([i for i, (n, s) in enumerate(zip(a.shape, a.strides, strict=True)) if s == 0 and n > 1])
    return dims if dims and _first(a, dims).flags.c_contiguous else None


def _first(a: np.ndarray[Any, Any], dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """One of each repeated element; as many dimensions."""
    return a[tuple([slice(0, 1) if i in dims else slice(None) for i in range(a.ndim)])]


def _once(x: DeviceArray, dims: tuple[int, ...]) -> DeviceArray:
    data = _first(x.numpy(), dims)
    return DeviceArray(data, x.type.with_shape(data.shape))


def _compiled(
    op: Op, args: Sequence[DeviceArray], params: dict[str, Any], repeated: Sequence[tuple[int, ...]], out: ArrayType
) -> Executable | None:
    """The op as a program of its own; None where its kernel would be NumPy."""
    inputs: list[Var] = []
    operands: list[Var] = []
    equations: list[Equation] = []
    for x, dims in zip(args, repeated, strict=True):
        shape = tuple([1 if i in dims else n for i, n in enumerate(x.shape)])
        v = Var(x.type.with_shape(shape))
        inputs.append(v)
        if dims:
            full = Var(x.type)
            spread = {"shape": x.shape, "broadcast_dimensions": tuple(range(len(shape)))}
            equations.append(Equation(get_op("broadcast_in_dim"), (v,), (full,), spread))
            v = full
        operands.append(v)
    result = Var(out)
    equations.append(Equation(op, tuple(operands), (result,), params))
    program = Program(inputs, equations, (result,), name=op.name)
    made = registry.default().compile(program)
    if not getattr(made, "is_native", False):
        return None
    made.prepare()
    return made
