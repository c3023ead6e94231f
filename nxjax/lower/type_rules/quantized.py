"""Rules of ops on values that lie on grids: float32 outside, integers inside. Must not know any op's own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from nxjax.lower.type_rules.base import Params, Results, Rule, Types, distinct, need, of, one_shape, operands, without
from nxjax.lower.type_rules.products import convolved, dotted, pooled
from nxjax.lower.type_rules.shapes import resized
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

# The least and the greatest integer of what is stored.
_RANGE: Final[Mapping[DType, tuple[int, int]]] = {
    dtypes.int4: (-8, 7),
    dtypes.int8: (-128, 127),
    dtypes.uint8: (0, 255),
    dtypes.int16: (-32768, 32767),
}
# Weights have dtypes of their own.
_WEIGHTS: Final = (dtypes.int4, dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e5m2)


def _on_grids(count: int, shape: Callable[[Types, Params], Shape], result: str = "y_grid") -> Rule:
    """``shape`` says the result's; every parameter whose name ends in "grid" is a grid for whole tensors."""

    def rule(types: Types, params: Params) -> Results:
        of((dtypes.float32,), *operands(types, count))
        grids: dict[str, Any] = {name: g for name, g in params.items() if name.endswith("grid")}
        need(all(g.axis is None and g.dtype in _RANGE for g in grids.values()), "grids", grids)
        low, high = _RANGE[grids[result].dtype]
        need(low <= params.get("lo", low) <= params.get("hi", high) <= high, "lo and hi", (params, low, high))
        need(params.get("rounding", "double") in ("double", "single"), "rounding", params.get("rounding"))
        return [(shape(types, params), dtypes.float32)]

    return rule


def _same(types: Types, params: Params) -> Shape:
    return one_shape(types)


def _blocks(types: Types) -> None:
    w, scale = types
    sizes = zip(w.shape, scale.shape, strict=False)
    fits = len(w.shape) == len(scale.shape) and all(n == k or (k and n % k == 0) for n, k in sizes)
    need(fits, "scales do not divide the weights into blocks", types)


def _weights(types: Types, params: Params, channels: tuple[int, ...]) -> None:
    """Weights, their scales and a bias; ``channels`` are the dimensions of the weights that have own ones."""
    _, w, scale, bias = types
    need(params["w_dtype"] in (dtypes.int4, dtypes.int8), "w_dtype", params["w_dtype"])
    _blocks((w, scale))
    need(all(n == 1 for d, n in enumerate(scale.shape) if d not in channels), "scales differ along a sum", scale)
    need(bias.shape == tuple([w.shape[d] for d in channels]), "not one bias per channel", types)


def _dot(types: Types, params: Params) -> Shape:
    x, w, *_ = types
    (_, summed), (_, batch) = params["dimension_numbers"]
    shape = dotted(x.shape, w.shape, params["dimension_numbers"])
    rest = [d for d in range(len(w.shape)) if d not in summed and d not in batch]
    _weights(types, params, (*batch, *rest))
    return shape


def _conv(types: Types, params: Params) -> Shape:
    shape = convolved(types[0].shape, types[1].shape, params)
    _weights(types, params, (params["dimension_numbers"].rhs_spec[0],))
    return shape


def _matmul(types: Types, params: Params) -> Shape:
    return dotted(types[0].shape, types[1].shape, params["dimension_numbers"])


def _total(types: Types, params: Params) -> Shape:
    (x,) = types
    return without(x.shape, distinct(params["axes"], len(x.shape), "axes"))


def _mean(types: Types, params: Params) -> Shape:
    shape = _total(types, params)
    need(all(types[0].shape[d] for d in params["axes"]), "a mean of no elements", types)
    return shape


def _softmax(types: Types, params: Params) -> Shape:
    distinct([params["axis"]], len(types[0].shape), "axis")
    x, y = params["x_grid"], params["y_grid"]
    # From 0 to just below 1.
    unit = (1 / 32768, 0) if y.dtype == dtypes.int16 else (1 / 256, _RANGE[y.dtype][0])
    need(x.dtype == y.dtype and (y.scale, y.zero_point) == unit, "grids", (x, y))
    return types[0].shape


def _resize(types: Types, params: Params) -> Shape:
    need(len(params["axes"]) == 2, "axes", params["axes"])
    return resized(types[0].shape, params)


def _quantize_weight(types: Types, params: Params) -> Results:
    w, scale = operands(types, 2)
    of((dtypes.float32,), w, scale)
    _blocks((w, scale))
    need(params["dtype"] in _WEIGHTS, "dtype", params["dtype"])
    return [(w.shape, dtypes.float32)]


def _quantize_rows(types: Types, params: Params) -> Results:
    (x,) = operands(types, 1)
    of((dtypes.float32,), x)
    axes = params["axes"]
    within = set(axes) <= set(range(len(x.shape)))
    need(within and tuple(axes) == tuple(sorted(set(axes))) and bool(axes), "axes", axes)
    return [(x.shape, dtypes.float32)]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("qadd", "qsub", "qmul", "qprelu"), _on_grids(2, _same, "out_grid")),
    **dict.fromkeys(("qunary", "requantize"), _on_grids(1, _same)),
    "quantize_dequantize": _on_grids(1, _same, "grid"),
    "quantize_rows": _quantize_rows,
    "quantize_weight": _quantize_weight,
    "qdot": _on_grids(4, _dot),
    "qconv": _on_grids(4, _conv),
    "qmatmul": _on_grids(2, _matmul, "out_grid"),
    "qsum": _on_grids(1, _total),
    "qmean": _on_grids(1, _mean),
    "qavgpool": _on_grids(1, lambda types, params: pooled(types[0].shape, params), "grid"),
    "qsoftmax": _on_grids(1, _softmax),
    "qresize": _on_grids(1, _resize, "grid"),
}
