"""Values that nobody has computed yet: graphs of elementwise ops, index changes and reductions over memory.

A `Lazy` is made by rules and asked for by `Builder.view`; `fuse` then decides what becomes one kernel. It counts who
may still need it: variables of the program that are yet to be read (`Builder.claim`, `Builder.drop`), and other lazy
values. What is needed once more after a kernel has made it, and is not cheap, that kernel stores as well.

    Leaf      memory
    Scalar    one number, written into the code
    Count     an index along a dimension
    Map       an op on elements of operands of one shape
    Index     elements of another value, chosen by affine functions of the place (broadcast, transpose, slice, reverse)
    Shaped    the same elements in row-major order in another shape
    Joined    values side by side along one dimension (a concatenation)
    Reduce    elements along axes, combined
    Product   what a kernel of its own computes (a matrix product, a convolution), and can apply an expression to
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from nxjax.kernels.cpu.expression import Expression
from nxjax.kernels.cpu.op_files import DEAR
from nxjax.lower.cpu.tape import Ref
from nxjax.lower.cpu.view import View, dense_strides
from nxjax.ops.convert import convert_element_type
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation
from nxjax.trace.types import Shape

NDArray = np.ndarray[Any, Any]
Affine = tuple[int, tuple[tuple[int, int], ...]]  # offset, and (dimension, step) pairs: offset + sum(step * index)
ProductEmit = Callable[[Expression, Sequence[View], Sequence[View]], None]
FIXED: Affine = (0, ())
TALL = 48  # values deeper than this are computed, so that kernels stay of a size that compiles at once


class Lazy:
    """A value of some shape and dtype.

    Attributes:
        args: what it is made of.
        refs: how many may still ask for it.
        view: its memory, once it has been computed.
        own: what one element of it takes, in additions.
        height: of the graph below.
        equation: the user's, for the kernel that ends with it.
        order: its dimensions from the outermost to the innermost one in the memory that it gets; None: row-major.
        home: the memory that it is to have, if somebody has some for it (a part of a concatenation).
        ready: home is fresh memory with the dimension innermost that a product has innermost: one may write there, too.
    """

    __slots__ = (
        "args", "dtype", "equation", "height", "home", "order", "own", "ready", "refs", "released", "shape", "view"
    )  # fmt: skip

    def __init__(self, shape: Shape, dtype: DType, args: tuple[Lazy, ...], own: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.args: tuple[Lazy, ...] = args
        self.refs = 0
        self.released = False
        self.view: View | None = None
        self.equation: Equation | None = None
        self.order: tuple[int, ...] | None = None
        self.home: View | None = None
        self.ready = False
        self.height = 1 + max((a.height for a in args), default=0)
        self.own = own
        for a in args:
            a.refs += 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def settled(self, view: View) -> None:
        """It lies in memory now, and needs nothing any more."""
        self.view = view
        self.height = 0
        self._release()
        self.args = ()

    def dropped(self) -> None:
        """Somebody will not ask for it again."""
        self.refs -= 1
        if not self.refs:
            self._release()

    def _release(self) -> None:
        todo: list[Lazy] = [self]
        while todo:
            x = todo.pop()
            if not x.released:
                x.released = True
                for a in x.args:
                    a.refs -= 1
                    if not a.refs:
                        todo.append(a)


@final
class LazyLeaf(Lazy):
    __slots__ = ()

    def __init__(self, view: View) -> None:
        super().__init__(view.shape, view.dtype, (), 0)
        self.height = 0
        self.view = view
        if len(view.shape) > 2 and 0 not in view.strides and not view.is_dense:
            # Images with their channels last stay so.
            order = tuple(sorted(range(len(view.shape)), key=lambda d: (-abs(view.strides[d]), d)))
            self.order = order if order != tuple(range(len(order))) else None


@final
class Scalar(Lazy):
    """``data``: the bytes of one number; repeated over ``shape``."""

    __slots__ = ("data",)

    def __init__(self, data: bytes, shape: Shape, dtype: DType) -> None:
        super().__init__(shape, dtype, (), 0)
        self.height = 0
        self.data = data


@final
class Count(Lazy):
    """The index along ``dimension``."""

    __slots__ = ("dimension",)

    def __init__(self, shape: Shape, dtype: DType, dimension: int) -> None:
        super().__init__(shape, dtype, (), 0)
        self.dimension = dimension


@final
class Map(Lazy):
    __slots__ = ("op", "params")

    def __init__(
        self, op: Op, params: tuple[tuple[str, Any], ...], args: tuple[Lazy, ...], shape: Shape, dtype: DType
    ) -> None:
        super().__init__(shape, dtype, args, DEAR.get(op.name, 1))
        self.op = op
        self.params = params
        self.order = next((a.order for a in args if a.order is not None), None)


def converted_from(x: Any) -> Lazy | None:
    """What ``x`` converts to another dtype, if it is that and not computed yet."""
    return x.args[0] if isinstance(x, Map) and x.view is None and x.op is convert_element_type else None


@final
class LazyIndex(Lazy):
    """``arg`` at ``places``: per dimension of it, an affine function of this value's index."""

    __slots__ = ("places",)

    def __init__(self, arg: Lazy, shape: Shape, places: tuple[Affine, ...]) -> None:
        super().__init__(shape, arg.dtype, (arg,), 0)
        self.places = places


@final
class Shaped(Lazy):
    __slots__ = ()

    def __init__(self, arg: Lazy, shape: Shape) -> None:
        super().__init__(shape, arg.dtype, (arg,), 0)


@final
class Joined(Lazy):
    """``args`` one after the other along ``axis``; where each begins is in ``starts``."""

    __slots__ = ("axis", "starts")

    def __init__(self, args: tuple[Lazy, ...], shape: Shape, axis: int) -> None:
        super().__init__(shape, args[0].dtype, args, 0)
        self.axis = axis
        ends = [*itertools.accumulate(a.shape[axis] for a in args)]
        self.starts = (0, *ends[:-1])


@final
class LazyReduce(Lazy):
    """``op`` (a binary op's name) over ``axes`` of ``arg``, beginning with ``start`` (see `nest.Reduction`)."""

    __slots__ = ("axes", "op", "start")

    def __init__(self, op: str, arg: Lazy, axes: tuple[int, ...], start: bytes) -> None:
        shape = tuple(n for i, n in enumerate(arg.shape) if i not in axes)
        super().__init__(shape, arg.dtype, (arg,), 1)
        self.op = op
        self.axes = axes
        self.start = start


@final
class LazyProduct(Lazy):
    """``emit(expression, operands, outputs)`` adds the kernel: input 0 of the expression is the product's element, the
    others are ``operands``, views of this value's shape (strides may be 0); ``outputs`` are views of this shape too."""

    __slots__ = ("emit",)

    def __init__(self, shape: Shape, dtype: DType, emit: ProductEmit) -> None:
        super().__init__(shape, dtype, (), 1 << 20)
        self.emit = emit


# --- index changes ---


def indexed(x: Lazy, shape: Shape, places: tuple[Affine, ...]) -> Lazy:
    """``x`` at affine places; at once where it is memory."""
    if isinstance(x, Scalar):
        return Scalar(x.data, shape, x.dtype)
    if x.view is not None:
        return LazyLeaf(moved(x.view, shape, places))
    return LazyIndex(x, shape, places)


def moved(v: View, shape: Shape, places: Sequence[Affine]) -> View:
    """The elements of ``v`` at affine places."""
    offset, strides = v.ref.offset, [0] * len(shape)
    for (start, steps), stride in zip(places, v.strides, strict=True):
        offset += start * stride
        for dim, step in steps:
            strides[dim] += step * stride
    if 0 in shape:
        offset = v.ref.offset
    return View(Ref(v.ref.buffer, offset, v.ref.moves), shape, tuple(strides), v.dtype)


def large_sources(x: LazyReduce) -> set[object]:
    """The buffers of at least half as many elements as ``x`` combines, and the products, that it is made of."""
    found, seen, todo = set[object](), set[Lazy](), list(x.args)
    while todo:
        y = todo.pop()
        if y in seen:
            continue
        seen.add(y)
        if y.view is None and not isinstance(y, LazyProduct):
            todo += y.args
        elif 2 * y.size >= x.args[0].size:
            found.add(y if y.view is None else y.view.ref.buffer)
    return found


def pending(x: Lazy) -> set[Lazy]:
    """The ops and products below ``x`` that are not memory yet, and ``x``."""
    found, todo = {x}, [x]
    while todo:
        for y in todo.pop().args:
            if y.view is None and y not in found:
                found.add(y)
                todo.append(y)
    return {y for y in found if y.own}


def permutation(x: LazyIndex) -> tuple[int, ...] | None:
    """The operand's dimensions in the order of those of ``x``, if it only puts them in another order."""
    order = [-1] * len(x.shape)
    for k, (place, n) in enumerate(zip(x.places, x.args[0].shape, strict=True)):
        offset, steps = place
        if n != 1:
            if offset or len(steps) != 1 or steps[0][1] != 1 or x.shape[steps[0][0]] != n:
                return None
            order[steps[0][0]] = k
    ones = [k for k, n in enumerate(x.args[0].shape) if n == 1]
    found = [k if k >= 0 else ones.pop() if ones else -1 for k in order]
    return tuple(found) if sorted(found) == list(range(len(x.args[0].shape))) else None


def shaped(x: Lazy, shape: Shape) -> Lazy:
    """``x`` in another shape; at once where strides allow."""
    if shape == x.shape:
        return x
    if isinstance(x, Scalar):
        return Scalar(x.data, shape, x.dtype)
    if x.view is not None:
        strides = reshaped_strides(x.view, shape)
        if strides is not None:
            return LazyLeaf(View(x.view.ref, shape, strides, x.dtype))
    return Shaped(x, shape)


def groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of equal size in row-major order, sizes of 1 left out; both shapes have as many elements.

    >>> groups((2, 3, 4), (6, 2, 2))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    found: list[tuple[list[int], list[int]]] = []
    a = [i for i, n in enumerate(old) if n != 1]
    b = [i for i, n in enumerate(new) if n != 1]
    i = j = 0
    while i < len(a):
        left, right = [a[i]], [b[j]]
        x, y = old[a[i]], new[b[j]]
        i, j = i + 1, j + 1
        while x != y:
            if x < y:
                x *= old[a[i]]
                left.append(a[i])
                i += 1
            else:
                y *= new[b[j]]
                right.append(b[j])
                j += 1
        found.append((left, right))
    return found


def reshaped_strides(v: View, shape: Shape) -> tuple[int, ...] | None:
    """Strides that make ``v`` of ``shape``; None where there are none."""
    if v.size == 0:
        return dense_strides(shape, v.dtype)
    strides = [v.dtype.itemsize] * len(shape)
    for left, right in groups(v.shape, shape):
        # Dimensions that are merged must follow each other without a gap.
        if any(v.strides[p] != v.strides[q] * v.shape[q] for p, q in itertools.pairwise(left)):
            return None
        step = v.strides[left[-1]]
        for d in reversed(right):
            strides[d] = step
            step *= shape[d]
    return tuple(strides)
