"""Which classes are nodes of trees: those that programs register here, and those that they have registered with JAX."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import optree

from nxjax.errors import TreeError
from nxjax.trace.tree_keys import GetAttrKey

NAMESPACE: Final = "nxjax"
C = TypeVar("C", bound=type)


def register_pytree_node(
    nodetype: Any,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make ``nodetype`` a node: ``flatten_func(x) -> (children, aux)``, ``unflatten_func(aux, children) -> x``.

    ``aux`` is part of the structure's equality and must be hashable.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda aux, children: Pair(*children))
    >>> nx.tree.map(lambda x: 10 * x, Pair(1, 2)).b
    20
    """

    def flatten_node(node: Any) -> tuple[Any, Any, Any]:
        if flatten_with_keys_func is None:
            children, aux = flatten_func(node)
            return tuple(children), aux, None
        keyed, aux = flatten_with_keys_func(node)
        keyed = tuple(keyed)
        return tuple(c for _, c in keyed), aux, tuple(k for k, _ in keyed)

    optree.register_pytree_node(nodetype, flatten_node, unflatten_func, namespace=NAMESPACE)


def register_node(
    nodetype: Any,
    flatten_func: Callable[[Any], tuple[tuple[Any, ...], Any, tuple[Any, ...]]],
    unflatten_func: Callable[[Any, Any], Any],
) -> None:
    """As `register_pytree_node`, with no step in between: ``flatten_func(x) -> (children, aux, keys)``, all tuples."""
    optree.register_pytree_node(nodetype, flatten_func, unflatten_func, namespace=NAMESPACE)


def register_pytree_with_keys(
    nodetype: Any,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Any], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """As `register_pytree_node`, the children with their path keys.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> keyed = lambda p: (((GetAttrKey("a"), p.a), (GetAttrKey("b"), p.b)), None)
    >>> register_pytree_with_keys(Pair, keyed, lambda aux, children: Pair(*children))
    >>> [nx.tree_util.keystr(path) for path, _ in nx.tree.leaves_with_path(Pair(1, 2))]
    ['.a', '.b']
    """

    def without_keys(node: Any) -> tuple[Iterable[Any], Any]:
        keyed, aux = flatten_with_keys(node)
        return tuple(c for _, c in keyed), aux

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: C) -> C:
    """Class decorator for classes with ``tree_flatten`` and ``tree_unflatten``.

    >>> @register_pytree_node_class
    ... class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten(self):
    ...         return (self.x,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children):
    ...         return cls(*children)
    >>> nx.tree.leaves(Box([1, 2]))
    [1, 2]
    """
    register_pytree_node(cls, lambda x: x.tree_flatten(), lambda aux, children: cls.tree_unflatten(aux, children))  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys_class(cls: C) -> C:
    """Class decorator for classes with ``tree_flatten_with_keys`` and ``tree_unflatten``.

    >>> @register_pytree_with_keys_class
    ... class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    ...     def tree_flatten_with_keys(self):
    ...         return ((GetAttrKey("x"), self.x),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, aux, children):
    ...         return cls(*children)
    >>> [nx.tree_util.keystr(path) for path, _ in nx.tree.leaves_with_path(Box([5]))]
    ['.x[0]']
    """
    register_pytree_with_keys(
        cls, lambda x: x.tree_flatten_with_keys(), lambda aux, children: cls.tree_unflatten(aux, children)
    )  # type: ignore[attr-defined]
    return cls


def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a node: ``data_fields`` are children, ``meta_fields`` part of the structure.

    As a decorator without field lists, meta fields are those with ``field(metadata=dict(static=True))``.

    Raises:
        TreeError: the fields named are not those of the dataclass.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     name: str = static(default="dense")
    >>> nx.tree.leaves(Layer(1.0))
    [1.0]
    """
    if nodetype is None:
        return functools.partial(
            register_dataclass, data_fields=data_fields, meta_fields=meta_fields, drop_fields=drop_fields
        )
    import dataclasses  # most programs register none

    if data_fields is None or meta_fields is None:
        fields = [f for f in dataclasses.fields(nodetype) if f.init]
        data_fields = [f.name for f in fields if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
    data, meta = tuple(data_fields), tuple(meta_fields)
    if dataclasses.is_dataclass(nodetype):
        known = {f.name for f in dataclasses.fields(nodetype) if f.init} - set(drop_fields)
        if known != {*data, *meta}:
            raise TreeError(
                f"register_dataclass: fields of {nodetype}", got=sorted({*data, *meta}), expected=sorted(known)
            )

    build: Callable[..., Any] = nodetype  # pyright: ignore[reportAssignmentType]

    def with_keys(x: Any) -> Any:
        return [(GetAttrKey(n), getattr(x, n)) for n in data], tuple(getattr(x, n) for n in meta)

    def flat(x: Any) -> Any:
        return [getattr(x, n) for n in data], tuple(getattr(x, n) for n in meta)

    def unflat(aux: Any, children: Any) -> Any:
        return build(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True)))

    register_pytree_with_keys(nodetype, with_keys, unflat, flat)
    return nodetype


def static(**kwargs: Any) -> Any:
    """`dataclasses.field` for a field that `register_dataclass` makes part of the structure.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Rate:
    ...     value: float
    ...     unit: str = static()
    >>> nx.tree.structure(Rate(1.0, "Hz")) == nx.tree.structure(Rate(2.0, "Hz"))
    True
    >>> nx.tree.structure(Rate(1.0, "Hz")) == nx.tree.structure(Rate(1.0, "s"))
    False
    """
    from dataclasses import field

    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return field(metadata=metadata, **kwargs)


def register_static(cls: C) -> C:
    """Class decorator: instances are part of the structure and have no leaves; they must hash.

    >>> @register_static
    ... class Name(str):
    ...     pass
    >>> nx.tree.leaves([Name("x"), 1])
    [1]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda aux, _: aux)
    return cls


# Types met as leaves that JAX's registry does not open.
leaf_kinds: set[type] = set()


def adopt_from_jax(candidates: Sequence[Any], is_leaf: Callable[[Any], bool] | None) -> bool:
    """Register what JAX's registry can open among ``candidates``; True when something new was found."""
    import jax

    registry: Any = jax.tree_util.default_registry
    adopted = False
    for kind in {type(x) for x in candidates} - leaf_kinds:
        node = next(x for x in candidates if type(x) is kind)
        if is_leaf is not None and is_leaf(node):
            continue  # a leaf in this call on purpose; another call may flatten it
        leaf_kinds.add(kind)
        if kind.__module__.partition(".")[0] in ("builtins", "numpy", "jaxlib"):
            continue
        if registry.flatten_one_level(node) is not None:
            _register_jax_node(kind, registry, jax.tree_util)
            adopted = True
    return adopted


def known_to_jax(kind: type) -> bool:
    """True when JAX, if it is imported, opens values of this type."""
    if "jax._src.tree_util" not in sys.modules:
        return False
    import jax

    return bool(jax.tree_util.default_registry.is_node(kind))  # pyright: ignore


def _register_jax_node(kind: type, registry: Any, jax_tree: Any) -> None:
    leaf = jax_tree.tree_structure(0)

    def rebuild(aux: Any, children: Any) -> Any:
        # JAX keeps unflatten functions to itself, so a one-level structure is made for it to rebuild from.
        items = list(children)
        spec = jax_tree.PyTreeDef.from_node_data_and_children(registry, (kind, aux), [leaf] * len(items))
        return spec.unflatten(items)

    register_pytree_node(kind, registry.flatten_one_level, rebuild, registry.flatten_one_level_with_keys)
