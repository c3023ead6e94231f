"""What the doctor found of a model: data, text, and a page (`web`)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from nxjax.backends.evidence import plain
from nxjax.display.columns import columns
from nxjax.doctor import web
from nxjax.doctor.findings import POOR, TargetDiagnosis, number
from nxjax.files import safe_io
from nxjax.quant.comparison import LayerDifference


@final
@dataclass
class Diagnosis:
    """What the doctor found of a model.

    Attributes:
        model: its name.
        inputs: as text.
        data: what it was calibrated and measured on.
        targets: one of each.
        layers: the error of each layer that int8 makes, beside float; none of quantized files.
        notes: what else is to be known.

    >>> found = nx.deploy.doctor(lambda x: nx.nn.relu(x * 2), jnp.ones((1, 3)), targets="tflite")
    >>> found["tflite"].takes, found.takes
    (True, True)
    """

    model: str
    inputs: list[str]
    data: str
    targets: list[TargetDiagnosis] = field(default_factory=list[TargetDiagnosis])
    layers: list[LayerDifference] = field(default_factory=list[LayerDifference])
    notes: list[str] = field(default_factory=list[str])
    float_score: float | None = None

    def __getitem__(self, target: str) -> TargetDiagnosis:
        for t in self.targets:
            if t.target == target:
                return t
        raise KeyError(f"no target {target!r}; there are {', '.join(t.target for t in self.targets)}")

    @property
    def takes(self) -> bool:
        """Whether some target's device runs the model, or a part of it."""
        return any(t.takes for t in self.targets)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "model": self.model,
            "inputs": self.inputs,
            "data": self.data,
            "takes": self.takes,
            "float_score": self.float_score,
            "targets": [t.to_dict() for t in self.targets],
            "layers": [
                {"name": r.name, "op": r.op, "sqnr": number(r.sqnr), "max_error": r.max_error, "macs": r.macs}
                for r in self.layers
            ],
            "notes": list(self.notes),
        }

    def html(self) -> str:
        """One page that needs nothing else: no scripts, fonts or pictures of other places."""
        return web.page(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        safe_io.write(path, self.html().encode("utf-8"))
        return Path(path)

    def _repr_html_(self) -> str:
        return web.summary(self)

    def __str__(self) -> str:
        head = ("target", "", "ops on the chip", "dB", "verified", "bytes", "time")
        rows = [head, *(self._row(t) for t in self.targets)]
        lines = [_shown(f"{self.model}: {', '.join(self.inputs)}"), _shown(self.data), ""]
        lines += columns(rows, right=(3, 5))
        if any(t.sqnr is not None and not t.measured for t in self.targets):
            lines.append("(dB) in brackets: of the exact reference, since nothing here runs the file")
        for t in self.targets:
            lines += map(_shown, _details(t))
        worst = sorted((r for r in self.layers if math.isfinite(r.sqnr)), key=lambda r: r.sqnr)[:3]
        if worst:
            lines += ["", "layers with the largest error in int8:"]
            lines += columns([(_shown(r.name), f"{r.sqnr:.1f} dB") for r in worst], right=(1,), indent="  ")
        return "\n".join([*lines, *(["", *(_shown(f"note: {n}") for n in self.notes)] if self.notes else [])])

    __repr__ = __str__

    def _row(self, t: TargetDiagnosis) -> tuple[str, ...]:
        size = f"{next(iter(t.files.values())):,}" if t.files else ""
        return t.target, t.verdict, t.placement, t.level, t.label, size, t.time


def _shown(text: str) -> str:
    """Names of a file are not to move a terminal, nor to look like lines of this table."""
    return "".join(c if c.isprintable() else " " for c in text)


def _details(t: TargetDiagnosis) -> list[str]:
    """The lines of one target, where there is something to say."""
    lines = [t.said] if t.said else []
    if t.sqnr is not None and t.sqnr < POOR:
        lines.append(f"only {t.sqnr:.1f} dB ({t.sqnr_of})")
    for op, reason, suggestion, count in t.refused[:4]:
        times = f" ({count} times)" if count > 1 else ""
        said = f"{op}{times}: {reason or 'left to the host'}" + (f" -> {suggestion}" if suggestion else "")
        lines.append(plain(said, 400))
    if len(t.refused) > 4:
        lines.append(f"... {len(t.refused) - 4} more reasons")
    if t.deviation is not None and not t.deviation.exact:
        lines.append(f"{t.runs_on}: {t.deviation.short} from the exact reference")
    if t.divergence is not None:
        lines.append(f"leaves the reference at {t.divergence}")
    if t.scores is not None:
        lines.append(f"metric {t.scores.artifact:.4g}; of the exact reference {t.scores.reference:.4g}")
    lines += [f"could be written otherwise: {r}" for r in t.rewrites]
    lines += [f"{'fixed' if f.kept else 'tried'}: {f.says}; {f.before} -> {f.after}" for f in t.fixes]
    return ["", t.target, *(f"  {line}" for line in lines)] if lines else []
