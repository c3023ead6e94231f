"""Random well-typed programs out of the op vocabulary, for properties that every function must have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nxjax.ops import arithmetic, bitwise, compare, convert, dot, elementary, reduce, rounding, select, shape, slicing
from nxjax.testing.comparison import NDArray
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

Choose = Callable[[int], int]
Step = tuple[str, Callable[..., Array], tuple[int, ...]]


def _bounded_mul(x: Array, y: Array) -> Array:
    return arithmetic.mul(elementary.tanh(x), y)


def _off_the_steps(op: Any) -> Callable[..., Array]:
    """An op that jumps, moved away from the round numbers, where rounding errors would decide."""
    return lambda x, *rest: op(arithmetic.add(x, 0.137) if x.dtype in dtypes.FLOAT else x, *rest)


def _ops(*ops: Any) -> tuple[tuple[str, Callable[..., Array]], ...]:
    return tuple((op.name, op) for op in ops)


def _jumping(*ops: Any) -> tuple[tuple[str, Callable[..., Array]], ...]:
    return tuple((op.name, _off_the_steps(op)) for op in ops)


# Bounded or slowly growing, so that values stay finite and comparable over many steps.
_SMOOTH: Final = _ops(
    elementary.sin, elementary.cos, elementary.tanh, elementary.logistic, elementary.atan, arithmetic.neg
)
_ROUGH: Final = (*_ops(arithmetic.abs), *_jumping(arithmetic.sign, rounding.floor, rounding.ceil))
_SMOOTH_PAIRS: Final = (*_ops(arithmetic.add, arithmetic.sub), ("mul of tanh", _bounded_mul))
_ROUGH_PAIRS: Final = _ops(arithmetic.max, arithmetic.min)
_INTEGER_PAIRS: Final = _ops(
    arithmetic.add, arithmetic.sub, arithmetic.mul, arithmetic.max, arithmetic.min, arithmetic.div, arithmetic.rem,
    bitwise.and_, bitwise.or_, bitwise.xor, bitwise.shift_left, bitwise.shift_right_arithmetic,
)  # fmt: skip
_COMPARISONS: Final = _jumping(compare.eq, compare.ne, compare.lt, compare.le, compare.gt, compare.ge)
_LOGIC: Final = _ops(bitwise.and_, bitwise.or_, bitwise.xor)


@dataclass(frozen=True)
class RandomProgram:
    """A function of arrays made of random ops.

    Attributes:
        args: NumPy arrays as its arguments.
        steps: op, name and operands of each step, by position among arguments and earlier results.

    >>> program = random_program(np.random.default_rng(0), 3)
    >>> program(*program.args).shape, len(program.steps)
    ((2, 2), 3)
    """

    args: tuple[NDArray, ...]
    steps: tuple[Step, ...]

    def __call__(self, *xs: Any) -> Array:
        values: list[Any] = [wrap(x) if isinstance(x, np.ndarray) else x for x in xs]
        for _, function, operands in self.steps:
            values.append(function(*(values[i] for i in operands)))
        return values[-1]

    def __repr__(self) -> str:
        first = len(self.args)
        lines = [f"v{i} = {arg.dtype.name}{list(arg.shape)}" for i, arg in enumerate(self.args)]
        for i, (name, _, operands) in enumerate(self.steps):
            lines.append(f"v{first + i} = {name}({', '.join(f'v{j}' for j in operands)})")
        return "\n".join(lines)


def random_program(
    source: np.random.Generator | Choose, steps: int = 8, *, differentiable: bool = False
) -> RandomProgram:
    """A random well-typed function and its arguments.

    Args:
        source: a NumPy generator, or a function that returns an int in [0, n) for n. With hypothesis, ``lambda n:
            draw(st.integers(0, n - 1))`` lets it shrink the program.
        steps: the number of ops.
        differentiable: only smooth ops on float64, for checks of derivatives.

    >>> program = random_program(np.random.default_rng(0), 5)
    >>> len(program.steps)
    5
    """
    if isinstance(source, np.random.Generator):
        generator = source
        choose: Choose = lambda n: int(generator.integers(n))
    else:
        choose = source
    shapes = ((3, 4), (4,), (), (2, 3))
    main = shapes[choose(len(shapes))]
    data = np.random.default_rng(choose(1000))
    dtype = np.float64 if differentiable else np.float32
    args: list[NDArray] = [data.uniform(-2, 2, main).astype(dtype) for _ in range(1 + choose(2))]
    if not differentiable:
        args.append(data.integers(-5, 6, main).astype(np.int32))
    types = [ArrayType(a.shape, a.dtype) for a in args]
    made: list[Step] = []
    for _ in range(steps):
        step = _choose_step(types, choose, differentiable)
        made.append(step)
        types += stage(lambda *xs, f=step[1]: [f(*xs)], [types[i] for i in step[2]]).out_types
    return RandomProgram(tuple(args), tuple(made))


def _choose_step(types: Sequence[ArrayType], choose: Choose, differentiable: bool) -> Step:
    """A step whose first operand is a late value, more often than an early one."""
    back = min(choose(len(types)), choose(len(types)))
    i = len(types) - 1 - back
    x = types[i]
    same = [j for j, t in enumerate(types) if t.typematch(x)]
    kinds: list[Callable[[], Step]] = []
    if x.dtype in dtypes.FLOAT:
        kinds += [lambda: _pick(_SMOOTH, choose, i)] * 2
        kinds += [lambda: _pick(_SMOOTH_PAIRS, choose, i, same[choose(len(same))])] * 2
        if x.ndim == 2:
            kinds.append(lambda: ("dot_general", _gram, (i,)))
        if x.ndim:
            kinds.append(lambda: ("centred", _centred, (i,)))
        if not differentiable:
            kinds.append(lambda: _pick(_ROUGH, choose, i))
            kinds.append(lambda: _pick(_ROUGH_PAIRS, choose, i, same[choose(len(same))]))
            kinds.append(lambda: ("convert_element_type", _to_int, (i,)))
    elif x.dtype in dtypes.INTEGER:
        kinds += [lambda: _pick(_INTEGER_PAIRS, choose, i, same[choose(len(same))])] * 2
        kinds.append(lambda: ("convert_element_type", _to_float, (i,)))
    else:
        kinds.append(lambda: _pick(_LOGIC, choose, i, same[choose(len(same))]))
        kinds.append(lambda: ("not", bitwise.not_, (i,)))
        pairs = [j for j, t in enumerate(types) if t.shape == x.shape and t.dtype in dtypes.FLOAT]
        if pairs:
            chosen = (pairs[choose(len(pairs))], pairs[choose(len(pairs))])
            kinds += [lambda: ("select_n", select.select_n, (i, *chosen))] * 2
        kinds.append(lambda: ("convert_element_type", _to_float, (i,)))
    if not differentiable and x.dtype != dtypes.bool_:
        kinds.append(lambda: _pick(_COMPARISONS, choose, i, same[choose(len(same))]))
    kinds += [lambda: _moved(x, choose, i)] * 2
    return kinds[choose(len(kinds))]()


def _pick(ops: Sequence[tuple[str, Callable[..., Array]]], choose: Choose, *operands: int) -> Step:
    return *ops[choose(len(ops))], operands


def _moved(x: ArrayType, choose: Choose, i: int) -> Step:
    """A step that moves or joins elements."""
    n = x.ndim
    if x.size > 200 or not n:
        if not n:
            grow = lambda v: shape.broadcast_in_dim(v, shape=(3,), broadcast_dimensions=())
            return "broadcast_in_dim", grow, (i,)
        return "reduce", lambda v: _reduced(v, (0,)), (i,)
    axis = choose(n)
    others = tuple(reversed(range(n)))
    flat = (x.size,)
    limits = tuple(max(1, d - 1) if k == axis else d for k, d in enumerate(x.shape))
    moves: tuple[tuple[str, Callable[..., Array]], ...] = (
        ("transpose", lambda v: shape.transpose(v, permutation=others)),
        ("reshape", lambda v: shape.reshape(v, shape=flat)),
        ("rev", lambda v: shape.rev(v, dimensions=(axis,))),
        ("slice", lambda v: slicing.slice(v, start_indices=(0,) * n, limit_indices=limits, strides=None)),
        ("concatenate", lambda v: slicing.concatenate(v, v, dimension=axis)),
        ("reduce", lambda v: _reduced(v, (axis,))),
    )
    name, function = moves[choose(len(moves))]
    return name, function, (i,)


def _reduced(v: Array, axes: tuple[int, ...]) -> Array:
    return reduce.reduce_or(v, axes=axes) if v.dtype == dtypes.bool_ else reduce.reduce_sum(v, axes=axes)


def _centred(v: Array) -> Array:
    """What normalizations do: elements beside a reduction of them."""
    mean = arithmetic.mul(_reduced(v, (v.ndim - 1,)), 1 / max(v.shape[-1], 1))
    kept = tuple(range(v.ndim - 1))
    return arithmetic.sub(v, shape.broadcast_in_dim(mean, shape=v.shape, broadcast_dimensions=kept))


def _gram(v: Array) -> Array:
    v = elementary.tanh(v)
    return dot.dot_general(
        v, v, dimension_numbers=(((1,), (1,)), ((), ())), precision=None, preferred_element_type=None
    )


def _to_int(v: Array) -> Array:
    return convert.convert_element_type(arithmetic.add(v, 0.137), dtype=dtypes.int32)


def _to_float(v: Array) -> Array:
    # Sums and products of integers grow: a bounded function of them stays comparable.
    return elementary.tanh(convert.convert_element_type(v, dtype=dtypes.float32))
