"""The trained network on every chip that nxjax compiles for: one row per target, every figure from its own tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.demo import model
from nxjax.demo.data import DataSplit
from nxjax.demo.table import aligned, share, took

# A simulator takes milliseconds a run, whatever the batch.
SIMULATED = 60
# Of families with many generations and sizes, those that are shown.
SHOWN = {"tpu": ("tpu-v4", "tpu-v5e"), "ipu": ("ipu-bow",), "poplar": ()}


@dataclass(frozen=True)
class TargetRow:
    """One target. ``accuracy``, of ``images`` test images, is None where nothing on this machine runs the artifact."""

    target: str
    program: str
    label: str
    accuracy: float | None
    on_npu: str
    deviation: str
    size: int
    time: str
    note: str = ""
    images: int = 0


def chips() -> list[Any]:
    """The targets, sizes and generations of one chip counted once."""
    found = nx.targets()
    names = {t.name for t in found}
    shown = lambda name: name in SHOWN.get(name.partition("-")[0], (name,))
    return [t for t in found if t.name.rpartition("-")[0] not in names and shown(t.name)]


def target_row(target: Any, quantized: Callable[..., Any], params: Any, data: DataSplit) -> TargetRow:
    """Compile for one target and, where something here runs it, classify the test images."""
    integer = "int8" in target.precision
    predict = quantized if integer else model.predict
    program = "int8" if integer else target.precision[0]
    batch = SIMULATED if target.label == "vendor-simulator" else 1
    try:
        artifact = nx.compile(predict, target=target.name)(params, data.images[:batch])
    except nx.errors.NxError as error:
        # What could be reached is no label of what was not made.
        return TargetRow(target.name, program, "", None, "", "", 0, "", _said(error))
    report = artifact.report
    on_npu = "host" if artifact.runs_on and not report.on_npu else f"{report.on_npu} of {len(report.rows)} ops"
    deviation = "" if artifact.deviation is None else artifact.deviation.short
    # Of a package of several files, the one with the weights.
    size = max(map(len, artifact.files.values()))
    note = artifact.runs_on or "; ".join(artifact.notes)
    accuracy = None if not artifact.runs_on else _accuracy(artifact, data, batch)
    time = took(artifact.cost)
    return TargetRow(
        target.name, program, artifact.label, accuracy, on_npu, deviation, size, time, note, len(data.images)
    )  # fmt: skip


def _said(error: nx.errors.NxError) -> str:
    """What is wrong; of a package that is missing, how to install it."""
    missing = isinstance(error, nx.errors.MissingExtraError) and error.fix
    return f"{error.what}; {error.fix}" if missing else error.what


def _accuracy(artifact: Any, data: DataSplit, batch: int) -> float:
    """Share of all images classified right; the last batch is filled up with images that do not count."""
    n = len(data.images)
    images = np.concatenate([data.images, data.images[: -n % batch]])
    logits = [np.asarray(artifact.run(images[i : i + batch])) for i in range(0, len(images), batch)]
    return float((np.concatenate(logits)[:n].argmax(-1) == data.labels).mean())


def rows(quantized: Callable[..., Any], params: Any, data: DataSplit) -> Iterable[TargetRow]:
    """A row for every target, as they come."""
    return (target_row(t, quantized, params, data) for t in chips())


def render(table: Sequence[TargetRow]) -> str:
    """The rows as aligned text."""
    head = ("target", "program", "label", "accuracy", "on the NPU", "deviation", "bytes", "time", "runs on")
    body = [
        (
            r.target, r.program, r.label, "" if r.accuracy is None else share(r.accuracy, r.images), r.on_npu,
            r.deviation, f"{r.size:,}", r.time, r.note if len(r.note) < 70 else r.note[:67] + "...",
        )
        for r in table
    ]  # fmt: skip
    return aligned(head, body, right=(3, 4, 5, 6, 7))
