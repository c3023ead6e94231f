"""`dataclass`, as the standard library's, for classes that every process defines: in about a tenth of the time.

The standard library writes the methods of each class as text and compiles them: 0.2 to 0.8 ms a class. Here all classes
share one code for each method but ``__init__``, which is compiled when the first object is made. A frozen class made
here and a frozen one of the standard library's cannot inherit from each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_set: Final = object.__setattr__


class _Factory:
    """The default of an argument whose value a function makes."""

    def __repr__(self) -> str:
        return "<factory>"


class _Signature:
    """What `inspect.signature` asks a class for, as its constructor may not be compiled yet."""

    def __init__(self, compiled: Callable[[], Callable[..., None]], later: Callable[..., None]) -> None:
        self._compiled = compiled
        self._later = later

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        from inspect import signature

        init: Any = owner.__init__
        found = signature(self._compiled() if init is self._later else init)
        return found.replace(parameters=list(found.parameters.values())[1:])


_FACTORY: Final = _Factory()


@overload
def dataclass(cls: type[T], /) -> type[T]: ...


@overload
def dataclass(
    *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: type[T] | None = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """A class decorator with the meaning of `dataclasses.dataclass`.

    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, 0), dataclasses.replace(Point(1), y=2)
    (Point(x=1, y=0), True, Point(x=1, y=2))
    """

    def decorated(cls: type[T]) -> type[T]:
        own = frozenset(cls.__dict__)
        if cls.__doc__ is None:
            cls.__doc__ = ""  # the standard library would write the signature
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        for name, method in _methods(made, frozen, eq, repr, slots).items():
            if name not in own or (name == "__hash__" and cls.__hash__ is None):
                setattr(made, name, method)
        return made

    return decorated if cls is None else decorated(cls)


def _methods(cls: type[Any], frozen: bool, eq: bool, repr: bool, slots: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    compared = _getter([f.name for f in fields if f.compare])
    hashed = _getter([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def compiled() -> Callable[..., None]:
        return _init(cls, frozen)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made = compiled()
        if cls.__init__ is __init__:
            cls.__init__ = made
        made(self, *args, **kwargs)

    def __eq__(self: Any, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields if f.repr)
        return f"{self.__class__.__qualname__}({shown})"

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __setstate__(self: Any, state: tuple[Any, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            _set(self, name, value)

    found: dict[str, Any] = {"__init__": __init__, "__signature__": _Signature(compiled, __init__)}
    if repr:
        found["__repr__"] = __repr__
    if eq:
        found |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if frozen:
        found |= {"__setattr__": __setattr__, "__delattr__": __delattr__}
    if frozen and slots:
        found["__setstate__"] = __setstate__  # the usual one assigns
    return found


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _init(cls: type[Any], frozen: bool) -> Callable[..., None]:
    """The constructor, compiled: each field from its argument, its default, or what makes its default."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"_factory": _FACTORY, "_set": _set}
    head: dict[bool, list[str]] = {False: [], True: ["*"]}
    body: list[str] = []
    for f in fields:
        value = f.name
        default = ""
        made = f"_make_{f.name}()"
        if f.default_factory is not dataclasses.MISSING:
            scope[made[:-2]] = f.default_factory
            default = "=_factory"
            value = f"{made} if {f.name} is _factory else {f.name}"
        elif f.default is not dataclasses.MISSING:
            scope[f"_default_{f.name}"] = f.default
            default = f"=_default_{f.name}"
        if f.init:
            head[bool(f.kw_only)].append(f.name + default)
        elif default:
            value = made if default == "=_factory" else default[1:]
        else:
            continue
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    words = ["self", *head[False], *(head[True] if len(head[True]) > 1 else ())]
    exec(f"def __init__({', '.join(words)}):\n  " + "\n  ".join(body or ["pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{f.name: f.type for f in fields if f.init}, "return": None}
    return init
