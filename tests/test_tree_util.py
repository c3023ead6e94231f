"""tree, tree_util and flatten_util against JAX's."""

import collections
import dataclasses
import functools

import jax
import jax.flatten_util
import jax.tree_util as jtu
import numpy as np
import pytest

import nxjax as nx
from nxjax import tree_util
from nxjax.errors import DtypeError, ShapeError, TreeError

Point = collections.namedtuple("Point", "x y")


class Pair:
    def __init__(self, a, b, tag):
        self.a, self.b, self.tag = a, b, tag


jtu.register_pytree_with_keys(
    Pair,
    lambda p: (((jtu.GetAttrKey("a"), p.a), (jtu.GetAttrKey("b"), p.b)), p.tag),
    lambda tag, children: Pair(*children, tag),
)


class Box:
    def __init__(self, x):
        self.x = x


jtu.register_pytree_node(Box, lambda b: ((b.x,), None), lambda _, children: Box(*children))


@jtu.register_dataclass
@dataclasses.dataclass
class Layer:
    w: int
    b: int
    name: str = dataclasses.field(metadata={"static": True}, default="dense")


TREES = [
    1,
    None,
    (),
    {"b": 1, "a": (2, [3, None])},
    Point(1, {"z": 2, "y": 3}),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {"b": 1, "a": 2}),
    [Pair(1, {"k": 2}, "t"), Box([3, 4]), Layer(5, 6, "conv")],
    jtu.Partial(max, 1, default=3),
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_leaves_and_paths_are_jax_s(tree):
    assert nx.tree.leaves(tree) == jax.tree.leaves(tree)
    ours = [(tree_util.keystr(p), x) for p, x in nx.tree.leaves_with_path(tree)]
    assert ours == [(jtu.keystr(p), x) for p, x in jax.tree.leaves_with_path(tree)]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_unflatten_is_the_inverse(tree):
    leaves, treedef = nx.tree.flatten(tree)
    again = nx.tree.unflatten(treedef, leaves)
    assert type(again) is type(tree)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert nx.tree.structure(again) == treedef


def test_static_data_of_a_jax_node_is_kept_and_compared():
    doubled = nx.tree.map(lambda x: 2 * x, Pair(1, 2, "tag"))
    assert (doubled.a, doubled.b, doubled.tag) == (2, 4, "tag")
    assert nx.tree.structure(Layer(1, 2, "x")) == nx.tree.structure(Layer(3, 4, "x"))
    assert nx.tree.structure(Layer(1, 2, "x")) != nx.tree.structure(Layer(3, 4, "y"))


def test_a_jax_node_kept_whole_once_is_opened_the_next_time():
    class Late:
        def __init__(self, x):
            self.x = x

    jtu.register_pytree_node(Late, lambda n: ((n.x,), None), lambda _, c: Late(*c))
    assert nx.tree.leaves([Late(1)], is_leaf=lambda n: isinstance(n, Late)) != [1]
    assert nx.tree.leaves([Late(1)]) == [1]


def test_map_takes_deeper_trees_after_the_first():
    assert nx.tree.map(lambda x, y: (x, y), {"a": 1}, {"a": [2, 3]}) == {"a": (1, [2, 3])}


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ({"a": [1, 2]}, {"a": (1, 2)}, r"\['a'\]: tuple instead of list"),
        (
            {"a": [1, {"k": 1, "l": 2}]},
            {"a": [1, {"k": 2, "m": 3}]},
            r"\['a'\]\[1\]: Dict key mismatch, missing \['l'\] and extra \['m'\]",
        ),
        (Point(1, [2]), Point(1, 2), r"\.y: int instead of list"),
        ((1, None), (1, 2), r"\[1\]: int instead of NoneType"),
        ([1, 2, 3], [1, 2], r"root: missing \[2\]"),
        (Pair(1, 2, "m"), Pair(1, 2, "n"), "Pair with other static data"),
    ],
)
def test_trees_that_differ_are_named_with_their_path(first, second, where):
    with pytest.raises(TreeError, match=where):
        nx.tree.map(lambda x, y: x, first, second)
    with pytest.raises(ValueError, match="tree"):
        nx.tree.map(lambda x, y: x, first, second)


def test_reduce_all_broadcast_transpose():
    tree = {"a": 1, "b": (2, 3)}
    assert nx.tree.reduce(lambda a, b: a + b, tree) == 6
    assert nx.tree.reduce(lambda a, b: a + b, tree, 10) == 16
    assert nx.tree.reduce_associative(lambda a, b: a + b, list("abcdefg")) == "abcdefg"
    assert nx.tree.reduce_associative(lambda a, b: f"({a}{b})", list("abcde")) == "((ab)(c(de)))"
    assert nx.tree.reduce_associative(max, (), identity=0) == 0
    with pytest.raises(TreeError, match="no leaves"):
        nx.tree.reduce_associative(max, ())
    assert not nx.tree.all({"a": True, "b": False})
    assert nx.tree.broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0}) == jax.tree.broadcast(
        {"a": 1, "b": 2}, {"a": [0, 0], "b": 0}
    )
    outer, inner = [{"x": 1, "y": 2}, {"x": 3, "y": 4}], {"x": 0, "y": 0}
    got = nx.tree.transpose(nx.tree.structure([0, 0]), nx.tree.structure(inner), outer)
    assert got == jax.tree.transpose(jax.tree.structure([0, 0]), jax.tree.structure(inner), outer)


def test_map_with_path():
    got = nx.tree.map_with_path(lambda p, x, y: (tree_util.keystr(p), x + y), {"a": [1]}, {"a": [2]})
    assert got == {"a": [("['a'][0]", 3)]}


def test_registration_of_our_own():
    @tree_util.register_pytree_node_class
    class Own:
        def __init__(self, x):
            self.x = x

        def tree_flatten(self):
            return (self.x,), "aux"

        @classmethod
        def tree_unflatten(cls, aux, children):
            assert aux == "aux"
            return cls(*children)

    assert nx.tree.map(lambda x: x + 1, Own(1)).x == 2
    flat = tree_util.register_pytree_node_class(dataclasses.make_dataclass("Flat", "x", bases=(Own,), init=False))(1)
    assert [tree_util.keystr(p) for p, _ in nx.tree.leaves_with_path(flat)] == ["[<flat index 0>]"]

    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Model:
        w: int
        kind: str = nx.tree.static(default="linear")

    leaves, _ = nx.tree.flatten_with_path(Model(1))
    assert [(tree_util.keystr(p), x) for p, x in leaves] == [(".w", 1)]
    with pytest.raises(TreeError, match="fields"):
        tree_util.register_dataclass(Model, ["w"], [])

    @tree_util.register_static
    class Config:
        pass

    assert nx.tree.leaves(Config()) == []


def test_partial_is_a_node():
    p = tree_util.Partial(lambda a, b, c: a + b + c, 1, c=3)
    assert nx.tree.leaves(p) == [1, 3]
    assert nx.tree.map(lambda x: 10 * x, p)(5) == 45
    assert isinstance(p, functools.partial)
    # What a partial binds that is given as the function is no leaf: it may be a static thing.
    q = tree_util.Partial(functools.partial(pow, 2), 5)
    assert nx.tree.leaves(q) == [5] and q() == 32 and q.args == (5,)
    assert nx.tree.structure(q) == nx.tree.structure(tree_util.Partial(q.func.partial, 6))
    assert "pow" in repr(q)


def test_one_level():
    assert tree_util.flatten_one_level({"b": 1, "a": [2]})[0] == [[2], 1]
    keyed, aux = tree_util.flatten_one_level_with_keys(Pair(1, None, "t"))
    assert [tree_util.keystr((k,)) for k, _ in keyed] == [".a", ".b"]
    assert aux == "t"
    with pytest.raises(TreeError, match="not a node"):
        tree_util.flatten_one_level(3)
    assert tree_util.is_tree_node(type(None)) and tree_util.is_tree_node(Pair) and not tree_util.is_tree_node(int)
    assert tree_util.all_leaves([1, 2]) and not tree_util.all_leaves([1, None])
    treedef = tree_util.treedef_tuple([nx.tree.structure(1), nx.tree.structure([1, 2])])
    assert treedef == nx.tree.structure((0, [0, 0]))
    assert [tree_util.treedef_is_leaf(c) for c in tree_util.treedef_children(treedef)] == [True, False]
    assert tree_util.treedef_is_leaf(nx.tree.structure(()))


def test_keystr_simple():
    path = (tree_util.DictKey("a"), tree_util.SequenceKey(0), tree_util.GetAttrKey("w"))
    assert tree_util.keystr(path) == "['a'][0].w"
    assert tree_util.keystr(path, simple=True, separator="/") == "a/0/w"


def test_ravel_pytree():
    from nxjax.flatten_util import ravel_pytree

    tree = {"a": np.arange(2, dtype=np.float32), "b": np.ones((2, 2), np.float32)}
    vector, unravel = ravel_pytree(tree)
    want, _ = jax.flatten_util.ravel_pytree(tree)
    np.testing.assert_array_equal(np.asarray(vector), np.asarray(want))
    again = unravel(vector * 2)
    assert again["b"].shape == (2, 2)
    assert float(again["a"][1]) == 2.0
    with pytest.raises(ShapeError, match="length"):
        unravel(vector[1:])
    with pytest.raises(DtypeError, match="dtype"):
        unravel(vector.astype("int32"))
    mixed, back = ravel_pytree((np.int32(1), np.float32(2)))
    assert mixed.dtype == np.float32
    assert back(mixed)[0].dtype == np.int32
    assert ravel_pytree(())[0].shape == (0,)
    # A Python number keeps its digits beside narrower arrays.
    for tree in ({"a": np.ones(1, "float16"), "c": 1.001}, {"i": np.int8(3), "j": 300}, {"b": True, "f": 1.5}):
        vector, back = ravel_pytree(tree)
        want, _ = jax.flatten_util.ravel_pytree(tree)
        assert (vector.dtype, vector.tolist()) == (want.dtype, want.tolist())
        assert [x.dtype for x in tree_util.tree_leaves(back(vector))] == [
            nx.dtypes.result_type(x) for x in tree_util.tree_leaves(tree)
        ]


def test_every_name_of_jax_is_here():
    import jax

    missing = [n for n in dir(jax.tree_util) if not n.startswith("_") and not hasattr(tree_util, n)]
    assert not missing
    assert tree_util.tree_map(lambda x: x + 1, {"a": [1, 2]}) == {"a": [2, 3]}


def test_the_default_registry():
    registry = tree_util.default_registry
    leaves, treedef = registry.flatten({"a": 1, "b": None})
    assert leaves == [1] and treedef == tree_util.tree_structure({"a": 1, "b": None})
    assert list(registry.flatten_one_level((1, [2]))[0]) == [1, [2]] and registry.flatten_one_level(1) is None


def test_leaves_by_path():
    tree = {"a": [1, (2, None)], "b": {"c": (3, [4])}}

    def whole(path, _):
        return tree_util.keystr(path) in ("['a'][1]", "['b']['c']")

    want = [("['a'][0]", 1), ("['a'][1]", (2, None)), ("['b']['c']", (3, [4]))]
    flat, treedef = tree_util.tree_flatten_with_path(tree, whole, is_leaf_takes_path=True)
    assert [(tree_util.keystr(p), x) for p, x in flat] == want
    assert nx.tree.unflatten(treedef, [x for _, x in flat]) == tree
    assert nx.tree.leaves_with_path(tree, whole, True) == flat
    named = nx.tree.map_with_path(lambda p, x: tree_util.keystr(p), tree, is_leaf=whole, is_leaf_takes_path=True)
    assert named == {"a": ["['a'][0]", "['a'][1]"], "b": {"c": "['b']['c']"}}
    assert nx.tree.reduce(function=lambda a, b: a + b, tree=[1, 2]) == 3
    assert nx.tree.reduce_associative(lambda a, b: a + b, [], identity=7) == 7


def test_dicts_come_back_with_their_keys_in_order():
    first, second = {"b": 1.0, "a": (2.0, {"d": 3.0, "c": None})}, {"a": (2.0, {"c": None, "d": 3.0}), "b": 1.0}
    for ours, theirs in ((nx.tree.map(abs, first), jax.tree.map(abs, first)), (nx.jit(lambda d: d)(first), second)):
        assert str(nx.tree.map(float, ours)) == str(jax.tree.map(float, theirs))
    made = nx.tree.map(abs, collections.defaultdict(list, b=1, a=2))
    assert list(made) == ["a", "b"] and made.default_factory is list
    assert list(nx.tree.map(abs, collections.OrderedDict(b=1, a=2))) == ["b", "a"]
    stacked = nx.jit(lambda d: nx.numpy.stack(list(d.values())))
    assert stacked({"b": 1, "a": 2}).tolist() == stacked({"a": 2, "b": 1}).tolist() == [2, 1]
