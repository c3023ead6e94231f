"""Where in the user's program an equation comes from: named scopes and source lines. Knows no op."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Final, final

from nxjax.errors import Shown, Source, user_source
from nxjax.trace.core import AROUND

_scope: ContextVar[str] = ContextVar("nxjax_scope", default="")
# While a program is replayed, its equations keep the line they were first written on.
_replayed: ContextVar[Source | None] = ContextVar("nxjax_source", default=None)
# Stands for a source line: this code is staged for many callers, and gets the line of each when it is replayed.
NOWHERE: Final = Source((lambda: None).__code__, 0)

current_scope = _scope.get
AROUND.extend((_scope, _replayed))


@final
class named_scope(Shown):
    """``with nx.named_scope("attention"):`` names the equations traced inside; also a decorator.

    >>> with named_scope("encoder"), named_scope("mlp"):
    ...     current_scope()
    'encoder/mlp'
    """

    __slots__ = ("name", "token")
    token: Token[str]

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        outer = _scope.get()
        self.token = _scope.set(f"{outer}/{self.name}" if outer else self.name)

    def __exit__(self, *exc: object) -> None:
        _scope.reset(self.token)

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with named_scope(self.name):
                return function(*args, **kwargs)

        return scoped


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Any:
    """``fun`` with its equations in a scope named ``name``, by default the name of ``fun``.

    >>> nx.make_jaxpr(nx.named_call(lambda x: x * 2, name="double"))(1.0).equations[0].scope
    'double'
    """
    return named_scope(name or getattr(fun, "__name__", "call"))(fun)


def current_source() -> Source | None:
    """The user's line now, or that of the equation being replayed."""
    found = _replayed.get()
    return user_source() if found is None else None if found is NOWHERE else found


@final
class replaying:
    """Equations made inside take scope and source from ``scope`` and ``source``."""

    __slots__ = ("scope", "source", "tokens")

    def __init__(self, scope: str, source: Source | None) -> None:
        self.scope = scope
        self.source = source

    def __enter__(self) -> None:
        outer = _scope.get()
        scope = (
            f"{outer}/{self.scope}"
            if outer and self.scope and not self.scope.startswith(outer)
            else self.scope or outer
        )
        self.tokens = (_scope.set(scope), _replayed.set(self.source))

    def __exit__(self, *exc: object) -> None:
        scope, source = self.tokens
        _scope.reset(scope)
        _replayed.reset(source)
