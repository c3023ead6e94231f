"""Packages that load names when they are used: what they say of names that they have not, and what loading leaves."""

import subprocess
import sys

PROGRAM = """
import sys, nxjax, nxjax.nn, nxjax.numpy
for home, name in ((nxjax.numpy, "argsrot"), (nxjax.nn, "rellu"), (nxjax, "while_lop")):
    try:
        getattr(home, name)
    except AttributeError:
        sys.__excepthook__(*sys.exc_info())
"""


def test_python_says_what_was_meant():
    """By what the error holds: the interpreter writes it where nobody catches the error."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("AttributeError")]
    said = [line.partition("Did you mean: ")[2] for line in errors]
    assert said == ["'argsort'?", "'relu'?", "'while_loop'?"]


LOADS = """
import gc, sys
from nxjax.trace import lazy
sys.path.insert(0, sys.argv[1])
collections = lambda: sum(s["collections"] for s in gc.get_stats())
gc.collect()
before = collections()
found = lazy.load("fresh_module")
assert collections() == before and gc.isenabled() and not gc.get_freeze_count()
young = [x for generation in (0, 1) for x in gc.get_objects(generation)]
assert not any(x is found.made[0] for x in young)
assert lazy.load("fresh_module") is found
gc.freeze()
gc.disable()
del sys.modules["fresh_module"]
assert lazy.load("fresh_module") is not found and not gc.isenabled()
gc.enable()
del sys.modules["fresh_module"]
assert lazy.load("fresh_module") is not found and gc.get_freeze_count() > 100_000
"""


def test_what_is_loaded_is_not_looked_through_for_garbage(tmp_path):
    """Nor does loading undo what the program has asked of the collector."""
    (tmp_path / "fresh_module.py").write_text("made = [[i] for i in range(100_000)]")
    subprocess.run([sys.executable, "-c", LOADS, str(tmp_path)], check=True)
