"""Fine-tuning by low rank: matrices that stay as they are, and two thin ones beside each, which are trained.

Hu et al., "LoRA: low-rank adaptation of large language models", 2021. With a base in few bits this is QLoRA (Dettmers
et al., "QLoRA: efficient finetuning of quantized LLMs", 2023). Knows no decoder but for the form of its tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax import random, tree
from nxjax.errors import ParameterError, Shown
from nxjax.quant.qarray import float_leaf, is_quantized
from nxjax.trace.boundary import entry
from nxjax.trace.core import Array
from nxjax.trace.tree_keys import GetAttrKey
from nxjax.trace.tree_nodes import register_node

Params = dict[str, Any]
# Matrices of a layer that can have an adapter, those that every token goes through.
TARGETS: Final = ("qkv", "out", "gate_up", "up", "down", "shared_up", "shared_down")


@final
class Adapter(Shown):
    """What is added to a matrix: ``a @ b * (alpha / rank)``. A pytree of ``a`` and ``b``.

    Attributes:
        a: [inputs, rank].
        b: [rank, outputs].
        alpha: a number that is not trained.

    >>> import nxjax.numpy as jnp
    >>> Adapter(jnp.ones((4, 2)), jnp.ones((2, 3)), 6.0).matrix().tolist()[0]
    [6.0, 6.0, 6.0]
    """

    def __init__(self, a: Any, b: Any, alpha: float) -> None:
        self.a, self.b, self.alpha = a, b, alpha

    @property
    def rank(self) -> int:
        """Columns of ``a``."""
        return self.a.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix that it is added to."""
        return self.a.shape[0], self.b.shape[1]

    def product(self, x: Array) -> Array:
        """``x @ matrix()``, without the matrix."""
        return (x @ self.a) @ self.b * (self.alpha / self.rank)

    def matrix(self) -> Array:
        """What is added."""
        return self.a @ self.b * (self.alpha / self.rank)

    def __repr__(self) -> str:
        return f"Adapter(a={self.a!r}, b={self.b!r}, alpha={self.alpha})"


@final
class AdaptedMatrix(Shown):
    """A matrix and its adapter, as `forward` and what builds on it take them in the place of a matrix.

    Attributes:
        base: an array or a `QArray`, [inputs, outputs].
        adapter: what is added.

    >>> from nxjax.generation import DecoderConfig, init, lora_apply, lora_init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = init(nx.random.key(0), config)
    >>> adapted = lora_apply(params, lora_init(nx.random.key(1), params, rank=2))
    >>> type(adapted["layers"][0]["mlp"]["down"]).__name__, adapted["layers"][0]["mlp"]["down"].shape
    ('AdaptedMatrix', (8, 8))
    """

    def __init__(self, base: Any, adapter: Adapter) -> None:
        self.base, self.adapter = base, adapter

    @property
    def shape(self) -> tuple[int, ...]:
        """[inputs, outputs]."""
        return self.base.shape

    def merged(self) -> Array:
        """The sum, as one array."""
        return float_leaf(self.base) + self.adapter.matrix()

    # Where an array is wanted, it is what it stands for.
    __nx_array__ = merged

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.merged(), dtype)

    def __repr__(self) -> str:
        return f"AdaptedMatrix({self.base!r}, {self.adapter!r})"


_PARTS: Final = (GetAttrKey("a"), GetAttrKey("b"))
register_node(Adapter, lambda x: ((x.a, x.b), x.alpha, _PARTS), lambda alpha, c: Adapter(c[0], c[1], alpha))
_BOTH: Final = (GetAttrKey("base"), GetAttrKey("adapter"))
register_node(AdaptedMatrix, lambda x: ((x.base, x.adapter), None, _BOTH), lambda _, c: AdaptedMatrix(c[0], c[1]))


@entry
def lora_init(
    key: Any, params: Params, rank: int = 8, *, alpha: float | None = None, targets: Sequence[str] | None = None
) -> Params:
    """Adapters for matrices of a decoder's layers, which add nothing at first: ``a`` is normal with deviation
    1/sqrt(inputs), ``b`` is zero.

    Args:
        key: a key from `nx.random.key`.
        params: of the decoder, as arrays or in few bits; only shapes are looked at.
        rank: columns of each ``a``.
        alpha: what is added is multiplied by ``alpha / rank``; by default ``rank``, for a factor of 1.
        targets: names of matrices: "qkv", "out", "gate_up" ("up" where a decoder has no gates), "down", "shared_up",
            "shared_down". By default all that there are. Experts have no adapters.

    Returns:
        ``{"layers": [{"attention": {"qkv": Adapter, "out": Adapter}, "mlp": {...}}, ...]}``, in float32.

    Raises:
        ParameterError: a rank that is no number from 1, an alpha that is not positive, a target that no layer has.

    >>> from nxjax.generation import DecoderConfig, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> adapters = lora_init(nx.random.key(1), init(nx.random.key(0), config), rank=2, targets=["qkv"])
    >>> adapters["layers"][0]["attention"]["qkv"].a.shape, len(nx.tree.leaves(adapters))
    ((8, 2), 4)
    """
    if type(rank) is not int or rank < 1:
        raise ParameterError("lora_init: rank", got=rank, expected="a whole number, 1 or more")
    alpha = float(rank) if alpha is None else float(alpha)
    if not 0 < alpha < math.inf:
        raise ParameterError("lora_init: alpha", got=alpha, expected="a positive number")
    layers = params["layers"]
    there = [n for n in TARGETS if any(n in leaves for layer in layers for leaves in layer.values())]
    named = there if targets is None else [targets] if isinstance(targets, str) else list(targets)
    if unknown := [n for n in named if n not in there]:
        raise ParameterError("lora_init: a target that no layer has", got=unknown[0], expected=", ".join(there))
    keys = iter(random.split(key, sum(n in leaves for layer in layers for leaves in layer.values() for n in named)))

    def made(w: Any) -> Adapter:
        inputs, outputs = w.shape
        a = random.normal(next(keys), (inputs, rank)) / math.sqrt(inputs)
        return Adapter(a, jnp.zeros((rank, outputs)), alpha)

    rows = [
        {part: {n: made(leaves[n]) for n in named if n in leaves} for part, leaves in layer.items()} for layer in layers
    ]
    return {"layers": rows}


@entry
def lora_apply(params: Params, adapters: Params) -> Params:
    """Parameters with adapters beside their matrices, for `forward`, `extend`, `loss`, `Generator`; nothing is copied.

    Differentiate with respect to the adapters, and give ``params`` to the compiled function as an argument: no
    gradient of the base is made, and one in few bits stays so.

    Args:
        params: of the decoder, as arrays or in few bits.
        adapters: of `lora_init`.

    Raises:
        ParameterError: adapters of another decoder.

    >>> from nxjax.generation import DecoderConfig, init, loss
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params, tokens = init(nx.random.key(0), config), nx.array([[1, 2, 3]])
    >>> adapters = lora_init(nx.random.key(1), params, rank=2)
    >>> bool(loss(lora_apply(params, adapters), tokens, config) == loss(params, tokens, config))
    True
    >>> slope = nx.grad(lambda given: loss(lora_apply(params, given), tokens, config))(adapters)
    >>> nx.tree.structure(slope) == nx.tree.structure(adapters)
    True
    """
    return _joined("lora_apply", params, adapters, AdaptedMatrix)


@entry
def lora_merge(params: Params, adapters: Params, dtype: Any = "float32") -> Params:
    """Ordinary parameters, with the adapters added: float arrays, also where the base is in few bits.

    Args:
        params: of the decoder.
        adapters: of `lora_init`, trained.
        dtype: of the arrays, a float. Sums are of float32 at least.

    Raises:
        ParameterError: adapters of another decoder, a dtype that is no float.

    >>> from nxjax.generation import DecoderConfig, init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=2, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> params = init(nx.random.key(0), config)
    >>> merged = lora_merge(params, lora_init(nx.random.key(1), params), "bfloat16")
    >>> merged["layers"][0]["mlp"]["down"].dtype.name
    'bfloat16'
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ParameterError("lora_merge: dtype of parameters", got=dtype, expected="a float, such as float32")
    whole = _joined("lora_merge", params, adapters, lambda base, adapter: AdaptedMatrix(base, adapter).merged())
    return tree.map(lambda x: jnp.asarray(float_leaf(x)).astype(dtype), whole, is_leaf=is_quantized)


def _joined(op: str, params: Params, adapters: Params, join: Callable[[Any, Adapter], Any]) -> Params:
    """The parameters, with what ``join`` makes of each matrix that has an adapter, and of the adapter."""
    layers, rows = params["layers"], adapters["layers"]
    if len(layers) != len(rows):
        raise ParameterError(f"{op}: adapters of another decoder", got=f"{len(rows)} layers", expected=len(layers))
    made: list[Params] = []
    for i, (layer, row) in enumerate(zip(layers, rows, strict=True)):
        found = {part: dict(leaves) for part, leaves in layer.items()}
        for part, leaves in row.items():
            for name, adapter in leaves.items():
                base = found.get(part, {}).get(name)
                if base is None or tuple(base.shape) != tuple(adapter.shape):
                    raise ParameterError(
                        f"{op}: adapters of another decoder: layers.{i}.{part}.{name}",
                        got=tuple(adapter.shape),
                        expected="no such matrix" if base is None else tuple(base.shape),
                    )
                found[part][name] = join(base, adapter)
        made.append(found)
    return {**params, "layers": made}
