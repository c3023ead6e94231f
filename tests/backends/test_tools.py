"""Tools as processes: how they end, and that what hangs is ended with all that it started."""

import os
import sys
import time

import pytest

from nxjax.backends import tools


@pytest.mark.parametrize(
    ("code", "status", "trouble"),
    [
        ("print('well')", 0, ""),
        ("raise SystemExit(3)", 3, "it ended with status 3"),
        ("import os; os.abort()", -6, "it ended with signal SIGABRT"),
    ],
)
def test_how_it_ended(code, status, trouble, tmp_path):
    answer = tools.ask([sys.executable, "-c", code], tmp_path)
    assert (answer.status, answer.trouble) == (status, trouble)
    error = answer.error("a tool", refused=True)
    assert error.status == status and error.refused and error.command == answer.command


def test_what_cannot_be_started(tmp_path):
    answer = tools.ask([str(tmp_path / "absent")], tmp_path)
    assert answer.status is None and answer.trouble.startswith("it cannot be started")


def alive(number: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{number}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks Linux for processes")
def test_what_hangs_is_ended_with_its_children(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    answer = tools.ask([sys.executable, "-c", code], tmp_path, 5)
    assert answer.status is None and answer.trouble == "it took longer than 5 s"
    child = int(answer.out)
    for _ in range(100):
        if not alive(child):
            break
        time.sleep(0.05)
    assert not alive(child)


def test_commands_are_shown_without_the_folder(tmp_path):
    answer = tools.ask([sys.executable, "-c", "pass", f"{tmp_path}/model.tflite", str(tmp_path)], tmp_path)
    assert str(tmp_path) not in answer.command and "model.tflite ." in answer.command
