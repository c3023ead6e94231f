"""SmoothQuant of a function: what products behind a norm read is evened out by channel, and their weights take it over.

The function's results stay the same; it may be quantized, differentiated, compiled.

Works on programs: it does not ask where weights come from, or who else reads what a norm makes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.arithmetic import Add, Mul, mul
from nxjax.ops.base import NDArray
from nxjax.ops.composite_norm import OverAxes
from nxjax.ops.shape import broadcast_in_dim
from nxjax.quant.calibration import given
from nxjax.quant.groups import FusedGroup
from nxjax.quant.plan import Inner
from nxjax.quant.planned import PlannedCall
from nxjax.quant.products import Dot
from nxjax.quant.results import operand_error
from nxjax.quant.scheme import as_policy
from nxjax.quant.view import WeightView
from nxjax.quant.walk import Walker
from nxjax.trace import tree
from nxjax.trace.array import wrap
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Equation, Var
from nxjax.transforms.jit import jit

# Weights alone: norms stay whole, and every product with weights is a group.
_POLICY = as_policy("int8-weights")
# Below this a channel counts as nothing, so that no factor is out of bounds.
_LEAST = 1e-5


@final
class Smoothed:
    """``fun`` with the inputs of some products divided by a row of factors, and their weights multiplied by it.

    Attributes:
        fun: the function.
        factors: name of a product -> a factor for each channel that it sums over.
    """

    def __init__(
        self, fun: Callable[..., Any], factors: Mapping[str, NDArray], params: Sequence[int] | int | None
    ) -> None:
        self.fun, self.factors, self.params = fun, dict(factors), params
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = getattr(fun, "__name__", type(fun).__name__.lower())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = PlannedCall(self.fun, args, kwargs, self.params)
        walk = _Smooth(call, self.factors)
        return tree.unflatten(call.out_tree, walk.run(call.values))


@entry
def smoothed(
    fun: Callable[..., Any], data: Iterable[Any], alpha: float = 0.5, *, params: Sequence[int] | int | None = None
) -> Smoothed:
    """SmoothQuant as a transform: outlier channels behind a norm move into the weights of the products that read it.

    Xiao et al. 2022 (as `smooth`), equation 4: ``s_j = max |X_j|^alpha / max |W_j|^(1 - alpha)``, over all products
    that read the norm. Where something else reads it too, as a residual sum does, the norm is computed with two sets
    of parameters. Weights may be arguments or closed over, as in imported functions.

    Args:
        fun: pure function with layer_norm or rms_norm before products with weights.
        data: an iterable of argument tuples.
        alpha: how much of the difficulty moves to the weights, 0 to 1.
        params: as for `quantize`.

    Returns:
        A function of the same arguments and, up to rounding, the same results.

    Raises:
        ParameterError: ``alpha`` outside 0 to 1, no data, or no norm before products.

    >>> f = lambda x: nx.nn.layer_norm(x, jnp.array([1.0, 16.0, 1.0]), jnp.zeros(3)) @ jnp.ones((3, 2))
    >>> x = jnp.array([[1.0, 2.0, -3.0]])
    >>> even = smoothed(f, [(x,)])
    >>> [round(float(s), 2) for s in even.factors["dot_general_0"]], bool(jnp.allclose(even(x), f(x), rtol=1e-5))
    ([0.68, 3.85, 1.18], True)
    """
    if not 0 <= alpha <= 1:
        raise ParameterError("smoothed: alpha", got=alpha, expected="0 to 1")
    peaks: dict[str, NDArray] = {}
    weights: dict[str, NDArray] = {}
    read: dict[str, str] = {}
    for n, args in enumerate(given(fun, data, "smoothed"), 1):

        def seen(*xs: Any) -> dict[str, tuple[Array, Array]]:
            call = PlannedCall(fun, xs, {}, params)
            walk = _Watch(call)
            walk.run(call.values)
            read.update(walk.read)
            return walk.seen

        for name, (top, weight) in jit(seen)(*args).items():
            if not (np.isfinite(top).all() and np.isfinite(weight).all()):
                raise operand_error("smoothed", name, n, args, None)
            before = peaks.get(name)
            peaks[name] = np.asarray(top) if before is None else np.maximum(before, np.asarray(top))
            weights[name] = np.asarray(weight)
    if not peaks:
        raise ParameterError(
            "smoothed: no norm with parameters is read by products with weights",
            expected="nx.nn.layer_norm or nx.nn.rms_norm before products",
        )
    factors: dict[str, NDArray] = {}
    for value in set(read.values()):
        readers = [name for name in peaks if read[name] == value]
        weight = np.maximum(np.max([weights[name] for name in readers], 0), _LEAST)
        top = np.maximum(peaks[readers[0]], _LEAST)
        row = np.maximum(top**alpha / weight ** (1 - alpha), _LEAST).astype(np.float32)
        factors.update((name, row) for name in readers)
    return Smoothed(fun, factors, params)


@final
class _Rows(NamedTuple):
    """A value that a row of numbers per channel scales and then shifts: as every norm ends, whole or spelled out.

    Attributes:
        last: the equation that makes it.
        before: the product with the row of scales, where ``last`` adds the other row; None if ``last`` has all rows.
        rows: the operands of each that are such rows.
    """

    last: Equation
    before: Equation | None
    rows: frozenset[Atom]


class _Floats(Walker):
    """The function as it is; what products behind rows of scales read is looked at."""

    def __init__(self, call: PlannedCall) -> None:
        super().__init__(call.plan(_POLICY, "smoothed"))
        self._view = WeightView(self.plan.program, call.weights)

    def inner(self, step: Inner) -> None:
        self.plain(step.equation)

    def group(self, group: FusedGroup) -> None:
        for e in group.equations:
            self.plain(e)

    def behind(self, group: FusedGroup) -> _Rows | None:
        """The rows whose channels a product sums over."""
        x = group.activations[0] if isinstance(group, Dot) else None
        if x is None or not isinstance(x, Var) or group.input_axes() != (x.type.ndim - 1,):  # pyright: ignore
            return None
        e = self._view.producer.get(x)
        if e is not None and isinstance(e.op, OverAxes) and e.params["axis"] == (x.type.ndim - 1,):
            return _Rows(e, None, frozenset(e.inputs[1:])) if len(e.inputs) > 1 else None
        scaled, shift = self._split(e, Add)
        before = self._view.producer.get(scaled) if isinstance(scaled, Var) else None
        inner, scale = self._split(before, Mul)
        if e is not None and before is not None and shift is not None and scale is not None:
            return _Rows(e, before, frozenset((shift, scale)))
        inner, scale = self._split(e, Mul)
        return None if e is None or inner is None or scale is None else _Rows(e, None, frozenset((scale,)))

    def _split(self, e: Equation | None, kind: type[Op]) -> tuple[Atom | None, Atom | None]:
        """The computed operand and the weights of a sum or product, if it is one of both."""
        if e is None or not isinstance(e.op, kind):
            return None, None
        weights = [a for a in e.inputs if self._view.is_weight(a) and self._view.number(a) is None]
        others = [a for a in e.inputs if not self._view.is_weight(a)]
        return (others[0], weights[0]) if len(weights) == len(others) == 1 else (None, None)


@final
class _Watch(_Floats):
    def __init__(self, call: PlannedCall) -> None:
        super().__init__(call)
        self.seen: dict[str, tuple[Array, Array]] = {}
        self.read: dict[str, str] = {}

    def group(self, group: FusedGroup) -> None:
        if self.behind(group) is not None:
            assert isinstance(group, Dot)
            name, a = self.plan.layer(group), group.activations[0]
            assert isinstance(a, Var)
            x, w = abs(self.value(a)), abs(self.value(group.weight))
            (k,) = group.summed()
            self.seen[name] = x.max(range(x.ndim - 1), initial=0), w.max([i for i in range(w.ndim) if i != k])
            self.read[name] = self.plan.names[a]
        super().group(group)


@final
class _Smooth(_Floats):
    def __init__(self, call: PlannedCall, factors: Mapping[str, NDArray]) -> None:
        super().__init__(call)
        self.factors = factors
        self._even: dict[Atom, Array] = {}

    def group(self, group: FusedGroup) -> None:
        factors, rows = self.factors.get(self.plan.layer(group)), self.behind(group)
        if factors is None or rows is None:
            return super().group(group)
        assert isinstance(group, Dot)
        product, *rest = group.equations
        x = group.activations[0]
        if x not in self._even:
            self._even[x] = self._evened(rows, factors)
        w = self.value(group.weight)
        more = mul(w, broadcast_in_dim(wrap(factors), shape=w.shape, broadcast_dimensions=group.summed()))
        operands = {x: self._even[x], group.weight: more}
        self.results(product, product.op(*(operands[a] for a in product.inputs), **product.params))
        for e in rest:
            self.plain(e)
        return None

    def _evened(self, rows: _Rows, factors: NDArray) -> Array:
        """What the rows make, divided by the factors: the rows are."""
        less = wrap((1 / factors).astype(np.float32))

        def operand(a: Atom) -> Array:
            v = self.value(a)
            along = broadcast_in_dim(less, shape=v.shape, broadcast_dimensions=(v.ndim - 1,))
            return mul(v, along) if a in rows.rows else v

        if rows.before is None:
            return rows.last.op(*map(operand, rows.last.inputs), **rows.last.params)
        inner = rows.before.op(*map(operand, rows.before.inputs))
        (made,) = rows.before.outputs
        return rows.last.op(*(inner if a is made else operand(a) for a in rows.last.inputs))
