"""Constants in the fewest bits: what a quantized program computes from its weights is computed now and kept small.

`expanded` writes the integer arithmetic of quantized ops out, so that folding reaches it; `narrowed` stores a constant
of small whole numbers as int8, and weights of `quantize_weight` as the integers they are on, each with the conversion
that gives back the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.fold import folded
from nxjax.ops.arithmetic import mul
from nxjax.ops.convert import convert_element_type
from nxjax.ops.fake_quantize import quantize_weight, weight_integers
from nxjax.ops.quant_base import QuantizedOp
from nxjax.ops.quant_traced import broadcast_blocks
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Literal, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage

# Smaller constants are left as they are.
SMALLEST: Final = 256


def narrow(program: Program) -> Program:
    """``program`` with its quantized ops expanded, its constants folded, and what is left of them in the fewest bits.

    The results are the same, bit for bit.

    >>> w = np.ones((64, 64), np.float32)
    >>> p = nx.make_jaxpr(lambda x: x @ w)(w)
    >>> [str(v.type) for v in narrow(p).constvars], [e.op.name for e in narrow(p).equations]
    (['i8[64,64]'], ['convert_element_type', 'dot_general'])
    """
    return narrowed(dead_code_eliminated(folded(expanded(program))))


def expanded(program: Program) -> Program:
    """``program`` with the ops of the quantized family written out as integer arithmetic."""
    if not any(isinstance(e.op, QuantizedOp) for e in program.equations):
        return program

    def flat(*xs: Array) -> Sequence[Array]:
        env: dict[Var, Array] = dict(zip((*program.inputs, *program.constvars), (*xs, *program.values), strict=True))
        value = lambda a: env[a] if isinstance(a, Var) else a.value
        for e in program.equations:
            op: Any = e.op.expand if isinstance(e.op, QuantizedOp) else e.op
            with replaying(e.scope, e.source):
                y = op(*map(value, e.inputs), **e.params)
            env.update(zip(e.outputs, y if e.op.multi else (y,), strict=True))
        return [value(a) for a in program.outputs]

    return stage(flat, [v.type for v in program.inputs], program.name)


def narrowed(program: Program) -> Program:
    """``program`` with constants of small whole numbers as int8, quantized weights as stored, unused ones gone."""
    read = {a for e in program.equations for a in e.inputs} | set(program.outputs)
    values: dict[Var, Any] = {v: x for v, x in zip(program.constvars, program.values, strict=True) if v in read}
    small = {v: x for v, x in values.items() if _whole(v, x.numpy())}
    weights = {e for e in program.equations if e.op is quantize_weight and all(_known(a, values) for a in e.inputs)}
    if not small and not weights and len(values) == len(program.constvars):
        return program

    def flat(*xs: Array) -> Sequence[Array]:
        env: dict[Var, Array] = dict(zip(program.inputs, xs, strict=True))
        env.update((v, x) for v, x in values.items() if v not in small)

        def value(a: Atom) -> Array:
            if isinstance(a, Literal):
                return a.value
            if a not in env:
                # Where it is first read, under that equation's name.
                env[a] = _converted(small[a].numpy().astype(np.int8), a.type.dtype)
            return env[a]

        for e in program.equations:
            with replaying(e.scope, e.source):
                if e in weights:
                    w, scale = (_data(a, values) for a in e.inputs)
                    integers = _converted(weight_integers(w, scale, e.params["dtype"]), dtypes.float32)
                    env[e.outputs[0]] = mul(integers, broadcast_blocks(wrap(scale), w.shape))
                    continue
                y: Any = e.op(*map(value, e.inputs), **e.params)
            env.update(zip(e.outputs, y if e.op.multi else (y,), strict=True))
        return [value(a) for a in program.outputs]

    return stage(flat, [v.type for v in program.inputs], program.name)


def _known(a: Atom, values: dict[Var, Any]) -> bool:
    return isinstance(a, Literal) or a in values


def _data(a: Atom, values: dict[Var, Any]) -> Any:
    """The array of a literal or a constant."""
    return (a.value if isinstance(a, Literal) else values[a]).numpy()


def _whole(v: Var, x: np.ndarray[Any, Any]) -> bool:
    if x.size < SMALLEST or v.type.dtype not in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64):
        return False
    # A negative zero is a float only.
    return bool(np.all((x >= -128) & (x <= 127) & (x == np.trunc(x)))) and not np.any(np.signbit(x) & (x == 0))


def _converted(x: np.ndarray[Any, Any], dtype: dtypes.DType) -> Array:
    return convert_element_type(wrap(x), dtype=dtype)
