"""The shape of a decoder-only transformer: numbers only, checked once. Knows no array and no file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, final

from nxjax.errors import ParameterError


@final
@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder with RMS norms, rotary positions, grouped-query attention and SwiGLU layers.

    Attributes:
        vocabulary: the number of tokens.
        width: numbers per token between layers.
        layers: the number of layers.
        heads: query heads.
        kv_heads: heads of keys and values, a divisor of ``heads`` (Ainslie et al., "GQA", 2023).
        head_size: numbers per head; even, because pairs are rotated.
        hidden: numbers inside a SwiGLU layer (Shazeer, "GLU variants improve transformer", 2020).
        context: the largest number of tokens of a sequence.
        rope_base: of the rotation's angles, ``position * rope_base ** (-2 i / head_size)`` for pair i (Su et al.,
            "RoFormer", 2021).
        epsilon: added to mean squares in norms.
        tied: the embedding table is also the output matrix.

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
        if self.head_size % 2:
            raise ParameterError("DecoderConfig: head_size", got=self.head_size, expected="an even number")
        for name in ("rope_base", "epsilon"):
            x = getattr(self, name)
            if not (isinstance(x, (int, float)) and math.isfinite(x) and x > 0):
                raise ParameterError(f"DecoderConfig: {name}", got=x, expected="a positive number")

    @property
    def qkv(self) -> int:
        """Columns of the product for queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        attention = self.width * self.qkv + self.heads * self.head_size * self.width
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        return self.vocabulary * self.width * (2 - self.tied) + self.layers * layer + self.width

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
            return cls(**given)
        except TypeError as error:
            raise ParameterError("DecoderConfig: names are missing", got=str(error)) from None
