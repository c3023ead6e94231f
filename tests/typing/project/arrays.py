"""Arrays: attributes, operators, indexing, methods, functions, control flow and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import Array, lax

x: Array = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
shape: tuple[int, ...] = x.shape
dtype: np.dtype[Any] = x.dtype
rank: int = x.ndim + x.size + len(x) + x.nbytes
host: np.ndarray[Any, Any] = np.asarray(x)

# operators with arrays, numbers and NumPy
total: Array = (x + 1) * 2.0 - x / x.T.T // 2 % 3 + 1 - (2**x) + np.ones(4) @ x.T.sum(1, keepdims=False)[0]
total += x
mask: Array = (x > 1) & (x <= 10) | ~(x == 3) ^ (x != 4)
negative: Array = -abs(+x)
quotient, rest = divmod(x, 3)
if bool(mask.all()) and float(x[0, 0]) + int(x[1, 1]) > 0:
    total = total[mask]

# indexing and updates
row: Array = x[0] + x[..., None][1:, ::2].mean() + x[jnp.array([0, 1])].max(axis=0)
moved: Array = x.at[0, 1:].set(7).at[1].add(x[0]).at[2].multiply(2.0, mode="drop").at[0].get()
for line in x:
    row = row + line.sum()

# methods and attributes
more: list[Array] = [
    x.T, x.mT, x.real, x.flatten(), x.ravel(), x.astype("int8"), x.astype(jnp.bfloat16), x.mean(0), x.std(axis=(0, 1)),
    x.reshape(-1), x.reshape((2, 6)), x.transpose(1, 0), x.squeeze(), x.argmax(axis=1), x.cumsum(0), x.sort(),
    x.clip(0, 1), x.dot(x.T), x.take(jnp.array([1]), axis=0), x.copy(), x.block_until_ready(), x.conj(), x.round(2),
]  # fmt: skip
found: tuple[Array, ...] = x.nonzero()
rows: Any = x.tolist()
u, s, vt = jnp.linalg.svd(x)
eigenvalues: Array = jnp.linalg.eigh(x @ x.T).eigenvalues + u[0] + s[0] + vt[0, 0]
window: Array = lax.dynamic_update_slice(x, lax.dynamic_slice(x, (0, 1), (2, 2)), (1, x.argmax()))
bent: Array = jnp.interp(x, x[0], x[0], left="extrapolate") + jnp.fft.rfft(x).real.sum() + jnp.linalg.cond(x, "fro")

# functions
pair: tuple[Array, Array] = jnp.frexp(x)
values: list[Array] = [
    jnp.sin(x), jnp.add(x, 1), jnp.add.reduce(x), jnp.where(x > 0, x, 0), jnp.concatenate([x, x]), jnp.stack((x, x), 1),
    jnp.einsum("ij,kj->ik", x, x), jnp.zeros_like(x), jnp.ones((2, 3), jnp.int32), jnp.linspace(0, 1, 5), jnp.eye(3),
    jnp.linalg.norm(x), jnp.fft.fft(x), jnp.float32(1), jnp.full((2,), 1.0), jnp.array([[1, 2], [3, 4]]), jnp.unique(x),
    jnp.sum(x, axis=0, keepdims=True), jnp.maximum(x, 0), jnp.average(x), jnp.clip(x, 0, 1), jnp.split(x, 2, axis=1)[0],
    nx.nn.gelu(x), nx.nn.softmax(x, axis=-1), nx.nn.logsumexp(x), lax.dot(x, x.T), lax.rsqrt(x), lax.exp(x),
    nx.random.uniform(nx.random.key(0), (3,), minval=-1, maxval=1), lax.stop_gradient(x),
    nx.device_put(x), nx.numpy.pi * x,
]  # fmt: skip

# scipy and initializers
from nxjax.nn import initializers  # noqa: E402
from nxjax.scipy import special, stats  # noqa: E402

densities: list[Array] = [
    stats.norm.logpdf(x, loc=0.0, scale=2), nx.scipy.stats.beta.pdf(0.3, 2, 3), special.logsumexp(x, axis=0),
    nx.scipy.linalg.cho_factor(x @ x.T)[0], nx.scipy.signal.convolve(x[0], x[1], mode="same"), stats.mode(x).mode,
    nx.scipy.fft.dct(x, axis=0), nx.scipy.cluster.vq.vq(x, x)[0], special.erf(x),
    nx.scipy.spatial.transform.Rotation.identity().as_quat(),
    initializers.he_normal()(nx.random.key(0), (3, 4), jnp.float32), initializers.zeros(nx.random.key(0), (2,)),
]  # fmt: skip
init: initializers.Initializer = initializers.normal(0.1)


# control flow
def body(carry: Array, y: Array) -> tuple[Array, Array]:
    return carry + y.sum(), carry


last, history = lax.scan(body, 0.0, x)
together: Array = last + history
counted: Array = lax.fori_loop(0, 10, lambda i, c: c + i, x)
halved: Array = lax.while_loop(lambda c: c.max() > 1, lambda c: c / 2, x)


final, running = lax.scan(lambda c, y: (c + y, c), 0.0, x[0])
lists: Any = final.tolist(), running.tolist(), lax.fori_loop(0, 3, lambda i, c: c * i, 1).tolist(), nx.fft.fft(x)


def twice(y: Array) -> Array:
    return 2 * y


chosen: Array = lax.cond(x[0, 0] > 0, twice, jnp.sin, x)
mapped: Array = lax.map(twice, x)
switched: Array = lax.switch(1, [twice, jnp.cos], x)


# derivatives
@nx.custom_vjp
def clipped(y: Array, limit: float) -> Array:
    return y


def clipped_forward(y: Array, limit: float) -> tuple[Array, float]:
    return y, limit


def clipped_backward(limit: float, ct: Array) -> tuple[Array, None]:
    return jnp.clip(ct, -limit, limit), None


clipped.defvjp(clipped_forward, clipped_backward)
kept: Array = clipped(x, 1.0)


@nx.custom_jvp
def cube(y: Array) -> Array:
    return y**3


@cube.defjvp
def cube_tangent(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (y,), (t,) = primals, tangents
    return y**3, 3 * y**2 * t


def energy(v: Array) -> Array:
    return jnp.sum(v**2)


y, t = nx.jvp(cube, (x,), (x,))
z, pull = nx.vjp(twice, x)
slope: Array = nx.grad(energy)(x) + y + t + z + pull(z)[0]
curvature: Array = nx.hessian(energy)(x)
program: nx.Program = nx.make_jaxpr(twice)(x)
structure: nx.ShapeDtypeStruct = nx.eval_shape(twice, x)
