"""Start the processes of one program on this machine, and start all anew from the last checkpoint when one is lost.

python -m nxjax.launch --processes 4 train.py --rate 0.1
python -m nxjax.launch --processes 4 --restarts 3 -m package.train
python -m nxjax.launch --processes 4 --at-least 2 --restarts 3 --logs runs/a train.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from nxjax.commands.command import command
from nxjax.distributed.preemption import PREEMPTED
from nxjax.errors import ParameterError


def free_port() -> int:
    """A port of this machine that nothing listens at.

    >>> 0 < free_port() < 65536
    True
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(
    command: Sequence[str],
    processes: int,
    env: Mapping[str, str] | None = None,
    logs: str | os.PathLike[str] | None = None,
) -> list[subprocess.Popen[bytes]]:
    """``processes`` processes that find each other: `nxjax.distributed.initialize` needs no arguments in them.

    Args:
        command: what each of them runs.
        processes: how many.
        env: variables for all of them, added to this process's.
        logs: a folder, for what each of them says: ``process-0.txt``, ... Left out, it goes where this one's does.

    Raises:
        ParameterError: ``processes`` is less than one.
    """
    if processes < 1:
        raise ParameterError("launch: processes", got=processes, expected="at least 1")
    shared = {
        **os.environ,
        **(env or {}),
        "NXJAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "NXJAX_NUM_PROCESSES": str(processes),
    }
    # Variables, unlike arguments, are not seen by the machine's other users.
    shared["NXJAX_COORDINATOR_SECRET"] = shared.get("NXJAX_COORDINATOR_SECRET") or secrets.token_hex(16)
    group: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as files:
        for i in range(processes):
            out: IO[bytes] | None = None
            if logs is not None:
                Path(logs).mkdir(parents=True, exist_ok=True)
                out = files.enter_context((Path(logs) / f"process-{i}.txt").open("wb"))
            merged = None if out is None else subprocess.STDOUT
            env = {**shared, "NXJAX_PROCESS_ID": str(i)}
            group.append(subprocess.Popen(command, env=env, stdout=out, stderr=merged))
    return group


def wait(group: Sequence[subprocess.Popen[bytes]], grace: float = 60.0) -> list[int]:
    """The exit codes of all, negative for signals. Once one fails, the others have ``grace`` seconds to end, too.

    They use them to notice, and to say so; a stalled one does not. Where this process is asked to end (SIGTERM), they
    are asked at once, and have ``grace`` seconds to save what they have (see `nxjax.distributed.preempted`).
    """
    end: float | None = None
    patience = 5.0
    try:
        while None in (codes := [p.poll() for p in group]):
            if end is None and any(codes):
                end = time.monotonic() + grace
            if end is not None and time.monotonic() > end:
                break
            time.sleep(0.05)
    except _Asked:
        patience = max(grace, patience)
        raise
    finally:
        stop(group, patience)
    return [p.wait() for p in group]


def stop(group: Sequence[subprocess.Popen[bytes]], patience: float = 5.0) -> None:
    """End those that still run: asked first, killed ``patience`` seconds later."""
    running = [p for p in group if p.poll() is None]
    for p in running:
        p.terminate()
    end = time.monotonic() + patience
    for p in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            p.wait(max(end - time.monotonic(), 0))
        if p.poll() is None:
            p.kill()


def launch(
    command: Sequence[str],
    processes: int,
    *,
    restarts: int = 0,
    grace: float = 60.0,
    at_least: int | None = None,
    logs: str | os.PathLike[str] | None = None,
) -> int:
    """Run ``command`` in several processes of this machine until all have ended well.

    Args:
        command: program and arguments; ``[sys.executable, "train.py"]``.
        processes: how many.
        restarts: how many times all are started again after one failed or was killed. The program goes on from
            its last checkpoint by itself.
        grace: seconds that the others have to end by themselves once one has failed, and all to save what they have
            once this process is asked to end.
        at_least: go on with fewer: those that a signal has killed are taken for gone, and all are started again
            without them, with so many at least. Left out, there are always as many. One that ended with an error is
            not gone.
        logs: a folder, for what the processes say: ``attempt-1/process-0.txt``, ...

    Returns:
        0, or the exit code of one that failed in the last attempt (128 and the number of the signal that killed it).

    Processes find the number of the attempt, from 1, in ``NXJAX_ATTEMPT``. Those that all end with
    `nxjax.distributed.PREEMPTED`, or well, have saved and are started again.

    Raises:
        ParameterError: ``processes`` is less than one, or ``at_least`` is not between 1 and ``processes``.

    >>> launch([sys.executable, "-c", "pass"], 2)
    0
    """
    if at_least is not None and not 1 <= at_least <= processes:
        raise ParameterError("launch: at_least", got=at_least, expected=f"1 to {processes}")
    for attempt in range(1, restarts + 2):
        folder = None if logs is None else Path(logs) / f"attempt-{attempt}"
        codes = wait(start(command, processes, {"NXJAX_ATTEMPT": str(attempt)}, folder), grace)
        failed = [(i, code) for i, code in enumerate(codes) if code]
        if not failed:
            return 0
        said = ", ".join(f"{i} {_ended(code)}" for i, code in failed)
        again = ""
        if attempt <= restarts:
            # SIGTERM is this launcher's own word to those that stood still.
            gone = sum(code < 0 and code != -signal.SIGTERM for code in codes)
            before = processes
            if at_least is not None:
                processes = max(processes - gone, at_least)
            fewer = f", with {processes} instead of {before}" if processes < before else ""
            again = f"; attempt {attempt + 1} of {restarts + 1}{fewer}"
        print(f"nxjax.launch: process {said}{again}", file=sys.stderr, flush=True)
    # Signals first: what killed one is the cause of the errors of the others.
    code = min(code for _, code in failed)
    return code if code > 0 else 128 - code


def _ended(code: int) -> str:
    if code == PREEMPTED:
        return "has saved and ended"
    if code > 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nxjax.launch", description=__doc__.partition("\n")[0])
    parser.add_argument("-n", "--processes", type=int, required=True)
    parser.add_argument("--devices", type=int, help="CPU devices of each process (NXJAX_NUM_CPU_DEVICES)")
    parser.add_argument("--restarts", type=int, default=0, help="times that all are started again after a failure")
    parser.add_argument("--at-least", type=int, help="go on without those that were killed, with so many or more")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds for the others to end after a failure")
    parser.add_argument("--logs", help="a folder for what the processes say, by attempt and process")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a Python file, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if given.devices:
        os.environ["NXJAX_NUM_CPU_DEVICES"] = str(given.devices)
    command = [sys.executable, *(["-m"] if given.module else []), given.program, *given.arguments]
    return launch(
        command,
        given.processes,
        restarts=given.restarts,
        grace=given.grace,
        at_least=given.at_least,
        logs=given.logs,
    )


class _Asked(KeyboardInterrupt):
    """SIGTERM: this machine is to be given back."""


def _asked(*_: object) -> None:
    raise _Asked  # and `wait` ends what it started


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _asked)
    sys.exit(main())
