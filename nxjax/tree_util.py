"""`nx.tree_util`: `nx.tree` under the names of `jax.tree_util`, and registration of new kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import optree

from nxjax.errors import TreeError
from nxjax.trace import tree as _tree
from nxjax.trace.tree import (
    DictKey as DictKey,
)
from nxjax.trace.tree import (
    FlattenedIndexKey as FlattenedIndexKey,
)
from nxjax.trace.tree import (
    GetAttrKey as GetAttrKey,
)
from nxjax.trace.tree import (
    KeyPath as KeyPath,
)
from nxjax.trace.tree import (
    Partial as Partial,
)
from nxjax.trace.tree import (
    SequenceKey as SequenceKey,
)
from nxjax.trace.tree import (
    TreeDef as PyTreeDef,
)
from nxjax.trace.tree import (
    keystr as keystr,
)
from nxjax.trace.tree import (
    register_dataclass as register_dataclass,
)
from nxjax.trace.tree import (
    register_pytree_node as register_pytree_node,
)
from nxjax.trace.tree import (
    register_pytree_node_class as register_pytree_node_class,
)
from nxjax.trace.tree import (
    register_pytree_with_keys as register_pytree_with_keys,
)
from nxjax.trace.tree import (
    register_pytree_with_keys_class as register_pytree_with_keys_class,
)
from nxjax.trace.tree import (
    register_static as register_static,
)

KeyEntry = DictKey | SequenceKey | GetAttrKey | FlattenedIndexKey


def all_leaves(iterable: Iterable[Any], is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """True when no item is a node.

    >>> all_leaves([1, 2]), all_leaves([1, (2, 3)])
    (True, False)
    """
    return all(treedef_is_leaf(_tree.structure(x, is_leaf)) for x in iterable)


def is_tree_node(x: Any) -> bool:
    """True for what `tree_flatten` opens: containers and registered nodes, None included."""
    return not treedef_is_leaf(_tree.structure(x))


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
    """As `flatten_one_level`, each child with its key."""
    if not is_tree_node(tree):
        raise TreeError("flatten_one_level: not a node", got=type(tree).__name__, expected="a container")
    keyed = _tree.leaves_with_path(tree, is_leaf=lambda x: x is not tree)
    aux = optree.tree_flatten_one_level(tree, namespace=_tree.NAMESPACE).metadata
    return [(path[0], child) for path, child in keyed], aux


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """True for the structure of a single leaf."""
    return treedef.is_leaf()


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children."""
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees with these structures."""
    return optree.treespec_tuple(treedefs, namespace=_tree.NAMESPACE)


def path_names(tree: Any, root: str = "") -> Sequence[str]:
    """A readable name for each leaf, such as ``['layers'][0].w``."""
    return _tree.path_names(tree, root)
