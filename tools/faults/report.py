"""The record as tables: how many faults were caught, by folder, by kind and by whom, and which survived."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Record = Mapping[str, Any]


def latest(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The last verdict of each fault, in the order in which they were planted first; ``first``: what the first said.

    Tests may be written, or chosen, for a fault that survived. The measure of tests is what they caught at first.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        record = json.loads(line)
        first = found[record["id"]]["first"] if record["id"] in found else record["outcome"]
        found[record["id"]] = {**record, "first": first}
    return list(found.values())


def text(records: Sequence[Record], equivalent: Mapping[str, str], present: Container[str]) -> str:
    """All tables; what cannot be imported counts for nothing, and an equivalent fault that survived is told apart.

    Args:
        present: which faults that survived can still be planted. What was rewritten since is counted, but not listed.
    """
    planted = [r for r in records if r["outcome"] != "stillborn"]
    if not planted:
        return "nothing is planted yet"
    left = [r for r in planted if r["outcome"] == "survived"]
    open_ = [r for r in left if r["id"] not in equivalent]
    times = [r["seconds"] for r in planted if _at_first(r)]
    later = sum(r["outcome"] == "caught" for r in planted) - len(times)
    listed = [r for r in open_ if r["id"] in present]
    gone = len(open_) - len(listed)
    said = [
        f"{len(planted)} planted, {len(times)} caught at first, {later} later, {len(left) - len(open_)} equivalent,"
        f" {len(open_)} survived ({len(records) - len(planted)} more could not be imported)",
        f"caught at first: {_share(planted, equivalent)} of those that change something;"
        f" half of them within {median(times or [0]):.0f} s",
        *([f"{gone} of those that survived are of sources that were rewritten since"] if gone else []),
        "",
        _table("folder", planted, equivalent, lambda r: _folder(r["path"])),
        "",
        _table("kind", planted, equivalent, lambda r: r["kind"]),
        "",
        _table(
            "by whom", [r for r in planted if r["by"]], equivalent, lambda r: f"{r['by']}, {r['how'].split(' (')[0]}"
        ),
    ]
    for title, some in (
        ("survived", listed),
        ("equivalent", [r for r in left if r["id"] in equivalent]),
    ):
        said += ["", f"## {title}"]
        for r in some:
            said.append(f"{r['id']} {r['path']}:{r['line']} {r['function']} [{r['kind']}], {r['asked']} tests call it")
            said.append(f"    - {_short(r['before'])}\n    + {_short(r['after'])}")
            if r["id"] in equivalent:
                said.append(f"    {equivalent[r['id']]}")
    return "\n".join(said)


def _at_first(record: Record) -> bool:
    return record["outcome"] == record["first"] == "caught"


def _share(records: Sequence[Record], equivalent: Mapping[str, str]) -> str:
    counted = [r for r in records if r["outcome"] == "caught" or r["id"] not in equivalent]
    caught = sum(map(_at_first, counted))
    return f"{100 * caught / len(counted):.1f} %" if counted else "-"


def _table(title: str, records: Sequence[Record], equivalent: Mapping[str, str], key: Callable[[Record], str]) -> str:
    groups: dict[str, list[Record]] = {}
    for r in records:
        groups.setdefault(key(r), []).append(r)
    heads = (title, "planted", "caught at first", "later", "equivalent", "survived", "at first, of the rest")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, some in sorted(groups.items()):
        left = [r for r in some if r["outcome"] == "survived"]
        same = sum(r["id"] in equivalent for r in left)
        first = sum(map(_at_first, some))
        cells = (
            name,
            len(some),
            first,
            len(some) - len(left) - first,
            same,
            len(left) - same,
            _share(some, equivalent),
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def _folder(path: str) -> str:
    folder = path.removeprefix("nxjax/").split("/")
    return "/".join(
        folder[:3]
        if folder[:3] == ["backends", "cpu", "native"]
        else folder[:2]
        if folder[0] in ("backends", "kernels", "lower")
        else folder[:1]
    )


def _short(text: str) -> str:
    lines = text.strip().split("\n")
    return lines[0][:140] + (" ..." if len(lines) > 1 or len(lines[0]) > 140 else "")
