"""The doctor's page: one file that a browser shows without asking for anything else.

Its policy (``Content-Security-Policy``) lets nothing be loaded, and no script run but the one here, whose digest it
names. Every text of a model, of a tool or of a user is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Final

from nxjax.deploy.report import Report
from nxjax.display import page as parts
from nxjax.display.page import escape
from nxjax.doctor.findings import POOR, STATES, PageContent, TargetDiagnosis, decibels, seconds
from nxjax.doctor.picture import PictureNode, strip, svg
from nxjax.doctor.style import SCRIPT, STYLE
from nxjax.quant.comparison import LayerDifference

# A cell: its text, or its HTML and what it is sorted by.
Cell = str | tuple[str, float | str]
_MOST_ROWS: Final = 2000


def page(found: PageContent) -> str:
    """The whole page."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = [_header(found), _targets(found), _layers(found), *(_target(i, t) for i, t in enumerate(found.targets))]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(found.model)}: what each chip makes of it</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def summary(found: PageContent) -> str:
    """What a notebook shows."""
    rows = [(t.target, t.verdict, t.placement, t.level, t.label, t.time) for t in found.targets]
    return parts.page(
        parts.heading(found.model, ("", ", ".join(found.inputs)), ("", found.data)),
        parts.table(
            ("target", "", "ops on the chip", "dB", "verified", "time"),
            rows,
            classes=["good" if t.takes else "bad" for t in found.targets],
        ),
        *map(parts.paragraph, found.notes),
    )


def _header(found: PageContent) -> str:
    hosts = sum(t.on_host for t in found.targets)
    taken = sum(t.state == "all" for t in found.targets) - hosts
    partly = sum(t.state == "part" for t in found.targets)
    unknown = sum(t.state == "unknown" for t in found.targets)
    rest = len(found.targets) - taken - partly - unknown - hosts
    tiles = [(taken, "take it", "all"), (partly, "take a part", "part"), (unknown, "unknown", "unknown")]
    tiles += [(rest, "do not", "refused"), (hosts, "run on the host", "host")]
    shown = "".join(f'<div class="tile {kind}"><b>{n}</b><span>{words}</span></div>' for n, words, kind in tiles if n)
    notes = "".join(f"<li>{escape(n)}</li>" for n in found.notes)
    score = "" if found.float_score is None else f"<p>metric of the float model: {found.float_score:.4g}</p>"
    return (
        f"<header><h1>{escape(found.model)}</h1><p class=quiet>{escape(', '.join(found.inputs))}</p>"
        f"<p>{escape(found.data)}</p>{score}<div class=tiles>{shown}</div>"
        f"{f'<ul class=notes>{notes}</ul>' if notes else ''}</header>"
    )


def _targets(found: PageContent) -> str:
    head = ["target", "verdict", "ops on the chip", "MACs on the chip", "dB", "verified", "file", "memory", "time"]
    metric = any(t.scores is not None for t in found.targets)
    head += ["metric"] if metric else []
    rows: list[list[Cell]] = []
    for i, t in enumerate(found.targets):
        r = t.report
        link = f'<a href="#t{i}">{escape(t.target)}</a><small>{escape(t.title)}</small>'
        size = next(iter(t.files.values()), None)
        time = None if r is None else r.cost.time
        row: list[Cell] = [
            (link, t.target),
            (_verdict(t), list(STATES).index(t.state)),
            _share(r, r.share if r is not None else 0.0),
            _share(r, r.mac_share if r is not None else 0.0),
            _level(t),
            t.label,
            ("", -1) if size is None else (_bytes(size), size),
            _memory(t),
            ("", math.inf)
            if time is None
            else (f"{seconds(time[1].value)}<small>{escape(f'{time[0]}, {time[1].basis}')}</small>", time[1].value),
        ]
        if metric:
            row.append("" if t.scores is None else (f"{t.scores.artifact:.4g}", t.scores.artifact))
        rows.append(row)
    brackets = any(t.sqnr is not None and not t.measured for t in found.targets)
    why = (
        "<p class=quiet>dB in brackets: of the exact reference, since nothing here runs the file.</p>"
        if brackets
        else ""
    )
    return f"<section><h2>Targets</h2>{_table(head, rows)}{why}</section>"


def _pill(t: TargetDiagnosis) -> str:
    return f'<span class="pill {"host" if t.on_host else t.state}">{escape(t.verdict)}</span>'


def _verdict(t: TargetDiagnosis) -> str:
    """The verdict, and who says so where it is no tool of the vendor's."""
    table = t.report is not None and any(r.decided_by == "table" for r in t.report.rows) and not t.report.host
    return f"{_pill(t)}{'<small>by published rules</small>' if table and t.takes else ''}"


def _share(report: Report | None, share: float) -> Cell:
    if report is None or not report.rows:
        return ("", -1)
    if report.host:
        return ("host", -0.5)
    if report.unknown == len(report.rows):
        return ("unknown", -0.7)
    return (f'<span class=bar><i style="width:{100 * share:.1f}%"></i></span> {100 * share:.0f} %', share)


def _level(t: TargetDiagnosis) -> Cell:
    if t.sqnr is None:
        return ("", -math.inf)
    kind = " class=poor" if t.sqnr < POOR else ""
    return (f"<span{kind}>{escape(t.level)}</span>", t.sqnr)


def _memory(t: TargetDiagnosis) -> Cell:
    """Every figure that is not of weights alone; our own plan of activations where nothing says more."""
    found = {k: f for k, f in t.memory.items() if "weights" not in k}
    wanted = {k: f for k, f in found.items() if k != "activations" or len(found) == 1}
    if not wanted:
        return ("", -1)
    shown = "".join(
        f"<div>{_bytes(f.value)}<small>{escape(f'{k}, {f.basis}')}</small></div>" for k, f in wanted.items()
    )
    return (shown, next(iter(wanted.values())).value)


def _bytes(n: float) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:.0f} B"


def _layers(found: PageContent) -> str:
    if not found.layers:
        return ""
    rows: list[list[Cell]] = [
        [(str(i + 1), i), r.name, r.op, (decibels(r.sqnr), r.sqnr), (f"{r.max_error:.3g}", r.max_error),
         (f"{r.macs:,}", r.macs)]
        for i, r in enumerate(found.layers)
    ]  # fmt: skip
    head = ["", "layer", "op", "dB", "largest error", "MACs"]
    return (
        "<section><h2>Error by layer</h2><p class=quiet>Signal to noise of each result in integers, beside the float "
        f"model's, in program order. Below {POOR:.0f} dB a layer is marked.</p>{_bars(found.layers)}"
        f"<details><summary>{len(rows)} layers as a table</summary>{_table(head, rows)}</details></section>"
    )


def _bars(layers: Sequence[LayerDifference]) -> str:
    """Decibels of each layer, upwards."""
    levels = [r.sqnr if math.isfinite(r.sqnr) else (80.0 if r.sqnr > 0 else 0.0) for r in layers]
    top, height = max(40.0, *levels), 150.0
    width = max(3.0, min(22.0, 1000.0 / len(levels)))
    scale = height / top
    bars = "".join(
        f'<rect class="{"poor" if v < POOR else "fine"}" x="{30 + i * width:.1f}" '
        f'y="{height - max(v, 0.5) * scale + 5:.1f}" width="{max(width - 1, 1.5):.1f}" '
        f'height="{max(v, 0.5) * scale:.1f}">'
        f"<title>{escape(f'{r.name}: {decibels(r.sqnr)} dB')}</title></rect>"
        for i, (v, r) in enumerate(zip(levels, layers, strict=True))
    )
    lines = "".join(
        f'<path d="M30 {height - v * scale + 5:.1f}H{30 + len(levels) * width:.0f}"/>'
        f'<text x="0" y="{height - v * scale + 9:.1f}">{v}</text>'
        for v in range(0, int(top) + 1, 20)
    )
    whole = 40 + len(levels) * width
    return (
        f'<div class=scroll><svg xmlns="http://www.w3.org/2000/svg" class="levels" role="img" width="{whole:.0f}" '
        f'height="{height + 12:.0f}" viewBox="0 0 {whole:.0f} {height + 12:.0f}">{lines}{bars}</svg></div>'
    )


def _target(i: int, t: TargetDiagnosis) -> str:
    """A section of one target, folded away."""
    blocks = [f"<p>{escape(line)}</p>" for line in _said(t)]
    if t.report is not None and t.report.rows:
        blocks.append(_graph(t))
    if t.refused:
        rows: list[list[Cell]] = [[op, (str(n), n), why or "left to the host", fix] for op, why, fix, n in t.refused]
        blocks.append(f"<h3>Left to the host</h3>{_table(['op', 'times', 'why', 'instead'], rows)}")
    if t.rewrites:
        listed = "".join(f"<li>{escape(r)}</li>" for r in t.rewrites)
        blocks.append(f"<h3>Could be written otherwise</h3><ul>{listed}</ul>")
    if t.fixes:
        tried: list[list[Cell]] = [["kept" if f.kept else "not kept", f.says, f.before, f.after] for f in t.fixes]
        blocks.append(f"<h3>Rewrites that were tried</h3>{_table(['', 'what', 'before', 'after'], tried)}")
    blocks += [_cost(t), _ops(t), _evidence(t)]
    words = ", ".join(filter(None, (t.placement, f"{t.level} dB" if t.level else "")))
    head = f"{_pill(t)} <b>{escape(t.target)}</b> <span class=quiet>{escape(t.title)}; {escape(words)}</span>"
    return f'<section><details id="t{i}"><summary>{head}</summary>{"".join(blocks)}</details></section>'


def _decibels(t: TargetDiagnosis) -> str:
    return "" if t.sqnr is None else "exact" if t.sqnr == math.inf else f"{decibels(t.sqnr)} dB"


def _said(t: TargetDiagnosis) -> list[str]:
    """What there is to say in sentences."""
    lines = [t.said] if t.said else []
    if t.policy:
        lines.append(f"computed in: {t.policy}")
    if t.report is not None and t.report.rests_on:
        lines.append(f"placement says: {t.report.rests_on}")
    if t.deviation is not None:
        off = "equal to the exact reference" if t.deviation.exact else f"{t.deviation.short} from the exact reference"
        lines.append(f"{t.runs_on}: {off}")
    lines += [f"{d.runs_on}: {d.short} from the exact reference" for d in t.others]
    if t.sqnr is not None:
        against = "the file's own integers" if t.policy == "as in the file" else "the float model"
        lines.append(f"{_decibels(t)} against {against} over {_count(t.samples, 'sample')} ({t.sqnr_of})")
    if t.divergence is not None:
        lines.append(f"leaves the reference at {t.divergence}")
    elif t.unsought:
        lines.append(f"first op that leaves the reference: {t.unsought}")
    if t.scores is not None:
        lines.append(f"metric: {t.scores.artifact:.4g}; of the exact reference {t.scores.reference:.4g}")
    return lines


def _graph(t: TargetDiagnosis) -> str:
    assert t.report is not None
    rows = t.report.rows
    if not t.edges and len(rows) > 1:
        return ""
    kind = lambda device: device if device in ("host", "unknown") else "chip"
    at = t.divergence.index if t.divergence is not None and t.divergence.count == len(rows) else -1
    nodes = [
        PictureNode(r.op, kind(r.device), " ".join(filter(None, (r.op, r.name, r.device, r.reason))), i == at, r.macs)
        for i, r in enumerate(rows)
    ]
    inside = all(j < len(rows) for _, j in t.edges)
    drawn = svg(nodes, t.edges if inside else [])
    key = "".join(
        f'<span class="key {k}">{w}</span>' for k, w in (("chip", "chip"), ("host", "host"), ("unknown", "unknown"))
    )
    mark = '<span class="key marked">leaves the reference</span>' if at >= 0 else ""
    return f"<h3>Graph</h3><p>{key}{mark}</p>{strip(nodes)}<div class='scroll tall'>{drawn}</div>"


def _cost(t: TargetDiagnosis) -> str:
    figures = [] if t.report is None else list(t.report.cost.figures.items())
    rows: list[list[Cell]] = []
    for k, f in figures:
        shown = f"{f.value:,.0f}" if f.value == int(f.value) else f"{f.value:,.6g}"
        rows.append([k, (f"{shown} {escape(f.unit)}", f.value), f.basis])
    for name, n in t.files.items():
        rows.append([name, (f"{n:,} bytes", n), "measured"])
    return f"<h3>Cost and files</h3>{_table(['figure', 'value', 'says'], rows)}" if rows else ""


def _ops(t: TargetDiagnosis) -> str:
    if t.report is None or not t.report.rows:
        return ""
    found = t.report.rows
    rows: list[list[Cell]] = [
        [(str(i + 1), i), r.op, r.name, r.device, (f"{r.macs:,}", r.macs), t.report.status(r), r.reason, r.suggestion]
        for i, r in enumerate(found[:_MOST_ROWS])
    ]
    head = ["", "op", "name", "runs on", "MACs", "status", "why", "instead"]
    classes = [r.device if r.device in ("host", "unknown") else "chip" for r in found]
    left = f", the first {_MOST_ROWS:,}" if len(found) > _MOST_ROWS else ""
    return f"<details><summary>{_count(len(found), 'op')}{left}</summary>{_table(head, rows, classes)}</details>"


def _evidence(t: TargetDiagnosis) -> str:
    if t.report is None or not (t.report.evidence or t.report.notes):
        return ""
    rows: list[list[Cell]] = [
        [r.tool, r.act, "" if r.status is None else str(r.status), " ".join(d[:12] for d in r.took), r.when, r.answer]
        for r in t.report.evidence
    ]
    head = ["tool", "what it did", "status", "sha256 of what it was given", "when", "answer"]
    notes = "".join(f"<li>{escape(n)}</li>" for n in t.report.notes)
    return (
        f"<details><summary>{_count(len(rows), 'record')} of tools, {_count(len(t.report.notes), 'note')}</summary>"
        f"{_table(head, rows) if rows else ''}{f'<ul>{notes}</ul>' if notes else ''}</details>"
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Cell]], classes: Sequence[str] = ()) -> str:
    """A table that sorts where somebody presses a heading."""
    top = "".join(f'<th scope="col"><button type="button">{escape(h) or "#"}</button></th>' for h in head)
    body: list[str] = []
    for i, row in enumerate(rows):
        kind = f' class="{classes[i]}"' if i < len(classes) and classes[i] else ""
        body.append(f"<tr{kind}>{''.join(map(_cell, row))}</tr>")
    inside = f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="scroll"><table class="sorts">{inside}</table></div>'


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    shown, key = cell
    number = ' class="number"' if not isinstance(key, str) else ""
    return f'<td{number} data-key="{escape(str(key))}">{shown}</td>'
