"""Start the processes of one program on this machine, and start all anew from the last checkpoint when one is lost.

python -m nxjax.launch --processes 4 train.py --rate 0.1
python -m nxjax.launch --processes 4 --restarts 3 -m package.train
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

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
    command: Sequence[str], processes: int, env: Mapping[str, str] | None = None
) -> list[subprocess.Popen[bytes]]:
    """``processes`` processes that find each other: `nxjax.distributed.initialize` needs no arguments in them.

    Args:
        command: what each of them runs.
        processes: how many.
        env: variables for all of them, added to this process's.

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
    return [subprocess.Popen(command, env={**shared, "NXJAX_PROCESS_ID": str(i)}) for i in range(processes)]


def wait(group: Sequence[subprocess.Popen[bytes]], grace: float = 60.0) -> list[int]:
    """The exit codes of all, negative for signals. Once one fails, the others have ``grace`` seconds to end, too.

    They use them to notice, and to say so; a stalled one does not.
    """
    end: float | None = None
    try:
        while None in (codes := [p.poll() for p in group]):
            if end is None and any(codes):
                end = time.monotonic() + grace
            if end is not None and time.monotonic() > end:
                break
            time.sleep(0.05)
    finally:
        stop(group)
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


def launch(command: Sequence[str], processes: int, *, restarts: int = 0, grace: float = 60.0) -> int:
    """Run ``command`` in several processes of this machine until all have ended well.

    Args:
        command: program and arguments; ``[sys.executable, "train.py"]``.
        processes: how many.
        restarts: how many times all are started again after one failed or was killed. The program goes on from
            its last checkpoint by itself.
        grace: seconds that the others have to end by themselves once one has failed.

    Returns:
        0, or the exit code of one that failed in the last attempt (128 and the number of the signal that killed it).

    >>> launch([sys.executable, "-c", "pass"], 2)
    0
    """
    for attempt in range(restarts + 1):
        codes = wait(start(command, processes), grace)
        failed = [(i, code) for i, code in enumerate(codes) if code]
        if not failed:
            return 0
        said = ", ".join(f"{i} {_ended(code)}" for i, code in failed)
        again = f"; attempt {attempt + 2} of {restarts + 1}" if attempt < restarts else ""
        print(f"nxjax.launch: process {said}{again}", file=sys.stderr, flush=True)
    # Signals first: what killed one is the cause of the errors of the others.
    code = min(code for _, code in failed)
    return code if code > 0 else 128 - code


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nxjax.launch", description=__doc__.partition("\n")[0])
    parser.add_argument("-n", "--processes", type=int, required=True)
    parser.add_argument("--devices", type=int, help="CPU devices of each process (NXJAX_NUM_CPU_DEVICES)")
    parser.add_argument("--restarts", type=int, default=0, help="times that all are started again after a failure")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds for the others to end after a failure")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a Python file, or a module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if given.devices:
        os.environ["NXJAX_NUM_CPU_DEVICES"] = str(given.devices)
    command = [sys.executable, *(["-m"] if given.module else []), given.program, *given.arguments]
    return launch(command, given.processes, restarts=given.restarts, grace=given.grace)


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt  # and `wait` ends what it started


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
