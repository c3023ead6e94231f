"""``nn``: activations, softmaxes, attention, scaled products and ``nn.initializers``."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case, Weak
from benchmarks.differential.inputs import FLOATS, NUMBERS, REAL, SHAPES, Inputs

ACTIVATIONS = (
    *("identity", "relu", "relu6", "softplus", "sparse_plus", "soft_sign", "sigmoid", "sparse_sigmoid", "silu"),
    *("swish", "mish", "log_sigmoid", "hard_tanh", "selu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "tanh"),
    *("log1mexp", "elu", "celu", "leaky_relu", "squareplus"),
)
WITH_PARAMETER = {"elu": "alpha", "celu": "alpha", "leaky_relu": "negative_slope", "squareplus": "b"}
SOFTMAXES = ("softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize")
ROWS = ("constant", "normal", "uniform", "truncated_normal", "ones", "zeros")
FANS = (
    *("glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform"),
    *("lecun_normal", "lecun_uniform", "xavier_normal", "xavier_uniform"),
)
DTYPES = ("float32", "float16", "bfloat16", "complex64", None)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _activations(inputs)
    yield from _softmaxes(inputs)
    yield from _one_hot(inputs)
    yield from _attention(inputs)
    yield from _scaled(inputs)
    yield from _initializers(inputs)


def _some(inputs: Inputs) -> list[str]:
    """The float dtypes and three others."""
    others = [name for name in NUMBERS if name not in FLOATS]
    return [*FLOATS, *(str(name) for name in inputs.random.choice(others, 3, replace=False))]


def _activations(inputs: Inputs) -> Iterator[Case]:
    for name in ACTIVATIONS:
        low = 0.1 if name == "log1mexp" else None
        for dtype in _some(inputs):
            yield Case(f"nn.{name}", (inputs.array(dtypes=dtype, low=low, high=low and 8, odd=0.15),))
        yield Case(f"nn.{name}", (inputs.array((5,), "float32", low=-40, high=40),))
        yield Case(f"nn.{name}", (Weak(inputs.choice((0.5, 2, 1.5))),))
        yield Case(f"nn.{name}", (inputs.choice((0.5, 2, True)),))
    for name, keyword in WITH_PARAMETER.items():
        for dtype in ("float32", "float16", "bfloat16", "int32", "bool"):
            yield Case(f"nn.{name}", (inputs.array(dtypes=dtype),), {keyword: inputs.choice((0.5, 2, 1.25))})
        x, parameter = inputs.broadcastable(2)
        yield Case(f"nn.{name}", (inputs.array(x, FLOATS), inputs.array(parameter, FLOATS, low=0.1, high=2)))
    for dtype in FLOATS:
        yield Case("nn.gelu", (inputs.array(dtypes=dtype, odd=0.15),), {"approximate": False})
    yield Case("nn.gelu", (inputs.array((3,), "int32"),), {"approximate": False})
    for dtype in ("float32", "bfloat16", "int32", "bool", "complex64"):
        yield Case("nn.glu", (inputs.array((4, 2), dtype),), {"axis": inputs.choice((0, 1, -1, -2))})
    yield Case("nn.glu", (inputs.array((0, 4), "float32"),))
    yield Case("nn.glu", (inputs.array((3,), "float32"),))


def _axes(inputs: Inputs, ndim: int) -> Any:
    """None, one axis or several of them."""
    kind = inputs.choice(("none", "one", "one", "some"))
    if kind == "none" or ndim == 0:
        return None
    if kind == "one":
        return inputs.axis(ndim)
    order = [int(i) - ndim * int(inputs.chance(0.5)) for i in inputs.random.permutation(ndim)]
    return tuple(order[: int(inputs.random.integers(ndim + 1))])


def _softmaxes(inputs: Inputs) -> Iterator[Case]:
    for name in SOFTMAXES:
        for dtype in _some(inputs):
            x = inputs.array(inputs.choice([s for s in SHAPES if s and 0 not in s]), dtype)
            yield Case(f"nn.{name}", (x,))
            yield Case(f"nn.{name}", (x,), {"axis": _axes(inputs, x.ndim)})
        yield Case(f"nn.{name}", (Weak(0.5),))
        for shape in ((), (0,), (2, 0, 3)):
            yield Case(f"nn.{name}", (inputs.array(shape, FLOATS),), {"axis": _axes(inputs, len(shape))})
        for dtype in ("float32", "bfloat16", "int32", "complex64"):
            x = inputs.array((2, 3), dtype, odd=0.2 if dtype == "float32" else 0)
            where = inputs.array(inputs.choice(((2, 3), (3,), (2, 1))), "bool")
            yield Case(f"nn.{name}", (x,), {"axis": inputs.choice((0, -1)), "where": where})
        yield Case(f"nn.{name}", (inputs.array((2, 3), "float32"),), {"where": np.zeros((2, 3), bool)})
        yield Case(f"nn.{name}", (np.asarray([-np.inf, -np.inf], "float32"),))
        yield Case(f"nn.{name}", (np.asarray([1.0, np.inf, np.inf], "float32"),))
        yield Case(f"nn.{name}", (np.asarray([200.0, -300.0, 199.0], "float32"),))
    for name in ("logsumexp", "logmeanexp"):
        for dtype in ("float32", "float16", "int32", "complex64"):
            x = inputs.array((2, 3), dtype)
            yield Case(f"nn.{name}", (x,), {"axis": _axes(inputs, 2), "keepdims": True})
    for dtype in ("float32", "bfloat16", "int32", "complex64"):
        x = inputs.array((2, 3), dtype)
        b = inputs.array(inputs.choice(((2, 3), (3,), (2, 1))), ("float32", dtype))
        yield Case("nn.logsumexp", (x,), {"b": b, "axis": _axes(inputs, 2), "return_sign": inputs.chance(0.7)})
    for algorithm in ("fast", "accurate", "nothing"):
        x = inputs.array((3, 4), "float32")
        yield Case("nn.standardize", (x,), {"algorithm": algorithm, "axis": 0, "epsilon": 0.25})
    for dtype in ("float32", "bfloat16"):
        x, mean = inputs.array((3, 4), dtype), inputs.array((3, 1), dtype)
        yield Case("nn.standardize", (x,), {"mean": mean, "variance": inputs.array((3, 1), dtype, low=0.1, high=2)})
        yield Case("nn.standardize", (x,), {"mean": mean})
        yield Case("nn.standardize", (x,), {"axis": (0, 1), "variance": np.asarray(0.5, dtype="float32")})


def _one_hot(inputs: Inputs) -> Iterator[Case]:
    for dtype in REAL:
        x = inputs.array(dtypes=dtype, low=-2, high=5)
        axis = int(inputs.random.integers(-x.ndim - 1, x.ndim + 1))
        yield Case("nn.one_hot", (x, inputs.choice((0, 1, 4))), {"axis": axis})
        yield Case("nn.one_hot", (x, 3), {"dtype": inputs.choice(("float32", "int8", "bool", "bfloat16", "complex64"))})
    yield Case("nn.one_hot", (2, 4))
    yield Case("nn.one_hot", ([0, 2], 3), {"dtype": int})
    yield Case("nn.one_hot", (np.asarray(2, "int32"), 3), {"axis": 3})


def _attention(inputs: Inputs) -> Iterator[Case]:
    b, t, s, h = 2, 4, 3, 8
    for _ in range(36):
        dtype = inputs.choice(("float32", "float32", "bfloat16", "float16"))
        n, k = inputs.choice(((2, 2), (4, 2), (4, 1), (1, 1)))
        own = inputs.chance(0.5)
        length = t if own else s
        batched = inputs.chance(0.8)
        head = (b,) if batched else ()
        q = inputs.array((*head, t, n, h), dtype)
        key, value = inputs.array((*head, length, k, h), dtype), inputs.array((*head, length, k, h), dtype)
        kwargs: dict[str, Any] = {}
        if inputs.chance(0.3):
            kwargs["bias"] = inputs.array(
                inputs.choice(((b, n, t, length), (1, n, t, length), (1, 1, t, length))), dtype
            )
        if inputs.chance(0.3):
            mask = inputs.array(inputs.choice(((b, n, t, length), (1, 1, t, length), (b, 1, 1, length))), "bool")
            kwargs["mask"] = mask
        if inputs.chance(0.3):
            kwargs["scale"] = inputs.choice((0.5, 1.0, 2))
        if inputs.chance(0.4):
            kwargs["is_causal"] = True
        if inputs.chance(0.3):
            kwargs["local_window_size"] = inputs.choice((1, (1, 0), (2, 1), (0, 2)))
        if batched and inputs.chance(0.3):
            kwargs["query_seq_lengths"] = inputs.array((b,), "int32", low=1, high=t + 1)
        if batched and inputs.chance(0.3):
            kwargs["key_value_seq_lengths"] = inputs.array((b,), "int32", low=1, high=length + 1)
        if inputs.chance(0.2):
            kwargs["return_residual"] = True
        if inputs.chance(0.2):
            kwargs["implementation"] = "xla"
        yield Case("nn.dot_product_attention", (q, key, value), kwargs, tolerance=4)  # sums in another order
    q = inputs.array((2, 4, 3, 8), "float32")
    yield Case("nn.dot_product_attention", (q, q, q[:, :, :2]))
    yield Case("nn.dot_product_attention", (q, q.astype("float16"), q))
    yield Case("nn.dot_product_attention", (q, q, q, None, np.ones((2, 3, 4, 4), "int32")))


def _scaled(inputs: Inputs) -> Iterator[Case]:
    def scaled(out: str, kind: str) -> Any:
        def make(lib: ModuleType) -> Any:
            def f(lhs: Any, rhs: Any, a: Any, b: Any) -> Any:
                lhs, rhs = lhs.astype(kind), rhs.astype(kind)
                return lib.nn.scaled_matmul(lhs, rhs, a, b, preferred_element_type=out)

            return f

        return make

    def dot(contracting: Any, batch: Any, out: str) -> Any:
        def make(lib: ModuleType) -> Any:
            config = lib.nn.get_scaled_dot_general_config("mxfp8")
            return lambda x, y: lib.nn.scaled_dot_general(
                x, y, ((contracting), (batch)), preferred_element_type=out, configs=[config] * 3
            )

        return make

    for out in ("float32", "bfloat16"):
        lhs, rhs = inputs.array((1, 4, 64), "float32"), inputs.array((1, 5, 64), "float32")
        a, b = (inputs.array((1, n, 2), "float32", low=0.5, high=2) for n in (4, 5))
        for kind in ("float8_e4m3fn", "bfloat16"):
            args = (lhs, rhs, a.astype("float32"), b)
            yield Case("nn.scaled_matmul", args, make=scaled(out, kind), modes=("call", "jit"))
        x, y = inputs.array((4, 64), "float32"), inputs.array((5, 64), "float32")
        yield Case("nn.scaled_dot_general", (x, y), make=dot(((1,), (1,)), ((), ()), out), modes=("call", "jit"))


def _initializers(inputs: Inputs) -> Iterator[Case]:
    def made(name: str, *args: Any, shape: Any, dtype: Any, seed: int, typed: bool, **kwargs: Any) -> Case:
        def make(lib: ModuleType) -> Any:
            found = getattr(lib.nn.initializers, name)

            def f(args: Any, kwargs: Any, seed: int, shape: Any, dtype: Any) -> Any:
                key = (lib.random.key if typed else lib.random.PRNGKey)(seed)
                init = found if name in ("ones", "zeros") else found(*args, **kwargs)
                return init(key, shape) if dtype is None else init(key, shape, dtype)

            return f

        whole = (args, kwargs, seed, shape, dtype)
        return Case(f"nn.initializers.{name}", whole, make=make, modes=("call", "jit"))

    def drawn(shapes: Any) -> dict[str, Any]:
        return {
            "shape": inputs.choice(shapes),
            "dtype": inputs.choice(DTYPES),
            "seed": int(inputs.random.integers(1000)),
            "typed": inputs.chance(0.5),
        }

    for name in ROWS:
        for _ in range(5):
            args = {"constant": (0.5,), "normal": (2.0,), "uniform": (0.25,)}.get(name, ())
            yield made(name, *args, **drawn(((), (3,), (2, 3), (0, 3))))
        if name not in ("constant", "ones", "zeros"):
            yield made(name, **drawn(((3, 4),)))
    yield made("truncated_normal", 0.5, lower=-1.0, upper=0.5, **drawn(((3, 4),)))
    yield made("constant", [1.0, 2.0, 3.0], **drawn(((2, 3),)))
    yield made("normal", 1.0, "bfloat16", **{**drawn(((2, 3),)), "dtype": None})
    for name in FANS:
        for _ in range(3):
            yield made(name, **drawn(((3, 4), (2, 3, 4), (3, 3, 2, 5))))
        yield made(name, 0, 1, **drawn(((3, 4), (2, 3, 4))))
        yield made(name, in_axis=(0, 1), out_axis=-1, batch_axis=2, **drawn(((2, 3, 2, 4),)))
        yield made(name, **drawn(((3,), (0, 3), (3, 0))))
    for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
        for distribution in ("truncated_normal", "normal", "uniform"):
            yield made("variance_scaling", 2.0, mode, distribution, **drawn(((3, 4), (2, 3, 4))))
    yield made("variance_scaling", 1.0, "fan_all", "normal", **drawn(((3, 4),)))
    for _ in range(4):
        yield made("orthogonal", 1.5, **drawn(((3, 4), (4, 3), (2, 3, 3), (3, 3))))
        yield made("orthogonal", column_axis=inputs.choice((0, 1, -1)), **drawn(((3, 4), (4, 3), (2, 3, 4))))
        yield made("delta_orthogonal", column_axis=-1, **drawn(((3, 2, 4), (3, 3, 3, 3), (1, 3, 2, 2, 3), (4, 4))))
