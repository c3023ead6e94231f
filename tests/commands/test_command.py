"""Commands whose reader goes away, as `head` does, end in silence."""

import os
import subprocess
import sys

import pytest

from nxjax.__main__ import main
from nxjax.commands.command import CLOSED, STOPPED, command

_POSIX = pytest.mark.skipif(sys.platform == "win32", reason="pipes of other systems do not tell")
_LONG = "print('x' * 2**20)"


def _alone(words, *, errors=False):
    """Status and what is said on the other stream of a command that nobody reads."""
    # argparse does not tell where help cannot be written; what is kept back is.
    around = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=around)
    closed, read = (process.stderr, process.stdout) if errors else (process.stdout, process.stderr)
    closed.close()
    said = read.read().decode()
    read.close()
    return process.wait(), said


def _program(body):
    lines = (
        "import sys",
        "from nxjax.commands.command import command",
        "@command",
        "def main():",
        body,
        "sys.exit(main())",
    )
    return ["-c", "\n".join(lines)]


@_POSIX
@pytest.mark.parametrize(
    "words",
    [
        ["-m", "nxjax", "info"],
        ["-m", "nxjax", "fuzz", "--help"],
        ["-m", "nxjax.demo.parallel", "--help"],
        ["-m", "nxjax.launch", "--help"],
        ["-m", "tools.bits", "--help"],
    ],
    ids=" ".join,
)
def test_commands_end_in_silence(words):
    assert _alone(words) == (CLOSED, "")


@_POSIX
@pytest.mark.parametrize(
    "body",
    ["    print('short')", f"    {_LONG}", f"    {_LONG}; return 3", "    print('short'); sys.exit(2)"],
)
def test_what_is_written_goes_nowhere(body):
    assert _alone(_program(body)) == (CLOSED, "")
    assert _alone(["-u", *_program(body)]) == (CLOSED, "")


@_POSIX
def test_the_stream_of_errors_may_be_closed():
    assert _alone(_program("    print(1, flush=True); print('x' * 2**20, file=sys.stderr)"), errors=True) == (
        CLOSED,
        "1\n",
    )


@_POSIX
def test_other_pipes_are_errors():
    body = "    import os; a, b = os.pipe(); os.close(a); os.write(b, b'x')"
    done = subprocess.run([sys.executable, *_program(body)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "BrokenPipeError" in done.stderr


def test_ctrl_c_ends_a_command_with_one_line(capsys):
    @command
    def main():
        raise KeyboardInterrupt

    assert main() == STOPPED == 130
    assert capsys.readouterr().err == "stopped\n"


@_POSIX
@pytest.mark.parametrize("module", ["nxjax.testing", "nxjax.testing.fuzzing"])
def test_ctrl_c_while_a_command_imports(module):
    program = f"""
import signal, sys
from importlib.abc import MetaPathFinder
from nxjax.__main__ import main

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.exit(main(["fuzz"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (STOPPED, "", "stopped\n")


def test_a_command_gives_its_status():
    assert command(lambda: 3)() == 3
    with pytest.raises(SystemExit):
        command(lambda: sys.exit(2))()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["inof"], "did you mean info?"),
        (["explian", "ShapeError"], "did you mean explain?"),
        (["info", "--alll"], "did you mean --all?"),
        (["fuzz", "--second", "1", "--cazes", "2"], "did you mean --cases?"),
        (["cache", "claer"], "did you mean clear?"),
        (["targets"], "did you mean nxjax info --all?"),
        (["compile"], "did you mean nx.compile(f, target=...)(x), in Python?"),
    ],
)
def test_misspelt_words_are_answered_with_near_ones(words, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and meant in capsys.readouterr().err
