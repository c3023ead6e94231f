"""The parent's end: a child process, questions with a time limit, and its last words when it dies.

Whatever goes wrong between the two, the child is killed: nobody knows what state it is in. This file knows no plug-in.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, final

from nxjax.backends.children.wire import (
    PROTOCOL,
    Channel,
    ConnectionClosed,
    SharedMemory,
    WireError,
    pack,
    room,
    unpack,
)
from nxjax.errors import ExecutionError, LoweringError

_SERVE: Final = str(Path(__file__).with_name("serve.py"))
# Shared memory is made larger than asked for, so that growing inputs do not make it anew each time.
_SPARE: Final = 1.5


def served(plugin: str) -> list[str]:
    """The command line that serves a Python plug-in: a module's name, or a file."""
    return [sys.executable, _SERVE, os.path.abspath(plugin) if plugin.endswith(".py") else plugin]


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a child and what it has started, unless this is a fork of its parent."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            process.kill()
    process.wait()


def _finish(
    process: subprocess.Popen[bytes], owner: int, sock: socket.socket, log: IO[bytes], arenas: dict[str, SharedMemory]
) -> None:
    """Kill a child, and give back what the parent held for it."""
    _end(process, owner)
    sock.close()
    log.close()
    for arena in arenas.values():
        arena.close()
    arenas.clear()


@final
class Child:
    """A process that answers questions, one at a time.

    Args:
        command: what to start. It finds the socket's number in the environment, as ``NXJAX_CHANNEL``.
        name: for messages.
        seconds: how long it may take to start.

    Attributes:
        pid: its process. lost: why it is not used any more; empty while it is.

    Raises:
        ExecutionError: it does not start, or says nothing that makes sense.
        LoweringError: a system without Unix sockets.
    """

    def __init__(self, command: Sequence[str], name: str, seconds: float = 30.0) -> None:
        if not hasattr(socket, "send_fds"):
            raise LoweringError(f"{name}: plug-ins in processes of their own need Unix sockets", got=sys.platform)
        self.name = name
        self.lost = ""
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._seq = 0
        self._arenas: dict[str, SharedMemory] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._channel = Channel(ours)
        environment = {**os.environ, "NXJAX_CHANNEL": str(theirs.fileno()), "NXJAX_PATH": json.dumps(sys.path)}
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._log.close()
            raise ExecutionError(f"{name}: the process of the plug-in does not start", got=error) from None
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._end = weakref.finalize(self, _finish, self._process, self._owner, ours, self._log, self._arenas)
        hello, _ = self._exchange(None, (), time.monotonic() + seconds, "while it started")
        if hello.get("hello") != PROTOCOL:
            self._give_up("speaks another protocol", f"hello {hello.get('hello')!r}")

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.lost and self._owner == os.getpid() and self._process.poll() is None

    def ask(
        self,
        head: dict[str, Any],
        arrays: Sequence[Any] = (),
        seconds: float | None = None,
    ) -> tuple[dict[str, Any], list[Any], bytes]:
        """One question and its answer: head, arrays, and the rest of the body where there are no arrays.

        Raises:
            ExecutionError: it answers with an error (the process goes on), or it dies, is silent for longer than
                ``seconds``, or talks nonsense (the process is killed).
        """
        until = None if seconds is None else time.monotonic() + seconds
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            raise ExecutionError(f"{self.name}: another request is still in progress", got=f"{seconds:g} s")
        try:
            rows: list[Any] = []
            parts: Sequence[bytes] = ()
            attach: list[tuple[str, SharedMemory]] = []
            if arrays:
                needed = room(arrays)
                if needed and (self._arenas.get("in") is None or self._arenas["in"].size < needed):
                    attach.append(("in", self._arena("in", needed)))
                rows, parts = pack(arrays, self._arenas.get("in"))
            answer, rest = self._exchange({**head, "arrays": rows}, parts, until, f"in {head.get('do')}", attach)
            if "needs" in answer:
                needs = answer["needs"]
                if type(needs) is not int or not 0 < needs < 1 << 40:
                    self._give_up("answered nonsense", f"needs {needs!r} bytes")
                attach = [("out", self._arena("out", needs))]
                answer, rest = self._exchange({"do": "again"}, (), until, "giving its results", attach)
            if "error" in answer:
                error = ExecutionError(f"{self.name}: the plug-in failed", got=answer["error"])
                error.__dict__["__nxjax_program__"] = answer.get("program") is True
                raise error
            if "arrays" not in answer:
                return answer, [], rest
            try:
                return answer, unpack(answer["arrays"], rest, self._arenas.get("out")), b""
            except WireError as error:
                self._give_up("answered nonsense", error)
                raise
        finally:
            self._lock.release()

    def _arena(self, which: str, size: int) -> SharedMemory:
        old = self._arenas.pop(which, None)
        if old is not None:
            old.close()
        page = 4096
        self._arenas[which] = made = SharedMemory(-(-int(size * _SPARE) // page) * page)
        return made

    def _exchange(
        self,
        head: dict[str, Any] | None,
        parts: Sequence[bytes],
        until: float | None,
        when: str,
        attach: Sequence[tuple[str, SharedMemory]] = (),
    ) -> tuple[dict[str, Any], bytes]:
        """Send one frame (none: only listen) and take one."""
        if self.lost:
            raise ExecutionError(f"{self.name}: the process of the plug-in is gone", got=self.lost)
        try:
            if head is not None:
                self._seq += 1
                told = {**head, "seq": self._seq, "attach": [[name, arena.size] for name, arena in attach]}
                self._channel.send(told, parts, [arena.fd for _, arena in attach], until)
            answer, rest, _ = self._channel.receive(until)
        except TimeoutError:
            self._give_up(f"did not answer in time {when}", "silence")
            raise
        except ConnectionClosed:
            self._give_up(f"ended {when}", None)
            raise
        except WireError as error:
            self._give_up(f"answered nonsense {when}", error)
            raise
        if head is not None and answer.get("seq") != self._seq:
            self._give_up(f"answered nonsense {when}", f"an answer to question {answer.get('seq')!r}, not {self._seq}")
        return answer, rest

    def _give_up(self, what: str, got: object) -> None:
        """Kill it and say why; always raises."""
        killed = self.lost
        if got is None:  # it ends by itself: how?
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        self.kill(what)
        code = self._process.returncode
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        more = [("log", words)] if (words := self.log()) else []
        shown = killed or got or how
        self.close()
        raise ExecutionError(f"{self.name}: the process of the plug-in {what}", got=shown, more=more) from None

    def kill(self, why: str = "it was killed") -> None:
        """End it now, with all processes that it has started; whoever waits for an answer gets an error. Any thread."""
        self.lost = self.lost or why
        _end(self._process, self._owner)
        with contextlib.suppress(OSError):
            self._channel.socket.shutdown(socket.SHUT_RDWR)

    def log(self) -> str:
        """The last of what it has printed."""
        if self._log.closed:
            return ""
        with open(os.dup(self._log.fileno()), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), 2000, max(0, size - 2000)).decode(errors="replace").strip()

    def close(self) -> None:
        """End it, and give back what it had. More than once."""
        self.lost = self.lost or "it was closed"
        self._end()
