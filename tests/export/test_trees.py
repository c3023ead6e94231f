"""Structures in exported functions: what is registered, and what is not."""

import collections

import jax
import jax.export
import numpy as np
import pytest

import nxjax as nx
from nxjax import export
from nxjax.errors import InvalidFileError, ParameterError, TreeError
from nxjax.export import trees


class Pair:
    def __init__(self, a, b, name):
        self.a, self.b, self.name = a, b, name


nx.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), p.name), lambda name, c: Pair(*c, name))
jax.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), p.name), lambda name, c: Pair(*c, name))
for module in (export, jax.export):
    module.register_pytree_node_serialization(
        Pair,
        serialized_name="tests.Pair",
        serialize_auxdata=lambda name: name.encode(),
        deserialize_auxdata=lambda data: data.decode(),
    )
X = np.arange(3, dtype=np.float32)


def test_nodes_of_the_users_own_cross_both_ways():
    f = lambda p: Pair(p.a + p.b, {"d": p.a}, p.name + "!")
    ours = export.export(nx.jit(f))(Pair(X, X, "ab"))
    got = jax.export.deserialize(ours.serialize()).call(Pair(X, X, "ab"))
    assert isinstance(got, Pair) and got.name == "ab!"
    np.testing.assert_array_equal(got.a, 2 * X)
    theirs = jax.export.export(jax.jit(f))(Pair(X, X, "ab"))
    got = export.deserialize(theirs.serialize()).call(Pair(X, X, "ab"))
    assert isinstance(got, Pair) and got.name == "ab!"
    with pytest.raises(TreeError):
        ours.call(Pair(X, X, "other name"))


def test_ordered_dicts_cross_both_ways_in_their_order():
    value = collections.OrderedDict([("z", X), ("a", 2 * X)])
    f = lambda d: collections.OrderedDict(reversed(d.items()))
    got = jax.export.deserialize(export.export(nx.jit(f))(value).serialize()).call(value)
    assert list(got) == ["a", "z"]
    got = export.deserialize(jax.export.export(jax.jit(f))(value).serialize()).call(value)
    assert list(got) == ["a", "z"]
    np.testing.assert_array_equal(got["a"], 2 * X)


def test_deep_and_wide_trees():
    deep = X
    for i in range(60):
        deep = {"inner": [deep]} if i % 2 else (deep, None)
    ours = export.export(nx.jit(lambda t: t))(deep)
    assert export.deserialize(ours.serialize()).in_tree == ours.in_tree
    wide = {str(i): np.float32(i) for i in range(500)}
    loaded = export.deserialize(export.export(nx.jit(lambda t: t["7"]))(wide).serialize())
    assert float(loaded.call(wide)) == 7


def test_nodes_that_are_not_registered():
    Point = collections.namedtuple("Point", "x y")
    exported = export.export(nx.jit(lambda p: p))(Point(X, X))
    with pytest.raises(TreeError, match="register_namedtuple_serialization") as error:
        exported.serialize()
    assert "Point" in str(error.value)
    with pytest.raises(TreeError, match="keys are not strings"):
        export.export(nx.jit(lambda p: p))({1: X}).serialize()


def test_registering():
    with pytest.raises(ParameterError, match="registered already"):
        export.register_pytree_node_serialization(
            Pair, serialized_name="other", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
        )

    class Other:
        pass

    with pytest.raises(ParameterError, match=r"tests\.Pair"):
        export.register_pytree_node_serialization(
            Other, serialized_name="tests.Pair", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
        )
    with pytest.raises(ParameterError, match="not a pytree node"):
        export.register_pytree_node_serialization(
            Other, serialized_name="tests.Other", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
        )
    with pytest.raises(ParameterError, match="not a namedtuple"):
        export.register_namedtuple_serialization(Other, serialized_name="tests.Other")


def test_functions_that_fail_on_damaged_data():
    table = {
        "kind": 5,
        "children": [{"kind": 0, "children": None}],
        "custom_name": "tests.Pair",
        "custom_auxdata": None,
    }
    with pytest.raises(InvalidFileError, match="cannot be made"):
        trees.read(table, [X], "arguments")
