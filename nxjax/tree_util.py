"""`nx.tree_util`: `nx.tree` under the names of `jax.tree_util`, and registration of new kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import optree

from nxjax import tree as _names
from nxjax.errors import Shown, TreeError
from nxjax.trace import tree as _tree
from nxjax.trace.tree import TreeDef as PyTreeDef
from nxjax.trace.tree_keys import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey, keystr
from nxjax.trace.tree_nodes import (
    known_to_jax,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from nxjax.trace.tree_partial import Partial

tree_all = _names.all
tree_broadcast = _names.broadcast
tree_flatten = _names.flatten
tree_flatten_with_path = _names.flatten_with_path
tree_leaves = _names.leaves
tree_leaves_with_path = _names.leaves_with_path
tree_map = _names.map
tree_map_with_path = _names.map_with_path
tree_reduce = _names.reduce
tree_reduce_associative = _names.reduce_associative
tree_structure = _names.structure
tree_transpose = _names.transpose
tree_unflatten = _names.unflatten

KeyEntry = DictKey | SequenceKey | GetAttrKey | FlattenedIndexKey


def all_leaves(iterable: Iterable[Any], is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """True when no item is a node.

    >>> all_leaves([1, 2]), all_leaves([1, (2, 3)])
    (True, False)
    """
    return all(_tree.structure(x, is_leaf).is_leaf() for x in iterable)


def is_tree_node(typ: Any) -> bool:
    """True for types that `tree_flatten` flattens: containers and registered nodes, including ``NoneType``.

    >>> is_tree_node(list), is_tree_node(int)
    (True, False)
    """
    if not isinstance(typ, type):
        return False
    return optree.register_pytree_node.get(typ, namespace=_tree.NAMESPACE) is not None or known_to_jax(typ)


def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """Children of a node and its static data.

    Raises:
        TreeError: ``tree`` is a leaf.

    >>> flatten_one_level({"b": 1, "a": [2, 3]})[0]
    [[2, 3], 1]
    """
    keyed, aux = flatten_one_level_with_keys(tree)
    return [child for _, child in keyed], aux


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """As `flatten_one_level`, each child with its key.

    Raises:
        TreeError: ``tree`` is a leaf.

    >>> flatten_one_level_with_keys({"a": [2, 3]})[0]
    [(DictKey(key='a'), [2, 3])]
    """
    if _tree.structure(tree).is_leaf():
        raise TreeError("flatten_one_level: not a node", got=type(tree).__name__, expected="a container")
    keyed = _tree.leaves_with_path(tree, is_leaf=lambda x: x is not tree)
    aux = optree.tree_flatten_one_level(tree, namespace=_tree.NAMESPACE).metadata
    return [(path[0], child) for path, child in keyed], aux


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """True for the structure of a single leaf, and of an empty node.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return treedef.num_nodes == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children.

    >>> len(treedef_children(tree_structure([1, (2, 3)])))
    2
    """
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees with these structures.

    >>> treedef_tuple([tree_structure(1), tree_structure([2])]) == tree_structure((1, [2]))
    True
    """
    return optree.treespec_tuple(treedefs, namespace=_tree.NAMESPACE)


class _Registry(Shown):
    """The kinds of tree nodes, with the methods of JAX's registry."""

    def flatten(self, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], PyTreeDef]:
        """The leaves of ``tree`` and its structure."""
        return _names.flatten(tree, is_leaf)

    def flatten_one_level(self, tree: Any) -> tuple[Iterable[Any], Any] | None:
        """The children of a node and what else it holds; None for a leaf."""
        return None if _tree.structure(tree).is_leaf() else flatten_one_level(tree)

    def register_node(self, type: Any, to_iterable: Callable[..., Any], from_iterable: Callable[..., Any]) -> None:
        """As `register_pytree_node`."""
        register_pytree_node(type, to_iterable, from_iterable)


default_registry = _Registry()


def path_names(tree: Any, root: str = "") -> Sequence[str]:
    """A readable name for each leaf, such as ``['layers'][0].w``.

    >>> path_names({"layers": [1, 2]})
    ["['layers'][0]", "['layers'][1]"]
    """
    return _tree.path_names(tree, root)


__all__ = [
    "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "Partial", "PyTreeDef", "SequenceKey",
    "all_leaves", "default_registry", "flatten_one_level", "flatten_one_level_with_keys", "is_tree_node", "keystr",
    "path_names", "register_dataclass", "register_pytree_node", "register_pytree_node_class",
    "register_pytree_with_keys", "register_pytree_with_keys_class", "register_static", "tree_all", "tree_broadcast",
    "tree_flatten", "tree_flatten_with_path", "tree_leaves", "tree_leaves_with_path", "tree_map",
    "tree_map_with_path", "tree_reduce", "tree_reduce_associative", "tree_structure", "tree_transpose",
    "tree_unflatten", "treedef_children", "treedef_is_leaf", "treedef_tuple",
]  # fmt: skip
