"""What a compiled program sends, counted by hand: kinds, groups, loops, TPUs' compiler."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax.distributed import communication
from nxjax.errors import ParameterError
from nxjax.sharding import NamedSharding
from nxjax.sharding import PartitionSpec as P


def test_every_kind_is_counted_as_a_ring_sends_it() -> None:
    mesh = nx.make_mesh((2, 4), ("a", "b"), devices=nx.devices("cpu"))

    def f(x: nx.Array) -> nx.Array:  # [16] on each of eight
        lax = nx.lax
        total = lax.psum(x, "b") + lax.psum_scatter(x, "a", tiled=True).repeat(2)
        moved = lax.ppermute(x, "b", [(i, (i + 1) % 4) for i in range(4)]) + lax.all_to_all(x, "b", 0, 0, tiled=True)
        last = lax.fori_loop(0, 5, lambda i, y: lax.psum(nx.numpy.sin(y), "a") + i, x)
        return lax.all_gather(total + moved + last, "b", tiled=True)

    g = nx.jit(nx.shard_map(f, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(("a", "b")), check_vma=False))
    x = np.zeros(128, np.float32)
    found = communication(g.lower(x).compile())
    assert found.by_kind() == {
        "collective-permute f32": 64,
        "all-to-all f32": 48,
        "reduce-scatter f32": 32,
        "all-gather f32": 192,
        "all-reduce f32": 96 + 5 * 64,
    }
    assert found.sent == 64 + 48 + 32 + 192 + 96 + 320
    assert found.steps == 1 + 3 + 1 + 3 + 6 + 5 * 2
    assert {(c.kind, c.devices, c.times) for c in found.collectives if c.kind == "all-reduce"} == {
        ("all-reduce", 4, 1),
        ("all-reduce", 2, 5),
    }
    assert found.seconds(1e3, 1.0) == found.steps + found.sent / 1e3
    assert "reduce-scatter" in str(found)


def test_what_the_compiler_puts_in_for_shardings_is_counted() -> None:
    mesh = nx.make_mesh((4,), ("x",), devices=nx.devices("cpu")[:4])
    cut = nx.jit(lambda a, b: a @ b, in_shardings=(NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P("x"))))
    a = np.zeros((8, 16), np.float32)
    assert communication(cut.lower(a, a.T).compile()).by_kind() == {"all-reduce f32": 2 * 3 * 8 * 8}
    assert str(communication(nx.jit(lambda a: a + 1).lower(a).compile())) == "nothing is sent"
    with pytest.raises(ParameterError, match="not compiled yet"):
        communication(cut.lower(a, a.T).as_text())


def test_starts_and_regular_groups_as_tpus_write_them() -> None:
    text = """
ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %g = (f32[8]{0}, f32[32]{0}) all-gather-start(%a), replica_groups=[2,4]<=[8], dimensions={0}
  %d = f32[32]{0} all-gather-done(%g)
  %p = (s8[16]{0}, s8[16]{0}, u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,1}}
  %r = (f32[8]{0}, bf16[4]{0}) all-reduce-start(%a, %a), replica_groups={{0,1}}, to_apply=%add
}"""
    assert communication(text).by_kind() == {
        "all-gather f32": 96,
        "collective-permute s8": 16,
        "all-reduce f32+bf16": 40,
    }
