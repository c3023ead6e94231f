"""The shape of a decoder-only transformer: sizes and declared options, checked once. Knows no array and no file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, final

from nxjax.errors import ParameterError

ACTIVATIONS: Final = ("silu", "gelu", "gelu_tanh", "relu")
SCALINGS: Final = ("linear", "dynamic", "llama3", "yarn", "longrope")
BIASES: Final = ("qkv", "out", "up", "down")


@final
@dataclass(frozen=True)
class RopeScaling:
    """How the rates of rotary positions differ from ``rope_base``'s, for sequences longer than those of training.

    Attributes:
        kind: "linear" (positions divided by ``factor``), "dynamic" (a base that grows with the sequence, beyond
            ``original_context``), "llama3" (slow pairs only), "yarn" (Peng et al., "YaRN", 2023), "longrope" (a divisor
            for each pair; Ding et al., "LongRoPE", 2024).
        factor: the extension.
        original_context: tokens of a sequence in training.
        attention_factor: of cosines and sines.
        low_frequency_factor, high_frequency_factor: of "llama3": pairs that turn less often than the first within the
            original context are divided, those that turn more often than the second are kept.
        beta_fast, beta_slow: of "yarn", turns within the original context; ``truncate`` rounds the pairs they mean.
        short, long: of "longrope", divisors of each pair up to the original context, and beyond it.
    """

    kind: str
    factor: float = 1.0
    original_context: int = 0
    attention_factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in SCALINGS:
            raise ParameterError("RopeScaling: kind", got=self.kind, expected=", ".join(SCALINGS))
        numbers = ("factor", "attention_factor", "low_frequency_factor", "high_frequency_factor", "beta_fast")
        for name, x in [(n, getattr(self, n)) for n in numbers] + [("divisors", x) for x in self.short + self.long]:
            if not _is_positive(x):
                raise ParameterError(f"RopeScaling: {name}", got=x, expected="a positive number")
        if self.kind != "linear" and (type(self.original_context) is not int or self.original_context < 1):
            raise ParameterError(
                "RopeScaling: original_context", got=self.original_context, expected="a whole number, 1 or more"
            )


def _is_positive(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) and x > 0


@final
@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder with RMS norms, rotary positions, grouped-query attention and SwiGLU layers, and what its
    family does differently; the options' defaults are Llama's.

    Attributes:
        vocabulary: the number of tokens.
        width: numbers per token between layers.
        layers: the number of layers.
        heads: query heads.
        kv_heads: heads of keys and values, a divisor of ``heads`` (Ainslie et al., "GQA", 2023).
        head_size: numbers per head; even, where pairs are rotated.
        hidden: numbers inside a SwiGLU layer (Shazeer, "GLU variants improve transformer", 2020).
        context: the largest number of tokens of a sequence.
        rope_base: of the rotation's angles, ``position * rope_base ** (-2 i / head_size)`` for pair i (Su et al.,
            "RoFormer", 2021).
        epsilon: added to mean squares in norms.
        tied: the embedding table is also the output matrix.
        rope_scaling: of the rotation's rates.
        rotary: numbers of a head that are rotated, the first ones; None: all.
        learned_positions: a table of positions is added to the embeddings, and nothing is rotated.
        windows: for each layer the tokens that a token attends to, itself included; 0: all earlier ones. Empty: all 0.
        local_rope_base: ``rope_base``, without scaling, of layers with a window; None: the same as elsewhere.
        norm: "rms" or "layer" (with a bias).
        post_norms: what attention and MLP give is normalized too, before it is added.
        qk_norm: queries and keys are normalized, head by head.
        biases: products with a bias, of "qkv", "out", "up", "down"; "up" is that into the MLP.
        activation: of the MLP: "silu", "gelu", "gelu_tanh", "relu".
        gated: the MLP multiplies two products, of which one went through the activation.
        embedding_scale: of the embeddings.
        query_scale: of attention's logits; None: 1 / sqrt(head_size).
        attention_cap, logit_cap: c of ``c tanh(x / c)`` of attention's logits, and of the output's.
        experts: MLPs in a layer of experts; 0: there are none.
        expert_layers: layers whose MLP is one of experts; empty: all.
        experts_per_token: how many experts a token goes through, those with the largest probabilities.
        expert_hidden: numbers inside an expert.
        shared_hidden: numbers inside the expert that all tokens go through; 0: there is none.
        normalized_experts: the probabilities of a token's experts are divided by their sum.

    >>> config = DecoderConfig(vocabulary=512, width=64, layers=2, heads=4, kv_heads=2, head_size=16, hidden=176)
    >>> config.parameters
    125248
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    context: int = 256
    rope_base: float = 10000.0
    epsilon: float = 1e-5
    tied: bool = True
    rope_scaling: RopeScaling | None = None
    rotary: int | None = None
    learned_positions: bool = False
    windows: tuple[int, ...] = ()
    local_rope_base: float | None = None
    norm: str = "rms"
    post_norms: bool = False
    qk_norm: bool = False
    biases: tuple[str, ...] = ()
    activation: str = "silu"
    gated: bool = True
    embedding_scale: float = 1.0
    query_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    experts: int = 0
    expert_layers: tuple[int, ...] = ()
    experts_per_token: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    normalized_experts: bool = True

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_size", "hidden", "context"):
            n = getattr(self, name)
            if type(n) is not int or n < 1:
                raise ParameterError(f"DecoderConfig: {name}", got=n, expected="a whole number, 1 or more")
        if self.heads % self.kv_heads:
            raise ParameterError(
                "DecoderConfig: heads share keys and values in equal groups",
                got=f"{self.heads} heads, {self.kv_heads} kv_heads",
                expected="heads a multiple of kv_heads",
            )
        rotary = self.head_size if self.rotary is None else self.rotary
        if type(rotary) is not int or (rotary % 2 and not self.learned_positions) or not 0 < rotary <= self.head_size:
            name = "head_size" if self.rotary is None else "rotary"
            raise ParameterError(f"DecoderConfig: {name}", got=rotary, expected="an even number, head_size at most")
        positive = ("rope_base", "epsilon", "embedding_scale")
        optional = ("local_rope_base", "query_scale", "attention_cap", "logit_cap")
        for name in (*positive, *(n for n in optional if getattr(self, n) is not None)):
            if not _is_positive(getattr(self, name)):
                raise ParameterError(f"DecoderConfig: {name}", got=getattr(self, name), expected="a positive number")
        self._check_options(rotary // 2)

    def _check_options(self, pairs: int) -> None:
        among = {"norm": ("rms", "layer"), "activation": ACTIVATIONS}
        for name, known in among.items():
            if getattr(self, name) not in known:
                raise ParameterError(f"DecoderConfig: {name}", got=getattr(self, name), expected=", ".join(known))
        if unknown := [b for b in self.biases if b not in BIASES]:
            raise ParameterError("DecoderConfig: biases", got=unknown[0], expected=", ".join(BIASES))
        if self.windows and (len(self.windows) != self.layers or not all(_is_count(w) for w in self.windows)):
            raise ParameterError(
                "DecoderConfig: windows", got=self.windows, expected=f"{self.layers} whole numbers, 0 or more"
            )
        scaling = self.rope_scaling
        if scaling is not None and scaling.kind == "longrope" and {len(scaling.short), len(scaling.long)} != {pairs}:
            got = f"{len(scaling.short)} short, {len(scaling.long)} long"
            raise ParameterError("DecoderConfig: divisors of longrope", got=got, expected=f"{pairs}, one for each pair")
        counts = ("experts", "experts_per_token", "expert_hidden", "shared_hidden")
        for name in counts:
            if not _is_count(getattr(self, name)):
                raise ParameterError(f"DecoderConfig: {name}", got=getattr(self, name), expected="a whole number")
        if self.experts and not (0 < self.experts_per_token <= self.experts and self.expert_hidden):
            raise ParameterError(
                "DecoderConfig: experts",
                got=f"{self.experts_per_token} of {self.experts} per token, {self.expert_hidden} numbers inside",
                expected="1 to all per token, and 1 number or more",
            )
        if any(not _is_count(i) or i >= self.layers for i in self.expert_layers):
            raise ParameterError("DecoderConfig: expert_layers", got=self.expert_layers, expected="numbers of layers")

    @property
    def qkv(self) -> int:
        """Columns of the product for queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return _size(self.shapes)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options in which this decoder differs from Llama's."""
        first = [f.name for f in fields(self)].index("rope_scaling")
        return tuple(f.name for f in fields(self)[first:] if getattr(self, f.name) != f.default)

    def window(self, layer: int) -> int:
        """Tokens that a token of a layer attends to, 0 for all."""
        return self.windows[layer] if self.windows else 0

    def has_experts(self, layer: int) -> bool:
        """Whether a layer's MLP is one of experts."""
        return self.experts > 0 and (not self.expert_layers or layer in self.expert_layers)

    @property
    def shapes(self) -> dict[str, Any]:
        """The tree of parameters, with a shape for each."""
        width = self.width
        ends = {} if self.learned_positions is False else {"positions": (self.context, width)}
        head = {} if self.tied else {"head": (width, self.vocabulary)}
        layers = [{"attention": self._attention(), "mlp": self._mlp(i)} for i in range(self.layers)]
        return {"embedding": (self.vocabulary, width), "layers": layers, **self._norms(False), **head, **ends}

    def _norms(self, post: bool) -> dict[str, Any]:
        names = ["norm", *["post_norm"] * post]
        bias = ["_bias"] * (self.norm == "layer")
        return {n + b: (self.width,) for n in names for b in ("", *bias)}

    def _biased(self, name: str, leaf: str, columns: int) -> dict[str, Any]:
        return {leaf + "_bias": (columns,)} if name in self.biases else {}

    def _attention(self) -> dict[str, Any]:
        inner = self.heads * self.head_size
        return {
            **self._norms(self.post_norms),
            "qkv": (self.width, self.qkv),
            **self._biased("qkv", "qkv", self.qkv),
            **({"q_norm": (self.head_size,), "k_norm": (self.head_size,)} if self.qk_norm else {}),
            "out": (inner, self.width),
            **self._biased("out", "out", self.width),
        }

    def _mlp(self, layer: int) -> dict[str, Any]:
        norms, width, times = self._norms(self.post_norms), self.width, 1 + self.gated
        if self.has_experts(layer):
            n, hidden, shared = self.experts, self.expert_hidden, self.shared_hidden
            made = {"router": (width, n), "experts_up": (n, width, times * hidden), "experts_down": (n, hidden, width)}
            if shared:
                made |= {
                    "shared_gate": (width, 1),
                    "shared_up": (width, times * shared),
                    "shared_down": (shared, width),
                }
            return {**norms, **made}
        up = "gate_up" if self.gated else "up"
        return {
            **norms,
            up: (width, times * self.hidden),
            **self._biased("up", up, times * self.hidden),
            "down": (self.hidden, width),
            **self._biased("down", "down", width),
        }

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> DecoderConfig:
        """The inverse of `to_dict`.

        Raises:
            ParameterError: names that are missing or unknown.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(given) - known):
            raise ParameterError("DecoderConfig: unknown names", got=", ".join(unknown), expected=", ".join(known))
        try:
            rows: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(given).items()}
            if isinstance(scaling := rows.get("rope_scaling"), Mapping):
                lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in scaling.items()}
                rows["rope_scaling"] = RopeScaling(**lists)
            return cls(**rows)
        except TypeError as error:
            raise ParameterError("DecoderConfig: names are missing", got=str(error)) from None


def _is_count(n: Any) -> bool:
    return type(n) is int and n >= 0


def _size(shapes: Any) -> int:
    """The number of elements of a tree of shapes."""
    if isinstance(shapes, tuple):
        return math.prod(shapes)
    return sum(map(_size, shapes.values() if isinstance(shapes, dict) else shapes))
