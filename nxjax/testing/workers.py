"""Processes that try cases one by one, so that what ends a process, or never ends, is found like any other failure.

The parent writes a case's name and seed as a line, the child answers with lines of JSON: what it is about to run, and
what became of it. Knows nothing of what cases are.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final

from nxjax.runtime import clear_caches
from nxjax.testing.fuzz_programs import ProgramOutcome

Case = tuple[str, int]
# Told the text that is about to run; None: what runs is another library's, whose end is no failure.
Begun = Callable[[str | None], None]
Try = Callable[[int, Begun | None], ProgramOutcome]
# Seconds that a case may take, making it smaller included.
LIMIT: Final = 180.0
# Cases after which machine code is dropped, and after which a process makes room for a new one.
KEPT: Final = 200
_LIFE: Final = 2000


def serve(tries: Mapping[str, Try], ended: Mapping[str, Callable[[int], str]]) -> None:
    """The child: read cases, try them, tell.

    Args:
        tries: by name, what tries the case of a seed.
        ended: by name, what makes a case smaller that ends the process.
    """
    # What a program or a library prints goes to the errors, not between the answers.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable()

    def begun(text: str | None) -> None:
        out.write(json.dumps({"begun": text}) + "\n")

    # Modules stay: a tenth of a case's time is looking for garbage among them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    out.write("\n")  # here
    for k, line in enumerate(sys.stdin):
        name, seed, again = json.loads(line)
        if again:
            found = ProgramOutcome(ended[name](seed) if name in ended else "")
        else:
            found = tries[name](seed, begun)
        out.write(json.dumps({"failure": found.failure, "features": sorted(found.features)}) + "\n")
        if k % KEPT == KEPT - 1:
            clear_caches()


class Workers:
    """``jobs`` processes that run ``code``, which calls `serve`."""

    def __init__(self, code: str, jobs: int) -> None:
        self._code, self._jobs = code, jobs
        self._lock = threading.Lock()
        self._stopped = False
        self._running: set[subprocess.Popen[str]] = set()

    def run(self, cases: Iterator[Case], took: Callable[[str, ProgramOutcome], None]) -> None:
        """Try all ``cases``; ``took`` is told of each, in this thread."""
        answers: queue.Queue[tuple[str, ProgramOutcome] | BaseException | None] = queue.Queue()
        threads = [threading.Thread(target=self._work, args=(cases, answers), daemon=True) for _ in range(self._jobs)]
        for thread in threads:
            thread.start()
        left = self._jobs
        try:
            while left:
                answer = answers.get()
                if isinstance(answer, BaseException):
                    raise answer
                if answer is None:
                    left -= 1
                else:
                    took(*answer)
        finally:
            self._stopped = True
            with self._lock:
                for process in self._running:
                    process.kill()
            for thread in threads:
                thread.join(10)

    def _next(self, cases: Iterator[Case]) -> Case | None:
        with self._lock:
            return None if self._stopped else next(cases, None)

    def _work(
        self, cases: Iterator[Case], answers: queue.Queue[tuple[str, ProgramOutcome] | BaseException | None]
    ) -> None:
        try:
            case = self._next(cases)
            while case is not None:
                with tempfile.TemporaryFile("w+") as errors, self._process(errors) as process:
                    case = self._served(process, errors, case, cases, answers)
        except BaseException as error:  # no process can be made: that is no run without failures
            answers.put(error)
        else:
            answers.put(None)

    @contextlib.contextmanager
    def _process(self, errors: Any) -> Generator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "NXJAX_CACHE_DIR": "", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # Ctrl-C is the parent's, which ends its children
        )
        with self._lock:
            self._running.add(process)
        assert process.stdout is not None
        process.stdout.readline()  # it is there: the time of its first case begins
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
            with self._lock:
                self._running.discard(process)

    def _served(
        self,
        process: subprocess.Popen[str],
        errors: Any,
        case: Case | None,
        cases: Iterator[Case],
        answers: queue.Queue[tuple[str, ProgramOutcome] | BaseException | None],
    ) -> Case | None:
        """Cases that one process tries; gives the first that it didn't."""
        for _ in range(_LIFE):
            if case is None:
                return None
            answer, text, hung = _asked(process, case)
            if answer is None and self._stopped:
                return None
            if answer is None:
                answer = (
                    ProgramOutcome() if text is None else ProgramOutcome(self._ended(process, errors, case, text, hung))
                )
                answers.put((case[0], answer))
                return self._next(cases)
            answers.put((case[0], answer))
            case = self._next(cases)
        return case

    def _ended(self, process: subprocess.Popen[str], errors: Any, case: Case, text: str, hung: bool) -> str:
        """The report of a case that didn't come back, made smaller by another process."""
        code = process.wait()
        errors.seek(0)
        last = [f"# {line}" for line in errors.read().splitlines()[-25:]]
        what = f"no end after {LIMIT:.0f} s" if hung else f"the process ended with status {code}"
        with tempfile.TemporaryFile("w+") as others, self._process(others) as second:
            less, _, _ = _asked(second, case, ended=True)
        text = less.failure if less is not None and less.failure else text
        return "\n".join((text, f"# {what}: {case[0]}, seed {case[1]}", *last))


def _asked(
    process: subprocess.Popen[str], case: Case, ended: bool = False
) -> tuple[ProgramOutcome | None, str | None, bool]:
    """A process's answer, the last that it said before, and whether it took too long."""
    assert process.stdin is not None and process.stdout is not None
    late = threading.Timer(LIMIT, process.kill)
    late.start()
    answer: ProgramOutcome | None = None
    text: str | None = ""
    with contextlib.suppress(BrokenPipeError, ValueError):
        process.stdin.write(json.dumps([*case, ended]) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            told = json.loads(line)
            if "begun" not in told:
                answer = ProgramOutcome(told["failure"], frozenset(told["features"]))
                break
            text = told["begun"]
    hung = late.finished.is_set() and answer is None
    late.cancel()
    return answer, text, hung
