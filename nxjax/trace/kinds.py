"""Checks the kind of each parameter of an op against the annotations of its rules, for programs from outside nxjax.

Kinds are Python types: a bool is not an integer, and the items of tuples and the fields of dataclasses are checked too.
The range of an integer is checked by the op's `infer`. Knows no op.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.trace import dtypes
from nxjax.trace.core import Op

# The name of a kind in errors, and the test whether a value is of that kind.
Kind = tuple[str, Callable[[Any], bool]]
# The types of a parameter whose kind nothing declares.
_PLAIN: Final = (bool, int, float, complex, str, np.generic, np.dtype, enum.Enum)
_BITS: Final = 63
# What tells dataclasses from others.
_FIELDS: Final = "__dataclass_fields__"
# Classes whose values can be called and are no functions: programs, which add themselves.
NO_FUNCTIONS: Final[list[type]] = []
# The methods that declare parameters: mostly `infer`; the others for parameters that `infer` passes on unread.
_RULES: Final = ("infer", "eval", "expand", "exact", "traced", "host", "tangents", "jvp", "partial_eval", "batch")


def check_params(op: Op, params: Mapping[str, Any]) -> None:
    """Refuse parameters that ``op`` does not have, that it lacks, and that are of another kind than it says.

    Raises:
        ParameterError: the message names the op and the parameter.
    """
    known, needed = _parameters(type(op))
    _check(op, params, known, needed)


def check_fields(op: Op, params: Mapping[str, Any], cls: type, names: Mapping[str, str]) -> None:
    """As `check_params`, of parameters that are fields of ``cls``; ``names``: the parameter of each field."""
    hints = typing.get_type_hints(cls)
    known = {name: kind_of(hints[field]) for field, name in names.items()}
    _check(op, params, known, tuple(known))


def _check(op: Op, params: Mapping[str, Any], known: Mapping[str, Kind], needed: tuple[str, ...]) -> None:
    for name in params:
        if name not in known and not op.any_params:
            raise ParameterError(f"{op.name}: has no parameter {name!r}", got=params[name], expected=_names(known))
    for name in needed:
        if name not in params:
            raise ParameterError(f"{op.name}: lacks the parameter {name!r}", got=_names(params), expected=_names(known))
    for name, value in params.items():
        kind = known.get(name)
        if kind is not None and not kind[1](value):
            raise ParameterError(f"{op.name}: {name} is of another kind", got=value, expected=kind[0])


def _names(params: Mapping[str, Any]) -> str:
    return ", ".join(sorted(params)) or "none"


@lru_cache(None)
def _parameters(cls: type[Op]) -> tuple[dict[str, Kind], tuple[str, ...]]:
    """The kind of each parameter that ops of a class take, and the names of those that have no default."""
    known: dict[str, Kind] = {}
    needed: dict[str, bool] = {}
    for rule in _RULES:
        function: Any = getattr(cls, rule, None)
        if not inspect.isfunction(function):
            continue
        spelled = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        hints = typing.get_type_hints(function) if spelled else {}
        for p in spelled:
            if p.name not in known:
                known[p.name] = kind_of(hints[p.name])
            needed[p.name] = needed.get(p.name, True) and p.default is p.empty
    return known, tuple(name for name, always in needed.items() if always)


@lru_cache(None)
def kind_of(hint: Any) -> Kind:
    """The kind of values that an annotation means."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return "a number, a text or a tuple of them", _is_plain
    if hint is None or hint is type(None):
        return "None", lambda v: v is None
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments)), lambda v: isinstance(v, str) and v in arguments
    if origin in (typing.Union, types.UnionType):
        several = [kind_of(a) for a in arguments]
        return " or ".join(called for called, _ in several), lambda v: any(fits(v) for _, fits in several)
    if origin is tuple:
        if arguments[-1:] == (...,):
            called, one = kind_of(arguments[0])
            return f"a tuple, each {called}", lambda v: isinstance(v, tuple) and all(map(one, _items(v)))
        several = [kind_of(a) for a in arguments]
        return (
            f"({', '.join(called for called, _ in several)})",
            lambda v: (
                isinstance(v, tuple)
                and len(_items(v)) == len(several)
                and all(fits(x) for (_, fits), x in zip(several, _items(v), strict=True))
            ),
        )
    if origin is not None:
        return _instance(origin)
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    return _instance(hint)


def is_dataclass(v: Any) -> bool:
    """Whether ``v`` is a value of a dataclass; asked of each parameter, mostly where there is no such class."""
    return hasattr(v, _FIELDS) and not isinstance(v, type)


def fields_of(v: Any) -> list[str]:
    """The names of the fields of a dataclass, or of a value of one."""
    from dataclasses import fields

    return [f.name for f in fields(v)]


def _items(v: Any) -> tuple[Any, ...]:
    return v


def _is_plain(v: Any) -> bool:
    if isinstance(v, tuple):
        return all(map(_is_plain, _items(v)))
    return v is None or isinstance(v, _PLAIN) or hasattr(v, _FIELDS)


def _is_int(v: Any) -> bool:
    return isinstance(v, (int, np.integer)) and not isinstance(v, bool) and -(1 << _BITS) <= int(v) < 1 << _BITS


def _is_float(v: Any) -> bool:
    return isinstance(v, (float, np.floating)) or _is_int(v)


_NUMBERS: Final[dict[Any, Kind]] = {
    int: ("an integer of 64 bits", _is_int),
    float: ("a number", _is_float),
    bool: ("True or False", lambda v: isinstance(v, (bool, np.bool_))),
    np.dtype: ("a dtype", lambda v: isinstance(v, np.dtype) and v in dtypes.NAMED),
    Callable: ("a function", lambda v: callable(v) and not isinstance(v, tuple(NO_FUNCTIONS))),
}


def _instance(cls: Any) -> Kind:
    """Values of a class; the fields of a dataclass or a named tuple are of their kinds."""
    if cls in _NUMBERS or cls is typing.get_origin(Callable[[], Any]):
        return _NUMBERS.get(cls, _NUMBERS[Callable])
    name = f"a value of {cls.__name__}"
    if not hasattr(cls, _FIELDS) and not issubclass(cls, tuple):
        return name, lambda v: isinstance(v, cls)
    made: Any = cls
    # Found out later: a dataclass may hold values of its own class.
    return name, lambda v: isinstance(v, made) and all(fits(getattr(v, n)) for n, fits in _fields(cls))


@lru_cache(None)
def _fields(cls: Any) -> list[tuple[str, Callable[[Any], bool]]]:
    hints = typing.get_type_hints(cls)
    names = fields_of(cls) if hasattr(cls, _FIELDS) else cls._fields
    return [(name, kind_of(hints[name])[1]) for name in names]
