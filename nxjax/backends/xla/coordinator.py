"""The meeting point of several processes, in a process of its own: run as a script, it imports jaxlib only.

It stands apart so that no process that computes takes the others down: jaxlib ends whoever loses the coordinator.
Before jaxlib's service starts, the roll is called on the same port: jaxlib also ends whoever waits for others in vain.
Its life hangs on its standard input: a line ends it at once. Where the input ends without one, its parent died, and it
stays long enough for the others to notice.

    NXJAX_COORDINATOR_SECRET=... python coordinator.py ADDRESS PROCESSES TIMEOUT HEARTBEAT SHUTDOWN

The roll call: the coordinator says ``nxjax NUMBER``, a random one. Who comes answers ``nxjax PROCESS PROCESSES NUMBER
PROOF``, where the second number is its own and the proof is a keyed hash of all of these. When all are there, it hears
``go PROOF``, else a line that says what is wrong. Whoever else connects is not believed, waited for or remembered.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import selectors
import socket
import sys
import time

# The first word of both sides.
HELLO = "nxjax"
SECRET = "NXJAX_COORDINATOR_SECRET"
DIFFER = f"the secrets differ: {SECRET} must be the same in all processes"
# Bytes of a line, seconds that one who has connected may take to say who it is, and how many may be about to: the
# oldest of them gives way to a new one. A process says it at once, so only strangers are old.
LONGEST = 512
PROMPT = 5.0
PENDING = 512
# Seconds that jaxlib waits for signs of life, a year: it ends processes that it finds missing, and `distributed` looks
# after them in its own way.
PATIENT = 365 * 86400


def _more_files() -> None:
    """As many connections at once as the system allows."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(address: str, processes: int, timeout: int, heartbeat: int, shutdown: int) -> None:
    """Call the roll, then serve until told otherwise. Says ``ready`` on standard output when processes may come."""
    _more_files()
    host, _, port = address.rpartition(":")
    server = _listen(host.strip("[]"), int(port))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    secret = os.environ.get(SECRET, "")
    present = roll_call(server, processes, timeout, secret)
    server.close()
    if len(present) < processes:
        missing = ", ".join(str(i) for i in range(processes) if i not in present)
        for caller in present.values():
            caller.tell(f"no process {missing}")
        return
    from jaxlib import _jax  # type: ignore[import-not-found]

    jaxlib: object = _jax
    service = jaxlib.get_distributed_runtime_service(  # type: ignore[attr-defined]
        address, processes, heartbeat_timeout=PATIENT, shutdown_timeout=shutdown, recoverable=True
    )
    for caller in present.values():
        caller.tell(f"go {proof(secret, 'go', caller.theirs)}")
    if not sys.stdin.readline():
        time.sleep(2 * heartbeat + 10)
    service.shutdown()


def _listen(host: str, port: int) -> socket.socket:
    """A server at one address, or at all that there are where it is ``::``, ``0.0.0.0`` or empty."""
    if host in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
    failed: OSError | None = None
    for family, _, _, _, place in socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM):
        try:
            return socket.create_server(place[:2], family=family, backlog=1024)
        except OSError as error:
            failed = failed or error
    raise failed or OSError(f"{host} has no address")


def proof(secret: str, *words: str) -> str:
    """What only who knows the secret can say of ``words``."""
    return hmac.new(secret.encode(), " ".join(words).encode(), hashlib.sha256).hexdigest()


class Caller:
    """Who has connected.

    Attributes:
        theirs: its random number, once it has proved that it knows the secret.
        process: its number, from then on.
    """

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.connection = connection
        self.until = now + PROMPT
        self.ours = secrets.token_hex(16)
        self.theirs = ""
        self.process = -1
        self._said = b""
        connection.setblocking(False)
        self._send(f"{HELLO} {self.ours}")

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a short line fits, or nobody reads it
            self.connection.send(f"{line}\n".encode())

    def tell(self, line: str) -> None:
        """Say one line, the last one."""
        self._send(line)
        self.connection.close()

    def hear(self, processes: int, secret: str) -> bool:
        """Read what there is. False: nobody to wait for (any longer)."""
        try:
            data = self.connection.recv(LONGEST)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._said += data
        if not data or len(self._said) > LONGEST or self.process >= 0:
            return False  # gone, or nothing that one of ours says
        if not self._said.endswith(b"\n"):
            return True
        words = self._said.decode("ascii", "replace").split(" ")
        if len(words) != 5 or words[0] != HELLO or not all(w.isascii() and w.isdecimal() for w in words[1:3]):
            return False
        if not hmac.compare_digest(proof(secret, self.ours, *words[1:4]).encode(), words[4].strip().encode()):
            self._send(DIFFER)
            return False
        if int(words[2]) != processes:
            self._send(f"another number of processes: {processes} at the coordinator")
            return False
        if int(words[1]) >= processes:
            self._send(f"process {words[1]} of {processes}: they are numbered from 0")
            return False
        self.process, self.theirs = int(words[1]), words[3]
        return True


def roll_call(server: socket.socket, processes: int, timeout: float, secret: str = "") -> dict[int, Caller]:
    """The processes that have come in time, by number, and are still there."""
    end = time.monotonic() + timeout
    present: dict[int, Caller] = {}
    pending: dict[Caller, None] = {}  # in the order in which they came
    server.setblocking(False)
    with selectors.DefaultSelector() as selector:

        def forget(caller: Caller) -> None:
            selector.unregister(caller.connection)
            caller.connection.close()
            pending.pop(caller, None)
            if present.get(caller.process) is caller:
                del present[caller.process]

        def accept() -> None:
            try:
                connection, _ = server.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE) and pending:
                    forget(next(iter(pending)))
                return
            caller = Caller(connection, time.monotonic())
            pending[caller] = None
            selector.register(connection, selectors.EVENT_READ, caller)
            if len(pending) > PENDING:
                forget(next(iter(pending)))

        selector.register(server, selectors.EVENT_READ)
        while len(present) < processes and (left := end - time.monotonic()) > 0:
            oldest = next((c.until for c in pending), end)
            for key, _ in selector.select(max(0.0, min(left, oldest - time.monotonic()))):
                caller = key.data
                if caller is None:
                    accept()
                elif caller in pending or present.get(caller.process) is caller:  # not forgotten a moment ago
                    if not caller.hear(processes, secret):
                        forget(caller)
                    elif caller.process >= 0 and caller in pending:
                        del pending[caller]
                        if caller.process in present:
                            selector.unregister(caller.connection)
                            caller.tell(f"another process with number {caller.process}")
                        else:
                            present[caller.process] = caller
            for caller in [c for c in pending if c.until < time.monotonic()]:
                forget(caller)
        for caller in list(pending):
            forget(caller)
    return present


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
