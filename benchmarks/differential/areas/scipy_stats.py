"""``scipy.stats``: every function of every distribution, inside, at the ends of and beyond what it is defined for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import MODES, Case, Weak
from benchmarks.differential.inputs import FLOATS, INTS, SIGNED, Inputs

DENSITY = ("logpdf", "pdf")
BELOW = ("cdf", "logcdf", "sf", "logsf")
MASS = ("logpmf", "pmf")
# Distribution -> its functions, bounds of the number it is asked about, bounds of each parameter, how many of
# ``loc`` and ``scale`` it takes.
Row = tuple[tuple[str, ...], tuple[float, float], tuple[tuple[float, float], ...], int]
CONTINUOUS: dict[str, Row] = {
    "beta": ((*DENSITY, *BELOW), (0, 1), ((0.3, 4), (0.3, 4)), 2),
    "cauchy": ((*DENSITY, *BELOW, "ppf", "isf"), (-4, 4), (), 2),
    "chi2": ((*DENSITY, *BELOW), (0, 8), ((0.5, 6),), 2),
    "expon": ((*DENSITY, *BELOW, "ppf"), (0, 5), (), 2),
    "gamma": ((*DENSITY, *BELOW), (0, 8), ((0.3, 5),), 2),
    "gennorm": ((*DENSITY, "cdf"), (-3, 3), ((0.5, 4),), 0),
    "gumbel_l": ((*DENSITY, *BELOW, "ppf"), (-3, 3), (), 2),
    "gumbel_r": ((*DENSITY, *BELOW, "ppf"), (-3, 3), (), 2),
    "laplace": ((*DENSITY, "cdf"), (-3, 3), (), 2),
    "logistic": ((*DENSITY, "cdf", "sf", "ppf", "isf"), (-4, 4), (), 2),
    "norm": ((*DENSITY, *BELOW, "ppf", "isf"), (-4, 4), (), 2),
    "pareto": ((*DENSITY, *BELOW, "ppf"), (1, 6), ((0.3, 4),), 2),
    "t": (DENSITY, (-4, 4), ((0.5, 8),), 2),
    "truncnorm": ((*DENSITY, *BELOW), (-2, 2), ((-3, -1), (0.5, 3)), 2),
    "uniform": ((*DENSITY, "cdf", "ppf"), (0, 1), (), 2),
    "vonmises": (DENSITY, (-3, 3), ((0.1, 6),), 0),
    "wrapcauchy": (DENSITY, (0, 6.2), ((0.1, 0.9),), 0),
}
DISCRETE: dict[str, Row] = {
    "bernoulli": (MASS, (0, 2), ((0.05, 0.95),), 1),
    "betabinom": (MASS, (0, 6), ((4, 9), (0.3, 4), (0.3, 4)), 1),
    "binom": (MASS, (0, 6), ((4, 9), (0.05, 0.95)), 1),
    "geom": (MASS, (1, 9), ((0.05, 0.95),), 1),
    "nbinom": (MASS, (0, 9), ((1, 6), (0.05, 0.95)), 1),
    "poisson": ((*MASS, "cdf"), (0, 9), ((0.3, 6),), 1),
}
# What lies at the ends of the support for parameters of 1 or so, and numbers that end what can be computed.
ENDS = (0, 1, -0.0, -1, 2, np.inf, -np.inf, np.nan, 1e-30, 1e30, 0.5)
CHANCES = (0, 1, -0.5, 1.5, np.nan, 0.5, 1e-6, -0.0)


def cases(inputs: Inputs) -> Iterator[Case]:
    """Of the cases of distributions a share: others with another seed."""
    draw = inputs.random.spawn(1)[0]
    yield from (case for case in _distributions(inputs) if draw.random() < 0.4)
    yield from _others(inputs)
    yield from _several(inputs)
    yield from _summaries(inputs)
    yield from _kernels(inputs)


def _distributions(inputs: Inputs) -> Iterator[Case]:
    for name, row in CONTINUOUS.items():
        for function in row[0]:
            yield from _continuous(inputs, name, function, row)
    for name, row in DISCRETE.items():
        for function in row[0]:
            yield from _discrete(inputs, name, function, row)


def _asked(name: str, function: str, *args: Any, modes: tuple[str, ...] = MODES) -> Case:
    def truth(*args: Any) -> Any:
        import scipy.stats

        wide = [np.asarray(x, np.float64) for x in args]
        return np.asarray(getattr(getattr(scipy.stats, name), function)(*wide))

    return Case(f"scipy.stats.{name}.{function}", args, modes=modes, truth=truth)


def _continuous(inputs: Inputs, name: str, function: str, row: Row) -> Iterator[Case]:
    _, bounds, shapes, places = row
    quantile = function in ("ppf", "isf")
    low, high = (0.0, 1.0) if quantile else bounds
    all_bounds = ((low, high), *shapes, *((-0.5, 0.5), (0.5, 2))[:places])

    def drawn(shape: tuple[int, ...] | None, kind: str, count: int) -> list[Any]:
        dims = inputs.broadcastable(count) if shape is None else [shape] * count
        return [inputs.array(s, kind, low=a, high=b) for s, (a, b) in zip(dims, all_bounds)]

    count = len(all_bounds)
    yield _asked(name, function, *drawn(None, "float32", count))
    yield _asked(name, function, *drawn((4,), "float32", 1 + len(shapes)))
    yield _asked(name, function, *drawn((0,), "float32", count), modes=("call", "vjp"))
    yield _asked(name, function, *drawn((3,), "float16", count), modes=("call", "jvp"))
    yield _asked(name, function, *drawn((3,), "bfloat16", count), modes=("call",))
    ends = np.asarray(CHANCES if quantile else ENDS, np.float32)
    middle = [np.float32((a + b) / 2) for a, b in shapes]
    yield _asked(name, function, ends, *middle, modes=("call", "jit", "jvp", "vjp"))
    yield _asked(name, function, ends, *(np.float32(1) for _ in shapes), modes=("call", "vjp"))
    yield _asked(name, function, *(inputs.array((5,), "float32", odd=0.2) for _ in range(count)), modes=("call",))
    for i in range(1, count):  # a parameter outside its domain
        bad = drawn((5,), "float32", count)
        bad[i] = np.asarray([0, -1, np.nan, np.inf, -np.inf], np.float32)
        yield _asked(name, function, *bad, modes=("call",))
    kinds = (*INTS, "bool")
    yield _asked(name, function, *(inputs.array((3,), kinds, low=0, high=3) for _ in all_bounds), modes=("call", "jit"))
    mixed = [inputs.array((3,), (*SIGNED, *FLOATS), low=1, high=3) for _ in all_bounds]
    yield _asked(name, function, *mixed, modes=("call", "jvp"))
    scalars = [Weak(round((a + b) / 2.3, 2)) for a, b in all_bounds]
    yield _asked(name, function, *scalars, modes=("call", "jit", "jvp"))
    yield _asked(name, function, drawn((3,), "float32", 1)[0], *scalars[1:], modes=("call", "vjp"))
    yield _asked(name, function, drawn((3,), "bfloat16", 1)[0], *scalars[1 : 1 + len(shapes)], modes=("call",))


def _discrete(inputs: Inputs, name: str, function: str, row: Row) -> Iterator[Case]:
    _, bounds, shapes, _ = row

    def parameters(shape: tuple[int, ...], kind: str = "float32") -> list[Any]:
        drawn = [inputs.array(shape, kind, low=a, high=b) for a, b in shapes]
        if name in ("betabinom", "binom", "nbinom"):  # the first is a count
            drawn[0] = np.round(drawn[0].astype(np.float32)).astype(drawn[0].dtype)
        return drawn

    low, high = int(bounds[0]), int(bounds[1])
    for kind in ("int32", "float32"):
        k = inputs.array((2, 3), kind, low=low, high=high).round()
        yield _asked(name, function, k, *parameters((3,)))
        yield _asked(name, function, k, *parameters(()), inputs.array((2, 1), "int32", low=0, high=2))
    yield _asked(name, function, k + np.float32(0.5), *parameters((3,)), modes=("call", "jvp"))
    yield _asked(name, function, k[:, :0], *parameters((0,)), modes=("call", "vjp"))
    for kind in ("float16", "bfloat16"):
        k = inputs.array((3,), kind, low=low, high=high)
        yield _asked(name, function, np.floor(k), *parameters((3,), kind), modes=("call", "jvp"))
        yield _asked(name, function, inputs.array((3,), INTS, low=low, high=high), *parameters((3,), kind))
    ends = np.asarray([*ENDS, 5, 10, 30], np.float32)
    yield _asked(name, function, ends, *parameters(()), modes=("call", "jit", "jvp", "vjp"))
    yield _asked(
        name, function, *(inputs.array((5,), "float32", odd=0.2) for _ in range(1 + len(shapes))), modes=("call",)
    )
    for i in range(len(shapes)):
        bad = parameters((7,))
        bad[i] = np.asarray([0, 1, -1, 1.5, np.nan, np.inf, -np.inf], np.float32)
        yield _asked(name, function, inputs.array((7,), "int32", low=low, high=high), *bad, modes=("call", "vjp"))
    scalars = [Weak(low + 1), *(Weak(round(float(x), 2)) for x in parameters(()))]
    yield _asked(name, function, *scalars, modes=("call", "jit"))
    yield _asked(name, function, inputs.array((3,), "int32", low=low, high=high), *scalars[1:])
    yield _asked(
        name, function, *(inputs.array((3,), (*INTS, "bool"), low=0, high=3) for _ in scalars), modes=("call",)
    )


def _others(inputs: Inputs) -> Iterator[Case]:
    chance = inputs.array((3,), "float32", low=0, high=1)
    k = np.asarray([0, 1, 2, -1, 5], np.int32)
    for p in (
        np.float32(0.3),
        np.float32([0, 1, -1, 2, np.nan]),
        Weak(0.4),
        inputs.array((5,), "bfloat16", low=0, high=1),
    ):
        yield _asked("bernoulli", "cdf", k, p)
        yield _asked("bernoulli", "cdf", np.asarray([0.5, 1, -0.5, np.nan, np.inf], np.float32), p)
        yield _asked("bernoulli", "ppf", np.asarray([0, 0.5, 0.8, 1, 1.5], np.float32), p)
    yield _asked("bernoulli", "ppf", chance, chance[::-1].copy())
    yield _asked("bernoulli", "cdf", Weak(0), Weak(0.3))
    means = [inputs.array((4,), "float32", low=0.2, high=30), inputs.array((3,), "float16", low=0.2, high=9)]
    odd = np.asarray([0, -1, np.nan, np.inf, 1e-3, 300, 12, 40], np.float32)
    for mu in (*means, odd, odd[:0], np.asarray([1, 2, 30]), Weak(2.5)):
        yield _asked("poisson", "entropy", mu)
        yield _asked("poisson", "entropy", mu, np.float32(2))


def _several(inputs: Inputs) -> Iterator[Case]:
    """Distributions of vectors."""
    for function in DENSITY:
        for kind in FLOATS:
            spread = inputs.array((3, 3), kind, low=-1, high=1)
            cov = (spread @ spread.T + np.eye(3, dtype=spread.dtype)).astype(spread.dtype)
            x, mean = inputs.array((2, 3), kind), inputs.array((3,), kind)
            modes = MODES if kind == "float32" else ("call", "jit")
            yield Case(f"scipy.stats.multivariate_normal.{function}", (x, mean, cov), modes=modes, tolerance=10)
            yield Case(f"scipy.stats.multivariate_normal.{function}", (x[0], Weak(0.0), cov), modes=modes, tolerance=10)
            yield Case(
                f"scipy.stats.multivariate_normal.{function}", (x, mean, abs(mean[0]) + x.dtype.type(1)), modes=modes
            )
            yield Case(f"scipy.stats.multivariate_normal.{function}", (x[0, 0], mean[0], abs(mean[1])), modes=modes)
            alpha = inputs.array((3,), kind, low=0.5, high=3)
            point = np.asarray([0.2, 0.3, 0.5], np.float32).astype(alpha.dtype)
            yield Case(f"scipy.stats.dirichlet.{function}", (point, alpha), modes=modes)
            yield Case(f"scipy.stats.dirichlet.{function}", (point[:2], alpha), modes=modes)
            yield Case(f"scipy.stats.dirichlet.{function}", (np.stack([point, point[::-1]], 1), alpha), modes=modes)
        yield Case(
            f"scipy.stats.multivariate_normal.{function}",
            (np.arange(3), np.ones(3, np.int32), np.eye(3, dtype=np.int32)),
        )
        yield Case(
            f"scipy.stats.multivariate_normal.{function}", (np.float32([np.nan, 1, np.inf]), Weak(0.0), Weak(1.0))
        )
        yield Case(
            f"scipy.stats.multivariate_normal.{function}",
            (np.zeros((2, 3), np.float32), np.zeros(3, np.float32), -np.eye(3, dtype=np.float32)),
        )
        yield Case(f"scipy.stats.dirichlet.{function}", (np.float32([0.2, 0.3, 0.6]), np.float32([1, 2, 3])))
        yield Case(
            f"scipy.stats.dirichlet.{function}",
            (np.float32([0, 0.5, 0.5]), np.float32([1, 2, 0.5])),
            modes=("call", "jit"),
        )
        yield Case(f"scipy.stats.dirichlet.{function}", (np.float32([-0.5, 1, 0.5]), np.float32([1, 2, 0.5])))
        yield Case(f"scipy.stats.dirichlet.{function}", (np.float32([0.5, 0.25, 0.25]), np.float32([1, -1, 0.5])))
        yield Case(f"scipy.stats.dirichlet.{function}", (np.float32([0.5, 0.5]), np.asarray([1, 2])))
    for function in MASS:
        p = np.asarray([0.2, 0.3, 0.5], np.float32)
        for x in ([1, 2, 3], [0, 0, 6], [3, 3, 3], [-1, 4, 3], [1.5, 2.5, 2]):
            yield Case(f"scipy.stats.multinomial.{function}", (np.asarray(x), 6, p))
            yield Case(f"scipy.stats.multinomial.{function}", (np.asarray(x, np.float32), np.asarray(6, np.int32), p))
        yield Case(f"scipy.stats.multinomial.{function}", (np.asarray([[1, 2, 3], [2, 2, 2]]), 6, p))
        yield Case(f"scipy.stats.multinomial.{function}", (np.asarray([0, 3, 3]), 6, np.float32([0, 0.5, 0.5])))
        yield Case(f"scipy.stats.multinomial.{function}", (np.asarray([1, 1]), 2, p[:2].astype(np.float16)))


def _summaries(inputs: Inputs) -> Iterator[Case]:
    for kind in (*INTS, *FLOATS, "bool", "complex64"):
        a = inputs.array((2, 3), kind, low=0, high=3)
        for axis in (None, 0, -1):
            yield Case(
                "scipy.stats.rankdata",
                (a,),
                {"method": inputs.choice(("average", "min", "max", "dense", "ordinal")), "axis": axis},
                modes=("call", "jit"),
            )
            yield Case("scipy.stats.sem", (a,), {"axis": axis, "ddof": inputs.choice((0, 1, 2))})
            yield Case("scipy.stats.mode", (a,), {"axis": axis, "keepdims": inputs.chance(0.5)}, modes=("call", "vmap"))
    for shape in ((), (0,), (2, 0), (4,), (1,), (2, 3, 2)):
        a = inputs.array(shape, "float32", odd=0.2).round()
        for function, more in (
            ("mode", {"keepdims": True}),
            ("sem", {"keepdims": True}),
            ("rankdata", {"method": "dense"}),
        ):
            yield Case(f"scipy.stats.{function}", (a,), more)
            yield Case(f"scipy.stats.{function}", (a,), {"axis": inputs.axis(a.ndim)})
    for policy in ("propagate", "omit", "raise", "other"):
        a = np.asarray([[1, np.nan, 3], [2, 2, 3], [5, 2, 1]], np.float32)
        for function in ("mode", "sem", "rankdata"):
            yield Case(f"scipy.stats.{function}", (a,), {"nan_policy": policy})
            yield Case(f"scipy.stats.{function}", (a,), {"nan_policy": policy, "axis": -1})
    yield Case("scipy.stats.rankdata", (a,), {"method": "other"})
    for function in ("mode", "sem", "rankdata"):
        yield Case(f"scipy.stats.{function}", (Weak(1.5),))


def _kde(method: str, *, build: tuple[Any, ...] = (), **given: Any) -> Callable[[ModuleType], Callable[..., Any]]:
    def made(library: ModuleType) -> Callable[..., Any]:
        def called(dataset: Any, *args: Any) -> Any:
            kernel = library.scipy.stats.gaussian_kde(dataset, *build, **given)
            found = getattr(kernel, method)
            return found(*args) if callable(found) else found

        return called

    return made


def _kernels(inputs: Inputs) -> Iterator[Case]:
    line, plane = inputs.array((8,), "float32"), inputs.array((2, 9), "float32")
    weights = inputs.array((8,), "float32", low=0.1, high=1)
    points, pair = inputs.array((4,), "float32"), inputs.array((2, 4), "float32")
    for method in ("evaluate", "pdf", "logpdf"):
        yield Case(f"gaussian_kde.{method}", (line, points), make=_kde(method), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (plane, pair), make=_kde(method), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (line, points), make=_kde(method, bw_method="silverman"), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (line, points), make=_kde(method, bw_method=0.4), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (line, np.arange(3)), make=_kde(method), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (line.astype(np.float16), points), make=_kde(method), tolerance=4)
        yield Case(f"gaussian_kde.{method}", (line[:1], points), make=_kde(method), modes=("call",))
        yield Case(f"gaussian_kde.{method}", (plane, points), make=_kde(method), modes=("call",))
    weighted = lambda lib: lambda x, w, p: lib.scipy.stats.gaussian_kde(x, weights=w).evaluate(p)
    yield Case("gaussian_kde.weights", (line, weights, points), make=weighted, tolerance=4)
    for what in ("d", "n", "neff", "covariance", "inv_cov", "dataset", "weights"):
        yield Case(f"gaussian_kde.{what}", (plane,), make=_kde(what), modes=("call", "vjp"), tolerance=4)
    mean, cov = inputs.array((2,), "float32"), np.eye(2, dtype=np.float32)
    yield Case("gaussian_kde.integrate_gaussian", (plane, mean, cov), make=_kde("integrate_gaussian"), tolerance=4)
    yield Case(
        "gaussian_kde.integrate_gaussian", (line, mean[0], cov[0, 0]), make=_kde("integrate_gaussian"), tolerance=4
    )
    box = _kde("integrate_box_1d")
    yield Case("gaussian_kde.integrate_box_1d", (line, np.float32(-1), np.float32(2)), make=box, tolerance=4)
    yield Case("gaussian_kde.integrate_box_1d", (line, np.float32(-np.inf), np.float32(0)), make=box, tolerance=4)
    yield Case("gaussian_kde.integrate_box_1d", (line, Weak(-1), Weak(1)), make=box, tolerance=4)
    both = lambda lib: lambda a, b: lib.scipy.stats.gaussian_kde(a).integrate_kde(lib.scipy.stats.gaussian_kde(b))
    yield Case("gaussian_kde.integrate_kde", (line, points), make=both, tolerance=4)
    yield Case("gaussian_kde.integrate_kde", (plane, pair), make=both, tolerance=4)
    drawn = lambda lib: lambda x: lib.scipy.stats.gaussian_kde(x).resample(lib.random.key(0), (5,))
    yield Case("gaussian_kde.resample", (line,), make=drawn, modes=("call", "jit"), tolerance=4)
    yield Case("gaussian_kde.resample", (plane,), make=drawn, modes=("call", "jit"), tolerance=4)
    for method in ("integrate_box", "set_bandwidth"):
        yield Case(f"gaussian_kde.{method}", (line, Weak(0.0), Weak(1.0)), make=_kde(method), modes=("call",))
