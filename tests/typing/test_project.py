"""A user's project type-checks under strict settings, and its mistakes are found: by pyright, and mypy where it is."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "project"
FILES = ("model.py", "arrays.py", "mistakes.py")


def expected(marks: str) -> set[tuple[str, int]]:
    """Lines that carry one of ``marks``."""
    lines = (PROJECT / "mistakes.py").read_text().splitlines()
    return {("mistakes.py", i) for i, line in enumerate(lines, 1) if re.search(rf"# (?:{marks})$", line)}


def pyright(files: tuple[str, ...], mode: str, place: Path) -> list[dict[str, Any]]:
    for name in files:
        shutil.copy(PROJECT / name, place)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": mode, "pythonVersion": "3.11"}
    (place / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(place)]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert answer["summary"]["filesAnalyzed"] == len(files)
    return answer["generalDiagnostics"]


def test_a_script_runs(capsys):
    runpy.run_path(str(PROJECT / "script.py"), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 20


def test_pyright_as_an_editor_asks_it(tmp_path):
    assert pyright(("script.py",), "standard", tmp_path) == []


def test_pyright(tmp_path):
    """Strict, on the user's side: no parameter or result may be unknown."""
    found = pyright(FILES, "strict", tmp_path)
    lines = {(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in found}
    assert lines == expected("error|pyright"), [d["message"] for d in found if "mistakes" not in d["file"]]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not here; `pip install mypy`")
def test_mypy(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n[mypy-nxjax.*]\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    text = subprocess.run(
        [*command, *FILES, "script.py"], capture_output=True, text=True, check=False, cwd=PROJECT
    ).stdout
    lines = {(name, int(line)) for name, line in re.findall(r"^(\w+\.py):(\d+): error", text, re.M)}
    assert lines == expected("error"), text
