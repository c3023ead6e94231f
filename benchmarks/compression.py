"""Digits learned by four processes with each compressor of gradients: bytes, loss and accuracy beside plain ones.

Processes on one machine; XLA's collectives go over TCP (gloo). Bytes are counted twice: from the compiled step by the
ring algorithms, and as the system counts what each process writes (Linux). A machine's own loopback is no network, so
times are those of computing more than of sending.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.runner import Figure

PROCESSES = 4
STEPS = 300


def written() -> int | None:
    """Bytes that this process has written so far, to sockets as to files; None where the system does not say."""
    try:
        rows = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next(int(row.split()[1]) for row in rows if row.startswith("wchar"))


def child(path: str) -> None:
    """What each process does; the first one writes what it found to ``path``."""
    import nxjax as nx

    nx.distributed.initialize()
    from nxjax.demo.parallel import compressed

    found: dict[str, Any] = {}
    for way in compressed.WAYS:
        compressor = compressed.WAYS[way]("data")
        mesh = nx.make_mesh((nx.device_count(),), ("data",), devices=nx.devices())
        step, _, _ = compressed.stepper(compressor, mesh)
        shapes = nx.eval_shape(lambda compressor=compressor: compressed.init(compressor, nx.device_count()))
        batch = nx.ShapeDtypeStruct((compressed.BATCH, 8, 8, 1), nx.float32)
        labels = nx.ShapeDtypeStruct((compressed.BATCH,), nx.int32)
        sent = nx.distributed.communication(step.lower(shapes, batch, labels).compile())
        marks: list[tuple[float, int | None]] = []
        result = compressed.train(
            way, STEPS, say=lambda n, loss, marks=marks: marks.append((time.perf_counter(), written()))
        )
        (start, before), (end, after) = marks[9], marks[-1]
        steps = len(marks) - 10
        last = [loss for n, loss in result.losses.items() if n >= STEPS - 20]
        found[way] = {
            "bytes": sent.sent,
            "kinds": sent.by_kind(),
            "measured": None if after is None or before is None else (after - before) / steps,
            "seconds": (end - start) / steps,
            "loss": sum(last) / len(last),
            "accuracy": result.accuracy,
        }
    if nx.process_index() == 0:
        Path(path).write_text(json.dumps(found))


def measured() -> dict[str, Any]:
    """What the processes found, by way."""
    from nxjax.distributed import launch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        env = {"NXJAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        group = launch.start([sys.executable, "-m", "benchmarks.compression", str(path)], PROCESSES, env, folder)
        codes = launch.wait(group)
        if any(codes):
            raise RuntimeError((Path(folder) / "process-0.txt").read_text()[-2000:])
        return json.loads(path.read_text())


def figures() -> list[Figure]:
    found = measured()
    whole = found["none"]
    rows: list[Figure] = []
    for way, row in found.items():
        said = "-" if row["measured"] is None else f"{row['measured']:,.0f}"
        note = (
            f"written {said} bytes, loss {row['loss']:.4f}, accuracy {row['accuracy']:.2%}, "
            f"{row['seconds'] * 1e3:.1f} ms per step"
        )
        name = f"{way}, {PROCESSES} processes, per step"
        rows.append(Figure(name, row["bytes"], whole["bytes"], "uncompressed", None, note, unit="bytes"))
    return rows


if __name__ == "__main__":
    child(sys.argv[1])
