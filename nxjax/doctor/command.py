"""``nxjax doctor MODEL``: what each chip makes of a file, as a table, as JSON and as a page."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import warnings
from pathlib import Path

from nxjax.backends.evidence import plain
from nxjax.doctor.examine import doctor
from nxjax.doctor.findings import TargetDiagnosis
from nxjax.errors import InvalidFileError, NxError, ParameterError

WRONG, INTERRUPTED = 2, 130


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own, added to its parser."""
    parser.add_argument("model", help="a file: .onnx, .tflite, .pt2 of torch.export, or StableHLO")
    parser.add_argument(
        "--targets", default="usual", metavar="NAMES", help="usual (one size of each chip), all, or names with commas"
    )
    parser.add_argument("--data", metavar="FILE", help="an .npz file: samples by the input's name; else noise is drawn")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="NAME=N,N,...", help="of an input with open dimensions"
    )
    parser.add_argument("--policy", default="", help="int8, int16x8, float32, ...; by default as each target has it")
    parser.add_argument("--fix", action="store_true", help="try rewrites of what is refused, and look again")
    parser.add_argument("--html", metavar="FILE", help="write a page, too")
    parser.add_argument(
        "--require",
        choices=("part", "all"),
        help="status 1 if a target does not take a part of the model, or all of it",
    )
    parser.add_argument(
        "--min-db", type=float, metavar="DB", help="status 1 if a target has less, or nothing to measure"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(given: argparse.Namespace) -> int:
    """Print what is found: 0 if some target takes the model or a part of it and all have what is asked for, else 1.

    2 on an error.
    """
    try:
        page = _page(given.html)
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            # What vendors' packages print and warn of is not the answer.
            warnings.simplefilter("ignore")
            found = doctor(
                given.model,
                targets=given.targets,
                data=given.data,
                shapes=dict(map(_shape, given.shape)),
                policy=given.policy,
                fix=given.fix,
                progress=False,
                report=_progress,
            )
    except KeyboardInterrupt:
        print("nxjax doctor: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (NxError, OSError, MemoryError) as error:
        line = _line(error)
        # Readers of formats are given bytes, and know no name.
        name = Path(given.model).name
        named = f"{name}: " if isinstance(error, InvalidFileError) and name not in line and ".npz" not in line else ""
        print(f"nxjax doctor: {named}{line}", file=sys.stderr)
        return WRONG
    print(json.dumps(found.to_dict(), indent=1, allow_nan=False) if given.json else found)
    try:
        if page is not None:
            found.save(page)
    except OSError as error:
        print(f"nxjax doctor: --html: {_line(error)}", file=sys.stderr)
        return WRONG
    missed = [f"{t.target}: {said}" for t in found.targets for said in _missed(t, given.require, given.min_db)]
    for line in missed:
        print(f"nxjax doctor: {line}", file=sys.stderr)
    return 0 if found.takes and not missed else 1


def _missed(t: TargetDiagnosis, require: str | None, least: float | None) -> list[str]:
    """What one target does not have of what was asked for. A host that runs all of it takes it."""
    wanted: dict[str | None, tuple[str, ...]] = {"all": ("all",), "part": ("all", "part")}
    said = [f"{t.verdict}, and --require {require}"] if t.state not in wanted.get(require, (t.state,)) else []
    if least is not None and not (t.sqnr is not None and t.sqnr >= least):
        said.append(f"{'no dB' if t.sqnr is None else f'{t.sqnr:.1f} dB'}, and --min-db {least:g}")
    return said


def _page(name: str | None) -> Path | None:
    """Where the page goes; what cannot be written is said before minutes of work."""
    if not name:
        return None
    page = Path(name).absolute()
    if not page.parent.is_dir():
        raise ParameterError("--html: no such folder", got=str(page.parent))
    if page.exists() and not page.is_file():
        raise ParameterError("--html: no file", got=str(page), expected="the name of a file, report.html")
    if not os.access(page.parent, os.W_OK):
        raise ParameterError("--html: no file can be written there", got=str(page.parent))
    return page


def _progress(t: TargetDiagnosis) -> None:
    print(f"{t.target}: {t.verdict} ({t.seconds:.1f} s)", file=sys.stderr, flush=True)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``NAME=1,3,224,224`` (or ``1x3x224x224``)."""
    name, equals, sizes = text.rpartition("=")
    parts = re.split(r"[,x]", sizes)
    if not equals or not name or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
        raise ParameterError("--shape", got=text, expected="NAME=1,3,224,224")
    return name, tuple(map(int, parts))


def _line(error: BaseException) -> str:
    """An error as one line."""
    if not isinstance(error, NxError):
        return plain(str(error) or type(error).__name__)
    # A list of all targets is no line: what was probably meant is.
    expected = str(error.expected or "")
    parts = [error.what, f"got {error.got}" if error.got is not None else ""]
    parts += [f"expected {expected}" if 0 < len(expected) <= 300 else "", error.fix or ""]
    return plain("; ".join(filter(None, parts))).removeprefix("doctor: ")
