"""Limits hold, what holds memory is named, and it comes back."""

import pytest

import nxjax as nx
from nxjax.backends.memory.pool import PAGE, MemoryPool
from nxjax.errors import MemoryLimitError, ParameterError


def test_the_documents_pools():
    pools = nx.MemoryPools(npu="1GB", vulkan="2GB", system="4GB")
    assert {k: p.limit for k, p in pools._pools.items()} == {"npu": 2**30, "gpu": 2**31, "cpu": 2**32}
    assert pools["igpu"] is pools["gpu"]
    assert pools["tpu"].limit is None
    with pytest.raises(ParameterError, match="named twice"):
        nx.MemoryPools(gpu=1, vulkan=2)
    with pytest.raises(ParameterError, match="no such kind"):
        nx.MemoryPools(fpga="1GB")


def test_a_full_pool_says_who_holds_it_and_gives_back():
    pools = nx.MemoryPools(cpu=4096)
    make = lambda n, name: pools.unified_buffer(n, "uint8", name=name)
    small, large = make(1000, "small"), make(2000, "large")
    with pytest.raises(MemoryLimitError) as caught:
        make(2000, "third")
    said = str(caught.value)
    assert "no room in the cpu pool for third of 2.0 KiB" in said
    assert "2.0 KiB large; 1000 B small" in said
    assert "close large, or raise the limit: MemoryPools(cpu=...)" in said
    assert pools["cpu"].statistics.in_use == 3000
    large.close()
    large.close()
    third = make(2000, "third")
    del small
    now = pools["cpu"].statistics
    assert (now.in_use, now.peak, now.buffers) == (2000, 3000, 1)
    assert now.hits + now.misses == 3
    assert third.address
    assert "cpu: 2.0 KiB of 4.0 KiB in 1 buffers (peak 2.9 KiB)" in str(pools)


@pytest.mark.unguarded
def test_memory_that_comes_again_is_a_hit():
    pool = MemoryPool("npu")
    block, held = pool.block(3000, page=True)
    assert block.address % PAGE == 0
    del block
    held.release()
    again, _ = pool.block(3000, page=True)
    assert pool.statistics.hits >= 1
    assert again.nbytes == 256 * 1024  # the least that begins with a page
    assert pool.statistics.in_use == 256 * 1024


def test_a_devices_own_count_is_held_against_the_limit():
    device = nx.devices("cpu")[-1]
    x = nx.numpy.ones(1000)
    pools = nx.MemoryPools(cpu=100)
    with pytest.raises(MemoryLimitError, match="the limit of the cpu pool"):
        pools.put(x, device)
    pools = nx.MemoryPools(cpu="64GB")
    assert pools.put(x, device).device == device
    counts = pools.statistics["cpu"]
    assert counts.copied + counts.shared == 4000
