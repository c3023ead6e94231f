"""Shardings and donations of nested arguments become one entry per input, and what does not fit is said."""

import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.deploy.shardings import input_names, output_names, spread
from nxjax.deploy.trace import BoundFunction
from nxjax.errors import ParameterError, ShardingError
from nxjax.sharding import AbstractMesh, NamedSharding
from nxjax.sharding import PartitionSpec as P

MESH = AbstractMesh((2, 2), ("x", "y"))
ROWS, COLUMNS = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y"))
ARGS = ({"b": jnp.ones(4), "w": jnp.ones((6, 4))}, jnp.ones((8, 6)))


def f(p, x):
    y = x @ p["w"] + p["b"]
    return {"y": y, "sum": y.sum()}


def bound(constants=()):
    return BoundFunction(f, ARGS, {}, constants)


def test_prefixes_are_spread_over_trees():
    got = spread(f, bound(), {"in_shardings": ({"b": None, "w": COLUMNS}, ROWS), "out_shardings": ROWS, "other": 1})
    assert got == {"in_shardings": [None, COLUMNS, ROWS], "out_shardings": [ROWS, ROWS], "other": 1}
    assert spread(f, bound(), {"in_shardings": ROWS})["in_shardings"] == [ROWS] * 3
    assert spread(f, bound(), {"in_shardings": (None, ROWS)})["in_shardings"] == [None, None, ROWS]
    assert spread(f, bound(), {"in_shardings": (None, None)}) == {}
    with nx.sharding.set_mesh(MESH):
        assert spread(f, bound(), {"in_shardings": P("x")})["in_shardings"] == [ROWS] * 3


def test_bound_arguments_have_no_place():
    assert spread(f, bound(0), {"in_shardings": (COLUMNS, ROWS)})["in_shardings"] == [ROWS]
    assert spread(f, bound(0), {"in_shardings": (ROWS,)})["in_shardings"] == [ROWS]
    assert spread(f, bound(0), {"donate_argnums": 1})["donate"] == (0,)
    with pytest.raises(ParameterError, match="name no input"):
        spread(f, bound(0), {"donate_argnums": 0})


def test_a_jitted_functions_own_shardings_hold_where_none_are_given():
    jitted = nx.jit(f, in_shardings=(None, ROWS), out_shardings=COLUMNS)
    got = spread(jitted, bound(), {})
    assert got["in_shardings"] == [None, None, ROWS] and got["out_shardings"] == [COLUMNS] * 2
    assert spread(jitted, bound(), {"in_shardings": COLUMNS})["in_shardings"] == [COLUMNS] * 3


def test_types_say_where_their_arguments_lie():
    x = nx.ShapeDtypeStruct((8, 6), "float32", sharding=ROWS)
    made = BoundFunction(f, (ARGS[0], x), {}, ())
    assert spread(f, made, {})["in_shardings"] == [None, None, ROWS]
    assert made.inputs is None and len(bound().inputs) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"in_shardings": (ROWS,)},
        {"in_shardings": ({"c": ROWS}, ROWS)},
        {"in_shardings": P("x")},
        {"in_shardings": 3},
        {"out_shardings": [ROWS, ROWS, ROWS]},
    ],
)
def test_what_does_not_fit(options):
    with pytest.raises(ShardingError, match="compile: "):
        spread(f, bound(), options)


@pytest.mark.parametrize("given", [2, (0, 5), "p", 1.5])
def test_donations_that_name_no_argument(given):
    with pytest.raises(ParameterError, match="donate_argnums"):
        spread(f, bound(), {"donate_argnums": given})


def test_donated_trees_are_all_of_their_leaves():
    assert spread(f, bound(), {"donate_argnums": 0})["donate"] == (0, 1)
    assert spread(f, bound(), {"donate_argnums": (0, 1)})["donate"] == (0, 1, 2)


def test_names_are_paths_in_the_users_own_trees():
    assert input_names(bound()) == ["argument 0['b']", "argument 0['w']", "argument 1"]
    assert input_names(bound(0)) == ["argument 1"]
    assert output_names(bound()) == ["result['sum']", "result['y']"]
