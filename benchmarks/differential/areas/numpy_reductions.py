"""``numpy``: what reduces or accumulates along axes, statistics and histograms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak, in_some_modes
from benchmarks.differential.inputs import FLOATS, INTS, NUMBERS, REAL, Inputs

SUMS = ("sum", "prod", "nansum", "nanprod")
EXTREMES = ("max", "min", "nanmax", "nanmin", "amax", "amin")
TRUTHS = ("all", "any")
MEANS = ("mean", "nanmean")
SPREADS = ("var", "std", "nanvar", "nanstd")
POSITIONS = ("argmax", "argmin", "nanargmax", "nanargmin")
MIDDLES = ("median", "nanmedian", "ptp", "count_nonzero", "average")
QUANTILES = ("quantile", "percentile", "nanquantile", "nanpercentile")
METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")
OTHER_METHODS = ("averaged_inverted_cdf", "closest_observation", "hazen", "weibull", "median_unbiased", "unknown")
CUMULATIVE = ("cumsum", "cumprod", "nancumsum", "nancumprod")
OUT = ("float32", "bfloat16", "int32", "int8", "uint16", "complex64", "bool")
METHOD_NAMES = ("sum", "prod", "max", "min", "all", "any", "mean", "var", "std", "argmax", "argmin", "ptp")


def cases(inputs: Inputs) -> Iterator[Case]:
    return in_some_modes(_cases(inputs), inputs.random, 1)


def _cases(inputs: Inputs) -> Iterator[Case]:
    for name in (*SUMS, *EXTREMES[:4], *TRUTHS, *MEANS, *SPREADS, *POSITIONS, *MIDDLES):
        yield from _plain(inputs, name)
    for name in (*SUMS, *EXTREMES, *TRUTHS, *MEANS, *SPREADS):
        yield from _masked(inputs, name)
    yield from _dtypes(inputs)
    yield from _spreads(inputs)
    yield from _cumulative(inputs)
    yield from _quantiles(inputs)
    yield from _averages(inputs)
    yield from _histograms(inputs)
    yield from _methods(inputs)


def _odd(name: str) -> float:
    return 0.0 if name in ("prod", "nanprod", "average") else 0.15


def _axis(inputs: Inputs, x: np.ndarray, *, several: bool = True) -> Any:
    """None, an axis, or axes of ``x``; negative ones too."""
    kind = inputs.choice(("none", "one", "one", "some")) if several else "one"
    if kind == "none" or not x.ndim:
        return None
    if kind == "one":
        return inputs.axis(x.ndim)
    order = [int(i) - x.ndim * int(inputs.chance(0.5)) for i in inputs.random.permutation(x.ndim)]
    return tuple(order[: int(inputs.random.integers(x.ndim + 1))])


def _plain(inputs: Inputs, name: str) -> Iterator[Case]:
    several = name not in POSITIONS
    for dtype in NUMBERS:
        x = inputs.array(dtypes=dtype, odd=_odd(name))
        yield Case(f"numpy.{name}", (x,), {"axis": _axis(inputs, x, several=several)})
    x = inputs.array((2, 3), "float32")
    yield Case(f"numpy.{name}", (x,))
    yield Case(f"numpy.{name}", (x, -1))
    yield Case(f"numpy.{name}", (inputs.array((2, 3, 2), FLOATS),), {"axis": (0, -1)})
    yield Case(f"numpy.{name}", (inputs.array((2, 3), NUMBERS),), {"keepdims": True})
    yield Case(f"numpy.{name}", (inputs.array((2, 3), NUMBERS),), {"axis": 1, "keepdims": True})
    yield Case(f"numpy.{name}", (Weak(inputs.choice((2, 0.5, True))),))
    yield Case(f"numpy.{name}", (inputs.choice(([1, 2, 3], [0.5, 1.5], 2, 1j, True)),))
    for shape, axis in (((0,), None), ((0, 3), 0), ((2, 0), 0), ((), None), ((), 0), ((3,), 1)):
        yield Case(f"numpy.{name}", (inputs.array(shape, REAL),), {"axis": axis}, modes=("call", "jit", "vjp"))
    yield Case(f"numpy.{name}", (np.asarray([np.nan, 1.0, 1.0, np.nan, -2.0, -2.0], "float32"),))
    yield Case(f"numpy.{name}", (np.asarray([[np.nan, np.nan], [np.nan, 1.0]], "float32"),), {"axis": 1})


def _masked(inputs: Inputs, name: str) -> Iterator[Case]:
    initial = name in (*SUMS, *EXTREMES)
    for dtype in ("float32", "int32", "bool", "bfloat16", "uint8", "complex64"):
        x = inputs.array((2, 3), dtype, odd=_odd(name) / 2)
        where = inputs.array(inputs.choice(((2, 3), (3,), (2, 1))), "bool")
        kwargs: dict[str, Any] = {"axis": inputs.choice((None, 0, -1, (0, 1))), "where": where}
        if initial and (name in EXTREMES or inputs.chance(0.5)):
            kwargs["initial"] = inputs.choice((2, 0, 1)) if dtype != "float32" else inputs.choice((0.5, 1, -np.inf))
        yield Case(f"numpy.{name}", (x,), kwargs)
    x = inputs.array((2, 3), "float32")
    yield Case(f"numpy.{name}", (x,), {"where": np.zeros((2, 3), bool), "axis": 0})
    yield Case(f"numpy.{name}", (x,), {"where": True})
    if initial:
        for dtype in ("float32", "int8", "uint8", "bool"):
            first = inputs.choice((1, 2.5, np.asarray(2, "float32"), np.asarray(3, "int16")))
            yield Case(f"numpy.{name}", (inputs.array((3,), dtype),), {"initial": first})
        yield Case(f"numpy.{name}", (np.zeros((0, 2), "float32"),), {"initial": 3.0, "axis": 0})
        yield Case(f"numpy.{name}", (x,), {"initial": 1.0, "keepdims": True, "axis": (0, 1)})


def _dtypes(inputs: Inputs) -> Iterator[Case]:
    for name in (*SUMS, *MEANS, *SPREADS, *CUMULATIVE):
        for out in OUT:
            x = inputs.array((2, 3), inputs.choice(NUMBERS))
            kwargs = {} if name in CUMULATIVE else {"axis": inputs.choice((None, 0))}
            yield Case(f"numpy.{name}", (x,), {"dtype": out, **kwargs})
        yield Case(f"numpy.{name}", (inputs.array((3,), "float32"),), {"dtype": float})
        yield Case(f"numpy.{name}", (inputs.array((3,), "int8"),), {"dtype": int})
    for name in ("sum", "prod"):
        for dtype in ("int8", "uint8", "bool", "int16", "float16"):
            yield Case(f"numpy.{name}", (inputs.array((3,), dtype),), {"promote_integers": False})
    for dtype in INTS:
        yield Case("numpy.sum", (inputs.array((40,), dtype, odd=0.9),))
    for dtype in FLOATS:
        yield Case("numpy.sum", (inputs.array((3, 700), dtype, low=0, high=1),), {"axis": 1})
        yield Case("numpy.mean", (inputs.array((3, 700), dtype, low=0, high=1),), {"axis": 1})
        yield Case("numpy.var", (inputs.array((700, 2), dtype, low=3, high=4),), {"axis": 0})


def _spreads(inputs: Inputs) -> Iterator[Case]:
    for name in SPREADS:
        for dtype in ("float32", "float16", "int32", "bool", "complex64"):
            for ddof in (1, 2, 0.5):
                x = inputs.array((3, 4), dtype)
                yield Case(f"numpy.{name}", (x,), {"ddof": ddof, "axis": inputs.choice((None, 0, (0, 1)))})
            x = inputs.array((3, 4), dtype)
            where = inputs.array((3, 4), "bool")
            yield Case(f"numpy.{name}", (x,), {"ddof": 1, "axis": 0, "where": where})
            mean = inputs.array((1, 4), dtype)
            yield Case(f"numpy.{name}", (x,), {"axis": 0, "mean": mean})
        for correction in (1, 0, 0.5):
            if not name.startswith("nan"):
                yield Case(f"numpy.{name}", (inputs.array((2, 3), FLOATS),), {"correction": correction})
        yield Case(f"numpy.{name}", (inputs.array((1,), "float32"),), {"ddof": 1})
        yield Case(f"numpy.{name}", (inputs.array((4,), "float32"),), {"ddof": 1, "correction": 1})


def _cumulative(inputs: Inputs) -> Iterator[Case]:
    for name in CUMULATIVE:
        for dtype in NUMBERS:
            x = inputs.array(dtypes=dtype, odd=0.1 if "sum" in name else 0)
            yield Case(f"numpy.{name}", (x,), {"axis": _axis(inputs, x, several=False)})
        for x in (inputs.array((2, 3), "float32"), Weak(2), [1, 2, 3], [0.5, 2.0], np.asarray(3, "int8")):
            yield Case(f"numpy.{name}", (x,))
        yield Case(f"numpy.{name}", (inputs.array((2, 3), "float32"), 2))
    for name in ("cumulative_sum", "cumulative_prod"):
        for dtype in NUMBERS:
            x = inputs.array(inputs.choice(((3,), (2, 3), (0,), (2, 0))), dtype)
            first = inputs.chance(0.5)
            axis = None if x.ndim == 1 and inputs.chance(0.5) else inputs.axis(x.ndim)
            yield Case(f"numpy.{name}", (x,), {"axis": axis, "include_initial": first})
        yield Case(f"numpy.{name}", (inputs.array((3,), "int32"),), {"dtype": inputs.choice(OUT)})
        for x in (inputs.array((2, 3), "float32"), np.asarray(3.0, "float32"), Weak(2)):
            yield Case(f"numpy.{name}", (x,))


def _quantiles(inputs: Inputs) -> Iterator[Case]:
    for name in QUANTILES:
        scale = 100 if "percentile" in name else 1
        for dtype in REAL:
            x = inputs.array(inputs.choice(((5,), (2, 3), (2, 1, 3), (1,), ())), dtype, odd=0.1)
            q: Any = inputs.choice((0.5, 0.25, 1, 0, np.asarray([0.1, 0.9], "float32"), np.asarray(0.3, "float32")))
            yield Case(f"numpy.{name}", (x, q * scale), {"axis": _axis(inputs, x)})
        for method in (*METHODS, *OTHER_METHODS):
            x = inputs.array((4, 3), inputs.choice(FLOATS))
            q = np.asarray([0.0, 0.3, 0.5, 1.0], "float32") * scale
            axis = inputs.choice((None, 0, 1))
            yield Case(f"numpy.{name}", (x, q), {"axis": axis, "method": method, "keepdims": inputs.chance(0.5)})
        x = inputs.array((6,), "float32")
        for q in (Weak(0.5 * scale), [0.25 * scale, 0.75 * scale], np.asarray([[0.1, 0.2]], "float32") * scale):
            yield Case(f"numpy.{name}", (x, q))
        yield Case(f"numpy.{name}", (x, 1.5 * scale))
        yield Case(f"numpy.{name}", (inputs.array((2, 3), "complex64"), 0.5))
        yield Case(f"numpy.{name}", (np.zeros((0, 3), "float32"), 0.5), {"axis": 0})
        yield Case(f"numpy.{name}", (np.asarray([[1, np.nan, 3], [np.nan] * 3], "float32"), 0.5 * scale), {"axis": 1})
        for q in (np.asarray([0.5, np.nan], "float32"), np.asarray(1, "int32"), True):
            yield Case(f"numpy.{name}", (x, q))
        weights = inputs.array((6,), "float32", low=0, high=2)
        for method in ("inverted_cdf", "linear"):
            yield Case(f"numpy.{name}", (x, 0.4 * scale), {"weights": weights, "method": method})
            wide = inputs.array((6, 2), "float32")
            yield Case(f"numpy.{name}", (wide, 0.4 * scale), {"weights": weights, "method": method, "axis": 0})


def _averages(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array((2, 3), dtype)
        weights = inputs.array((2, 3), inputs.choice(("float32", "int32", "bfloat16", dtype)), low=1, high=5)
        yield Case("numpy.average", (x,), {"weights": weights, "returned": inputs.chance(0.5)})
        axis = inputs.choice((0, 1, -1))
        yield Case("numpy.average", (x,), {"weights": weights[0] if axis else weights[:, 0], "axis": axis})
        yield Case("numpy.average", (x,), {"axis": axis, "returned": True, "keepdims": inputs.chance(0.5)})
        for name in ("cov", "corrcoef"):
            rows = inputs.chance(0.7)
            yield Case(
                f"numpy.{name}", (inputs.array((2, 5) if rows else (5, 2), dtype),), {"rowvar": rows}, tolerance=4
            )
    x, y = inputs.array((3, 5), "float32"), inputs.array((2, 5), "float32")
    counts, weights = inputs.array((5,), "int32", low=0, high=3), inputs.array((5,), "float32", low=0, high=2)
    for kwargs in (
        {"y": y},
        {"bias": True},
        {"ddof": 2},
        {"fweights": counts},
        {"aweights": weights},
        {"fweights": counts, "aweights": weights, "ddof": 0},
        {"dtype": "float16"},
    ):
        yield Case("numpy.cov", (x,), kwargs, tolerance=4)
    for args in ((x[0],), (x[0], y[0]), (np.asarray(2.0, "float32"),), (x[:, :1],), (x[:, :0],), (x[:0],), (x[0, :0],)):
        for name in ("cov", "corrcoef"):
            yield Case(f"numpy.{name}", args, tolerance=4)
    yield Case("numpy.corrcoef", (x, y))
    yield Case("numpy.corrcoef", (x,), {"dtype": "bfloat16"})


def _histograms(inputs: Inputs) -> Iterator[Case]:
    edges = np.asarray([-2.0, -0.5, 0.0, 1.0, 2.5], "float32")
    for dtype in REAL:
        x = inputs.array(inputs.choice(((6,), (2, 3), (0,), (), (1,))), dtype)
        for name in ("histogram", "histogram_bin_edges"):
            bins = inputs.choice((10, 4, edges, [0, 1, 2], 1))
            given = {} if inputs.chance(0.5) else {"range": inputs.choice(((-1, 2), (0.0, 0.0), (-0.5, 0.5)))}
            yield Case(f"numpy.{name}", (x, bins), given)
        weights = inputs.array(x.shape, ("float32", "int32", "float16"))
        yield Case("numpy.histogram", (x,), {"bins": 3, "weights": weights, "density": inputs.chance(0.5)})
    for name in ("histogram", "histogram_bin_edges"):
        yield Case(f"numpy.{name}", (np.asarray([1.0, 1.0], "float32"),))
        yield Case(f"numpy.{name}", ([0.5, 2.0, 1],))
        yield Case(f"numpy.{name}", (np.asarray([1.0, np.nan, np.inf], "float32"), edges))
    for bins in (3, (2, 3), [edges, edges[1:]], edges, [2, edges]):
        x, y = inputs.array((7,), ("float32", "int32")), inputs.array((7,), "float32")
        yield Case("numpy.histogram2d", (x, y), {"bins": bins})
        yield Case("numpy.histogram2d", (x, y), {"bins": bins, "density": True, "weights": np.abs(y)})
        yield Case("numpy.histogramdd", (np.stack([x, y], 1),), {"bins": bins, "range": [(-1, 1), (-2, 2)]})
        yield Case("numpy.histogramdd", (np.stack([x, y], 1),), {"bins": bins, "density": True})
    yield Case("numpy.histogram2d", (x, y), {"range": [[-1, 1], [-2, 2]]})
    yield Case("numpy.histogramdd", (inputs.array((6, 3), "float32"),), {"bins": 2, "weights": np.abs(y[:6])})
    yield Case("numpy.histogramdd", ([inputs.array((6,), "float32"), inputs.array((6,), "float32")],), {"bins": 2})


def _methods(inputs: Inputs) -> Iterator[Case]:
    def method(name: str) -> Any:
        return lambda lib: lambda x, **kwargs: getattr(x, name)(**kwargs)

    for name in (*METHOD_NAMES, "cumsum", "cumprod"):
        for dtype in ("float32", "int8", "bool", "bfloat16"):
            x = inputs.array((2, 3), dtype)
            yield Case(f"Array.{name}", (x,), {"axis": inputs.choice((None, 0, -1))}, make=method(name))
        if not name.startswith("cum"):
            yield Case(f"Array.{name}", (x,), {"axis": 0, "keepdims": True}, make=method(name))
