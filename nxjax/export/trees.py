"""Pytree structures in exported functions: the registry of what nodes mean there, and both directions.

Tuples, lists, dicts with string keys, None and OrderedDict are known; namedtuples and the user's own nodes must be
registered on both sides, under one name. Nothing in a file is executed but the functions registered here.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, final

import optree

from nxjax.errors import InvalidFileError, ParameterError, TreeError
from nxjax.export import format as fb
from nxjax.trace import tree

T = TypeVar("T")


@final
@dataclass(frozen=True)
class _Node:
    """How nodes of one type are written and made."""

    type: type
    name: str
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]
    build: Callable[[Any, Sequence[Any]], Any]


_by_type: Final[dict[type, _Node]] = {}
_by_name: Final[dict[str, _Node]] = {}


def register_pytree_node_serialization(
    nodetype: type[T],
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type[T]:
    """Let exported functions take and return nodes of a type registered with `nx.tree_util`.

    Args:
        nodetype: the type, which is returned, so that this can decorate a class.
        serialized_name: the name in the file; the reader must register it, too. With JAX's name for the same type, both
            can read the files.
        serialize_auxdata, deserialize_auxdata: the node's static data as bytes, and back.
        from_children: ``(aux, children) -> node``; the registered unflatten function by default.

    Raises:
        ParameterError: the type or the name is registered already, or the type is not a pytree node.

    >>> class Scaled:
    ...     def __init__(self, x, factor): self.x, self.factor = x, factor
    >>> _ = nx.tree_util.register_pytree_node(Scaled, lambda s: ((s.x,), s.factor), lambda f, c: Scaled(c[0], f))
    >>> register_pytree_node_serialization(
    ...     Scaled,
    ...     serialized_name="docs.Scaled",
    ...     serialize_auxdata=lambda factor: str(factor).encode(),
    ...     deserialize_auxdata=lambda data: int(data),
    ... ) is Scaled
    True
    """
    if nodetype in _by_type:
        raise ParameterError(
            f"export: {nodetype.__name__} is registered already", got=f"as {_by_type[nodetype].name!r}"
        )
    if serialized_name in _by_name:
        raise ParameterError(
            f"export: {serialized_name!r} is registered already", got=f"for {_by_name[serialized_name].type.__name__}"
        )
    if from_children is None:
        entry = optree.register_pytree_node.get(nodetype, namespace=tree.NAMESPACE)  # type: ignore[attr-defined]
        if entry is None:
            raise ParameterError(
                f"export: {nodetype.__name__} is not a pytree node",
                fix="call nx.tree_util.register_pytree_node first, or give from_children=",
            )
        from_children = entry.unflatten_func
    node = _Node(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata, from_children)
    _by_type[nodetype] = _by_name[serialized_name] = node
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """As `register_pytree_node_serialization`, for a namedtuple: its fields are found by name.

    Raises:
        ParameterError: not a namedtuple, or registered already.

    >>> class Point(collections.namedtuple("Point", "x y")): pass
    >>> register_namedtuple_serialization(Point, serialized_name="docs.Point") is Point
    True
    """
    fields = getattr(nodetype, "_fields", None)
    if not (isinstance(nodetype, type) and issubclass(nodetype, tuple) and isinstance(fields, tuple)):
        raise ParameterError(
            f"export: {nodetype} is not a namedtuple", fix="use nx.export.register_pytree_node_serialization"
        )

    def build(names: Any, children: Sequence[Any]) -> Any:
        return nodetype(**dict(zip(names, children, strict=True)))

    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(fields).encode(),
        deserialize_auxdata=lambda data: json.loads(data.decode()),
        from_children=build,
    )


def _ordered_keys(keys: Any) -> bytes:
    if not all(isinstance(k, str) for k in keys):
        raise TreeError("export: keys of an OrderedDict are strings in a file", got=list(keys))
    return json.dumps(list(keys)).encode()


register_pytree_node_serialization(
    collections.OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=_ordered_keys,
    deserialize_auxdata=lambda data: json.loads(data.decode()),
    from_children=lambda keys, children: collections.OrderedDict(zip(keys, children, strict=True)),
)


def written(structure: tree.TreeDef, leaves: Sequence[Any], what: str) -> fb.Fields:
    """The table of a structure; ``leaves`` may stand in it.

    Raises:
        TreeError: a node that files do not hold.
    """
    return _table(structure, tree.unflatten(structure, leaves), what)


def _table(structure: tree.TreeDef, node: Any, what: str) -> fb.Fields:
    if structure.is_leaf():
        return {"kind": fb.LEAF}
    kind: Any = structure.type
    if kind is None or kind is type(None):
        return {"kind": fb.NONE}
    children, aux = optree.tree_flatten_one_level(node, namespace=tree.NAMESPACE)[:2]
    tables = [_table(s, x, what) for s, x in zip(structure.children(), children, strict=True)]
    if kind in (tuple, list):
        return {"kind": fb.TUPLE if kind is tuple else fb.LIST, **_children(tables)}
    if kind is dict:
        names: list[Any] = list(structure.entries())
        wrong = [k for k in names if not isinstance(k, str)]
        if wrong:
            raise TreeError(f"export: {what} has a dict whose keys are not strings", got=wrong[:5], fix="name the keys")
        return {"kind": fb.DICT, **_children(tables), "children_names": names}
    found = _by_type.get(kind)
    if found is None:
        raise TreeError(
            f"export: {what} has a node of a type that files do not know",
            got=kind.__name__,
            expected=f"dict, list, tuple, None, {', '.join(sorted(n.type.__name__ for n in _by_type.values()))}",
            fix="nx.export.register_namedtuple_serialization or nx.export.register_pytree_node_serialization",
        )
    data = found.to_bytes(structure.entries() if kind is collections.OrderedDict else aux)
    if not isinstance(data, (bytes, bytearray)):
        raise TreeError(f"export: serialize_auxdata of {kind.__name__} must give bytes", got=type(data).__name__)
    return {
        "kind": fb.CUSTOM,
        **_children(tables),
        "custom_name": found.name,
        "custom_auxdata": list(data),
    }


def _children(tables: list[fb.Fields]) -> fb.Fields:
    return {"children": tables} if tables else {}


def read(table: fb.Fields | None, leaves: Sequence[Any], what: str) -> tree.TreeDef:
    """The structure of a table, with ``leaves`` at its leaves.

    Raises:
        InvalidFileError: it is none, of other size, or has a node that is not registered.
    """
    if table is None:
        raise InvalidFileError(f"exported function: the structure of its {what} is missing")
    rest = iter(leaves)
    # Tables that are shared between parents could be a tree of any size.
    budget = [4 * len(leaves) + 100_000]
    built = _built(table, rest, what, budget)
    found = tree.structure(built)
    if next(rest, None) is not None or found.num_leaves != len(leaves):
        raise InvalidFileError(
            f"exported function: the structure of its {what} has another number of leaves",
            got=found.num_leaves,
            expected=len(leaves),
        )
    return found


def _built(table: fb.Fields, rest: Iterator[Any], what: str, budget: list[int]) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise InvalidFileError(f"exported function: the structure of its {what} has no end")
    kind = table["kind"]
    if kind == fb.LEAF:
        try:
            return next(rest)
        except StopIteration:
            raise InvalidFileError(f"exported function: the structure of its {what} has too many leaves") from None
    children = [_built(t, rest, what, budget) for t in table["children"] or ()]
    if kind == fb.NONE:
        return None
    if kind == fb.TUPLE:
        return tuple(children)
    if kind == fb.LIST:
        return children
    if kind == fb.DICT:
        names = table["children_names"] or []
        if len(names) != len(children) or len(set(names)) != len(names):
            raise InvalidFileError(f"exported function: a dict of its {what} has keys that do not fit", got=names[:8])
        return dict(zip(names, children, strict=True))
    if kind != fb.CUSTOM:
        raise InvalidFileError(f"exported function: its {what} has a node of an unknown kind", got=kind)
    name = table["custom_name"] or ""
    found = _by_name.get(name)
    if found is None:
        raise InvalidFileError(
            f"exported function: its {what} has a node that is not registered here",
            got=repr(name)[:80],
            expected=", ".join(sorted(_by_name)),
            fix="nx.export.register_namedtuple_serialization or nx.export.register_pytree_node_serialization",
        )
    data = table["custom_auxdata"]
    try:
        return found.build(found.from_bytes(bytes(data if data is not None else b"")), children)
    except Exception as error:  # the registered functions', of data that may be damaged
        raise InvalidFileError(
            f"exported function: its {what} has a {name} that cannot be made", got=repr(error)[:200]
        ) from None
