"""What ran where: one row per way of running the trained network, every figure measured on the spot.

This is the place where the whole story is told: a new way of running (another executor, an integer program, a chip)
adds a function that gives its row.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.backends import registry
from nxjax.demo import model
from nxjax.demo.data import DataSplit


@dataclass(frozen=True)
class ChipRow:
    """One line of the table. ``label`` says what the figures mean for the chip (see docs/extending.md).

    ``accuracy`` is of so many ``images``.
    """

    device: str
    executor: str
    program: str
    label: str
    accuracy: float
    ms_per_batch: float
    note: str = ""
    images: int = 0


def accuracy(predict: Callable[[Any], Any], data: DataSplit) -> float:
    """Share of images whose largest logit is the label's."""
    logits = np.asarray(predict(data.images))
    return float((logits.argmax(-1) == data.labels).mean())


def milliseconds(run: Callable[[], Any], repeats: int = 20) -> float:
    """Median wall time of one call, results waited for, after one call that is not counted."""
    nx.block_until_ready(run())
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        nx.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def executor_row(
    name: str, program: str, function: Callable[..., Any], params: Any, data: DataSplit, batch: int
) -> ChipRow:
    """The network, as ``function`` computes it, on one executor of this machine."""
    backend = registry.get(name)
    predict = nx.jit(function, device=name)
    images = nx.asarray(data.images[:batch])
    return ChipRow(
        device=str(backend.devices()[0]),
        executor=name,
        program=program,
        label=backend.label,
        accuracy=accuracy(lambda x: predict(params, x), data),
        ms_per_batch=milliseconds(lambda: predict(params, images)),
        note=backend.available()[1],
        images=len(data.images),
    )


def rows(params: Any, quantized: Callable[..., Any], data: DataSplit, batch: int = 64) -> list[ChipRow]:
    """For every executor that runs on something real here, the float network and the integer one."""
    names = [n for n in registry.names() if registry.get(n).available()[0] and registry.get(n).label == "hardware"]
    programs = (("float32", model.predict), ("int8", quantized))
    return [executor_row(n, p, f, params, data, batch) for n in names for p, f in programs]


def missing() -> list[str]:
    """Executors that are not available here, with the reason."""
    return [f"{n}: {registry.get(n).available()[1]}" for n in registry.names() if not registry.get(n).available()[0]]


def render(table: Sequence[ChipRow]) -> str:
    """The rows as aligned text."""
    head = ("device", "executor", "program", "label", "accuracy", "ms/batch", "note")
    body = [
        (r.device, r.executor, r.program, r.label, share(r.accuracy, r.images), f"{r.ms_per_batch:.3f}", r.note)
        for r in table
    ]
    return aligned(head, body, right=(4, 5))


def share(accuracy: float, images: int) -> str:
    """An accuracy with the number of images that it comes from."""
    return f"{100 * accuracy:.2f} % of {images}"


def aligned(head: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """A table as text; columns in ``right`` are flush right."""
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(head), rule, *map(line, body)])


def took(cost: Any) -> str:
    """How long a run takes by an artifact's figures, and who says so; empty where nobody does.

    >>> artifact = nx.compile(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> took(artifact.cost)
    ''
    """
    if cost.time is None:
        return ""
    name, figure = cost.time
    words = {"latency": "", "npu latency": " of the NPU's part", "chip time": " on the chip"}[name]
    value = f"{1e6 * figure.value:.1f} us" if figure.value < 1e-3 else f"{1e3 * figure.value:.1f} ms"
    return f"{value}{words} ({figure.basis})"
