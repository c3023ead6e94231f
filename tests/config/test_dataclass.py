"""`dataclass` beside the standard library's: the same objects, whatever the options."""

import copy
import dataclasses
import inspect
import itertools
import pickle
from typing import ClassVar

import pytest

from nxjax.config.dataclass import dataclass

OPTIONS = [
    dict(zip(("frozen", "eq", "repr", "slots"), on, strict=True)) for on in itertools.product((False, True), repeat=4)
]


def both(define):
    """The class that ``define`` makes with either decorator."""
    return define(dataclass), define(dataclasses.dataclass)


def point(options):
    def define(decorator):
        @decorator(**options)
        class Point:
            kind: ClassVar[str] = "point"
            x: int
            y: list = dataclasses.field(default_factory=list, compare=False)
            z: float = dataclasses.field(default=0.5, repr=False)
            name: str = dataclasses.field(default="n", kw_only=True)
            hidden: int = dataclasses.field(default=7, init=False, hash=False)

            def __post_init__(self):
                if self.x < 0:
                    raise ValueError("negative")

        return Point

    return both(define)


def shown(f, *args, **kwargs):
    """What ``f`` gives, or the name of what it raises."""
    try:
        return f(*args, **kwargs)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_are_those_of_the_standard_library(options):
    ours, theirs = point(options)
    for args, kwargs in [((1,), {}), ((1, [2], 3.0), {}), ((), {"x": 4, "name": "m"})]:
        x, y = ours(*args, **kwargs), theirs(*args, **kwargs)
        assert dataclasses.asdict(x) == dataclasses.asdict(y)
        if options["repr"]:
            assert repr(x) == repr(y)
        assert (x == ours(*args, **kwargs)) is (y == theirs(*args, **kwargs))
        assert (x == ours(9)) is (y == theirs(9))
        assert (x == y) is False and (x.__eq__(1) is NotImplemented)
        assert (shown(hash, x) == shown(hash, ours(*args, **kwargs))) is (
            shown(hash, y) == shown(hash, theirs(*args, **kwargs))
        )
        assert (shown(hash, x) == "TypeError") is (shown(hash, y) == "TypeError")
        assert dataclasses.asdict(dataclasses.replace(x, x=5)) == dataclasses.asdict(dataclasses.replace(y, x=5))
        assert copy.deepcopy(x).x == copy.copy(x).x == x.x
        for change in ((setattr, "x", 3), (delattr, "z")):
            f, *rest = change
            assert shown(f, x, *rest) == shown(f, y, *rest)
        # The standard library's frozen classes with slots raise an error of their own here.
        expected = "FrozenInstanceError" if options["frozen"] else shown(setattr, y, "other", 1)
        assert shown(setattr, x, "other", 1) == expected
    assert ours.__match_args__ == theirs.__match_args__ and hasattr(ours, "__slots__") is options["slots"]
    assert ours.kind == "point"
    for args, kwargs in [((), {}), ((1, 2, 3, 4), {}), ((1,), {"unknown": 2}), ((-1,), {})]:
        assert shown(ours, *args, **kwargs) == shown(theirs, *args, **kwargs) in ("TypeError", "ValueError")


def test_signatures_are_those_of_the_standard_library_before_anything_is_made():
    ours, theirs = point({"frozen": True})
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs)).replace("<factory>", "<factory>")


@pytest.mark.parametrize("frozen", [False, True])
def test_derived_classes(frozen):
    def define(decorator):
        @decorator(frozen=frozen)
        class Base:
            x: int
            y: int = 2

        @decorator(frozen=frozen)
        class Derived(Base):
            y: int = 3
            z: int = 4

        class Plain(Derived):
            pass

        return Base, Derived, Plain

    for ours, theirs in zip(*both(define), strict=True):
        assert repr(ours(1)) == repr(theirs(1)) and ours(1) == ours(1) and ours(1) != ours(2)
        for name in ("x", "other"):
            assert shown(setattr, ours(1), name, 2) == shown(setattr, theirs(1), name, 2)
    base, derived, plain = define(dataclass)
    assert base(1) != derived(1) and derived(1) != plain(1) and derived(5, z=1) == derived(5, 3, 1)


def test_what_a_class_defines_itself_stays():
    def define(decorator):
        @decorator(frozen=True)
        class Own:
            x: int

            def __repr__(self):
                return "own"

            def __hash__(self):
                return 5

            def __eq__(self, other):
                return True

        return Own

    ours, theirs = both(define)
    for own in (ours, theirs):
        assert repr(own(1)) == "own" and hash(own(1)) == 5 and own(1) == own(2)


@dataclass(frozen=True, slots=True)
class Kept:
    x: int
    y: tuple = ()


def test_frozen_objects_with_slots_are_pickled():
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,))
    assert copy.deepcopy(Kept(3)) == Kept(3)


def test_an_object_that_holds_itself_is_shown():
    @dataclass
    class Node:
        next: object = None

    node = Node()
    node.next = node
    assert repr(node).endswith(".Node(next=...)")
