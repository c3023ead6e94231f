"""Initial values of parameters: functions ``init(key, shape, dtype)``; names and values as `jax.nn.initializers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from nxjax import numpy as jnp
from nxjax import random
from nxjax.errors import ShapeError
from nxjax.lax.sharding import with_out_sharding
from nxjax.numpy.documented import example as _example
from nxjax.numpy.documented import named as _named
from nxjax.numpy.documented import shown as _shown
from nxjax.numpy.promotion import as_shape, check_choice
from nxjax.trace import dtypes
from nxjax.trace.annotations import ShardingLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.typing import ArrayLike, DTypeLike

Axes = int | Sequence[int]


class _ByFan(Protocol):
    """What `glorot_uniform` and its like are."""

    def __call__(
        self, in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
    ) -> Initializer: ...


class Initializer(Protocol):
    """The type of initializers: results of this module's functions, `zeros` and `ones`.

    >>> init: Initializer = nx.nn.initializers.constant(3)
    >>> init(nx.random.key(0), (2,), float)
    Array([3., 3.], dtype=float32)
    """

    def __call__(self, key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike | None = None) -> Array: ...


def _dtype(dtype: Any) -> DType:
    return dtypes.as_dtype(float if dtype is None else dtype)


def _initializer(draw: Callable[[Any, Any, DType], Array], dtype: Any) -> Initializer:
    """What draws in ``dtype``, unless it is given another."""

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        return draw(key, shape, _dtype(dtype))

    return init


def _scaled(x: Array, factor: Any) -> Array:
    """``x`` times a number rounded to its dtype."""
    return x * jnp.asarray(factor, x.dtype)


def _all(name: str, made: Callable[..., Array], value: float) -> Any:
    doc = f"""All {name}; ``key`` is ignored.

Args:
    key: of any kind.
    shape: of the result.
    dtype: float32 by default.
    out_sharding: the layout of the result on devices.

>>> {name}(random.key(0), (2,)).tolist()
[{value}, {value}]
"""

    @_named(name, doc)
    def function(
        key: ArrayLike | None,
        shape: int | Sequence[int],
        dtype: DTypeLike | None = None,
        out_sharding: ShardingLike = None,
    ) -> Array:
        x = made(shape, _dtype(dtype))
        return with_out_sharding(x, out_sharding)

    return function


zeros, ones = _all("zeros", jnp.zeros, 0.0), _all("ones", jnp.ones, 1.0)


@_example("3", "Array([3, 3], dtype=int32)", then="(random.key(0), (2,), int)")
def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """``value`` everywhere.

    Args:
        value: number or array that broadcasts to the shape.
        dtype: the default of ``init``; by default float32.
    """
    return _initializer(lambda key, shape, dtype: jnp.full(shape, value, dtype), dtype)


def uniform(scale: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Uniform in [0, scale).

    Args:
        scale: number.
        dtype: the default of ``init``; by default float32.

    >>> x = uniform(0.1)(random.key(0), (1000,))
    >>> bool((x >= 0).all() and (x < 0.1).all()), round(float(x.mean()), 3)
    (True, 0.05)
    """
    return _initializer(lambda key, shape, dtype: _scaled(random.uniform(key, shape, dtype), scale), dtype)


@_example("0.1", "(2, 3)", then="(random.key(0), (2, 3)).shape")
def normal(stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """Normal with mean 0 and deviation ``stddev``.

    Args:
        stddev: number.
        dtype: the default of ``init``; by default float32.
    """
    return _initializer(lambda key, shape, dtype: _scaled(random.normal(key, shape, dtype), stddev), dtype)


def truncated_normal(
    stddev: ArrayLike = 1e-2, dtype: DTypeLike | None = None, lower: ArrayLike = -2.0, upper: ArrayLike = 2.0
) -> Initializer:
    """``stddev`` times a normal number that is truncated to (lower, upper).

    Args:
        stddev: number.
        dtype: the default of ``init``; by default float32.
        lower, upper: bounds, in units of ``stddev``.

    >>> x = truncated_normal(0.1)(random.key(0), (1000,))
    >>> bool((abs(x) < 0.2).all()), round(float(x.std()), 3)
    (True, 0.086)
    """
    return _initializer(
        lambda key, shape, dtype: _scaled(random.truncated_normal(key, lower, upper, shape, dtype), stddev), dtype
    )


def _product(shape: Sequence[int], axes: Axes) -> int:
    return shape[axes] if isinstance(axes, int) else math.prod(shape[i] for i in axes)


def _fans(shape: Sequence[int], in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many inputs reach an output, and outputs an input."""
    if in_axis == -2 and len(shape) <= 1:
        raise ShapeError(
            f"variance_scaling: a {len(shape)}-dimensional weight has no inputs and outputs",
            got=tuple(shape),
            expected="at least 2 dimensions",
            fix="say which axis is which with in_axis and out_axis",
        )
    ins, outs, batch = (_product(shape, a) for a in (in_axis, out_axis, batch_axis))
    receptive = math.prod(shape) / ins / outs / batch
    return ins * receptive, outs * receptive


def variance_scaling(
    scale: ArrayLike,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """Numbers whose variance is ``scale`` over the fan, so that activations keep their size through layers.

    Args:
        scale: positive number.
        mode: ``"fan_in"``, ``"fan_out"``, ``"fan_avg"`` or ``"fan_geo_avg"``.
        distribution: ``"truncated_normal"`` (at two deviations), ``"normal"`` or ``"uniform"``.
        in_axis, out_axis, batch_axis: axes of inputs, outputs, and of independent weights; the others are the
            receptive field.
        dtype: float or complex; float32 by default.

    Raises:
        ParameterError: another mode or distribution.
        ShapeError: called with a shape of fewer than 2 dimensions and the default axes.

    >>> x = variance_scaling(1.0, "fan_in", "normal")(random.key(0), (100, 50))
    >>> round(float(x.std()), 2), round((1 / 100) ** 0.5, 2)
    (0.1, 0.1)
    """
    fans = {
        "fan_in": lambda i, o: i,
        "fan_out": lambda i, o: o,
        "fan_avg": lambda i, o: (i + o) / 2,
        "fan_geo_avg": lambda i, o: (i * o) ** 0.5,
    }
    check_choice("variance_scaling: mode", mode, *fans)
    check_choice("variance_scaling: distribution", distribution, "truncated_normal", "normal", "uniform")

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        full, found = as_shape("variance_scaling", shape), _dtype(dtype)
        fan = fans[mode](*_fans(full, in_axis, out_axis, batch_axis))
        variance = jnp.asarray(scale / fan if fan else np.inf, found)
        if distribution == "normal":
            return random.normal(key, full, found) * jnp.sqrt(variance)
        if distribution == "uniform":
            if found in dtypes.COMPLEX:
                return _polar(key, full, found, lambda u: jnp.sqrt(2 * u)) * jnp.sqrt(variance)
            return random.uniform(key, full, found, -1) * jnp.sqrt(3 * variance)
        if found in dtypes.COMPLEX:
            # The deviation of a complex normal number given that its absolute value is below 2.
            return _truncated_disk(key, full, found) * (jnp.sqrt(variance) / jnp.asarray(0.95311164380491208, found))
        # The deviation of a normal number given that it lies in (-2, 2).
        stddev = jnp.sqrt(variance) / jnp.asarray(0.87962566103423978, found)
        return random.truncated_normal(key, -2, 2, full, found) * stddev

    return init


def _polar(key: Any, shape: Any, dtype: DType, radius: Any) -> Array:
    """Complex numbers of random angle; ``radius`` makes their absolute values of uniform numbers."""
    keys = random.split(key)
    real = dtypes.real_part(dtype)
    r = radius(random.uniform(keys[0], shape, real))
    theta = 2 * np.pi * random.uniform(keys[1], shape, real).astype(dtype)
    return r.astype(dtype) * jnp.exp(1j * theta)


def _truncated_disk(key: Any, shape: Any, dtype: DType) -> Array:
    return _polar(key, shape, dtype, lambda u: jnp.sqrt(-jnp.log1p(-(1 - math.exp(-4)) * u)))


def _by_fan(
    name: str, paper: str, scale: float, mode: str, distribution: str, variance: str, shown: tuple[str, float]
) -> _ByFan:
    """`variance_scaling` as a paper proposes it; ``shown`` is the example's variance as a quotient, and its root."""
    quotient, deviation = shown
    doc = f"""{paper}, {distribution.replace("_", " ")}.

Arguments as `variance_scaling`; the variance is {variance}.

>>> x = {name}()(random.key(0), (100, 50))
>>> round(float(x.std()), 2), round(({quotient}) ** 0.5, 2)
({deviation}, {deviation})
"""

    @_named(name, doc)
    def function(
        in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    return function


def _pair(name: str, paper: str, scale: float, mode: str, variance: str, *shown: Any) -> tuple[_ByFan, _ByFan]:
    """The uniform and the normal one."""
    kinds = (("uniform", "uniform"), ("normal", "truncated_normal"))
    uniform, normal = (_by_fan(f"{name}_{n}", paper, scale, mode, kind, variance, shown) for n, kind in kinds)
    return uniform, normal


glorot_uniform, glorot_normal = xavier_uniform, xavier_normal = _pair(
    "glorot", "Glorot and Bengio (2010)", 1.0, "fan_avg", "2 / (inputs + outputs)", "2 / 150", 0.12
)
lecun_uniform, lecun_normal = _pair("lecun", "LeCun et al. (1998)", 1.0, "fan_in", "1 / inputs", "1 / 100", 0.1)
he_uniform, he_normal = kaiming_uniform, kaiming_normal = _pair(
    "he", "He et al. (2015)", 2.0, "fan_in", "2 / inputs", "2 / 100", 0.14
)


@_shown("x = orthogonal()(random.key(0), (5, 3))", "", "bool(jnp.allclose(x.T @ x, jnp.eye(3), atol=1e-5))", "True")
def orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """``scale`` times a matrix with orthonormal rows or columns (Saxe et al., 2013), with the other axes combined.

    Args:
        scale: number.
        column_axis: the axis of the columns; the others are the rows.
        dtype: float or complex; float32 by default.

    Raises:
        ShapeError: called with a shape of fewer than 2 dimensions.
    """

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        full, found = as_shape("orthogonal", shape), _dtype(dtype)
        if len(full) < 2:
            raise ShapeError("orthogonal: needs at least 2 dimensions", got=full)
        if 0 in full:
            return jnp.zeros(full, found)
        columns = full[column_axis]
        q = random.orthogonal(key, math.prod(full) // columns, (), found, columns)
        rest = [n for i, n in enumerate(full) if i != column_axis % len(full)]
        return _scaled(jnp.moveaxis(q.reshape((*rest, columns)), -1, column_axis), scale)

    return init


def delta_orthogonal(scale: ArrayLike = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None) -> Initializer:
    """A convolution kernel that is an orthogonal matrix at its centre and 0 elsewhere (Xiao et al., 2018).

    Args:
        scale, column_axis, dtype: as `orthogonal`.

    Raises:
        ShapeError: called with other than 3 to 5 dimensions, or with more inputs than outputs.

    >>> x = delta_orthogonal()(random.key(0), (3, 2, 2))
    >>> bool(jnp.allclose(x[1] @ x[1].T, jnp.eye(2), atol=1e-5)), float(abs(x[0]).max())
    (True, 0.0)
    """

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        full, found = as_shape("delta_orthogonal", shape), _dtype(dtype)
        if len(full) not in (3, 4, 5):
            raise ShapeError("delta_orthogonal: needs 3, 4 or 5 dimensions", got=full)
        if full[-1] < full[-2]:
            raise ShapeError("delta_orthogonal: fan_in must not exceed fan_out", got=full)
        matrix = orthogonal(scale, column_axis, found)(key, full[-2:])
        centre = tuple((n - 1) // 2 for n in full[:-2])
        return jnp.zeros(full, found).at[centre].set(matrix)

    return init
