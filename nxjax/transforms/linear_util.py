"""Functions with stacked transformations, as libraries wrap them before they trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from nxjax.errors import ParameterError


@final
class Store:
    """Room for the one value that a transformation gives besides its result."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def store(self, value: Any) -> None:
        if self.values:
            raise ParameterError("linear_util: a transformation was run twice", fix="wrap the function again")
        self.values.append(value)

    @property
    def val(self) -> Any:
        if not self.values:
            raise ParameterError("linear_util: asked for what a transformation gives before it has run")
        return self.values[0]


@final
class WrappedFun:
    """A function and the transformations around it, the outermost last."""

    def __init__(self, f: Callable[..., Any], params: dict[str, Any], transforms: tuple[Any, ...] = ()) -> None:
        self.f = f
        self.params = params
        self.transforms = transforms
        self.__name__ = getattr(f, "__name__", type(f).__name__)

    def wrap(self, generator: Callable[..., Any], args: tuple[Any, ...], store: Store | None) -> WrappedFun:
        """With one more transformation around it."""
        return WrappedFun(self.f, self.params, (*self.transforms, (generator, args, store)))

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """What the whole gives."""
        return self._call(len(self.transforms), args, {**self.params, **kwargs})

    def _call(self, depth: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not depth:
            return self.f(*args, **kwargs)
        generator, static, store = self.transforms[depth - 1]
        running = generator(*static, *args, **kwargs)
        inner_args, inner_kwargs = next(running)
        found = running.send(self._call(depth - 1, tuple(inner_args), inner_kwargs))
        if store is not None:
            found, aside = found
            store.store(aside)
        return found


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, **_: Any) -> WrappedFun:
    """``f`` without transformations yet.

    >>> wrap_init(lambda x: x + 1).call_wrapped(2)
    3
    """
    return WrappedFun(f, params or {})


def transformation(generator: Callable[..., Any]) -> Callable[..., WrappedFun]:
    """A transformation from a generator: it yields ``(args, kwargs)``, is sent the result, and yields its own.

    >>> @transformation
    ... def twice(x):
    ...     y = yield (x,), {}
    ...     yield 2 * y
    >>> twice(wrap_init(lambda x: x + 1)).call_wrapped(2)
    6
    """
    return lambda fun, *args: fun.wrap(generator, args, None)


def transformation_with_aux(generator: Callable[..., Any]) -> Callable[..., tuple[WrappedFun, Callable[[], Any]]]:
    """As `transformation`, of a generator that yields ``(result, aside)`` last; a function gives what was put aside."""

    def wrapped(fun: WrappedFun, *args: Any) -> tuple[WrappedFun, Callable[[], Any]]:
        store = Store()
        return fun.wrap(generator, args, store), lambda: store.val

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):  # not its signature, which is another
        setattr(wrapped, name, getattr(generator, name))
    return wrapped


__all__ = ["Store", "WrappedFun", "transformation", "transformation_with_aux", "wrap_init"]
