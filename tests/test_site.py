"""The site builds strictly, and its reference has every public name; what the pages say is tested in `test_docs`."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "docs"))

ROOT = Path(__file__).parents[1]
# A guide, and a page of the reference.
SHOWN = ("index.md", "reference/nxjax.nn.md")


def test_every_public_name_has_an_entry():
    generate = importlib.import_module("generate_reference")
    text = "\n".join(generate.pages().values())
    for face in generate.faces():
        for name in generate.public(importlib.import_module(face)):
            assert f":: {face}.{name}\n" in text
    # Faces that load their names lazily have them too.
    assert all(f":: nxjax.{name}\n" in text for name in ("jit", "numpy.sin", "lax.scan", "nn.relu", "random.normal"))


def test_every_face_lists_its_names_by_the_alphabet():
    generate = importlib.import_module("generate_reference")
    for face in ("nxjax.numpy", "nxjax.nn", "nxjax.lax"):
        lines = [line for line in generate.overview(face).splitlines() if line.startswith("| {py:obj}")]
        names = [line.split("`")[1].split(" ")[0] for line in lines]
        assert names == sorted(generate.public(importlib.import_module(face)), key=str.lower)
        assert all(line.rstrip(" |").count("|") >= 2 for line in lines), "each has a line of its own"
    assert all(f"]({face}.md) | " in generate.pages()["index.md"] for face in generate.faces())


def test_it_builds_without_a_warning_and_can_be_searched(tmp_path: Path):
    pytest.importorskip("sphinx", reason="the docs extra is not installed")
    site = tmp_path / "site"
    # Trees of pages stay to the end: collections of garbage walk them all, for a sixth of the time.
    code = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-W", "--keep-going", "-q", "-b", "html"]
    # All pages with the plainest theme: the sidebars of the own one take half of the time, and two pages show them.
    whole = [*command, "-E", "-D", "html_theme=basic", str(ROOT / "docs"), str(site)]
    own = [*command, str(ROOT / "docs"), str(site), *(str(ROOT / "docs" / p) for p in SHOWN)]
    for step in (whole, own):
        done = subprocess.run(step, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    shown = [(site / p).with_suffix(".html").read_text() for p in SHOWN]
    assert all("furo.css" in page for page in shown)
    # A wide table scrolls in its own box, and the page does not.
    assert all(0 < page.count("<table") == page.count('class="table-wrapper') for page in shown)
    index = (site / "searchindex.js").read_text()
    for title in ("Quickstart", "nxjax.lax", "Quantization"):
        assert f'"{title}"' in index
    assert "nxjax.numpy" in index and "value_and_grad" in index
