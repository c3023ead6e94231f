"""Pictures of shardings."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ShardingError
from nxjax.sharding import NamedSharding
from nxjax.sharding import PartitionSpec as P


def sharding(*spec):
    return NamedSharding(nx.make_mesh((2, 4), ("x", "y")), P(*spec))


def test_each_block_is_a_box_with_its_devices(capsys):
    nx.debug.visualize_sharding((4, 8), sharding("x"))
    assert capsys.readouterr().out == (
        "┌─────────────┐\n│ CPU 0,1,2,3 │\n├─────────────┤\n│ CPU 4,5,6,7 │\n└─────────────┘\n"
    )
    nx.debug.visualize_array_sharding(nx.device_put(np.zeros(8), sharding("y")))
    assert capsys.readouterr().out.splitlines()[1] == "│ CPU 0,4 │ CPU 1,5 │ CPU 2,6 │ CPU 3,7 │"
    nx.debug.visualize_array_sharding(np.zeros((2, 2)))
    assert "│ CPU 0 │" in capsys.readouterr().out


def test_where_an_array_is():
    seen = []
    nx.debug.inspect_array_sharding(nx.device_put(np.zeros((8, 8)), sharding("x", "y")), callback=seen.append)
    assert seen == [sharding("x", "y")]


def test_what_has_no_picture():
    with pytest.raises(ShardingError, match="rank 1 and 2"):
        nx.debug.visualize_sharding((4, 4, 4), sharding("x"))
    with pytest.raises(ShardingError, match="no device has been chosen"):
        nx.jit(lambda x: nx.debug.visualize_array_sharding(x))(1.0)
