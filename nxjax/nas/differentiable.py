"""Differentiable search: one network that holds all options, whose choice is learnt by gradients with its weights.

A mixture of layers gives ``sum_i softmax(a)_i f_i(x)`` (DARTS, Liu et al. 2019, equation 2), and costs
``sum_i softmax(a)_i c_i`` (FBNet, Wu et al. 2019, equation 7), with ``c_i`` asked of the target for each option by
itself. Weights and choices take turns: a step on training data, a step on validation data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax import nn, random
from nxjax import numpy as jnp
from nxjax.display.progress import bars
from nxjax.errors import ParameterError, Shown
from nxjax.example_libraries.optimizers import Optimizer, adam
from nxjax.example_libraries.stax import Layer
from nxjax.nas.space import Candidate, Genes, Space
from nxjax.trace.boundary import entry
from nxjax.transforms.grad import value_and_grad
from nxjax.transforms.jit import jit

# The entry of a mixture's parameters that has its choice; the options' own parameters are under "options".
CHOICE: Final = "choice"


@final
@dataclass(frozen=True)
class Site:
    """A decision about layers inside a network.

    Attributes:
        name: of the decision.
        options: the layers.
        shape: of the input there, the batch first; known once the network has been initialized.

    >>> from nxjax.example_libraries.stax import Identity, Relu
    >>> net = Supernet(lambda choose: choose.layer("act", (Identity, Relu)))
    >>> site = net.sites["act"]
    >>> site.name, len(site.options), site.shape
    ('act', 2, ())
    """

    name: str
    options: tuple[Layer, ...]
    shape: tuple[int, ...] = ()


@final
class Supernet(Shown):
    """All architectures of a space in one network.

    Decisions by ``choose.layer`` become mixtures. Others follow ``genes``, else take the first option.

    Args:
        space: its function returns a layer ``(init, apply)``, as in `nxjax.example_libraries.stax`.
        genes: answers to decisions that are not about layers.

    Attributes:
        init: ``init(key, input_shape)`` returns the result's shape and the parameters.
        apply: ``apply(params, x)`` returns the mixture's result.
        sites: the mixed decisions, by name.

    >>> from nxjax.example_libraries.stax import Identity, Relu
    >>> net = Supernet(lambda choose: choose.layer("act", (Identity, Relu)))
    >>> _, params = net.init(random.key(0), (-1, 2))
    >>> net.apply(params, jnp.array([[-2.0, 2.0]])).tolist(), net.chosen(params)
    ([[-1.0, 2.0]], {'act': 0})
    """

    @entry
    def __init__(self, space: Space[Layer] | Callable[..., Layer], genes: Mapping[str, int] | None = None) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        self.sites: dict[str, Site] = {}
        given = dict(genes or {})
        self.genes = self.space.answered(lambda name, _: given.get(name, 0), self._mixture)
        if not self.sites:
            raise ParameterError(
                "nas: no decision about layers", got=str(self.space), fix="use choose.layer(name, layers)"
            )
        self.init, self.apply = self.genes.model

    def _mixture(self, name: str, options: Sequence[Layer], _: int) -> Layer:
        held = tuple(options)
        self.sites[name] = Site(name, held)

        def init(rng: Any, input_shape: Any) -> Any:
            self.sites[name] = Site(name, held, tuple(input_shape))
            made = [layer[0](key, input_shape) for layer, key in zip(held, random.split(rng, len(held)), strict=True)]
            shapes = {tuple(shape) for shape, _ in made}
            if len(shapes) > 1:
                raise ParameterError(
                    f"nas: the options of {name!r} have different shapes, so they cannot be mixed",
                    got=", ".join(str(tuple(shape)) for shape, _ in made),
                    expected="one shape",
                    fix="use choose(name, ...) and search by evolution, or pad the options",
                )
            return made[0][0], {CHOICE: {name: jnp.zeros(len(held))}, "options": [params for _, params in made]}

        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            share = nn.softmax(params[CHOICE][name])
            parts = [layer[1](p, inputs, **kwargs) for layer, p in zip(held, params["options"], strict=True)]
            return sum(s * y for s, y in zip(share, parts, strict=True))

        return init, apply

    def choices(self, params: Any) -> dict[str, Any]:
        """The logits of every site by name, from the network's parameters."""
        found: dict[str, Any] = {}

        def walk(node: Any) -> None:
            if isinstance(node, dict) and CHOICE in node:
                found.update(node[CHOICE])
                walk(node["options"])
            elif isinstance(node, dict):
                for value in node.values():
                    walk(value)
            elif isinstance(node, (list, tuple)):
                for value in node:
                    walk(value)

        walk(params)
        return found

    def chosen(self, params: Any) -> Genes:
        """The most likely option of every site, and the other decisions."""
        logits = self.choices(params)
        return {**self.genes.genes, **{name: int(np.argmax(np.asarray(a))) for name, a in logits.items()}}

    def candidate(self, params: Any) -> Candidate[Layer]:
        """The most likely architecture by the parameters."""
        return self.space.build(self.chosen(params))

    def table(self, cost: Callable[[Layer, tuple[int, ...]], float]) -> dict[str, np.ndarray[Any, Any]]:
        """``cost(layer, input_shape)`` of every option at every site; initialize the network first."""
        unknown = [s.name for s in self.sites.values() if not s.shape]
        if unknown:
            raise ParameterError("nas: shapes are known after init", got=", ".join(unknown), fix="call init first")
        return {
            s.name: np.array([cost(layer, s.shape) for layer in s.options], np.float32) for s in self.sites.values()
        }

    def expected(self, params: Any, table: Mapping[str, Any]) -> Any:
        """The expected cost over all sites, differentiable in their logits."""
        logits = self.choices(params)
        return sum(jnp.sum(nn.softmax(logits[name]) * jnp.asarray(costs)) for name, costs in table.items())


@final
@dataclass(frozen=True)
class Found:
    """The result of a differentiable search.

    Attributes:
        candidate: the most likely architecture; train it afterwards.
        params: of the supernet.
        losses: of the validation steps.
        expected: the expected cost after each epoch; empty without a table.
        shares: the probability of every option at every site.

    >>> from nxjax.example_libraries.stax import Identity, Relu
    >>> net = Supernet(lambda choose: choose.layer("act", (Identity, Relu)))
    >>> params = net.init(random.key(0), (-1, 2))[1]
    >>> Found(net.candidate(params), params, [], [], {"act": [0.5, 0.5]}).candidate.genes
    {'act': 0}
    """

    candidate: Candidate[Layer]
    params: Any
    losses: list[float]
    expected: list[float]
    shares: dict[str, list[float]]


def differentiable(
    supernet: Supernet,
    loss: Callable[[Callable[[Any, Any], Any], Any, Any], Any],
    params: Any,
    batches: Callable[[int], Iterable[tuple[Any, Any]]],
    *,
    epochs: int,
    table: Mapping[str, Any] | None = None,
    limit: float | None = None,
    price: float = 1.0,
    warmup: int = 1,
    weights: Optimizer | None = None,
    choices: Optimizer | None = None,
    progress: bool | None = None,
) -> Found:
    """Train weights and choices in turns.

    The loss of the choices is ``loss + price * max(expected / limit - 1, 0)``; without a limit, with a table,
    ``loss + price * expected / cheapest``, where the cheapest is the sum of the cheapest options.

    Args:
        supernet: see `Supernet`.
        loss: ``loss(apply, params, batch)``.
        params: the start, from ``supernet.init``.
        batches: ``batches(epoch)`` returns pairs of a training and a validation batch.
        epochs: the number of epochs.
        table: costs of the options, from ``supernet.table``.
        limit: the largest cost.
        price: the weight of costs above it.
        warmup: epochs in which only weights are trained, so that no option wins because it trains quickly.
        weights, choices: optimizers; by default Adam with 2e-3 and 3e-2.
        progress: show a bar.

    >>> from nxjax.example_libraries.stax import Identity, Relu
    >>> net = Supernet(lambda choose: choose.layer("act", (Relu, Identity)))
    >>> params = net.init(random.key(0), (-1, 2))[1]
    >>> batch = -jnp.ones((4, 2))
    >>> loss = lambda apply, params, x: jnp.mean((apply(params, x) - x) ** 2)
    >>> found = differentiable(net, loss, params, lambda epoch: [(batch, batch)] * 4, epochs=3, progress=False)
    >>> found.candidate.genes
    {'act': 1}
    """
    names = sorted(supernet.choices(params))
    first, second = weights or adam(2e-3), choices or adam(3e-2)
    cheapest = sum(float(np.min(c)) for c in table.values()) if table else 1.0

    def whole(logits: dict[str, Any], rest: Any) -> Any:
        return _with_choices(rest, logits)

    def objective(logits: dict[str, Any], rest: Any, batch: Any) -> Any:
        made = whole(logits, rest)
        y = loss(supernet.apply, made, batch)
        if table:
            over = supernet.expected(made, table) / (cheapest if limit is None else limit)
            y = y + price * (over if limit is None else jnp.maximum(over - 1.0, 0.0))
        return y

    @jit
    def weight_step(i: Any, state: Any, logits: Any, batch: Any) -> Any:
        rest = first.params_fn(state)
        value, slope = value_and_grad(lambda r: loss(supernet.apply, whole(logits, r), batch))(rest)
        return value, first.update_fn(i, slope, state)

    @jit
    def choice_step(i: Any, state: Any, rest: Any, batch: Any) -> Any:
        value, slope = value_and_grad(objective)(second.params_fn(state), rest, batch)
        return value, second.update_fn(i, slope, state)

    logits = {name: supernet.choices(params)[name] for name in names}
    state, taste = first.init_fn(params), second.init_fn(logits)
    losses: list[float] = []
    costs: list[float] = []
    make_bar = bars(progress, "nas.differentiable", epochs > 1)
    bar = None if make_bar is None else make_bar(total=epochs, desc="choosing", unit="epoch")
    step = 0
    try:
        for epoch in range(epochs):
            for train, validation in batches(epoch):
                _, state = weight_step(step, state, second.params_fn(taste), train)
                if epoch >= warmup:
                    value, taste = choice_step(step, taste, first.params_fn(state), validation)
                    losses.append(float(value))
                step += 1
            if table:
                costs.append(float(supernet.expected(whole(second.params_fn(taste), params), table)))
            if bar is not None:
                bar.update()
                bar.set_postfix(loss=f"{losses[-1] if losses else float('nan'):.3f}")
    finally:
        if bar is not None:
            bar.close()
    made = whole(second.params_fn(taste), first.params_fn(state))
    shares = {name: np.asarray(nn.softmax(a)).tolist() for name, a in supernet.choices(made).items()}
    return Found(supernet.candidate(made), made, losses, costs, shares)


def _with_choices(params: Any, logits: Mapping[str, Any]) -> Any:
    """Parameters with other logits."""
    if isinstance(params, dict) and CHOICE in params:
        named = {name: logits[name] for name in params[CHOICE]}
        return {**params, CHOICE: named, "options": _with_choices(params["options"], logits)}
    if isinstance(params, dict):
        return {k: _with_choices(v, logits) for k, v in params.items()}
    if isinstance(params, (list, tuple)):
        return type(params)(_with_choices(v, logits) for v in params)
    return params
