"""Calibration of weights of 4 bits: scales and rounding with which the products on calibration data are best.

What is found says how far a stored number lies from the nearest one, so that weights stay those of the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nxjax.ops.base import constant
from nxjax.ops.dot import dot_general
from nxjax.ops.fake_quantize import blocks
from nxjax.ops.quant_traced import symmetric_limit
from nxjax.quant.error_feedback import Feedback, fed_back, feedback, searched
from nxjax.quant.matrices import from_matrices, matrices, rows
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Dot, Weighted
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import SHARES, STEPS, NDArray
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Equation
from nxjax.transforms.jit import jit

# Rows of operands that convolutions take part with, over all batches, and at least of each.
SAMPLES: Final = 32768
LEAST: Final = 256
# Products over more elements have their errors fed back to none: only scales are searched.
DEEPEST: Final = 8192
# So many numbers of all products' squares are held at a time.
HELD: Final = 1 << 26
# What only arranges weights anew.
_ARRANGING: Final = frozenset(("transpose", "reshape"))


def found(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    batches: Sequence[tuple[Any, ...]],
) -> dict[str, NDArray]:
    """Corrections of all weights that ``policy`` stores as int4; nothing for those of inner programs.

    Scales are searched (`searched`), and each column's error is fed back to those that follow (`fed_back`), with the
    float operands of the products in ``batches``. Products with the same weights store them in the same way.
    """
    most = max(SAMPLES // len(batches), LEAST)

    def walked(args: tuple[Any, ...]) -> tuple[StatisticsTrace, dict[str, list[Weighted]]]:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", True)
        walk = StatisticsTrace(plan, Ranges())
        walk.run(call.values)
        return walk, products(plan)

    plan = PlannedCall(fun, batches[0], {}, params).plan(policy, "quantize", True)
    every = products(plan)
    corrections: dict[str, NDArray] = {}
    for names in _parts(every):

        def weights(*args: Any, names: Sequence[str] = names) -> dict[str, Array]:
            walk, alike = walked(args)
            return {name: alike[name][0].folded_weights(walk) for name in names}

        def squares(*args: Any, names: Sequence[str] = names) -> list[tuple[Array, Array]]:
            walk, alike = walked(args)
            made: dict[Any, tuple[Array, Array]] = {}
            for name in names:
                for group in alike[name]:
                    if _operand(group) not in made:
                        made[_operand(group)] = _square(group, walk.value(group.activations[0]), most)
            return list(made.values())

        totals: list[tuple[Any, int]] = []
        run = jit(squares)
        for args in batches:
            hs = [(np.asarray(h), int(n)) for h, n in run(*args)]
            totals = [(a + h, m + n) for (a, m), (h, n) in zip(totals, hs, strict=True)] if totals else hs
        operands = dict.fromkeys(_operand(group) for name in names for group in every[name])
        square = dict(zip(operands, totals, strict=True))
        backs: dict[Any, list[Feedback] | None] = {}
        for name, w in jit(weights)(*batches[0]).items():
            groups = every[name]
            keys = tuple(map(_operand, groups))
            # One whose operands are larger is no more important than the others.
            h = np.stack([square[key][0] / max(_size(square[key][0]), 1e-30) for key in keys]).sum(0)
            samples = sum(square[key][1] for key in keys)
            if not (np.isfinite(w).all() and np.isfinite(h).all()):
                # What uses them says so.
                continue
            if keys not in backs:
                backs[keys] = [feedback(each, samples) for each in h] if h.ndim == 3 else None
            shares, steps = _rounded(groups[0], np.asarray(w), h, backs[keys])
            for group in groups:
                corrections[plan.layer(group) + SHARES] = shares
                corrections[plan.layer(group) + STEPS] = steps
    return corrections


def products(plan: QuantPlan) -> dict[str, list[Weighted]]:
    """Products whose weights are stored as int4, by the first one's name: together if they have the same weights.

    Without those whose weights something else reads too, or in another arrangement.
    """
    program = plan.program
    producer = {v: e for e in program.equations for v in e.outputs if e.op.name in _ARRANGING}
    readers: dict[Atom, list[Equation]] = {}
    for e in program.equations:
        if e.op.name not in _ARRANGING:
            for a in dict.fromkeys(e.inputs):
                readers.setdefault(_root(a, producer)[0], []).append(e)
    groups = {g.product: g for g in plan.groups() if isinstance(g, Weighted) and g.scheme.weights == dtypes.int4}
    found: dict[str, list[Weighted]] = {}
    for g in groups.values():
        root, way = _root(g.weight, producer)
        alike = [groups.get(e) for e in readers[root]]
        same = [other for other in alike if other is not None and _takes(other, way, g, producer)]
        if same and same[0] is g and len(same) == len(alike) and g.weight.type.size:
            found[plan.layer(g)] = same
    return found


def _root(a: Atom, producer: Mapping[Any, Equation]) -> tuple[Atom, list[tuple[str, Any]]]:
    """What ``a`` is an arrangement of, and the way from there."""
    way: list[tuple[str, Any]] = []
    while (e := producer.get(a)) is not None:
        way.append((e.op.name, sorted(e.params.items())))
        (a,) = e.inputs
    return a, way


def _takes(other: Weighted, way: Sequence[Any], group: Weighted, producer: Mapping[Any, Equation]) -> bool:
    """Whether a product takes its weights as another one does."""
    if other is group:
        return True
    equal = other.product.op is group.product.op and _numbers(other) == _numbers(group)
    return equal and not other.changes_weights and not group.changes_weights and _root(other.weight, producer)[1] == way


def _numbers(group: Weighted) -> Any:
    params = group.product.params
    return params["dimension_numbers"], params.get("feature_group_count"), group.scheme


def _parts(every: Mapping[str, Sequence[Weighted]]) -> Iterator[list[str]]:
    """Names of products whose squares are held at once."""
    part: list[str] = []
    room = HELD
    for name, groups in every.items():
        size = sum(_depth(g) ** 2 for g in groups if _depth(g) <= DEEPEST)
        if part and size > room:
            yield part
            part, room = [], HELD
        part.append(name)
        room -= size
    if part:
        yield part


def _depth(group: Weighted) -> int:
    return math.prod(group.weight.type.shape[i] for i in group.summed())


def _operand(group: Weighted) -> Any:
    """Products of equal keys sum the same rows."""
    x = group.activations[0]
    return (x, group.input_axes(), group.shared()[0]) if isinstance(group, Dot) else (x, group)


def _square(group: Weighted, x: Array, most: int) -> tuple[Array, Array]:
    """X^T X of each group, of a deep product the diagonal; and how many rows X has."""
    r = rows(group, x, most)
    count = constant(r.shape[1], dtypes.int32)
    if r.shape[2] > DEEPEST:
        return (r * r).sum(1), count
    return dot_general(r, r, dimension_numbers=(((1,), (1,)), ((0,), (0,)))), count


def _size(h: NDArray) -> float:
    """The mean square of all operands, but for their number."""
    return float(np.mean(h if h.ndim == 2 else np.diagonal(h, axis1=1, axis2=2)))


def _rounded(group: Weighted, w: NDArray, h: NDArray, backs: Sequence[Feedback] | None) -> tuple[NDArray, NDArray]:
    """Shares of the scales, and steps from the nearest."""
    limit = symmetric_limit(dtypes.int4)
    plain = group.plain_scale(w)
    places = matrices(group, blocks(np.arange(plain.size).reshape(plain.shape), w.shape))
    m = matrices(group, w)
    squares = h if backs is None else np.diagonal(h, axis1=1, axis2=2)
    shares = searched(m, plain, places, squares[:, None], limit)
    full = (plain * shares).reshape(-1)[places]
    nearest = q = np.clip(np.rint(m / full), -limit, limit)
    if backs is not None:
        q = np.stack([fed_back(*each, limit) for each in zip(m, full, backs, strict=True)])
    steps = from_matrices(group, q - nearest, w.shape).astype(np.int8)
    return shares, np.ascontiguousarray(steps)
