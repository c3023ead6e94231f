"""The pages of documentation, as text: `docs/` beside a source tree, a folder of the package in a wheel.

They are the one source of what the site, `nxjax explain` and messages say. Knows their form (headings, tables of a name
and a reason), and no subject of any.
"""

from __future__ import annotations

import difflib
import os
import re
from functools import lru_cache
from importlib import import_module
from typing import Final

from nxjax import errors
from nxjax.errors import ParameterError

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")


def folder() -> str:
    """Where the pages are; a folder that is not there in a copy without them."""
    inside = os.path.join(_PACKAGE, "docs")
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(_PACKAGE), "docs")


def names() -> list[str]:
    """The pages, as `page` takes them."""
    try:
        files = os.listdir(folder())
    except OSError:
        return []
    return sorted(f.removesuffix(".md") for f in files if f.endswith(".md") and f != "index.md")


@lru_cache(4)
def page(name: str) -> str:
    """The text of a page; empty where it is not."""
    try:
        with open(os.path.join(folder(), f"{name}.md"), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def sections(name: str) -> dict[str, str]:
    """Heading -> text of the parts of a page."""
    parts = re.split(r"^## (.+)\n", page(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def explained(topic: str) -> str:
    """The section of an error, or a page, whatever the case of its name.

    Raises:
        ParameterError: there is neither; the message has the nearest names.

    >>> print(explained("axiserror").splitlines()[0])
    AxisError
    """
    found = {name.lower(): name for name in names()}
    texts = sections("errors")
    # JAX's other names of errors mean the same classes.
    classes = {name.lower(): c.__name__ for name, c in vars(errors).items() if isinstance(c, type)}
    known = {**found, **{n: name for n, name in classes.items() if name in texts}, **{n.lower(): n for n in texts}}
    asked = topic.lower().removesuffix(".md").replace("-", "_")
    asked = re.split(r"[./]", asked)[-1]
    name = known.get(asked, "")
    if name in texts:
        return f"{name}\n\n{plain(texts[name]).strip()}\n"
    if name:
        return page(name)
    near = [known[n] for n in difflib.get_close_matches(asked, known, 3, 0.5)]
    told = [f"nxjax explain {n}" for n in _speaking(asked)]
    if hasattr(import_module("nxjax"), asked):
        told.insert(0, f"help(nx.{asked}) in Python")
    raise ParameterError(
        "explain: no such topic",
        got=repr(topic),
        expected="the name of an error, or of a page of the documentation" if known else "the pages of docs/, not here",
        fix=", ".join(told)
        or (f"did you mean {' or '.join(near)}?" if near else "nxjax explain, without a name, lists them"),
    )


def _speaking(word: str) -> list[str]:
    """The three pages that say a word most, for the root of their length. A heading counts as ten times the text."""
    whole = rf"(?<!\w){re.escape(word)}(?!\w)"
    told = {n: re.findall(rf"(^#.*)?{whole}", page(n), re.IGNORECASE | re.MULTILINE) for n in names()}
    counts = {
        n: sum(10 if heading else 1 for heading in found) / len(page(n)) ** 0.5 for n, found in told.items() if found
    }
    return sorted(counts, key=lambda n: (-counts[n], n))[:3]


def listed() -> str:
    """All topics that `explained` takes."""
    return f"errors: {', '.join(sorted(sections('errors')))}\n\npages: {', '.join(names())}\n"


# Pages whose tables begin each row with names that are not here, and end it with what to write instead.
_ABSENT: Final = (("coming_from_jax", "Not here"), ("coming_from_pytorch", ""))
_PARENTHESES: Final = re.compile(r"\([^()]*\)")


@lru_cache(1)
def _absent() -> dict[str, tuple[str, str, str]]:
    """Name below the package, or below ``x``, ``model`` and ``artifact``, or ``argument=``
    -> why not (where a row says it), instead, page."""
    found: dict[str, tuple[str, str, str]] = {}
    for name, heading in _ABSENT:
        text = sections(name).get(heading, "") if heading else page(name)
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| `") and len(cells) >= 2:
                why, instead = ("", *cells[1:])[-2:]
                for word in re.findall(r"`([\w.*]+=?)`", _PARENTHESES.sub("", cells[0])):
                    found.setdefault(word, (plain(why), plain(instead), name))
    return found


def absent(name: str) -> str:
    """What the documentation says of a name that is not here, as the rest of a message; empty where it says nothing.

    >>> print(absent("new_ref").splitlines()[0])
    : mutable references: arrays are never written to, also inside programs
    """
    rows = _absent()
    short = name.removeprefix("numpy.")  # what NumPy's functions are called at the top, too
    parts = short.split(".")
    wholes = (".".join((*parts[:i], "*")) for i in range(len(parts), 0, -1))
    row = next((rows[n] for n in (name, short, *wholes) if n in rows), None)
    if row is None and name.endswith("="):
        return ""
    if row is None:
        near = _near(name.split("."))
        return f"\n  fix:      {near}" if near else ""
    why, instead, where = row
    said = [f": {why}"] if why else [""]
    said += [f"  instead:  {instead}"] if instead else []
    return "\n".join((*said, f"  docs:     nxjax explain {where}"))


# Modules of functions, in the order in which a name that stands elsewhere is looked for.
_FUNCTIONS: Final = ("nn", "numpy", "lax", "random")
# What the pages call an array, a network and what is compiled: no modules.
_OBJECTS: Final = ("x", "model", "artifact")


def _near(parts: list[str]) -> str:
    """Where a function of this name is, or which name is nearly this one; mostly nothing. Near names of the same module
    or object Python says itself."""
    name, own = parts[-1], ".".join(parts[:-1])
    if own in _OBJECTS:
        return ""
    names = {m: dir(import_module(f"nxjax.{m}")) for m in _FUNCTIONS if m != own}
    for module, known in names.items():
        if name in known:
            return f"nx.{module}.{name}"
    here = {n.lower() for n in dir(import_module(".".join(("nxjax", *parts[:-1]))))}
    places = {n.lower(): f"nx.{m}.{n}" for m, known in reversed(names.items()) for n in known}
    near = difflib.get_close_matches(name.lower(), sorted(here | places.keys()), 1, 0.8) if len(name) > 3 else []
    return f"did you mean {places[near[0]]}?" if near and near[0] not in here else ""


def plain(text: str) -> str:
    """Markdown without what only a renderer needs: fences, stars of emphasis, targets of links.

    >>> plain("**Fix:** see [sharding](sharding.md) and [JAX](https://jax.dev).")
    'Fix: see sharding (nxjax explain sharding) and JAX (https://jax.dev).'
    """

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2].partition("#")[0]
        where = f"nxjax explain {os.path.basename(target)[:-3]}" if target.endswith(".md") else target
        return f"{label} ({where})" if where else label

    lines = [f"    {line}".rstrip() if code else line for line, code in _lines(text)]
    return _LINK.sub(link, "\n".join(lines)).replace("**", "")


def _lines(text: str) -> list[tuple[str, bool]]:
    """Each line but the fences, and whether it is code."""
    found: list[tuple[str, bool]] = []
    code = False
    for line in text.split("\n"):
        if line.startswith("```"):
            code = not code
        else:
            found.append((line, code))
    return found
