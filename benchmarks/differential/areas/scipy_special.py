"""``scipy.special``: where the functions are smooth, at their poles and edges, in every dtype and in each operand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.differential.case import MODES, Case, Weak
from benchmarks.differential.inputs import COMPLEX, FLOATS, INTS, Inputs

# Name -> bounds of each operand in which it has finite values.
SMOOTH: dict[str, tuple[tuple[float, float], ...]] = {
    **dict.fromkeys(("erf", "erfc", "erfcx", "dawsn", "ndtr", "log_ndtr", "expit"), ((-4, 4),)),
    **dict.fromkeys(("i0", "i0e", "i1", "i1e", "sici", "fresnel"), ((-12, 12),)),
    **dict.fromkeys(("gamma", "gammaln", "loggamma", "digamma", "gammasgn"), ((-6, 12),)),
    **dict.fromkeys(("exp1", "expi", "entr", "spence"), ((0, 6),)),
    **dict.fromkeys(("logit", "ndtri"), ((0, 1),)),
    "erfinv": ((-1, 1),),
    "factorial": ((0, 12),),
    **dict.fromkeys(("beta", "betaln"), ((0.1, 6), (0.1, 6))),
    **dict.fromkeys(("rel_entr", "kl_div", "xlogy"), ((0, 5), (0.1, 5))),
    "xlog1py": ((-3, 5), (-0.9, 5)),
    "boxcox": ((0.1, 5), (-3, 3)),
    "boxcox1p": ((-0.9, 5), (-3, 3)),
    **dict.fromkeys(("gammainc", "gammaincc"), ((0.1, 8), (0, 10))),
    "owens_t": ((-3, 3), (-3, 3)),
    "poch": ((0.1, 5), (-0.05, 4)),
    "comb": ((0, 9), (0, 9)),
    "zeta": ((1.1, 6), (0.1, 6)),
    "betainc": ((0.1, 6), (0.1, 6), (0, 1)),
    "hyp1f1": ((-3, 3), (0.5, 5), (-6, 6)),
    "hyp2f1": ((-3, 3), (-3, 3), (0.5, 5), (-0.9, 0.9)),
}
# Name -> values of each operand at which something ends, turns or has a pole.
EDGES: dict[str, tuple[tuple[float, ...], ...]] = {
    **dict.fromkeys(("gamma", "gammaln", "loggamma", "digamma", "gammasgn"), ((0, -0.0, -1, -2, -2.5, 1, 2, 35, 171),)),
    **dict.fromkeys(("erf", "erfc", "erfcx", "dawsn", "ndtr", "log_ndtr"), ((0, -0.0, -5, 5, -12, 12, -40, 40),)),
    **dict.fromkeys(("i0", "i0e", "i1", "i1e", "sici", "fresnel"), ((0, -0.0, 8, -8, 60, -90, 1e4),)),
    **dict.fromkeys(("exp1", "expi", "entr", "spence"), ((0, -0.0, -1, 1, 2, -3, 50, 90),)),
    **dict.fromkeys(("erfinv", "logit", "ndtri"), ((0, 1, -1, 2, -0.5, 0.5, 1e-7, 0.999),)),
    "expit": ((0, -100, 100, -20, 20),),
    "factorial": ((0, 1, -1, -2, 2.5, 34, 36),),
    **dict.fromkeys(("beta", "betaln"), ((0, 1, -1.5, 40, 1e-3, -2), (2, 1, 0.5, 30, 1e3, 1))),
    **dict.fromkeys(("rel_entr", "kl_div"), ((0, 0, 1, 1, -1, 2), (0, 1, 0, 1, 1, -1))),
    **dict.fromkeys(("xlogy", "xlog1py"), ((0, 0, 1, 0, 2), (0, -1, 0, 3, -1))),
    **dict.fromkeys(("boxcox", "boxcox1p"), ((0, 0, 1, 2, -2, 3, 0), (0, 1, 0, 0, 2, 1e-6, -1))),
    **dict.fromkeys(("gammainc", "gammaincc"), ((0, 1, 1, 0, -1, 2, 50, 0.5), (1, 0, -1, 0, 1, 80, 30, 1e-4))),
    "owens_t": ((0, 1, 0, -1, 10, 2), (1, 0, 0, -1, 3, 50)),
    "poch": ((0, 1, 0, 3, 2.5, 30), (1, 0, 0, 2, -1, 4)),
    "comb": ((5, 5, 5, 0, 10, 30, 3), (0, 5, 6, 0, 3, 15, -1)),
    "zeta": ((1, 2, 2, 0.5, 40, 3), (1, 0, -1, 1, 1, 100)),
    "betainc": ((1, 1, 0.5, 2, 0, 2, 30), (1, 1, 0.5, 3, 1, 0, 40), (0, 1, 0.5, 1, 0.5, 0.5, 0.4)),
    "hyp1f1": ((0, 1, 2, -2, 1, 0.5), (1, 1, 1, 1.5, 2, 0.5), (1, 0, 20, 3, -30, 1)),
    "hyp2f1": ((0, 1, 2, -2, 0.5, 1), (1, 1, 1, 1.5, 0.5, 1), (1, 1, 3, 1.5, 1.5, 2), (0.5, 0, 0.5, 0.9, 1, -2)),
}
# What SciPy has, for each element.
KNOWN = {*SMOOTH, "expn", "polygamma", "bessel_jn"}


def _named(name: str, *args: Any, modes: tuple[str, ...] = MODES, **kwargs: Any) -> Case:
    def truth(*args: Any, **given: Any) -> Any:
        import scipy.special

        if name == "bessel_jn":
            return np.stack([scipy.special.jv(k, args[0]) for k in range(given["v"] + 1)])
        wide = [x if isinstance(x, int) else np.asarray(x, np.float64) for x in args]
        return getattr(scipy.special, name)(*wide)

    return Case(f"scipy.special.{name}", args, kwargs, modes=modes, truth=truth if name in KNOWN else None)


def cases(inputs: Inputs) -> Iterator[Case]:
    """Of all cases a share: others with another seed."""
    draw = inputs.random.spawn(1)[0]
    yield from (case for case in _cases(inputs) if draw.random() < 0.6)


def _cases(inputs: Inputs) -> Iterator[Case]:
    yield from _smooth(inputs)
    yield from _edges(inputs)
    yield from _kinds(inputs)
    yield from _orders(inputs)
    yield from _sums(inputs)
    yield from _complex(inputs)


def _smooth(inputs: Inputs) -> Iterator[Case]:
    for name, bounds in SMOOTH.items():
        for kind, modes in {"float32": MODES, "float16": ("call", "jvp"), "bfloat16": ("call", "vjp")}.items():
            shapes = inputs.broadcastable(len(bounds))
            draws = [inputs.array(s, kind, low=low, high=high) for s, (low, high) in zip(shapes, bounds)]
            yield _named(name, *draws, modes=modes)
        draws = [inputs.array((2, 3), "float32", low=low, high=high) for low, high in bounds]
        yield _named(name, *draws)
        yield _named(name, *(x[:0] for x in draws), modes=("call", "vjp"))
        # one operand as a scalar of Python, or all of them
        last = inputs.choice(range(len(draws)))
        some = [Weak(float(x.flat[0])) if i == last else x for i, x in enumerate(draws)]
        yield _named(name, *some, modes=("call", "vmap"))
        yield _named(name, *(Weak(round(float(x.flat[0]), 3)) for x in draws), modes=("call", "jit"))


def _edges(inputs: Inputs) -> Iterator[Case]:
    for name, values in EDGES.items():
        yield _named(name, *(np.asarray(v, np.float32) for v in values), modes=("call", "jit", "jvp", "vjp"))
        for kind, modes in (("float32", ("call", "vjp")), ("float32", ("call",)), ("bfloat16", ("call",))):
            yield _named(name, *(inputs.array((5,), kind, odd=0.4) for _ in values), modes=modes)


def _kinds(inputs: Inputs) -> Iterator[Case]:
    for name, bounds in SMOOTH.items():
        for kinds in (INTS, INTS, ("bool",), COMPLEX):
            first = inputs.array((3,), kinds, low=0, high=max(4, int(bounds[0][1])))
            rest = [inputs.array((3,), (*INTS, *FLOATS), low=1, high=4) for _ in bounds[1:]]
            yield _named(name, first, *rest, modes=("call", "jit") if kinds is INTS else ("call",))
        yield _named(name, *(Weak(inputs.choice((0, 1, 2, 3))) for _ in bounds), modes=("call",))


def _orders(inputs: Inputs) -> Iterator[Case]:
    """Functions with an integer order."""
    x = lambda kind="float32", low=0.2, high=8.0, shape=None: inputs.array(shape, kind, low=low, high=high)
    for kind in FLOATS:
        for n in (0, 1, 2, 5):
            yield _named("polygamma", n, x(kind))
            yield _named("expn", n, x(kind))
            yield _named("multigammaln", x(kind, 5.0), n + 1)
    for kind in (*FLOATS, "int32"):
        yield _named("polygamma", inputs.array((3,), "int32", low=0, high=5), x(kind, 1, shape=(3,)))
        yield _named("polygamma", inputs.array((3,), "float32", low=0, high=5).round(), x(kind, 1, shape=(2, 3)))
        yield _named("expn", inputs.array((3,), "int32", low=0, high=5), x(kind, 1, shape=(3,)))
        yield _named("expn", inputs.array((3,), "float32", low=0, high=5).round(), x(kind, 1, shape=(3,)))
    edges = np.asarray([0, -1, 1e-3, 1, 100, np.inf, np.nan, -2.5, -0.0], np.float32)
    for n in (0, 1, 2, 3):
        yield _named("polygamma", n, edges)
        yield _named("expn", n, edges)
        yield _named("zeta", edges, n)
        yield _named("multigammaln", edges, n + 1)
    yield _named("polygamma", Weak(1), Weak(0.5))
    yield _named("expn", Weak(2), Weak(0.5))
    yield _named("multigammaln", np.asarray([3, 4]), 2)
    yield _named("zeta", x(low=1.2))
    yield _named("zeta", Weak(2))
    for n in (0, 1, 2, 3, 8, 9):
        yield _named("bernoulli", n)
    for v in (0, 1, 3):
        yield _named("bessel_jn", x(low=-6.0, shape=()), v=v)
        yield _named("bessel_jn", x(low=0.1, shape=(4,)), v=v)
        yield _named("bessel_jn", np.asarray([0.0, 1.0, 20.0], np.float32), v=v, n_iter=40)
    yield _named("bessel_jn", np.float16([0.5, 2]), v=2)
    yield _named("bessel_jn", np.asarray([1, 2]), v=2)
    for order in (0, 1, 5):
        yield _named("log_ndtr", inputs.array((5,), "float32", low=-30, high=6), series_order=order)
    for exact in (False, True):
        yield _named("factorial", np.asarray([0, 3, 5]), exact=exact)
        yield _named("comb", np.asarray([4, 5, 6]), np.asarray([2, 0, 3]), repetition=exact)
    angles = [inputs.array((3,), "float32", low=0, high=3) for _ in range(2)]
    for n, m in ((0, 0), (2, 1), (3, -2), (4, 4)):
        yield _named("sph_harm_y", np.asarray([n] * 3), np.asarray([m] * 3), *angles)
        yield _named("sph_harm_y", np.asarray([n]), np.asarray([m]), angles[0][:1], angles[1][:1], n_max=5)
    yield _named("sph_harm_y", np.asarray([0, 2, 3]), np.asarray([0, -1, 3]), *angles, n_max=3)


def _sums(inputs: Inputs) -> Iterator[Case]:
    for kind in (*FLOATS, "int32", "bool", "complex64"):
        for _ in range(2):
            a = inputs.array(dtypes=kind, odd=inputs.choice((0, 0, 0.2)))
            axis = inputs.axis(a.ndim) if a.ndim else None
            yield _named("logsumexp", a, axis=axis, keepdims=inputs.chance(0.5))
            if a.dtype.kind != "c":
                yield _named("softmax", a, axis=axis)
                yield _named("log_softmax", a, axis=axis)
        whole = inputs.array((2, 3), kind)
        yield _named("logsumexp", whole)
        yield _named("logsumexp", whole, b=inputs.array((2, 3), "float32", low=0.1, high=3))
        yield _named("logsumexp", whole, axis=0, b=inputs.array((3,), "float32"), return_sign=True)
        yield _named("logsumexp", whole, axis=(0, -1), return_sign=True, keepdims=True)
        yield _named("logsumexp", whole, axis=1, where=np.asarray([[True, False, True], [False] * 3]))
        if kind != "complex64":
            yield _named("softmax", whole)
            yield _named("log_softmax", whole, axis=(0, 1))
    endless = np.asarray([[-np.inf, -np.inf, -np.inf], [np.inf, 1, 2], [np.nan, 1, np.inf]], np.float32)
    for name in ("logsumexp", "softmax", "log_softmax"):
        yield _named(name, endless, axis=1)
        yield _named(name, endless, axis=0)
        yield _named(name, Weak(0.5))
    yield _named("logsumexp", np.zeros((2, 0), np.float32), axis=1)
    yield _named("logsumexp", np.float32([1, 2]), b=np.float32([0, 0]))


def _complex(inputs: Inputs) -> Iterator[Case]:
    for low, high in ((-1, 1), (-4, 4), (-20, 20)):
        for _ in range(2):
            yield _named("wofz", inputs.array((5,), "complex64", low=low, high=high))
            yield _named("wofz", inputs.array((5,), FLOATS, low=low, high=high))
    yield _named("wofz", inputs.array((6,), "complex64", odd=0.4))
    yield _named("wofz", np.asarray([0, 1, -2]))
    yield _named("wofz", inputs.array((2, 0), "complex64"))
    yield _named("wofz", Weak(1 + 2j))
    for name in ("gamma", "gammaln", "loggamma", "digamma", "expit", "erf", "xlogy", "xlog1py", "boxcox"):
        other = [inputs.array((3,), COMPLEX)] if len(SMOOTH[name]) == 2 else []
        yield _named(name, inputs.array((3,), COMPLEX), *other)
