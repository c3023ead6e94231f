"""Calibration of weights: scales and rounding with which the products on calibration data are best.

What is found says how far a stored number lies from the nearest one, so that weights stay those of the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from nxjax.ops.base import constant
from nxjax.ops.dot import dot_general
from nxjax.ops.fake_quantize import blocks
from nxjax.ops.quant_traced import symmetric_limit
from nxjax.quant.error_feedback import Feedback, damped, fed_back, feedback, searched
from nxjax.quant.matrices import from_matrices, matrices, rows
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import QuantPlan
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Dot, Weighted
from nxjax.quant.results import not_finite, operand_error
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import SHARES, STEPS, NDArray
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation
from nxjax.transforms.jit import jit

# Rows of operands that convolutions take part with, over all batches, and at least of each.
SAMPLES: Final = 32768
LEAST: Final = 256
# Products over more elements have their errors fed back to none: only scales are searched.
DEEPEST: Final = 8192
# So many numbers of all products' squares are held at a time.
HELD: Final = 1 << 26
# Shares of the correlations of operands that are tried, on so many output channels; 0 is rounding to the nearest.
TRIED: Final = (1.0, 0.5, 0.0)
OUTPUTS: Final = 32
# What only arranges weights anew.
_ARRANGING: Final = frozenset(("transpose", "reshape"))


# Squares that float32 does not hold say nothing: there the nearest numbers stay.
@np.errstate(over="ignore", invalid="ignore")
def found(
    fun: Callable[..., Any],
    policy: Policy,
    params: Sequence[int] | int | None,
    batches: Sequence[tuple[Any, ...]],
    dtype: DType = dtypes.int4,
) -> dict[str, NDArray]:
    """Corrections of all weights that ``policy`` stores as ``dtype``; nothing for those of inner programs.

    Scales are searched (`searched`), and each column's error is fed back to those that follow (`fed_back`), with the
    float operands of the products in ``batches``; where what half of the batches say does not help the other half, not
    at all. Products with the same weights store them in the same way.
    """
    most = max(SAMPLES // len(batches), LEAST)

    def walked(args: tuple[Any, ...]) -> tuple[StatisticsTrace, dict[str, list[Weighted]]]:
        call = PlannedCall(fun, args, {}, params)
        plan = call.plan(policy, "quantize", True)
        walk = StatisticsTrace(plan, Ranges())
        walk.run(call.values)
        return walk, products(plan, dtype)

    plan = PlannedCall(fun, batches[0], {}, params).plan(policy, "quantize", True)
    every = products(plan, dtype)
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

        operands = list(dict.fromkeys(_operand(group) for name in names for group in every[name]))
        # Of every other batch, so that what is made of one half can be tried on the other.
        halves: tuple[dict[Any, _Squares], dict[Any, _Squares]] = {}, {}
        run = jit(squares)
        for i, args in enumerate(batches):
            for key, (h, n) in zip(operands, run(*args), strict=True):
                more = _Squares(np.asarray(h), int(n))
                if not np.isfinite(more.h).all() and not_finite(args):
                    group = next(g for name in names for g in every[name] if _operand(g) == key)
                    raise operand_error("quantize", plan.layer(group), i + 1, args, group.product.source)
                halves[i % 2][key] = halves[i % 2][key].plus(more) if key in halves[i % 2] else more
        backs: dict[Any, list[Feedback] | None] = {}
        for name, w in jit(weights)(*batches[0]).items():
            groups = every[name]
            keys = tuple(map(_operand, groups))
            parts = [_together([half[key] for key in keys]) for half in halves if half]
            total = parts[0].plus(parts[1]) if len(parts) > 1 else parts[0]
            if not (np.isfinite(w).all() and np.isfinite(total.h).all()):
                # What uses them says so.
                continue
            shares, full, m = _scaled(groups[0], np.asarray(w), total)
            if keys not in backs:
                backs[keys] = None if total.h.ndim == 2 else _backs(groups[0], m, full, total, parts)
            for group in groups:
                corrections[plan.layer(group) + SHARES] = shares
                corrections[plan.layer(group) + STEPS] = _steps(groups[0], np.asarray(w), m, full, backs[keys])
    return corrections


class _Squares(NamedTuple):
    """X^T X of each group, of a deep product the diagonal, and how many rows X has."""

    h: NDArray
    samples: int

    def plus(self, other: _Squares) -> _Squares:
        return _Squares(self.h + other.h, self.samples + other.samples)

    def diagonal(self) -> NDArray:
        """With what few samples cannot say."""
        return damped(self.h if self.h.ndim == 2 else np.diagonal(self.h, axis1=1, axis2=2), self.samples)


def _together(parts: Sequence[_Squares]) -> _Squares:
    """Of products with the same weights: one whose operands are larger is no more important than the others."""
    if len(parts) == 1:
        return parts[0]
    sizes = [float(np.mean(p.h if p.h.ndim == 2 else np.diagonal(p.h, axis1=1, axis2=2))) for p in parts]
    even = [p.h * np.float32(p.samples / max(size, 1e-30)) for p, size in zip(parts, sizes, strict=True)]
    return _Squares(np.sum(even, 0), sum(p.samples for p in parts))


def products(plan: QuantPlan, dtype: DType = dtypes.int4) -> dict[str, list[Weighted]]:
    """Products whose weights are stored as ``dtype``, by the first one's name: together if they have the same weights.

    Without those whose weights something else reads too, or in another arrangement.
    """
    program = plan.program
    producer = {v: e for e in program.equations for v in e.outputs if e.op.name in _ARRANGING}
    readers: dict[Atom, list[Equation]] = {}
    for e in program.equations:
        if e.op.name not in _ARRANGING:
            for a in dict.fromkeys(e.inputs):
                readers.setdefault(_root(a, producer)[0], []).append(e)
    groups = {g.product: g for g in plan.groups() if isinstance(g, Weighted) and g.scheme.weights == dtype}
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


def _limit(group: Weighted) -> float:
    assert group.scheme.weights is not None
    return symmetric_limit(group.scheme.weights)


def _scaled(group: Weighted, w: NDArray, squares: _Squares) -> tuple[NDArray, NDArray, NDArray]:
    """Shares of the scales; the scales of all weights, and the weights, as `matrices` has them."""
    plain = group.plain_scale(w)
    places = matrices(group, blocks(np.arange(plain.size).reshape(plain.shape), w.shape))
    m = matrices(group, w)
    shares = searched(m, plain, places, squares.diagonal()[:, None], _limit(group))
    return shares, (plain * shares).reshape(-1)[places], m


def _backs(group: Weighted, m: NDArray, full: NDArray, total: _Squares, parts: Sequence[_Squares]) -> list[Feedback]:
    """How errors are fed back in each group: by the share of their correlations that is best where it is tried.

    Of `OUTPUTS` channels, what one half of the batches says is tried on the other half.
    """
    share, limit = 1.0, _limit(group)
    if len(parts) > 1:
        some = slice(None, None, -(-m.shape[1] // OUTPUTS))
        share = min(TRIED, key=lambda share: _lost(share, limit, m[:, some], full[:, some], *parts))
    return [feedback(h, total.samples, share=share) for h in total.h]


def _lost(share: float, limit: float, m: NDArray, full: NDArray, seen: _Squares, unseen: _Squares) -> float:
    """The squared error on ``unseen`` operands of what ``seen`` ones made of weights."""
    lost = 0.0
    for w, scale, h, other in zip(m, full, seen.h, unseen.h, strict=True):
        error = fed_back(w, scale, feedback(h, seen.samples, share=share), limit) * scale - w
        lost += float(np.sum((error @ other) * error))
    return lost


def _steps(group: Weighted, w: NDArray, m: NDArray, full: NDArray, backs: Sequence[Feedback] | None) -> NDArray:
    """How far the stored numbers lie from the nearest."""
    limit = _limit(group)
    nearest = q = np.clip(np.rint(m / full), -limit, limit)
    if backs is not None:
        q = np.stack([fed_back(*each, limit) for each in zip(m, full, backs, strict=True)])
    return np.ascontiguousarray(from_matrices(group, q - nearest, w.shape).astype(np.int8))
