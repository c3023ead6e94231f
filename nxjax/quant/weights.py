"""Making weights easier to quantize without changing the float function: equalization, bias correction, SmoothQuant.

Each returns a new parameter tree for the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.composite_norm import OverAxes
from nxjax.quant import bias, weight_rounding
from nxjax.quant.calibration import given
from nxjax.quant.layers import Layers, WeightLayer
from nxjax.quant.plan import QuantPlan
from nxjax.quant.pointwise import AveragePool, GridKeeping
from nxjax.quant.products import QuantConv
from nxjax.trace.array import wrap
from nxjax.trace.boundary import entry
from nxjax.trace.program import Equation, Var

NDArray = np.ndarray[Any, Any]
# Channels pass these as they are, and a positive factor passes them too.
_POOLS: Final = frozenset(("reduce_window_max", "reduce_max"))


@entry
def equalize(
    fun: Callable[..., Any], *args: Any, iterations: int = 20, params: Sequence[int] | int | None = None
) -> Any:
    """Cross-layer equalization: channels of consecutive layers get equal weight ranges; the function stays the same.

    Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction" (arXiv:1906.04721),
    section 4.1: with ranges r1 of a channel's weights in the first layer and r2 in the second, its output is divided by
    ``s = sqrt(r1 r2) / r2`` and the second layer's weights are multiplied by s. Needs an activation with
    f(s x) = s f(x), as relu; layers on both sides of other activations (relu6, tanh) are unchanged.

    Args:
        fun: float function.
        **args: example arguments, including the parameter tree.
        iterations: sweeps over all pairs.
        params: as for `quantize`.

    Returns:
        The parameter tree.

    Raises:
        ParameterError: no two consecutive layers.

    >>> f = lambda p, x: nx.nn.relu(x @ p["a"]) @ p["b"]
    >>> p = {"a": jnp.array([[1.0, 16.0]]), "b": jnp.array([[1.0], [1.0]])}
    >>> equal = equalize(f, p, jnp.ones((1, 1)))
    >>> print(equal["a"], equal["b"].T, f(equal, jnp.ones((1, 1))))
    [[1. 4.]] [[1. 4.]] [[17.]]
    """
    layers = Layers(fun, "int8", params, tuple(args))
    pairs = _pairs(layers)
    if not pairs:
        raise ParameterError(
            "equalize: no two layers follow each other with a relu or nothing between",
            fix="use relu instead of relu6 or smooth activations, or leave equalization out",
        )
    for _ in range(iterations):
        change = 0.0
        for first, second in pairs:
            a, b = layers.weight(first), layers.weight(second)
            out, into = _out_axis(first), _in_axis(second)
            r1, r2 = _range(a, out), _range(b, into)
            live = np.minimum(r1, r2) >= np.finfo(r1.dtype).tiny  # else the channel is nothing, and stays
            s = np.divide(np.sqrt(r1), np.sqrt(r2), out=np.ones_like(r1), where=live)
            layers.set_weight(first, a / _along(s, a.ndim, out))
            layers.set_weight(second, b * _along(s, b.ndim, into))
            if first.bias is not None:
                layers.leaves[first.bias] = wrap(np.asarray(layers.leaves[first.bias]) / s)
            change = max(change, float(np.abs(np.log(s)).max(initial=0.0)))
        if change < 1e-3:
            break
    return layers.result()


@entry
def correct_bias(
    fun: Callable[..., Any], data: Iterable[Any], policy: Any = "int8", *, params: Sequence[int] | int | None = None
) -> Any:
    """Bias correction: subtracts from a layer's bias what rounding its weights adds to its mean result.

    Nagel et al. 2019 (as `equalize`), section 4.2: ``b - (Q - W) E[x]``, with the mean of every input of the sum taken
    over the data. Weights of 4 bits are rounded as `quantize` rounds them with these data. Calibration corrects biases
    by itself, with what rounding activations adds too: this is for policies without calibration.

    Args:
        fun: float function.
        data: an iterable of argument tuples; the first one's parameters are corrected.
        policy: as for `quantize`; for the storage of weights.
        params: as for `quantize`.

    Returns:
        The parameter tree.

    Raises:
        ParameterError: no data.

    >>> f = lambda p, x: x @ p["w"] + p["b"]
    >>> p = {"w": jnp.array([[1.0, -0.313], [0.52, 2.0]]), "b": jnp.zeros(2)}
    >>> new = correct_bias(f, [(p, jnp.array([[1.0, 2.0]]))])
    >>> bool((new["w"] == p["w"]).all()), bool(abs(new["b"]).max() < 0.05)
    (True, True)
    """
    batches = list(given(fun, data, "correct_bias"))
    layers = Layers(fun, policy, params, batches[0])
    known = weight_rounding.found(fun, layers.policy, params, batches)
    shifts = bias.of_weights(fun, layers.policy, params, batches, known)
    for layer in layers.layers:
        if layer.bias is not None and layer.name in shifts:
            old = np.asarray(layers.leaves[layer.bias])
            layers.leaves[layer.bias] = wrap((old + shifts[layer.name].reshape(old.shape)).astype(old.dtype))
    return layers.result()


@entry
def smooth(
    fun: Callable[..., Any], data: Iterable[Any], alpha: float = 0.5, *, params: Sequence[int] | int | None = None
) -> Any:
    """SmoothQuant: scales outlier channels of activations down in the preceding norm, and up in the following weights.

    Xiao et al. 2022, "SmoothQuant: accurate and efficient post-training quantization for large language models"
    (arXiv:2211.10438), equation 4: ``s_j = max |X_j|^alpha / max |W_j|^(1 - alpha)``.

    Args:
        fun: float function, in which layer_norm or rms_norm with parameters comes before matrix products.
        data: an iterable of argument tuples; the first one's parameters are changed.
        alpha: how much of the difficulty moves to the weights, 0 to 1.
        params: as for `quantize`.

    Returns:
        The parameter tree.

    Raises:
        ParameterError: ``alpha`` outside 0 to 1, no data, or no norm before products.

    >>> f = lambda p, x: nx.nn.rms_norm(x, p["scale"]) @ p["w"]
    >>> p, x = {"scale": jnp.array([1.0, 16.0]), "w": jnp.ones((2, 2))}, jnp.array([[1.0, 1.0]])
    >>> new = smooth(f, [(p, x)])
    >>> print(new["scale"].round(2), bool(jnp.allclose(f(new, x), f(p, x))))
    [1. 4.] True
    """
    if not 0 <= alpha <= 1:
        raise ParameterError("smooth: alpha", got=alpha, expected="0 to 1")
    batches = list(given(fun, data, "smooth"))
    layers = Layers(fun, "int8-weights", params, batches[0])
    norms = _normed(layers)
    if not norms:
        raise ParameterError(
            "smooth: no norm with parameters feeds matrix products alone",
            fix="use nx.nn.layer_norm or nx.nn.rms_norm with scale as an argument's leaf, read by products only",
        )
    peaks: dict[str, NDArray] = {}

    def take(layer: WeightLayer, x: NDArray) -> None:
        top = np.abs(x).reshape(-1, x.shape[-1]).max(0, initial=0)
        before = peaks.get(layer.name)
        peaks[layer.name] = top if before is None else np.maximum(before, top)

    layers.observe(batches, take, "smooth")
    for leaves, readers in norms:
        weight = np.max([np.abs(r.matrix(layers.weight(r))).max(0) for r in readers], 0)
        top = np.maximum(peaks[readers[0].name], 1e-5)
        s = np.maximum(top**alpha / np.maximum(weight, 1e-5) ** (1 - alpha), 1e-5).astype(np.float32)
        for leaf in leaves:
            old = np.asarray(layers.leaves[leaf])
            layers.leaves[leaf] = wrap((old / s.reshape(old.shape)).astype(old.dtype))
        for r in readers:
            w = layers.weight(r)
            layers.set_weight(r, r.restored(r.matrix(w) * s, w.shape))
    return layers.result()


# --- how layers follow each other ---


def _pairs(layers: Layers) -> list[tuple[WeightLayer, WeightLayer]]:
    """Layers whose whole result is one other layer's input, channel by channel."""
    plan: QuantPlan = layers.plan
    by_output: dict[Var, WeightLayer] = {layer.group.output: layer for layer in layers.layers}
    for g in plan.groups():
        # A pool's result stands for its operand's.
        passes = isinstance(g, AveragePool) or (isinstance(g, GridKeeping) and g.equations[0].op.name in _POOLS)
        a = g.activations[0]
        if passes and isinstance(a, Var) and a in by_output and _readers(layers, a) == [g.equations[0]]:
            by_output[g.output] = by_output[a]
    found: list[tuple[WeightLayer, WeightLayer]] = []
    for second in layers.layers:
        x = second.group.activations[0]
        first = by_output.get(x) if isinstance(x, Var) else None
        if first is None or _readers(layers, x) != [second.group.product]:  # pyright: ignore[reportArgumentType]
            continue
        clamp = first.group.clamp
        homogeneous = clamp.high is None and clamp.low in (None, 0.0)
        free = not first.group.steps or (len(first.group.steps) == 1 and first.bias is not None)
        if homogeneous and free and _matching(first, second):
            found.append((first, second))
    return found


def _readers(layers: Layers, v: Var) -> list[Equation]:
    program = layers.plan.program
    readers = [e for e in program.equations if v in e.inputs]
    return readers if v not in program.outputs else [*readers, *readers[:1], *readers[:1]]


def _matching(first: WeightLayer, second: WeightLayer) -> bool:
    """Whether the first's output channels are the second's input features, one to one."""
    out = first.group.product.outputs[0].type
    channels = [out.shape[d] for d in first.group.channels]
    if len(channels) != 1:
        return False
    if isinstance(second.group, QuantConv):
        lhs = second.group.product.params["dimension_numbers"].lhs_spec
        return first.group.channels == (lhs[1],) and (not second.grouped or _depthwise(second))
    axes = second.group.input_axes()  # pyright: ignore[reportAttributeAccessIssue]
    return axes == first.group.channels


def _depthwise(layer: WeightLayer) -> bool:
    e = layer.group.product
    features = e.inputs[0].type.shape[e.params["dimension_numbers"].lhs_spec[1]]
    o = e.inputs[1].type.shape[e.params["dimension_numbers"].rhs_spec[0]]
    return e.params["feature_group_count"] == features == o


def _out_axis(layer: WeightLayer) -> int:
    if isinstance(layer.group, QuantConv):
        return layer.group.product.params["dimension_numbers"].rhs_spec[0]
    return next(i for i in range(len(layer.order)) if i not in layer.summed())


def _in_axis(layer: WeightLayer) -> int:
    if isinstance(layer.group, QuantConv):
        numbers = layer.group.product.params["dimension_numbers"]
        return numbers.rhs_spec[0] if layer.grouped else numbers.rhs_spec[1]
    return layer.summed()[0]


def _range(w: NDArray, axis: int) -> NDArray:
    return np.abs(w).max(tuple(i for i in range(w.ndim) if i != axis))


def _along(s: NDArray, ndim: int, axis: int) -> NDArray:
    return s.reshape([-1 if i == axis else 1 for i in range(ndim)])


def _normed(layers: Layers) -> list[tuple[list[int], list[WeightLayer]]]:
    """Norms whose parameters are leaves, read by products alone: (leaves, the products)."""
    found: list[tuple[list[int], list[WeightLayer]]] = []
    program = layers.plan.program
    for e in program.equations:
        if not isinstance(e.op, OverAxes) or len(e.inputs) < 2:
            continue
        y = e.outputs[0]
        leaves = [layers.places.get(a) if isinstance(a, Var) else None for a in e.inputs[1:]]
        readers = [layer for layer in layers.layers if layer.group.activations[0] is y]
        users = [u for u in program.equations if y in u.inputs]
        last = all(layer.group.input_axes() == (y.type.ndim - 1,) for layer in readers)  # pyright: ignore[reportAttributeAccessIssue]
        if readers and last and len(users) == len(readers) and y not in program.outputs and None not in leaves:
            found.append(([leaf for leaf in leaves if leaf is not None], readers))
    return found
