"""Cycles of elementwise vertices, by poplibs' published estimates (``popops/popopsCycleEstimators.cpp``).

One op of one or two operands costs what poplibs says of its vertex. Several ops in one vertex share its start and its
loop: there the vectors' loads are counted once per operand, and the ops' own cycles are summed up, as poplibs counts
fused maps. Ops without a figure are counted as those that they are made of. Knows no codelet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.spec import per_worker
from nxjax.ops.primitives import decomposition

DType = np.dtype[Any]
# Cycles per vector of 64 bits: (two floats, four halves). From poplibs' tables, per element there where it says so.
# Functions of C's library, the last of them made of the others: e^x and arithmetic, logarithms and roots.
LIBRARY: Final[dict[str, tuple[int, int]]] = {
    "exp": (6, 4),
    "exp2": (7, 5),
    "tanh": (12, 4),
    "log": (12, 4),
    "sqrt": (10, 23),
    "erf": (82, 52),
    "erfc": (83, 53),
    "sin": (4600, 100),
    "cos": (4600, 100),
    "tan": (10200, 400),
    "asin": (204, 408),
    "acos": (204, 408),
    "atan": (204, 408),
    "atan2": (272, 544),
    "expm1": (20, 28),
    "log1p": (26, 30),
    "sinh": (24, 24),
    "cosh": (20, 20),
    "asinh": (44, 60),
    "acosh": (44, 60),
    "atanh": (40, 44),
    "cbrt": (120, 240),
    "pow": (60, 80),
    "floor": (2, 6),
    "ceil": (2, 6),
}
VECTOR: Final[dict[str, tuple[int, int]]] = {
    **LIBRARY,
    "add": (1, 1),
    "sub": (1, 1),
    "mul": (1, 1),
    "abs": (2, 2),
    "neg": (2, 2),
    "square": (2, 2),
    "max": (1, 1),
    "min": (1, 1),
    "clamp": (2, 2),
    "div": (7, 16),
    "logistic": (12, 6),
    "rsqrt": (8, 19),
    "select_n": (4, 6),
    "is_finite": (4, 6),
    "convert_element_type": (1, 1),
    "bitcast_convert_type": (0, 0),
    # Made of the above.
    "erf_inv": (60, 90),
    "round": (2, 6),
    "sign": (6, 8),
    "rem": (40, 80),
    "nextafter": (30, 60),
    "reduce_precision": (24, 48),
    "lgamma": (400, 800),
    "digamma": (400, 800),
    "zeta": (1800, 3600),
    "polygamma": (2600, 5200),
    # Some twenty steps of a series or a fraction.
    **dict.fromkeys(("igamma", "igammac", "igamma_grad_a", "random_gamma_grad"), (3000, 6000)),
    "regularized_incomplete_beta": (3600, 7200),
}
# Compared and chosen with vector instructions too, the result a byte each.
_COMPARE: Final = ("eq", "ne", "lt", "le", "gt", "ge")
# An integer op, one element: load, load, compute, store and the loop.
_INTEGER: Final = 7
_INTEGER_SLOW: Final = {"div": 40, "rem": 40, "integer_pow": 20, "clz": 3, "population_count": 3}

# poplibs' (cycles per loop, elements per loop) of the ops whose loops are unrolled, for floats and for halves.
_UNROLLED: Final = {
    "exp": ((6, 2), (4, 4)),
    "tanh": ((12, 2), (4, 4)),
    "logistic": ((12, 2), (6, 4)),
    "log": ((12, 2), (4, 4)),
    "sqrt": ((10, 2), (23, 4)),
    "rsqrt": ((8, 2), (19, 4)),
    "neg": ((2, 2), (2, 4)),
    "square": ((2, 2), (2, 4)),
    "erf": ((41, 1), (13, 1)),
}


def lanes(dtype: DType) -> int:
    """Elements that a 64-bit vector instruction works on; one where there is none."""
    return {"float32": 2, "float16": 4}.get(dtype.name, 1)


def of_op(name: str, dtype: DType, params: Any = None) -> float:
    """Cycles per element of one op on operands of ``dtype``, without loads, stores and the loop."""
    if dtype.kind != "f":
        return _INTEGER_SLOW.get(name, _INTEGER - 4)
    if name in _COMPARE:
        return 2 / lanes(dtype)
    if name in VECTOR:
        return VECTOR[name][dtype.itemsize == 2] / lanes(dtype)
    parts = decomposition(name, [dtype], params)
    assert parts is not None, name
    return sum(of_op(e.op.name, e.inputs[-1].type.dtype, e.params) for e in parts.equations)


def unary(name: str, count: int, dtype: DType, chip: IpuChip) -> int:
    """One op of one operand.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> unary("tanh", 600, np.dtype("float16"), BOW)  # 100 a worker: 25 loops of 4 cycles
    722
    """
    n = per_worker(count, chip)
    base = 33 if name == "exp" else 17
    unrolled = _UNROLLED.get(name)
    if unrolled is not None:
        each, elements = unrolled[dtype.itemsize == 2]
        return chip.workers * (base + -(-n // elements) * each) + 20
    each = of_op(name, dtype) * lanes(dtype)
    return int(chip.workers * (base + -(-n // lanes(dtype)) * (each + 4)) + 20)


def binary(name: str, count: int, dtype: DType, chip: IpuChip) -> int:
    """One op of two operands of ``count`` elements.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> binary("add", 600, np.dtype("float32"), BOW)  # 100 a worker: 50 loops of 3 cycles
    1085
    """
    loops = -(-per_worker(count, chip) // lanes(dtype))
    more = 2 if name in ("add", "sub", "mul") else 5
    base = 26 if dtype.itemsize == 2 else 29
    return int(chip.workers * (base + loops * (of_op(name, dtype) * lanes(dtype) + more)) + 11)


def with_scalar(name: str, count: int, dtype: DType, chip: IpuChip) -> int:
    """One op of a vector and one number.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> with_scalar("mul", 600, np.dtype("float32"), BOW)
    731
    """
    loops = -(-per_worker(count, chip) // lanes(dtype))
    more = 1 if name in ("add", "sub", "mul") else 4
    return int(chip.workers * (20 + loops * (of_op(name, dtype) * lanes(dtype) + more)) + 11)


def cast(count: int, source: DType, target: DType, chip: IpuChip) -> int:
    """A change of float type.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> cast(600, np.dtype("float32"), np.dtype("float16"), BOW)
    456
    """
    n = per_worker(count, chip)
    return chip.workers * (26 + max(-(-n // lanes(source)), -(-n // lanes(target))))


def fused(ops: float, streams: Sequence[DType], count: int, rows: int, chip: IpuChip) -> int:
    """Several ops, ``ops`` cycles per element together; ``streams`` are the operands and results of a box's size.

    Each row of a box whose operands repeat begins a loop anew.
    """
    n = per_worker(count, chip)
    wide = min((lanes(d) for d in streams), default=1)
    loops = -(-n // wide)
    starts = -(-rows // chip.workers)
    return int(chip.workers * (29 + 10 * (starts - 1) + loops * (len(streams) - 1 + np.ceil(ops * wide))) + 11)
