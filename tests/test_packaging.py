"""The wheel and the source distribution: what is in them, and that the wheel alone imports without a warning."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tools.release import SMOKE

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta as b; print(b.build_sdist('dist')); print(b.build_wheel('dist'))"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both files, made of a copy without network or isolation."""
    pytest.importorskip("setuptools", "77", reason="older setuptools do not know this form of pyproject.toml")
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".ipynb_checkpoints")
    for name in ("nxjax", "docs", "benchmarks", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    (copy / "tests" / "trace").mkdir(parents=True)
    shutil.copy(__file__, copy / "tests")
    shutil.copy(ROOT / "tests" / "trace" / "test_program.py", copy / "tests" / "trace")
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".png":
            shutil.copy(path, copy)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return copy / "dist"


def test_the_rules_cover_every_file():
    """As pyproject.toml says them, for machines that cannot build: packages are folders with __init__.py."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert tools["packages"]["find"]["include"] == ["nxjax*"]
    data = tools["package-data"]
    for path in (ROOT / "nxjax").rglob("*"):
        if not path.is_file() or path.suffix in (".pyc", ".bin"):  # what Python and the installation make
            continue
        if path.suffix == ".py":
            assert (path.parent / "__init__.py").exists(), f"{path} is in no package"
            continue
        patterns = [f"**/{p}" for p in data["*"]]
        patterns += [f"{package.replace('.', '/')}/{p}" for package, found in data.items() for p in found]
        assert any(path.match(p) for p in patterns), f"{path} is not in package-data"


def test_the_wheel_holds_the_package_and_nothing_else(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = (file.read(n) for n in names if n.endswith(".dist-info/METADATA"))
        file.extractall(tmp_path)
    assert {n.split("/")[0].split("-")[0] for n in names} == {"nxjax"}
    pages = {n for n in names if n.startswith("nxjax/docs/")}
    assert pages == {f"nxjax/docs/{p.name}" for p in (ROOT / "docs").glob("*.md")}
    of_package = {n for n in names if n.startswith("nxjax/")} - pages
    made = {n for n in of_package if n.endswith(".bin")}
    assert all(re.match(r"nxjax/backends/cpu/native/(runtime|calls)-\w+-\w+\.bin$", n) for n in made)
    assert any("/runtime-" in n for n in made)
    of_package -= made
    kinds = {".py", ".pyi", ".typed", ".hpp", ".cpp", ""}
    assert {Path(n).suffix for n in of_package} <= kinds
    here = {p.relative_to(ROOT).as_posix() for p in (ROOT / "nxjax").rglob("*") if p.is_file() and p.suffix in kinds}
    assert of_package == here
    assert {"nxjax/py.typed", "nxjax/__init__.pyi", "nxjax/lower/ipu/formats/poplar/nx_graph.hpp"} <= of_package

    fields = message_from_bytes(metadata)
    assert fields["License-Expression"] == "Apache-2.0" and fields["Requires-Python"] == ">=3.11"
    assert fields["Description-Content-Type"] == "text/markdown" and "nxjax" in fields.get_payload()

    use = SMOKE.format(place=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NXJAX_CACHE_DIR": ""}
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", use]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]


def test_the_source_distribution_has_tests_and_docs(built):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as file:
        names = {n.partition("/")[2] for n in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"} <= names
    assert {"tests/trace/test_program.py", "docs/errors.md", "benchmarks/__main__.py", "nxjax/py.typed"} <= names
    assert not any("__pycache__" in n for n in names)


def test_an_editable_install_is_a_path(tmp_path):
    """Editors and type checkers follow a path, and no code that finds modules."""
    pytest.importorskip("setuptools", "77", reason="older setuptools do not know this form of pyproject.toml")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "nxjax").mkdir()
    (tmp_path / "nxjax" / "__init__.py").touch()
    build = "from setuptools import build_meta as b; b.build_editable('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (path,) = [n for n in archive.namelist() if n.endswith(".pth")]
        assert Path(archive.read(path).decode().strip()) == tmp_path
        assert not [n for n in archive.namelist() if n.endswith(".py")]


def test_the_version_stands_in_one_place_and_in_the_citation():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
