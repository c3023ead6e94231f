"""Rows that are templates: what a template may name, and how a table of them becomes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nxjax.testing.steps import GeneratedVar, Production, Unfit
from nxjax.testing.writer import LARGE, MEDIUM, Draw

# feature -> flags, weight, kinds and rank of x, templates. Flags: s: smooth; e: exact; o: rounded once; g: what it gives
# may be several times as large; 8: it takes few elements.
Table = tuple[tuple[str, str, float, str, int, tuple[str, ...]], ...]

DTYPES: Final = (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)  # fmt: skip
_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int4", "uint4")


class _Fields(Mapping[str, Any]):
    """What a template may name. The same letter is the same thing, wherever it stands.

    x: the first operand. s: another of its type. y: another of its dtype that it broadcasts with, z: of any. a, b: axes.
    k, l: True or False. c: a float. n: a small integer. p: a permutation of the axes. e: axes, at least one.
    d: x's dtype. t, q: another dtype, of floats and of integers. i: an array of integers. j: one integer. m: a mask that x
    broadcasts with. h: indices of x's first axis, of which some are equal, negative or outside. g: what happens to these.
    v: a length between 1 and x's along its last axis. w: a count of bits, which may be more than there are.
    """

    def __init__(self, draw: Draw, kinds: str, rank: int, most: int) -> None:
        self._draw, self._known = draw, {"x": draw.pick(kinds, rank, most=most)}

    def __getitem__(self, key: str) -> Any:
        if key not in self._known:
            self._known[key] = self._make(key)
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _make(self, key: str) -> Any:
        draw, r = self._draw, self._draw.r
        x: GeneratedVar = self._known["x"]
        match key:
            case "s":
                return draw.pick(x.kind, like=x)
            case "y":
                return draw.pick(x.kind, test=lambda v: v.dtype == x.dtype and joins(v, x))
            case "z":
                return draw.pick("fiub", test=lambda v: joins(v, x))
            case "m":
                return draw.pick("b", test=lambda v: joins(v, x))
            case "i":
                return draw.pick("i", 1, most=MEDIUM)
            case "j":
                return draw.pick("iu", test=lambda v: v.ndim == 0)
            case "a" | "b":
                return draw.axis(x)
            case "k" | "l":
                return r.random() < 0.5
            case "c":
                return r.choice((0.1, 0.5, 0.7, 1.3, -0.3, 2.0))
            case "n":
                return r.choice((1, 2, 3, -1, -2))
            case "p":
                return tuple(r.sample(range(x.ndim), x.ndim))
            case "e":
                axes = tuple(sorted(r.sample(range(x.ndim), r.randint(1, x.ndim)))) if x.ndim else ()
                return axes if r.random() < 0.7 or len(axes) != 1 else axes[0]
            case "d":
                return x.jnp
            case "t":
                return f"jnp.{r.choice(DTYPES)}"
            case "q":
                return f"jnp.{r.choice(_INTEGERS)}"
            case "h":
                return f"jnp.array({indices(draw, x.shape[0])})"
            case "g":
                return r.choice(("'drop'", "'clip'", "'fill'", "None"))
            case "v":
                if not x.shape[-1]:
                    raise Unfit
                return r.randint(1, x.shape[-1])
            case "w":
                bits = 8 * x.dtype.itemsize
                return r.choice((0, 1, 3, bits - 1, bits, bits + 1, 40, 100))
            case _:
                raise KeyError(key)


def joins(x: GeneratedVar, y: GeneratedVar) -> bool:
    """Whether they broadcast to something that isn't too large."""
    try:
        return bool(np.prod(np.broadcast_shapes(x.shape, y.shape)) <= max(LARGE, x.size, y.size))
    except ValueError:
        return False


def indices(draw: Draw, n: int) -> list[int]:
    """Some indices of ``n`` elements, of which some are equal, count from the end, or lie outside."""
    if not n:
        raise Unfit
    return [draw.r.choice((0, n - 1, -1, -n, n // 2, n, -n - 1, n + 5)) for _ in range(draw.r.randint(1, 5))]


@dataclass(frozen=True)
class Template:
    """Writes a line: ``text``, for an operand of ``kinds`` that has ``rank`` dimensions at least, and ``most`` elements."""

    text: str
    kinds: str
    rank: int
    most: int

    def __call__(self, draw: Draw) -> str:
        return self.text.format_map(_Fields(draw, self.kinds, self.rank, self.most))


def rows(table: Table) -> tuple[Production, ...]:
    """A row for each template."""
    most = lambda flags: 200 if "8" in flags else MEDIUM if "g" in flags else LARGE
    return tuple(
        Production(
            Template(text, kinds, rank, most(flags)),
            feature,
            smooth="s" in flags,
            exact="e" in flags,
            once="o" in flags,
            weight=weight,
        )
        for feature, flags, weight, kinds, rank, texts in table
        for text in texts
    )
