"""Writes at known places as what chips and integer arithmetic have: ``x.at[:, 2:4].set(y)`` is an update of a slice.

``add`` and ``subtract`` are sums with the update amid zeros, ``multiply`` is a product with it amid ones. Only one
place at a time, known and inside; other scatters stay as they are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.ops.scatter import Scatter, scatter, scatter_add, scatter_mul, scatter_sub
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import dynamic_update_slice, pad
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType, Shape

# What is combined with numbers that a grid can hold, or takes the place.
WRITES: Final[tuple[Scatter, ...]] = (scatter, scatter_add, scatter_sub, scatter_mul)


def use_slice_updates(program: Program) -> Program:
    """``program`` with its writes at known places in those words.

    >>> p = nx.make_jaxpr(lambda x: x.at[1:3].set(0.0))(np.zeros(5, np.float32))
    >>> [e.op.name for e in use_slice_updates(p).equations]
    ['broadcast_in_dim', 'dynamic_update_slice']
    """
    known = dict(zip(program.constvars, program.values, strict=True))
    equations: list[Equation] = []
    changed = False
    for e in program.equations:
        found = _written(e, known) if e.op in WRITES else None
        changed = changed or found is not None
        equations += [e] if found is None else found
    if not changed:
        return program
    return Program(program.inputs, equations, program.outputs, program.constvars, program.values, program.name)


def _written(e: Equation, known: dict[Var, Any]) -> list[Equation] | None:
    x, indices, update = e.inputs
    n = e.params["dimension_numbers"]
    value = known.get(indices) if isinstance(indices, Var) else indices.value
    if value is None or n.operand_batching_dims or len(indices.type.shape) != 1:
        return None
    if tuple(n.update_window_dims) != tuple(range(len(update.type.shape))):
        return None
    size = n.sizes(x.type, update.type)
    starts = [0] * len(size)
    for d, place in zip(n.scatter_dims_to_operand_dims, np.asarray(value.numpy()).tolist(), strict=True):
        starts[d] = int(place)
    if any(s < 0 or s + k > m for s, k, m in zip(starts, size, x.type.shape, strict=True)):
        return None
    made: list[Equation] = []

    def step(op: Any, inputs: tuple[Atom, ...], made_shape: Shape, **params: Any) -> Var:
        y = Var(ArrayType(made_shape, update.type.dtype))
        made.append(Equation(op, inputs, (y,), params, e.source, e.scope))
        return y

    whole: Atom = update if update.type.shape == size else step(reshape, (update,), size, shape=size)
    assert isinstance(e.op, Scatter)
    op = e.op.combiner
    if op is None:
        places = tuple(Literal(wrap(np.asarray(s, dtypes.int32))) for s in starts)
        made.append(Equation(dynamic_update_slice, (x, whole, *places), e.outputs, {}, e.source, e.scope))
        return made
    config = tuple((s, m - s - k, 0) for s, k, m in zip(starts, size, x.type.shape, strict=True))
    number = Literal(wrap(np.asarray(e.op.identity(update.type.dtype), update.type.dtype)))
    wide = step(pad, (whole, number), x.type.shape, padding_config=config)
    made.append(Equation(op, (x, wide), e.outputs, {}, e.source, e.scope))
    return made
