"""The meeting point of several processes, in a process of its own: run as a script, it imports jaxlib only.

It stands apart so that no process that computes takes the others down: jaxlib ends whoever loses the coordinator.
Before jaxlib's service starts, the roll is called on the same port: jaxlib also ends whoever waits for others in vain.
Its life hangs on its standard input: a line ends it at once. Where the input ends without one, its parent died, and it
stays long enough for the others to notice.

    python coordinator.py ADDRESS PROCESSES TIMEOUT HEARTBEAT SHUTDOWN
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

# What a process says: this word, its number, and how many it believes there are.
HELLO = "nxjax"
# Seconds that jaxlib waits for signs of life, a year: it ends processes that it finds missing, and `distributed` looks
# after them in its own way.
PATIENT = 365 * 86400


def main(address: str, processes: int, timeout: int, heartbeat: int, shutdown: int) -> None:
    """Call the roll, then serve until told otherwise. Says ``ready`` on standard output when processes may come."""
    host, _, port = address.rpartition(":")
    server = _listen(host.strip("[]"), int(port))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    present = roll_call(server, processes, timeout)
    server.close()
    if len(present) < processes:
        missing = ", ".join(str(i) for i in range(processes) if i not in present)
        _tell(present, f"no process {missing}")
        return
    from jaxlib import _jax  # type: ignore[import-not-found]

    jaxlib: object = _jax
    service = jaxlib.get_distributed_runtime_service(  # type: ignore[attr-defined]
        address, processes, heartbeat_timeout=PATIENT, shutdown_timeout=shutdown, recoverable=True
    )
    _tell(present, "go")
    if not sys.stdin.readline():
        time.sleep(2 * heartbeat + 10)
    service.shutdown()


def _listen(host: str, port: int) -> socket.socket:
    if host in ("", "::"):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        host = ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def roll_call(server: socket.socket, processes: int, timeout: float) -> dict[int, socket.socket]:
    """The connections of the processes that have come in time, by number."""
    end = time.monotonic() + timeout
    present: dict[int, socket.socket] = {}
    while len(present) < processes and (left := end - time.monotonic()) > 0:
        server.settimeout(left)
        try:
            connection, _ = server.accept()
            connection.settimeout(5)
            words = connection.makefile().readline().split()
        except OSError:
            continue
        if len(words) != 3 or words[0] != HELLO:
            connection.close()  # somebody else's
        elif int(words[2]) != processes:
            _tell({0: connection}, f"another number of processes: {processes} at the coordinator")
        elif int(words[1]) in present:
            _tell({0: connection}, f"another process with number {words[1]}")
        else:
            present[int(words[1])] = connection
    return present


def _tell(present: dict[int, socket.socket], line: str) -> None:
    for connection in present.values():
        with contextlib.suppress(OSError), connection:
            connection.sendall(f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
