"""Random programs as data: blocks of steps, the rows that these are written by, and what is known of variables.

Knows nothing of how texts are grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np

import nxjax
from nxjax.testing.inputs import Argument, values

if TYPE_CHECKING:
    from nxjax.testing.writer import Draw

# From here on a value is tamed before it is used.
_HUGE: Final = 1e3


class Unfit(Exception):
    """A step cannot be written for these operands."""


class StepRefused(Exception):
    """An eager line raised; the message is the program up to it, beside its arguments."""


@dataclass(frozen=True)
class GeneratedFunction:
    """A function: its parameters, its steps, and the names of its results."""

    params: tuple[str, ...]
    steps: tuple[GeneratedStep, ...]
    results: tuple[str, ...]

    def walk(self) -> Iterator[GeneratedStep]:
        """All steps, those of inner functions too."""
        for step in self.steps:
            yield step
            for block in step.blocks:
                yield from block.walk()


@dataclass(frozen=True)
class GeneratedStep:
    """One line, and the functions defined for it.

    Attributes:
        name: the variable.
        row: the row of the table, by its place there.
        seed: of all choices but the operands.
        operands: names, in the order in which the row asks for them.
        blocks: inner functions, in that order.
    """

    name: str
    row: int
    seed: int
    operands: tuple[str, ...] = ()
    blocks: tuple[GeneratedFunction, ...] = ()


@dataclass(frozen=True)
class Production:
    """A way to make a value of others: a row of the table of productions.

    Attributes:
        write: gives the expression.
        feature: what it counts as in reports.
        smooth: it has derivatives, which are continuous almost everywhere.
        exact: floats are moved, not computed.
        once: floats are rounded once, to the nearest: known to the bit if nothing else is rounded.
        weight: how often it is taken.
        nested: it defines inner functions.
    """

    write: Callable[[Draw], str]
    feature: str
    smooth: bool = False
    exact: bool = False
    once: bool = False
    weight: float = 1.0
    nested: bool = False


@dataclass(frozen=True)
class GeneratedProgram:
    """A random program: arguments, steps, and whether 64 bits are on.

    Attributes:
        text: the function's definition.
        rounds: the variables that are rounded, and how: half a unit in the last place of one. None: all is exact.
        once: one line is rounded, once, and no other.
        rough: some line makes floats that have no derivatives, or jump.
        features: what is in it.
    """

    args: tuple[Argument, ...]
    body: GeneratedFunction
    x64: bool = False
    text: str = ""
    rounds: dict[str, float] = field(default_factory=dict)
    once: bool = False
    rough: bool = False
    features: frozenset[str] = frozenset()

    def values(self) -> list[Any]:
        """The arguments, as NumPy has them."""
        return [values(a) for a in self.args]


class GeneratedVar(str):
    """A variable's name, with what is known of its value."""

    value: Any
    shape: tuple[int, ...]
    kind: str
    huge: bool

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def type(self) -> tuple[Any, ...]:
        """What two values share that may stand for each other in a loop."""
        return self.shape, str(self.dtype), bool(getattr(self.value, "weak_type", False))

    @property
    def jnp(self) -> str:
        """The dtype as programs write it."""
        return f"jnp.{'bool_' if self.kind == 'b' else self.dtype.name}"


KINDS: Final[dict[str, str]] = {
    "bool": "b",
    **{f"int{n}": "i" for n in (4, 8, 16, 32, 64)},
    **{f"uint{n}": "u" for n in (4, 8, 16, 32, 64)},
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "f"),
    **dict.fromkeys(("complex64", "complex128"), "c"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"), "n"),
}


def variable(name: str, value: Any) -> GeneratedVar:
    """``name``, with what is known of ``value``.

    >>> variable("x", np.ones((2, 3))).shape
    (2, 3)
    """
    v = GeneratedVar(name)
    v.value = value
    v.shape = tuple(value.shape)
    v.kind = KINDS.get(str(value.dtype), "o")
    v.huge = False
    if v.kind in "fcn" and v.size:
        with np.errstate(all="ignore"):
            a = np.abs(np.asarray(value).astype(np.complex128 if v.kind == "c" else np.float64))
            v.huge = bool((a[np.isfinite(a)] > _HUGE).any())
    return v


def precision(value: Any) -> float:
    """Half a unit in the last place of the coarsest float among ``value``'s leaves; 0: there is none."""
    found = 0.0
    for leaf in nxjax.tree.leaves(value):
        dtype = np.dtype(leaf.dtype)
        if KINDS.get(str(dtype), "o") in "fcn":
            found = max(found, float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2)
    return found


def without_dead(block: GeneratedFunction) -> GeneratedFunction:
    """``block`` without steps whose values nothing uses."""
    alive = {n.split("[")[0] for n in block.results}
    kept: list[GeneratedStep] = []
    for step in reversed(block.steps):
        if step.name in alive:
            step = replace(step, blocks=tuple(map(without_dead, step.blocks)))
            kept.append(step)
            alive |= {n.split("[")[0] for n in step.operands}
            for inner in step.blocks:
                alive |= names_of(inner)
    return replace(block, steps=tuple(reversed(kept)))


def names_of(block: GeneratedFunction) -> set[str]:
    """The variables that a function uses, its own too."""
    found = {n.split("[")[0] for n in block.results}
    for step in block.walk():
        found |= {n.split("[")[0] for n in step.operands}
        for inner in step.blocks:
            found |= {n.split("[")[0] for n in inner.results}
    return found
