"""Operators said in the form that Vela takes, where another form means the same: means, functions by look-up, argmax.

Vela reduces channels only where height or width is 1, and images one at a time. Rows of channels, which is what every
layer norm reduces, are such images of one line. Works on TFLite operators between a graph and its file; each keeps the
node that it says. Functions of 8 bits that Vela refuses are looked up where it takes look-ups (Ethos-U85). It refuses a
whole file for an argmax or a hard_swish of other than 8 bits, where the host could compute it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator, integers, look_up
from nxjax.lower.npu.graph import Tensor
from nxjax.ops.fixed import functions
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape
from nxjax.vendors.litert.table import Adapt, Table

# Functions of one operand and no options.
_FUNCTIONS = ("SQRT", "LOG", "RSQRT", "EXP", "ELU", "ABS")
# Dimensions that are merged and brought in order are at most so many.
_RANK = 4


def same_bits(table: Table) -> Adapt:
    """The rewrite for a chip: means and functions that ``table`` refuses and takes in another form."""

    def adapt(operations: Sequence[TFLiteOperator]) -> list[TFLiteOperator]:
        found: list[TFLiteOperator] = []
        for o in operations:
            instead = _REFUSED.get(o.name)
            if instead is not None and o.inputs[0] is not None and o.inputs[0].dtype.itemsize > 1:
                found += instead(o, o.inputs[0])
                continue
            make = _flat if o.name == "MEAN" else _looked_up if o.name in _FUNCTIONS else None
            other = make(o) if make is not None and not table.judge(o).ok else None
            found += other if other is not None and all(table.judge(part).ok for part in other) else [o]
        return found

    return adapt


def _flat(o: TFLiteOperator) -> list[TFLiteOperator] | None:
    x, out = o.inputs[0], o.outputs[0]
    assert x is not None
    reduced = set(o.axes)
    # Neighbours that are all reduced, or all kept, are one dimension.
    runs = [
        (gone, [x.shape[a] for a in run]) for gone, run in itertools.groupby(range(len(x.shape)), reduced.__contains__)
    ]
    sizes = [math.prod(sizes) for _, sizes in runs]
    gone = [i for i, (is_gone, _) in enumerate(runs) if is_gone]
    kept = [i for i in range(len(runs)) if i not in gone]
    if len(gone) == 0 or len(runs) > _RANK:
        return None
    made: list[TFLiteOperator] = []

    def step(name: str, source: Tensor, shape: Shape, what: str, values: Sequence[int], **options: object) -> Tensor:
        y = Tensor(f"{out.name}/{what}", shape, source.dtype, source.grid)
        made.append(TFLiteOperator(name, [source, integers(f"{y.name}/of", values)], [y], dict(options), o.node))
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
    made.append(
        TFLiteOperator("MEAN", [at, integers(f"{means.name}/axis", [axis])], [means], {"keep_dims": False}, o.node)
    )
    made.append(
        TFLiteOperator(
            "RESHAPE", [means, integers(f"{out.name}/shape", out.shape)], [out], {"new_shape": out.shape}, o.node
        )
    )
    return made


def _looked_up(o: TFLiteOperator) -> list[TFLiteOperator] | None:
    """A function of int8 as its value for each of the 256 integers."""
    x, out = o.inputs[0], o.outputs[0]
    if x is None or x.grid is None or out.grid is None or x.dtype != dtypes.int8 or out.dtype != dtypes.int8:
        return None
    every = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
    values = functions.unary(o.name.lower(), every, x.grid, out.grid, "double")
    entries = Tensor(f"{out.name}/entries", (256,), out.dtype, out.grid, values)
    half = Tensor(f"{out.name}/half", (), dtypes.int32, None, np.asarray(128, np.int32))
    found: list[TFLiteOperator] = []
    emit = lambda name, ins, outs, **options: found.append(TFLiteOperator(name, ins, outs, options, o.node))
    look_up(emit, x, out, entries, half)
    return found


def _step(o: TFLiteOperator, found: list[TFLiteOperator], name: str, dtype: DType, *inputs: Tensor) -> Tensor:
    """One more operator of those that are made of ``o``, of its operand's shape; gives its result."""
    y = Tensor(f"{o.outputs[0].name}/{len(found)}", inputs[-1].shape, dtype)
    found.append(TFLiteOperator(name, list(inputs), [y], {}, o.node))
    return y


def _number(o: TFLiteOperator, value: float, dtype: DType) -> Tensor:
    return Tensor(f"{o.outputs[0].name}/{value:g}", (), dtype, None, np.asarray(value, dtype))


def _turned(o: TFLiteOperator, x: Tensor) -> list[TFLiteOperator]:
    """An argmax as the argmin of -x, or of -1 - x, which no integer is too large for."""
    found: list[TFLiteOperator] = []
    if x.grid is not None:
        x = _step(o, found, "DEQUANTIZE", dtypes.float32, x)
    if x.dtype == dtypes.float32:
        less = _step(o, found, "NEG", x.dtype, x)
    else:
        less = _step(o, found, "SUB", x.dtype, _number(o, -1, x.dtype), x)
    return [*found, TFLiteOperator("ARG_MIN", [less, *o.inputs[1:]], o.outputs, o.options, o.node)]


def _in_pieces(o: TFLiteOperator, x: Tensor) -> list[TFLiteOperator]:
    """A hard_swish of floats as LiteRT's kernel computes it: (x * relu6(x + 3)) / 6."""
    found: list[TFLiteOperator] = []
    gate = _step(o, found, "RELU6", x.dtype, _step(o, found, "ADD", x.dtype, _number(o, 3, x.dtype), x))
    product = _step(o, found, "MUL", x.dtype, x, gate)
    return [*found, TFLiteOperator("DIV", [product, _number(o, 6, x.dtype)], o.outputs, {}, o.node)]


# What makes Vela refuse a whole file where it has not 8 bits, and what it leaves to the host instead.
_REFUSED: Final[dict[str, Callable[[TFLiteOperator, Tensor], list[TFLiteOperator]]]] = {
    "ARG_MAX": _turned,
    "HARD_SWISH": _in_pieces,
}
