"""Planted faults: what is planted where, what is left out, and that who notices a fault is told from who does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.faults.__main__ import main
from tools.faults.campaign import callers
from tools.faults.covers import Cover
from tools.faults.report import latest, text
from tools.faults.sides import Seen, missing, unseen
from tools.faults.sites import chosen, difference, sites, sources

ROOT = Path(__file__).parents[2]
PATH = "nxjax/kernels/cpu/toy.py"

PLANTED = [
    ("f.store(x, p)", "dropped step", "pass"),
    ("x = list(range(n))", "wrong bound", "x = list(range(n - 1))"),
    ("y = -(-n // 8)", "wrong bound", "y = (n // 8)"),
    ("y = a < b", "wrong bound", "y = (a <= b)"),
    ("y = a - b", "swapped operand", "y = (b - a)"),
    ("y = move(a, b)", "swapped operand", "y = move(b, a)"),
    ("y = f.at(p, i, 8)", "stale pointer", "y = p"),
    ("offset += n", "stale pointer", "pass"),
    ("f.store_masked(x, p, m)", "missing mask", "f.store(x, p)"),
    ("y = f.select(m, a, b)", "missing mask", "y = b"),
    ("y = x.copy()", "lost copy", "y = x"),
    ("y = 0.5 * x", "wrong constant", "y = -0.5 * x"),
    ("if a:\n        y = 1", "wrong condition", "if not a:\n        y = 1"),
    ("if a:\n        return", "removed guard", "if False:\n        return"),
    ("y = min(i, n)", "missing clamp", "y = i"),
    ("y = sum(x, axis=1)", "wrong axis", "y = sum(x, axis=0)"),
    ("with LOCK:\n        g()", "dropped lock", "if True:\n        g()"),
    ("y = f.emit(t, f'load atomic {t} seq_cst')", "dropped lock", "y = f.emit(t, f'load atomic {t} monotonic')"),
    ("y = i * stride", "wrong stride", "y = i"),
    ("y = f.intrinsic('smin', t, a, b)", "wrong operation", "y = f.intrinsic('smax', t, a, b)"),
]


def planted(body: str, path: str = PATH, head: str = "def g(f, a, b):") -> dict[str, str]:
    """Changed source -> kind, of all that can be planted in a function with this body."""
    source = f"{head}\n    {body}\n"
    return {s.applied(source): s.fault.kind for s in sites(path, source)}


@pytest.mark.parametrize(("body", "kind", "after"), PLANTED)
def test_a_fault_of_each_kind(body: str, kind: str, after: str):
    assert planted(body).get(f"def g(f, a, b):\n    {after}\n") == kind


def test_derivatives_are_wrong_where_rules_of_derivatives_are():
    head, body = "def jvp(x, t):", "return mul(t, neg(x))"
    found = planted(body, "nxjax/ops/toy.py", head)
    assert found[f"{head}\n    return mul(t, x)\n"] == "wrong derivative"
    assert found[f"{head}\n    return t\n"] == "wrong derivative"
    assert found[f"{head}\n    return -mul(t, neg(x))\n"] == "wrong derivative"
    assert "wrong derivative" not in planted(body, PATH, head).values()


@pytest.mark.parametrize(
    "body",
    [
        '"""Add 1 to x - y."""',
        "raise ShapeError('n - 1', got=n - 1)",
        "assert a < b, a - b",
        "self.grain = max(1, n - 1)",
        "f.prefetch(p + 64)",
        "y: Final[tuple[int, 3]] = a",
        "if knobs.GEMM_ITEMS() < n:\n        pass",
    ],
)
def test_texts_types_and_speed_are_left_alone(body: str):
    assert not planted(body)


def test_functions_of_texts_and_speed_are_left_alone():
    assert not planted("return a - b", head="def __repr__(a, b):")
    assert not planted("return a - b", head="def cost(a, b):")


def test_a_fault_keeps_its_number_when_its_file_grows():
    source = "def g(a, b):\n    return a - b\n"
    before, after = (sites(PATH, text) for text in (source, f"X = 1\n\n\ndef h():\n    return 2\n\n\n{source}"))
    assert {s.fault.id for s in before} < {s.fault.id for s in after}
    assert len({s.fault.id for s in after}) == len(after)


def test_functions_have_the_names_that_python_gives_them():
    source = "class A:\n    def f(self):\n        with a():\n            def g():\n                return 1 - x\n"
    (name,) = {s.fault.function for s in sites(PATH, source)} - {"A.f"}
    assert name == "A.f.<locals>.g"


def test_the_choice_follows_from_the_seed_and_spreads_over_folders_and_kinds():
    paths = [p for p in sources(ROOT) if p.endswith(("cpu/sort.py", "cpu/call.py", "ops/sort.py", "passes/dce.py"))]
    every = [s for p in paths for s in sites(p, (ROOT / p).read_text())]
    some = chosen(every, 3, 12)
    assert [s.fault.id for s in some] == [s.fault.id for s in chosen(every[::-1], 3, 12)]
    assert chosen(every, 3, 20)[:12] == some
    assert len({s.fault.folder for s in some}) == 4
    assert len({s.fault.kind for s in some}) > 3
    for s in some:
        source = (ROOT / s.fault.path).read_text()
        assert f"{s.fault.path}" in difference(s.fault, source, s.applied(source))
        compile(s.applied(source), s.fault.path, "exec")


TREE = {
    "nxjax/__init__.py": "",
    "nxjax/__main__.py": "print('no program was wrong')\n",
    "nxjax/ops/__init__.py": "",
    "nxjax/ops/toy.py": (
        "import os\n\n\ndef difference(a, b):\n    return a - b\n\n\n"
        "def ended(a):\n    if a > 2:\n        os.abort()\n\n\n"
        "def counted(n):\n    while n > 1:\n        n = n - 1\n\n\n"
        "def unseen(a, b):\n    return a - b\n"
    ),
    "tests/ops/test_toy.py": (
        "from nxjax.ops.toy import counted, difference, ended, unseen\n\n\n"
        "def test_difference():\n    assert difference(3, 1) == 2\n\n\n"
        "def test_ended():\n    ended(1)\n\n\n"
        "def test_counted():\n    counted(2)\n\n\ndef test_unseen():\n    unseen(1, 1)\n"
    ),
}
PLANT = """
import json, signal, sys
from pathlib import Path
from tools.faults import campaign as campaigns
from tools.faults import children, covers
from tools.faults.campaign import Campaign, callers
from tools.faults.sites import sites

signal.signal(signal.SIGPROF, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
campaigns._START, campaigns._SLOW = 3.0, 0.0
tree, whole = Path(sys.argv[1]), Path(sys.argv[2])
known = {c.file: c for c in covers.measure(whole, tree / "map.jsonl", covers.files(whole, ["ops"]))}
assert covers.load(tree / "map.jsonl") == known and not covers.stale(whole, tree / "map.jsonl")
campaign = Campaign(tree, whole, known, 60, 1, 0)
source = (tree / "nxjax/ops/toy.py").read_text()
for s in sites("nxjax/ops/toy.py", source):
    if s.fault.after in ("(b - a)", "not a > 2", "(n + 1)"):
        v = campaign.verdict(s)
        print(v, file=sys.stderr)
        print(json.dumps([s.fault.function, sum(callers(s.fault, known).values(), []), v.outcome, v.by, v.who, v.how]))
assert (tree / "nxjax/ops/toy.py").read_text() == source
"""


def test_who_notices_is_told(tmp_path: Path):
    """In a package of its own: tests notice a failure, a crash and a loop; the last fault is noticed by nobody.

    Whoever runs the tool may have turned signals off.
    """
    for name in ("tree", "whole"):
        for path, source in TREE.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(source)
    command = [sys.executable, "-c", PLANT, str(tmp_path / "tree"), str(tmp_path / "whole")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=True)
    test = "tests/ops/test_toy.py::test_"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ["difference", [f"{test}difference"], "caught", "test", f"{test}difference", "failure"],
        ["ended", [f"{test}ended"], "caught", "test", f"{test}ended", "crash (-6)"],
        ["counted", [f"{test}counted"], "caught", "test", f"{test}counted", "no end"],
        ["unseen", [f"{test}unseen"], "survived", "", "", ""],
    ], done.stderr


def test_the_command_leaves_nxjax_to_its_children():
    """They import that of another tree; what this process had imported they would have, too."""
    code = "import tools.faults.__main__; from tools.faults.children import load_libraries; load_libraries()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


DECIDING = """
def f(n, x, y):
    if n < LIMIT and not x:
        return [i for i in range(n) if i % 2] if x or y else 0
    while n > 5: n -= 3
    return 1 if 0 <= n <= 9 else x is y
"""


def test_conditions_note_what_they_give(tmp_path):
    path = tmp_path / "nxjax" / "toy.py"
    path.parent.mkdir()
    path.write_text(DECIDING)
    seen, space = Seen(tmp_path, ["nxjax"]), {"LIMIT": 4}
    exec(compile(seen.changed(path), str(path), "exec"), space)
    f = space["f"]

    def left():
        found = zip(seen.places, seen.masks, strict=True)
        return sorted((line, said, what) for (_, line, said), mask in found if (what := missing(mask, said)))

    assert (f(3, 0, 1), f(9, 0, 0)) == ([1], 1)
    assert left() == [
        (3, "n < LIMIT", "no edge"),
        (3, "x", "only false"),
        (4, "x", "only false"),
        (4, "y", "only true"),
        (5, "n > 5", "no edge"),
        (6, "0 <= n <= 9", "only true"),
        (6, "x is y", "never asked"),
    ]
    assert [f(4, 0, 0), f(3, 1, 0), f(-1, 0, 0), f(5, 0, 0), f(-1, 1, 1), f(-1, 1, 2)] == [1, 1, 0, 1, True, False]
    assert left() == [(4, "x", "only false")]  # which it always is there


@pytest.mark.parametrize(("what", "sides", "said"), [
    ("if", [1, 1], ""), ("if", [1, 0], "is never true"), ("branch", [0, 1], "is never false"),
    ("branch", [0, 0], "is never reached"), ("loop", [0, 0, 0], "is never reached"), ("loop", [1, 0, 1], ""),
    ("loop", [0, 1, 0], "goes round once only"), ("loop", [0, 0, 1], "goes round more often only"),
])  # fmt: skip
def test_what_emitted_code_never_did(what, sides, said):
    assert unseen(what, sides) == said


OBSERVED = """
import sys
from pathlib import Path
from tools.faults import children, __main__
from tools.faults.sides import observed, text
children.load_libraries()
status, found = observed(Path.cwd(), ["nxjax/kernels/cpu/sort_radix.py"], sys.argv[1:])
print("=====", status)
print(text(found, ["nxjax/kernels/cpu/sort_radix.py"]))
"""


def test_a_command_sees_which_sides_tests_take():
    test = "tests/kernels/cpu/test_sort_radix.py::test_equal_digits_keep_their_order"
    command = [sys.executable, "-c", OBSERVED, test]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=True)
    status, *said = done.stdout.rpartition("===== ")[2].splitlines()
    assert status == "0", done.stdout
    assert all(line.startswith("nxjax/kernels/cpu/sort_radix.py:") for line in said[:-1])
    assert any("emitted loop goes round" in line for line in said[:-1])
    assert said[-1].endswith("without a side or an edge")


def test_tests_of_the_file_or_the_folder_stand_in_for_those_of_a_new_function():
    def cover(file, *calls):
        return Cover(file, 1.0, ["t"], {"t": 0.1}, {c: [0] for c in calls})

    (site, *_) = sites("nxjax/ops/sort.py", "def new(a, b):\n    return a - b\n")
    called, same_file, same_folder = (f"nxjax/ops/{name}" for name in ("sort.py:new", "sort.py:old", "dot.py:old"))
    for names in ((called, same_file, same_folder), (same_file, same_folder), (same_folder,)):
        covers = {str(i): cover(str(i), name) for i, name in enumerate(names)}
        assert list(callers(site.fault, covers)) == ["0"]


def test_the_report_tells_what_was_caught_at_first_from_what_was_caught_later():
    """What survived counts, also where nobody can plant it again; nobody raises the share by writing sources anew."""
    common = {
        "path": "nxjax/ops/sort.py",
        "line": 3,
        "function": "g",
        "kind": "wrong bound",
        "before": "a",
        "after": "b",
    }
    common |= {"who": "", "how": "failure", "seconds": 2.0, "asked": 1}
    lines = [("1", "survived", ""), ("2", "survived", ""), ("3", "survived", ""), ("1", "caught", "test")]
    lines += [("4", "stillborn", ""), ("5", "caught", "test"), ("6", "survived", "")]
    records = latest(json.dumps({**common, "id": i, "outcome": o, "by": by}) for i, o, by in lines)
    said = text(records, {"2": "nobody reads it"}, {"2", "3"})
    assert "5 planted, 1 caught at first, 1 later, 1 equivalent, 2 survived (1 more could not be imported)" in said
    assert "caught at first: 25.0 % of those that change something" in said
    assert "1 of those that survived are of sources that were rewritten since" in said
    assert "| ops | 5 | 1 | 1 | 1 | 2 | 25.0 % |" in said
    assert said.index("## survived") < said.index("3 nxjax/ops/sort.py:3") < said.index("nobody reads it")
    assert "6 nxjax/ops/sort.py" not in said


@pytest.mark.parametrize("wrong", [["--count", "0"], ["--jobs", "0"], ["--minutes", "-1"], ["--generator", "-1"]])
def test_a_run_that_plants_nothing_is_refused(wrong, capsys, tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["--record", str(tmp_path), "plant", *wrong])
    assert "more than 0" in capsys.readouterr().err
