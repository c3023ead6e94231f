"""`NamedTuple`, as the standard library's, for classes that every process defines: in half the time.

The standard library compiles the text of every annotation. Here it stays text.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], scope: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, scope)
            types = scope.get("__annotations__", {})
            defaults = {field: scope.pop(field) for field in types if field in scope}
            if bases != (NamedTuple,) or tuple(types)[len(types) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name}: no other bases, and fields without defaults first")
            made = namedtuple(name, types, defaults=defaults.values(), module=scope["__module__"])
            for key, value in scope.items():
                if key not in ("__module__", "__classcell__"):
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """The base of a class whose objects are tuples with names.

        >>> class Point(NamedTuple):
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1)._replace(y=2)
        (Point(x=1, y=0), Point(x=1, y=2))
        """
