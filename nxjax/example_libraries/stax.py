"""`jax.example_libraries.stax`: layers as pairs of functions, ``init(key, shape)`` and ``apply(params, x, rng=None)``.

``init`` returns the result's shape and the parameters; a batch of any size may be -1 in shapes. Keys are used in JAX's
order, so a network starts with JAX's weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import nxjax.numpy as jnp
from nxjax import lax, nn, random
from nxjax.errors import ParameterError
from nxjax.nn.initializers import glorot_normal, normal, ones, zeros
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.shapes import eval_shape

Layer = tuple[Callable[..., Any], Callable[..., Any]]


def _shape_after(f: Callable[..., Any], shape: Sequence[int], *others: Sequence[int]) -> tuple[int, ...]:
    """The shape of ``f`` of arrays of these shapes, the first with -1 where the batch stands."""
    unknown = [i for i, n in enumerate(shape) if n < 0]
    known = tuple(1 if i in unknown else n for i, n in enumerate(shape))
    y = eval_shape(f, *(ShapeDtypeStruct(s, jnp.float32) for s in (known, *others))).shape
    return tuple(-1 if i in unknown else n for i, n in enumerate(y))


def Dense(out_dim: int, W_init: Any = glorot_normal(), b_init: Any = normal()) -> Layer:
    """``x @ W + b``: the last dimension becomes ``out_dim``.

    >>> init, apply = Dense(3)
    >>> shape, params = init(random.key(0), (-1, 2))
    >>> shape, apply(params, jnp.ones((4, 2))).shape
    ((-1, 3), (4, 3))
    """

    def init(rng: Any, input_shape: Any) -> Any:
        first, second = random.split(rng)
        w = W_init(first, (input_shape[-1], out_dim))
        return (*input_shape[:-1], out_dim), (w, b_init(second, (out_dim,)))

    def apply(params: Any, inputs: Any, **_: Any) -> Any:
        return jnp.dot(inputs, params[0]) + params[1]

    return init, apply


def _convolution(
    product: Callable[[Any, Any], Any], numbers: Any, out_chan: int, filter_shape: Any, W_init: Any, b_init: Any
) -> Layer:
    lhs, rhs, out = numbers
    w_init = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))
    bias = [out_chan if c == "C" else 1 for c in out]

    def init(rng: Any, input_shape: Any) -> Any:
        sizes = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[lhs.index("C")]}
        kernel = [channels[c] if c in channels else next(sizes) for c in rhs]
        first, second = random.split(rng)
        w = w_init(first, kernel)
        return _shape_after(product, input_shape, kernel), (w, b_init(second, bias))

    def apply(params: Any, inputs: Any, **_: Any) -> Any:
        return product(inputs, params[0]) + params[1]

    return init, apply


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),
) -> Layer:
    """A convolution with ``out_chan`` filters, and a bias; `Conv` has images in NHWC.

    >>> init, apply = Conv(8, (3, 3), padding="SAME")
    >>> init(random.key(0), (-1, 28, 28, 1))[0]
    (-1, 28, 28, 8)
    """
    steps = strides or (1,) * len(filter_shape)
    return _convolution(
        lambda x, w: lax.conv_general_dilated(x, w, steps, padding, dimension_numbers=dimension_numbers),
        dimension_numbers, out_chan, filter_shape, W_init, b_init,
    )  # fmt: skip


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = normal(1e-6),
) -> Layer:
    """A transposed convolution and a bias; `ConvTranspose` has images in NHWC, `Conv1DTranspose` sequences in NHC.

    >>> init, apply = ConvTranspose(4, (2, 2), (2, 2))
    >>> init(random.key(0), (1, 5, 5, 2))[0]
    (1, 10, 10, 4)
    """
    steps = strides or (1,) * len(filter_shape)
    return _convolution(
        lambda x, w: lax.conv_transpose(x, w, steps, padding, dimension_numbers=dimension_numbers),
        dimension_numbers, out_chan, filter_shape, W_init, b_init,
    )  # fmt: skip


Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Mean 0 and variance 1 along ``axis``, in training and afterwards; then ``gamma * x + beta`` of the other axes.

    >>> init, apply = BatchNorm(axis=0)
    >>> shape, params = init(random.key(0), (-1, 2))
    >>> apply(params, jnp.array([[0.0, 1.0], [2.0, 3.0]])).round(3).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """
    axes = (axis,) if jnp.isscalar(axis) else tuple(axis)

    def init(rng: Any, input_shape: Any) -> Any:
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        first, second = random.split(rng)
        beta = beta_init(first, shape) if center else ()
        return input_shape, (beta, gamma_init(second, shape) if scale else ())

    def apply(params: Any, x: Any, **_: Any) -> Any:
        beta, gamma = params
        spread = tuple(None if i in axes else slice(None) for i in range(jnp.ndim(x)))
        y = nn.standardize(x, axes, epsilon=epsilon)
        y = gamma[spread] * y if scale else y
        return y + beta[spread] if center else y

    return init, apply


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer without parameters that applies ``fun``: `Relu`, `Tanh`, `Softmax`, ...

    >>> elementwise(jnp.square)[1]((), jnp.array([2.0])).tolist()
    [4.0]
    """
    return (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **_: fun(inputs, **fun_kwargs))


Tanh = elementwise(jnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)


def _pooling(window: Any, strides: Any, spec: str | None, pool: Callable[[Any, Any, Any], Any]) -> Layer:
    """``pool(x, window, strides)`` of windows that are 1 wide along batch and channels."""
    window, steps = tuple(window), tuple(strides or (1,) * len(window))
    for i in sorted((0, len(window) + 1) if spec is None else (spec.index("N"), spec.index("C"))):
        window, steps = (*window[:i], 1, *window[i:]), (*steps[:i], 1, *steps[i:])

    def apply(params: Any, inputs: Any, **_: Any) -> Any:
        return pool(inputs, window, steps)

    return (lambda rng, input_shape: (_shape_after(functools.partial(apply, ()), input_shape), ())), apply


def MaxPool(window_shape: Any, strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """The largest element of each window; ``spec`` has the positions of N and C, by default first and last.

    >>> MaxPool((2, 2), strides=(2, 2))[0](random.key(0), (-1, 28, 28, 3))[0]
    (-1, 14, 14, 3)
    """
    return _pooling(window_shape, strides, spec, lambda x, w, s: lax.reduce_window(x, -jnp.inf, lax.max, w, s, padding))


def SumPool(window_shape: Any, strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """The sum of each window. As `MaxPool`.

    >>> SumPool((2,))[1]((), jnp.ones((1, 3, 1))).ravel().tolist()
    [2.0, 2.0]
    """
    return _pooling(window_shape, strides, spec, lambda x, w, s: lax.reduce_window(x, 0.0, lax.add, w, s, padding))


def AvgPool(window_shape: Any, strides: Any = None, padding: Any = "VALID", spec: str | None = None) -> Layer:
    """The mean of each window's elements, without padding. As `MaxPool`.

    >>> AvgPool((2,), padding="SAME")[1]((), jnp.array([[[1.0], [3.0]]])).ravel().tolist()
    [2.0, 3.0]
    """

    def mean(x: Any, window: Any, steps: Any) -> Any:
        total = lambda v: lax.reduce_window(v, 0.0, lax.add, window, steps, padding)
        return total(x) / total(jnp.ones_like(x))

    return _pooling(window_shape, strides, spec, mean)


Flatten: Layer = (
    lambda rng, input_shape: ((input_shape[0], math.prod(input_shape[1:])), ()),
    lambda params, inputs, **_: jnp.reshape(inputs, (inputs.shape[0], -1)),
)
Identity: Layer = (lambda rng, input_shape: (input_shape, ())), (lambda params, inputs, **_: inputs)
FanInSum: Layer = (lambda rng, input_shape: (input_shape[0], ())), (lambda params, inputs, **_: sum(inputs))


def FanOut(num: int) -> Layer:
    """The input ``num`` times, for `parallel`.

    >>> FanOut(2)[0](random.key(0), (3,))[0]
    [(3,), (3,)]
    """
    return (lambda rng, input_shape: ([input_shape] * num, ())), (lambda params, inputs, **_: [inputs] * num)


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs, joined along ``axis``.

    >>> FanInConcat()[0](random.key(0), [(-1, 2), (-1, 3)])[0]
    (-1, 5)
    """

    def init(rng: Any, input_shape: Any) -> Any:
        first = input_shape[0]
        at = axis % len(first)
        return (*first[:at], sum(shape[at] for shape in input_shape), *first[at + 1 :]), ()

    return init, lambda params, inputs, **_: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Keeps each element with probability ``rate``, as JAX's layer does, and divides by it; or returns the input.

    Raises:
        ParameterError: no key: ``apply(params, x, rng=key)``.

    >>> Dropout(0.5, mode="test")[1]((), jnp.ones(2), rng=random.key(0)).tolist()
    [1.0, 1.0]
    """

    def apply(params: Any, inputs: Any, **given: Any) -> Any:
        rng = given.get("rng")
        if rng is None:
            raise ParameterError("Dropout: needs a key", fix="apply(params, x, rng=nx.random.key(0))")
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return (lambda rng, input_shape: (input_shape, ())), apply


def _keys(rng: Any, n: int) -> Any:
    return (None,) * n if rng is None else random.split(rng, n)


def serial(*layers: Layer) -> Layer:
    """Layers one after the other; the parameters are a list.

    >>> init, apply = serial(Dense(8), Relu, Dense(2), LogSoftmax)
    >>> shape, params = init(random.key(0), (-1, 4))
    >>> shape, len(params), apply(params, jnp.ones((3, 4))).shape
    ((-1, 2), 4, (3, 2))
    """

    def init(rng: Any, input_shape: Any) -> Any:
        params = []
        for first, _ in layers:
            rng, key = random.split(rng)
            input_shape, held = first(key, input_shape)
            params.append(held)
        return input_shape, params

    def apply(params: Any, inputs: Any, rng: Any = None, **more: Any) -> Any:
        for (_, layer), held, key in zip(layers, params, _keys(rng, len(layers)), strict=True):
            inputs = layer(held, inputs, rng=key, **more)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Parallel layers, one per input; see `FanOut` and `FanInSum`.

    >>> init, apply = serial(FanOut(2), parallel(Dense(3), Identity), FanInSum)
    >>> shape, params = init(random.key(0), (-1, 3))
    >>> apply(params, jnp.ones((2, 3))).shape
    (2, 3)
    """

    def init(rng: Any, input_shape: Any) -> Any:
        keys = random.split(rng, len(layers))
        made = [first(key, shape) for (first, _), key, shape in zip(layers, keys, input_shape, strict=True)]
        return [shape for shape, _ in made], [held for _, held in made]

    def apply(params: Any, inputs: Any, rng: Any = None, **more: Any) -> Any:
        parts = zip(layers, params, inputs, _keys(rng, len(layers)), strict=True)
        return [layer(held, x, rng=key, **more) for (_, layer), held, x, key in parts]

    return init, apply


def shape_dependent(make_layer: Callable[[Any], Layer]) -> Layer:
    """The layer that ``make_layer`` returns for the shape of its input.

    >>> init, apply = shape_dependent(lambda shape: Dense(2 * shape[-1]))
    >>> init(random.key(0), (-1, 3))[0]
    (-1, 6)
    """
    return (
        lambda rng, input_shape: make_layer(input_shape)[0](rng, input_shape),
        lambda params, inputs, **more: make_layer(inputs.shape)[1](params, inputs, **more),
    )
