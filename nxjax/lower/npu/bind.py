"""Inputs of a program become constants of it: parameters are weights only once they are known.

Knows programs, no op.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.program import Program


def bind(program: Program, constants: Mapping[int, Any]) -> Program:
    """``program`` with the inputs at the given positions bound to arrays; the other inputs stay, in order.

    Args:
        program: any program.
        constants: position of an input -> array (or `nx.Array`) of its shape and dtype.

    Raises:
        ParameterError: a position that names no input.
        ShapeError, DtypeError: an array of another type than the input.

    >>> p = nx.make_jaxpr(lambda w, x: w * x)(1.0, 2.0)
    >>> str(bind(p, {0: np.float32(3)}).in_types)
    '(f32[]*,)'
    """
    n = len(program.inputs)
    wrong = [i for i in constants if not 0 <= i < n]
    if wrong:
        raise ParameterError("bind: no such input", got=wrong, expected=f"positions 0 to {n - 1}")
    consts, values = list(program.constvars), list(program.values)
    for i, value in sorted(constants.items()):
        var = program.inputs[i]
        numpy = getattr(value, "numpy", None)
        array = np.asarray(numpy() if callable(numpy) else value)
        if array.shape != var.type.shape:
            raise ShapeError(f"bind: input {i} has another shape", got=array.shape, expected=var.type)
        if array.dtype != var.type.dtype:
            got = dtypes.short_name(array.dtype)
            raise DtypeError(f"bind: input {i} has another dtype", got=got, expected=var.type)
        consts.append(var)
        values.append(wrap(array, var.type.weak))
    inputs = [v for i, v in enumerate(program.inputs) if i not in constants]
    return Program(inputs, program.equations, program.outputs, consts, values, program.name)
