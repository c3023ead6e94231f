"""What a notebook shows of a jitted function and of its stages. Read only; compiles nothing that was not compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from nxjax.display import page
from nxjax.errors import NxError
from nxjax.trace.types import ArrayType
from nxjax.transforms.retrace import shown_time

if TYPE_CHECKING:
    from nxjax.transforms.jit import Jitted
    from nxjax.transforms.jit_stages import Compiled, Lowered, Traced
    from nxjax.transforms.retrace import RetraceReport

_STAGES: Final = ("program", "simplified", "tape", "stablehlo")
_MOST: Final = 30_000  # characters of one stage
_ROWS: Final = 40


def _types(types: Sequence[ArrayType], names: Sequence[str] = ()) -> str:
    named = len(names) == len(types)
    parts = [f"{names[i]}: {t}" if named else str(t) for i, t in enumerate(types[:12])]
    return ", ".join(parts) + (f", and {len(types) - 12} more" if len(types) > 12 else "")


def jitted_page(jitted: Jitted[..., Any], signatures: Sequence[tuple[Traced, Any]]) -> str:
    """The signatures that were traced, with what stayed a Python value."""
    rows = [
        (
            str(i),
            _types(traced.program.in_types, traced.asked.names) or "no arrays",
            ", ".join(f"{name}={value!r}"[:60] for name, _, value in statics or ()),
            _types(traced.program.out_types),
            f"{len(traced.program.equations):,}",
        )
        for i, (traced, statics) in enumerate(signatures[:_ROWS], 1)
    ]
    left = len(signatures) - _ROWS
    traces = f"{jitted.trace_count} time{'' if jitted.trace_count == 1 else 's'}"
    return page.page(
        page.heading(repr(jitted), ("traced", traces), ("signatures kept", len(signatures))),
        page.table(("", "arguments", "static", "results", "equations"), rows)
        if rows
        else page.paragraph("Not called yet: it is traced at the first call with arguments of a type."),
        page.paragraph(f"and {left} more") if left > 0 else "",
    )


def lowered_page(lowered: Lowered) -> str:
    """The text of every stage that there is before machine code."""
    parts: list[str] = []
    for stage in _STAGES:
        try:
            content = lowered.as_text(stage)
        except NxError:
            continue  # another executor's stage
        parts.append(page.details(f"{stage}, {content.count(chr(10)) + 1:,} lines", page.text(content, most=_MOST)))
    program = lowered._traced.program
    return page.page(
        page.heading(
            f"Lowered {program.name}".strip(), ("", f"{_types(program.in_types)} → {_types(program.out_types)}")
        ),
        *parts,
    )


def compiled_page(compiled: Compiled) -> str:
    """What a call costs, the memory it takes, and the executor's own text."""
    program = compiled._traced.program
    rows = [(name, f"{value:,.6g}") for name, value in compiled.cost_analysis().items()]
    memory = compiled.memory_analysis()
    found = cast("Mapping[str, Any]", memory if isinstance(memory, dict) else getattr(memory, "__dict__", {}))
    names = found or {n: getattr(memory, n) for n in dir(memory) if "bytes" in n and not n.startswith("_")}
    rows += [(n.replace("_", " "), f"{v:,}") for n, v in names.items() if isinstance(v, int)]
    content = compiled.as_text()
    return page.page(
        page.heading(
            f"Compiled {program.name}".strip(), ("", f"{_types(program.in_types)} → {_types(program.out_types)}")
        ),
        page.table(("", "estimate"), rows) if rows else "",
        page.details(f"text, {content.count(chr(10)) + 1:,} lines", page.text(content, most=_MOST)),
    )


def retrace_page(report: RetraceReport) -> str:
    """Every trace of a function, with its reasons and what to do about them."""
    rows = [
        (
            str(i),
            str(trace),
            shown_time(trace.tracing),
            shown_time(trace.compiling),
            str(trace.source or ""),
            "; ".join(reason.what for reason in reasons),
            "; ".join(reason.fix for reason in reasons),
        )
        for i, (trace, reasons) in enumerate(zip(report.signatures, report.reasons, strict=True), 1)
    ]
    head = ("", "arguments", "tracing", "compiling", "called at", "why", "fix")
    return page.page(page.paragraph(report.head), page.table(head, rows))
