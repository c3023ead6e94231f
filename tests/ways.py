"""The ways in which a call of a jitted function may run, so that one test can be asked of each.

A `Way` is how the last of a few calls runs: settings, how many calls come before it, and where its arguments are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import nxjax as nx
from nxjax.backends import registry
from nxjax.backends.cpu.engine import KernelCache
from nxjax.config import config


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        settings: what is set meanwhile.
        before: how many calls come before the one that is looked at.
        placed: the arguments were put on the second device.
        hurried: no code is found ready, so that the first is made in a hurry.
        compiled: what is called is `compile`'s.
        inside: the function is called by another jitted function.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    before: int = 0
    placed: bool = False
    hurried: bool = False
    compiled: bool = False
    inside: bool = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        with config.using(**self.settings):
            if not self.hurried:
                yield
                return
            with patch.object(KernelCache, "has", lambda self, kernels: False):
                yield

    def put(self, x: Any) -> Any:
        """An array as the arguments of this way are."""
        return nx.device_put(x, nx.devices("cpu")[1]) if self.placed else x

    def jit(self, function: Callable[..., Any], **options: Any) -> Any:
        """``function``, jitted; to be called like that."""
        f = nx.jit(function, **options)
        if self.inside:
            return nx.jit(lambda *args: f(*args))
        return f

    def last(self, f: Any, make: Callable[[], tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
        """What the call gives that is looked at, and its arguments: ``make`` makes those of each call."""
        for _ in range(self.before):
            f(*map(self.put_leaf, make()))
        args = tuple(map(self.put_leaf, make()))
        if self.compiled:
            return f.lower(*args).compile()(*args), args
        return f(*args), args

    def put_leaf(self, x: Any) -> Any:
        return self.put(x) if self.placed and isinstance(x, nx.Array) else x

    def run(self, function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], **options: Any) -> Any:
        """The result of the call that is looked at."""
        return self.last(self.jit(function, **options), make)[0]


WAYS = [
    Way("general", {"executor": "cpu", "fast_calls": False}),
    Way("general again", {"executor": "cpu", "fast_calls": False}, before=2),
    Way("first by NumPy", {"executor": "cpu", "compile_first": False}),
    Way("after the first by NumPy", {"executor": "cpu", "compile_first": False}, before=1),
    Way("hurried", {"executor": "cpu"}, hurried=True),
    Way("after the hurried", {"executor": "cpu"}, before=1, hurried=True),
    Way("recent", {"executor": "cpu"}, before=1),
    Way("planned", {"executor": "cpu"}, before=4),
    Way("compiled", {"executor": "cpu"}, compiled=True),
    Way("inside", {"executor": "cpu"}, before=3, inside=True),
    Way("watched", {"executor": "cpu", "debug_key_reuse": True}, before=1),
    Way("guarded", {"executor": "cpu", "guard": "end"}, before=1),
    Way("guarded at the beginning", {"executor": "cpu", "guard": "begin"}, before=4),
    Way("reproducible", {"executor": "cpu", "reproducible": True}, before=4),
    Way("placed", {"executor": "cpu"}, before=1, placed=True),
    Way("reference", {"executor": "reference"}, before=1),
    Way("reference at first", {"executor": "reference", "fast_calls": False}),
    Way("xla", {"executor": "xla"}, before=1),
]
HERE = [w for w in WAYS if registry.get("xla").available()[0] or not (w.placed or w.settings["executor"] == "xla")]
