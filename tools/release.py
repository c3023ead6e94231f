#!/usr/bin/env python3
"""Makes a release, as far as this machine: checks the tree, builds, tries what it has built, tags. It uploads nothing.

    python tools/release.py check          # what is missing for a release
    python tools/release.py build          # and both files, of what is committed; the wheel is tried alone
    python tools/release.py tag            # and the tag; then it prints what is left to do by hand

Knows the project's files that name the version, and no registry.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
# What a wheel must do where nothing but it is: {place} is where its files are to be.
SMOKE = """
import nxjax as nx
assert nx.__file__.startswith({place!r}), nx.__file__
assert nx.jit(nx.grad(lambda x: (x * x).sum()))(nx.ones(3)).tolist() == [2, 2, 2]
missing = [name for name in dir(nx) if not hasattr(nx, name)]
assert not missing, missing
from nxjax.__main__ import main
assert main(["info"]) == main(["explain", "ShapeError"]) == main(["explain", "quantization"]) == 0
"""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def version_of(root: Path) -> str:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def problems(root: Path, today: datetime.date) -> list[str]:
    """What blocks a release of what is committed in ``root``; nothing: an empty list."""
    version = version_of(root)
    found = ["uncommitted changes: see git status"] if _git(root, "status", "--porcelain") else []
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        found.append(f"pyproject.toml: {version} is no version such as 1.2.3 or 1.2.3rc1")
    for file, line in (("nxjax/version.py", f'OWN = "{version}"'), ("CITATION.cff", f"version: {version}")):
        if line not in (root / file).read_text().splitlines():
            found.append(f"{file} has no line {line}")
    if "urls" not in tomllib.loads((root / "pyproject.toml").read_text())["project"]:
        found.append("pyproject.toml has no [project.urls]: say where the repository is")
    heading = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    told = re.fullmatch(r"(\S+) \((\d{4}-\d\d-\d\d)\)", heading[1]) if heading else None
    if told is None or told[1] != version:
        found.append(f"CHANGELOG.md does not begin with ## {version} ({today})")
    elif datetime.date.fromisoformat(told[2]) > today:
        found.append(f"CHANGELOG.md: {told[2]} is not yet")
    if _git(root, "tag", "--list", f"v{version}"):
        found.append(f"v{version} is tagged already")
    return found


def build(root: Path, out: Path) -> tuple[Path, Path]:
    """The source distribution and the wheel of what is committed."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x"], cwd=place, input=archive, check=True)
        subprocess.run([sys.executable, "-c", BUILD, str(out.resolve())], cwd=place, capture_output=True, check=True)
    version = version_of(root)
    return out / f"nxjax-{version}.tar.gz", out / f"nxjax-{version}-py3-none-any.whl"


def smoke(wheel: Path, offline: bool) -> None:
    """Install the wheel where nothing else is, and use it there.

    Args:
        wheel: the file.
        offline: beside the packages of this interpreter, in place of those that pip gets for a new environment.
    """
    with tempfile.TemporaryDirectory() as name:
        place, here = Path(name).resolve(), {**os.environ, "NXJAX_CACHE_DIR": ""}
        here.pop("PYTHONPATH", None)
        python = sys.executable
        words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if offline:
            words += ["--no-deps", "--no-index", "--target", str(place)]
            here["PYTHONPATH"] = str(place)
        else:
            venv.create(place, with_pip=True)
            python = str(place / ("Scripts" if os.name == "nt" else "bin") / "python")
            words[0] = python
        subprocess.run([*words, str(wheel.resolve())], cwd=place, env=here, check=True)
        subprocess.run([python, "-W", "error", "-c", SMOKE.format(place=str(place))], cwd=place, env=here, check=True)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="release", description="checks, builds, tries and tags; uploads nothing")
    parser.add_argument("step", choices=("check", "build", "tag"), help="each with what stands before it")
    parser.add_argument("--out", type=Path, default=root / "dist", help="a folder for the files (dist)")
    parser.add_argument("--offline", action="store_true", help="try the wheel with this interpreter's packages")
    options = parser.parse_args(arguments)
    if found := problems(root, datetime.date.today()):
        print("\n".join(found), file=sys.stderr)
        return 1
    version = version_of(root)
    print(f"nxjax {version}: ready")
    if options.step == "check":
        return 0
    files = build(root, options.out)
    smoke(files[1], options.offline)
    print("\n".join(map(str, files)))
    if options.step == "tag":
        _git(root, "tag", "--annotate", f"v{version}", "--message", f"nxjax {version}")
        print(f"by hand: git push origin v{version}; make site; twine upload {' '.join(map(str, files))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
