"""A whole program in half precision: every float32 value is a float16 one, inputs and results included.

``precision="mixed"`` needs no pass: the rules of products take their operands in half and everything else stays float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.ops.convert import convert_element_type
from nxjax.ops.quant_base import QuantizedOp
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Program, Var, map_programs
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.inline import inlined

# What is about the bits of a float32 is done on float32.
ON_BITS: Final = frozenset(("bitcast_convert_type", "nextafter", "random_unwrap", "random_wrap"))
_LARGEST: Final = float(np.finfo(np.float16).max)
_SMALLEST: Final = float(np.finfo(np.float16).smallest_subnormal)


def in_half(program: Program) -> Program:
    """``program`` with float16 in place of float32 everywhere; constants stay finite, and other than zero.

    Raises:
        LoweringError: it holds quantized ops, whose scales half precision cannot hold.

    >>> p = in_half(nx.make_jaxpr(lambda x: nx.tanh(x) * 1e6)(np.ones(3, np.float32)))
    >>> p.in_types, p.out_types
    ((f16[3],), (f16[3],))
    """
    program = inlined(program)

    def flat(*xs: Array) -> Sequence[Array]:
        consts = (_constant(v.numpy()) for v in program.values)
        env: dict[Var, Array] = dict(zip((*program.inputs, *program.constvars), (*xs, *consts), strict=True))
        value = lambda a: env[a] if isinstance(a, Var) else _constant(a.value.numpy())
        for e in program.equations:
            if isinstance(e.op, QuantizedOp):
                raise LoweringError(
                    "ipu: a quantized program has no form in half precision",
                    got=e.op.name,
                    fix='precision="float32" computes it exactly',
                    source=e.source,
                )
            args = [value(a) for a in e.inputs]
            with replaying(e.scope, e.source):
                if e.op.name in ON_BITS:
                    args = [_as(x, a.type.dtype) for x, a in zip(args, e.inputs, strict=True)]
                    y: Any = e.op(*args, **e.params)
                else:
                    params = map_programs(e.params, in_half)
                    y = e.op(*args, **{k: _half(v) if isinstance(v, np.dtype) else v for k, v in params.items()})
                ys = [_as(v, _half(v.dtype)) for v in (y if e.op.multi else (y,))]
            env.update(zip(e.outputs, ys, strict=True))
        return [_as(value(a), _half(a.type.dtype)) for a in program.outputs]

    types = [ArrayType(t.shape, _half(t.dtype), t.weak) for t in program.in_types]
    return stage(flat, types, program.name)


def _half(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.float16 if dtype == dtypes.float32 else dtype


def _as(x: Array, dtype: dtypes.DType) -> Array:
    return x if x.dtype == dtype else convert_element_type(x, dtype=dtype)


def _constant(x: np.ndarray[Any, Any]) -> Array:
    if x.dtype != np.float32:
        return wrap(x)
    # -1e9 in a mask means "very small", not "minus infinity", whose differences are no numbers; 1e-8 under a root means
    # "not zero".
    finite = np.where(np.isfinite(x), np.clip(x, -_LARGEST, _LARGEST), x).astype(np.float16)
    return wrap(np.where((finite == 0) & (x != 0), np.copysign(_SMALLEST, x), finite).astype(np.float16))
