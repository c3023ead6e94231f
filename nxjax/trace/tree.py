"""Pytrees with JAX's semantics, on optree. Knows no value or trace.

None is an empty node; dict keys are sorted; namedtuples, deques, OrderedDict and defaultdict are nodes; classes that a
program registered with JAX are honoured when they are first met.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import optree

from nxjax.errors import TreeError, described
from nxjax.trace.tree_keys import DictKey, GetAttrKey, KeyPath, SequenceKey, key_given, key_of, keystr
from nxjax.trace.tree_nodes import NAMESPACE, adopt_from_jax, leaf_kinds

TreeDef: TypeAlias = optree.PyTreeSpec
_flatten: Final[Any] = optree._C.flatten  # what `optree.tree_flatten` calls; the rest of optree need not be loaded


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"


# The default of parameters for which None is a value.
NOT_GIVEN: Final = _NotGiven()


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """Leaves, left to right, and the structure.

    >>> leaves, structure = flatten({"b": 1, "a": (2, None)})
    >>> leaves
    [2, 1]
    """
    leaves, spec = _flatten(tree, is_leaf, False, NAMESPACE)  # None is a node
    if (
        "jax._src.tree_util" in sys.modules  # JAX itself, not what may stand in its place
        and not leaf_kinds.issuperset([type(x) for x in leaves])
        and adopt_from_jax(leaves, is_leaf)
    ):
        return flatten(tree, is_leaf)
    return leaves, spec


def unflatten(treedef: TreeDef, leaves: Iterable[Any], *, mixed_keys: bool = False) -> Any:
    """The inverse of `flatten`, except that dicts have sorted keys.

    ``mixed_keys``: sort keys without an order, such as 1 and "1", by their classes' names, instead of an error.

    >>> unflatten(structure({"b": 0, "a": 0}), [1, 2])
    {'a': 1, 'b': 2}
    """
    return with_sorted_keys(treedef, mixed_keys=mixed_keys).unflatten(leaves)


def with_sorted_keys(treedef: TreeDef, *, mixed_keys: bool = False) -> TreeDef:
    """The same structure, whose dicts are made with their keys in order.

    optree remembers the order of insertion, which two structures that are equal may differ in: a function that takes
    ``d.values()`` would mean something else with the second of two equal dicts.
    """
    if treedef.num_nodes == treedef.num_leaves:
        return treedef
    for node in treedef.__getstate__()[0]:  # `transform` takes ten times as long, and most dicts are in order
        made = node[-1]
        if made is not None:
            keys = node[2][1] if type(node[2]) is tuple else node[2]
            if len(keys) > 1 and not mixed_keys:
                _check_order(keys)
            if list(made) != keys:
                return treedef.transform(_dict_in_order)
    return treedef


def _check_order(keys: Sequence[Any]) -> None:
    """The keys of a dict, which optree has sorted by the names of their classes where they have no order."""
    kind = type(keys[0])
    if kind is str and type(keys[-1]) is str:  # keys of one class stand together
        return
    try:
        sorted(keys)
    except TypeError:
        raise TreeError(
            "the keys of a dict in a tree need an order, which its leaves have",
            got=f"keys of {' and '.join(sorted({type(k).__name__ for k in keys}))}: {keys}"[:200],
            expected="keys that can be sorted: all strings, or all numbers",
            fix="use keys of one type, or a list or a collections.OrderedDict in the dict's place",
        ) from None


def _dict_in_order(node: TreeDef) -> TreeDef:
    kind = node.type
    if kind is not dict and kind is not defaultdict:
        return node
    keys = node.entries()
    made = node.unflatten(keys)
    if list(made) == keys:
        return node
    ordered = dict.fromkeys(keys, 0)
    return optree.tree_structure(
        ordered if kind is dict else defaultdict(made.default_factory, ordered), namespace=NAMESPACE
    )


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves from left to right; those of dicts by sorted keys. None is not a leaf.

    >>> leaves({"b": 1, "a": (2, None)})
    [2, 1]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure of a tree without its leaves: comparable, hashable, for `unflatten`.

    >>> structure([1, 2]) == structure([3, 4]), structure([1, 2]) == structure((1, 2))
    (True, False)
    """
    return flatten(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply ``f`` leaf by leaf; ``rest`` have ``tree``'s structure or deeper, as in JAX.

    >>> map(lambda x, y: x + y, {"a": 1}, {"a": 10})
    {'a': 11}
    """
    flat, treedef = flatten(tree, is_leaf)
    columns = [flat]
    for other in rest:
        columns.append(flatten_up_to(treedef, other, "tree.map", tree, is_leaf))
    return unflatten(treedef, [f(*xs) for xs in zip(*columns, strict=True)])


def flatten_up_to(
    treedef: TreeDef, tree: Any, where: str, first: Any = None, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any]:
    """The subtrees of ``tree`` at the leaves of ``treedef``, or a `TreeError` naming the first path that differs."""
    try:
        return treedef.flatten_up_to(tree)
    except ValueError:
        flatten(tree, is_leaf)  # may hold nodes that only JAX has met so far
        try:
            return treedef.flatten_up_to(tree)
        except ValueError:
            raise TreeError(
                f"{where}: the trees differ in structure",
                got=_difference(treedef, tree, ()),
                expected=f"{treedef}",
            ) from None


def _difference(treedef: TreeDef, tree: Any, path: tuple[Any, ...]) -> str | None:
    """Where ``tree`` first leaves the structure, in words."""
    if treedef.is_leaf():
        return None
    here = f"at {keystr(path)}" if path else "at the root"
    if treedef.type is not None and type(tree) is not treedef.type:
        return f"{here}: {_kind(tree)} instead of {treedef.type.__name__}"
    if treedef.type is None:
        return None if tree is None else f"{here}: {_kind(tree)} instead of None"
    found = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    ours, theirs = treedef.entries(), list(found[2])
    if ours != theirs:
        missing, extra = [e for e in ours if e not in theirs], [e for e in theirs if e not in ours]
        words = [f"{label} {items}" for label, items in (("missing", missing), ("extra", extra)) if items]
        kind = "Dict key mismatch, " if issubclass(treedef.type, dict) else ""
        return f"{here}: {kind}{' and '.join(words) or 'other order of keys'}"
    if found[1] != optree.tree_flatten_one_level(treedef.one_level().unflatten(list(found[0])), namespace=NAMESPACE)[1]:  # pyright: ignore[reportOptionalMemberAccess]
        return f"{here}: {type(tree).__name__} with other static data"
    rows = zip(treedef.children(), found[0], _entry_keys(treedef, ours), strict=True)
    return next((d for child, sub, key in rows if (d := _difference(child, sub, (*path, key)))), None)


def _kind(x: Any) -> str:
    words = described(x)
    return words if words.startswith("an array") else type(x).__name__


def _entry_keys(treedef: TreeDef, entries: Sequence[Any]) -> list[Any]:
    kind = treedef.type
    if kind is not None and issubclass(kind, dict):
        return [DictKey(e) for e in entries]
    if kind is not None and hasattr(kind, "_fields"):
        return [GetAttrKey(n) for n in kind._fields]
    return [key_given(e) if not isinstance(e, int) else SequenceKey(e) for e in entries]


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = NOT_GIVEN,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Combine the leaves from left to right, starting from the initializer or the first leaf.

    >>> reduce(lambda a, b: a + b, {"x": 1, "y": (2, 3)}, initializer=10)
    16
    """
    first = () if initializer is NOT_GIVEN else (initializer,)
    return functools.reduce(function, leaves(tree, is_leaf), *first)


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = NOT_GIVEN,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """As `reduce` for an associative operation, in a tree of logarithmic depth.

    Args:
        identity: the result for a tree without leaves; by default that is a `TreeError`.

    >>> reduce_associative(lambda a, b: a + b, [1, 2, (3, 4)])
    10
    """
    items = leaves(tree, is_leaf)
    if not items:
        if identity is not NOT_GIVEN:
            return identity
        raise TreeError("tree.reduce_associative: no leaves", got=structure(tree), fix="give identity=...")
    return _halves(operation, items)


def _halves(operation: Callable[[Any, Any], Any], items: list[Any]) -> Any:
    middle = len(items) // 2
    return operation(_halves(operation, items[:middle]), _halves(operation, items[middle:])) if middle else items[0]


def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """True when every leaf is.

    >>> all({"a": True, "b": [True, 0]}), all([])
    (False, True)
    """
    return not [x for x in leaves(tree, is_leaf) if not x]


def transpose(outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any) -> Any:
    """A tree of trees, inside out.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    columns = [flatten(t) for t in flatten_up_to(outer_treedef, pytree_to_transpose, "tree.transpose")]
    inner = inner_treedef if inner_treedef is not None else columns[0][1]
    flat = [leaf for column, _ in columns for leaf in column]
    width, height = inner.num_leaves, outer_treedef.num_leaves
    if len(flat) != width * height:
        raise TreeError("tree.transpose: the inner trees differ", got=len(flat), expected=width * height)
    return unflatten(inner, [unflatten(outer_treedef, flat[i::width]) for i in range(width)])


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """``prefix_tree`` with each leaf repeated over the subtree of ``full_tree`` in its place.

    >>> broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    {'a': [1, 1], 'b': 2}
    """
    found = broadcast_leaves(prefix_tree, full_tree, "tree.broadcast", is_leaf)
    return unflatten(structure(full_tree, is_leaf), found)


def broadcast_leaves(prefix: Any, tree: Any, where: str, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of `broadcast`."""
    prefixes, treedef = flatten(prefix, is_leaf)
    subtrees = flatten_up_to(treedef, tree, where)
    return [p for p, sub in zip(prefixes, subtrees, strict=True) for _ in leaves(sub)]


# --- with paths ---


def flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """As `flatten`, each leaf with its path of `DictKey`, `SequenceKey`, `GetAttrKey` entries.

    Args:
        is_leaf: which nodes are leaves.
        is_leaf_takes_path: call ``is_leaf`` with a node's path and the node.

    >>> [(keystr(path), x) for path, x in flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    if is_leaf is not None and is_leaf_takes_path:
        is_leaf = _without_paths(tree, is_leaf)
    else:
        flatten(tree, is_leaf)  # adopts what JAX knows
    accessors, flat, spec = optree.tree_flatten_with_accessor(tree, is_leaf, namespace=NAMESPACE)
    return [(tuple(key_of(e) for e in a), x) for a, x in zip(accessors, flat, strict=True)], spec


def _without_paths(tree: Any, is_leaf: Callable[..., bool]) -> Callable[[Any], bool]:
    """`is_leaf` of paths and nodes as one of nodes, for one walk over `tree`: what it says of each, in order."""
    said: list[bool] = []

    def walk(path: KeyPath, x: Any) -> None:
        said.append(bool(is_leaf(path, x)))
        if not said[-1]:
            for (key,), child in (row for row in flatten_with_path(x, lambda v: v is not x)[0] if row[0]):
                walk((*path, key), child)

    walk((), tree)
    answers = iter(said)
    return lambda _: next(answers)


def leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """As `leaves`, each with its path; ``is_leaf_takes_path`` as in `flatten_with_path`.

    >>> leaves_with_path({"a": 1})
    [((DictKey(key='a'),), 1)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """As `map`; ``f`` also gets the key path, first. ``is_leaf_takes_path`` as in `flatten_with_path`.

    >>> map_with_path(lambda path, x: keystr(path), {"a": 1})
    {'a': "['a']"}
    """
    flat, treedef = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [flatten_up_to(treedef, other, "tree.map_with_path") for other in rest]
    return unflatten(treedef, [f(path, x, *xs) for (path, x), *xs in zip(flat, *columns, strict=True)])


def path_names(tree: Any, root: str) -> list[str]:
    """A readable name for each leaf, such as ``params['w']``."""
    try:
        return list(_names(structure(tree), root))
    except LookupError:
        return [root + keystr(path) for path, _ in leaves_with_path(tree)]


def _names(treedef: TreeDef, root: str) -> Iterator[str]:
    """The names of Python's own containers, for which the part of optree that knows paths need not be loaded."""
    if treedef.is_leaf():
        yield root
    elif treedef.type is not None:
        if treedef.type not in (tuple, list, dict):
            raise LookupError(treedef.type)
        for key, child in zip(treedef.entries(), treedef.children(), strict=True):
            yield from _names(child, f"{root}[{key!r}]")
