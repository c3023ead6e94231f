"""``random``: samplers, keys, permutations and choices. Keys are raw words as arrays, or typed ones made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import FLOATS, INTS, NUMBERS, UNSIGNED, Inputs

# name: low and high ends of each parameter, in order
PLAIN = ("cauchy", "exponential", "gumbel", "laplace", "logistic", "maxwell", "normal", "uniform")
OF_PARAMETERS = {
    "beta": ((0.3, 4), (0.3, 4)),
    "chisquare": ((0.5, 6),),
    "f": ((0.5, 5), (1, 6)),
    "gamma": ((0.2, 5),),
    "loggamma": ((0.2, 5),),
    "lognormal": ((0.1, 2),),
    "pareto": ((0.5, 4),),
    "rayleigh": ((0.1, 3),),
    "t": ((1, 6),),
    "triangular": ((-2, -1), (-1, 1), (1, 2)),
    "truncated_normal": ((-3, 0), (0.1, 2)),
    "wald": ((0.3, 3),),
}
SHAPE_LAST = {"double_sided_maxwell": ((-1, 1), (0.3, 2)), "weibull_min": ((0.3, 2), (0.5, 3))}
COUNTS = {"binomial": ((1, 15), (0.05, 0.95)), "poisson": ((0.2, 30),), "geometric": ((0.1, 0.9),)}
SIZES = ((), (3,), (2, 3), (0,), (2, 0, 3), (5, 1))
HEAVY = frozenset(("beta", "chisquare", "f", "gamma", "loggamma", "t", "binomial", "poisson", "dirichlet"))
STEADY = ("call", "jit", "vmap")  # numbers that no parameter's change moves


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _keys(inputs)
    yield from _plain(inputs)
    yield from _parameters(inputs)
    yield from _integers(inputs)
    yield from _vectors(inputs)
    yield from _orders(inputs)


def _key(inputs: Inputs) -> np.ndarray:
    return inputs.random.integers(0, 2**32, (2,), dtype=np.uint32)


def _typed(name: str) -> Callable[[ModuleType], Any]:
    def make(lib: ModuleType) -> Any:
        return lambda key, *args, **kwargs: getattr(lib.random, name)(lib.random.wrap_key_data(key), *args, **kwargs)

    return make


def _drawn(inputs: Inputs, name: str, args: Any, kwargs: Any = None, modes: Any = STEADY, **more: Any) -> Case:
    """A call with a raw or a typed key."""
    make = _typed(name) if inputs.chance(0.4) else None
    return Case(f"random.{name}", (_key(inputs), *args), kwargs or {}, make=make, modes=modes, **more)


def _keys(inputs: Inputs) -> Iterator[Case]:
    def data(f: Callable[[Any], Any]) -> Callable[[ModuleType], Any]:
        """Words of the typed keys that ``f`` of ``random`` gives."""
        return lambda lib: lambda *args: lib.random.key_data(f(lib.random)(*args))

    def of(f: Callable[[Any, Any], Any]) -> Callable[[ModuleType], Any]:
        """``f`` of ``random`` and a typed key."""
        return lambda lib: lambda words, *args: f(lib.random, lib.random.wrap_key_data(words), *args)

    for seed in (0, 1, -1, 2**31 - 1, 2**32 - 1, -(2**31), 12345, True):
        yield Case("random.PRNGKey", (seed,), modes=("call", "jit"))
        yield Case("random.key", (seed,), make=data(lambda r: r.key), modes=("call", "jit"))
    yield Case("random.PRNGKey", (2**40 + 3,), modes=("call",))
    yield Case("random.PRNGKey", (1.5,), modes=("call",))
    yield Case("random.PRNGKey", ([1, 2],), modes=("call",))
    for dtype in INTS:
        yield Case("random.PRNGKey", (inputs.array((), dtype),), modes=STEADY)
        yield Case("random.fold_in", (_key(inputs), inputs.array((), dtype)), modes=STEADY)
    yield Case("random.PRNGKey", (5,), {"impl": "threefry2x32"}, modes=("call",))
    yield Case("random.key", (5,), {"impl": "threefry2x32"}, modes=("call",))
    for data_ in (0, 3, -1, 2**32 - 1):
        yield Case("random.fold_in", (_key(inputs), data_), modes=STEADY)
    yield Case("random.fold_in", (_key(inputs), 1.5), modes=("call",))
    for num in (1, 2, 5, 0, (2, 3), (), (0, 2)):
        yield Case("random.split", (_key(inputs), num), modes=STEADY)
        yield Case(
            "random.split",
            (_key(inputs),),
            make=of(lambda r, key, n=num: r.key_data(r.split(key, n))),
            modes=STEADY,
        )
    yield Case("random.split", (_key(inputs),), modes=STEADY)
    yield Case("random.clone", (_key(inputs),), modes=STEADY)
    yield Case("random.clone", (_key(inputs),), make=of(lambda r, key: r.key_data(r.clone(key))), modes=STEADY)
    for shape in ((2,), (3, 2), (2, 3, 2), (0, 2)):
        words = inputs.random.integers(0, 2**32, shape, dtype=np.uint32)
        yield Case("random.wrap_key_data", (words,), modes=STEADY)
        yield Case("random.wrap_key_data", (words,), make=of(lambda r, key: r.key_data(key)[..., ::-1]), modes=STEADY)
        yield Case("random.key_data", (words,), make=of(lambda r, key: r.key_data(key)), modes=STEADY)
    yield Case("random.key_data", (_key(inputs),), modes=STEADY)
    yield Case("random.wrap_key_data", (_key(inputs)[:1],), modes=("call",))
    yield Case("random.wrap_key_data", (_key(inputs).astype("int32"),), modes=("call",))
    yield Case("random.key_impl", (_key(inputs),), make=of(lambda r, key: str(r.key_impl(key))), modes=("call",))
    kind = lambda lib: lambda: lib.dtypes.issubdtype(lib.random.key_dtype(), lib.dtypes.prng_key)
    yield Case("random.key_dtype", make=kind, modes=("call",))
    yield Case("random.split", (_key(inputs).reshape(1, 2),), modes=("call",))
    yield Case("random.normal", (np.arange(3, dtype="uint32"),), modes=("call",))
    yield Case("random.normal", (7,), modes=("call",))


def _plain(inputs: Inputs) -> Iterator[Case]:
    for name in PLAIN:
        for dtype in (*FLOATS, None):
            kwargs = {} if dtype is None else {"dtype": dtype}
            yield _drawn(inputs, name, (inputs.choice(SIZES),), kwargs)
            yield _drawn(inputs, name, ((2, 3),), kwargs, ("call", "jit"))
        yield _drawn(inputs, name, (), modes=("call", "jit"))
        yield _drawn(inputs, name, (3,), modes=("call",))
        yield _drawn(inputs, name, ((2,), "int32"), modes=("call",))
    for name in ("normal", "rademacher", "ball", "orthogonal"):
        for shape in ((4,), (2, 3)):
            args = {"ball": (3, 2, shape), "orthogonal": (3, shape)}.get(name, (shape,))
            dtype = "complex64" if name in ("normal", "orthogonal") else "float32"
            yield _drawn(inputs, name, args, {"dtype": dtype}, ("call", "jit"))
    for mode in ("low", "high", "nothing"):
        yield _drawn(inputs, "gumbel", ((3,),), {"mode": mode}, ("call", "jit"))
    for _ in range(6):
        kwargs = {"minval": inputs.array((), FLOATS, low=-2, high=0), "maxval": inputs.choice((1, 2.5))}
        yield _drawn(inputs, "uniform", ((2, 3), inputs.choice(FLOATS)), kwargs, ("call", "jit"))
    bounds = inputs.array((2, 1), "float32"), inputs.array((3,), "float32", low=3, high=5)
    yield _drawn(inputs, "uniform", ((2, 3), "float32", *bounds), None, ("call", "jit", "jvp", "vjp", "vmap"))
    yield _drawn(inputs, "uniform", ((3,), "float32", *bounds), None, ("call",))


def _parameters(inputs: Inputs) -> Iterator[Case]:
    for name, ends in {**OF_PARAMETERS, **SHAPE_LAST}.items():
        heavy = name in HEAVY
        for i in range(3 if heavy else 6):
            dtype = FLOATS[i % 3] if i < 4 else "float32"
            shapes = inputs.broadcastable(len(ends))
            given = [inputs.array(s, dtype, low=a, high=b) for s, (a, b) in zip(shapes, ends, strict=True)]
            whole = np.broadcast_shapes(*shapes)
            shape = inputs.choice(((2, *whole), whole) if name in SHAPE_LAST else (None, whole, (2, *whole)))
            out = inputs.choice((None, dtype))
            kwargs = {} if out is None else {"dtype": out}
            modes = ("call", "jit", "jvp", "vjp", "vmap") if i == 0 else ("call", "jit")
            yield _drawn(inputs, name, (*given, shape), kwargs, modes, tolerance=3)  # sampled by rejection or inverses
        numbers = tuple(inputs.choice((a, b)) for a, b in ends)
        yield _drawn(inputs, name, numbers, {"shape": (3,)}, ("call", "jit"))
        yield _drawn(inputs, name, numbers, None, ("call",))
        yield _drawn(inputs, name, numbers, {"shape": (2,), "dtype": "int32"}, ("call",))
    for name, p in (("gamma", -1.0), ("gamma", 0.0), ("beta", 0.0), ("chisquare", 0.0), ("t", np.inf)):
        args = (p, 1.0) if name == "beta" else (p,)
        yield _drawn(inputs, name, args, {"shape": (3,)}, ("call",))
    for lower, upper in ((1.0, 1.0), (2.0, -2.0), (-np.inf, np.inf), (5.0, 6.0)):
        yield _drawn(inputs, "truncated_normal", (lower, upper), {"shape": (3,)}, ("call",))
    for p in (0.5, 1.0, 2, 3.5):
        yield _drawn(inputs, "generalized_normal", (p,), {"shape": inputs.choice(SIZES)}, ("call", "jit"))
        yield _drawn(inputs, "ball", (inputs.choice((1, 3)), p, inputs.choice(SIZES)), None, ("call", "jit"))
    for dtype in FLOATS:
        yield _drawn(inputs, "generalized_normal", (1.5, (3,), dtype), None, ("call",))
        yield _drawn(inputs, "ball", (2, 2, (3,), dtype), None, ("call",))


def _integers(inputs: Inputs) -> Iterator[Case]:
    for dtype in (*UNSIGNED, None, "int32", "float32"):
        yield _drawn(inputs, "bits", (inputs.choice(SIZES), dtype))
    for dtype in (*INTS, *FLOATS, None):
        yield _drawn(inputs, "rademacher", (inputs.choice(SIZES), dtype), None, ("call", "jit"))
    for dtype in INTS:
        low, high = inputs.array((), dtype, low=-9, high=0), inputs.array((3,), dtype, low=1, high=100)
        yield _drawn(inputs, "randint", ((2, 3), low, high, dtype))
        yield _drawn(inputs, "randint", (inputs.choice(SIZES), 0, inputs.choice((1, 7, 127)), dtype))
        yield _drawn(inputs, "randint", ((4,), inputs.choice((-300, 0)), 2**31, dtype), None, ("call", "jit"))
    for low, high in ((0, 0), (5, 2), (-(2**31), 2**31 - 1), (0, 2**31 - 1), (-3, 2**33), (0.0, 5.0)):
        yield _drawn(inputs, "randint", ((3,), low, high), None, ("call", "jit"))
    yield _drawn(inputs, "randint", ((3,), 0, 5, "float32"), None, ("call",))
    for dtype in (*FLOATS, "int32", "bool"):
        p = inputs.array((2, 3), dtype, low=0, high=1)
        yield _drawn(inputs, "bernoulli", (p, inputs.choice((None, (2, 3), (4, 2, 3)))))
    for mode in ("low", "high", "nothing"):
        yield _drawn(inputs, "bernoulli", (0.3, (4,)), {"mode": mode}, ("call", "jit"))
    for p in (0.0, 1.0, 0.5, 2, True):
        yield _drawn(inputs, "bernoulli", (p,), None, ("call", "jit"))
    for name, ends in COUNTS.items():
        for i in range(4):
            shapes = inputs.broadcastable(len(ends))
            dtype = FLOATS[i % 3] if name != "poisson" or i == 2 else "float32"
            given = [inputs.array(s, dtype, low=a, high=b) for s, (a, b) in zip(shapes, ends, strict=True)]
            if name == "binomial":
                given[0] = np.floor(given[0].astype("float32")).astype(dtype)
            whole = np.broadcast_shapes(*shapes)
            out = {} if inputs.chance(0.6) else {"dtype": "float32" if name == "binomial" else "int16"}
            modes = STEADY if i == 0 else ("call", "jit")
            yield _drawn(inputs, name, (*given, inputs.choice((None, whole, (2, *whole)))), out, modes)
        numbers = tuple(b for _, b in ends)
        yield _drawn(inputs, name, numbers, {"shape": (4,)}, ("call", "jit"))
        yield _drawn(inputs, name, numbers, {"shape": (2,), "dtype": "bool"}, ("call",))
    for args in ((0.0,), (-1.0,), (np.nan,), (200.0,), (np.asarray([0, 3, 50], "int32"),)):
        yield _drawn(inputs, "poisson", args, None, ("call",))
    for args in ((10, 0.0), (10, 1.0), (0, 0.5), (-1, 0.5), (50, 0.3), (10, 1.5), (np.asarray([3, 40], "int32"), 0.9)):
        yield _drawn(inputs, "binomial", args, None, ("call",))
    for p in (0.0, 1.0, 2.0):
        yield _drawn(inputs, "geometric", (p, (3,)), None, ("call",))


def _vectors(inputs: Inputs) -> Iterator[Case]:
    for i in range(4):
        dtype = FLOATS[i % 3]
        alpha = inputs.array(inputs.choice(((3,), (2, 3), (2, 1, 4))), dtype, low=0.3, high=3)
        yield _drawn(inputs, "dirichlet", (alpha,), {"shape": inputs.choice((None, alpha.shape[:-1]))}, ("call", "jit"))
        root = inputs.array((3, 3), "float32")
        mean = inputs.array(inputs.choice(((3,), (2, 3))), "float32")
        cov = root @ root.T + np.eye(3, dtype="float32")
        kwargs = {
            "method": ("cholesky", "svd", "eigh", "nothing")[i],
            "shape": inputs.choice((None, (4, *mean.shape[:-1]))),
        }
        modes = ("call", "jit", "jvp", "vjp", "vmap") if i == 0 else ("call", "jit")
        if i in (0, 3):  # signs of eigenvectors are the library's
            yield _drawn(inputs, "multivariate_normal", (mean, cov), kwargs, modes)
        n = inputs.array((), "float32", low=1, high=9)
        p = inputs.random.dirichlet(np.ones(4), inputs.choice(((), (2,)))).astype("float32")
        yield _drawn(inputs, "multinomial", (np.floor(n), p), None, ("call", "jit"))
        kwargs = {"shape": inputs.choice(((), (2,), (0,))), "m": inputs.choice((None, 2, 4))}
        yield _drawn(inputs, "orthogonal", (3,), kwargs, ("call", "jit"))
        yield _drawn(inputs, "orthogonal", (2,), {"dtype": dtype}, ("call",))
    yield _drawn(inputs, "multivariate_normal", (np.zeros(3, "float32"), np.eye(2, dtype="float32")), None, ("call",))
    yield _drawn(inputs, "dirichlet", (np.float32(2.0),), None, ("call",))


def _orders(inputs: Inputs) -> Iterator[Case]:
    for dtype in NUMBERS:
        x = inputs.array(inputs.choice(((5,), (4, 3), (3, 2, 2), (0, 3))), dtype)
        kwargs = {"axis": inputs.axis(x.ndim), "independent": inputs.chance(0.4)}
        yield _drawn(inputs, "permutation", (x,), kwargs)
        kwargs = {"axis": inputs.axis(x.ndim), "replace": inputs.chance(0.5)}
        shape = inputs.choice(((), (2,), (1, 2)))
        yield _drawn(inputs, "choice", (x, shape), kwargs, (*STEADY, "jvp", "vjp"))
    for n in (0, 1, 6):
        yield _drawn(inputs, "permutation", (n,), None, ("call", "jit"))
        yield _drawn(inputs, "permutation", (n,), {"independent": True}, ("call",))
        yield _drawn(inputs, "choice", (n, (3,)), {"replace": inputs.chance(0.5)}, ("call", "jit"))
    for a in (5, inputs.array((5,), "float32"), inputs.array((5, 2), "int32")):
        p = inputs.random.dirichlet(np.ones(5)).astype("float32")
        for replace in (True, False):
            kwargs = {"replace": replace, "p": p}
            yield _drawn(inputs, "choice", (a, inputs.choice(((), (3,), (2, 2)))), kwargs)
            yield _drawn(inputs, "choice", (a, (2,)), {**kwargs, "mode": inputs.choice(("low", "high"))}, ("call",))
    yield _drawn(inputs, "choice", (3, (4,)), {"replace": False}, ("call",))
    yield _drawn(inputs, "choice", (np.float32(3.0),), None, ("call",))
    yield _drawn(inputs, "permutation", (np.float32(3.0),), None, ("call",))
    for dtype in (*FLOATS, "int32"):
        logits = inputs.array(inputs.choice(((4,), (3, 4), (2, 3, 4))), dtype)
        axis = inputs.axis(logits.ndim)
        rest = tuple(n for i, n in enumerate(logits.shape) if i != axis % logits.ndim)
        yield _drawn(inputs, "categorical", (logits, axis))
        yield _drawn(inputs, "categorical", (logits, axis, (2, *rest)), None, ("call", "jit"))
        yield _drawn(inputs, "categorical", (logits, axis, (2, *rest)), {"replace": False}, ("call", "jit"))
        kwargs = {"axis": axis, "mode": inputs.choice(("low", "high"))}
        yield _drawn(inputs, "categorical", (logits,), kwargs, ("call",))
    yield _drawn(inputs, "categorical", (np.asarray([-np.inf, 0, -np.inf], "float32"),), {"shape": (5,)})
    yield _drawn(inputs, "categorical", (np.zeros((2, 3), "float32"),), {"shape": (3,)}, ("call",))
