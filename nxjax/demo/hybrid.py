"""The integer network over several units at once: the last row of the table, its plan, its timeline as a picture."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.backends.evidence import LABELS
from nxjax.demo.data import DataSplit
from nxjax.demo.table import ChipRow

# By priority: what is a chip where there is one, LiteRT's integer kernels where there is none, and the CPU.
UNITS = ("npu", "gpu", "tflite", "cpu")
# Scopes that go to the first unit which is here; the rest is the CPU's, so that both have something to do.
OFFLOADED = ("conv1", "conv2")


def run(quantized: Callable[..., Any], params: Any, data: DataSplit, batch: int = 64) -> tuple[ChipRow, nx.hybrid.Plan]:
    """The test images as a stream through the network, several batches under way; and the plan that they ran by."""
    first = nx.Hybrid(*UNITS).units[0].name
    pins = {**dict.fromkeys(OFFLOADED, first), "dense": "cpu", "out": "cpu"}
    device = nx.Hybrid(*UNITS, objective="throughput", pin=pins)
    predict = nx.jit(quantized, device=device)
    n = len(data.images)
    images = np.concatenate([data.images, data.images[: -n % batch]])

    def inputs() -> Iterator[tuple[Any, Any]]:
        for i in range(0, len(images), batch):
            yield params, nx.asarray(images[i : i + batch])

    times: list[float] = []
    logits: list[np.ndarray[Any, Any]] = []
    for _ in range(6):
        start = time.perf_counter()
        logits = [np.asarray(y) for y in nx.hybrid.stream(predict, inputs())]
        times.append((time.perf_counter() - start) / len(logits))
    plan = nx.hybrid.plan(predict)(*next(inputs()))
    alone = nx.jit(quantized)
    same = all(np.array_equal(y, alone(*given)) for y, given in zip(logits, inputs(), strict=True))
    labels = [p.on[p.unit].step().label for p in plan.places]
    row = ChipRow(
        device=str(device.device),
        executor="+".join(dict.fromkeys(plan.assignment)),
        program="int8",
        label=max(labels, key=LABELS.index, default="hardware"),
        accuracy=float((np.concatenate(logits)[:n].argmax(-1) == data.labels).mean()),
        ms_per_batch=1000 * statistics.median(times[1:]),
        note=f"{len(plan.places)} regions, a stream; {'bits' if same else 'not the bits'} of the CPU alone",
        images=n,
    )
    device.close()
    return row, plan


def save(path: Path, plan: nx.hybrid.Plan) -> Path:
    """The timeline as SVG beside the other picture; gives where."""
    place = path.with_name(f"{path.stem}_hybrid.svg")
    plan.save(place)
    return place
