"""The three paths of docs/the_core.md run as the page says: each runs under a profiler, in its own process.

Every function that a section links to must run, in the order of the links, and something of every class.
"""

import ast
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import BLOCK, ROOT, run_block

PAGE = ROOT / "docs/the_core.md"
INTRODUCTION, *PATHS = PAGE.read_text().split("\n## ")
LINK = re.compile(r'\]\(\.\./(nxjax/[^)#]+)#L\d+ "([^"]+)"\)')


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, type]]:
    """The classes and functions of a file, by name."""
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            yield prefix + statement.name, type(statement)
        if isinstance(statement, ast.ClassDef):
            yield from definitions(statement.body, f"{prefix}{statement.name}.")


def links(section: str) -> list[tuple[str, str, type | None]]:
    """File, name and kind of what a section links to; values have no kind."""
    found = LINK.findall(section)
    return [
        (file, name, dict(definitions(ast.parse((ROOT / file).read_text()).body)).get(name)) for file, name in found
    ]


def is_part(call: list[str], file: str, name: str) -> bool:
    """Whether the code that was called is a function, or is written inside it or inside a class."""
    return call[0] == file and f"{call[1]}.".startswith(f"{name}.")


def record(number: int) -> None:
    """Runs a section; prints which code was called, in order, as far as it is in files that the section links to."""
    section = PATHS[number]
    files, calls = {file for file, _, _ in links(section)}, list[tuple[str, str]]()

    def profile(frame, event, arg):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)) and (file := path[len(str(ROOT)) + 1 :]) in files:
            call = file, frame.f_code.co_qualname.replace(".<locals>", "")
            if not calls or calls[-1] != call:
                calls.append(call)

    namespace: dict = {"__name__": "docs"}
    exec("import nxjax as nx\nimport nxjax.numpy as jnp", namespace)
    for block in (b for s in PATHS[:number] for b in BLOCK.findall(s)):
        run_block(block, namespace, PAGE.name)
    threading.setprofile(profile)
    sys.setprofile(profile)
    for block in BLOCK.findall(section):
        run_block(block, namespace, PAGE.name)
    sys.setprofile(None)
    threading.setprofile(None)
    print(json.dumps(calls))


@pytest.mark.parametrize("number", range(3))
def test_what_a_path_links_to_runs_in_its_order(number: int, tmp_path: Path):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.test_the_core as t; t.record({number})"
    # An empty cache: kernels of earlier runs would not be written again.
    tmp_path.chmod(0o700)
    env = {**os.environ, "NXJAX_CACHE_DIR": str(tmp_path)}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, env=env)
    assert child.returncode == 0, child.stderr[-4000:]
    calls, at = json.loads(child.stdout), 0
    for file, name, kind in links(PATHS[number]):
        found = [i for i, call in enumerate(calls) if is_part(call, file, name)]
        if kind is ast.FunctionDef:
            assert found, f"{file}#{name} does not run"
            later = [i for i in found if i >= at]
            assert later, f"{file}#{name} runs, but not after the function that stands before it on the page"
            at = later[0]
        elif kind is ast.ClassDef:
            assert found, f"nothing of {file}#{name} runs"


def test_every_link_to_source_leads_to_a_line():
    """`docs/generate_lines.py` writes them, and test_docs checks that they are up to date."""
    text = PAGE.read_text()
    assert text.count("](../nxjax/") == len(LINK.findall(text)) and "#L0 " not in text


def test_there_are_three_paths():
    assert len(PATHS) == 3 and all(len(links(path)) > 10 for path in PATHS) and INTRODUCTION.startswith("# ")
