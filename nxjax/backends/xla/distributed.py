"""Several processes as one machine: jaxlib's runtime client, collectives of CPU devices, and who is still alive.

A process that dies is noticed by the others within the heartbeat timeout; whoever waits for a result that it takes part
in gets a `ProcessLostError`. jaxlib's own watch ends the process (the callback for that is unusable in jaxlib 0.10: its
argument has no Python type), so it is told to be patient, and a thread of each process writes a sign of life beside the
coordinator's other values and reads those of the others. The coordinator is a process of its own (`coordinator`); that
it may go, too, is kept from jaxlib (`relay`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import hmac
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, final

from nxjax.backends.xla import buffers, client, executable
from nxjax.backends.xla.coordinator import DIFFER, HELLO, LONGEST, PATIENT, SECRET, proof
from nxjax.backends.xla.relay import Relay
from nxjax.backends.xla.stopping import Stop
from nxjax.errors import ExecutionError, ParameterError, ProcessLostError
from nxjax.trace.mesh import install_process_index

_PREFIX: Final = "nxjax/"
_SAME: Final = "let all processes make the same calls in the same order"
_NAME: Final = re.compile(r"^module @(\w+)", re.MULTILINE)
_CONSTANTS: Final = re.compile(r"dense<[^>]*>")
T = TypeVar("T")
_PATIENCE: Final = 2.0  # seconds that a result may take after a process that it needs has left


@final
class ProcessGroup:
    """The processes that have joined, as this one sees them."""

    def __init__(
        self, raw: Any, processes: int, process: int, service: subprocess.Popen[str] | None, patience: float
    ) -> None:
        self.raw = raw
        self.processes = processes
        self.process = process
        self.service = service
        self.patience = patience  # seconds that others may take to come to a computation
        self.lost: str | None = None  # who is gone and why, once somebody is
        self.left: set[int] = set()  # who has gone in peace
        self.stop = Stop(processes, process)
        self.deaf = False  # the coordinator is gone: what is asked of it is never answered
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._asking: set[threading.Thread] = set()
        self._barriers: dict[str, int] = {}
        self._programs = 0

    # --- who is alive ---

    def watch(self, timeout: float) -> None:
        """Give signs of life and look for those of the others from a thread of its own.

        Args:
            timeout: seconds without a sign after which a process counts as lost.
        """
        self._watcher = threading.Thread(target=self._watch, args=(timeout,), name="nxjax-peers", daemon=True)
        self._watcher.start()

    def _watch(self, timeout: float) -> None:
        period, beat = max(0.2, min(timeout / 4, 2.0)), 0
        last = time.monotonic()
        seen: dict[int, tuple[str, float]] = dict.fromkeys(range(self.processes), ("", last))
        while not self._stop.wait(period) and self.lost is None:
            beat += 1
            try:
                self.raw.key_value_set(f"{_PREFIX}beat/{self.process}", str(beat), allow_overwrite=True)
                beats = _numbered(self.raw.key_value_dir_get(_PREFIX + "beat"))
                said = _numbered(self.raw.key_value_dir_get(_PREFIX + "failed"))
                left = _numbered(self.raw.key_value_dir_get(_PREFIX + "left"))
                # Read last: who leaves because somebody is lost has said so before.
                missed = _numbered(self.raw.key_value_dir_get(_PREFIX + "missed"))
                self.stop.look(self.raw)
            except Exception as error:
                self.coordinator_lost(str(error).splitlines()[0][:200])
                return
            now = time.monotonic()
            if now - last > timeout / 2:
                # This process itself stood still: the others could not be seen meanwhile.
                seen = {p: (value, now) for p, (value, _) in seen.items()}
            last = now
            for reason in missed.values():
                self.lost = reason
            for process, reason in said.items():
                self.lost = f"process {process} ended with {reason}"
            self.left = set(left)
            seen.update({p: (b, now) for p, b in beats.items() if seen[p][0] != b})
            gone = [p for p, (_, since) in seen.items() if now - since > timeout and p not in left]
            if gone and self.lost is None:
                reason = f"no sign of life from process {', '.join(map(str, gone))}"
                with contextlib.suppress(Exception):  # the coordinator may be gone as well
                    self.raw.key_value_set(f"{_PREFIX}missed/{self.process}", reason, allow_overwrite=True)
                self.lost = reason

    def coordinator_lost(self, reason: str) -> None:
        """The coordinator cannot be reached any more."""
        self.deaf = True
        if self.lost is None and not self._stop.is_set():
            self.lost = f"the coordinator, a process beside process 0, is gone: {reason}"

    def check(self, what: str) -> None:
        """Raise if another process is gone."""
        if self.lost is not None:
            raise ProcessLostError(
                f"{what}: another process of {self.processes} is gone",
                got=self.lost,
                fix="restart all processes; training continues from the last checkpoint",
            )

    # --- waiting ---

    def until(self, done: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        """Wait for ``done()``, as long as all processes live."""
        delay, start = 5e-5, time.monotonic()
        while not done():
            self.check(what)
            if self.left and time.monotonic() - start > _PATIENCE:
                self.lost = f"process {', '.join(map(str, sorted(self.left)))} has ended, without an error"
                raise ProcessLostError(f"{what}: needs a process that is gone", got=self.lost, fix=_SAME)
            if timeout is not None and time.monotonic() - start > timeout:
                raise ExecutionError(
                    f"{what}: not all processes came within {timeout:g} seconds",
                    fix=f"{_SAME}, or give a longer timeout",
                )
            time.sleep(delay)
            delay = min(delay * 1.5, 5e-3)

    def ask(self, call: Callable[[], T], what: str) -> T:
        """The coordinator's answer. It never comes if that goes meanwhile, so another thread is in the call."""
        found: list[T] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                found.append(call())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=work, name="nxjax-ask", daemon=True)
        self._asking.add(thread)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if thread.is_alive():
                self.check(what)
        self._asking.discard(thread)
        if failed:
            raise ExecutionError(f"{what}: the coordinator does not answer", got=str(failed[0]).splitlines()[0][:500])
        return found[0]

    def wait(self, raw: Any) -> None:
        """Until jaxlib's array ``raw`` is computed."""
        end = time.monotonic() + self.patience

        def ready() -> bool:
            # jaxlib's own timeout is for the devices of one process only.
            if (
                time.monotonic() > end
                and self.lost is None
                and not raw._sharding._internal_device_list.is_fully_addressable
            ):
                self.lost = (
                    f"a process has not come to this computation within {self.patience:g} seconds; it stands still"
                )
            return raw.is_ready()

        try:
            self.until(ready, "array")
            raw.block_until_ready()
        except ProcessLostError:
            raise
        except Exception as error:
            # What failed between processes failed because of one: the watch will say which.
            text = str(error)
            if "loo" in text:
                for _ in range(100):
                    self.check("array")
                    time.sleep(0.05)
            raise ExecutionError("array: its computation failed", got=text[:1000]) from None

    def barrier(self, name: str, timeout: float | None, line: str = "main") -> None:
        """Until every process has come here with the same name.

        What is done beside the main thread has a ``line`` of its own: barriers of one line come in one order.
        """
        self._barriers[line] = self._barriers.get(line, 0) + 1
        folder = f"{_PREFIX}barrier/{line}/{self._barriers[line]}"
        what = f"barrier {name!r}"
        self.ask(lambda: self.raw.key_value_set(f"{folder}/{self.process}", name), what)
        met: list[tuple[str, str]] = []

        def done() -> bool:
            met[:] = self.ask(lambda: self.raw.key_value_dir_get(folder), what)
            return len(met) == self.processes

        self.until(done, what, timeout)
        others = sorted({value for _, value in met} - {name})
        if others:
            raise ExecutionError(
                f"barrier {name!r}: the processes are at different places",
                got=f"others are at {', '.join(map(repr, others))}",
                fix=_SAME,
            )

    def stops(self, step: int) -> bool:
        """Whether all processes stop after ``step``, of which each asks in the same order."""
        if self.stop.passes(step):
            return False
        self.until(lambda: self.stop.last is not None, f"step {step}, before all stop")
        assert self.stop.last is not None
        return step >= self.stop.last

    def agree(self, text: str) -> None:
        """Before a program of several processes runs here for the first time: that others run the same one.

        Collectives of different programs would find each other, and give numbers that nobody asked for. Programs are
        known by their number among all that processes ran together; constants may differ, as data does. Whoever comes
        last sees what the others have said and raises, so that no one's collectives are ever complete.

        Args:
            text: the program; empty if it ran here before.
        """
        self._programs += 1
        if not text:
            return
        name = _NAME.search(text)
        said = f"{hashlib.sha256(_CONSTANTS.sub('', text).encode()).hexdigest()} {name[1] if name else 'program'}"
        folder = f"{_PREFIX}programs/{self._programs}"
        what = f"program {self._programs} of all processes"
        self.ask(lambda: self.raw.key_value_set(f"{folder}/{self.process}", said), what)
        found = _numbered(self.ask(lambda: self.raw.key_value_dir_get(folder), what))
        others = {p: s for p, s in found.items() if s.partition(" ")[0] != said.partition(" ")[0]}
        if others:
            process, other = next(iter(others.items()))
            raise ExecutionError(
                "jit: the processes do not run the same program",
                got=f"{said.partition(' ')[2]!r} in process {self.process}, {other.partition(' ')[2]!r} in {process}",
                expected="every process makes the same calls on arrays of several processes, in the same order",
                fix="branch on nx.process_index() only around what a process does by itself",
            )

    # --- leaving ---

    def leave(self, timeout: float, together: bool) -> None:
        """Go, after all others have come to that point if ``together``."""
        if together and self.lost is None:
            with contextlib.suppress(ExecutionError):  # who does not come is not waited for any longer
                self.barrier("shutdown", timeout)
        self._stop.set()
        if self._watcher is not None and not self.deaf:
            self._watcher.join(5)  # a thread that comes back from jaxlib while Python ends would end it with an abort
        failure = sys.exc_info()[1] or getattr(sys, "last_value", None)
        if not self.deaf:
            self._say_farewell(timeout, together, failure)
        if self.service is not None:
            self._end_service(self.lost is None and together)
        if self.lost is not None:
            # Computations with a lost process never end; jaxlib's client must not wait for them when Python ends.
            made = client.made("cpu")
            for kept in (self.raw, None if made is None else made.raw):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def _say_farewell(self, timeout: float, together: bool, failure: BaseException | None) -> None:
        try:
            if not together and failure is not None:
                reason = f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
                self.raw.key_value_set(f"{_PREFIX}failed/{self.process}", reason[:300])
            self.raw.key_value_set(f"{_PREFIX}left/{self.process}", "")
            if self.service is not None and together and self.lost is None:
                # The coordinator goes last: who is still connected when it goes is ended by jaxlib.
                self._until_all_left(timeout)
            if not any(thread.is_alive() for thread in self._asking):  # who would come back now, as above
                self.raw.shutdown()
        except Exception:
            pass  # the coordinator is gone already

    def _until_all_left(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.lost is None:
            if len(self.raw.key_value_dir_get(_PREFIX + "left")) >= self.processes:
                time.sleep(0.2)  # between the word of leaving and being gone
                return
            time.sleep(0.01)

    def _end_service(self, now: bool) -> None:
        assert self.service is not None and self.service.stdin is not None
        try:
            if now:
                self.service.stdin.write("end\n")
            self.service.stdin.close()
            if now:
                self.service.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.service.kill()


def _numbered(found: list[tuple[str, str]]) -> dict[int, str]:
    """What the processes said, by their numbers."""
    return {int(key.rpartition("/")[2]): value for key, value in found}


_group: list[ProcessGroup] = []


def group() -> ProcessGroup | None:
    """The processes joined, or None."""
    return _group[0] if _group else None


def join(
    coordinator_address: str,
    num_processes: int,
    process_id: int,
    *,
    bind_address: str,
    secret: str,
    initialization_timeout: int,
    heartbeat_timeout: int,
    shutdown_timeout: int,
    collective_timeout: int,
    collectives: str,
) -> None:
    """See `nxjax.distributed.initialize`."""
    if _group:
        raise ExecutionError("distributed.initialize: called twice", fix="call nx.distributed.shutdown() first")
    if client.is_made("cpu"):
        raise ExecutionError(
            "distributed.initialize: devices were used before",
            fix="call it first of all, before any array is put on a device and before any jitted call",
        )
    jaxlib, _ = client.need_jaxlib()
    service = None
    if process_id == 0:
        numbers = (num_processes, initialization_timeout, heartbeat_timeout, shutdown_timeout)
        service = _start(bind_address, numbers, initialization_timeout, secret)
    try:
        _answer(coordinator_address, process_id, num_processes, initialization_timeout, secret)
        members = ProcessGroup(None, num_processes, process_id, service, collective_timeout)
        host, _, port = coordinator_address.rpartition(":")
        relay = Relay(host.strip("[]"), int(port), members.coordinator_lost)
        _without_proxy()
        raw = members.raw = jaxlib.get_distributed_runtime_client(
            relay.address,
            process_id,
            init_timeout=initialization_timeout,
            shutdown_timeout=shutdown_timeout,
            heartbeat_timeout=PATIENT,
            shutdown_on_destruction=False,
            use_compression=True,
        )
        raw.connect()
        client.joined.update(
            distributed_client=raw,
            node_id=process_id,
            num_nodes=num_processes,
            collectives=_collectives(jaxlib, raw, collectives, coordinator_address) if num_processes > 1 else None,
        )
    except Exception as error:
        if service is not None:
            service.kill()
        raise ExecutionError(
            f"distributed.initialize: process {process_id} of {num_processes} could not join",
            got=str(error).splitlines()[0][:500] if str(error) else type(error).__name__,
            expected=f"all processes at {coordinator_address} within {initialization_timeout} seconds",
        ) from None
    executable.joined_timeout[:] = [collective_timeout]
    executable.together[:] = [members.agree] if num_processes > 1 else []
    buffers.waiting[:] = [members.wait]
    install_process_index(lambda: process_id)
    _group.append(members)
    if num_processes > 1:
        client.making[:] = [lambda make: members.ask(make, "devices of all processes")]
    atexit.register(_at_exit, shutdown_timeout)
    if num_processes > 1:
        members.watch(heartbeat_timeout)


def _without_proxy() -> None:
    """gRPC would look for the relay, on this machine's loopback, at the proxy that the environment names for HTTP."""
    name = "no_grpc_proxy"  # in small letters only, as gRPC reads it
    known = os.environ.get(name) or os.environ.get("no_proxy") or ""
    if "127.0.0.1" not in known.split(","):
        os.environ[name] = ",".join(filter(None, (known, "127.0.0.1")))


def leave(timeout: float) -> None:
    """See `nxjax.distributed.shutdown`."""
    if _group:
        _group.pop().leave(timeout, together=True)
        buffers.waiting.clear()


def _at_exit(timeout: float) -> None:
    # A process that ends because of an error tells the others, and does not wait for them.
    if _group:
        failed = getattr(sys, "last_value", None) is not None
        _group.pop().leave(timeout, together=not failed)


def _start(address: str, numbers: Sequence[int], timeout: int, secret: str) -> subprocess.Popen[str]:
    script = str(Path(__file__).with_name("coordinator.py"))
    command = [sys.executable, script, address, *map(str, numbers)]
    # A session of its own: the terminal's interrupt is for those who compute.
    made = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        # Arguments are seen by all users of the machine, variables are not.
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", SECRET: secret},
    )
    assert made.stdout is not None and made.stderr is not None
    timer = threading.Timer(timeout, made.kill)
    timer.start()
    line = made.stdout.readline()
    timer.cancel()
    if line.strip() != "ready":
        made.kill()
        words = [w for w in made.stderr.read().splitlines() if w.strip()]
        raise ExecutionError(
            "distributed.initialize: the coordinator does not start",
            got=words[-1][:500] if words else "no answer",
            fix=f"see that {address} is an address of this machine at which nothing else listens, or give process 0 "
            "another one to listen at: coordinator_bind_address=",
        )
    # What it says afterwards is nobody's business, but a full pipe would stop it.
    threading.Thread(target=made.stderr.read, daemon=True).start()
    return made


def _answer(address: str, process: int, processes: int, timeout: float, secret: str) -> None:
    """Report to the coordinator's roll call, and wait until all have.

    Raises:
        ConnectionError: somebody did not come, or numbers or secrets do not fit.
    """
    end = time.monotonic() + timeout
    host, _, port = address.rpartition(":")
    theirs = secrets.token_hex(16)
    why = "nobody listens there"
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise ConnectionError(why)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left) as connection:
                word, _, ours = _line(connection, end).partition(" ")
                if word != HELLO:
                    why = "something else listens there"
                    raise OSError(why)
                words = (str(process), str(processes), theirs)
                connection.sendall(" ".join((HELLO, *words, proof(secret, ours, *words))).encode() + b"\n")
                line = _line(connection, end + 5)
        except OSError:
            time.sleep(0.1)  # it may not have started yet, or had too many strangers at once
            continue
        word, _, said = line.partition(" ")
        if word == "go" and hmac.compare_digest(said, proof(secret, "go", theirs)):
            return
        raise ConnectionError(DIFFER if word == "go" else line or "the coordinator has gone")


def _line(connection: socket.socket, end: float) -> str:
    """One line, of a bounded length and before ``end``; empty where the other side closes instead."""
    found = b""
    while not found.endswith(b"\n"):
        connection.settimeout(max(end - time.monotonic(), 0.01))
        part = connection.recv(1)
        if not part or len(found) > LONGEST:
            return ""
        found += part
    return found.decode("ascii", "replace").strip()


def _collectives(jaxlib: Any, raw: Any, kind: str, coordinator: str) -> Any:
    if kind == "gloo":
        # The address that the others reach this process at: on one machine, the loopback.
        host = coordinator.rpartition(":")[0].strip("[]")
        local = host in ("localhost", "127.0.0.1", "::1")
        return jaxlib.make_gloo_tcp_collectives(raw, hostname="127.0.0.1" if local else None)
    if kind == "mpi":
        found = jaxlib.make_mpi_collectives()
        found.Init()
        return found
    raise ParameterError("distributed.initialize: cpu_collectives", got=repr(kind), expected="'gloo' or 'mpi'")
