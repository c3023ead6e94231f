"""What optax, chex, einops and jaxtyping give on nxjax, which stands in JAX's place, or on JAX: numbers, as JSON."""
# ruff: noqa: E402, F722, SIM905

import json
import sys
import warnings

warnings.simplefilter("ignore")
if "nxjax" in sys.argv:
    import nxjax

    nxjax.interop.as_jax()
import chex
import einops
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, jaxtyped

found: dict[str, list[float]] = {}


def keep(name, tree):
    leaves = [np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)]
    found[name] = [float(f"{v:.6g}") for v in np.concatenate(leaves)[:20]]


def wave(*shape):
    return jnp.asarray(np.sin(np.arange(np.prod(shape)) + 1.0).reshape(shape), jnp.float32)


PARAMS = {"w": wave(4, 3), "b": wave(3)}
X, Y = wave(5, 4), jnp.cos(wave(5, 3) * 3)


def loss(p):
    return jnp.mean((jnp.tanh(X @ p["w"] + p["b"]) - Y) ** 2)


def train(name, tx, steps=3):
    def step(p, state):
        value, g = jax.value_and_grad(loss)(p)
        u, state = tx.update(g, state, p, value=value, grad=g, value_fn=loss)
        return optax.apply_updates(p, u), state

    tx = optax.with_extra_args_support(tx)
    p, state = PARAMS, tx.init(PARAMS)
    for _ in range(steps):
        p, state = step(p, state)
    keep(name, p)


for name in (
    "adabelief adadelta adafactor adagrad adam adamw adamax adamaxw adan amsgrad fromage lamb lars lion nadam nadamw "
    "noisy_sgd novograd optimistic_gradient_descent radam rmsprop rprop sgd sign_sgd sm3 yogi"
).split():
    train(name, getattr(optax, name)(0.05))
for name in "acprop ademamix adopt dadapt_adamw madgrad muon prodigy schedule_free_adamw simplified_ademamix".split():
    train(f"contrib.{name}", getattr(optax.contrib, name)(0.05), 2)
train("polyak_sgd", optax.polyak_sgd())
train("clipped", optax.chain(optax.clip_by_global_norm(0.1), optax.scale_by_adam(), optax.scale(-0.1)))
train("injected", optax.inject_hyperparams(optax.adam)(optax.cosine_decay_schedule(0.1, 10)))
train("masked", optax.masked(optax.adam(0.1), {"w": True, "b": False}))
train("multi_transform", optax.multi_transform({"a": optax.sgd(0.1), "b": optax.adam(0.1)}, {"w": "a", "b": "b"}))
train("multi_steps", optax.MultiSteps(optax.adam(0.1), 2), 4)
train("lbfgs", optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(4)), 2)
keep("schedule", [optax.warmup_cosine_decay_schedule(0.0, 1.0, 5, 15)(i) for i in range(15)])
keep(
    "cross entropy",
    jax.grad(lambda x: optax.softmax_cross_entropy_with_integer_labels(x, jnp.arange(3)).sum())(wave(3, 4)),
)
keep("simplex", optax.projections.projection_simplex(wave(5)))

x = wave(2, 3, 4)
keep("rearrange", einops.rearrange(x, "a b c -> c (a b)"))
keep("reduce", jax.grad(lambda x: einops.reduce(x, "a b c -> a", "max").sum())(x))
keep("einsum", einops.einsum(x, x, "a b c, a d c -> a b d"))


@jaxtyped(typechecker=None)
def shaped(x: Float[Array, "n m"]) -> Float[Array, "m n"]:
    return x.T


keep("jaxtyping", jax.jit(shaped)(x[0]))
keep(
    "isinstance",
    [isinstance(x, Float[Array, "2 3 4"]), isinstance(x, Float[Array, "2 3"]), isinstance(x, Int[Array, "..."])],
)


@chex.dataclass
class Pair:
    a: chex.Array
    b: float


keep("dataclass", jax.jit(lambda p: p.replace(a=p.a * 2))(Pair(a=x, b=1.0)))
chex.assert_trees_all_close({"a": x}, {"a": x})
chex.assert_shape([x, x], (2, None, 4))
chex.assert_numerical_grads(lambda v: jnp.sin(v).sum(), (wave(3),), order=1, atol=1e-2, rtol=1e-2)
checked = chex.chexify(lambda v: (chex.assert_tree_all_finite(v), v * 2)[1], async_check=False)
keep("chexify", checked(x))
failed = []
for thunk in (
    lambda: checked(x / 0),
    lambda: chex.assert_rank(x, 2),
    lambda: chex.assert_trees_all_close(x, x + 1),
    lambda: chex.assert_type(x, int),
):
    try:
        thunk()
    except AssertionError:
        failed.append(1)
keep("assertions", failed)
if "nxjax" in sys.argv:
    assert not [m for m in sys.modules if m.startswith("jaxlib")]
print(json.dumps(found))
