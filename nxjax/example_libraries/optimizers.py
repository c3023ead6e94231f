"""`jax.example_libraries.optimizers`: optimizers as three functions, schedules of step sizes, clipping.

`optimizer` turns an optimizer for one array into one for trees. Its state is a tree of arrays under `jit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import nxjax.numpy as jnp
from nxjax.errors import ParameterError, Shown, TreeError
from nxjax.trace import tree
from nxjax.trace.tree_nodes import register_pytree_node

Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """``init_fn(params)``, ``update_fn(step, gradient, state)`` and ``params_fn(state)``.

    >>> init, update, get = sgd(0.5)
    >>> float(get(update(0, 2.0, init(1.0))))
    0.0
    """

    init_fn: Callable[..., Any]
    update_fn: Callable[..., Any]
    params_fn: Callable[..., Any]


class OptimizerState(Shown):
    """The optimizer's arrays for each array of the parameters, flat, and the structures of both.

    >>> state = momentum(0.1, 0.9).init_fn({"w": jnp.ones(2)})
    >>> packed, tree_def, subtree_defs = state
    >>> [x.tolist() for x in packed[0]]
    [[1.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, packed_state: Any, tree_def: Any, subtree_defs: Any) -> None:
        self.packed_state = packed_state
        self.tree_def = tree_def
        self.subtree_defs = subtree_defs

    def __iter__(self) -> Any:
        return iter((self.packed_state, self.tree_def, self.subtree_defs))

    def states(self) -> list[Any]:
        """The optimizer's state of each array."""
        return [tree.unflatten(d, held) for d, held in zip(self.subtree_defs, self.packed_state, strict=True)]


register_pytree_node(
    OptimizerState,
    lambda s: ((s.packed_state,), (s.tree_def, tuple(s.subtree_defs))),
    lambda defs, held: OptimizerState(held[0], *defs),
)


def _packed(states: Sequence[Any], tree_def: Any) -> OptimizerState:
    pairs = [tree.flatten(state) for state in states]
    return OptimizerState(tuple(leaves for leaves, _ in pairs), tree_def, tuple(d for _, d in pairs))


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Decorator: turns a function that returns ``init``, ``update`` and ``get_params`` for one array into one that
    returns an `Optimizer` for trees.

    Raises:
        TreeError: a gradient of another structure than the parameters, or an update that changes the state's.

    >>> @optimizer
    ... def signs(step):
    ...     return (lambda x: x), (lambda i, g, x: x - step * jnp.sign(g)), (lambda x: x)
    >>> init, update, get = signs(0.5)
    >>> {k: float(v) for k, v in get(update(0, {"a": -3.0}, init({"a": 1.0}))).items()}
    {'a': 1.5}
    """

    @functools.wraps(opt_maker)
    def made(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(params: Any) -> OptimizerState:
            leaves, tree_def = tree.flatten(params)
            return _packed([init(jnp.asarray(x)) for x in leaves], tree_def)

        def tree_update(i: Any, gradient: Any, state: OptimizerState) -> OptimizerState:
            leaves, tree_def = tree.flatten(gradient)
            if tree_def != state.tree_def:
                raise TreeError(
                    "optimizer: the gradient is not of the parameters", got=tree_def, expected=state.tree_def
                )
            new = _packed([update(i, g, s) for g, s in zip(leaves, state.states(), strict=True)], tree_def)
            if new.subtree_defs != tuple(state.subtree_defs):
                raise TreeError(
                    "optimizer: the update changes what is kept", got=new.subtree_defs, expected=state.subtree_defs
                )
            return new

        def tree_params(state: OptimizerState) -> Any:
            return tree.unflatten(state.tree_def, [get_params(s) for s in state.states()])

        return Optimizer(tree_init, tree_update, tree_params)

    return made


def _keeping(zeros: int, update: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """An optimizer whose state is the array and so many of its shape, zero at first."""
    return (lambda x: (x, *(jnp.zeros_like(x),) * zeros)), update, (lambda state: state[0])


def _inverse_root(x: Any) -> Any:
    return jnp.where(x > 0, 1 / jnp.sqrt(x), 0.0)


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent; ``step_size`` is a number, or a function of the step's number.

    >>> init, update, get = sgd(0.1)
    >>> float(get(update(0, 1.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - size(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with momentum: velocities are sums of gradients that decay by ``mass``.

    >>> init, update, get = momentum(0.5, 0.9)
    >>> float(get(update(1, 1.0, update(0, 1.0, init(2.0))))).__round__(3)
    0.55
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, v = state
        v = mass * v + g
        return x - size(i) * v, v

    return _keeping(1, update)


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Nesterov's momentum: uses the velocity of the next step (Sutskever et al. 2013).

    >>> init, update, get = nesterov(0.5, 0.5)
    >>> float(get(update(0, 1.0, init(2.0))))
    1.25
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, v = state
        v = mass * v + g
        return x - size(i) * (mass * v + g), v

    return _keeping(1, update)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad (Duchi et al. 2011), with momentum: gradients over the root of the sum of their squares.

    >>> init, update, get = adagrad(1.0)
    >>> float(get(update(0, 4.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + g * g
        m = (1 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - size(i) * m, squares, m

    return _keeping(2, update)


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp (Hinton 2012): gradients over the root of a decaying mean of their squares.

    >>> init, update, get = rmsprop(0.1, gamma=0.0)
    >>> float(get(update(0, 4.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + g * g * (1 - gamma)
        return x - size(i) * g / jnp.sqrt(squares + eps), squares

    return _keeping(1, update)


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """`rmsprop`, whose steps have momentum.

    >>> init, update, get = rmsprop_momentum(0.1, gamma=0.0)
    >>> float(get(update(0, 4.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares * gamma + g * g * (1 - gamma)
        m = momentum * m + size(i) * g / jnp.sqrt(squares + eps)
        return x - m, squares, m

    return _keeping(2, update)


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam (Kingma and Ba 2015).

    >>> init, update, get = adam(0.1)
    >>> float(get(update(0, 4.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * (g * g) + b2 * v
        mean = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        square = v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - size(i) * mean / (jnp.sqrt(square) + eps), m, v

    return _keeping(2, update)


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """AdaMax (Kingma and Ba 2015): `adam` with a decaying maximum in place of the mean of squares.

    >>> init, update, get = adamax(0.1)
    >>> float(get(update(0, 4.0, init(2.0)))).__round__(3)
    1.9
    """
    size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, largest = state
        m = (1 - b1) * g + b1 * m
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        step = size(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        return x - step * m / (largest + eps), m, largest

    return _keeping(2, update)


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """SM3 (Anil et al. 2019): Adagrad with one vector per dimension in place of an array of squares.

    >>> init, update, get = sm3(1.0)
    >>> get(update(0, jnp.ones((2, 2)), init(jnp.ones((2, 2))))).round(3).tolist()[0]
    [0.8999999761581421, 0.8999999761581421]
    """
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        whole = jnp.atleast_1d(x)
        return whole, jnp.zeros_like(whole), [jnp.zeros(n, whole.dtype) for n in whole.shape], x.reshape(x.shape)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, rows, first = state
        g = jnp.reshape(g, x.shape)
        along = [row.reshape([-1 if d == at else 1 for d in range(x.ndim)]) for at, row in enumerate(rows)]
        squares = functools.reduce(jnp.minimum, along) + g * g
        m = (1 - momentum) * (g * _inverse_root(squares)) + momentum * m
        kept = [squares.max([d for d in range(x.ndim) if d != at]) for at in range(x.ndim)]
        return x - size(i) * m, m, kept, first

    return init, update, lambda state: state[0].reshape(state[3].shape)


# --- schedules ---


def constant(step_size: Any) -> Schedule:
    """The same step size at all steps.

    >>> constant(0.1)(7)
    0.1
    """
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """``step_size * decay_rate ** (i / decay_steps)``.

    >>> exponential_decay(1.0, 10, 0.5)(10)
    0.5
    """
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """``step_size / (1 + decay_rate * i / decay_steps)``; ``staircase`` rounds ``i / decay_steps`` down.

    >>> inverse_time_decay(1.0, 10, 1.0)(10), float(inverse_time_decay(1.0, 10, 1.0, staircase=True)(9))
    (0.5, 1.0)
    """
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0) -> Schedule:
    """From ``step_size`` to ``final_step_size`` within ``decay_steps``, as a power of the remaining share of steps.

    >>> [float(polynomial_decay(1.0, 10, 0.0)(i)) for i in (0, 5, 20)]
    [1.0, 0.5, 0.0]
    """

    def schedule(i: Any) -> Any:
        left = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """``values[n]`` after ``n`` of the ``boundaries``.

    Raises:
        ParameterError: not sequences, or not one more value than boundaries.

    >>> [float(piecewise_constant([2], [1.0, 0.5])(i)) for i in (2, 3)]
    [1.0, 0.5]
    """
    ends, sizes = jnp.array(boundaries), jnp.array(values)
    if ends.ndim != 1 or sizes.ndim != 1 or len(sizes) != len(ends) + 1:
        raise ParameterError(
            "piecewise_constant: one value more than boundaries", got=f"boundaries {ends.shape}, values {sizes.shape}"
        )
    return lambda i: sizes[jnp.sum(i > ends)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A function of the step's number: the function given, or `constant` of a number.

    Raises:
        ParameterError: neither of them.

    >>> make_schedule(0.5)(3)
    0.5
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise ParameterError("make_schedule: a number or a function", got=type(scalar_or_schedule).__name__)


# --- norms ---


def l2_norm(tree: Any) -> Any:
    """The root of the sum of squares of all arrays.

    >>> float(l2_norm({"a": 3.0, "b": jnp.array([4.0])}))
    5.0
    """
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in _leaves(tree)))


_leaves = tree.leaves
_map = tree.map


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The arrays, scaled so that their `l2_norm` is at most ``max_norm``.

    >>> [float(x) for x in clip_grads([3.0, 4.0], 1.0)]
    [0.6000000238418579, 0.800000011920929]
    """
    norm = l2_norm(grad_tree)
    return _map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


# --- states as files ---


class JoinPoint(Shown):
    """A leaf of the parameters' tree with the optimizer's state of it.

    >>> JoinPoint([1]).subtree
    [1]
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state as the parameters' tree, with a `JoinPoint` for each array.

    >>> unpack_optimizer_state(momentum(0.1, 0.9).init_fn({"w": 1.0}))["w"].subtree
    (Array(1., dtype=float32, weak_type=True), Array(0., dtype=float32, weak_type=True))
    """
    return tree.unflatten(opt_state.tree_def, [JoinPoint(s) for s in opt_state.states()])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`.

    Raises:
        TreeError: a leaf that is not a `JoinPoint`.

    >>> opt = momentum(0.1, 0.9)
    >>> float(opt.params_fn(pack_optimizer_state(unpack_optimizer_state(opt.init_fn(1.0)))))
    1.0
    """
    leaves, tree_def = tree.flatten(marked_pytree)
    if not all(isinstance(x, JoinPoint) for x in leaves):
        raise TreeError("pack_optimizer_state: a leaf that is no JoinPoint", got=tree_def)
    return _packed([x.subtree for x in leaves], tree_def)
