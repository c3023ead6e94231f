"""Incomplete gamma and beta functions: their recurrences as loops over all elements, in float64.

Knows no function: an op says what its recurrences start with, and what is made of where they end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lower import inline_expansion
from nxjax.ops.base import constant
from nxjax.ops.incomplete import Incomplete
from nxjax.ops.recurrence import while_unfinished
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import pad, slice
from nxjax.trace.core import Array
from nxjax.trace.program import Equation
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import while_loop

BLOCK: Final = 1024  # elements


@rule("igamma", "igamma_grad_a", "igammac", "random_gamma_grad", "regularized_incomplete_beta")
def incomplete(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    op = e.op
    assert isinstance(op, Incomplete)
    if not e.outputs[0].type.size:
        raise NoKernel("nothing to compute")
    if isa.current().reproducible:
        raise NoKernel("steps go on until the last element of a block has settled")
    function = op.by(while_unfinished(while_loop))
    return inline_expansion(b, e, xs, partial(_by_blocks, function) if e.outputs[0].type.size > BLOCK else function)


def _by_blocks(function: Callable[..., Array], *xs: Array) -> Array:
    """``function`` of so many elements at a time as stay in the first caches, each until its own loop has ended."""
    size = xs[0].size
    extra = -size % BLOCK
    rows = [
        reshape(
            pad(reshape(x, shape=(size,)), constant(1, x.dtype, ()), padding_config=((0, extra, 0),)),
            shape=((size + extra) // BLOCK, BLOCK),
        )
        for x in xs
    ]
    _, y = scan(lambda carry, row: (carry, function(*row)), (), tuple(rows))
    y = reshape(y, shape=(size + extra,))
    return reshape(slice(y, start_indices=(0,), limit_indices=(size,), strides=None), shape=xs[0].shape)
