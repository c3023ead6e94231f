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
        ("import os; os.kill(os.getpid(), 40)", -40, "it ended with signal 40"),
    ],
)
def test_how_it_ended(code, status, trouble, tmp_path):
    answer = tools.ask([sys.executable, "-c", code], tmp_path)
    assert (answer.status, answer.trouble) == (status, trouble)
    error = answer.error("a tool", refused=True)
    assert error.status == status and error.command == answer.command
    # What a signal ended has refused nothing.
    assert error.refused == (status >= 0)
    assert not answer.error("a tool", "std::bad_alloc", refused=True).refused


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


def test_words_of_a_tool_move_no_terminal(tmp_path):
    answer = tools.ask(
        [sys.executable, "-c", "print('\\x1b[31mno\\x07\\nkernel\\x1b[0m'); raise SystemExit(2)"], tmp_path
    )
    said = str(answer.error("tool").got)
    assert "\x1b" not in said and "\x07" not in said and "[31mno \nkernel" in said


def test_what_a_tool_leaves_in_the_background_is_not_waited_for(tmp_path):
    command = "sleep 600 & setsid sleep 60 & echo done"
    start = time.monotonic()
    answer = tools.ask(["sh", "-c", command], tmp_path, 300)
    assert (answer.status, answer.out) == (0, "done\n") and time.monotonic() - start < 50


def test_only_the_end_of_what_is_printed_is_kept(tmp_path):
    answer = tools.ask([sys.executable, "-c", "print('x' * 20_000_000 + 'end')"], tmp_path)
    assert answer.out.endswith("xend\n") and len(answer.out) < 5_000_000


@pytest.mark.parametrize("kind", ["nothing", "link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(kind, tmp_path):
    (tmp_path / "real").write_bytes(b"x")
    path = tmp_path / "made"
    {
        "nothing": lambda: None,
        "link": lambda: path.symlink_to(tmp_path / "real"),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with pytest.raises(OSError):
        tools.read(path)
    assert tools.read(tmp_path / "real") == b"x"


def test_a_tool_that_prints_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "ENDLESS", 1 << 20)
    code = "import sys\nwhile True: sys.stdout.write('x' * 100_000)"
    answer = tools.ask([sys.executable, "-c", code], tmp_path, 300)
    assert answer.status is None and answer.trouble == "it printed more than 1 MiB"


def test_what_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "LARGEST", 1000)
    (tmp_path / "made").write_bytes(bytes(1000))
    assert tools.read(tmp_path / "made") == bytes(1000)
    (tmp_path / "made").write_bytes(bytes(1001))
    with pytest.raises(OSError, match="more than 1,000"):
        tools.read(tmp_path / "made")


def test_what_is_not_a_tools_work():
    never = lambda: pytest.fail("a file that tells by itself is not asked about")
    assert "empty" in tools.doubt(b"", [b"model"], never)
    assert "was given" in tools.doubt(b"weights", [b"model", b"weights"], never)
    assert "no model" in tools.doubt(b"made", [b"model"], lambda: b"made")
    assert tools.doubt(b"made", [b"model"], lambda: b"") == ""
    assert "another model" in tools.doubt(b"made", [b"model"], lambda: b"", of_another=lambda: b"made")
    assert tools.doubt(b"made", [b"model"], lambda: b"", of_another=lambda: b"other") == ""


def test_a_tool_is_asked_about_no_model_once_for_its_files_and_settings(tmp_path):
    tool, asked = tmp_path / "tool", []
    tool.write_text("1")

    def nothing():
        asked.append(tool.read_text())
        raise OSError("it made none")

    doubt = lambda **more: tools.doubt(b"made", [b"model"], nothing, str(tool), **more)
    assert doubt() == doubt() == "" and asked == ["1"]
    assert doubt(settings="fast") == "" and asked == ["1", "1"]
    tool.write_text("2")
    os.utime(tool, ns=(1, 1))
    assert doubt() == "" and asked == ["1", "1", "2"]
