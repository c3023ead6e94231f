"""`jax.experimental.multihost_utils`: values that all processes share, and values of each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import distributed
from nxjax.errors import ExecutionError
from nxjax.runtime import devices, process_count, process_index
from nxjax.runtime.global_arrays import make_array_from_process_local_data, replicated
from nxjax.trace import tree
from nxjax.trace.array import DeviceArray, as_value
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.mesh import Mesh
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.sharding import NamedSharding

__getattr__ = _refusing(__name__)


def sync_global_devices(name: str) -> None:
    """Wait until every process has come to the place called ``name``.

    Raises:
        ProcessLostError: another process is gone.
        ExecutionError: another process waits at another place.

    >>> sync_global_devices("start")
    """
    distributed.barrier(name)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of a tree, whole, as NumPy arrays in every process.

    Args:
        in_tree: arrays over devices of several processes, of which each gets the whole; or arrays that each process has
            its own of, of one shape, which are stacked along a new first axis.
        tiled: the latter are joined along their first axis instead.

    >>> process_allgather(np.arange(2)).tolist()
    [[0, 1]]
    """

    def gather(x: Any) -> np.ndarray[Any, Any]:
        value = as_value(x, "process_allgather")
        assert isinstance(value, DeviceArray)
        if not value.is_fully_addressable:  # type: ignore[attr-defined]
            return replicated(value).numpy()
        data = value.numpy()
        if process_count() == 1:
            return data if tiled else data[None]
        rows = data if tiled and data.ndim else data[None]
        return replicated(_spread(rows)).numpy()

    return tree.map(gather, in_tree)


def _spread(rows: np.ndarray[Any, Any]) -> Any:
    """One array over one device of each process, of the rows that each has."""
    firsts = {d.process_index: d for d in reversed(devices("cpu"))}
    mesh = Mesh([firsts[p] for p in sorted(firsts)], ("processes",))
    shape = (len(rows) * len(firsts), *rows.shape[1:])
    return make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("processes")), rows, shape)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """One process's values in every process, as NumPy arrays.

    Args:
        in_tree: arrays; in all processes of the same shapes and dtypes.
        is_source: whether this is the process whose values count; by default process 0.

    >>> broadcast_one_to_all(np.arange(2)).tolist()
    [0, 1]
    """
    source = process_index() == 0 if is_source is None else bool(is_source)
    flags = process_allgather(np.asarray(source))
    if flags.sum() != 1:
        raise ExecutionError("broadcast_one_to_all: needs one source", got=f"{int(flags.sum())} processes say they are")
    chosen = int(flags.argmax())
    return tree.map(lambda x: process_allgather(x)[chosen], in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise an AssertionError unless all processes have the same values.

    >>> assert_equal({"step": 3})
    """
    same = tree.leaves(
        tree.map(lambda x: all(np.array_equal(row, np.asarray(x)) for row in process_allgather(x)), in_tree)
    )
    if not all(same):
        raise AssertionError(f"{fail_message} the processes have different values".strip())


def reached_preemption_sync_point(step_id: int) -> bool:
    """`nxjax.distributed.preempted` under JAX's name: whether to save now, since some process was sent SIGTERM.

    Raises:
        ProcessLostError: another process is gone.
    """
    return distributed.preempted(step_id)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Each process's own arrays as parts of arrays over ``global_mesh``, cut as ``pspecs`` (a tree prefix) say."""
    leaves, treedef = tree.flatten(local_inputs)
    specs = tree.broadcast_leaves(pspecs, local_inputs, "pspecs", is_leaf=lambda s: isinstance(s, PartitionSpec))
    made = [_from_local(x, NamedSharding(global_mesh, s)) for x, s in zip(leaves, specs, strict=True)]
    return tree.unflatten(treedef, made)


def _from_local(x: Any, sharding: NamedSharding) -> Any:
    """A dimension is as many times larger as the processes that its blocks are spread over."""
    data = np.asarray(x)
    here = np.array([d.process_index == process_index() for d in sharding.device_list])
    blocks = sharding.blocks(data.ndim)
    shape = tuple(
        n * t // len(set(blocks[here, d].tolist()))
        for d, (n, t) in enumerate(zip(data.shape, sharding.tiles(data.ndim), strict=True))
    )
    return make_array_from_process_local_data(sharding, data, shape)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """This process's part of each array, as one NumPy array; the inverse of `host_local_array_to_global_array`."""

    def local(x: Any) -> np.ndarray[Any, Any]:
        shards = x.addressable_shards
        # The blocks that are here, in order along every dimension, make up one array.
        edges = [sorted({s.index[d].indices(n)[:2] for s in shards}) for d, n in enumerate(x.shape)]
        starts = [np.cumsum([0, *(stop - start for start, stop in e)]) for e in edges]
        whole = np.empty(tuple(int(s[-1]) for s in starts), x.dtype)
        for s in shards:
            at: list[slice] = []
            for d, n in enumerate(x.shape):
                i = edges[d].index(s.index[d].indices(n)[:2])
                at.append(slice(int(starts[d][i]), int(starts[d][i + 1])))
            whole[tuple(at)] = s.data.numpy()
        return whole

    return tree.map(local, global_inputs)
