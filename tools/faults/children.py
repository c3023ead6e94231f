"""Tests in a child of this process: forked with the libraries loaded, but nothing of nxjax, over any copy of the tree.

The copy decides what `import nxjax` finds, also in the processes that tests start. A child has its own cache folder, so
that no machine code comes from another tree. Knows nothing of faults.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

import pytest

_LIBRARIES: Final = ("numpy", "ml_dtypes", "optree", "opt_einsum", "llvmlite.binding", "scipy.linalg", "jax")
_SETTINGS: Final = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
_BYTES: Final = 12 << 30  # private memory of a child: a fault may ask for all there is


CANNOT_IMPORT: Final = 71
HANGS: Final = 72
_IDLE: Final = 120.0  # seconds without any work: then it waits for nobody


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """How a child ended.

    Attributes:
        status: its exit status; negative: the signal that ended it; None: it ran out of time; `HANGS`.
        report: what it wrote, as JSON; empty if it did not come to that.
        seconds: time of the processor that it took, so that a busy machine changes nothing.
        running: the test that ran last.
        tail: the end of what it printed.
    """

    status: int | None
    report: dict[str, Any]
    seconds: float
    running: str
    tail: str


def load_libraries() -> None:
    """Import what every child needs; nothing of nxjax, which is another tree's in each of them."""
    os.environ.update(_SETTINGS)
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)
    assert not any(m.split(".")[0] == "nxjax" for m in sys.modules), "children must import nxjax themselves"


def copy_of(root: Path, target: Path) -> None:
    """A copy of the files that git knows or would take in, with the bytecode of the package."""
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=root, text=True, errors="replace"
    )
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "nxjax", "tests"], cwd=target, check=True)


@contextlib.contextmanager
def changed(tree: Path, path: str, source: str) -> Generator[None]:
    """``path`` of the tree reads ``source`` for a while; its bytecode goes, which may be of the same second."""
    file = tree / path
    before = file.read_text()
    for old in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        old.unlink()
    file.write_text(source)
    try:
        yield
    finally:
        file.write_text(before)


def run(tree: Path, work: Callable[[Path], int], seconds: float) -> Outcome:
    """``work(report)`` in a child whose tree is ``tree``; it and all that it started end after ``seconds`` of work."""
    with tempfile.TemporaryDirectory(prefix="fault-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        child = os.fork()
        if not child:
            _become(tree, place, work)
        status, taken = _wait(child, seconds)
        report: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            report = json.loads((place / "report").read_text())
        running, printed = (p.read_bytes() if p.exists() else b"" for p in (place / "running", place / "printed"))
        return Outcome(status, report, round(taken, 2), running.decode(), printed[-2000:].decode(errors="replace"))


def _become(tree: Path, place: Path, work: Callable[[Path], int]) -> None:
    """The rest of the child's life."""
    status = 70
    try:
        os.setsid()
        # Who started this may have turned signals off, as `nohup` does.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        printed = os.open(place / "printed", os.O_WRONLY | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(printed, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(tree)
        (place / "cache").mkdir(mode=0o700)
        os.environ |= {"XDG_CACHE_HOME": str(place / "cache"), "TMPDIR": str(place), "PYTHONPATH": str(tree)}
        tempfile.tempdir = str(place)
        sys.path[:] = [str(tree), *(p for p in sys.path if p and not (Path(p) / "nxjax").is_dir())]
        sys.dont_write_bytecode = True
        status = work(place / "report")
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(child: int, seconds: float) -> tuple[int | None, float]:
    """The status of ``child`` and the processor's time it took; nothing that it started is left."""
    pause, used, last = 0.01, 0.0, time.monotonic()
    try:
        while True:
            ended, status, took = os.wait4(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), took.ru_utime + took.ru_stime
            before, used = used, _used(child)
            last = time.monotonic() if used > before else last
            idle = time.monotonic() - last > _IDLE
            if used > seconds or idle:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return HANGS if idle else None, used
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)


def _used(child: int) -> float:
    """Seconds of the processor that a process and those it waited for have taken."""
    with contextlib.suppress(OSError):
        numbers = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]
        return sum(map(int, numbers)) / os.sysconf("SC_CLK_TCK")
    return 0.0


@final
class Watcher:
    """A plugin of pytest: failures, and which functions below ``folders`` each test calls.

    A test that works for longer than ``most`` allows is ended by SIGPROF, with the process.
    """

    def __init__(
        self, report: Path, tree: Path, folders: Sequence[str] = (), most: Callable[[str], float] | None = None
    ) -> None:
        self._path = report
        self._most = most
        self._folders = tuple(f"{tree}/{f}" for f in folders)
        self._root = len(str(tree)) + 1
        self._called: set[Any] = set()
        self._by_test: dict[str, set[Any]] = {}
        self._failed: list[list[str]] = []
        self._passed: dict[str, float] = {}

    def start(self) -> None:
        """From now on calls are noted; of all threads."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self._called.add(frame.f_code)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._path.with_name("running").write_text(nodeid)
        if self._most is not None:
            signal.setitimer(signal.ITIMER_PROF, self._most(nodeid))
        if self._folders:
            self._called = self._by_test.setdefault(nodeid, set())
            self.start()

    def pytest_runtest_logfinish(self) -> None:
        if self._most is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)  # what pytest does between tests is not the test's

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._fail(report.nodeid, report)
        elif report.when == "call" and not report.skipped:
            self._passed[report.nodeid] = round(report.duration, 4)

    def _fail(self, name: str, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr)
        self._failed.append([name, text.strip().replace("\n", " ")[:300]])
        self.write()

    def write(self) -> None:
        """What is known by now; written at each failure too, since the process may end."""
        sys.setprofile(None)
        tests = list(self._by_test)
        calls: dict[str, list[int]] = {}
        for i, name in enumerate(tests):
            for code in self._by_test[name]:
                if code.co_filename.startswith(self._folders):
                    calls.setdefault(f"{code.co_filename[self._root :]}:{code.co_qualname}", []).append(i)
        text = json.dumps({"failed": self._failed, "passed": self._passed, "tests": tests, "calls": calls})
        self._path.write_text(text)


def pytest_over(
    tree: Path,
    names: Iterable[str],
    seconds: float,
    *,
    stop: bool = True,
    folders: Sequence[str] = (),
    imported: Sequence[str] = (),
    most: Callable[[str], float] | None = None,
) -> Outcome:
    """pytest over ``names`` in the order given; up to the first failure, or all; for the rest see `Watcher`.

    The status is `CANNOT_IMPORT` if a module of ``imported`` does not come in; they come before everything else.
    """
    given = list(names)

    def work(report: Path) -> int:
        try:
            for name in imported:
                import_module(name)
        except Exception as error:
            print(repr(error))
            return CANNOT_IMPORT
        watcher = Watcher(report, tree, folders, most)
        if folders:
            watcher.start()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", *(["-x"] if stop else [])]
        status = pytest.main([*options, *given], plugins=[watcher])
        watcher.write()
        return int(status)

    return run(tree, work, seconds)


def module(tree: Path, name: str, arguments: Sequence[str], seconds: float) -> Outcome:
    """``python -m name arguments`` in a process of its own."""

    def work(report: Path) -> int:
        os.execv(sys.executable, [sys.executable, "-m", name, *arguments])

    return run(tree, work, seconds)
