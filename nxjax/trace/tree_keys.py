"""Paths to the leaves of a tree: their keys, in JAX's classes and text. Knows no tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import optree


class _TreeKey:
    """One value, under a name of its class; as a frozen dataclass, which takes longer to make than all of this file."""

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class DictKey(_TreeKey):
    """The key of a dict on the path to a leaf.

    >>> DictKey("w").key, str(DictKey("w"))
    ('w', "['w']")
    """

    key: Any

    def __init__(self, key: Any) -> None:
        vars(self)["key"] = key

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(_TreeKey):
    """The index of a list or tuple on the path to a leaf.

    >>> SequenceKey(0).idx, str(SequenceKey(0))
    (0, '[0]')
    """

    idx: int

    def __init__(self, idx: int) -> None:
        vars(self)["idx"] = idx

    def __str__(self) -> str:
        return f"[{self.idx}]"


class GetAttrKey(_TreeKey):
    """The name of an attribute on the path to a leaf.

    >>> GetAttrKey("w").name, str(GetAttrKey("w"))
    ('w', '.w')
    """

    name: str

    def __init__(self, name: str) -> None:
        vars(self)["name"] = name

    def __str__(self) -> str:
        return f".{self.name}"


class FlattenedIndexKey(_TreeKey):
    """The index of a child on the path to a leaf, for a node without keys.

    >>> FlattenedIndexKey(1).key, str(FlattenedIndexKey(1))
    (1, '[<flat index 1>]')
    """

    key: Any

    def __init__(self, key: Any) -> None:
        vars(self)["key"] = key

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


KeyPath = tuple[Any, ...]
_KEY_FIELDS: Final[dict[str, tuple[Any, str]]] = {
    "DictKey": (DictKey, "key"),
    "SequenceKey": (SequenceKey, "idx"),
    "GetAttrKey": (GetAttrKey, "name"),
    "FlattenedIndexKey": (FlattenedIndexKey, "key"),
}


def key_of(entry: Any) -> Any:
    if isinstance(entry, (DictKey, SequenceKey, GetAttrKey, FlattenedIndexKey)):
        return entry
    raw = entry.entry
    if isinstance(raw, (DictKey, SequenceKey, GetAttrKey, FlattenedIndexKey)) or type(raw).__module__.startswith("jax"):
        return key_given(raw)  # optree takes the keys of a dataclass for field names
    if isinstance(entry, optree.DataclassEntry):
        return key_given(raw)  # of the registered order: fields of that order are optree's guess
    if isinstance(entry, (optree.GetAttrEntry, optree.NamedTupleEntry)):
        return GetAttrKey(entry.name if hasattr(entry, "name") else entry.field)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(entry.entry)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.entry)
    return key_given(raw)


def key_given(raw: Any) -> Any:
    """The key that a node's own flatten function gave: ours, JAX's, or anything else."""
    kind = type(raw).__name__
    if type(raw).__module__.startswith("jax") and kind in _KEY_FIELDS:
        make, field = _KEY_FIELDS[kind]
        return make(getattr(raw, field))
    return raw if not isinstance(raw, int) else FlattenedIndexKey(raw)


def keystr(keys: Sequence[Any], *, simple: bool = False, separator: str = "") -> str:
    """``['layers'][0].weight`` for a key path.

    >>> keystr((DictKey("a"), SequenceKey(0)))
    "['a'][0]"
    """
    if simple:
        parts = [getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in keys]
        return separator.join(str(p) for p in parts)
    return separator.join(str(k) for k in keys)
