"""Means said in the form that Vela takes, where a reshape of the operand means the same.

Vela reduces channels only where height or width is 1, and images one at a time. Rows of channels, which is what every
layer norm reduces, are such images of one line. Works on TFLite operators between a graph and its file; each keeps the
node that it says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from nxjax.lower.npu.constraints.tflite_table import Adapt, Table, axes
from nxjax.lower.npu.formats.tflite_ops import Operation
from nxjax.lower.npu.graph import Tensor
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

# Dimensions that are merged and brought in order are at most so many.
_RANK = 4


def flat_means(table: Table) -> Adapt:
    """The rewrite for a chip: means that ``table`` refuses and takes in another shape."""

    def adapt(operations: Sequence[Operation]) -> list[Operation]:
        found: list[Operation] = []
        for o in operations:
            other = _flat(o) if o.name == "MEAN" and not table.judge(o).ok else None
            found += other if other is not None and all(table.judge(part).ok for part in other) else [o]
        return found

    return adapt


def _flat(o: Operation) -> list[Operation] | None:
    x, out = o.inputs[0], o.outputs[0]
    assert x is not None
    reduced = set(axes(o))
    # Neighbours that are all reduced, or all kept, are one dimension.
    runs = [
        (gone, [x.shape[a] for a in run]) for gone, run in itertools.groupby(range(len(x.shape)), reduced.__contains__)
    ]
    sizes = [math.prod(sizes) for _, sizes in runs]
    gone = [i for i, (is_gone, _) in enumerate(runs) if is_gone]
    kept = [i for i in range(len(runs)) if i not in gone]
    if len(gone) == 0 or len(runs) > _RANK:
        return None
    made: list[Operation] = []

    def step(name: str, source: Tensor, shape: Shape, what: str, values: Sequence[int], **options: object) -> Tensor:
        y = Tensor(f"{out.name}/{what}", shape, source.dtype, source.grid)
        made.append(Operation(name, [source, _integers(f"{y.name}/of", values)], [y], dict(options), o.node))
        return y

    at = x
    if len(gone) > 1:
        order = [*kept, *gone]
        merged = tuple(sizes)
        at = step("RESHAPE", at, merged, "merged", merged, new_shape=merged)
        at = step("TRANSPOSE", at, tuple(merged[i] for i in order), "ordered", order)
    count = math.prod(sizes[i] for i in gone)
    last = len(gone) > 1 or gone[0] == len(runs) - 1
    shape = (1, x.size // count, count) if last else (*sizes[: gone[0]], count, *sizes[gone[0] + 1 :])
    shape = (1,) * (3 - len(shape)) + shape
    axis = 2 if last else 1
    at = step("RESHAPE", at, shape, "rows", shape, new_shape=shape)
    flat = tuple(n for i, n in enumerate(shape) if i != axis)
    means = Tensor(f"{out.name}/means", flat, out.dtype, out.grid)
    made.append(Operation("MEAN", [at, _integers(f"{means.name}/axis", [axis])], [means], {"keep_dims": False}, o.node))
    made.append(
        Operation(
            "RESHAPE", [means, _integers(f"{out.name}/shape", out.shape)], [out], {"new_shape": out.shape}, o.node
        )
    )
    return made


def _integers(name: str, values: Sequence[int]) -> Tensor:
    return Tensor(name, (len(values),), dtypes.int32, None, np.asarray(values, np.int32))
