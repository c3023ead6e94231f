"""Products of complex numbers as products of real ones: twice the depth, twice the columns.

A row of the left operand is read as its real and imaginary parts in turns. The right operand is laid out so that real
and imaginary parts of the result come out in turns as well: for each of its elements ``a + bi`` the square ::

     a  b
    -b  a
"""

from __future__ import annotations

from dataclasses import replace

from nxjax.kernels.cpu.expression import ExpressionNode
from nxjax.kernels.cpu.nest import Input, Nest, Output
from nxjax.lower.cpu.builder import Builder
from nxjax.lower.cpu.view import View, dense_strides
from nxjax.ops import vocabulary as ops
from nxjax.ops.arithmetic import neg
from nxjax.ops.dot import DotDimensionNumbers, free
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType


def parts(v: View) -> View:
    """A complex view as real numbers, with a last dimension of two."""
    part = dtypes.real_part(v.dtype)
    return View(v.ref, (*v.shape, 2), (*v.strides, part.itemsize), part)


def squares(b: Builder, y: View, numbers: DotDimensionNumbers) -> View:
    """The right operand as ``[batch, depth, 2, columns, 2]``, any number of dimensions in the place of each."""
    (_, yc), (_, yb) = numbers
    yf = free(len(y.shape), yc, yb)
    order = (*yb, *yc, *yf)
    cut = len(yb) + len(yc)
    sizes = tuple(y.shape[i] for i in order)
    part = dtypes.real_part(y.dtype)
    out = b.new(ArrayType((*sizes[:cut], 2, *sizes[cut:], 2), part))
    if not y.size:
        return out
    steps = dense_strides(out.shape, part)
    row, element = steps[cut], steps[-1]
    strides = (*steps[:cut], *steps[cut + 1 : -1])
    nodes = (
        ExpressionNode(ops.real, (), (0,), part),
        ExpressionNode(ops.imag, (), (0,), part),
        ExpressionNode(neg, (), (2,), part),
    )
    # Which value goes where in the square.
    places = ((1, 0), (2, element), (3, row), (1, row + element))
    # A nest has a dimension, if only of one element.
    one = () if sizes else (0,)
    sizes = sizes or (1,)
    given = Input(y.dtype, (*(y.strides[i] for i in order), *one))
    outs = tuple(Output(value, (*strides, *one)) for value, _ in places)
    nest = Nest(sizes, len(sizes), False, (given,), nodes, outs)
    b.call(nest, [y], [replace(out, ref=replace(out.ref, offset=out.ref.offset + at)) for _, at in places])
    return out


def real_numbers(numbers: DotDimensionNumbers, ndim: int) -> DotDimensionNumbers:
    """Dimension numbers of the product of `parts` of a left operand of ``ndim`` dimensions with `squares`."""
    (xc, yc), (xb, yb) = numbers
    first = len(yb)
    return ((*xc, ndim), tuple(range(first, first + len(yc) + 1))), (xb, tuple(range(first)))
