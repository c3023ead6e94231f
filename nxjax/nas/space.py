"""Search spaces: an ordinary function that asks for its decisions, and what can be done with all of its runs.

``build(choose)`` describes one architecture for each way of answering; which decisions there are may depend on earlier
answers, so a space is a tree. Knows no network, no cost and no strategy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar, final

import numpy as np

from nxjax.errors import ParameterError, Shown
from nxjax.trace.boundary import entry

T = TypeVar("T")
# What a space was told: the number of the option taken at each decision, in the order in which they were asked.
Genes = dict[str, int]
# `size` counts no further than this unless told to.
MANY: Final = 1_000_000


@entry
def key_of(genes: Mapping[str, int]) -> str:
    """Genes as one line of text, independent of their order.

    >>> key_of({"b": 1, "a": 0})
    '{"a":0,"b":1}'
    """
    return json.dumps(dict(genes), sort_keys=True, separators=(",", ":"))


class Answer(Protocol):
    """Gives the number of an option, for the name of a decision and its options."""

    def __call__(self, name: str, options: Sequence[Any], /) -> int: ...


@final
class Choose(Shown):
    """The argument of a space's function: call it to make a decision.

    ``choose(name, options)`` returns one of ``options``. A name within ``choose.scope("block1")`` is ``block1.name``.
    The same name with the same options gives the same answer.

    >>> choose = Choose(lambda name, options: len(options) - 1)
    >>> with choose.scope("block0"):
    ...     width = choose("width", (8, 16))
    >>> width, choose.genes
    (16, {'block0.width': 1})
    """

    def __init__(self, answer: Answer, layer: Callable[[str, Sequence[Any], int], Any] | None = None) -> None:
        self._answer = answer
        self._layer = layer
        self._scopes: list[str] = []
        self.genes: Genes = {}
        self.sizes: dict[str, int] = {}
        self.taken: dict[str, str] = {}

    def __call__(self, name: str, options: Sequence[Any]) -> Any:
        """One of ``options``, at least one of them.

        Raises:
            ParameterError: there is no option, or the name was asked before with another number of them.
        """
        options = tuple(options)
        return options[self._decide(name, options)]

    def layer(self, name: str, options: Sequence[Any]) -> Any:
        """One of several layers ``(init, apply)``, as in `nxjax.example_libraries.stax`.

        Like calling ``choose``, but a differentiable search may use a mixture of all of them. So they must have the
        same input and output shapes.
        """
        options = tuple(options)
        number = self._decide(name, options)
        return options[number] if self._layer is None else self._layer(self._full(name), options, number)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of decisions inside with ``name`` and a point."""
        self._scopes.append(str(name))
        try:
            yield
        finally:
            self._scopes.pop()

    def _full(self, name: str) -> str:
        return ".".join((*self._scopes, str(name)))

    def _decide(self, name: str, options: tuple[Any, ...]) -> int:
        full = self._full(name)
        if not options:
            raise ParameterError(f"nas: the decision {full!r} has no options", expected="at least one")
        known = self.sizes.get(full)
        if known is not None and known != len(options):
            raise ParameterError(
                f"nas: the decision {full!r} was made twice, with different options",
                got=f"{len(options)} options, then {known}",
                expected="a name for each decision",
                fix="with choose.scope(f'block{i}'): ... gives the decisions of a loop separate names",
            )
        if known is None:
            number = int(self._answer(full, options))
            if not 0 <= number < len(options):
                raise ParameterError(
                    f"nas: no such option of the decision {full!r}", got=number, expected=f"below {len(options)}"
                )
            self.sizes[full], self.genes[full] = len(options), number
            self.taken[full] = _shown(options[number])
        return self.genes[full]


def _shown(option: Any) -> str:
    named = getattr(option, "__name__", None)
    return str(named) if named else option if isinstance(option, str) else repr(option)


@final
class Candidate(Generic[T]):
    """One architecture of a space.

    Attributes:
        genes: the number of the option at each decision, in order.
        model: the result of the space's function for them.
        choices: the chosen options, as text.
        sizes: how many options each decision had.

    >>> found = Space(lambda choose: choose("width", (8, 16))).build({"width": 1})
    >>> found.model, found.choices, found.key
    (16, {'width': '16'}, '{"width":1}')
    """

    __slots__ = ("choices", "genes", "model", "sizes")

    def __init__(self, genes: Genes, model: T, choices: dict[str, str], sizes: dict[str, int]) -> None:
        self.genes = genes
        self.model = model
        self.choices = choices
        self.sizes = sizes

    @property
    def key(self) -> str:
        """One line of text for the genes."""
        return key_of(self.genes)

    def __repr__(self) -> str:
        return f"Candidate({', '.join(f'{k}={v}' for k, v in self.choices.items())})"


@final
class Space(Generic[T]):
    """All results of a function of decisions.

    Args:
        build: pure function of a `Choose`; it must make the same decisions for the same answers.

    >>> @Space
    ... def space(choose):
    ...     layers = choose("depth", (1, 2))
    ...     return [choose(f"width{i}", (8, 16, 32)) for i in range(layers)]
    >>> space.size()
    12
    >>> space.build({"depth": 1, "width0": 2, "width1": 0}).model
    [32, 8]
    """

    def __init__(self, build: Callable[[Choose], T]) -> None:
        if not callable(build):
            raise ParameterError("nas: a space is made of a function", got=type(build).__name__)
        self._build = build
        self.__name__ = str(getattr(build, "__name__", "space"))
        self.__doc__ = getattr(build, "__doc__", None)

    def __call__(self, choose: Choose) -> T:
        """The space as a part of another one."""
        return self._build(choose)

    def answered(self, answer: Answer, layer: Callable[[str, Sequence[Any], int], Any] | None = None) -> Candidate[T]:
        """The architecture for ``answer``; ``layer`` replaces decisions about layers."""
        choose = Choose(answer, layer)
        model = self._build(choose)
        return Candidate(choose.genes, model, choose.taken, choose.sizes)

    def build(self, genes: Mapping[str, int]) -> Candidate[T]:
        """The architecture of ``genes``, without genes that it does not use.

        Raises:
            ParameterError: a decision has no gene, or one that names no option.
        """

        def answer(name: str, options: Sequence[Any]) -> int:
            if name not in genes:
                raise ParameterError(
                    f"nas: the decision {name!r} has no gene", got=", ".join(genes) or "none", expected=name
                )
            return genes[name]

        return self.answered(answer)

    def sample(self, rng: np.random.Generator) -> Candidate[T]:
        """An architecture at random: every option of a decision is as likely as the others."""
        return self.answered(lambda _, options: int(rng.integers(len(options))))

    def mutate(self, genes: Mapping[str, int], rng: np.random.Generator) -> Candidate[T]:
        """Another option at one decision. Decisions that appear with it are drawn, and others are dropped.

        Only a space of one architecture returns the same one.
        """
        sizes = self.build(genes).sizes
        open_ones = [name for name, n in sizes.items() if n > 1]
        if not open_ones:
            return self.build(genes)
        at = open_ones[int(rng.integers(len(open_ones)))]
        other = (genes[at] + 1 + int(rng.integers(sizes[at] - 1))) % sizes[at]
        return self._with({**genes, at: other}, rng)

    def cross(self, a: Mapping[str, int], b: Mapping[str, int], rng: np.random.Generator) -> Candidate[T]:
        """Each decision as one of two parents has it."""
        both = {name: (a if rng.random() < 0.5 else b) for name in {**a, **b}}
        return self._with({n: p[n] if n in p else {**a, **b}[n] for n, p in both.items()}, rng)

    def _with(self, genes: Mapping[str, int], rng: np.random.Generator) -> Candidate[T]:
        def answer(name: str, options: Sequence[Any]) -> int:
            number = genes.get(name, -1)
            return number if 0 <= number < len(options) else int(rng.integers(len(options)))

        return self.answered(answer)

    def all(self) -> Iterator[Candidate[T]]:
        """Every architecture once, the last decision changing fastest."""
        path: list[int] = []
        while True:
            sizes: list[int] = []
            at = iter(list(path))

            def answer(_: str, options: Sequence[Any], at: Iterator[int] = at, sizes: list[int] = sizes) -> int:
                sizes.append(len(options))
                return next(at, 0)

            found = self.answered(answer)
            yield found
            path = list(found.genes.values())
            while path and path[-1] + 1 == sizes[len(path) - 1]:
                path.pop()
            if not path:
                return
            path[-1] += 1

    def size(self, limit: int = MANY) -> int:
        """The number of architectures, counted one by one up to ``limit``."""
        return sum(1 for _, _ in zip(range(limit), self.all(), strict=False))

    def __repr__(self) -> str:
        return f"Space({self.__name__})"
