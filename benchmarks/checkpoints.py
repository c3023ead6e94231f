"""Checkpoints beside `safetensors.numpy.save_file` and `np.savez`, all waiting until the data is on the disk."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.runner import Figure, interleaved

LAYERS, WIDTH = 16, 2048  # 256 MiB of float32


def synced(write: Callable[[], object], path: Path) -> Callable[[], None]:
    """``write``, and then until ``path`` is on the disk, which `nx.checkpoints.save` does by itself."""

    def run() -> None:
        write()
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    return run


def touched(tree: dict[str, object]) -> float:
    """Read every element, as a program does that goes on with them."""
    return float(sum(np.asarray(x).sum() for x in tree.values()))


def figures() -> list[Figure]:
    import safetensors.numpy

    import nxjax as nx

    random = np.random.default_rng(0)
    host = {f"layer{i}": random.standard_normal((WIDTH, WIDTH), np.float32) for i in range(LAYERS)}
    tree = {k: nx.asarray(v) for k, v in host.items()}
    size = sum(v.nbytes for v in host.values())
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("NXJAX_BENCHMARK_DIR")))
    plain, zipped = folder / "peer.safetensors", folder / "peer.npz"

    def save() -> object:
        return nx.checkpoints.save(folder / "ours", tree, overwrite=True)

    def background() -> object:
        return manager.save(0, tree, force=True)

    def copy() -> object:
        return {k: np.array(v, copy=True) for k, v in host.items()}

    peers = {
        "safetensors": (
            synced(lambda: safetensors.numpy.save_file(host, plain), plain),
            lambda: touched(safetensors.numpy.load_file(plain)),
        ),
        "np.savez": (synced(lambda: np.savez(zipped, **host), zipped), lambda: touched(dict(np.load(zipped)))),
    }
    found: list[Figure] = []
    try:
        for name, (write, read) in peers.items():
            ours, peer = interleaved(save, write, rounds=7)
            note = f"{size / ours / 1e9:.2f} GB/s, {size / peer / 1e9:.2f} GB/s"
            found.append(Figure(f"save 256 MiB, {name}", ours, peer, name, None, note))
            for verify in (True, False):
                ours, peer = interleaved(
                    lambda verify=verify: touched(nx.checkpoints.restore(folder / "ours", verify=verify)),
                    read,
                    rounds=7,
                )
                what = "with checksums" if verify else "unverified"
                note = f"{size / ours / 1e9:.2f} GB/s, {size / peer / 1e9:.2f} GB/s"
                found.append(Figure(f"restore {what}, {name}", ours, peer, name, None, note))
        with nx.checkpoints.CheckpointManager(folder / "async") as manager:
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(5):
                for kept, function in zip(times, (background, copy), strict=True):
                    manager.wait_until_finished()
                    start = time.perf_counter()
                    function()
                    kept.append(time.perf_counter() - start)
            ours, peer = map(statistics.median, times)
            found.append(Figure("save in the background returns", ours, peer, "a copy of the tree", None))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found
