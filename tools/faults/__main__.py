"""How strong the tests are: faults are planted in the sources, one at a time, and counted by who notices.

    python -m tools.faults map                                    # which tests call which function: once, and again
    python -m tools.faults plant --seed 1 --count 60 --minutes 10 --jobs 2
    python -m tools.faults report                                 # caught and planted by folder and kind, survivors
    python -m tools.faults show ID                                # one fault as a diff
    python -m tools.faults try ID tests/ops/test_sort.py          # whether these tests notice it; noted if they do
    python -m tools.faults sides nxjax/kernels/cpu --tests tests/kernels/cpu   # decisions that tests take one way only

What is planted is never written to the checkout, but to a copy. The record grows by a line per fault, so that the
command may be stopped and given again; `plant` with the same seed and a larger count goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.faults import children, covers, sides
from tools.faults.campaign import Campaign, Verdict, as_record
from tools.faults.known import EQUIVALENT
from tools.faults.report import latest, text
from tools.faults.sites import Site, chosen, difference, sites, sources

ROOT: Final = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.faults", description="plant faults, count who notices")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "faults", help="what is known (build/faults)")
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map", help="run all tests once, and note what they call")
    mapping.add_argument("files", nargs="*", help="only these")
    plant = commands.add_parser("plant", help="plant faults and run tests")
    plant.add_argument("--seed", type=int, default=1)
    plant.add_argument("--count", type=int, default=60)
    plant.add_argument("--minutes", type=float, default=10.0, help="for each fault")
    plant.add_argument("--generator", type=float, default=60.0, help="seconds of random programs, at last (60)")
    plant.add_argument("--jobs", type=int, default=1)
    plant.add_argument("--folders", nargs="*", default=["nxjax"], help="only what lies below these")
    plant.add_argument("--again", action="store_true", help="those that survived, once more")
    plant.add_argument("--only", nargs="*", default=[], metavar="ID")
    commands.add_parser("report", help="what is known")
    show = commands.add_parser("show", help="one fault as a diff")
    show.add_argument("id")
    trying = commands.add_parser("try", help="some tests against one fault")
    trying.add_argument("id")
    trying.add_argument("tests", nargs="+")
    deciding = commands.add_parser("sides", help="decisions of which tests take one side only")
    deciding.add_argument("folders", nargs="+", help="of the sources")
    deciding.add_argument("--tests", nargs="+", required=True)
    given = parser.parse_args(arguments)
    if given.command == "plant" and not (min(given.count, given.jobs) > 0 and given.minutes > 0 <= given.generator):
        plant.error("--count, --jobs and --minutes are more than 0, --generator is at least 0")
    given.record.mkdir(parents=True, exist_ok=True)
    return {"map": _map, "plant": _plant, "report": _report, "show": _show, "try": _try, "sides": _sides}[
        given.command
    ](given)


def _map(given: argparse.Namespace) -> int:
    if missing := [f for f in given.files if not (ROOT / f).is_file()]:
        print(f"no such file: {', '.join(missing)}", file=sys.stderr)
        return 1
    children.load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        children.copy_of(ROOT, tree)
        wanted = given.files or covers.stale(tree, given.record / "map.jsonl")
        for cover in covers.measure(tree, given.record / "map.jsonl", wanted):
            print(f"{cover.file}: {len(cover.passed)} pass in {cover.seconds} s, {len(cover.failed)} fail", flush=True)
    return 0


def _everywhere() -> dict[str, Site]:
    return {s.fault.id: s for path in sources(ROOT) for s in sites(path, (ROOT / path).read_text())}


def _records(given: argparse.Namespace) -> list[dict[str, Any]]:
    path = given.record / "record.jsonl"
    return latest(path.read_text().splitlines()) if path.exists() else []


def _wanted(given: argparse.Namespace) -> list[Site]:
    """What is to be planted now: those of the seed without a verdict, or those that survived."""
    every, known = _everywhere(), {r["id"]: r for r in _records(given)}
    if given.only:
        return [_site(i) for i in given.only]
    if given.again:
        return [every[i] for i, r in known.items() if r["outcome"] == "survived" and i in every and i not in EQUIVALENT]
    wanted: list[Site] = []
    living = 0
    for s in chosen(every.values(), given.seed, 2 * given.count):
        record = known.get(s.fault.id)
        living += record is None or record["outcome"] != "stillborn"
        if record is None and s.fault.path.startswith(tuple(given.folders)):
            wanted.append(s)
        if living == given.count:
            break
    return wanted


def _plant(given: argparse.Namespace) -> int:
    children.load_libraries()
    measured = covers.load(given.record / "map.jsonl")
    if not measured:
        print("nothing is known of what tests call: `python -m tools.faults map` comes first", file=sys.stderr)
        return 1
    wanted = _wanted(given)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        whole = Path(folder) / "whole"
        children.copy_of(ROOT, whole)
        workers = [
            os.fork() or _work(given, folder, whole, measured, wanted[j :: given.jobs], j) for j in range(given.jobs)
        ]
        ends = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    return 1 if any(ends) else 0


def _work(
    given: argparse.Namespace,
    folder: str,
    whole: Path,
    measured: dict[str, covers.Cover],
    wanted: list[Site],
    number: int,
) -> int:
    """One process of several; does not come back."""
    status = 1
    try:
        tree = Path(folder) / f"tree{number}"
        shutil.copytree(whole, tree)
        campaign = Campaign(tree, whole, measured, 60 * given.minutes, given.generator, given.seed)
        for site in wanted:
            record = as_record(
                site.fault, campaign.verdict(site), seed=given.seed, minutes=given.minutes, programs=given.generator
            )
            _note(given, record)
            place, who = f"{record['path']}:{record['line']}", f"{record['by']} {record['who']}".strip()
            print(record["id"], place, record["kind"], record["outcome"], who, f"{record['seconds']} s", flush=True)
        status = 0
    finally:
        os._exit(status)


def _note(given: argparse.Namespace, record: dict[str, Any]) -> None:
    with (given.record / "record.jsonl").open("a") as f:
        f.write(json.dumps(record) + "\n")


def _report(given: argparse.Namespace) -> int:
    records = _records(given)
    left = {r["path"] for r in records if r["outcome"] == "survived" and (ROOT / r["path"]).exists()}
    present = {s.fault.id for path in left for s in sites(path, (ROOT / path).read_text())}
    print(text(records, EQUIVALENT, present))
    return 0


def _sides(given: argparse.Namespace) -> int:
    children.load_libraries()
    outcome = sides.measured(ROOT, given.folders, given.tests)
    print(outcome.tail)
    if outcome.report:
        print(sides.text(outcome.report, given.folders))
    return 0 if outcome.report else 1


def _site(id: str) -> Site:
    found = _everywhere().get(id)
    if found is None:
        raise SystemExit(f"no fault {id} in these sources: has the function changed?")
    return found


def _show(given: argparse.Namespace) -> int:
    site = _site(given.id)
    source = (ROOT / site.fault.path).read_text()
    print(f"{site.fault.kind} in {site.fault.function}\n{difference(site.fault, source, site.applied(source))}")
    return 0


def _try(given: argparse.Namespace) -> int:
    site = _site(given.id)
    children.load_libraries()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tree = Path(folder)
        children.copy_of(ROOT, tree)
        before = children.pytest_over(tree, given.tests, 600)
        with children.changed(tree, site.fault.path, site.applied((tree / site.fault.path).read_text())):
            after = children.pytest_over(tree, given.tests, 600)
    failed = after.report.get("failed", [])
    print(after.tail if after.status else "not noticed")
    if before.status or not after.status:
        print("the tests fail without the fault" if before.status else "", file=sys.stderr)
        return 1
    how = "failure" if failed else f"crash ({after.status})"
    who, said = failed[0] if failed else (after.running, after.tail[-200:])
    verdict = Verdict("caught", "test", who, how, said, round(after.seconds, 1))
    known = {r["id"]: r for r in _records(given)}.get(given.id, {"seed": None, "minutes": None, "programs": None})
    _note(given, as_record(site.fault, verdict, **{k: known[k] for k in ("seed", "minutes", "programs") if k in known}))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads no more ends it in silence
    sys.exit(main())
