"""HTML parts with one look, in light and in dark: no scripts, no files, no ids, every text escaped.

Colours are the page's own with some transparency, so that they need not know which theme is on.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

escape = html.escape

_STYLE: Final = """<style>
.nxjax{font:13px/1.45 system-ui,sans-serif;color:var(--jp-content-font-color1,inherit);max-width:100%;text-align:left}
.nxjax table{border-collapse:collapse;margin:.4em 0;font-size:12px}
.nxjax th,.nxjax td{padding:2px 10px 2px 0;text-align:left;vertical-align:top}
.nxjax th,.nxjax td{border-bottom:1px solid rgba(127,127,127,.25)}
.nxjax th{font-weight:600;opacity:.75}
.nxjax tbody tr,.nxjax tr{background:transparent}
.nxjax pre,.nxjax code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:none;color:inherit}
.nxjax pre{margin:.3em 0;padding:.5em .7em;overflow:auto;max-height:32em;border-radius:6px}
.nxjax pre{background:rgba(127,127,127,.1)}
.nxjax details{margin:.25em 0;padding-left:.2em}
.nxjax details details{margin-left:1em}
.nxjax summary{cursor:pointer}
.nxjax .title{font-weight:600;margin-right:.8em}
.nxjax .fact{display:inline-block;margin-right:1.1em;white-space:nowrap}
.nxjax .fact i,.nxjax .quiet{opacity:.65;font-style:normal}
.nxjax .row{display:flex;flex-wrap:wrap;gap:14px;align-items:flex-start;margin:.35em 0}
.nxjax .scroll{overflow:auto;max-width:100%;max-height:1000px}
.nxjax svg{display:block}
.nxjax .good{color:#2a9d5c;font-weight:600}.nxjax .bad{color:#d9822b;font-weight:600}
</style>"""


def page(*parts: str) -> str:
    """Parts as one output."""
    return f'{_STYLE}<div class="nxjax">{"".join(parts)}</div>'


def heading(title: str, *facts: tuple[str, object]) -> str:
    """A title and what is to be known at one glance: ``(what, value)``; a fact without a name is its value."""
    shown = "".join(
        f'<span class="fact">{f"<i>{escape(name)}</i> " if name else ""}{escape(str(value))}</span>'
        for name, value in facts
    )
    name = f'<span class="title">{escape(title)}</span>' if title else ""
    return f"<div>{name}{shown}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, classes: Sequence[str] = ()) -> str:
    """A table; ``classes`` gives the first cell of each row a class, ``good`` or ``bad``."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body: list[str] = []
    for i, row in enumerate(rows):
        mark = f' class="{escape(classes[i])}"' if i < len(classes) and classes[i] else ""
        cells = "".join(f"<td{mark if j == 0 else ''}>{escape(c)}</td>" for j, c in enumerate(row))
        body.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def details(summary: str, body: str, *, opened: bool = False) -> str:
    """A part that is folded away until somebody opens it. ``body`` is HTML, ``summary`` text."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary>{body}</details>"


def text(content: str, *, most: int = 200_000) -> str:
    """Text as it is written; cut, and said so, beyond ``most`` characters."""
    left = len(content) - most
    more = f"\n... {left:,} more characters" if left > 0 else ""
    return f"<pre>{escape(content[:most])}{more}</pre>"


def paragraph(content: str) -> str:
    return f"<div>{escape(content)}</div>"


def scroll(content: str) -> str:
    """HTML that may be wider than the page."""
    return f'<div class="scroll">{content}</div>'


def row(*parts: str) -> str:
    """HTML side by side."""
    return f'<div class="row">{"".join(f"<div>{p}</div>" for p in parts if p)}</div>'
