"""``tree``, ``tree_util`` and ``flatten_util``: containers of many kinds, paths, registered classes, ravelled trees.

Answers are said in what both libraries have: leaves, key paths as text, and structures by what they do.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.differential.case import Case
from benchmarks.differential.inputs import NUMBERS, Inputs

Point = namedtuple("Point", "x y")
TREES: tuple[Any, ...] = (
    3,
    None,
    [],
    (),
    {},
    (1, 2, 3),
    [1, (2, None), {"b": 3, "a": [4, 5]}],
    {"z": 1, "a": {"y": (2,), "b": None}},
    Point(1, Point([2], 3)),
    OrderedDict([("b", 1), ("a", (2, 3))]),
    defaultdict(list, {"q": [1], "p": 2}),
    {2: "two", 1: "one"},
    [None, None],
    ("text", b"bytes", 1.5, True),
    [[[[7]]]],
    {"a": 1, 2: 3},
)
LEAVES: tuple[Callable[[Any], bool] | None, ...] = (
    None,
    lambda x: x is None,
    lambda x: isinstance(x, tuple),
    lambda x: isinstance(x, dict),
    lambda x: isinstance(x, list) and len(x) < 2,
)
Made = Callable[[ModuleType], Any]


def cases(inputs: Inputs) -> Iterator[Case]:
    for face in ("tree", "tree_util"):
        yield from _faces(inputs, face)
    yield from _structures()
    yield from _classes()
    yield from _ravelled(inputs)


def _one(name: str, make: Made) -> Case:
    return Case(name, (), {}, make, ("call",))


def _told(x: Any) -> Any:
    """A tree as text: containers and their leaves."""
    return repr(x)


def _faces(inputs: Inputs, face: str) -> Iterator[Case]:
    def named(name: str) -> str:
        return f"{face}.{name}" if face == "tree" else f"{face}.tree_{name}"

    def using(name: str, f: Callable[..., Any], *args: Any) -> Case:
        """``f`` of the function, the library's ``keystr`` and ``args``."""

        def make(lib: ModuleType) -> Any:
            found = functools.reduce(getattr, named(name).split("."), lib)
            return lambda: f(found, lib.tree_util.keystr, lib, *args)

        return _one(named(name), make)

    def again(flatten: Any, keystr: Any, lib: Any, tree: Any, is_leaf: Any) -> Any:
        leaves, structure = flatten(tree, is_leaf)
        rebuilt = lib.tree.unflatten(structure, leaves)
        return _told(leaves), structure.num_leaves, structure.num_nodes, _told(rebuilt), structure == structure

    def paths(flatten: Any, keystr: Any, lib: Any, tree: Any, is_leaf: Any) -> Any:
        found = flatten(tree, is_leaf=is_leaf)
        found = found[0] if isinstance(found, tuple) else found
        plain = [(keystr(path), keystr(path, simple=True, separator="/"), repr(leaf)) for path, leaf in found]
        return plain, [repr(key) for path, _ in found for key in path], [type(k).__name__ for p, _ in found for k in p]

    for tree in TREES:
        is_leaf = inputs.choice(LEAVES)
        for chosen in (None, is_leaf):
            yield using("flatten", again, tree, chosen)
            yield using("leaves", lambda f, k, lib, t, i: _told(f(t, i)), tree, chosen)
            yield using("flatten_with_path", paths, tree, chosen)
            yield using("leaves_with_path", paths, tree, chosen)
            yield using("map", lambda f, k, lib, t, i: _told(f(lambda x: [x], t, is_leaf=i)), tree, chosen)
            yield using("map", lambda f, k, lib, t, i: _told(f(lambda x, y: (x, y), t, t, is_leaf=i)), tree, chosen)
            named_map = lambda f, k, lib, t, i: _told(f(lambda path, x: (k(path), x), t, is_leaf=i))
            yield using("map_with_path", named_map, tree, chosen)
            yield using("structure", lambda f, k, lib, t, i: (f(t, i).num_leaves, f(t) == f(t, i)), tree, chosen)
            yield using("reduce", lambda f, k, lib, t, i: _told(f(lambda a, x: (a, x), t, 0, is_leaf=i)), tree, chosen)
            yield using("all", lambda f, k, lib, t, i: f(t, is_leaf=i), tree, chosen)
        yield using("reduce", lambda f, k, lib, t: _told(f(lambda a, x: (a, x), t)), tree)
        associative = lambda f, k, lib, t: _told(f(lambda a, b: f"({a}{b})", t, identity="-"))
        yield using("reduce_associative", associative, tree)
        yield using("reduce_associative", lambda f, k, lib, t: _told(f(lambda a, b: f"({a}{b})", t)), tree)
        yield using("broadcast", lambda f, k, lib, t: _told(f(0, t)), tree)
        yield using("broadcast", lambda f, k, lib, t: _told(f(t, t)), tree)
        yield using("unflatten", lambda f, k, lib, t: _told(f(lib.tree.structure(t), range(50))), tree)
        yield using("unflatten", lambda f, k, lib, t: _told(f(lib.tree.structure(t), lib.tree.leaves(t))), tree)
        for outer in ((0, 0), {"a": 0, "b": [0]}, None):
            whole = lambda f, k, lib, o, t: _told(
                f(lib.tree.structure(o), lib.tree.structure(t), lib.tree.map(lambda _: t, o))
            )
            yield using("transpose", whole, outer, tree)
            inferred = lambda f, k, lib, o, t: _told(f(lib.tree.structure(o), None, lib.tree.map(lambda _: t, o)))
            yield using("transpose", inferred, outer, tree)
    pairs = (
        [(1, [2, 3]), (4, 5)],
        [{"a": 1}, {"b": 2}],
        [[1, 2], (3, 4)],
        [[1, 2], [3]],
        [(1, 2), (None, 3)],
        [1, (2, 3)],
    )
    for first, second in (*pairs, *(pair[::-1] for pair in pairs)):
        yield using("map", lambda f, k, lib, a, b: _told(f(lambda x, y: (x, y), a, b)), first, second)
        yield using("broadcast", lambda f, k, lib, a, b: _told(f(a, b)), first, second)
    yield using("broadcast", lambda f, k, lib: _told(f((1, 2), ([0, 0], {"a": 0}))))
    yield using("reduce", lambda f, k, lib: f(operator.add, [1, [2, (3,)]]))
    by_path = lambda f, k, lib: _told(
        f({"a": {"b": 1}, "c": 2}, is_leaf=lambda path, x: k(path) == "['a']", is_leaf_takes_path=True)
    )
    yield using("leaves_with_path", lambda f, k, lib: len(by_path(f, k, lib)))


def _structures() -> Iterator[Case]:
    util = lambda f: lambda lib: lambda: f(lib.tree_util, lib)
    for tree in TREES:
        t = tree
        children = util(
            lambda u, lib, t=t: [
                (c.num_leaves, u.treedef_is_leaf(c)) for c in u.treedef_children(lib.tree.structure(t))
            ]
        )
        yield _one("tree_util.treedef_children", children)
        yield _one("tree_util.treedef_is_leaf", util(lambda u, lib, t=t: u.treedef_is_leaf(lib.tree.structure(t))))
        joined = util(lambda u, lib, t=t: _told(u.treedef_tuple([lib.tree.structure(t)] * 2).unflatten(range(20))))
        yield _one("tree_util.treedef_tuple", joined)
        yield _one("tree_util.all_leaves", util(lambda u, lib, t=t: u.all_leaves([t, 1])))
        yield _one("tree_util.is_tree_node", util(lambda u, lib, t=t: u.is_tree_node(type(t))))
        yield _one(
            "tree_util.flatten_one_level", util(lambda u, lib, t=t: [_told(x) for x in u.flatten_one_level(t)[0]])
        )
        keyed = util(lambda u, lib, t=t: [(u.keystr((k,)), _told(x)) for k, x in u.flatten_one_level_with_keys(t)[0]])
        yield _one("tree_util.flatten_one_level_with_keys", keyed)
        methods = util(lambda u, lib, t=t: _methods(lib.tree.structure(t), t))
        yield _one("tree_util.PyTreeDef", methods)
        hashed = util(lambda u, lib, t=t: hash(lib.tree.structure(t)) == hash(lib.tree.structure(lib.tree.map(str, t))))
        yield _one("tree_util.PyTreeDef", hashed)
    for name, value in (
        ("DictKey", "a"),
        ("DictKey", 3),
        ("SequenceKey", 2),
        ("GetAttrKey", "field"),
        ("FlattenedIndexKey", 1),
    ):
        key = util(
            lambda u, lib, n=name, v=value: (
                repr(getattr(u, n)(v)),
                str(getattr(u, n)(v)),
                u.keystr((getattr(u, n)(v),)),
            )
        )
        yield _one(f"tree_util.{name}", key)
        same = util(
            lambda u, lib, n=name, v=value: (
                getattr(u, n)(v) == getattr(u, n)(v),
                len({getattr(u, n)(v)} | {getattr(u, n)(v)}),
            )
        )
        yield _one(f"tree_util.{name}", same)
    yield _one("tree_util.PyTreeDef", util(lambda u, lib: lib.tree.structure((1, 2)).node_data()[0].__name__))
    for name in ("leaves", "map", "structure"):
        yield _one(f"tree.{name}", util(lambda u, lib, n=name: _of_deque(lib, n)))
    path = lambda u: (u.DictKey("a"), u.SequenceKey(0), u.GetAttrKey("b"), u.FlattenedIndexKey(3))
    for options in ({}, {"simple": True}, {"separator": "."}, {"simple": True, "separator": "/"}):
        yield _one("tree_util.keystr", util(lambda u, lib, o=options: (u.keystr(path(u), **o), u.keystr((), **o))))
    yield _one("tree_util.KeyPath", util(lambda u, lib: str(u.KeyPath is not None)))
    yield _one(
        "tree_util.default_registry", util(lambda u, lib: [_told(x) for x in u.default_registry.flatten([1, (2,)])[0]])
    )


def _of_deque(lib: Any, name: str) -> Any:
    tree = deque([1, [2]])
    return _told(lib.tree.map(str, tree)) if name == "map" else getattr(getattr(lib.tree, name)(tree), "num_leaves", 0)


def _methods(structure: Any, tree: Any) -> Any:
    up_to = structure.flatten_up_to(tree)
    children = [c.num_leaves for c in structure.children()]
    return structure.num_leaves, structure.num_nodes, _told(up_to), children


def _classes() -> Iterator[Case]:
    def with_class(name: str, register: Callable[[Any, type], Any]) -> Case:
        def make(lib: ModuleType) -> Any:
            def f() -> Any:
                @dataclass(frozen=True)
                class Pair:
                    a: Any
                    b: Any
                    kind: str = "k"

                    def tree_flatten(self) -> Any:
                        return (self.a, self.b), self.kind

                    def tree_flatten_with_keys(self) -> Any:
                        u = lib.tree_util
                        return ((u.GetAttrKey("a"), self.a), (u.DictKey("B"), self.b)), self.kind

                    @classmethod
                    def tree_unflatten(cls, kind: str, children: Any) -> Any:
                        return cls(*children, kind)

                given = register(lib.tree_util, Pair)
                x = {"p": Pair(1, [2, 3], "odd")}
                paths = [lib.tree_util.keystr(p) for p, _ in lib.tree.leaves_with_path(x)]
                doubled = lib.tree.map(lambda v: v * 2 if isinstance(v, int) else v, x)["p"]
                same = lib.tree.structure(x) == lib.tree.structure({"p": Pair(1, [2, 3], "even")})
                return given is Pair or given is None, paths, (_told(doubled.a), _told(doubled.b), doubled.kind), same

            return f

        return _one(f"tree_util.{name}", make)

    flat = lambda p: ((p.a, p.b), p.kind)
    yield with_class("register_pytree_node", lambda u, c: u.register_pytree_node(c, flat, c.tree_unflatten))
    yield with_class(
        "register_pytree_node",
        lambda u, c: u.register_pytree_node(c, flat, c.tree_unflatten, lambda p: p.tree_flatten_with_keys()),
    )
    yield with_class("register_pytree_node_class", lambda u, c: u.register_pytree_node_class(c))
    keyed = lambda p: p.tree_flatten_with_keys()
    yield with_class("register_pytree_with_keys", lambda u, c: u.register_pytree_with_keys(c, keyed, c.tree_unflatten))
    yield with_class("register_pytree_with_keys_class", lambda u, c: u.register_pytree_with_keys_class(c))
    yield with_class("register_dataclass", lambda u, c: u.register_dataclass(c, ["a", "b"], ["kind"]))
    yield with_class("register_dataclass", lambda u, c: u.register_dataclass(c, ["a"], ["b", "kind"]))
    yield with_class("register_dataclass", lambda u, c: u.register_dataclass(c))
    yield with_class("register_dataclass", lambda u, c: u.register_dataclass(c, ["a"], ["b"], drop_fields=["kind"]))
    yield with_class("register_dataclass", lambda u, c: u.register_dataclass(c, ["a"], ["b"]))
    yield with_class("register_static", lambda u, c: u.register_static(c))
    yield with_class(
        "register_pytree_node_class", lambda u, c: (u.register_pytree_node_class(c), u.register_pytree_node_class(c))
    )

    def static(lib: ModuleType) -> Any:
        def f() -> Any:
            x = lib.tree.static(a=1, b="t")
            return lib.tree.leaves([x, 2]), x.a, x.b

        return f

    yield _one("tree.static", static)

    def partial(lib: ModuleType) -> Any:
        def f() -> Any:
            p = lib.tree_util.Partial(operator.add, 3)
            q = lib.tree_util.Partial(p, 4)
            keyed = lib.tree_util.Partial(dict, a=1, b=[2, 3])
            leaves = [lib.tree.leaves(x) for x in (p, q, keyed)]
            return (
                leaves,
                q(),
                p(2),
                keyed(c=5),
                q.args,
                [lib.tree_util.keystr(k) for k, _ in lib.tree.leaves_with_path(keyed)],
            )

        return f

    yield _one("tree_util.Partial", partial)
    called = lambda lib: lambda x: lib.jit(lambda g, y: g(y))(lib.tree_util.Partial(lib.numpy.add, x), x)
    yield Case("tree_util.Partial", (np.ones(3, "float32"),), {}, called)


def _ravelled(inputs: Inputs) -> Iterator[Case]:
    def back(lib: ModuleType) -> Any:
        def f(tree: Any) -> Any:
            flat, unravel = lib.flatten_util.ravel_pytree(tree)
            return flat, unravel(flat)

        return f

    def other(lib: ModuleType) -> Any:
        def f(tree: Any) -> Any:
            flat, unravel = lib.flatten_util.ravel_pytree(tree)
            return unravel(flat.astype("float16"))

        return f

    for _ in range(12):
        tree = {"a": inputs.array(dtypes=NUMBERS), "b": (inputs.array(dtypes=NUMBERS), [inputs.array((2,), "float32")])}
        yield Case("flatten_util.ravel_pytree", (tree,), {}, back)
    for dtype in NUMBERS:
        yield Case("flatten_util.ravel_pytree", (inputs.array(dtypes=dtype),), {}, back, ("call", "jit", "vjp"))
    for tree in ((), None, [np.zeros((0, 3), "float32")], 1.0, [1, 2.0], {"a": True}):
        yield Case("flatten_util.ravel_pytree", (tree,), {}, back, ("call", "jit"))
    yield Case("flatten_util.ravel_pytree", ([np.ones(2, "float32")],), {}, other, ("call",))
