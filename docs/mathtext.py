"""Formulas of the site as pictures that need no server: TeX, typeset by Matplotlib, as SVG in the page.

Matplotlib knows a part of TeX. What it cannot typeset is shown as it was written.
"""

import io
import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# What Matplotlib wants spelled otherwise: arguments without braces, sizes that it chooses itself, lines.
SPELLINGS = [
    (r"\\tfrac", r"\\frac"),
    (r"\\frac\s*(\w)", r"\\frac{\1}"),
    (r"(\\frac\{\w\})\s*(\w)", r"\1{\2}"),
    (r"\\(sqrt|mathbb|bar|hat)\s+(\w)", r"\\\1{\2}"),
    (r"\\[bB]ig+[lr]?(?![a-z])", ""),
    (r"\\top(?![a-z])", r"\\mathsf{T}"),
    (r"\\bmod", r"\\;\\mathrm{mod}\\;"),
    (r"\s*\n\s*", " "),
]
# Matplotlib's points per em of the page's text.
SIZE = 12.0


def typeset(tex: str) -> str | None:
    """An SVG element as high as the text around it wants, or None."""
    from matplotlib import mathtext, rc_context
    from matplotlib.font_manager import FontProperties

    for pattern, instead in SPELLINGS:
        tex = re.sub(pattern, instead, tex)
    y = io.StringIO()
    try:
        with rc_context({"mathtext.fontset": "cm", "svg.hashsalt": "nxjax"}):
            depth = mathtext.math_to_image(f"${tex.strip()}$", y, prop=FontProperties(size=SIZE), dpi=72, format="svg")
    except ValueError:
        return None
    svg = y.getvalue()[y.getvalue().index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Lengths in em follow the text; black is the colour of the text, and the background is the page's.
    width, height = (float(n) for n in re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2])
    style = f"width:{width / SIZE:.3f}em;height:{height / SIZE:.3f}em;vertical-align:{-depth / SIZE:.3f}em"
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', f'style="{style}" fill="currentColor"', svg, count=1)
    svg = re.sub(r'<g id="patch_1">.*?</g>', "", svg, flags=re.DOTALL)
    return re.sub(r"<g id=\"(figure|text)_1\"", "<g", svg).replace("fill: #000000", "fill: currentColor")


def visit(self: Any, node: nodes.Element) -> None:
    tex = node.astext()
    said = f"<span role='img' aria-label='{escape(tex, quote=True)}'>"
    self.body.append(f"{said}{typeset(tex) or f'<code>{escape(tex)}</code>'}</span>")
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.Element) -> None:
    tex = node.astext()
    # An equation on a line of its own; `\\` begins a new one.
    lines = [line for line in re.split(r"\\\\|\n\s*\n", tex) if line.strip()]
    drawn = "<br>".join(typeset(line) or f"<code>{escape(line)}</code>" for line in lines)
    self.body.append(
        "<div class='math' role='img' style='text-align:center;margin:1em 0;overflow-x:auto;font-size:1.1em' "
        f"aria-label='{escape(tex, quote=True)}'>{drawn}</div>"
    )
    raise nodes.SkipNode


def leave(self: Any, node: nodes.Element) -> None:
    """Nothing is open."""


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathtext", (visit, leave), (visit_block, leave))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
