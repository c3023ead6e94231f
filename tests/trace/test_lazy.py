"""Packages that load names when they are used: what they say of names that they have not."""

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
