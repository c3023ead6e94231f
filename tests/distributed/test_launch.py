"""`nxjax.launch`: what the processes are told, what it gives back, and that it leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nxjax.distributed import launch
from nxjax.errors import ParameterError

PY = sys.executable


def test_every_process_is_told_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, sys; e = os.environ; "
        "open(sys.argv[1] + '/' + e['NXJAX_PROCESS_ID'], 'w').write("
        "' '.join(e['NXJAX_' + k] for k in ('COORDINATOR_ADDRESS', 'NUM_PROCESSES', 'COORDINATOR_SECRET')))"
    )
    monkeypatch.setenv("NXJAX_COORDINATOR_SECRET", "")
    assert launch.launch([PY, "-c", code, str(tmp_path)], 3) == 0
    said = {p.name: p.read_text().split() for p in tmp_path.iterdir()}
    assert sorted(said) == ["0", "1", "2"]
    assert len({a for a, *_ in said.values()}) == 1
    assert {n for _, n, _ in said.values()} == {"3"}
    (secret,) = {s for *_, s in said.values()}
    assert len(secret) == 32
    assert launch.launch([PY, "-c", code, str(tmp_path)], 1) == 0
    assert secret not in (tmp_path / "0").read_text()
    monkeypatch.setenv("NXJAX_COORDINATOR_SECRET", "of the user's own")
    assert launch.launch([PY, "-c", code, str(tmp_path)], 1) == 0
    assert "of the user's own" in (tmp_path / "0").read_text()


@pytest.mark.parametrize(("how", "code"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_one_that_fails_ends_the_others(how: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"import os, time\nif os.environ['NXJAX_PROCESS_ID'] == '1': {how}\ntime.sleep(1000)"
    assert launch.launch([PY, "-c", program], 2, grace=0.2) in (code, 128 + signal.SIGTERM, 137)
    err = capfd.readouterr().err
    assert ("1 ended with 7" if code == 7 else "1 was ended by SIGKILL") in err
    assert "0 was ended by SIGTERM" in err


def test_restarts_go_on_until_all_end_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, pathlib, sys\n"
        "p = pathlib.Path(sys.argv[1]) / os.environ['NXJAX_PROCESS_ID']\n"
        "n = len(p.read_text()) if p.exists() else 0\n"
        "p.write_text('x' * (n + 1))\n"
        "sys.exit(3 if n < 2 else 0)"
    )
    assert launch.launch([PY, "-c", program, str(tmp_path)], 2, restarts=1) == 3
    assert launch.launch([PY, "-c", program, str(tmp_path)], 2, restarts=1) == 0
    assert "process 0 ended with 3, 1 ended with 3; attempt 2 of 2" in capfd.readouterr().err


def test_those_that_were_killed_are_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, signal, sys\n"
        "n, me, attempt = (int(os.environ['NXJAX_' + k]) for k in ('NUM_PROCESSES', 'PROCESS_ID', 'ATTEMPT'))\n"
        "print(n, me, attempt, flush=True)\n"
        "if attempt == 1 and me < 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if attempt == 2 and me == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.exit(attempt < 4)"  # an error is no loss
    )
    assert launch.launch([PY, "-c", program], 4, restarts=3, at_least=2, logs=tmp_path, grace=5) == 0
    said = {p.relative_to(tmp_path).as_posix(): p.read_text().split() for p in tmp_path.rglob("*.txt")}
    counts = {1: 4, 2: 2, 3: 2, 4: 2}
    assert said == {
        f"attempt-{a}/process-{i}.txt": [str(n), str(i), str(a)] for a, n in counts.items() for i in range(n)
    }
    assert "attempt 2 of 4, with 2 instead of 4" in capfd.readouterr().err


def test_a_launcher_that_is_asked_to_end_lets_its_processes_save(tmp_path: Path) -> None:
    program = tmp_path / "save.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.3); open(sys.argv[1] + os.environ['NXJAX_PROCESS_ID'], 'w').close(); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(1000)"
    )
    command = [PY, "-m", "nxjax.launch", "-n", "2", "--restarts", "5", str(program), str(tmp_path / "saved")]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert [job.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    job.terminate()
    assert job.wait(120) == 130, "and does not start them again"
    job.stdout.close()
    assert (tmp_path / "saved0").exists() and (tmp_path / "saved1").exists()


def test_a_launcher_that_is_ended_ends_its_processes(tmp_path: Path) -> None:
    program = tmp_path / "wait.py"
    # A line in one write, since both processes write to one pipe.
    program.write_text("import os, time\nos.write(1, f'{os.getpid()}\\n'.encode())\ntime.sleep(1000)")
    job = subprocess.Popen([PY, "-m", "nxjax.launch", "-n", "2", str(program)], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    pids = [int(job.stdout.readline()) for _ in range(2)]
    job.terminate()
    assert job.wait(120) == 130
    job.stdout.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_number_that_cannot_be() -> None:
    with pytest.raises(ParameterError, match="processes"):
        launch.start([PY], 0)
    with pytest.raises(ParameterError, match="at_least"):
        launch.launch([PY], 2, at_least=3)
