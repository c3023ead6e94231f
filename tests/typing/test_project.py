"""A user's project type-checks under strict settings, and its mistakes are found: by pyright, and mypy where it is."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "project"
FILES = ("model.py", "arrays.py", "mistakes.py")


def expected(marks: str) -> set[tuple[str, int]]:
    """Lines that carry one of ``marks``."""
    lines = (PROJECT / "mistakes.py").read_text().splitlines()
    return {("mistakes.py", i) for i, line in enumerate(lines, 1) if re.search(rf"# (?:{marks})$", line)}


def test_pyright(tmp_path):
    """Strict, on the user's side: no parameter or result may be unknown."""
    for name in FILES:
        shutil.copy(PROJECT / name, tmp_path)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    found = answer["generalDiagnostics"]
    assert answer["summary"]["filesAnalyzed"] == len(FILES)
    lines = {(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in found}
    assert lines == expected("error|pyright"), [d["message"] for d in found if "mistakes" not in d["file"]]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not here; `pip install mypy`")
def test_mypy(tmp_path):
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT}\n[mypy-nxjax.*]\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    text = subprocess.run([*command, *FILES], capture_output=True, text=True, check=False, cwd=PROJECT).stdout
    lines = {(name, int(line)) for name, line in re.findall(r"^(\w+\.py):(\d+): error", text, re.M)}
    assert lines == expected("error"), text
