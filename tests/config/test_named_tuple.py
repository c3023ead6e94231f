"""Named tuples: what they do is what the standard library's do."""

from __future__ import annotations

import inspect
import pickle
import typing

import optree
import pytest

from nxjax.config import named_tuple


class Ours(named_tuple.NamedTuple):
    """A number, and how often."""

    number: float
    times: int = 1

    @property
    def total(self) -> float:
        return self.number * self.times

    def __str__(self) -> str:
        return f"{self.times} * {self.number}"


class Theirs(typing.NamedTuple):
    """A number, and how often."""

    number: float
    times: int = 1

    @property
    def total(self) -> float:
        return self.number * self.times

    def __str__(self) -> str:
        return f"{self.times} * {self.number}"


SAYS = {
    "objects": lambda c: (c(2.0), c(2.0, 3), c(times=2, number=1.0)),
    "methods": lambda c: (c(2.0, 3).total, str(c(2.0)), repr(c(2.0)).partition("(")[2]),
    "changed": lambda c: (c(2.0)._replace(times=5), c._make([1.0, 2]), c(1.0)._asdict()),
    "described": lambda c: (c.__doc__, c.__module__, c._fields, c._field_defaults, c.__match_args__, c.__bases__),
    "types": lambda c: typing.get_type_hints(c),
    "signature": lambda c: list(inspect.signature(c).parameters),
    "pickled": lambda c: pickle.loads(pickle.dumps(c(2.0, 3))),
    "slots": lambda c: hasattr(c(2.0), "__dict__"),
    "a tree": lambda c: (optree.tree_map(lambda x: x + 1, c(2.0, 3)), type(optree.tree_map(abs, c(2.0))) is c),
}


@pytest.mark.parametrize("name", SAYS)
def test_it_is_the_standard_librarys(name: str):
    assert SAYS[name](Ours) == SAYS[name](Theirs)


@pytest.mark.parametrize("bases", [(named_tuple.NamedTuple, typing.Generic), (Ours, named_tuple.NamedTuple)])
def test_what_it_cannot_be_is_refused(bases: tuple[type, ...]):
    with pytest.raises(TypeError):
        type(named_tuple.NamedTuple)("Made", bases, {"__module__": __name__})


def test_defaults_come_last():
    with pytest.raises(TypeError, match="defaults"):

        class _Made(named_tuple.NamedTuple):  # pyright: ignore[reportUnusedClass]
            x: int = 0
            y: int  # pyright: ignore[reportGeneralTypeIssues]
